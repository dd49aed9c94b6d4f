//! Operations of a client on a lock, a semaphore, a latch and an election, step by step. The result is the
//! same for all ways to reach the server, and after resets of any connection.

use super::{MOMENT, SOON, Waiter, assert_matches, ok, soon, waits};
use harness::{Connection, Value, cmd, wait};
use kvlock::{Client, Error, Lock};
use std::time::Duration;
use tokio::task::JoinHandle;

const LEASE: Duration = Duration::from_secs(30);

pub(super) const ALONE: &str = "a lock that is held alone";
pub(super) const SHARED: &str = "a lock that is shared";
pub(super) const PERMITS: &str = "permits";
const LATCH: &str = "a latch";
pub(super) const ELECTION: &str = "an election";

/// A client, and a connection to the server that has the story's keys, which are all in one slot.
pub(super) struct Story {
    pub(super) client: Client,
    pub(super) there: Connection,
    pub(super) slot: String,
}

impl Story {
    pub(super) async fn tell_all(mut self) {
        for chapter in [ALONE, SHARED, PERMITS, LATCH, ELECTION] {
            self.tell(chapter).await;
        }
    }

    /// Plays a chapter, and checks that no state is left.
    pub(super) async fn tell(&mut self, chapter: &str) {
        match chapter {
            ALONE => self.a_lock_that_is_held_alone().await,
            SHARED => self.a_lock_that_is_shared().await,
            PERMITS => self.permits().await,
            LATCH => self.a_latch().await,
            _ => self.an_election().await,
        }
        for name in ["lock", "pool", "latch", "election"] {
            self.shows(cmd!["EXISTS", self.name(name)], |exists| exists == &Value::Integer(0));
        }
    }

    /// A key that the ACL user of the documentation may use.
    fn name(&self, name: &str) -> String {
        format!("orders:{{{}}}{name}", self.slot)
    }

    /// Waits until the server's reply fulfils a condition.
    fn shows(&mut self, question: Vec<Vec<u8>>, so: impl Fn(&Value) -> bool) {
        let mut look = || match self.there.call(&question) {
            seen if so(&seen) => Ok(()),
            other => Err(other.to_string()),
        };
        tokio::task::block_in_place(|| wait::until("the server shows it", SOON, &mut look));
    }

    /// Waits until the info command reports `count` waiters.
    fn in_line(&mut self, question: &str, name: &str, count: i64) {
        let question = cmd![question, self.name(name)];
        self.shows(question, |info| info.field("waiters").integer() == count);
    }

    fn waits(&mut self, lock: &Lock, count: i64) -> Waiter {
        let waiter = waits(lock);
        self.in_line("LOCK.INFO", "lock", count);
        waiter
    }

