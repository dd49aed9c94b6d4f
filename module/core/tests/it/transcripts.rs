//! Transcripts of the table. They show the reply and the write of each command, and the locks that
//! changed other than by the passing of time. They are in `data/`, one topic in a file, and also
//! serve as documentation.
//!
//! ```text
//! command argument=value …
//! its result, up to the next empty line
//! ```
//!
//! Lines that begin with `#` are comments. All times are in milliseconds. With `KVLOCK_REWRITE=1`
//! the test writes the actual results into the files; review the difference before you keep it.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

mod outcome;
mod sessions;
mod stage;
mod words;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::str::FromStr;

use stage::Stage;

macro_rules! transcripts {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                check(stringify!($name));
            }
        )*

        #[test]
        fn every_transcript_is_run() {
            let mut found: Vec<_> = fs::read_dir(data())
                .expect("the transcripts are there")
                .map(|entry| entry.expect("readable").path())
                .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
                .collect();
            found.sort();
            assert_eq!(found, [$(stringify!($name)),*]);
        }
    };
}

transcripts! {
    a_cancelled_timed_out_or_lost_waiter_leaves_from_anywhere
    a_grant_to_a_client_that_is_gone_is_taken_back
    a_holder_can_raise_its_token
    a_lease_that_ends_hands_the_lock_on
    a_reader_that_is_gone_is_taken_back
    a_writer_can_become_a_reader
    a_writer_waits_for_the_last_reader_and_stops_later_ones
    an_away_session_is_skipped_and_keeps_its_place
    during_a_quarantine_only_holders_are_served
    each_grant_has_a_larger_token
    each_place_of_a_session_has_one_outcome
    first_come_first_served
    keys_that_can_move_unnoticed_are_looked_at_regularly
    limits_refuse_waiters_and_a_drain_ends_waits
    many_owners_share_a_lock
    one_poisoned_token_spoils_no_other_lock
    other_clients_can_change_the_key
    when_a_writer_leaves_the_queue_readers_behind_it_are_served
    without_a_floor_no_token_is_guessed
}

fn data() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

fn check(name: &str) {
    let path = data().join(name).with_extension("txt");
    let written = fs::read_to_string(&path).expect("the transcript is there");
    let played = play(&written);
    if std::env::var_os("KVLOCK_REWRITE").is_some() {
        fs::write(&path, played).expect("the transcript can be written");
    } else if let Some(difference) = first_difference(&written, &played) {
        panic!("{}:{difference}", path.display());
    }
}

/// Runs the commands of a transcript on an empty table. Returns the transcript with the actual results.
fn play(transcript: &str) -> String {
    let mut stage = Stage::new();
    let mut played = String::new();
    let mut lines = transcript.lines();
    while let Some(line) = lines.next() {
        played += line;
        played += "\n";
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        // Skips the recorded result.
        lines.by_ref().find(|line| line.is_empty());
        played += &stage.run(line);
        played += "\n";
    }
    played.truncate(played.trim_end().len());
    played + "\n"
}

/// The arguments of a command, each taken once.
struct Args<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Args<'a> {
    fn parse(line: &'a str) -> (&'a str, Self) {
        let mut words = line.split_whitespace();
        let command = words.next().expect("a command");
        let args = words.map(|word| word.split_once('=').unwrap_or((word, "")));
        (command, Self(args.collect()))
    }

    fn may<T: FromStr>(&mut self, name: &str) -> Option<T> {
        let value = self.0.remove(name)?;
        let value = value.parse().ok();
        Some(value.unwrap_or_else(|| panic!("{name} has no such value")))
    }

    fn must<T: FromStr>(&mut self, name: &str) -> T {
        self.may(name).unwrap_or_else(|| panic!("{name} is missing"))
    }

    fn flag(&mut self, name: &str) -> bool {
        self.0.remove(name).is_some()
    }

    fn finish(&self, line: &str) {
        assert!(self.0.is_empty(), "{:?} left over in {line}", self.0);
    }
}

/// Returns the first command whose result has changed, with its line number.
fn first_difference(written: &str, played: &str) -> Option<String> {
    let same = written.lines().zip(played.lines());
    let same = same.take_while(|(a, b)| a == b).count();
    if written == played {
        return None;
    }
    let before: Vec<_> = written.lines().take(same).collect();
    let command = before.iter().rposition(|line| line.is_empty());
    let command = command.map_or(0, |empty| empty + 1);
    let block = |text: &str| -> String {
        let lines = text.lines().skip(command);
        let lines = lines.take_while(|line| !line.is_empty());
        lines.map(|line| format!("    {line}\n")).collect()
    };
    let (expected, actual) = (block(written), block(played));
    Some(format!("{}:\nexpected\n{expected}and got\n{actual}", command + 1))
}
