//! Effects of client faults on locks: client processes are killed, stopped, blocked, starved or cut off, or
//! their dates jump.
//!
//! The clients are separate processes that use the crate `kvlock` with one real server. Each client reports
//! the times in which it believes that it holds a lock. All clients read the same clock for these reports. At
//! the end the beliefs are checked.

mod client;
mod in_line;
mod load;
mod messages;
mod process;
mod scene;
mod stopped;
mod store;

use self::scene::{CHECKED, Scene};
use crate::Options;
use crate::report::Report;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// A scenario: the processes and their faults.
#[derive(Clone, Copy)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// Rows of `docs/evidence.md`: numbers of the scoreboard, and with `F` of the fault schedules.
    pub(crate) evidence: &'static str,
    pub(crate) what: &'static str,
    act: fn(&Scene, &Options, &Report),
    /// Counters that must be at least one.
    wants: &'static [&'static str],
}

#[rustfmt::skip]
pub(crate) const ALL: [Scenario; 7] = [
    Scenario { name: "killed", evidence: "7, F1", what: "holders killed with ten in line", act: in_line::killed, wants: &[] },
    Scenario { name: "stopped", evidence: "4, 5, F2", what: "holders stopped for three times their lease", act: stopped::run, wants: &[] },
    Scenario { name: "waiting", evidence: "F3", what: "waiters stopped who are handed the lock", act: in_line::waiting, wants: &[] },
    Scenario { name: "dates", evidence: "F10", what: "clients whose date jumps", act: load::dates, wants: &[client::WRONG_DAY] },
    Scenario { name: "starved", evidence: "F24", what: "clients without processor time", act: load::starved, wants: &[] },
    Scenario { name: "blocked", evidence: "F24", what: "clients whose runtime is blocked", act: load::blocked, wants: &[] },
    Scenario { name: "mixture", evidence: "2", what: "client processes killed, stopped and cut off", act: load::mixture, wants: &load::FAULTS },
];

impl Scenario {
    /// Runs the scenario on a new server.
    pub(crate) fn play(self, options: &Options, report: &Report) {
        let scene = Scene::set(options.seed.number, options.wrong_clock);
        let acted = catch_unwind(AssertUnwindSafe(|| (self.act)(&scene, options, report)));
        scene.close(self.name, report);
        [CHECKED].iter().chain(self.wants).for_each(|what| report.wants(what, 1));
        let count = |what| report.count(what);
        report.figure(format!(
            "{} grants whose beliefs were checked, of {} processes, {} lost",
            count(CHECKED),
            count("client processes"),
            count("lost"),
        ));
        acted.unwrap_or_else(|panic| resume_unwind(panic));
    }
}

/// Runs as a client process if the arguments ask for it: the program starts itself as its clients.
pub(crate) fn serve(mut words: impl Iterator<Item = String>) -> Option<()> {
    let is_client = words.next()? == "client";
    let role = words.next().filter(|_| is_client)?;
    client::run(serde_json::from_str(&role).ok()?);
    Some(())
}
