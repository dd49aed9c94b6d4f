//! How a server keeps grants, how it dies, and what is promised of that.

use crate::seen::Seen;
use harness::disk::Disk;
use harness::{Options, Server};
use std::time::Duration;

/// Over after the trial.
pub(crate) const LONG: Duration = Duration::from_secs(600);

/// Long enough for a load and a start on a busy machine, short enough to be waited for.
const SHORT: Duration = Duration::from_secs(5);

/// When the server writes to its append-only file for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum File {
    None,
    EverySec,
    Always,
}

/// How the server dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Death {
    /// `kill -9`.
    Kill,
    /// The power goes, and the disk was slow: with it goes all that was not synced.
    Power,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keeping {
    pub(crate) death: Death,
    pub(crate) file: File,
    /// Is as long as the longest lease.
    pub(crate) quarantine: bool,
}

impl Keeping {
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

    pub(crate) fn options(self, disk: &Disk) -> Options {
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
    pub(crate) fn lease(self) -> Duration {
        if self.quarantine { SHORT } else { LONG }
    }

    /// How long the disk takes for each sync, when it is slow.
    pub(crate) fn slow_sync(self) -> Duration {
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

    /// Whether something was seen that is promised not to happen.
    pub(crate) fn is_broken(self, seen: &Seen) -> bool {
        seen.tokens_back > 0
            || !seen.wrongs.is_empty()
            || (self.is_safe() && seen.lost > 0)
            || ((self.is_safe() || self.quarantine) && seen.twice > 0)
    }

    /// What was promised and is not so; and what must be seen if the server has died at all, and
    /// the trial can see what that costs.
    pub(crate) fn wrongs(self, seen: &Seen) -> Vec<String> {
        // One crash can break a rule a thousand times.
        let mut wrongs: Vec<String> = seen.wrongs.iter().take(5).cloned().collect();
        if let Some(more) = seen.wrongs.len().checked_sub(6) {
            wrongs.extend(seen.wrongs.last().cloned());
            wrongs.extend((more > 0).then(|| format!("and {more} more")));
        }
        let mut claim = |right: bool, wrong: String| {
            if !right {
                wrongs.push(wrong);
            }
        };
        let Seen { standing, lost, twice, tokens_back, .. } = *seen;
        claim(tokens_back == 0, format!("{tokens_back} tokens did not grow"));
        claim(!self.is_safe() || lost == 0, format!("{lost} grants were lost, and none may be"));
        let once = self.is_safe() || self.quarantine;
        claim(!once || twice == 0, format!("{twice} locks were granted twice, and none may be"));

        claim(standing > 0, "no grant stood when the server was back".to_owned());
        let all = self.file == File::None;
        claim(!all || lost == standing, "a grant is known that nobody has kept".to_owned());
        let some = all || (self.death == Death::Power && !self.is_safe());
        claim(!some || lost > 0, "no grant was lost".to_owned());
        let hole = some && !self.quarantine;
        claim(!hole || twice > 0, "nothing was granted twice".to_owned());
        wrongs
    }
}
