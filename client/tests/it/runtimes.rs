//! A client that two runtimes use, when one of them ends or stops; and a blocking client.

use super::{MOMENT, SOON, assert_matches, soon, wait_for_renewals};
use harness::{Connection, Server, Value, cmd, observe, wait};
use kvlock::{Client, Error, Loss, blocking};
use nix::sys::signal::Signal;
use std::time::Duration;
use tokio::runtime::Runtime;

const LEASE: Duration = Duration::from_secs(3);

/// A runtime without worker threads: its tasks run only during `block_on`.
fn quiet() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// A server, and two runtimes for one client. Nothing drives the first one between calls.
fn set() -> (Server, Connection, Runtime, Runtime) {
    let server = Server::start();
    let control = server.connect();
    (server, control, quiet(), Runtime::new().unwrap())
}

#[test]
fn a_guard_whose_runtime_ended_is_not_renewed_by_another_runtime() {
    let (server, mut control, first, second) = set();
    let client = first.block_on(async {
        let client = Client::builder().lease(LEASE).connect(server.url()).await.unwrap();
        drop(client.lock("k").acquire().await.unwrap());
        client
    });
    assert_eq!(control.run("EXISTS k"), Value::Integer(1), "nobody has sent the release");
    drop(first);
    let other = second.block_on(client.lock("other").acquire()).unwrap();
    wait::until("the lease ends by itself", SOON, || match control.run("EXISTS k") {
        Value::Integer(0) => Ok(()),
        _ => Err(control.run("PTTL k").to_string()),
    });
    assert!(!other.is_lost());
    second.block_on(other.release()).unwrap();
}

#[test]
fn a_guard_on_another_runtime_than_the_watchdog_is_renewed_and_notified() {
    let (server, mut control, first, second) = set();
    let client = first.block_on(async {
        let client = Client::builder().lease(LEASE).connect(server.url()).await.unwrap();
        client.lock("other").acquire().await.unwrap().release().await.unwrap();
        client
    });
    let guard = second.block_on(client.lock("k").acquire()).unwrap();
    drop(first);
    // Four renewals take longer than one lease.
    wait_for_renewals(&mut control, 4);
    assert!(!guard.is_lost());
    control.run("LOCK.FORCERELEASE k");
    second.block_on(soon(guard.lost()));
}

#[test]
fn a_lock_is_renewed_on_a_runtime_that_only_waits_for_its_loss() {
    let (server, mut control, first, second) = set();
    let guard = first.block_on(async {
        let client = Client::builder().lease(LEASE).connect(server.url()).await.unwrap();
        client.lock("k").acquire().await.unwrap()
    });
    let watch = guard.watch();
    let waiter = second.spawn(async move { watch.lost().await });
    drop(first);
    // Four renewals take longer than one lease.
    wait_for_renewals(&mut control, 4);
    assert!(!guard.is_lost());
    control.run("LOCK.FORCERELEASE k");
    second.block_on(soon(waiter)).unwrap();
}

#[test]
fn an_observer_continues_on_its_runtime_if_that_of_an_earlier_observer_ends() {
    let (server, mut control, first, second) = set();
    let client = first.block_on(Client::connect(server.url())).unwrap();
    let election = client.election("k");
    let mut observer = first.block_on(soon(election.observe())).unwrap();
    let mut changed = Box::pin(async move { observer.changed().await });
    assert!(second.block_on(async { tokio::time::timeout(MOMENT, &mut changed).await }).is_err());
    drop(first);
    control.run("LOCK.ACQUIRE k ann 600000");
    let leader = second.block_on(soon(changed)).unwrap();
    assert_eq!(leader.owner, b"ann");
}

