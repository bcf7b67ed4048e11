//! CURRENT: names the manifest in force and its synced length.
//!
//! Two slots, 4096 bytes apart, are written in turn with rising generations. The valid slot of the
//! higher generation counts, so a crash during a write leaves the other. No rename is needed.
//!
//! A slot is a file header (numbers: manifest number, generation), then:
//!
//! | bytes | field |
//! |---|---|
//! | 64..72 | manifest length: bytes of the manifest that were synced when the slot was written |
//! | 72..80 | checksum of bytes 0..72, of the header's file id at the slot's offset |

pub use crate::base::CURRENT_NAME;
use crate::{
    base::{Error, FileNumber, Result},
    codec::{ByteReader, FILE_HEADER_LEN, FileHeader, FileKind, checksum},
    platform::{File, OpenMode, Vfs},
};
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

pub const SLOT_OFFSETS: [u64; 2] = [0, 4096];

pub const SLOT_LEN: usize = FILE_HEADER_LEN + 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurrentSlot {
    /// In the manifest's name.
    pub manifest: FileNumber,
    /// Higher than in all earlier slots.
    pub generation: u64,
    /// These bytes of the manifest must be valid.
    pub manifest_len: u64,
}

impl CurrentSlot {
    fn encode(&self, file_id: u64, offset: u64) -> Vec<u8> {
        let header = FileHeader::new(FileKind::Current, file_id, [self.manifest, self.generation]);
        let mut out = header.encode().to_vec();
        out.extend_from_slice(&self.manifest_len.to_le_bytes());
        let sum = checksum(file_id, offset, &out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    pub fn decode(bytes: &[u8], path: &Path, offset: u64) -> Result<CurrentSlot> {
        let bad = |detail: &str| Error::corruption(path, offset, detail);
        let header = FileHeader::decode(FileKind::Current, bytes, path, offset)?;
        let mut reader = ByteReader::new(bytes.get(FILE_HEADER_LEN..).unwrap_or_default());
        let (Some(manifest_len), Some(sum)) = (reader.u64(), reader.u64()) else {
            return Err(bad("the slot is cut short"));
        };
        if checksum(header.file_id, offset, &bytes[..SLOT_LEN - 8]) != sum {
            return Err(bad("the slot's checksum does not match"));
        }
        Ok(CurrentSlot { manifest: header.numbers[0], generation: header.numbers[1], manifest_len })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenCurrent {
    file_id: u64,
    newest: CurrentSlot,
}

#[derive(Clone, Debug)]
pub struct Current {
    path: PathBuf,
    file: Arc<dyn File>,
    file_id: u64,
    newest: CurrentSlot,
    newest_slot: usize,
}

impl Current {
    /// The caller syncs the directory.
    pub fn create(vfs: &dyn Vfs, dir: &Path, file_id: u64, manifest: FileNumber, manifest_len: u64) -> Result<Current> {
        let path = dir.join(CURRENT_NAME);
        let file = vfs.open(&path, OpenMode::CreateNew).map_err(|e| Error::io("create", &path, e))?;
        let newest = CurrentSlot { manifest, generation: 0, manifest_len };
        let mut current = Current { path, file, file_id, newest, newest_slot: 1 };
        current.update(manifest, manifest_len)?;
        current.update(manifest, manifest_len)?;
        Ok(current)
    }

    /// `Ok(None)` if it does not exist.
    pub fn open(vfs: &dyn Vfs, dir: &Path, read_only: bool) -> Result<Option<Current>> {
        let path = dir.join(CURRENT_NAME);
        let mode = if read_only { OpenMode::Read } else { OpenMode::ReadWrite };
        let file = match vfs.open(&path, mode) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::io("open", &path, e)),
        };
        let mut best: Option<(usize, CurrentSlot)> = None;
        let mut first_error = None;
        for (i, result) in Current::read_slots(&*file, &path)?.into_iter().enumerate() {
            match result {
                Ok(slot) if best.is_none_or(|(_, b)| slot.generation > b.generation) => best = Some((i, slot)),
                Ok(_) => {}
                Err(e @ Error::Unsupported { .. }) => return Err(e),
                Err(e) => first_error = first_error.or(Some(e)),
            }
        }
        match (best, first_error) {
            (Some((newest_slot, newest)), _) => {
                let mut id = [0; 8];
                file.read_exact_at(&mut id, SLOT_OFFSETS[newest_slot] + 32).map_err(|e| Error::io("read", &path, e))?;
                let file_id = u64::from_le_bytes(id);
                Ok(Some(Current { path, file, file_id, newest, newest_slot }))
            }
            (None, Some(e)) => Err(e),
            (None, None) => Err(Error::corruption(&path, 0, "no slot can be read")),
        }
    }

    pub fn read_slots(file: &dyn File, path: &Path) -> Result<Vec<Result<CurrentSlot>>> {
        SLOT_OFFSETS
            .iter()
            .map(|&offset| {
                let mut bytes = vec![0; SLOT_LEN];
                let len = file.read_at(&mut bytes, offset).map_err(|e| Error::io("read", path, e))?;
                Ok(CurrentSlot::decode(&bytes[..len], path, offset))
            })
            .collect()
    }

    /// Equal results: nothing was written in between.
    pub fn seen(&self) -> SeenCurrent {
        SeenCurrent { file_id: self.file_id, newest: self.newest }
    }

    pub fn newest(&self) -> CurrentSlot {
        self.newest
    }

    pub fn update(&mut self, manifest: FileNumber, manifest_len: u64) -> Result<()> {
        let slot = CurrentSlot { manifest, generation: self.newest.generation + 1, manifest_len };
        let index = 1 - self.newest_slot;
        let offset = SLOT_OFFSETS[index];
        let bytes = slot.encode(self.file_id, offset);
        self.file.write_at(&bytes, offset).map_err(|e| Error::io("write", &self.path, e))?;
        self.file.sync_data().map_err(|e| Error::io("sync", &self.path, e))?;
        self.newest = slot;
        self.newest_slot = index;
        Ok(())
    }
}
