//! `kvlock top`: busy locks on a screen that is kept up to date.
//!
//! One thread asks the server, the other reads keys and draws: a server that does not answer keeps nobody
//! from leaving.

mod draw;
mod rows;
mod screen;

use crate::arguments::{Address, Top};
use crate::failure::Failure;
use crate::watched::{Entry, Figures, Watched};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use screen::Screen;
use signal_hook::consts::{SIGHUP, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// How many locks, waiters and sessions are asked for.
const MOST: u32 = 200;

/// How long a key may have to wait for what the server said, or a signal for a key.
const GLANCE: Duration = Duration::from_millis(50);

/// How long the screen has to be left after a signal.
const GRACE: Duration = Duration::from_millis(500);

/// What the server said, or why it did not.
type Told = Receiver<Result<Seen, Failure>>;

/// Which lock to ask for in detail.
type Asked = Sender<Option<Vec<u8>>>;

/// What the server says at a moment.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) at: Instant,
    pub(crate) figures: Figures,
    /// Locks that are waited for; none if that may not be asked.
    pub(crate) waited_for: Option<Vec<Entry>>,
    /// Those that cost most; likewise.
    pub(crate) costs: Option<Vec<Entry>>,
    pub(crate) sessions: Option<Vec<Entry>>,
    /// The lock that is looked at in detail.
    pub(crate) detail: Option<Entry>,
}

impl Seen {
    fn of(server: &mut Watched, detail: Option<&[u8]>) -> Result<Self, Failure> {
        let figures = server.figures()?;
        let mut list = |command| server.list(redis::cmd(command).arg("COUNT").arg(MOST));
        let waited_for = list("LOCK.LIST")?;
        let costs = list("LOCK.PROFILE")?;
        let sessions = list("SESSION.LIST")?;
        let mut ask = |key| {
            let asked = redis::cmd("LOCK.INFO").arg(key).arg("WAITERS").arg(MOST).to_owned();
            // The reason stands in the place of the answer: one lock is not the server.
            server.entry(&asked).unwrap_or_default()
        };
        let detail = detail.map(&mut ask);
        Ok(Self { at: Instant::now(), figures, waited_for, costs, sessions, detail })
    }
}

pub(crate) fn top(address: &Address, task: &Top) -> Result<ExitCode, Failure> {
    // All that is wrong from the beginning is said before anything is done to the terminal.
    let mut server = Watched::connect(address)?;
    let first = Seen::of(&mut server, None)?;
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
    screen.tell(Ok(first));
    let (asked, told) = begin_to_ask(address, server, task.every.max(GLANCE));
    // Whatever happens from here on, a panic too, the terminal is restored.
    let terminal = ratatui::try_init();
    let outcome = terminal.and_then(|terminal| show(terminal, &mut screen, &asked, &told, &ended));
    ratatui::restore();
    outcome.map_err(|error| Failure::trouble(format!("the terminal: {error}")))?;
    Ok(ExitCode::SUCCESS)
}

/// Says from now on when a signal asks for the end, and sees to it: whose terminal is gone reads from it
/// for ever.
fn end_on_signals() -> io::Result<Arc<AtomicBool>> {
    let ended = Arc::new(AtomicBool::new(false));
    let mut signals = Signals::new([SIGTERM, SIGHUP])?;
    let told = Arc::clone(&ended);
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            told.store(true, Ordering::Relaxed);
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
    asked: &Asked,
    told: &Told,
    ended: &AtomicBool,
) -> io::Result<()> {
    while !ended.load(Ordering::Relaxed) {
        while let Ok(seen) = told.try_recv() {
            screen.tell(seen);
        }
        terminal.draw(|frame| draw::draw(screen, frame))?;
        if !event::poll(GLANCE)? {
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
                // Should the other thread be gone, the screen says since when nothing is new.
                let _gone = asked.send(detail);
            }
        }
    }
    Ok(())
}

/// Asks the server now and then, and at once when another lock is to be seen in detail. When it is
/// gone it is looked for again.
fn begin_to_ask(address: &Address, server: Watched, every: Duration) -> (Asked, Told) {
    let (asked, question) = mpsc::channel::<Option<Vec<u8>>>();
    let (answer, told) = mpsc::channel();
    let address = Address { url: address.url.clone() };
    std::thread::spawn(move || {
        let (mut server, mut detail) = (Some(server), None);
        loop {
            match question.recv_timeout(every) {
                Ok(other) => detail = other,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let connected = match server.take() {
                Some(server) => Ok(server),
                None => Watched::connect(&address),
            };
            let seen = connected.and_then(|mut connected| {
                let seen = Seen::of(&mut connected, detail.as_deref())?;
                server = Some(connected);
                Ok(seen)
            });
            if answer.send(seen).is_err() {
                return;
            }
        }
    });
    (asked, told)
}
