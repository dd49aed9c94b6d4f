//! What the faults of client processes do to each other's locks: holders and waiters that are
//! killed, stopped, starved, cut off, or whose date jumps.
//!
//! The clients are processes of their own, on one real server, and use the crate `kvlock`. Each
//! says when it believes to hold which lock; they all read the same clock. At the end that must be
//! what a lock allows: see [`beliefs`].

mod beliefs;
mod client;
mod end;
mod killed;
mod load;
mod process;
mod role;
mod said;
mod scene;
mod stopped;
mod store;
mod waiting;

use self::scene::Scene;
use crate::Options;
use crate::report::Report;
use std::time::{Duration, Instant};

/// What is done to the processes.
#[derive(Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// The rows of the scoreboard.
    pub(crate) evidence: &'static str,
    pub(crate) what: &'static str,
    act: fn(&Scene, &Options, &Report),
}

#[rustfmt::skip]
pub(crate) const ALL: [Scenario; 7] = [
    Scenario { name: "killed", evidence: "7, F1", what: "holders killed with ten in line", act: killed::run },
    Scenario { name: "stopped", evidence: "4, 5, F2", what: "holders stopped for three times their lease", act: stopped::run },
    Scenario { name: "waiting", evidence: "F3", what: "waiters stopped who are handed the lock", act: waiting::run },
    Scenario { name: "dates", evidence: "F10", what: "clients whose date jumps", act: load::dates },
    Scenario { name: "starved", evidence: "F24", what: "clients without processor time", act: load::starved },
    Scenario { name: "blocked", evidence: "F24", what: "clients whose runtime is blocked", act: load::blocked },
    Scenario { name: "mixture", evidence: "2", what: "client processes killed, stopped and cut off", act: load::mixture },
];

impl Scenario {
    /// Plays it on a server of its own.
    pub(crate) fn play(self, options: &Options, report: &Report) {
        let scene = Scene::set(self.name, options.seed.number, options.wrong_clock);
        (self.act)(&scene, options, report);
        scene.close(report);
        let count = |what| report.count(what);
        report.figure(format!(
            "{} grants whose beliefs were checked, of {} processes, {} lost",
            count("grants whose beliefs were checked"),
            count("client processes"),
            count("lost"),
        ));
    }
}

/// Does what this process was started for by another one of the program, if it was.
pub(crate) fn serve(mut words: impl Iterator<Item = String>) -> Option<()> {
    match words.next()?.as_str() {
        "client" => client::run(serde_json::from_str(&words.next()?).ok()?),
        "burn" => burn(Duration::from_millis(words.next()?.parse().ok()?)),
        _ => return None,
    }
    Some(())
}

/// Keeps a processor busy.
fn burn(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}
