//! The state of a simulated disk: files, journal, faults and space, under one lock.

use crate::{
    contents::PAGE_LEN,
    crash::Image,
    faults::{Call, Faults},
    journal::{FileIndex, Name, Operation, clean, parent_of},
    speed::Device,
};
use std::{collections::BTreeMap, io, path::Path, sync::Arc};

#[derive(Debug)]
pub(super) struct State {
    pub(super) image: Image,
    pub(super) inodes: BTreeMap<FileIndex, Inode>,
    pub(super) next_file: FileIndex,
    pub(super) journal: Vec<Operation>,
    pub(super) journaling: bool,
    pub(super) faults: Faults,
    pub(super) held: BTreeMap<Name, String>,
    pub(super) pages_max: Option<u64>,
    pub(super) pages_used: u64,
    pub(super) device: Option<Arc<Device>>,
    pub(super) unsynced_bytes: u64,
    pub(super) maps_files: bool,
    pub(super) sessions: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Inode {
    pub(super) names: u32,
    pub(super) handles: u32,
    pub(super) unsynced_bytes: u64,
}

impl State {
    pub(super) fn find(&self, path: &Path) -> io::Result<FileIndex> {
        let name = clean(path);
        match self.image.names.get(&name) {
            Some(file) => Ok(*file),
            None if self.image.is_directory(&name) => Err(io::ErrorKind::IsADirectory.into()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    pub(super) fn call(&mut self, call: Call, path: &Path) -> io::Result<()> {
        self.faults.next(call, path).map_or(Ok(()), |effect| Err(effect.error()))
    }

    pub(super) fn change(&mut self, operation: Operation) {
        self.image.apply(&operation);
        self.note(operation);
    }

    pub(super) fn note(&mut self, operation: Operation) {
        if self.journaling {
            self.journal.push(operation);
        }
    }

    pub(super) fn damage(&mut self, operation: Operation) {
        let before = self.pages_of(&operation);
        self.image.apply(&operation);
        self.pages_used = self.pages_used + self.pages_of(&operation) - before;
        self.note(Operation::Damage(Box::new(operation)));
    }

    pub(super) fn pages_of(&self, operation: &Operation) -> u64 {
        match operation {
            Operation::Write { file, .. } | Operation::SetLength { file, .. } => {
                self.image.files[file].pages_allocated()
            }
            _ => 0,
        }
    }

    pub(super) fn check_new_name(&self, name: &Name) -> io::Result<()> {
        if self.image.is_directory(name) {
            Err(io::ErrorKind::IsADirectory.into())
        } else if !self.image.is_directory(&parent_of(name)) {
            Err(io::ErrorKind::NotFound.into())
        } else {
            Ok(())
        }
    }

    pub(super) fn create(&mut self, name: Name) -> io::Result<FileIndex> {
        if self.image.names.contains_key(&name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        self.check_new_name(&name)?;
        let file = self.next_file;
        self.next_file += 1;
        self.inodes.insert(file, Inode { names: 1, ..Inode::default() });
        self.change(Operation::Link { name, file });
        Ok(file)
    }

    pub(super) fn inode(&mut self, file: FileIndex) -> &mut Inode {
        self.inodes.get_mut(&file).expect("a file that has a name or a handle")
    }

    pub(super) fn unlinked(&mut self, file: FileIndex) {
        self.inode(file).names -= 1;
        self.collect(file);
    }

    pub(super) fn collect(&mut self, file: FileIndex) {
        let inode = *self.inode(file);
        if inode.names == 0 && inode.handles == 0 {
            self.inodes.remove(&file);
            self.unsynced_bytes -= inode.unsynced_bytes;
            let contents = self.image.files.remove(&file).unwrap_or_default();
            self.pages_used -= contents.pages_allocated();
        }
    }

    /// Returns the end of the part that fits.
    pub(super) fn take_space(&mut self, file: FileIndex, offset: u64, end: u64) -> u64 {
        let contents = &self.image.files[&file];
        let left = self.pages_max.map_or(u64::MAX, |max| max.saturating_sub(self.pages_used));
        let mut fitting = end;
        while contents.pages_needed(offset, fitting) > left {
            fitting = ((fitting - 1) / PAGE_LEN as u64 * PAGE_LEN as u64).max(offset);
        }
        self.pages_used += contents.pages_needed(offset, fitting);
        fitting
    }

    pub(super) fn unsynced(&mut self, file: FileIndex, bytes: u64) {
        self.inode(file).unsynced_bytes += bytes;
        self.unsynced_bytes += bytes;
    }

    pub(super) fn written_back(&mut self, file: FileIndex, bytes: u64) {
        if let Some(inode) = self.inodes.get_mut(&file) {
            let bytes = bytes.min(inode.unsynced_bytes);
            inode.unsynced_bytes -= bytes;
            self.unsynced_bytes -= bytes;
        }
    }
}
