//! Declarations of commands and configuration options, with their documentation. Contains no `unsafe` code.

use std::ffi::{CStr, CString};
use std::ops::Range;

use kvlock_core::arguments::width;

use super::{Arg, Ctx, Reply};
use crate::server::Server;

/// A command: its declaration for the server and its users, and its function.
pub(crate) trait Command: 'static {
    /// Declaration for the server and its users.
    const SPEC: CommandSpec;

    /// Runs the command. The arguments do not contain the command's own name.
    fn run(ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Reply;
}

/// Declaration of a command for the server and its users.
#[derive(Debug)]
pub(crate) struct CommandSpec {
    pub(crate) name: &'static CStr,
    /// Flags of the module API, separated by spaces. The flag `write`, if present, must be the first.
    pub(crate) flags: &'static CStr,
    pub(crate) summary: &'static CStr,
    pub(crate) complexity: &'static CStr,
    pub(crate) args: &'static [ArgSpec],
}

/// ACL category of the commands for applications, on servers that let a module add categories.
pub(super) const FOR_ALL: &CStr = c"lock";

/// ACL category of the commands for operators, on the same servers.
pub(super) const FOR_OPERATORS: &CStr = c"lock_admin";

impl CommandSpec {
    /// Returns whether the command has the flag `write`.
    pub(crate) const fn writes(&self) -> bool {
        matches!(self.flags.to_bytes(), [b'w', ..])
    }

    pub(super) const fn has_key(&self) -> bool {
        matches!(self.args, [ArgSpec::Key, ..])
    }

    /// Returns whether an option of the command can name a key. The server cannot find such a key by
    /// itself, because a text argument may equal the option's word. So the server asks the command.
    pub(super) const fn names_keys_in_options(&self) -> bool {
        let mut rest = self.args;
        while let [arg, others @ ..] = rest {
            if matches!(
                arg,
                ArgSpec::OptionalKey { .. }
                    | ArgSpec::OptionalKeys { .. }
                    | ArgSpec::OptionalStore { .. }
            ) {
                return true;
            }
            rest = others;
        }
        false
    }

    /// Returns the positions of all keys in the words of a command, and how each key is used. The first word
    /// is the command's name. Words that the command would refuse are skipped.
    pub(super) fn key_positions(&self, words: &[&[u8]]) -> Vec<(usize, KeyAccess)> {
        let (fixed, _) = self.words();
        let mut found = Vec::from_iter(self.has_key().then_some((1, KeyAccess::Update)));
        let mut at = fixed;
        while let Some(rest @ [word, ..]) = words.get(at..) {
            let end = at.saturating_add(width(rest));
            let is_named = |name: &CStr| name.to_bytes().eq_ignore_ascii_case(word);
            let option = self.args.iter().find(|arg| arg.word().is_some_and(is_named));
            if let Some((option, access)) = option.and_then(|it| Some((it, it.key_access()?))) {
                found.extend(option.keys(at..end).map(|position| (position, access)));
            }
            at = end;
        }
        found.retain(|(position, _)| *position < words.len());
        found
    }

    /// Returns the smallest number of words of the command, including its name, and whether more may follow.
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
                | ArgSpec::OptionalKey { .. }
                | ArgSpec::OptionalKeys { .. }
                | ArgSpec::OptionalStore { .. }
                | ArgSpec::OptionalWordOrNumber { .. } => more = true,
            }
            rest = others;
        }
        (least, more)
    }

    /// Returns the arity as the server expects it: the smallest number of words, negative if more words may
    /// follow.
    pub(super) fn arity(&self) -> i32 {
        let (least, more) = self.words();
        let least = i32::try_from(least).unwrap_or(0);
        if more { -least } else { least }
    }

    /// Returns the ACL categories of the command: first with this module's own category, then without it. An
    /// `admin` command is in `dangerous`, and so is a command that reads but names no key.
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
    /// A word and a further key, or neither.
    OptionalKey { word: &'static CStr, name: &'static CStr },
    /// A word, a number, and this many further keys; or none of these.
    OptionalKeys { word: &'static CStr, name: &'static CStr },
    /// A word, a further key to write, its value, and an optional lifetime; or none of these.
    OptionalStore { word: &'static CStr, key: &'static CStr },
}

