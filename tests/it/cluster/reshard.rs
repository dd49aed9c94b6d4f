//! Slots go to another node and come back, as an operator moves them, while locks in them are held
//! and waited for.

use super::{MOVED_SLOTS, Pair, floor_of_slot, key_of_slot, keys_in_slot};
use crate::asking::{LONG, acquire, arrival, error, release, token, wait_in_line};
use harness::resp::split;
use harness::{Connection, Kind, Server, Value, cmd, observe, on_each_server};

/// A lock that is held and waited for while its slot moves.
struct Contended {
    key: String,
    slot: u16,
    token: i64,
    waiters: Vec<Connection>,
}

impl Contended {
    fn new(slot: u16, at: &Server) -> Self {
        let (key, mut holder) = (key_of_slot(slot), at.connect());
        let token = token(&acquire(&mut holder, &key, "holder"));
        let mut new = Self { key, slot, token, waiters: Vec::new() };
        new.stand_in_line(at);
        new
    }

    fn stand_in_line(&mut self, at: &Server) {
        let mut control = at.connect();
        self.waiters = (0..3)
            .map(|number| {
                let mut waiter = at.connect();
                wait_in_line(&mut waiter, &mut control, &self.key, &format!("waiter-{number}"));
                waiter
            })
            .collect();
    }

    /// It has arrived with its holder, nobody at the source was granted anything, and all who
    /// waited there are told; then it works as ever.
    fn has_moved(&mut self, from: &Server, to: &Server) {
        self.waiters.iter_mut().for_each(sent_away);
        assert_eq!(keys_in_slot(from, self.slot), 0, "a key was left behind");
        assert_eq!(keys_in_slot(to, self.slot), 2, "the lock and its floor");
        let mut there = to.connect();
        let info = there.call(cmd!["LOCK.INFO", self.key]);
        assert_eq!(info.field("owner").text(), "holder");
        assert_eq!(info.field("token").integer(), self.token);
        let left = info.field("lease-left").integer().cast_unsigned();
        assert!(left > LONG - 60_000 && left <= LONG, "{left}");

        self.stand_in_line(to);
        assert_eq!(release(&mut there, &self.key, "holder"), Value::Integer(0));
        for (number, waiter) in self.waiters.iter_mut().enumerate() {
            let token = token(&arrival(waiter));
            assert!(token > self.token, "{token} after {}", self.token);
            self.token = token;
            release(&mut there, &self.key, &format!("waiter-{number}"));
        }
        let next = token(&acquire(&mut there, &self.key, "holder"));
        assert!(next > self.token, "{next} after {}", self.token);
        self.token = next;
        self.stand_in_line(to);
    }
}

/// A waiter whose lock moves away is told so, and by nobody that it has it.
fn sent_away(waiter: &mut Connection) {
    let told = error(&arrival(waiter));
    assert!(told.starts_with("MOVED ") || told.starts_with("TRYAGAIN "), "{told}");
}

fn locks_move_with_their_slots_there_and_back(kind: Kind) {
    let pair = Pair::start(&kind);
    let (home, away) = (pair.home(), pair.away());
    let mut all = [0, 30, 50].map(|slot| Contended::new(slot, home));
    for (from, to) in [(home, away), (away, home), (home, away), (away, home)] {
        pair.cluster.reshard(from, to, MOVED_SLOTS);
        all.iter_mut().for_each(|lock| lock.has_moved(from, to));
    }
    pair.assert_alive();
    for slot in 0..MOVED_SLOTS as u16 {
        assert_eq!(keys_in_slot(away, slot), 0, "a key was left behind in slot {slot}");
    }
    for lock in all {
        let floor = floor_of_slot(lock.slot);
        assert_eq!(home.connect().call(cmd!["EXISTS", floor]), Value::Integer(1), "{floor}");
    }
}

/// The slot goes without its keys being moved first.
fn who_waits_for_anything_is_sent_away_when_its_slot_moves(kind: Kind) {
    let pair = Pair::start(&kind);
    let (mut control, mut there) = (pair.home().connect(), pair.away().connect());
    let of_slot =
        |line: &str| split(&line.replace('@', &format!("{{{}}}", key_of_slot(5)))).unwrap();
    for line in [
        "LOCK.ACQUIRE @lock alice 600000 SHARED",
        "LATCH.SET @latch 2",
        "SEM.SET @pool 1",
        "SEM.ACQUIRE @pool alice 1 600000",
    ] {
        assert!(!control.call(of_slot(line)).is_error(), "{line}");
    }
    let waits =
        ["LOCK.WAIT @lock bob 1000 0", "LATCH.WAIT @latch bob 0", "SEM.WAIT @pool bob 1 1000 0"];
    let mut waiters = waits.map(|line| {
        let mut waiter = pair.home().connect();
        let id = waiter.client_id();
        waiter.send(of_slot(line));
        observe::wait_until_blocked(&mut control, id);
        waiter
    });
    pair.cluster.reshard(pair.home(), pair.away(), MOVED_SLOTS);
    waiters.iter_mut().for_each(sent_away);
    assert_eq!(keys_in_slot(pair.home(), 5), 0);
    for (line, reply) in [
        ("LOCK.ACQUIRE @lock bob 1000", Value::Nil),
        ("LOCK.RELEASE @lock alice SHARED", Value::Integer(0)),
        ("LATCH.COUNTDOWN @latch", Value::Integer(1)),
        ("SEM.ACQUIRE @pool bob 1 1000", Value::Nil),
        ("SEM.RELEASE @pool alice", Value::Integer(0)),
    ] {
        assert_eq!(there.call(of_slot(line)), reply, "{line}");
    }
}

on_each_server!(
    locks_move_with_their_slots_there_and_back,
    who_waits_for_anything_is_sent_away_when_its_slot_moves,
);
