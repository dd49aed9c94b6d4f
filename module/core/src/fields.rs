//! Names of the fields of a hash that are not owners.

/// The field of the hash that keeps the fencing token.
pub const TOKEN_FIELD: &[u8] = b"fencing-token";

/// The field of the hash that keeps the mode of a lock, or the counts of a latch or a semaphore.
/// Absent if one owner holds a lock and has only exclusive holds.
pub const MODE_FIELD: &[u8] = b"lock-mode";

/// Field of the hash that keeps the holder's value.
pub const VALUE_FIELD: &[u8] = b"lock-value";

/// Fields that do not belong to an owner. No owner may have one of these names.
pub const RESERVED_FIELDS: [&[u8]; 3] = [TOKEN_FIELD, MODE_FIELD, VALUE_FIELD];

/// The field that the module deletes to learn whether the server accepts writes to a key. No owner
/// may have this name, so kvlock never writes this field.
pub const PROBED_FIELD: &std::ffi::CStr = c"kvlock:probe";
