//! A server that sleeps for longer than a lease, because a command keeps it busy or because its
//! process is stopped. What lay in its sockets meanwhile is carried out when it wakes, at the date
//! that it is then: a renewal does not count from when it arrived.

use crate::asking::{LONG, release, token, wait_in_line};
use harness::{Kind, Server, Value, cmd, on_each_server, wait};
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(60);

fn pass(until: Instant) {
    wait::until("so long has passed", LIMIT, || {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() { Ok(()) } else { Err(format!("{left:?} to go")) }
    });
}

fn what_arrived_while_the_server_slept_past_the_lease_comes_too_late(kind: Kind) {
    let lease = Duration::from_secs(1);
    let server = Server::options().kind(&kind).start();
    let mut control = server.connect();
    for stopped in [true, false] {
        let (mut alice, mut bob) = (server.connect(), server.connect());
        let first = token(&alice.call(cmd!["LOCK.ACQUIRE", "k", "alice", 1000]));
        // The server counts whole milliseconds, and the last one to its end.
        let over = Instant::now() + lease + Duration::from_millis(10);
        wait_in_line(&mut bob, &mut control, "k", "bob");
        if stopped {
            server.stand_still();
        } else {
            alice.send(cmd!["DEBUG", "SLEEP", "1.2"]);
        }
        let late = [
            cmd!["LOCK.RENEW", "k", "alice", LONG],
            cmd!["LOCK.ACQUIRE", "k", "alice", LONG],
            cmd!["LOCK.RELEASE", "k", "alice"],
        ];
        late.iter().for_each(|command| alice.send(command));
        pass(over);
        if stopped {
            server.signal(Signal::SIGCONT);
        } else {
            assert_eq!(alice.receive(LIMIT).unwrap(), Value::Status("OK".into()));
        }
        for command in late {
            let name = String::from_utf8_lossy(&command[0]).into_owned();
            assert_eq!(alice.receive(LIMIT).unwrap(), Value::Nil, "{name}, stopped: {stopped}");
        }
        assert!(token(&bob.receive(LIMIT).unwrap()) > first);
        assert_eq!(release(&mut bob, "k", "bob"), Value::Integer(0));
    }
    server.assert_alive();
}

on_each_server!(what_arrived_while_the_server_slept_past_the_lease_comes_too_late,);
