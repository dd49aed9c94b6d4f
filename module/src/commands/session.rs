//! The commands of sessions.

use kvlock_core::arguments::Options;
use kvlock_core::{AckAhead, Millis, NotOpened, Reading, arguments};

use super::info::number;
use super::operation::{Answer, Operation, SHOWN};
use crate::redis::{Arg, ArgSpec, CommandSpec, Ctx, Reply};
use crate::replies::{
    ACK_AHEAD, DRAINING, NO_SESSION, NO_USER, READ_ELSEWHERE, READ_ONLY, SUBSCRIBED,
    TOO_MANY_SESSIONS, full,
};
use crate::server::Server;
use crate::sessions::short_name;
use crate::waiting::{Outcomes, Waiting, WaitsFor};

/// `SESSION.OPEN ttl-ms [BELL]`
pub(super) struct SessionOpen;

impl Operation for SessionOpen {
    const SPEC: CommandSpec = CommandSpec {
        name: c"session.open",
        flags: c"deny-oom fast",
        summary: c"Opens a session: any number of waits over one connection.",
        complexity: c"O(1)",
        args: &[ArgSpec::Number(c"ttl-ms"), ArgSpec::OptionalWord { word: c"BELL", name: c"bell" }],
    };

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let [ttl, options @ ..] = args else { return Ok(Reply::Nil) };
        let (ttl, has_bell) = arguments::open(ttl.bytes(), Options::split(options))?;
        if !server.may_serve() {
            return Err(READ_ONLY);
        }
        let user = ctx.user().ok_or(NO_USER)?;
        let (name, now) = (ctx.random_digits(), server.now());
        match server.table.open_session(name, user.lend().bytes(), ttl, now) {
            Err(NotOpened::Draining) => Err(DRAINING),
            Err(NotOpened::Full(reached)) => Err(full(reached, TOO_MANY_SESSIONS)),
            Ok(session) => {
                if has_bell {
                    server.table.add_bell(session);
                }
                Ok(Reply::List(vec![Reply::Bytes(name.to_vec()), Reply::Number(now.mono.0)]))
            }
        }
    }
}

/// `SESSION.NEXT id ack timeout-ms [COUNT count]`
pub(super) struct SessionNext;

impl Operation for SessionNext {
    const SPEC: CommandSpec = CommandSpec {
        name: c"session.next",
        flags: c"blocking",
        summary: c"Returns outcomes of a session's waits, or waits until there are some.",
        complexity: c"O(N log M) where N is the number of outcomes and M of those that are kept",
        args: &[
            ArgSpec::Text(c"id"),
            ArgSpec::Number(c"ack"),
            ArgSpec::Number(c"timeout-ms"),
            ArgSpec::OptionalNumber { word: c"COUNT", name: c"count" },
        ],
    };

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let [id, ack, timeout, options @ ..] = args else { return Ok(Reply::Nil) };
        let (ack, timeout, most) =
            arguments::next(ack.bytes(), timeout.bytes(), Options::split(options))?;
        let session = server.session(ctx, *id)?;
        let (connection, now) = (ctx.connection(), server.now());
        let reading = match server.table.begin_reading(session, connection, ack, now) {
            Err(AckAhead) => return Err(ACK_AHEAD),
            Ok((None, _)) => return Err(NO_SESSION),
            Ok((Some(reading), replaced)) => {
                server.answer(replaced, READ_ELSEWHERE, None);
                reading
            }
        };
        let reply = if server.has_news(reading) || timeout.0 == 0 || ctx.must_not_block() {
            outcomes_reply(server, reading, most)
        } else if server.table.limits.draining && !server.table.has_waits(session) {
            // A drain may precede a reload of the module. So locks and permits that are bound to the session
            // are not released now: they last as long as their leases.
            server.table.forget_bound(session);
            server.close_session(session);
            DRAINING
        } else {
            block(server, ctx, reading, timeout, most)
        };
        Ok(reply)
    }
}

/// Returns a reply with outcomes to read, and records that they were sent.
fn outcomes_reply(server: &mut Server, reading: Reading, most: usize) -> Reply {
    let outcomes = Outcomes::new(reading, most);
    let reply = server.read(&outcomes);
    server.was_sent(&outcomes);
    reply
}

/// Blocks the reader until there is something to read, or until the timeout ends.
fn block(
    server: &mut Server,
    ctx: &Ctx<'_>,
    reading: Reading,
    timeout: Millis,
    most: usize,
) -> Reply {
    let account = server.table.account_of_session(reading.session).unwrap_or_default();
    let Some(client) = ctx.park() else {
        return SUBSCRIBED;
    };
    server.parked.insert(client.handle(), WaitsFor::Outcomes(reading, most));
    let waiting = Waiting::reader(client, ctx.client_id(), &account);
    server.table.block_reader(reading, waiting, timeout, server.now());
    Reply::Later
}

/// `SESSION.CLOSE id`
pub(super) struct SessionClose;

impl Operation for SessionClose {
    const SPEC: CommandSpec = CommandSpec {
        name: c"session.close",
        flags: c"fast",
        summary:
            c"Ends a session: cancels its waits, releases what is bound to it, and takes back unread grants.",
        complexity: c"O(1), however many waits it has",
        args: &[ArgSpec::Text(c"id")],
    };

    fn run(server: &mut Server, ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let [id] = args else { return Ok(Reply::Nil) };
        let Ok(session) = server.session(ctx, *id) else {
            return Ok(Reply::Number(0));
        };
        server.close_session(session);
        Ok(Reply::Number(1))
    }
}

/// `SESSION.LIST [COUNT count]`
pub(super) struct SessionList;

impl Operation for SessionList {
    const SPEC: CommandSpec = CommandSpec {
        name: c"session.list",
        flags: c"readonly",
        summary: c"Lists sessions, the oldest first.",
        complexity: c"O(count)",
        args: &[ArgSpec::OptionalNumber { word: c"COUNT", name: c"count" }],
    };

    fn run(server: &mut Server, _ctx: &Ctx<'_>, args: &[Arg<'_>]) -> Answer {
        let shown = arguments::count(Options::split(args), b"COUNT")?.unwrap_or(SHOWN);
        let now = server.now();
        let sessions = server.table.sessions().take(shown).map(|session| {
            let state = if session.away { "away" } else { "present" };
            Reply::Map(vec![
                ("id", short_name(session.name)),
                ("user", Reply::Bytes(session.user.to_vec())),
                ("reader", Reply::or_nil(session.reader, |reader| Reply::Number(reader.client_id))),
                ("state", Reply::Word(state)),
                ("waits", number(session.waits)),
                ("outcomes", number(session.outcomes)),
                ("bound", number(session.bound)),
                ("age", Reply::Number(now.mono.since(session.since).0)),
            ])
        });
        Ok(Reply::List(sessions.collect()))
    }
}
