//! Protection of the process's memory: other processes can't read it, and the allocator wipes what is freed.
//!
//! A PIN passes through a parser's scratch space, through strings that grow, through error paths,
//! and each may leave a copy behind. Wiping every freed block covers them all, in dependencies
//! too, for the cost of a memset. It doesn't cover memory of the module's own, nor the stack.

use std::alloc::{GlobalAlloc, Layout};

#[cfg(target_os = "linux")]
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use zeroize::optimization_barrier;

use crate::note_own_fault;

/// Keeps other processes of this user from dumping and tracing this one, which has to be the first thing that it does.
/// Root, and a debugger that is attached already, still can. Returns the limit of core files from before. A failure is
/// ignored: only a filter around the process (seccomp) can be the reason, and that is no reason not to answer.
pub fn harden() -> Rlimit {
    // This also makes /proc/PID/environ and /proc/PID/mem root's own. And nothing else stops a core_pattern that pipes to a
    // collector, which the kernel runs in spite of the limit.
    #[cfg(target_os = "linux")]
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);

    // The limit is for programs that a library starts: exec makes a process dumpable again.
    let before = getrlimit(Resource::Core);
    let nothing = Rlimit { current: Some(0), maximum: before.maximum };
    let _ = setrlimit(Resource::Core, nothing);

    // If a debugger is attached already, this call ends the process.
    #[cfg(target_os = "macos")]
    // SAFETY: PT_DENY_ATTACH reads none of its other arguments.
    let _ = unsafe { libc::ptrace(libc::PT_DENY_ATTACH, 0, std::ptr::null_mut(), 0) };

    before
}

/// Wipes the part of the stack that earlier calls from the caller have used, where the compiler may have left copies of a
/// secret that they have handled.
#[inline(never)]
pub fn wipe_stack() {
    /// How many bytes of the stack are wiped.
    const DEPTH: usize = 32 * 1024;
    let used = [0_u8; DEPTH];
    optimization_barrier(&used);
}

/// Has all threads share one heap. To be called while there is only one thread.
pub fn share_heap() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it sets a limit of the allocator, and keeps no pointer.
    let _ = unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// An allocator that wipes each block when it is freed; for the program's `#[global_allocator]`.
pub struct Wiping<A>(pub A);

// SAFETY: each block comes from `A` with the layout asked for and goes back to it with the same.
//
// `realloc` is left to the trait, which allocates, copies and calls `dealloc` here. The inner
// allocator's own would move the bytes and free the place they came from unwiped.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Wiping<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those that `alloc` asks for.
        let block = unsafe { self.0.alloc(layout) };
        if block.is_null() {
            note_own_fault();
        }
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those that `alloc_zeroed` asks for.
        let block = unsafe { self.0.alloc_zeroed(layout) };
        if block.is_null() {
            note_own_fault();
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block has this size and, until it is freed below, belongs to the caller.
        unsafe { block.write_bytes(0, layout.size()) };
        // SAFETY: a layout that was allocated is not empty, and its first byte was just written.
        let wiped = unsafe { &*block };
        // Without the barrier, the compiler may leave out a write to memory that is freed next.
        optimization_barrier(wiped);
        // SAFETY: the caller's promises are those that `dealloc` asks for.
        unsafe { self.0.dealloc(block, layout) }
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::System;
    use std::cell::Cell;
    use std::slice;

    use super::*;

    const MARK: &str = "freed with this at its beginning";

    /// An allocator that doesn't wipe, and counts the blocks that are freed with [`MARK`] at their beginning.
    #[derive(Default)]
    struct Observed(Cell<usize>);

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
                self.0.set(self.0.get() + 1);
            }
            // SAFETY: the caller's promises are passed on.
            unsafe { System.dealloc(block, layout) }
        }
    }

    /// Writes the mark into a block that grows, and frees it.
    fn use_block(allocator: &impl GlobalAlloc) {
        let small = Layout::array::<u8>(MARK.len()).unwrap();
        let large = Layout::array::<u8>(1 << 20).unwrap();
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
    }

    #[test]
    fn what_grows_and_what_is_freed_leaves_nothing_behind() {
        let allocator = Observed::default();
        use_block(&allocator);
        assert_eq!(allocator.0.get(), 2);
        let allocator = Wiping(Observed::default());
        use_block(&allocator);
        assert_eq!(allocator.0.0.get(), 0);
    }
}
