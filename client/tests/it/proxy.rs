//! Something between client and server that resets connections around a command.
//!
//! What cuts off all there is, and heals, is the proxy of the harness.

use super::SOON;
use harness::{Connection, Server, Value};
use socket2::SockRef;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

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
    /// The command is on its way for as long as the test likes: see [`Proxy::deliver`].
    OnItsWay,
}

#[derive(Debug)]
pub(super) struct Proxy {
    pub(super) port: u16,
    server: u16,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// What is to be done to the next connections on which these commands are seen, in order, when so
    /// many have passed.
    cuts: Mutex<Vec<(&'static str, usize, Moment)>>,
    /// A command that arrives when its connection is gone.
    late: Mutex<Vec<u8>>,
}

impl Proxy {
    pub(super) async fn before(server: &Server) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (server, shared) = (server.port(), Arc::<Shared>::default());
        let of_all = shared.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, server, of_all.clone()));
            }
        });
        Self { port, server, shared }
    }

    /// Resets the next connection that carries this command, at that moment; after those that are to be
    /// reset already.
    pub(super) fn cut(&self, command: &'static str, moment: Moment) {
        self.cut_after(0, command, moment);
    }

    /// The same when so many of these commands have passed.
    pub(super) fn cut_after(&self, passed: usize, command: &'static str, moment: Moment) {
        self.shared.cuts.lock().unwrap().push((command, passed, moment));
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
}

/// Carries what is said until one end is closed, or the connection is cut.
async fn carry(mut client: TcpStream, server: u16, shared: Arc<Shared>) -> io::Result<()> {
    let mut server = TcpStream::connect(("127.0.0.1", server)).await?;
    let (mut up, mut down) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut pending: Option<Moment> = None;
    loop {
        tokio::select! {
            read = client.read(&mut up) => {
                let said = &up[..read?];
                pending = pending.or_else(|| shared.take(said));
                match pending {
                    _ if said.is_empty() => return Ok(()),
                    Some(Moment::BeforeTheServer) => return reset(&client),
                    Some(Moment::OnItsWay) => {
                        *shared.late.lock().unwrap() = said.to_vec();
                        return reset(&client);
                    }
                    _ => server.write_all(said).await?,
                }
            }
            read = server.read(&mut down) => {
                let said = &down[..read?];
                match pending {
                    _ if said.is_empty() => return Ok(()),
                    Some(Moment::BeforeTheAnswer) => return reset(&client),
                    Some(Moment::InTheAnswer) => {
                        return client.write_all(&said[..said.len() / 2]).await;
                    }
                    Some(Moment::AfterTheAnswer) => {
                        client.write_all(said).await?;
                        return reset(&client);
                    }
                    _ => client.write_all(said).await?,
                }
            }
        }
    }
}

impl Shared {
    fn take(&self, bytes: &[u8]) -> Option<Moment> {
        let mut cuts = self.cuts.lock().unwrap();
        let (command, passes, _) = cuts.first_mut()?;
        if !bytes.windows(command.len()).any(|window| window == command.as_bytes()) {
            return None;
        }
        if *passes == 0 {
            return Some(cuts.remove(0).2);
        }
        *passes -= 1;
        None
    }
}

/// RST instead of FIN.
fn reset(stream: &TcpStream) -> io::Result<()> {
    SockRef::from(stream).set_linger(Some(Duration::ZERO))
}
