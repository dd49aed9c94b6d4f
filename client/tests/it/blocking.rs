//! The crate without a runtime.

use super::SOON;
use harness::{Server, Value, cmd, observe, wait};
use kvlock::Error;
use kvlock::blocking::Client;
use std::time::Duration;

#[test]
fn a_lock_is_kept_while_its_thread_does_something_else_and_freed_when_all_is_dropped() {
    let server = Server::start();
    let mut control = server.connect();
    let client = Client::connect(server.url()).unwrap();
    let lock = (*client).lock("k").lease(Duration::from_secs(3));
    let lock = client.of_lock(lock);
    let mut guard = lock.acquire().unwrap();
    wait::until("renewals", SOON, || {
        let calls = observe::info_field(&mut control, "cmdstat_lock.renew").unwrap_or_default();
        let calls = calls.trim_start_matches("calls=").split(',').next().unwrap_or_default();
        if calls.parse().is_ok_and(|calls: u32| calls >= 3) {
            Ok(())
        } else {
            Err(calls.to_owned())
        }
    });
    assert!(!guard.is_lost());
    guard.extend(Duration::from_secs(30)).unwrap();
    assert!(lock.try_acquire().unwrap().is_none());
    assert!(lock.acquire_within(Duration::from_millis(20)).unwrap().is_none());
    guard.release().unwrap();

    let last = client.lock("k").acquire().unwrap();
    control.call(cmd!["LOCK.FORCERELEASE", "k"]);
    assert!(matches!(last.release(), Err(Error::Lost)));

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
    // Where a program may end.
    drop(dropped);
    assert_eq!(control.call(cmd!["EXISTS", "k"]), Value::Integer(0));
}
