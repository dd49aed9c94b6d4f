//! Whatever happens to a few sessions: what their clients are told must be what the model of their
//! tests says.
#![no_main]
#![allow(dead_code, reason = "the model's own generators are not needed here")]

#[path = "../../module/core/tests/sessions/drive.rs"]
mod drive;
#[path = "../../module/core/tests/sessions/naive.rs"]
mod naive;
#[path = "../../module/core/tests/sessions/ops.rs"]
mod ops;
#[path = "../../module/core/tests/sim/mod.rs"]
mod sim;
#[path = "../../module/core/tests/source/mod.rs"]
mod source;
#[path = "../../module/core/tests/sessions/world.rs"]
mod world;

use world::World;

/// How many steps a walk has at most: most bugs need few, and short ones are fast.
const STEPS: usize = 40;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let ops = ops::walk_of(data, STEPS);
    let mut world = World::new();
    for (at, op) in ops.iter().enumerate() {
        if let Err(why) = world.step(op) {
            panic!("{why}, after {:#?}", &ops[..=at]);
        }
    }
});
