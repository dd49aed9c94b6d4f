//! Links are cut, in silence: what was on its way never arrives.

use super::processes::stay_apart;
use super::{Fault, fault, has_proxy, on};
use crate::topology::{Watched, cast};
use std::time::Duration;

pub(super) const FAULTS: &[Fault] = &[
    fault("primary cut off, replaced, healed", 3, on::<Watched>, |at, moment, random| {
        moment.leaves_two();
        let primary = at.primary(random);
        let (Some(proxy), Some(replaced)) = (at.proxy(primary), at.replacement(primary)) else {
            return;
        };
        moment.is(|| {
            proxy.cut();
            replaced();
            stay_apart(at, random);
            proxy.heal();
        });
        at.rejoin(primary, random);
    }),
    fault("primary cut off for a moment", 2, has_proxy, |at, moment, random| {
        let Some(proxy) = at.proxy(at.primary(random)) else { return };
        let time = Duration::from_millis(50 + random.below(400));
        moment.for_a_while(time, || proxy.cut(), || proxy.heal());
    }),
    fault("a replica cut off for a moment", 2, on::<Watched>, |at, moment, random| {
        let Some(Watched { site, .. }) = cast(at) else { return };
        let primary = site.primary();
        let other = 1 + usize::from(random.percent(50));
        let replica = site.proxy((primary + other) % site.size()).port();
        let time = Duration::from_millis(100 + random.below(1500));
        let proxy = site.proxy(primary);
        moment.for_a_while(time, || proxy.cut_replica(replica), || proxy.heal());
    }),
];
