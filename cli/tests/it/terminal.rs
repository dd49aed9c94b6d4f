//! The program on a terminal. `script(1)` creates the terminal, and reads the keys from its own stdin.

use super::{SOON, Stage, Started};
use harness::wait;
use std::io::Write as _;
use std::process::{ChildStdin, Command, Stdio};

/// A terminal on which a command runs.
struct Terminal {
    script: Started,
    keys: ChildStdin,
}

impl Terminal {
    fn of(stage: &Stage, command: &str) -> Self {
        let program = env!("CARGO_BIN_EXE_kvlock");
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--command", command, "/dev/null"]);
        script.current_dir(&stage.folder).env("KVLOCK_URL", stage.server.url());
        script.env("kvlock", program).env("SHELL", "/bin/bash").env("PS1", "$ ");
        let mut script = Started::with_input(script, Stdio::piped());
        let keys = script.child.stdin.take().unwrap();
        Self { script, keys }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    fn shows(&self, text: &str) {
        wait::until("the terminal shows it", SOON, || {
            let shown = self.script.out();
            if shown.contains(text) { Ok(()) } else { Err(shown) }
        });
    }
}

#[test]
fn a_command_reads_what_is_typed() {
    let stage = Stage::set();
    let script = r#""$kvlock" run k -- sh -c 'echo ready; read word; echo "got:$word"'; exit $?"#;
    let mut terminal = Terminal::of(&stage, script);
    terminal.shows("ready");
    terminal.press("hello\n");
    terminal.shows("got:hello");
    terminal.script.done().assert_code(0);
}

#[test]
fn the_interrupt_key_ends_a_command_that_reads_and_the_script_that_started_it() {
    let mut stage = Stage::set();
    let script = r#""$kvlock" run k -- sh -c 'echo $$ >pid; read word'; echo >went-on"#;
    let mut terminal = Terminal::of(&stage, script);
    let command = stage.process("pid");
    // The program lends the terminal to a command that reads, so the key reaches only the command.
    command.wait_until_in_foreground();
    terminal.press("\x03");
    terminal.script.done();
    command.wait_until_gone();
    assert!(stage.is_free() && !stage.path("went-on").exists());
}

#[test]
fn the_interrupt_key_ends_a_command_that_does_not_read_and_the_script_that_started_it() {
    let mut stage = Stage::set();
    let script = r#""$kvlock" run k -- sh -c 'echo $$ >pid; exec sleep 300'; echo >went-on"#;
    let mut terminal = Terminal::of(&stage, script);
    let command = stage.process("pid");
    terminal.press("\x03");
    terminal.script.done();
    command.wait_until_gone();
    assert!(stage.is_free() && !stage.path("went-on").exists());
}

#[test]
fn ctrl_z_stops_and_fg_continues() {
    let stage = Stage::set();
    let mut terminal = Terminal::of(&stage, "bash --norc --noediting -i");
    terminal.press(
        "\"$kvlock\" run --lease 60s k -- sh -c 'echo $$ >pid; read word; echo \"got:$word\"'\n",
    );
    let command = stage.process("pid");
    terminal.press("\x1a");
    terminal.shows("Stopped");
    command.wait_until_stopped();
    terminal.press("fg\n");
    terminal.press("hello\n");
    terminal.shows("got:hello");
    terminal.press("exit 3\n");
    terminal.script.done().assert_code(3);
}

#[test]
fn a_command_in_the_background_that_reads_is_stopped_until_it_is_in_the_foreground() {
    let stage = Stage::set();
    let mut terminal = Terminal::of(&stage, "bash --norc --noediting -i");
    // Makes the shell report at once that a job has stopped.
    terminal.press("set -b\n");
    terminal.press(
        "\"$kvlock\" run --lease 60s k -- sh -c 'echo $$ >pid; read word; echo \"got:$word\"' &\n",
    );
    let command = stage.process("pid");
    command.wait_until_stopped();
    terminal.shows("Stopped");
    terminal.press("fg\n");
    terminal.press("hello\n");
    terminal.shows("got:hello");
    terminal.press("exit 3\n");
    terminal.script.done().assert_code(3);
}
