//! Advice to the system about memory.

/// Asks for huge pages behind `len` bytes at `memory`. Only advice: where the system has none, nothing happens.
pub fn advise_huge_pages(memory: *mut u8, len: usize) {
    #[cfg(target_os = "linux")]
    // SAFETY: this advice changes how memory is mapped, never what it holds, and a range that is not ours is refused.
    let _ = unsafe { rustix::mm::madvise(memory.cast(), len, rustix::mm::Advice::LinuxHugepage) };
    #[cfg(not(target_os = "linux"))]
    let _ = (memory, len);
}
