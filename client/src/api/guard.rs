//! The guard of a held lock.

use crate::api::held::Held;
use crate::engine::bound;
use crate::engine::context::Context;
use crate::engine::hold::{give_back, give_back_in, renew, set_rest};
use crate::engine::lease::held_lock::HeldLock;
use crate::engine::lease::{Lease, LeaseSpec, ShareId, Turn};
use crate::engine::observer::{HeldObservation, observe_held};
use crate::engine::owner::OwnerSlot;
use crate::engine::settings::{LEASE_MIN, check_lease};
use crate::engine::store::give_back_storing;
use crate::engine::telemetry;
use crate::wire::error::Error;
use crate::wire::reply::Token;
use crate::wire::request::{Mode, ToStore};
use std::fmt;
use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// A guard of a held lock. While the guard exists the lock stays held, unless the lock is lost.
///
/// It dereferences to [`Held`], which reports whether and why the lock is lost.
///
/// The watchdog renews the lease as long as the guard exists, unless the lock was acquired with a
/// [`fixed_lease`](crate::Lock::fixed_lease). **Having a guard does not mean holding the lock**.
/// The lock can be lost, for example because it is taken away, or because the server cannot be
/// reached for the length of the lease, less the [`margin`](crate::Builder::margin). Check
/// [`is_lost`](Held::is_lost) before each step that must not happen twice, wait for
/// [`lost`](Held::lost), run the work with [`run_until_lost`](Held::run_until_lost), or give
/// spawned tasks a [`watch`](Held::watch). Pass the [`token`](Self::token) to the resource that the
/// lock guards: the process may be paused right after any check.
///
/// Dropping it [releases](Self::release) the lock in the background, without blocking and without
/// reporting errors; [`Client::settled`](crate::Client::settled) waits for that. While the server
/// cannot be reached, the release is repeated until the lease has ended. It runs on the runtime on which the
/// guard is dropped, which must have timers and I/O enabled. Outside of a runtime, or if that one ends before the
/// release is answered, it runs on another one on which the client was used. If there is none, the lock is free
/// when its lease ends.
///
/// # Examples
///
/// ```no_run
/// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
/// let guard = client.lock("orders:42").acquire().await?;
/// if !guard.is_lost() {
///     ship(42, guard.token()).await;
/// }
/// guard.release().await?;
/// # Ok(()) }
/// # async fn ship(_: u64, _: kvlock::Token) {}
/// ```
#[must_use = "dropping a guard releases the lock"]
pub struct Guard {
    held: Held,
    on_drop: OnDrop,
    /// The entry of a shared [`Owner`](crate::Owner) for this lock.
    slot: Option<OwnerSlot>,
    /// Observation of the lock, through which the server reports a loss.
    observation: Option<HeldObservation>,
}

/// Action when a guard is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnDrop {
    Release,
    /// Leaves the lock as it is, as if it had never been adopted.
    Leave,
    Nothing,
}

impl Guard {
    pub(crate) fn new(
        inner: Arc<Context>,
        lease: Arc<Lease>,
        share: ShareId,
        slot: Option<OwnerSlot>,
    ) -> Self {
        let held = Held { inner, lease, share };
        Self { held, on_drop: OnDrop::Release, slot, observation: None }
    }

    /// Returns the guard of a lock that was detached, after binding and observing it as requested. If that
    /// fails or the future is dropped, the lock stays as it was, but may already be bound to this client.
    pub(crate) async fn adopted(
        inner: Arc<Context>,
        lease: Arc<Lease>,
        share: ShareId,
        bound: bool,
        observed: bool,
    ) -> Result<Self, Error> {
        let mut guard = Self::new(inner, lease, share, None);
        guard.on_drop = OnDrop::Leave;
        let mut guard = guard.and(bound, observed).await?;
        guard.on_drop = OnDrop::Release;
        Ok(guard)
    }

    /// Binds the lock if `bound`, and observes it if `observed`.
    pub(crate) async fn and(mut self, bound: bool, observed: bool) -> Result<Self, Error> {
        let (inner, lease) = (&self.inner, &self.lease);
        if bound && !lease.is_bound() {
            bound::bind(inner, lease, inner.settings.patience).await?;
        }
        if observed {
            self.observation = Some(observe_held(inner, lease, self.share));
        }
        Ok(self)
    }

    pub(crate) fn is_observed(&self) -> bool {
        self.observation.is_some()
    }

    pub(crate) fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    pub(crate) fn inner(&self) -> &Arc<Context> {
        &self.inner
    }

    /// Returns the lease that this guard requests; `None` if the guard was released.
    pub(crate) fn term(&self) -> Option<LeaseSpec> {
        self.lease.term(self.share)
    }

