//! Whatever happens to a semaphore: the table and the model of its tests must answer the same,
//! write the same and have the same people in line.
#![no_main]
#![allow(dead_code, reason = "the model's own generators are not needed here")]

#[path = "../../module/core/tests/permits/asking.rs"]
mod asking;
#[path = "../../module/core/tests/permits/ops.rs"]
mod ops;
#[path = "../../module/core/tests/permits/serving.rs"]
mod serving;
#[path = "../../module/core/tests/source/mod.rs"]
mod source;
#[path = "../../module/core/tests/permits/world.rs"]
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
