//! The description of a backup: its layout and files. It is put last; without it there is no
//! backup.
//!
//! | part | |
//! |---|---|
//! | 0..64 | file header with numbers: backup id, and length of all bytes after the header |
//! | fields | below |
//! | last 8 bytes | checksum(file id, 64, fields) |
//!
//! Fields: time of the image in microseconds since 1970, sequence number, incarnation of the
//! database (varints); layout, as an edit (bytes); number of files (varint). For each file: kind
//! (u8: 0 run, 1 blob file, 2 view), number (varint), file id (u64), length (varint), XXH3 of all
//! bytes (u64), id of the backup that put it (varint).

use crate::{
    base::{Corruption, Error, FileId, FileNumber, Result, SequenceNumber},
    codec::{ByteReader, FILE_HEADER_LEN, FileHeader, FileKind, checksum, put_bytes, put_varint},
    db::ImageFileKind,
    version::{Edit, Layout},
};
use std::path::Path;

/// Identifies the contents of a file: equal identities mean equal bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    pub kind: ImageFileKind,
    pub number: FileNumber,
    pub file_id: FileId,
    pub len: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackedUpFile {
    pub identity: Identity,
    /// XXH3 of its bytes.
    pub checksum: u64,
    /// The id of the backup that put it.
    pub put_by: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Description {
    pub id: u64,
    pub taken_us: u64,
    pub sequence: SequenceNumber,
    pub incarnation: u64,
    pub layout: Layout,
    pub files: Vec<BackedUpFile>,
}

const CHECKSUM_LEN: usize = 8;

pub fn description_name(id: u64) -> String {
    format!("{id:06}.backup")
}

pub fn begun_name(id: u64) -> String {
    format!("{id:06}.begun")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    Description(u64),
    Begun(u64),
    File(u64),
}

impl ObjectKind {
    pub fn of(name: &str) -> Option<ObjectKind> {
        let (stem, extension) = name.rsplit_once('.')?;
        match extension {
            "backup" => Some(ObjectKind::Description(stem.parse().ok()?)),
            "begun" => Some(ObjectKind::Begun(stem.parse().ok()?)),
            "run" | "blob" | "view" => Some(ObjectKind::File(stem.rsplit('-').next()?.parse().ok()?)),
            _ => None,
        }
    }
}

fn extension(kind: ImageFileKind) -> &'static str {
    match kind {
        ImageFileKind::Run => "run",
        ImageFileKind::Blob => "blob",
        ImageFileKind::View => "view",
    }
}

impl BackedUpFile {
    pub fn object_name(&self) -> String {
        let Identity { kind, number, file_id, .. } = self.identity;
        format!("{number:06}-{file_id:016x}-{:06}.{}", self.put_by, extension(kind))
    }

    pub fn file_name(&self) -> String {
        format!("{:06}.{}", self.identity.number, extension(self.identity.kind))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let Identity { kind, number, file_id, len } = self.identity;
        out.push(match kind {
            ImageFileKind::Run => 0,
            ImageFileKind::Blob => 1,
            ImageFileKind::View => 2,
        });
        put_varint(out, number);
        out.extend_from_slice(&file_id.to_le_bytes());
        put_varint(out, len);
        out.extend_from_slice(&self.checksum.to_le_bytes());
        put_varint(out, self.put_by);
    }

    fn decode(reader: &mut ByteReader<'_>) -> Option<BackedUpFile> {
        let kind = match reader.u8()? {
            0 => ImageFileKind::Run,
            1 => ImageFileKind::Blob,
            2 => ImageFileKind::View,
            _ => return None,
        };
        let identity = Identity { kind, number: reader.varint()?, file_id: reader.u64()?, len: reader.varint()? };
        Some(BackedUpFile { identity, checksum: reader.u64()?, put_by: reader.varint()? })
    }
}

impl Description {
    /// `file_id` is random.
    pub fn encode(&self, file_id: FileId) -> Vec<u8> {
        let mut fields = Vec::new();
        for number in [self.taken_us, self.sequence, self.incarnation] {
            put_varint(&mut fields, number);
        }
        put_bytes(&mut fields, &self.layout.to_edit().encode());
        put_varint(&mut fields, self.files.len() as u64);
        self.files.iter().for_each(|file| file.encode(&mut fields));
        let len = (fields.len() + CHECKSUM_LEN) as u64;
        let mut out = FileHeader::new(FileKind::Backup, file_id, [self.id, len]).encode().to_vec();
        out.extend_from_slice(&fields);
        out.extend_from_slice(&checksum(file_id, FILE_HEADER_LEN as u64, &fields).to_le_bytes());
        out
    }

    pub fn decode(bytes: &[u8], id: u64, path: &Path) -> Result<Description> {
        let bad = |detail: &str| Error::BackupDamaged { path: path.to_owned(), detail: detail.to_owned() };
        let header = FileHeader::decode(FileKind::Backup, bytes, path, 0).map_err(|e| match e {
            Error::Corruption(Corruption { detail, .. }) => bad(&detail),
            other => other,
        })?;
        let after = &bytes[FILE_HEADER_LEN..];
        if header.numbers != [id, after.len() as u64] {
            return Err(bad("it is the description of another backup, or has another length than it says"));
        }
        let (fields, sum) = after.split_last_chunk::<CHECKSUM_LEN>().ok_or_else(|| bad("it is cut short"))?;
        if checksum(header.file_id, FILE_HEADER_LEN as u64, fields) != u64::from_le_bytes(*sum) {
            return Err(bad("the description's checksum does not match"));
        }
        Description::decode_fields(fields, id).ok_or_else(|| bad("the description cannot be understood"))
    }

    fn decode_fields(fields: &[u8], id: u64) -> Option<Description> {
        let mut reader = ByteReader::new(fields);
        let (taken_us, sequence, incarnation) = (reader.varint()?, reader.varint()?, reader.varint()?);
        let edit = Edit::decode(reader.bytes()?)?;
        let mut layout = Layout::default();
        layout.apply(&edit).and_then(|()| layout.check_cover()).ok()?;
        let count = usize::try_from(reader.varint()?).ok().filter(|count| *count <= reader.remaining())?;
        let files = (0..count).map(|_| BackedUpFile::decode(&mut reader)).collect::<Option<Vec<_>>>()?;
        let description = Description { id, taken_us, sequence, incarnation, layout, files };
        (reader.is_at_end() && description.is_complete()).then_some(description)
    }

    fn is_complete(&self) -> bool {
        let has = |kind, number| self.files.iter().any(|f| f.identity.kind == kind && f.identity.number == number);
        let runs = self.layout.runs.values();
        let blobs = runs.clone().flat_map(|meta| &meta.blob_uses).map(|blob_use| blob_use.file);
        runs.map(|meta| meta.number).all(|number| has(ImageFileKind::Run, number))
            && blobs.collect::<std::collections::BTreeSet<_>>().into_iter().all(|n| has(ImageFileKind::Blob, n))
            && self.layout.partitions.values().all(|partition| partition.view.is_none())
    }
}
