//! Names of keys, owners and results, and lengths of leases, for random sequences of operations.

use crate::Bytes;

/// Few keys, so that operations often use the same one.
pub const KEYS: [(i32, &str); 3] = [(0, "a"), (0, "b"), (1, "a")];
/// Some names are prefixes of others.
pub const OWNERS: [&str; 4] = ["ann", "anna", "bob", "bobby"];

/// Names of results in each database.
pub const RESULTS: [&str; 2] = ["r", "s"];

/// Position in [`KEYS`].
pub type Key = usize;
/// Position in [`RESULTS`].
pub type ResultKey = usize;
pub type Owner = &'static str;

pub fn owner_named(name: &[u8]) -> Option<Owner> {
    OWNERS.into_iter().find(|owner| owner.as_bytes() == name)
}

pub fn lease(bytes: &mut Bytes<'_>) -> u64 {
    bytes.pick(&[1, 30, 200, 1_000, 5_000])
}
