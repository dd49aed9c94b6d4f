//! Locks in memory.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a thread that has panicked left in it is whole: each change is one assignment.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
