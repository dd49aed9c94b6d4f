//! The connections for waiting: a bounded number, since each blocks in one wait.

use crate::connector::Connector;
use crate::error::Error;
use crate::link::Live;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// An idle connection is closed after this long, when the next one is put back or taken.
const IDLE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Pool {
    connector: Arc<Connector>,
    seats: Arc<Semaphore>,
    /// The last one used is at the end.
    idle: Mutex<Vec<(Instant, Live)>>,
}

impl Pool {
    pub(crate) fn new(connector: Arc<Connector>, size: usize) -> Self {
        Self { connector, seats: Arc::new(Semaphore::new(size)), idle: Mutex::default() }
    }

    /// The right to one of the connections, if one is left. Never waits.
    pub(crate) fn try_seat(self: &Arc<Self>) -> Option<Seat> {
        let permit = self.seats.clone().try_acquire_owned().ok()?;
        Some(Seat { pool: self.clone(), _permit: permit })
    }

    fn take_idle(&self) -> Option<Live> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        Self::close_old(&mut idle);
        idle.pop().map(|(_, live)| live)
    }

    fn put_idle(&self, live: Live) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        Self::close_old(&mut idle);
        idle.push((Instant::now(), live));
    }

    fn close_old(idle: &mut Vec<(Instant, Live)>) {
        idle.retain(|(since, live)| since.elapsed() < IDLE && !live.is_broken());
    }
}

/// The right to one connection of the pool, until it is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    pool: Arc<Pool>,
    _permit: OwnedSemaphorePermit,
}

impl Seat {
    pub(crate) async fn connection(&self) -> Result<Live, Error> {
        match self.pool.take_idle() {
            Some(live) => Ok(live),
            None => self.pool.connector.dial().await,
        }
    }

    /// Gives a connection back on which nothing is left to be answered.
    pub(crate) fn keep(self, live: Live) {
        if !live.is_broken() {
            self.pool.put_idle(live);
        }
    }
}
