//! All that a client does with a lock, a semaphore, a latch and an election, step by step. It is the same by
//! whichever way the server is reached, and whatever is reset on the way.

use super::{MOMENT, SOON, Waiter, soon};
use harness::{Connection, Value, cmd, wait};
use kvlock::{Client, Error, Lock};
use std::time::Duration;
use tokio::task::JoinHandle;

const LEASE: Duration = Duration::from_secs(30);

/// The chapters.
pub(super) const ALONE: &str = "a lock that is held alone";
pub(super) const SHARED: &str = "a lock that is shared";
pub(super) const PERMITS: &str = "permits";
const LATCH: &str = "a latch";
pub(super) const ELECTION: &str = "an election";

/// A client, and a connection to the server that has its keys: all of them are in one slot.
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

    /// Nothing is left after it.
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

    fn name(&self, name: &str) -> String {
        format!("{{{}}}{name}", self.slot)
    }

    /// Waits until the server answers that.
    fn shows(&mut self, question: Vec<Vec<u8>>, so: impl Fn(&Value) -> bool) {
        let mut look = || match self.there.call(&question) {
            seen if so(&seen) => Ok(()),
            other => Err(other.to_string()),
        };
        tokio::task::block_in_place(|| wait::until("the server shows it", SOON, &mut look));
    }

    /// Waits until so many are in line.
    fn in_line(&mut self, question: &str, name: &str, count: i64) {
        let question = cmd![question, self.name(name)];
        self.shows(question, |info| info.field("waiters").integer() == count);
    }

    fn waits(&mut self, lock: &Lock, count: i64) -> Waiter {
        let lock = lock.clone();
        let waiter = tokio::spawn(async move { lock.acquire().await });
        self.in_line("LOCK.INFO", "lock", count);
        waiter
    }

    async fn a_lock_that_is_held_alone(&mut self) {
        let (client, name) = (self.client.clone(), self.name("lock"));
        let (me, others) = (client.owner(), client.lock(&name));
        let lock = client.lock(&name).lease(LEASE).owner(&me);
        assert!(!soon(lock.is_locked()).await.unwrap());
        assert_eq!(soon(lock.remaining()).await.unwrap(), None);
        // Somebody else has it.
        self.there.call(cmd!["LOCK.ACQUIRE", &name, "somebody", 600_000]);
        assert!(soon(others.try_acquire()).await.unwrap().is_none());
        assert!(soon(others.acquire_within(Duration::ZERO)).await.unwrap().is_none());
        self.waits(&others, 1).abort();
        self.in_line("LOCK.INFO", "lock", 0);
        let waiter = self.waits(&lock, 1);
        assert_eq!(self.there.call(cmd!["LOCK.RELEASE", &name, "somebody"]), Value::Integer(0));
        let outer = soon(waiter).await.unwrap().unwrap();
        // It re-enters what it holds.
        let middle = soon(lock.try_acquire()).await.unwrap().expect("it is ours");
        let inner = soon(lock.acquire_within(SOON)).await.unwrap().unwrap();
        assert!(outer.token() == middle.token() && middle.token() == inner.token());
        assert_eq!((outer.owner(), outer.holds()), (inner.owner(), 3));
        assert_eq!(soon(lock.hold_count(&me)).await.unwrap(), 3);
        // In any order; what others of the owner hold is not handed over, and released.
        soon(outer.release()).await.unwrap();
        assert!(matches!(soon(inner.detach()).await, Err(Error::Invalid(_))));
        self.shows(cmd!["LOCK.INFO", &name], |info| info.field("holds").integer() == 1);
        assert_eq!((middle.holds(), soon(lock.hold_count(&me)).await.unwrap()), (1, 1));
        // It is what can be asked about it.
        assert_eq!((middle.key(), lock.key()), (name.as_bytes(), name.as_bytes()));
        let other = client.owner();
        assert!(soon(lock.is_locked()).await.unwrap() && soon(lock.is_held_by(&me)).await.unwrap());
        assert_eq!(soon(lock.hold_count(&other)).await.unwrap(), 0);
        assert!(!soon(lock.is_held_by(&other)).await.unwrap());
        let info = soon(lock.info()).await.unwrap();
        assert_eq!(info.owner.as_deref(), Some(middle.owner().as_bytes()));
        assert_eq!((info.token, info.shared), (Some(middle.token()), false));
        let left = soon(lock.remaining()).await.unwrap().unwrap();
        assert!(left > LEASE / 2 && left <= LEASE, "{left:?}");
        let before = (middle.owner().to_owned(), middle.token());
        soon(middle.release()).await.unwrap();
        assert!(!soon(lock.is_held_by(&me)).await.unwrap());
        // Every tenure has an owner of its own on the wire, and a larger token.
        let next = soon(lock.acquire()).await.unwrap();
        assert!(next.owner() != before.0 && next.token() > before.1);
        soon(next.release()).await.unwrap();
    }

    async fn a_lock_that_is_shared(&mut self) {
        let (client, name) = (self.client.clone(), self.name("lock"));
        let (me, others) = (client.owner(), client.lock(&name));
        let lock = client.lock(&name).lease(LEASE).owner(&me);
        let outer = soon(lock.clone().shared().acquire()).await.unwrap();
        let inner = soon(lock.clone().shared().acquire()).await.unwrap();
        assert_eq!((inner.token(), inner.holds()), (outer.token(), 2));
        assert_eq!(soon(lock.hold_count(&me)).await.unwrap(), 2);
        // It does not wait for itself.
        for refused in
            [soon(lock.acquire()).await, soon(lock.try_acquire()).await.map(Option::unwrap)]
        {
            assert!(matches!(refused, Err(Error::Upgrade)), "{refused:?}");
        }
        soon(outer.release()).await.unwrap();
        assert!(soon(others.try_acquire()).await.unwrap().is_none());
        soon(inner.release()).await.unwrap();

        // Who holds it alone may read, too, and goes on holding it alone.
        let writer = soon(lock.acquire()).await.unwrap();
        let reader = soon(lock.clone().shared().acquire()).await.unwrap();
        assert_eq!(writer.token(), reader.token());
        soon(writer.release()).await.unwrap();
        assert!(soon(others.clone().shared().try_acquire()).await.unwrap().is_none());
        soon(reader.release()).await.unwrap();

        // It becomes a reader without letting go.
        let writer = soon(lock.acquire()).await.unwrap();
        let reader = self.waits(&others.clone().shared(), 1);
        let next = self.waits(&others, 2);
        let (token, owner) = (writer.token(), writer.owner().to_owned());
        let downgraded = soon(writer.downgrade()).await.unwrap();
        assert!(downgraded.token() > token && downgraded.owner() == owner);
        let reader = soon(reader).await.unwrap().unwrap();
        assert_eq!(reader.token(), downgraded.token());
        let info = soon(others.info()).await.unwrap();
        assert_eq!((info.holders, info.shared), (2, true));
        let same = soon(downgraded.downgrade()).await.unwrap();
        assert_eq!(same.token(), reader.token());
        soon(same.release()).await.unwrap();
        soon(reader.release()).await.unwrap();
        soon(soon(next).await.unwrap().unwrap().release()).await.unwrap();
    }

    async fn permits(&mut self) {
        let pool = self.client.semaphore(self.name("pool")).lease(LEASE);
        for told in [
            soon(pool.acquire()).await.map(drop),
            soon(pool.try_drain()).await.map(drop),
            soon(pool.info()).await.map(drop),
        ] {
            assert_eq!(told.unwrap_err().code(), Some("UNSET"));
        }
        // That it was the first time is not known if the answer was lost.
        let _first = soon(pool.set_once(3)).await.unwrap();
        assert!(!soon(pool.set_once(9)).await.unwrap());
        let told = soon(pool.clone().permits(4).acquire()).await.unwrap_err();
        assert_eq!(told.code(), Some("TOOMANY"), "{told}");
        let two = soon(pool.clone().permits(2).acquire()).await.unwrap();
        let one = soon(pool.try_drain()).await.unwrap().expect("one is left");
        assert_eq!((two.count(), one.count()), (2, 1));
        for refused in [
            soon(pool.try_acquire()).await,
            soon(pool.try_drain()).await,
            soon(pool.acquire_within(MOMENT)).await,
        ] {
            assert!(refused.unwrap().is_none());
        }
        // There are more now, and they are all there is to take.
        soon(pool.set(5)).await.unwrap();
        let more = soon(pool.try_drain()).await.unwrap().expect("two were added");
        assert_eq!(more.count(), 2);
        let info = soon(pool.info()).await.unwrap();
        assert_eq!((info.permits, info.used, info.holders), (5, 5, 3));
        soon(two.release()).await.unwrap();
        assert!(soon(pool.clone().permits(3).try_acquire()).await.unwrap().is_none());
        let two = soon(pool.clone().permits(2).try_acquire()).await.unwrap();
        drop((one, two.expect("two are free"), more));
        self.shows(cmd!["SEM.INFO", self.name("pool")], |info| info.field("used").integer() == 0);
        assert_eq!(soon(pool.info()).await.unwrap().waiters, 0);
        self.there.call(cmd!["DEL", self.name("pool")]);
    }

    async fn a_latch(&mut self) {
        let latch = self.client.latch(self.name("latch"));
        assert!(soon(latch.set(2)).await.unwrap());
        assert!(!soon(latch.set(9)).await.unwrap(), "it counts already");
        let waiters: Vec<JoinHandle<_>> = (0..5)
            .map(|_| {
                let latch = latch.clone();
                tokio::spawn(async move { latch.wait().await })
            })
            .collect();
        self.in_line("LATCH.INFO", "latch", 5);
        assert_eq!(soon(latch.count_down()).await.unwrap(), Some(1));
        assert_eq!(soon(latch.info()).await.unwrap().count, 1);
        assert!(!soon(latch.wait_within(MOMENT)).await.unwrap());
        assert_eq!(soon(latch.count_down()).await.unwrap(), Some(0));
        for waiter in waiters {
            soon(waiter).await.unwrap().unwrap();
        }
        // Open is as good as never set.
        soon(latch.wait()).await.unwrap();
        assert!(soon(latch.wait_within(MOMENT)).await.unwrap());
    }

    async fn an_election(&mut self) {
        let name = self.name("election");
        let [first, second] = ["a:1", "b:2"].map(|at| self.client.election(&name).value(at));
        let leader = soon(first.campaign()).await.unwrap();
        let campaigns = second.clone();
        let campaigns = tokio::spawn(async move { campaigns.campaign().await });
        self.in_line("LOCK.INFO", "election", 1);
        assert!(first.is_leader() && first.clone().is_leader() && !second.is_leader());
        let term = leader.term();
        soon(leader.resign()).await.unwrap();
        let next = soon(campaigns).await.unwrap().unwrap();
        assert!(next.term() > term && second.is_leader() && !first.is_leader());
        let mut observer = soon(first.observe()).await.unwrap();
        // It may be a moment behind.
        let mut seen = observer.leader();
        while seen.as_ref().is_none_or(|leader| leader.term < next.term()) {
            seen = soon(observer.changed()).await;
        }
        let seen = seen.map(|leader| (leader.owner, leader.term, leader.value));
        assert_eq!(seen, Some((next.owner().into(), next.term(), b"b:2".to_vec())));
        soon(next.resign()).await.unwrap();
        assert!(!second.is_leader());
    }
}
