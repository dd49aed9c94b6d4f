//! The file as steps.

use std::ops::Range;

/// A parsed file, or one scene of it.
#[derive(Clone, Debug, Default)]
pub struct Transcript {
    pub(super) name: String,
    pub(super) lines: Vec<String>,
    pub(super) steps: Vec<Step>,
    /// In which protocols it is to be played.
    pub protocols: Vec<u8>,
    /// Lines of configuration for the server.
    pub config: Vec<(String, String)>,
    /// Arguments of the module.
    pub(super) module: Vec<(String, String)>,
    /// The replica of the server.
    pub(super) replica: Replica,
    /// What stands for what in all lines.
    lets: Row,
    /// Whether the module is the build that can be told to panic.
    pub(super) planted: bool,
    /// Whether another module is there that calls commands.
    pub(super) caller: bool,
    /// Whether the servers have a clock of their own.
    pub(super) clock: bool,
}

/// The replica of the server, which has the same data at the end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Replica {
    #[default]
    None,
    /// One without the module: it knows nothing but what it is told.
    Plain,
    /// One that may become the primary.
    Twin,
}

/// One client does something, or something comes to it.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// Counted from 0.
    pub line: usize,
    pub client: String,
    pub action: Action,
    pub expected: Block,
    /// Whether replies are written in one line.
    pub compact: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Command(String),
    /// Sent in one write with the next command of that client.
    Together(String),
    /// Sent, and the reply arrives later.
    Sent(String),
    Until(String),
    /// One field of the reply.
    Field(String, String),
    /// A counter of the module, since the scene or this turn of the loop began.
    Counted(String),
    Blocked,
    Close,
    Reset,
    WaitClosed,
    Arrives,
    /// A turn of a loop begins.
    Begin,
    Pass(u64),
    Settle,
    /// The log of the server has a line with that.
    Logged(String),
    /// The servers' clock is that many milliseconds ahead.
    Clock(i64),
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
}

/// Names of a loop with what they stand for in one turn.
type Row = Vec<(String, String)>;

