//! Results of campaigns: a file under `docs/evidence/` for each suite and server, and the tables of the
//! documents that are rendered from these files. The table of mutants is rendered with them.
//!
//! A table is between two lines of its page, `<!-- campaign NAME -->` and `<!-- end -->`.
//! `scripts/campaign --render` writes it, and a test compares the page with the files.

use crate::commit::exists;
use crate::kind::workspace;
use crate::mutants;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

/// The pages with tables that are rendered.
const PAGES: [&str; 2] = ["docs/evidence.md", "docs/guarantees.md"];

/// One run of a suite on one server.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Record {
    /// Name of the suite.
    pub suite: String,
    /// Rows of `docs/evidence.md` for which the run is evidence: of the scoreboard, or of the fault schedules
    /// (`F1` and so on).
    pub rows: String,
    /// The tested commit, as returned by [`commit`](crate::commit::commit).
    pub commit: String,
    /// Name and version of the server.
    pub server: String,
    /// Seed of the run. The seed of each suite is a hash of this number, a name and the server.
    pub seed: u64,
    /// Command that repeats the run.
    pub again: String,
    /// Duration in seconds.
    pub wall_s: u64,
    /// `true` if the run had to include the faults that its suite requires: it was started without `--some` and
    /// `--fault`.
    pub complete: bool,
    /// Text for the column `figure` of the suite's row.
    pub figure: String,
    /// Counters by name: grants, calls and others.
    pub counts: BTreeMap<String, u64>,
    /// Number of times that each fault was made.
    pub faults: BTreeMap<String, u64>,
    /// Minimum, median, 99th percentile and maximum of each measured time, in microseconds.
    pub times_us: BTreeMap<String, [i64; 4]>,
    /// The violations that were found.
    pub violations: Vec<String>,
}

impl Record {
    fn count(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or_default()
    }

    fn file(&self) -> PathBuf {
        let server = self.server.split(' ').next().unwrap_or_default();
        folder().join(format!("{}.{server}.json", self.suite.replace('/', "-")))
    }

    /// Writes the record to the file of its suite and server. Replaces the record of the previous run there.
    ///
    /// # Errors
    ///
    /// If the run found violations, if its code was not committed, or if the file cannot be written.
    pub fn publish(&self) -> Result<(), String> {
        if !self.violations.is_empty() {
            return Err(format!("{}: not published, for it has violations", self.suite));
        }
        if !exists(&self.commit) {
            return Err(format!("{}: not published, for {} is no commit", self.suite, self.commit));
        }
        let text = serde_json::to_string_pretty(self).map_err(|error| error.to_string())? + "\n";
        fs::create_dir_all(folder()).map_err(|error| error.to_string())?;
        fs::write(self.file(), text).map_err(|error| error.to_string())
    }
}

fn folder() -> PathBuf {
    workspace().join("docs/evidence")
}

