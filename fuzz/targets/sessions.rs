//! Whatever happens to a few sessions: what their clients are told must be what the model of their
//! tests says.
#![no_main]

use kvlock_core_reference::fuzz;
use kvlock_core_reference::sessions::World;

/// How many steps a walk has at most: most bugs need few, and short ones are fast.
const STEPS: usize = 40;

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::<World>(data, STEPS));
