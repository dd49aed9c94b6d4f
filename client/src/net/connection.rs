//! One connection of redis-rs to a server, whose commands travel at once and together.
//!
//! Over plain TCP it is opened here, with `TCP_NODELAY`: else a command that is sent while another is
//! under way waits until the server has acknowledged that, a round trip longer. What many tasks send in
//! the same moment would then be a packet each; so with more than one call under way, whatever is
//! to be written waits until the tasks that are ready have had their turn.

#[cfg(feature = "simulation")]
use crate::net::simulated;
use crate::sync::{Mutex, lock};
use redis::aio::MultiplexedConnection;
use redis::io::tcp::{TcpSettings, socket2::SockRef};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, Pipeline, RedisResult,
    Value,
};
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

/// A connection that many tasks use at the same time, once it is [driven](Self::drive): by a task of
/// its own, or beside the work of the only one who uses it, who then hears of an answer in the moment
/// in which it is read.
pub(crate) struct Connection {
    shared: MultiplexedConnection,
    under_way: Arc<AtomicUsize>,
    driver: Mutex<Driver>,
}

/// What reads and writes.
enum Driver {
    /// Nobody does so yet.
    Waiting(Pin<Box<dyn Future<Output = ()> + Send>>),
    Task(AbortHandle),
    /// Somebody else has it: redis-rs, or whoever drives it beside their work.
    Away,
}

impl Connection {
    pub(crate) async fn open(client: &Client, config: AsyncConnectionConfig) -> RedisResult<Self> {
        let info = client.get_connection_info();
        let ConnectionAddr::Tcp(host, port) = info.addr() else {
            let shared = client.get_multiplexed_async_connection_with_config(&config).await?;
            return Ok(Self {
                shared,
                under_way: Arc::default(),
                driver: Mutex::new(Driver::Away),
            });
        };
        #[cfg(feature = "simulation")]
        if let Some(stream) = simulated::dial(host) {
            return Self::over(stream?, info, config).await;
        }
        let stream = TcpStream::connect((host.as_str(), *port)).await?;
        set(&stream, info.tcp_settings())?;
        Self::over(stream, info, config).await
    }

    async fn over(
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        info: &ConnectionInfo,
        config: AsyncConnectionConfig,
    ) -> RedisResult<Self> {
        let under_way = Arc::<AtomicUsize>::default();
        let stream = Together { stream, under_way: under_way.clone(), turn: None };
        let login = info.redis_settings();
        let (shared, driver) =
            MultiplexedConnection::new_with_config(login, stream, config).await?;
        let driver = Mutex::new(Driver::Waiting(Box::pin(driver)));
        Ok(Self { shared, under_way, driver })
    }

    /// Has a task of its own read and write from now on.
    pub(crate) fn drive(&self) {
        let mut driver = lock(&self.driver);
        if let Driver::Waiting(work) = std::mem::replace(&mut *driver, Driver::Away) {
            *driver = Driver::Task(tokio::spawn(work).abort_handle());
        }
    }

    /// Does something, and reads and writes meanwhile, unless somebody else does that. Dropped before
    /// it is done, the connection is of no use any more.
    pub(crate) async fn beside<T>(&self, what: impl Future<Output = T>) -> T {
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

    /// Sends a command, and waits for its answer.
    pub(crate) async fn send(&self, cmd: &Cmd) -> RedisResult<Value> {
        let _call = Call::begin(&self.under_way);
        self.shared.clone().send_packed_command(cmd).await
    }

    /// Sends many, and waits for their answers; errors of the server are among them.
    pub(crate) async fn send_all(&self, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        let _call = Call::begin(&self.under_way);
        self.shared.clone().send_packed_commands(commands, 0, commands.len()).await
    }
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

fn set(stream: &TcpStream, settings: &TcpSettings) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    if let Some(keepalive) = settings.keepalive() {
        socket.set_tcp_keepalive(keepalive)?;
    }
    #[cfg(any(target_os = "android", target_os = "linux"))]
    socket.set_tcp_user_timeout(settings.user_timeout())?;
    Ok(())
}

/// A call that is under way.
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

/// A stream on which what many send in the same moment is written together.
struct Together<S> {
    stream: S,
    under_way: Arc<AtomicUsize>,
    /// Somebody else's, while it lasts.
    turn: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl<S> Together<S> {
    /// Lets those go first who are about to send something as well.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.turn.is_none() && self.under_way.load(Ordering::Relaxed) < 2 {
            return Poll::Ready(());
        }
        let turn = self.turn.get_or_insert_with(|| Box::pin(tokio::task::yield_now()));
        let over = turn.as_mut().poll(cx);
        if over.is_ready() {
            self.turn = None;
        }
        over
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Together<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        std::task::ready!(self.poll_turn(cx));
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Together<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}