/// All runs that are published, by suite and server.
///
/// # Panics
///
/// If a file is not a record.
#[must_use]
pub fn records() -> Vec<Record> {
    let Ok(entries) = fs::read_dir(folder()) else { return Vec::new() };
    let mut records: Vec<Record> = entries
        .map(|entry| entry.expect("an entry of docs/evidence").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .map(|path| {
            let text = fs::read_to_string(&path).expect("read a run");
            serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
        })
        .collect();
    records.sort_by(|a, b| (&a.suite, &a.server).cmp(&(&b.suite, &b.server)));
    records
}

/// Returns each page with its current text and the text that it should have.
///
/// # Panics
///
/// If a page is missing, or names an unknown table.
#[must_use]
pub fn pages() -> Vec<(PathBuf, String, String)> {
    let records = records();
    let page = |name: &&str| {
        let path = workspace().join(name);
        let text = fs::read_to_string(&path).expect("read a page");
        let rendered = rendered(&text, &records);
        (path, text, rendered)
    };
    PAGES.iter().map(page).collect()
}

/// Returns the page with its tables rendered from these runs.
fn rendered(page: &str, records: &[Record]) -> String {
    let (mut text, mut inside) = (String::new(), false);
    for line in page.lines() {
        let name = line.strip_prefix("<!-- campaign ").and_then(|it| it.strip_suffix(" -->"));
        if line == "<!-- end -->" {
            inside = false;
        }
        if !inside {
            text += line;
            text.push('\n');
        }
        if let Some(name) = name {
            inside = true;
            text += &match name {
                "suites" => suites(records),
                "failovers" => failovers(records),
                "mutants" => mutants::table(&mutants::published()),
                other => panic!("there is no table {other:?}"),
            };
        }
    }
    text
}

/// Name of the counter of moments at which two clients believed that they held the same lock.
pub const OVERLAPS: &str = "two believed to hold a lock";

/// The table of runs with their faults, each beside the result of its control.
fn suites(records: &[Record]) -> String {
    let mut text = "| suite | server | commit, seed | figure | faults | control | seconds |\n|---|---|---|---|---|---|---|\n".to_owned();
    let is_row = |record: &&Record| !record.suite.ends_with("/control");
    for record in records.iter().filter(is_row) {
        let Record { suite, server, commit, seed, figure, wall_s, faults, .. } = record;
        let control = control_of(records, record).map_or_else(|| "–".to_owned(), shown_beside);
        let latches = record.count("latches judged");
        let latches =
            if latches > 0 { format!(", {latches} latches judged") } else { String::new() };
        let faults: Vec<_> = faults.iter().map(|(name, count)| format!("{name} {count}")).collect();
        let faults = if faults.is_empty() { "–".to_owned() } else { faults.join(", ") };
        let some = if record.complete { "" } else { " (some)" };
        writeln!(
            text,
            "| `{suite}` | {server} | {commit}, {seed} | {figure}{latches} | {faults}{some} | {control} | {wall_s} |"
        )
        .expect("it is text");
    }
    if records.is_empty() {
        text += "| no run is published | | | | | | |\n";
    }
    text
}

/// Returns the control of a run: a run on the same server without the safeguard that the run tests, in which
/// two clients held the same lock, or believed so. The suite's own control comes first. Next come a run of the
/// same workload without the safeguard, and controls of locks on the same topology. Returns `None` if the run
/// itself has such violations, or no such control is published.
fn control_of<'a>(records: &'a [Record], record: &Record) -> Option<&'a Record> {
    let suite = &record.suite;
    let mut parts: Vec<&str> = suite.split('/').collect();
    let setting = parts.pop()?;
    let place = parts.last()?;
    let without = match *place {
        "kill" => "no-file",
        "power" => "everysec",
        _ => "default",
    };
    let names = [
        format!("{suite}/control"),
        format!("{}/{without}", parts.join("/")),
        format!("{place}/{setting}/control"),
        format!("{place}/default/control"),
    ];
    let found = |name: &String| {
        let is_it = |it: &&Record| it.suite == *name && it.server == record.server;
        records.iter().find(is_it).filter(|it| violated(it) > 0)
    };
    names.iter().filter(|name| *name != suite).find_map(found).filter(|_| violated(record) == 0)
}

/// Number of times that two clients held the same lock, or believed that they did.
fn violated(record: &Record) -> u64 {
    [OVERLAPS, DOUBLED, TWICE].iter().map(|what| record.count(what)).sum()
}

fn shown_beside(control: &Record) -> String {
    format!("`{}`: {}", control.suite, control.figure)
}

/// Scripts of failovers: the beginnings of the names of suites, and what happens in them.
const SCRIPTS: [(&str, &str); 7] = [
    ("lost-link", "The links to the replicas are cut; the primary grants once more and dies"),
    (
        "stale",
        "The link to one replica is cut; the primary grants once more and dies; that replica is promoted",
    ),
    ("paused", "The primary is paused, is replaced, and resumes, with a request in its buffer"),
    ("partition", "The primary is cut off, with a client that holds one lock and takes another"),
    ("back-empty", "The primary is killed and comes back at once, empty"),
    ("back-with-data", "The primary is killed and comes back at once, with `appendfsync always`"),
    ("clocks", "The clock of the next primary is 5 s ahead, or behind"),
];

/// Settings: the ends of the names of suites, and the settings' names in the table.
const SETTINGS: [(&str, &str); 5] = [
    ("default", "nothing"),
    ("min_replicas", "`min_replicas(1)`"),
    ("all_replicas", "`all_replicas(2)`"),
    ("min-replicas-to-write", "`min-replicas-to-write`"),
    ("quarantine", "quarantine"),
];

