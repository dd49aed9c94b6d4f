//! A real server process.

use crate::kind::Kind;
use crate::launch::{killed_with_us, launch};
use crate::options::Options;
use crate::resp::{Connection, Value};
use crate::{cmd, port, wait};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const START: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(5);
/// Time until `SIGTERM` is sent again. Longer than a primary that shuts down waits for its replicas.
const ASK_AGAIN: Duration = Duration::from_secs(11);
const PORTS_TO_TRY: usize = 20;

/// A server process with its own folder and port, ended when this is dropped. If the test panics, the end of
/// the log is printed and the folder is kept.
#[derive(Debug)]
pub struct Server {
    options: Options,
    port: u16,
    dir: PathBuf,
    temporary: Option<TempDir>,
    child: Mutex<Child>,
}

impl Server {
    /// Starts the server that `KVLOCK_SERVER` names, or `redis-7.0`, with the module and default options.
    pub fn start() -> Self {
        Self::options().start()
    }

    /// The options of [`start`](Self::start), which the caller can change before it starts the server.
    pub fn options() -> Options {
        Options::new()
    }

    pub(crate) fn launch(options: Options) -> Self {
        let temporary = options.dir.is_none().then(|| options.temporary_dir());
        let dir = options
            .dir
            .clone()
            .or_else(|| temporary.as_ref().map(|t| t.path().to_owned()))
            .unwrap();
        for _ in 0..PORTS_TO_TRY {
            let port = options.port.unwrap_or_else(port::free);
            fs::write(config_path(&dir), options.file(port, &dir))
                .expect("write the configuration");
            let child = Mutex::new(begin(&options, &dir));
            match wait_for_answer(&child, port, &dir) {
                Ok(()) => {
                    return Self { options, port, dir, temporary, child };
                }
                // Another process bound the port after it was found free.
                Err(log) if options.port.is_none() && log.contains("Address already in use") => {}
                Err(log) => {
                    panic!("{} did not start on port {port}:\n{log}", options.chosen_kind())
                }
            }
        }
        panic!("{PORTS_TO_TRY} free ports were all taken by the time they were bound");
    }

    /// The program of this server.
    pub fn kind(&self) -> &Kind {
        self.options.chosen_kind()
    }

    /// The port that it listens on, at 127.0.0.1; stays the same across [`restart`](Self::restart).
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its address as a URL for redis-rs.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// The folder with its configuration, log and data.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The id of its process, which changes with a restart.
    pub fn pid(&self) -> u32 {
        self.child.lock().unwrap().id()
    }

    /// A new connection, in RESP2.
    pub fn connect(&self) -> Connection {
        Connection::open(self.port)
            .unwrap_or_else(|e| panic!("cannot connect to port {}: {e}", self.port))
    }

    /// A new connection that has switched to the given protocol, 2 or 3, with `HELLO`.
    pub fn connect_resp(&self, protocol: u8) -> Connection {
        let mut connection = self.connect();
        connection.hello(protocol);
        connection
    }

    /// Its log, including the parts from before restarts.
    pub fn log(&self) -> String {
        read_log(&self.dir)
    }

    /// Sends a signal to the process.
    pub fn signal(&self, signal: Signal) {
        let pid = self.pid().try_into().expect("a process id");
        kill(Pid::from_raw(pid), signal).expect("signal the server");
    }

    /// Stops the process with `SIGSTOP`, and returns when it is stopped. `SIGCONT` resumes it.
    pub fn stand_still(&self) {
        self.signal(Signal::SIGSTOP);
        let stat = format!("/proc/{}/stat", self.pid());
        wait::until("the server stands still", PATIENCE, || {
            let stat = fs::read_to_string(&stat).map_err(|e| e.to_string())?;
            if stat.contains(") T ") { Ok(()) } else { Err(stat) }
        });
    }

    /// Kills it with SIGKILL, and returns when the process has ended.
    pub fn kill9(&self) {
        let mut child = self.child.lock().unwrap();
        child.kill().expect("kill the server");
        child.wait().expect("wait for the server");
    }

    /// Shuts it down with SIGTERM, and returns when the process has ended.
    pub fn shut_down(&self) {
        let mut asked: Option<Instant> = None;
        wait::until("the server has shut down", START, || {
            match self.child.lock().unwrap().try_wait() {
                Ok(Some(_)) => return Ok(()),
                Ok(None) => {}
                Err(error) => return Err(error.to_string()),
            }
            // A replica that has just synchronized does not shut down while it writes its first append-only
            // file. So `SIGTERM` is sent again.
            if asked.is_none_or(|at| at.elapsed() > ASK_AGAIN) {
                self.signal(Signal::SIGTERM);
                asked = Some(Instant::now());
            }
            Err("it runs".to_owned())
        });
    }

