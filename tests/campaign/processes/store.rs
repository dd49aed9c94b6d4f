//! What locks protect: counters behind a socket, which client processes read, and write one more.
//!
//! For each lock there are two. One looks at tokens and refuses those that are smaller than one it
//! has seen; the other takes what comes. What it acknowledged stays acknowledged: so an increment
//! that is acknowledged and not in the number at the end is lost.

use super::said::Grant;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use tempfile::TempDir;

/// The numbers of a lock as somebody read them: the one of the store that looks, and the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cell {
    looks: u64,
    takes: u64,
}

impl Cell {
    /// Both counted on by one.
    pub(super) fn next(self) -> Self {
        Self { looks: self.looks + 1, takes: self.takes + 1 }
    }
}

/// What became of a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counter {
    pub(super) number: u64,
    pub(super) acknowledged: u64,
    /// Acknowledged writes of a token that is smaller than one seen before.
    pub(super) stale: u64,
    pub(super) refused: u64,
}

impl Counter {
    /// Increments that were acknowledged and are not there.
    pub(super) fn lost(&self) -> u64 {
        self.acknowledged.saturating_sub(self.number)
    }
}

/// All of one lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sheet {
    /// The largest token seen.
    pub(super) largest: u64,
    pub(super) looks: Counter,
    pub(super) takes: Counter,
}

impl Sheet {
    fn read(&mut self, token: u64) -> Cell {
        self.largest = self.largest.max(token);
        Cell { looks: self.looks.number, takes: self.takes.number }
    }

    /// Whether both counters took it.
    fn write(&mut self, token: u64, cell: Cell) -> bool {
        let stale = token < self.largest;
        self.largest = self.largest.max(token);
        self.takes.number = cell.takes;
        self.takes.acknowledged += 1;
        self.takes.stale += u64::from(stale);
        if stale {
            self.looks.refused += 1;
        } else {
            self.looks.number = cell.looks;
            self.looks.acknowledged += 1;
        }
        !stale
    }
}

type Sheets = Arc<Mutex<BTreeMap<String, Sheet>>>;

/// Answers all clients that connect.
fn serve(listener: &UnixListener, sheets: &Sheets) {
    for stream in listener.incoming() {
        let (stream, sheets) = (stream.expect("a client"), sheets.clone());
        thread::spawn(move || {
            let mut answers = stream.try_clone().expect("one more descriptor");
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                let answer = answer(&sheets, &line).expect("a request");
                // The client may be gone.
                let _gone = answers.write_all(format!("{answer}\n").as_bytes());
            }
        });
    }
}

/// `read KEY TOKEN` or `write KEY TOKEN LOOKS TAKES`.
fn answer(sheets: &Sheets, line: &str) -> Option<String> {
    let mut words = line.split(' ');
    let (what, key) = (words.next()?, words.next()?);
    let numbers: Vec<u64> = words.map(str::parse).collect::<Result<_, _>>().ok()?;
    let mut sheets = sheets.lock().unwrap_or_else(PoisonError::into_inner);
    let sheet = sheets.entry(key.to_owned()).or_default();
    match (what, numbers.as_slice()) {
        ("read", &[token]) => {
            let Cell { looks, takes } = sheet.read(token);
            Some(format!("{looks} {takes}"))
        }
        ("write", &[token, looks, takes]) => {
            Some(u64::from(sheet.write(token, Cell { looks, takes })).to_string())
        }
        _ => None,
    }
}

/// A connection to a store.
#[derive(Debug)]
pub(super) struct Till {
    requests: UnixStream,
    answers: BufReader<UnixStream>,
}

impl Till {
    /// Connects to the store at that socket.
    pub(super) fn open(socket: impl AsRef<Path>) -> Self {
        let requests = UnixStream::connect(socket).expect("the store is there");
        let answers = BufReader::new(requests.try_clone().expect("one more descriptor"));
        Self { requests, answers }
    }

    fn ask(&mut self, request: &str) -> Vec<u64> {
        self.requests.write_all(format!("{request}\n").as_bytes()).expect("the store listens");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("the store answers");
        line.split_whitespace().map(|word| word.parse().expect("a number")).collect()
    }

    /// What both counters say.
    pub(super) fn read(&mut self, grant: &Grant) -> Cell {
        match *self.ask(&format!("read {grant}")) {
            [looks, takes] => Cell { looks, takes },
            ref other => panic!("{other:?}"),
        }
    }

    /// Whether the store that looks at tokens took it; the other one did.
    pub(super) fn write(&mut self, grant: &Grant, cell: Cell) -> bool {
        let Cell { looks, takes } = cell;
        self.ask(&format!("write {grant} {looks} {takes}")) == [1]
    }

    /// Counts on from there that many times, without looking. Returns how many the store took that
    /// looks at tokens.
    pub(super) fn write_on(&mut self, grant: &Grant, mut cell: Cell, times: u64) -> u64 {
        let mut taken = 0;
        for _ in 0..times {
            cell = cell.next();
            taken += u64::from(self.write(grant, cell));
        }
        taken
    }
}

/// A store that answers.
#[derive(Debug)]
pub(super) struct Store {
    sheets: Sheets,
    dir: TempDir,
}

impl Store {
    pub(super) fn start() -> Self {
        let dir = TempDir::with_prefix("kvlock-store-").expect("a temporary folder");
        let store = Self { sheets: Sheets::default(), dir };
        let listener = UnixListener::bind(store.socket()).expect("the socket is free");
        let sheets = store.sheets.clone();
        thread::spawn(move || serve(&listener, &sheets));
        store
    }

    pub(super) fn socket(&self) -> String {
        self.dir.path().join("socket").display().to_string()
    }

    /// All that is known of a lock's counters.
    pub(super) fn show(&self, key: &str) -> Sheet {
        let sheets = self.sheets.lock().unwrap_or_else(PoisonError::into_inner);
        sheets.get(key).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_write_is_refused_by_one_and_undoes_the_others_work_in_the_other() {
        let mut sheet = Sheet::default();
        let early = sheet.read(1);
        let next = sheet.read(2);
        assert!(sheet.write(2, next.next()));
        assert!(sheet.write(2, next.next().next()));
        assert!(!sheet.write(1, early.next()));
        assert_eq!((sheet.looks.number, sheet.looks.lost(), sheet.looks.refused), (2, 0, 1));
        assert_eq!((sheet.takes.number, sheet.takes.lost(), sheet.takes.stale), (1, 2, 1));
    }
}
