//! `kvlock observe`: prints the leader of an election, and each change.

use crate::arguments::{Address, Observe};
use crate::failure::Failure;
use crate::runtime::{block_on_with_signals, refused};
use crate::server::Server;
use crate::show::named;
use crate::signals::{ReceivedSignal, Signals, end_by};
use crate::text::{json_line, lossy, text};
use kvlock::{Client, Loss, Observer, Token};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::json;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::process::ExitCode;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

/// Reason for the end of `kvlock observe`.
enum End {
    Signal(ReceivedSignal),
    /// The reader of stdout has closed its end.
    Closed,
}

pub(crate) fn observe(address: &Address, task: &Observe) -> Result<ExitCode, Failure> {
    let server = Server::at(address)?;
    let end = block_on_with_signals(async |mut signals: Signals| {
        let closed = until_stdout_closed();
        tokio::select! {
            biased;
            signal = signals.end() => signal.map(End::Signal).map_err(refused),
            Ok(()) = closed => Ok(End::Closed),
            end = print_states(&server, task) => end,
        }
    })?;
    Ok(match end {
        End::Signal(received) => end_by(received.signal),
        End::Closed => ExitCode::SUCCESS,
    })
}

/// Prints the current state, and the state after each change. A state that soon changes
/// again may be skipped.
async fn print_states(server: &Server, task: &Observe) -> Result<End, Failure> {
    let key = task.name.as_bytes();
    let client = server.connect(Client::builder()).await?;
    let observer = client.election(key).observe().await;
    let mut observer = observer.map_err(|error| named(server, key, &error))?;
    loop {
        let shown = if task.json { as_json(key, &observer) } else { as_text(&observer) };
        // On another thread: stdout may be a full pipe, and signals are handled on this thread.
        match spawn_blocking(move || write(&shown)).await {
            Ok(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(End::Closed),
            Ok(Err(error)) => return Err(Failure::trouble(format!("cannot write: {error}"))),
            Ok(Ok(())) | Err(_) => {}
        }
        observer.changed().await;
    }
}

fn write(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes()).and_then(|()| out.flush())
}

/// Resolves when the reader of stdout closes its end, as `head` does. Never resolves for a file.
fn until_stdout_closed() -> oneshot::Receiver<()> {
    let (closed, receiver) = oneshot::channel();
    // Ends with the process.
    std::thread::spawn(move || {
        let out = io::stdout();
        loop {
            // With no requested events, `poll` reports only errors and hang-ups.
            let mut ends = [PollFd::new(out.as_fd(), PollFlags::empty())];
            match poll(&mut ends, PollTimeout::NONE) {
                Ok(1..) => break,
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(_) => return,
            }
        }
        let _ended = closed.send(());
    });
    receiver
}

fn as_text(observer: &Observer) -> String {
    match observer.leader() {
        Some(leader) => {
            let (term, owner, value) = (leader.term, text(&leader.owner), text(&leader.value));
            format!("leads  {term}  {owner}  {value}\n")
        }
        None => match observer.last_loss() {
            Some(loss) => format!("vacant  {}\n", word(loss)),
            None => "vacant\n".to_owned(),
        },
    }
}

fn as_json(key: &[u8], observer: &Observer) -> String {
    let leader = observer.leader();
    json_line(&json!({
        "name": lossy(key),
        "state": if leader.is_some() { "leads" } else { "vacant" },
        "term": leader.as_ref().map(|leader| leader.term).map(Token::value),
        "owner": leader.as_ref().map(|leader| lossy(&leader.owner)),
        "value": leader.as_ref().map(|leader| lossy(&leader.value)),
        "left": observer.last_loss().map(word),
    }))
}

/// Returns the word that is printed for a loss.
fn word(loss: Loss) -> &'static str {
    match loss {
        Loss::Released => "released",
        Loss::Expired => "expired",
        Loss::Forced => "forced",
        Loss::Deleted => "deleted",
        Loss::Flushed => "flushed",
        Loss::TakenBack => "taken-back",
        Loss::SessionEnded => "gone",
        _ => "other",
    }
}
