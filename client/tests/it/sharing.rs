//! Shared locks, permits and latches, and the commands as methods of connections.

use super::{LONG, MOMENT, SOON, Stage, Suspended, assert_matches, ok, soon, visit, wait_for_more};
use harness::{Server, Value, cmd, observe, wait};
use kvlock::{
    AcquireOptions, AsyncLatchCommands, AsyncLockCommands, AsyncSemaphoreCommands, Client, Error,
    ReleaseOptions,
};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn a_share_that_is_taken_away_is_lost() {
    let clock = Suspended::new();
    let mut stage = Stage::with(clock.renewing()).await;
    let one = ok(stage.client.lock("k").shared().acquire()).await;
    let two = ok(stage.client.lock("k").shared().acquire()).await;
    stage.control.call(cmd!["HDEL", "k", one.owner()]);
    clock.suspend(LONG / 2);
    soon(one.lost()).await;
    assert!(!two.is_lost());
    stage.control.run("LOCK.FORCERELEASE k");
    clock.suspend(LONG / 2);
    soon(two.lost()).await;
    assert_matches!(soon(two.release()).await, Err(Error::Lost(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_downgrade_keeps_lease_and_owner_and_a_failed_one_leaves_no_hold() {
    let clock = Suspended::new();
    let mut stage = Stage::with(clock.renewing()).await;
    let client = stage.client.clone();
    let me = client.owner();
    let lock = client.lock("k").owner(&me);
    let reader = ok(ok(lock.acquire()).await.downgrade()).await;
    let again = ok(lock.clone().shared().acquire()).await;
    assert_eq!((again.token(), again.holds()), (reader.token(), 2));
    assert_matches!(soon(lock.acquire()).await, Err(Error::Upgrade));
    // The clock advances by more than one lease.
    for _ in 0..3 {
        clock.suspend(LONG / 2);
        wait_for_more(LONG * 3 / 4, || reader.lease_left());
    }
    assert!(!reader.is_lost());
    drop((reader, again));
    soon(client.settled()).await;

    let (one, two) = (ok(lock.acquire()).await, ok(lock.acquire()).await);
    assert_matches!(soon(one.downgrade()).await, Err(Error::Invalid(_)));
    // The hold whose downgrade failed is released in the background.
    soon(client.settled()).await;
    stage.control.run("LOCK.FORCERELEASE k");
    assert_matches!(soon(two.downgrade()).await, Err(Error::Lost(_)));
    soon(client.settled()).await;
}

/// On one thread, the release of the dropped guard is sent only when the caller waits.
#[tokio::test]
async fn a_dropped_guard_is_no_further_guard_of_the_owner() {
    let (mut stage, proxy) = Stage::behind(Client::builder()).await;
    let client = stage.client.clone();
    let lock = client.lock("k").owner(&client.owner());
    // The connections are open before messages are delayed.
    visit(&lock.clone().lease(Duration::from_secs(60))).await;
    let delay = Duration::from_millis(50);
    proxy.delay(delay, delay);
    for outer_first in [true, false] {
        let both = async || {
            let (one, two) = (ok(lock.acquire()).await, ok(lock.acquire()).await);
            let (kept, dropped) = if outer_first { (one, two) } else { (two, one) };
            drop(dropped);
            assert_eq!(kept.holds(), 2);
            kept
        };
        ok(both().await.release_in(LONG)).await;
        assert!(stage.control.run("PTTL k").integer() > 60_000);
        stage.control.run("LOCK.FORCERELEASE k");

        let left = ok(both().await.detach()).await;
        assert!(left > Duration::ZERO);
        assert!(!stage.is_free("k"));
        stage.control.run("LOCK.FORCERELEASE k");

        let reader = ok(both().await.downgrade()).await;
        assert_eq!(reader.holds(), 1);
        ok(reader.release()).await;
        assert!(stage.is_free("k"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_that_waits_in_one_mode_does_not_wait_for_itself_in_the_other() {
    let mut stage = Stage::set().await;
    stage.taken("k");
    let me = stage.client.owner();
    let lock = stage.client.lock("k").owner(&me);
    let reader = tokio::spawn({
        let lock = lock.clone().shared();
        async move { lock.acquire().await }
    });
    observe::wait_for_waiters(&mut stage.control, "k", 1);
    let mut writer = Box::pin(lock.acquire());
    // Begins the acquire.
    assert!(tokio::time::timeout(Duration::ZERO, &mut writer).await.is_err());
    stage.control.run("LOCK.RELEASE k somebody");
    let reader = ok(reader).await.unwrap();
    assert_matches!(soon(writer).await, Err(Error::Upgrade));
    ok(reader.release()).await;
}

/// A connection of redis-rs that waits for replies without a limit, because a wait for a lock may be long.
async fn patient(server: &Server) -> redis::aio::MultiplexedConnection {
    let client = redis::Client::open(server.url()).unwrap();
    let unlimited = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    client.get_multiplexed_async_connection_with_config(&unlimited).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_methods_for_locks_send_the_right_commands() {
    let server = Server::start();
    let (mut con, mut control) = (patient(&server).await, server.connect());
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
    assert_eq!(control.run("LOCK.INFO k").field("holders"), &Value::Integer(1));

    // `LOCK.INFO` shows the holder's value, and `LOCK.PROFILE` the cost of waiting.
    control.run("DEL k");
    let mut waiting = patient(&server).await;
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
    assert!(ok(bob).await.unwrap().is_some());
    assert_eq!(con.lock_info("k").await.unwrap().value.as_deref(), Some(&b"b:1"[..]));
    let costs = con.lock_profile(10, true).await.unwrap();
    let [cost] = &*costs else { panic!("{costs:?}") };
    assert_eq!((&*cost.key, cost.hand_offs, cost.missed), (&b"k"[..], 1, Duration::ZERO));
    assert_eq!(con.lock_profile(10, false).await.unwrap(), []);
}

/// The longest wait is nil while no client reads the sessions of the waiters. Among the locks that a
/// waiter waits for, a key that the user may not read is nil.
#[tokio::test(flavor = "multi_thread")]
async fn replies_about_waiters_may_contain_nil() {
    let server = Server::start();
    let (mut con, mut control) = (patient(&server).await, server.connect());
    control.run("ACL SETUSER guest on nopass ~shown &* +@all");
    control.run("LOCK.ACQUIRE shown alice 60000");
    let session = control.run("SESSION.OPEN 60000")[0].text();
    control.call(cmd![
        "LOCK.WAIT",
        "shown",
        "bob",
        60_000,
        0,
        "SESSION",
        session,
        "WITH",
        1,
        "hidden"
    ]);
    let listed = con.lock_list(10).await.unwrap();
    assert!(listed.iter().all(|lock| lock.longest_wait.is_some()), "{listed:?}");
    let mut reader = server.connect();
    reader.call(cmd!["SESSION.NEXT", session, 0, 1]);
    drop(reader);
    wait::until("the session is away", SOON, || {
        let shown = control.run("LOCK.LIST");
        if shown[0].field("longest-wait").is_nil() { Ok(()) } else { Err(shown.to_string()) }
    });
    let listed = con.lock_list(10).await.unwrap();
    assert!(listed.iter().all(|lock| lock.longest_wait.is_none()), "{listed:?}");

    // A client reads the session again.
    control.call(cmd!["SESSION.NEXT", session, 0, 1]);
    redis::cmd("AUTH").arg(&["guest", "any"]).exec_async(&mut con).await.unwrap();
    let info = con.lock_info_waiters("shown", 10).await.unwrap();
    let [bob] = &*info.queue else { panic!("{info:?}") };
    assert_eq!(bob.set, [Some(b"shown".to_vec()), None]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_methods_for_semaphores_and_latches_send_the_right_commands() {
    let server = Server::start();
    let mut con = patient(&server).await;
    let lease = Duration::from_secs(60);
    assert!(con.sem_set_once("s", 3).await.unwrap());
    assert!(!con.sem_set_once("s", 5).await.unwrap());
    // A repetition changes nothing.
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
    assert_eq!(con.sem_wait("s", "one", 4, lease, Some(SOON)).await.unwrap(), Some(4));

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
async fn permits_are_kept_while_held_and_freed_when_their_holder_dies() {
    let clock = Suspended::new();
    let mut stage = Stage::with(clock.renewing()).await;
    let pool = stage.client.semaphore("s");
    ok(pool.set(1)).await;
    let kept = ok(pool.try_drain()).await.expect("one is free");
    ok(pool.set(2)).await;
    let dead = ok(pool.clone().fixed_lease(MOMENT).acquire()).await;
    let next = pool.clone();
    let next = tokio::spawn(async move { next.acquire().await });
    soon(dead.lost()).await;
    let next = ok(next).await.unwrap();
    // The first renewal extends the short lease of a hand-off to the full lease.
    wait_for_more(LONG / 2, || next.lease_left());
    for _ in 0..3 {
        clock.suspend(LONG / 2);
        wait_for_more(LONG * 3 / 4, || kept.lease_left().min(next.lease_left()));
    }
    assert!(!kept.is_lost() && !next.is_lost());
    assert_matches!(soon(dead.release()).await, Err(Error::Lost(_)));
    stage.control.run("DEL s");
    clock.suspend(LONG / 2);
    soon(kept.lost()).await;
    assert_matches!(soon(kept.release()).await, Err(Error::Lost(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_latch_that_is_open_can_be_set_again_and_opens_after_its_lifetime() {
    let mut stage = Stage::set().await;
    let latch = stage.client.latch("l");
    assert_eq!(ok(latch.count_down()).await, None);
    assert!(ok(latch.set_for(2, MOMENT)).await);
    ok(latch.wait()).await;
    assert!(ok(latch.set_for(2, SOON)).await);
    let left = ok(latch.info()).await.lifetime_left.unwrap();
    assert!(left <= SOON && left > SOON / 2, "{left:?}");
    stage.control.call(cmd!["DEL", "l"]);
    ok(latch.wait()).await;
}
