//! Whatever happens to a latch: the table and the model of its tests must answer the same,
//! write the same and release the same people.
#![no_main]
#![allow(dead_code, reason = "the model's own generators are not needed here")]

#[path = "../../module/core/tests/latch/ops.rs"]
mod ops;
#[path = "../../module/core/tests/source/mod.rs"]
mod source;
#[path = "../../module/core/tests/latch/world.rs"]
mod world;

use world::World;

/// How many steps a walk has at most: most bugs need few, and short ones are fast.
const STEPS: usize = 24;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let ops = ops::walk_of(data, STEPS);
    let mut world = World::new();
    for (at, op) in ops.iter().enumerate() {
        if let Err(why) = world.step(op) {
            panic!("{why}, after {:#?}", &ops[..=at]);
        }
    }
});
