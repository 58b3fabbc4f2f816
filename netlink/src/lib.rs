//! netlink
