//! Layers: file systems and files that change some calls and forward all others.
//!
//! Implement a layer by its path (`impl platform::VfsLayer for ..`): with both traits in scope,
//! method calls are ambiguous. A test checks that layers have every method of [`Vfs`] and [`File`].

use crate::platform::{
    batch::{IoReport, ReadRequest, Unbuffered},
    os::read_mapping::ReadMapping,
    vfs::{DirEntry, File, FileLock, OpenMode, Vfs, WriteMapping},
};
use std::{fmt::Debug, io, path::Path, sync::Arc};

/// A file system over another one. It implements [`Vfs`], which documents the methods.
#[expect(missing_docs, reason = "those of `Vfs`")]
pub trait VfsLayer: Send + Sync + Debug + 'static {
    /// Returns the file system below.
    fn inner(&self) -> &dyn Vfs;

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.inner().create_dir_all(path)
    }
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        self.inner().open(path, mode)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        self.inner().list(dir)
    }
    fn list_directories(&self, dir: &Path) -> io::Result<Vec<String>> {
        self.inner().list_directories(dir)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.inner().remove(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner().rename(from, to)
    }
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner().hard_link(from, to)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner().sync_dir(dir)
    }
    fn lock(&self, path: &Path, owner: &str) -> io::Result<Result<Box<dyn FileLock>, String>> {
        self.inner().lock(path, owner)
    }
    fn lock_owner(&self, path: &Path) -> io::Result<Option<String>> {
        self.inner().lock_owner(path)
    }
    fn free_space(&self, path: &Path) -> io::Result<Option<u64>> {
        self.inner().free_space(path)
    }
    fn total_space(&self, path: &Path) -> io::Result<Option<u64>> {
        self.inner().total_space(path)
    }
    fn open_files_limit(&self) -> Option<u64> {
        self.inner().open_files_limit()
    }
    fn open_unbuffered(&self, path: &Path, mode: OpenMode) -> io::Result<Unbuffered> {
        self.inner().open_unbuffered(path, mode)
    }
    fn read_many(&self, requests: &mut [ReadRequest]) {
        self.inner().read_many(requests);
    }
    fn io_report(&self) -> IoReport {
        self.inner().io_report()
    }
}

impl<L: VfsLayer> Vfs for L {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        VfsLayer::create_dir_all(self, path)
    }
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn File>> {
        VfsLayer::open(self, path, mode)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<DirEntry>> {
        VfsLayer::list(self, dir)
    }
    fn list_directories(&self, dir: &Path) -> io::Result<Vec<String>> {
        VfsLayer::list_directories(self, dir)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        VfsLayer::remove(self, path)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        VfsLayer::rename(self, from, to)
    }
    fn hard_link(&self, from: &Path, to: &Path) -> io::Result<()> {
        VfsLayer::hard_link(self, from, to)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        VfsLayer::sync_dir(self, dir)
    }
    fn lock(&self, path: &Path, owner: &str) -> io::Result<Result<Box<dyn FileLock>, String>> {
        VfsLayer::lock(self, path, owner)
    }
    fn lock_owner(&self, path: &Path) -> io::Result<Option<String>> {
        VfsLayer::lock_owner(self, path)
    }
    fn free_space(&self, path: &Path) -> io::Result<Option<u64>> {
        VfsLayer::free_space(self, path)
    }
    fn total_space(&self, path: &Path) -> io::Result<Option<u64>> {
        VfsLayer::total_space(self, path)
    }
    fn open_files_limit(&self) -> Option<u64> {
        VfsLayer::open_files_limit(self)
    }
    fn open_unbuffered(&self, path: &Path, mode: OpenMode) -> io::Result<Unbuffered> {
        VfsLayer::open_unbuffered(self, path, mode)
    }
    fn read_many(&self, requests: &mut [ReadRequest]) {
        VfsLayer::read_many(self, requests);
    }
    fn io_report(&self) -> IoReport {
        VfsLayer::io_report(self)
    }
}

/// A file over another one. It implements [`File`], which documents the methods.
#[expect(missing_docs, reason = "those of `File`")]
#[expect(clippy::len_without_is_empty, reason = "a file has it")]
pub trait FileLayer: Send + Sync + Debug + 'static {
    /// Returns the file below.
    fn inner(&self) -> &dyn File;

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner().read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.inner().write_at(buf, offset)
    }
    /// A layer may move bytes, so the file below does not know the answer.
    fn next_written(&self, offset: u64) -> io::Result<Option<u64>> {
        Ok(Some(offset))
    }
    fn len(&self) -> io::Result<u64> {
        self.inner().len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner().set_len(len)
    }
    fn preallocate(&self, len: u64) -> io::Result<()> {
        self.inner().preallocate(len)
    }
    fn sync_data(&self) -> io::Result<()> {
        self.inner().sync_data()
    }
    fn sync_bytes(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.inner().sync_bytes(bytes, offset)
    }
    fn start_write_back(&self, offset: u64, len: u64) {
        self.inner().start_write_back(offset, len);
    }
    fn is_read_ahead(&self) -> bool {
        self.inner().is_read_ahead()
    }
    fn is_unbuffered(&self) -> bool {
        self.inner().is_unbuffered()
    }
    #[cfg(any(unix, windows))]
    fn system_file(&self) -> Option<crate::platform::batch::SystemFile<'_>> {
        self.inner().system_file()
    }
    fn catch_up(&self) -> io::Result<()> {
        self.inner().catch_up()
    }
    fn held(&self) -> Option<Arc<dyn File>> {
        self.inner().held()
    }
    fn map_for_writing(&self, len: u64) -> io::Result<Option<Box<dyn WriteMapping>>> {
        self.inner().map_for_writing(len)
    }
    fn map_for_reading(&self, len: u64) -> io::Result<Option<ReadMapping>> {
        self.inner().map_for_reading(len)
    }
}

impl<L: FileLayer> File for L {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        FileLayer::read_at(self, buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        FileLayer::write_at(self, buf, offset)
    }
    fn next_written(&self, offset: u64) -> io::Result<Option<u64>> {
        FileLayer::next_written(self, offset)
    }
    fn len(&self) -> io::Result<u64> {
        FileLayer::len(self)
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        FileLayer::set_len(self, len)
    }
    fn preallocate(&self, len: u64) -> io::Result<()> {
        FileLayer::preallocate(self, len)
    }
    fn sync_data(&self) -> io::Result<()> {
        FileLayer::sync_data(self)
    }
    fn sync_bytes(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        FileLayer::sync_bytes(self, bytes, offset)
    }
    fn start_write_back(&self, offset: u64, len: u64) {
        FileLayer::start_write_back(self, offset, len);
    }
    fn is_read_ahead(&self) -> bool {
        FileLayer::is_read_ahead(self)
    }
    fn is_unbuffered(&self) -> bool {
        FileLayer::is_unbuffered(self)
    }
    #[cfg(any(unix, windows))]
    fn system_file(&self) -> Option<crate::platform::batch::SystemFile<'_>> {
        FileLayer::system_file(self)
    }
    fn catch_up(&self) -> io::Result<()> {
        FileLayer::catch_up(self)
    }
    fn held(&self) -> Option<Arc<dyn File>> {
        FileLayer::held(self)
    }
    fn map_for_writing(&self, len: u64) -> io::Result<Option<Box<dyn WriteMapping>>> {
        FileLayer::map_for_writing(self, len)
    }
    fn map_for_reading(&self, len: u64) -> io::Result<Option<ReadMapping>> {
        FileLayer::map_for_reading(self, len)
    }
}
