//! Plays a transcript on servers.

use super::parse::{Step, Transcript};
use super::pattern::fits;
use super::stage::{Stage, StepResult};
use crate::clock::Clock;
use crate::server::Server;

/// Plays the transcript up to the first difference, and closes its clients.
///
/// # Errors
/// The first difference, with its place.
pub fn play(server: &Server, transcript: &Transcript, protocol: u8) -> Result<(), String> {
    play_on(&[("", server)], None, transcript, protocol)
}

/// Like [`play`], with several servers, each with the prefix of its clients' names.
pub(super) fn play_on(
    servers: &[(&str, &Server)],
    clock: Option<&Clock>,
    transcript: &Transcript,
    protocol: u8,
) -> Result<(), String> {
    let mut stage = Stage::new(servers, clock, protocol);
    let mut together: Vec<&Step> = Vec::new();
    let differs = |place: String, step: &Step, seen: &StepResult| {
        let wanted = step.expected.iter().map(|line| format!("\n  - {line}")).collect::<String>();
        let seen = match seen {
            Ok(reply) if step.expected.len() == 1 => reply.line(),
            Ok(reply) => reply.to_string(),
            Err(note) => note.clone(),
        };
        let seen = seen.lines().map(|line| format!("\n  + {line}")).collect::<String>();
        let place = format!("{}{place} (RESP{protocol})", transcript.name);
        Err(format!(
            "{place}: something else was seen than is expected (-)\n    {}{wanted}{seen}",
            step.shown
        ))
    };
    for step in &transcript.steps {
        together.push(step);
        if step.mark == ">>" {
            continue;
        }
        let in_one_write = together.len() > 1;
        if in_one_write {
            stage.send_together(&together);
        }
        for step in together.drain(..) {
            let seen = if in_one_write {
                stage.reply(&step.client, &step.expected)
            } else {
                stage.execute(step)
            };
            if !fits(&step.expected, &seen, &mut stage.names) {
                return differs(format!(":{}", step.line + 1), step, &seen);
            }
        }
    }
    match stage.left_over() {
        left if left.is_empty() => Ok(()),
        left => differs(String::new(), &Step::default(), &Err(left.join("\n"))),
    }
}
