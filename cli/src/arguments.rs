//! The command line. `--help` and the manual pages are generated from this file.

use crate::time::duration;
use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  kvlock run backup -- /usr/local/bin/backup --all     wait for the lock, then run it
  kvlock run --nonblock cron:report -- ./report.sh     run it unless it runs elsewhere
  kvlock run --wait 10s --lease 5s k -- sh -c 'a && b' wait 10 seconds at most
  kvlock run --with b a -- ./copy.sh a b               with two locks, taken in one step
  kvlock run --under repo repo/src -- make             beside others below repo, without a holder of repo
  kvlock once --ttl 10m report -- ./report.sh          run it once, print its output everywhere
  kvlock elect scheduler 10.0.0.7:80 -- ./scheduler    run it while it leads
  kvlock observe scheduler                             print the leader, and each later one
  kvlock info backup                                   show its holder and its waiters
  kvlock list                                          list the locks that have waiters
  kvlock top                                           the same, refreshed on a screen
  kvlock metrics --listen 127.0.0.1:9121               serve metrics to Prometheus
  kvlock release --force backup                        take it away from its holder

Exit codes of `kvlock run` and `kvlock once`, and of `kvlock elect` except 123 and 124:
  the exit code of the command, or 128 + n if it died of signal n; or
  2    the command line is wrong
  123  the lock was lost while the command ran, and the command was ended
  124  the lock was not acquired (another code: --conflict-exit-code)
  125  the server cannot be reached, or refuses
  126  the command cannot be executed
  127  the command was not found

The other subcommands exit with 0, 2 or 125.";

const RUN: &str = "\
Runs a command while holding a lock.

Waits for the lock, runs the command, renews the lease while it runs, and releases the lock \
when it ends. The command inherits standard input, output and error. It finds in its environment:

  KVLOCK_KEY    the name of the lock
  KVLOCK_OWNER  the owner of the lock
  KVLOCK_TOKEN  the fencing token: grows with every grant of the lock

The command runs in a process group of its own, to which signals are passed on. When the lock is \
about to be lost the group gets SIGTERM, and SIGKILL before the lease ends. If kvlock itself is \
killed, the group is killed.";

const ONCE: &str = "\
Prints the stored output of a command, or runs the command and stores what it prints.

Many processes that call this with the same KEY get one result: the first runs the command, the others wait \
and print its output. The output is stored at KEY, an ordinary string of the server, with exit code 0 only and \
up to 1 MiB; longer output is passed on and not stored. If the command fails, its exit code is returned and the \
next process runs it. kvlock waits until all processes that have the output have closed it, as $(…) does.

The lock is KEY with :lock behind it, as in {report}:lock. Signals, the loss of the lock and the environment are \
as with `kvlock run`; KVLOCK_KEY is KEY.";

const ONCE_EXAMPLES: &str = "\
Exit codes:
  0    the output was printed, and is stored unless a message says otherwise; or
  the exit code of the command, or 128 + n if it died of signal n; or
  2    the command line is wrong
  123  the lock was lost while the command ran, and the command was ended; or its output was not stored for that
  124  neither the result nor the lock was there in time
  125  the server cannot be reached, or refuses
  126  the command cannot be executed
  127  the command was not found

Examples:
  kvlock once --ttl 10m report -- ./report.sh
  token=$(kvlock once --ttl 55m oauth:token -- ./fetch-token.sh)
  kvlock once --ttl 1d --wait 5m artefact:$COMMIT -- ./build.sh";

const ELECT: &str = "\
Stands for election, and runs a command while it leads.

Waits for the lock NAME, and runs the command when it has it. VALUE is shown to observers, for \
example the address of this leader. When the leadership is about to be lost the command is ended, as \
`kvlock run` does it, before another candidate can lead. Then kvlock stands for election again. When the \
command ends by itself, kvlock resigns and exits with the exit code of the command. While the server \
cannot be reached kvlock waits without a limit, once it has been connected. The environment of the \
command is as with `kvlock run`; KVLOCK_TOKEN is the term.";

const ELECT_EXAMPLES: &str = "\
Examples:
  kvlock elect scheduler 10.0.0.7:80 -- ./scheduler
  kvlock elect --lease 5s scheduler $(hostname) -- sh -c 'exec ./scheduler --term $KVLOCK_TOKEN'";

