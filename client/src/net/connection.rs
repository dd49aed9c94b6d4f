//! One connection of redis-rs to a server. Commands of several tasks are sent together where possible.
//!
//! While more than one call is in flight, a write first yields once to the tasks that are ready to run. Then
//! tasks that send at the same moment can share a packet.
//!
//! redis-rs passes commands to the future that reads and writes the stream over a channel of tokio. If that
//! future ends at the moment at which a command is sent, the command can stay in the channel: it is neither
//! sent nor dropped, so its caller would wait forever (tokio issue 7714). So every call also waits for the end
//! of that future.

use crate::net::transport::{Stream, Transport};
use crate::sync::{Mutex, lock};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionInfo, Pipeline, RedisError, RedisResult, Value,
};
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// Start of the reply of a server that has reached its limit of clients. It then closes the connection.
const FULL: &[u8] = b"-ERR max number of clients";

/// A connection that many tasks can use at the same time. A task of its own [drives](Self::drive) it, or its
/// only user drives it [while](Self::drive_while) it waits for other work, which saves a switch of tasks for each answer.
pub(crate) struct Connection {
    shared: MultiplexedConnection,
    state: Arc<State>,
    driver: Mutex<Driver>,
}

/// State shared by a connection and its stream.
#[derive(Debug, Default)]
struct State {
    /// Number of calls in flight.
    under_way: AtomicUsize,
    /// `true` after the stream has ended or failed.
    closed: AtomicBool,
    /// Notified when the future that reads and writes the stream has ended.
    ended: Notify,
}

/// State of the future that reads and writes the stream: whether it runs, and where.
enum Driver {
    /// Not driven yet.
    Waiting(Pin<Box<dyn Future<Output = ()> + Send>>),
    Task(AbortHandle),
    /// Driven elsewhere, by redis-rs or by the caller of [`Connection::drive_while`]; or ended.
    Away,
}

impl Connection {
    pub(crate) async fn open(client: &Client, transport: &Transport) -> RedisResult<Self> {
        let (info, config) = (client.get_connection_info(), transport.config());
        if let Some(stream) = transport.open(info).await? {
            return Self::over(stream, info, config).await;
        }
        // redis-rs owns the stream, and drops this function when the stream has ended.
        let state = Arc::<State>::default();
        let ended = Ended(state.clone());
        let config = config.set_push_sender(move |_| {
            let _until_dropped = &ended;
            Ok::<(), ()>(())
        });
        let shared = client.get_multiplexed_async_connection_with_config(&config).await?;
        Ok(Self { shared, state, driver: Mutex::new(Driver::Away) })
    }

    async fn over(
        stream: Box<dyn Stream>,
        info: &ConnectionInfo,
        config: AsyncConnectionConfig,
    ) -> RedisResult<Self> {
        let state = Arc::<State>::default();
        let stream = Together { stream, state: state.clone(), turn: None };
        let login = info.redis_settings();
        let (shared, driver) =
            MultiplexedConnection::new_with_config(login, stream, config).await?;
        let ended = Ended(state.clone());
        let driver = async move {
            let _ended = ended;
            driver.await;
        };
        let driver = Mutex::new(Driver::Waiting(Box::pin(driver)));
        Ok(Self { shared, state, driver })
    }

    /// Returns whether the stream has ended or failed.
    pub(crate) fn is_closed(&self) -> bool {
        self.state.closed.load(Ordering::Relaxed)
    }

    /// Spawns a task that drives the connection, unless it is driven elsewhere.
    pub(crate) fn drive(&self) {
        let mut driver = lock(&self.driver);
        if let Driver::Waiting(work) = std::mem::replace(&mut *driver, Driver::Away) {
            *driver = Driver::Task(tokio::spawn(work).abort_handle());
        }
    }

    /// Awaits `what`, and drives the connection at the same time unless it is driven elsewhere. If this
    /// future is dropped before `what` is done, the connection must not be used again.
    pub(crate) async fn drive_while<T>(&self, what: impl Future<Output = T>) -> T {
        let mut driver = std::mem::replace(&mut *lock(&self.driver), Driver::Away);
        let mut what = pin!(what);
        let done = poll_fn(|context| {
            if let Driver::Waiting(work) = &mut driver
                && work.as_mut().poll(context).is_ready()
            {
                driver = Driver::Away;
            }
            what.as_mut().poll(context)
        });
        let done = done.await;
        *lock(&self.driver) = driver;
        done
    }

    /// Sends a command, and returns its answer.
    pub(crate) async fn send(&self, cmd: &Cmd) -> RedisResult<Value> {
        let mut shared = self.shared.clone();
        self.answered(pin!(shared.send_packed_command(cmd))).await
    }

