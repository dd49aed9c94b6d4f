//! The text format of Prometheus.

use crate::monitor::{Entry, Figures, Histogram};
use ring::digest::{SHA256, digest};
use std::fmt::Write as _;

/// Counters: name in `INFO` without the prefix `kvlock_`, and description. Exported with the suffix `_total`.
const COUNTERS: [(&str, &str); 30] = [
    ("granted", "New grants, hand-offs included"),
    ("granted_shared", "Grants that share a lock"),
    ("downgraded", "Exclusive locks that became shared locks of their holder"),
    ("swept", "Owners removed from shared locks and semaphores because their lease had ended"),
    ("search_steps", "Fields of hashes that were read to find owners whose lease has ended"),
    ("reentered", "Acquires that added a hold"),
    ("repeated", "Acquires and releases that were repetitions"),
    ("redisson_turns", "Moments in which a lock was left free for a process of Redisson"),
    ("refused", "Acquires answered nil"),
    ("released", "Locks released by their owner"),
    ("handed_off", "Grants to the first waiter"),
    ("handed_off_by_expiry", "Hand-offs after a lease ended: its holder died or stalled"),
    ("timeouts", "Waits that ended because their timeout passed"),
    ("cancelled", "Waits that were cancelled"),
    ("told_ready", "Acquires and waits with UNLESS that were answered ready"),
    ("deadlocks", "Waits refused with DEADLOCK: their owners would have waited for themselves"),
    ("disconnects", "Waits whose connection closed"),
    ("forced_releases", "Locks released by force"),
    ("latches_opened", "Latches that opened"),
    ("released_by_latches", "Waits that ended because a latch opened"),
    ("grants_taken_back", "Hand-offs to a client that disconnected before it was answered"),
    ("turns", "Turns of the event loop with work outside commands"),
    ("quarantines", "Quarantines that have begun"),
    ("not_replicated", "Changes that the server did not pass on to replicas and files"),
    ("readers_replaced", "Readers of sessions that were replaced by a later one"),
    ("sessions_gone", "Sessions that ended because they had no reader for too long"),
    ("changes", "Changes of locks that were observed"),
    ("changes_told", "Changes queued for observers: one for each change and observer"),
    ("bound_released", "Bound locks and semaphores released because their session ended"),
    ("caught_panics", "Panics of the module that the server survived"),
];

/// Gauges: name in `INFO` without the prefix `kvlock_`, and description.
const GAUGES: [(&str, &str); 12] = [
    ("waiters", "Waiters, blocked or through sessions"),
    ("blocked", "Blocked clients: waiters, and readers of sessions"),
    ("waiters_peak", "Largest number of waiters since the module was loaded"),
    ("waiting_keys", "Locks, semaphores and latches with waiters"),
    ("sessions", "Sessions"),
    ("sessions_away", "Sessions whose reader's connection was lost"),
    ("session_waits", "Waits through sessions"),
    ("unread_outcomes", "Outcomes that are not acknowledged by their readers yet"),
    ("observers", "Observations of locks by sessions"),
    ("observed_keys", "Locks that are observed"),
    ("bound", "Locks and semaphores that are bound to sessions"),
    ("waiters_memory_bytes", "Estimated memory of waiters"),
];

/// Times: name in `INFO`, exported name, both without the prefix `kvlock_`, units per second, and
/// description.
const TIMES: [(&str, &str, u32, &str); 2] = [
    (
        "longest_turn_us",
        "longest_turn_seconds",
        1_000_000,
        "Most processor time of the module in one turn of the event loop",
    ),
    (
        "quarantine_left_ms",
        "quarantine_left_seconds",
        1000,
        "Rest of the quarantine, in which nothing new is granted",
    ),
];

const HISTOGRAMS: [(&str, &str, &str); 2] = [
    ("wait_time_ms", "wait_seconds", "Waiting time of clients that were granted a lock or permits"),
    (
        "hold_time_ms",
        "hold_seconds",
        "Time for which exclusive locks were held until their release",
    ),
];

/// Fields of `LOCK.PROFILE`: name in its reply, exported name without the prefix `kvlock_lock_`, divisor of
/// the value, and description.
const COSTS: [(&str, &str, u32, &str); 4] = [
    (
        "waited",
        "waited_seconds",
        1000,
        "Total waiting time of its waiters that were granted it, since the profile began",
    ),
    ("longest-wait", "longest_wait_seconds", 1000, "Longest waiting time"),
    ("hand-offs", "hand_offs", 1, "Grants after a wait"),
    ("held", "held_seconds", 1000, "Time for which it was held until a hand-off"),
];

/// Returns the upper limits of all buckets except the last one, in milliseconds.
fn ends() -> impl Iterator<Item = u64> {
    (0..22).map(|power| 1_u64 << power)
}

