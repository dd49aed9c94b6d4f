//! The contenders: programs and protocols that are compared.

/// The server that a contender needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Needs {
    /// A Redis with the module, and with limits that admit all waiters of a measurement.
    Module,
    /// A Redis with the module and `kvlock.redisson-channel no`.
    SilentModule,
    /// A Redis with the module and `io-threads 3`.
    ThreadedModule,
    /// A Redis without the module.
    Redis,
    Etcd,
    Postgres,
    ZooKeeper,
}

/// A load generator.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Program {
    /// A program of this package.
    Ours(&'static str),
    /// A program that `scripts/bench` has installed under this name.
    Peer(&'static str),
}

#[derive(Debug)]
pub(crate) struct Contender {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) program: Program,
    /// The program's argument `proto`: a protocol or a method.
    pub(crate) proto: &'static str,
    pub(crate) needs: Needs,
    /// Commands that are counted for each cycle. Commands that the contender's scripts call are left out,
    /// because the server counts these calls too.
    pub(crate) sends: &'static [&'static str],
    /// Largest number of processes if each task has its own client.
    pub(crate) processes: usize,
    /// Scenarios that grow the number of waiters stop at this number.
    pub(crate) waiters: usize,
    pub(crate) warm_ms: u64,
    /// Seconds at the start of a contended measurement that are not counted, beside the time until all tasks
    /// wait.
    pub(crate) settle: f64,
    /// Number of tasks that start to wait in one second.
    pub(crate) in_line_per_s: f64,
    /// `true` if all tasks share one client, and so one session, in every scenario.
    pub(crate) is_one_client: bool,
}

const RAW: Contender = Contender {
    name: "",
    about: "",
    program: Program::Ours("raw"),
    proto: "",
    needs: Needs::Redis,
    sends: &[],
    processes: 1,
    waiters: 5_000,
    warm_ms: 100,
    settle: 0.1,
    in_line_per_s: 3_000.0,
    is_one_client: false,
};

const LIBRARY: Contender =
    Contender { processes: 10, waiters: 100, warm_ms: 300, settle: 0.2, ..RAW };

