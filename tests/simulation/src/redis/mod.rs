//! The fence in memory: what `module/src/redis` is to the module over the API of a server, this is over a
//! [`Host`], under the same names. Only what locks and sessions need is done: there is one database, and
//! nobody listens to channels.

mod ctx;
mod key;
mod parked;

pub(crate) use ctx::{Ctx, Host, Timer, here};
pub(crate) use key::{Changed, Cursor, Entry, Key, KeyKind, Keyspace, Stored};
pub(crate) use parked::{Answer, Handle, Parked};

use crate::module::Module;
use crate::server::Server;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fmt;
use std::marker::PhantomData;
use std::sync::LazyLock;

/// A string of somebody else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arg<'a>(&'a [u8]);

impl<'a> Arg<'a> {
    pub(crate) fn bytes(self) -> &'a [u8] {
        self.0
    }
}

impl AsRef<[u8]> for Arg<'_> {
    fn as_ref(&self) -> &[u8] {
        self.0
    }
}

/// A string of our own.
#[derive(Debug)]
pub(crate) struct Text(Vec<u8>);

impl Text {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }

    pub(crate) fn number(number: u64) -> Self {
        Self(number.to_string().into_bytes())
    }

    pub(crate) fn lend(&self) -> Arg<'_> {
        Arg(&self.0)
    }
}

/// What a command answers.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    Nil,
    Number(u64),
    Pair(u64, u64),
    Bytes(Vec<u8>),
    Word(&'static str),
    List(Vec<Self>),
    Map(Vec<(&'static str, Self)>),
    Error(Cow<'static, CStr>),
    Later,
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nil => f.write_str("nil"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Pair(one, other) => write!(f, "{one} {other}"),
            Self::Bytes(bytes) => f.write_str(&String::from_utf8_lossy(bytes)),
            Self::Word(word) => f.write_str(word),
            Self::List(all) => f.debug_list().entries(all).finish(),
            Self::Map(all) => f.debug_list().entries(all).finish(),
            Self::Error(error) => f.write_str(&error.to_string_lossy()),
            Self::Later => f.write_str("later"),
        }
    }
}

impl Reply {
    pub(crate) const fn error(text: &'static CStr) -> Self {
        Self::Error(Cow::Borrowed(text))
    }

    pub(crate) fn or_nil<T>(value: Option<T>, reply: impl FnOnce(T) -> Self) -> Self {
        value.map_or(Self::Nil, reply)
    }
}

pub(crate) trait Command: 'static {
    const SPEC: CommandSpec;

    fn run(ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Reply;
}

#[derive(Debug)]
pub(crate) struct CommandSpec {
    pub(crate) name: &'static CStr,
    pub(crate) flags: &'static CStr,
    pub(crate) summary: &'static CStr,
    pub(crate) complexity: &'static CStr,
    pub(crate) args: &'static [ArgSpec],
}

impl CommandSpec {
    pub(crate) const fn writes(&self) -> bool {
        matches!(self.flags.to_bytes(), [b'w', ..])
    }
}

#[derive(Debug)]
pub(crate) enum ArgSpec {
    Key,
    Text(&'static CStr),
    OptionalText(&'static CStr),
    Number(&'static CStr),
    NumberOrWord { name: &'static CStr, word: &'static CStr },
    OptionalWord { word: &'static CStr, name: &'static CStr },
    OptionalNumber { word: &'static CStr, name: &'static CStr },
    NamedText { word: &'static CStr, name: &'static CStr },
    OptionalNamedText { word: &'static CStr, name: &'static CStr },
    OptionalWordOrNumber { word: &'static CStr, other: &'static CStr, name: &'static CStr },
}

type Run = fn(&Ctx<'_>, &[Arg<'_>]) -> Reply;

/// The commands that the module has declared.
#[derive(Default)]
pub(crate) struct Registry<'a>(BTreeMap<String, Run>, PhantomData<&'a ()>);

impl Registry<'_> {
    pub(crate) fn add<C: Command>(&mut self) {
        let name = C::SPEC.name.to_string_lossy().to_uppercase();
        self.0.insert(name, |ctx, args| {
            let must_be = |arg: &&ArgSpec| {
                matches!(arg, ArgSpec::Key | ArgSpec::Text(_) | ArgSpec::Number(_))
            };
            if args.len() < C::SPEC.args.iter().filter(must_be).count() {
                return Reply::error(c"ERR wrong number of arguments");
            }
            C::run(ctx, args)
        });
    }
}

/// Carries out a command of the module.
///
/// # Panics
///
/// If the module has no such command.
pub(crate) fn call(ctx: &Ctx<'_>, words: &[Vec<u8>]) -> Reply {
    static COMMANDS: LazyLock<BTreeMap<String, Run>> = LazyLock::new(|| {
        let mut registry = Registry::default();
        Module::commands(&mut registry);
        registry.0
    });
    let args: Vec<_> = words[1..].iter().map(|word| Arg(word)).collect();
    COMMANDS[&*String::from_utf8_lossy(&words[0])](ctx, &args)
}

#[derive(Debug)]
pub(crate) struct ConfigSpec {
    pub(crate) name: &'static CStr,
    pub(crate) kind: ConfigKind,
    pub(crate) default: i64,
    pub(crate) get: fn(&Server) -> i64,
    pub(crate) set: fn(&mut Server, i64),
}

#[derive(Debug)]
pub(crate) enum ConfigKind {
    Number(i64, i64),
    Switch,
    Word(&'static [&'static CStr]),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyEvent<'a> {
    pub(crate) db: i32,
    pub(crate) key: &'a [u8],
    pub(crate) expired: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerEvent {
    BecamePrimary,
    BecameReplica,
    ReplicasChanged,
    Flushed(Option<i32>),
    Swapped(i32, i32),
    Loaded,
    Cron,
    ClientClosed(u64),
    TurnBegan,
}

#[derive(Debug)]
pub(crate) struct InfoWriter;

/// What a real server says too.
pub(crate) const NO_REPLICAS: &CStr = c"NOREPLICAS Not enough good replicas to write.";

pub(crate) fn log_line(_: &str) {}
