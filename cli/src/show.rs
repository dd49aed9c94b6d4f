//! `kvlock info`, `list` and `release`.

use crate::arguments::{Address, Info, List, Release};
use crate::failure::Failure;
use crate::runtime::block_on;
use crate::server::Server;
use crate::text::{json_line, lossy, name, text};
use crate::time::readable;
use crate::{messages, print};
use kvlock::{Client, Error, LockInfo, LockState, LockSummary};
use serde_json::json;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::process::ExitCode;
use std::time::Duration;

pub(crate) fn info(address: &Address, task: &Info) -> Result<ExitCode, Failure> {
    let key = task.key.as_bytes();
    if key.is_empty() {
        return Err(Failure::usage("the key must not be empty".to_owned()));
    }
    let server = Server::at(address)?;
    let info = block_on(async {
        let client = server.connect(Client::builder()).await?;
        let info = client.lock(key).info_with_waiters(task.waiters).await;
        info.map_err(|error| named(&server, key, &error))
    })?;
    let shown = if task.json { info_as_json(key, &info) } else { info_as_text(key, &info) };
    print(shown.as_bytes())
}

pub(crate) fn list(address: &Address, task: &List) -> Result<ExitCode, Failure> {
    let server = Server::at(address)?;
    let locks = block_on(async {
        let client = server.connect(Client::builder()).await?;
        let locks = client.list(task.count).await;
        locks.map_err(|error| Failure::of(&server.name, &error))
    })?;
    if task.json {
        return print(list_as_json(&locks).as_bytes());
    }
    if locks.is_empty() {
        messages::send("no lock has waiters");
        return Ok(ExitCode::SUCCESS);
    }
    print(list_as_text(&locks).as_bytes())
}

pub(crate) fn release(address: &Address, task: &Release) -> Result<ExitCode, Failure> {
    if !task.force {
        return Err(Failure::usage(
            "a lock is released by its owner: `kvlock run` does so when its command ends. --force takes \
             it away from its holder, which works on until it notices"
                .to_owned(),
        ));
    }
    let server = Server::at(address)?;
    let key = task.key.as_bytes();
    let was_held = block_on(async {
        let client = server.connect(Client::builder()).await?;
        let released = client.lock(key).force_release().await;
        released.map_err(|error| named(&server, key, &error))
    })?;
    let what = if was_held { "released" } else { "was free" };
    print(format!("{} {what}\n", text(key)).as_bytes())
}

/// Returns the failure for an error. Its message names the key if the error is about the key, or else the
/// server.
pub(crate) fn named(server: &Server, key: &[u8], error: &Error) -> Failure {
    match error {
        Error::NotALock | Error::Invalid(_) | Error::Config(_) => Failure::of(&name(key), error),
        _ => Failure::of(&server.name, error),
    }
}

fn info_as_text(key: &[u8], info: &LockInfo) -> String {
    let mut lines = vec![("key", text(key))];
    if info.state == LockState::Held {
        if info.shared {
            lines.push(("state", "shared".to_owned()));
            lines.push(("holders", info.holders.to_string()));
        } else {
            lines.push(("state", "held".to_owned()));
            lines.push(("owner", info.owner.as_deref().map_or_else(String::new, text)));
            lines.push(("holds", info.holds.to_string()));
        }
        let token = info.token.map(|token| token.to_string());
        lines.push(("token", token.unwrap_or_else(|| "none".to_owned())));
        if let Some(value) = &info.value {
            lines.push(("value", text(value)));
        }
        let left = info.lease_left.map(|left| format!("{} left", readable(left)));
        lines.push(("lease", left.unwrap_or_else(|| "without end".to_owned())));
    } else {
        lines.push(("state", "free".to_owned()));
    }
    lines.push(("waiters", info.waiters.to_string()));
    let mut shown = String::new();
    for (name, value) in lines {
        // Writing into a string does not fail.
        let _written = writeln!(shown, "{name:<8} {value}");
    }
    for waiter in &info.queue {
        let (owner, waited) = (text(&waiter.owner), readable(waiter.waited));
        let client = waiter.client_id.map(|id| format!(", client {id}"));
        let session = waiter.session.as_deref().map(|id| format!(", session {id}"));
        let through = client.or(session).unwrap_or_default();
        let other = waiter.waits_for.as_deref().map(|key| format!(", waits for {}", text(key)));
        let other = other.unwrap_or_default();
        let _written = writeln!(shown, "         {owner} for {waited}{through}{other}");
    }
    shown
}

fn info_as_json(key: &[u8], info: &LockInfo) -> String {
    let queue = info.queue.iter().map(|waiter| {
        json!({
            "owner": lossy(&waiter.owner),
            "waited_ms": millis(waiter.waited),
            "client_id": waiter.client_id,
            "session": waiter.session,
            "set": waiter.set.iter().map(|key| key.as_deref().map(lossy)).collect::<Vec<_>>(),
            "waits_for": waiter.waits_for.as_deref().map(lossy),
        })
    });
    json_line(&json!({
        "key": lossy(key),
        "state": if info.state == LockState::Held { "held" } else { "free" },
        "shared": info.shared,
        "holders": info.holders,
        "owner": info.owner.as_deref().map(lossy),
        "holds": info.holds,
        "token": info.token.map(kvlock::Token::value),
        "lease_left_ms": info.lease_left.map(millis),
        "value": info.value.as_deref().map(lossy),
        "waiters": info.waiters,
        "queue": queue.collect::<Vec<_>>(),
    }))
}

fn list_as_text(locks: &[LockSummary]) -> String {
    let mut shown = format!("{:>7}  {:>12}  {:<30}  OWNER\n", "WAITERS", "LONGEST WAIT", "KEY");
    for lock in locks {
        let waited = lock.longest_wait.map_or_else(|| "-".to_owned(), readable);
        let key = text(&lock.key);
        let owner = lock.owner.as_deref().map_or_else(|| "-".to_owned(), text);
        let other = lock.first_waits_for.as_deref();
        let other =
            other.map_or_else(String::new, |key| format!(" (first waits for {})", text(key)));
        let _written =
            writeln!(shown, "{:>7}  {waited:>12}  {key:<30}  {owner}{other}", lock.waiters);
    }
    shown
}

fn list_as_json(locks: &[LockSummary]) -> String {
    let locks = locks.iter().map(|lock| {
        json!({
            "key": lossy(&lock.key),
            "owner": lock.owner.as_deref().map(lossy),
            "waiters": lock.waiters,
            "longest_wait_ms": lock.longest_wait.map(millis),
            "first_waits_for": lock.first_waits_for.as_deref().map(lossy),
        })
    });
    json_line(&locks.collect())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
