//! `kvlock metrics`: once, and over HTTP.

use super::older::Older;
use super::{SOON, Stage, Started, granted};
use harness::{cmd, wait};
use nix::sys::signal::Signal;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// The value of a series.
#[track_caller]
fn value<'a>(page: &'a str, series: &str) -> &'a str {
    let found = page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("{series} is not in\n{page}"))
}

/// A server on which a lock was granted after a wait.
fn contended() -> Stage {
    let mut stage = Stage::set();
    stage.take_lock();
    let mut next = stage.next_in_line();
    stage.control.run("LOCK.RELEASE k another");
    granted(&mut next);
    stage
}

#[test]
fn figures_are_printed_once() {
    figures_are_printed("");
}

#[test]
fn figures_are_printed_in_the_newer_protocol() {
    figures_are_printed("?protocol=resp3");
}

fn figures_are_printed(protocol: &str) {
    let stage = contended();
    let mut program = stage.kvlock(&["metrics", "--locks", "5"]);
    program.env("KVLOCK_URL", format!("{}{protocol}", stage.server.url()));
    let done = Started::new(program).done();
    done.assert_code(0);
    let page = &done.out;
    for (series, expected) in [
        ("kvlock_up", "1"),
        ("kvlock_granted_total", "2"),
        ("kvlock_handed_off_total", "1"),
        ("kvlock_waiters", "0"),
        ("kvlock_wait_seconds_count", "1"),
        ("kvlock_wait_seconds_bucket{le=\"+Inf\"}", "1"),
        ("kvlock_hold_seconds_count", "1"),
        ("kvlock_lock_hand_offs{key=\"k\",kind=\"lock\"}", "1"),
    ] {
        assert_eq!(value(page, series), expected, "{series} in\n{page}");
    }
    assert!(value(page, "kvlock_wait_seconds_sum").parse::<f64>().unwrap() < 60.0, "{page}");
    // Each metric has one header.
    let heads: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    let names: std::collections::BTreeSet<_> =
        heads.iter().filter_map(|head| head.split(' ').next()).collect();
    assert_eq!(names.len(), heads.len(), "{page}");
    // The program knows the type of each counter that this module reports.
    assert!(!page.contains(" untyped"), "{page}");
    // Without `--locks` no lock is included.
    let done = stage.start(&["metrics"]).done();
    done.assert_code(0);
    assert!(value(&done.out, "kvlock_up") == "1" && !done.out.contains("kvlock_lock_"), "{done:?}");
}

#[test]
fn a_missing_right_is_named() {
    let mut stage = Stage::set();
    stage.control.run("ACL SETUSER default -lock.profile");
    let done = stage.start(&["metrics", "--locks", "5"]).done();
    done.assert_code(125);
    assert!(done.err.contains("no LOCK.PROFILE") && done.err.lines().count() == 1, "{done:?}");
    assert!(done.out.is_empty(), "{done:?}");
    stage.start(&["metrics"]).done().assert_code(0);
    stage.control.run("ACL SETUSER default -info");
    for task in [&["metrics"][..], &["metrics", "--locks", "5"]] {
        let done = stage.start(task).done();
        done.assert_code(125);
        assert!(done.err.contains("denies") && done.err.lines().count() == 1, "{done:?}");
        assert!(done.err.contains("info") && done.out.is_empty(), "{done:?}");
    }
}

#[test]
fn the_counters_of_an_older_module_are_printed() {
    let older = Older::start();
    let done = older.kvlock(&["metrics"]).done();
    done.assert_code(0);
    assert_eq!(
        (value(&done.out, "kvlock_up"), value(&done.out, "kvlock_granted_total")),
        ("1", "7")
    );
    assert!(!done.out.contains("seconds"), "{done:?}");
    let done = older.kvlock(&["metrics", "--locks", "5"]).done();
    done.assert_code(125);
    assert!(done.err.contains("the module is older") && done.err.lines().count() == 1, "{done:?}");
    assert!(done.out.is_empty(), "{done:?}");
}

/// Starts the program as an HTTP server. Returns it, and its address.
fn serving(stage: &Stage) -> (Started, String) {
    serving_by(stage.kvlock(&["metrics", "--listen", "127.0.0.1:0"]))
}

fn serving_by(command: Command) -> (Started, String) {
    let program = Started::new(command);
    let place = wait::until("it prints its address", SOON, || {
        let said = program.err();
        let place = said.split_once("http://").and_then(|(_, rest)| rest.split_once("/metrics"));
        place.map(|(place, _)| place.to_owned()).ok_or(said)
    });
    (program, place)
}

pub(crate) fn get(place: &str, request: &str) -> String {
    answer(TcpStream::connect(place).unwrap(), request)
}

