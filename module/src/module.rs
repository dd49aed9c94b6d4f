//! What the module is to the server: which commands and options it has, and what it does when the
//! server tells it something.

use std::time::{Duration, Instant};

use kvlock_core::{Bug, Cause, Millis, Now};

use crate::config::{self, RedissonChannel, Setting};
use crate::floor::{FLOOR_PREFIX, Place};
use crate::redis::ServerEvent;
use crate::redis::{
    ConfigSpec, Ctx, Handle, Host, InfoWriter, KeyEvent, Registry, Reply, log_line,
};
use crate::server::{self, Note, Server, WaitsFor};
use crate::{clock, commands, info, slot};

/// The module.
#[derive(Debug)]
pub(crate) struct Module;

/// What a waiter hears when its server becomes a replica.
const DEMOTED: Reply =
    Reply::error(c"UNBLOCKED this server became a replica: wait again on the primary");

/// What a waiter hears when the module is drained.
pub(crate) const DRAINING: Reply = Reply::error(c"TRYAGAIN the module is draining: wait again");

impl Host for Module {
    const NAME: &'static str = "kvlock";
    /// 0.1.0
    const VERSION: i32 = 100;
    const CONFIGS: &'static [ConfigSpec] = config::SPECS;
    type Note = Option<Note>;

    fn load(ctx: &Ctx<'_>) {
        server::start(ctx);
    }

    fn commands(registry: &mut Registry<'_>) {
        commands::register(registry);
    }

    fn loaded(ctx: &Ctx<'_>) {
        server::with(|server| {
            if server.in_cluster {
                // Takes some milliseconds the first time, which is better now than in a command.
                slot::tag(0);
            }
            if server.primary && !keeps_every_grant(ctx) {
                begin_quarantine(server, clock::now());
            }
        });
    }

    fn unload(ctx: &Ctx<'_>) {
        server::stop(ctx);
    }

    fn is_busy() -> bool {
        server::with_unless_busy(|_| ()).is_none()
    }

    fn config(index: usize) -> i64 {
        server::with(|server| read_setting(server, index))
    }

    fn set_config(index: usize, value: i64) -> Result<(), String> {
        server::with(|server| write_setting(server, index, value))
    }

    fn info(info: &InfoWriter) {
        server::with(|server| info::write(server, info));
    }

    fn timer(ctx: &Ctx<'_>) {
        let begun = Instant::now();
        server::with(|server| {
            server.timer.fired();
            server.run_due(ctx);
            server.turns = server.turns.saturating_add(1);
            server.goes_on = server.timer.is_due();
            server.longest_turn = server.longest_turn.max(begun.elapsed());
        });
    }

    fn wants_key_event(key: &[u8]) -> bool {
        let wanted = server::with_unless_busy(|server| {
            let wanted = server.table.waiters() > 0 || key.starts_with(FLOOR_PREFIX);
            if !wanted {
                server.holders.searches.unheard();
            }
            wanted
        });
        wanted.unwrap_or(false)
    }

    fn key_event(ctx: &Ctx<'_>, event: KeyEvent<'_>) {
        server::with(|server| {
            if event.key.starts_with(FLOOR_PREFIX) {
                let place = Place::of(event.db, event.key, server.in_cluster);
                server.floors.forget_one(place);
            }
            server.holders.searches.changed(event.db, event.key);
            let now = clock::now();
            let cause = if event.expired { Cause::Expiry } else { Cause::Outside };
            server.table.look_soon_at_all_of(event.db, event.key, cause, now);
            if Bug::WriteInNotification.is_planted() {
                server.run_due(ctx);
            }
            server.plan(ctx, now);
        });
    }

