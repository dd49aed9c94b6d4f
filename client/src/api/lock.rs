//! A lock by its name, and the ways to acquire it.

use crate::api::guard::Guard;
use crate::engine::acquire::Acquisition;
use crate::engine::bound;
use crate::engine::claim::Claim;
use crate::engine::context::Context;
use crate::engine::lease::{Lease, Term};
use crate::engine::limit::{Limit, Trouble};
use crate::engine::observe;
use crate::engine::observer::Observers;
use crate::engine::owner::{Owner, Visit};
use crate::engine::reenter;
use crate::engine::regain;
use crate::engine::settings::FIRST_LEASE;
use crate::engine::settings::check_lease;
use crate::engine::settings::check_name;
use crate::wire::error::Error;
use crate::wire::info::{self, LockInfo, LockState};
use crate::wire::reply::{self, Token};
use crate::wire::request;
use crate::wire::request::Mode;
use redis::RedisError;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tracing::Instrument;

/// A lock, by its name: how it is to be acquired, and what can be known about it.
///
/// Made by [`Client::lock`](crate::Client::lock). Cheap to make and to clone; making one sends nothing.
///
/// # Examples
///
/// ```no_run
/// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
/// use std::time::Duration;
///
/// let lock = client.lock("orders:42").lease(Duration::from_secs(10));
/// if let Some(guard) = lock.try_acquire().await? {
///     guard.release().await?;
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct Lock {
    inner: Arc<Context>,
    key: Arc<[u8]>,
    mode: Mode,
    term: Term,
    owner: Option<Owner>,
    value: Option<Arc<[u8]>>,
    observed: bool,
    bound: bool,
}

impl Lock {
    pub(crate) fn new(inner: Arc<Context>, name: &[u8]) -> Self {
        let term = Term { length: inner.settings.lease, watched: true };
        Self {
            inner,
            key: name.into(),
            mode: Mode::Alone,
            term,
            owner: None,
            value: None,
            observed: false,
            bound: false,
        }
    }

    /// Another lease than the client's, renewed by the watchdog as well: 10 ms to ten years, and no
    /// more than the server's `kvlock.max-lease-ms`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// # use std::time::Duration;
    /// let lock = client.lock("orders:42").lease(Duration::from_secs(5));
    /// # Ok(()) }
    /// ```
    pub fn lease(mut self, lease: Duration) -> Self {
        self.term = Term { length: lease, watched: true };
        self
    }

    /// A lease that is not renewed: it ends by itself, unless the lock is released before.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// # use std::time::Duration;
    /// // At most once a minute, whoever does it.
    /// let lock = client.lock("report").fixed_lease(Duration::from_secs(60));
    /// if let Some(guard) = lock.try_acquire().await? {
    ///     guard.lost().await; // let it end
    /// }
    /// # Ok(()) }
    /// ```
    pub fn fixed_lease(mut self, lease: Duration) -> Self {
        self.term = Term { length: lease, watched: false };
        self
    }

    /// Shares the lock with others who do, instead of holding it alone: the read lock of a
    /// read-write lock, whose write lock is the same name without this.
    ///
    /// Readers and writers stand in one line, and are served in the order in which they came: a
    /// writer that waits stops the readers behind it. All who share it have the same
    /// [token](Guard::token): larger than that of every writer before, smaller than that of every
    /// one after.
    ///
    /// An [`owner`](Self::owner) that holds the lock alone re-enters with this, and still holds it
    /// alone; one that shares it and wants it alone gets [`Upgrade`](Error::Upgrade).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// let reader = client.lock("catalogue").shared().acquire().await?;
    /// let another = client.lock("catalogue").shared().acquire().await?;
    /// assert!(client.lock("catalogue").try_acquire().await?.is_none());
    /// # Ok(()) }
    /// ```
    pub fn shared(mut self) -> Self {
        self.mode = Mode::Shared;
        self
    }

