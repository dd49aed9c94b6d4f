//! The runtimes on which a client is used, and tasks that continue on another one if theirs ends.

use crate::sync::{Mutex, lock};
use futures_util::FutureExt as _;
use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use tokio::runtime::{Handle, Id};
use tokio::sync::watch;

/// The runtimes on which a client was used and that have not ended, the latest last.
#[derive(Debug)]
pub(crate) struct Runtimes {
    used: Mutex<Vec<Handle>>,
    /// Closed when this is dropped, which ends the tasks that notice the end of a runtime.
    over: watch::Sender<()>,
}

/// Work of a task. Called again on another runtime if the first one has ended. Then the work may have been done
/// in part, and its last command may still arrive at the server.
type Work = Box<dyn FnMut() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

impl Runtimes {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { used: Mutex::default(), over: watch::Sender::new(()) })
    }

    /// Remembers the runtime of the caller. Returns `None` outside a runtime.
    pub(crate) fn remember(self: &Arc<Self>) -> Option<Handle> {
        let here = Handle::try_current().ok()?;
        let mut used = lock(&self.used);
        if used.last().is_some_and(|last| last.id() == here.id()) {
            return Some(here);
        }
        let before = used.len();
        used.retain(|other| other.id() != here.id());
        let is_new = used.len() == before;
        used.push(here.clone());
        drop(used);
        if is_new {
            let presence = Presence { runtimes: Arc::downgrade(self), runtime: here.id() };
            // A runtime that has ended drops the task at once, and so is forgotten.
            here.spawn(presence.last(self.over.subscribe()));
        }
        Some(here)
    }

    /// Runs `work` on the runtime of the caller, or else on the one that was used last. If that runtime ends
    /// first, calls `work` again on another one. Drops `work` when it is done, or when no runtime is left.
    /// Neither blocks nor panics.
    pub(crate) fn spawn<F>(self: &Arc<Self>, mut work: impl FnMut() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let on = self.remember().or_else(|| lock(&self.used).last().cloned());
        if let Some(on) = on {
            self.spawn_on(on, Box::new(move || Box::pin(work())));
        }
    }

    fn spawn_on(self: &Arc<Self>, on: Handle, work: Work) {
        // No mutex is locked: a runtime that has ended drops the task at once.
        let task = Task { runtimes: self.clone(), on: on.clone(), work: Some(work) };
        on.spawn(task.run());
    }

    /// Forgets a runtime that has ended. Returns the one that was used last of those that are left.
    fn after(&self, ended: Id) -> Option<Handle> {
        let mut used = lock(&self.used);
        let at = used.iter().position(|other| other.id() == ended);
        let handle = at.map(|at| used.remove(at));
        let next = used.last().cloned();
        drop(used);
        // Not while the mutex is locked: it may be the last reference to what is left of that runtime.
        drop(handle);
        next
    }
}

/// Forgets a runtime when it ends and drops this.
struct Presence {
    runtimes: Weak<Runtimes>,
    runtime: Id,
}

impl Presence {
    async fn last(self, mut over: watch::Receiver<()>) {
        // No value is ever sent.
        let _over = over.changed().await;
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        if let Some(runtimes) = self.runtimes.upgrade() {
            let _next = runtimes.after(self.runtime);
        }
    }
}

struct Task {
    runtimes: Arc<Runtimes>,
    on: Handle,
    /// `None` when it is done.
    work: Option<Work>,
}

impl Task {
    async fn run(mut self) {
        let Some(work) = &mut self.work else { return };
        let done = AssertUnwindSafe(work()).catch_unwind().await;
        // Also after a panic: the work would panic on another runtime, too.
        self.work = None;
        if let Err(panic) = done {
            // Perhaps this runtime has no timers, and no later work would succeed here.
            drop(self.runtimes.after(self.on.id()));
            resume_unwind(panic);
        }
    }
}

impl Drop for Task {
    /// Continues on another runtime if this one has ended before the work.
    fn drop(&mut self) {
        let Some(work) = self.work.take() else { return };
        if let Some(next) = self.runtimes.after(self.on.id()) {
            self.runtimes.spawn_on(next, work);
        }
    }
}

/// A task of which at most one runs.
#[derive(Debug, Default)]
pub(crate) struct Single(Mutex<Weak<()>>);

