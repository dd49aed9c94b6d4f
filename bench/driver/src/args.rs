//! The arguments of a load generator: `name=value`, in any order.

use std::collections::HashMap;
use std::fmt::Debug;
use std::str::FromStr;
use std::sync::Arc;

/// Arguments from `compare`.
///
/// | name | means |
/// |---|---|
/// | `url` | the server |
/// | `key` | task *t* locks `<key>:<t mod keys>` |
/// | `keys` | how many locks |
/// | `process` | which load generator of several this is: warm-up locks are named after it |
/// | `tasks` | how many tasks |
/// | `clients` | how many instances of the client they share: see [`client_of`](Args::client_of) |
/// | `hold_us` | how long a lock is held |
/// | `think_us` | time between a release and the next acquire of a task |
/// | `lease_ms` | the lease |
/// | `warm_ms` | how long each task warms up, on a lock of its own |
/// | `release` | `no`: the lease is left to end |
/// | `mode` | `keep`: each task acquires once and keeps the lock; prints when the first and the last had it |
/// | `at_once` | with `keep`: how many tasks acquire at the same time |
/// | `yields` | `yes`: a task that has released waits until another one has the lock before it asks again |
#[derive(Clone, Debug)]
pub struct Args(Arc<HashMap<String, String>>);

impl Args {
    /// Reads the arguments of this process.
    pub fn read() -> Self {
        let named = |arg: String| arg.split_once('=').map(|(n, v)| (n.to_owned(), v.to_owned()));
        Self(Arc::new(std::env::args().skip(1).filter_map(named).collect()))
    }

    /// The value of that name; without it the process ends.
    pub fn text(&self, name: &str) -> &str {
        self.0.get(name).unwrap_or_else(|| panic!("{name}=… is missing"))
    }

    /// The same as a number.
    pub fn number<T: FromStr<Err: Debug>>(&self, name: &str) -> T {
        self.text(name).parse().unwrap()
    }

    /// The client of a task. Tasks that want the same lock have different ones if there are enough:
    /// they stand for different processes.
    pub fn client_of(&self, task: usize) -> usize {
        task / self.number::<usize>("keys") % self.number::<usize>("clients")
    }

    /// Whether it says `name=yes`.
    pub fn is_yes(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|value| value == "yes")
    }

    /// Whether it says `name=no`.
    pub fn is_no(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|value| value == "no")
    }
}
