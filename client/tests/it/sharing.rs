//! What Redisson's own tests ask of its read-write lock, semaphores and latch, and what it does not do.

use super::{SOON, Stage, is_served, soon, wait_for_renewals};
use harness::{Server, Value, cmd, observe, wait};
use kvlock::{
    AcquireOptions, AsyncLatchCommands, AsyncLockCommands, AsyncSemaphoreCommands, Client, Error,
    ReleaseOptions,
};
use std::time::Duration;

/// A lease that can be waited out, and kept on a busy machine.
const SHORT: Duration = Duration::from_millis(1500);

/// A lease that is soon over, and a wait for something that does not come.
const MOMENT: Duration = Duration::from_millis(400);

#[tokio::test(flavor = "multi_thread")]
async fn a_share_that_is_taken_away_is_lost() {
    let mut stage = Stage::with(Client::builder().lease(SHORT)).await;
    let one = soon(stage.client.lock("k").shared().acquire()).await.unwrap();
    let two = soon(stage.client.lock("k").shared().acquire()).await.unwrap();
    stage.control.call(cmd!["HDEL", "k", one.owner()]);
    soon(one.lost()).await;
    assert!(!two.is_lost());
    stage.control.run("LOCK.FORCERELEASE k");
    soon(two.lost()).await;
    assert!(matches!(soon(two.release()).await, Err(Error::Lost)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_re_enters_what_it_holds_and_does_not_wait_for_itself() {
    let stage = Stage::set().await;
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
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_becomes_a_reader_without_letting_go() {
    let mut stage = Stage::set().await;
    let writer = soon(stage.client.lock("k").acquire()).await.unwrap();
    let others = stage.other().await;
    let reader = stage.in_line(others.lock("k").shared());
    let next = stage.in_line(stage.client.lock("k"));

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
    is_served(next).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_downgrade_keeps_lease_and_owner_and_leaves_nothing_when_it_cannot_be() {
    let mut stage = Stage::with(Client::builder().lease(SHORT)).await;
    let client = stage.client.clone();
    let me = client.owner();
    let lock = client.lock("k").owner(&me);
    let reader = soon(soon(lock.acquire()).await.unwrap().downgrade()).await.unwrap();
    let again = soon(lock.clone().shared().acquire()).await.unwrap();
    assert_eq!((again.token(), again.holds()), (reader.token(), 2));
    assert!(matches!(soon(lock.acquire()).await, Err(Error::Upgrade)));
    wait_for_renewals(&mut stage.control, 4);
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
    let lock = client.lock("k").lease(Duration::from_secs(30));
    for round in 0..100_u32 {
        let guard = soon(lock.acquire()).await.unwrap();
        let downgrade = tokio::spawn(guard.downgrade());
        for _ in 0..round % 20 {
            tokio::task::yield_now().await;
        }
        downgrade.abort();
    }
}

/// A connection of redis-rs that waits for its replies as long as a lock is waited for.
async fn patient(server: &Server) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(server.url()).unwrap();
    let unlimited = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    client.get_multiplexed_async_connection_with_config(&unlimited).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_locks_do_what_they_say() {
    let server = Server::start();
    let mut con = patient(&server).await;
    let lease = Duration::from_secs(60);
    let (shared, give) = (AcquireOptions::default().shared(), ReleaseOptions::default().shared());
    let one = con.lock_acquire_options("k", "one", lease, shared).await.unwrap().unwrap();
    let two = con.lock_wait_options("k", "two", lease, Some(MOMENT), shared.holds(1)).await;
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
    assert_eq!(con.sem_wait("s", "two", 2, lease, Some(MOMENT)).await.unwrap(), None);
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
    assert!(!con.latch_wait("l", "me", Some(MOMENT)).await.unwrap());
    assert!(!con.latch_cancel("l", "me").await.unwrap());
    assert_eq!(con.latch_info("l").await.unwrap().count, 1);
    assert_eq!(con.latch_count_down("l", None).await.unwrap(), Some(0));
    assert!(con.latch_wait("l", "me", None).await.unwrap());
}

/// Nothing is held and nobody waits; the semaphore itself stays.
async fn assert_all_are_free(stage: &mut Stage) {
    soon(stage.client.settled()).await;
    let info = soon(stage.client.semaphore("s").info()).await.unwrap();
    assert_eq!((info.used, info.waiters), (0, 0), "{info:?}");
    stage.control.run("DEL s");
}

#[tokio::test(flavor = "multi_thread")]
async fn there_are_so_many_and_no_more() {
    let mut stage = Stage::set().await;
    let pool = stage.client.semaphore("s");
    assert_eq!(soon(pool.acquire()).await.unwrap_err().code(), Some("UNSET"));
    assert_eq!(soon(pool.info()).await.unwrap_err().code(), Some("UNSET"));
    assert!(soon(pool.set_once(3)).await.unwrap());
    let told = soon(pool.clone().permits(4).acquire()).await.unwrap_err();
    assert_eq!(told.code(), Some("TOOMANY"), "{told}");
    assert!(!soon(pool.set_once(9)).await.unwrap());
    let two = soon(pool.clone().permits(2).acquire()).await.unwrap();
    let one = soon(pool.try_acquire()).await.unwrap().expect("one is left");
    assert_eq!((two.count(), one.count()), (2, 1));
    assert!(soon(pool.try_acquire()).await.unwrap().is_none());
    assert!(soon(pool.acquire_within(MOMENT)).await.unwrap().is_none());
    let info = soon(pool.info()).await.unwrap();
    assert_eq!((info.permits, info.used, info.holders), (3, 3, 2));
    soon(two.release()).await.unwrap();
    assert!(soon(pool.clone().permits(3).try_acquire()).await.unwrap().is_none());
    let two = soon(pool.clone().permits(2).try_acquire()).await.unwrap().expect("two are free");
    drop((one, two));
    assert_all_are_free(&mut stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_that_are_free_are_taken_in_one_step() {
    let mut stage = Stage::set().await;
    let pool = stage.client.semaphore("s");
    assert_eq!(soon(pool.try_drain()).await.unwrap_err().code(), Some("UNSET"));
    soon(pool.set(5)).await.unwrap();
    let one = soon(pool.acquire()).await.unwrap();
    let rest = soon(pool.try_drain()).await.unwrap().expect("four are free");
    assert_eq!(rest.count(), 4);
    assert!(soon(pool.try_drain()).await.unwrap().is_none());
    assert!(soon(pool.try_acquire()).await.unwrap().is_none());
    // There are more now, and they are all there is to take.
    soon(pool.set(7)).await.unwrap();
    let more = soon(pool.try_drain()).await.unwrap().expect("two were added");
    assert_eq!(more.count(), 2);
    soon(rest.release()).await.unwrap();
    let info = soon(pool.info()).await.unwrap();
    assert_eq!((info.permits, info.used), (7, 3));
    drop((one, more));
    assert_all_are_free(&mut stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn permits_are_kept_while_they_are_held_and_come_back_when_their_holder_dies() {
    let builder = Client::builder().lease(MOMENT).margin(Duration::from_millis(50));
    let mut stage = Stage::with(builder).await;
    let pool = stage.client.semaphore("s");
    soon(pool.set(1)).await.unwrap();
    let kept = soon(pool.try_drain()).await.unwrap().expect("one is free");
    soon(pool.set(2)).await.unwrap();
    let dead = soon(pool.clone().fixed_lease(MOMENT).acquire()).await.unwrap();
    let next = pool.clone();
    let next = tokio::spawn(async move { next.acquire().await });
    soon(dead.lost()).await;
    let next = soon(next).await.unwrap().unwrap();
    observe::let_pass(&mut stage.control, 2 * MOMENT);
    assert!(!kept.is_lost() && !next.is_lost());
    assert!(matches!(soon(dead.release()).await, Err(Error::Lost)));
    stage.control.run("DEL s");
    soon(kept.lost()).await;
    assert!(matches!(soon(kept.release()).await, Err(Error::Lost)));
}

fn wait_for_waiters(stage: &mut Stage, count: i64) {
    wait::until_is("so many wait", SOON, count, || {
        stage.control.run("LATCH.INFO l").field("waiters").integer()
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_goes_on_when_all_have_counted() {
    let mut stage = Stage::set().await;
    let latch = stage.client.latch("l");
    assert!(soon(latch.set(2)).await.unwrap());
    assert!(!soon(latch.set(9)).await.unwrap(), "it counts already");
    let mut waiters = tokio::task::JoinSet::new();
    for _ in 0..5 {
        let latch = stage.other().await.latch("l");
        waiters.spawn(async move { latch.wait().await });
    }
    wait_for_waiters(&mut stage, 5);
    assert_eq!(soon(latch.count_down()).await.unwrap(), Some(1));
    assert_eq!(soon(latch.info()).await.unwrap().count, 1);
    assert_eq!(soon(latch.count_down()).await.unwrap(), Some(0));
    while let Some(done) = soon(waiters.join_next()).await {
        done.unwrap().unwrap();
    }
    assert_eq!(soon(latch.count_down()).await.unwrap(), None);
    // Open is as good as never set; and then it can be set again.
    soon(latch.wait()).await.unwrap();
    assert!(soon(latch.set(1)).await.unwrap());
    assert!(!soon(latch.wait_within(MOMENT)).await.unwrap());
    soon(latch.count_down()).await.unwrap();
    assert!(soon(latch.wait_within(MOMENT)).await.unwrap());
    // One that outlives its lifetime is open.
    soon(latch.set_for(2, MOMENT)).await.unwrap();
    soon(latch.wait()).await.unwrap();
    soon(latch.set_for(2, SOON)).await.unwrap();
    let left = soon(latch.info()).await.unwrap().lifetime_left.unwrap();
    assert!(left <= SOON && left > SOON / 2, "{left:?}");
    stage.control.call(cmd!["DEL", "l"]);
    soon(latch.wait()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_that_is_dropped_is_forgotten_and_one_that_is_cut_goes_on() {
    let mut stage = Stage::set().await;
    let latch = stage.client.latch("l");
    soon(latch.set(1)).await.unwrap();
    let dropped = latch.clone();
    let dropped = tokio::spawn(async move { dropped.wait().await });
    wait_for_waiters(&mut stage, 1);
    dropped.abort();
    wait_for_waiters(&mut stage, 0);

    let cut = latch.clone();
    let cut = tokio::spawn(async move { cut.wait().await });
    wait_for_waiters(&mut stage, 1);
    stage.control.run("CLIENT KILL TYPE normal SKIPME yes");
    wait_for_waiters(&mut stage, 1);
    stage.control.run("LATCH.COUNTDOWN l");
    soon(cut).await.unwrap().unwrap();
}
