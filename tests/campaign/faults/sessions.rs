//! What lasts about as long as a session is kept that nobody reads: a client is back at the last
//! moment, or a moment too late.

use super::processes::stop;
use super::{Fault, fault, has_proxy, not_of_five, on};
use crate::round::Moment;
use crate::setting::SESSION;
use crate::topology::{Single, Topology, cast};
use harness::proxy::Proxy;
use harness::random::Random;
use std::time::Duration;

/// Steps of the date, of which sessions and long leases take no notice.
pub(crate) const STEP: &str = "clock of the server ten seconds ahead or back";

pub(crate) const STOPPED: &str = "primary stopped for about a session";

const STEP_MS: [i64; 3] = [0, 10_000, -10_000];

pub(super) const FAULTS: &[Fault] = &[
    fault("primary cut off for about a session", 3, has_proxy, |at, moment, random| {
        for_about_a_session(at, moment, random, Proxy::cut);
    }),
    fault("connections closed for the clients alone", 2, has_proxy, |at, moment, random| {
        for_about_a_session(at, moment, random, Proxy::forsake);
    }),
    fault(STOPPED, 2, not_of_five, |at, moment, random| {
        stop(at.primary(random), about_a_session(random), moment);
    }),
    fault(STEP, 3, on::<Single>, |at, moment, random| {
        let Some(Single { one, .. }) = cast(at) else { return };
        moment.is(|| one.clock.set(*random.pick(&STEP_MS)));
    }),
];

/// The proxy before the primary does that to the connections, and mends it later.
fn for_about_a_session(
    at: &dyn Topology,
    moment: &mut Moment<'_>,
    random: &mut Random,
    harm: fn(&Proxy),
) {
    let Some(proxy) = at.proxy(at.primary(random)) else { return };
    let time = about_a_session(random);
    moment.for_a_while(time, || harm(proxy), || proxy.heal());
}

/// From a heartbeat less to half as much again.
fn about_a_session(random: &mut Random) -> Duration {
    SESSION * 2 / 3 + (SESSION * 5 / 6).mul_f64(random.below(100) as f64 / 100.0)
}
