//! `LOCK.PANIC entry`: provokes a panic, in builds for tests of the guard only. `LOCK.PANIC
//! past-the-end` reads what it may not, so that whoever watches the memory has something to see.

use crate::redis::{
    ArgSpec, Args, Command, CommandSpec, Ctx, Entry, Reply, provoke_at, read_past_the_end,
};

pub(crate) struct LockPanic;

const ENTRIES: [(&[u8], Entry); 12] = [
    (b"unload", Entry::Unload),
    (b"command", Entry::Command),
    (b"write-answer", Entry::WriteAnswer),
    (b"answer-done", Entry::AnswerDone),
    (b"client-gone", Entry::ClientGone),
    (b"timer", Entry::Timer),
    (b"key-event", Entry::KeyEvent),
    (b"server-event", Entry::ServerEvent),
    (b"read-config", Entry::ReadConfig),
    (b"write-config", Entry::WriteConfig),
    (b"info", Entry::Info),
    (b"scan", Entry::Scan),
];

impl Command for LockPanic {
    const SPEC: CommandSpec = CommandSpec {
        name: c"lock.panic",
        flags: c"admin",
        arity: 2,
        key: None,
        acl: c"admin dangerous",
        summary: c"Provokes a panic at the next entry of a kind.",
        complexity: c"O(1)",
        args: &[ArgSpec::Text(c"entry")],
    };

    fn run(_ctx: &Ctx<'_>, args: &Args<'_>) -> Reply {
        let [wanted] = args.all() else { return Reply::Nil };
        if wanted.bytes() == b"past-the-end" {
            return Reply::Number(read_past_the_end().into());
        }
        let found = ENTRIES.iter().find(|(name, _)| *name == wanted.bytes());
        match found {
            Some((_, entry)) => {
                provoke_at(*entry);
                Reply::Number(1)
            }
            None => Reply::Number(0),
        }
    }
}
