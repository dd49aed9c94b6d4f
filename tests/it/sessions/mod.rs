//! Sessions on real servers: what becomes of waits when readers, connections, users and servers do
//! what they do.

mod away;
mod bound;
mod bound_guards;
mod contexts;
mod gone;
mod observers;
mod outcomes;
mod readers;
mod server;

use crate::stage::{LONG, SOON, Stage};
use harness::{Connection, Value, cmd, observe};

/// A client with a session.
struct Party {
    connection: Connection,
    id: String,
}

/// What became of one place in line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    number: i64,
    owner: String,
    what: String,
    token: Option<i64>,
}

impl Party {
    fn open(stage: &Stage, ttl: u64) -> Self {
        Self::on(stage.server.connect(), ttl)
    }

    fn on(mut connection: Connection, ttl: u64) -> Self {
        let opened = connection.call(cmd!["SESSION.OPEN", ttl]);
        Self { connection, id: opened[0].text() }
    }

    /// Puts an owner in line, without limit.
    fn queue(&mut self, key: &str, owner: &str) {
        let reply =
            self.connection.call(cmd!["LOCK.WAIT", key, owner, LONG, 0, "SESSION", self.id]);
        assert_eq!(reply[0], Value::bulk("queued"), "{owner}");
    }

    /// What there is after that, at once.
    fn read(&mut self, ack: i64) -> Vec<Told> {
        told(&self.connection.call(cmd!["SESSION.NEXT", self.id, ack, 0]))
    }

    /// Blocks until there is something after that.
    fn read_next(&mut self, ack: i64) -> Vec<Told> {
        self.connection.send(cmd!["SESSION.NEXT", self.id, ack, 60_000]);
        self.hear()
    }

    /// Receives the reply to a reader that was blocked.
    fn hear(&mut self) -> Vec<Told> {
        told(&self.connection.receive(SOON).unwrap_or_else(|e| panic!("nothing is told: {e}")))
    }

    /// Blocks in a read, and returns when the server shows that.
    fn park(&mut self, stage: &mut Stage, ack: i64) {
        let id = self.connection.client_id();
        self.connection.send(cmd!["SESSION.NEXT", self.id, ack, 60_000]);
        observe::wait_until_blocked(&mut stage.eye, id);
    }

    /// The connection is lost; another one takes its place. Returns when the server has noticed.
    fn reconnect(&mut self, stage: &mut Stage) {
        let id = self.connection.client_id();
        std::mem::replace(&mut self.connection, stage.server.connect()).reset();
        observe::wait_until_gone(&mut stage.eye, id);
    }

    /// The same while it is blocked, and so cannot be asked for its number.
    fn break_off(&mut self, stage: &mut Stage) {
        std::mem::replace(&mut self.connection, stage.server.connect()).reset();
        wait_for(stage, "sessions_away", 1);
    }
}

/// Waits until a figure of the module is that.
fn wait_for(stage: &mut Stage, field: &str, number: i64) {
    observe::wait_for_info(&mut stage.eye, &format!("kvlock_{field}"), number);
}

/// Reads what a reader was told.
fn told(reply: &Value) -> Vec<Told> {
    let entries = reply.elements().get(1).unwrap_or_else(|| panic!("{reply}"));
    let entry = |entry: &Value| Told {
        number: entry[0].integer(),
        owner: entry[3].text(),
        what: entry[4].text(),
        token: entry
            .elements()
            .get(5)
            .filter(|it| matches!(it, Value::Integer(_)))
            .map(Value::integer),
    };
    entries.elements().iter().map(entry).collect()
}

/// Whom that is about, and what it says.
fn words(told: &[Told]) -> Vec<(&str, &str)> {
    told.iter().map(|it| (it.owner.as_str(), it.what.as_str())).collect()
}