const OBSERVE: &str = "\
Prints the leader, and each change, until a signal ends it or its output is closed.

One line for each state: `leads`, the term, the owner and the value; or `vacant`, and why the last term \
ended, if this program saw it: released, expired, forced, deleted, flushed, gone (its session ended), \
taken-back (its client was gone before the grant reached it) or other. If the state changes several times \
in a short time, only the last state may be printed. Terms never decrease, even after a failover. A \
Redisson client that holds the lock has the term 0.";

const EXIT_CODES: &str = "\
Exit codes:
  the exit code of the command, or 128 + n if it died of signal n; or
  2    the command line is wrong
  123  the lock was lost while the command ran, and the command was ended
  124  the lock was not acquired (another code: --conflict-exit-code)
  125  the server cannot be reached, or refuses
  126  the command cannot be executed
  127  the command was not found

Examples:
  kvlock run backup -- /usr/local/bin/backup --all
  kvlock run --nonblock -E 0 cron:report -- ./report.sh
  kvlock run --wait 10s --lease 5s k -- sh -c 'a && b'";

const METRICS: &str = "\
Prints the counters of a server in the format of Prometheus.

Prints them once, for the textfile collector of node_exporter; or serves them over HTTP with --listen. \
Each request asks the server, and kvlock_up tells whether it answered within 5 seconds. One process \
serves one server. The user needs INFO, and with --locks LOCK.PROFILE.";

const TOP: &str = "\
Shows busy locks with their holders and waiters on a screen that is refreshed.

The user needs INFO and LOCK.LIST; LOCK.PROFILE, LOCK.INFO and SESSION.LIST show more. Shows one server, \
and one database of it.

  arrows, PgUp, PgDn   choose a lock       Enter   that lock in detail; Esc goes back
  w l h t k            sort by waiters, longest wait, hand-offs a second, time waited, name
  /                    filter by a part of the name; Enter ends typing, Esc shows all
  s                    sessions            p       pause
  q                    quit";