/// Name of the counter of tries in a run of a script.
pub const TRIES: &str = "tries";
/// Name of the counter of tries in which two clients believed at once that they held the same lock.
pub const DOUBLED: &str = "tries in which two believed";
/// Name of the counter of locks that were granted while another owner could still rely on its grant.
pub const TWICE: &str = "granted twice";
/// Name of the counter that is 1 if [`DOUBLED`] must be zero in the run.
pub const PROMISED: &str = "promised to be none";

/// Table of the tries in which two clients believed at once that they held the same lock, over all servers.
fn failovers(records: &[Record]) -> String {
    let names = SETTINGS.map(|(_, name)| name).join(" | ");
    let mut text = format!("| what happens | {names} |\n|---|---|---|---|---|---|\n");
    for (script, what) in SCRIPTS {
        let cells = SETTINGS.map(|(setting, _)| {
            let name = format!("{script}/{setting}");
            let runs: Vec<_> = records.iter().filter(|it| it.suite == name).collect();
            let sum = |what| runs.iter().map(|it| it.count(what)).sum::<u64>();
            let (tries, doubled) = (sum(TRIES), sum(DOUBLED));
            match (tries, sum(PROMISED)) {
                (0, _) => "–".to_owned(),
                (_, 0) => format!("{doubled} of {tries}"),
                _ => format!("**{doubled}** of {tries}"),
            }
        });
        writeln!(text, "| {what} | {} |", cells.join(" | ")).expect("it is text");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(suite: &str, count: &[(&str, u64)]) -> Record {
        Record {
            suite: suite.to_owned(),
            rows: "2".to_owned(),
            commit: "1234567".to_owned(),
            server: "redis-7.0 7.0.15".to_owned(),
            seed: 7,
            again: String::new(),
            wall_s: 20,
            complete: true,
            figure: format!("figure of {suite}"),
            counts: count.iter().map(|(what, count)| ((*what).to_owned(), *count)).collect(),
            faults: BTreeMap::from([("CLIENT KILL".to_owned(), 3)]),
            times_us: BTreeMap::new(),
            violations: Vec::new(),
        }
    }

    #[test]
    fn a_row_has_its_control_beside_it_and_other_text_does_not_change() {
        let found = [(OVERLAPS, 7)];
        let records = [record("pair/default", &[]), record("pair/default/control", &found)];
        let page = "before\n<!-- campaign suites -->\nold\n<!-- end -->\nafter\n";
        let text = rendered(page, &records);
        assert!(text.starts_with("before\n") && text.ends_with("<!-- end -->\nafter\n"), "{text}");
        let row = "figure of pair/default | CLIENT KILL 3 | `pair/default/control`: figure of pair/default/control | 20 |";
        assert!(text.contains(row) && !text.contains("old"), "{text}");
        assert_eq!(rendered(&text, &records), text);
    }

    #[test]
    fn a_control_is_a_run_in_which_the_judge_found_something() {
        let found = [(OVERLAPS, 7)];
        let records = [
            record("readers/sentinel/quarantine", &[]),
            record("readers/sentinel/default", &found),
            record("readers/pair/default", &[]),
            record("pair/default/control", &found),
            record("kill/always", &[]),
            record("kill/no-file", &[(TWICE, 3)]),
            record("sets/cluster/all_replicas", &[]),
            record("cluster/all_replicas/control", &[]),
        ];
        let controls: Vec<_> = records
            .iter()
            .map(|it| control_of(&records, it).map(|control| control.suite.as_str()))
            .collect();
        let [default, slow] = ["readers/sentinel/default", "pair/default/control"].map(Some);
        assert_eq!(controls[..4], [default, None, slow, None]);
        assert_eq!(controls[4..], [Some("kill/no-file"), None, None, None]);
    }

    #[test]
    fn promised_cells_are_bold() {
        let counts = [(TRIES, 3), (DOUBLED, 0), (PROMISED, 1)];
        let records = [
            record("stale/all_replicas", &counts),
            record("stale/default", &[(TRIES, 3), (DOUBLED, 3)]),
        ];
        let text = failovers(&records);
        assert!(text.contains("is promoted | 3 of 3 | – | **0** of 3 | – | – |"), "{text}");
    }

    #[test]
    fn a_run_with_violations_or_without_a_commit_is_not_published() {
        let wrong = Record { violations: vec!["Belief: two".to_owned()], ..record("a", &[]) };
        assert!(wrong.publish().is_err());
        let changed = Record { commit: "1234567 with changes".to_owned(), ..record("a", &[]) };
        assert!(changed.publish().is_err());
    }
}
