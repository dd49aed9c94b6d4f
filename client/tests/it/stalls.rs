//! Servers and connections that do not answer for a while: no lock is lost.

use super::{LONG, SOON, Stage, ok, soon, wait_for_more};
use harness::proxy::Proxy;
use harness::{Connection, Value, cmd, observe, wait};
use kvlock::{Client, Held};
use nix::sys::signal::Signal;
use std::time::{Duration, Instant};

/// After a wait, a lock has a lease of two seconds at first, and is renewed after a third of that.
#[tokio::test(flavor = "multi_thread")]
async fn a_stall_at_the_first_renewal_of_an_offer_loses_nothing() {
    let mut stage = Stage::set().await;
    let mut phases = vec![600, 620, 640];
    while let Some(stalls_after) = phases.last().copied() {
        stage.taken("k");
        let waiter = stage.in_line(stage.client.lock("k"));
        let granted = Instant::now();
        stage.control.run("LOCK.RELEASE k somebody");
        let guard = ok(waiter).await.unwrap();
        let at = |ms| tokio::time::sleep_until((granted + Duration::from_millis(ms)).into());
        at(stalls_after).await;
        stage.server.signal(Signal::SIGSTOP);
        at(stalls_after + 450).await;
        stage.server.signal(Signal::SIGCONT);
        // On a busy machine a stall may last too long. Then it is repeated.
        if granted.elapsed() < Duration::from_millis(1_150) {
            wait_for_more(Duration::from_secs(20), || guard.lease_left());
            assert!(!guard.is_lost(), "{stalls_after}");
            phases.pop();
        }
        drop(guard);
        soon(stage.client.settled()).await;
    }
}

/// The watchdog renews over another connection while a call of the program waits for its answer.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_connection_loses_nothing_while_a_call_waits_for_an_answer_over_it() {
    for what in ["proclaim", "extend", "re-enter"] {
        let (stage, proxy) = Stage::behind(Client::builder().lease(Duration::from_secs(3))).await;
        let lock = stage.client.lock("k").owner(&stage.client.owner());
        let leader = ok(stage.client.election("e").campaign()).await;
        let outer = ok(lock.acquire()).await;
        let mut inner = ok(lock.acquire()).await;
        proxy.cut_open();
        let asks = async {
            match what {
                "proclaim" => leader.proclaim("other").await,
                "extend" => inner.extend(Duration::from_secs(60)).await,
                _ => lock.acquire().await.map(drop),
            }
        };
        let looks = async {
            tokio::time::sleep(Duration::from_secs(6)).await;
            let lost = |held: &Held| held.why_lost();
            assert_eq!((lost(&outer), lost(&leader)), (None, None), "{what}");
        };
        let (asked, ()) = tokio::join!(soon(asks), looks);
        assert!(!asked.is_err_and(|trouble| trouble.is_lost()), "{what}");
        drop((outer, inner, leader));
        soon(stage.client.settled()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_no_longer_polled_does_not_stop_renewals() {
    let mut stage = Stage::with(Client::builder().lease(Duration::from_secs(2))).await;
    let leader = ok(stage.client.election("e").campaign()).await;
    {
        let mut proclaims = std::pin::pin!(leader.proclaim("other"));
        let polled = std::future::poll_fn(|context| {
            let done = proclaims.as_mut().poll(context);
            std::task::Poll::Ready(done.is_ready())
        });
        // A fast server could answer before the end of the first poll.
        stage.server.signal(Signal::SIGSTOP);
        assert!(!polled.await, "it waits for an answer");
        stage.server.signal(Signal::SIGCONT);
        observe::let_pass(&mut stage.control, Duration::from_secs(4));
        assert_eq!(leader.why_lost(), None);
        ok(proclaims).await;
    }
    ok(leader.resign()).await;
}

/// The server may leave a heartbeat unanswered for half of the session's TTL.
#[tokio::test(flavor = "multi_thread")]
async fn bound_locks_survive_a_stall_of_half_their_sessions_time() {
    let builder = Client::builder().lease(LONG).session_ttl(Duration::from_secs(10));
    let mut stage = Stage::with(builder.margin(Duration::from_millis(2_500))).await;
    let guard = ok(stage.client.lock("k").bound().acquire()).await;
    // Each stall begins at a different time between two heartbeats.
    for phase in [0, 1_100, 2_300] {
        observe::let_pass(&mut stage.control, Duration::from_millis(3_500 + phase));
        stage.server.signal(Signal::SIGSTOP);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(guard.why_lost(), None, "{phase}");
        stage.server.signal(Signal::SIGCONT);
    }
    ok(guard.release()).await;
}

/// A script that runs for `ms` milliseconds.
fn script(ms: u64) -> String {
    format!(
        "local function now() local t = redis.call('TIME') return t[1] * 1000 + t[2] / 1000 end \
         local e = now() + {ms} repeat until now() >= e"
    )
}

/// Starts a script that runs for five seconds. Returns its connection when the server answers `BUSY`.
fn runs_long(stage: &Stage) -> Connection {
    let mut looks = stage.server.connect();
    looks.run("CONFIG SET busy-reply-threshold 100");
    let mut runs = stage.server.connect();
    runs.send(cmd!["EVAL", script(5_000), 0]);
    wait::until("it is busy", SOON, || match looks.run("PING") {
        answer if answer.is_error() => Ok(()),
        other => Err(other.to_string()),
    });
    runs
}

/// While a script runs for longer than the threshold, the server answers `BUSY` to almost every command.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_script_is_waited_for_and_nothing_is_left_behind() {
    let mut stage = Stage::with(Client::builder().lease(LONG)).await;
    let (client, lock) = (stage.client.clone(), |name| stage.client.lock(name));
    let dropped = ok(lock("dropped").acquire()).await;
    let released = ok(lock("released").acquire()).await;
    let mut extended = ok(lock("extended").acquire()).await;
    stage.control.run("LOCK.ACQUIRE k somebody 600000");
    let waiter = super::waits(&lock("k"));
    observe::wait_for_waiters(&mut stage.control, "k", 1);
    let mut runs = runs_long(&stage);
    drop(dropped);
    waiter.abort();
    let election = client.election("leads");
    let (acquires, within, campaigns) = (lock("a"), lock("b"), election.campaign_within(SOON));
    let (release, extend, acquire, within, campaign) = tokio::join!(
        soon(released.release()),
        soon(extended.extend(LONG)),
        soon(acquires.acquire()),
        soon(within.acquire_within(SOON)),
        soon(campaigns),
    );
    assert!(!release.is_err_and(|trouble| trouble.is_lost()));
    extend.unwrap();
    ok(extended.release()).await;
    ok(acquire.unwrap().release()).await;
    ok(within.unwrap().unwrap().release()).await;
    ok(campaign.unwrap().unwrap().resign()).await;
    assert!(!runs.receive(SOON).unwrap().is_error());
    soon(client.settled()).await;
    for key in ["dropped", "released"] {
        assert!(stage.is_free(key), "{key}");
    }
    observe::wait_for_waiters(&mut stage.control, "k", 0);
    stage.control.run("LOCK.RELEASE k somebody");
}

/// The `SELECT` of a new connection is refused too.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_script_is_waited_for_in_another_database() {
    let stage = Stage::set().await;
    let proxy = Proxy::before(&stage.server);
    let url = format!("{}3", proxy.url());
    let client = Client::builder().lease(LONG).connect(url).await.unwrap();
    let guard = ok(client.lock("dropped").acquire()).await;
    let mut runs = runs_long(&stage);
    proxy.hang_up();
    drop(guard);
    ok(ok(client.lock("k").acquire()).await.release()).await;
    assert!(!runs.receive(SOON).unwrap().is_error());
    soon(client.settled()).await;
    let mut there = stage.server.connect();
    there.run("SELECT 3");
    assert_eq!(there.run("EXISTS dropped"), Value::Integer(0));
}

