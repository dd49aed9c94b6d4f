//! `kvlock observe`.

use crate::arguments::{Address, Observe};
use crate::failure::Failure;
use crate::server::Server;
use crate::show::{block_on, line, lossy, named, text};
use kvlock::{Client, Observer, Token};
use serde_json::json;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::process::ExitCode;

pub(crate) fn observe(address: &Address, task: &Observe) -> Result<ExitCode, Failure> {
    let key = task.name.as_bytes();
    let server = Server::at(address)?;
    block_on(async {
        let client = server.connect(Client::builder()).await?;
        let observer = client.election(key).observe().await;
        let mut observer = observer.map_err(|error| named(&server, key, &error))?;
        loop {
            let shown = if task.json { as_json(key, &observer) } else { as_text(&observer) };
            if !told(&shown).map_err(|error| Failure::trouble(format!("cannot write: {error}")))? {
                return Ok(ExitCode::SUCCESS);
            }
            observer.changed().await;
        }
    })
}

/// Whether anybody reads it.
fn told(line: &str) -> io::Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(line.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        told => told.map(|()| true),
    }
}

fn as_text(observer: &Observer) -> String {
    match observer.leader() {
        Some(leader) => {
            let (term, owner, value) = (leader.term, text(&leader.owner), text(&leader.value));
            format!("leads  {term}  {owner}  {value}\n")
        }
        None => match observer.departure() {
            Some(departure) => format!("vacant  {departure}\n"),
            None => "vacant\n".to_owned(),
        },
    }
}

fn as_json(key: &[u8], observer: &Observer) -> String {
    let leader = observer.leader();
    line(&json!({
        "name": lossy(key),
        "state": if leader.is_some() { "leads" } else { "vacant" },
        "term": leader.as_ref().map(|leader| leader.term).map(Token::value),
        "owner": leader.as_ref().map(|leader| lossy(&leader.owner)),
        "value": leader.as_ref().map(|leader| lossy(&leader.value)),
        "left": observer.departure().map(|departure| departure.to_string()),
    }))
}
