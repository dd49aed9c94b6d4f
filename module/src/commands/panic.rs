//! `LOCK.PANIC entry` makes the server's next call of this kind panic, so that tests can check the guard.
//! `LOCK.PANIC past-the-end` reads beyond a buffer, which a memory checker must report. The command exists
//! only in test builds.

use super::operation::{Answer, Operation};
use crate::redis::{Arg, ArgSpec, CommandSpec, Ctx, Entry, Reply, provoke_at, read_past_the_end};
use crate::server::Server;

pub(crate) struct LockPanic;

const ENTRIES: [(&[u8], Entry); 13] = [
    (b"unload", Entry::Unload),
    (b"command", Entry::Command),
    (b"write-answer", Entry::WriteAnswer),
    (b"answer-done", Entry::AnswerDone),
    (b"client-gone", Entry::ClientGone),
    (b"timer", Entry::Timer),
    (b"next-turn", Entry::NextTurn),
    (b"key-event", Entry::KeyEvent),
    (b"server-event", Entry::ServerEvent),
    (b"read-config", Entry::ReadConfig),
    (b"write-config", Entry::WriteConfig),
    (b"info", Entry::Info),
    (b"scan", Entry::Scan),
];

impl Operation for LockPanic {
    const SPEC: CommandSpec = CommandSpec {
        name: c"lock.panic",
        flags: c"admin",
        summary: c"Provokes a panic at the next entry of a kind.",
        complexity: c"O(1)",
        args: &[ArgSpec::Text(c"entry")],
    };

    fn run(_server: &mut Server, _ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let [wanted] = args else { return Ok(Reply::Nil) };
        if wanted.bytes() == b"past-the-end" {
            return Ok(Reply::Number(read_past_the_end().into()));
        }
        let found = ENTRIES.iter().find(|(name, _)| *name == wanted.bytes());
        if let Some((_, entry)) = found {
            provoke_at(*entry);
        }
        Ok(Reply::Number(found.is_some().into()))
    }
}
