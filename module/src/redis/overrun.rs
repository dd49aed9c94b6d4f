//! A mistake on purpose, in builds for tests only: proof that a sanitizer sees one.

/// Reads the byte behind an allocation.
pub(crate) fn read_past_the_end() -> u8 {
    let bytes: Box<[u8]> = std::hint::black_box(Box::from([1; 24]));
    // SAFETY: none, on purpose: the byte is not ours. It is inside the heap, and is only read.
    unsafe { bytes.as_ptr().wrapping_add(bytes.len()).read_volatile() }
}
