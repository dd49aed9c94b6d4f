//! Reads the commands of a server from its reply to `COMMAND DOCS`.

use crate::cmd;
use crate::resp::{Connection, Value};
use std::fmt;

/// A command and its arguments.
#[derive(Clone, Debug)]
pub struct Command {
    /// Its name in lower case; `config|get` is a subcommand.
    pub name: String,
    /// Its arguments, in the order of the syntax.
    pub arguments: Vec<Argument>,
}

/// An argument of a command.
#[derive(Clone, Debug, Default)]
pub struct Argument {
    /// Its name in the reply to `COMMAND DOCS`.
    pub name: String,
    /// Its type: `key`, `string`, `integer`, `pure-token`, `oneof`, …
    pub kind: String,
    /// The keyword: before the value, or in place of it.
    pub token: Option<String>,
    /// `true` if it may be left out.
    pub optional: bool,
    /// `true` if it may be given more than once.
    pub multiple: bool,
    /// Its parts or alternatives.
    pub parts: Vec<Self>,
}

/// All commands in the reply to `COMMAND DOCS`. Subcommands take the place of the command that contains them.
pub fn commands(connection: &mut Connection) -> Vec<Command> {
    let mut all = Vec::new();
    for (name, command) in pairs(&connection.call(cmd!["COMMAND", "DOCS"])) {
        read(&name, &command, &mut all);
    }
    all
}

/// The commands of the module, in the order of their names.
pub fn ours(connection: &mut Connection) -> Vec<Command> {
    let mut ours: Vec<_> =
        commands(connection).into_iter().filter(|it| is_ours(it.name.as_bytes())).collect();
    ours.sort_by(|a, b| a.name.cmp(&b.name));
    ours
}

/// Returns whether the name begins like the names of the module's commands.
pub fn is_ours(name: &[u8]) -> bool {
    let name = name.to_ascii_uppercase();
    [&b"LOCK."[..], b"SEM.", b"LATCH.", b"SESSION."].iter().any(|family| name.starts_with(family))
}

/// The syntax of the command, as on its page in the documentation.
impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name.to_uppercase())?;
        self.arguments.iter().try_for_each(|argument| write!(f, " {argument}"))
    }
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let choice = self.kind == "oneof";
        let parts =
            |between| self.parts.iter().map(ToString::to_string).collect::<Vec<_>>().join(between);
        let plain = match &self.token {
            _ if choice => parts(" | "),
            Some(token) if self.kind == "block" => format!("{token} {}", parts(" ")),
            Some(token) if self.kind == "pure-token" => token.clone(),
            Some(token) => format!("{token} {}", self.name),
            None if self.multiple => format!("{} …", self.name),
            None => self.name.clone(),
        };
        match self.optional {
            true => write!(f, "[{plain}]"),
            false if choice => write!(f, "<{plain}>"),
            false => f.write_str(&plain),
        }
    }
}

fn read(name: &str, command: &Value, all: &mut Vec<Command>) {
    let field = |name: &str| pairs(command).into_iter().find(|(field, _)| field == name);
    if let Some((_, parts)) = field("subcommands") {
        pairs(&parts).iter().for_each(|(name, command)| read(name, command, all));
        return;
    }
    let arguments = field("arguments").map(|(_, all)| arguments(&all)).unwrap_or_default();
    all.push(Command { name: name.to_owned(), arguments });
}

fn arguments(all: &Value) -> Vec<Argument> {
    all.elements().iter().map(argument).collect()
}

fn argument(of: &Value) -> Argument {
    let mut argument = Argument::default();
    for (name, value) in pairs(of) {
        match name.as_str() {
            "name" => argument.name = value.text(),
            "type" => argument.kind = value.text(),
            "token" => argument.token = Some(value.text()),
            "arguments" => argument.parts = arguments(&value),
            "flags" => {
                let flags = value.elements();
                argument.optional = flags.iter().any(|flag| flag.text() == "optional");
                argument.multiple = flags.iter().any(|flag| flag.text().starts_with("multiple"));
            }
            _ => {}
        }
    }
    argument
}

/// The names and values of a map in RESP2.
fn pairs(flat: &Value) -> Vec<(String, Value)> {
    flat.elements().chunks(2).map(|pair| (pair[0].text(), pair[1].clone())).collect()
}
