//! The cost of holding locks.

use crate::contender::{Contender, Needs};
use crate::figures::Figures;
use crate::machine::Used;
use crate::measure::{Clients, Part, Plan};
use crate::process::Process;
use crate::scenario::Measured;
use crate::server::{Backend, Setting};
use harness::{Connection, Server, cmd};
use std::thread::sleep;
use std::time::Duration;

/// A lease that outlasts the measurement, and the interval at which leases of 30 s are renewed.
const LEASE_MS: &str = "600000";
const RENEWAL_S: f64 = 10.0;
const AT_ONCE: usize = 1_000;

const RENEW_HASH: &str = "if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then redis.call('pexpire', KEYS[1], ARGV[1]) return 1 end return 0";
const RENEW_TEXT: &str = "if redis.call('get', KEYS[1]) == ARGV[2] then return redis.call('pexpire', KEYS[1], ARGV[1]) end return 0";
const TAKE_HASH: &str =
    "redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return nil";

/// Fills a server with keys that are not locks and that have a TTL.
pub(crate) fn populate(server: &Server, keys: usize) {
    let script = "for i = ARGV[1], ARGV[2] do redis.call('set', 'other:' .. i, 'a value', 'px', 3600000 + i) end";
    let mut connection = server.connect();
    for first in (1..=keys).step_by(10_000) {
        let last = (first + 9_999).min(keys);
        connection.call(cmd!["EVAL", script, 0, first, last]);
    }
}

/// Acquires `locks` locks over one connection, and renews each of them once.
pub(crate) fn raw(contender: &'static Contender, locks: usize) -> Measured {
    let backend = Backend::start(contender.needs, Setting::Memory);
    backend.pin();
    let mut connection = backend.server().connect();
    let module = contender.needs == Needs::Module;
    let [take, renew] = match contender.proto {
        "lua" => [TAKE_HASH, RENEW_HASH].map(|script| load(&mut connection, script)),
        _ if module => [String::new(), String::new()],
        _ => [String::new(), load(&mut connection, RENEW_TEXT)],
    };
    let idle = backend.look();
    pipeline(&mut connection, locks, |key, owner| match contender.proto {
        "lua" => cmd!["EVALSHA", take, 1, key, LEASE_MS, owner],
        _ if module => cmd!["LOCK.ACQUIRE", key, owner, LEASE_MS],
        _ => cmd!["SET", key, owner, "NX", "PX", LEASE_MS],
    });
    let before = backend.look();
    pipeline(&mut connection, locks, |key, owner| {
        if module {
            cmd!["LOCK.RENEW", key, owner, LEASE_MS]
        } else {
            cmd!["EVALSHA", renew, 1, key, LEASE_MS, owner]
        }
    });
    let after = backend.look();
    let (each, cpu_us) = (locks as f64, after.cpu_us(&before));
    let memory = before.info("used_memory") - idle.info("used_memory");
    let figures = [
        ("memory_bytes", memory / each),
        ("renewal_us", cpu_us / each),
        ("renewals_per_s", each / RENEWAL_S),
        ("server_share", cpu_us / 1e6 / RENEWAL_S),
    ];
    let figures: Figures = figures.map(|(name, value)| (name.to_owned(), value)).into();
    Ok((figures, String::new()))
}

fn load(connection: &mut Connection, script: &str) -> String {
    connection.call(cmd!["SCRIPT", "LOAD", script]).text()
}

fn pipeline(
    connection: &mut Connection,
    locks: usize,
    command: impl Fn(&str, &str) -> Vec<Vec<u8>>,
) {
    for first in (0..locks).step_by(AT_ONCE) {
        let last = (first + AT_ONCE).min(locks);
        for lock in first..last {
            let owner = format!("285475da-9152-4c83-822a-67ee2f116a79:{lock}");
            connection.send(command(&format!("orders:{lock}"), &owner));
        }
        for _ in first..last {
            let reply = connection.receive(Duration::from_secs(10)).unwrap();
            assert!(!reply.is_error(), "{reply}");
        }
    }
}

/// One process holds `locks` locks with the crate, for one round of the watchdog's renewals.
pub(crate) fn watchdog(contender: &'static Contender, locks: usize) -> Measured {
    let backend = Backend::start(contender.needs, Setting::Memory);
    backend.pin();
    let plan = Plan::uncontended(contender, locks, RENEWAL_S);
    let part = Part { contender, tasks: locks, clients: Clients::One };
    let mut arguments = plan.arguments(&part, &backend.url(), locks);
    // The last value of an argument counts.
    arguments.push("proto=watchdog".to_owned());
    if contender.name.ends_with("bound") {
        arguments.push("bound=yes".to_owned());
    }
    let idle = backend.look();
    let mut process = Process::start(contender, &arguments);
    let version = process.ready()?;
    let (before, load) = (backend.look(), Used::of(&[process.pid()]));
    sleep(Duration::from_secs_f64(RENEWAL_S));
    let (after, load_after) = (backend.look(), Used::of(&[process.pid()]));
    process.go(0, 0);
    let lost = process.lines()?.first().and_then(|lost| lost.parse().ok()).unwrap_or(f64::NAN);
    let memory = before.info("used_memory") - idle.info("used_memory");
    let renewals = after.calls("lock.renew") - before.calls("lock.renew");
    let figures = [
        ("memory_bytes", memory / locks as f64),
        ("renewal_us", after.cpu_us(&before) / renewals),
        ("renewals_per_s", renewals / RENEWAL_S),
        ("server_share", after.cpu_us(&before) / 1e6 / RENEWAL_S),
        ("load_share", load_after.since(&load) / 1e6 / RENEWAL_S),
        ("lost", lost),
    ];
    let figures: Figures = figures.map(|(name, value)| (name.to_owned(), value)).into();
    Ok((figures, version))
}
