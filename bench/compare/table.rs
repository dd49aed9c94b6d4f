//! Figures as Markdown: ratios first, then medians with the smallest and the largest value.

use crate::contender::{self, Contender};
use crate::results::{BUSY, Origin, Results, Row, Spread};
use std::fmt::Write as _;

/// The table of a scenario.
pub(crate) struct Layout {
    pub(crate) scenario: &'static str,
    /// Heading of the first column, and the figure that it shows as a ratio to kvlock's figure.
    ratio: Option<(&'static str, &'static str)>,
    columns: &'static [(&'static str, &'static str)],
}

const COMMON: [(&str, &str); 2] = [("server CPU, us", "server_cpu_us"), ("commands", "commands")];

pub(crate) const LAYOUTS: &[Layout] = &[
    Layout {
        scenario: "1",
        ratio: Some(("server CPU", "server_cpu_us")),
        columns: &[
            COMMON[0],
            ("cycles/s", "cycles_per_s"),
            ("p50, us", "cycle_p50_us"),
            ("p99, us", "cycle_p99_us"),
            COMMON[1],
            ("bytes in", "bytes_in"),
            ("bytes out", "bytes_out"),
            ("server's core, share", "server_share"),
            ("load's", "load_share"),
        ],
    },
    Layout {
        scenario: "2",
        ratio: Some(("p50", "hand_off_p50_us")),
        columns: &[
            ("p50, us", "hand_off_p50_us"),
            ("p99, us", "hand_off_p99_us"),
            COMMON[0],
            ("clients' CPU, us", "load_cpu_us"),
            COMMON[1],
            ("hand-offs seen", "hand_offs"),
        ],
    },
    Layout {
        scenario: "3",
        ratio: Some(("cycles/s", "cycles_per_s")),
        columns: &[
            ("cycles/s", "cycles_per_s"),
            ("Jain", "jain"),
            ("least/s", "least_per_s"),
            ("most/s", "most_per_s"),
            ("longest wait, ms", "longest_wait_ms"),
            COMMON[0],
        ],
    },
    Layout {
        scenario: "4",
        ratio: Some(("cycles/s", "cycles_per_s")),
        columns: &[
            ("cycles/s", "cycles_per_s"),
            ("hand-off p50, us", "hand_off_p50_us"),
            ("p99, us", "hand_off_p99_us"),
            ("Jain", "jain"),
            ("longest wait, ms", "longest_wait_ms"),
            COMMON[0],
        ],
    },
    Layout {
        scenario: "5",
        ratio: Some(("p50", "late_p50_us")),
        columns: &[
            ("late p50, us", "late_p50_us"),
            ("p99, us", "late_p99_us"),
            ("largest, us", "late_max_us"),
            ("grants seen", "grants"),
        ],
    },
    Layout {
        scenario: "6",
        ratio: Some(("CPU per renewal", "renewal_us")),
        columns: &[
            ("server CPU per renewal, us", "renewal_us"),
            ("renewals/s", "renewals_per_s"),
            ("share of the server's core", "server_share"),
            ("share of the holder's core", "load_share"),
            ("memory per lock, bytes", "memory_bytes"),
        ],
    },
    Layout {
        scenario: "7",
        ratio: Some(("memory", "memory_bytes")),
        columns: &[
            ("memory per waiter, bytes", "memory_bytes"),
            ("resident", "resident_bytes"),
            ("connections", "connections"),
            ("commands/s while waiting", "commands_per_s"),
            ("share of the server's core", "server_share"),
        ],
    },
    Layout {
        scenario: "8",
        ratio: None,
        columns: &[
            ("two commands p50, us", "two_commands_p50_us"),
            ("p99, us", "two_commands_p99_us"),
            ("server CPU per command, us", "server_cpu_per_command_us"),
            ("SET, us", "set_us"),
            ("GET, us", "get_us"),
            ("HSET, us", "hset_us"),
            ("DEL, us", "del_us"),
        ],
    },
    Layout {
        scenario: "9",
        ratio: None,
        columns: &[
            ("cycles/s", "cycles_per_s"),
            ("share of kvlock", "share of kvlock"),
            ("share of Redisson", "share of Redisson"),
            ("longest wait of kvlock, ms", "longest wait of kvlock, ms"),
            ("longest wait of Redisson, ms", "longest wait of Redisson, ms"),
        ],
    },
    Layout {
        scenario: "10",
        ratio: Some(("server CPU", "server_cpu_us")),
        columns: &[
            COMMON[0],
            ("cycles/s", "cycles_per_s"),
            COMMON[1],
            ("bytes in", "bytes_in"),
            ("bytes out", "bytes_out"),
            ("server's core, share", "server_share"),
            ("load's", "load_share"),
            ("last reader let in p50, us", "granted_p50_us"),
            ("max", "granted_max_us"),
            ("longest PING meanwhile p50, us", "stall_p50_us"),
            ("max", "stall_max_us"),
            ("longest PING in quiet p50, us", "quiet_p50_us"),
            ("max", "quiet_max_us"),
            ("all leave p50, us", "leaving_p50_us"),
            ("longest PING as they leave p50, us", "leaving_stall_p50_us"),
            ("writer let in p50, us", "writer_p50_us"),
            ("max", "writer_max_us"),
            ("turns", "turns"),
        ],
    },
    Layout {
        scenario: "11",
        ratio: None,
        columns: &[
            ("p50, x blocked", "of_blocked"),
            ("p50, us", "session_p50_us"),
            ("p99, us", "session_p99_us"),
            ("blocked p50, us", "blocked_p50_us"),
            ("p99, us", "blocked_p99_us"),
            ("hand-offs of each", "hand_offs"),
        ],
    },
    Layout {
        scenario: "12",
        ratio: None,
        columns: &[
            ("until the next leads p50, ms", "hand_off_p50_ms"),
            ("p99, ms", "hand_off_p99_ms"),
            ("hand-overs", "hand_offs"),
            ("until the next leads p50, ms", "killed_p50_ms"),
            ("largest, ms", "killed_max_ms"),
            ("kills", "kills"),
            ("last has heard p50, ms", "last_p50_ms"),
            ("largest, ms", "last_max_ms"),
            ("half have heard p50, ms", "half_p50_ms"),
            ("memory each, bytes", "memory_bytes"),
            ("resident", "resident_bytes"),
            ("connections each", "connections"),
            ("changes", "changes"),
            ("server's core, share", "server_share"),
        ],
    },
    Layout {
        scenario: "13",
        ratio: None,
        columns: &[
            ("first granted, ms", "first_ms"),
            ("last, ms", "last_ms"),
            ("kept: share of the server's core", "server_share"),
            ("of the holder's core", "load_share"),
        ],
    },
    Layout {
        scenario: "14",
        ratio: None,
        columns: &[
            ("PING p50, us", "ping_p50_us"),
            ("p99", "ping_p99_us"),
            ("largest", "ping_max_us"),
            ("SET p50, us", "set_p50_us"),
            ("p99", "set_p99_us"),
            ("largest", "set_max_us"),
            ("hand-off p50, us", "hand_off_p50_us"),
            ("p99", "hand_off_p99_us"),
            ("largest", "hand_off_max_us"),
            ("timeout late p50, us", "late_p50_us"),
            ("p99", "late_p99_us"),
            ("largest", "late_max_us"),
            ("longest turn of kvlock, us", "longest_turn_us"),
            ("all done after, ms", "phase_ms"),
        ],
    },
    Layout {
        scenario: "15",
        ratio: None,
        columns: &[
            ("in line after it served again, ms", "in_line_ms"),
            ("not in line in all, ms", "without_ms"),
            ("connects of a process", "connects"),
            ("most in a second", "connects_per_s"),
            ("commands per wait", "calls_per_wait"),
            ("server CPU, ms", "server_cpu_ms"),
            ("share of its core", "server_share"),
            ("load's", "load_share"),
            ("gave up", "gave_up"),
        ],
    },
    Layout {
        scenario: "16",
        ratio: None,
        columns: &[
            ("the last has it after, ms", "last_ms"),
            ("times worked", "works"),
            ("commands per task", "commands_per_task"),
            ("server CPU, ms", "server_cpu_ms"),
            ("clients' CPU, ms", "load_cpu_ms"),
        ],
    },
    Layout {
        scenario: "17",
        ratio: None,
        columns: &[
            ("times a second", "cycles_per_s"),
            ("longest wait, ms", "longest_wait_ms"),
            ("Jain's index", "jain"),
            ("server CPU, us", "server_cpu_us"),
            ("commands", "commands"),
        ],
    },
];

