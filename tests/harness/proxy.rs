//! Something between a server and the clients that reach it by this way, which cuts them off.
//!
//! Partitions need no rights of an administrator with it: what is to be cut off goes through the
//! proxy, and what is not goes straight to the server. Replicas say by what port they are known, so
//! that one of them can be cut off alone.
//!
//! It can also be a long way: what is sent arrives later, each piece by a time of its own, and in order.
//!
//! A cut is silent, as that of a cable is: nobody is told that the other end is gone, and what was on
//! its way never arrives.

use crate::server::Server;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How a replica begins to say by what port it is known.
const NAMES_ITSELF: &[u8] = b"listening-port\r\n$";

/// A proxy before a server; closed when this is dropped.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    ways: Arc<Mutex<Ways>>,
}

#[derive(Debug, Default)]
struct Ways {
    /// The port of the server; none yet if 0.
    server: u16,
    closed: bool,
    cut: bool,
    /// Replicas that are cut off, by the port they are known by.
    cut_replicas: Vec<u16>,
    open: Vec<Way>,
    last: u64,
    length: Arc<Length>,
}

/// How long what is sent is on its way, in milliseconds.
#[derive(Debug, Default)]
struct Length {
    least: AtomicU64,
    most: AtomicU64,
}

impl Length {
    fn pass(&self) {
        let (least, most) = (self.least.load(Ordering::SeqCst), self.most.load(Ordering::SeqCst));
        if most > 0 {
            thread::sleep(Duration::from_millis(fastrand::u64(least..=most.max(least))));
        }
    }
}

/// A connection through the proxy.
#[derive(Debug)]
struct Way {
    id: u64,
    ends: [TcpStream; 2],
    replica: Option<u16>,
    /// What comes is thrown away.
    cut: Arc<AtomicBool>,
}

impl Way {
    fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
    }

    fn close(&self) {
        for end in &self.ends {
            // It may be closed already.
            let _closed = end.shutdown(Shutdown::Both);
        }
    }
}

impl Default for Proxy {
    fn default() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port for a proxy");
        let port = listener.local_addr().expect("it is bound").port();
        let ways = Arc::<Mutex<Ways>>::default();
        let shared = ways.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if lock(&shared).closed {
                    return;
                }
                carry(&shared, client);
            }
        });
        Self { port, ways }
    }
}

impl Proxy {
    /// One that leads nowhere yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Where to reach the server by this way.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Leads to that server from here on; connections to another are closed.
    pub fn lead_to(&self, server: &Server) {
        let mut ways = lock(&self.ways);
        if std::mem::replace(&mut ways.server, server.port()) != server.port() {
            ways.open.drain(..).for_each(|way| way.close());
        }
    }

    /// Cuts the server off from all that come this way.
    pub fn cut(&self) {
        let mut ways = lock(&self.ways);
        ways.cut = true;
        ways.open.iter().for_each(Way::cut);
    }

    /// Cuts off the replica that is known by that port, and nobody else.
    pub fn cut_replica(&self, known_by: u16) {
        let mut ways = lock(&self.ways);
        ways.cut_replicas.push(known_by);
        ways.open.iter().filter(|way| way.replica == Some(known_by)).for_each(Way::cut);
    }

    /// From now on what is sent takes a time between these two to arrive, in either direction; zero
    /// and zero is the beginning.
    pub fn delay(&self, least: Duration, most: Duration) {
        let ms = |time: Duration| u64::try_from(time.as_millis()).expect("not so long");
        let length = &lock(&self.ways).length;
        length.least.store(ms(least), Ordering::SeqCst);
        length.most.store(ms(most), Ordering::SeqCst);
    }

    /// Closes all connections that come this way; others may come at once.
    pub fn hang_up(&self) {
        lock(&self.ways).open.drain(..).for_each(|way| way.close());
    }