/// Distributed locks in Redis and Valkey, from the shell
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
    /// redis-cluster://[user:password@]host[:port],…. Other users of this machine can read command lines: put a URL with a password into the environment
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
    /// Omits the URL: it may contain a password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Address").finish_non_exhaustive()
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Runs a command while holding a lock
    #[command(long_about = RUN, after_help = EXIT_CODES)]
    Run(Run),
    /// Runs a command once for many processes, and prints its output in all of them
    #[command(long_about = ONCE, after_help = ONCE_EXAMPLES)]
    Once(Once),
    /// Stands for election, and runs a command while it leads
    #[command(long_about = ELECT, after_help = ELECT_EXAMPLES)]
    Elect(Elect),
    /// Prints the leader, and each change
    #[command(long_about = OBSERVE)]
    Observe(Observe),
    /// Shows the holder and the waiters of a lock
    Info(Info),
    /// Lists the locks that have waiters, most waiters first
    List(List),
    /// Prints the counters of a server for Prometheus, once or over HTTP
    #[command(long_about = METRICS)]
    Metrics(Metrics),
    /// Shows busy locks with their holders and waiters on a screen
    #[command(long_about = TOP)]
    Top(Top),
    /// Takes a lock away from its holder, and hands it to the first waiter
    Release(Release),
    /// Prints a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Prints a manual page
    Man {
        /// The subcommand; the page of kvlock itself if there is none
        page: Option<String>,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Run {
    /// Longest time to wait for the lock, for example 10s. By default there is no limit
    #[arg(short, long, value_name = "TIME", value_parser = duration)]
    pub(crate) wait: Option<Duration>,
    /// Do not wait: fail if the lock cannot be acquired at once
    #[arg(short, long, conflicts_with = "wait")]
    pub(crate) nonblock: bool,
    /// Share the lock with other holders that do, as readers. A run without this option holds it alone
    #[arg(short, long)]
    pub(crate) shared: bool,
    /// Acquire N of the TOTAL permits of the semaphore KEY instead of a lock. The first process to use the
    /// semaphore sets TOTAL
    #[arg(short, long, value_name = "N/TOTAL", value_parser = share, conflicts_with = "shared")]
    pub(crate) permits: Option<Share>,
    /// Acquire this lock too: all of the locks are acquired at once, or none. Can be repeated
    #[arg(long, value_name = "KEY", conflicts_with = "permits")]
    pub(crate) with: Vec<OsString>,
    /// Also acquire a share of this lock, for a part of something that others may lock as a whole. Can be repeated
    #[arg(long, value_name = "KEY", conflicts_with = "permits")]
    pub(crate) under: Vec<OsString>,
    /// Lease: time after which the lock is free if this machine dies. Renewed while the command runs
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    pub(crate) lease: Duration,
    /// Keep the lock for that long after it was acquired, even if the command ends earlier. For jobs that
    /// start on many machines at about the same time, and must run once
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "permits")]
    pub(crate) hold_at_least: Option<Duration>,
    /// Bind the lock to this process: if the process dies or loses the server, the lock is free about ten
    /// seconds later, even if the lease is longer
    #[arg(long, conflicts_with_all = ["permits", "hold_at_least"])]
    pub(crate) bound: bool,
    /// Time between SIGTERM and SIGKILL when the lock is lost. Always less than a quarter of the lease
    #[arg(short, long, value_name = "TIME", value_parser = duration, default_value = "5s")]
    pub(crate) kill_after: Duration,
    /// Exit code if the lock was not acquired
    #[arg(short = 'E', long, value_name = "CODE", default_value_t = crate::failure::NOT_ACQUIRED)]
    pub(crate) conflict_exit_code: u8,
    /// The name of the lock
    pub(crate) key: OsString,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// Value of `--permits`: N of TOTAL permits.
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
pub(crate) struct Once {
    /// Time for which the output is stored, for example 10m. By default, until it is deleted or evicted
    #[arg(short, long, value_name = "TIME", value_parser = duration)]
    pub(crate) ttl: Option<Duration>,
    /// Longest time to wait for the output or the lock, for example 10s. By default there is no limit
    #[arg(short, long, value_name = "TIME", value_parser = duration)]
    pub(crate) wait: Option<Duration>,
    /// Lease: time after which another process runs the command if this machine dies. Renewed while the
    /// command runs
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    pub(crate) lease: Duration,
    /// Time between SIGTERM and SIGKILL when the lock is lost. Always less than a quarter of the lease
    #[arg(short, long, value_name = "TIME", value_parser = duration, default_value = "5s")]
    pub(crate) kill_after: Duration,
    /// The key of the output
    pub(crate) key: OsString,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct Elect {
    /// Lease: time after which another candidate can lead if this machine dies. Renewed while the command
    /// runs
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    pub(crate) lease: Duration,
    /// Time between SIGTERM and SIGKILL when the leadership is lost. Always less than a quarter of the lease
    #[arg(short, long, value_name = "TIME", value_parser = duration, default_value = "5s")]
    pub(crate) kill_after: Duration,
    /// The name of the election
    pub(crate) name: OsString,
    /// Value of this leader that observers see, up to 1,024 bytes
    pub(crate) value: OsString,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct Observe {
    /// Print each state as a line of JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// The name of the election
    pub(crate) name: OsString,
}

#[derive(Args, Debug)]
pub(crate) struct Info {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Number of waiters to show at most
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) waiters: u32,
    /// The name of the lock
    pub(crate) key: OsString,
}

#[derive(Args, Debug)]
pub(crate) struct List {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Number of locks to list at most
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) count: u32,
}

#[derive(Args, Debug)]
pub(crate) struct Metrics {
    /// Address to serve the counters at over HTTP, for example 127.0.0.1:9121, instead of printing them once
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<SocketAddr>,
    /// Also export the N locks with the longest total waiting time. Each adds time series to Prometheus
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=128))]
    pub(crate) locks: u32,
}

#[derive(Args, Debug)]
pub(crate) struct Top {
    /// Interval of refreshes, for example 2s or 500ms
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1s")]
    pub(crate) every: Duration,
}

#[derive(Args, Debug)]
pub(crate) struct Release {
    /// Required, because the former holder works on until it notices that the lock was taken away
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
    fn options_after_the_command_belong_to_the_command() {
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
