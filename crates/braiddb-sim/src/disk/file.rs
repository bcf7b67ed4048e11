//! An open file of a simulated disk: reads, writes, syncs, and memory-mapped writes.

use super::Shared;
use crate::{
    contents::PAGE_LEN,
    faults::{Call, Effect},
    journal::{FileIndex, Name, Operation},
};
use braiddb::platform::{File, ReadMapping, WriteMapping};
use std::{io, sync::Arc};

#[derive(Debug)]
pub(super) struct SimFile {
    pub(super) shared: Arc<Shared>,
    pub(super) file: FileIndex,
    pub(super) name: Name,
    pub(super) writable: bool,
}

impl SimFile {
    fn check_writable(&self) -> io::Result<()> {
        if self.writable { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.inode(self.file).handles -= 1;
        state.collect(self.file);
    }
}

impl File for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = self.shared.state.lock();
        state.call(Call::Read, &self.name)?;
        Ok(state.image.files[&self.file].read(buf, offset))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.check_writable()?;
        let end = offset.checked_add(buf.len() as u64).filter(|end| i64::try_from(*end).is_ok());
        let end = end.ok_or(io::ErrorKind::FileTooLarge)?;
        let mut state = self.shared.state.lock();
        let (mut wanted, mut outcome) = (end, Ok(()));
        match state.faults.next(Call::Write, &self.name) {
            Some(effect @ Effect::Fail(_)) => return Err(effect.error()),
            Some(effect @ Effect::Short { bytes, .. }) => {
                wanted = end.min(offset + bytes as u64);
                outcome = Err(effect.error());
            }
            None => {}
        }
        let fitting = state.take_space(self.file, offset, wanted);
        if fitting < wanted {
            outcome = Err(io::ErrorKind::StorageFull.into());
        }
        if fitting > offset {
            let bytes = Arc::from(&buf[..(fitting - offset) as usize]);
            state.change(Operation::Write { file: self.file, offset, bytes });
            state.unsynced(self.file, fitting - offset);
        }
        if let Some(device) = state.device.clone() {
            let over = state.unsynced_bytes.saturating_sub(device.speed.unsynced_bytes_max).min(fitting - offset);
            drop(state);
            if over > 0 {
                device.transfer(over);
                self.shared.state.lock().written_back(self.file, over);
            }
        }
        outcome
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.shared.state.lock().image.files[&self.file].len())
    }

    /// A copy: mapped bytes no longer change.
    fn map_for_reading(&self, len: u64) -> io::Result<Option<ReadMapping>> {
        let mut bytes = vec![0; usize::try_from(len).map_err(|_| io::ErrorKind::FileTooLarge)?];
        let read = self.shared.state.lock().image.files[&self.file].read(&mut bytes, 0);
        Ok((read == bytes.len()).then(|| ReadMapping::of_copy(bytes.into())))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check_writable()?;
        if i64::try_from(len).is_err() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let mut state = self.shared.state.lock();
        state.call(Call::SetLength, &self.name)?;
        let before = state.image.files[&self.file].pages_allocated();
        state.change(Operation::SetLength { file: self.file, len });
        state.pages_used = state.pages_used + state.image.files[&self.file].pages_allocated() - before;
        Ok(())
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        self.check_writable()?;
        if i64::try_from(len).is_err() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let mut state = self.shared.state.lock();
        state.call(Call::Reserve, &self.name)?;
        let left = state.pages_max.map_or(u64::MAX, |max| max.saturating_sub(state.pages_used));
        if state.image.files[&self.file].pages_needed(0, len) > left {
            return Err(io::ErrorKind::StorageFull.into());
        }
        state.take_space(self.file, 0, len);
        state.change(Operation::Reserve { file: self.file, len });
        Ok(())
    }

    /// The smallest valid answer: the first byte that is not zero.
    fn next_written(&self, offset: u64) -> io::Result<Option<u64>> {
        let state = self.shared.state.lock();
        let file = &state.image.files[&self.file];
        let mut bytes = vec![0; file.len().saturating_sub(offset) as usize];
        let read = file.read(&mut bytes, offset);
        Ok(bytes[..read].iter().position(|byte| *byte != 0).map(|at| offset + at as u64))
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        let upto = state.journal.len();
        if let Err(e) = state.call(Call::Sync, &self.name) {
            state.note(Operation::SyncFailed { file: self.file, upto });
            return Err(e);
        }
        let bytes = state.inode(self.file).unsynced_bytes;
        if let Some(device) = state.device.clone() {
            drop(state);
            device.transfer(bytes);
            device.settle();
            state = self.shared.state.lock();
        }
        state.written_back(self.file, bytes);
        state.note(Operation::Sync { file: self.file, upto });
        Ok(())
    }

    fn sync_bytes(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let len = bytes.len() as u64;
        let mut state = self.shared.state.lock();
        let upto = state.journal.len();
        if let Err(e) = state.call(Call::Sync, &self.name) {
            state.note(Operation::SyncFailed { file: self.file, upto });
            return Err(e);
        }
        if let Some(device) = state.device.clone() {
            drop(state);
            device.transfer(len.next_multiple_of(PAGE_LEN as u64));
            device.settle();
            state = self.shared.state.lock();
        }
        state.written_back(self.file, len);
        state.note(Operation::SyncBytes { file: self.file, offset, len, upto });
        Ok(())
    }

    fn map_for_writing(&self, len: u64) -> io::Result<Option<Box<dyn WriteMapping>>> {
        self.check_writable()?;
        let mut state = self.shared.state.lock();
        let contents = &state.image.files[&self.file];
        if !state.maps_files || contents.len() < len || contents.pages_needed(0, len) > 0 {
            return Ok(None);
        }
        state.inode(self.file).handles += 1;
        let file =
            SimFile { shared: Arc::clone(&self.shared), file: self.file, name: self.name.clone(), writable: true };
        Ok(Some(Box::new(SimMapping { file, len })))
    }
}

#[derive(Debug)]
struct SimMapping {
    file: SimFile,
    len: u64,
}

impl WriteMapping for SimMapping {
    fn write(&mut self, bytes: &[u8], offset: u64) {
        assert!(offset + bytes.len() as u64 <= self.len, "a write of {} bytes at {offset}", bytes.len());
        let file = self.file.file;
        let mut state = self.file.shared.state.lock();
        state.change(Operation::Write { file, offset, bytes: Arc::from(bytes) });
        state.unsynced(file, bytes.len() as u64);
    }
}