/// Use of a key by a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyAccess {
    /// Reads and changes the key.
    Update,
    /// Reads the key.
    Read,
    /// Replaces the key without reading it.
    Overwrite,
}

impl ArgSpec {
    /// Returns the word with which an option begins. `None` for any other argument, and for a choice of two
    /// words.
    pub(super) fn word(&self) -> Option<&'static CStr> {
        match self {
            Self::Key
            | Self::Text(_)
            | Self::OptionalText(_)
            | Self::Number(_)
            | Self::NumberOrWord { .. }
            | Self::OptionalWordOrNumber { .. } => None,
            Self::OptionalWord { word, .. }
            | Self::OptionalNumber { word, .. }
            | Self::NamedText { word, .. }
            | Self::OptionalNamedText { word, .. }
            | Self::OptionalKey { word, .. }
            | Self::OptionalKeys { word, .. }
            | Self::OptionalStore { word, .. } => Some(word),
        }
    }

    /// Returns the positions of the keys among the words of an option that names keys.
    fn keys(&self, option: Range<usize>) -> Range<usize> {
        let first = option.start.saturating_add(1);
        if matches!(self, Self::OptionalKeys { .. }) {
            first.saturating_add(1)..option.end
        } else {
            first..option.end.min(first.saturating_add(1))
        }
    }

    /// Returns how the command uses the keys that an option names. `None` if it names none.
    pub(super) fn key_access(&self) -> Option<KeyAccess> {
        match self {
            Self::OptionalKey { .. } => Some(KeyAccess::Read),
            Self::OptionalKeys { .. } => Some(KeyAccess::Update),
            Self::OptionalStore { .. } => Some(KeyAccess::Overwrite),
            Self::Key
            | Self::Text(_)
            | Self::OptionalText(_)
            | Self::Number(_)
            | Self::NumberOrWord { .. }
            | Self::OptionalWord { .. }
            | Self::OptionalNumber { .. }
            | Self::NamedText { .. }
            | Self::OptionalNamedText { .. }
            | Self::OptionalWordOrNumber { .. } => None,
        }
    }
}

/// Returns the error for a wrong number of arguments, with the server's own text. The text contains the
/// declared name of the command, not the caller's spelling.
pub(super) fn wrong_arity(name: &CStr) -> Reply {
    let name = name.to_string_lossy();
    let text = format!("ERR wrong number of arguments for '{name}' command");
    CString::new(text)
        .map_or(Reply::error(c"ERR wrong number of arguments"), |text| Reply::Error(text.into()))
}

/// Declaration of a configuration option.
#[derive(Debug)]
pub(crate) struct ConfigSpec {
    /// Name, without the prefix `kvlock.`.
    pub(crate) name: &'static CStr,
    pub(crate) kind: ConfigKind,
    pub(crate) default: i64,
    pub(crate) get: fn(&Server) -> i64,
    pub(crate) set: fn(&mut Server, i64),
}

/// Values that a configuration option takes.
#[derive(Debug)]
pub(crate) enum ConfigKind {
    /// A number in this inclusive range.
    Number(i64, i64),
    /// `yes` (1) or `no` (0).
    Switch,
    /// One of these words. The value is its index.
    Word(&'static [&'static CStr]),
}

impl ConfigSpec {
    /// Parses a value from the arguments of `MODULE LOAD`.
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

#[cfg(test)]
mod tests {
    use super::*;
    use kvlock_core::arguments::Options;