pub(crate) const ALL: &[Contender] = &[
    Contender {
        name: "kvlock",
        about: "`LOCK.*` commands, raw connections",
        proto: "kvlock",
        needs: Needs::Module,
        sends: &["lock.acquire", "lock.wait", "lock.release", "sem.acquire", "sem.release"],
        ..RAW
    },
    Contender {
        name: "kvlock session",
        about: "waits through one session, two connections",
        proto: "session",
        needs: Needs::Module,
        sends: &["lock.wait", "lock.release", "session.next"],
        waiters: 1_000_000,
        in_line_per_s: 30_000.0,
        is_one_client: true,
        ..RAW
    },
    Contender {
        name: "kvlock, crowd",
        about: "other clients, beside a crowd of waits of one session",
        proto: "kvlock",
        needs: Needs::Module,
        ..RAW
    },
    Contender {
        name: "kvlock, quiet",
        about: "the same clients with the server to themselves",
        proto: "kvlock",
        needs: Needs::Module,
        ..RAW
    },
    Contender {
        name: "kvlock, silent",
        about: "the same with `kvlock.redisson-channel no`",
        proto: "kvlock",
        needs: Needs::SilentModule,
        sends: &["lock.acquire", "lock.wait", "lock.release"],
        ..RAW
    },
    Contender {
        name: "kvlock, I/O threads",
        about: "the same with `io-threads 3`, on the one core that every server has",
        proto: "kvlock",
        needs: Needs::ThreadedModule,
        sends: &["lock.acquire", "lock.wait", "lock.release"],
        ..RAW
    },
    Contender {
        name: "kvlock crate",
        about: "the Rust client with watchdog",
        program: Program::Ours("by-crate"),
        proto: "crate",
        needs: Needs::Module,
        sends: &[
            "lock.acquire",
            "lock.wait",
            "lock.release",
            "lock.renew",
            "lock.cancel",
            "session.next",
        ],
        waiters: 1_000,
        ..LIBRARY
    },
    Contender {
        name: "kvlock crate, bound",
        about: "locks bound to its session",
        program: Program::Ours("by-crate"),
        proto: "crate",
        needs: Needs::Module,
        ..LIBRARY
    },
    Contender {
        name: "kvlock bound",
        about: "`Lock::bound` of the crate, a session of 2 s",
        program: Program::Ours("by-crate"),
        proto: "bound",
        needs: Needs::Module,
        ..LIBRARY
    },
    Contender {
        name: "kvlock watched",
        about: "the crate's watchdog, leases of 2 s",
        program: Program::Ours("by-crate"),
        proto: "watched",
        needs: Needs::Module,
        ..LIBRARY
    },
    Contender {
        name: "kvlock election",
        about: "`Election` of the crate",
        program: Program::Ours("by-crate"),
        proto: "election",
        needs: Needs::Module,
        ..LIBRARY
    },
    Contender {
        name: "redis-rs",
        about: "the crate's two commands by plain redis-rs, `TCP_NODELAY`",
        program: Program::Ours("by-crate"),
        proto: "redis-rs",
        needs: Needs::Module,
        sends: &["lock.acquire", "lock.release"],
        ..LIBRARY
    },
    Contender {
        name: "redis-rs default",
        about: "the same as redis-rs connects by default",
        program: Program::Ours("by-crate"),
        proto: "redis-rs-default",
        needs: Needs::Module,
        sends: &["lock.acquire", "lock.release"],
        ..LIBRARY
    },
    Contender {
        name: "redis-rs, waiting",
        about: "a connection of redis-rs for each waiter, which blocks in `LOCK.WAIT`",
        program: Program::Ours("by-crate"),
        proto: "redis-rs-wait",
        needs: Needs::Module,
        sends: &["lock.wait", "lock.release"],
        waiters: 1_000,
        ..LIBRARY
    },
    Contender {
        name: "Lua + pub/sub",
        about: "Redisson's protocol, raw connections",
        proto: "lua",
        sends: &["evalsha", "subscribe", "unsubscribe"],
        ..RAW
    },
    Contender {
        name: "Lua counter",
        about: "the protocol of its semaphore without leases, raw connections",
        proto: "counter",
        sends: &["evalsha"],
        ..RAW
    },
    Contender {
        name: "Redisson",
        about: "Java",
        program: Program::Peer("redisson"),
        sends: &["evalsha", "eval", "subscribe", "unsubscribe", "ping"],
        processes: 2,
        warm_ms: 1_500,
        settle: 1.5,
        ..LIBRARY
    },
    Contender {
        name: "redsync",
        about: "Go, go-redis",
        program: Program::Peer("go"),
        proto: "redsync",
        sends: &["set", "evalsha"],
        ..LIBRARY
    },
    Contender {
        name: "rueidislock",
        about: "Go, rueidis, client-side caching",
        program: Program::Peer("go"),
        proto: "rueidislock",
        sends: &["set", "evalsha"],
        ..LIBRARY
    },
    Contender {
        name: "redis-py Lock",
        about: "Python, threads",
        program: Program::Peer("redis-py"),
        sends: &["set", "evalsha"],
        ..LIBRARY
    },
    Contender {
        name: "rslock",
        about: "Rust",
        program: Program::Peer("rslock"),
        sends: &["set", "evalsha", "eval"],
        ..LIBRARY
    },
    Contender {
        name: "redlock (npm)",
        about: "Node, `@sesamecare-oss/redlock`, ioredis",
        program: Program::Peer("node-redlock"),
        sends: &["evalsha"],
        ..LIBRARY
    },
    Contender {
        name: "etcd",
        about: "`concurrency.Mutex`, Go",
        program: Program::Peer("go"),
        proto: "etcd",
        needs: Needs::Etcd,
        processes: 2,
        ..LIBRARY
    },
    Contender {
        name: "ZooKeeper",
        about: "`InterProcessMutex` of Curator, Java",
        program: Program::Peer("zookeeper"),
        proto: "zookeeper",
        needs: Needs::ZooKeeper,
        ..LIBRARY
    },
    Contender {
        name: "etcd election",
        about: "`concurrency.Election`, Go",
        program: Program::Peer("go"),
        proto: "etcd-election",
        needs: Needs::Etcd,
        ..LIBRARY
    },
    Contender {
        name: "SET NX poller",
        about: "`SET NX PX` every 100 ms, raw",
        proto: "poller",
        ..RAW
    },
    Contender {
        name: "kvlock set",
        about: "`Lock::and` of the crate: all in one step",
        program: Program::Ours("by-crate"),
        proto: "crate",
        needs: Needs::Module,
        sends: &["lock.acquire", "lock.wait", "lock.release", "lock.renew", "session.next"],
        waiters: 1_000,
        ..LIBRARY
    },
    Contender {
        name: "kvlock sorted",
        about: "the crate, one lock after the other in the order of their names",
        program: Program::Ours("by-crate"),
        proto: "sorted",
        needs: Needs::Module,
        sends: &["lock.acquire", "lock.wait", "lock.release", "lock.renew", "session.next"],
        waiters: 1_000,
        ..LIBRARY
    },
    Contender {
        name: "Redisson MultiLock",
        about: "`RedissonMultiLock`, Java",
        program: Program::Peer("redisson"),
        proto: "redisson",
        sends: &["evalsha", "eval", "subscribe", "unsubscribe", "ping"],
        warm_ms: 1_500,
        settle: 1.5,
        ..LIBRARY
    },
    Contender {
        name: "kvlock once",
        about: "`Client::once` of the crate",
        program: Program::Ours("by-crate"),
        proto: "crate",
        needs: Needs::Module,
        waiters: 10_000,
        ..LIBRARY
    },
    Contender {
        name: "kvlock double check",
        about: "look, take the lock, look again: the crate and redis-rs",
        program: Program::Ours("by-crate"),
        proto: "checked",
        needs: Needs::Module,
        waiters: 10_000,
        ..LIBRARY
    },
    Contender {
        name: "kvlock single flight",
        about: "one double check for all tasks of a process",
        program: Program::Ours("by-crate"),
        proto: "flight",
        needs: Needs::Module,
        waiters: 10_000,
        ..LIBRARY
    },
    Contender {
        name: "Lua double check",
        about: "the same with Redisson's protocol, raw connections",
        proto: "lua",
        waiters: 100,
        ..RAW
    },
    Contender {
        name: "Redisson double check",
        about: "the same with Redisson, Java",
        program: Program::Peer("redisson"),
        proto: "redisson",
        processes: 2,
        ..LIBRARY
    },
    Contender {
        name: "SET NX double check",
        about: "`SET NX PX` and `GET` every 100 ms, raw connections",
        proto: "poller",
        waiters: 10_000,
        ..RAW
    },
    Contender {
        name: "PostgreSQL",
        about: "advisory locks, pgx",
        program: Program::Peer("go"),
        proto: "postgres",
        needs: Needs::Postgres,
        ..LIBRARY
    },
    Contender {
        name: "SET + script",
        about: "`SET NX PX`, compare-and-delete script, raw",
        proto: "set-cad",
        sends: &["set", "evalsha"],
        ..RAW
    },
    Contender {
        name: "SET + DEL",
        about: "no lock: it would delete another's; raw",
        proto: "set-del",
        sends: &["set", "del"],
        ..RAW
    },
    Contender {
        name: "BLPOP",
        about: "`LPUSH`, `BLPOP`: no lease; raw",
        proto: "blpop",
        sends: &["blpop", "lpush"],
        ..RAW
    },
    Contender { name: "PING", about: "two `PING`s, raw", proto: "ping", sends: &["ping"], ..RAW },
    Contender { name: "others", about: "", proto: "plain", ..RAW },
    Contender { name: "others, module", about: "", proto: "plain", needs: Needs::Module, ..RAW },
];

pub(crate) fn named(name: &str) -> &'static Contender {
    ALL.iter().find(|contender| contender.name == name).expect("a contender's name")
}
