//! Owns the dump of flows, and when it has to be made again. Knows nothing of deleting.

use super::{Conntrack, Filter, Flow, flow, kind, message};
use crate::Error;
use crate::socket::Answered;
use crate::wire::{self, NLM_F_DUMP};
use nix::errno::Errno;

/// Each is cut only when answers were lost or the kernel was interrupted.
const TRIES: usize = 5;

impl Conntrack {
    /// Shows every flow that agrees with a filter to `each`. A dump that was cut is made again from its beginning,
    /// so that a flow may be shown twice; a flow that comes or goes meanwhile may be shown or not.
    ///
    /// # Errors
    /// [`Error::Read`] without privilege; [`Error::Unsettled`] if every dump was cut.
    pub fn dump(&mut self, filter: &Filter, mut each: impl FnMut(Flow)) -> Result<(), Error> {
        const EINVAL: i32 = Errno::EINVAL as i32;
        const EOPNOTSUPP: i32 = Errno::EOPNOTSUPP as i32;
        let mut in_kernel = true;
        for _ in 0..TRIES {
            match self.try_dump(filter, in_kernel, &mut each) {
                Ok(Answered::Whole | Answered::Missing) => return Ok(()),
                Ok(Answered::Interrupted) => {}
                // A kernel that knows of the filter, but not of all in it.
                Err(Error::Read { errno: EINVAL | EOPNOTSUPP, .. }) if in_kernel => in_kernel = false,
                Err(error) => return Err(error),
            }
        }
        Err(Error::Unsettled { what: "flows".into(), tries: TRIES })
    }

    fn try_dump(
        &mut self,
        filter: &Filter,
        in_kernel: bool,
        each: &mut dyn FnMut(Flow),
    ) -> Result<Answered, Error> {
        let mut request = Vec::with_capacity(128);
        let family = wire::nfproto(filter.family);
        let start = wire::begin(&mut request, kind(message::GET), NLM_F_DUMP, 0, family, 0);
        if in_kernel {
            filter.push(&mut request);
        }
        wire::end(&mut request, start);
        self.socket.request(&"flows", &mut request, &mut |message| {
            let shown = flow::read(message.attributes()).filter(|flow| filter.matches(flow));
            shown.into_iter().for_each(&mut *each);
            Ok(())
        })
    }
}
