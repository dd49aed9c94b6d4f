//! The contract of the core, said once more with lists and loops, beside a table that is to do the
//! same: whatever happens, both must answer the same, write the same and have the same people in line.
//!
//! Each sort of thing that somebody waits for has a [`World`] of its own: what can happen there, drawn
//! by proptest or read from the bytes of a fuzzer, and the comparison after each step. The tests of
//! the core and the fuzzers of `scripts/fuzz` share them.

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
pub mod sim;
mod source;

use proptest::arbitrary::any;
use proptest::collection::vec;
use proptest::strategy::{BoxedStrategy, Strategy, ValueTree as _};
use proptest::test_runner::{Config, TestCaseResult, TestRunner};
use std::fmt::Debug;

const CASES: u32 = 1_000;

/// A table, its model, and what happens to both.
pub trait World: Sized {
    /// How a walk begins.
    type Start: Copy + Debug;
    /// What can happen.
    type Op: Debug;

    fn begin(start: Self::Start) -> Self;

    /// Walks as proptest draws and shrinks them.
    fn walks() -> BoxedStrategy<(Self::Start, Vec<Self::Op>)>;

    /// Does it to both; an error is a difference between the two.
    fn does(&mut self, op: &Self::Op) -> TestCaseResult;
}

/// A world whose walks can be read from bytes, too.
pub trait FromBytes: World {
    /// What the bytes say, with so many steps at most.
    fn walk_of(bytes: &[u8], most: usize) -> (Self::Start, Vec<Self::Op>);
}

fn walk<W: World>((start, ops): &(W::Start, Vec<W::Op>)) -> TestCaseResult {
    let mut world = W::begin(*start);
    ops.iter().try_for_each(|op| world.does(op))
}

/// Tries a thousand walks, or as many as `PROPTEST_CASES` says. One that fails is shrunk and printed:
/// make a transcript of it.
pub fn check<W: World>() {
    for_all(&W::walks(), |it| walk::<W>(&it));
}

/// The same for whatever there is to be tried.
pub fn for_all<S: Strategy>(them: &S, test: impl Fn(S::Value) -> TestCaseResult) {
    let mut config = config();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = CASES;
    }
    run(config, them, test);
}

/// The same for whatever bytes a fuzzer may come up with.
pub fn check_bytes<W: FromBytes>(most: usize) {
    run(config(), &vec(any::<u8>(), 1..400), |bytes| walk::<W>(&W::walk_of(&bytes, most)));
}

/// What so many walks have counted, together: a test that finds nothing must have looked everywhere.
pub fn counted<W: World, const N: usize>(walks: u64, of: impl Fn(&W) -> [u64; N]) -> [u64; N] {
    let (mut runner, mut counted) = (TestRunner::deterministic(), [0; N]);
    for _ in 0..walks {
        let (start, ops) = W::walks().new_tree(&mut runner).expect("a walk").current();
        let mut world = W::begin(start);
        for op in &ops {
            world.does(op).expect("as the contract says");
        }
        counted.iter_mut().zip(of(&world)).for_each(|(all, one)| *all += one);
    }
    counted
}

/// The walk that a fuzzer's bytes say; a difference is a panic that shows how it came.
pub fn fuzz<W: FromBytes>(bytes: &[u8], most: usize) {
    let (start, ops) = W::walk_of(bytes, most);
    let mut world = W::begin(start);
    for (at, op) in ops.iter().enumerate() {
        if let Err(why) = world.does(op) {
            panic!("{why}, after {start:?} and {:#?}", &ops[..=at]);
        }
    }
}

fn config() -> Config {
    Config { failure_persistence: None, ..Config::default() }
}

fn run<S: Strategy>(config: Config, them: &S, test: impl Fn(S::Value) -> TestCaseResult) {
    if let Err(failure) = TestRunner::new(config).run(them, test) {
        panic!("{failure}");
    }
}
