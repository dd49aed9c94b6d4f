//! Opening connections: dead addresses, servers that refuse or do not answer, and many tasks that wait for
//! a connection.

use super::{LONG, MOMENT, SOON, Stage, assert_matches, calls, ok, soon, visit, waits};
use harness::proxy::Moment;
use harness::{Connection, Server, observe, wait};
use kvlock::{Client, Error};
use redis::RedisFuture;
use redis::io::AsyncDNSResolver;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Limit of connects in two seconds, for any number of waits.
const FEW: usize = 30;

/// Answer of a [`Liar`] to a command.
enum Answer {
    Bytes(&'static str),
    Silence,
    Close,
}

/// A fake server that sends the answers that a test chooses. Counts connections.
struct Liar {
    port: u16,
    connects: Arc<AtomicUsize>,
}

impl Liar {
    fn new(answer: fn(&str) -> Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let connects = Arc::<AtomicUsize>::default();
        let counts = connects.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                counts.fetch_add(1, Ordering::SeqCst);
                std::thread::spawn(move || converse(&connection, answer));
            }
        });
        Self { port, connects }
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Number of connections that are opened in the next two seconds.
    async fn connects_in_two_seconds(&self) -> usize {
        let before = self.connects.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(2)).await;
        self.connects.load(Ordering::SeqCst) - before
    }
}

/// Reads commands and answers them, until the connection is closed.
fn converse(connection: &TcpStream, answer: fn(&str) -> Answer) -> Option<()> {
    let mut lines = BufReader::new(connection);
    loop {
        let mut words = Vec::new();
        for _ in 0..number(&mut lines, '*')? {
            let mut word = vec![0; number(&mut lines, '$')? + 2];
            lines.read_exact(&mut word).ok()?;
            words.push(String::from_utf8_lossy(&word).trim().to_owned());
        }
        let told = match words.first()?.as_str() {
            "CLIENT" | "SELECT" => Answer::Bytes("+OK\r\n"),
            command => answer(command),
        };
        let mut to = connection;
        match told {
            Answer::Bytes(bytes) => to.write_all(bytes.as_bytes()).ok()?,
            Answer::Silence => {}
            Answer::Close => return connection.shutdown(Shutdown::Both).ok(),
        }
    }
}

fn number(lines: &mut impl BufRead, mark: char) -> Option<usize> {
    let mut line = String::new();
    lines.read_line(&mut line).ok()?;
    line.trim().strip_prefix(mark)?.parse().ok()
}