/// The server has no room for the connection that would replace the one that was silent.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_after_a_short_silence_is_used_if_there_is_no_other() {
    let mut stage = Stage::with(Client::builder().lease(Duration::from_secs(6))).await;
    let guard = ok(stage.client.lock("k").acquire()).await;
    stage.control.run("CONFIG SET maxclients 1");
    let at = |ms| tokio::time::sleep(Duration::from_millis(ms));
    at(1_500).await;
    // The client sends a renewal after two seconds, and gives it up after two more.
    stage.server.signal(Signal::SIGSTOP);
    at(2_500).await;
    stage.server.signal(Signal::SIGCONT);
    at(4_000).await;
    assert_eq!(guard.why_lost(), None);
    stage.control.run("CONFIG SET maxclients 100");
    ok(guard.release()).await;
}

/// After a stall, the client replaces the connection over which the waiter was queued.
#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_connection_is_closed_even_during_long_waits() {
    let mut stage = Stage::with(Client::builder().lease(Duration::from_millis(1_500))).await;
    let guard = ok(stage.client.lock("held").acquire()).await;
    let opened = observe::info_number(&mut stage.control, "total_connections_received");
    let mut waiters = Vec::new();
    for round in 0..4 {
        let name = format!("k{round}");
        stage.taken(&name);
        waiters.push(stage.in_line(stage.client.lock(name)));
        stage.server.signal(Signal::SIGSTOP);
        tokio::time::sleep(Duration::from_millis(900)).await;
        stage.server.signal(Signal::SIGCONT);
        super::wait_for_renewals(&mut stage.control, 2);
    }
    let count = |field, control: &mut _| observe::info_number(control, field);
    let more = count("total_connections_received", &mut stage.control) - opened;
    assert!(more > 2, "{more} connections: too few were replaced to show anything");
    // The client has one for commands and one for outcomes; this test has one.
    wait::until("replaced connections are closed", SOON, || {
        match observe::info_number(&mut stage.control, "connected_clients") {
            0..=4 => Ok(()),
            many => Err(many.to_string()),
        }
    });
    waiters.iter().for_each(|waiter| waiter.abort());
    drop(guard);
}
