//! An allocator that wipes what is freed, and a function that wipes the stack.
//!
//! A PIN passes through a parser's scratch space, through strings that grow, through error paths,
//! and each may leave a copy behind. Wiping every freed block covers them all, in dependencies
//! too, for the cost of a memset. It doesn't cover memory of the module's own, nor the stack:
//! [`scrub_stack`] does that.

use std::alloc::{GlobalAlloc, Layout};
use std::hint::black_box;

use zeroize::optimization_barrier;

/// An allocator that wipes each block when it is freed; for the program's `#[global_allocator]`.
pub struct Wiping<A>(pub A);

// SAFETY: each block comes from `A` with the layout asked for and goes back to it with the same.
//
// `realloc` is left to the trait, which allocates, copies and calls `dealloc` here. The inner
// allocator's own would move the bytes and free the place they came from unwiped.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Wiping<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those that `alloc` asks for.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those that `alloc_zeroed` asks for.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block has this size and, until it is freed below, belongs to the caller.
        unsafe { block.write_bytes(0, layout.size()) };
        // SAFETY: a layout that was allocated is not empty, and its first byte was just written.
        let wiped = unsafe { &*block };
        // Without it the compiler may leave out a write to memory that is freed next.
        optimization_barrier(wiped);
        // SAFETY: the caller's promises are those that `dealloc` asks for.
        unsafe { self.0.dealloc(block, layout) }
    }
}

/// Deeper than a request goes, which touches 28 KiB of the stack in all.
pub const REQUEST_DEPTH: usize = 24 * 1024;
/// Deeper than a kubeconfig goes, however it is nested.
pub const KUBECONFIG_DEPTH: usize = 256 * 1024;
/// memcpy uses other registers for each range of lengths.
const COPIED: [usize; 10] = [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 8192];

/// Wipes what functions that have returned left in so many bytes of this thread's stack, and in the registers that
/// memcpy uses. A copy stays in those until the next one of its length, and comes to the stack when
/// they are saved: by a signal, or by the first call of each function in a library that is bound
/// lazily, as modules are.
#[inline(never)]
pub fn scrub_stack<const DEPTH: usize>() {
    let mut stack = [0_u8; DEPTH];
    for length in COPIED {
        stack.copy_within(..black_box(length), DEPTH / 2);
        optimization_barrier(&stack);
    }
}

/// For tests of what is wiped before it is freed: an allocator that doesn't wipe, and counts the blocks
/// that are freed with [`MARK`](observed::MARK) at their beginning.
#[cfg(test)]
pub(crate) mod observed {
    use std::alloc::{GlobalAlloc, Layout, System};
    use std::cell::Cell;
    use std::slice;

    pub(crate) const MARK: &str = "freed with this at its beginning";

    #[global_allocator]
    static ALLOCATOR: Observed = Observed;

    thread_local! {
        static FREED: Cell<usize> = const { Cell::new(0) };
    }

    pub(crate) struct Observed;

    // SAFETY: each block comes from the system's allocator and goes back to it unchanged.
    unsafe impl GlobalAlloc for Observed {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            // SAFETY: the caller's promises are passed on. Zeros, since all bytes are looked at below.
            unsafe { System.alloc_zeroed(layout) }
        }

        unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
            // SAFETY: the block has this size and was zeroed when it was allocated.
            let bytes = unsafe { slice::from_raw_parts(block, layout.size()) };
            if bytes.starts_with(MARK.as_bytes()) {
                FREED.set(FREED.get() + 1);
            }
            // SAFETY: the caller's promises are passed on.
            unsafe { System.dealloc(block, layout) }
        }
    }

    /// How many blocks this thread has freed so.
    pub(crate) fn freed() -> usize {
        FREED.get()
    }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::observed::{MARK, Observed, freed};
    use super::*;

    const SECRET: &[u8] = b"a secret of this test";

    #[test]
    fn what_grows_and_what_is_freed_leaves_nothing_behind() {
        let allocator = Wiping(Observed);
        let small = Layout::array::<u8>(MARK.len()).unwrap();
        let large = Layout::array::<u8>(1 << 20).unwrap();
        let before = freed();
        // SAFETY: the layout is not empty.
        let block = unsafe { allocator.alloc(small) };
        // SAFETY: the block is as long as the mark.
        unsafe { block.copy_from_nonoverlapping(MARK.as_ptr(), MARK.len()) };
        // SAFETY: the block has this layout, and the new size is not zero.
        let block = unsafe { allocator.realloc(block, small, large.size()) };
        // SAFETY: the block is longer than the mark, which was copied to its beginning.
        let kept = unsafe { slice::from_raw_parts(block, MARK.len()) };
        assert_eq!(kept, MARK.as_bytes());
        // SAFETY: the block has this layout now.
        unsafe { allocator.dealloc(block, large) };
        assert_eq!(freed(), before);
    }

    /// How often the secret stands in the 64 KiB of this thread's stack below `top`.
    #[cfg(target_os = "linux")]
    fn secrets_below(top: usize) -> usize {
        use std::os::unix::fs::FileExt as _;

        let mut stack = vec![0; 64 * 1024];
        let memory = std::fs::File::open("/proc/self/mem").unwrap();
        let start = u64::try_from(top - stack.len()).unwrap();
        memory.read_exact_at(&mut stack, start).unwrap();
        let windows = stack.windows(SECRET.len());
        windows.filter(|window| *window == SECRET).count()
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_a_function_left_on_the_stack_is_wiped() {
        #[inline(never)]
        fn leave_secret() {
            let mut left = [0; 32 * 1024];
            for copy in left.chunks_exact_mut(SECRET.len()) {
                copy.copy_from_slice(SECRET);
            }
            black_box(&left);
        }

        let here = 0_u8;
        let here = std::ptr::from_ref(&here).addr();
        leave_secret();
        assert!(secrets_below(here) > 0);
        scrub_stack::<KUBECONFIG_DEPTH>();
        assert_eq!(secrets_below(here), 0);
    }
}
