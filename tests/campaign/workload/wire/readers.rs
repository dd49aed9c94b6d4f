//! The readers of sessions. They disconnect, and reconnect in time or too late. They check that no outcome is
//! skipped or changed, that nothing is granted to a session that is *away* (its reader has disconnected), that
//! no session lives too long, and that no other user can use a session.

use super::Scene;
use super::client::{ANSWER, EXPECTED};
use super::sessions::{Delivered, Mailbox};
use harness::history::Outcome;
use harness::random::Random;
use harness::resp::ReceiveError;
use harness::{Connection, Value, cmd};
use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

/// A reader resets its connection, and reconnects in time.
pub(super) const AWAY: &str = "a reader away and back";
/// A reader resets its connection, and reconnects after the session must have ended.
pub(super) const LATE: &str = "a session left to its ttl";
/// Another connection of the reader reads the session instead.
pub(super) const REPLACED: &str = "a reader replaced";
/// A reader closes its session, with all waits and outcomes.
pub(super) const CLOSED: &str = "SESSION.CLOSE";
/// A reader requests the last outcomes and closes the session in one packet.
pub(super) const CLOSED_AS_READ: &str = "SESSION.NEXT and SESSION.CLOSE in one packet";

/// Times after which the server ends a session that has no reader.
const TTLS_MS: [u64; 4] = [150, 150, 400, 1_500];

/// Timeouts of `SESSION.NEXT`.
const TIMEOUTS_MS: [u64; 4] = [0, 20, 100, 300];

/// Longest time for which a session may outlive its ttl: no fault stops the server for so long.
const LATE_MS: u64 = 1_800;

/// Tolerance for the server's times, which are in whole milliseconds.
const SLACK_MS: u64 = 2;

/// Reason why a reader cannot use its session or its connection any more.
enum Stop {
    /// The session has ended.
    Gone,
    /// The connection broke, or must be closed after an error reply.
    Broken,
}

impl From<ReceiveError> for Stop {
    fn from(_: ReceiveError) -> Self {
        Self::Broken
    }
}

/// Opens sessions and reads them, one after another, until the round is over and no client waits.
pub(super) fn read(scene: &Scene<'_>, mailbox: &Mailbox, random: Random) {
    let mut random = random;
    for number in 0.. {
        if scene.is_done() {
            return;
        }
        let Some(mut connection) = connect(scene) else { return };
        let reign = reign(&mut connection.it);
        let (opened, ttl) = (scene.recorder.now(), *random.pick(&TTLS_MS));
        let Ok(Value::Array(reply)) = connection.it.ask(cmd!["SESSION.OPEN", ttl]) else {
            sleep(Duration::from_millis(5));
            continue;
        };
        let name = reply[0].text();
        mailbox.opened(&name, connection.id);
        let mut reader = Reader {
            scene,
            mailbox,
            random: random.part(number),
            connection: Some(connection),
            name,
            ttl,
            known: BTreeMap::new(),
            acknowledged: 0,
            may_be_away: false,
            there: opened,
            asking: 0,
            may_have_told: false,
            left: None,
        };
        reader.read_to_the_end();
        // After a failover, the next primary keeps the grants of the session until their leases end.
        let ended_here = connect(scene).is_some_and(|mut it| reign == self::reign(&mut it.it));
        let may_have_told = reader.may_have_told || reader.asking > 0;
        if reader.may_be_away {
            mailbox.was_away((reader.there, scene.recorder.now()));
        }
        mailbox.gone(reader.there, may_have_told || !ended_here, scene.recorder);
    }
}

/// What identifies the time in which one server is the primary, without a break: its replication ID.
fn reign(connection: &mut Connection) -> Option<String> {
    let info =
        connection.ask(cmd!["INFO", "replication"]).ok().filter(|info| !info.is_error())?.text();
    info.lines().find(|line| line.starts_with("master_replid:")).map(str::to_owned)
}

/// A connection of the user that owns the sessions.
struct Open {
    it: Connection,
    /// Its client ID on the server.
    id: i64,
    /// The number of the next outcome; `None` before the first reply to `SESSION.NEXT` on this connection.
    next: Option<u64>,
}

fn connect(scene: &Scene<'_>) -> Option<Open> {
    loop {
        let mut it = scene.connect()?;
        if let Ok(Value::Integer(id)) = it.ask(cmd!["CLIENT", "ID"]) {
            return Some(Open { it, id, next: None });
        }
    }
}

