//! Read-write locks: many share one, or somebody holds it alone.

use super::hold::work;
use super::{Run, Sort, Work};

pub(crate) const READERS: Work = Work {
    name: "read-write locks",
    run: |round, way, number, random| -> Run {
        Box::pin(work(round, way, number, random, |random| {
            if random.percent(70) { Sort::Shared } else { Sort::Alone }
        }))
    },
};
