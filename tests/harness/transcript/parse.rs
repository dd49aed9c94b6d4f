//! Parses a transcript into steps.

use regex::{Captures, Regex};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

/// A parsed scene of a file. A file without `==` lines is one scene.
#[derive(Clone, Debug, Default)]
pub struct Transcript {
    pub(super) name: String,
    lines: Vec<String>,
    pub(super) steps: Vec<Step>,
    /// The protocols in which it is played.
    pub(super) protocols: Vec<u8>,
    /// Lines of configuration for the server.
    pub(super) config: Vec<(String, String)>,
    /// Arguments of the module.
    pub(super) module: Vec<(String, String)>,
    /// Directives that select servers and modules, such as `replica` and `provoke`.
    with: BTreeSet<String>,
    /// Names that are replaced in the lines below them, with their values.
    lets: Row,
    /// Stories: their names, and the indexes of their lines.
    stories: BTreeMap<String, Vec<usize>>,
    /// Lines with which each scene ends.
    finally: Vec<(usize, String)>,
    /// Number of owners that each lock has had so far in `line` and `served`. Each repetition of a loop begins
    /// with the numbers from before the loop.
    served: BTreeMap<String, usize>,
    /// Index of the line that may continue a reply.
    more_at: usize,
}

/// An action of a client, a message to a client, an action on a server, or the start of a repetition.
#[derive(Clone, Debug, Default)]
pub(super) struct Step {
    /// Number of its line, counted from 0.
    pub line: usize,
    /// That line, with its `$` names replaced.
    pub shown: String,
    /// Empty for steps without a client.
    pub client: String,
    /// `>`, `>>` or `<`; `!` for steps without a client.
    pub mark: &'static str,
    /// The text in parentheses, or the word after `!>`.
    pub word: String,
    /// The command, or the arguments of the word after `!>`.
    pub text: String,
    /// The lines of the expected reply. For a message, they are without the indentation by `b< `.
    pub expected: Vec<String>,
}

/// Names with their values.
type Row = Vec<(String, String)>;

