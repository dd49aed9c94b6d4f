//! One server that dies under load again and again.

use super::aftermath::{Cost, want_all, wanting};
use super::load::{Load, TIMEOUT};
use harness::history::{Outcome, Recorder};
use harness::{Server, Value};
use std::time::Duration;

/// What is tried.
pub(super) struct Trial<'a> {
    pub(super) server: &'a Server,
    pub(super) crashes: usize,
    /// How many grants the clients know of before each crash.
    pub(super) grants: usize,
    pub(super) lease: Duration,
    /// Everybody else gets every lock in the end; for leases that end.
    pub(super) to_the_end: bool,
}

impl Trial<'_> {
    /// Each time: `before`, the load, in the middle of it `die`, and a start.
    pub(super) fn run(&self, before: impl Fn(), die: impl Fn()) -> Cost {
        let (book, mut cost) = (Recorder::new(), Cost::default());
        for life in 0..self.crashes {
            let life = format!("{life}:");
            self.end_quarantine();
            before();
            let Self { server, lease, grants, .. } = *self;
            Load { server, book: &book, life: &life, lease, grants }.run(&die);
            server.restart();
            cost.crashes += 1;

            let mut calls = book.calls();
            calls.retain(|call| call.key.starts_with(&life));
            let mut eye = server.connect();
            cost.count_lost(&mut eye, &book, &calls);
            let soon = wanting(lease, None);
            want_all(&mut eye, &book, &calls, "impatient", &soon);
            if self.to_the_end {
                let later = wanting(lease, Some(TIMEOUT));
                let outcomes = want_all(&mut eye, &book, &calls, "patient", &later);
                assert!(outcomes.iter().all(|seen| matches!(seen, Outcome::Granted { .. })));
            }
        }
        cost.count_twice(&book.calls());
        cost
    }

    /// A start is a quarantine; the first load need not wait for its end.
    fn end_quarantine(&self) {
        let done = self.server.connect().run("CONFIG SET kvlock.quarantine-ms 0");
        assert_eq!(done, Value::Status("OK".into()));
    }
}
