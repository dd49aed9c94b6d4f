//! What can be done to any server that is up, by a command.

use super::{Fault, anywhere, fault, on};
use crate::round::Moment;
use crate::topology::Nodes;
use harness::random::Random;
use harness::{Server, cmd};
use std::time::Duration;

pub(super) const FAULTS: &[Fault] = &[
    fault("CLIENT KILL", 2, anywhere, |at, moment, random| {
        kill_clients(&[at.primary(random)], moment);
    }),
    fault("CLIENT KILL at all servers", 2, on::<Nodes>, |at, moment, _| {
        kill_clients(&at.servers(), moment);
    }),
    fault("CLIENT PAUSE WRITE", 2, anywhere, |at, moment, random| {
        pause(at.primary(random), "WRITE", moment, random);
    }),
    fault("CLIENT PAUSE ALL", 2, anywhere, |at, moment, random| {
        pause(at.primary(random), "ALL", moment, random);
    }),
    fault("DEBUG SLEEP", 2, anywhere, |at, moment, random| {
        // Longer than the short leases, and shorter than what a failover begins with.
        let time = format!("0.{}", 10 + random.below(50));
        let mut connection = at.primary(random).connect();
        moment.is(|| connection.call(cmd!["DEBUG", "SLEEP", time]));
    }),
];

fn kill_clients(servers: &[&Server], moment: &mut Moment<'_>) {
    let mut connections: Vec<_> = servers.iter().map(|server| server.connect()).collect();
    moment.is(|| {
        for connection in &mut connections {
            connection.call(cmd!["CLIENT", "KILL", "TYPE", "normal"]);
        }
    });
}

fn pause(server: &Server, which: &str, moment: &mut Moment<'_>, random: &mut Random) {
    let time = 50 + random.below(250);
    server.connect().call(cmd!["CLIENT", "PAUSE", time, which]);
    moment.lasts(Duration::from_millis(time));
}
