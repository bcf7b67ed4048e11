//! The POSIX file system.

#[cfg(target_vendor = "apple")]
mod apple;
#[cfg(target_os = "linux")]
pub mod mapping;
mod per_process;
mod read_pool;
#[cfg(target_os = "linux")]
mod unbuffered;
#[cfg(target_os = "linux")]
#[cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")),
    path = "uring_absent.rs"
)]
mod uring;
pub mod vfs;
#[cfg(target_os = "linux")]
mod write_back;
