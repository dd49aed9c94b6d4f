//! The async runtime of this process, with one thread.

use crate::failure::Failure;
use crate::signals::Signals;
use std::io;

/// Runs `work` to its end on this thread.
///
/// Does not wait for blocking work in the background, such as a slow name lookup.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(refused)?;
    let outcome = runtime.block_on(work);
    runtime.shutdown_background();
    outcome
}

/// As [`block_on`], with the signals of this process, which are blocked before another thread exists.
pub(crate) fn block_on_with_signals<T>(
    work: impl AsyncFnOnce(Signals) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let wanted = Signals::block().map_err(refused)?;
    crate::messages::start().map_err(refused)?;
    block_on(async { work(Signals::listen(&wanted).map_err(refused)?).await })
}

/// Returns the failure for an error of the operating system.
pub(crate) fn refused(error: io::Error) -> Failure {
    Failure::trouble(format!("the system refuses: {error}"))
}
