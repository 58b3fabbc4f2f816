//! What the kernel makes of our messages. Each test has a network namespace of its own, and needs the privilege to
//! make one: run as root, or in `unshare --user --map-root-user --net`.

mod address;
mod commit;
mod conntrack;
mod foreign_rules;
mod listing;
mod model;
mod monitor;
mod refusal;
mod ruleset;
mod strategy;
