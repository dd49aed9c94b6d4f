//! Something between client and server that breaks connections at chosen moments.

use harness::Server;
use socket2::SockRef;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};

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

/// To be done to the next connections on which the command is seen, and how often.
#[derive(Clone, Copy, Debug)]
struct Cut {
    command: &'static str,
    moment: Moment,
    times: usize,
}

#[derive(Debug)]
pub(super) struct Proxy {
    port: u16,
    cut: Arc<Mutex<Option<Cut>>>,
    frozen: watch::Sender<bool>,
    late: Late,
    /// A connection was not as it was to be: its task has panicked.
    failed: Arc<AtomicBool>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let failed = self.failed.load(Ordering::SeqCst);
        assert!(!failed || std::thread::panicking(), "a connection failed: see the panic above");
    }
}

/// A command that arrives when its connection is gone, and what it was answered.
#[derive(Clone, Debug, Default)]
struct Late {
    command: Arc<Notify>,
    answer: Arc<Mutex<Option<Vec<u8>>>>,
    answered: Arc<Notify>,
    /// It was not answered, and its connection is reset: see [`Moment::BeforeItAnswers`].
    silence: Arc<Notify>,
}

impl Proxy {
    pub(super) async fn before(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let cut: Arc<Mutex<Option<Cut>>> = Arc::default();
        let (frozen, is_frozen) = watch::channel(false);
        let late = Late::default();
        let (server, shared, to_come) = (server.port(), cut.clone(), late.clone());
        let failed = Arc::<AtomicBool>::default();
        let wrong = failed.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (cut, late) = (shared.clone(), to_come.clone());
                let carried = tokio::spawn(carry(client, server, cut, is_frozen.clone(), late));
                let wrong = wrong.clone();
                tokio::spawn(async move {
                    let panicked = carried.await.is_err_and(|why| why.is_panic());
                    wrong.fetch_or(panicked, Ordering::SeqCst);
                });
            }
        });
        Self { port, cut, frozen, late, failed }
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Resets the next connection that carries this command, at that moment.
    pub(super) fn cut(&self, command: &'static str, moment: Moment) {
        self.cut_times(command, moment, 1);
    }

    /// The same to so many connections, one after the other.
    pub(super) fn cut_times(&self, command: &'static str, moment: Moment, times: usize) {
        *self.cut.lock().unwrap() = Some(Cut { command, moment, times });
    }

    /// Whether it has happened.
    pub(super) fn has_cut(&self) -> bool {
        self.cut.lock().unwrap().is_none()
    }

    /// Delivers what was on its way when its connection broke. Returns the answer.
    pub(super) async fn deliver(&self) -> Vec<u8> {
        self.late.command.notify_one();
        self.late.answered.notified().await;
        self.late.answer.lock().unwrap().take().expect("an answer")
    }

    /// Waits until a command that is not answered has lost its connection.
    pub(super) async fn is_reset_unanswered(&self) {
        self.late.silence.notified().await;
    }

    /// From now on nothing passes, in either direction, and no connection is closed.
    pub(super) fn freeze(&self, frozen: bool) {
        self.frozen.send_replace(frozen);
    }
}

async fn carry(
    mut client: TcpStream,
    server: u16,
    cut: Arc<Mutex<Option<Cut>>>,
    mut frozen: watch::Receiver<bool>,
    late: Late,
) {
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", server)).await else {
        return;
    };
    let (mut up, mut down) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut pending: Option<Moment> = None;
    loop {
        let to_server = tokio::select! {
            read = client.read(&mut up) => (true, read.unwrap_or(0)),
            read = server.read(&mut down) => (false, read.unwrap_or(0)),
        };
        if frozen.wait_for(|frozen| !frozen).await.is_err() {
            return;
        }
        match to_server {
            (_, 0) => return,
            (true, length) => {
                pending = pending.or_else(|| take(&cut, &up[..length]));
                if pending == Some(Moment::BeforeTheServer) {
                    return reset(&client);
                }
                if pending == Some(Moment::OnItsWay) {
                    reset(&client);
                    drop(client);
                    late.command.notified().await;
                    server.write_all(&up[..length]).await.unwrap();
                    let length = server.read(&mut down).await.unwrap();
                    *late.answer.lock().unwrap() = Some(down[..length].to_vec());
                    late.answered.notify_one();
                    return;
                }
                if server.write_all(&up[..length]).await.is_err() {
                    return;
                }
                if pending == Some(Moment::BeforeItAnswers) {
                    // If it does not answer for this long it is waiting.
                    let answer = server.read(&mut down);
                    if tokio::time::timeout(Duration::from_millis(50), answer).await.is_err() {
                        reset(&client);
                        return late.silence.notify_one();
                    }
                    panic!("it has answered");
                }
            }
            (false, length) => {
                if pending == Some(Moment::BeforeTheAnswer) {
                    return reset(&client);
                }
                let half = pending == Some(Moment::InTheAnswer);
                let arrives = if half { length / 2 } else { length };
                if client.write_all(&down[..arrives]).await.is_err() || half {
                    return;
                }
                if pending == Some(Moment::AfterTheAnswer) {
                    return reset(&client);
                }
            }
        }
    }
}

fn take(cut: &Mutex<Option<Cut>>, bytes: &[u8]) -> Option<Moment> {
    let mut next = cut.lock().unwrap();
    let cut = next.as_mut()?;
    let name = cut.command.as_bytes();
    if !bytes.windows(name.len()).any(|window| window == name) {
        return None;
    }
    let moment = cut.moment;
    cut.times -= 1;
    if cut.times == 0 {
        *next = None;
    }
    Some(moment)
}

/// RST instead of FIN.
fn reset(stream: &TcpStream) {
    SockRef::from(stream).set_linger(Some(Duration::ZERO)).unwrap();
}
