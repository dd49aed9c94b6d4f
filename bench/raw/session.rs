//! kvlock's waits through sessions. All tasks of one client use two connections: one for commands, and one on
//! which a `SESSION.NEXT` always waits.

use crate::native::owner;
use crate::wire::{Reply, parse, request};
use driver::Args;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};

/// Time after which the server ends an unread session, and timeout of `SESSION.NEXT`.
const TTL_MS: &str = "60000";

type Waker = oneshot::Sender<Reply>;

/// State that the tasks of one client share.
struct Shared {
    id: String,
    commands: mpsc::UnboundedSender<(Vec<u8>, Waker)>,
    /// Tasks that wait for a grant, by owner.
    waiting: Mutex<HashMap<Vec<u8>, Waker>>,
}

pub(crate) struct Session {
    shared: Arc<Shared>,
    task: usize,
    acquired: u64,
    lease_ms: String,
}

/// Opens a session for each client, and assigns each task to one of them.
pub(crate) async fn connect(args: &Args) -> Vec<Session> {
    let mut clients = Vec::new();
    for _ in 0..args.number("clients") {
        clients.push(open(args.text("url")).await);
    }
    let place = |task| Session {
        shared: Arc::clone(clients.get(args.client_of(task)).unwrap()),
        task,
        acquired: 0,
        lease_ms: args.text("lease_ms").to_owned(),
    };
    (0..args.number("tasks")).map(place).collect()
}

async fn open(url: &str) -> Arc<Shared> {
    let (read, write) = connection(url).await;
    let mut reader = Replies { stream: read, buffer: Vec::new(), at: 0 };
    let mut next = connection(url).await;
    next.1.write_all(&request(&["SESSION.OPEN", TTL_MS])).await.unwrap();
    let mut outcomes = Replies { stream: next.0, buffer: Vec::new(), at: 0 };
    let Reply::Array(opened) = outcomes.next().await else { panic!("no session") };
    let Some(Reply::Text(id)) = opened.into_iter().next() else { panic!("no session") };
    let (commands, queue) = mpsc::unbounded_channel();
    let id = String::from_utf8(id).unwrap();
    let shared = Arc::new(Shared { id, commands, waiting: Mutex::default() });
    let wakers = Arc::new(Mutex::new(VecDeque::<Waker>::new()));
    tokio::spawn(write_all(queue, write, Arc::clone(&wakers)));
    tokio::spawn(async move {
        loop {
            let reply = reader.next().await;
            let waker = wakers.lock().unwrap().pop_front().unwrap();
            // No task gives up its wait.
            waker.send(reply).unwrap();
        }
    });
    tokio::spawn(read_outcomes(Arc::clone(&shared), outcomes, next.1));
    shared
}

async fn connection(url: &str) -> (OwnedReadHalf, OwnedWriteHalf) {
    let address = url.trim_start_matches("redis://").trim_end_matches('/');
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream.into_split()
}

/// Writes the requests of all tasks. Up to 1,000 queued requests are sent in one write.
async fn write_all(
    mut queue: mpsc::UnboundedReceiver<(Vec<u8>, Waker)>,
    mut stream: OwnedWriteHalf,
    wakers: Arc<Mutex<VecDeque<Waker>>>,
) {
    let mut asked = Vec::new();
    while queue.recv_many(&mut asked, 1_000).await > 0 {
        let mut bytes = Vec::new();
        for (command, waker) in asked.drain(..) {
            bytes.extend(command);
            wakers.lock().unwrap().push_back(waker);
        }
        stream.write_all(&bytes).await.unwrap();
    }
}

/// Reads the outcomes of the waits, with one `SESSION.NEXT` after the other.
async fn read_outcomes(shared: Arc<Shared>, mut replies: Replies, mut stream: OwnedWriteHalf) {
    let mut ack = 0;
    loop {
        let next = request(&["SESSION.NEXT", &shared.id, &ack.to_string(), TTL_MS]);
        stream.write_all(&next).await.unwrap();
        let Reply::Array(reply) = replies.next().await else { panic!("no outcomes") };
        let Some(Reply::Array(outcomes)) = reply.into_iter().nth(1) else { panic!("no outcomes") };
        for outcome in outcomes {
            let Reply::Array(parts) = outcome else { panic!("{outcome:?}") };
            let [Reply::Integer(number), _, _, Reply::Text(owner), Reply::Text(what), ..] =
                parts.as_slice()
            else {
                panic!("{parts:?}")
            };
            assert_eq!(what, b"granted");
            ack = *number;
            let waker = shared.waiting.lock().unwrap().remove(owner).unwrap();
            waker.send(Reply::Nil).unwrap();
        }
    }
}

struct Replies {
    stream: OwnedReadHalf,
    buffer: Vec<u8>,
    at: usize,
}

impl Replies {
    async fn next(&mut self) -> Reply {
        loop {
            if let Some(reply) = parse(&self.buffer, &mut self.at) {
                return reply;
            }
            self.buffer.drain(..std::mem::take(&mut self.at));
            assert!(self.stream.read_buf(&mut self.buffer).await.unwrap() > 0, "closed");
        }
    }
}

impl Session {
    async fn ask(&self, command: &[&str]) -> Reply {
        let (waker, reply) = oneshot::channel();
        self.shared.commands.send((request(command), waker)).unwrap();
        reply.await.unwrap()
    }
}

impl driver::Session for Session {
    /// The key, and an owner for this acquisition only.
    type Held = [String; 2];

    async fn acquire(&mut self, key: &str) -> Self::Held {
        self.acquired += 1;
        let owner = owner(self.task, self.acquired);
        let (waker, granted) = oneshot::channel();
        // The grant may arrive before the reply `queued`.
        self.shared.waiting.lock().unwrap().insert(owner.clone().into_bytes(), waker);
        let command = ["LOCK.WAIT", key, &owner, &self.lease_ms, "0", "SESSION", &self.shared.id];
        let Reply::Array(parts) = self.ask(&command).await else { panic!("no answer") };
        match parts.first() {
            Some(Reply::Text(queued)) if queued == b"queued" => {
                granted.await.unwrap();
            }
            Some(Reply::Integer(_)) => {
                self.shared.waiting.lock().unwrap().remove(owner.as_bytes());
            }
            other => panic!("{other:?}"),
        }
        [key.to_owned(), owner]
    }

    async fn release(&mut self, [key, owner]: Self::Held) {
        let reply = self.ask(&["LOCK.RELEASE", &key, &owner]).await;
        assert!(matches!(reply, Reply::Integer(0)), "{reply:?}");
    }

    fn abandon(&mut self, _: Self::Held) {}
}
