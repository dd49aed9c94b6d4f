//! A collection of leases that forgets leases that have ended.

use crate::engine::lease::Lease;
use std::sync::{Arc, Weak};

/// Number of leases that one [`Leases::forget`] checks.
const LOOKS: usize = 16;

/// Leases, some of which may have ended. Each [`add`](Self::add) and [`any`](Self::any) removes ended leases
/// that it finds, so its average time does not depend on their number.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    list: Vec<Weak<Lease>>,
    /// Leases before this index are checked next, from the last to the first.
    looked: usize,
}

impl Leases {
    pub(crate) fn add(&mut self, lease: &Arc<Lease>) {
        self.forget();
        self.list.push(Arc::downgrade(lease));
    }

    /// Returns whether any lease is alive.
    pub(crate) fn any(&mut self) -> bool {
        self.forget();
        while self.list.pop_if(|last| !is_alive(last)).is_some() {}
        !self.list.is_empty()
    }

    /// Returns the leases that still exist.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Arc<Lease>> {
        self.list.iter().filter_map(Weak::upgrade)
    }

    /// Checks the next few leases, and removes those that have ended.
    fn forget(&mut self) {
        for _ in 0..LOOKS {
            let end = match self.looked.min(self.list.len()) {
                0 => self.list.len(),
                end => end,
            };
            let Some(next) = end.checked_sub(1) else { return };
            self.looked = next;
            if self.list.get(next).is_some_and(|lease| !is_alive(lease)) {
                self.list.swap_remove(next);
            }
        }
    }
}

fn is_alive(lease: &Weak<Lease>) -> bool {
    lease.upgrade().is_some_and(|lease| lease.is_alive())
}