impl Transcript {
    /// Reads a transcript, or its first scene; `name` is what messages call it.
    ///
    /// # Errors
    /// Names the line that is none of the known forms.
    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        Self::scene(name, text, 0)
    }

    /// How many scenes a text has.
    pub fn count(text: &str) -> usize {
        text.lines().filter(|line| line.starts_with("== ")).count().max(1)
    }

    /// Reads the scene of that number, with all that stands before the first.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn scene(name: &str, text: &str, index: usize) -> Result<Self, String> {
        let lines: Vec<String> = text.lines().map(|line| line.trim_end().to_owned()).collect();
        let mut starts: Vec<usize> =
            (0..lines.len()).filter(|line| lines[*line].starts_with("== ")).collect();
        starts.push(lines.len());
        let own = starts.get(index + 1).map_or(0..0, |end| starts[index]..*end);
        let mut transcript =
            Self { name: name.to_owned(), lines, protocols: vec![2, 3], ..Self::default() };
        let mut numbers = (0..starts[0]).chain(own);
        while let Some(number) = numbers.next() {
            let at = |why| format!("{name}:{}: {why}", number + 1);
            let Some(names) = transcript.lines[number].strip_prefix("!> for ") else {
                transcript.line(number, &Row::new()).map_err(at)?;
                continue;
            };
            let names = names.to_owned();
            let end = |line: &usize| transcript.lines[*line] != "!> end";
            let body: Vec<usize> = numbers.by_ref().take_while(end).collect();
            transcript.turns(number, &names, &body).map_err(at)?;
        }
        Ok(transcript)
    }

    /// The body of a loop, once for each row.
    fn turns(&mut self, number: usize, names: &str, body: &[usize]) -> Result<(), String> {
        let (names, rows) = match names.split_once(" in ") {
            Some((name, values)) => (name, each(values)),
            None => {
                let rows = body.iter().filter_map(|line| self.lines[*line].strip_prefix("!> | "));
                (names, rows.map(str::to_owned).collect::<Vec<_>>())
            }
        };
        let names: Vec<&str> = names.split(" ; ").collect();
        for row in rows {
            let values: Vec<&str> = row.split(" ; ").collect();
            if values.len() != names.len() {
                return Err(format!("{names:?} are not {row}"));
            }
            let row =
                names.iter().zip(values).map(|(name, it)| (format!("${name}"), it.to_owned()));
            let row: Row = row.collect();
            self.push(number, "", Action::Begin);
            for line in body {
                self.line(*line, &row)?;
            }
        }
        Ok(())
    }

    fn push(&mut self, line: usize, client: &str, action: Action) -> &mut Step {
        self.steps.push(Step {
            line,
            client: client.to_owned(),
            action,
            expected: Block { text: Vec::new(), place: line + 1..line + 1 },
            compact: false,
        });
        self.steps.last_mut().expect("it was just put there")
    }

    fn line(&mut self, number: usize, row: &Row) -> Result<(), String> {
        let mut line = self.lines[number].clone();
        for (name, value) in row.iter().chain(&self.lets) {
            line = line.replace(name, value);
        }
        if line.is_empty() || line.starts_with(['#', '=']) || line.starts_with("!> | ") {
            return Ok(());
        }
        if let Some(directive) = line.strip_prefix("!> ") {
            return self.directive(number, directive);
        }
        let Some((client, mark, rest)) = addressed(&line) else {
            return self.more_of_a_reply(number, &line);
        };
        if mark == "<" {
            let step = self.push(number, client, Action::Arrives);
            step.expected = Block { text: vec![rest.to_owned()], place: number..number + 1 };
            step.compact = !is_long(rest);
            return Ok(());
        }
        let (rest, reply) =
            rest.rsplit_once(" ->").map_or((rest, None), |(rest, reply)| (rest, Some(reply)));
        let step = self.push(number, client, action(mark, rest)?);
        if let Some(reply) = reply {
            step.compact = true;
            step.expected =
                Block { text: vec![reply.trim().to_owned()], place: number..number + 1 };
        }
        Ok(())
    }

    fn more_of_a_reply(&mut self, number: usize, line: &str) -> Result<(), String> {
        let step = self.steps.last_mut().ok_or("a reply to nothing")?;
        let indent = if step.compact { 1 } else { step.indent() };
        let block = &mut step.expected;
        if block.place.end != number {
            return Err("a reply must follow its command without a gap".to_owned());
        }
        let (margin, text) = line.split_at_checked(indent).ok_or("too short for its indent")?;
        if !margin.trim().is_empty() {
            return Err(format!("the line must be indented by {indent}"));
        }
        match block.text.last_mut() {
            Some(last) if step.compact => {
                *last = format!("{last} {}", text.trim()).trim_start().to_owned();
            }
            _ => block.text.push(text.to_owned()),
        }
        block.place.end = number + 1;
        Ok(())
    }

    fn directive(&mut self, number: usize, directive: &str) -> Result<(), String> {
        let pair = |setting: &str| {
            let pair = setting.split_once(' ').ok_or("it wants a name and a value")?;
            Ok::<_, String>((pair.0.to_owned(), pair.1.to_owned()))
        };
        match directive.split_once(' ').unwrap_or((directive, "")) {
            ("proto", "2") => self.protocols = vec![2],
            ("proto", "3") => self.protocols = vec![3],
            ("proto", "both") => self.protocols = vec![2, 3],
            ("config", setting) => self.config.push(pair(setting)?),
            ("module", setting) => self.module.push(pair(setting)?),
            ("let", setting) => {
                let (name, value) = setting.split_once(" = ").ok_or("let wants NAME = text")?;
                self.lets.push((format!("${name}"), value.to_owned()));
            }
            ("replica", "") => self.replica = Replica::Plain,
            ("twin", "") => self.replica = Replica::Twin,
            ("planted", "") => self.planted = true,
            ("caller", "") => self.caller = true,
            ("logged", text) => drop(self.push(number, "", Action::Logged(text.to_owned())).line),
            ("clock", ms) => {
                let ms = ms.parse().map_err(|_| "clock wants milliseconds".to_owned())?;
                self.push(number, "", Action::Clock(ms));
                self.clock = true;
            }
            ("settle", "") => drop(self.push(number, "", Action::Settle).line),
            ("pass", ms) => {
                let ms = ms.parse().map_err(|_| "pass wants milliseconds".to_owned())?;
                self.push(number, "", Action::Pass(ms));
            }
            _ => return Err(format!("unknown directive: {directive}")),
        }
        Ok(())
    }
}

