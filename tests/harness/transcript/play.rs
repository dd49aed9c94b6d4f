//! Plays a transcript on a server.

use super::parse::{Action, Transcript};
use super::pattern::fits;
use super::stage::Stage;
use crate::clock::Clock;
use crate::server::Server;
use std::fmt;

/// Something else than expected was seen.
#[derive(Clone, Debug)]
pub struct Mismatch {
    place: String,
    action: String,
    expected: Vec<String>,
    seen: Vec<String>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: something else was seen than is expected (-)", self.place)?;
        writeln!(f, "    {}", self.action)?;
        for line in 0..self.expected.len().max(self.seen.len()) {
            match (self.expected.get(line), self.seen.get(line)) {
                (Some(expected), Some(seen)) if expected == seen => writeln!(f, "    {seen}")?,
                (expected, seen) => {
                    expected.iter().try_for_each(|line| writeln!(f, "  - {line}"))?;
                    seen.iter().try_for_each(|line| writeln!(f, "  + {line}"))?;
                }
            }
        }
        Ok(())
    }
}

/// Plays it up to what differs. The clients that it makes are closed afterwards.
///
/// # Errors
/// The first mismatch.
pub fn play(server: &Server, transcript: &Transcript, protocol: u8) -> Result<(), Mismatch> {
    play_with(server, None, None, transcript, protocol)
}

/// The same with a replica, whose clients are called `replica`, `replica2` and so on.
pub(super) fn play_with(
    server: &Server,
    replica: Option<&Server>,
    clock: Option<&Clock>,
    transcript: &Transcript,
    protocol: u8,
) -> Result<(), Mismatch> {
    let mut stage = Stage::new(server, replica, clock, protocol);
    let mut together = Vec::new();
    for step in &transcript.steps {
        together.push(step);
        if let Action::Together(_) = step.action {
            continue;
        }
        let together = std::mem::take(&mut together);
        if together.len() > 1 {
            stage.send_together(together.iter().copied());
        }
        for step in &together {
            let expected = &step.expected.text;
            let seen = if together.len() > 1 {
                stage.reply(&step.client, expected, step.compact)
            } else {
                stage.act(step, expected)
            };
            if !fits(expected, &seen, &mut stage.names) {
                return Err(Mismatch {
                    place: format!("{}:{} (RESP{protocol})", transcript.name, step.line + 1),
                    action: stage.turn.clone() + &transcript.lines[step.line],
                    expected: expected.clone(),
                    seen,
                });
            }
        }
        if step.action == Action::Begin {
            let row = transcript.lines[step.line].clone();
            stage.turn = format!("(turn {} of {row}) ", stage.begin(step.line));
        }
    }
    let seen = stage.left_over();
    if seen.is_empty() {
        return Ok(());
    }
    let place = format!("{} (RESP{protocol})", transcript.name);
    Err(Mismatch { place, action: "at the end".to_owned(), expected: Vec::new(), seen })
}