    fn server_event(ctx: &Ctx<'_>, event: ServerEvent) {
        server::with_unless_busy(|server| {
            match event {
                ServerEvent::TurnBegan => return server.turn_began(),
                ServerEvent::ClientClosed(client) => return server.client_closed(ctx, client),
                ServerEvent::BecamePrimary
                | ServerEvent::BecameReplica
                | ServerEvent::ReplicasChanged
                | ServerEvent::Flushed(_)
                | ServerEvent::Swapped(..)
                | ServerEvent::Loaded
                | ServerEvent::Cron => {}
            }
            let now = clock::now();
            if !matches!(event, ServerEvent::Cron | ServerEvent::ReplicasChanged) {
                server.floors.forget();
                server.holders.searches.forget();
            }
            match event {
                ServerEvent::BecamePrimary => {
                    server.primary = true;
                    server.floors.promoted(now);
                    begin_quarantine(server, now);
                }
                ServerEvent::ReplicasChanged => server.has_replicas = ctx.has_replicas(),
                ServerEvent::BecameReplica => {
                    server.primary = false;
                    server.table.lift_quarantine();
                    // Their leases end them, on whichever server is the primary now.
                    for grant in std::mem::take(&mut server.lost) {
                        server.delivered(&grant);
                    }
                    server.dismiss_all(&DEMOTED);
                    server.table.forget_all_bound();
                    server.table.end_all_sessions();
                }
                ServerEvent::Flushed(db) => server.table.flushed(db, now),
                ServerEvent::Swapped(first, second) => {
                    server.table.look_at_all_soon(Some(first), now);
                    server.table.look_at_all_soon(Some(second), now);
                }
                ServerEvent::Loaded => server.table.look_at_all_soon(None, now),
                ServerEvent::Cron => return cron(server, ctx),
                ServerEvent::TurnBegan | ServerEvent::ClientClosed(_) => {}
            }
            server.plan(ctx, now);
        });
    }

    fn client_gone(ctx: &Ctx<'_>, client: Handle) {
        server::with(|server| {
            let now = clock::now();
            // One that was answered already is not there: `answer_lost` follows.
            drop(match server.parked.remove(&client) {
                Some(WaitsFor::Grant(waiter)) => server.table.disconnected(waiter),
                Some(WaitsFor::Outcomes(reading, _)) => server.table.reader_gone(reading, now),
                None => None,
            });
            server.plan(ctx, now);
        });
    }

    fn reply_now(note: &Option<Note>) -> Reply {
        server::with(|server| match note {
            Some(Note::Outcomes(outcomes)) => server.read(outcomes),
            Some(Note::Grant(_)) | None => Reply::Nil,
        })
    }

    fn answer_written(ctx: &Ctx<'_>, note: Option<Note>) {
        server::with(|server| {
            if std::mem::take(&mut server.goes_on) {
                server.timer.hasten(ctx);
            }
            match note {
                Some(Note::Grant(grant)) => server.handed_over(ctx, grant),
                Some(Note::Outcomes(outcomes)) => {
                    server.was_sent(ctx, &outcomes);
                    server.plan(ctx, clock::now());
                }
                None => {}
            }
        });
    }

    fn answer_lost(ctx: &Ctx<'_>, note: Option<Note>) {
        server::with(|server| match note {
            Some(Note::Grant(grant)) => server.never_arrived(ctx, grant),
            Some(Note::Outcomes(outcomes)) => {
                let now = clock::now();
                drop(server.table.reader_gone(outcomes.reading, now));
                server.plan(ctx, now);
            }
            None => {}
        });
    }
}

/// Says whether no grant that was answered is lost when this server ends, in whatever way: each is
/// on the disk before. It is taken for granted that the server ran before with the settings that it
/// has now.
fn keeps_every_grant(ctx: &Ctx<'_>) -> bool {
    let has = |name, wanted: &[u8]| ctx.setting(name).as_deref() == Some(wanted);
    has(c"appendonly", b"yes")
        && has(c"appendfsync", b"always")
        && has(c"no-appendfsync-on-rewrite", b"no")
}

