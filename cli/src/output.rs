//! The output of a command that is passed on to stdout and kept.

use std::io;
use std::process::ChildStdout;
use tokio::sync::oneshot;

/// Longest output that is kept, in bytes. `--help` names it too.
pub(crate) const MAX: usize = 1024 * 1024;

/// Receives the output when all processes that write it have ended or closed it; `None` if it is longer
/// than [`MAX`], or could not be read to its end.
pub(crate) type Kept = oneshot::Receiver<Option<Vec<u8>>>;

/// Starts a thread that reads the output, writes it to stdout as it comes, and keeps it.
///
/// A stdout that is not read stops the command when its pipe is full, as without this program. It does not
/// stop this program: the thread is not waited for at the end of the process.
pub(crate) fn pass_on(from: ChildStdout) -> io::Result<Kept> {
    let (to, kept) = oneshot::channel();
    let work = move || drop(to.send(copy(from, io::stdout().lock())));
    // Ends with the process.
    std::thread::Builder::new().name("output".to_owned()).spawn(work)?;
    Ok(kept)
}

fn copy(mut from: impl io::Read, to: impl io::Write) -> Option<Vec<u8>> {
    let (mut kept, mut to, mut chunk) = (Some(Vec::new()), Some(to), [0; 8192]);
    loop {
        let read = match from.read(&mut chunk) {
            Ok(0) => return kept,
            Ok(length) => chunk.get(..length)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return None,
        };
        kept = kept.filter(|kept| kept.len() + read.len() <= MAX);
        if let Some(kept) = &mut kept {
            kept.extend_from_slice(read);
        }
        // A reader of stdout that has gone does not end the work: others want the result.
        to = to.and_then(|mut to| to.write_all(read).and_then(|()| to.flush()).ok().map(|()| to));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stdout whose reader has gone.
    struct Closed;

    impl io::Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn all_is_passed_on_and_no_more_than_the_limit_is_kept() {
        for (length, is_kept) in [(0, true), (1, true), (MAX, true), (MAX + 1, false)] {
            let (printed, mut passed_on) = (vec![7; length], Vec::new());
            let kept = copy(&*printed, &mut passed_on);
            assert_eq!(kept.is_some(), is_kept, "{length}");
            assert!(kept.is_none_or(|kept| kept == printed) && passed_on == printed, "{length}");
        }
    }

    #[test]
    fn a_reader_of_stdout_that_has_gone_costs_no_result() {
        assert_eq!(copy(&b"made"[..], Closed), Some(b"made".to_vec()));
    }
}
