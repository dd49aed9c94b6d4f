//! The servers that the tests run on.
//!
//! `scripts/servers` installs each of them under a name, as a launcher at
//! `target/servers/<name>/redis-server` with `redis-cli` beside it. The variable `KVLOCK_SERVER` names the
//! server for all tests that do not choose one themselves. Without this variable,
//! [`Server::start`](crate::Server::start) starts `redis-7.0`, and
//! [`on_each_server!`](crate::on_each_server) uses all of [`EACH`]. `KVLOCK_SERVERS` names a folder to use
//! instead of `target/servers`. A test that asks for a missing server fails: nothing is skipped. Only
//! `redis-7.0` may be missing there if a `redis-server` 7.0 is on the path.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The servers on which [`on_each_server!`](crate::on_each_server) runs a test: the oldest supported Redis, a
/// newer Redis, and a Valkey.
pub const EACH: [&str; 3] = ["redis-7.0", "redis-8.0", "valkey-8.1"];

/// A server program, by the name that `scripts/servers` gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    name: String,
}

impl Kind {
    /// The server of the given name. A start of this server panics if it is not installed.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned() }
    }

    /// The server that `KVLOCK_SERVER` names, else `redis-7.0`.
    pub fn chosen() -> Self {
        Self::named(&std::env::var("KVLOCK_SERVER").unwrap_or_else(|_| EACH[0].to_owned()))
    }

    /// The server's name, as passed to [`named`](Self::named).
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether this is Redis 7.0, which lacks much of the newer module API.
    pub fn is_redis_7_0(&self) -> bool {
        self.name == EACH[0]
    }

    /// The server's program.
    pub fn server(&self) -> PathBuf {
        self.program("redis-server")
    }

    /// The `redis-cli` that is installed with the server.
    pub fn cli(&self) -> PathBuf {
        self.program("redis-cli")
    }

    /// The version that the server's program prints.
    pub fn version(&self) -> String {
        version_of(&self.server()).unwrap_or_else(|| panic!("{self} does not say its version"))
    }

    fn program(&self, program: &str) -> PathBuf {
        let brought = servers().join(&self.name).join(program);
        if brought.exists() {
            return brought;
        }
        // A Redis 7.0 of the distribution serves as well, without a download.
        if self.is_redis_7_0()
            && installed_version().is_some_and(|version| version.starts_with("7.0."))
        {
            return PathBuf::from(program);
        }
        panic!("the server {self} is not here: run `scripts/servers {self}`");
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

fn installed_version() -> Option<String> {
    version_of(Path::new("redis-server"))
}

fn version_of(server: &Path) -> Option<String> {
    let output = Command::new(server).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split(" v=").nth(1)?.split(' ').next().map(str::to_owned)
}

/// The folder of the servers: `KVLOCK_SERVERS`, or the folder into which `scripts/servers` puts them.
fn servers() -> PathBuf {
    let named = std::env::var_os("KVLOCK_SERVERS").map(PathBuf::from);
    named.unwrap_or_else(|| workspace().join("target/servers"))
}

/// The root of the repository.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is a folder of the workspace")
}

/// Makes one `#[test]` for each of [`EACH`] out of functions that take a [`Kind`]. If `KVLOCK_SERVER` is set,
/// makes a single test, on the chosen server: see `tests/build.rs`.
///
/// ```
/// # use harness::{Kind, on_each_server};
/// fn a_grant_beats_the_timeout(kind: Kind) { /* … */ }
///
/// on_each_server!(a_grant_beats_the_timeout);
/// // a_grant_beats_the_timeout::redis_7_0, ::redis_8_0 and ::valkey_8_1, or ::kvlock_server
/// ```
#[macro_export]
macro_rules! on_each_server {
    ($($body:ident),+ $(,)?) => {$(
        mod $body {
            #[cfg(one_server)]
            #[test]
            fn kvlock_server() {
                super::$body($crate::Kind::chosen());
            }
            $crate::on_each_server!(@$body: redis_7_0 "redis-7.0", redis_8_0 "redis-8.0", valkey_8_1 "valkey-8.1");
        }
    )+};
    (@$body:ident: $($test:ident $server:literal),+) => {$(
        #[cfg(not(one_server))]
        #[test]
        fn $test() {
            super::$body($crate::Kind::named($server));
        }
    )+};
}
