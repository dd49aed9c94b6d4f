//! Figures in the text format of Prometheus.

use crate::watched::{Entry, Figures, Histogram};
use std::fmt::Write as _;

/// What grows, and is called `…_total`.
const COUNTERS: [(&str, &str); 28] = [
    ("granted", "New grants, hand-offs included"),
    ("granted_shared", "Grants that share a lock"),
    ("downgraded", "Locks that their one holder went on sharing"),
    ("swept", "Owners taken out of shared locks and semaphores because their lease had ended"),
    ("search_steps", "Fields of hashes that were looked at to find dead owners"),
    ("reentered", "Acquires that added a hold"),
    ("repeated", "Acquires and releases that were repetitions"),
    ("redisson_turns", "Locks left free for a moment for clients of Redisson"),
    ("refused", "Acquires answered nil"),
    ("released", "Locks given up by their owner"),
    ("handed_off", "Grants to the first in line"),
    ("handed_off_by_expiry", "Hand-offs for which a lease had to end: a holder died or stalled"),
    ("timeouts", "Waits that ended because their time was over"),
    ("cancelled", "Waits that were withdrawn"),
    ("disconnects", "Waits whose connection closed"),
    ("forced_releases", "Locks taken away by force"),
    ("latches_opened", "Latches that opened"),
    ("released_by_latches", "Waits that ended because a latch opened"),
    ("grants_taken_back", "Hand-offs to a client that was gone before it was answered"),
    ("turns", "Turns of the event loop with something to do outside commands"),
    ("quarantines", "Quarantines that have begun"),
    ("not_replicated", "Changes that the server did not pass on to replicas and files"),
    ("readers_replaced", "Readers of sessions that were replaced by a later one"),
    ("sessions_gone", "Sessions that ended because nobody read for too long"),
    ("changes", "Changes of locks that were observed"),
    ("changes_told", "How many times an observer was to be told of one"),
    ("bound_released", "Bound locks and semaphores released because their session was gone"),
    ("caught_panics", "Bugs that were caught before they could harm the server"),
];

/// What is so now.
const GAUGES: [(&str, &str); 12] = [
    ("waiters", "How many wait, blocked or through sessions"),
    ("blocked", "How many wait as blocked clients"),
    ("waiters_peak", "The most that ever waited at once"),
    ("waiting_keys", "Locks with a queue"),
    ("sessions", "Sessions"),
    ("sessions_away", "Sessions whose reader's connection was lost"),
    ("session_waits", "Waits through sessions"),
    ("unread_outcomes", "Outcomes that are kept until their readers acknowledge them"),
    ("observers", "Observations of locks by sessions"),
    ("observed_keys", "Locks that are observed"),
    ("bound", "Locks and semaphores that are bound to sessions"),
    ("waiters_memory_bytes", "What waiting costs in memory, estimated"),
];

/// Times: what they are called there and here, and how many of them are a second.
const TIMES: [(&str, &str, u32, &str); 2] = [
    (
        "longest_turn_us",
        "longest_turn_seconds",
        1_000_000,
        "The longest time for which one turn of the event loop was kept",
    ),
    (
        "quarantine_left_ms",
        "quarantine_left_seconds",
        1000,
        "For how long nothing new is granted yet",
    ),
];

const HISTOGRAMS: [(&str, &str, &str); 2] = [
    ("wait_time_ms", "wait_seconds", "How long those had waited who were handed a lock or permits"),
    ("hold_time_ms", "hold_seconds", "How long locks were held that their one owner released"),
];

/// What is said of a lock that costs much: the name there and here, and how many of them are one here.
const COSTS: [(&str, &str, u32, &str); 4] = [
    (
        "waited",
        "waited_seconds",
        1000,
        "What those had waited who got it, added up since the profile began",
    ),
    ("longest-wait", "longest_wait_seconds", 1000, "What the one had waited who waited longest"),
    ("hand-offs", "hand_offs", 1, "How many got it after they had waited"),
    ("held", "held_seconds", 1000, "How long it was held by those who handed it on"),
];

/// The ends of all buckets, in milliseconds.
fn ends() -> impl Iterator<Item = u64> {
    (0..22).map(|power| 1_u64 << power)
}

/// The whole page.
pub(super) fn page(figures: &Figures, costs: &[Entry]) -> String {
    let mut page = String::new();
    sample(&mut page, ("kvlock_up", "gauge", "Whether the server answered"), "", "1");
    let (server, version) = figures.server();
    let labels = labels(&[
        ("server", server),
        ("version", version),
        ("role", figures.text("role")),
        ("sources", figures.text("kvlock_sources")),
    ]);
    sample(&mut page, ("kvlock_info", "gauge", "Which server this is"), &labels, "1");
    for (name, value) in figures.ours() {
        if let Some((_, as_called, help)) = HISTOGRAMS.iter().find(|it| it.0 == name) {
            if let Some(histogram) = figures.histogram(&format!("kvlock_{name}")) {
                distribution(&mut page, as_called, help, &histogram);
            }
        } else if let Ok(number) = value.parse::<u64>() {
            figure(&mut page, name, number);
        }
    }
    for (name, as_called, per, help) in COSTS {
        let name_here = format!("kvlock_lock_{as_called}");
        for (first, cost) in costs.iter().enumerate().map(|(at, cost)| (at == 0, cost)) {
            if first {
                head(&mut page, (&name_here, "gauge", help));
            }
            let key = cost.text("key");
            let labels = self::labels(&[("key", &key), ("kind", &cost.text("kind"))]);
            let value = scaled(cost.number(name).unwrap_or_default(), per);
            let _infallible = writeln!(page, "{name_here}{labels} {value}");
        }
    }
    page
}

