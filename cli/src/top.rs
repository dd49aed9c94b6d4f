//! `kvlock top`: busy locks on a screen that is refreshed.
//!
//! One thread queries the server, another reads keys and draws. So keys work even if the server does not
//! answer.

mod draw;
mod rows;
mod screen;

use crate::arguments::{Address, Top};
use crate::failure::Failure;
use crate::monitor::{self, Entry, Figures, Monitor};
use crate::runtime::block_on;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use screen::Screen;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// Largest number of locks, of waiters and of sessions to request.
const COUNT: u32 = 200;

/// Interval at which answers and signals are checked while no key is pressed. Also the shortest interval of
/// refreshes.
const CHECK: Duration = Duration::from_millis(50);

/// Time for the drawing thread to end by itself after a signal.
const GRACE: Duration = Duration::from_millis(500);

/// Receives answers of the server, or failures.
type Answers = Receiver<Result<Snapshot, Failure>>;

/// Sends the key of the lock to show in detail, or `None`.
type Requests = Sender<Option<Vec<u8>>>;

/// Answers of the server at one time.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) at: Instant,
    pub(crate) figures: Figures,
    /// Locks with waiters. `None` if the server has no `LOCK.LIST`, or the user may not use it.
    pub(crate) waited_for: Option<Vec<Entry>>,
    /// Locks with the longest total waiting time. `None` if the server has no `LOCK.PROFILE`, or the user may
    /// not use it.
    pub(crate) profile: Option<Vec<Entry>>,
    pub(crate) sessions: Option<Vec<Entry>>,
    /// Details of the lock that was requested, with its key.
    pub(crate) detail: Option<(Vec<u8>, Entry)>,
}

impl Snapshot {
    fn of(server: &mut Monitor, detail: Option<&[u8]>) -> Result<Self, Failure> {
        let figures = server.figures()?;
        let mut list = |command| server.list(redis::cmd(command).arg("COUNT").arg(COUNT));
        let waited_for = list("LOCK.LIST")?;
        let profile = list("LOCK.PROFILE")?;
        let sessions = list("SESSION.LIST")?;
        let detail = detail.map(|key| {
            let request = redis::cmd("LOCK.INFO").arg(key).arg("WAITERS").arg(COUNT).to_owned();
            // After an error, for example about the type of the key, the details are empty.
            (key.to_vec(), server.entry(&request).unwrap_or_default())
        });
        Ok(Self { at: Instant::now(), figures, waited_for, profile, sessions, detail })
    }

    /// Returns the details of the lock `key`. `None` if another lock or no lock was requested.
    pub(crate) fn detail_of(&self, key: &[u8]) -> Option<&Entry> {
        self.detail.as_ref().filter(|(of, _)| of == key).map(|(_, detail)| detail)
    }
}

pub(crate) fn top(address: &Address, task: &Top) -> Result<ExitCode, Failure> {
    // Errors at the start are reported before the terminal is changed.
    let (server, first) = block_on(monitor::ask(address, |address| {
        let mut server = Monitor::connect(address)?;
        let first = Snapshot::of(&mut server, None)?;
        Ok((server, first))
    }))?;
    if first.waited_for.is_none() {
        let name = &server.name;
        return Err(Failure::trouble(format!("{name}: this user may not use LOCK.LIST")));
    }
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Failure::usage(
            "`top` needs a terminal; `kvlock list` does without".to_owned(),
        ));
    }
    let ended = end_on_signals().map_err(|error| Failure::trouble(error.to_string()))?;
    let mut screen = Screen::new(&server.name);
    screen.update(Ok(first));
    let (requests, answers) = start_asking(address, server, task.every.max(CHECK));
    // From here on, the terminal is restored at the end, even after a panic.
    let terminal = ratatui::try_init();
    let outcome =
        terminal.and_then(|terminal| show(terminal, &mut screen, &requests, &answers, &ended));
    ratatui::restore();
    outcome.map_err(|error| Failure::trouble(format!("the terminal: {error}")))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns a flag that is set when a signal asks this process to end. If the process still runs after
/// [`GRACE`], another thread ends it: without its terminal, the drawing thread would read forever.
fn end_on_signals() -> io::Result<Arc<AtomicBool>> {
    let ended = Arc::new(AtomicBool::new(false));
    let mut signals = Signals::new([SIGTERM, SIGHUP, SIGINT, SIGQUIT])?;
    let flag = Arc::clone(&ended);
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            flag.store(true, Ordering::Relaxed);
            std::thread::sleep(GRACE);
            ratatui::restore();
            std::process::exit(0);
        }
    });
    Ok(ended)
}

fn show(
    mut terminal: DefaultTerminal,
    screen: &mut Screen,
    requests: &Requests,
    answers: &Answers,
    ended: &AtomicBool,
) -> io::Result<()> {
    while !ended.load(Ordering::Relaxed) {
        while let Ok(answer) = answers.try_recv() {
            screen.update(answer);
        }
        terminal.draw(|frame| draw::draw(screen, frame))?;
        if !event::poll(CHECK)? {
            continue;
        }
        if let Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
        {
            let before = screen.detail().map(<[u8]>::to_vec);
            if screen.press(key) {
                return Ok(());
            }
            let detail = screen.detail().map(<[u8]>::to_vec);
            if detail != before {
                // Fails if the other thread has ended.
                let _ended = requests.send(detail);
            }
        }
    }
    Ok(())
}

/// Queries the server at intervals, and at once when the details of another lock are requested. Connects
/// again after an error.
fn start_asking(address: &Address, server: Monitor, every: Duration) -> (Requests, Answers) {
    let (requests, request) = mpsc::channel::<Option<Vec<u8>>>();
    let (sender, answers) = mpsc::channel();
    let address = Address { url: address.url.clone() };
    std::thread::spawn(move || {
        let (mut server, mut detail) = (Some(server), None);
        loop {
            match request.recv_timeout(every) {
                Ok(other) => detail = other,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let connected = match server.take() {
                Some(server) => Ok(server),
                None => Monitor::connect(&address),
            };
            let answer = connected.and_then(|mut connected| {
                let snapshot = Snapshot::of(&mut connected, detail.as_deref())?;
                server = Some(connected);
                Ok(snapshot)
            });
            if sender.send(answer).is_err() {
                return;
            }
        }
    });
    (requests, answers)
}
