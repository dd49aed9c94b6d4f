//! Ports for servers.
//!
//! They come from below the range that the kernel gives to outgoing connections (32768 and up): a
//! port found by binding to 0 is from that range, and may be some client's by the time that the
//! server binds it. Another process may still be faster; the server's log tells, and
//! [`Server`](crate::Server) then takes the next.

use std::net::TcpListener;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};

const FIRST: u16 = 10_000;
const COUNT: u16 = 11_000;

/// The bus of a cluster node is that far above its port. It is kept free too, and is itself below
/// the kernel's range.
const BUS: u16 = 10_000;

/// A port that was free a moment ago, together with its bus port, and that this process has not
/// been given before in the last thousands of calls.
pub fn free() -> u16 {
    static NEXT: OnceLock<AtomicU16> = OnceLock::new();
    // Processes that run at the same time begin far from each other: the port of a server that is killed is free
    // until it is started again.
    let begin = || u64::from(std::process::id()).wrapping_mul(4_241) % u64::from(COUNT);
    let next = NEXT.get_or_init(|| AtomicU16::new(begin().try_into().unwrap_or(0)));
    for _ in 0..COUNT {
        let port = FIRST + next.fetch_add(1, Ordering::Relaxed) % COUNT;
        if is_free(port) && is_free(port + BUS) {
            return port;
        }
    }
    panic!("no free port from {FIRST} on");
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}
