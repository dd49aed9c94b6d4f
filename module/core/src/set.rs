//! Sets: several locks that one request acquires together. Either all of them are granted, or none.
//!
//! ```text
//! LOCK.ACQUIRE a ann 1000 WITH 1 b UNDER 1 top
//!    a, b   in the mode of the command    free: granted with the token of the set
//!    top    shared in every mode          free: a shared period begins, with the token of the set
//!                                         shared already: ann joins, and the period keeps its token (I10)
//! ```
//!
//! If any lock of the set is free, one token is issued for the set. It is larger than each valid
//! token of its keys. After the grant each key is an ordinary lock.

use crate::change::Change;
use crate::ids::{SessionId, WaiterId};
use crate::lock::{Acquire, AcquireReply};
use crate::mode::Want;
use crate::observed::{Holding, Observed};
use crate::outcome::count;
use crate::situation::Situation;
use crate::table::Table;
use crate::token::Token;

/// A lock of a set.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// The lock as the owner of the set sees it.
    pub at: Situation<'a>,
    /// `true` if it is a key of `UNDER`, which the set only shares.
    pub under: bool,
}

impl Member<'_> {
    /// Returns the request for this lock. `repeats` is `true` if the request for the first lock
    /// only repeats an earlier one. Then a lock of `UNDER` that is already held gets no further
    /// hold either.
    pub(crate) fn part<'r>(&self, request: &Acquire<'r>, repeats: bool) -> Acquire<'r> {
        let held = || self.at.holds_of(request.owner, request.want).filter(|holds| *holds > 0);
        if !self.under {
            // Without `HOLDS`, a repetition keeps the hold count of each lock that the owner holds.
            let holds = request.holds.or_else(|| held().filter(|_| repeats));
            return Acquire { holds, ..*request };
        }
        let part = Acquire { want: Want::Shared, ..*request };
        let held = self.at.holds_of(part.owner, Want::Shared).filter(|holds| repeats && *holds > 0);
        Acquire { holds: held, ..part }
    }

    /// Returns the request for this lock, which the owner must already hold.
    fn part_held<'r>(&self, request: &Acquire<'r>) -> Result<Acquire<'r>, AcquireReply> {
        let part = self.part(request, false);
        let held = self.at.holds_of(part.owner, part.want).filter(|held| *held > 0);
        match (&self.at.seen, held, part.holds) {
            (Observed::NotALock { .. }, ..) => Err(AcquireReply::NotALock),
            (_, None, _) => Err(AcquireReply::Refused),
            (_, Some(held), Some(wanted)) if held != wanted => Err(AcquireReply::Mismatch),
            (_, holds, _) => Ok(Acquire { holds, ..part }),
        }
    }
}

/// Returns one request for each lock of a set. `request` is a repetition if `HOLDS` equals the
/// number of holds that the owner has of the first lock. Through a session and without `HOLDS`, it
/// is a repetition if the owner holds the first lock at all. See [`Member::part`] for what a
/// repetition changes.
pub(crate) fn parts<'m, 'r>(
    members: &'m [Member<'_>],
    request: &'m Acquire<'r>,
    through_session: bool,
) -> impl Iterator<Item = Acquire<'r>> + use<'m, 'r> {
    let held = members.first().and_then(|first| first.at.held_by(request));
    let repeats = match request.holds {
        Some(wanted) => held == Some(wanted),
        None => through_session && held.is_some_and(|held| held > 0),
    };
    members.iter().map(move |member| member.part(request, repeats))
}

impl<P> Table<P> {
    /// Takes all locks of a set, or none. Returns a change for each of them if they were granted.
    /// Each grant is bound to the session `bound`, if given.
    pub fn acquire_set(
        &mut self,
        members: &[Member<'_>],
        request: &Acquire<'_>,
        bound: Option<SessionId>,
    ) -> (AcquireReply, Vec<Change<P>>) {
        let fits = self.fits_now(members, request, false);
        if matches!(fits, Err(AcquireReply::Refused)) {
            count(&mut self.counters.refused);
        }
        self.grant_or_refuse(members, fits, bound)
    }

    /// Returns the requests for the locks of a set if all can be granted now. With
    /// `through_session`, a request without `HOLDS` whose first lock is held is treated as a
    /// repetition.
    pub(crate) fn fits_now<'r>(
        &self,
        members: &[Member<'_>],
        request: &Acquire<'r>,
        through_session: bool,
    ) -> Result<Vec<Acquire<'r>>, AcquireReply> {
        let parts = parts(members, request, through_session);
        self.all_fit(members, parts.map(Ok))
    }

    /// Acquires again a set that the owner already holds. Refused if any of the locks is not held: see
    /// [`Self::acquire_held`].
    pub fn acquire_set_held(
        &mut self,
        members: &[Member<'_>],
        request: &Acquire<'_>,
        bound: Option<SessionId>,
    ) -> (AcquireReply, Vec<Change<P>>) {
        let parts = members.iter().map(|member| member.part_held(request));
        let fits = self.all_fit(members, parts);
        self.grant_or_refuse(members, fits, bound)
    }

    /// Returns the requests for the locks of a set if all can be granted now. If some locks are
    /// refused and another has an error, returns the error.
    fn all_fit<'r>(
        &self,
        members: &[Member<'_>],
        parts: impl Iterator<Item = Result<Acquire<'r>, AcquireReply>>,
    ) -> Result<Vec<Acquire<'r>>, AcquireReply> {
        let (mut fit, mut refused) = (Vec::with_capacity(members.len()), false);
        for (member, part) in members.iter().zip(parts) {
            let part = part.and_then(|part| match self.refusal(&member.at, &part, None) {
                None => Ok(part),
                Some(refusal) => Err(refusal),
            });
            match part {
                Ok(part) => fit.push(part),
                Err(AcquireReply::Refused) => refused = true,
                Err(error) => return Err(error),
            }
        }
        if refused { Err(AcquireReply::Refused) } else { Ok(fit) }
    }

