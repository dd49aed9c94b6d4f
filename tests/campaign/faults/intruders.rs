//! Administrators delete or flush locks, and a server without free memory evicts them. The holders use the
//! Rust client.

use super::{Class, Fault, anywhere, fault};
use crate::round::Moment;
use crate::topology::Topology;
use harness::history::{Outcome, Request};
use harness::{Server, cmd};

pub(super) const FAULTS: &[Fault] = &[
    fault("locks deleted", 4, anywhere, |at, moment, _| {
        let keys = moment.round.keys.clone();
        breaks(at, moment, |server| {
            let mut connection = server.connect();
            for key in &keys {
                // Replicas refuse the command, and so do nodes of a cluster that do not have the key's slot.
                connection.call(cmd!["DEL", key]);
            }
        });
    })
    .of(Class::Stranger),
    fault("all keys flushed", 4, anywhere, |at, moment, _| {
        breaks(at, moment, |server| {
            server.connect().call(cmd!["FLUSHALL"]);
        });
    })
    .of(Class::Stranger),
    fault("keys evicted", 4, anywhere, |at, moment, random| {
        let policy = *random.pick(&["allkeys-lru", "allkeys-random", "volatile-ttl"]);
        breaks(at, moment, |server| {
            let mut connection = server.connect();
            let set = |policy: &str, limit: u64| {
                cmd!["CONFIG", "SET", "maxmemory-policy", policy, "maxmemory", limit]
            };
            connection.call(set(policy, 1));
            // The server checks its memory, and evicts keys, before each command.
            connection.call(cmd!["PING"]);
            connection.call(set("noeviction", 0));
        });
    })
    .of(Class::Stranger),
];

/// Runs `act` on each server, and records that this action may have ended any hold.
fn breaks(at: &dyn Topology, moment: &mut Moment<'_>, act: impl Fn(&Server)) {
    let recorder = &moment.round.recorder;
    let keys = moment.round.keys.iter();
    let calls: Vec<_> = keys.map(|key| recorder.sent(key, "stranger", Request::Break)).collect();
    moment.is(|| at.servers().into_iter().for_each(&act));
    let recorder = &moment.round.recorder;
    calls.into_iter().for_each(|call| recorder.answered(call, Outcome::Done));
}
