//! Output of a command that is passed on to stdout and kept.

use std::io;
use std::process::ChildStdout;
use tokio::sync::oneshot;

/// Longest output that is kept, in bytes. Also stated in `--help`.
pub(crate) const MAX: usize = 1024 * 1024;

/// Output of a command that has ended.
#[derive(Debug)]
pub(crate) struct Output {
    /// The whole output. `None` if it is longer than [`MAX`], or could not be read to its end.
    pub(crate) kept: Option<Vec<u8>>,
    /// Outcome of writing the output to stdout.
    pub(crate) printed: io::Result<()>,
}

/// Receives the output when all processes that write it have ended or closed it. Receives earlier if the
/// output is too long to be kept and can no longer be written to stdout.
pub(crate) type Printing = oneshot::Receiver<Output>;

/// Starts a thread that reads the output, writes it to stdout as it arrives, and keeps it.
///
/// If stdout is not read, the command blocks when its pipe is full, as it would without this program. After
/// the command has ended, this process waits for the output. A signal or the loss of the lock ends that wait.
pub(crate) fn pass_on(from: ChildStdout) -> io::Result<Printing> {
    let (to, output) = oneshot::channel();
    let work = move || drop(to.send(copy(from, io::stdout().lock())));
    // Ends with the process.
    std::thread::Builder::new().name("output".to_owned()).spawn(work)?;
    Ok(output)
}

fn copy(mut from: impl io::Read, mut to: impl io::Write) -> Output {
    let (mut kept, mut printed, mut chunk) = (Some(Vec::new()), Ok(()), [0; 8192]);
    // If the reader of stdout has closed its end, the output is still read, because other processes may need
    // the result.
    while kept.is_some() || printed.is_ok() {
        let read = match from.read(&mut chunk) {
            Ok(0) => break,
            Ok(length) => chunk.get(..length).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => {
                kept = None;
                break;
            }
        };
        kept = kept.filter(|kept| kept.len() + read.len() <= MAX);
        if let Some(kept) = &mut kept {
            kept.extend_from_slice(read);
        }
        printed = printed.and_then(|()| to.write_all(read)).and_then(|()| to.flush());
    }
    Output { kept, printed }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stdout whose reader has closed its end.
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
    fn output_is_passed_on_whole_and_kept_up_to_the_limit() {
        for (length, is_kept) in [(0, true), (1, true), (MAX, true), (MAX + 1, false)] {
            let (text, mut passed_on) = (vec![7; length], Vec::new());
            let Output { kept, printed } = copy(&*text, &mut passed_on);
            assert!(printed.is_ok() && kept.is_some() == is_kept, "{length}");
            assert!(kept.is_none_or(|kept| kept == text) && passed_on == text, "{length}");
        }
    }

    #[test]
    fn a_closed_stdout_does_not_lose_the_result() {
        let Output { kept, printed } = copy(&b"made"[..], Closed);
        assert_eq!(kept, Some(b"made".to_vec()));
        assert_eq!(printed.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn output_is_not_read_when_nobody_needs_it() {
        assert!(copy(io::repeat(7), Closed).kept.is_none());
    }
}
