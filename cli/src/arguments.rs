//! The command line. `--help` and the manual page are made of what stands here.

use crate::time::duration;
use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  kvlock run backup -- /usr/local/bin/backup --all     wait in line, then run it
  kvlock run --nonblock cron:report -- ./report.sh     run it unless it runs elsewhere
  kvlock run --wait 10s --lease 5s k -- sh -c 'a && b' wait 10 seconds at most
  kvlock elect scheduler 10.0.0.7:80 -- ./scheduler    run it while it leads, stand by else
  kvlock observe scheduler                             who leads, from now on
  kvlock info backup                                   who holds it, and who waits
  kvlock list                                          which locks are waited for
  kvlock top                                           the same, and keeps it up to date
  kvlock metrics --listen 127.0.0.1:9121               figures for Prometheus
  kvlock release --force backup                        take it away from its holder

Exit codes of `kvlock run`, and of `kvlock elect` but for 123 and 124:
  that of the command, or 128 + n if it died of signal n; else
  2    the command line makes no sense
  123  the lock was lost, and the command ended for that
  124  the lock was not acquired (another code: --conflict-exit-code)
  125  the server cannot be reached, or refuses
  126  the command cannot be executed
  127  the command was not found

The other commands end with 0, 2 or 125.";

const RUN: &str = "\
Runs a command while holding a lock.

Waits in line for the lock, runs the command, renews the lease while it runs, and releases the lock \
when it ends. Standard input, output and error are those of kvlock. The command finds in its \
environment:

  KVLOCK_KEY    the name of the lock
  KVLOCK_OWNER  who holds it, as `kvlock info` shows it
  KVLOCK_TOKEN  the fencing token: grows with every grant of the lock

The command runs in a process group of its own, to which signals are passed on. When the lock is \
about to be lost the group gets SIGTERM, and SIGKILL before another owner can have the lock. If \
kvlock itself is killed, the group is killed.";

const ELECT: &str = "\
Stands for election, and runs a command while it leads.

Waits in line for the lock NAME, and runs the command when it has it. VALUE is what the others see \
of this leader, for example where it is to be reached. When the leadership is about to be lost the \
command is ended, as `kvlock run` does it, before another one can lead; then this stands for election \
again. When the command ends by itself it resigns, and ends with the exit code of the command. A \
server that cannot be reached is waited for, however long it takes. The command finds in its \
environment what `kvlock run` puts there; KVLOCK_TOKEN is the term.";

const ELECT_EXAMPLES: &str = "\
Examples:
  kvlock elect scheduler 10.0.0.7:80 -- ./scheduler
  kvlock elect --lease 5s scheduler $(hostname) -- sh -c 'exec ./scheduler --term $KVLOCK_TOKEN'";

const OBSERVE: &str = "\
Prints who leads, now and whenever that changes, until it is interrupted.

One line for each state: `leads`, the term, the owner and the value; or `vacant`, and how the leader \
before went: released, expired, forced, deleted, flushed. States that follow each other faster than \
they can be told are left out. Terms never go back, and a server that is replaced is followed.";

const EXIT_CODES: &str = "\
Exit codes:
  that of the command, or 128 + n if it died of signal n; else
  2    the command line makes no sense
  123  the lock was lost, and the command ended for that
  124  the lock was not acquired (another code: --conflict-exit-code)
  125  the server cannot be reached, or refuses
  126  the command cannot be executed
  127  the command was not found

Examples:
  kvlock run backup -- /usr/local/bin/backup --all
  kvlock run --nonblock -E 0 cron:report -- ./report.sh
  kvlock run --wait 10s --lease 5s k -- sh -c 'a && b'";

const METRICS: &str = "\
Prints what a server counts as Prometheus reads it.

Once, for the textfile collector of node_exporter; or with --listen over HTTP, where the server is \
asked anew for each request and kvlock_up says whether it answered. It is one server that is asked: \
give each its own. The user needs INFO, and with --locks LOCK.PROFILE.";

