//! Two clients with a lock of their own: one has it, the other waits, and nobody else comes by. What
//! the server forgets to do by itself is not done there, and is seen.

use super::client::Ending;
use super::locks::{How, LONG_MS, Wish, Worker, ms};
use super::{KeyKind, Scene};
use harness::history::{Outcome, Request};
use harness::random::Random;
use harness::{cmd, lines};

pub(super) fn work(scene: &Scene<'_>, random: Random) {
    let mut worker = Worker::new(scene, random);
    let Some(lock) = scene.locks.iter().find(|lock| lock.kind == KeyKind::Quiet) else { return };
    worker.go_to_lock(lock);
    for turn in 0.. {
        if scene.is_over() {
            return;
        }
        hand_over(&mut worker, [format!("holder:{turn}"), format!("waiter:{turn}")]);
    }
}

fn hand_over(worker: &mut Worker<'_>, [holder, waiter]: [String; 2]) {
    let key = worker.key.clone();
    let lease = ms(LONG_MS);
    let acquire = Request::Acquire { lease, timeout: None };
    let command = cmd!["LOCK.ACQUIRE", key, holder, LONG_MS];
    worker.owner.clone_from(&holder);
    match worker.client.call(&key, &holder, &acquire, &command) {
        Ending::Done(_) => worker.granted(),
        Ending::Refused => return,
        Ending::Failed | Ending::Unknown => return give_back(worker),
    }
    worker.owner = waiter;
    let wish = Wish {
        request: Request::Acquire { lease, timeout: Some(ms(0)) },
        command: cmd!["LOCK.WAIT", key, worker.owner, LONG_MS, 0],
        timeout: 0,
        may_be_lost: false,
        may_be_repeated: false,
    };
    let waiting = worker.begin(&wish, true, None);
    let recorder = worker.client.scene.recorder;
    let asked = recorder.now();
    let info = worker.client.ask(cmd!["LOCK.INFO", key, "WAITERS", 10]);
    let in_line = lines::note(&info, &key, asked, recorder).contains(&worker.owner);
    let waiter = std::mem::replace(&mut worker.owner, holder);
    give_back(worker);
    worker.owner = waiter;
    // A waiter whose connection is closed has nothing, unless it was just granted it.
    let lost = if in_line { Outcome::Failed } else { Outcome::Unknown };
    let is_blocked = matches!(waiting.how, How::Blocked);
    let ending = worker.finish(waiting, &wish.request, lost);
    if ending != Ending::Failed || is_blocked {
        give_back(worker);
    }
}

fn give_back(worker: &mut Worker<'_>) {
    let release = cmd!["LOCK.RELEASE", worker.key, worker.owner, "ALL"];
    worker.insist(&(Request::Release, release));
}
