//! A name server that does not answer.

use super::process::Started;
use nix::sys::signal::Signal;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// A library that is preloaded, and takes a minute to resolve a name.
struct Resolver {
    library: PathBuf,
    _folder: TempDir,
}

impl Resolver {
    fn compile() -> Self {
        let folder = TempDir::with_prefix("kvlock-cli-").unwrap();
        let library = folder.path().join("slow_resolver.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/slow_resolver.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"]).arg(&library).arg(source);
        assert!(compiler.status().unwrap().success());
        Self { library, _folder: folder }
    }

    fn kvlock(&self, arguments: &[&str]) -> Started {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kvlock"));
        command.args(arguments).env("LD_PRELOAD", &self.library);
        command.env("KVLOCK_URL", "redis://kvlock.test/");
        Started::new(command)
    }
}

#[test]
fn the_program_ends_in_time_though_the_resolver_does_not_answer() {
    let resolver = Resolver::compile();
    let all = [
        &["run", "k", "true"][..],
        &["run", "--wait", "1s", "k", "true"],
        &["run", "--nonblock", "k", "true"],
        &["elect", "k", "value", "true"],
        &["observe", "k"],
        &["info", "k"],
        &["list"],
        &["release", "--force", "k"],
        &["metrics"],
        &["top"],
    ];
    let started = all.map(|arguments| resolver.kvlock(arguments));
    for program in started {
        let done = program.done();
        done.assert_code(125);
        assert!(done.err.ends_with(": the server did not answer in time\n"), "{done:?}");
    }
}

#[test]
fn a_signal_ends_the_program_though_the_resolver_does_not_answer() {
    let resolver = Resolver::compile();
    let program = resolver.kvlock(&["run", "k", "true"]);
    program.wait_until_blocked(Signal::SIGTERM);
    program.signal(Signal::SIGTERM);
    program.done().assert_code(143);
}
