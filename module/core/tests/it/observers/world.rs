//! A few locks, their observers, and a list of the states that each lock had while it was observed.

use kvlock_core::{
    Cause, Ending, HolderState, KeyRef, Limits, LossReason, Millis, MonoMillis, Now, SessionId,
    Table, Token,
};
use kvlock_core_reference::Bytes;
use proptest::prelude::*;

const KEYS: [&str; 2] = ["k", "l"];
const SESSIONS: usize = 3;
const NOW: Now = Now { unix_us: 1_000_000, mono: MonoMillis(5) };

/// Causes for which a holder loses a lock, and the reasons that are reported for them.
const WAYS: [(Cause, LossReason); 4] = [
    (Cause::Release, LossReason::Released),
    (Cause::Forced, LossReason::Forced),
    (Cause::Flush, LossReason::Flushed),
    (Cause::Outside, LossReason::Deleted),
];

#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    /// Makes `who` the holder: 0 frees the lock, 1 makes it shared.
    Become {
        key: usize,
        who: usize,
        way: usize,
    },
    /// The holder sets a new value.
    Say {
        key: usize,
    },
    Observe {
        key: usize,
        session: usize,
    },
    Unobserve {
        key: usize,
        session: usize,
    },
    /// Reads, through a new connection or the same one. The reply may be lost.
    Read {
        session: usize,
        anew: bool,
        lost: bool,
    },
    Work,
    /// Ends a session and opens a new one in its place.
    Close {
        session: usize,
    },
}

/// A version of a lock, its state, and the reason for which the previous holder lost it.
type Stood = (u64, HolderState, Option<LossReason>);

/// State of a client.
#[derive(Debug)]
struct Client {
    session: SessionId,
    connection: u64,
    /// Number of the latest outcome that it has read. It acknowledges this number next.
    ack: u64,
    /// Version that it knows of each lock that it observes.
    knows: [Option<u64>; KEYS.len()],
    /// For each lock, the version in the reply to its last `observe`.
    since: [u64; KEYS.len()],
}

#[derive(Debug)]
pub(crate) struct World {
    table: Table<()>,
    stands: [HolderState; KEYS.len()],
    history: [Vec<Stood>; KEYS.len()],
    clients: Vec<Client>,
    opened: u8,
    version: u64,
    tokens: u64,
}

fn key_of(key: usize) -> KeyRef<'static> {
    KeyRef::lock(0, KEYS[key].as_bytes())
}

impl kvlock_core_reference::World for World {
    type Op = Op;

    fn begin(_sort: u8) -> Self {
        let vacant = || HolderState::Vacant;
        let mut world = Self {
            table: Table::new(Limits::UNLIMITED),
            stands: [vacant(), vacant()],
            history: [Vec::new(), Vec::new()],
            clients: Vec::new(),
            opened: 0,
            version: 0,
            tokens: 0,
        };
        world.clients = (0..SESSIONS).map(|_| world.open()).collect();
        world
    }

    fn draw(bytes: &mut Bytes<'_>) -> Op {
        let kind = bytes.below(21);
        let (key, session) = (bytes.below(KEYS.len()), bytes.below(SESSIONS));
        match kind {
            0..=5 => Op::Become { key, who: bytes.below(5), way: bytes.below(WAYS.len()) },
            6 => Op::Say { key },
            7..=10 => Op::Observe { key, session },
            11 => Op::Unobserve { key, session },
            12..=16 => {
                let (anew, lost) = (bytes.flag(), bytes.below(3) == 0);
                Op::Read { session, anew, lost }
            }
            17..=19 => Op::Work,
            _ => Op::Close { session },
        }
    }

    fn does(&mut self, op: &Op) -> Result<(), TestCaseError> {
        match *op {
            Op::Become { key, who, way } => {
                self.tokens += 1;
                let token = Token::from_stored(self.tokens);
                let holder_state = match who {
                    0 => HolderState::Vacant,
                    1 => HolderState::Shared { token },
                    who => {
                        HolderState::Held { owner: who.to_be_bytes().into(), token, value: None }
                    }
                };
                let went = match (&self.stands[key], &holder_state) {
                    (HolderState::Vacant, _) => false,
                    (HolderState::Held { owner, .. }, HolderState::Held { owner: next, .. }) => {
                        owner != next
                    }
                    _ => true,
                };
                self.becomes(key, holder_state, WAYS[way].0, went.then_some(WAYS[way].1));
            }
            Op::Say { key } => {
                self.tokens += 1;
                let mut holder_state = self.stands[key].clone();
                if let HolderState::Held { value, .. } = &mut holder_state {
                    *value = Some(self.tokens.to_be_bytes().into());
                }
                self.becomes(key, holder_state, Cause::Outside, None);
            }
            Op::Observe { key, session } => self.observe(key, session)?,
            Op::Unobserve { key, session } => {
                let client = &mut self.clients[session];
                let did = self.table.unobserve(key_of(key), client.session);
                prop_assert_eq!(did, client.knows[key].take().is_some());
            }
            Op::Read { session, anew, lost } => self.read(session, anew, lost)?,
            Op::Work => drop(self.table.work_on_sessions()),
            Op::Close { session } => {
                self.table.close_session(self.clients[session].session);
                self.clients[session] = self.open();
            }
        }
        self.table.check().map_err(TestCaseError::fail)
    }