#[test]
fn each_observer_asks_the_server_even_if_the_runtime_ran_only_for_the_call() {
    let server = Server::start();
    let mut control = server.connect();
    let runtime = quiet();
    let client = runtime.block_on(Client::connect(server.url())).unwrap();
    let election = client.election("k");
    for (command, leads) in [
        ("PING", None),
        // Nothing has changed, so the server reports nothing by itself.
        ("PING", None),
        ("LOCK.ACQUIRE k ann 600000", Some("ann")),
        ("LOCK.RELEASE k ann", None),
        ("LOCK.ACQUIRE k bob 600000", Some("bob")),
    ] {
        assert!(!control.run(command).is_error());
        let observer = runtime.block_on(soon(election.observe())).unwrap();
        let owner = observer.leader().map(|leader| leader.owner);
        assert_eq!(owner.as_deref(), leads.map(str::as_bytes), "{command}");
    }
}

#[test]
fn a_release_continues_on_another_runtime() {
    let (server, mut control, first, second) = set();
    let client = second.block_on(Client::connect(server.url())).unwrap();
    let lock = client.lock("k").owner(&client.owner());
    let stays = second.block_on(lock.acquire()).unwrap();
    let ends = first.block_on(lock.acquire()).unwrap();
    first.block_on(async { drop(ends) });
    // It has not sent the release.
    drop(first);
    second.block_on(soon(stays.release())).unwrap();
    wait::until_is("the lock is free", SOON, Value::Integer(0), || control.run("EXISTS k"));
}

#[test]
fn a_guard_dropped_outside_a_runtime_is_released_on_the_one_that_only_connected() {
    let (server, mut control, first, second) = set();
    let client = second.block_on(Client::connect(server.url())).unwrap();
    let guard = first.block_on(client.lock("k").acquire()).unwrap();
    drop(first);
    drop(guard);
    wait::until_is("the lock is free", SOON, Value::Integer(0), || control.run("EXISTS k"));
}

/// Work fails on a runtime without timers, and tokio reports that as a panic.
#[test]
fn a_guard_dropped_outside_a_runtime_is_released_even_if_the_last_one_has_no_timers() {
    let (server, mut control, first, second) = set();
    drop(first);
    let client = second.block_on(Client::connect(server.url())).unwrap();
    let [one, other] =
        ["one", "k"].map(|name| second.block_on(client.lock(name).acquire()).unwrap());
    let bare = tokio::runtime::Builder::new_current_thread().build().unwrap();
    bare.block_on(async {
        drop(one);
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    });
    drop(other);
    wait::until_is("the lock is free", SOON, Value::Integer(0), || control.run("EXISTS k"));
    second.block_on(soon(client.settled()));
}

#[test]
fn a_wait_whose_runtime_has_ended_leaves_the_queue() {
    let (server, mut control, first, second) = set();
    control.run("LOCK.ACQUIRE k ann 600000");
    let client = second.block_on(Client::connect(server.url())).unwrap();
    // The session that keeps the places in the queue is on this runtime.
    let _observer = second.block_on(soon(client.election("other").observe())).unwrap();
    let lock = client.lock("k");
    first.block_on(async {
        let waiter = tokio::spawn(async move { lock.acquire().await });
        while control.run("LOCK.INFO k").field("waiters").integer() == 0 {
            tokio::task::yield_now().await;
        }
        drop(waiter);
    });
    drop(first);
    observe::wait_for_waiters(&mut control, "k", 0);
}

#[test]
fn a_blocking_guard_that_is_dropped_on_a_runtime_is_released_after_its_end() {
    let (server, mut control, first, second) = set();
    drop(second);
    let client = blocking::Client::connect(server.url()).unwrap();
    let guard = client.lock("k").acquire().unwrap();
    first.block_on(async { drop(guard) });
    drop(first);
    wait::until_is("the lock is free", SOON, Value::Integer(0), || control.run("EXISTS k"));
}

#[test]
fn a_lock_is_bound_again_after_the_runtime_that_bound_it_has_ended() {
    let (server, mut control, first, second) = set();
    let client = second.block_on(Client::connect(server.url())).unwrap();
    // The session is on this runtime.
    let _observer = second.block_on(soon(client.election("other").observe())).unwrap();
    let guard = first.block_on(client.lock("k").bound().acquire()).unwrap();
    drop(first);
    let bound = |control: &mut Connection| observe::info_number(control, "kvlock_bound");
    assert_eq!(bound(&mut control), 1);
    control.run("CONFIG SET kvlock.drain yes");
    wait::until_is("its session is closed", SOON, 0, || bound(&mut control));
    control.run("CONFIG SET kvlock.drain no");
    wait::until_is("it is bound again", SOON, 1, || bound(&mut control));
    second.block_on(soon(guard.release())).unwrap();
}

