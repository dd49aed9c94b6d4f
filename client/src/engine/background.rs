//! Work that outlives the caller who left it behind: releases, and what a dropped acquire needs.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::runtime::Handle;
use tokio::sync::Notify;

#[derive(Debug, Default)]
pub(crate) struct Background {
    open: AtomicUsize,
    all_done: Notify,
}

impl Background {
    /// Lets it be done on the runtime of the caller, else on the `other` one. Without either
    /// nothing is done, and whatever is held ends with its lease. Neither blocks nor panics.
    pub(crate) fn spawn(
        self: &Arc<Self>,
        other: impl FnOnce() -> Option<Handle>,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        let Some(runtime) = Handle::try_current().ok().or_else(other) else { return };
        self.open.fetch_add(1, Ordering::SeqCst);
        let done = Done(self.clone());
        // A runtime that is shutting down drops it, and `done` with it.
        runtime.spawn(async move {
            work.await;
            drop(done);
        });
    }

    /// Returns when there is nothing to be done.
    pub(crate) async fn settled(&self) {
        loop {
            let mut all_done = std::pin::pin!(self.all_done.notified());
            all_done.as_mut().enable();
            if self.open.load(Ordering::SeqCst) == 0 {
                return;
            }
            all_done.await;
        }
    }
}

#[derive(Debug)]
struct Done(Arc<Background>);

impl Drop for Done {
    fn drop(&mut self) {
        if self.0.open.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.all_done.notify_waiters();
        }
    }
}
