//! Owns a table whose user data nobody understands, as a newer nft may write it: bare netlink, since no library has words
//! for it. Knows nothing of who reads it.

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};
use std::io;

const NFNL_SUBSYS_NFTABLES: u16 = 10;
const NFNL_MSG_BATCH_BEGIN: u16 = 0x10;
const NFNL_MSG_BATCH_END: u16 = 0x11;
const NFT_MSG_NEWTABLE: u16 = 0;
const NFT_MSG_NEWCHAIN: u16 = 3;
const NFT_MSG_NEWRULE: u16 = 6;
const NFT_MSG_NEWSET: u16 = 9;
const NFT_MSG_NEWSETELEM: u16 = 12;
/// `NLM_F_REQUEST`, `NLM_F_CREATE`, and `NLM_F_ACK`.
const REQUEST: u16 = 0x1;
const CREATE: u16 = 0x400;
const ACK: u16 = 0x4;
const NFPROTO_IPV4: u8 = 2;
/// Types and lengths that make no sense together: a type that is not known, one that is longer than what is left, and
/// rubbish.
const NOTES: [u8; 14] = [200, 3, 1, 2, 3, 0, 255, 1, 7, 0, 250, 9, 9, 9];

/// Writes a table with a set, an element, a chain and a rule in the namespace of the calling thread, all with such notes.
pub(crate) fn write(table: &str) -> io::Result<()> {
    let nft = |kind: u16| NFNL_SUBSYS_NFTABLES << 8 | kind;
    let table = text(1, table);
    let set_id = attribute(10, &1_u32.to_be_bytes());
    let key = attribute(1, &attribute(1, &[192, 0, 2, 1]));
    let element = attribute(1 | NESTED, &[key, attribute(6, &NOTES)].concat());
    let messages = [
        message(NFNL_MSG_BATCH_BEGIN, REQUEST, 0, NFNL_SUBSYS_NFTABLES, &[]),
        message(nft(NFT_MSG_NEWTABLE), REQUEST | CREATE, NFPROTO_IPV4, 0, &[&table, &attribute(6, &NOTES)]),
        message(
            nft(NFT_MSG_NEWSET),
            REQUEST | CREATE,
            NFPROTO_IPV4,
            0,
            &[
                &table,
                &text(2, "notes"),
                &attribute(3, &0_u32.to_be_bytes()),
                // A type of nft's own numbers that no nft has, of four bytes.
                &attribute(4, &9999_u32.to_be_bytes()),
                &attribute(5, &4_u32.to_be_bytes()),
                &set_id,
                &attribute(13, &NOTES),
            ],
        ),
        message(
            nft(NFT_MSG_NEWSETELEM),
            REQUEST | CREATE,
            NFPROTO_IPV4,
            0,
            &[&table, &text(2, "notes"), &attribute(3 | NESTED, &element)],
        ),
        message(
            nft(NFT_MSG_NEWCHAIN),
            REQUEST | CREATE,
            NFPROTO_IPV4,
            0,
            &[&table, &text(3, "notes"), &attribute(12, &NOTES)],
        ),
        message(
            nft(NFT_MSG_NEWRULE),
            REQUEST | CREATE,
            NFPROTO_IPV4,
            0,
            &[&table, &text(2, "notes"), &attribute(7, &NOTES)],
        ),
        message(NFNL_MSG_BATCH_END, REQUEST | ACK, 0, NFNL_SUBSYS_NFTABLES, &[]),
    ];
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.send_to(&messages.concat(), &SocketAddr::new(0, 0), 0)?;
    // A refusal comes first, if there is one.
    let (answer, _) = socket.recv_from_full()?;
    let errno = answer.get(16..20).and_then(|bytes| bytes.try_into().ok()).map_or(0, i32::from_ne_bytes);
    if errno == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-errno)) }
}

const NESTED: u16 = 0x8000;

fn message(kind: u16, flags: u16, family: u8, resource: u16, attributes: &[&[u8]]) -> Vec<u8> {
    let body = attributes.concat();
    let mut bytes = Vec::new();
    bytes.extend(u32::try_from(20 + body.len()).unwrap_or_default().to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([family, 0]);
    bytes.extend(resource.to_be_bytes());
    bytes.extend(body);
    bytes
}

fn text(kind: u16, text: &str) -> Vec<u8> {
    attribute(kind, format!("{text}\0").as_bytes())
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(u16::try_from(4 + value.len()).unwrap_or_default().to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}
