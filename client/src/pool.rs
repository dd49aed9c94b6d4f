//! The connections for waiting: a bounded number, since each blocks in one wait.

use crate::error::Error;
use crate::link::Live;
use crate::node::Node;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// An idle connection is closed after this long, when the next one is put back or taken.
const IDLE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Pool {
    seats: Arc<Semaphore>,
    /// The last one used is at the end.
    idle: Mutex<Vec<Idle>>,
}

#[derive(Debug)]
struct Idle {
    since: Instant,
    node: Arc<Node>,
    live: Live,
}

impl Pool {
    pub(crate) fn new(size: usize) -> Self {
        Self { seats: Arc::new(Semaphore::new(size)), idle: Mutex::default() }
    }

    /// The right to one of the connections, if one is left. Never waits.
    pub(crate) fn try_seat(self: &Arc<Self>) -> Option<Seat> {
        let permit = self.seats.clone().try_acquire_owned().ok()?;
        Some(Seat { pool: self.clone(), _permit: permit })
    }

    fn take_idle(&self, node: &Arc<Node>) -> Option<Live> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        Self::close_old(&mut idle);
        let place = idle.iter().rposition(|idle| Arc::ptr_eq(&idle.node, node))?;
        Some(idle.remove(place).live)
    }

    fn put_idle(&self, node: Arc<Node>, live: Live) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        Self::close_old(&mut idle);
        idle.push(Idle { since: Instant::now(), node, live });
    }

    fn close_old(idle: &mut Vec<Idle>) {
        idle.retain(|idle| idle.since.elapsed() < IDLE && !idle.live.is_broken());
    }
}

/// The right to one connection of the pool, until it is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    pool: Arc<Pool>,
    _permit: OwnedSemaphorePermit,
}

impl Seat {
    pub(crate) async fn connection(&self, node: &Arc<Node>) -> Result<Live, Error> {
        match self.pool.take_idle(node) {
            Some(live) => Ok(live),
            None => node.dial().await,
        }
    }

    /// Gives a connection to that node back on which nothing is left to be answered.
    pub(crate) fn put_back(&self, node: Arc<Node>, live: Live) {
        if !live.is_broken() {
            self.pool.put_idle(node, live);
        }
    }
}
