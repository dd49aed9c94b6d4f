//! Semaphores: no more permits are believed to be held than there are.

use super::hold::work;
use super::{PERMITS, Run, Sort, Work};

pub(crate) const SEMAPHORES: Work = Work {
    name: "permits of semaphores",
    run: |round, way, number, random| -> Run {
        Box::pin(work(round, way, number, random, |random| {
            let permits = 1 + random.below(PERMITS.into());
            Sort::Permits(permits.try_into().expect("few"))
        }))
    },
};