/// The page of a server that did not answer.
pub(super) fn nobody() -> String {
    let mut page = String::new();
    sample(&mut page, ("kvlock_up", "gauge", "Whether the server answered"), "", "0");
    page
}

/// One number. What a newer module counts has no description here.
fn figure(page: &mut String, name: &str, number: u64) {
    let called = |list: &[(&str, &'static str)]| list.iter().find(|it| it.0 == name).map(|it| it.1);
    if let Some(help) = called(&COUNTERS) {
        let name = format!("kvlock_{name}_total");
        sample(page, (&name, "counter", help), "", &number.to_string());
    } else if let Some(help) = called(&GAUGES) {
        sample(page, (&format!("kvlock_{name}"), "gauge", help), "", &number.to_string());
    } else if let Some((_, as_called, per, help)) = TIMES.iter().find(|it| it.0 == name) {
        let value = scaled(number, *per);
        sample(page, (&format!("kvlock_{as_called}"), "gauge", help), "", &value);
    } else {
        let help = "See docs/operations.md";
        sample(page, (&format!("kvlock_{name}"), "untyped", help), "", &number.to_string());
    }
}

fn distribution(page: &mut String, name: &str, help: &str, histogram: &Histogram) {
    let name = format!("kvlock_{name}");
    head(page, (&name, "histogram", help));
    let mut reached = 0_u64;
    for end in ends() {
        reached = reached.saturating_add(histogram.buckets.get(&end).copied().unwrap_or_default());
        let _infallible = writeln!(page, "{name}_bucket{{le=\"{}\"}} {reached}", scaled(end, 1000));
    }
    let _infallible = writeln!(page, "{name}_bucket{{le=\"+Inf\"}} {}", histogram.count);
    let _infallible = writeln!(page, "{name}_sum {}", scaled(histogram.sum_us, 1_000_000));
    let _infallible = writeln!(page, "{name}_count {}", histogram.count);
}

fn head(page: &mut String, (name, kind, help): (&str, &str, &str)) {
    let _infallible = writeln!(page, "# HELP {name} {help}.\n# TYPE {name} {kind}");
}

fn sample(page: &mut String, what: (&str, &str, &str), labels: &str, value: &str) {
    head(page, what);
    let _infallible = writeln!(page, "{}{labels} {value}", what.0);
}

/// A number of parts of a unit, in that unit, without rounding.
fn scaled(number: u64, per: u32) -> String {
    let per = u64::from(per);
    let (whole, rest) = (number / per, number % per);
    if rest == 0 {
        return whole.to_string();
    }
    let digits = per.ilog10() as usize;
    format!("{whole}.{rest:0digits$}").trim_end_matches('0').to_owned()
}

fn labels(pairs: &[(&str, &str)]) -> String {
    let escaped =
        |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let pairs = pairs.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
    format!("{{{}}}", pairs.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_become_counters_gauges_and_distributions() {
        let figures = Figures::read(
            "redis_version:8.0.2\r\nrole:master\r\nkvlock_granted:7\r\nkvlock_waiters:2\r\n\
             kvlock_longest_turn_us:1500\r\nkvlock_newer:3\r\nkvlock_sources:ab12\r\n\
             kvlock_wait_time_ms:count=3,sum_us=2050001,1=1,4=1,inf=1\r\n",
        );
        let page = page(&figures, &[]);
        for line in [
            "kvlock_up 1",
            "kvlock_info{server=\"redis\",version=\"8.0.2\",role=\"master\",sources=\"ab12\"} 1",
            "# TYPE kvlock_granted_total counter",
            "kvlock_granted_total 7",
            "kvlock_waiters 2",
            "kvlock_longest_turn_seconds 0.0015",
            "# TYPE kvlock_newer untyped",
            "kvlock_wait_seconds_bucket{le=\"0.001\"} 1",
            "kvlock_wait_seconds_bucket{le=\"0.002\"} 1",
            "kvlock_wait_seconds_bucket{le=\"0.004\"} 2",
            "kvlock_wait_seconds_bucket{le=\"2097.152\"} 2",
            "kvlock_wait_seconds_bucket{le=\"+Inf\"} 3",
            "kvlock_wait_seconds_sum 2.050001",
            "kvlock_wait_seconds_count 3",
        ] {
            assert!(page.lines().any(|it| it == line), "{line} is not in\n{page}");
        }
        assert!(!page.contains("kvlock_sources"), "{page}");
    }

    #[test]
    fn a_name_cannot_break_the_page() {
        assert_eq!(labels(&[("key", "a\"b\\c\nd")]), r#"{key="a\"b\\c\nd"}"#);
    }
}