impl Transcript {
    /// Reads a transcript, or its first scene. Error messages contain `name`.
    ///
    /// # Errors
    /// If a line is not valid, or a block has no end.
    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        Self::scene(name, text, 0)
    }

    /// Number of scenes in a text, at least one.
    pub(super) fn count(text: &str) -> usize {
        text.lines().filter(|line| line.starts_with("== ")).count().max(1)
    }

    /// Reads the scene with the given number, and the lines before the first scene.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub(super) fn scene(name: &str, text: &str, index: usize) -> Result<Self, String> {
        let lines: Vec<String> = text.lines().map(|line| line.trim_end().to_owned()).collect();
        let mut starts: Vec<usize> =
            (0..lines.len()).filter(|line| lines[*line].starts_with("== ")).collect();
        starts.push(lines.len());
        let own = starts.get(index + 1).map_or(0..0, |end| starts[index]..*end);
        let numbers: Vec<usize> = (0..starts[0]).chain(own).collect();
        let name = name.to_owned();
        let mut scene = Self { name, lines, protocols: vec![2, 3], ..Self::default() };
        scene.play_lines(&numbers, &Row::new())?;
        for (number, line) in std::mem::take(&mut scene.finally) {
            scene.line(number, &line)?;
        }
        Ok(scene)
    }

    /// Returns whether the transcript has that directive, such as `replica` or `clock`.
    pub(super) fn has(&self, word: &str) -> bool {
        self.with.contains(word) || self.steps.iter().any(|step| step.word == word)
    }

    fn play_lines(&mut self, numbers: &[usize], row: &Row) -> Result<(), String> {
        let mut rest = numbers;
        while let [number, others @ ..] = rest {
            let at = |why: String| format!("{}:{}: {why}", self.name, number + 1);
            let line = self.put_in(&self.lines[*number], row);
            rest = others;
            let block =
                ["!> for ", "!> story "].into_iter().find_map(|word| line.strip_prefix(word));
            let Some(head) = block else {
                let at = at(String::new());
                self.line(*number, &line).map_err(|why| at + &why)?;
                continue;
            };
            let length = self.block(others).ok_or_else(|| at("it has no end".to_owned()))?;
            let body = &others[..length];
            rest = &others[length + 1..];
            if line.starts_with("!> story ") {
                self.stories.insert(head.to_owned(), body.to_vec());
            } else {
                self.turns(*number, head, body, row)?;
            }
        }
        Ok(())
    }

    /// Replaces the names in a line: those of `let` lines above it, and those of a repetition.
    fn put_in(&self, line: &str, row: &Row) -> String {
        put_in(line, &[&self.lets[..], row].concat())
    }

    /// Number of lines before the end of a block; `None` if it has no end.
    fn block(&self, lines: &[usize]) -> Option<usize> {
        let mut depth = 1;
        lines.iter().position(|number| {
            let line = &self.lines[*number];
            let begins = line.starts_with("!> for ") || line.starts_with("!> story ");
            depth += i32::from(begins) - i32::from(line == "!> end");
            depth == 0
        })
    }

    /// Expands the body of a loop once for each row of values.
    fn turns(
        &mut self,
        number: usize,
        head: &str,
        body: &[usize],
        row: &Row,
    ) -> Result<(), String> {
        let rows = body.iter().map(|it| &*self.lines[*it]);
        let rows = rows.take_while(|line| line.starts_with('#') || line.starts_with("!> | "));
        let rows = rows.filter_map(|line| line.strip_prefix("!> | "));
        let (names, values) = match head.split_once(" in ") {
            Some((name, values)) => (name, each(values)),
            None => (head, rows.map(|it| self.put_in(it, row)).collect()),
        };
        let names: Vec<&str> = names.split(" ; ").collect();
        let served = self.served.clone();
        for values in values {
            self.served.clone_from(&served);
            let values: Vec<&str> = values.split(" ; ").collect();
            if values.len() != names.len() {
                return Err(format!("{}:{}: {names:?} are not {values:?}", self.name, number + 1));
            }
            let own =
                names.iter().zip(values).map(|(name, it)| ((*name).to_owned(), it.to_owned()));
            let row: Row = row.iter().cloned().chain(own).collect();
            self.push(number, "!", "turn");
            self.play_lines(body, &row)?;
        }
        Ok(())
    }

    fn push(&mut self, line: usize, mark: &'static str, word: &str) -> &mut Step {
        self.more_at = line + 1;
        self.steps.push(Step { line, mark, word: word.to_owned(), ..Step::default() });
        self.steps.last_mut().expect("it was just put there")
    }

    fn line(&mut self, number: usize, line: &str) -> Result<(), String> {
        if line.is_empty() || line.starts_with(['#', '=']) || line.starts_with("!> | ") {
            return Ok(());
        }
        if let Some(directive) = line.strip_prefix("!> ") {
            return self.directive(number, directive);
        }
        let Some((client, mark, rest)) = addressed(line) else {
            return self.more_of_a_reply(number, line);
        };
        let (rest, reply) = match rest.rsplit_once(" ->") {
            _ if mark == "<" => ("", Some(rest)),
            Some((rest, reply)) => (rest, Some(reply)),
            None => (rest, None),
        };
        let (word, text) = match rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
            Some((word, command)) => (word, command.trim_start()),
            None => ("", rest),
        };
        let kind = word.split(' ').next().unwrap_or_default();
        let alone = ["close", "reset", "counted"].contains(&kind);
        let known = alone || ["", "sent", "until", "field"].contains(&kind);
        if !known || mark != "<" && alone != text.is_empty() {
            return Err(format!("unknown action {rest}"));
        }
        let step = self.push(number, mark, word);
        step.shown = line.to_owned();
        step.client = client.to_owned();
        step.text = text.to_owned();
        step.expected = reply.into_iter().map(|reply| reply.trim().to_owned()).collect();
        Ok(())
    }

    fn more_of_a_reply(&mut self, number: usize, line: &str) -> Result<(), String> {
        let right = self.more_at == number;
        let step = self.steps.last_mut().filter(|_| right);
        let step = step.ok_or("a reply must follow its command without a gap")?;
        // Lines of a message are indented by the width of `b< `.
        let margin = if step.mark == "<" { step.client.len() + 2 } else { 0 };
        if !line.get(..margin).is_some_and(|margin| margin.trim().is_empty()) {
            return Err(format!("the line must be indented by {margin}"));
        }
        step.expected.push(line[margin..].to_owned());
        self.more_at += 1;
        Ok(())
    }

    fn directive(&mut self, number: usize, directive: &str) -> Result<(), String> {
        let pair = |setting: &str, between: &str| {
            let pair = setting.split_once(between).ok_or("it wants a name and a value")?;
            Ok::<_, String>((pair.0.to_owned(), pair.1.to_owned()))
        };
        let (word, text) = directive.split_once(' ').unwrap_or((directive, ""));
        match word {
            "proto" => {
                let known = text.parse().ok().filter(|protocol| [2, 3].contains(protocol));
                self.protocols = vec![known.ok_or("there is no such protocol")?];
            }
            "config" => self.config.push(pair(text, " ")?),
            "module" => self.module.push(pair(text, " ")?),
            "let" => {
                let (name, value) = pair(text, " = ")?;
                self.lets.push((name, value));
            }
            "replica" | "twin" | "twins" | "cluster" | "provoke" | "caller" | "redisson" => {
                self.with.insert(word.to_owned());
            }
            "finally" => self.finally.push((number, text.to_owned())),
            "line" | "served" => self.in_line(number, word, text)?,
            "clock" | "logged" | "pass" | "restart" | "settle" | "stop" | "continue"
            | "written" | "agree" => {
                let step = self.push(number, "!", word);
                step.shown = format!("!> {directive}");
                step.text = text.to_owned();
            }
            _ => {
                let story = self.stories.get(directive).ok_or("there is no such story")?;
                self.play_lines(&story.clone(), &Row::new())?;
            }
        }
        Ok(())
    }

    /// `line k alice bob`: alice has the lock, and bob waits for it. `served k bob carol`: only bob has the
    /// lock, and after its release only carol. Client `a` acquires and releases. The client of a waiter is
    /// named by the first letter of its owner, and a token by its key and a number.
    fn in_line(&mut self, number: usize, word: &str, text: &str) -> Result<(), String> {
        let mut owners = text.split(' ');
        let key = owners.next().unwrap_or_default();
        let owners: Vec<&str> = owners.collect();
        let mut lines = Vec::new();
        for (at, owner) in owners.iter().enumerate() {
            let client = &owner[..1];
            if word == "line" && at > 0 {
                lines.push(format!("{client}> LOCK.WAIT {key} {owner} 600000 0 -> (blocked)"));
                continue;
            }
            let count = self.served.entry(key.to_owned()).or_default();
            let above = if *count > 0 { format!(" > {key}{count}") } else { String::new() };
            *count += 1;
            let grant = format!("[{{{key}{count}{above}}}, 1]");
            if word == "line" {
                lines.push(format!("a> LOCK.ACQUIRE {key} {owner} 600000 -> {grant}"));
            } else {
                lines.push(format!("{client}< {grant}"));
                lines
                    .extend(owners[at + 1..].iter().map(|next| format!("{}< (waits)", &next[..1])));
                lines.push(format!("a> LOCK.RELEASE {key} {owner} -> 0"));
            }
        }
        lines.iter().try_for_each(|line| self.line(number, line))
    }
}

