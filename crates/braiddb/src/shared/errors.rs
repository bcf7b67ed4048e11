//! The owner's errors in a reply: a code, and the fields of the variant.
//!
//! A variant without a code becomes an `Io` error with its text.

use crate::{
    base::{Error, NoSpace},
    codec::{ByteReader, put_bytes, put_varint},
};
use std::{io, path::PathBuf};

const OTHER: u8 = 0;
const INVALID_ARGUMENT: u8 = 1;
const NOT_FOUND: u8 = 2;
const ALREADY_EXISTS: u8 = 3;
const DISK_FULL: u8 = 4;
const READ_ONLY: u8 = 5;
const COMMIT_UNKNOWN: u8 = 6;
const CONFLICT: u8 = 7;
const MERGE_FAILED: u8 = 8;
const CORRUPTION: u8 = 9;

const REASONS: [NoSpace; 5] = [NoSpace::Disk, NoSpace::Quota, NoSpace::FileSize, NoSpace::Reserved, NoSpace::Output];

pub fn encode(error: &Error, out: &mut Vec<u8>) {
    let mut put = |code: u8, texts: &[&str]| {
        out.push(code);
        texts.iter().for_each(|text| put_bytes(out, text.as_bytes()));
    };
    match error {
        Error::InvalidArgument(text) => put(INVALID_ARGUMENT, &[text]),
        Error::NotFound(text) => put(NOT_FOUND, &[text]),
        Error::AlreadyExists(text) => put(ALREADY_EXISTS, &[text]),
        Error::DiskFull { path, reason } => {
            put(DISK_FULL, &[&path.to_string_lossy()]);
            out.push(REASONS.iter().position(|known| known == reason).unwrap_or(0) as u8);
        }
        Error::ReadOnly { reason } => put(READ_ONLY, &[reason]),
        Error::CommitUnknown { reason } => put(COMMIT_UNKNOWN, &[reason]),
        Error::Conflict { reason } => put(CONFLICT, &[reason]),
        Error::MergeFailed { tree, function, key, reason } => put(MERGE_FAILED, &[tree, function, key, reason]),
        Error::Corruption(damage) => {
            put(CORRUPTION, &[&damage.path().to_string_lossy(), damage.detail()]);
            put_varint(out, damage.offset());
        }
        other => put(OTHER, &[&other.to_string()]),
    }
}

pub fn decode(reader: &mut ByteReader<'_>) -> Option<Error> {
    let code = reader.u8()?;
    let mut text = || Some(String::from_utf8_lossy(reader.bytes()?).into_owned());
    Some(match code {
        OTHER => {
            let source = io::Error::other(text()?);
            Error::Io { action: "write through", path: PathBuf::from("the owner of the database"), source }
        }
        INVALID_ARGUMENT => Error::InvalidArgument(text()?),
        NOT_FOUND => Error::NotFound(text()?),
        ALREADY_EXISTS => Error::AlreadyExists(text()?),
        DISK_FULL => {
            let path = PathBuf::from(text()?);
            Error::DiskFull { path, reason: *REASONS.get(usize::from(reader.u8()?))? }
        }
        READ_ONLY => Error::ReadOnly { reason: text()? },
        COMMIT_UNKNOWN => Error::CommitUnknown { reason: text()? },
        CONFLICT => Error::Conflict { reason: text()? },
        MERGE_FAILED => Error::MergeFailed { tree: text()?, function: text()?, key: text()?, reason: text()? },
        CORRUPTION => {
            let (path, detail) = (PathBuf::from(text()?), text()?);
            Error::corruption(path, reader.varint()?, detail)
        }
        _ => return None,
    })
}
