//! `kvlock top` on a terminal that `script(1)` makes.

use super::older::Older;
use super::process::Process;
use super::{SOON, Stage, Started};
use harness::{Connection, cmd, observe, wait};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::Write as _;
use std::process::{ChildStdin, Command, Stdio};
use tempfile::TempDir;

/// A terminal of the given number of lines and columns, on which `kvlock top` runs.
struct Terminal {
    script: Started,
    keys: ChildStdin,
    size: (u16, u16),
}

impl Terminal {
    fn of(stage: &Stage, size: (u16, u16)) -> Self {
        Self::at(&stage.server.url(), &stage.folder, size)
    }

    fn at(url: &str, folder: &TempDir, (rows, columns): (u16, u16)) -> Self {
        let command = format!(
            "stty rows {rows} cols {columns}; stty -g >before; echo $$ >pid; \"$kvlock\" top --every 100ms; \
             echo \"code:$?\"; stty -g >after"
        );
        let mut script = Command::new("script");
        script.args(["--quiet", "--command", &command, "/dev/null"]);
        script.current_dir(folder).env("KVLOCK_URL", url);
        script.env("kvlock", env!("CARGO_BIN_EXE_kvlock")).env("TERM", "xterm-256color");
        let mut script = Started::with_input(script, Stdio::piped());
        let keys = script.child.stdin.take().unwrap();
        Self { script, keys, size: (rows, columns) }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    fn screen(&self) -> vt100::Screen {
        let (rows, columns) = self.size;
        let mut terminal =
            vt100::Parser::new(rows.try_into().unwrap(), columns.try_into().unwrap(), 0);
        terminal.process(self.script.out().as_bytes());
        terminal.screen().clone()
    }

    /// Waits for a screen that the condition holds for.
    fn shows(&self, what: &str, holds: impl Fn(&str) -> bool) -> String {
        wait::until(what, SOON, || {
            let screen = self.screen();
            let shown = screen.contents();
            if screen.alternate_screen() && holds(&shown) { Ok(shown) } else { Err(shown) }
        })
    }

    /// Waits until the program has ended with `code`, and checks that the terminal is restored.
    fn left(self, stage: &Stage, code: u8) {
        let end = format!("code:{code}");
        wait::until("it has ended", SOON, || {
            let shown = self.screen().contents();
            if shown.contains(&end) { Ok(()) } else { Err(shown) }
        });
        assert!(!self.screen().alternate_screen() && !self.screen().hide_cursor());
        assert_eq!(stage.line("before"), stage.line("after"));
    }
}

/// A lock with a holder and two waiters, and another with control characters in its name.
fn crowd(stage: &mut Stage) -> Vec<Connection> {
    let (bad, key) = (b"bad\x1b[2Jname".as_slice(), b"orders:42".as_slice());
    let mut waiters = Vec::new();
    for (key, owners) in [(key, &["alice", "bob", "carol"][..]), (bad, &["dave", "erin"])] {
        let mut holder = stage.server.connect();
        holder.call(cmd!["LOCK.ACQUIRE", key, owners[0], 600_000]);
        for owner in &owners[1..] {
            let mut waiter = stage.server.connect();
            let id = waiter.client_id();
            waiter.send(cmd!["LOCK.WAIT", key, owner, 600_000, 0]);
            observe::wait_until_blocked(&mut stage.control, id);
            waiters.push(waiter);
        }
    }
    waiters
}

fn place(screen: &str, what: &str) -> usize {
    screen.lines().position(|line| line.contains(what)).unwrap_or(usize::MAX)
}

#[test]
fn it_shows_busy_locks_in_a_small_and_in_a_large_terminal() {
    for size in [(24, 80), (60, 200)] {
        let mut stage = Stage::set();
        let _waiters = crowd(&mut stage);
        let mut terminal = Terminal::of(&stage, size);
        let shown = terminal.shows("both locks", |it| it.contains("alice") && it.contains("pause"));
        for what in
            ["LOCK", "WAITERS", "LONGEST", "HAND/s", "OWNER", "q quit", "waiters 3", "at 2 locks"]
        {
            assert!(shown.contains(what), "{what} is not in\n{shown}");
        }
        assert!(
            shown.contains("bad\\u{1b}[2Jname")
                && place(&shown, "orders:42") < place(&shown, "bad")
        );
        terminal.press("k");
        terminal.shows("them by name", |it| place(it, "bad") < place(it, "orders:42"));
        terminal.press("/ord");
        terminal.shows("one of them", |it| it.contains("/ord") && !it.contains("bad"));
        terminal.press("\r\r");
        let shown =
            terminal.shows("it in detail", |it| it.contains("PLACE") && it.contains("carol"));
        assert!(shown.contains("state held") && shown.contains("owner alice"), "{shown}");
        assert!(place(&shown, "bob") < place(&shown, "carol"), "{shown}");
        terminal.press("s");
        terminal.shows("sessions", |it| it.contains("OUTCOMES"));
        terminal.press("q");
        terminal.left(&stage, 0);
    }
}

#[test]
fn it_connects_again_after_a_restart_of_the_server() {
    let stage = Stage::set();
    let mut terminal = Terminal::of(&stage, (24, 80));
    terminal.shows("no lock", |it| it.contains("no lock has waiters"));
    stage.server.kill9();
    let gone = format!("127.0.0.1:{}: ", stage.server.port());
    terminal.shows("that it is gone", |it| it.contains(&gone));
    stage.server.restart();
    terminal.shows("that it is back", |it| !it.contains(&gone) && it.contains("no lock has"));
    terminal.press("\x03");
    terminal.left(&stage, 0);
}

#[test]
fn a_signal_restores_the_terminal() {
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT] {
        let stage = Stage::set();
        let terminal = Terminal::of(&stage, (24, 80));
        terminal.shows("it", |it| it.contains("kvlock top"));
        let shell: i32 = stage.line("pid").parse().unwrap();
        let top = super::process::children_of(shell).next().expect("it runs").0;
        kill(Pid::from_raw(top), signal).unwrap();
        terminal.left(&stage, 0);
    }
}

