//! Client processes acquire locks briefly while faults happen to them.

use super::messages::Role;
use super::process::{Process, SOON, nice, this_program};
use super::scene::Scene;
use crate::Options;
use crate::report::Report;
use harness::clock::Clock;
use harness::launch::{killed_with_us, launch};
use harness::random::Random;
use harness::{Connection, cmd, observe};
use nix::sys::signal::Signal;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Unit of the pauses between the steps of a scenario.
const EVERY: Duration = Duration::from_millis(40);

const CLIENTS: usize = 4;

/// Faults of the clients in a mixture.
pub(super) const FAULTS: [&str; 3] = [KILLED, STOPPED, CUT];

const KILLED: &str = "clients killed";
const STOPPED: &str = "clients stopped for up to three leases";
const CUT: &str = "connections cut";

/// The role of clients that compete for `keys` locks.
fn busy(what: &str, keys: u64, lease_ms: u64) -> Role {
    let keys = (0..keys).map(|number| format!("busy-{number}")).collect();
    Role { what: what.to_owned(), limited: 20, hold_ms: Some(50), ..Role::new(keys, lease_ms) }
}

/// Repeats `step` for at least the given time, and until there were `grants` grants.
fn until_enough(scene: &Scene, time: Duration, grants: u64, mut step: impl FnMut(&mut Connection)) {
    let (mut control, begun) = (scene.server.connect(), Instant::now());
    loop {
        let granted = scene.grants();
        if begun.elapsed() >= time && granted >= grants {
            return;
        }
        assert!(begun.elapsed() < time + 20 * SOON, "only {granted} grants");
        step(&mut control);
    }
}

/// The date of the clients jumps: it is right, or wrong by a second, a minute or an hour.
pub(super) fn dates(scene: &Scene, options: &Options, report: &Report) {
    const JUMPS_MS: [i64; 7] = [0, 1000, -1000, 60_000, -60_000, 3_600_000, -3_600_000];
    let (clock, mut random) = (Clock::new(), Random::new(options.seed.number));
    let busy = busy("clients whose date jumps", 8, 3000);
    let role = Role { fixed: 15, long: 2, tasks: 3, ..busy };
    for _ in 0..CLIENTS {
        let mut command = killed_with_us(&this_program());
        clock.show_to(&mut command);
        scene.enter_by(&role, command);
    }
    until_enough(scene, options.time(20), 50, |control| {
        clock.set(*random.pick(&JUMPS_MS));
        report.add("jumps of the date", 1);
        observe::let_pass(control, 3 * EVERY);
    });
}

/// Other programs use all processor time, and the clients have the lowest priority.
pub(super) fn starved(scene: &Scene, options: &Options, report: &Report) {
    let busy = busy("clients without processor time", 6, 600);
    let role = Role { fixed: 10, long: 20, tasks: 2, ..busy };
    for _ in 0..CLIENTS {
        scene.enter_by(&role, nice(19, &this_program()));
    }
    // The busy processes have a higher priority than the clients, and a lower one than the server.
    let burn = |_| {
        let mut command = nice(5, Path::new("sh"));
        command.args(["-c", "while :; do :; done"]);
        launch(command).expect("start a busy process")
    };
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let burners: Vec<_> = (0..4 * processors).map(burn).collect();
    report.add("busy processes", burners.len() as u64);
    until_enough(scene, options.time(20), 20, |control| observe::let_pass(control, EVERY));
    for mut burner in burners {
        let _ended = burner.kill();
        let _reaped = burner.wait();
    }
}

/// A thread of the holder's runtime is blocked for one second: the only thread, or one of two. Some leases
/// last one second, some longer.
pub(super) fn blocked(scene: &Scene, options: &Options, _report: &Report) {
    for (threads, lease_ms) in [(1, 1000), (2, 1000), (1, 4000), (2, 4000)] {
        let what = format!("a thread of {threads} blocked for 1 s, leases of {lease_ms} ms");
        let role = Role::new(vec![format!("blocked-{threads}-{lease_ms}")], lease_ms);
        let role = Role { what, hold_ms: Some(100), threads, block_ms: 1000, ..role };
        for _ in 0..2 {
            scene.enter(&role);
        }
    }
    until_enough(scene, options.time(20), 20, |control| observe::let_pass(control, EVERY));
}

/// Clients are killed, stopped and cut off.
pub(super) fn mixture(scene: &Scene, options: &Options, report: &Report) {
    let mut random = Random::new(options.seed.number);
    let role = Role { fixed: 3, hold_ms: Some(4), long: 1, tasks: 6, ..busy("", 24, 300) };
    let mut clients: Vec<Arc<Process>> = (0..6).map(|_| scene.enter(&role)).collect();
    let mut stopped: Vec<(Instant, Arc<Process>)> = Vec::new();
    until_enough(scene, options.time(20), options.grants.unwrap_or(50_000), |control| {
        observe::let_pass(control, EVERY);
        let victim = random.below(clients.len() as u64) as usize;
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
        for (_, client) in stopped.extract_if(.., |(until, _)| *until <= now) {
            client.signal(Signal::SIGCONT);
        }
    });
    stopped.iter().for_each(|(_, client)| client.signal(Signal::SIGCONT));
}

/// Cuts one of the clients' connections, chosen at random. Returns the number of cut connections.
fn cut(control: &mut Connection, random: &mut Random) -> u64 {
    let own = control.client_id().to_string();
    let list = control.run("CLIENT LIST TYPE normal").text();
    let ids = list.lines().filter_map(|line| line.strip_prefix("id=")?.split(' ').next());
    let ids: Vec<&str> = ids.filter(|id| *id != own).collect();
    if ids.is_empty() {
        return 0;
    }
    let killed = control.call(cmd!["CLIENT", "KILL", "ID", *random.pick(&ids)]);
    killed.integer().cast_unsigned()
}
