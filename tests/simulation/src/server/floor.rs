//! The token floor, as in `module/src/floor.rs`, for one database.

use super::Server;
use crate::keyspace::Effect;
use crate::settings::Safeguard;
use crate::sim::Sim;
use kvlock_core::{MonoMillis, Now, TOKEN_STORED_MAX, Token};

/// How far ahead of the clock a floor is written, and how much must be left of it.
const AHEAD_US: u64 = 60_000_000;
const LEFT_US: u64 = 30_000_000;

/// The same for tokens that are ahead of the clock.
const AHEAD_TOKENS: u64 = 20_000;
const LEFT_TOKENS: u64 = 10_000;

/// How often it is looked at again.
const CHECK_MS: u64 = 1_000;

#[derive(Clone, Copy, Debug)]
struct Floor {
    found: u64,
    others: u64,
    ours: u64,
    checked: MonoMillis,
}

impl Floor {
    fn find(said: u64, now: Now, reign: Reign) -> Self {
        Self { found: said, others: above(said, reign), ours: 0, checked: now.mono }
    }

    fn expected(&self) -> u64 {
        if self.ours > 0 { self.ours } else { self.found }
    }
}

/// When this server became one that grants, and how.
#[derive(Clone, Copy, Debug, Default)]
struct Reign {
    since_us: u64,
    promoted: bool,
}

#[derive(Debug, Default)]
pub(super) struct Floors {
    known: Option<Floor>,
    reign: Reign,
}

impl Floors {
    pub(super) fn new(now: Now) -> Self {
        Self { known: None, reign: Reign { since_us: now.unix_us, promoted: false } }
    }

    pub(super) fn promoted(&mut self, now: Now) {
        self.reign = Reign { since_us: now.unix_us, promoted: true };
    }

    pub(super) fn forget(&mut self) {
        self.known = None;
    }

    fn at(&mut self, said: u64, now: Now) -> &mut Floor {
        let reign = self.reign;
        self.known.get_or_insert_with(|| Floor::find(said, now, reign))
    }
}

fn above(found: u64, reign: Reign) -> u64 {
    if found == 0 && !reign.promoted {
        return found;
    }
    found.max(reign.since_us.saturating_add(AHEAD_US)).min(TOKEN_STORED_MAX)
}

impl Server {
    /// What tokens must be above.
    pub(super) fn floor(&mut self, sim: &Sim, now: Now) -> Option<u64> {
        if !sim.has(Safeguard::Floors) {
            return Some(0);
        }
        let (said, reign) = (self.data.floor, self.floors.reign);
        let floor = self.floors.at(said, now);
        if now.mono.since(floor.checked).0 >= CHECK_MS {
            floor.checked = now.mono;
            if said != floor.expected() {
                *floor = Floor::find(said, now, reign);
            }
        }
        Some(floor.others)
    }

    /// Sees to it that this token is below what is reserved.
    pub(super) fn reserve(&mut self, sim: &Sim, token: Token, now: Now) {
        let said = self.data.floor;
        let minute = !sim.has(Safeguard::FloorsByClock);
        let floor = self.floors.at(said, now);
        let (token, clock) = (token.value(), now.unix_us.min(TOKEN_STORED_MAX));
        let left = if minute { LEFT_US } else { LEFT_TOKENS };
        if floor.ours >= clock.saturating_add(LEFT_US).max(token.saturating_add(left)) {
            return;
        }
        let more = if minute { AHEAD_US } else { AHEAD_TOKENS };
        let ahead = clock.saturating_add(AHEAD_US).max(token.saturating_add(more));
        floor.ours = ahead;
        self.data.floor = ahead;
        self.replicate(sim, Effect::Floor(ahead));
    }
}
