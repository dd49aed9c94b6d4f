//! Mutexes.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex, even after a panic of a holder: no change leaves the protected state inconsistent.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