/// All tables of a scenario, one for each cell.
pub(crate) fn scenario(results: &Results, layout: &Layout) -> String {
    let Origin { command, rounds, minutes, at, on, processor, elsewhere } =
        results.origin(layout.scenario);
    let of_others = elsewhere.map_or_else(String::new, |share| {
        format!("; other programs used {:.0} % of the machine meanwhile", 100.0 * share)
    });
    let plural = if rounds == 1 { "" } else { "s" };
    let mut text = format!(
        "`{command}`, {rounds} round{plural} in {minutes:.0} minutes, at {at} on {on}, {processor}{of_others}.\n\n"
    );
    for cell in results.cells(layout.scenario) {
        writeln!(text, "**{cell}**\n\n{}", one(results, layout, cell)).unwrap();
    }
    text
}

fn one(results: &Results, layout: &Layout, cell: &str) -> String {
    let rows = results.in_cell(layout.scenario, cell);
    let filled = |figure: &str| rows.iter().any(|row| row.median(figure).is_some());
    let columns: Vec<_> = layout.columns.iter().filter(|(_, figure)| filled(figure)).collect();
    let ours = |figure| results.find(layout.scenario, cell, "kvlock")?.figures.get(figure);
    let ratio = layout.ratio.and_then(|(name, figure)| Some((name, figure, ours(figure)?)));
    let mut text = String::from("| |");
    if let Some((name, ..)) = ratio {
        write!(text, " {name}, x kvlock |").unwrap();
    }
    for (header, _) in &columns {
        write!(text, " {header} |").unwrap();
    }
    let width = columns.len() + usize::from(ratio.is_some());
    writeln!(text, "\n|---|{}", "---:|".repeat(width)).unwrap();
    for row in rows {
        let busy = row.median("elsewhere_share").filter(|share| *share > BUSY);
        let busy = busy.map_or_else(String::new, |share| {
            format!(" (other programs used {:.0} %)", 100.0 * share)
        });
        write!(text, "| {}{busy} |", bold(&row.contender)).unwrap();
        if row.figures.is_empty() {
            let why = row.trouble.first().map_or("", String::as_str);
            writeln!(text, " {why} |{}", " |".repeat(width.saturating_sub(1))).unwrap();
            continue;
        }
        if let Some((_, figure, ours)) = ratio {
            write!(text, " {} |", ratios(row, figure, ours).map_or_else(none, spread)).unwrap();
        }
        for (_, figure) in &columns {
            write!(text, " {} |", row.spread(figure).map_or_else(none, spread)).unwrap();
        }
        text.push('\n');
    }
    text
}

