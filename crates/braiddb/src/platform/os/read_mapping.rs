//! The bytes of a file as memory.

use std::{fmt, io, ops::Range, ptr::NonNull, sync::Arc};

/// Bytes of a file as memory, while this lives. Some of them may still be written to, and are not to be looked at.
pub struct ReadMapping(Memory);

enum Memory {
    Copied(Arc<[u8]>),
    /// The first bytes of a file in memory.
    Shared(Arc<Vec<u8>>, usize),
    #[cfg(target_os = "linux")]
    Mapped(super::posix::mapping::ReadMap),
}

impl ReadMapping {
    /// A copy of the bytes, for file systems that are not the system's.
    pub fn of_copy(bytes: Arc<[u8]>) -> ReadMapping {
        ReadMapping(Memory::Copied(bytes))
    }

    /// The first bytes of a file that is in memory, shared with it; `None` if it has not so many.
    pub(super) fn of_shared(bytes: Arc<Vec<u8>>, len: u64) -> Option<ReadMapping> {
        let len = usize::try_from(len).ok().filter(|len| *len <= bytes.len())?;
        Some(ReadMapping(Memory::Shared(bytes, len)))
    }

    /// The system's map.
    #[cfg(target_os = "linux")]
    pub(super) fn of_map(map: super::posix::mapping::ReadMap) -> ReadMapping {
        ReadMapping(Memory::Mapped(map))
    }

    /// Whether the system has these bytes in memory, as far as it tells. Takes some microseconds for two megabytes.
    pub fn is_in_memory(&self, range: Range<usize>) -> bool {
        #[cfg(not(target_os = "linux"))]
        let _ = range;
        match &self.0 {
            Memory::Copied(bytes) => range.end <= bytes.len(),
            Memory::Shared(..) => true,
            #[cfg(target_os = "linux")]
            Memory::Mapped(map) => map.is_in_memory(range),
        }
    }

    /// Has the system read these bytes so that looking at them cannot fail, for as long as it keeps them in memory; whether it
    /// did. Takes some microseconds for two megabytes that were in memory before.
    pub fn populate(&self, range: Range<usize>) -> bool {
        #[cfg(not(target_os = "linux"))]
        let _ = range;
        match &self.0 {
            Memory::Copied(bytes) => range.end <= bytes.len(),
            Memory::Shared(..) => true,
            #[cfg(target_os = "linux")]
            Memory::Mapped(map) => map.populate(range),
        }
    }

    /// How many bytes there are.
    pub fn len(&self) -> usize {
        self.memory().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies bytes that nobody writes to any more; fewer only at the end. The system is made to read them before, so that it is an
    /// error if it cannot.
    pub(in crate::platform) fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.len());
        let len = buf.len().min(self.len() - start);
        if len > 0 && !self.populate(start..start + len) {
            return Err(io::Error::other("the system cannot read a part of a file that is mapped"));
        }
        match &self.0 {
            Memory::Copied(bytes) => buf[..len].copy_from_slice(&bytes[start..start + len]),
            Memory::Shared(bytes, _) => buf[..len].copy_from_slice(&bytes[start..start + len]),
            #[cfg(target_os = "linux")]
            Memory::Mapped(map) => map.copy(start, &mut buf[..len]),
        }
        Ok(len)
    }

    /// Where the bytes are: at the same place while this lives. Those that nobody writes to any more may be read.
    pub(crate) fn memory(&self) -> NonNull<[u8]> {
        match &self.0 {
            Memory::Copied(bytes) => NonNull::from(&**bytes),
            Memory::Shared(bytes, len) => NonNull::from(&bytes[..*len]),
            #[cfg(target_os = "linux")]
            Memory::Mapped(map) => map.memory(),
        }
    }
}

impl fmt::Debug for ReadMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadMapping").field("len", &self.memory().len()).finish()
    }
}
