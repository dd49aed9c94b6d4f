//! What a crowd of clients sees is explained by a lock.

use super::{Stage, soon};
use harness::checker::{Limits, assert_correct};
use harness::history::{Outcome, Recorder, Request};
use harness::{Server, lines};
use kvlock::{Client, Error, Lock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// One turn of a task: takes the lock in one of the ways, and lets it go in one of the ways.
async fn turn(recorder: &Recorder, lock: Lock, owner: &str, number: usize) {
    let key = String::from_utf8(lock.key().to_vec()).unwrap();
    let short = number.is_multiple_of(5);
    let lease = if short { Duration::from_millis(60) } else { Duration::from_secs(30) };
    let lock = if short { lock.fixed_lease(lease) } else { lock.lease(lease) };
    let timeout = (!number.is_multiple_of(3)).then_some(Duration::from_millis(400));
    let request = Request::Acquire { lease, timeout };
    let call = recorder.sent(&key, owner, request);
    let granted = match timeout {
        Some(timeout) => lock.acquire_within(timeout).await,
        None => lock.try_acquire().await,
    };
    let guard = match granted {
        Ok(Some(guard)) => guard,
        Ok(None) => return recorder.answered(call, Outcome::Refused),
        // The answer came when the lease was over.
        Err(Error::Timeout) => return recorder.answered(call, Outcome::Unknown),
        Err(trouble) => panic!("{trouble}"),
    };
    let valid_until = recorder.now() + guard.lease_left();
    let token = guard.token().value();
    recorder.answered(call, Outcome::Granted { token, holds: 1 });
    recorder.believed(call, valid_until);
    recorder.known_as(call, guard.owner());
    if short && number.is_multiple_of(2) {
        guard.lost().await;
        // It is given back a little before the lease ends, in the background.
        let call = recorder.sent(&key, owner, Request::Release);
        drop(guard);
        return recorder.answered(call, Outcome::Unknown);
    }
    let call = recorder.sent(&key, owner, Request::Release);
    match guard.release().await {
        Ok(()) => recorder.answered(call, Outcome::Released { left: 0 }),
        Err(Error::Lost) => recorder.answered(call, Outcome::Refused),
        Err(trouble) => panic!("{trouble}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_many_tasks_of_many_clients_see_is_explained_by_a_lock() {
    let server = Server::start();
    let recorder = Arc::new(Recorder::new());
    let over = Arc::new(AtomicBool::new(false));
    let looks = {
        let (eye, recorder, over) = (server.connect(), recorder.clone(), over.clone());
        std::thread::spawn(move || lines::watch(eye, &["busy", "rare"], &recorder, &over))
    };
    let mut tasks = tokio::task::JoinSet::new();
    for client in 0..6 {
        let connected = Client::connect(server.url()).await.unwrap();
        for task in 0..4 {
            let (client_, recorder) = (connected.clone(), recorder.clone());
            tasks.spawn(async move {
                for number in 0..60 {
                    let key = if number % 6 == 0 { "rare" } else { "busy" };
                    // Every acquisition is an owner of its own.
                    let owner = format!("{client}-{task}-{number}");
                    turn(&recorder, client_.lock(key), &owner, number + task).await;
                }
            });
        }
    }
    while let Some(done) = soon(tasks.join_next()).await {
        done.unwrap();
    }
    over.store(true, Ordering::Relaxed);
    looks.join().unwrap();
    let calls = recorder.calls();
    let queued = calls.iter().filter(|call| call.queued.is_some()).count();
    assert!(queued > 100, "only {queued} were seen in line");
    let granted =
        calls.iter().filter(|c| matches!(c.answer, Some((_, Outcome::Granted { .. })))).count();
    assert!(granted > 200, "only {granted} grants");
    assert_correct(&calls, &Limits { prompt: Duration::from_secs(2), ..Limits::default() });
    let client = Client::connect(server.url()).await.unwrap();
    let mut stage = Stage { control: server.connect(), server, client };
    stage.assert_nothing_is_left().await;
}
