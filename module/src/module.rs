//! The module as the server sees it: its commands and options, and its reactions to events of the server.

use kvlock_core::{Cause, KeyRef};

use crate::floor::{FLOOR_PREFIX, Place};
use crate::redis::{
    ConfigSpec, Ctx, Handle, InfoWriter, KeyEvent, Registry, Reply, ServerEvent, log_line,
};
use crate::server::Server;
use crate::waiting::{Note, WaitsFor};
use crate::{clock, commands, config, info, server, slot};

/// Entry points of the module. The server calls them on one thread, and each call is guarded.
#[derive(Debug)]
pub(crate) struct Module;

/// Reply to waiters when their server becomes a replica.
const DEMOTED: Reply =
    Reply::error(c"UNBLOCKED this server became a replica: wait again on the primary");

impl Module {
    pub(crate) const NAME: &'static str = "kvlock";
    /// Version 0.1.0.
    pub(crate) const VERSION: i32 = 100;
    pub(crate) const CONFIGS: &'static [ConfigSpec] = config::SPECS;

    /// Creates the state. Options and commands are declared afterwards.
    pub(crate) fn load(ctx: &Ctx<'_>) {
        server::start(ctx);
    }

    pub(crate) fn commands(registry: &mut Registry<'_>) {
        commands::register(registry);
    }

    /// Finishes loading, after the commands are declared and the options are set. If the server is starting,
    /// its data are not loaded yet.
    pub(crate) fn loaded(ctx: &Ctx<'_>) {
        server::with(|server| {
            if server.in_cluster {
                // The first call takes some milliseconds, so it is made here rather than in a command.
                slot::tag(0);
            }
            if server.primary && !keeps_every_grant(ctx) {
                begin_quarantine(server);
            }
        });
    }

    /// Drops the state. Called when the module is unloaded, after the server has checked that no client is
    /// blocked and no timer is armed. Also called if loading has failed.
    pub(crate) fn unload(ctx: &Ctx<'_>) {
        server::stop(ctx);
    }

    pub(crate) fn info(info: &InfoWriter) {
        server::with(|server| info::write(server, info));
    }

    /// Does the due work when the timer fires.
    pub(crate) fn timer(ctx: &Ctx<'_>) {
        let begun = clock::processor_time();
        server::with(|server| {
            server.timer.fired();
            server.run_due(ctx);
            server.turns = server.turns.saturating_add(1);
            server.timer.go_on(ctx);
            server.longest_turn =
                server.longest_turn.max(clock::processor_time().saturating_sub(begun));
        });
    }

    /// Arms the timer to fire in this turn of the event loop, because the previous turn left due work.
    pub(crate) fn next_turn(ctx: &Ctx<'_>) {
        server::with(|server| server.timer.hasten(ctx));
    }

    /// Handles a change of a hash, or a generic change of any key, such as a deletion or an expiry. Called
    /// after each such change, so it must be fast. For a key without waiters and observers it costs at most
    /// two look-ups of the name. While no key has waiters or observers, it costs a comparison of the prefix.
    /// Both hold unless a lock is left free for Redisson.
    pub(crate) fn key_event(ctx: &Ctx<'_>, event: KeyEvent<'_>) {
        // An event during the module's own work is caused by that work, and is ignored.
        server::with_unless_busy(|server| {
            if event.key.starts_with(FLOOR_PREFIX) {
                let place = Place::of(event.db, event.key, server.in_cluster);
                server.floors.forget_one(place);
            }
            // While a lock is left free for Redisson, its events are needed even if it has no waiter.
            let has_moments = server.table.has_moments();
            if server.table.waiters() == 0 && !has_moments {
                return server.holders.searches.unheard();
            }
            server.holders.searches.changed(event.db, event.key);
            if has_moments || server.table.is_waited_for(event.db, event.key) {
                let now = server.now();
                let cause = if event.expired { Cause::Expiry } else { Cause::Outside };
                server.table.look_soon_at_all_of(event.db, event.key, cause, now);
                server.latch_changed(ctx, KeyRef::latch(event.db, event.key));
                server.finish(ctx);
            }
        });
    }

