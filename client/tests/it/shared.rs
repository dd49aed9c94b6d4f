//! What Redisson's own tests ask of its read-write lock, and what it does not do.

use super::{Stage, soon};
use harness::{Server, Value, cmd, observe};
use kvlock::{
    AcquireOptions, AsyncLatchCommands, AsyncLockCommands, AsyncSemaphoreCommands, Client, Error,
    ReleaseOptions,
};
use std::time::Duration;

/// A lease that can be waited out, and kept on a busy machine.
const SHORT: Duration = Duration::from_millis(1500);

/// A wait for something that does not come.
const IN_VAIN: Duration = Duration::from_millis(100);

#[tokio::test(flavor = "multi_thread")]
async fn readers_share_and_writers_do_not() {
    let mut stage = Stage::set().await;
    let (lock, other) =
        (stage.client.lock("k"), Client::connect(stage.server.url()).await.unwrap());
    let first = soon(lock.clone().shared().acquire()).await.unwrap();
    let second = soon(other.lock("k").shared().try_acquire()).await.unwrap().expect("shared");
    assert_eq!(first.token(), second.token());
    assert!(soon(lock.try_acquire()).await.unwrap().is_none());
    let info = soon(lock.info()).await.unwrap();
    assert_eq!((info.shared, info.holders, info.owner), (true, 2, None));
    assert!(soon(lock.is_locked()).await.unwrap());
    let token = first.token();
    soon(first.release()).await.unwrap();
    assert!(soon(lock.try_acquire()).await.unwrap().is_none());
    soon(second.release()).await.unwrap();
    let writer = soon(lock.try_acquire()).await.unwrap().expect("free");
    assert!(writer.token() > token);
    assert!(soon(lock.clone().shared().try_acquire()).await.unwrap().is_none());
    soon(writer.release()).await.unwrap();
    stage.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_watchdog_keeps_each_share_and_a_dead_reader_frees_only_its_own() {
    let mut stage = Stage::set().await;
    let builder = Client::builder().lease(SHORT);
    let client =
        builder.margin(Duration::from_millis(50)).connect(stage.server.url()).await.unwrap();
    let kept = soon(client.lock("k").shared().acquire()).await.unwrap();
    let dead = client.lock("k").shared().fixed_lease(SHORT);
    let dead = soon(dead.acquire()).await.unwrap();
    soon(dead.lost()).await;
    crate::wait_for_renewals(&mut stage.control, 6);
    assert!(!kept.is_lost());
    let lock = stage.client.lock("k");
    let writer = tokio::spawn(async move { lock.acquire().await });
    observe::wait_for_waiters(&mut stage.control, "k", 1);
    soon(kept.release()).await.unwrap();
    let writer = soon(writer).await.unwrap().unwrap();
    assert!(matches!(soon(dead.release()).await, Err(Error::Lost)));
    soon(writer.release()).await.unwrap();
    stage.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_share_that_is_taken_away_is_lost() {
    let mut stage = Stage::set().await;
    let client = Client::builder().lease(SHORT).connect(stage.server.url()).await.unwrap();
    let one = soon(client.lock("k").shared().acquire()).await.unwrap();
    let two = soon(client.lock("k").shared().acquire()).await.unwrap();
    stage.control.call(cmd!["HDEL", "k", one.owner()]);
    soon(one.lost()).await;
    assert!(!two.is_lost());
    stage.control.run("LOCK.FORCERELEASE k");
    soon(two.lost()).await;
    assert!(matches!(soon(two.release()).await, Err(Error::Lost)));
    drop(one);
    stage.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_re_enters_what_it_holds_and_does_not_wait_for_itself() {
    let mut stage = Stage::set().await;
    let me = stage.client.owner();
    let lock = stage.client.lock("k").owner(&me);
    let outer = soon(lock.clone().shared().acquire()).await.unwrap();
    let inner = soon(lock.clone().shared().acquire()).await.unwrap();
    assert_eq!((inner.token(), inner.holds()), (outer.token(), 2));
    assert_eq!(soon(lock.hold_count(&me)).await.unwrap(), 2);
    for refused in [soon(lock.acquire()).await, soon(lock.try_acquire()).await.map(Option::unwrap)]
    {
        assert!(matches!(refused, Err(Error::Upgrade)), "{refused:?}");
    }
    soon(outer.release()).await.unwrap();
    assert!(soon(stage.client.lock("k").try_acquire()).await.unwrap().is_none());
    soon(inner.release()).await.unwrap();

    // Who holds it alone may read, too, and goes on holding it alone.
    let writer = soon(lock.acquire()).await.unwrap();
    let reader = soon(lock.clone().shared().acquire()).await.unwrap();
    assert_eq!(writer.token(), reader.token());
    soon(writer.release()).await.unwrap();
    assert!(soon(stage.client.lock("k").shared().try_acquire()).await.unwrap().is_none());
    soon(reader.release()).await.unwrap();
    let reader = soon(lock.shared().acquire()).await.unwrap();
    assert!(soon(stage.client.lock("k").shared().try_acquire()).await.unwrap().is_some());
    soon(reader.release()).await.unwrap();
    stage.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_becomes_a_reader_without_letting_go() {
    let mut stage = Stage::set().await;
    let writer = soon(stage.client.lock("k").acquire()).await.unwrap();
    let others = Client::connect(stage.server.url()).await.unwrap();
    let lock = others.lock("k").shared();
    let reader = tokio::spawn(async move { lock.acquire().await });
    observe::wait_for_waiters(&mut stage.control, "k", 1);
    let lock = stage.client.lock("k");
    let next = tokio::spawn(async move { lock.acquire().await });
    observe::wait_for_waiters(&mut stage.control, "k", 2);

    let (token, owner) = (writer.token(), writer.owner().to_owned());
    let downgraded = soon(writer.downgrade()).await.unwrap();
    assert!(downgraded.token() > token);
    assert_eq!(downgraded.owner(), owner);
    let reader = soon(reader).await.unwrap().unwrap();
    assert_eq!(reader.token(), downgraded.token());
    assert_eq!(soon(others.lock("k").info()).await.unwrap().holders, 2);
    let same = soon(downgraded.downgrade()).await.unwrap();
    assert_eq!(same.token(), reader.token());
    soon(same.release()).await.unwrap();
    soon(reader.release()).await.unwrap();
    let next = soon(next).await.unwrap().unwrap();
    soon(next.release()).await.unwrap();
    stage.assert_nothing_is_left();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_downgrade_keeps_lease_and_owner_and_leaves_nothing_when_it_cannot_be() {
    let mut stage = Stage::set().await;
    let client = Client::builder().lease(SHORT).connect(stage.server.url()).await.unwrap();
    let me = client.owner();
    let lock = client.lock("k").owner(&me);
    let reader = soon(soon(lock.acquire()).await.unwrap().downgrade()).await.unwrap();
    let again = soon(lock.clone().shared().acquire()).await.unwrap();
    assert_eq!((again.token(), again.holds()), (reader.token(), 2));
    assert!(matches!(soon(lock.acquire()).await, Err(Error::Upgrade)));
    crate::wait_for_renewals(&mut stage.control, 4);
    assert!(!reader.is_lost());
    drop((reader, again));
    soon(client.settled()).await;

    let (one, two) = (soon(lock.acquire()).await.unwrap(), soon(lock.acquire()).await.unwrap());
    assert!(matches!(soon(one.downgrade()).await, Err(Error::Invalid(_))));
    // It is given back in the background.
    soon(client.settled()).await;
    stage.control.run("LOCK.FORCERELEASE k");
    assert!(matches!(soon(two.downgrade()).await, Err(Error::Lost)));
    soon(client.settled()).await;
    for round in 0..100_u32 {
        let guard = soon(stage.client.lock("k").acquire()).await.unwrap();
        let downgrade = tokio::spawn(guard.downgrade());
        for _ in 0..round % 20 {
            tokio::task::yield_now().await;
        }
        downgrade.abort();
    }
    stage.assert_nothing_is_left();
}

/// A connection of redis-rs that waits for its replies as long as a lock is waited for.
async fn patient(server: &Server) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(server.url()).unwrap();
    let unlimited = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    client.get_multiplexed_async_connection_with_config(&unlimited).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_alone_do_what_they_say() {
    let server = Server::start();
    let mut con = patient(&server).await;
    let lease = Duration::from_secs(60);
    let (shared, give) = (AcquireOptions::default().shared(), ReleaseOptions::default().shared());
    let one = con.lock_acquire_options("k", "one", lease, shared).await.unwrap().unwrap();
    let two = con.lock_wait_options("k", "two", lease, Some(IN_VAIN), shared.holds(1)).await;
    let two = two.unwrap().unwrap();
    assert_eq!((one.token, two.holds), (two.token, 1));
    let again = con.lock_acquire_options("k", "one", lease, shared.holds(2)).await.unwrap();
    assert_eq!(again.unwrap().holds, 2);
    assert_eq!(con.lock_release_options("k", "one", give).await.unwrap(), Some(1));
    assert_eq!(con.lock_release_options("k", "one", give.holds_left(0)).await.unwrap(), Some(0));
    assert_eq!(con.lock_release_options("k", "one", give).await.unwrap(), None);
    assert_eq!(server.connect().run("LOCK.INFO k").field("holders"), &Value::Integer(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_say_what_a_holder_says_of_itself_and_what_waiting_cost() {
    let server = Server::start();
    let (mut con, mut waiting) = (patient(&server).await, patient(&server).await);
    let (lease, mut control) = (Duration::from_secs(60), server.connect());
    let says = AcquireOptions::default().value(b"a:1");
    let granted = con.lock_acquire_options("k", "ann", lease, says).await.unwrap();
    assert!(granted.is_some());
    assert_eq!(con.lock_info("k").await.unwrap().value.as_deref(), Some(&b"a:1"[..]));
    assert_eq!(con.lock_renew_with_value("k", "ann", lease, b"a:2").await.unwrap(), Some(lease));
    assert_eq!(con.lock_info("k").await.unwrap().value.as_deref(), Some(&b"a:2"[..]));
    let bob = tokio::spawn(async move {
        let says = AcquireOptions::default().value(b"b:1");
        waiting.lock_wait_options("k", "bob", lease, None, says).await
    });
    observe::wait_for_waiters(&mut control, "k", 1);
    con.lock_release("k", "ann").await.unwrap();
    assert!(soon(bob).await.unwrap().unwrap().is_some());
    assert_eq!(con.lock_info("k").await.unwrap().value.as_deref(), Some(&b"b:1"[..]));
    let costs = con.lock_profile(10, true).await.unwrap();
    let [cost] = &*costs else { panic!("{costs:?}") };
    assert_eq!((&*cost.key, cost.hand_offs, cost.missed), (&b"k"[..], 1, Duration::ZERO));
    assert_eq!(con.lock_profile(10, false).await.unwrap(), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_semaphores_and_latches_do_what_they_say() {
    let server = Server::start();
    let mut con = patient(&server).await;
    let lease = Duration::from_secs(60);
    assert!(con.sem_set_once("s", 3).await.unwrap());
    assert!(!con.sem_set_once("s", 5).await.unwrap());
    // Twice is as good as once.
    assert_eq!(con.sem_acquire("s", "one", 2, lease).await.unwrap(), Some(2));
    assert_eq!(con.sem_acquire("s", "one", 2, lease).await.unwrap(), Some(2));
    assert_eq!(con.sem_wait("s", "two", 2, lease, Some(IN_VAIN)).await.unwrap(), None);
    assert_eq!(con.sem_acquire_all("s", "two", lease).await.unwrap(), Some(1));
    assert!(con.sem_renew("s", "two", lease).await.unwrap().is_some());
    assert_eq!(con.sem_info("s").await.unwrap().used, 3);
    assert!(!con.sem_cancel("s", "two").await.unwrap());
    assert!(con.sem_release("s", "one").await.unwrap().is_some());
    assert_eq!(con.sem_release("s", "one").await.unwrap(), None);
    con.sem_set("s", 5).await.unwrap();
    assert_eq!(con.sem_wait("s", "one", 4, lease, Some(SHORT)).await.unwrap(), Some(4));

    assert!(con.latch_set("l", 2, Some(lease)).await.unwrap());
    assert!(!con.latch_set("l", 7, None).await.unwrap());
    assert_eq!(con.latch_count_down("l", Some(b"a")).await.unwrap(), Some(1));
    assert_eq!(con.latch_count_down("l", Some(b"a")).await.unwrap(), Some(1));
    assert!(!con.latch_wait("l", "me", Some(IN_VAIN)).await.unwrap());
    assert!(!con.latch_cancel("l", "me").await.unwrap());
    assert_eq!(con.latch_info("l").await.unwrap().count, 1);
    assert_eq!(con.latch_count_down("l", None).await.unwrap(), Some(0));
    assert!(con.latch_wait("l", "me", None).await.unwrap());
}
