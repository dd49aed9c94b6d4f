//! Groups the calls on one key into holds. A hold lasts from a grant until something ends it.
//!
//! Permits of a semaphore are like shares of a lock that is never held exclusively. All their holds have the
//! token 0. After a reply, the owner certainly has the number of permits in that reply, until the owner may
//! have released or lost some.

use super::{Limits, Report, Rule};
use crate::history::{Call, Outcome, Request};
use std::collections::BTreeMap;
use std::time::Duration;

/// A stretch of time: its beginning and its end.
pub(super) type Span = (Duration, Duration);

/// Number of units of a lock. An exclusive holder has all of them, and a sharer has one. Larger than the
/// number of sharers in any history.
pub(super) const WHOLE: u64 = 1 << 32;

/// A hold: the grant with which it began, and the later calls that changed it or may have.
#[derive(Debug)]
pub(super) struct Hold<'a> {
    pub token: u64,
    pub owner: &'a str,
    /// `true` if other owners may hold the lock at the same time, with the same token.
    pub shared: bool,
    /// `true` if the owner may have had the lock already when it was granted this hold. A sharer may have held the
    /// lock exclusively, and an owner of permits may have had permits.
    pub goes_on: bool,
    /// The latest moment at which the permits that the owner may have had before can have ended; zero if none.
    pub before_until: Duration,
    /// The first call that was granted this hold.
    pub grant: &'a Call,
    /// Time of the reply to that call.
    pub granted: Duration,
    /// Numbers of units of the lock or the semaphore that the owner certainly has, each with the time from
    /// which the number applies.
    pub units: Vec<(Duration, u64)>,
    /// Later acquires in the same hold, and renewals, in order of sending. The outcome of a renewal may be
    /// unknown.
    pub sets: Vec<Touch<'a>>,
    /// The first call of the owner that may have ended the hold.
    pub release: Option<Touch<'a>>,
    /// Calls of the owner whose replies show that it does not hold the lock.
    pub refused: Vec<&'a Call>,
    /// The calls with [`Request::Break`] that may have ended the hold.
    pub breaks: Vec<&'a Call>,
}

/// A call of the owner that changed a hold, or may have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Touch<'a> {
    pub call: &'a Call,
    /// `true` if the call certainly was executed and changed this hold.
    pub sure: bool,
}

impl Hold<'_> {
    /// The latest moment at which the hold can have ended, whatever effects the unknown calls had.
    pub(super) fn possible_end(&self, later: Option<&Hold<'_>>) -> Duration {
        let later = later.map_or(Duration::MAX, |later| later.granted);
        if let Some(release) = self.release.filter(|release| release.sure) {
            return answered(release.call).min(later);
        }
        let first = self.first_end();
        let ends = self.sets.iter().map(|set| answered(set.call).saturating_add(lease(set.call)));
        ends.fold(first, Duration::max).min(later)
    }

    /// The latest end of the lease after the first call. A re-entry never shortens a lease, so a lease of
    /// permits that the owner may have had before also counts.
    pub(super) fn first_end(&self) -> Duration {
        self.before_until.max(self.granted + lease(self.grant))
    }

    /// The earliest moment at which the hold can have ended. The hold cannot have begun before `free_before`.
    pub(super) fn earliest_end(&self, free_before: Duration, limits: &Limits) -> Duration {
        let begin = self.grant.sent.max(free_before);
        let mut end = begin + lease(self.grant);
        for set in &self.sets {
            let from_sending = set.call.sent + lease(set.call);
            end = match set.call.request {
                // Only a renewal may shorten the lease. A renewal that certainly was executed has set it.
                Request::Renew { .. } if set.sure => from_sending,
                Request::Renew { .. } => end.min(from_sending),
                _ => end.max(from_sending),
            };
        }
        let release = self.release.map(|release| release.call);
        let others = release.iter().chain(&self.breaks).map(|call| call.sent.max(begin));
        others.fold(end.saturating_sub(limits.slack), Duration::min)
    }

    /// Returns the numbers of units of the hold, each with the time in which it applies, if the hold ends at
    /// `end`.
    pub(super) fn units_until(&self, end: Duration) -> impl Iterator<Item = (Span, u64)> {
        let next = self.units[1..].iter().map(|(at, _)| *at).chain([end]);
        let spans = self.units.iter().zip(next);
        spans.map(move |((begin, units), next)| ((*begin, next.min(end)), *units))
    }
}