    /// Returns the entry of the [`Owner`](crate::Owner) for this lock. `None` if the lock was acquired without
    /// such an owner.
    pub(crate) fn slot(&self) -> Option<OwnerSlot> {
        self.slot.as_ref().map(OwnerSlot::again)
    }

    /// Returns the fencing token of the grant. Only [`raise_token`](Self::raise_token) changes it.
    #[must_use]
    pub fn token(&self) -> Token {
        self.lease.token()
    }

    /// Returns the number of guards of this [`Owner`](crate::Owner) that hold the lock; 1 without
    /// re-entrance. A dropped guard counts until its release is sent.
    #[must_use]
    pub fn holds(&self) -> usize {
        self.lease.holds()
    }

    /// Sets the lease to `lease`, counted from now, longer or shorter than before. Later renewals use it
    /// too. If the owner has other guards, the longest of their leases counts.
    ///
    /// # Errors
    ///
    /// [`Lost`](Error::Lost) if the lock turns out to be lost; [`Invalid`](Error::Invalid) if the lease is
    /// out of range for this crate or for the server. Temporary refusals of the server are retried for the
    /// [`patience`](crate::Builder::patience) of the client, but no longer than the lease lasts.
    ///
    /// After an error later renewals request the old lease, and after a refusal the lock is held as long as
    /// before. After a network error, or [`NotReplicated`](Error::NotReplicated), the shorter of the two leases
    /// counts: a command whose connection broke may still arrive, even after later commands. The lock is
    /// renewed as often as the shorter lease needs. This lasts until the lock is released, or, if the connection
    /// did not break, until a later renewal over the same connection is answered.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the lease may or may not have been set, as after a network error.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(mut guard: kvlock::Guard) -> Result<(), kvlock::Error> {
    /// # use std::time::Duration;
    /// guard.extend(Duration::from_secs(120)).await?; // the next step takes longer
    /// # Ok(()) }
    /// ```
    pub async fn extend(&mut self, lease: Duration) -> Result<(), Error> {
        self.renew_as(lease, None).await
    }

    /// Sets the lease, as [`extend`](Self::extend) does, and raises the [`token`](Self::token) to `token`,
    /// unless the token of the guard is larger already. Later renewals send this token too.
    ///
    /// For locks that are held at several independent servers, whose tokens are unrelated: see
    /// [`lock_renew_with_token`](crate::AsyncLockCommands::lock_renew_with_token). The crate
    /// `kvlock-quorum` uses it.
    ///
    /// # Errors
    ///
    /// The errors of [`extend`](Self::extend); [`Invalid`](Error::Invalid) if the token is too far ahead of
    /// the server's clock, or if this is a shared lock or a semaphore. Then nothing changes.
    ///
    /// # Cancel safety
    ///
    /// As for [`extend`](Self::extend). The server may or may not have raised the token. If it has, the guard
    /// learns this when its owner re-enters the lock or a bound lock is bound again.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(mut parts: Vec<kvlock::Guard>) -> Result<(), kvlock::Error> {
    /// # use std::time::Duration;
    /// if let Some(largest) = parts.iter().map(kvlock::Guard::token).max() {
    ///     for part in &mut parts {
    ///         part.raise_token(largest, Duration::from_secs(10)).await?;
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn raise_token(&mut self, token: Token, lease: Duration) -> Result<(), Error> {
        if self.lease.held_lock.mode != Mode::Alone {
            return Err(Error::Invalid("only a lock that is held alone has a token".to_owned()));
        }
        self.renew_as(lease, Some(token)).await
    }

    async fn renew_as(&mut self, length: Duration, token: Option<Token>) -> Result<(), Error> {
        check_lease(length)?;
        let (inner, lease) = (&self.inner, &self.lease);
        let sent = renew(inner, lease, false, |sent| {
            let longest = lease.changing(self.share, sent, length);
            Ok((longest, lease.renewal(longest, token)?))
        });
        lease.changed(self.share, sent.await?, length);
        if let Some(token) = token {
            lease.raised(token);
        }
        inner.watchdog.watch(lease);
        Ok(())
    }

    /// Releases the lock, and waits for the server's answer. If the owner has other guards, it gives back
    /// one hold.
    ///
    /// # Errors
    ///
    /// [`Lost`](Error::Lost) if the lock turns out to have been lost: another owner may have worked at the
    /// same time. [`Timeout`](Error::Timeout) after the client's
    /// [`reply_timeout`](crate::Builder::reply_timeout), and other network errors. After a network error the
    /// lock may stay held until its lease ends; the release of an owner's last guard is repeated in
    /// the background. After an error this guard holds nothing.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the lock is released in the background.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(guard: kvlock::Guard) -> Result<(), kvlock::Error> {
    /// match guard.release().await {
    ///     Err(trouble) if trouble.is_lost() => println!("had been lost: {trouble}"),
    ///     other => other?,
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn release(mut self) -> Result<(), Error> {
        let Held { inner, lease, share } = &self.held;
        let span = telemetry::release_span(&lease.held_lock);
        let work = give_back(inner, lease, *share);
        // If it times out, the drop of `self` starts the release again.
        let work = pin!(timeout(inner.settings.reply_timeout, work));
        let outcome = telemetry::inside(&span, work).await.map_err(|_| Error::Timeout)?;
        self.on_drop = OnDrop::Nothing;
        outcome
    }

