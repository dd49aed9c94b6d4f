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
    /// Others may hold it at the same time, with the same token.
    pub shared: bool,
    /// Its owner held the lock alone before and went on sharing it.
    pub goes_on: bool,
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
    /// The last moment at which it can have been there, whatever the unknown calls did.
    pub(super) fn possible_end(&self) -> Duration {
        if let Some(release) = self.release.filter(|release| release.sure) {
            return answered(release.call);
        }
        let first = self.granted + lease(self.grant);
        let ends = self.sets.iter().map(|set| answered(set.call).saturating_add(lease(set.call)));
        ends.fold(first, Duration::max)
    }

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
        Request::Acquire { lease, .. }
        | Request::Share { lease, .. }
        | Request::Permits { lease, .. }
        | Request::Foreign { lease }
        | Request::Renew { lease } => lease,
        _ => Duration::ZERO,
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

/// Whether it asks for the lock, alone or to share it.
pub(super) fn asks_for_lock(call: &Call) -> bool {
    matches!(
        call.request,
        Request::Acquire { .. } | Request::Share { .. } | Request::Foreign { .. }
    )
}

/// Whether it may have been passed over at some moment of that time.
pub(super) fn was_away(call: &Call, from: Duration, to: Duration) -> bool {
    call.away.iter().any(|(begin, end)| *begin <= to && from <= *end)
}

/// A hold: its token, its owner, and how many the owner had with that token before.
type Id<'a> = (u64, &'a str, usize);

type Holds<'a> = BTreeMap<Id<'a>, Hold<'a>>;

/// The holds in the order of their tokens. Reports what is wrong within the calls of one owner.
pub(super) fn holds<'a>(calls: &[&'a Call], report: &mut Report<'_>) -> Vec<Hold<'a>> {
    let mut holds = Holds::new();
    // An owner may have one hold of each mode.
    let mut owners: BTreeMap<(&str, bool), Owner<'a>> = BTreeMap::new();
    for &call in calls {
        let shared = match call.request {
            Request::Share { .. } | Request::ReleaseShare => true,
            Request::Renew { .. } => {
                let has = |shared| owners.contains_key(&(call.owner.as_str(), shared));
                has(true) && !has(false)
            }
            _ => false,
        };
        let goes_on = shared && owners.contains_key(&(call.owner.as_str(), false));
        let owner = owners.entry((&call.owner, shared)).or_default();
        match (&call.request, call.answer) {
            (Request::Break, _) | (_, Some((_, Outcome::Failed))) => {}
            (_, Some((at, Outcome::Granted { token, holds: count }))) => {
                owner.check_entry(call, token, count, report);
                let begun = Begun { call, token, at, shared, goes_on };
                owner.enter(&mut holds, &begun, report);
                owner.count = Some(count);
            }
            (_, Some((_, Outcome::Refused | Outcome::Withdrawn))) => {
                if let Some(hold) = owner.hold.filter(|_| !owner.unsure && !owner.beside)
                    && let Some(hold) = holds.get_mut(&hold)
                {
                    hold.refused.push(call);
                }
            }
            _ if asks_for_lock(call) => owner.unsure = true,
            _ => owner.touch(call, &mut holds, report),
        }
    }
    for call in calls.iter().filter(|call| call.request == Request::Break) {
        // What was answered before a hold was asked for broke an earlier one.
        let may_break = |hold: &&mut Hold<'a>| answered(call) >= hold.grant.sent;
        holds.values_mut().filter(may_break).for_each(|hold| hold.breaks.push(call));
    }
    holds.into_values().collect()
}

/// A grant.
struct Begun<'a> {
    call: &'a Call,
    token: u64,
    at: Duration,
    shared: bool,
    goes_on: bool,
}

/// What an owner knows of its own hold.
#[derive(Default)]
struct Owner<'a> {
    hold: Option<Id<'a>>,
    /// `None` when an unknown call may have changed it.
    count: Option<u64>,
    /// An acquire of it is unknown: what it does from then on may be to a hold that nobody has
    /// seen. A client that wants to be checked goes on under another owner.
    unsure: bool,
    /// It shares a lock that it holds alone, too: that one is the hold.
    beside: bool,
}

impl<'a> Owner<'a> {
    fn token(&self) -> Option<u64> {
        self.hold.map(|(token, _, _)| token)
    }

    fn check_entry(&self, call: &Call, token: u64, count: u64, report: &mut Report<'_>) {
        if self.unsure {
            return;
        }
        let again = self.token() == Some(token);
        if count > 1 && !again {
            report.add(
                Rule::Reentry,
                format!("re-entered, but not token {:?}: {call}", self.token()),
            );
        }
        if let Some(before) =
            self.count.filter(|before| again && count != *before && count != before + 1)
        {
            report.add(Rule::Reentry, format!("re-entered from {before} holds: {call}"));
        }
    }

    fn enter(&mut self, holds: &mut Holds<'a>, begun: &Begun<'a>, report: &mut Report<'_>) {
        let Begun { call, token, at, shared, goes_on } = *begun;
        let owner = call.owner.as_str();
        let period: Vec<Id<'a>> =
            holds.range((token, "", 0)..).map(|(id, _)| *id).take(1).collect();
        let of_period = period.first().filter(|(other, _, _)| *other == token);
        let first = of_period.and_then(|id| holds.get(id));
        if let Some(other) = first.filter(|other| !(shared && other.shared) && other.owner != owner)
        {
            let text = format!("token {token} was granted twice: {}; {call}", other.grant);
            return report.add_token(text, other.granted, call.sent);
        }
        let mine = holds.range_mut((token, owner, 0)..=(token, owner, usize::MAX)).next_back();
        let mut nth = 0;
        if let Some((id, hold)) = mine {
            let ended = hold.release.is_some_and(|release| release.sure);
            self.beside = hold.shared != shared;
            self.hold = Some(*id);
            if !ended {
                return hold.sets.push(Touch { call, sure: true });
            }
            if !hold.shared {
                let text = format!("token {token} was granted twice: {}; {call}", hold.grant);
                return report.add_token(text, hold.granted, call.sent);
            }
            // Those who share a lock may come back to it.
            nth = id.2 + 1;
        }
        self.beside = false;
        self.hold = Some((token, owner, nth));
        let hold = Hold {
            token,
            owner,
            shared,
            goes_on,
            grant: call,
            granted: at,
            sets: Vec::new(),
            release: None,
            refused: Vec::new(),
            breaks: Vec::new(),
        };
        holds.insert((token, owner, nth), hold);
    }

    /// A renewal or release that was done, or may have been.
    fn touch(&mut self, call: &'a Call, holds: &mut Holds<'a>, report: &mut Report<'_>) {
        if self.beside {
            return;
        }
        let sure = !self.unsure && !is_unknown(call);
        let Some(hold) = self.hold.and_then(|hold| holds.get_mut(&hold)) else {
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
                self.hold = self.hold.filter(|_| !sure);
            }
        }
    }
}
