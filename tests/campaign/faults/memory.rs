//! A server has no memory left.

use super::Fault;
use harness::cmd;
use std::thread::sleep;
use std::time::Duration;

pub(super) const FAULTS: &[Fault] = &[Fault {
    name: "no memory for a moment",
    weight: 2,
    on: |_| true,
    act: |at, moment, random| {
        let mut server = at.primary(random).connect();
        moment.is(|| {
            server.call(cmd!["CONFIG", "SET", "maxmemory", 1]);
            sleep(Duration::from_millis(50 + random.below(500)));
            server.call(cmd!["CONFIG", "SET", "maxmemory", 0]);
        });
    },
}];
