//! A proxy between a server and its clients. It can cut clients off, and reset a connection at a chosen
//! moment of a command.
//!
//! The proxy makes partitions without administrator rights. Connections that a test may cut use the proxy;
//! the others connect directly to the server. Replicas announce their port, so a single replica can be cut
//! off.
//!
//! It can also delay messages: each one by a random time, without reordering.
//!
//! A cut of open connections is silent, like a cut cable: neither end gets a notice, and messages in flight
//! are lost.

use crate::resp::{Connection, Value};
use crate::server::Server;
use socket2::SockRef;
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Part of the command by which a replica announces its port. The port follows, after its length.
const NAMES_ITSELF: &[u8] = b"listening-port\r\n$";

/// Longest wait of [`Proxy::deliver`] for the reply.
const PATIENCE: Duration = Duration::from_secs(20);

/// Moment of a command at which its connection is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The server never sees the command.
    BeforeTheServer,
    /// The command stays in flight until the test delivers it: see [`Proxy::deliver`].
    OnItsWay,
    /// The server executes the command, and its reply is lost.
    BeforeTheAnswer,
    /// The first half of the reply arrives.
    InTheAnswer,
    /// The reply arrives, and then the connection breaks.
    AfterTheAnswer,
}

/// A proxy before a server. Dropping it closes its port and all connections.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    ways: Arc<Mutex<Ways>>,
}

#[derive(Debug, Default)]
struct Ways {
    /// The port of the server; 0 if there is no server yet.
    server: u16,
    closed: bool,
    cut: bool,
    /// Replicas that are cut off, by the port that they announce.
    cut_replicas: Vec<u16>,
    /// Planned resets, in order: the command, how many times it passes before the reset, and the moment of the
    /// reset.
    resets: Vec<(&'static str, usize, Moment)>,
    /// The last command that stayed in flight: see [`Moment::OnItsWay`].
    late: Vec<u8>,
    /// Shortest and longest delay of a message, in milliseconds.
    delay: [u64; 2],
    open: BTreeMap<u64, Way>,
    last: u64,
}

/// A connection through the proxy.
#[derive(Debug)]
struct Way {
    /// The client's end and the server's end.
    ends: Arc<[TcpStream; 2]>,
    /// The port that the client has announced as a replica, if it has.
    replica: Option<u16>,
    reset: Option<Moment>,
    /// `true` if the proxy drops all data that arrive.
    cut: bool,
}

impl Way {
    fn close(&self) {
        self.ends.iter().for_each(|end| shut(end, Shutdown::Both));
    }
}

impl Default for Proxy {
    /// A proxy that has no server yet: see [`lead_to`](Self::lead_to).
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
    /// A proxy to the given server.
    pub fn before(server: &Server) -> Self {
        let proxy = Self::default();
        proxy.lead_to(server);
        proxy
    }

    /// The port of the proxy.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The proxy's address as a URL for redis-rs.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Forwards new connections to the given server. Open connections to another server are closed.
    pub fn lead_to(&self, server: &Server) {
        let before = std::mem::replace(&mut lock(&self.ways).server, server.port());
        if before != server.port() {
            self.hang_up();
        }
    }

    /// Cuts the server off from all connections through the proxy. New connections are closed at once.
    pub fn cut(&self) {
        let mut ways = lock(&self.ways);
        ways.cut = true;
        ways.open.values_mut().for_each(|way| way.cut = true);
    }

    /// Cuts the connections that are open now, as [`cut`](Self::cut) does. Later connections are forwarded.
    pub fn cut_open(&self) {
        lock(&self.ways).open.values_mut().for_each(|way| way.cut = true);
    }

    /// Cuts off the replica that announces the given port, and no other connection.
    pub fn cut_replica(&self, known_by: u16) {
        let mut ways = lock(&self.ways);
        ways.cut_replicas.push(known_by);
        ways.open.values_mut().for_each(|way| way.cut |= way.replica == Some(known_by));
    }

    /// Delays each later message by a random time between `least` and `most`, in both directions. By default
    /// there is no delay.
    pub fn delay(&self, least: Duration, most: Duration) {
        let ms = |time: Duration| u64::try_from(time.as_millis()).expect("not so long");
        lock(&self.ways).delay = [least, most].map(ms);
    }

    /// Closes all open connections. Clients may connect again at once.
    pub fn hang_up(&self) {
        std::mem::take(&mut lock(&self.ways).open).values().for_each(Way::close);
    }

    /// Closes the clients' ends of all connections. Clients may connect again. The server does not notice
    /// until [`heal`](Self::heal).
    pub fn forsake(&self) {
        for way in lock(&self.ways).open.values_mut() {
            way.cut = true;
            shut(&way.ends[0], Shutdown::Both);
        }
    }

    /// Ends all cuts. Connections that were cut are closed, and their messages in flight are lost.
    pub fn heal(&self) {
        let mut ways = lock(&self.ways);
        ways.cut = false;
        ways.cut_replicas.clear();
        ways.open.values().filter(|way| way.cut).for_each(Way::close);
        ways.open.retain(|_, way| !way.cut);
    }

