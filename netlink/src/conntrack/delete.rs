//! Owns the deleting of flows, in runs. Knows nothing of which.

use super::{Conntrack, Flow, RUN, Zone, kind, message, tuple};
use crate::Error;
use crate::socket::Received;
use crate::wire;
use netlink_bindings::conntrack::PushConntrackAttrs;
use nix::errno::Errno;

impl Conntrack {
    /// Deletes flows, each by its original tuple, zone and number; returns how many were there to delete. Another
    /// flow that has taken a tuple over meanwhile stays.
    ///
    /// # Errors
    /// [`Error::Read`] without privilege, [`Error::Send`]. What was deleted until then stays deleted.
    pub fn delete(&mut self, flows: &[Flow]) -> Result<usize, Error> {
        let mut deleted = 0;
        for run in flows.chunks(RUN) {
            let gone = self.send_run(run, kind(message::DELETE), 0, Errno::ENOENT, |bytes, flow| {
                let mut original =
                    tuple::push(PushConntrackAttrs::new(bytes).nested_tuple_orig(), &flow.original);
                // A flow that is in a zone only in the reply direction is found without it.
                if let Zone::Original(zone) = flow.zone {
                    original = original.push_tuple_zone(zone);
                }
                let mut attributes = original.end_nested();
                if let Zone::Both(zone @ 1..) = flow.zone {
                    attributes = attributes.push_zone(zone);
                }
                attributes.push_id(flow.id).end_nested();
            })?;
            deleted += run.len() - gone;
        }
        Ok(deleted)
    }

    /// Sends a message for each of a run of flows; returns how many the kernel refused with `expected`.
    pub(super) fn send_run(
        &mut self,
        run: &[Flow],
        kind: u16,
        flags: u16,
        expected: Errno,
        fill: impl Fn(&mut Vec<u8>, &Flow),
    ) -> Result<usize, Error> {
        self.socket.drain()?;
        let first = self.socket.sequence(run.len() as u32);
        let mut bytes = Vec::with_capacity(run.len() * 144);
        for (seq, flow) in (first..).zip(run) {
            let family = wire::nfproto(flow.original.family());
            let start = wire::begin(&mut bytes, kind, flags, seq, family, 0);
            fill(&mut bytes, flow);
            wire::end(&mut bytes, start);
        }
        self.socket.send(&bytes)?;
        // Success is silence: every refusal waits to be read once the send returns.
        let mut refused = 0;
        loop {
            let datagram = match self.socket.receive()? {
                Received::Datagram(datagram) => datagram,
                Received::Overrun => return Err(Error::Overrun),
                Received::Nothing => return Ok(refused),
            };
            for answer in wire::messages(datagram).filter(|answer| answer.kind == wire::NLMSG_ERROR) {
                match (answer.errno(), run.get(answer.seq.wrapping_sub(first) as usize)) {
                    (0, _) | (_, None) => {}
                    (errno, Some(_)) if errno == expected as i32 => refused += 1,
                    (errno, Some(flow)) => return Err(Error::Read { what: format!("flow {flow}"), errno }),
                }
            }
        }
    }
}
