//! Several locks that are acquired together.

use super::{LONG, MOMENT, SOON, Stage, assert_matches, ok, soon};
use harness::{Server, Value, cmd, observe};
use kvlock::{Client, Error, MultiLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn all_of(client: &Client, keys: &[&str]) -> MultiLock {
    MultiLock::new(keys.iter().map(|key| client.lock(key))).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_lock_is_held_if_one_cannot_be_acquired() {
    let mut stage = Stage::set().await;
    stage.taken("b");
    let all = all_of(&stage.client, &["a", "b", "c"]);
    assert!(ok(all.try_acquire()).await.is_none());
    assert!(stage.is_free("a") && stage.is_free("c"));
    assert!(ok(all.acquire_within(MOMENT)).await.is_none());
    assert!(stage.is_free("a") && stage.is_free("c"));
    // The second key is not a lock.
    stage.control.run("SET bad 1");
    let bad = all_of(&stage.client, &["a", "bad"]);
    assert_matches!(soon(bad.acquire()).await, Err(Error::NotALock));
    assert!(stage.is_free("a"));
    stage.control.run("DEL bad b");
    drop(ok(all.try_acquire()).await.expect("all are free"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_locks_of_a_server_are_acquired_in_one_command() {
    let mut stage = Stage::set().await;
    stage.taken("b");
    let all = all_of(&stage.client, &["c", "a", "b"]);
    let waiter = tokio::spawn(async move { all.acquire().await });
    for key in ["a", "b", "c"] {
        observe::wait_for_waiters(&mut stage.control, key, 1);
    }
    // The waiter holds nothing while it waits.
    assert_eq!(stage.control.run("EXISTS a c"), Value::Integer(0));
    stage.control.run("LOCK.FORCERELEASE b");
    let guard = ok(waiter).await.unwrap();
    let tokens = guard.tokens();
    assert_eq!(tokens.iter().map(|(key, _)| *key).collect::<Vec<_>>(), [b"a", b"b", b"c"]);
    assert!(tokens.iter().all(|(_, token)| *token == tokens[0].1), "one token: {tokens:?}");
    ok(guard.release()).await;
    assert!(["a", "b", "c"].iter().all(|key| stage.is_free(key)));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_databases_have_separate_locks_of_the_same_name() {
    let stage = Stage::set().await;
    let other = Client::connect(format!("{}1", stage.server.url())).await.unwrap();
    let locks = || [&other, &stage.client].map(|client| client.lock("k"));
    let both = MultiLock::new(locks()).unwrap();
    let guard = ok(both.acquire()).await;
    for lock in locks() {
        assert!(ok(lock.is_locked()).await);
    }
    assert!(ok(both.try_acquire()).await.is_none());
    ok(guard.release()).await;
    for lock in locks() {
        assert!(!ok(lock.is_locked()).await);
    }
    let [lock, _] = locks();
    assert_matches!(MultiLock::new([lock.clone(), lock]), Err(Error::Invalid(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_of_one_command_can_be_shared() {
    let mut stage = Stage::set().await;
    let (client, other) = (&stage.client, stage.other().await);
    let mixed = |client: &Client, own: &str| {
        [client.lock("all").shared(), client.lock(own), client.lock("m").shared()]
    };
    let first = ok(MultiLock::new(mixed(client, "x")).unwrap().acquire()).await;
    let second = ok(MultiLock::new(mixed(&other, "b")).unwrap().try_acquire()).await;
    let second = second.expect("they share all and m");
    let names = |guard: &kvlock::MultiGuard| guard.tokens()[0].0.to_owned();
    assert_eq!((names(&first), names(&second)), (b"x".to_vec(), b"b".to_vec()));
    assert!(ok(client.lock("all").try_acquire()).await.is_none());
    let readers = MultiLock::new([other.lock("m").shared(), other.lock("all").shared()]).unwrap();
    let third = ok(readers.try_acquire()).await.expect("it shares both");
    assert!(third.tokens().is_empty());
    for guard in [first, second, third] {
        ok(guard.release()).await;
    }
    assert!(["all", "b", "m", "x"].iter().all(|key| stage.is_free(key)));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_locks_of_a_set_are_renewed_together() {
    let mut stage = Stage::with(Client::builder().lease(Duration::from_secs(1))).await;
    let locks = [stage.client.lock("a"), stage.client.lock("b"), stage.client.lock("c").shared()];
    let guard = ok(MultiLock::new(locks).unwrap().acquire()).await;
    let begun = std::time::Instant::now();
    let mut left = Vec::new();
    while begun.elapsed() < Duration::from_millis(2500) {
        for key in ["a", "b", "c"] {
            left.push(stage.control.call(cmd!["PTTL", key]));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(left.iter().all(|left| matches!(left, Value::Integer(left) if *left > 0)), "{left:?}");
    assert!(!guard.is_lost());
    ok(guard.release()).await;
    assert!(["a", "b", "c"].iter().all(|key| stage.is_free(key)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_wait_for_several_leaves_nothing() {
    let mut stage = Stage::set().await;
    stage.taken("b");
    let all = all_of(&stage.client, &["a", "b", "c"]);
    let waiter = tokio::spawn(async move { all.acquire().await });
    observe::wait_for_waiters(&mut stage.control, "c", 1);
    waiter.abort();
    for key in ["a", "b", "c"] {
        observe::wait_for_waiters(&mut stage.control, key, 0);
    }
    stage.control.run("LOCK.FORCERELEASE b");
    assert!(["a", "b", "c"].iter().all(|key| stage.is_free(key)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_under_parentstheirs_the_parents() {
    let mut stage = Stage::set().await;
    let (client, other) = (&stage.client, stage.other().await);
    let file = |client: &Client, name: &str| client.lock(name).under(["src", "repo", "src"]);
    let first = ok(file(client, "src/a").acquire()).await;
    let second = ok(file(&other, "src/b").acquire()).await;
    assert!(ok(other.lock("src").under(["repo"]).try_acquire()).await.is_none());
    let beside = ok(other.lock("docs").under(["repo"]).try_acquire()).await.expect("it is free");
    ok(beside.release()).await;
    let whole = other.lock("repo");
    let whole = tokio::spawn(async move { whole.acquire().await });
    observe::wait_for_waiters(&mut stage.control, "repo", 1);
    // A queued waiter keeps later requests from the lock.
    assert!(ok(file(client, "src/c").try_acquire()).await.is_none());
    ok(first.release()).await;
    ok(second.release()).await;
    ok(ok(whole).await.unwrap().release()).await;
    assert!(["src", "repo", "src/a", "src/b"].iter().all(|key| stage.is_free(key)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_can_hold_several_locks_under_one_parent() {
    let mut stage = Stage::set().await;
    let me = stage.client.owner();
    let file = |name: &str| stage.client.lock(name).owner(&me).under(["dir"]);
    let (a, b) = (ok(file("a").acquire()).await, ok(file("b").acquire()).await);
    let again = ok(file("a").acquire()).await;
    // Without its parent, the lock cannot be re-entered.
    let wrong = stage.client.lock("a").owner(&me);
    assert_matches!(wrong.try_acquire().await, Err(Error::Invalid(_)));
    ok(a.release()).await;
    ok(again.release()).await;
    assert!(stage.is_free("a") && !stage.is_free("dir"));
    assert!(!b.is_lost());
    ok(b.release()).await;
    assert!(stage.is_free("b") && stage.is_free("dir"));
}

/// The owner would wait for itself, so it gets an error instead.
#[tokio::test(flavor = "multi_thread")]
async fn an_owner_does_not_wait_for_a_set_that_it_holds() {
    let mut stage = Stage::set().await;
    let me = stage.client.owner();
    let lock = |name: &str| stage.client.lock(name).owner(&me);
    let set = ok(lock("a").and(["c", "b"]).under(["top"]).acquire()).await;
    // The same set in another order is a reentry.
    let again = ok(lock("a").and(["b", "c"]).under(["top"]).acquire()).await;
    assert_eq!((again.token(), again.holds()), (set.token(), 2));
    for other in [lock("b"), lock("b").shared(), lock("x").and(["b"]), lock("x").under(["b"])] {
        assert_matches!(soon(other.acquire()).await, Err(Error::Invalid(_)));
    }
    assert_matches!(soon(lock("top").acquire()).await, Err(Error::Upgrade));
    let beside = ok(lock("x").under(["top"]).acquire()).await;
    let count = async |name: &str| lock(name).hold_count(&me).await.unwrap();
    assert_eq!([count("a").await, count("b").await, count("x").await], [2, 2, 1]);
    assert_eq!(count("top").await, 0, "a share through `under`");
    for guard in [set, again, beside] {
        ok(guard.release()).await;
    }
    // Each lock of a shared set counts, whichever has the largest token.
    let other = stage.other().await;
    let theirs = ok(other.lock("b").shared().acquire()).await;
    let shared = ok(lock("a").and(["b"]).shared().acquire()).await;
    for name in ["a", "b"] {
        assert_eq!(lock(name).hold_count(&me).await.unwrap(), 1, "{name}");
    }
    ok(shared.release()).await;
    ok(theirs.release()).await;
    // Sets that were lost do not count, even while their guards exist.
    let mut lost = Vec::new();
    for name in ["s", "t", "u", "v", "w"] {
        let mut set = ok(lock(name).and(["b"]).acquire()).await;
        stage.control.run("LOCK.FORCERELEASE b");
        set.extend(LONG).await.unwrap_err();
        lost.push(set);
    }
    let now = ok(lock("b").acquire()).await;
    assert_eq!(lock("b").hold_count(&me).await.unwrap(), 1);
    ok(now.release()).await;
    for set in lost {
        set.release().await.unwrap_err();
    }
    assert!(["a", "b", "c", "x", "top"].iter().all(|key| stage.is_free(key)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_downgrade_keeps_the_share_of_the_parent() {
    let mut stage = Stage::set().await;
    let writer = ok(stage.client.lock("a").under(["dir"]).acquire()).await;
    let whole = stage.other().await.lock("dir");
    let whole = tokio::spawn(async move { whole.acquire().await });
    observe::wait_for_waiters(&mut stage.control, "dir", 1);
    let reader = ok(writer.downgrade()).await;
    observe::wait_for_waiters(&mut stage.control, "dir", 1);
    assert!(!reader.is_lost());
    ok(reader.release()).await;
    ok(ok(whole).await.unwrap().release()).await;
    assert!(stage.is_free("a") && stage.is_free("dir"));
}

/// One lock of the set is gone before the client has set the full lease, and another client takes it.
#[tokio::test(flavor = "multi_thread")]
async fn a_set_that_ends_before_its_lease_is_set_leaves_nothing() {
    let mut stage = Stage::set().await;
    stage.control.run("LOCK.ACQUIRE a somebody 600000 WITH 1 b");
    let set = stage.client.lock("a").and(["b"]).fixed_lease(Duration::from_secs(600));
    let waiter = tokio::spawn(async move { set.acquire().await });
    observe::wait_for_waiters(&mut stage.control, "b", 1);
    for command in [
        "MULTI",
        "LOCK.RELEASE a somebody WITH 1 b",
        "DEL b",
        "LOCK.ACQUIRE b other 600000",
        "EXEC",
    ] {
        assert!(!stage.control.run(command).is_error(), "{command}");
    }
    observe::wait_for_waiters(&mut stage.control, "b", 1);
    stage.wait_until_free("a");
    stage.control.run("LOCK.RELEASE b other");
    ok(ok(waiter).await.unwrap().release()).await;
    assert!(stage.is_free("a") && stage.is_free("b"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_loss_of_a_parent_is_a_loss() {
    let mut stage = Stage::with(Client::builder().lease(Duration::from_secs(1))).await;
    let guard = ok(stage.client.lock("a").under(["dir"]).acquire()).await;
    stage.control.run("LOCK.FORCERELEASE dir");
    soon(guard.lost()).await;
    assert_matches!(soon(guard.release()).await, Err(Error::Lost(_)));
    assert!(stage.is_free("a"));
}

#[tokio::test(flavor = "multi_thread")]
async fn several_bound_locks_are_free_when_the_client_is_gone() {
    let builder = Client::builder().session_ttl(Duration::from_secs(1));
    let (mut stage, proxy) = Stage::behind(builder).await;
    let lock = |name| stage.client.lock(name).lease(Duration::from_secs(600)).bound();
    let guard = ok(MultiLock::new([lock("a"), lock("b")]).unwrap().acquire()).await;
    assert_eq!(stage.control.run("EXISTS a b"), Value::Integer(2));
    proxy.cut();
    stage.wait_until_free("a");
    stage.wait_until_free("b");
    soon(guard.lost()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_loss_of_one_lock_is_the_loss_of_all() {
    let mut stage = Stage::with(Client::builder().lease(Duration::from_secs(1))).await;
    let guard = ok(all_of(&stage.client, &["a", "b", "c"]).acquire()).await;
    let work = guard.run_until_lost(std::future::pending::<()>());
    stage.control.run("LOCK.FORCERELEASE b");
    assert_matches!(soon(work).await, Err(Error::Lost(_)));
    soon(guard.lost()).await;
    assert!(guard.is_lost());
    assert_matches!(soon(guard.release()).await, Err(Error::Lost(_)));
    assert!(stage.is_free("a") && stage.is_free("c"));
    // The client also reports a loss while it waits for a lock of another server. It acquires the locks of
    // the server with the smaller address first.
    let elsewhere = Server::start();
    let other = Client::connect(elsewhere.url()).await.unwrap();
    let mut control = elsewhere.connect();
    let is_first = stage.server.url() < elsewhere.url();
    let (first, second) = if is_first {
        (&mut stage.control, &mut control)
    } else {
        (&mut control, &mut stage.control)
    };
    second.run("LOCK.ACQUIRE b other 60000");
    let all = MultiLock::new([stage.client.lock("b"), other.lock("b")]).unwrap();
    let waiter = tokio::spawn(async move { all.acquire().await });
    observe::wait_for_waiters(second, "b", 1);
    first.run("LOCK.FORCERELEASE b");
    assert_matches!(ok(waiter).await, Err(Error::Lost(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_of_different_servers_form_one_guard() {
    let mut stage = Stage::set().await;
    let elsewhere = Server::start();
    let other = Client::connect(elsewhere.url()).await.unwrap();
    let all = [stage.client.lock("k"), other.lock("k"), other.lock("a")];
    let guard = ok(MultiLock::new(all).unwrap().acquire()).await;
    let names: Vec<&[u8]> = guard.tokens().iter().map(|(name, _)| *name).collect();
    let (here, there) = (vec![&b"k"[..]], vec![&b"a"[..], b"k"]);
    let is_first = stage.server.url() < elsewhere.url();
    let expected = if is_first { [here, there] } else { [there, here] };
    assert_eq!(names, expected.concat());
    assert!(!guard.is_lost() && !stage.is_free("k"));
    assert_eq!(elsewhere.connect().call(cmd!["EXISTS", "k", "a"]), Value::Integer(2));
    ok(guard.release()).await;
    assert_eq!(elsewhere.connect().call(cmd!["EXISTS", "k", "a"]), Value::Integer(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_lock_and_repeated_locks_are_refused() {
    let stage = Stage::set().await;
    assert_matches!(MultiLock::new([]), Err(Error::Invalid(_)));
    let same = stage.other().await;
    for twice in
        [[stage.client.lock("a"), stage.client.lock("a")], [stage.client.lock("a"), same.lock("a")]]
    {
        assert_matches!(MultiLock::new(twice), Err(Error::Invalid(_)));
    }
}

/// Each task acquires three of five locks, and names them in an order that differs from the others.
#[tokio::test(flavor = "multi_thread")]
async fn all_dining_philosophers_eat() {
    let stage = Stage::set().await;
    let forks: Arc<[AtomicUsize; 5]> = Arc::default();
    let mut tasks = tokio::task::JoinSet::new();
    for seat in 0..5 {
        let client = stage.other().await;
        let forks = forks.clone();
        tasks.spawn(async move {
            for _ in 0..20 {
                let mine = [(seat + 2) % 5, seat, (seat + 1) % 5];
                let locks = mine.map(|fork| client.lock(format!("fork:{fork}")));
                let guard = MultiLock::new(locks).unwrap().acquire().await.unwrap();
                for fork in mine {
                    assert_eq!(forks[fork].fetch_add(1, Ordering::SeqCst), 0, "two have one fork");
                }
                tokio::task::yield_now().await;
                for fork in mine {
                    forks[fork].fetch_sub(1, Ordering::SeqCst);
                }
                guard.release().await.unwrap();
            }
        });
    }
    while let Some(done) =
        tokio::time::timeout(2 * SOON, tasks.join_next()).await.expect("no deadlock")
    {
        done.unwrap();
    }
}
