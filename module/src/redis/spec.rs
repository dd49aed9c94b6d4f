//! What is declared to the server: commands and options, with all that it and its users are told of them.
//! Nothing here sees a pointer.

use std::ffi::{CStr, CString};

use super::{Arg, Ctx, Reply};
use crate::server::Server;

/// A command: what the server and its users are told of it, and what it does.
pub(crate) trait Command: 'static {
    /// What the server and its users are told of it.
    const SPEC: CommandSpec;

    /// What it does. The arguments do not contain the command's own name.
    fn run(ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Reply;
}

/// What the server and its users are told of a command.
#[derive(Debug)]
pub(crate) struct CommandSpec {
    pub(crate) name: &'static CStr,
    /// How it behaves, in the words of the module API; `write` first.
    pub(crate) flags: &'static CStr,
    pub(crate) summary: &'static CStr,
    pub(crate) complexity: &'static CStr,
    pub(crate) args: &'static [ArgSpec],
}

/// Categories of ours, on servers where a module may add some: what an application needs, and what is
/// for operators.
pub(super) const FOR_ALL: &CStr = c"lock";
pub(super) const FOR_OPERATORS: &CStr = c"lock_admin";

impl CommandSpec {
    /// Whether it writes its key.
    pub(crate) const fn writes(&self) -> bool {
        matches!(self.flags.to_bytes(), [b'w', ..])
    }

    pub(super) const fn has_key(&self) -> bool {
        matches!(self.args, [ArgSpec::Key, ..])
    }

    /// The fewest words that it has, with its name, and whether there may be more.
    pub(super) const fn words(&self) -> (usize, bool) {
        let (mut least, mut more, mut rest) = (1, false, self.args);
        while let [arg, others @ ..] = rest {
            match arg {
                ArgSpec::Key | ArgSpec::Text(_) | ArgSpec::Number(_) => least += 1,
                ArgSpec::NumberOrWord { .. } => least += 1,
                ArgSpec::NamedText { .. } => least += 2,
                ArgSpec::OptionalText(_)
                | ArgSpec::OptionalWord { .. }
                | ArgSpec::OptionalNumber { .. }
                | ArgSpec::OptionalNamedText { .. }
                | ArgSpec::OptionalWordOrNumber { .. } => more = true,
            }
            rest = others;
        }
        (least, more)
    }

    /// The same in one number: negative where more may follow.
    pub(super) fn arity(&self) -> i32 {
        let (least, more) = self.words();
        let least = i32::try_from(least).unwrap_or(0);
        if more { -least } else { least }
    }

    /// The server's own ACL categories for it, and one of ours. What tells of all keys is dangerous.
    pub(super) fn categories(&self) -> [CString; 2] {
        let flags = self.flags.to_string_lossy();
        let has = |wanted| flags.split(' ').any(|flag| flag == wanted);
        let is_dangerous = has("admin") || has("readonly") && !self.has_key();
        let all = [
            (has("write"), "write"),
            (has("readonly"), "read"),
            (has("fast"), "fast"),
            (!has("fast"), "slow"),
            (has("blocking"), "blocking"),
            (has("admin"), "admin"),
            (is_dangerous, "dangerous"),
        ];
        let theirs: Vec<_> = all.into_iter().filter(|(is, _)| *is).map(|(_, name)| name).collect();
        let theirs = theirs.join(" ");
        let ours = if is_dangerous { FOR_OPERATORS } else { FOR_ALL }.to_string_lossy();
        let both = format!("{theirs} {ours}");
        [both, theirs].map(|names| CString::new(names).unwrap_or_default())
    }
}

/// One argument, as `COMMAND DOCS` shows it.
#[derive(Debug)]
pub(crate) enum ArgSpec {
    /// The key.
    Key,
    /// Any bytes.
    Text(&'static CStr),
    /// Any bytes, or nothing.
    OptionalText(&'static CStr),
    /// A number.
    Number(&'static CStr),
    /// A number, or a word in its place.
    NumberOrWord { name: &'static CStr, word: &'static CStr },
    /// A word, or nothing.
    OptionalWord { word: &'static CStr, name: &'static CStr },
    /// A word and a number, or neither.
    OptionalNumber { word: &'static CStr, name: &'static CStr },
    /// A word and any bytes.
    NamedText { word: &'static CStr, name: &'static CStr },
    /// A word and any bytes, or neither.
    OptionalNamedText { word: &'static CStr, name: &'static CStr },
    /// One of two options, or neither: a word, or a word and a number.
    OptionalWordOrNumber { word: &'static CStr, other: &'static CStr, name: &'static CStr },
}

/// The server's own words for this mistake, with our own name for the command: not the caller's
/// spelling of it.
pub(super) fn wrong_arity(name: &CStr) -> Reply {
    let name = name.to_string_lossy();
    let text = format!("ERR wrong number of arguments for '{name}' command");
    CString::new(text)
        .map_or(Reply::error(c"ERR wrong number of arguments"), |text| Reply::Error(text.into()))
}

/// An option.
#[derive(Debug)]
pub(crate) struct ConfigSpec {
    /// Its name, without the module's.
    pub(crate) name: &'static CStr,
    pub(crate) kind: ConfigKind,
    pub(crate) default: i64,
    pub(crate) get: fn(&Server) -> i64,
    pub(crate) set: fn(&mut Server, i64),
}

/// What values an option takes.
#[derive(Debug)]
pub(crate) enum ConfigKind {
    /// A number from the first to the second.
    Number(i64, i64),
    /// `yes` (1) or `no` (0).
    Switch,
    /// One of these words; their positions are the values.
    Word(&'static [&'static CStr]),
}

impl ConfigSpec {
    /// Reads a value as `MODULE LOAD` gives it.
    pub(super) fn parse(&self, text: &[u8]) -> Option<i64> {
        match self.kind {
            ConfigKind::Number(least, most) => {
                let number: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
                (least..=most).contains(&number).then_some(number)
            }
            ConfigKind::Switch => position(&[c"no", c"yes"], text),
            ConfigKind::Word(words) => position(words, text),
        }
    }
}

fn position(words: &[&CStr], text: &[u8]) -> Option<i64> {
    let at = words.iter().position(|word| word.to_bytes().eq_ignore_ascii_case(text))?;
    i64::try_from(at).ok()
}

impl ConfigKind {
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Number(least, most) => format!("a number from {least} to {most}"),
            Self::Switch => "yes or no".into(),
            Self::Word(words) => {
                let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
                format!("one of {}", words.join(", "))
            }
        }
    }
}
