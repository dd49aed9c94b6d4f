//! Cleanup after an abandoned command: cancels its wait and releases what it may have been granted.

use crate::engine::context::Context;
use crate::engine::limit::{pause_after, sleep_until_changed};
use crate::engine::session::Session;
use crate::net::deadline::after;
use crate::net::live::Live;
use redis::Cmd;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Time after which a release is repeated. A command sent over a broken connection may arrive after commands
/// sent over the next connection.
const LATER: Duration = Duration::from_secs(3);

/// Sends the commands until each is answered: the release, and before it the cancellation if there was a
/// wait. They are first sent over `via`, the connection of the acquire, so that they are executed after the
/// acquire. If that connection broke, or an earlier command may still arrive (`strays`), they are sent over
/// the current connection, and again after [`LATER`]. Gives up after `lasts`, when the lease has ended, but not
/// while `session` lasts: the session of a wait, which keeps the owner's place in the queue. (S2)
pub(crate) async fn free(
    inner: &Context,
    key: &[u8],
    commands: &[Cmd],
    via: Option<Arc<Live>>,
    strays: bool,
    lasts: Duration,
    session: Option<Arc<Session>>,
) {
    let mut strays = strays;
    if let Some(live) = via {
        let mut followed = Followed::Done;
        for command in commands {
            if followed == Followed::Done {
                followed = follow(inner, command, &live).await;
            }
        }
        match followed {
            Followed::Done if !strays => return,
            Followed::Done | Followed::Elsewhere => {}
            Followed::Unknown => strays = true,
        }
    }
    let end = after(lasts);
    let is_over = || {
        let keeps_place = session.as_ref().is_some_and(|session| !session.is_over());
        Instant::now() >= end && !keeps_place
    };
    release_surely(inner, key, commands, is_over).await;
    if strays {
        sleep(LATER).await;
        release_surely(inner, key, commands, is_over).await;
    }
}

/// Outcome of a command that was sent over the connection of the acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Followed {
    /// The command was executed, or refused for good.
    Done,
    /// The acquire has been executed or refused, and cannot arrive later. The command was refused for now:
    /// another server has the lock, or this one accepts the command a little later.
    Elsewhere,
    /// Unknown: the acquire may still be executed.
    Unknown,
}

/// Sends a release, or a cancellation, over the connection of the acquire.
pub(crate) async fn follow(inner: &Context, release: &Cmd, live: &Live) -> Followed {
    match live.call_after(release, inner.settings.reply_timeout).await {
        Err(trouble) if trouble.leaves_outcome_unknown() => {
            live.condemn();
            Followed::Unknown
        }
        Err(trouble) if trouble.is_passing() => Followed::Elsewhere,
        Ok(_) | Err(_) => Followed::Done,
    }
}

async fn release_surely(inner: &Context, key: &[u8], commands: &[Cmd], is_over: impl Fn() -> bool) {
    let begun = Instant::now();
    for command in commands {
        let call = || inner.router.call(key, command, inner.settings.reply_timeout);
        while let Err(trouble) = call().await {
            if is_over() {
                return;
            }
            // A permanent refusal of one command does not stop the next one.
            if !(trouble.is_passing() || trouble.leaves_outcome_unknown()) {
                break;
            }
            // Other clients may wait for the lock, so a new primary ends the pause.
            sleep_until_changed(pause_after(begun.elapsed()), inner.router.switched()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::error::Error;
    use crate::wire::request::{self, GiveBack, Mode};
    use tokio::time::timeout;

    #[tokio::test(start_paused = true)]
    async fn a_release_is_repeated_until_the_lease_has_ended_and_no_longer() {
        let context = Context::of_no_server();
        let commands = [request::release(Mode::Alone, &b"k"[..], "o:1", GiveBack::All)];
        let lasts = Duration::from_secs(600);
        let mut release = std::pin::pin!(free(&context, b"k", &commands, None, false, lasts, None));
        assert!(timeout(lasts * 9 / 10, &mut release).await.is_err());
        assert!(timeout(lasts / 5, release).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_wait_is_repeated_while_its_session_keeps_the_place() {
        let context = Context::of_no_server();
        let session = context.sessions.without_reader(context.router.only().unwrap());
        let cancel = request::cancel(Mode::Alone, &b"k"[..], "o:1");
        let release = request::release(Mode::Alone, &b"k"[..], "o:1", GiveBack::All);
        let (commands, lasts) = ([cancel, release], Duration::from_secs(30));
        let through = Some(session.clone());
        let undo = free(&context, b"k", &commands, None, false, lasts, through);
        let mut undo = std::pin::pin!(undo);
        assert!(
            timeout(lasts * 3, &mut undo).await.is_err(),
            "the owner can still be granted the lock"
        );
        session.end(Error::Timeout);
        assert!(timeout(lasts / 5, undo).await.is_ok());
    }
}
