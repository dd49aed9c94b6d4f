//! What Redisson's own tests ask of its read-write lock, semaphores and latch, and what it does not do.

use super::{SOON, Stage, soon, wait_for_renewals};
use harness::{Server, Value, cmd, observe};
use kvlock::{
    AcquireOptions, AsyncLatchCommands, AsyncLockCommands, AsyncSemaphoreCommands, Client, Error,
    ReleaseOptions,
};
use std::time::Duration;

/// A lease that can be waited out, and kept on a busy machine.
const SHORT: Duration = Duration::from_millis(1500);

/// A lease that is soon over.
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

#[tokio::test(flavor = "multi_thread")]
async fn a_latch_that_is_open_can_be_set_again_and_opens_after_its_lifetime() {
    let mut stage = Stage::set().await;
    let latch = stage.client.latch("l");
    assert_eq!(soon(latch.count_down()).await.unwrap(), None);
    soon(latch.set_for(2, MOMENT)).await.unwrap();
    soon(latch.wait()).await.unwrap();
    soon(latch.set_for(2, SOON)).await.unwrap();
    let left = soon(latch.info()).await.unwrap().lifetime_left.unwrap();
    assert!(left <= SOON && left > SOON / 2, "{left:?}");
    stage.control.call(cmd!["DEL", "l"]);
    soon(latch.wait()).await.unwrap();
}
