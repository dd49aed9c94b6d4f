//! Leases that are looked after together as long as they are alive.

use crate::engine::lease::Lease;
use std::sync::{Arc, Weak};

/// How many are looked at in passing each time.
const LOOKS: usize = 16;

/// Leases of which some may have ended. Those are forgotten little by little: each call takes the same short time
/// on average, however many there were.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    list: Vec<Weak<Lease>>,
    /// Those before it are looked at next, from the last to the first.
    looked: usize,
}

impl Leases {
    pub(crate) fn add(&mut self, lease: &Arc<Lease>) {
        self.forget();
        self.list.push(Arc::downgrade(lease));
    }

    /// Whether one is alive.
    pub(crate) fn any(&mut self) -> bool {
        self.forget();
        while self.list.pop_if(|last| !is_alive(last)).is_some() {}
        !self.list.is_empty()
    }

    /// Those of which something is left.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Arc<Lease>> {
        self.list.iter().filter_map(Weak::upgrade)
    }

    /// Forgets the next few that have ended.
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
