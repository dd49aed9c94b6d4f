//! How the tests against a model are run.

use proptest::arbitrary::any;
use proptest::collection::vec;
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, TestCaseResult, TestRunner};

const CASES: u32 = 1_000;

/// Tries a thousand of these, or as many as `PROPTEST_CASES` says. One that fails is shrunk and
/// printed.
pub(crate) fn for_all<S: Strategy>(them: &S, test: impl Fn(S::Value) -> TestCaseResult) {
    let mut config = config();
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = CASES;
    }
    run(config, them, test);
}

/// The same for whatever bytes a fuzzer may come up with.
pub(crate) fn for_all_bytes(test: impl Fn(&[u8]) -> TestCaseResult) {
    run(config(), &vec(any::<u8>(), 1..400), |bytes| test(&bytes));
}

fn config() -> Config {
    Config { failure_persistence: None, ..Config::default() }
}

#[expect(clippy::panic, reason = "a panic is how a test fails")]
fn run<S: Strategy>(config: Config, them: &S, test: impl Fn(S::Value) -> TestCaseResult) {
    if let Err(failure) = TestRunner::new(config).run(them, test) {
        panic!("{failure}");
    }
}
