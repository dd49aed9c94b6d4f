//! Connections. Messages in one direction of a connection arrive in order, after a random time, or are lost
//! when the connection breaks. Between two connections there is no order.

use crate::client::{Pipe, Said};
use crate::redis::Reply;
use crate::sim::{Event, Sim, Who};
use crate::wire::{self, CallId, ClientId, ConnId, Request, ServerId};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::task::{Context, Waker};
use tokio::io::DuplexStream;

/// The two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Client,
    Server,
}

#[derive(Debug)]
struct Conn {
    client: ClientId,
    server: ServerId,
    client_open: bool,
    server_open: bool,
    /// Requests that arrive at the server after this time are lost.
    lost_after: u64,
    /// Time after which the next message arrives: at the server, and at the client.
    next: [u64; 2],
    /// Requests without a reply.
    unanswered: BTreeSet<CallId>,
    /// Acquires and renewals whose reply from the server has not arrived.
    leases: BTreeSet<CallId>,
    /// Requests that the simulation answered in place of the server. The server's own reply is dropped.
    swallowed: BTreeSet<CallId>,
    /// The network's end of the client's byte stream; `None` when it is closed.
    pipe: Option<Pipe>,
}

#[derive(Default)]
pub(crate) struct Network {
    conns: Vec<Conn>,
    last_call: CallId,
    /// Pairs that are cut off from each other.
    cut: BTreeSet<(ClientId, ServerId)>,
    /// Messages that were sent between such pairs since the cut.
    limbo: Vec<(ConnId, End, Event)>,
    /// The task that waits for a message.
    listener: Option<Waker>,
}

impl Network {
    pub(crate) fn is_cut(&self, client: ClientId, server: ServerId) -> bool {
        self.cut.contains(&(client, server))
    }

    pub(crate) fn client_of(&self, conn: ConnId) -> ClientId {
        self.conns[conn].client
    }

    pub(crate) fn is_open(&self, conn: ConnId, end: End) -> bool {
        match end {
            End::Client => self.conns[conn].client_open,
            End::Server => self.conns[conn].server_open,
        }
    }

    /// Returns whether a request that arrives now is accepted.
    pub(crate) fn lets_in(&self, conn: ConnId, now: u64) -> bool {
        let conn = &self.conns[conn];
        conn.server_open && now <= conn.lost_after
    }

    /// Returns whether all requests on the connection are answered.
    pub(crate) fn is_idle(&self, conn: ConnId) -> bool {
        self.conns[conn].unanswered.is_empty()
    }

    /// Returns whether the client awaits the reply to an acquire or a renewal, on a connection that it has not
    /// closed.
    pub(crate) fn awaits_lease(&self, client: ClientId) -> bool {
        self.conns.iter().any(|conn| conn.client == client && !conn.leases.is_empty())
    }

    /// Closes the pipes of a killed client.
    pub(crate) fn close_pipes_of(&mut self, client: ClientId) {
        let all = self.conns.iter_mut().filter(|conn| conn.client == client);
        all.for_each(|conn| conn.pipe = None);
    }

    /// Takes the messages that clients have sent since the last call. Messages of a stopped client stay in its
    /// pipes until it resumes.
    pub(crate) fn take_said(
        &mut self,
        is_stopped: impl Fn(ClientId) -> bool,
        context: &mut Context<'_>,
    ) -> Vec<(ConnId, Said)> {
        self.listener = Some(context.waker().clone());
        let conns = self.conns.iter_mut().enumerate();
        let talking = conns.filter(|(_, conn)| !is_stopped(conn.client));
        let said =
            talking.filter_map(|(id, conn)| Some((id, conn.pipe.as_mut()?.take_said(context))));
        said.flat_map(|(id, said)| said.into_iter().map(move |said| (id, said))).collect()
    }

    pub(crate) fn server_closes(&mut self, conn: ConnId) {
        self.conns[conn].server_open = false;
    }

