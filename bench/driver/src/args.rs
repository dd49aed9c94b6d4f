//! The arguments of a load generator: `name=value`, in any order.

use std::collections::HashMap;
use std::fmt::Debug;
use std::str::FromStr;
use std::sync::Arc;

/// Arguments from `compare`. Some protocols and modes have further ones.
///
/// | name | means |
/// |---|---|
/// | `url` | the server |
/// | `key` | task *t* locks `<key>:<t mod keys>` |
/// | `keys` | number of locks |
/// | `process` | number of this load generator, if there are several: part of the names of warm-up locks |
/// | `tasks` | number of tasks |
/// | `clients` | number of client instances that the tasks share: see [`client_of`](Args::client_of) |
/// | `hold_us` | time for which a lock is held |
/// | `think_us` | time between a release and the next acquire of a task |
/// | `lease_ms` | the lease |
/// | `warm_ms` | time for which each task warms up, on its own lock |
/// | `release` | `no`: the lease ends without a release |
/// | `mode` | `keep`: each task acquires once and keeps its lock: see the documentation of the crate |
/// | `at_once` | with `keep`: number of tasks that acquire at the same time |
/// | `yields` | `yes`: after a release, a task waits until another one has the lock before its next request |
#[derive(Clone, Debug)]
pub struct Args(Arc<HashMap<String, String>>);

impl Args {
    /// Reads the arguments of this process.
    pub fn read() -> Self {
        let named = |arg: String| arg.split_once('=').map(|(n, v)| (n.to_owned(), v.to_owned()));
        Self(Arc::new(std::env::args().skip(1).filter_map(named).collect()))
    }

    /// The value of the given name. Panics if there is none.
    pub fn text(&self, name: &str) -> &str {
        self.0.get(name).unwrap_or_else(|| panic!("{name}=… is missing"))
    }

    /// The value of the given name, as a number.
    pub fn number<T: FromStr<Err: Debug>>(&self, name: &str) -> T {
        self.text(name).parse().unwrap()
    }

    /// The client of a task. Tasks that contend for the same lock have different clients, if there are
    /// enough, because they represent different processes.
    pub fn client_of(&self, task: usize) -> usize {
        task / self.number::<usize>("keys") % self.number::<usize>("clients")
    }

    /// Returns whether the value is `yes`.
    pub fn is_yes(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|value| value == "yes")
    }

    /// Returns whether the value is `no`.
    pub fn is_no(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|value| value == "no")
    }
}
