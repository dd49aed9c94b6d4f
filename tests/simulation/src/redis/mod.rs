//! Takes the place of `module/src/redis`: the same names, over a [`Host`] in memory instead of a server's
//! API. It contains only what locks and sessions need. There is one database, and messages on channels reach
//! no client.

mod ctx;
mod key;
#[path = "../../../../module/src/redis/message.rs"]
mod message;
mod parked;
#[path = "../../../../module/src/redis/spec.rs"]
mod spec;

pub(crate) use ctx::{Ctx, Host, Timer, here};
pub(crate) use key::{Changed, Cursor, Entry, Key, Keyspace, changed};
pub(crate) use message::{KeyEvent, KeyKind, Reply, ServerEvent};
pub(crate) use parked::{Answer, Handle, Parked};
pub(crate) use spec::{ArgSpec, Command, CommandSpec, ConfigKind, ConfigSpec};

use crate::module::Module;
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::marker::PhantomData;
use std::sync::LazyLock;

/// A borrowed string.
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

/// An owned string.
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

type Run = fn(&Ctx<'_>, &[Arg<'_>]) -> Reply;

/// The commands that the module has declared.
#[derive(Default)]
pub(crate) struct Registry<'a>(BTreeMap<String, Run>, PhantomData<&'a ()>);

impl Registry<'_> {
    pub(crate) fn add<C: Command>(&mut self) {
        let name = C::SPEC.name.to_string_lossy().to_uppercase();
        self.0.insert(name, |ctx, args| {
            let (least, more) = C::SPEC.words();
            // The name counts too.
            let count = args.len() + 1;
            if count < least || (count > least && !more) {
                return spec::wrong_arity(C::SPEC.name);
            }
            C::run(ctx, args)
        });
    }
}

/// Executes a command of the module.
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
pub(crate) struct InfoWriter;

/// The error of a real server.
pub(crate) const NO_REPLICAS: &CStr = c"NOREPLICAS Not enough good replicas to write.";

pub(crate) fn log_line(_: &str) {}
