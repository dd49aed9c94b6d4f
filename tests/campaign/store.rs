//! A store for the data that the locks protect. It checks tokens. Unlike a real store, it also knows when locks
//! were granted. So it detects stale writes that the check of tokens accepts.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A grant, with the times of its request and reply.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    pub(crate) owner: String,
    pub(crate) token: u64,
    pub(crate) sent: Duration,
    pub(crate) granted: Duration,
}

#[derive(Debug, Default)]
pub(crate) struct Store(Mutex<HashMap<String, Row>>);

/// The row that one lock guards: the writers with which later writes are compared.
#[derive(Debug)]
struct Row {
    /// The writer with the largest token.
    last: Writer,
    /// The writer whose grant was requested last. An accepted write is stale if its grant was received before
    /// that request.
    youngest: Writer,
}

/// Result of a write.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Written {
    Accepted,
    /// Refused: an earlier write had a larger token, or the same token and another owner.
    Refused,
    /// Accepted, although a later holder has written. The text names both grants.
    Stale(String),
}

impl Store {
    /// Locks the store: no other task can write until the result is dropped.
    pub(crate) fn open(&self) -> Open<'_> {
        Open(self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The locked store.
pub(crate) struct Open<'a>(MutexGuard<'a, HashMap<String, Row>>);

impl Open<'_> {
    pub(crate) fn write(&mut self, key: &str, writer: &Writer) -> Written {
        let Some(row) = self.0.get_mut(key) else {
            let row = Row { last: writer.clone(), youngest: writer.clone() };
            self.0.insert(key.to_owned(), row);
            return Written::Accepted;
        };
        let last = &row.last;
        if writer.token < last.token || (writer.token == last.token && writer.owner != last.owner) {
            return Written::Refused;
        }
        row.last = writer.clone();
        if writer.granted < row.youngest.sent {
            return Written::Stale(format!("{writer:?} after {:?}", row.youngest));
        }
        if writer.sent > row.youngest.sent {
            row.youngest = writer.clone();
        }
        Written::Accepted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer(owner: &str, token: u64, sent: u64, granted: u64) -> Writer {
        let ms = Duration::from_millis;
        Writer { owner: owner.to_owned(), token, sent: ms(sent), granted: ms(granted) }
    }

    #[test]
    fn late_writes_are_refused() {
        let store = Store::default();
        let (first, next) = (writer("a", 1, 0, 1), writer("b", 2, 5, 6));
        let write = |writer| store.open().write("k", writer);
        assert_eq!(write(&first), Written::Accepted);
        assert_eq!(write(&next), Written::Accepted);
        assert_eq!(write(&first), Written::Refused);
        assert_eq!(write(&next), Written::Accepted);
        assert_eq!(write(&writer("c", 2, 9, 9)), Written::Refused);
    }

    #[test]
    fn an_accepted_stale_write_is_reported() {
        let store = Store::default();
        let write = |writer: &Writer| store.open().write("k", writer);
        let first = writer("a", 3, 0, 1);
        assert_eq!(write(&writer("b", 2, 5, 6)), Written::Accepted);
        assert!(matches!(write(&first), Written::Stale(_)));
    }
}
