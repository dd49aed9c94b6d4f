//! A deliberate memory error, in builds for tests only. A test uses it to check that a sanitizer detects such
//! errors.

/// Reads one byte after the end of an allocation.
pub(crate) fn read_past_the_end() -> u8 {
    let bytes: Box<[u8]> = std::hint::black_box(Box::from([1; 24]));
    // SAFETY: deliberately none: the byte is outside the allocation. It is inside the heap, and is only read.
    unsafe { bytes.as_ptr().wrapping_add(bytes.len()).read_volatile() }
}
