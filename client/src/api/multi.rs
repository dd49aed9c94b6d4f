//! Several locks as one.

use crate::api::guard::Guard;
use crate::api::lock::Lock;
use crate::api::watch::LossWatch;
use crate::engine::limit::Limit;
use crate::wire::error::Error;
use crate::wire::loss::Loss;
use crate::wire::reply::Token;
use crate::wire::request::Mode;
use futures_util::future::{join_all, select_all};
use std::pin::pin;
use std::time::Duration;

/// Several locks as one: all of them are acquired, or none.
///
/// As a rule, the locks of one server, or of one slot of a cluster, are acquired in one step,
/// renewed together and released together. Each of these takes one command. While the client waits
/// for a step it holds no lock of that step. So clients that name the same locks in different
/// orders cannot deadlock.
///
/// The locks may also be on different servers or in different slots. Then there is at least one
/// step for each server or slot. The order of the steps is the same in all processes: by the
/// address of the server, then by database, slot and name. So clients cannot deadlock, under two
/// conditions. All processes use the same server addresses. A holder of one of the locks does not
/// wait for another of them in any other way. While the client waits for a step, the watchdog
/// renews the locks of the earlier steps.
///
/// One step has at most 64 locks, all of the same client, with the same lease, and all or none of
/// them [bound](Lock::bound). A lock with an [owner](Lock::owner), or one that is
/// [observed](Lock::observed), has a separate step.
///
/// This is not Redlock: every one of the servers is needed, and a lock is only as safe as its server.
///
/// # Examples
///
/// ```no_run
/// # async fn example(client: kvlock::Client) -> Result<(), kvlock::Error> {
/// let accounts = kvlock::MultiLock::new([client.lock("account:7"), client.lock("account:9")])?;
/// let guard = accounts.acquire().await?;
/// guard.run_until_lost(transfer()).await?;
/// guard.release().await?;
/// # Ok(()) }
/// # async fn transfer() {}
/// ```
#[derive(Clone, Debug)]
#[must_use = "locks do nothing until they are acquired"]
pub struct MultiLock {
    /// Each step's locks, in the order in which the steps are acquired.
    steps: Vec<Lock>,
}

impl MultiLock {
    /// Combines these locks. Each keeps its lease and its owner.
    ///
    /// # Errors
    ///
    /// [`Invalid`](Error::Invalid) if there are no locks, if one occurs twice, or if a lock alone is invalid.
    /// If the locks of one server, or of one slot of a cluster, need several steps, each name of a step,
    /// including the names of [`and`](Lock::and) and [`under`](Lock::under), must sort before all names of the
    /// next step. Otherwise two clients could deadlock, so the error is also [`Invalid`](Error::Invalid).
    pub fn new(locks: impl IntoIterator<Item = Lock>) -> Result<Self, Error> {
        let mut locks: Vec<Lock> = locks.into_iter().collect();
        locks.sort_by(|a, b| a.rank().cmp(&b.rank()));
        if locks.windows(2).any(|pair| matches!(pair, [a, b] if a.rank() == b.rank())) {
            return Err(Error::Invalid("a lock is named twice".to_owned()));
        }
        let mut steps: Vec<Lock> = Vec::new();
        for lock in locks {
            let alone = match steps.last_mut() {
                Some(step) => step.join(lock),
                None => Some(lock),
            };
            steps.extend(alone);
        }
        if steps.is_empty() {
            return Err(Error::Invalid("there are no locks".to_owned()));
        }
        steps.iter().try_for_each(Lock::check)?;
        if steps.windows(2).any(|pair| matches!(pair, [a, b] if !a.is_before(b))) {
            let why =
                "a lock under others cannot be acquired in one step with the rest of its server";
            return Err(Error::Invalid(why.to_owned()));
        }
        Ok(Self { steps })
    }

    /// Acquires all of the locks, without a time limit.
    ///
    /// # Errors
    ///
    /// The errors of [`Lock::acquire`]; [`Lost`](Error::Lost) if a lock was lost while another one was
    /// waited for. Before it returns an error, it releases the locks that it has acquired.
    ///
    /// # Cancel safety
    ///
    /// As for [`Lock::acquire`]: if the future is dropped, all acquired locks are released in the
    /// background.
    pub async fn acquire(&self) -> Result<MultiGuard, Error> {
        match self.acquire_by(Limit::Never).await? {
            Some(guard) => Ok(guard),
            None => Err(Error::Timeout),
        }
    }

