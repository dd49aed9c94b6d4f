//! Commands of transcripts for sessions.

use kvlock_core::{Ending, Millis, Outcome, Reading, SessionId, SessionName, UnsentGrant};

use super::Args;
use super::stage::{Client, Stage};
use super::words;

/// The user of all sessions.
const USER: &[u8] = b"user";

fn padded(name: &str) -> SessionName {
    let mut padded = [b' '; 32];
    padded[..name.len()].copy_from_slice(name.as_bytes());
    padded
}

impl Stage {
    pub(crate) fn session(&self, name: &str) -> SessionId {
        self.table.session(&padded(name), USER).expect("the session is there")
    }

    /// Returns the name of a session in the transcript.
    pub(crate) fn session_named(&self, name: Option<&SessionName>) -> String {
        let name = name.map(|name| String::from_utf8_lossy(name).trim().to_owned());
        name.unwrap_or_else(|| "gone".to_owned())
    }

    pub(crate) fn session_event(&mut self, event: &str, args: &mut Args<'_>) {
        let now = self.clock.now();
        match event {
            "open-session" => {
                let name: String = args.must("session");
                let ttl = Millis(args.must("ttl-ms"));
                let opened = self.table.open_session(padded(&name), USER, ttl, now);
                self.say(&format!("-> {:?}", opened.map(|_| name)));
            }
            // On the same connection, a read continues after the previous one.
            "next" => self.next(args),
            // The connection of a reader breaks.
            "lose" => {
                let name: String = args.must("connection");
                let reading = self.readings.remove(&name).expect("it reads");
                drop(self.table.reader_gone(reading, now));
            }
            "close-session" => {
                let id = self.session(&args.must::<String>("session"));
                drop(self.table.close_session(id));
                self.sessions_due();
            }
            other => panic!("no such command: {other}"),
        }
        self.tell_readers();
    }

    fn next(&mut self, args: &mut Args<'_>) {
        let (now, name) = (self.clock.now(), args.must::<String>("connection"));
        let id = self.session(&args.must::<String>("session"));
        let number = name.bytes().fold(0, |number, byte| number * 256 + u64::from(byte));
        let Ok((reading, replaced)) =
            self.table.begin_reading(id, Some(number), args.may("ack").unwrap_or(0), now)
        else {
            return self.say("-> ack is ahead of what was written");
        };
        if let Some(Client { name, .. }) = replaced {
            self.say(&format!("{name} reads no more"));
        }
        let reading = reading.expect("it is there");
        self.readings.insert(name.clone(), reading);
        let has_news = self.table.news(reading).and_then(Result::ok);
        if has_news.is_some_and(|mut news| news.next().is_some()) {
            return self.read(&name, reading);
        }
        let timeout = Millis(args.may("timeout-ms").unwrap_or(60_000));
        self.say("-> (blocked)");
        self.table.block_reader(reading, Client { name, ends: None }, timeout, now);
    }

    /// Composes and sends a reply to a reader.
    fn read(&mut self, name: &str, reading: Reading) {
        let news = self.table.news(reading).and_then(Result::ok).expect("it reads");
        let news: Vec<_> = news.map(|(number, outcome)| (number, line(outcome))).collect();
        self.say(&format!("{name} reads:"));
        for (number, line) in &news {
            self.say(&format!("  {number}. {line}"));
        }
        let up_to = news.last().map_or(0, |(number, _)| *number);
        self.table.sent(reading, up_to, self.clock.now());
    }

    pub(crate) fn tell_readers(&mut self) {
        while let Some((reading, client)) = self.table.next_reader(self.clock.now()) {
            self.read(&client.name, reading);
        }
    }

    /// Does all due work for sessions.
    pub(crate) fn sessions_due(&mut self) {
        while self.table.handle_due_session(self.clock.now()) {}
        while self.table.work_on_sessions() {}
        while let Some(UnsentGrant { key, owner, id, token, .. }) = self.table.next_unsent() {
            let lock = (key.db, String::from_utf8_lossy(&key.name).into_owned());
            let owner = String::from_utf8_lossy(&owner).into_owned();
            self.say(&format!("nobody was told of the grant to {owner}"));
            let change = self
                .with(&lock, &owner, |table, at| table.take_back(at, id, owner.as_bytes(), token));
            self.carry_out(&lock, &owner, change);
        }
    }
}

fn line(outcome: &Outcome) -> String {
    let key = String::from_utf8_lossy(&outcome.key.name);
    let owner = String::from_utf8_lossy(&outcome.owner);
    let what = match &outcome.ending {
        Ending::Granted(granted) => {
            format!("granted, token {}, holds {}", granted.token.value(), granted.holds)
        }
        Ending::Open => "open".to_owned(),
        Ending::Ready => "ready".to_owned(),
        Ending::TimedOut => "timeout".to_owned(),
        Ending::Cancelled => "cancelled".to_owned(),
        Ending::Replaced => "replaced".to_owned(),
        Ending::Dismissed(why) => format!("sent away: {why:?}"),
        Ending::Changed(changed) => words::changed(changed),
    };
    format!("{key}, {owner}: {what}")
}