const TOP: &str = "\
Shows busy locks, who holds them and who waits, and keeps that up to date.

The user needs INFO and LOCK.LIST; LOCK.PROFILE, LOCK.INFO and SESSION.LIST show more. It is one server \
that is asked, and one database of it.

  arrows, PgUp, PgDn   choose a lock       Enter   that lock in detail; Esc goes back
  w l h t k            sort by waiters, longest wait, hand-offs a second, time waited, name
  /                    only names that contain what is typed; Enter ends it, Esc shows all
  s                    sessions            p       pause
  q                    quit";

/// Distributed locks of Redis and Valkey, from the shell
#[derive(Debug, Parser)]
#[command(name = "kvlock", version, after_help = EXAMPLES, propagate_version = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) server: Address,
    #[command(subcommand)]
    pub(crate) task: Task,
}

#[derive(Args)]
pub(crate) struct Address {
    /// The server: redis://[user:password@]host[:port][/db], rediss://…, unix:///path,
    /// redis-sentinel://[user:password@]host[:port],…[/db]?sentinelServiceName=name, or
    /// redis-cluster://[user:password@]host[:port],…. Others on this machine can see what is on a command line: with a password use the environment
    #[arg(
        long,
        global = true,
        env = "KVLOCK_URL",
        hide_env_values = true,
        default_value = "redis://127.0.0.1/"
    )]
    pub(crate) url: String,
}

impl std::fmt::Debug for Address {
    /// Without the URL: it may contain a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Address").finish_non_exhaustive()
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Runs a command while holding a lock
    #[command(long_about = RUN, after_help = EXIT_CODES)]
    Run(Run),
    /// Stands for election, and runs a command while it leads
    #[command(long_about = ELECT, after_help = ELECT_EXAMPLES)]
    Elect(Elect),
    /// Prints who leads, now and whenever that changes
    #[command(long_about = OBSERVE)]
    Observe(Observe),
    /// Shows who holds a lock, and who waits for it
    Info(Info),
    /// Lists the locks that are waited for, most waiters first
    List(List),
    /// Prints what a server counts as Prometheus reads it, once or over HTTP
    #[command(long_about = METRICS)]
    Metrics(Metrics),
    /// Shows busy locks, who holds them and who waits, and keeps that up to date
    #[command(long_about = TOP)]
    Top(Top),
    /// Takes a lock away from whoever holds it, and hands it to the first in line
    Release(Release),
    /// Prints a completion script for a shell
    Completions {
        /// For which shell
        shell: clap_complete::Shell,
    },
    /// Prints a manual page
    Man {
        /// Of which subcommand; without it that of kvlock
        page: Option<String>,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Run {
    /// Wait for the lock for that long at most, as in 10s; without this as long as it takes
    #[arg(short, long, value_name = "TIME", value_parser = duration)]
    pub(crate) wait: Option<Duration>,
    /// Do not wait: fail if the lock cannot be had at once
    #[arg(short, long, conflicts_with = "wait")]
    pub(crate) nonblock: bool,
    /// Share the lock with others who do, as readers; whoever runs without this runs alone
    #[arg(short, long)]
    pub(crate) shared: bool,
    /// Take N of TOTAL permits of the semaphore of that name, instead of a lock: at most TOTAL are
    /// taken at a time. The first to come says how many there are
    #[arg(short, long, value_name = "N/TOTAL", value_parser = share, conflicts_with = "shared")]
    pub(crate) permits: Option<Share>,
    /// For how long the lock stays taken if this machine dies; renewed while the command runs
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    pub(crate) lease: Duration,
    /// Let the lock stay taken for that long at least, from when it was acquired, also if the command
    /// ends earlier: for what is started on many machines at about the same time, and is to run once
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "permits")]
    pub(crate) hold_at_least: Option<Duration>,
    /// Bind the lock to this process: if it is gone, or cannot reach the server, others have the lock
    /// within ten seconds, however long the lease is
    #[arg(long, conflicts_with_all = ["permits", "hold_at_least"])]
    pub(crate) bound: bool,
    /// When the lock is lost: how long after SIGTERM to send SIGKILL. At most about a fifth of the
    /// lease, whatever is said here
    #[arg(short, long, value_name = "TIME", value_parser = duration, default_value = "5s")]
    pub(crate) kill_after: Duration,
    /// What to exit with when the lock was not acquired
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = crate::failure::NOT_ACQUIRED)]
    pub(crate) conflict_exit_code: u8,
    /// The name of the lock
    pub(crate) key: OsString,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// N of TOTAL permits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    pub(crate) wanted: u32,
    pub(crate) of: u32,
}

