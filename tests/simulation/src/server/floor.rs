//! The token floor: the core's, stored as `module/src/floor.rs` does it, for one database.

use super::Server;
use crate::keyspace::Effect;
use crate::settings::Safeguard;
use crate::sim::Sim;
use kvlock_core::{Floor, MonoMillis, Now, Reign, Token};

/// How far ahead of all tokens a floor used to be written.
const AHEAD_US: u64 = 60_000_000;

#[derive(Debug)]
pub(super) struct Floors {
    known: Option<Floor>,
    reign: Reign,
}

impl Default for Floors {
    /// Those of a server of which nothing is known.
    fn default() -> Self {
        Self::new(Now { unix_us: 0, mono: MonoMillis(0) })
    }
}

impl Floors {
    pub(super) fn new(now: Now) -> Self {
        Self { known: None, reign: Reign::started(now) }
    }

    pub(super) fn promoted(&mut self, now: Now) {
        self.reign = Reign::promoted(now);
    }

    pub(super) fn forget(&mut self) {
        self.known = None;
    }

    fn at(&mut self, said: u64, now: Now) -> &mut Floor {
        let reign = self.reign;
        self.known.get_or_insert_with(|| Floor::found(said, now, reign))
    }
}

impl Server {
    /// What tokens must be above.
    pub(super) fn floor(&mut self, sim: &Sim, now: Now) -> Option<u64> {
        if !sim.has(Safeguard::Floors) {
            return Some(0);
        }
        let (said, reign) = (self.data.floor, self.floors.reign);
        let floor = self.floors.at(said, now);
        if floor.is_to_be_checked(now) && said != floor.expected() {
            *floor = Floor::found(said, now, reign);
        }
        Some(floor.others())
    }

    /// Sees to it that this token is below what is reserved.
    pub(super) fn reserve(&mut self, sim: &Sim, token: Token, now: Now) {
        let said = self.data.floor;
        let floor = self.floors.at(said, now);
        let Some(mut ahead) = floor.reservation(token, now) else { return };
        if !sim.has(Safeguard::FloorsByClock) {
            ahead = ahead.max(token.value().saturating_add(AHEAD_US));
        }
        floor.reserved(ahead);
        self.data.floor = ahead;
        self.replicate(sim, Effect::Floor(ahead));
    }
}