/// Grants nothing new for a while, if that is wanted: grants may be lost of which somebody relies
/// on.
fn begin_quarantine(server: &mut Server, now: Now) {
    server.table.begin_quarantine(now);
    if let Some(left) = server.table.quarantine_left(now) {
        log_line(&format!("nothing new is granted for {} ms (kvlock.quarantine-ms)", left.0));
    }
}

/// The server's regular round. Timers run on the wall clock: if that was set back, ours is late,
/// which planning again finds out, and looks are planned too late. A timer that nobody needs is
/// stopped, so that the module can be unloaded.
fn cron(server: &mut Server, ctx: &Ctx<'_>) {
    let now = clock::now();
    let set_back = now.unix_us < server.last_round_unix_us;
    server.last_round_unix_us = now.unix_us;
    if set_back {
        server.table.look_at_all_soon(None, now);
    }
    if server.table.next_due(now).is_some() {
        server.plan(ctx, now);
    } else if server.lost.is_empty() && server.hears_turns.is_none() {
        server.timer.disarm(ctx);
    }
    if !server.lost.is_empty() || !server.to_look_at.is_empty() {
        server.timer.arm(ctx, Duration::ZERO);
    }
}

fn read_setting(server: &Server, index: usize) -> i64 {
    let limits = &server.table.limits;
    match Setting::at(index) {
        Some(Setting::MaxLeaseMs) => server.config.max_lease_ms.cast_signed(),
        Some(Setting::MaxWaiters) => i64::try_from(limits.waiters).unwrap_or(i64::MAX),
        Some(Setting::MaxWaitersPerKey) => {
            i64::try_from(limits.waiters_per_key).unwrap_or(i64::MAX)
        }
        Some(Setting::RedissonChannel) => server.config.redisson_channel.index(),
        Some(Setting::Drain) => i64::from(limits.draining),
        Some(Setting::QuarantineMs) => server.table.quarantine().0.cast_signed(),
        Some(Setting::RedissonTurnMs) => server.table.redisson_turn().0.cast_signed(),
        Some(Setting::MaxBlocked) => i64::try_from(limits.blocked).unwrap_or(i64::MAX),
        Some(Setting::MaxSessions) => i64::try_from(limits.sessions).unwrap_or(i64::MAX),
        Some(Setting::MaxBound) => i64::try_from(limits.bound).unwrap_or(i64::MAX),
        None => 0,
    }
}

fn write_setting(server: &mut Server, index: usize, value: i64) -> Result<(), String> {
    let size = || usize::try_from(value).map_err(|_| "must not be negative".to_owned());
    let limits = &mut server.table.limits;
    match Setting::at(index) {
        Some(Setting::MaxLeaseMs) => {
            server.config.max_lease_ms = u64::try_from(value).map_err(|why| why.to_string())?;
        }
        Some(Setting::MaxWaiters) => limits.waiters = size()?,
        Some(Setting::MaxWaitersPerKey) => limits.waiters_per_key = size()?,
        Some(Setting::MaxBlocked) => limits.blocked = size()?,
        Some(Setting::MaxSessions) => limits.sessions = size()?,
        Some(Setting::MaxBound) => limits.bound = size()?,
        Some(Setting::RedissonChannel) => {
            server.config.redisson_channel =
                RedissonChannel::at(value).ok_or("must be auto, both or no")?;
        }
        Some(Setting::Drain) => {
            limits.draining = value != 0;
            if limits.draining && !Bug::DrainKeepsWaiters.is_planted() {
                server.dismiss_all(&DRAINING);
                server.table.wake_readers();
                server.tell_readers(clock::now());
            }
        }
        Some(Setting::QuarantineMs) => {
            let length = u64::try_from(value).map_err(|why| why.to_string())?;
            // Whoever is to be served now is so in the server's next round.
            server.table.set_quarantine(Millis(length), clock::now());
        }
        Some(Setting::RedissonTurnMs) => {
            let every = u64::try_from(value).map_err(|why| why.to_string())?;
            server.table.set_redisson_turn(Millis(every));
        }
        None => return Err("there is no such option".into()),
    }
    Ok(())
}
