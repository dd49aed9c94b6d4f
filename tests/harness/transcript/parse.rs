//! The file as steps.

use std::ops::Range;

/// A parsed file.
#[derive(Clone, Debug)]
pub struct Transcript {
    pub(super) name: String,
    pub(super) lines: Vec<String>,
    pub(super) steps: Vec<Step>,
    /// In which protocols it is to be played.
    pub protocols: Vec<u8>,
    /// Lines of configuration for the server.
    pub config: Vec<(String, String)>,
}

/// One client does something, or something comes to it.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// Counted from 0.
    pub line: usize,
    pub client: String,
    pub action: Action,
    pub expected: Block,
    /// What is expected in RESP3 instead.
    pub resp3: Option<Block>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Command(String),
    Until(String),
    Close,
    Reset,
    WaitClosed,
    Arrives,
}

/// An expected reply.
#[derive(Clone, Debug, Default)]
pub(super) struct Block {
    /// Its lines without what the file puts before them.
    pub text: Vec<String>,
    /// Where it stands in the file.
    pub place: Range<usize>,
}

impl Step {
    /// How far the lines of a reply that arrives by itself are moved to the right: `b< `.
    pub(super) fn indent(&self) -> usize {
        if self.action == Action::Arrives { self.client.len() + 2 } else { 0 }
    }

    pub(super) fn expected_in(&self, protocol: u8) -> &Block {
        self.resp3.as_ref().filter(|_| protocol == 3).unwrap_or(&self.expected)
    }
}

impl Transcript {
    /// Reads a transcript; `name` is what messages call it.
    ///
    /// # Errors
    /// Names the line that is none of the known forms.
    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let mut transcript = Self {
            name: name.to_owned(),
            lines,
            steps: Vec::new(),
            protocols: vec![2, 3],
            config: Vec::new(),
        };
        for line in 0..transcript.lines.len() {
            transcript.line(line).map_err(|why| format!("{name}:{}: {why}", line + 1))?;
        }
        Ok(transcript)
    }

    fn line(&mut self, number: usize) -> Result<(), String> {
        let line = self.lines[number].trim_end().to_owned();
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        if let Some(directive) = line.strip_prefix("!> ") {
            return self.directive(directive);
        }
        if let Some((client, mark, rest)) = addressed(&line) {
            let action = action(mark, rest)?;
            let mut expected = Block { text: Vec::new(), place: number + 1..number + 1 };
            if action == Action::Arrives {
                expected = Block { text: vec![rest.to_owned()], place: number..number + 1 };
            }
            self.steps.push(Step {
                line: number,
                client: client.to_owned(),
                action,
                expected,
                resp3: None,
            });
            return Ok(());
        }
        let step = self.steps.last_mut().ok_or("a reply to nothing")?;
        if line == "[resp3]" {
            step.resp3 = Some(Block { text: Vec::new(), place: number + 1..number + 1 });
            return Ok(());
        }
        let indent = step.indent();
        let block = step.resp3.as_mut().unwrap_or(&mut step.expected);
        if block.place.end != number {
            return Err("a reply must follow its command without a gap".to_owned());
        }
        let (margin, text) = line.split_at_checked(indent).ok_or("too short for its indent")?;
        if !margin.trim().is_empty() {
            return Err(format!("the line must be indented by {indent}"));
        }
        block.text.push(text.to_owned());
        block.place.end = number + 1;
        Ok(())
    }

    fn directive(&mut self, directive: &str) -> Result<(), String> {
        match directive.split_once(' ') {
            Some(("proto", "2")) => self.protocols = vec![2],
            Some(("proto", "3")) => self.protocols = vec![3],
            Some(("proto", "both")) => self.protocols = vec![2, 3],
            Some(("config", setting)) => {
                let (name, value) =
                    setting.split_once(' ').ok_or("config wants a name and a value")?;
                self.config.push((name.to_owned(), value.to_owned()));
            }
            _ => return Err(format!("unknown directive: {directive}")),
        }
        Ok(())
    }
}

/// `name> rest` or `name< rest`, where the name is letters and digits.
fn addressed(line: &str) -> Option<(&str, char, &str)> {
    let end = line.find(|c: char| !c.is_ascii_alphanumeric()).filter(|&end| end > 0)?;
    let mark = line[end..].chars().next().filter(|c| matches!(c, '>' | '<'))?;
    let rest =
        line[end + 1..].strip_prefix(' ').or_else(|| line[end + 1..].is_empty().then_some(""))?;
    Some((&line[..end], mark, rest))
}

fn action(mark: char, rest: &str) -> Result<Action, String> {
    match (mark, rest) {
        ('<', _) => Ok(Action::Arrives),
        (_, "(close)") => Ok(Action::Close),
        (_, "(reset)") => Ok(Action::Reset),
        (_, "(wait-closed)") => Ok(Action::WaitClosed),
        (_, "") => Err("a command is missing".to_owned()),
        _ => match rest.strip_prefix("(until) ") {
            Some(command) => Ok(Action::Until(command.to_owned())),
            None if rest.starts_with('(') => Err(format!("unknown action {rest}")),
            None => Ok(Action::Command(rest.to_owned())),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_replies_and_alternatives_are_told_apart() {
        let text = "# c\n!> proto both\n!> config maxmemory 1mb\n\na> INFO\n1) x\n   2) y\n[resp3]\n1# x\nbob< 1) z\n     2) u\n";
        let transcript = Transcript::parse("t", text).unwrap();
        assert_eq!(transcript.protocols, [2, 3]);
        assert_eq!(transcript.config, [("maxmemory".to_owned(), "1mb".to_owned())]);
        let [first, second] = &transcript.steps[..] else { panic!("{transcript:?}") };
        assert_eq!(first.action, Action::Command("INFO".into()));
        assert_eq!(first.expected_in(2).text, ["1) x", "   2) y"]);
        assert_eq!(first.expected_in(3).text, ["1# x"]);
        assert_eq!(
            (&second.action, second.expected_in(3).text.join("|")),
            (&Action::Arrives, "1) z|2) u".to_owned())
        );
    }

    #[test]
    fn what_is_no_transcript_is_refused_with_its_line() {
        for (text, line) in [
            ("1) x", 1),
            ("a> PING\n\nPONG", 3),
            ("!> proto 4", 1),
            ("# c\na> (dance)", 2),
            ("b< 1) z\n2) u", 2),
        ] {
            let error = Transcript::parse("t", text).unwrap_err();
            assert!(error.starts_with(&format!("t:{line}: ")), "{error}");
        }
    }
}