/// Ratios of a row's figure to another row's values `ours`: the n-th value of one is divided by the n-th
/// value of the other. These values are of the same round only if both rows have all earlier rounds.
fn ratios(row: &Row, figure: &str, ours: &[f64]) -> Option<Spread> {
    let theirs = row.figures.get(figure)?;
    Spread::of(theirs.iter().zip(ours).map(|(theirs, ours)| theirs / ours).collect())
}

/// A column of a summary table. With `ratio`, it also shows the ratio to kvlock's figure.
struct Headline {
    title: &'static str,
    at: [&'static str; 3],
    ratio: bool,
}

const HEADLINES: &[Headline] = &[
    Headline {
        title: "server CPU, 64 tasks, us",
        at: ["1", "64 tasks", "server_cpu_us"],
        ratio: true,
    },
    Headline { title: "depth 16, us", at: ["1", "depth 16", "server_cpu_us"], ratio: true },
    Headline {
        title: "hand-off, 10 waiters, us",
        at: ["2", "10 waiters", "hand_off_p50_us"],
        ratio: true,
    },
    Headline { title: "100 waiters, us", at: ["2", "100 waiters", "hand_off_p50_us"], ratio: true },
    Headline {
        title: "1,000 waiters, us",
        at: ["2", "1,000 waiters", "hand_off_p50_us"],
        ratio: true,
    },
    Headline {
        title: "10 processes: longest wait, ms",
        at: ["3", "10 processes, 1 ms", "longest_wait_ms"],
        ratio: false,
    },
    Headline { title: "Jain's index", at: ["3", "10 processes, 1 ms", "jain"], ratio: false },
];

/// Contenders in the table of README.
const FRONT: [&str; 6] = ["kvlock", "kvlock crate", "Redisson", "etcd", "SET + script", "BLPOP"];

/// The table of README.
pub(crate) fn front(results: &Results) -> String {
    overview(results, |name| FRONT.contains(&name))
}

/// The summary table of all contenders.
pub(crate) fn summary(results: &Results) -> String {
    overview(results, |_| true)
}

fn overview(results: &Results, is_wanted: impl Fn(&str) -> bool) -> String {
    let mut text = at(results, &["1", "2", "3"]) + "\n\n| |";
    for headline in HEADLINES {
        write!(text, " {} |", headline.title).unwrap();
    }
    writeln!(text, "\n|---|{}", "---:|".repeat(HEADLINES.len())).unwrap();
    for contender in contender::ALL {
        let at = |headline: &Headline, name| {
            let [scenario, cell, figure] = headline.at;
            results.find(scenario, cell, name).map(|row| (row, figure))
        };
        let value = |headline: &Headline, name| {
            at(headline, name).and_then(|(row, figure)| row.median(figure))
        };
        let Contender { name, about, .. } = contender;
        if !is_wanted(name) || HEADLINES.iter().all(|headline| value(headline, name).is_none()) {
            continue;
        }
        write!(text, "| {} ({about}) |", bold(name)).unwrap();
        for headline in HEADLINES {
            let ours = at(headline, "kvlock").filter(|_| headline.ratio);
            let ratio = at(headline, name).zip(ours).and_then(|((row, figure), (ours, _))| {
                ratios(row, figure, ours.figures.get(figure)?)
            });
            let cell = match (value(headline, name), ratio) {
                (Some(value), Some(ratio)) => {
                    format!("{} x ({})", number(ratio.median), number(value))
                }
                (Some(value), None) => number(value),
                (None, _) => none(),
            };
            write!(text, " {cell} |").unwrap();
        }
        text.push('\n');
    }
    text
}

/// Returns a sentence with the commits and days of these scenarios.
fn at(results: &Results, scenarios: &[&str]) -> String {
    let mut origins: Vec<String> = scenarios
        .iter()
        .map(|scenario| results.origin(scenario))
        .map(|origin| format!("at {} on {}", origin.at, origin.on))
        .collect();
    origins.dedup();
    format!("Measured {}.", origins.join(", "))
}

/// The cost of the crate: its time and CPU as multiples of plain redis-rs with the same commands.
pub(crate) fn client(results: &Results) -> String {
    let mut text = at(results, &["1", "2"])
        + "\n\n| | redis-rs, `TCP_NODELAY` | redis-rs default |\n|---|---:|---:|\n";
    for cell in ["one at a time", "64 tasks"] {
        let rates = |who| Some(&results.find("1", cell, who)?.figures.get("cycles_per_s")?[..]);
        write!(text, "| {cell} |").unwrap();
        for plain in ["redis-rs", "redis-rs default"] {
            let (Some(plain), Some(ours)) = (rates(plain), rates("kvlock crate")) else { continue };
            let ratios = plain.iter().zip(ours).map(|(plain, ours)| plain / ours).collect();
            write!(text, " {} |", Spread::of(ratios).map_or_else(none, spread)).unwrap();
        }
        text.push('\n');
    }
    for cell in ["1 waiter", "10 waiters", "100 waiters", "10 waiters, 11 processes"] {
        for (what, figure) in [("hand-off", "hand_off_p50_us"), ("clients' CPU", "load_cpu_us")] {
            let ours = results.find("2", cell, "kvlock crate");
            let plain = results.find("2", cell, "redis-rs, waiting");
            let ratio = ours
                .zip(plain)
                .and_then(|(ours, plain)| ratios(ours, figure, plain.figures.get(figure)?));
            let Some(ratio) = ratio else { continue };
            writeln!(text, "| {what}, {cell} | {} | – |", spread(ratio)).unwrap();
        }
    }
    text
}

/// The origin of the figures: command, machine and versions; and the absent contenders.
pub(crate) fn provenance(results: &Results) -> String {
    let elsewhere = results.elsewhere(None).unwrap_or(f64::NAN);
    let plural = if results.rounds == 1 { "" } else { "s" };
    let mut text = format!(
        "`{}`, {} round{plural} in {:.0} minutes. Figures are medians of the rounds (smallest–largest). \
         Other programs used {:.0} % of the machine meanwhile.{}\n\n| | |\n|---|---|\n",
        results.command,
        results.rounds,
        results.minutes,
        100.0 * elsewhere,
        if elsewhere > BUSY { " **That is too much: the machine was not quiet.**" } else { "" },
    );
    for (name, value) in &results.machine {
        if !value.is_empty() {
            writeln!(text, "| {name} | {value} |").unwrap();
        }
    }
    for contender in contender::ALL {
        if let Some(version) = results.versions.get(contender.name) {
            writeln!(text, "| {} ({}) | {version} |", contender.name, contender.about).unwrap();
        }
    }
    for (name, why) in &results.absent {
        writeln!(text, "| {name} | absent: {why} |").unwrap();
    }
    text
}

fn bold(name: &str) -> String {
    if name.starts_with("kvlock") { format!("**{name}**") } else { name.to_owned() }
}

/// Text for a missing figure.
fn none() -> String {
    "–".to_owned()
}

fn spread(spread: Spread) -> String {
    let [median, least, most] = [spread.median, spread.least, spread.most].map(number);
    if least == most { median } else { format!("{median} ({least}–{most})") }
}

/// Formats a number with commas between thousands. The larger it is, the fewer decimal places it has.
pub(crate) fn number(value: f64) -> String {
    let places = if value.abs() >= 100.0 {
        0
    } else if value.abs() >= 10.0 {
        1
    } else if value.abs() >= 0.1 || value == 0.0 {
        2
    } else {
        4
    };
    let digits = format!("{value:.places$}");
    let (whole, fraction) = digits.split_once('.').map_or((&*digits, None), |(w, f)| (w, Some(f)));
    let mut grouped = String::new();
    for (place, digit) in whole.chars().enumerate() {
        let left = whole.len() - place;
        if place > 0 && left % 3 == 0 && digit != '-' && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    match fraction {
        Some(fraction) => format!("{grouped}.{fraction}"),
        None => grouped,
    }
}
