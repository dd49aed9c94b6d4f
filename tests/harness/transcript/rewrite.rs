//! Puts what was seen into the file.

use super::parse::{Action, Block, Step, Transcript};
use super::pattern::{Names, line_matches};
use super::play::Mismatch;

/// The text of the file with the expectations replaced where `mismatches` say. A line that had
/// matched stays as it was, placeholders included. What differs only in RESP3 becomes a `[resp3]`
/// block when the file is played in both.
pub(super) fn rewritten(transcript: &Transcript, protocol: u8, mismatches: &[Mismatch]) -> String {
    let mut lines = transcript.lines.clone();
    let mut done = Vec::new();
    // From the end, so that the places before stay right.
    for mismatch in mismatches.iter().rev() {
        let Some(step) = transcript.steps.get(mismatch.step) else {
            continue;
        };
        // A loop plays a line again and again.
        if done.contains(&step.line) {
            continue;
        }
        done.push(step.line);
        let alternative = protocol == 3 && transcript.protocols.len() > 1;
        match &step.resp3 {
            _ if step.compact => {
                let line = &transcript.lines[step.line];
                let (action, _) = match step.action {
                    Action::Arrives => line.split_once(' '),
                    _ => line.rsplit_once("-> "),
                }
                .unwrap_or((line, ""));
                let arrow = if step.action == Action::Arrives { " " } else { "-> " };
                let seen = mismatch.seen.join(" ");
                lines.splice(step.expected.place.clone(), [format!("{action}{arrow}{seen}")]);
            }
            None if alternative => insert_alternative(&mut lines, step, &mismatch.seen),
            _ => replace(&mut lines, step, step.expected_in(protocol), &mismatch.seen),
        }
    }
    lines.join("\n") + "\n"
}

fn replace(lines: &mut Vec<String>, step: &Step, block: &Block, seen: &[String]) {
    let kept = seen.iter().enumerate().map(|(index, seen)| match block.text.get(index) {
        Some(expected) if line_matches(expected, seen, &mut Names::new()) => expected.clone(),
        _ => seen.clone(),
    });
    let first = block.place.start == step.line;
    let kept: Vec<String> = margin(step, first, kept).collect();
    lines.splice(block.place.clone(), kept);
}

fn insert_alternative(lines: &mut Vec<String>, step: &Step, seen: &[String]) {
    let end = step.expected.place.end;
    let block: Vec<String> = margin(step, false, seen.iter().cloned()).collect();
    lines.splice(end..end, std::iter::once("[resp3]".to_owned()).chain(block));
}

/// Lines as the file has them: `b< ` before the first, blanks before the others.
fn margin(
    step: &Step,
    first: bool,
    lines: impl Iterator<Item = String>,
) -> impl Iterator<Item = String> {
    let indent = step.indent();
    let head = if first { format!("{}< ", step.client) } else { " ".repeat(indent) };
    lines.enumerate().map(move |(index, line)| {
        let margin = if index == 0 { head.clone() } else { " ".repeat(indent) };
        format!("{margin}{line}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Server;
    use crate::transcript::play;

    #[test]
    fn only_what_differs_is_replaced_and_both_protocols_fit_afterwards() {
        let server = Server::options().without_module().start();
        let mut text = "# kept\na> RPUSH l x\n(integer) {n}\na> BLPOP m 0\n\nb> RPUSH m 1\n(nil)\na< 1) \"no\"\na> HSET h f v\n\
                        a> HGETALL h\na> DEL h l\n(integer) {k}\n"
            .to_owned();
        for protocol in [2, 3] {
            let transcript = Transcript::parse("t", &text).unwrap();
            let mismatches = play(&server, &transcript, protocol, true);
            text = rewritten(&transcript, protocol, &mismatches);
        }
        let expected = "# kept\na> RPUSH l x\n(integer) {n}\na> BLPOP m 0\n(blocked)\n\nb> RPUSH m 1\n(integer) 1\n\
                        a< 1) \"m\"\n   2) \"1\"\na> HSET h f v\n(integer) 1\na> HGETALL h\n1) \"f\"\n2) \"v\"\n[resp3]\n\
                        1# \"f\" => \"v\"\na> DEL h l\n(integer) {k}\n";
        assert_eq!(text, expected);
    }
}