    /// Sends many commands together, and returns their answers, which include errors of the server.
    pub(crate) async fn send_all(&self, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        let mut shared = self.shared.clone();
        self.answered(pin!(shared.send_packed_commands(commands, 0, commands.len()))).await
    }

    /// Returns the answer to a call, or an error if the connection ends without one. The caller pins the
    /// future, since it is too large to move.
    async fn answered<T>(
        &self,
        answer: Pin<&mut impl Future<Output = RedisResult<T>>>,
    ) -> RedisResult<T> {
        let _call = Call::begin(&self.state.under_way);
        // Created before the command is sent, so that it notices an end during the sending.
        let ended = self.state.ended.notified();
        if self.is_closed() {
            return Err(no_stream());
        }
        tokio::select! {
            biased;
            answer = answer => answer,
            () = ended => Err(no_stream()),
        }
    }
}

fn no_stream() -> RedisError {
    RedisError::from(io::Error::from(io::ErrorKind::BrokenPipe))
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Driver::Task(task) = &*lock(&self.driver) {
            task.abort();
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

/// Ends the calls in flight, and prevents others, when it is dropped.
struct Ended(Arc<State>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::Relaxed);
        self.0.ended.notify_waiters();
    }
}

/// Counts one call in flight, until it is dropped.
struct Call<'a>(&'a AtomicUsize);

impl<'a> Call<'a> {
    fn begin(under_way: &'a AtomicUsize) -> Self {
        under_way.fetch_add(1, Ordering::Relaxed);
        Self(under_way)
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream that writes together the commands that several tasks send at the same moment.
struct Together {
    stream: Box<dyn Stream>,
    state: Arc<State>,
    /// The yield to other tasks before a write, if one has begun.
    turn: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Together {
    /// If several calls are in flight, yields once, so that tasks that are about to send can run first.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.turn.is_none() && self.state.under_way.load(Ordering::Relaxed) < 2 {
            return Poll::Ready(());
        }
        let turn = self.turn.get_or_insert_with(|| Box::pin(tokio::task::yield_now()));
        let over = turn.as_mut().poll(cx);
        if over.is_ready() {
            self.turn = None;
        }
        over
    }

    fn close(&self) {
        self.state.closed.store(true, Ordering::Relaxed);
    }

    /// Returns the error for a full server if the server sent that reply before it closed the connection, or
    /// else the error of the write.
    fn refusal(&mut self, cx: &mut Context<'_>, error: io::Error) -> io::Error {
        let mut bytes = [0; 64];
        let mut buffer = ReadBuf::new(&mut bytes);
        let read = Pin::new(&mut self.stream).poll_read(cx, &mut buffer);
        match read {
            Poll::Ready(Ok(())) if buffer.filled().starts_with(FULL) => full(),
            Poll::Ready(_) | Poll::Pending => error,
        }
    }
}

fn full() -> io::Error {
    io::Error::new(
        io::ErrorKind::ConnectionRefused,
        "the server refuses connections: its limit maxclients is reached",
    )
}

impl AsyncWrite for Together {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_turn(cx));
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes));
        Poll::Ready(written.map_err(|error| {
            self.close();
            self.refusal(cx, error)
        }))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl AsyncRead for Together {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer));
        let new = buffer.filled().get(before..).unwrap_or_default();
        if read.is_err() || new.is_empty() {
            self.close();
        } else if new.starts_with(FULL) {
            self.close();
            return Poll::Ready(Err(full()));
        }
        Poll::Ready(read)
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use futures_util::future::join_all;
    use futures_util::poll;
    use std::time::Duration;
    use tokio::net::UnixStream;
    use tokio::time::timeout;

    /// Calls are sent until the connection ends. In about one of a thousand rounds, one of them stays in
    /// the channel of redis-rs.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_call_at_the_moment_of_the_end_fails() {
        let info = Client::open("redis://127.0.0.1/").unwrap().get_connection_info().clone();
        // Without a library name there is no login, which the other end would have to answer.
        let login = info.redis_settings().clone().set_skip_set_lib_name();
        let info = info.set_redis_settings(login);
        for _ in 0..10_000 {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let config = Transport::default().config();
            let connection = Connection::over(Box::new(ours), &info, config).await.unwrap();
            connection.drive();
            drop(theirs);
            let (ping, mut calls) = (redis::cmd("PING"), Vec::new());
            while calls.len() < 1_000 {
                let mut call = Box::pin(connection.send(&ping));
                if poll!(&mut call).is_ready() {
                    break;
                }
                calls.push(call);
            }
            let answers = timeout(Duration::from_secs(20), join_all(calls)).await;
            assert!(answers.expect("no call hangs").iter().all(Result::is_err));
        }
    }
}