/// The values of a loop: `a | b`, or `1..9` for all these numbers.
fn each(values: &str) -> Vec<String> {
    let numbers = values.split_once("..").and_then(|(from, to)| {
        let numbers = from.parse::<u32>().ok()?..=to.parse().ok()?;
        Some(numbers.map(|number| number.to_string()).collect())
    });
    numbers.unwrap_or_else(|| values.split(" | ").map(str::to_owned).collect())
}

/// Whether a reply is written as redis-cli does, one line for each element.
fn is_long(reply: &str) -> bool {
    let after = reply.trim_start().trim_start_matches(|c: char| c.is_ascii_digit());
    let numbered = after.len() < reply.trim_start().len() && after.starts_with([')', '#', '~']);
    numbered || ["(integer)", "(nil)", "(empty"].iter().any(|it| reply.starts_with(it))
}

/// `name> rest`, `name>> rest` or `name< rest`, where the name is letters and digits.
fn addressed(line: &str) -> Option<(&str, &str, &str)> {
    let end = line.find(|c: char| !c.is_ascii_alphanumeric()).filter(|&end| end > 0)?;
    let (name, rest) = line.split_at(end);
    let mark = [">>", ">", "<"].into_iter().find(|mark| rest.starts_with(mark))?;
    let rest = &rest[mark.len()..];
    let rest = rest.strip_prefix(' ').or_else(|| rest.is_empty().then_some(""))?;
    Some((name, mark, rest))
}

fn action(mark: &str, rest: &str) -> Result<Action, String> {
    let (word, command) = match rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
        Some((word, command)) => (word, command.trim_start().to_owned()),
        None => ("", rest.to_owned()),
    };
    match (word.split_once(' ').unwrap_or((word, "")), command.is_empty()) {
        (("close", ""), true) => Ok(Action::Close),
        (("reset", ""), true) => Ok(Action::Reset),
        (("wait-closed", ""), true) => Ok(Action::WaitClosed),
        (("blocked", ""), true) => Ok(Action::Blocked),
        (("counted", field), true) => Ok(Action::Counted(field.to_owned())),
        (("until", ""), false) => Ok(Action::Until(command)),
        (("sent", ""), false) => Ok(Action::Sent(command)),
        (("field", field), false) => Ok(Action::Field(field.to_owned(), command)),
        (("", ""), false) if mark == ">>" => Ok(Action::Together(command)),
        (("", ""), false) => Ok(Action::Command(command)),
        (("", ""), true) => Err("a command is missing".to_owned()),
        _ => Err(format!("unknown action {rest}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_replies_are_told_apart() {
        let text = "# c\n!> proto both\n!> config maxmemory 1mb\n\na> INFO\n1) x\n   2) y\nbob< 1) z\n     2) u\n";
        let transcript = Transcript::parse("t", text).unwrap();
        assert_eq!(transcript.protocols, [2, 3]);
        assert_eq!(transcript.config, [("maxmemory".to_owned(), "1mb".to_owned())]);
        let [first, second] = &transcript.steps[..] else { panic!("{transcript:?}") };
        assert_eq!(first.action, Action::Command("INFO".into()));
        assert_eq!(first.expected.text, ["1) x", "   2) y"]);
        assert_eq!(
            (&second.action, second.expected.text.join("|")),
            (&Action::Arrives, "1) z|2) u".to_owned())
        );
    }

    #[test]
    fn scenes_loops_and_replies_in_one_line() {
        let text = "!> replica\n== one\na> PING -> PONG\n== two\n!> for X ; Y\n!> | 1 ; 2\n!> | 3 ; 4\n\
                    a>> SET k $X -> OK\na> GET k\n    -> x\nb< [\"$Y\",\n   5]\n!> end\n!> pass 7\n";
        let two = Transcript::scene("t", &text.replace("\n    ->", " ->"), 1).unwrap();
        assert_eq!((two.replica, Transcript::count(text)), (Replica::Plain, 2));
        let actions: Vec<_> = two.steps.iter().map(|step| step.action.clone()).collect();
        let turn = |x| {
            let set = Action::Together(format!("SET k {x}"));
            [Action::Begin, set, Action::Command("GET k".into()), Action::Arrives]
        };
        assert_eq!(actions[..4], turn(1));
        assert_eq!(actions[4..8], turn(3));
        assert_eq!(actions[8..], [Action::Pass(7)]);
        assert_eq!(two.steps[7].expected.text, ["[\"4\", 5]"]);
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