impl Single {
    /// Starts the task, as [`Runtimes::spawn`] does, unless it runs. Does nothing outside a runtime if none was
    /// used before.
    pub(crate) fn start<F>(
        &self,
        runtimes: &Arc<Runtimes>,
        mut work: impl FnMut() -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut running = lock(&self.0);
        if running.strong_count() > 0 {
            return;
        }
        let runs = Arc::new(());
        *running = Arc::downgrade(&runs);
        drop(running);
        runtimes.spawn(move || {
            // It runs until this closure is dropped.
            let _runs = &runs;
            work()
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use tokio::runtime::{Builder, Runtime};
    use tokio::sync::mpsc;

    /// A runtime without worker threads.
    fn quiet() -> Runtime {
        Builder::new_current_thread().build().unwrap()
    }

    /// Two runtimes, of which the second one was used.
    fn two() -> (Arc<Runtimes>, Runtime, Runtime) {
        let (runtimes, first, second) = (Runtimes::new(), quiet(), quiet());
        second.block_on(async { runtimes.remember() });
        (runtimes, first, second)
    }

    #[test]
    fn work_continues_on_another_runtime_until_it_is_done() {
        let (runtimes, first, second) = two();
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let mut times = 0;
        first.block_on(async {
            runtimes.spawn(move || {
                times += 1;
                let (sender, times) = (sender.clone(), times);
                async move {
                    sender.send(times).unwrap();
                    if times == 1 {
                        pending::<()>().await;
                    }
                }
            });
            assert_eq!(receiver.recv().await, Some(1));
        });
        drop(first);
        assert_eq!(second.block_on(receiver.recv()), Some(2));
        assert_eq!(second.block_on(receiver.recv()), None, "it is done, and was dropped");
    }

    /// A thread panics, and its runtime ends while the stack is unwound.
    #[test]
    fn work_continues_after_a_panic_that_ends_its_runtime() {
        let (runtimes, first, second) = two();
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let starts = runtimes.clone();
        let first = std::thread::spawn(move || {
            first.block_on(async {
                starts.spawn(move || {
                    let sender = sender.clone();
                    async move {
                        sender.send(()).unwrap();
                        pending::<()>().await;
                    }
                });
                tokio::task::yield_now().await;
                panic!("as a test");
            });
        });
        assert!(first.join().is_err());
        assert_eq!(second.block_on(receiver.recv()), Some(()));
        assert_eq!(second.block_on(receiver.recv()), Some(()), "it has begun again");
    }

    #[test]
    fn work_that_panics_is_not_repeated() {
        let (runtimes, first, _second) = two();
        let alive = Arc::new(());
        let runs = Arc::downgrade(&alive);
        first.block_on(async {
            runtimes.spawn(move || {
                let _alive = &alive;
                async { panic!("as a test") }
            });
            tokio::task::yield_now().await;
        });
        assert_eq!(runs.strong_count(), 0);
    }

    #[test]
    fn work_ends_with_the_last_runtime() {
        let (runtimes, first, second) = two();
        let alive = Arc::new(());
        let runs = Arc::downgrade(&alive);
        first.block_on(async {
            runtimes.spawn(move || {
                let _alive = &alive;
                pending()
            });
        });
        drop(first);
        assert_eq!(runs.strong_count(), 1);
        drop(second);
        assert_eq!(runs.strong_count(), 0);
        runtimes.spawn(|| async { panic!("no runtime is left") });
    }

    #[test]
    fn any_number_of_runtimes_is_remembered_while_they_exist() {
        let runtimes = Runtimes::new();
        let all: Vec<_> = (0..100).map(|_| quiet()).collect();
        let used = || lock(&runtimes.used).len();
        for runtime in &all {
            runtime.block_on(async { runtimes.remember() });
            runtime.block_on(async { runtimes.remember() });
        }
        assert_eq!(used(), 100);
        all[0].block_on(async { runtimes.remember() });
        assert_eq!(lock(&runtimes.used).last().unwrap().id(), all[0].handle().id());
        drop(all);
        assert_eq!(used(), 0);
    }

    #[test]
    fn at_most_one_task_runs() {
        let (runtimes, single) = (Runtimes::new(), Single::default());
        let count = Arc::new(());
        let start = || {
            let counts = count.clone();
            single.start(&runtimes, move || {
                let _counts = &counts;
                pending()
            });
        };
        let (first, second) = (quiet(), quiet());
        first.block_on(async { start() });
        second.block_on(async { start() });
        assert_eq!(Arc::strong_count(&count), 2);
        drop((first, second));
        assert_eq!(Arc::strong_count(&count), 1);
        quiet().block_on(async {
            start();
            assert_eq!(Arc::strong_count(&count), 2, "it starts again");
        });
    }

    #[test]
    fn nothing_remains_on_a_runtime_after_its_client() {
        let runtime = quiet();
        let runtimes = Runtimes::new();
        runtime.block_on(async { runtimes.remember() });
        drop(runtimes);
        runtime.block_on(async {
            tokio::task::yield_now().await;
            tokio::task::yield_now().await;
        });
        assert_eq!(runtime.metrics().num_alive_tasks(), 0);
    }
}