    async fn a_lock_that_is_held_alone(&mut self) {
        let (client, name) = (self.client.clone(), self.name("lock"));
        let (me, others) = (client.owner(), client.lock(&name));
        let lock = client.lock(&name).lease(LEASE).owner(&me);
        assert!(!ok(lock.is_locked()).await);
        assert_eq!(ok(lock.remaining()).await, None);
        // Another owner holds the lock.
        self.there.call(cmd!["LOCK.ACQUIRE", &name, "somebody", 600_000]);
        assert!(ok(others.try_acquire()).await.is_none());
        assert!(ok(others.acquire_within(Duration::ZERO)).await.is_none());
        self.waits(&others, 1).abort();
        self.in_line("LOCK.INFO", "lock", 0);
        let waiter = self.waits(&lock, 1);
        assert_eq!(self.there.call(cmd!["LOCK.RELEASE", &name, "somebody"]), Value::Integer(0));
        let outer = ok(waiter).await.unwrap();
        // The holder re-enters.
        let middle = ok(lock.try_acquire()).await.expect("it is ours");
        let inner = ok(lock.acquire_within(SOON)).await.unwrap();
        assert!(outer.token() == middle.token() && middle.token() == inner.token());
        assert_eq!((outer.owner(), outer.holds()), (inner.owner(), 3));
        assert_eq!(ok(lock.hold_count(&me)).await, 3);
        // Guards are released in any order. A guard whose owner has other holds is released instead of
        // detached.
        ok(outer.release()).await;
        assert_matches!(soon(inner.detach()).await, Err(Error::Invalid(_)));
        self.shows(cmd!["LOCK.INFO", &name], |info| info.field("holds").integer() == 1);
        assert_eq!((middle.holds(), ok(lock.hold_count(&me)).await), (1, 1));
        assert_eq!((middle.key(), lock.key()), (name.as_bytes(), name.as_bytes()));
        let other = client.owner();
        assert!(ok(lock.is_locked()).await && ok(lock.is_held_by(&me)).await);
        assert_eq!(ok(lock.hold_count(&other)).await, 0);
        assert!(!ok(lock.is_held_by(&other)).await);
        let info = ok(lock.info()).await;
        assert_eq!(info.owner.as_deref(), Some(middle.owner().as_bytes()));
        assert_eq!((info.token, info.shared), (Some(middle.token()), false));
        let left = ok(lock.remaining()).await.unwrap();
        assert!(left > LEASE / 2 && left <= LEASE, "{left:?}");
        let before = (middle.owner().to_owned(), middle.token());
        ok(middle.release()).await;
        assert!(!ok(lock.is_held_by(&me)).await);
        // The next grant has a new owner name on the server, and a larger token.
        let next = ok(lock.acquire()).await;
        assert!(next.owner() != before.0 && next.token() > before.1);
        ok(next.release()).await;
    }

    async fn a_lock_that_is_shared(&mut self) {
        let (client, name) = (self.client.clone(), self.name("lock"));
        let (me, others) = (client.owner(), client.lock(&name));
        let lock = client.lock(&name).lease(LEASE).owner(&me);
        let outer = ok(lock.clone().shared().acquire()).await;
        let inner = ok(lock.clone().shared().acquire()).await;
        assert_eq!((inner.token(), inner.holds()), (outer.token(), 2));
        assert_eq!(ok(lock.hold_count(&me)).await, 2);
        // An owner that shares the lock cannot acquire it exclusively: it would wait for itself.
        for refused in
            [soon(lock.acquire()).await, soon(lock.try_acquire()).await.map(Option::unwrap)]
        {
            assert_matches!(refused, Err(Error::Upgrade));
        }
        ok(outer.release()).await;
        assert!(ok(others.try_acquire()).await.is_none());
        ok(inner.release()).await;

        // An exclusive holder may share too. The lock stays exclusive until both guards are released.
        let writer = ok(lock.acquire()).await;
        let reader = ok(lock.clone().shared().acquire()).await;
        assert_eq!(writer.token(), reader.token());
        ok(writer.release()).await;
        assert!(ok(others.clone().shared().try_acquire()).await.is_none());
        ok(reader.release()).await;

        // The writer becomes a reader without releasing in between.
        let writer = ok(lock.acquire()).await;
        let reader = self.waits(&others.clone().shared(), 1);
        let next = self.waits(&others, 2);
        let (token, owner) = (writer.token(), writer.owner().to_owned());
        let downgraded = ok(writer.downgrade()).await;
        assert!(downgraded.token() > token && downgraded.owner() == owner);
        let reader = ok(reader).await.unwrap();
        assert_eq!(reader.token(), downgraded.token());
        let info = ok(others.info()).await;
        assert_eq!((info.holders, info.shared), (2, true));
        let same = ok(downgraded.downgrade()).await;
        assert_eq!(same.token(), reader.token());
        ok(same.release()).await;
        ok(reader.release()).await;
        ok(ok(next).await.unwrap().release()).await;
    }