    pub(crate) fn server_event(ctx: &Ctx<'_>, event: ServerEvent) {
        server::with_unless_busy(|server| {
            match event {
                ServerEvent::ClientClosed(client) => {
                    let now = server.now();
                    server.table.connection_closed(client, now);
                    return server.finish(ctx);
                }
                ServerEvent::BecamePrimary
                | ServerEvent::BecameReplica
                | ServerEvent::ReplicasChanged
                | ServerEvent::Flushed(_)
                | ServerEvent::Swapped(..)
                | ServerEvent::Loaded
                | ServerEvent::Cron => {}
            }
            let now = server.now();
            if !matches!(event, ServerEvent::Cron | ServerEvent::ReplicasChanged) {
                server.floors.forget();
                server.holders.searches.forget();
            }
            match event {
                ServerEvent::BecamePrimary => {
                    server.primary = true;
                    server.floors.promoted(now);
                    begin_quarantine(server);
                }
                ServerEvent::ReplicasChanged => server.has_replicas = ctx.has_replicas(),
                ServerEvent::BecameReplica => {
                    server.primary = false;
                    server.table.lift_quarantine();
                    let blocked = server.table.forget();
                    server.answer_all(blocked, &DEMOTED);
                }
                ServerEvent::Flushed(db) => server.table.flushed(db, now),
                ServerEvent::Swapped(first, second) => {
                    server.table.look_at_all_soon(Some(first), now);
                    server.table.look_at_all_soon(Some(second), now);
                }
                ServerEvent::Loaded => server.table.look_at_all_soon(None, now),
                ServerEvent::Cron => return cron(server, ctx),
                ServerEvent::ClientClosed(_) => {}
            }
            server.finish(ctx);
        });
    }

    /// Handles the disconnection of a blocked client, or of one that was answered and whose reply is not
    /// written yet.
    pub(crate) fn client_gone(ctx: &Ctx<'_>, client: Handle) {
        server::with(|server| {
            let now = server.now();
            // A client that was already answered is not in `parked`: `answer_lost` is called for it.
            drop(match server.parked.remove(&client) {
                Some(WaitsFor::Grant(waiter)) => server.table.disconnected(waiter),
                Some(WaitsFor::Outcomes(reading, _)) => server.table.reader_gone(reading, now),
                None => None,
            });
            server.finish(ctx);
        });
    }

    /// Composes the reply to a blocked reader of a session when the server writes it.
    pub(crate) fn reply_now(note: &Option<Note>) -> Reply {
        server::with(|server| match note {
            Some(Note::Outcomes(outcomes)) => server.read(outcomes),
            Some(Note::Grant(_)) | None => Reply::Nil,
        })
    }

    /// Records that the reply to a blocked client was written.
    pub(crate) fn answer_written(ctx: &Ctx<'_>, note: Option<Note>) {
        server::with(|server| match note {
            Some(Note::Grant(grant)) => server.delivered(&grant),
            Some(Note::Outcomes(outcomes)) => {
                server.was_sent(&outcomes);
                server.arm_timer(ctx);
            }
            None => {}
        });
    }

    /// Plans to take back the grant, or ends the read, of a client that disconnected before its reply was
    /// written.
    pub(crate) fn answer_lost(ctx: &Ctx<'_>, note: Option<Note>) {
        server::with(|server| match note {
            Some(Note::Grant(grant)) => server.never_arrived(ctx, grant),
            Some(Note::Outcomes(outcomes)) => {
                let now = server.now();
                drop(server.table.reader_gone(outcomes.reading, now));
                server.finish(ctx);
            }
            None => {}
        });
    }
}

/// Returns whether every answered grant survives a crash of this server, because it is on disk before its
/// reply is sent. Assumes that the server had the same settings before its last restart.
fn keeps_every_grant(ctx: &Ctx<'_>) -> bool {
    let has = |name, wanted: &[u8]| ctx.setting(name).as_deref() == Some(wanted);
    has(c"appendonly", b"yes")
        && has(c"appendfsync", b"always")
        && has(c"no-appendfsync-on-rewrite", b"no")
}

/// Begins the quarantine if one is configured, because the server may have lost grants that clients rely on.
fn begin_quarantine(server: &mut Server) {
    let now = server.now();
    server.table.begin_quarantine(now);
    if let Some(left) = server.table.quarantine_left(now) {
        log_line(&format!("nothing new is granted for {} ms (kvlock.quarantine-ms)", left.0));
    }
}

/// Runs in the server's cron, by default about ten times per second.
///
/// Timers use the wall clock. If that clock is set back, the timer would fire too late, so it is armed again.
/// Planned checks of keys would also be too late, so all keys with waiters or observers are checked soon. A
/// timer that is not needed is disarmed, because the module cannot be unloaded while it is armed.
fn cron(server: &mut Server, ctx: &Ctx<'_>) {
    let now = server.now();
    let set_back = now.unix_us < server.last_round_unix_us;
    server.last_round_unix_us = now.unix_us;
    if set_back {
        server.table.look_at_all_soon(None, now);
    }
    server.table.end_quarantine(now);
    if server.table.next_due(now).is_some() {
        server.finish(ctx);
    } else {
        server.timer.rest(ctx);
    }
}