    /// Binds the lock to this client: when it is gone, the lock is free within
    /// [`session_ttl`](crate::Builder::session_ttl), however long the lease still is.
    ///
    /// So one heartbeat keeps any number of locks, and their leases can be long: ten minutes cost a
    /// renewal each 200 seconds. The guard is believed until the lease ends or until the heartbeat has not
    /// been answered for that time, whichever is earlier. A server that has been started anew, or
    /// was promoted, knows of no binding: if the client gets to it before it has lost the lock, it binds
    /// it again, and until then the lease alone counts.
    ///
    /// The user (ACL) needs `+session.open +session.next +session.close`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// # use std::time::Duration;
    /// let lock = client.lock("orders:42").lease(Duration::from_secs(600)).bound();
    /// let guard = lock.acquire().await?;
    /// # Ok(()) }
    /// ```
    pub fn bound(mut self) -> Self {
        self.bound = true;
        self
    }

    /// Acquires for that owner, who may hold the lock already and then re-enters.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// let me = client.owner();
    /// let lock = client.lock("orders:42").owner(&me);
    /// # Ok(()) }
    /// ```
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.owner = Some(owner.clone());
        self
    }

    /// Lets the server tell at once when the lock is taken away or deleted, so that
    /// [`lost()`](Guard::lost) hears of it within a round trip and [why](crate::Loss), not with the
    /// next renewal. Not for [fixed leases](Self::fixed_lease), which are never renewed.
    ///
    /// It costs two commands, `LOCK.OBSERVE` after the grant and `LOCK.UNOBSERVE` after the release,
    /// and a task of this process, so a lock that is held for a moment is better off without. An
    /// [`Election`](crate::Election) always does it.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// let guard = client.lock("nightly").observed().acquire().await?;
    /// println!("{}", guard.lost().await);
    /// # Ok(()) }
    /// ```
    pub fn observed(mut self) -> Self {
        self.observed = true;
        self
    }

    /// Lets the owner say that of itself.
    pub(crate) fn saying(mut self, value: Arc<[u8]>) -> Self {
        self.value = Some(value);
        self
    }

    pub(crate) fn inner(&self) -> &Arc<Context> {
        &self.inner
    }

    pub(crate) fn name(&self) -> &Arc<[u8]> {
        &self.key
    }

    /// The name.
    ///
    /// ```no_run
    /// # fn example(client: kvlock::Client) {
    /// assert_eq!(client.lock("orders:42").key(), b"orders:42");
    /// # }
    /// ```
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Acquires the lock, in line behind those who came earlier, however long it takes.
    ///
    /// Tasks of one client are served in the order in which they came here, and take their turn
    /// among other processes in the order in which those came to the server. With an
    /// [`owner`](Self::owner) that holds the lock this re-enters at once.
    ///
    /// # Errors
    ///
    /// [`Invalid`](Error::Invalid) if the name or lease is out of range or the owner of another client,
    /// [`Lost`](Error::Lost) on re-entering a lock that was lost, [`NotALock`](Error::NotALock),
    /// [`QueueFull`](Error::QueueFull), and what the server or network make impossible. Trouble
    /// that passes is sat out for the [`patience`](crate::Builder::patience) of the client.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe in that nothing is left: when the future is dropped, at whatever moment, the
    /// place in line is given up, and a lock that was granted in that moment is released, both in
    /// the background. You lose your place in line.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// let guard = client.lock("orders:42").acquire().await?;
    /// # Ok(()) }
    /// ```
    pub async fn acquire(&self) -> Result<Guard, Error> {
        match self.acquire_by(Limit::Never).await? {
            Some(guard) => Ok(guard),
            None => Err(Error::Timeout),
        }
    }

    /// Acquires the lock if it can be had at once. `None` if it cannot: another owner holds it, or
    /// others are in line.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), but trouble is not sat out: it is tried once more at most,
    /// over a new connection if the old one turns out to be closed.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire): nothing is left.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// match client.lock("orders:42").try_acquire().await? {
    ///     Some(guard) => guard.release().await?,
    ///     None => println!("somebody else is at it"),
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire(&self) -> Result<Option<Guard>, Error> {
        self.acquire_by(Limit::Now).await
    }

    /// Acquires the lock, and waits in line for it for up to `timeout`. `None` if that has passed.
    /// Zero does not wait, as [`try_acquire`](Self::try_acquire).
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire); when the time passes during trouble, that trouble.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire): nothing is left.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// # use std::time::Duration;
    /// let lock = client.lock("orders:42");
    /// let Some(guard) = lock.acquire_within(Duration::from_secs(1)).await? else {
    ///     println!("not within a second");
    ///     return Ok(());
    /// };
    /// # Ok(()) }
    /// ```
    pub async fn acquire_within(&self, timeout: Duration) -> Result<Option<Guard>, Error> {
        self.acquire_by(Limit::within(timeout)).await
    }

    /// Acquires the lock, does the work for as long as it is held, and releases it.
    ///
    /// # Errors
    ///
    /// Those of [`acquire`](Self::acquire), of [`Guard::run_until_lost`] and of [`Guard::release`]: only
    /// if there is none was the lock held from the first line of the work to its last.
    ///
    /// # Cancel safety
    ///
    /// As cancel safe as the work; the lock, or the place in line, is given up in the background.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # struct Store;
    /// # impl Store { async fn write(&self, _: kvlock::Token) -> u64 { 0 } }
    /// # async fn example(client: kvlock::Client, store: Store) -> Result<(), kvlock::Error> {
    /// let rows = client.lock("orders:42").with(async |guard| store.write(guard.token()).await).await?;
    /// # Ok(()) }
    /// ```
    pub async fn with<T>(&self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T, Error> {
        let guard = self.acquire().await?;
        let done = guard.run_until_lost(work(&guard)).await?;
        guard.release().await?;
        Ok(done)
    }

    /// Takes over what another process, or this one, has [detached](Guard::detach): from here on it is
    /// renewed and released by the guard that this gives.
    ///
    /// # Errors
    ///
    /// [`Lost`](Error::Lost) if that owner does not hold the lock with that token any more; those of
    /// [`try_acquire`](Self::try_acquire).
    ///
    /// # Cancel safety
    ///
    /// Dropped, the lock is released in the background.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client, owner: String, token: kvlock::Token) -> Result<(), kvlock::Error> {
    /// let guard = client.lock("orders:42").adopt(&owner, token).await?;
    /// # Ok(()) }
    /// ```
    pub async fn adopt(&self, owner: &str, token: Token) -> Result<Guard, Error> {
        self.check()?;
        check_lease(self.term.length)?;
        let inner = &self.inner;
        let mut claim = Claim::of(inner, self.mode, &self.key, &owner.into());
        let granted = regain::ask(&mut claim, self.term).await?;
        // It was free, and is granted anew: not what was to be taken over.
        if granted.0.token != token {
            claim.undo().await;
            return Err(Error::Lost);
        }
        let (lease, share) = regain::hold(claim, granted, self.term).await?;
        Ok(Guard::new(inner.clone(), lease, share, None))
    }

    /// Where it stands among others, for everybody the same.
    pub(crate) fn rank(&self) -> (&[u8], &str) {
        (&self.key, &self.inner.place)
    }

    pub(crate) async fn acquire_by(&self, limit: Limit) -> Result<Option<Guard>, Error> {
        self.check()?;
        check_lease(self.term.length)?;
        let span = observe::acquire_span(&self.key);
        let acquire = pin!(async {
            let guard = match &self.owner {
                None => self.acquire_first(limit, None).await?,
                Some(owner) => self.acquire_for(owner, limit).await?,
            };
            if let Some(guard) = guard.as_ref().filter(|it| self.bound && !it.lease().is_bound()) {
                bound::bind(&self.inner, guard.lease(), self.inner.settings.patience).await?;
            }
            Ok(guard)
        });
        let acquired = limit.hold(self.reply_timeout(), acquire);
        if span.is_disabled() { acquired.await } else { acquired.instrument(span).await }
    }

    /// By how much a limit may be passed.
    pub(crate) fn reply_timeout(&self) -> Duration {
        self.inner.settings.reply_timeout
    }

    async fn acquire_first(
        &self,
        limit: Limit,
        visit: Option<Visit>,
    ) -> Result<Option<Guard>, Error> {
        let inner = &self.inner;
        let (key, term) = (&self.key, self.term);
        let (mode, value, bound) = (self.mode, self.value.as_ref(), self.bound);
        let acquisition =
            Acquisition { inner, mode, key, term, limit, visit: visit.as_ref(), value, bound };
        let Some((lease, share)) = acquisition.run().await? else { return Ok(None) };
        let observation = self.observed.then(|| Observers::holds(inner, &lease));
        let guard = Guard::new(inner.clone(), lease, share, visit);
        Ok(Some(guard.observed_by(observation)))
    }

    async fn acquire_for(&self, owner: &Owner, limit: Limit) -> Result<Option<Guard>, Error> {
        if !owner.is_of(self.inner.name) {
            return Err(Error::Invalid("the owner is of another client".to_owned()));
        }
        if self.mode == Mode::Alone && owner.lease(Mode::Shared, &self.key).is_some() {
            return Err(Error::Upgrade);
        }
        // Who holds it alone may also share it, and need not ask anybody.
        let mode = match owner.lease(Mode::Alone, &self.key) {
            Some(_) => Mode::Alone,
            None => self.mode,
        };
        let visit = owner.visit(mode, &self.key);
        let gate = match limit {
            // Whoever is at the gate is done in a moment, or waits for others as we must not.
            Limit::Now => tokio::select! {
                biased;
                gate = visit.gate() => Some(gate),
                () = visit.until_waiting() => None,
            },
            Limit::Until(_) | Limit::Never => limit.wait_for(visit.gate()).await,
        };
        let Some(_gate) = gate else {
            return Ok(None);
        };
        let mut trouble = Trouble::new(limit);
        while let Some(lease) = visit.lease() {
            match self.acquire_again(owner, &lease).await {
                Ok(Some(guard)) => return Ok(Some(guard)),
                Ok(None) => break,
                Err(error) => {
                    let inner = &self.inner;
                    trouble.bear(error, inner.settings.patience, inner.router.switched()).await?;
                }
            }
        }
        let guard = self.acquire_first(limit, Some(owner.visit(self.mode, &self.key))).await?;
        if let Some(guard) = &guard {
            owner.visit(self.mode, &self.key).holds(guard.lease());
        }
        Ok(guard)
    }

    async fn acquire_again(
        &self,
        owner: &Owner,
        lease: &Arc<Lease>,
    ) -> Result<Option<Guard>, Error> {
        let inner = &self.inner;
        let Some(share) = reenter::reenter(inner, lease, self.term).await? else {
            return Ok(None);
        };
        let mut guard = Guard::new(
            inner.clone(),
            lease.clone(),
            share,
            Some(owner.visit(lease.tenure.mode, &self.key)),
        );
        if self.term.length > FIRST_LEASE {
            guard.extend(self.term.length).await?;
        }
        Ok(Some(guard))
    }

    /// Takes the lock away from whoever holds it, and hands it to the first in line. `true` if
    /// somebody held it.
    ///
    /// For operators. The holder finds out with its next renewal, or at once if it
    /// [observes](Self::observed) the lock, and works on unprotected until then. Needs the right to `LOCK.FORCERELEASE`.
    ///
    /// # Errors
    ///
    /// [`Denied`](Error::Denied) without that right; [`NotALock`](Error::NotALock); those of the
    /// network. It is sent once: repeated, it would take the lock from the next holder.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it may or may not be carried out.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// let was_held = client.lock("orders:42").force_release().await?;
    /// # Ok(()) }
    /// ```
    pub async fn force_release(&self) -> Result<bool, Error> {
        self.check()?;
        let request = request::force_release(&*self.key)?;
        let inner = &self.inner;
        let answer = inner.router.call(&self.key, &request, inner.settings.reply_timeout).await?;
        Ok(reply::done(answer).map_err(RedisError::from)?)
    }

    /// What the server knows about the lock at this moment.
    ///
    /// # Errors
    ///
    /// [`NotALock`](Error::NotALock), [`Denied`](Error::Denied), those of the network.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// let info = client.lock("orders:42").info().await?;
    /// println!("{} waiting", info.waiters);
    /// # Ok(()) }
    /// ```
    pub async fn info(&self) -> Result<LockInfo, Error> {
        self.check()?;
        self.inner.look(&self.key, &request::info(&*self.key, None)?, info::info).await
    }

    /// The same with the first `count` of those who wait, next in line first.
    ///
    /// # Errors
    ///
    /// Those of [`info`](Self::info).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// for waiter in client.lock("orders:42").info_with_waiters(10).await?.queue {
    ///     println!("{} for {:?}", waiter.owner.escape_ascii(), waiter.waited);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn info_with_waiters(&self, count: u32) -> Result<LockInfo, Error> {
        self.check()?;
        let request = request::info(&*self.key, Some(count))?;
        self.inner.look(&self.key, &request, info::info).await
    }

    /// Whether somebody holds it at this moment. To take a lock if it is free, take it.
    ///
    /// # Errors
    ///
    /// Those of [`info`](Self::info).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// let somebody_is_at_it = client.lock("orders:42").is_locked().await?;
    /// # Ok(()) }
    /// ```
    pub async fn is_locked(&self) -> Result<bool, Error> {
        Ok(self.info().await?.state == LockState::Held)
    }

    /// How many times that owner holds it at this moment, as the server counts; 0 if it does not.
    ///
    /// That may differ from the number of its [guards](Guard::holds) after a re-entry or a release
    /// whose answer was lost: it has no effect, since the last guard gives back all there is.
    ///
    /// # Errors
    ///
    /// Those of [`info`](Self::info).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// let me = client.owner();
    /// let lock = client.lock("orders:42").owner(&me);
    /// let guard = lock.acquire().await?;
    /// assert_eq!(lock.hold_count(&me).await?, 1);
    /// # Ok(()) }
    /// ```
    pub async fn hold_count(&self, owner: &Owner) -> Result<u64, Error> {
        let info = self.info().await?;
        if let Some(lease) = owner.lease(Mode::Alone, &self.key) {
            let held = info.owner.as_deref() == Some(lease.tenure.owner.as_bytes());
            return Ok(if held { info.holds } else { 0 });
        }
        // The server does not say of one of many who share it; but its token is that of their time.
        let shared = owner.lease(Mode::Shared, &self.key);
        let shared = shared.filter(|lease| info.token == Some(lease.tenure.token));
        Ok(shared.map_or(0, |lease| u64::try_from(lease.holds()).unwrap_or(u64::MAX)))
    }

    /// Whether that owner holds it at this moment, as the server sees it.
    ///
    /// # Errors
    ///
    /// Those of [`info`](Self::info).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// let me = client.owner();
    /// assert!(!client.lock("orders:42").is_held_by(&me).await?);
    /// # Ok(()) }
    /// ```
    pub async fn is_held_by(&self, owner: &Owner) -> Result<bool, Error> {
        Ok(self.hold_count(owner).await? > 0)
    }

    /// What is left of the lease of whoever holds it; `None` if nobody does.
    ///
    /// # Errors
    ///
    /// Those of [`info`](Self::info).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
    /// if let Some(left) = client.lock("orders:42").remaining().await? {
    ///     println!("free in {left:?} at the latest, unless it is renewed");
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn remaining(&self) -> Result<Option<Duration>, Error> {
        Ok(self.info().await?.lease_left)
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        check_name(&self.key)
    }
}
