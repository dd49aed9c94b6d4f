//! A reference model of the core, written with lists and loops. A step runs on the table and on the model,
//! and the results must agree.
//!
//! Locks, sets, bound locks, semaphores, latches and sessions each have a [`World`]: the
//! operations, drawn from the [`Bytes`] of proptest or of a fuzzer, and the comparison after each
//! step. The tests of the core and the fuzzers of `scripts/fuzz` share them.

#![allow(
    missing_debug_implementations,
    missing_docs,
    unnameable_types,
    unreachable_pub,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    clippy::new_without_default,
    clippy::panic,
    clippy::unwrap_used,
    reason = "for tests alone, where a panic is how one fails"
)]

pub mod bound;
pub mod latches;
pub mod locks;
pub mod permits;
pub mod sessions;
pub mod sets;
pub mod sim;
mod source;

use proptest::arbitrary::any;
use proptest::collection::vec;
use proptest::strategy::{Strategy, ValueTree as _};
use proptest::test_runner::{Config, TestCaseResult, TestError, TestRunner};
use std::fmt::Debug;
use std::panic::{self, AssertUnwindSafe};

pub use source::Bytes;

/// Number of walks (random sequences of operations) in a test.
const CASES: u32 = 1_000;

/// Largest number of operations in a walk of a test.
const STEPS: usize = 120;

/// A table and its model, and the operations on both.
pub trait World: Sized {
    /// Operations of the world.
    type Op: Debug;

    /// Returns a new world. `sort` selects one of several kinds of this world, if there are any.
    fn begin(sort: u8) -> Self;

    /// Decodes the next operation.
    fn draw(bytes: &mut Bytes<'_>) -> Self::Op;

    /// Applies an operation to the table and to the model. Fails if they differ, or if an invariant is
    /// broken.
    fn does(&mut self, op: &Self::Op) -> TestCaseResult;

    /// Checks the state at the end of a walk of [`check`].
    fn ends(&mut self) -> TestCaseResult {
        Ok(())
    }
}

/// Decodes bytes into the sort of a world and at most `most` operations.
fn walk_of<W: World>(bytes: &[u8], most: usize) -> (u8, Vec<W::Op>) {
    let mut bytes = Bytes(bytes);
    let (sort, mut ops) = (bytes.byte(), Vec::new());
    while !bytes.0.is_empty() && ops.len() < most {
        ops.push(W::draw(&mut bytes));
    }
    (sort, ops)
}

fn walks<W: World>() -> impl Strategy<Value = (u8, Vec<W::Op>)> {
    vec(any::<u8>(), 1..1_000).prop_map(|bytes| walk_of::<W>(&bytes, STEPS))
}

/// Runs a thousand walks, or the number in `PROPTEST_CASES`. Panics with a shortened walk if one
/// fails.
pub fn check<W: World>() {
    let mut config = Config { failure_persistence: None, max_shrink_iters: 0, ..Config::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = CASES;
    }
    let tried = TestRunner::new(config).run(&walks::<W>(), |(sort, ops)| walk::<W>(sort, &ops));
    match tried {
        Ok(()) => {}
        Err(TestError::Fail(_, (sort, ops))) => {
            let (why, ops) = shortened::<W>(sort, ops);
            panic!("{why}, in a world of sort {sort} after {ops:#?}");
        }
        Err(abort) => panic!("{abort}"),
    }
}

fn walk<W: World>(sort: u8, ops: &[W::Op]) -> TestCaseResult {
    let mut world = W::begin(sort);
    ops.iter().try_for_each(|op| world.does(op))?;
    world.ends()
}

/// Leaves out each step without which the walk still fails. Proptest cannot do this: it shrinks the
/// bytes that encode a walk, and one byte less can change all later steps.
fn shortened<W: World>(sort: u8, mut ops: Vec<W::Op>) -> (String, Vec<W::Op>) {
    let fails = |ops: &[W::Op]| {
        let tried = panic::catch_unwind(AssertUnwindSafe(|| walk::<W>(sort, ops)));
        tried.map_or_else(
            |_| Some("it panicked".to_owned()),
            |tried| tried.err().map(|why| why.to_string()),
        )
    };
    let mut last = fails(&ops).unwrap_or_default();
    let mut before = usize::MAX;
    while ops.len() < before {
        before = ops.len();
        for at in (0..before).rev() {
            let step = ops.remove(at);
            match fails(&ops) {
                Some(why) => last = why,
                None => ops.insert(at, step),
            }
        }
    }
    (last, ops)
}

/// Runs `many` walks, and sums the counters that `of` reads from each world. A test asserts with them
/// that its walks reached every case.
pub fn counted<W: World, const N: usize>(many: u64, of: impl Fn(&W) -> [u64; N]) -> [u64; N] {
    let (mut runner, mut counted) = (TestRunner::deterministic(), [0; N]);
    for _ in 0..many {
        let (sort, ops) = walks::<W>().new_tree(&mut runner).expect("a walk").current();
        let mut world = W::begin(sort);
        for op in &ops {
            world.does(op).expect("as the contract says");
        }
        counted.iter_mut().zip(of(&world)).for_each(|(all, one)| *all += one);
    }
    counted
}

/// Runs the walk that a fuzzer's bytes encode. If a step fails, panics with the steps up to that one.
pub fn fuzz<W: World>(bytes: &[u8], most: usize) {
    let (sort, ops) = walk_of::<W>(bytes, most);
    let mut world = W::begin(sort);
    for (at, op) in ops.iter().enumerate() {
        if let Err(why) = world.does(op) {
            panic!("{why}, after {sort} and {:#?}", &ops[..=at]);
        }
    }
}