    async fn permits(&mut self) {
        // Called before any reset: a repetition would find the permits already set.
        assert!(ok(self.client.semaphore(self.name("once")).set_once(1)).await);
        let pool = self.client.semaphore(self.name("pool")).lease(LEASE);
        for told in [
            soon(pool.acquire()).await.map(drop),
            soon(pool.try_drain()).await.map(drop),
            soon(pool.info()).await.map(drop),
        ] {
            assert_eq!(told.unwrap_err().code(), Some("UNSET"));
        }
        ok(pool.set(3)).await;
        assert!(!ok(pool.set_once(9)).await);
        let told = soon(pool.clone().permits(4).acquire()).await.unwrap_err();
        assert_eq!(told.code(), Some("TOOMANY"), "{told}");
        let two = ok(pool.clone().permits(2).acquire()).await;
        let one = ok(pool.try_drain()).await.expect("one is left");
        assert_eq!((two.count(), one.count()), (2, 1));
        for refused in [
            soon(pool.try_acquire()).await,
            soon(pool.try_drain()).await,
            soon(pool.acquire_within(MOMENT)).await,
        ] {
            assert!(refused.unwrap().is_none());
        }
        // Two permits are added, and can be acquired.
        ok(pool.set(5)).await;
        let more = ok(pool.try_drain()).await.expect("two were added");
        assert_eq!(more.count(), 2);
        let info = ok(pool.info()).await;
        assert_eq!((info.permits, info.used, info.holders), (5, 5, 3));
        ok(two.release()).await;
        assert!(ok(pool.clone().permits(3).try_acquire()).await.is_none());
        let two = ok(pool.clone().permits(2).try_acquire()).await;
        drop((one, two.expect("two are free"), more));
        self.shows(cmd!["SEM.INFO", self.name("pool")], |info| info.field("used").integer() == 0);
        assert_eq!(ok(pool.info()).await.waiters, 0);
        self.there.call(cmd!["DEL", self.name("pool"), self.name("once")]);
    }

    async fn a_latch(&mut self) {
        let latch = self.client.latch(self.name("latch"));
        assert!(ok(latch.set(2)).await);
        assert!(!ok(latch.set(9)).await, "it counts already");
        let waiters: Vec<JoinHandle<_>> = (0..5)
            .map(|_| {
                let latch = latch.clone();
                tokio::spawn(async move { latch.wait().await })
            })
            .collect();
        self.in_line("LATCH.INFO", "latch", 5);
        assert_eq!(ok(latch.count_down()).await, Some(1));
        assert_eq!(ok(latch.info()).await.count, 1);
        assert!(!ok(latch.wait_within(MOMENT)).await);
        assert_eq!(ok(latch.count_down()).await, Some(0));
        for waiter in waiters {
            ok(waiter).await.unwrap();
        }
        // An open latch is like one that was never set.
        ok(latch.wait()).await;
        assert!(ok(latch.wait_within(MOMENT)).await);
        // It can be set again.
        assert!(ok(latch.set(1)).await);
        assert_eq!(ok(latch.count_down()).await, Some(0));
    }

    async fn an_election(&mut self) {
        let name = self.name("election");
        let [first, second] = ["a:1", "b:2"].map(|at| self.client.election(&name).value(at));
        let leader = ok(first.campaign()).await;
        let campaigns = second.clone();
        let campaigns = tokio::spawn(async move { campaigns.campaign().await });
        self.in_line("LOCK.INFO", "election", 1);
        assert!(first.is_leader() && first.clone().is_leader() && !second.is_leader());
        let term = leader.term();
        ok(leader.resign()).await;
        let next = ok(campaigns).await.unwrap();
        assert!(next.term() > term && second.is_leader() && !first.is_leader());
        let mut observer = ok(first.observe()).await;
        // The observer may be behind at first.
        let mut seen = observer.leader();
        while seen.as_ref().is_none_or(|leader| leader.term < next.term()) {
            seen = soon(observer.changed()).await;
        }
        let seen = seen.map(|leader| (leader.owner, leader.term, leader.value));
        assert_eq!(seen, Some((next.owner().into(), next.term(), b"b:2".to_vec())));
        ok(next.resign()).await;
        assert!(!second.is_leader());
    }
}
