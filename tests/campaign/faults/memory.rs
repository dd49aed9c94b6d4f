//! A server has no memory left.

use super::{Fault, anywhere, fault};
use harness::cmd;
use std::time::Duration;

pub(super) const FAULTS: &[Fault] =
    &[fault("no memory for a moment", 2, anywhere, |at, moment, random| {
        let server = at.primary(random);
        let set = |bytes| drop(server.connect().call(cmd!["CONFIG", "SET", "maxmemory", bytes]));
        let time = Duration::from_millis(50 + random.below(500));
        moment.for_a_while(time, || set(1), || set(0));
    })];
