//! A client process, as the campaign sees it.

use super::role::Role;
use super::said::{Grant, Said, now};
use harness::clock::Clock;
use harness::launch::{killed_with_us, launch};
use harness::wait;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// How long anything may take that must happen.
pub(super) const SOON: Duration = Duration::from_secs(60);

/// What a process has said so far.
#[derive(Debug, Default)]
struct Heard {
    said: Mutex<Vec<Said>>,
    grants: AtomicU64,
    /// It will say no more.
    over: AtomicBool,
}

/// Under what circumstances a process runs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Circumstances<'a> {
    /// The date that it sees, if it is not the machine's.
    pub(super) clock: Option<&'a Clock>,
    /// It makes way for all others.
    pub(super) nice: bool,
}

/// A client process; it is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) name: String,
    child: Mutex<Child>,
    heard: Arc<Heard>,
    /// When it was killed, by us.
    killed: Mutex<Option<u64>>,
    /// It had ended by itself, which it never should.
    gave_up: AtomicBool,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Process {
    /// Starts one, and returns when it is connected.
    pub(super) fn start(name: String, role: &Role, around: Circumstances<'_>) -> Self {
        let program = std::env::current_exe().expect("this program");
        let mut command = if around.nice {
            let mut command = killed_with_us(Path::new("nice"));
            command.args(["-n", "19"]).arg(program);
            command
        } else {
            killed_with_us(&program)
        };
        let role = serde_json::to_string(role).expect("it can be said");
        command.arg("client").arg(role).stdin(Stdio::null()).stdout(Stdio::piped());
        if let Some(clock) = around.clock {
            clock.show_to(&mut command);
        }
        let mut child = launch(command).expect("start a client");
        let heard = Arc::new(Heard::default());
        let (out, hearing) = (child.stdout.take().expect("it is piped"), heard.clone());
        thread::spawn(move || hear(out, &hearing));
        let process = Self {
            name,
            child: Mutex::new(child),
            heard,
            killed: Mutex::default(),
            gave_up: AtomicBool::default(),
        };
        wait::until("the client is connected", SOON, || match process.client() {
            Some(_) => Ok(()),
            None => Err(format!("{process:?}")),
        });
        process
    }

    /// What its owners begin with.
    pub(super) fn client(&self) -> Option<String> {
        match locked(&self.heard.said).first() {
            Some(Said::Ready { client }) => Some(client.clone()),
            _ => None,
        }
    }

    /// All that it has said.
    pub(super) fn said(&self) -> Vec<Said> {
        locked(&self.heard.said).clone()
    }

    /// How many locks it was granted.
    pub(super) fn grants(&self) -> u64 {
        self.heard.grants.load(Ordering::SeqCst)
    }

    /// The first thing that it has said, from the latest back, that this makes something of.
    pub(super) fn last<T>(&self, of: impl FnMut(&Said) -> Option<T>) -> Option<T> {
        locked(&self.heard.said).iter().rev().find_map(of)
    }

    /// The lock that it said it holds. For one that does one thing at a time.
    pub(super) fn held(&self) -> Option<Grant> {
        let latest = self.last(|said| match said {
            Said::Holds { grant, .. } => Some(Some(grant.clone())),
            Said::Ends { .. } => Some(None),
            _ => None,
        });
        latest.flatten()
    }

    /// Its first grant after the one with that token, and since when it believes. It may have given that
    /// back again when somebody looks.
    pub(super) fn granted_after(&self, token: u64) -> Option<(Grant, u64)> {
        locked(&self.heard.said).iter().find_map(|said| match said {
            Said::Holds { grant, from, .. } if grant.token > token => Some((grant.clone(), *from)),
            _ => None,
        })
    }

    /// Waits for that.
    pub(super) fn await_grant_after(&self, token: u64) {
        wait::until("it is granted the lock", SOON, || {
            self.granted_after(token).map(drop).ok_or_else(|| self.name.clone())
        });
    }

    /// Sends it a signal.
    pub(super) fn signal(&self, signal: Signal) {
        let pid = locked(&self.child).id().try_into().expect("a process id");
        kill(Pid::from_raw(pid), signal).expect("signal a client");
    }

    /// Kills it, and returns when it is gone and all that it said has been heard.
    pub(super) fn kill9(&self) {
        {
            let mut child = locked(&self.child);
            child.kill().expect("kill a client");
            let end = child.wait().expect("wait for a client");
            self.gave_up.store(end.signal() != Some(Signal::SIGKILL as i32), Ordering::SeqCst);
            locked(&self.killed).get_or_insert_with(now);
        }
        wait::until("all was heard", SOON, || {
            if self.heard.over.load(Ordering::SeqCst) { Ok(()) } else { Err(format!("{self:?}")) }
        });
    }

    /// When it was killed; until then it is to live.
    pub(super) fn killed(&self) -> Option<u64> {
        *locked(&self.killed)
    }

    /// Whether it had ended before it was killed.
    pub(super) fn gave_up(&self) -> bool {
        self.gave_up.load(Ordering::SeqCst)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ended = child.kill();
        let _reaped = child.wait();
    }
}

fn hear(out: ChildStdout, heard: &Heard) {
    for said in BufReader::new(out)
        .lines()
        .map_while(Result::ok)
        .filter_map(|l| serde_json::from_str(&l).ok())
    {
        let granted = matches!(said, Said::Holds { .. });
        locked(&heard.said).push(said);
        if granted {
            heard.grants.fetch_add(1, Ordering::SeqCst);
        }
    }
    heard.over.store(true, Ordering::SeqCst);
}
