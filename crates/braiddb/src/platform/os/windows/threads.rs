use super::file::check;
use std::io;
use windows_sys::Win32::System::{
    SystemInformation::GROUP_AFFINITY,
    Threading::{GetCurrentThread, SetThreadGroupAffinity},
};

/// A thread stays in one group.
const GROUP_PROCESSORS: usize = usize::BITS as usize;

/// Numbers count each group as full.
pub fn run_on(processors: &[usize]) -> io::Result<()> {
    let group = processors.first().map_or(0, |first| first / GROUP_PROCESSORS);
    if processors.iter().any(|processor| processor / GROUP_PROCESSORS != group) {
        let reason = format!("processors {processors:?} are of several groups, and a thread stays in one");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    let mask = processors.iter().fold(0, |mask, processor| mask | 1 << (processor % GROUP_PROCESSORS));
    let group = u16::try_from(group).map_err(|_| io::ErrorKind::InvalidInput)?;
    let affinity = GROUP_AFFINITY { Mask: mask, Group: group, Reserved: [0; 3] };
    // SAFETY: the pseudo-handle denotes this thread; the pointers are valid for the call, or null,
    // which is allowed.
    check(unsafe { SetThreadGroupAffinity(GetCurrentThread(), &raw const affinity, std::ptr::null_mut()) })
}