fn share(text: &str) -> Result<Share, String> {
    let numbers = text.split_once('/').map(|(wanted, of)| (wanted.parse(), of.parse()));
    match numbers {
        Some((Ok(wanted), Ok(of))) if (1..=of).contains(&wanted) => Ok(Share { wanted, of }),
        _ => Err("not two numbers as in 1/5, the first no larger than the second".to_owned()),
    }
}

#[derive(Args, Debug)]
pub(crate) struct Elect {
    /// For how long nobody leads if this machine dies; renewed while the command runs
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    pub(crate) lease: Duration,
    /// When the leadership is lost: how long after SIGTERM to send SIGKILL. At most about a fifth of
    /// the lease, whatever is said here
    #[arg(short, long, value_name = "TIME", value_parser = duration, default_value = "5s")]
    pub(crate) kill_after: Duration,
    /// The name of the election
    pub(crate) name: OsString,
    /// What this leader says of itself, up to 1,024 bytes
    pub(crate) value: OsString,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct Observe {
    /// Each state as a line of JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The name of the election
    pub(crate) name: OsString,
}

#[derive(Args, Debug)]
pub(crate) struct Info {
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// How many of the waiters to show at most
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) waiters: u32,
    /// The name of the lock
    pub(crate) key: OsString,
}

#[derive(Args, Debug)]
pub(crate) struct List {
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// How many locks to list at most
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) count: u32,
}

#[derive(Args, Debug)]
pub(crate) struct Metrics {
    /// Serve them over HTTP at /metrics, as in 127.0.0.1:9121, instead of printing them once
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<SocketAddr>,
    /// How many of the locks that cost most waiting to name. Each is a series of its own in Prometheus
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=128))]
    pub(crate) locks: u32,
}

#[derive(Args, Debug)]
pub(crate) struct Top {
    /// How often to look, as in 2s or 500ms
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1s")]
    pub(crate) every: Duration,
}

#[derive(Args, Debug)]
pub(crate) struct Release {
    /// Yes: whoever holds the lock goes on working until it notices
    #[arg(long)]
    pub(crate) force: bool,
    /// The name of the lock
    pub(crate) key: OsString,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    fn command(words: &[&str]) -> Vec<OsString> {
        let Task::Run(run) = Arguments::try_parse_from(words).unwrap().task else {
            panic!("{words:?} runs something");
        };
        run.command
    }

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn options_after_the_command_are_the_commands() {
        let expected = ["ls", "--wait", "1"];
        assert_eq!(command(&["kvlock", "run", "k", "--", "ls", "--wait", "1"]), expected);
        assert_eq!(command(&["kvlock", "run", "k", "ls", "--wait", "1"]), expected);
        assert_eq!(command(&["kvlock", "run", "--nonblock", "k", "ls", "--wait", "1"]), expected);
    }

    #[test]
    fn an_unknown_option_is_not_taken_for_the_command() {
        assert!(Arguments::try_parse_from(["kvlock", "run", "k", "--nonblok", "ls"]).is_err());
    }

    #[test]
    fn the_server_may_be_named_before_or_after_the_subcommand() {
        for words in [["kvlock", "--url", "u", "list"], ["kvlock", "list", "--url", "u"]] {
            assert_eq!(Arguments::try_parse_from(words).unwrap().server.url, "u");
        }
    }
}
