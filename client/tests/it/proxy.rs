//! Something between client and server that breaks connections at chosen moments.

use super::SOON;
use harness::{Connection, Server, Value};
use socket2::SockRef;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

/// When a connection is reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// The server never sees the command.
    BeforeTheServer,
    /// It carries the command out, and its answer is lost.
    BeforeTheAnswer,
    /// The first half of the answer arrives.
    InTheAnswer,
    /// The answer arrives, and then the connection breaks.
    AfterTheAnswer,
    /// The server has the command and has not answered it yet.
    BeforeItAnswers,
    /// The command is on its way for as long as the test likes: see [`Proxy::deliver`].
    OnItsWay,
}

#[derive(Debug)]
pub(super) struct Proxy {
    port: u16,
    server: u16,
    shared: Arc<Shared>,
    frozen: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Shared {
    /// What is to be done to the next connections on which these commands are seen, in order.
    cuts: Mutex<Vec<(&'static str, Moment)>>,
    /// A command that arrives when its connection is gone.
    late: Mutex<Vec<u8>>,
    /// One was not answered, and its connection is reset: see [`Moment::BeforeItAnswers`].
    silence: Notify,
}

impl Proxy {
    pub(super) async fn before(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (frozen, is_frozen) = watch::channel(false);
        let (server, shared) = (server.port(), Arc::<Shared>::default());
        let of_all = shared.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, server, of_all.clone(), is_frozen.clone()));
            }
        });
        Self { port, server, shared, frozen }
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Resets the next connection that carries this command, at that moment; after those that are to be
    /// reset already.
    pub(super) fn cut(&self, command: &'static str, moment: Moment) {
        self.shared.cuts.lock().unwrap().push((command, moment));
    }

    /// Whether it has happened.
    pub(super) fn has_cut(&self) -> bool {
        self.shared.cuts.lock().unwrap().is_empty()
    }

    /// Delivers what was on its way when its connection broke. Returns the answer.
    pub(super) fn deliver(&self) -> Value {
        let mut server = Connection::open(self.server).unwrap();
        server.send_raw(&std::mem::take(&mut *self.shared.late.lock().unwrap()));
        server.receive(SOON).unwrap()
    }

    /// Waits until a command that is not answered has lost its connection.
    pub(super) async fn is_reset_unanswered(&self) {
        self.shared.silence.notified().await;
    }

    /// From now on nothing passes, in either direction, and no connection is closed.
    pub(super) fn freeze(&self, frozen: bool) {
        self.frozen.send_replace(frozen);
    }
}

/// Carries what is said until one end is closed, or the connection is cut.
async fn carry(
    mut client: TcpStream,
    server: u16,
    shared: Arc<Shared>,
    mut frozen: watch::Receiver<bool>,
) -> io::Result<()> {
    let mut server = TcpStream::connect(("127.0.0.1", server)).await?;
    let (mut up, mut down) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut pending: Option<Moment> = None;
    loop {
        let (to_server, length) = tokio::select! {
            read = client.read(&mut up) => (true, read.unwrap_or(0)),
            read = server.read(&mut down) => (false, read.unwrap_or(0)),
        };
        if frozen.wait_for(|frozen| !frozen).await.is_err() || length == 0 {
            return Ok(());
        }
        if to_server {
            pending = pending.or_else(|| shared.take(&up[..length]));
            match pending {
                Some(Moment::BeforeTheServer) => return reset(&client),
                Some(Moment::OnItsWay) => {
                    *shared.late.lock().unwrap() = up[..length].to_vec();
                    return reset(&client);
                }
                _ => server.write_all(&up[..length]).await?,
            }
            if pending == Some(Moment::BeforeItAnswers) {
                // If it does not answer for this long it is waiting.
                let answer = timeout(Duration::from_millis(50), server.read(&mut down)).await;
                assert!(answer.is_err(), "it has answered");
                shared.silence.notify_one();
                return reset(&client);
            }
        } else {
            let arrives = match pending {
                Some(Moment::BeforeTheAnswer) => 0,
                Some(Moment::InTheAnswer) => length / 2,
                _ => length,
            };
            client.write_all(&down[..arrives]).await?;
            match pending {
                Some(Moment::InTheAnswer) => return Ok(()),
                Some(Moment::BeforeTheAnswer | Moment::AfterTheAnswer) => return reset(&client),
                _ => {}
            }
        }
    }
}

impl Shared {
    fn take(&self, bytes: &[u8]) -> Option<Moment> {
        let mut cuts = self.cuts.lock().unwrap();
        let (command, _) = cuts.first()?;
        let seen = bytes.windows(command.len()).any(|window| window == command.as_bytes());
        seen.then(|| cuts.remove(0).1)
    }
}

/// RST instead of FIN.
fn reset(stream: &TcpStream) -> io::Result<()> {
    SockRef::from(stream).set_linger(Some(Duration::ZERO))
}