    /// All connections that are open at either end. With `client` or `server`, only connections of that
    /// client or to that server.
    pub(crate) fn open_ones(
        &self,
        client: Option<ClientId>,
        server: Option<ServerId>,
    ) -> Vec<ConnId> {
        let all = self.conns.iter().enumerate();
        let fits = all.filter(|(_, conn)| {
            (conn.client_open || conn.server_open)
                && client.is_none_or(|client| client == conn.client)
                && server.is_none_or(|server| server == conn.server)
        });
        fits.map(|(id, _)| id).collect()
    }
}

impl Sim {
    /// Opens a connection to a server; `None` if it cannot be reached.
    pub(crate) fn connect(&self, client: ClientId, server: ServerId) -> Option<DuplexStream> {
        let mut net = self.net.borrow_mut();
        if net.is_cut(client, server) || !self.server_is_up(server) {
            return None;
        }
        let (stream, pipe) = Pipe::new();
        net.conns.push(Conn {
            client,
            server,
            client_open: true,
            server_open: true,
            lost_after: u64::MAX,
            next: [0, 0],
            unanswered: BTreeSet::new(),
            leases: BTreeSet::new(),
            swallowed: BTreeSet::new(),
            pipe: Some(pipe),
        });
        net.listener.take().into_iter().for_each(Waker::wake);
        Some(stream)
    }

    /// Sends a request, if the client's end is open.
    pub(crate) fn ask(&self, conn: ConnId, request: Request) {
        let mut net = self.net.borrow_mut();
        if !net.conns[conn].client_open {
            return;
        }
        net.last_call += 1;
        let call = net.last_call;
        net.conns[conn].unanswered.insert(call);
        if request.sets_lease() {
            net.conns[conn].leases.insert(call);
        }
        self.log(|| {
            let Conn { client, server, .. } = &net.conns[conn];
            format!("client {client} → server {server}, connection {conn}, {call}: {request:?}")
        });
        let server = net.conns[conn].server;
        let arrives = move |sim: &Rc<Self>| {
            if sim.net.borrow().lets_in(conn, sim.now()) {
                sim.in_turn(server, |node, sim| node.arrives(sim, conn, call, request));
            }
        };
        self.deliver(&mut net, conn, End::Server, Box::new(arrives));
    }

    /// Sends a request, and answers it in place of the server.
    pub(crate) fn ask_and_answer(&self, conn: ConnId, request: Request, reply: &Reply) {
        self.ask(conn, request);
        let mut net = self.net.borrow_mut();
        let conn = &mut net.conns[conn];
        if let (Some(call), Some(pipe)) = (conn.unanswered.pop_last(), &mut conn.pipe) {
            conn.swallowed.insert(call);
            pipe.answer(&self.encode(reply));
        }
    }

    /// Sends a reply, if the server's end is open.
    pub(crate) fn answer(&self, conn: ConnId, call: CallId, reply: Reply) {
        let mut net = self.net.borrow_mut();
        self.log(|| {
            let Conn { client, server, .. } = &net.conns[conn];
            format!("server {server} answers client {client}, {call}: {reply:?}")
        });
        if net.conns[conn].server_open {
            let arrives = move |sim: &Rc<Self>| sim.answered(conn, call, reply);
            self.deliver(&mut net, conn, End::Client, Box::new(arrives));
        }
    }

    fn deliver(&self, net: &mut Network, conn: ConnId, to: End, event: Event) {
        let Conn { client, server, .. } = net.conns[conn];
        if net.is_cut(client, server) {
            net.limbo.push((conn, to, event));
            return;
        }
        let delay = self.delay();
        let next = &mut net.conns[conn].next[usize::from(to == End::Client)];
        let at = (self.now() + delay).max(*next + 1);
        *next = at;
        let who = if to == End::Client { Who::Client(client) } else { Who::Server(server) };
        self.at(at, who, event);
    }