    /// Plans a reset of the next connection that carries this command, at the given moment. Planned resets
    /// happen in order.
    pub fn reset(&self, command: &'static str, moment: Moment) {
        self.reset_after(0, command, moment);
    }

    /// Like [`reset`](Self::reset), after the command has passed `passed` times.
    pub fn reset_after(&self, passed: usize, command: &'static str, moment: Moment) {
        lock(&self.ways).resets.push((command, passed, moment));
    }

    /// Returns whether all planned resets have been triggered.
    pub fn has_reset(&self) -> bool {
        lock(&self.ways).resets.is_empty()
    }

    /// Delivers the command that was in flight when its connection was reset. Returns the reply.
    pub fn deliver(&self) -> Value {
        let mut ways = lock(&self.ways);
        let mut server = Connection::open(ways.server).expect("the server listens");
        server.send_raw(&std::mem::take(&mut ways.late));
        server.receive(PATIENCE).expect("an answer to what was late")
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        lock(&self.ways).closed = true;
        self.hang_up();
        // Wakes the listening thread.
        let _woken = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Ways {
    /// Inspects a message in either direction. Returns the moment of its connection's reset, if one is due, and
    /// the message's delay.
    fn look(&mut self, id: u64, to_server: bool, said: &[u8]) -> (Option<Moment>, Duration) {
        let [least, most] = self.delay;
        let delay = Duration::from_millis(fastrand::u64(least..=most.max(least)));
        let Some(way) = self.open.get_mut(&id).filter(|_| to_server) else {
            return (self.open.get(&id).and_then(|way| way.reset), delay);
        };
        if let Some(port) = named_in(said) {
            way.replica = Some(port);
            way.cut |= self.cut_replicas.contains(&port);
        }
        if let Some((command, passes, moment)) = self.resets.first_mut()
            && way.reset.is_none()
            && find(said, command.as_bytes()).is_some()
        {
            if *passes > 0 {
                *passes -= 1;
            } else {
                way.reset = Some(*moment);
                self.resets.remove(0);
            }
        }
        if way.reset == Some(Moment::OnItsWay) {
            said.clone_into(&mut self.late);
        }
        (way.reset, delay)
    }

    fn is_cut(&self, id: u64) -> bool {
        self.open.get(&id).is_some_and(|way| way.cut)
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
    for end in [&client, &server] {
        // Sends written data at once: a reset discards data that is not sent yet.
        end.set_nodelay(true).expect("TCP_NODELAY");
    }
    ways.last += 1;
    let (id, ends) = (ways.last, Arc::new([client, server]));
    ways.open.insert(id, Way { ends: ends.clone(), replica: None, reset: None, cut: false });
    for to_server in [true, false] {
        let (shared, ends) = (shared.clone(), ends.clone());
        thread::spawn(move || {
            // The random delays depend only on the connection's number and the direction.
            fastrand::seed(2 * id + u64::from(!to_server));
            pump(&shared, id, to_server, &ends);
        });
    }
}

/// Forwards data in one direction until an end is closed or a planned reset is due, then closes both ends. If
/// the connection is cut, closes neither.
fn pump(ways: &Mutex<Ways>, id: u64, to_server: bool, ends: &[TcpStream; 2]) {
    let [client, server] = ends;
    let (mut from, mut to) = if to_server { (client, server) } else { (server, client) };
    let (mut bytes, mut how) = (vec![0; 65_536], Shutdown::Both);
    while let Ok(length @ 1..) = from.read(&mut bytes) {
        let (moment, delay) = lock(ways).look(id, to_server, &bytes[..length]);
        thread::sleep(delay);
        let passes = match (moment, to_server) {
            (Some(Moment::BeforeTheServer | Moment::OnItsWay), true)
            | (Some(Moment::BeforeTheAnswer), false) => 0,
            (Some(Moment::InTheAnswer), false) => length / 2,
            _ => length,
        };
        if !lock(ways).is_cut(id) && to.write_all(&bytes[..passes]).is_err() {
            break;
        }
        if passes < length || moment == Some(Moment::AfterTheAnswer) && !to_server {
            // Makes the last close of this socket send RST instead of FIN.
            let _gone = SockRef::from(client).set_linger(Some(Duration::ZERO));
            how = Shutdown::Read;
            break;
        }
    }
    let mut ways = lock(ways);
    if !ways.is_cut(id) {
        ways.open.remove(&id);
        ends.iter().for_each(|end| shut(end, how));
    }
}

fn shut(end: &TcpStream, how: Shutdown) {
    // Fails if the end is closed already.
    let _closed = end.shutdown(how);
}

/// The port that a replica announces in this message, if it announces one.
fn named_in(said: &[u8]) -> Option<u16> {
    let rest = &said[find(said, NAMES_ITSELF)? + NAMES_ITSELF.len()..];
    String::from_utf8_lossy(rest).split("\r\n").nth(1)?.parse().ok()
}

fn find(said: &[u8], what: &[u8]) -> Option<usize> {
    said.windows(what.len()).position(|window| window == what)
}