struct Reader<'a> {
    scene: &'a Scene<'a>,
    mailbox: &'a Mailbox,
    random: Random,
    connection: Option<Open>,
    name: String,
    ttl: u64,
    /// Outcomes received, by number.
    known: BTreeMap<u64, Delivered>,
    acknowledged: u64,
    /// Time just before the last answered call was sent. The session existed at that time, unless the call
    /// opened it.
    there: Duration,
    /// `true` if the session may have been away since `there`.
    may_be_away: bool,
    /// Number of calls of `SESSION.NEXT` in flight.
    asking: u32,
    /// `true` if a lost reply may have contained outcomes that the reader does not know yet.
    may_have_told: bool,
    /// Time at which the server had noticed the disconnect of the session's reader; `None` if it is
    /// unknown, or if a reader may have returned.
    left: Option<Duration>,
}

impl Reader<'_> {
    fn now(&self) -> Duration {
        self.scene.recorder.now()
    }

    fn open(&mut self) -> Result<&mut Open, Stop> {
        self.connection.as_mut().ok_or(Stop::Broken)
    }

    fn surprise(&self, what: &str) {
        self.scene.log.surprise(format!("session {}: {what}", &self.name[..8]));
    }

    fn read_to_the_end(&mut self) {
        while !self.scene.is_done() {
            match self.step() {
                Ok(()) => {}
                Err(Stop::Gone) => return,
                Err(Stop::Broken) => {
                    // The session may have had a reader since `left`.
                    self.left = None;
                    self.come_back();
                    if self.connection.is_none() {
                        // There is no primary to read from.
                        return;
                    }
                }
            }
        }
        // If this fails, the session ends after its ttl.
        let _closed = self.close();
    }

    fn step(&mut self) -> Result<(), Stop> {
        let timeout = *self.random.pick(&TIMEOUTS_MS);
        match self.random.below(100) {
            0..=9 => {
                let ack = self.acknowledge();
                let first = self.send(ack, timeout)?;
                let second = self.send(ack, timeout)?;
                self.receive(ack, first)?;
                self.receive(ack, second)
            }
            10..=15 => self.replace(),
            16..=23 => {
                let time = self.random.below(self.ttl * 2 / 3);
                self.go_away(AWAY, Duration::from_millis(time))
            }
            24 if self.ttl < 200 => self.go_away(LATE, Duration::from_millis(self.ttl + LATE_MS)),
            25..=26 => self.close(),
            33..=36 => self.close_as_it_reads(),
            27..=29 => self.let_a_stranger_try(),
            30..=32 => {
                sleep(Duration::from_millis(self.random.below(self.ttl / 3)));
                Ok(())
            }
            _ => self.ask(timeout),
        }
    }

    /// Chooses the number to acknowledge: the number of the last outcome, or a smaller one.
    fn acknowledge(&mut self) -> u64 {
        let last = self.known.last_key_value().map_or(0, |(last, _)| *last);
        let less = if self.random.percent(70) { 0 } else { self.random.below(4) };
        // Acknowledged outcomes are not sent again, so the number never decreases.
        self.acknowledged = self.acknowledged.max(last.saturating_sub(less));
        self.acknowledged
    }

    fn ask(&mut self, timeout: u64) -> Result<(), Stop> {
        let ack = self.acknowledge();
        let sent = self.send(ack, timeout)?;
        self.receive(ack, sent)
    }

    fn send(&mut self, ack: u64, timeout: u64) -> Result<Duration, Stop> {
        let mut command = cmd!["SESSION.NEXT", self.name, ack, timeout];
        if self.random.percent(20) {
            command.extend(cmd!["COUNT", 1 + self.random.below(3)]);
        }
        let sent = self.now();
        self.open()?.it.send(command);
        self.asking += 1;
        Ok(sent)
    }

    fn receive(&mut self, ack: u64, sent: Duration) -> Result<(), Stop> {
        let open = self.open()?;
        let (reply, next) = (open.it.receive(ANSWER), open.next);
        if matches!(reply, Err(ReceiveError::Timeout)) {
            self.surprise("SESSION.NEXT is not answered");
        }
        let next = self.hear(ack, sent, next, &reply?)?;
        self.open()?.next = Some(next);
        Ok(())
    }

    /// Checks the outcomes in a reply, and passes the new ones to the mailbox. Returns the number of the next
    /// outcome.
    fn hear(
        &mut self,
        ack: u64,
        sent: Duration,
        next: Option<u64>,
        reply: &Value,
    ) -> Result<u64, Stop> {
        self.asking -= 1;
        if let Value::Error { code, .. } = reply {
            match code.as_str() {
                "NOSESSION" => return Err(Stop::Gone),
                // For example, the server drains and has no outcome left, or another server is the primary.
                "TRYAGAIN" | "UNBLOCKED" | "LOADING" | "MASTERDOWN" | "QUEUEFULL" => {}
                _ => self.surprise(&format!("SESSION.NEXT: {reply}")),
            }
            return Err(Stop::Broken);
        }
        let (server_ms, told) = (reply[0].integer().cast_unsigned(), reply[1].elements());
        let mut expected = next.unwrap_or_default().max(ack + 1);
        for entry in told {
            let told = self.entry(entry);
            if told.number != expected {
                self.surprise(&format!(
                    "{} comes instead of {expected} after {ack}, {next:?} before, known {:?}",
                    told.number,
                    self.known.keys().last()
                ));
            }
            expected = told.number + 1;
            self.check_absence(&told, server_ms, sent);
            match self.known.get(&told.number) {
                Some(known) if *known == told => {}
                Some(known) => self.surprise(&format!("{told:?} was {known:?} before")),
                None => {
                    if let Some(wrong) = self.mailbox.deliver(&told) {
                        self.surprise(&wrong);
                    }
                    self.known.insert(told.number, told);
                }
            }
        }
        if told.is_empty() {
            self.may_have_told = false;
        }
        if std::mem::take(&mut self.may_be_away) {
            self.mailbox.was_away((self.there, self.now()));
        }
        (self.there, self.left) = (sent, None);
        Ok(expected)
    }

    fn entry(&self, entry: &Value) -> Delivered {
        let number = |at: usize| entry[at].integer().cast_unsigned();
        let kind = entry[1].text();
        let outcome = match entry[4].text().as_str() {
            "granted" if kind == "lock" => Outcome::Granted { token: number(5), holds: number(6) },
            "granted" => Outcome::Holds { permits: number(6) },
            "open" => Outcome::Done,
            "timeout" => Outcome::Refused,
            "cancelled" => Outcome::Withdrawn,
            "replaced" => Outcome::Failed,
            "error" if EXPECTED.iter().any(|code| entry[5].text().starts_with(code)) => {
                Outcome::Failed
            }
            _ => {
                self.surprise(&format!("what is {entry}?"));
                Outcome::Failed
            }
        };
        let granted = matches!(outcome, Outcome::Granted { .. } | Outcome::Holds { .. });
        Delivered {
            number: number(0),
            key: entry[2].text(),
            owner: entry[3].text(),
            outcome,
            granted_ms: granted.then(|| number(7)),
        }
    }

    /// Checks that the outcome `told` is not a grant from the time when the session had no reader: after the
    /// server noticed the disconnect, and before the next call, whose reply contains the outcome.
    fn check_absence(&self, told: &Delivered, server_ms: u64, sent: Duration) {
        let (Some(left), Some(granted)) = (self.left, told.granted_ms) else { return };
        let away = u64::try_from(sent.saturating_sub(left).as_millis()).unwrap_or(0);
        let left = server_ms.saturating_sub(away) + SLACK_MS;
        if (left..server_ms.saturating_sub(SLACK_MS)).contains(&granted) {
            self.surprise(&format!("granted while away from {left} to {server_ms}: {told:?}"));
        }
    }

    /// Reads through another connection. The call on the first connection gets an error or earlier outcomes.
    /// Then the first connection is sometimes reset.
    fn replace(&mut self) -> Result<(), Stop> {
        let begun = self.now();
        let ack = self.acknowledge();
        let sent = self.send(ack, 5_000)?;
        let Some(other) = connect(self.scene) else { return Err(Stop::Broken) };
        let Some(mut first) = self.connection.replace(other) else { return Err(Stop::Broken) };
        self.mailbox.read_by(self.connection.as_ref().map(|open| open.id));
        let again = self.send(ack, 0)?;
        // The reply to the first connection arrives at once: `UNBLOCKED`, or earlier outcomes.
        match first.it.receive(ANSWER) {
            Ok(Value::Error { code, .. }) if code == "UNBLOCKED" => self.asking -= 1,
            Ok(reply) => {
                self.hear(ack, sent, first.next, &reply)?;
                self.may_be_away = true;
            }
            Err(_) => {
                self.asking -= 1;
                (self.may_have_told, self.may_be_away) = (true, true);
            }
        }
        self.receive(ack, again)?;
        if self.random.percent(50) {
            first.it.reset();
        }
        self.scene.happened(REPLACED, begun);
        Ok(())
    }

    /// Resets the connection, sometimes during a call, and reconnects: in time, or after the end of the
    /// session.
    fn go_away(&mut self, fault: &'static str, time: Duration) -> Result<(), Stop> {
        let begun = self.now();
        self.leave()?;
        sleep(time);
        let is_over = fault == LATE && self.left.is_some();
        self.come_back();
        let back = self.ask(0);
        if is_over && back.is_ok() {
            self.surprise("it has outlived its time");
        }
        self.scene.happened(fault, begun);
        back
    }

    /// Resets the connection. If the session was read through it, waits for the server to notice.
    fn leave(&mut self) -> Result<(), Stop> {
        if self.random.percent(60) {
            let ack = self.acknowledge();
            self.send(ack, 5_000)?;
        }
        let Some(Open { it, id, next }) = self.connection.take() else { return Err(Stop::Broken) };
        it.reset();
        if next.is_none() {
            // The server may not know this connection as the session's reader.
            return Ok(());
        }
        let mut eye = self.scene.pair.connect().ok_or(Stop::Broken)?;
        for _ in 0..100 {
            let reply = eye.ask(cmd!["CLIENT", "LIST", "ID", id]);
            match reply {
                Ok(list) if !list.is_error() && list.text().is_empty() => {
                    self.left = Some(self.now());
                    break;
                }
                Ok(_) => sleep(Duration::from_millis(1)),
                Err(_) => break,
            }
        }
        Ok(())
    }

    /// Connects again, to continue to read the session.
    fn come_back(&mut self) {
        self.may_have_told |= std::mem::take(&mut self.asking) > 0;
        self.connection = connect(self.scene);
        self.may_be_away = true;
        self.mailbox.read_by(self.connection.as_ref().map(|open| open.id));
    }

    fn close(&mut self) -> Result<(), Stop> {
        let begun = self.now();
        let close = cmd!["SESSION.CLOSE", self.name];
        let reply = self.open()?.it.ask(close)?;
        if !matches!(reply, Value::Integer(0 | 1)) {
            self.surprise(&format!("SESSION.CLOSE: {reply}"));
        }
        self.scene.happened(CLOSED, begun);
        Err(Stop::Gone)
    }

    /// Requests the last outcomes and closes the session in one packet, after a pause in which outcomes
    /// collect. The close does not end the grants in the reply.
    fn close_as_it_reads(&mut self) -> Result<(), Stop> {
        sleep(Duration::from_millis(self.random.below(self.ttl / 2)));
        let begun = self.now();
        let ack = self.acknowledge();
        let next = cmd!["SESSION.NEXT", self.name, ack, 0];
        let close = cmd!["SESSION.CLOSE", self.name];
        self.open()?.it.send_all(&[next, close]);
        self.asking += 1;
        self.receive(ack, begun)?;
        let reply = self.open()?.it.receive(ANSWER)?;
        if !matches!(reply, Value::Integer(0 | 1)) {
            self.surprise(&format!("SESSION.CLOSE: {reply}"));
        }
        self.scene.happened(CLOSED_AS_READ, begun);
        Err(Stop::Gone)
    }

    /// Checks that another user cannot use the session.
    fn let_a_stranger_try(&mut self) -> Result<(), Stop> {
        let mut stranger = self.scene.pair.connect().ok_or(Stop::Broken)?;
        let wait = cmd!["LOCK.WAIT", "scratch", "stranger", 10, 10, "SESSION", self.name];
        for command in [cmd!["SESSION.NEXT", self.name, 0, 0], wait] {
            let Ok(reply) = stranger.ask(command) else { return Ok(()) };
            if !matches!(&reply, Value::Error { code, .. } if EXPECTED.contains(&code.as_str())) {
                self.surprise(&format!("somebody else may use it: {reply}"));
            }
        }
        if stranger.ask(cmd!["SESSION.CLOSE", self.name]).is_ok_and(|it| it == Value::Integer(1)) {
            self.surprise("somebody else has closed it");
        }
        Ok(())
    }
}
