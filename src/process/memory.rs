//! An allocator that wipes what is freed.
//!
//! A PIN passes through parsers, growing strings and error paths, each of which may leave a copy
//! behind. Wiping every freed block covers them all, today's and tomorrow's, for the cost of
//! overwriting a few kilobytes. A library's own memory is its own.

use std::alloc::{GlobalAlloc, Layout, System};

use zeroize::Zeroize as _;

#[global_allocator]
static ALLOCATOR: Wiping = Wiping;

struct Wiping;

// SAFETY: every block comes from the system's allocator with the layout asked for, and goes back
// to it with the same one. `realloc` is the trait's own: allocate, copy, free by `dealloc`.
unsafe impl GlobalAlloc for Wiping {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block has this layout and is the caller's alone until it is freed here;
        // its bytes may be uninitialised, so they are written and never read.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(block.cast::<std::mem::MaybeUninit<u8>>(), layout.size())
        };
        bytes.zeroize();
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(block, layout) }
    }
}
