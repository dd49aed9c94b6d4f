//! Acquires and releases of a lock.
//!
//! Each operation takes the content of the key and returns the reply and the change to write. It
//! validates first and changes the table last, so no change is half done. Operations on waiters are
//! in `waiting.rs`.

use crate::change::Change;
use crate::lock::{Acquire, AcquireReply, Release, ReleaseReply, left_after};
use crate::mode::{Sharing, Want};
use crate::observed::{Holding, Observed};
use crate::outcome::{Cause, count};
use crate::situation::Situation;
use crate::table::Table;
use crate::token::Token;

/// Weight of a hold time that is recorded while the table is [quiet](Table::is_quiet): then most
/// releases are not recorded.
const SAMPLED: u64 = 8;

impl<P> Table<P> {
    /// Returns whether the first waiter must be served before any other request (I8). True if the
    /// lock is free and the first waiter neither waits for a set of locks nor is held up by a
    /// waiter for one. Also true if the lock is shared and the first waiter wants to share it.
    /// False during a quarantine, and while the lock is left free for Redisson (I18).
    #[must_use]
    pub fn owes_a_grant(&self, at: &Situation<'_>) -> bool {
        if self.quarantine.is_on(at.now) || self.gives_way(at.key, at.now) {
            return false;
        }
        match at.seen {
            Observed::Free { .. } => self.is_in_line(at.key) && !self.first_is_held_up(at.key),
            Observed::Shared(_) => self.head_wants(at) == Some(Want::Shared),
            Observed::Held(_) | Observed::NotALock { .. } => false,
        }
    }

