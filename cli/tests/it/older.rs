//! A server whose module is older than this program: it has few counters and few commands.

use super::process::Started;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;

const FIGURES: &str =
    "redis_version:7.0.0\r\nrole:master\r\nkvlock_granted:7\r\nkvlock_waiters:0\r\n";

/// A fake server, which answers until the test binary ends.
pub(crate) struct Older(SocketAddr);

impl Older {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                std::thread::spawn(move || answer(&stream.unwrap()));
            }
        });
        Self(at)
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}/", self.0)
    }

    pub(crate) fn kvlock(&self, arguments: &[&str]) -> Started {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kvlock"));
        command.args(arguments).env("KVLOCK_URL", self.url());
        Started::new(command)
    }
}

/// Answers each command until the client disconnects.
fn answer(mut stream: &TcpStream) {
    let mut commands = BufReader::new(stream);
    while let Some(name) = next(&mut commands) {
        let reply = match &*name {
            "PING" => "+PONG\r\n".to_owned(),
            "INFO" => format!("${}\r\n{FIGURES}\r\n", FIGURES.len()),
            "LOCK.LIST" => "*0\r\n".to_owned(),
            _ => format!("-ERR unknown command '{name}'\r\n"),
        };
        if stream.write_all(reply.as_bytes()).is_err() {
            return;
        }
    }
}

/// Reads the next command, and returns its name.
fn next(commands: &mut BufReader<&TcpStream>) -> Option<String> {
    let words = number(commands)?;
    let mut name = None;
    for _ in 0..words {
        let mut word = vec![0; number(commands)? + 2];
        commands.read_exact(&mut word).ok()?;
        word.truncate(word.len() - 2);
        name.get_or_insert_with(|| String::from_utf8_lossy(&word).to_uppercase());
    }
    name
}

/// Reads the number of a line such as `*2` or `$4`.
fn number(commands: &mut BufReader<&TcpStream>) -> Option<usize> {
    let mut line = String::new();
    commands.read_line(&mut line).ok()?;
    line.trim_end().get(1..)?.parse().ok()
}
