//! The task of one held lock of a quorum, unless its lease is fixed. At intervals, the task sends a new
//! request to the servers that do not grant the lock. It notices a loss even if no other task waits for one.
//! The watchdogs of the servers' clients do the renewals.

use crate::Servers;
use crate::attempt::Attempt;
use crate::held::Held;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// Shortest interval between two checks of a lock. The interval is a tenth of its lease, and at
/// most [`MOST`].
const LEAST: Duration = Duration::from_millis(10);
const MOST: Duration = Duration::from_secs(1);

/// Starts the task, on the runtime of the caller. It ends at the first check that
/// finds the lock lost or released.
pub(crate) fn keep(servers: &Arc<Servers>, held: &Arc<Held>) {
    let every = (held.term.length / 10).clamp(LEAST, MOST);
    let (weak_servers, weak) = (Arc::downgrade(servers), Arc::downgrade(held));
    tokio::spawn(async move {
        loop {
            sleep(every).await;
            let Some(held) = weak.upgrade().filter(|held| held.is_alive()) else { return };
            let Some(servers) = weak_servers.upgrade() else { return };
            let missing = held.missing();
            if !missing.is_empty() {
                let (key, term, token) = (&held.key, held.term, Some(held.token));
                let attempt = Attempt::at(&servers, key, term, servers.patience, token, missing);
                let joining = servers.tasks.track_future(attempt.join(weak.clone()));
                drop((servers, held));
                joining.await;
            }
        }
    });
}