    /// Acquires all of the locks if that is possible without waiting, else returns `None`.
    ///
    /// # Errors
    ///
    /// The errors of [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// As for [`acquire`](Self::acquire).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(both: kvlock::MultiLock) -> Result<(), kvlock::Error> {
    /// if let Some(guard) = both.try_acquire().await? {
    ///     guard.release().await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn try_acquire(&self) -> Result<Option<MultiGuard>, Error> {
        self.acquire_by(Limit::Now).await
    }

    /// Acquires all of the locks within `timeout`, which is the time for all of them together, else returns
    /// `None`.
    ///
    /// # Errors
    ///
    /// The errors of [`acquire`](Self::acquire).
    ///
    /// # Cancel safety
    ///
    /// As for [`acquire`](Self::acquire).
    pub async fn acquire_within(&self, timeout: Duration) -> Result<Option<MultiGuard>, Error> {
        self.acquire_by(Limit::within(timeout)).await
    }

    async fn acquire_by(&self, limit: Limit) -> Result<Option<MultiGuard>, Error> {
        let reply_timeout = self.steps.iter().map(Lock::reply_timeout).max().unwrap_or_default();
        limit.hold(reply_timeout, pin!(self.acquire_all(limit))).await
    }

    async fn acquire_all(&self, limit: Limit) -> Result<Option<MultiGuard>, Error> {
        let mut held = MultiGuard { guards: Vec::with_capacity(self.steps.len()) };
        for step in &self.steps {
            let next = if held.guards.is_empty() {
                step.acquire_by(limit).await
            } else {
                held.run_until_lost(step.acquire_by(limit)).await.and_then(|next| next)
            };
            match next {
                Ok(Some(guard)) => held.guards.push(guard),
                Ok(None) => {
                    held.give_up().await;
                    return Ok(None);
                }
                Err(trouble) => {
                    held.give_up().await;
                    return Err(trouble);
                }
            }
        }
        if let Some(why) = held.why_lost() {
            held.give_up().await;
            return Err(Error::Lost(why));
        }
        Ok(Some(held))
    }
}

/// A guard of several held locks. It counts as lost when one of them is lost; the others stay held
/// until the guard is released or dropped.
///
/// Dropping it releases all of them in the background, as for [`Guard`].
///
/// # Examples
///
/// ```no_run
/// # async fn example(both: kvlock::MultiLock) -> Result<(), kvlock::Error> {
/// let guard = both.acquire().await?;
/// if !guard.is_lost() {
///     println!("{:?}", guard.tokens());
/// }
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "dropping a guard releases the locks"]
pub struct MultiGuard {
    /// One guard for each step.
    guards: Vec<Guard>,
}

impl MultiGuard {
    /// Returns the name and the token of each exclusive lock. Send the token to the resource that this lock
    /// guards. Exclusive locks that were acquired in one step have the same token. [Shared](Lock::shared)
    /// locks are not listed. Their token, which all sharers have, is in [`Lock::info`].
    ///
    /// ```no_run
    /// # fn example(guard: &kvlock::MultiGuard) {
    /// for (name, token) in guard.tokens() {
    ///     println!("{}: {token}", String::from_utf8_lossy(name));
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn tokens(&self) -> Vec<(&[u8], Token)> {
        let mut tokens = Vec::new();
        for guard in &self.guards {
            let (held_lock, token) = (&guard.lease().held_lock, guard.token());
            if held_lock.mode == Mode::Alone {
                tokens.extend(held_lock.keys().map(|key| (key, token)));
            }
        }
        tokens
    }