/// The length of the lease that a call sets; zero if it sets none.
pub(super) fn lease(call: &Call) -> Duration {
    call.request.lease().unwrap_or_default()
}

/// Time of the reply. [`Duration::MAX`] without a reply: the call may still take effect at any later time.
pub(super) fn answered(call: &Call) -> Duration {
    call.answer.map_or(Duration::MAX, |(at, _)| at)
}

/// Returns whether it is unknown if the call took effect.
pub(super) fn is_unknown(call: &Call) -> bool {
    matches!(call.answer, None | Some((_, Outcome::Unknown)))
}

fn is_of_permits(call: &Call) -> bool {
    matches!(call.request, Request::Permits { .. } | Request::ReleasePermits)
}

/// Returns whether the session of the wait may have been away, and the wait skipped, between `from` and `to`.
pub(super) fn was_away(call: &Call, from: Duration, to: Duration) -> bool {
    call.away.iter().any(|(begin, end)| *begin <= to && from <= *end)
}

/// A hold: its token, its owner, and the number of earlier holds of that owner with that token.
type Id<'a> = (u64, &'a str, usize);

type Holds<'a> = BTreeMap<Id<'a>, Hold<'a>>;

/// Returns the holds in the order of their tokens. Reports replies that contradict each other, such as a
/// token that was granted twice.
pub(super) fn holds<'a>(
    calls: &[&'a Call],
    limits: &Limits,
    report: &mut Report<'_>,
) -> Vec<Hold<'a>> {
    let mut holds = Holds::new();
    let breaks: Vec<&Call> =
        calls.iter().filter(|call| call.request == Request::Break).copied().collect();
    // An owner may have one hold in each mode, exclusive and shared.
    let mut owners: BTreeMap<(&str, bool), Owner<'a>> = BTreeMap::new();
    for &call in calls {
        let shared = match call.request {
            Request::Share { .. } | Request::ReleaseShare => true,
            Request::Renew { .. } => {
                let has = |shared| owners.contains_key(&(call.owner.as_str(), shared));
                has(true) && !has(false)
            }
            _ => is_of_permits(call),
        };
        let goes_on = shared && owners.contains_key(&(call.owner.as_str(), false));
        let owner = owners.entry((&call.owner, shared)).or_default();
        let mut enter = |owner: &mut Owner<'a>, at, token, units, report: &mut Report<'_>| {
            // A call that was answered before this hold was requested can only have ended an earlier hold.
            let may_break = |it: &&&Call| answered(it) >= call.sent;
            let begun = Hold {
                token,
                owner: &call.owner,
                shared,
                goes_on,
                before_until: Duration::ZERO,
                grant: call,
                granted: at,
                units: vec![(at, units)],
                sets: Vec::new(),
                release: None,
                refused: Vec::new(),
                breaks: breaks.iter().filter(may_break).copied().collect(),
            };
            owner.enter(&mut holds, begun, limits, report);
        };
        match (&call.request, call.answer) {
            (Request::Break, _) | (_, Some((_, Outcome::Failed))) => {}
            (_, Some((at, Outcome::Granted { token, holds: count }))) => {
                owner.check_entry(call, token, count, report);
                enter(owner, at, token, if shared { 1 } else { WHOLE }, report);
                owner.count = Some(count);
            }
            (_, Some((at, Outcome::Holds { permits }))) => enter(owner, at, 0, permits, report),
            // The refusal does not show that the owner has no permits.
            (Request::Permits { .. }, Some((_, Outcome::Refused | Outcome::Withdrawn))) => {}
            (_, Some((_, Outcome::Refused | Outcome::Withdrawn))) => {
                if let Some(hold) = owner.hold.filter(|_| !owner.unsure && !owner.beside)
                    && let Some(hold) = holds.get_mut(&hold)
                {
                    hold.refused.push(call);
                }
            }
            _ if call.request.asks() => owner.unsure = true,
            _ => owner.touch(call, &mut holds, report),
        }
    }
    holds.into_values().collect()
}

