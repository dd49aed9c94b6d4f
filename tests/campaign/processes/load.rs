//! Many processes take locks for a moment while something is done to them.

use super::process::{Circumstances, Process, SOON};
use super::role::Role;
use super::said::{End, Said};
use super::scene::Scene;
use crate::Options;
use crate::report::Report;
use harness::clock::Clock;
use harness::launch::{killed_with_us, launch};
use harness::random::Random;
use harness::{Connection, cmd, observe};
use nix::sys::signal::Signal;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// How often something is done.
const EVERY: Duration = Duration::from_millis(40);

const KILLED: &str = "clients killed";
const STOPPED: &str = "clients stopped for up to three leases";
const CUT: &str = "connections cut";

/// Names for that many locks, as a role has them.
fn keys(count: u64) -> String {
    (0..count).map(|number| format!("busy-{number}")).collect::<Vec<_>>().join(",")
}

/// For that time at least, and until that many more locks were granted.
fn until_enough(scene: &Scene, time: Duration, grants: u64, mut step: impl FnMut(&mut Connection)) {
    let mut control = scene.server.connect();
    let (begun, before) = (Instant::now(), scene.grants());
    loop {
        let granted = scene.grants() - before;
        if begun.elapsed() >= time && granted >= grants {
            return;
        }
        assert!(begun.elapsed() < time + 20 * SOON, "only {granted} grants");
        step(&mut control);
    }
}

/// The date of the clients jumps: an hour, a minute, a second, ahead and back.
pub(super) fn dates(scene: &Scene, options: &Options, report: &Report) {
    const JUMPS_MS: [i64; 7] = [0, 1000, -1000, 60_000, -60_000, 3_600_000, -3_600_000];
    let (time, mut random) = (options.time(20), Random::new(options.seed.number));
    let clock = Clock::new();
    let role =
        Role { fixed: 15, hold_ms: 50, long: 2, limited: 20, tasks: 3, ..Role::new(keys(8), 3000) };
    let around = Circumstances { clock: Some(&clock), ..Circumstances::default() };
    let clients: Vec<_> = (0..4).map(|_| scene.enter_under(&role, around)).collect();
    until_enough(scene, time, 50, |control| {
        clock.set(*random.pick(&JUMPS_MS));
        report.add("jumps of the date", 1);
        observe::let_pass(control, 3 * EVERY);
    });
    scene.retire(&clients);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(now.as_millis()).expect("a date");
    for said in clients.iter().flat_map(|client| client.said()) {
        // Minutes more than the whole of this took.
        if let Said::Holds { date_ms, .. } = said
            && date_ms.abs_diff(now) > 1_800_000
        {
            report.add("grants on a day that is an hour wrong", 1);
        }
    }
    report.wants("grants on a day that is an hour wrong", 1);
    losses("clients whose date jumps", &clients, report);
}

/// No processor time is left, and the clients make way for all others.
pub(super) fn starved(scene: &Scene, options: &Options, report: &Report) {
    let time = options.time(20);
    let role =
        Role { fixed: 10, hold_ms: 50, long: 20, limited: 20, tasks: 2, ..Role::new(keys(6), 600) };
    let around = Circumstances { nice: true, ..Circumstances::default() };
    let clients: Vec<_> = (0..4).map(|_| scene.enter_under(&role, around)).collect();
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let burners: Vec<_> = (0..4 * processors).map(|_| burn(time)).collect();
    report.add("busy processes", burners.len() as u64);
    until_enough(scene, time, 20, |control| observe::let_pass(control, EVERY));
    for mut burner in burners {
        let _ended = burner.kill();
        let _reaped = burner.wait();
    }
    scene.retire(&clients);
    losses("clients without processor time", &clients, report);
}

/// A process that is busy for that time. Only the nicest clients make way for it.
fn burn(time: Duration) -> std::process::Child {
    let mut command = killed_with_us(Path::new("nice"));
    command.args(["-n", "5"]).arg(std::env::current_exe().expect("this program"));
    command.args(["burn", &time.as_millis().to_string()]).stdin(Stdio::null());
    launch(command).expect("start a busy process")
}