#[test]
fn it_ends_with_its_terminal() {
    let stage = Stage::set();
    let mut terminal = Terminal::of(&stage, (24, 80));
    terminal.shows("it", |it| it.contains("kvlock top"));
    let shell: i32 = stage.line("pid").parse().unwrap();
    let top = super::process::children_of(shell).next().expect("it runs").0;
    let top = Process::of_the_test(top);
    terminal.script.child.kill().unwrap();
    top.wait_until_gone();
}

#[test]
fn it_works_with_an_older_module() {
    let (older, folder) = (Older::start(), TempDir::with_prefix("kvlock-cli-").unwrap());
    let mut terminal = Terminal::at(&older.url(), &folder, (24, 80));
    terminal.shows("no times", |it| it.contains("waited unknown  held unknown"));
    terminal.press("s");
    terminal.shows("no sessions", |it| it.contains("this server has no SESSION.LIST"));
    terminal.press("q");
    wait::until("it has ended", SOON, || {
        let shown = terminal.screen().contents();
        if shown.contains("code:0") { Ok(()) } else { Err(shown) }
    });
}

#[test]
fn a_missing_terminal_or_right_is_reported() {
    let mut stage = Stage::set();
    let done = stage.start(&["top"]).done();
    done.assert_code(2);
    assert!(done.err.contains("needs a terminal"), "{done:?}");
    stage.control.run("ACL SETUSER default -lock.list");
    let done = stage.start(&["top"]).done();
    done.assert_code(125);
    assert!(done.err.contains("LOCK.LIST") && done.out.is_empty(), "{done:?}");
    stage.control.run("ACL SETUSER default -info");
    let done = stage.start(&["top"]).done();
    done.assert_code(125);
    assert!(done.err.contains("denies") && done.err.lines().count() == 1, "{done:?}");
}
