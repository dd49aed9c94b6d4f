//! The lock table: what a command does to a lock and its holder.
//!
//! Each operation takes the content of the key and returns the reply and what to write. It
//! validates first and changes the table last, so that no change is half done. Operations on
//! waiters are in `waiting.rs`.

use std::collections::VecDeque;

use crate::account::Accounts;
use crate::agenda::Agenda;
use crate::bound::Bindings;
use crate::flight::Flights;
use crate::forget::Discarded;
use crate::grant::after;
use crate::histogram::Histogram;
use crate::key::KeyRef;
use crate::lock::{Acquire, AcquireReply, Release, ReleaseReply, RenewReply, left_after};
use crate::mode::{Sharing, Want};
use crate::observed::{Holding, Observed};
use crate::observers::Watches;
use crate::outbox::Untold;
use crate::outcome::{Cause, Change, Counters, Limits, count};
use crate::profile::Profile;
use crate::quarantine::Quarantine;
use crate::queue::Queues;
use crate::ready::Results;
use crate::sessions::Sessions;
use crate::sweep::Sweep;
use crate::token::{Token, TokenSource};
use crate::turn::Turns;
use crate::types::{Millis, Now};
use crate::work::Rotation;

/// All queues, the agenda and the tokens. `P` is a client to answer.
#[derive(Debug)]
pub struct Table<P> {
    pub(crate) queues: Queues<P>,
    pub(crate) sessions: Sessions<P>,
    /// Counts what is kept for each user.
    pub(crate) accounts: Accounts,
    pub(crate) bindings: Bindings,
    pub(crate) agenda: Agenda,
    pub(crate) tokens: TokenSource,
    pub(crate) in_flight: Flights,
    /// Queues to look at because their keys may have changed unnoticed.
    pub(crate) sweeps: VecDeque<Sweep>,
    pub(crate) last_grant: u64,
    pub(crate) quarantine: Quarantine,
    pub(crate) turns: Turns,
    pub(crate) watches: Watches,
    pub(crate) rotation: Rotation,
    /// Grants that were never sent. They are taken back as soon as writing is allowed.
    pub(crate) untold: VecDeque<Untold>,
    /// Data that no decision uses any more, freed in small steps.
    pub(crate) discarded: VecDeque<Discarded<P>>,
    /// Blocked clients to answer with `ready`.
    pub(crate) ready_clients: VecDeque<P>,
    /// Limits of waiters and sessions.
    pub limits: Limits,
    /// Longest time between two looks at a lock that has waiters. Needed where keys can change
    /// without an event.
    pub look_every: Option<Millis>,
    pub(crate) counters: Counters,
    /// Waiting times of the waiters that were granted something.
    pub(crate) wait_times: Histogram,
    /// Hold times of exclusive locks that were released by their owners.
    pub(crate) hold_times: Histogram,
    pub(crate) profile: Profile,
    /// State of the random numbers for [`Self::samples_this_release`].
    samples: u64,
}

/// One in this many releases is sampled for the hold time while there are no waiters.
const SAMPLED: u64 = 8;

/// Everything known about one lock at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The lock.
    pub key: KeyRef<'a>,
    /// Content of its key.
    pub seen: Observed<'a>,
    /// The time.
    pub now: Now,
    /// Highest token that another server may have issued; 0 if none. `None` while that is unknown:
    /// then nothing is granted that would need a guessed token.
    pub floor: Option<u64>,
    /// The ready-keys that exist now.
    pub results: Results<'a>,
}

impl Situation<'_> {
    /// Number of holds of the wanted kind that the owner has. `None` if it holds nothing.
    pub(crate) fn held_by(&self, request: &Acquire<'_>) -> Option<u64> {
        self.holds_of(request.owner, request.want)
    }

    /// Number of holds of a kind that an owner has. `None` if it holds nothing; 0 if it has only holds of the
    /// other kind.
    #[must_use]
    pub fn holds_of(&self, owner: &[u8], want: Want) -> Option<u64> {
        match (&self.seen, want) {
            (Observed::Held(holding), _) if holding.owner != owner => None,
            (Observed::Held(holding), Want::Shared) => Some(holding.shared),
            (Observed::Held(holding), _) => Some(holding.holds),
            (Observed::Shared(sharing), Want::Shared) => {
                sharing.share_of(owner, self.now.unix()).map(|share| share.holds)
            }
            (Observed::Shared(_) | Observed::Free { .. } | Observed::NotALock { .. }, _) => None,
        }
    }

    /// Number of holds of a kind that an owner has left after a release; `None` if the release is
    /// refused.
    #[must_use]
    pub fn left_after(&self, owner: &[u8], want: Want, release: Release) -> Option<u64> {
        let holds = self.holds_of(owner, want).filter(|holds| *holds > 0)?;
        left_after(release, holds)
    }

    /// Whether an owner holds the lock, but `HOLDS n` of a release does not fit what it holds.
    #[must_use]
    pub fn mismatches(&self, owner: &[u8], want: Want, release: Release) -> bool {
        let holds = self.holds_of(owner, want).filter(|holds| *holds > 0);
        holds.is_some_and(|holds| left_after(release, holds).is_none())
    }

    /// Whether a new token for this lock would be a guess. `stored` is the token in the hash, if it
    /// is believed.
    pub(crate) fn must_guess(&self, stored: Option<Token>) -> bool {
        self.floor.is_none() && stored.is_none()
    }
}

