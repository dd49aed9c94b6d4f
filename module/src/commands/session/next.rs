//! `SESSION.NEXT id ack timeout-ms [COUNT n]`

use kvlock_core::{AckAhead, Millis, Reading, arguments};

use crate::clock;
use crate::commands::{ACK_AHEAD, Answer, NO_SESSION, Operation};
use crate::module::DRAINING;
use crate::redis::{Arg, ArgSpec, CommandSpec, Ctx, Reply};
use crate::server::{Server, Waiting, WaitsFor};
use crate::sessions::{Outcomes, READ_ELSEWHERE};

pub(crate) struct SessionNext;

impl Operation for SessionNext {
    const SPEC: CommandSpec = CommandSpec {
        name: c"session.next",
        flags: c"blocking",
        arity: -4,
        key: None,
        acl: c"slow blocking",
        summary:
            c"Says what has become of the waits of a session, or waits until there is something.",
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
        let (ack, timeout, most) = arguments::next(ack.bytes(), timeout.bytes(), options)?;
        let session = server.session(ctx, *id)?;
        let (connection, now) = (ctx.connection(), clock::now());
        let reading = match server.table.begin_reading(session, connection, ack, now) {
            Err(AckAhead) => return Err(ACK_AHEAD),
            Ok((None, _)) => return Err(NO_SESSION),
            Ok((Some(reading), replaced)) => {
                server.answer(replaced, READ_ELSEWHERE, None);
                reading
            }
        };
        let reply = if server.has_news(reading) || timeout.0 == 0 || ctx.must_not_block() {
            tell(server, ctx, reading, most, connection)
        } else if server.table.limits.draining && !server.table.has_waits(session) {
            // The module may be about to be loaded anew: what is bound stays, and its leases count.
            server.table.forget_bound(session);
            server.close_session(session);
            DRAINING
        } else {
            block(server, ctx, reading, timeout, most)
        };
        server.plan(ctx, now);
        Ok(reply)
    }
}

/// Answers at once.
fn tell(
    server: &mut Server,
    ctx: &Ctx<'_>,
    reading: Reading,
    most: usize,
    connection: Option<u64>,
) -> Reply {
    let outcomes = Outcomes::new(reading, most, connection);
    let reply = server.read(&outcomes);
    server.was_sent(ctx, &outcomes);
    reply
}

/// Blocks the reader.
fn block(
    server: &mut Server,
    ctx: &Ctx<'_>,
    reading: Reading,
    timeout: Millis,
    most: usize,
) -> Reply {
    let Some(client) = ctx.park() else {
        return tell(server, ctx, reading, most, None);
    };
    server.parked.insert(client.handle(), WaitsFor::Outcomes(reading, most));
    let waiting = Waiting { client, client_id: ctx.client_id() };
    server.table.block_reader(reading, waiting, timeout, clock::now());
    Reply::Later
}