    /// Returns whether there are no waiters and no grants in flight. In this state, most releases need
    /// to read only the owner's number of holds.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.queues.waiters() == 0 && self.in_flight.is_empty()
    }

    /// Grants a lock that is free, or that the owner may share, unless for example an earlier
    /// waiter prevents it. If the owner already holds the lock, adds a hold or recognises a
    /// repeated request.
    pub fn acquire(
        &mut self,
        at: &Situation<'_>,
        request: &Acquire<'_>,
    ) -> (AcquireReply, Change<P>) {
        let outcome = self.try_acquire(at, request);
        if outcome.0 == AcquireReply::Refused {
            count(&mut self.counters.refused);
        }
        outcome
    }

    /// The same as [`Self::acquire`], but does not count a refusal.
    pub(crate) fn try_acquire(
        &mut self,
        at: &Situation<'_>,
        request: &Acquire<'_>,
    ) -> (AcquireReply, Change<P>) {
        match &at.seen {
            Observed::NotALock { .. } => (AcquireReply::NotALock, Change::None),
            Observed::Held(holding) if holding.owner == request.owner => {
                let again = if request.want == Want::Shared {
                    self.share_beside(at, holding, request)
                } else {
                    self.reenter(at, holding, request)
                };
                again.unwrap_or_else(|refusal| (refusal, Change::None))
            }
            Observed::Shared(sharing) => self.ask_for_shared(at, sharing, request),
            Observed::Free { .. } | Observed::Held(_) if request.holds.is_some_and(|n| n > 1) => {
                (AcquireReply::Mismatch, Change::None)
            }
            Observed::Held(_) => (AcquireReply::Refused, Change::None),
            Observed::Free { .. } if self.quarantine.is_on(at.now) => {
                (AcquireReply::Refused, Change::None)
            }
            Observed::Free { .. }
                if self.is_barred(at.key, request.want) || self.gives_way(at.key, at.now) =>
            {
                (AcquireReply::Refused, Change::None)
            }
            Observed::Free { stored } if at.lacks_token_bound(self.believe(*stored)) => {
                (AcquireReply::TryAgain, Change::None)
            }
            Observed::Free { stored } => self.take(at, *stored, request),
        }
    }

    fn reenter(
        &mut self,
        at: &Situation<'_>,
        holding: &Holding<'_>,
        request: &Acquire<'_>,
    ) -> Result<(AcquireReply, Change<P>), AcquireReply> {
        let (holds, until) = holding.reenter(request, at.now.unix())?;
        let (token, given) = self.token_of(at, holding.token)?;
        let more = holds != holding.holds;
        self.count_reentry(more);
        self.record_use(at.key, request.owner, holding.token);
        let holds_now = more.then_some(holds);
        let change = Change::Update { holds: holds_now, token: given, until, value: None };
        Ok((AcquireReply::Granted { token, holds }, change.or_none()))
    }

    /// Returns the token of a lock that is already held. If the lock has no valid token, issues
    /// one; then the second value is this token, which must be written.
    pub(crate) fn token_of(
        &mut self,
        at: &Situation<'_>,
        stored: Option<Token>,
    ) -> Result<(Token, Option<Token>), AcquireReply> {
        if let Some(token) = self.believe(stored) {
            return Ok((token, None));
        }
        if at.lacks_token_bound(None) {
            return Err(AcquireReply::TryAgain);
        }
        let token = self.tokens.issue(None, at.floor, at.now.unix_us);
        Ok((token, Some(token)))
    }

    /// Releases one, some or all of the owner's exclusive or shared holds. If no owner holds the
    /// lock any more, it goes to the first waiter or becomes free. If the owner gives back its last
    /// exclusive hold but also has shared holds, the lock becomes shared instead.
    pub fn release(
        &mut self,
        at: &Situation<'_>,
        owner: &[u8],
        want: Want,
        release: Release,
    ) -> (ReleaseReply, Change<P>) {
        self.release_member(at, owner, want, release, self.is_quiet())
    }

    /// [`Self::release`] for one lock of a command. `was_sampled` tells whether the command found the
    /// server [quiet](Self::is_quiet), so that it was [sampled](Self::samples_this_release).
    pub(crate) fn release_member(
        &mut self,
        at: &Situation<'_>,
        owner: &[u8],
        want: Want,
        release: Release,
        was_sampled: bool,
    ) -> (ReleaseReply, Change<P>) {
        let holding = match (&at.seen, want) {
            (Observed::NotALock { .. }, _) => return (ReleaseReply::NotALock, Change::None),
            (Observed::Shared(sharing), Want::Shared) => {
                return self.release_share(at, sharing, owner, release);
            }
            (Observed::Held(holding), Want::Shared) if holding.owner == owner => {
                return self.release_beside(at, holding, release);
            }
            (Observed::Held(holding), _) if holding.owner == owner => holding,
            (Observed::Held(_) | Observed::Shared(_) | Observed::Free { .. }, _) => {
                return (ReleaseReply::NotHeld, Change::None);
            }
        };
        let Some(left) = left_after(release, holding.holds) else {
            return (ReleaseReply::Mismatch, Change::None);
        };
        self.record_release(at.key, owner, holding.token);
        let change = if left == holding.holds {
            count(&mut self.counters.repeated);
            Change::None
        } else if left > 0 {
            Change::Update { holds: Some(left), token: None, until: None, value: None }
        } else if holding.shared > 0 {
            self.downgrade(at, holding)
        } else {
            count(&mut self.counters.released);
            self.unbind(at.key, owner);
            self.note_held(at, holding.token, was_sampled);
            self.pass_on(at, holding.token, Cause::Release)
        };
        (ReleaseReply::Left(left), change)
    }

    /// Records how long a lock was held, just before it is released. The token is the time of the
    /// grant in microseconds, unless tokens run ahead of the clock; a token from the future is
    /// ignored. If the release `was_sampled`, it counts for the releases that were not.
    fn note_held(&mut self, at: &Situation<'_>, token: Option<Token>, was_sampled: bool) {
        let held = token.and_then(|token| at.now.unix_us.checked_sub(token.value()));
        let Some(held) = held else { return };
        self.hold_times.record(held, if was_sampled { SAMPLED } else { 1 });
        if self.queues.find(at.key).is_some() {
            self.profile.held(at.key, held);
        }
    }

    /// Decides whether a release records the hold time while there are no
    /// [waiters](Self::is_quiet). To avoid reading the token each time, only about one release in
    /// eight is recorded, and counts eight times. The choice is random, so that no lock is always
    /// or never recorded.
    pub fn samples_this_release(&mut self) -> bool {
        // The constants of the linear congruential generator of Knuth's MMIX.
        let next = self.samples.wrapping_mul(6_364_136_223_846_793_005);
        self.samples = next.wrapping_add(1_442_695_040_888_963_407);
        self.samples >> 61 == 0
    }

    /// Takes the lock from its holder or sharers and hands it to the first waiter, if there is one.
    /// Returns `None` if the key is not a lock, otherwise whether it was held.
    pub fn force_release(&mut self, at: &Situation<'_>) -> (Option<bool>, Change<P>) {
        match &at.seen {
            Observed::NotALock { .. } => (None, Change::None),
            Observed::Free { .. } => (Some(false), Change::None),
            Observed::Held(Holding { token, .. }) | Observed::Shared(Sharing { token, .. }) => {
                count(&mut self.counters.forced_releases);
                (Some(true), self.pass_on(at, *token, Cause::Forced))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyRef;
    use crate::outcome::Limits;
    use crate::results::Results;
    use crate::types::{Millis, Now};

    const AT: Situation<'static> = Situation {
        key: KeyRef::lock(0, b"k"),
        seen: Observed::Free { stored: None },
        now: Now { unix_us: 1_000_000, mono: crate::MonoMillis(0) },
        floor: None,
        results: Results::NONE,
    };
    const REQUEST: Acquire<'static> =
        Acquire { owner: b"a", want: Want::Exclusive, lease: Millis(10), holds: None };

    fn table() -> Table<()> {
        Table::new(Limits { waiters: 9, waiters_per_key: 9, ..Limits::UNLIMITED })
    }

    #[test]
    fn without_a_floor_no_token_is_guessed() {
        let (reply, change) = table().acquire(&AT, &REQUEST);
        assert_eq!((reply, change), (AcquireReply::TryAgain, Change::None));
    }

    #[test]
    fn hold_times_are_computed_from_the_token_for_one_release_in_eight() {
        let mut table = table();
        let release = |table: &mut Table<()>, held_us: u64| {
            let token = Token::from_stored(AT.now.unix_us - held_us);
            let holding = Holding { owner: b"a", holds: 1, shared: 0, token, until: None };
            let at = Situation { seen: Observed::Held(holding), ..AT };
            table.release(&at, b"a", Want::Exclusive, Release::One).0
        };
        assert_eq!(release(&mut table, 3000), ReleaseReply::Left(0));
        assert_eq!((table.hold_times().count(), table.hold_times().sum_us()), (8, 24_000));
        let join = crate::waiter::Join {
            owner: b"b",
            want: Want::Exclusive,
            lease: Millis(9),
            timeout: None,
        };
        table.enqueue_at(AT.key, AT.now, None, &join, crate::waiter::Via::Client(()));
        release(&mut table, 1000);
        assert_eq!((table.hold_times().count(), table.hold_times().sum_us()), (9, 25_000));
        let picked: Vec<_> = (0..8000).filter(|_| table.samples_this_release()).collect();
        assert!((900..1100).contains(&picked.len()), "{}", picked.len());
        // Programs that release eight locks in turn are sampled at each of them.
        assert!((0..8).all(|place| picked.iter().any(|at| at % 8 == place)));
    }

    #[test]
    fn without_a_floor_the_token_in_the_hash_is_enough() {
        let stored = Token::from_stored(5_000_000);
        let at = Situation { seen: Observed::Free { stored }, ..AT };
        let (reply, _) = table().acquire(&at, &REQUEST);
        let AcquireReply::Granted { token, .. } = reply else { panic!("{reply:?}") };
        assert_eq!(token.value(), 5_000_001);
    }
}