    /// Releases the lock and stores a result in the same step, if the lock is still held. After an error
    /// the lock is released without the result, unless the error leaves the outcome unknown.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the lock is released in the background, and the result may or may not be
    /// stored.
    pub(crate) async fn release_storing(mut self, result: ToStore<'_>) -> Result<(), Error> {
        let Held { inner, lease, share } = &self.held;
        let span = telemetry::release_span(&lease.held_lock);
        let work = pin!(give_back_storing(inner, lease, *share, result));
        let outcome = telemetry::inside(&span, work).await;
        self.on_drop = OnDrop::Nothing;
        outcome
    }

    /// Releases the exclusive hold of the only guard, for a caller that has the turn. The locks of `UNDER` stay
    /// held.
    pub(crate) async fn release_exclusive(mut self, turn: Turn) -> Result<(), Error> {
        let exclusive = |held_lock: &HeldLock, _all| held_lock.release_exclusive();
        let outcome = give_back_in(&self.inner, &self.lease, &turn, self.share, exclusive).await;
        self.on_drop = OnDrop::Nothing;
        outcome
    }

    /// Ends this guard, and leaves the lock held for `time` from now. So a job that many machines start at
    /// about the same time runs once, even if it is done before another machine starts. If `time` is less
    /// than 10 ms, or the owner has other guards, this is a [`release`](Self::release).
    ///
    /// # Errors
    ///
    /// [`Invalid`](Error::Invalid) for a [bound](crate::Lock::bound) lock, which ends with this client. The
    /// bound lock is released. The errors of [`extend`](Self::extend), or of
    /// [`release`](Self::release) if this is one. [`Lost`](Error::Lost) means that the lock was lost before
    /// this call or is lost at the server: `time` may be over before the answer arrives. After an error of
    /// `extend` other than `Lost`, the lock is free after `time`, or when the lease that it had before
    /// this call ends.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the lock is released in the background.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// # use std::time::Duration;
    /// if let Some(guard) = client.lock("report").try_acquire().await? {
    ///     let began = std::time::Instant::now();
    ///     report().await;
    ///     guard.release_in(Duration::from_secs(60).saturating_sub(began.elapsed())).await?;
    /// }
    /// # Ok(()) }
    /// # async fn report() {}
    /// ```
    pub async fn release_in(mut self, time: Duration) -> Result<(), Error> {
        if time < LEASE_MIN {
            return self.release().await;
        }
        // While this task has the turn, the owner gets and releases no other guard of this lock.
        let turn = self.lease.turn_after_releases(self.share).await;
        if self.holds() > 1 {
            drop(turn);
            return self.release().await;
        }
        self.unbound()?;
        self.lease.abandon(self.share);
        // Waits for renewals in flight: one that arrives later would set the longer lease again.
        self.lease.quiet().await;
        let outcome = set_rest(&self.inner, &self.lease, self.share, time).await;
        if !matches!(outcome, Err(Error::Lost(_))) {
            self.leave(&turn);
        }
        outcome
    }

    /// Ends this guard without releasing the lock. The owner holds the lock until its lease ends. Before
    /// that, another process that knows [`owner`](Held::owner) and [`token`](Self::token) can take it over
    /// with [`Lock::adopt`](crate::Lock::adopt). Returns the time that is left for that. If the
    /// other process needs more time, call [`extend`](Self::extend) first.
    ///
    /// # Errors
    ///
    /// [`Lost`](Error::Lost) if the lock is lost; [`Invalid`](Error::Invalid) if the owner has other guards
    /// of the lock, and for a [bound](crate::Lock::bound) lock, which ends with this client;
    /// [`Timeout`](Error::Timeout) if a renewal was never answered, since it may still change the lease.
    /// After [`Invalid`](Error::Invalid) and [`Timeout`](Error::Timeout) the hold of this guard is
    /// released.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the lock is released in the background.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// let guard = client.lock("orders:42").acquire().await?;
    /// let (owner, token) = (guard.owner().to_owned(), guard.token());
    /// guard.detach().await?;
    /// hand_over(owner, token); // to Lock::adopt
    /// # Ok(()) }
    /// # fn hand_over(_: String, _: kvlock::Token) {}
    /// ```
    pub async fn detach(mut self) -> Result<Duration, Error> {
        let turn = self.lease.turn_after_releases(self.share).await;
        if self.holds() > 1 {
            return Err(Error::Invalid("further guards of this owner hold the lock".to_owned()));
        }
        self.unbound()?;
        // After this, no renewal starts, not even a check after a failover.
        self.lease.abandon(self.share);
        self.lease.quiet().await;
        if self.is_lost() {
            return Err(self.lease.lost_error());
        }
        // A renewal that arrives late could shorten the lease of the process that adopts the lock.
        if self.lease.late().counts(Duration::MAX) < Duration::MAX {
            return Err(Error::Timeout);
        }
        let left = self.lease_left();
        self.leave(&turn);
        if left.is_zero() { Err(self.lease.lost_error()) } else { Ok(left) }
    }

