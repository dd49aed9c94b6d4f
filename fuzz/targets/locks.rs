//! Whatever happens to a few locks: the table and the model of its tests must answer the same,
//! write the same and have the same people in line.
#![no_main]
#![allow(dead_code, reason = "the model's own generators are not needed here")]

#[path = "../../module/core/tests/model/beside.rs"]
mod beside;
#[path = "../../module/core/tests/model/bytes.rs"]
mod bytes;
#[path = "../../module/core/tests/model/drive.rs"]
mod drive;
#[path = "../../module/core/tests/model/events.rs"]
mod events;
#[path = "../../module/core/tests/model/leaving.rs"]
mod leaving;
#[path = "../../module/core/tests/model/meddling.rs"]
mod meddling;
#[path = "../../module/core/tests/model/naive.rs"]
mod naive;
#[path = "../../module/core/tests/model/ops.rs"]
mod ops;
#[path = "../../module/core/tests/model/sharing.rs"]
mod sharing;
#[path = "../../module/core/tests/sim/mod.rs"]
mod sim;
#[path = "../../module/core/tests/source/mod.rs"]
mod source;
#[path = "../../module/core/tests/model/turns.rs"]
mod turns;
#[path = "../../module/core/tests/model/world.rs"]
mod world;

use world::World;

/// How many steps a walk has at most: most bugs need few, and short ones are fast.
const STEPS: usize = 24;

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let (look_every, ops) = bytes::walk(data, STEPS);
    let mut world = World::new(look_every);
    for (at, op) in ops.iter().enumerate() {
        if let Err(why) = world.step(op) {
            panic!("{why}, after {:#?}", &ops[..=at]);
        }
    }
});