impl<P> Table<P> {
    /// Returns an empty table.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            queues: Queues::default(),
            sessions: Sessions::default(),
            accounts: Accounts::default(),
            bindings: Bindings::default(),
            agenda: Agenda::default(),
            tokens: TokenSource::default(),
            in_flight: Flights::default(),
            sweeps: VecDeque::new(),
            last_grant: 0,
            quarantine: Quarantine::default(),
            turns: Turns::default(),
            watches: Watches::default(),
            rotation: Rotation::default(),
            untold: VecDeque::new(),
            discarded: VecDeque::new(),
            ready_clients: VecDeque::new(),
            limits,
            look_every: None,
            counters: Counters::default(),
            wait_times: Histogram::default(),
            hold_times: Histogram::default(),
            profile: Profile::default(),
            samples: 0,
        }
    }

    /// Whether the head of the queue must be served before any other request: the lock is free
    /// although it has a waiter that can be granted by itself, or it is shared and the head wants to share it (I8). False during
    /// a quarantine, and while the lock is left free for Redisson (I18).
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

    /// Whether there are no waiters and no grants in flight. Then a release only needs the owner's
    /// number of holds.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.queues.waiters() == 0 && self.in_flight.is_empty()
    }

    /// Takes the lock if it is free and has no waiters, or counts a reentry.
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
            Observed::Free { stored } if at.must_guess(self.believe(*stored)) => {
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
        self.touched(at.key, request.owner, holding.token);
        let holds_now = more.then_some(holds);
        let change = Change::Update { holds: holds_now, token: given, until, value: None };
        Ok((AcquireReply::Granted { token, holds }, change.or_none()))
    }

    /// Returns the token of a lock that is already held. If it has none, issues one; the second
    /// value is the token to write then.
    pub(crate) fn token_of(
        &mut self,
        at: &Situation<'_>,
        stored: Option<Token>,
    ) -> Result<(Token, Option<Token>), AcquireReply> {
        if let Some(token) = self.believe(stored) {
            return Ok((token, None));
        }
        if at.must_guess(None) {
            return Err(AcquireReply::TryAgain);
        }
        let token = self.tokens.issue(None, at.floor, at.now.unix_us);
        Ok((token, Some(token)))
    }

    /// Releases one, some or all holds of a kind. The last one hands the lock to the first waiter,
    /// or leaves it to the owner's own shared holds.
    pub fn release(
        &mut self,
        at: &Situation<'_>,
        owner: &[u8],
        want: Want,
        release: Release,
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
        self.touched(at.key, owner, holding.token);
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
            self.note_held(at, holding.token);
            self.pass_on(at, holding.token, Cause::Release)
        };
        (ReleaseReply::Left(left), change)
    }

    /// Records how long a lock was held, just before it is released. The token is the time of the
    /// grant in microseconds, unless tokens run ahead of the clock; a token from the future is
    /// ignored.
    fn note_held(&mut self, at: &Situation<'_>, token: Option<Token>) {
        let held = token.and_then(|token| at.now.unix_us.checked_sub(token.value()));
        let Some(held) = held else { return };
        self.hold_times.record(held, if self.is_quiet() { SAMPLED } else { 1 });
        if self.queues.find(at.key).is_some() {
            self.profile.held(at.key, held);
        }
    }

    /// Decides whether a release without [waiters](Self::is_quiet) records the hold time. Reading
    /// the token for it costs a fiftieth of acquiring and releasing, so one release in eight does
    /// and counts eight times. The choice is random, so that no lock is always sampled or never.
    pub fn samples_this_release(&mut self) -> bool {
        // The constants of Knuth's MMIX.
        let next = self.samples.wrapping_mul(6_364_136_223_846_793_005);
        self.samples = next.wrapping_add(1_442_695_040_888_963_407);
        self.samples >> 61 == 0
    }

    /// Restarts the lease of an owner, in either mode. Unlike a reentry it may shorten the lease.
    /// `at_least` raises the token of an exclusive lock to that value, unless the token is larger
    /// already.
    pub fn renew(
        &mut self,
        at: &Situation<'_>,
        owner: &[u8],
        lease: Millis,
        at_least: Option<Token>,
    ) -> (RenewReply, Change<P>) {
        let holding = match &at.seen {
            Observed::NotALock { .. } => return (RenewReply::NotALock, Change::None),
            Observed::Shared(sharing) if at_least.is_some() => {
                let shares = sharing.share_of(owner, at.now.unix()).is_some();
                let reply = if shares { RenewReply::Shared } else { RenewReply::NotHeld };
                return (reply, Change::None);
            }
            Observed::Shared(sharing) => return self.renew_share(at, sharing, owner, lease),
            Observed::Held(holding) if holding.owner == owner => holding,
            Observed::Held(_) | Observed::Free { .. } => {
                return (RenewReply::NotHeld, Change::None);
            }
        };
        let token = match self.raise(at, holding.token, at_least) {
            Ok(token) => token,
            Err(reply) => return (reply, Change::None),
        };
        if let Some(token) = token {
            self.has_token_now(at.key, owner, token);
        }
        let until = at.now.unix().plus(lease);
        self.touched(at.key, owner, holding.token);
        self.look_no_later_than(at.key, after(until), Cause::Expiry);
        let change = Change::Update { holds: None, token, until: Some(until), value: None };
        (RenewReply::Lease(lease), change)
    }

    /// Returns the token to which that of a lock has to be raised so that it is at least `at_least`; `None` if it
    /// already is.
    pub(crate) fn has_to_raise(
        &self,
        at: &Situation<'_>,
        held: Option<Token>,
        at_least: Option<Token>,
    ) -> Result<Option<Token>, RenewReply> {
        let held = self.believe(held);
        let Some(wanted) = at_least.filter(|wanted| held.is_none_or(|held| held < *wanted)) else {
            return Ok(None);
        };
        let most = self.tokens.most(at.floor, at.now.unix_us);
        if wanted.value() > most {
            return Err(RenewReply::TooFarAhead(most));
        }
        if at.floor.is_none() {
            // The key may be deleted before its slot has moved, and the token would leave no other trace.
            return Err(RenewReply::TryAgain);
        }
        Ok(Some(wanted))
    }

    /// Returns the token to write so that the lock's token is at least `at_least`; `None` if it
    /// already is.
    fn raise(
        &mut self,
        at: &Situation<'_>,
        held: Option<Token>,
        at_least: Option<Token>,
    ) -> Result<Option<Token>, RenewReply> {
        let Some(at_least) = self.has_to_raise(at, held, at_least)? else { return Ok(None) };
        let held = self.believe(held);
        if held.is_none() {
            let below = Token::from_stored(at_least.value().saturating_sub(1));
            return Ok(Some(self.tokens.issue(below, at.floor, at.now.unix_us)));
        }
        self.tokens.raise(at_least);
        Ok(Some(at_least))
    }

    /// Takes the lock from its holder or sharers and hands it on. Returns `None` if the key is not
    /// a lock, otherwise whether it was held.
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

    /// Makes all later tokens larger than the one in a hash that is about to be deleted. Returns
    /// that token, or `None` if it is not believed.
    pub fn go_on_above(&mut self, stored: Option<Token>) -> Option<Token> {
        let token = self.believe(stored)?;
        self.tokens.raise(token);
        Some(token)
    }

    /// Returns the token in a hash, or `None` if no kvlock server can have written it.
    #[must_use]
    pub fn believe(&self, stored: Option<Token>) -> Option<Token> {
        self.tokens.believe(stored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn what_was_held_is_known_by_the_token_and_one_in_eight_counts_for_eight() {
        let mut table = table();
        let release = |table: &mut Table<()>, held_us: u64| {
            let token = Token::from_stored(AT.now.unix_us - held_us);
            let holding = Holding { owner: b"a", holds: 1, shared: 0, token, until: None };
            let at = Situation { seen: Observed::Held(holding), ..AT };
            table.release(&at, b"a", Want::Exclusive, Release::One).0
        };
        assert_eq!(release(&mut table, 3000), ReleaseReply::Left(0));
        assert_eq!((table.hold_times().count(), table.hold_times().sum_us()), (8, 24_000));
        let join = crate::waiting::Join {
            owner: b"b",
            want: Want::Exclusive,
            lease: Millis(9),
            timeout: None,
        };
        table.enqueue_at(AT.key, AT.now, None, &join, crate::session::Via::Client(()));
        release(&mut table, 1000);
        assert_eq!((table.hold_times().count(), table.hold_times().sum_us()), (9, 25_000));
        let picked = (0..8000).filter(|_| table.samples_this_release()).count();
        assert!((900..1100).contains(&picked), "{picked}");
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