/// For each hold, a later hold, if there is any.
pub(super) type Later<'h, 'a> = Vec<Option<&'h Hold<'a>>>;

/// Returns for each hold the hold with a larger token whose grant was answered first.
pub(super) fn first_granted_after<'h, 'a>(holds: &'h [Hold<'a>]) -> Later<'h, 'a> {
    let mut first: Option<&Hold<'a>> = None;
    let mut result = Vec::with_capacity(holds.len());
    let periods: Vec<_> = holds.chunk_by(|one, next| one.token == next.token).collect();
    for period in periods.into_iter().rev() {
        result.extend(period.iter().map(|_| first));
        let earliest = period.iter().min_by_key(|hold| hold.granted);
        first = first.into_iter().chain(earliest).min_by_key(|hold| hold.granted);
    }
    result.reverse();
    result
}

/// The last hold of an owner in one mode, as the replies to the owner show it.
#[derive(Default)]
struct Owner<'a> {
    hold: Option<Id<'a>>,
    /// The owner's number of holds of a lock. `None` before the first grant, and after a release that ended
    /// the hold or may have.
    count: Option<u64>,
    /// `true` if an acquire had an unknown outcome. Then later calls may apply to a hold that no reply has shown, and
    /// are checked less. So a client should continue under the name of another owner.
    unsure: bool,
    /// `true` if the owner shares a lock that it also holds exclusively. Then only the exclusive hold counts.
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

    fn enter(
        &mut self,
        holds: &mut Holds<'a>,
        begun: Hold<'a>,
        limits: &Limits,
        report: &mut Report<'_>,
    ) {
        let Hold { grant: call, granted: at, token, owner, shared, .. } = begun;
        let first = holds.range((token, "", 0)..).next().map(|(_, first)| first);
        let others = |other: &&Hold<'_>| other.token == token && other.owner != owner;
        if let Some(other) = first.filter(others).filter(|other| !(shared && other.shared)) {
            let text = format!("token {token} was granted twice: {}; {call}", other.grant);
            return report.add_token(text, other.granted, call.sent);
        }
        let mine = holds.range_mut((token, owner, 0)..=(token, owner, usize::MAX)).next_back();
        let (mut nth, mut before_until) = (0, Duration::ZERO);
        let mut goes_on = begun.goes_on || is_of_permits(call) && self.unsure;
        if let Some((id, hold)) = mine {
            let released = hold.release.is_some_and(|release| release.sure);
            // Permits have no token that would show whether they belong to the same hold.
            let may_be_lost = || {
                let refused = hold.release.is_some() || !hold.refused.is_empty();
                refused || hold.earliest_end(Duration::ZERO, limits) < at
            };
            self.beside = hold.shared != shared;
            self.hold = Some(*id);
            if !(released || is_of_permits(call) && may_be_lost()) {
                hold.sets.push(Touch { call, sure: true });
                return hold.units.extend(begun.units.into_iter().filter(|_| is_of_permits(call)));
            }
            if !hold.shared {
                let text = format!("token {token} was granted twice: {}; {call}", hold.grant);
                return report.add_token(text, hold.granted, call.sent);
            }
            // A sharer may release its share and get another one with the same token.
            nth = id.2 + 1;
            goes_on |= !released;
            if !released && is_of_permits(call) {
                before_until = hold.possible_end(None);
            }
        }
        self.beside = false;
        self.hold = Some((token, owner, nth));
        holds.insert((token, owner, nth), Hold { goes_on, before_until, ..begun });
    }

    /// Applies a renewal or a release that took effect, or may have.
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
            (Request::ReleasePermits, Some((_, Outcome::Released { left }))) if left > 0 => {
                hold.units.push((call.sent, left));
            }
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