    /// Kills the server if it runs, and starts it again with the same port, folder and configuration file.
    /// Returns when it answers.
    pub fn restart(&self) {
        if self.is_running() {
            self.kill9();
        }
        *self.child.lock().unwrap() = begin(&self.options, &self.dir);
        if let Err(log) = wait_for_answer(&self.child, self.port, &self.dir) {
            panic!("{} did not start again on port {}:\n{log}", self.kind(), self.port);
        }
    }

    /// Starts the server again after it has ended. Does not wait until the server answers.
    pub fn begin_again(&self) {
        *self.child.lock().unwrap() = begin(&self.options, &self.dir);
    }

    /// Deletes the server's snapshot and append-only files, so that it starts empty next time. The server
    /// must not run.
    pub fn forget(&self) {
        assert!(!self.is_running(), "{} would write its data again", self.kind());
        for name in ["dump.rdb", "appendonlydir"] {
            let path = self.dir.join(name);
            let gone =
                if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            match gone {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    panic!("{}: {error}", path.display())
                }
                _ => {}
            }
        }
    }

    /// Returns whether the process has not ended; it may still be stuck or stopped.
    pub fn is_running(&self) -> bool {
        matches!(self.child.lock().unwrap().try_wait(), Ok(None))
    }

    /// Returns whether it runs and answers commands on a new connection, each within five seconds.
    pub fn is_alive(&self) -> bool {
        self.is_running() && answers(self.port, self.pid()).is_ok()
    }

    /// Panics with the end of the log unless the server [is alive](Self::is_alive).
    pub fn assert_alive(&self) {
        assert!(
            self.is_alive(),
            "the server is dead or stuck; its log ends:\n{}",
            tail(&self.log())
        );
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A memory checker in which the server runs reports only when the server shuts down normally.
        if std::env::var_os("KVLOCK_END_IN_ORDER").is_some()
            && !std::thread::panicking()
            && self.is_running()
        {
            self.shut_down();
        }
        // The results do not matter: the child may have ended already.
        let child = self.child.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        let _ended = child.kill();
        let _reaped = child.wait();
        if std::thread::panicking() {
            if let Some(temporary) = self.temporary.take() {
                let _kept = temporary.keep();
            }
            let (kind, port, dir) = (self.options.chosen_kind(), self.port, self.dir.display());
            eprintln!(
                "--- {kind} on port {port}, kept in {dir}; its log ends:\n{}",
                tail(&read_log(&self.dir))
            );
        }
    }
}

fn begin(options: &Options, dir: &Path) -> Child {
    let log = File::options().create(true).append(true).open(log_path(dir)).expect("open the log");
    let mut command = killed_with_us(&options.chosen_kind().server());
    command.envs(options.env.iter().map(|(name, value)| (name, value)));
    command.arg(config_path(dir)).args(options.sentinel.then_some("--sentinel"));
    command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    launch(command).unwrap_or_else(|e| panic!("cannot start {}: {e}", options.chosen_kind()))
}

/// Ok when the server answers, Err with the end of its log when it has ended. Panics after [`START`].
fn wait_for_answer(child: &Mutex<Child>, port: u16, dir: &Path) -> Result<(), String> {
    wait::until("the server answers", START, || {
        let mut child = child.lock().unwrap();
        if let Ok(Some(status)) = child.try_wait() {
            return Ok(Err(format!("it ended with {status}\n{}", tail(&read_log(dir)))));
        }
        match answers(port, child.id()) {
            Ok(()) => Ok(Ok(())),
            Err(seen) => Err(format!("{seen}\n{}", tail(&read_log(dir)))),
        }
    })
}

/// Ok if the server with that process id is ready for commands. Another process may have bound the port
/// first, so the process id is compared, unless the server wants a password.
fn answers(port: u16, pid: u32) -> Result<(), String> {
    let mut connection = Connection::open(port).map_err(|e| e.to_string())?;
    let mut ask = |command| {
        connection.send(command);
        connection.receive(PATIENCE).map_err(|e| e.to_string())
    };
    let answer = ask(cmd!["PING"])?;
    match &answer {
        // A server that wants a password first is up; one that is loading is not.
        Value::Error { code, .. } if code == "NOAUTH" => Ok(()),
        Value::Status(text) if text == "PONG" => {
            let info = ask(cmd!["INFO", "server"])?.to_string();
            let ours = info.contains(&format!("process_id:{pid}\\r"));
            if ours { Ok(()) } else { Err(format!("port {port} is another server's: {info}")) }
        }
        _ => Err(answer.to_string()),
    }
}

fn config_path(dir: &Path) -> PathBuf {
    dir.join("server.conf")
}

fn log_path(dir: &Path) -> PathBuf {
    dir.join("server.log")
}

fn read_log(dir: &Path) -> String {
    String::from_utf8_lossy(&fs::read(log_path(dir)).unwrap_or_default()).into_owned()
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}
