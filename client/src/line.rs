//! Tasks of this client that want the same lock stand in line here, and only the first of them
//! waits at the server: one blocked connection per lock, however many tasks want it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

#[derive(Debug, Default)]
pub(crate) struct Lines {
    lines: Mutex<HashMap<Arc<[u8]>, Line>>,
}

#[derive(Debug)]
struct Line {
    /// One permit, given out in order of arrival.
    head: Arc<Semaphore>,
    members: usize,
}

impl Lines {
    /// Whether somebody is in line for this lock.
    pub(crate) fn is_busy(&self, key: &[u8]) -> bool {
        self.lines().contains_key(key)
    }

    /// Goes to the end of the line, and returns when it is at its head.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it leaves the line.
    pub(crate) async fn enter(self: &Arc<Self>, key: &Arc<[u8]>) -> Option<Place> {
        let (mut place, head) = self.join(key);
        place.permit = Some(head.acquire_owned().await.ok()?);
        Some(place)
    }

    fn join(self: &Arc<Self>, key: &Arc<[u8]>) -> (Place, Arc<Semaphore>) {
        let mut lines = self.lines();
        let line = lines
            .entry(key.clone())
            .or_insert_with(|| Line { head: Arc::new(Semaphore::new(1)), members: 0 });
        line.members += 1;
        let head = line.head.clone();
        (Place { lines: self.clone(), key: key.clone(), permit: None }, head)
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<Arc<[u8]>, Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in line, given up by dropping it.
#[derive(Debug)]
pub(crate) struct Place {
    lines: Arc<Lines>,
    key: Arc<[u8]>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(self.permit.take());
        let mut lines = self.lines.lines();
        if let Some(line) = lines.get_mut(&self.key) {
            line.members -= 1;
            if line.members == 0 {
                lines.remove(&self.key);
            }
        }
    }
}
