//! Locks in a real cluster of three masters, while slots move.
//!
//! Here it is every step of a migration; under load it is the campaign that moves slots.

mod atomic;
mod bound;
mod floors;
mod importing;
mod publish;
mod reshard;
mod turns;

use crate::asking::SOON;
use harness::cluster::Cluster;
use harness::{Connection, Kind, Options, Server, Value, cmd, wait};

/// A slot that moves.
const SLOT: u16 = 5;

/// How many slots a reshard moves; they are the lowest of their node.
const MOVED_SLOTS: u32 = 60;

/// Two nodes between which slots move, of three.
struct Pair {
    cluster: Cluster,
    /// The node that has slot 0 in the beginning.
    home: usize,
    away: usize,
}

impl Pair {
    fn start(kind: &Kind) -> Self {
        Self::start_with(&Server::options().kind(kind))
    }

    fn start_with(options: &Options) -> Self {
        let cluster = Cluster::start_with(options, 3, 0);
        let port = cluster.node_for(key_of_slot(0)).port();
        let home = cluster.nodes().iter().position(|node| node.port() == port).unwrap();
        Self { cluster, home, away: (home + 1) % 3 }
    }

    fn home(&self) -> &Server {
        &self.cluster.nodes()[self.home]
    }

    fn away(&self) -> &Server {
        &self.cluster.nodes()[self.away]
    }

    /// One slot is about to move from home to away: nothing in it has yet.
    fn begin_to_move(&self, slot: u16) {
        let (from, to) = (self.cluster.id_of(self.home()), self.cluster.id_of(self.away()));
        ok(&self.away().connect().call(cmd!["CLUSTER", "SETSLOT", slot, "IMPORTING", from]));
        ok(&self.home().connect().call(cmd!["CLUSTER", "SETSLOT", slot, "MIGRATING", to]));
    }

    /// Moves one slot as a whole, as Valkey 9 can: returns when all is copied, before the move ends.
    fn copy_as_a_whole(&self, slot: u16) {
        let mut home = self.home().connect();
        ok(&home.run("DEBUG SLOTMIGRATION PREVENT-PAUSE 1"));
        let to = self.cluster.id_of(self.away());
        ok(&home.call(cmd!["CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", to]));
        wait::until("all is copied", SOON, || {
            let jobs = home.run("CLUSTER GETSLOTMIGRATIONS").to_string();
            if jobs.contains("waiting-to-pause") { Ok(()) } else { Err(jobs) }
        });
    }

    fn migrate(&self, key: &str) -> Value {
        let mut home = self.home().connect();
        home.call(cmd!["MIGRATE", "127.0.0.1", self.away().port(), key, 0, 5000])
    }

    fn end_of_move(&self, slot: u16) {
        let to = self.cluster.id_of(self.away());
        for node in [self.away(), self.home()] {
            ok(&node.connect().call(cmd!["CLUSTER", "SETSLOT", slot, "NODE", to]));
        }
        self.cluster.wait_until_agreed();
    }

    fn assert_alive(&self) {
        self.cluster.nodes().iter().for_each(Server::assert_alive);
    }
}

fn ok(reply: &Value) {
    assert_eq!(reply, &Value::Status("OK".into()));
}

/// What a node that is importing a slot says to a client that was sent to it.
fn asking(connection: &mut Connection, command: Vec<Vec<u8>>) -> Value {
    ok(&connection.run("ASKING"));
    connection.call(command)
}

fn keys_in_slot(node: &Server, slot: u16) -> i64 {
    node.connect().call(cmd!["CLUSTER", "COUNTKEYSINSLOT", slot]).integer()
}

/// The slot of a key without braces.
fn slot_of(key: &str) -> u16 {
    let mut crc = 0_u16;
    for byte in key.bytes() {
        crc ^= u16::from(byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
        }
    }
    crc % 16_384
}

/// The name of the floor of a slot: the tag is the smallest number in it.
fn floor_of_slot(slot: u16) -> String {
    let tag = (0..).map(|number: u32| number.to_string()).find(|tag| slot_of(tag) == slot);
    format!("kvlock:floor:{{{}}}", tag.unwrap())
}

/// Two nodes, the name of a lock in the slot that moves, and a connection to each.
fn two_nodes(kind: &Kind) -> (Pair, String, Connection, Connection) {
    let pair = Pair::start(kind);
    let (home, away) = (pair.home().connect(), pair.away().connect());
    (pair, key_of_slot(SLOT), home, away)
}

/// A lock's name in that slot.
fn key_of_slot(slot: u16) -> String {
    (0..).map(|number| format!("lock-{number}")).find(|key| slot_of(key) == slot).unwrap()
}