    const SPEC: CommandSpec = CommandSpec {
        name: c"lock.try",
        flags: c"write getkeys-api",
        summary: c"",
        complexity: c"",
        args: &[
            ArgSpec::Key,
            ArgSpec::Text(c"owner"),
            ArgSpec::OptionalWord { word: c"SHARED", name: c"shared" },
            ArgSpec::OptionalNamedText { word: c"VALUE", name: c"value" },
            ArgSpec::OptionalKey { word: c"UNLESS", name: c"ready-key" },
            ArgSpec::OptionalKeys { word: c"WITH", name: c"with" },
            ArgSpec::OptionalStore { word: c"STORE", key: c"ready-key" },
        ],
    };

    fn positions(words: &[&str]) -> Vec<usize> {
        let words: Vec<_> = words.iter().map(|word| word.as_bytes()).collect();
        SPEC.key_positions(&words).into_iter().map(|(position, _)| position).collect()
    }

    #[test]
    fn a_value_that_looks_like_an_option_hides_no_key() {
        assert_eq!(positions(&["lock.try", "k", "UNLESS"]), [1]);
        assert_eq!(positions(&["lock.try", "k", "a", "unless", "r"]), [1, 4]);
        assert_eq!(positions(&["lock.try", "k", "a", "VALUE", "UNLESS", "UNLESS", "r"]), [1, 6]);
        assert_eq!(
            positions(&["lock.try", "k", "a", "UNLESS", "UNLESS", "VALUE", "STORE"]),
            [1, 4]
        );
        assert_eq!(positions(&["lock.try", "k", "a", "STORE", "r", "UNLESS", "PX", "9"]), [1, 4]);
        assert_eq!(positions(&["lock.try", "k", "a", "UNLESS"]), [1]);
        let set = ["lock.try", "k", "a", "with", "2", "x", "UNLESS", "UNLESS", "r"];
        assert_eq!(positions(&set), [1, 5, 6, 8]);
        assert_eq!(positions(&["lock.try", "k", "a", "VALUE", "WITH", "1", "x"]), [1]);
        assert_eq!(positions(&["lock.try", "k", "a", "WITH", "3", "x"]), [1, 5]);
        assert_eq!(positions(&["lock.try", "k", "a", "WITH", "65", "x", "UNLESS", "r"]), [1, 7]);
        let after_holds = ["lock.try", "k", "a", "HOLDS", "STORE", "r", "WITH", "1", "x"];
        assert_eq!(positions(&after_holds), [1, 8]);
    }

    /// Returns the keys that a command uses, if it accepts these options.
    fn used(options: &[&'static str]) -> Option<Vec<&'static str>> {
        let mut options = Options::split(options);
        let mut keys = vec!["k"];
        if let Some(further) = options.further("k").ok()? {
            keys.extend(further.with.iter().chain(further.under));
        }
        keys.extend(options.argument(b"UNLESS").ok()?);
        keys.extend(options.store().ok()?.map(|store| store.key));
        keys.sort_unstable();
        Some(keys)
    }

    #[test]
    fn the_server_is_told_exactly_the_keys_that_are_used() {
        let words = ["HOLDS", "STORE", "WITH", "UNLESS", "VALUE", "PX", "1", "2"];
        let (mut sequences, mut accepted) = (vec![vec![]], 0);
        for _ in 0..6 {
            let longer = |sequence: &Vec<&'static str>| {
                words.map(|word| [&sequence[..], &[word]].concat()).to_vec()
            };
            sequences = sequences.iter().flat_map(longer).collect();
            for options in &sequences {
                let Some(used) = used(options) else { continue };
                accepted += 1;
                let command = [&["lock.try", "k", "a"][..], options].concat();
                let mut told: Vec<_> = positions(&command).iter().map(|at| command[*at]).collect();
                told.sort_unstable();
                assert_eq!(told, used, "{command:?}");
            }
        }
        assert!(accepted > 1_000, "{accepted}");
    }
}
