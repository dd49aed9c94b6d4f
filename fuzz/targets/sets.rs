//! Whatever happens to sets of locks: the table and the model of its tests must answer the same,
//! write the same and have the same people in line.
#![no_main]

use kvlock_core_reference::fuzz;
use kvlock_core_reference::sets::World;

/// How many steps a walk has at most: most bugs need few, and short ones are fast.
const STEPS: usize = 24;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::<World>(data, STEPS));
