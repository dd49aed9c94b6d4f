//! The module's section of `INFO`.

use kvlock_core::Histogram;

use crate::redis::{InfoWriter, caught_panics, not_replicated};
use crate::server::Server;

pub(crate) fn write(server: &Server, info: &InfoWriter) {
    let counted = server.table.counters();
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    let (observers, observed) = server.table.observers();
    let waiters = count(server.table.waiters().saturating_sub(observers));
    let (waits, outcomes) = server.table.session_waits();
    let (sessions, away) = server.table.session_count();
    info.field("granted", counted.granted);
    info.field("granted_shared", counted.granted_shared);
    info.field("downgraded", counted.downgraded);
    info.field("swept", server.holders.swept);
    info.field("search_steps", server.holders.searches.steps());
    info.field("reentered", counted.reentered);
    info.field("repeated", counted.repeated);
    info.field("redisson_turns", counted.redisson_turns);
    info.field("refused", counted.refused);
    info.field("released", counted.released);
    info.field("handed_off", counted.handed_off);
    info.field("handed_off_by_expiry", counted.handed_off_by_expiry);
    info.field("waiters", waiters);
    info.field("blocked", count(server.table.blocked_in_all()));
    info.field("waiters_peak", count(counted.waiters_peak));
    info.field("waiting_keys", count(server.table.waiting_keys().saturating_sub(observed)));
    info.field("timeouts", counted.timeouts);
    info.field("cancelled", counted.cancelled);
    info.field("told_ready", counted.told_ready);
    info.field("deadlocks", counted.deadlocks);
    info.field("disconnects", counted.disconnects);
    info.field("forced_releases", counted.forced_releases);
    info.field("latches_opened", counted.latches_opened);
    info.field("released_by_latches", counted.released_by_latches);
    info.field("grants_taken_back", counted.grants_taken_back);
    info.field("turns", server.turns);
    info.field(
        "longest_turn_us",
        u64::try_from(server.longest_turn.as_micros()).unwrap_or(u64::MAX),
    );
    info.field("quarantines", counted.quarantines);
    let left = server.table.quarantine_left(server.now());
    info.field("quarantine_left_ms", left.map_or(0, |left| left.0));
    #[cfg(feature = "provoke")]
    info.field("refused_opens", crate::redis::refused_opens());
    info.field("not_replicated", not_replicated());
    info.field("sessions", count(sessions));
    info.field("sessions_away", count(away));
    info.field("session_waits", count(waits.saturating_sub(observers)));
    info.field("observers", count(observers));
    info.field("observed_keys", count(observed));
    info.field("changes", counted.changes);
    info.field("changes_told", counted.changes_told);
    info.field("unread_outcomes", count(outcomes));
    info.field("readers_replaced", counted.readers_replaced);
    info.field("sessions_gone", counted.sessions_gone);
    info.field("bound", count(server.table.bound()));
    info.field("bound_released", counted.bound_released);
    info.text(c"wait_time_ms", &shown(server.table.wait_times()));
    info.text(c"hold_time_ms", &shown(server.table.hold_times()));
    info.field("caught_panics", caught_panics());
    info.field("waiters_memory_bytes", count(server.table.bytes_kept()));
    info.text(c"sources", env!("KVLOCK_SOURCES"));
}

/// Formats a histogram: the total count, the sum, and a pair of limit and count for each bucket that is not
/// empty.
fn shown(times: &Histogram) -> String {
    let mut text = format!("count={},sum_us={}", times.count(), times.sum_us());
    for (end, counted) in times.buckets() {
        let end = end.map_or_else(|| "inf".to_owned(), |end| end.to_string());
        text.push_str(&format!(",{end}={counted}"));
    }
    text
}
