//! One server that dies under load repeatedly. Counts lost grants, grants to a second owner, and tokens that
//! do not grow, for each way to persist grants.

mod load;
mod trial;

use self::trial::Trial;
use crate::Options;
use crate::report::Report;
use harness::Server;
use harness::disk::Disk;
use harness::evidence::TWICE;
use harness::random::Random;
use std::time::Duration;

/// A lease that outlasts a load and the restart after it.
const LONG: Duration = Duration::from_secs(600);

/// A lease that is long enough for a load and a start on a busy machine, and short enough to wait for its
/// end.
const SHORT: Duration = Duration::from_secs(5);

const ALWAYS: &str = "always";
const EVERY_SECOND: &str = "everysec";

// Names of counters.
const CRASHES: &str = "crashes";
/// Grants that clients received.
const GRANTED: &str = "granted";
/// Grants whose release was not requested, and whose lease cannot have ended, when the server was back.
const STANDING: &str = "standing";
/// Standing grants that the server had lost.
const LOST: &str = "lost";
/// Grants whose token is not larger than every token, of any lock, that a client had received before the
/// request.
const TOKENS_BACK: &str = "tokens back";

/// A way to persist grants, and the way in which the server dies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Durability {
    /// `true` if a loss of power ends the server, which loses all unsynced data. Otherwise `kill -9` ends it.
    power: bool,
    /// The `appendfsync` policy, if the server has an append-only file.
    fsync: Option<&'static str>,
    /// `true` if the server starts with a quarantine that is as long as the leases.
    quarantine: bool,
}

impl Durability {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let routes = [
            (false, None),
            (false, Some(EVERY_SECOND)),
            (false, Some(ALWAYS)),
            (true, Some(EVERY_SECOND)),
            (true, Some(ALWAYS)),
        ];
        routes.into_iter().flat_map(|(power, fsync)| {
            [false, true].map(|quarantine| Self { power, fsync, quarantine })
        })
    }

    pub(crate) fn name(self) -> String {
        let death = if self.power { "power" } else { "kill" };
        let quarantine = if self.quarantine { "+quarantine" } else { "" };
        format!("{death}/{}{quarantine}", self.fsync.unwrap_or("no-file"))
    }

    /// Rows of `docs/evidence.md`: numbers of the scoreboard, and with `F` of the fault schedules.
    pub(crate) fn evidence(self) -> &'static str {
        if self.power { "10, F12" } else { "9, F11" }
    }

    fn options(self, disk: &Disk) -> harness::Options {
        let mut options = Server::options();
        if let Some(fsync) = self.fsync {
            options = options.append_only(fsync);
        }
        if self.power {
            options = options.disk(disk);
        }
        if self.quarantine {
            options = options.module_config("quarantine-ms", SHORT.as_millis());
        }
        options
    }

    /// Returns the lease of the requests. With a quarantine, another owner waits until the leases end.
    /// Otherwise no lease may end during a load.
    fn lease(self) -> Duration {
        if self.quarantine { SHORT } else { LONG }
    }

    /// Duration of each sync of a slow disk.
    fn slow_sync(self) -> Duration {
        // With `everysec`, a sync takes so long that the last grants before the loss of power are not
        // synced. With `always`, commands that arrive during a sync wait for the next sync.
        Duration::from_millis(if self.fsync == Some(EVERY_SECOND) { 1500 } else { 10 })
    }

    /// Returns whether no crash may lose a grant.
    fn is_safe(self) -> bool {
        self.fsync == Some(ALWAYS)
    }

    /// Returns whether no lock may be granted to a second owner while the first one can rely on its grant.
    fn grants_once(self) -> bool {
        self.is_safe() || self.quarantine
    }

    /// Crashes a server repeatedly, each time after about the number of grants in the options, or 750.
    pub(crate) fn play(self, options: &Options, report: &Report) {
        let random = Random::new(options.seed.number);
        let grants = options.grants.unwrap_or(750);
        Trial::new(self, random, report).run(options.times(20), grants);
        // Without standing grants, or without the losses that must occur, the trial shows nothing.
        let [standing, lost, twice] = [STANDING, LOST, TWICE].map(|what| report.count(what));
        let all = self.fsync.is_none();
        let some = all || (self.power && !self.is_safe());
        for (right, wrong) in [
            (standing > 0, "no grant stood when the server was back"),
            (!all || lost == standing, "a grant is known that nobody has kept"),
            (!some || lost > 0, "no grant was lost"),
            (!some || self.quarantine || twice > 0, "nothing was granted twice"),
        ] {
            if !right {
                report.violation(format!("Fault: {wrong}"));
            }
        }
        let counts = [CRASHES, GRANTED, STANDING, LOST, TWICE, TOKENS_BACK];
        let counts = counts.map(|what| format!("{} {what}", report.count(what)));
        report.figure(counts.join(", "));
    }
}
