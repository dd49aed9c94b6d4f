//! Two threads, each with a lock of its own. One client of the thread holds the lock and one waits for it, or
//! two wait to share it. Clients of other threads do not use the lock: their commands could make the server
//! serve a waiter that it had forgotten, and so hide the mistake.

use super::client::Ending;
use super::locks::{LONG_MS, Worker};
use super::waits::Wish;
use super::{KeyKind, Lock, PERMITS, Scene};
use harness::history::Outcome;
use harness::random::Random;
use harness::{Value, cmd};

/// Number of threads. The waiters of the second thread want to share its lock.
pub(super) const THREADS: usize = 2;

/// Largest number of checks whether all waiters are queued. A waiter whose connection has broken may never
/// be queued.
const LOOKS: usize = 100;

pub(super) fn work(scene: &Scene<'_>, number: usize, random: &Random) {
    let mut keys = scene.locks.iter().filter(|lock| lock.kind == KeyKind::Quiet);
    let Some(lock) = keys.nth(number) else { return };
    let shared = number > 0;
    let lock = Lock { kind: if shared { KeyKind::Shared } else { KeyKind::Lock }, ..lock.clone() };
    let worker = |part| {
        let mut worker = Worker::new(scene, random.part(part));
        worker.go_to_lock(&lock);
        if shared {
            // All waiters must be granted the lock in one turn of the server's event loop. A session that is
            // away is granted nothing.
            worker.through_sessions = 0;
        }
        worker
    };
    let mut holder = worker(0);
    let mut waiters: Vec<_> = (1..=1 + u64::from(shared)).map(worker).collect();
    for turn in 0.. {
        if scene.is_over() {
            return;
        }
        (holder.owner, holder.shared) = (format!("holder:{turn}"), false);
        for (number, waiter) in waiters.iter_mut().enumerate() {
            (waiter.owner, waiter.shared) = (format!("waiter-{number}:{turn}"), shared);
        }
        match holder.call(&holder.asks(1, LONG_MS, None, None)) {
            Ending::Done => hand_over(&mut holder, &mut waiters),
            Ending::Refused => {}
            Ending::Failed | Ending::Unknown => holder.clean_up(),
        }
    }
}

/// The waiters queue for the holder's lock, and the holder releases it. Each waiter keeps its grant until all
/// waits have ended.
fn hand_over(holder: &mut Worker<'_>, waiters: &mut [Worker<'_>]) {
    let mut waits = Vec::new();
    for waiter in waiters.iter_mut() {
        let (request, command) = waiter.asks(1, LONG_MS, Some(0), None);
        let wish =
            Wish { request, command, timeout: 0, may_be_lost: false, may_be_repeated: false };
        waits.push((waiter.begin(&wish, true, None), wish.request));
    }
    let mut line = Vec::new();
    for _ in 0..LOOKS {
        line = holder.line();
        if waiters.iter().all(|waiter| line.contains(&waiter.owner)) {
            break;
        }
    }
    replace_a_semaphore(holder);
    give_back(holder);
    let (mut shares, mut holders) = (false, Vec::new());
    for (waiter, (wait, request)) in waiters.iter_mut().zip(waits) {
        let in_line = line.contains(&waiter.owner);
        if shares && in_line && holder.line().contains(&waiter.owner) {
            let (key, owner) = (&waiter.key, &waiter.owner);
            let what = format!("{key}: {owner} is in line, and the one before it shares the lock");
            waiter.client.scene.log.surprise(what);
        }
        match waiter.finish(wait, &request, Outcome::Unknown) {
            Ending::Done => {
                waiter.client.scene.granted("quiet: grants");
                shares = in_line;
            }
            Ending::Unknown => {}
            // Nothing to release: the server revokes a grant to a session that has ended.
            Ending::Refused | Ending::Failed => continue,
        }
        holders.push(waiter);
    }
    holders.into_iter().for_each(give_back);
}

fn give_back(worker: &mut Worker<'_>) {
    let release = worker.gives_back(cmd!["ALL"]);
    if matches!(worker.call(&release), Ending::Failed | Ending::Unknown) {
        worker.clean_up();
    }
}

/// Replaces a semaphore without free permits by one in which all leases have expired. An acquire before the
/// replacement is refused, and an acquire after it must be granted. All commands are in one transaction, so
/// that no other client interferes and no state is left. The result counts only if a client waits for the
/// holder's lock: only then must the module notice each replaced key.
fn replace_a_semaphore(holder: &mut Worker<'_>) {
    let (key, other) = ("scratch-semaphore", "scratch-semaphore-of-the-expired");
    let one_more = cmd!["SEM.ACQUIRE", key, "another", 1, LONG_MS];
    let replies = holder.side.transact(&[
        cmd!["LOCK.INFO", holder.key, "WAITERS", 1],
        cmd!["SEM.SET", key, PERMITS],
        cmd!["SEM.ACQUIRE", key, "one", PERMITS, LONG_MS],
        one_more.clone(),
        cmd!["HSET", other, "lock-mode", format!("semaphore {PERMITS} {PERMITS}")],
        cmd!["HSET", other, "expired", format!("{PERMITS} 1")],
        cmd!["COPY", other, key, "REPLACE"],
        one_more,
        cmd!["DEL", key, other],
    ]);
    let replies = replies.unwrap_or_default();
    let [info @ Value::Array(_), _, all, Value::Nil, _, _, copied, then, _] = &replies[..] else {
        return;
    };
    let is_heard = !info.field("queue").elements().is_empty();
    if is_heard && *all == Value::Integer(PERMITS.cast_signed()) && *copied == Value::Integer(1) {
        holder.client.scene.log.add("quiet: semaphores replaced", 1);
        if *then != Value::Integer(1) {
            let what = format!("{key}: {then} to a try, and all that hold it have expired");
            holder.client.scene.log.surprise(what);
        }
    }
}