    /// Returns whether one of the locks is lost. Reads the clock and sends nothing.
    ///
    /// ```no_run
    /// # fn example(guard: &kvlock::MultiGuard) {
    /// if guard.is_lost() {
    ///     return;
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.guards.iter().any(|guard| guard.is_lost())
    }

    /// Returns why one of the locks is lost; `None` while none is lost. Reads the clock and sends nothing.
    #[must_use]
    pub fn why_lost(&self) -> Option<Loss> {
        self.guards.iter().find_map(|guard| guard.why_lost())
    }

    /// Waits until one of the locks is lost, and returns the reason. If none is ever lost, it never
    /// completes.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn lost(&self) -> Loss {
        if self.guards.is_empty() {
            return std::future::pending().await;
        }
        select_all(self.guards.iter().map(|guard| Box::pin(guard.lost()))).await.0
    }

    /// Returns a handle that reports when one of the locks is lost. It can be cloned and moved into tasks;
    /// see [`Held::watch`](crate::Held::watch).
    #[must_use]
    pub fn watch(&self) -> LossWatch {
        LossWatch::of(self.guards.iter().map(|guard| guard.part()))
    }

    /// Runs the work until it is done or one of the locks is lost; see
    /// [`Held::run_until_lost`](crate::Held::run_until_lost).
    ///
    /// # Errors
    ///
    /// [`Lost`](Error::Lost) if one was lost before the work was done.
    ///
    /// # Cancel safety
    ///
    /// As cancel safe as the work.
    pub async fn run_until_lost<F: Future>(&self, work: F) -> Result<F::Output, Error> {
        crate::api::watch::run_until(self.lost(), || self.why_lost(), work).await
    }

    /// Releases all of the locks, and waits for the servers' answers.
    ///
    /// # Errors
    ///
    /// [`Lost`](Error::Lost) if one of the locks was lost, else the first other error; see
    /// [`Guard::release`]. After an error of one step the other steps are released all the same.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the remaining locks are released in the background.
    pub async fn release(self) -> Result<(), Error> {
        let outcomes = join_all(self.guards.into_iter().map(Guard::release)).await;
        let troubles = outcomes.into_iter().filter_map(Result::err);
        // A loss takes precedence over other errors.
        match troubles.min_by_key(|trouble| !trouble.is_lost()) {
            Some(trouble) => Err(trouble),
            None => Ok(()),
        }
    }

    /// Releases the acquired locks, and only logs errors.
    async fn give_up(self) {
        if let Err(trouble) = self.release().await {
            tracing::debug!(%trouble, "not all of several locks could be released");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::clock::{Boottime, SafetyMargin};
    use crate::engine::context::Context;
    use crate::engine::lease::LeasePolicy;
    use crate::engine::settings::Settings;
    use crate::net::address::Address;
    use std::sync::Arc;

    fn context(url: &str) -> Arc<Context> {
        let safety = SafetyMargin { margin: Duration::ZERO };
        let policy = LeasePolicy { clock: Arc::new(Boottime), safety };
        let address = Address::try_from(url).unwrap();
        Arc::new(Context::new(address, Settings::default(), policy).unwrap())
    }

    fn lock(at: &Arc<Context>, name: &str) -> Lock {
        Lock::new(at.clone(), name.as_bytes())
    }

    /// Returns the names of the locks of each step.
    fn steps(locks: impl IntoIterator<Item = Lock>) -> Result<Vec<Vec<String>>, Error> {
        let names = |step: &Lock| {
            step.names().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
        };
        MultiLock::new(locks).map(|all| all.steps.iter().map(names).collect())
    }

    #[tokio::test]
    async fn one_command_has_locks_of_one_server_only() {
        let (one, other) = (context("redis://127.0.0.1:1/"), context("redis://127.0.0.1:2/"));
        let locks = [lock(&one, "b"), lock(&other, "a"), lock(&one, "a").shared()];
        assert_eq!(steps(locks).unwrap(), [vec!["b", "a"], vec!["a"]]);
        // Locks of another client of the same server have a separate step, in the order of names.
        let (first, second) = (context("redis://127.0.0.1:1/"), lock(&one, "b"));
        assert_eq!(
            steps([lock(&one, "c"), lock(&first, "a"), second]).unwrap(),
            [vec!["a"], vec!["b", "c"]]
        );
        let long = lock(&one, "b").lease(Duration::from_secs(7));
        assert_eq!(steps([lock(&one, "c"), lock(&one, "a"), long]).unwrap(), [["a"], ["b"], ["c"]]);
    }

    #[tokio::test]
    async fn one_command_has_at_most_64_locks() {
        let one = context("redis://127.0.0.1:1/");
        let many = (0..130).map(|number| lock(&one, &format!("{number:03}")));
        let lengths: Vec<_> = steps(many).unwrap().iter().map(Vec::len).collect();
        assert_eq!(lengths, [64, 64, 2]);
    }

    #[tokio::test]
    async fn in_a_cluster_each_slot_has_its_own_command() {
        let cluster = context("redis-cluster://127.0.0.1:1/");
        let locks = ["{x}1", "{y}1", "{x}2"].map(|name| lock(&cluster, name));
        let mut steps = steps(locks).unwrap();
        steps.sort();
        assert_eq!(steps, [vec!["{x}1", "{x}2"], vec!["{y}1"]]);
    }

    #[tokio::test]
    async fn locks_under_a_parent_must_fit_into_one_command() {
        let one = context("redis://127.0.0.1:1/");
        let both = [lock(&one, "r/a").under(["r"]), lock(&one, "r/b").under(["r", "q"])];
        assert_eq!(steps(both).unwrap(), [["r/a", "r/b", "q", "r"]]);
        // "r" is acquired exclusively, so it is not acquired as a shared lock too.
        assert_eq!(
            steps([lock(&one, "r/a").under(["r"]), lock(&one, "r")]).unwrap(),
            [["r", "r/a"]]
        );
        let long = |name: &str| lock(&one, name).lease(Duration::from_secs(7));
        let apart = [lock(&one, "a").under(["z"]), long("b")];
        assert!(matches!(steps(apart), Err(Error::Invalid(_))));
        assert_eq!(steps([long("a"), lock(&one, "b").under(["z"])]).unwrap().len(), 2);
        assert!(matches!(steps([lock(&one, "a").under(["a"])]), Err(Error::Invalid(_))));
    }
}
