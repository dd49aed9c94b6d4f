//! Allocates memory from the server, so that the module's memory counts in the server's `used_memory`.

use std::alloc::{GlobalAlloc, Layout};

use redis_module::alloc::RedisAlloc;

use super::api::required;

/// Alignment, in bytes, of a block from C's `malloc`. Sufficient for every basic type of C.
const ALIGNMENT: usize = 16;

/// The server's allocator.
#[derive(Debug)]
pub(crate) struct ServerMemory;

// SAFETY: each call is passed on to an allocator that fulfils the contract.
unsafe impl GlobalAlloc for ServerMemory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller guarantees a valid layout. A larger or better aligned block is valid as well.
        unsafe { RedisAlloc.alloc(as_malloc_would(layout)) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller guarantees that `memory` came from `alloc`, which gets it from `RedisAlloc`.
        unsafe { RedisAlloc.dealloc(memory, layout) }
    }
}

/// Raises the alignment of a block of more than 32 bytes to the alignment of `malloc`. `RedisAlloc` then
/// rounds the size of the block up to a multiple of 16.
///
/// The unwinder expects the exception object of a panic to have C's alignment of 16 bytes. Rust requests 8,
/// and the servers' jemalloc has a size class of 56 bytes that is aligned to 8 only. So a panic would crash
/// the server. A block whose size is a multiple of 16 is aligned to 16 bytes. Blocks of at most 32 bytes are
/// not exception objects.
fn as_malloc_would(layout: Layout) -> Layout {
    if layout.size() > 2 * ALIGNMENT {
        layout.align_to(ALIGNMENT).unwrap_or(layout)
    } else {
        layout
    }
}

/// Returns whether the server's allocator aligns memory as C does. `false` if the server stores a length
/// before each block, as with `MALLOC=libc` on musl: then all blocks are off by the size of the length.
pub(super) fn is_aligned() -> bool {
    let (alloc, free) = (required!(RedisModule_Alloc), required!(RedisModule_Free));
    // SAFETY: the function takes only a size. Rust's own allocation functions are not used, because the
    // compiler assumes that they align.
    let memory = unsafe { alloc(4 * ALIGNMENT) };
    let is_aligned = memory.addr().is_multiple_of(ALIGNMENT);
    // SAFETY: `memory` was just allocated, and is not used again.
    unsafe { free(memory) };
    is_aligned
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_possible_exception_object_is_aligned_as_in_c() {
        let asked =
            |size| as_malloc_would(Layout::from_size_align(size, 8).unwrap()).pad_to_align();
        assert_eq!([56, 40, 32, 24].map(|size| asked(size).size()), [64, 48, 32, 24]);
        assert_eq!((asked(56).align(), asked(24).align()), (16, 8));
    }
}