/// A thread of the holder's runtime is blocked for a second, the only one or one of two; with
/// leases that are over by then, and with longer ones.
pub(super) fn blocked(scene: &Scene, options: &Options, report: &Report) {
    let time = options.time(20);
    let mut sorts = Vec::new();
    for (threads, lease_ms) in [(1, 1000), (2, 1000), (1, 4000), (2, 4000)] {
        let key = format!("blocked-{threads}-{lease_ms}");
        let role = Role { hold_ms: 100, threads, block_ms: 1000, ..Role::new(key, lease_ms) };
        let what = format!("a thread of {threads} blocked for 1 s, leases of {lease_ms} ms");
        sorts.push((what, [scene.enter(&role), scene.enter(&role)]));
    }
    until_enough(scene, time, 20, |control| observe::let_pass(control, EVERY));
    for (what, clients) in &sorts {
        scene.retire(clients);
        losses(what, clients, report);
    }
}

/// Counts how many locks they were granted, lost, and lost while the server had them still.
fn losses(what: &str, clients: &[Arc<Process>], report: &Report) {
    let said: Vec<Said> = clients.iter().flat_map(|client| client.said()).collect();
    let count = |is: fn(&Said) -> bool| said.iter().filter(|said| is(said)).count() as u64;
    let lost = count(|said| matches!(said, Said::Ends { why: End::Lost, .. }));
    let grants = format!("{what}: grants");
    report.add(&grants, count(|said| matches!(said, Said::Holds { .. })));
    report.wants(&grants, 1);
    report.add(&format!("{what}: lost"), lost);
    let early = count(|said| matches!(said, Said::FalseLoss { .. }));
    report.add(&format!("{what}: lost, while the server had it still"), early);
}

/// Clients are killed, stopped and cut off.
pub(super) fn mixture(scene: &Scene, options: &Options, report: &Report) {
    let (time, grants) = (options.time(20), options.grants.unwrap_or(50_000));
    let mut random = Random::new(options.seed.number);
    let role =
        Role { fixed: 3, hold_ms: 4, long: 1, limited: 20, tasks: 6, ..Role::new(keys(24), 300) };
    let mut clients: Vec<Arc<Process>> = (0..6).map(|_| scene.enter(&role)).collect();
    let mut stopped: Vec<(Instant, Arc<Process>)> = Vec::new();
    until_enough(scene, time, grants, |control| {
        observe::let_pass(control, EVERY);
        let victim = usize::try_from(random.below(clients.len() as u64)).expect("few");
        match random.below(10) {
            0 => {
                clients[victim].kill9();
                stopped.retain(|(_, client)| !Arc::ptr_eq(client, &clients[victim]));
                clients[victim] = scene.enter(&role);
                report.add(KILLED, 1);
            }
            1 | 2 => {
                let time = Duration::from_millis(random.below(900));
                clients[victim].signal(Signal::SIGSTOP);
                stopped.push((Instant::now() + time, clients[victim].clone()));
                report.add(STOPPED, 1);
            }
            _ => report.add(CUT, cut(control, &mut random)),
        }
        let now = Instant::now();
        stopped.retain(|(until, client)| {
            let goes_on = *until <= now;
            if goes_on {
                client.signal(Signal::SIGCONT);
            }
            !goes_on
        });
    });
    stopped.iter().for_each(|(_, client)| client.signal(Signal::SIGCONT));
    [KILLED, STOPPED, CUT].iter().for_each(|fault| report.wants(fault, 1));
}

/// Cuts one of the clients' connections, whatever it carries. Returns how many were cut.
fn cut(control: &mut Connection, random: &mut Random) -> u64 {
    let own = control.client_id();
    let list = control.run("CLIENT LIST TYPE normal").text();
    let ids = list.lines().filter_map(|line| line.strip_prefix("id=")?.split(' ').next());
    let ids: Vec<&str> = ids.filter(|id| *id != own.to_string()).collect();
    if ids.is_empty() {
        return 0;
    }
    let killed = control.call(cmd!["CLIENT", "KILL", "ID", *random.pick(&ids)]);
    u64::try_from(killed.integer()).expect("none or one")
}