/// Replaces each `$NAME` in a line, and then in the inserted values. If a name has several values, the last one is used.
fn put_in(line: &str, known: &Row) -> String {
    static NAMES: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"\$([A-Z_]+)").expect("it is one"));
    let value = |name: &Captures<'_>| {
        let value = known.iter().rev().find(|(known, _)| *known == name[1]);
        value.map_or(&name[0], |(_, value)| value).to_owned()
    };
    match NAMES.replace_all(line, value) {
        done if done == line => done.into_owned(),
        more => put_in(&more, known),
    }
}

/// The values of a loop: `a | b`, or `1..9` for the numbers from 1 to 9, both included.
fn each(values: &str) -> Vec<String> {
    let numbers = values.split_once("..").and_then(|(from, to)| {
        let numbers = from.parse::<u32>().ok()?..=to.parse().ok()?;
        Some(numbers.map(|number| number.to_string()).collect())
    });
    numbers.unwrap_or_else(|| values.split(" | ").map(str::to_owned).collect())
}

/// `name> rest`, `name>> rest` or `name< rest`, where the name is letters and digits.
fn addressed(line: &str) -> Option<(&str, &'static str, &str)> {
    let end = line.find(|c: char| !c.is_ascii_alphanumeric()).filter(|&end| end > 0)?;
    let (name, rest) = line.split_at(end);
    let mark = [">>", ">", "<"].into_iter().find(|mark| rest.starts_with(mark))?;
    let rest = &rest[mark.len()..];
    let rest = rest.strip_prefix(' ').or_else(|| rest.is_empty().then_some(""))?;
    Some((name, mark, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each step as client, mark, word, text and expected reply.
    fn steps(text: &str, scene: usize) -> Vec<String> {
        let steps = Transcript::scene("t", text, scene).unwrap().steps;
        let shown = |it: &Step| {
            let parts = [&it.client, it.mark, &it.word, &it.text, &it.expected.join("|")];
            parts.map(str::to_owned).join(" ").trim().to_owned()
        };
        steps.iter().map(shown).collect()
    }

    #[test]
    fn commands_and_replies_are_distinguished() {
        let text = "# c\n!> config maxmemory 1mb\n\na> INFO\n1) x\n   2) y\nbob< 1) z\n     2) u\n";
        let config = Transcript::parse("t", text).unwrap().config;
        assert_eq!(config, [("maxmemory".to_owned(), "1mb".to_owned())]);
        assert_eq!(steps(text, 0), ["a >  INFO 1) x|   2) y", "bob <   1) z|2) u"]);
    }

    #[test]
    fn scenes_loops_and_stories_are_expanded() {
        let text = "!> replica\n!> finally a> PING\n== one\na> TIME -> _\n== two\n!> story set\na>> SET k v -> OK\n!> end\n\
                    !> for X ; Y\n!> | 1 ; 2\n!> | 3 ; 4\n!> set\n!> for Z in 1..2\na> GET $X$Z -> [$Y,\n    5]\n!> end\n!> end\n!> pass 7\n";
        assert!(Transcript::parse("t", text).unwrap().has("replica"));
        assert_eq!((steps(text, 0).len(), Transcript::count(text)), (2, 2));
        let turn = |x, y: u8| {
            let get = |z| ["! turn".to_owned(), format!("a >  GET {x}{z} [{y},|    5]")];
            let [first, second] = [1, 2].map(get);
            let begin = ["! turn".to_owned(), "a >>  SET k v OK".to_owned()];
            [begin, first, second].concat()
        };
        let end = ["! pass 7", "a >  PING"].map(str::to_owned).to_vec();
        assert_eq!(steps(text, 1), [turn(1, 2), turn(3, 4), end].concat());
    }

    #[test]
    fn line_and_served_are_expanded() {
        let text = "!> line k alice bob carol\n!> served k bob carol\n";
        let told = "a> LOCK.ACQUIRE k alice 600000 -> [{k1}, 1]\nb> LOCK.WAIT k bob 600000 0 -> (blocked)\n\
                    c> LOCK.WAIT k carol 600000 0 -> (blocked)\nb< [{k2 > k1}, 1]\nc< (waits)\na> LOCK.RELEASE k bob -> 0\n\
                    c< [{k3 > k2}, 1]\na> LOCK.RELEASE k carol -> 0\n";
        assert_eq!(steps(text, 0), steps(told, 0));
    }

    #[test]
    fn an_invalid_transcript_is_refused_with_its_line() {
        for (text, line) in [
            ("1) x", 1),
            ("a> PING\n\nPONG", 3),
            ("!> proto 4", 1),
            ("# c\na> (dance)", 2),
            ("!> dance", 1),
            ("!> for X in 1 | 2", 1),
            ("b< 1) z\n2) u", 2),
        ] {
            let error = Transcript::parse("t", text).unwrap_err();
            assert!(error.starts_with(&format!("t:{line}: ")), "{error}");
        }
    }
}
