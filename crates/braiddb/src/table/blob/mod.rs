//! stub
use crate::{base::*, codec::*, platform::*};
use std::{path::*, sync::Arc};
#[derive(Clone, Debug)]
pub struct BlobRef {
    pub file: u64,
    pub compression: Compression,
}
impl BlobRef {
    pub fn decode(_: &[u8]) -> Option<BlobRef> {
        todo!()
    }
    pub fn encode(&self, _: &mut Vec<u8>) {}
    pub fn disk_bytes(&self) -> u64 {
        0
    }
}
#[derive(Debug)]
pub struct BlobFile {}
impl BlobFile {
    pub fn open(_: &dyn Vfs, _: &Path, _: u64) -> Result<Arc<BlobFile>> {
        todo!()
    }
    pub fn read(&self, _: &BlobRef) -> Result<Vec<u8>> {
        todo!()
    }
    pub fn is_complete(&self, _: &BlobRef) -> Result<bool> {
        todo!()
    }
    pub fn mark_obsolete(&self) {}
}
#[derive(Debug)]
pub struct BlobWriter {}
#[derive(Debug, Default)]
pub struct BlobWriterOptions {
    pub file_bytes_max: u64,
}
impl BlobWriter {
    pub fn new(
        _: Arc<dyn Vfs>,
        _: &Path,
        _: BlobWriterOptions,
        _: Arc<dyn Fn() -> u64 + Send + Sync>,
        _: Arc<dyn Fn() -> u64 + Send + Sync>,
    ) -> Self {
        todo!()
    }
    pub fn append(&self, _: &[u8], _: &[u8], _: Compression) -> Result<BlobRef> {
        todo!()
    }
    pub fn sync(&self) -> Result<()> {
        todo!()
    }
    pub fn bytes_written(&self) -> u64 {
        0
    }
    pub fn current_file(&self) -> Option<u64> {
        None
    }
}
pub fn blob_path(_: &Path, _: u64) -> PathBuf {
    todo!()
}
