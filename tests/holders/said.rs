//! What a client process says of itself, a line of words for each event.
//!
//! Times are nanoseconds of `CLOCK_MONOTONIC`, which all processes of a machine share: the order of
//! events in real time is exact.

use std::fmt;
use std::time::Duration;

/// Now, on the clock that all processes share.
pub(crate) fn now() -> u64 {
    let clock = nix::time::ClockId::CLOCK_MONOTONIC;
    let now = nix::time::clock_gettime(clock).expect("every Linux has it");
    u64::try_from(Duration::from(now).as_nanos()).expect("584 years after the start")
}

/// A grant: a token is never given twice.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Grant {
    pub(crate) key: String,
    pub(crate) token: u64,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// It is connected. Its owners are called so, with a colon and a number after it.
    Ready { client: String },
    /// From now on it believes that it holds the lock.
    Holds { grant: Grant, owner: String, from: u64, until: u64, date_ms: u64 },
    /// Now it believes in it until then.
    Until { grant: Grant, until: u64 },
    /// It stops believing. It last looked at its guard, and was told that it holds the lock, at
    /// `looked`; what it did next it did in that belief.
    Ends { grant: Grant, at: u64, looked: u64, why: End },
    /// It had lost the lock, and then asked the server, which said that it still has it.
    FalseLoss { grant: Grant },
    /// A write of a holder that believed was refused by the store that looks at tokens.
    Refused { grant: Grant, looked: u64 },
    /// After a loss it went on writing without asking anybody: so many tries, and how many of them
    /// the store took that looks at tokens.
    Careless { grant: Grant, tries: u64, taken: u64 },
    /// A wait for at most so long gave nothing, and took so long.
    Waited { limit_ns: u64, took_ns: u64 },
    /// An acquire or a release failed, as it may when connections are cut.
    Trouble { what: String },
}

/// Why a belief ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It is about to give the lock back.
    Release,
    /// The guard of a lease that is renewed says that it is lost.
    Lost,
    /// The guard of a lease that nobody renews says so: its time is over.
    Over,
}

impl End {
    const ALL: [(Self, &str); 3] =
        [(Self::Release, "release"), (Self::Lost, "lost"), (Self::Over, "over")];

    fn word(self) -> &'static str {
        Self::ALL.iter().find(|(end, _)| *end == self).map_or("", |(_, word)| *word)
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.key, self.token)
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready { client } => write!(f, "ready {client}"),
            Self::Holds { grant, owner, from, until, date_ms } => {
                write!(f, "holds {grant} {owner} {from} {until} {date_ms}")
            }
            Self::Until { grant, until } => write!(f, "until {grant} {until}"),
            Self::Ends { grant, at, looked, why } => {
                write!(f, "ends {grant} {at} {looked} {}", why.word())
            }
            Self::FalseLoss { grant } => write!(f, "false-loss {grant}"),
            Self::Refused { grant, looked } => write!(f, "refused {grant} {looked}"),
            Self::Careless { grant, tries, taken } => write!(f, "careless {grant} {tries} {taken}"),
            Self::Waited { limit_ns, took_ns } => write!(f, "waited {limit_ns} {took_ns}"),
            Self::Trouble { what } => write!(f, "trouble {}", what.replace('\n', " ")),
        }
    }
}

/// The words of a line, one after the other.
struct Words<'a>(std::str::SplitWhitespace<'a>);

impl Words<'_> {
    fn word(&mut self) -> Option<String> {
        self.0.next().map(str::to_owned)
    }

    fn number(&mut self) -> Option<u64> {
        self.0.next()?.parse().ok()
    }

    fn grant(&mut self) -> Option<Grant> {
        Some(Grant { key: self.word()?, token: self.number()? })
    }

    fn end(&mut self) -> Option<End> {
        let word = self.0.next()?;
        End::ALL.iter().find(|(_, other)| *other == word).map(|(end, _)| *end)
    }
}

impl Said {
    /// What a line says; `None` for a line that is not whole, such as the last of a process that was
    /// killed.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (first, rest) = line.split_once(' ')?;
        let mut words = Words(rest.split_whitespace());
        let said = match first {
            "ready" => Self::Ready { client: words.word()? },
            "holds" => Self::Holds {
                grant: words.grant()?,
                owner: words.word()?,
                from: words.number()?,
                until: words.number()?,
                date_ms: words.number()?,
            },
            "until" => Self::Until { grant: words.grant()?, until: words.number()? },
            "ends" => Self::Ends {
                grant: words.grant()?,
                at: words.number()?,
                looked: words.number()?,
                why: words.end()?,
            },
            "false-loss" => Self::FalseLoss { grant: words.grant()? },
            "refused" => Self::Refused { grant: words.grant()?, looked: words.number()? },
            "careless" => Self::Careless {
                grant: words.grant()?,
                tries: words.number()?,
                taken: words.number()?,
            },
            "waited" => Self::Waited { limit_ns: words.number()?, took_ns: words.number()? },
            "trouble" => Self::Trouble { what: rest.to_owned() },
            _ => return None,
        };
        Some(said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood_and_half_of_it_is_not() {
        let grant = Grant { key: "k".to_owned(), token: 7 };
        let ends = |why| Said::Ends { grant: grant.clone(), at: 5, looked: 4, why };
        let holds = Said::Holds {
            grant: grant.clone(),
            owner: "o:1".to_owned(),
            from: 1,
            until: 2,
            date_ms: 3,
        };
        for said in [
            Said::Ready { client: "c".to_owned() },
            holds.clone(),
            Said::Until { grant: grant.clone(), until: 9 },
            ends(End::Release),
            ends(End::Lost),
            ends(End::Over),
            Said::FalseLoss { grant: grant.clone() },
            Said::Refused { grant: grant.clone(), looked: 6 },
            Said::Careless { grant: grant.clone(), tries: 8, taken: 0 },
            Said::Waited { limit_ns: 1, took_ns: 2 },
            Said::Trouble { what: "so and so".to_owned() },
        ] {
            assert_eq!(Said::parse(&said.to_string()), Some(said));
        }
        assert_eq!(Said::parse("holds k 7 o:1 1"), None);
        assert_eq!(Said::parse("running 1 test"), None);
    }
}