    /// Returns the reply of [`Self::acquire`] if it would not grant the lock. Changes nothing.
    /// `place` is the place of a waiter for a set, which has to wait only for waiters before it.
    pub(crate) fn refusal(
        &self,
        at: &Situation<'_>,
        request: &Acquire<'_>,
        place: Option<WaiterId>,
    ) -> Option<AcquireReply> {
        let is_barred = || match place {
            Some(place) => !self.queues.is_in_turn(place),
            None => self.is_barred(at.key, request.want),
        };
        let must_hold_more = request.holds.is_some_and(|holds| holds > 1);
        let now = at.now.unix();
        let (again, token) = match &at.seen {
            Observed::NotALock { .. } => return Some(AcquireReply::NotALock),
            Observed::Held(holding) if holding.owner == request.owner => {
                let shared = request.want == Want::Shared;
                let holds = if shared { holding.shared } else { holding.holds };
                (Holding { holds, ..*holding }.reenter(request, now), holding.token)
            }
            Observed::Shared(sharing) => match sharing.share_of(request.owner, now) {
                Some(_) if request.want != Want::Shared => return Some(AcquireReply::Upgrade),
                Some(share) => (share.as_holding().reenter(request, now), sharing.token),
                None if must_hold_more => return Some(AcquireReply::Mismatch),
                None if request.want != Want::Shared
                    || self.quarantine.is_on(at.now)
                    || is_barred() =>
                {
                    return Some(AcquireReply::Refused);
                }
                None => (Ok((1, None)), sharing.token),
            },
            Observed::Free { .. } | Observed::Held(_) if must_hold_more => {
                return Some(AcquireReply::Mismatch);
            }
            Observed::Held(_) => return Some(AcquireReply::Refused),
            Observed::Free { .. }
                if self.quarantine.is_on(at.now)
                    || is_barred()
                    || self.gives_way(at.key, at.now) =>
            {
                return Some(AcquireReply::Refused);
            }
            Observed::Free { stored } => (Ok((1, None)), *stored),
        };
        match again {
            Err(refusal) => Some(refusal),
            Ok(_) if at.lacks_token_bound(self.believe(token)) => Some(AcquireReply::TryAgain),
            Ok(_) => None,
        }
    }

    fn grant_or_refuse(
        &mut self,
        members: &[Member<'_>],
        fits: Result<Vec<Acquire<'_>>, AcquireReply>,
        bound: Option<SessionId>,
    ) -> (AcquireReply, Vec<Change<P>>) {
        match fits {
            Ok(parts) => {
                let (reply, _, changes) = self.take_all(members, &parts, bound);
                (reply, changes)
            }
            Err(refusal) => (refusal, Vec::new()),
        }
    }

    /// Takes all locks of a set, after a check found that each can be granted: see [`Self::refusal`].
    /// Returns the reply for the set, the replies for its locks and the changes.
    pub(crate) fn take_all(
        &mut self,
        members: &[Member<'_>],
        parts: &[Acquire<'_>],
        bound: Option<SessionId>,
    ) -> (AcquireReply, Vec<AcquireReply>, Vec<Change<P>>) {
        let (mut of_set, mut changes) = (None, Vec::with_capacity(parts.len()));
        if members
            .iter()
            .zip(parts)
            .any(|(it, part)| it.at.holds_of(part.owner, part.want).is_none())
        {
            self.leave_set_aside(members, parts);
        }
        let mut replies = Vec::with_capacity(parts.len());
        let (mut token, mut holds) = (None, 0);
        for (member, part) in members.iter().zip(parts) {
            let (reply, change) = match &member.at.seen {
                Observed::Free { .. } => {
                    let token = *of_set.get_or_insert_with(|| self.token_of_set(members));
                    self.take_as(&member.at, token, part)
                }
                // The caller has already checked that it is the owner's turn.
                Observed::Shared(sharing)
                    if sharing.share_of(part.owner, member.at.now.unix()).is_none() =>
                {
                    let joined = self.join(&member.at, sharing, part);
                    joined.unwrap_or_else(|refusal| (refusal, Change::None))
                }
                Observed::Held(_) | Observed::Shared(_) | Observed::NotALock { .. } => {
                    self.try_acquire(&member.at, part)
                }
            };
            self.bind_granted(&member.at, part, reply, bound);
            changes.push(change);
            replies.push(reply);
            let AcquireReply::Granted { token: granted, holds: held } = reply else { continue };
            if changes.len() == 1 {
                holds = held;
            }
            // A lock of `UNDER` has the token of its shared period, which may be older than this set.
            if !member.under {
                token = token.max(Some(granted));
            }
        }
        let reply =
            token.map_or(AcquireReply::Refused, |token| AcquireReply::Granted { token, holds });
        (reply, replies, changes)
    }

    /// Issues a token that is larger than the valid tokens of all locks of a set.
    fn token_of_set(&mut self, members: &[Member<'_>]) -> Token {
        let stored = |member: &Member<'_>| match &member.at.seen {
            Observed::Free { stored } => self.believe(*stored),
            Observed::Held(holding) => self.believe(holding.token),
            Observed::Shared(sharing) => self.believe(sharing.token),
            Observed::NotALock { .. } => None,
        };
        let stored = members.iter().filter_map(stored).max();
        let floor = members.iter().filter_map(|member| member.at.floor).max();
        let now = members.first().map_or(0, |first| first.at.now.unix_us);
        self.tokens.issue(stored, floor, now)
    }
}
