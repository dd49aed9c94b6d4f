//! A client whose runtimes end while it is used on others.

use super::{SOON, calls, soon};
use harness::{Connection, Server, Value, wait};
use kvlock::Client;
use std::time::Duration;
use tokio::runtime::Runtime;

const LEASE: Duration = Duration::from_secs(2);

/// One that nothing runs on but what is waited for.
fn quiet() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn wait_for_renewals(control: &mut Connection, more: usize) {
    let before = calls(control, "lock.renew");
    wait::until("so many renewals", SOON, || match calls(control, "lock.renew") {
        seen if seen >= before + more => Ok(()),
        seen => Err(format!("{seen}, {before} before")),
    });
}

#[test]
fn a_guard_that_its_runtime_had_no_time_to_release_is_not_renewed_by_another() {
    let server = Server::start();
    let mut control = server.connect();
    let (first, second) = (quiet(), Runtime::new().unwrap());
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
fn who_lives_on_another_runtime_than_the_watchdog_is_renewed_and_told() {
    let server = Server::start();
    let mut control = server.connect();
    let (first, second) = (quiet(), Runtime::new().unwrap());
    let client = first.block_on(async {
        let client = Client::builder().lease(LEASE).connect(server.url()).await.unwrap();
        client.lock("other").acquire().await.unwrap().release().await.unwrap();
        client
    });
    let guard = second.block_on(client.lock("k").acquire()).unwrap();
    drop(first);
    // For longer than one lease.
    wait_for_renewals(&mut control, 4);
    assert!(!guard.is_lost());
    control.run("LOCK.FORCERELEASE k");
    second.block_on(soon(guard.lost()));
}
