//! A server has no memory left.

use super::{Fault, anywhere, fault};
use harness::cmd;
use std::thread::sleep;
use std::time::Duration;

pub(super) const FAULTS: &[Fault] =
    &[fault("no memory for a moment", 2, anywhere, |at, moment, random| {
        let mut server = at.primary(random).connect();
        moment.is(|| {
            server.call(cmd!["CONFIG", "SET", "maxmemory", 1]);
            sleep(Duration::from_millis(50 + random.below(500)));
            server.call(cmd!["CONFIG", "SET", "maxmemory", 0]);
        });
    })];
