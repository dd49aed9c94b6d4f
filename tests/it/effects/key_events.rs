//! Keyspace events: as the core commands would give them, to those who asked for them only.

use crate::stage::{LONG, SOON, Stage};
use harness::{Connection, Kind, on_each_server};

/// A connection that hears all key events.
fn listen(stage: &mut Stage, asked: &str) -> Connection {
    stage.run(&format!("CONFIG SET notify-keyspace-events \"{asked}\""));
    let mut listener = stage.server.connect();
    listener.run("PSUBSCRIBE __key*__:*");
    listener
}

/// What was heard until now, as `event key`; the key events of this listener's own command end it.
fn heard(stage: &mut Stage, listener: &mut Connection) -> Vec<String> {
    stage.run("PUBLISH __keyevent@0__:end end");
    let mut events = Vec::new();
    loop {
        let message = listener.receive(SOON).expect("a message");
        let (channel, key) = (message[2].text(), message[3].text());
        let event = channel.rsplit(':').next().unwrap().to_owned();
        if event == "end" {
            return events;
        }
        events.push(format!("{event} {key}"));
    }
}

fn every_change_is_told_as_the_core_command_that_makes_it(kind: Kind) {
    let mut stage = Stage::new(&kind);
    stage.run("DEBUG SET-ACTIVE-EXPIRE 0");
    let mut listener = listen(&mut stage, "EA");
    let mut expect = |stage: &mut Stage, line: &str, events: &[&str]| {
        let reply = stage.run(line);
        assert!(!reply.is_error(), "{line}: {reply}");
        assert_eq!(heard(stage, &mut listener), events, "{line}");
    };
    expect(&mut stage, "LOCK.ACQUIRE k alice 600000", &["hset k", "expire k", "set kvlock:floor"]);
    expect(&mut stage, "LOCK.ACQUIRE k alice 1000", &["hset k"]);
    expect(&mut stage, "LOCK.ACQUIRE k alice 900000", &["hset k", "expire k"]);
    expect(&mut stage, "LOCK.ACQUIRE k alice 1000 HOLDS 3", &[]);
    expect(&mut stage, "LOCK.RENEW k alice 600000", &["expire k"]);
    expect(&mut stage, "LOCK.RELEASE k alice", &["hset k"]);
    for refused in ["ACQUIRE k bob 1000", "RENEW k bob 1", "RELEASE k bob", "INFO k", "LIST"] {
        expect(&mut stage, &format!("LOCK.{refused}"), &[]);
    }
    stage.granted_unseen();
    let mut bob = stage.wait("k", "bob");
    let mut carol = stage.wait("k", "carol");
    let mut dave = stage.wait("k", "dave");
    expect(&mut stage, "LOCK.RELEASE k alice ALL", &["del k", "hset k", "expire k"]);
    stage.granted(&mut bob);
    expect(&mut stage, "LOCK.FORCERELEASE k", &["del k", "hset k", "expire k"]);
    stage.granted(&mut carol);
    stage.run("LOCK.RENEW k carol 50");
    stage.granted(&mut dave);
    expect(&mut stage, "PING", &["expire k", "expired k", "hset k", "expire k"]);
    expect(&mut stage, "LOCK.RELEASE k dave", &["del k"]);
    stage.check();
}

fn only_the_events_that_were_asked_for_are_told(kind: Kind) {
    let mut stage = Stage::new(&kind);
    let all = ["hset k", "expire k", "del k"];
    // Nothing, hashes, commands on any type, and an answer on the other kind of channel.
    for (asked, channels) in [
        ("", &[][..]),
        ("Eh", &all[..1]),
        ("Eg", &all[1..]),
        ("Kg", &["k expire", "k del"]),
        ("KEgh", &["k hset", "hset k", "k expire", "expire k", "k del", "del k"]),
        ("E$x", &[]),
        ("hg$", &[]),
    ] {
        let mut listener = listen(&mut stage, asked);
        // With the module's own ears open or not.
        stage.hold("l", "alice", LONG);
        let mut bob = stage.wait("l", "bob");
        stage.run("CONFIG SET notify-keyspace-events \"\"");
        stage.run(&format!("CONFIG SET notify-keyspace-events \"{asked}\""));
        stage.hold("k", "alice", LONG);
        stage.release("k", "alice");
        let heard = heard(&mut stage, &mut listener);
        let of_k = heard.iter().filter(|event| event.split(' ').any(|word| word == "k"));
        assert_eq!(of_k.collect::<Vec<_>>(), channels, "{asked}");
        stage.release("l", "alice");
        stage.granted(&mut bob);
        stage.release("l", "bob");
        listener.run("PUNSUBSCRIBE");
    }
    stage.check();
}

on_each_server!(
    every_change_is_told_as_the_core_command_that_makes_it,
    only_the_events_that_were_asked_for_are_told,
);
