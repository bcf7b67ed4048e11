//! Mapped file contents for reading.

use std::{fmt, io, ops::Range, ptr::NonNull, sync::Arc};

/// The bytes of a file as memory. Bytes that may still be written must not be accessed.
pub struct ReadMapping(Memory);

enum Memory {
    Copied(Arc<[u8]>),
    Shared(Arc<Vec<u8>>, usize),
    #[cfg(target_os = "linux")]
    Mapped(super::posix::mapping::ReadMap),
}

impl ReadMapping {
    /// Wraps a copy, for file systems without maps.
    pub fn of_copy(bytes: Arc<[u8]>) -> ReadMapping {
        ReadMapping(Memory::Copied(bytes))
    }

    /// `None` if the file is shorter.
    pub(super) fn of_shared(bytes: Arc<Vec<u8>>, len: u64) -> Option<ReadMapping> {
        let len = usize::try_from(len).ok().filter(|len| *len <= bytes.len())?;
        Some(ReadMapping(Memory::Shared(bytes, len)))
    }

    #[cfg(target_os = "linux")]
    pub(super) fn of_map(map: super::posix::mapping::ReadMap) -> ReadMapping {
        ReadMapping(Memory::Mapped(map))
    }

    /// Returns true if these bytes are known to be in memory. Takes some microseconds for 2 MiB.
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

    /// Reads these bytes into memory, so that accesses cannot fail until the system evicts them.
    /// Returns true on success. Takes some microseconds for 2 MiB already in memory.
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

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.memory().len()
    }

    /// Returns true if the length is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies bytes that no longer change; fewer only at the end. Populates them first, so that a
    /// failing disk returns an error.
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

    /// Memory at a fixed address while this lives. Read only bytes that no longer change.
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
