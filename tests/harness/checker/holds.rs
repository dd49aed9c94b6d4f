//! Puts the calls on one key together into holds: from a grant to what ended it.

use super::{Report, Rule};
use crate::history::{Call, Outcome, Request};
use std::collections::BTreeMap;
use std::time::Duration;

/// The time from a grant to what ended it, with all that its owner did in between.
#[derive(Debug)]
pub(super) struct Hold<'a> {
    pub token: u64,
    pub owner: &'a str,
    /// The call that was granted first with this token.
    pub grant: &'a Call,
    /// When its answer came.
    pub granted: Duration,
    /// Re-entries and renewals after the grant, in order of sending.
    pub sets: Vec<Touch<'a>>,
    /// The first call of the owner that may have ended it.
    pub release: Option<Touch<'a>>,
    /// Calls of the owner that were told that it does not hold the lock.
    pub refused: Vec<&'a Call>,
    /// Calls of others that may have ended it.
    pub breaks: Vec<&'a Call>,
}

/// A call of the owner that changed a hold, or may have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Touch<'a> {
    pub call: &'a Call,
    /// It was done, and to this hold.
    pub sure: bool,
}

impl Hold<'_> {
    /// The latest moment at which the lease can have ended by itself; `None` if nobody knows.
    pub(super) fn lease_end(&self) -> Option<Duration> {
        let first = self.granted + lease(self.grant);
        let mut sets = self.sets.iter();
        sets.try_fold(first, |end, set| {
            set.sure.then(|| end.max(answered(set.call) + lease(set.call)))
        })
    }
}

/// The length of the lease that a call sets.
pub(super) fn lease(call: &Call) -> Duration {
    match call.request {
        Request::Acquire { lease, .. } | Request::Renew { lease } => lease,
        Request::Release | Request::Break => Duration::ZERO,
    }
}

/// The moment at which a call was answered; one that never was may still happen.
pub(super) fn answered(call: &Call) -> Duration {
    call.answer.map_or(Duration::MAX, |(at, _)| at)
}

/// Whether it may have happened or not.
pub(super) fn is_unknown(call: &Call) -> bool {
    matches!(call.answer, None | Some((_, Outcome::Unknown)))
}

/// The holds in the order of their tokens. Reports what is wrong within the calls of one owner.
pub(super) fn holds<'a>(calls: &[&'a Call], report: &mut Report<'_>) -> Vec<Hold<'a>> {
    let mut holds: BTreeMap<u64, Hold<'a>> = BTreeMap::new();
    let mut owners: BTreeMap<&str, Owner> = BTreeMap::new();
    for &call in calls {
        let owner = owners.entry(&call.owner).or_default();
        match (&call.request, call.answer) {
            (Request::Break, _) | (_, Some((_, Outcome::Failed))) => {}
            (Request::Acquire { .. }, Some((at, Outcome::Granted { token, holds: count }))) => {
                owner.check_entry(call, token, count, report);
                enter(&mut holds, call, token, at, report);
                (owner.token, owner.count) = (Some(token), Some(count));
            }
            (_, Some((_, Outcome::Refused | Outcome::Withdrawn))) => {
                if let Some(hold) =
                    owner.token.filter(|_| !owner.unsure).and_then(|token| holds.get_mut(&token))
                {
                    hold.refused.push(call);
                }
            }
            (Request::Acquire { .. }, _) => owner.unsure = true,
            (Request::Renew { .. } | Request::Release, _) => owner.touch(call, &mut holds, report),
        }
    }
    for call in calls.iter().filter(|call| call.request == Request::Break) {
        // What was answered before a hold was asked for broke an earlier one.
        let may_break = |hold: &&mut Hold<'a>| answered(call) >= hold.grant.sent;
        holds.values_mut().filter(may_break).for_each(|hold| hold.breaks.push(call));
    }
    holds.into_values().collect()
}

fn enter<'a>(
    holds: &mut BTreeMap<u64, Hold<'a>>,
    call: &'a Call,
    token: u64,
    granted: Duration,
    report: &mut Report<'_>,
) {
    let Some(hold) = holds.get_mut(&token) else {
        let hold = Hold {
            token,
            owner: &call.owner,
            grant: call,
            granted,
            sets: Vec::new(),
            release: None,
            refused: Vec::new(),
            breaks: Vec::new(),
        };
        holds.insert(token, hold);
        return;
    };
    let ended = hold.release.is_some_and(|release| release.sure);
    if hold.owner != call.owner || ended {
        report.add(
            Rule::TokenOrder,
            format!("token {token} was granted twice: {}; {call}", hold.grant),
        );
    } else {
        hold.sets.push(Touch { call, sure: true });
    }
}

/// What an owner knows of its own hold.
#[derive(Default)]
struct Owner {
    token: Option<u64>,
    /// `None` when an unknown call may have changed it.
    count: Option<u64>,
    /// An acquire of it is unknown: what it does from then on may be to a hold that nobody has
    /// seen. A client that wants to be checked goes on under another owner.
    unsure: bool,
}

impl Owner {
    fn check_entry(&self, call: &Call, token: u64, count: u64, report: &mut Report<'_>) {
        if self.unsure {
            return;
        }
        let again = self.token == Some(token);
        if count > 1 && !again {
            report
                .add(Rule::Reentry, format!("re-entered, but not token {:?}: {call}", self.token));
        }
        if let Some(before) =
            self.count.filter(|before| again && count != *before && count != before + 1)
        {
            report.add(Rule::Reentry, format!("re-entered from {before} holds: {call}"));
        }
    }

    /// A renewal or release that was done, or may have been.
    fn touch<'a>(
        &mut self,
        call: &'a Call,
        holds: &mut BTreeMap<u64, Hold<'a>>,
        report: &mut Report<'_>,
    ) {
        let sure = !self.unsure && !is_unknown(call);
        let Some(hold) = self.token.and_then(|token| holds.get_mut(&token)) else {
            if sure {
                report.add(Rule::Stale, format!("done by who holds nothing: {call}"));
            }
            return;
        };
        match (&call.request, call.answer) {
            (Request::Renew { .. }, _) => hold.sets.push(Touch { call, sure }),
            (_, Some((_, Outcome::Released { left }))) if left > 0 => {
                if self.count.is_some_and(|before| sure && left != before && left + 1 != before) {
                    report.add(
                        Rule::Reentry,
                        format!("released from {:?} holds: {call}", self.count),
                    );
                }
                self.count = Some(left);
            }
            _ => {
                hold.release.get_or_insert(Touch { call, sure });
                self.count = None;
                self.token = self.token.filter(|_| !sure);
            }
        }
    }
}
