//! One server that dies under load again and again: the grants that are lost, those that are given
//! to a second, and tokens that do not grow, for each way to keep grants.

mod load;
mod seen;
mod trial;

use self::seen::Seen;
use self::trial::Trial;
use crate::Options;
use crate::report::Report;
use harness::Server;
use harness::disk::Disk;
use harness::random::Random;
use std::time::Duration;

/// Over after the trial.
const LONG: Duration = Duration::from_secs(600);

/// Long enough for a load and a start on a busy machine, short enough to be waited for.
const SHORT: Duration = Duration::from_secs(5);

/// When the server writes to its append-only file for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum File {
    None,
    EverySec,
    Always,
}

/// How the server dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Death {
    /// `kill -9`.
    Kill,
    /// The power goes, and the disk was slow: with it goes all that was not synced.
    Power,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Durability {
    death: Death,
    file: File,
    /// Is as long as the longest lease.
    quarantine: bool,
}

impl Durability {
    pub(crate) fn all() -> Vec<Self> {
        let of = |death, file| {
            let with = |quarantine| Self { death, file, quarantine };
            [with(false), with(true)]
        };
        [
            of(Death::Kill, File::None),
            of(Death::Kill, File::EverySec),
            of(Death::Kill, File::Always),
            of(Death::Power, File::EverySec),
            of(Death::Power, File::Always),
        ]
        .concat()
    }

    pub(crate) fn name(self) -> String {
        let death = match self.death {
            Death::Kill => "kill",
            Death::Power => "power",
        };
        let file = match self.file {
            File::None => "no-file",
            File::EverySec => "everysec",
            File::Always => "always",
        };
        let quarantine = if self.quarantine { "+quarantine" } else { "" };
        format!("{death}/{file}{quarantine}")
    }

    /// The rows of the scoreboard.
    pub(crate) fn evidence(self) -> &'static str {
        match self.death {
            Death::Kill => "9, F11",
            Death::Power => "10, F12",
        }
    }

    fn options(self, disk: &Disk) -> harness::Options {
        let mut options = Server::options();
        match self.file {
            File::None => {}
            File::EverySec => options = options.append_only("everysec"),
            File::Always => options = options.append_only("always"),
        }
        if self.death == Death::Power {
            options = options.disk(disk);
        }
        if self.quarantine {
            options = options.module_config("quarantine-ms", SHORT.as_millis());
        }
        options
    }

    /// With a quarantine they must be over before the next load; else none is to end meanwhile.
    fn lease(self) -> Duration {
        if self.quarantine { SHORT } else { LONG }
    }

    /// How long the disk takes for each sync, when it is slow.
    fn slow_sync(self) -> Duration {
        match self.file {
            // Once a second: what is answered right before the power goes cannot be safe.
            File::EverySec => Duration::from_millis(1500),
            // Once for whatever comes while the one before is under way.
            File::None | File::Always => Duration::from_millis(10),
        }
    }

    /// Whether none of these crashes may have cost a grant.
    fn is_safe(self) -> bool {
        self.file == File::Always
    }

    /// What is promised not to happen, and was seen.
    fn violations(self, seen: &Seen) -> Vec<String> {
        let Seen { lost, twice, tokens_back, .. } = *seen;
        let once = self.is_safe() || self.quarantine;
        let broken = [
            (tokens_back > 0, format!("Token: {tokens_back} did not grow")),
            (self.is_safe() && lost > 0, format!("Lost: {lost} grants, and none may be")),
            (once && twice > 0, format!("Twice: {twice} locks granted, and none may be")),
        ];
        let broken = broken.into_iter().filter_map(|(is_broken, what)| is_broken.then_some(what));
        seen.violations.iter().cloned().chain(broken).collect()
    }

    /// Crashes a server again and again, each time after about as many grants as the options say.
    pub(crate) fn play(self, options: &Options, report: &Report) {
        let random = Random::new(options.seed.number);
        let grants = options.grants.unwrap_or(750);
        let seen = Trial::new(self, random).run(options.times(20), grants, report);
        self.judge(&seen, report);
        let Seen { crashes, grants, standing, lost, twice, tokens_back, .. } = seen;
        report.figure(format!(
            "{crashes} crashes, {grants} granted, {standing} standing, {lost} lost, {twice} granted \
             twice, {tokens_back} tokens back"
        ));
    }

    /// What was promised and is not so; and what must be seen if the server has died at all, and
    /// the trial can see what that costs.
    fn judge(self, seen: &Seen, report: &Report) {
        self.violations(seen).into_iter().for_each(|violation| report.violation(violation));
        let claim = |right: bool, wrong: String| {
            if !right {
                report.violation(wrong);
            }
        };
        let Seen { standing, lost, twice, .. } = *seen;
        claim(standing > 0, "Fault: no grant stood when the server was back".to_owned());
        let all = self.file == File::None;
        claim(!all || lost == standing, "Fault: a grant is known that nobody has kept".to_owned());
        let some = all || (self.death == Death::Power && !self.is_safe());
        claim(!some || lost > 0, "Fault: no grant was lost".to_owned());
        let hole = some && !self.quarantine;
        claim(!hole || twice > 0, "Fault: nothing was granted twice".to_owned());
    }
}