/// Sends a request, and returns the answer.
pub(crate) fn answer(mut stream: TcpStream, request: &str) -> String {
    write!(stream, "{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn pages_are_served_and_show_whether_the_server_answers() {
    let stage = contended();
    let (_program, place) = serving(&stage);
    let answer = get(&place, "GET /metrics");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("version=0.0.4"), "{answer}");
    assert_eq!(value(&answer, "kvlock_granted_total"), "2");
    assert!(get(&place, "GET /").starts_with("HTTP/1.1 404 "));
    assert!(get(&place, "POST /metrics").starts_with("HTTP/1.1 405 "));
    stage.server.kill9();
    let answer = get(&place, "GET /metrics");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert_eq!(value(&answer, "kvlock_up"), "0");
    assert!(!answer.contains("kvlock_granted_total"), "{answer}");
}

#[test]
fn an_address_in_use_is_reported() {
    let stage = Stage::set();
    let place = format!("127.0.0.1:{}", stage.server.port());
    let done = stage.start(&["metrics", "--listen", &place]).done();
    done.assert_code(125);
    assert!(done.err.starts_with(&format!("kvlock: {place}: ")), "{done:?}");
}

#[test]
fn a_cluster_and_sentinels_are_refused() {
    let stage = Stage::set();
    let sentinels = "redis-sentinel://127.0.0.1:1/?sentinelServiceName=one";
    let tasks = [&["metrics"][..], &["metrics", "--listen", "127.0.0.1:0"], &["top"]];
    for url in ["redis-cluster://127.0.0.1:1,127.0.0.1:2", sentinels] {
        for task in tasks {
            let done = stage.start(&[&["--url", url], task].concat()).done();
            done.assert_code(2);
            assert!(done.err.contains("name one of them"), "{done:?}");
        }
    }
}

/// Less than the ten seconds for which Prometheus waits by default. A later page cannot report that the
/// server is down.
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(8);

#[test]
fn a_server_that_does_not_answer_is_reported_in_time_to_many_scrapes() {
    let mute = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvlock"));
    command.args(["metrics", "--listen", "127.0.0.1:0"]);
    // Each part of the login waits for an answer.
    command.env("KVLOCK_URL", format!("redis://user:word@{}/1", mute.local_addr().unwrap()));
    let (_program, place) = serving_by(command);
    let began = Instant::now();
    let scrapes = [(); 40].map(|()| {
        let place = place.clone();
        thread::spawn(move || get(&place, "GET /metrics"))
    });
    for scrape in scrapes {
        assert_eq!(value(&scrape.join().unwrap(), "kvlock_up"), "0");
    }
    assert!(began.elapsed() < SCRAPE_TIMEOUT, "{:?}", began.elapsed());
}

#[test]
fn clients_that_send_half_a_request_delay_no_scrape() {
    let stage = contended();
    let (_program, place) = serving(&stage);
    let idle = [(); 300].map(|()| {
        let mut stream = TcpStream::connect(&place).unwrap();
        // The program closes some of these connections, to make room.
        let _closed = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost:");
        stream
    });
    let began = Instant::now();
    assert_eq!(value(&get(&place, "GET /metrics"), "kvlock_up"), "1");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    drop(idle);
}

#[test]
fn names_that_differ_in_invalid_utf8_only_are_different_series() {
    let mut stage = Stage::set();
    for key in [&b"bin\xff"[..], b"bin\xfe", b"bin\\xff"] {
        stage.control.call(cmd!["LOCK.ACQUIRE", key, "holder", 600_000]);
        let mut next = stage.server.connect();
        let id = next.client_id();
        next.send(cmd!["LOCK.WAIT", key, "next", 600_000, 0]);
        harness::observe::wait_until_blocked(&mut stage.control, id);
        stage.control.call(cmd!["LOCK.RELEASE", key, "holder"]);
        granted(&mut next);
    }
    let done = stage.start(&["metrics", "--locks", "5"]).done();
    done.assert_code(0);
    let series = done.out.lines().filter_map(|line| line.strip_prefix("kvlock_lock_hand_offs{"));
    let series: std::collections::BTreeSet<_> = series.collect();
    assert_eq!(series.len(), 3, "{series:?}");
}

/// The kernel does not deliver a signal without a handler to process 1 of a container.
#[test]
fn the_program_handles_the_signal_that_ends_it() {
    let stage = Stage::set();
    let (program, _) = serving(&stage);
    program.wait_until_blocked(Signal::SIGTERM);
    program.signal(Signal::SIGTERM);
    program.done().assert_signal(Signal::SIGTERM);
}
