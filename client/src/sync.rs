//! Mutexes and atomics of types that several tasks share, in one place so that a test can replace them.
//! With `--cfg kvlock_shuttle` every use is a point where another task may run.

#[cfg(not(all(test, kvlock_shuttle)))]
pub(crate) use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

#[cfg(all(test, kvlock_shuttle))]
pub(crate) use shuttle::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering},
};
#[cfg(all(test, kvlock_shuttle))]
pub(crate) use std::sync::PoisonError;

/// Locks a mutex, even after a panic of a holder: the protected state is consistent at every point.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