    /// Checks that every observer has the newest state when all work is done and all outcomes are read.
    fn ends(&mut self) -> Result<(), TestCaseError> {
        while self.table.work_on_sessions() {}
        let observations = self.clients.iter().flat_map(|it| it.knows).flatten().count();
        prop_assert_eq!(self.table.observers().0, observations);
        prop_assert!(self.table.session_waits().1 <= observations, "more than one is kept");
        for session in 0..SESSIONS {
            self.read(session, false, false)?;
            for (key, knows) in self.clients[session].knows.into_iter().enumerate() {
                let newest = self.history[key].last().map(|(version, ..)| *version);
                prop_assert!(knows.is_none() || knows == newest, "{knows:?} of {newest:?}");
            }
        }
        Ok(())
    }
}

impl World {
    fn open(&mut self) -> Client {
        self.opened += 1;
        let session = self.table.open_session([self.opened; 32], b"user", Millis(60_000), NOW);
        Client {
            session: session.expect("there is room"),
            connection: 0,
            ack: 0,
            knows: [None; KEYS.len()],
            since: [0; KEYS.len()],
        }
    }

    fn becomes(
        &mut self,
        key: usize,
        holder_state: HolderState,
        cause: Cause,
        gone: Option<LossReason>,
    ) {
        if self.table.is_observed(key_of(key)) && holder_state != self.stands[key] {
            self.version += 1;
            self.history[key].push((self.version, holder_state.clone(), gone));
        }
        self.stands[key] = holder_state.clone();
        self.table.notice(key_of(key), NOW, Some(cause), (holder_state, None));
    }

    fn observe(&mut self, key: usize, session: usize) -> Result<(), TestCaseError> {
        let is_first = !self.table.is_observed(key_of(key));
        let stands = self.stands[key].clone();
        let client = &mut self.clients[session];
        let news = self.table.observe(key_of(key), NOW, (stands, None), client.session);
        let news = news.expect("there is room");
        self.version += 1;
        if is_first {
            self.history[key].push((self.version, self.stands[key].clone(), None));
        }
        let newest = self.history[key].last().map(|(version, ..)| *version);
        prop_assert_eq!((Some(news.version), &news.holder_state), (newest, &self.stands[key]));
        prop_assert!(client.knows[key] <= Some(news.version));
        client.knows[key] = Some(news.version);
        client.since[key] = news.version;
        Ok(())
    }

    /// Lets a client read. After a lost reply it continues on a new connection.
    fn read(&mut self, session: usize, anew: bool, lost: bool) -> Result<(), TestCaseError> {
        let client = &mut self.clients[session];
        client.connection += u64::from(anew);
        let began =
            self.table.begin_reading(client.session, Some(client.connection), client.ack, NOW);
        let Ok((Some(reading), None)) = began else {
            return Err(TestCaseError::fail("no reading"));
        };
        let news = self.table.news(reading).and_then(Result::ok);
        let mut up_to = 0;
        for (number, outcome) in news.into_iter().flatten() {
            up_to = number;
            let Ending::Changed(changed) = &outcome.ending else {
                return Err(TestCaseError::fail("something else"));
            };
            let key = KEYS.iter().position(|key| *key.as_bytes() == *outcome.key.name);
            let key = key.expect("it is a lock");
            let version = changed.news.version;
            let before = self.history[key].iter().find(|before| before.0 == version);
            prop_assert_eq!(before.map(|before| &before.1), Some(&changed.news.holder_state));
            if lost || number <= client.ack {
                continue;
            }
            let Some(knows) = client.knows[key].filter(|knows| *knows < version) else {
                return Err(TestCaseError::fail("told twice"));
            };
            let gone_since = |since: u64| {
                let of = self.history[key].iter().filter(|it| it.0 > since && it.0 <= version);
                of.filter_map(|before| before.2).next_back()
            };
            // A report may contain a loss that the client already knows, but none from before its last
            // `observe`.
            match gone_since(knows) {
                None if changed.why.is_none() => {}
                None => prop_assert_eq!(changed.why, gone_since(client.since[key])),
                gone => prop_assert_eq!(changed.why, gone),
            }
            client.knows[key] = Some(version);
        }
        if !lost {
            client.ack = client.ack.max(up_to);
        }
        client.connection += u64::from(lost);
        self.table.sent(reading, up_to, NOW);
        Ok(())
    }
}
