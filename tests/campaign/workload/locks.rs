//! Locks, each held by one at a time.

use super::hold::work;
use super::{Run, Sort, Work};

pub(crate) const LOCKS: Work = Work {
    name: "locks held alone",
    run: |round, way, number, random| -> Run {
        Box::pin(work(round, way, number, random, |_| Sort::Alone))
    },
};