/// Returns the whole page.
pub(super) fn page(figures: &Figures, costs: &[Entry]) -> String {
    let mut page = String::new();
    sample(&mut page, ("kvlock_up", "gauge", "Whether the server answered"), "", "1");
    let (server, version) = figures.server();
    let server_labels = labels(&[
        ("server", server),
        ("version", version),
        ("role", figures.text("role")),
        ("sources", figures.text("kvlock_sources")),
    ]);
    sample(
        &mut page,
        ("kvlock_info", "gauge", "Server, version, role, and sources of the module"),
        &server_labels,
        "1",
    );
    for (name, value) in figures.of_module() {
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
            let key = key_label(&cost.bytes("key"));
            let labels = labels(&[("key", &key), ("kind", &cost.text("kind"))]);
            let value = scaled(cost.number(name).unwrap_or_default(), per);
            let _infallible = writeln!(page, "{name_here}{labels} {value}");
        }
    }
    page
}

/// Returns the page for a server whose counters could not be read.
pub(super) fn down() -> String {
    let mut page = String::new();
    sample(&mut page, ("kvlock_up", "gauge", "Whether the server answered"), "", "0");
    page
}

/// Adds one number to the page. A number that is not in the lists above, because the module is newer, is
/// exported as untyped and without its own description.
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

/// Formats `number` divided by `per`, a power of ten, without rounding.
fn scaled(number: u64, per: u32) -> String {
    let per = u64::from(per);
    let (whole, rest) = (number / per, number % per);
    if rest == 0 {
        return whole.to_string();
    }
    let digits = per.ilog10() as usize;
    format!("{whole}.{rest:0digits$}").trim_end_matches('0').to_owned()
}

/// Longest key that is shown in full, in bytes.
const LONGEST_KEY: usize = 256;

/// Largest number of bytes of a longer key that are shown.
const KEY_START: usize = 128;

/// Returns a key as a label. Two keys never have the same label: invalid UTF-8 is escaped, and so is
/// each backslash of the key. The label of a key longer than [`LONGEST_KEY`] consists of its start, its
/// length and its SHA-256 digest.
fn key_label(key: &[u8]) -> String {
    if key.len() <= LONGEST_KEY {
        return escaped_key(key);
    }
    let is_inside_character = |end: &usize| key.get(*end).is_some_and(|byte| byte & 0xC0 == 0x80);
    let end = (KEY_START - 3..=KEY_START).rev().find(|end| !is_inside_character(end));
    let mut label = escaped_key(key.get(..end.unwrap_or(KEY_START)).unwrap_or_default());
    // `\(` marks a shortened key: in the label of a shorter key, a backslash is doubled or begins `\x`.
    let _infallible = write!(label, "\\({} bytes, sha256 ", key.len());
    for byte in digest(&SHA256, key).as_ref() {
        let _infallible = write!(label, "{byte:02x}");
    }
    label.push(')');
    label
}

fn escaped_key(key: &[u8]) -> String {
    let mut label = String::new();
    for chunk in key.utf8_chunks() {
        label.push_str(&chunk.valid().replace('\\', "\\\\"));
        let _infallible = write!(label, "{}", chunk.invalid().escape_ascii());
    }
    label
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
    fn numbers_become_counters_gauges_and_histograms() {
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
    fn labels_are_escaped() {
        assert_eq!(labels(&[("key", "a\"b\\c\nd")]), r#"{key="a\"b\\c\nd"}"#);
    }

    #[test]
    fn keys_have_different_labels() {
        let long = "ä".repeat(4_000);
        let one_more = format!("{long}ä");
        let other_end = format!("{}ö", "ä".repeat(3_999));
        let label_of_long = key_label(long.as_bytes());
        let keys = [
            &b"bin\xff"[..],
            b"bin\xfe",
            "bin\u{fffd}".as_bytes(),
            b"bin\\xff",
            b"bin\\\\xff",
            long.as_bytes(),
            one_more.as_bytes(),
            other_end.as_bytes(),
            label_of_long.as_bytes(),
            &[0xff; 256],
            &[0xff; 257],
        ];
        let labels: std::collections::BTreeSet<_> = keys.iter().map(|key| key_label(key)).collect();
        assert_eq!(labels.len(), keys.len(), "{labels:?}");
        assert_eq!(key_label("aufträge:42".as_bytes()), "aufträge:42");
    }

    #[test]
    fn labels_of_long_keys_are_short() {
        let whole = "ä".repeat(LONGEST_KEY / 2);
        assert_eq!(key_label(whole.as_bytes()), whole);
        // The start ends between two characters.
        let label = key_label(format!("a{}", "ä".repeat(50_000)).as_bytes());
        let start = format!("a{}\\(100001 bytes, sha256 ", "ä".repeat((KEY_START - 1) / 2));
        assert!(label.starts_with(&start), "{label}");
        for key in [label.as_bytes(), &[0xff; 100_000]] {
            assert!(key_label(key).len() < 4 * KEY_START + 100, "{}", key_label(key));
        }
    }
}
