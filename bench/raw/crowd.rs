//! Repeatedly, a writer releases a lock and many readers are granted it; then the writer waits until the last
//! reader has released. One thread that never sleeps acts as all clients, so the times are mostly spent
//! in the server, and do not include wake-ups of client threads.
//!
//! In every other turn, a separate connection has a `PING` in flight during each measurement. Its longest
//! round trip is the longest delay of other clients.

mod line;
pub(crate) mod noisy;
mod others;
pub(crate) mod pairs;
mod talk;

use crate::native::owner;
use driver::{Args, now};
use line::{Line, Probe};
use std::fmt::Write as _;
use std::io::Write as _;
use talk::Talk;

/// A lease that does not end during the measurement.
const LEASE_MS: &str = "600000";
/// Minimum number of turns: one without and one with the probe.
const TURNS: usize = 2;
const KEY: &str = "crowd";

/// A client of the lock.
struct Member {
    owner: String,
    line: Line,
    /// A connection for the subscription, if the protocol needs one.
    news: Option<Line>,
}

/// Times of one turn, in nanoseconds.
#[derive(Default)]
struct Turn {
    probed: bool,
    /// From the release to the last reader's grant.
    granted: u64,
    /// The longest `PING` in that time.
    stall: u64,
    /// The longest `PING` in an equally long time without load.
    quiet: u64,
    /// From the first reader's release until all readers but one have released.
    leaving: u64,
    /// The longest `PING` in that time.
    leaving_stall: u64,
    /// From the last reader's release to the writer's grant.
    writer: u64,
}

struct Crowd {
    talk: Talk,
    readers: Vec<Member>,
    writer: Member,
    probe: Probe,
}

pub(crate) fn run(args: &Args) {
    let url = args.text("url");
    let mut probe = Probe::connect(url);
    let talk = Talk::new(args.text("proto"), &mut Line::connect(url), &mut probe);
    let subscribes = talk.subscribes();
    let member = |number| Member {
        owner: owner(number, 1),
        line: Line::connect(url),
        news: subscribes.then(|| Line::connect(url)),
    };
    let readers: usize = args.number("tasks");
    let readers: Vec<Member> = (1..=readers).map(member).collect();
    let mut crowd = Crowd { talk, readers, writer: member(0), probe };
    crowd.talk.write(&mut crowd.writer, &mut crowd.probe);
    // Run one turn that is not measured: the first turn has costs that occur only once.
    crowd.turn(false);
    println!("ready {}", env!("CARGO_PKG_VERSION"));
    let go = std::io::stdin().lines().next().unwrap().unwrap();
    let end: u64 = go.rsplit(' ').next().unwrap().parse().unwrap();
    let mut text = String::new();
    let mut turns = 0;
    while turns < TURNS || now() < end {
        let Turn { probed, granted, stall, quiet, leaving, leaving_stall, writer } =
            crowd.turn(turns % 2 == 1);
        let probed = u8::from(probed);
        writeln!(text, "{probed} {granted} {stall} {quiet} {leaving} {leaving_stall} {writer}")
            .unwrap();
        turns += 1;
    }
    text.push_str("done\n");
    std::io::stdout().write_all(text.as_bytes()).unwrap();
}

impl Crowd {
    /// Runs one turn. The writer has the lock before and after the turn.
    fn turn(&mut self, probed: bool) -> Turn {
        let mut turn = Turn { probed, ..Turn::default() };
        let Self { talk, readers, writer, probe } = self;
        talk.line_up(readers, probe);

        probe.begin(probed);
        let begun = now();
        talk.release_to(writer, readers, probe);
        turn.granted = now() - begun;
        turn.stall = probe.end();

        probe.begin(probed);
        let begun = now();
        while now() - begun < turn.granted {
            probe.look();
        }
        turn.quiet = probe.end();
        talk.tidy(writer, readers, probe);

        talk.line_up_to_write(writer, probe);
        let (last, others) = readers.split_last_mut().unwrap();
        probe.begin(probed);
        let begun = now();
        talk.leave(others, probe);
        turn.leaving = now() - begun;
        turn.leaving_stall = probe.end();

        // Wait until earlier work of the server is done, because that work is not measured.
        probe.settle();
        let begun = now();
        talk.leave_to(last, writer, probe);
        turn.writer = now() - begun;
        talk.tidy_readers(readers, writer, probe);
        turn
    }
}