    /// Refuses bound locks: the server releases them at the end of this client's session, even if another
    /// client has adopted the lock.
    fn unbound(&self) -> Result<(), Error> {
        if self.lease.was_bound() {
            return Err(Error::Invalid("a bound lock does not outlive its client".to_owned()));
        }
        Ok(())
    }

    /// Ends this guard, and sends nothing.
    fn leave(&mut self, turn: &Turn) {
        leave(&self.inner, &self.lease, turn, self.share);
        self.on_drop = OnDrop::Nothing;
    }
}

/// Removes a guard's share from the lease, and sends nothing.
fn leave(inner: &Context, lease: &Arc<Lease>, turn: &Turn, share: ShareId) {
    let _left_to_its_lease = lease.leave(turn, share);
    inner.watchdog.watch(lease);
}

impl Deref for Guard {
    type Target = Held;

    fn deref(&self) -> &Held {
        &self.held
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("key", &format_args!("{}", self.key().escape_ascii()))
            .field("owner", &self.owner())
            .field("token", &self.token())
            .field("lease_left", &self.lease_left())
            .finish_non_exhaustive()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.on_drop == OnDrop::Nothing {
            return;
        }
        // If no runtime is left before the release is sent, nothing renews the lease, and it ends.
        self.lease.abandon(self.share);
        let (inner, lease, share) = (self.inner.clone(), self.lease.clone(), self.share);
        if self.on_drop == OnDrop::Leave {
            // A task that binds the lock to another session may have the turn.
            self.inner.spawn(move || {
                let (inner, lease) = (inner.clone(), lease.clone());
                async move {
                    let turn = lease.turn().await;
                    leave(&inner, &lease, &turn, share);
                }
            });
            return;
        }
        let span = telemetry::release_span(&lease.held_lock);
        let mut again = false;
        self.inner.spawn(move || {
            let (inner, lease, span) = (inner.clone(), lease.clone(), span.clone());
            let is_repeated = std::mem::replace(&mut again, true);
            if is_repeated {
                // The release of the first call may still arrive.
                lease.strayed();
            }
            async move {
                let work = pin!(give_back(&inner, &lease, share));
                match telemetry::inside(&span, work).await {
                    // The first call may have released it.
                    Err(lost) if lost.is_lost() && is_repeated => {}
                    Err(trouble) => telemetry::not_released(&lease.held_lock, &trouble),
                    Ok(()) => {}
                }
            }
        });
    }
}

#[cfg(all(test, not(kvlock_shuttle)))]
mod tests {
    use super::{Guard, OnDrop};
    use crate::engine::clock::Moment;
    use crate::engine::context::Context;
    use crate::engine::lease::held_lock::HeldLock;
    use crate::engine::lease::late::UnansweredRenewals;
    use crate::engine::lease::{Beginning, Lease, LeaseSpec, WatchdogAction};
    use crate::wire::reply::Token;
    use crate::wire::request::Mode;
    use std::time::Duration;

    /// A task that binds the lock to another session has the turn.
    #[tokio::test]
    async fn a_lock_whose_adoption_is_dropped_is_renewed_no_more() {
        let context = Context::of_no_server();
        let length = Duration::from_secs(30);
        let late = UnansweredRenewals::default();
        let granted = Beginning { since: context.now(), runs: length, late, strays: false };
        let (key, owner, token) = (b"k"[..].into(), "o:1".into(), Token::from(1));
        let lock = HeldLock { mode: Mode::Alone, key, further: None, owner, token };
        let term = LeaseSpec { length, watched: true };
        let (lease, share) = Lease::granted(1, lock, &context.policy, granted, term);
        let mut guard = Guard::new(context.clone(), lease.clone(), share, None);
        guard.on_drop = OnDrop::Leave;
        let turn = lease.turn().await;
        drop(guard);
        let later = |action| matches!(action, WatchdogAction::Later(_));
        assert!(later(lease.action(context.now().after(length / 2))));
        drop(turn);
        context.background.wait().await;
        assert!(!lease.is_alive());
        assert_eq!(lease.action(Moment::LONG_AGO), WatchdogAction::Done);
    }
}