    /// Closes all connections for the clients, which may connect again; the server hears of
    /// nothing until [`heal`](Self::heal).
    pub fn forsake(&self) {
        for way in &lock(&self.ways).open {
            way.cut();
            // It may be closed already.
            let _closed = way.ends[0].shutdown(Shutdown::Both);
        }
    }

    /// All can come this way again. What was cut is closed: what was on its way is lost for good.
    pub fn heal(&self) {
        let mut ways = lock(&self.ways);
        ways.cut = false;
        ways.cut_replicas.clear();
        ways.open.retain(|way| {
            let cut = way.cut.load(Ordering::SeqCst);
            if cut {
                way.close();
            }
            !cut
        });
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let mut ways = lock(&self.ways);
        ways.closed = true;
        ways.open.drain(..).for_each(|way| way.close());
        drop(ways);
        // Wakes the one that listens.
        let _woken = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn lock(ways: &Mutex<Ways>) -> MutexGuard<'_, Ways> {
    ways.lock().unwrap_or_else(PoisonError::into_inner)
}

fn carry(shared: &Arc<Mutex<Ways>>, client: TcpStream) {
    let mut ways = lock(shared);
    if ways.cut || ways.server == 0 {
        return;
    }
    let Ok(server) = TcpStream::connect(("127.0.0.1", ways.server)) else { return };
    let pair = || Some([client.try_clone().ok()?, server.try_clone().ok()?]);
    let (Some(ends), Some(up), Some(down)) = (pair(), pair(), pair()) else { return };
    ways.last += 1;
    let (id, cut) = (ways.last, Arc::<AtomicBool>::default());
    ways.open.push(Way { id, ends, replica: None, cut: cut.clone() });
    let (there, back) = (ways.length.clone(), ways.length.clone());
    drop(ways);
    let ([from, to], watched, is_cut) = (up, shared.clone(), cut.clone());
    thread::spawn(move || {
        // The order of the connections decides how long what they carry is on its way.
        fastrand::seed(2 * id);
        pump(from, to, &is_cut, |bytes| {
            look_who_it_is(&watched, id, bytes);
            there.pass();
        });
    });
    let ([to, from], shared) = (down, shared.clone());
    thread::spawn(move || {
        fastrand::seed(2 * id + 1);
        pump(from, to, &cut, |_| back.pass());
        if !cut.load(Ordering::SeqCst) {
            lock(&shared).open.retain(|way| way.id != id);
        }
    });
}

/// Carries what comes until one end is closed, and closes the other; unless it is cut, when the
/// other end hears of nothing.
fn pump(mut from: TcpStream, mut to: TcpStream, cut: &AtomicBool, mut look: impl FnMut(&[u8])) {
    let mut bytes = vec![0; 65_536];
    while let Ok(length @ 1..) = from.read(&mut bytes) {
        look(&bytes[..length]);
        if !cut.load(Ordering::SeqCst) && to.write_all(&bytes[..length]).is_err() {
            break;
        }
    }
    if !cut.load(Ordering::SeqCst) {
        for end in [&from, &to] {
            // It may be closed already.
            let _closed = end.shutdown(Shutdown::Both);
        }
    }
}

/// Whether that connection is a replica's, and whose.
fn look_who_it_is(shared: &Mutex<Ways>, id: u64, bytes: &[u8]) {
    let Some(at) = bytes.windows(NAMES_ITSELF.len()).position(|seen| seen == NAMES_ITSELF) else {
        return;
    };
    let rest = String::from_utf8_lossy(&bytes[at + NAMES_ITSELF.len()..]);
    let port = rest.split("\r\n").nth(1).and_then(|port| port.parse().ok());
    let mut ways = lock(shared);
    let cut = port.is_some_and(|port| ways.cut_replicas.contains(&port));
    if let Some(way) = ways.open.iter_mut().find(|way| way.id == id) {
        way.replica = port;
        if cut {
            way.cut();
        }
    }
}
