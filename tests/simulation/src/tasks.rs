//! The clients' tasks, polled in the order in which they are woken.

use futures_util::future::LocalBoxFuture;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Wake, Waker};

#[derive(Debug, Default)]
struct Ready(Mutex<VecDeque<usize>>);

impl Ready {
    fn with<R>(&self, work: impl FnOnce(&mut VecDeque<usize>) -> R) -> R {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct WakesTask {
    id: usize,
    ready: Arc<Ready>,
}

impl Wake for WakesTask {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ready.with(|ready| {
            if ready.back() != Some(&self.id) {
                ready.push_back(self.id);
            }
        });
    }
}

/// A task of one client, in one of its lives.
struct Task {
    client: usize,
    waker: Waker,
    work: Option<LocalBoxFuture<'static, ()>>,
}

#[derive(Default)]
pub(crate) struct Tasks {
    tasks: Vec<Option<Task>>,
    free: Vec<usize>,
    ready: Arc<Ready>,
}

/// A task that is being polled.
pub(crate) struct Turn {
    id: usize,
    waker: Waker,
    work: LocalBoxFuture<'static, ()>,
}

impl Turn {
    /// Says whether it is done.
    pub(crate) fn poll(&mut self) -> bool {
        self.work.as_mut().poll(&mut Context::from_waker(&self.waker)).is_ready()
    }
}

impl Tasks {
    pub(crate) fn spawn(&mut self, client: usize, work: LocalBoxFuture<'static, ()>) {
        let id = self.free.pop().unwrap_or(self.tasks.len());
        let ready = Arc::clone(&self.ready);
        let waker = Waker::from(Arc::new(WakesTask { id, ready }));
        let task = Some(Task { client, waker, work: Some(work) });
        match self.tasks.get_mut(id) {
            Some(place) => *place = task,
            None => self.tasks.push(task),
        }
        self.ready.with(|ready| ready.push_back(id));
    }

    /// The next one to be polled.
    pub(crate) fn next(&mut self) -> Option<Turn> {
        loop {
            let id = self.ready.with(VecDeque::pop_front)?;
            if let Some(Some(task)) = self.tasks.get_mut(id)
                && let Some(work) = task.work.take()
            {
                let waker = task.waker.clone();
                return Some(Turn { id, waker, work });
            }
        }
    }

    /// Puts one back that is not done.
    pub(crate) fn put_back(&mut self, turn: Turn) {
        if let Some(Some(task)) = self.tasks.get_mut(turn.id) {
            task.work = Some(turn.work);
        }
    }

    pub(crate) fn done(&mut self, turn: &Turn) {
        self.tasks[turn.id] = None;
        self.free.push(turn.id);
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.tasks.iter().flatten().count()
    }

    /// All that a client was doing.
    pub(crate) fn take_all_of(&mut self, client: usize) -> Vec<LocalBoxFuture<'static, ()>> {
        let mut taken = Vec::new();
        // Wakers of them may be about still: their places are not used again.
        for place in &mut self.tasks {
            if place.as_ref().is_some_and(|task| task.client == client) {
                taken.extend(place.take().and_then(|task| task.work));
            }
        }
        taken
    }
}