    /// Delivers a reply to the client, unless the simulation has already answered the request.
    fn answered(&self, conn: ConnId, call: CallId, mut reply: Reply) {
        self.undo_in_answer(&mut reply);
        let mut net = self.net.borrow_mut();
        let conn = &mut net.conns[conn];
        conn.unanswered.remove(&call);
        conn.leases.remove(&call);
        if let (Some(pipe), false) = (&mut conn.pipe, conn.swallowed.remove(&call)) {
            pipe.answer(&self.encode(&reply));
        }
    }

    fn encode(&self, reply: &Reply) -> Vec<u8> {
        let mut bytes = Vec::new();
        wire::write(&mut bytes, reply, &self.names.borrow());
        bytes
    }

    /// Closes the client's end: the client closes the connection, or notices a break.
    pub(crate) fn client_closes(&self, conn: ConnId) {
        let mut net = self.net.borrow_mut();
        let open = std::mem::replace(&mut net.conns[conn].client_open, false);
        if !open {
            return;
        }
        net.conns[conn].pipe = None;
        net.conns[conn].leases.clear();
        let server = net.conns[conn].server;
        let gone = move |sim: &Rc<Self>| sim.in_turn(server, |node, sim| node.is_gone(sim, conn));
        self.deliver(&mut net, conn, End::Server, Box::new(gone));
    }

    /// Breaks a connection in the network. Messages in flight arrive or are lost; both ends notice after a
    /// while.
    pub(crate) fn break_connection(&self, conn: ConnId) {
        let now = self.now();
        let (server, after) = {
            let conn = &mut self.net.borrow_mut().conns[conn];
            let under_way = conn.next[0].saturating_sub(now) + 1;
            conn.lost_after = now + self.below(under_way + 1);
            (conn.server, conn.lost_after)
        };
        let late = if self.percent(10) { self.below(3_000_000) } else { self.below(5_000) };
        self.at_server(after + 1 + late, server, move |node, sim| node.is_gone(sim, conn));
        self.client_notices_a_break(conn, now + self.delay());
    }

    /// Breaks all connections of a client at once. Messages that the client sends before it notices this still
    /// arrive, but late.
    pub(crate) fn all_fall_behind(&self, client: ClientId) {
        let conns = self.net.borrow().open_ones(Some(client), None);
        conns.into_iter().for_each(|conn| self.falls_behind(conn));
    }

    pub(crate) fn falls_behind(&self, conn: ConnId) {
        let late = self.now() + self.below(400_000);
        {
            let next = &mut self.net.borrow_mut().conns[conn].next[0];
            *next = late.max(*next);
        }
        self.client_notices_a_break(conn, self.now() + self.delay());
    }

    fn client_notices_a_break(&self, conn: ConnId, at: u64) {
        let client = self.net.borrow().client_of(conn);
        self.at(at, Who::Client(client), move |sim| sim.client_closes(conn));
    }

    /// Breaks a connection whose server's end is already closed. The client gets no notice, and finds out
    /// late.
    pub(crate) fn break_silently(&self, conn: ConnId) {
        self.client_notices_a_break(conn, self.now() + self.below(15_000_000));
    }

    /// Cuts the link between the client and the server until the link is restored.
    pub(crate) fn cut(&self, client: ClientId, server: ServerId) {
        self.net.borrow_mut().cut.insert((client, server));
    }

    /// Restores the link. Messages that were sent while it was cut are in flight from now on.
    pub(crate) fn heal(&self, client: ClientId, server: ServerId) {
        let mut net = self.net.borrow_mut();
        if !net.cut.remove(&(client, server)) {
            return;
        }
        let limbo = std::mem::take(&mut net.limbo);
        for (conn, to, event) in limbo {
            if (net.conns[conn].client, net.conns[conn].server) == (client, server) {
                self.deliver(&mut net, conn, to, event);
            } else {
                net.limbo.push((conn, to, event));
            }
        }
    }

    pub(crate) fn heal_everything(&self) {
        let cut = self.net.borrow().cut.clone();
        for (client, server) in cut {
            self.heal(client, server);
        }
    }
}
