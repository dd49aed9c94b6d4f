//! Ports for servers.
//!
//! They are below the range that the kernel uses for outgoing connections (32768 and up). A
//! port found by binding to 0 is from that range, and a client may use it before the
//! server binds it. If another process binds the port first, the server's log shows it, and
//! [`Server`](crate::Server) then tries the next port.

use std::net::TcpListener;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};

const FIRST: u16 = 10_000;
const COUNT: u16 = 11_000;

/// Distance from the port of a cluster node to the port of its bus. The port of the bus is below the kernel's
/// range too, and [`free`] checks it as well.
const BUS: u16 = 10_000;

/// A port that was free a moment ago, and whose bus port was free too. This process gets the same port again
/// only after thousands of others.
pub fn free() -> u16 {
    static NEXT: OnceLock<AtomicU16> = OnceLock::new();
    // The first port depends on the process id, so that processes with neighbouring ids begin far from each
    // other. They rarely take the port of another's killed server before that server is started again.
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
