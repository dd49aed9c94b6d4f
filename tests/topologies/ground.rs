//! What the servers are to each other, and what can happen to them.

use crate::round::Moment;
use crate::way::Way;
use harness::Server;
use harness::random::Random;
use std::time::Duration;

/// Servers under load.
pub(crate) trait Ground: Sized + 'static {
    /// What can happen to them.
    const FAULTS: &'static [Fault<Self>];

    /// Whether that one of them happens with these settings.
    fn happens(&self, _fault: &str) -> bool {
        true
    }

    /// What holds with these settings.
    fn promises(&self) -> Promises;

    /// The ways to the locks, each with connections of its own.
    fn ways(&self) -> impl Future<Output = Vec<Way>>;

    /// The locks of a round.
    fn keys(&self, round: u64) -> Vec<String>;

    /// The leases that are asked for.
    fn leases(&self) -> Vec<Duration>;

    /// The ports of those that are the primary of something.
    fn primaries(&self) -> Vec<u16> {
        Vec::new()
    }

    /// Returns when the servers are in order again.
    fn recover(&self);

    /// What of these locks is still there.
    fn left_behind(&self, keys: &[String]) -> Vec<String>;

    /// All servers.
    fn servers(&self) -> Vec<&Server>;

    /// What has crashed.
    fn crashes(&self) -> Vec<String> {
        self.servers().into_iter().filter_map(crash).collect()
    }
}

/// What holds whatever happens. Whatever the settings are, nothing stale is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promises {
    /// No two believe to hold the same lock, and a later grant has the larger token. Otherwise only
    /// one of a primary that was deposed may have a smaller one.
    pub(crate) no_overlap: bool,
    /// Nobody is told of a loss before the lease is over.
    pub(crate) no_loss: bool,
}

/// Something that can happen to these servers.
pub(crate) struct Fault<G> {
    pub(crate) name: &'static str,
    /// How often it comes, beside the others.
    pub(crate) weight: u64,
    pub(crate) act: fn(&G, &mut Moment<'_>, &mut Random),
}

/// Whether a server has crashed or is stuck, other than by what was done to it.
fn crash(server: &Server) -> Option<String> {
    let log = server.log();
    let reported = ["BUG REPORT", "ASSERTION FAILED", "crashed by signal"];
    let report = log.lines().find(|line| reported.iter().any(|word| line.contains(word)));
    if let Some(line) = report {
        return Some(format!("the server on port {} crashed: {line}", server.port()));
    }
    (!server.is_alive()).then(|| format!("the server on port {} is dead or stuck", server.port()))
}

/// What can be done to any server that is up, by a command.
pub(crate) mod commands {
    use super::Moment;
    use harness::random::Random;
    use harness::{Server, cmd};
    use std::time::Duration;

    pub(crate) fn kill_clients(server: &Server, moment: &mut Moment<'_>) {
        let mut connection = server.connect();
        moment.is(|| connection.call(cmd!["CLIENT", "KILL", "TYPE", "normal"]));
    }

    pub(crate) fn pause(
        server: &Server,
        which: &str,
        moment: &mut Moment<'_>,
        random: &mut Random,
    ) {
        let time = 50 + random.below(250);
        server.connect().call(cmd!["CLIENT", "PAUSE", time, which]);
        moment.lasts(Duration::from_millis(time));
    }

    /// Longer than the short leases, and shorter than what a failover begins with.
    pub(crate) fn sleep(server: &Server, moment: &mut Moment<'_>, random: &mut Random) {
        let time = format!("0.{}", 10 + random.below(50));
        let mut connection = server.connect();
        moment.is(|| connection.call(cmd!["DEBUG", "SLEEP", time]));
    }

    pub(crate) fn stop_for_a_moment(server: &Server, moment: &mut Moment<'_>, random: &mut Random) {
        let time = Duration::from_millis(50 + random.below(500));
        moment.is(|| {
            server.signal(nix::sys::signal::Signal::SIGSTOP);
            std::thread::sleep(time);
            server.signal(nix::sys::signal::Signal::SIGCONT);
        });
    }
}