/// Two hundred tasks that wait for a lock each.
fn crowd(client: &Client) -> JoinSet<Result<kvlock::Guard, Error>> {
    let lock = |number: usize| client.lock(format!("k{number}"));
    (0..200).map(lock).map(|lock| async move { lock.acquire().await }).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn many_tasks_connect_rarely_to_a_port_that_closes_at_once() {
    let liar = Liar::new(|_| Answer::Close);
    let client = Client::builder().patience(LONG).connect_lazy(liar.url()).unwrap();
    let _crowd = crowd(&client);
    let connects = liar.connects_in_two_seconds().await;
    assert!((2..FEW).contains(&connects), "{connects}");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_tasks_log_in_rarely_to_a_loading_server() {
    let liar = Liar::new(|_| Answer::Bytes("-LOADING Redis is loading the dataset in memory\r\n"));
    let client = Client::builder().patience(LONG).connect_lazy(liar.url()).unwrap();
    let _crowd = crowd(&client);
    let connects = liar.connects_in_two_seconds().await;
    assert!((2..FEW).contains(&connects), "{connects}");
}

/// Replies of a server whose lock is taken. It closes the connection at `SESSION.NEXT`.
fn taken(command: &str) -> Answer {
    match command {
        "SESSION.OPEN" => Answer::Bytes("*2\r\n$32\r\n0123456789abcdef0123456789abcdef\r\n:1\r\n"),
        "LOCK.WAIT" => Answer::Bytes("*2\r\n$6\r\nqueued\r\n:2\r\n"),
        "LOCK.ACQUIRE" => Answer::Bytes("$-1\r\n"),
        "SESSION.NEXT" => Answer::Close,
        _ => Answer::Bytes(":0\r\n"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_whose_reader_always_disconnects_connects_rarely_and_ends() {
    let liar = Liar::new(taken);
    let patience = Duration::from_secs(3);
    let client = Client::builder().patience(patience).connect_lazy(liar.url()).unwrap();
    let begun = Instant::now();
    let waiter = waits(&client.lock("k"));
    let connects = liar.connects_in_two_seconds().await;
    assert!((3..FEW).contains(&connects), "{connects}");
    assert_matches!(soon(waiter).await.unwrap(), Err(Error::Connection(_)));
    assert!(begun.elapsed() > patience, "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_whose_reader_gets_no_reply_ends() {
    let liar = Liar::new(|command| match command {
        "SESSION.NEXT" => Answer::Silence,
        other => taken(other),
    });
    let builder = Client::builder().patience(MOMENT).reply_timeout(MOMENT);
    let client = builder.connect_lazy(liar.url()).unwrap();
    assert_matches!(soon(client.lock("k").acquire()).await, Err(Error::Timeout));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_survives_a_short_network_failure() {
    let (mut stage, proxy) = Stage::behind(Client::builder()).await;
    stage.taken("k");
    let waiter = waits(&stage.client.lock("k"));
    observe::wait_for_waiters(&mut stage.control, "k", 1);
    let before = calls(&mut stage.control, "session.open");
    for _ in 0..3 {
        proxy.reset("SESSION.NEXT", Moment::BeforeTheServer);
    }
    proxy.hang_up();
    wait::until_is("three dials of the reader have failed", SOON, true, || proxy.has_reset());
    stage.control.run("LOCK.RELEASE k somebody");
    drop(ok(waiter).await.unwrap());
    assert_eq!(calls(&mut stage.control, "session.open"), before);
}

/// Resolves every name and port to these addresses.
struct Addresses([SocketAddr; 2]);

impl AsyncDNSResolver for Addresses {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        _host: &'b str,
        _port: u16,
    ) -> RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
        let addresses = self.0;
        Box::pin(async move { Ok(Box::new(addresses.into_iter()) as Box<_>) })
    }
}

/// Fills the queue of a listener that accepts nothing, so that later connects get no answer.
fn fill(dead: SocketAddr) -> Vec<TcpStream> {
    let mut queued = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&dead, MOMENT) {
        queued.push(stream);
    }
    queued
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_whose_first_address_is_dead_leads_to_the_second() {
    let server = Server::start();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = listener.local_addr().unwrap();
    let queued = fill(dead);
    let alive = SocketAddr::from(([127, 0, 0, 1], server.port()));
    for addresses in [[dead, alive], [alive, dead]] {
        let builder = Client::builder().dns_resolver(Addresses(addresses));
        let begun = Instant::now();
        let client = builder.connect("redis://locks.test/").await.unwrap();
        visit(&client.lock("k")).await;
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    }
    drop((listener, queued));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_was_closed_while_idle_is_no_error() {
    let mut stage = Stage::set().await;
    close_while_idle(&stage.client, &mut stage.control).await;
}

/// Closes the connections of the client while it is idle, before each of several calls.
pub(super) async fn close_while_idle(client: &Client, control: &mut Connection) {
    let mut guard = ok(client.lock("k").acquire()).await;
    let latch = client.latch("l");
    for call in 0..5 {
        control.run("CLIENT KILL TYPE normal SKIPME yes");
        // No call is made for a while.
        tokio::time::sleep(MOMENT / 2).await;
        match call {
            0 => ok(client.ready()).await,
            1 => drop(ok(client.run_id()).await),
            2 => ok(guard.extend(LONG)).await,
            3 => drop(ok(client.lock("other").force_release()).await),
            _ => drop(ok(latch.set(1)).await),
        }
    }
    ok(guard.release()).await;
    control.run("DEL l");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_error_for_a_server_without_free_connections_says_so() {
    let server = Server::start();
    let mut control = server.connect();
    control.run("CONFIG SET maxclients 1");
    for _ in 0..20 {
        let refused = soon(Client::connect(server.url())).await.unwrap_err();
        assert_matches!(refused, Error::Connection(_));
        assert!(refused.is_retryable() && refused.to_string().contains("maxclients"), "{refused}");
    }
    control.run("CONFIG SET maxclients 100");
    soon(Client::connect(server.url())).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_error_for_an_address_of_the_wrong_kind_says_so() {
    let server = Server::start();
    let address = format!("redis-sentinel://127.0.0.1:{}/?sentinelServiceName=m", server.port());
    let refused = soon(Client::connect(address)).await.unwrap_err();
    assert_matches!(&refused, Error::Config(text) if text.contains("no Sentinel"));
    let sentinel = Liar::new(|command| match command {
        "HELLO" => Answer::Bytes("*2\r\n$4\r\nmode\r\n$8\r\nsentinel\r\n"),
        _ => Answer::Bytes("-ERR unknown command 'SESSION.OPEN'\r\n"),
    });
    let refused = soon(Client::connect(sentinel.url())).await.unwrap_err();
    assert_matches!(&refused, Error::Config(text) if text.contains("redis-sentinel://"));
    let address = format!("rediss://127.0.0.1:{}/", server.port());
    let builder = Client::builder().reply_timeout(MOMENT);
    let refused = soon(builder.connect(address)).await.unwrap_err();
    assert_matches!(&refused, Error::Connection(_));
    assert!(refused.to_string().contains("TLS"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_timeouts_of_three_silent_sentinels_do_not_add_up() {
    let silent: Vec<Liar> = (0..3).map(|_| Liar::new(|_| Answer::Silence)).collect();
    let hosts: Vec<_> = silent.iter().map(|liar| format!("127.0.0.1:{}", liar.port)).collect();
    let address = format!("redis-sentinel://{}/?sentinelServiceName=m", hosts.join(","));
    let second = Duration::from_secs(1);
    let builder = Client::builder().reply_timeout(second).patience(3 * second);
    let client = builder.connect_lazy(address).unwrap();
    let begun = Instant::now();
    assert!(soon(client.lock("k").acquire()).await.is_err());
    // Three seconds of patience, plus the last attempt and the pause before it.
    assert!(begun.elapsed() < 6 * second, "{:?}", begun.elapsed());
}

/// A resolver that takes longer than its test.
struct Slow;

impl AsyncDNSResolver for Slow {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        _host: &'b str,
        _port: u16,
    ) -> RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
        Box::pin(async move {
            // As the system's resolver does, in a thread of the runtime that cannot be stopped.
            let slow = tokio::task::spawn_blocking(|| std::thread::sleep(2 * SOON));
            slow.await.map_err(std::io::Error::other)?;
            Ok(Box::new(std::iter::empty()) as Box<_>)
        })
    }
}

#[test]
fn a_blocking_client_does_not_wait_for_an_unresolved_name() {
    let builder = Client::builder().reply_timeout(MOMENT).dns_resolver(Slow);
    let client = kvlock::blocking::Client::of(builder, "redis://slow.test/").unwrap();
    assert_matches!(client.lock("k").try_acquire(), Err(Error::Timeout));
    let begun = Instant::now();
    drop(client);
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
}