#[test]
fn renewals_continue_on_one_of_many_runtimes() {
    let (server, mut control, first, second) = set();
    let builder = Client::builder().lease(LEASE);
    let client = first.block_on(builder.connect(server.url())).unwrap();
    let visit = |runtime: &Runtime| {
        let guard = runtime.block_on(client.lock("other").acquire()).unwrap();
        runtime.block_on(guard.release()).unwrap();
    };
    visit(&first);
    let guard = second.block_on(client.lock("k").acquire()).unwrap();
    for _ in 0..20 {
        visit(&quiet());
    }
    drop(first);
    // Four renewals take longer than one lease.
    wait_for_renewals(&mut control, 4);
    assert!(!guard.is_lost());
    second.block_on(soon(guard.release())).unwrap();
}

#[test]
fn a_runtime_that_stops_during_a_renewal_does_not_block_a_release() {
    for (ends, detaches) in [(true, true), (true, false), (false, true), (false, false)] {
        let server = Server::start();
        let (first, second) = (quiet(), Runtime::new().unwrap());
        let guard = first.block_on(async {
            let client = Client::builder().lease(LEASE).connect(server.url()).await.unwrap();
            let guard = client.lock("k").acquire().await.unwrap();
            server.signal(Signal::SIGSTOP);
            // The renewal is sent after a third of the lease.
            tokio::time::sleep(LEASE / 2).await;
            guard
        });
        assert!(!guard.is_lost());
        // If the first runtime still exists, nothing runs on it.
        let _first = (!ends).then_some(first);
        server.signal(Signal::SIGCONT);
        second.block_on(async {
            if detaches {
                // The renewal in flight may still change the lease, so the lock is not detached. If nothing
                // runs on the first runtime, its answer is awaited until the lease ends.
                let told = soon(guard.detach()).await;
                assert!(matches!(told, Err(Error::Timeout)) == ends, "{told:?}");
                assert!(matches!(told, Err(Error::Lost(Loss::Expired))) != ends, "{told:?}");
            } else {
                let released = soon(guard.release_in(Duration::from_secs(1))).await;
                assert_eq!(released.is_ok(), ends, "{released:?}");
            }
        });
    }
}

#[test]
fn a_blocking_lock_is_kept_while_its_thread_works_and_released_on_drop() {
    let server = Server::start();
    let mut control = server.connect();
    let client = blocking::Client::connect(server.url()).unwrap();
    let lock = (*client).lock("k").lease(Duration::from_secs(3));
    let lock = client.of_lock(lock);
    let mut guard = lock.acquire().unwrap();
    wait_for_renewals(&mut control, 3);
    assert!(!guard.is_lost());
    guard.extend(Duration::from_secs(30)).unwrap();
    assert!(lock.try_acquire().unwrap().is_none());
    assert!(lock.acquire_within(MOMENT).unwrap().is_none());
    guard.release().unwrap();

    let last = client.lock("k").acquire().unwrap();
    control.call(cmd!["LOCK.FORCERELEASE", "k"]);
    assert_matches!(last.release(), Err(Error::Lost(_)));

    let reader = lock.acquire().unwrap().downgrade().unwrap();
    reader.release_in(Duration::ZERO).unwrap();
    let detached = lock.acquire().unwrap();
    let (owner, token) = (detached.owner().to_owned(), detached.token());
    detached.detach().unwrap();
    drop(client.wait_for((*client).lock("k").adopt(&owner, token)).unwrap());
    client.wait_for(client.settled());

    let dropped = client.lock("k").acquire().unwrap();
    client.wait_for(client.semaphore("s").set(2)).unwrap();
    drop((client, lock));
    // The drop waits for the release, because the program may end after it.
    drop(dropped);
    assert_eq!(control.call(cmd!["EXISTS", "k"]), Value::Integer(0));
}
