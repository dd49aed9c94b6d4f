//! Server clocks jump forward and back.

use super::{Fault, fault, is_a};
use crate::topology::{FiveIndependent, SERVERS, Single, Topology, cast};
use harness::random::Random;
use std::thread::sleep;
use std::time::Duration;

/// The server's date jumps by up to twenty seconds. Sessions survive such a jump, and so do leases that
/// still have more than twenty seconds left.
pub(crate) const STEP: &str = "clock of the server ten seconds ahead or back";

pub(crate) const JUMP: &str = "clock of one ten seconds ahead";

pub(crate) const HOUR: &str = "clock of one an hour back, then killed";

/// Less than the safety margin that a client subtracts from the shortest lease. An error of a server's clock
/// by this much must do no harm.
const SMALL_MS: i64 = 300;

/// Longer than any lease in a quorum.
const LONG_MS: i64 = 10_000;

const HOUR_MS: i64 = 3_600_000;

pub(super) const FAULTS: &[Fault] = &[
    fault(STEP, 3, is_a::<Single>, |at, moment, random| {
        let Some(Single { one, .. }) = cast(at) else { return };
        moment.is(|| one.clock.set(*random.pick(&[0, LONG_MS, -LONG_MS])));
    }),
    fault(
        "clock of one 0.3 s back, or ahead again",
        2,
        is_a::<FiveIndependent>,
        |at, moment, random| {
            let (five, server) = any_of_five(at, random);
            let before = five.ahead_ms(server);
            moment.is(|| five.set_clock(server, if before == 0 { -SMALL_MS } else { 0 }));
        },
    ),
    fault(JUMP, 6, is_a::<FiveIndependent>, |at, moment, random| {
        // Always the first server: this fault does not change the clocks of the others.
        let (five, _) = any_of_five(at, random);
        let before = five.ahead_ms(0).max(0);
        moment.is(|| five.set_clock(0, before + LONG_MS));
    }),
    fault(HOUR, 2, is_a::<FiveIndependent>, |at, moment, random| {
        // This server keeps locks for an hour too long, until it is restarted with its normal clock.
        let (five, server) = any_of_five(at, random);
        moment.is(|| five.set_clock(server, -HOUR_MS));
        sleep(Duration::from_millis(random.below(3000)));
        at.restart(&five.nodes[server].server);
    }),
];

fn any_of_five<'a>(at: &'a dyn Topology, random: &mut Random) -> (&'a FiveIndependent, usize) {
    (cast(at).expect("it is for a quorum"), random.below(SERVERS as u64) as usize)
}
