//! The owner's errors in a reply: a code, and the fields of the variant.
//!
//! A variant without a code becomes an `Io` error with its text. An `Io` error keeps its kind, and
//! those of the operating system their number.

use crate::{
    base::{Error, NoSpace, ReaderKind},
    codec::{ByteReader, put_bytes, put_varint},
};
use std::{io, path::PathBuf, time::Duration};

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
const SYSTEM: u8 = 10;
const TOO_LARGE: u8 = 11;
const EXCLUSIVE_OPEN: u8 = 12;
const UNSUPPORTED: u8 = 13;
const TOO_BUSY: u8 = 14;
const NO_OWNER: u8 = 15;
const OUTCOME_UNKNOWN: u8 = 16;
const READER_EXPIRED: u8 = 17;
const SUPERSEDED: u8 = 18;
const LOCKED: u8 = 19;

/// Kinds of errors without a number of the operating system.
const KINDS: [io::ErrorKind; 8] = [
    io::ErrorKind::Other,
    io::ErrorKind::NotFound,
    io::ErrorKind::PermissionDenied,
    io::ErrorKind::AlreadyExists,
    io::ErrorKind::InvalidInput,
    io::ErrorKind::InvalidData,
    io::ErrorKind::UnexpectedEof,
    io::ErrorKind::TimedOut,
];

const REASONS: [NoSpace; 5] = [NoSpace::Disk, NoSpace::Quota, NoSpace::FileSize, NoSpace::Reserved, NoSpace::Output];

/// Actions of errors of the operating system. Others become the first.
const ACTIONS: [&str; 12] = [
    "write",
    "read",
    "sync",
    "open",
    "create",
    "list",
    "lock",
    "remove",
    "rewrite",
    "truncate",
    "append to",
    "read the length of",
];

const READERS: [ReaderKind; 6] = [
    ReaderKind::Snapshot,
    ReaderKind::Cursor,
    ReaderKind::Iterator,
    ReaderKind::Transaction,
    ReaderKind::MultiGet,
    ReaderKind::Stream,
];

fn index<T: PartialEq>(known: &[T], one: &T) -> u8 {
    known.iter().position(|other| other == one).map_or(0, |at| at as u8)
}

fn put_duration(out: &mut Vec<u8>, duration: Duration) {
    put_varint(out, u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
}

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
            out.push(index(&REASONS, reason));
        }
        Error::ReadOnly { reason } => put(READ_ONLY, &[reason]),
        Error::CommitUnknown { reason } => put(COMMIT_UNKNOWN, &[reason]),
        Error::Conflict { reason } => put(CONFLICT, &[reason]),
        Error::MergeFailed { tree, function, key, reason } => put(MERGE_FAILED, &[tree, function, key, reason]),
        Error::Corruption(damage) => {
            put(CORRUPTION, &[&damage.path().to_string_lossy(), damage.detail()]);
            put_varint(out, damage.offset());
        }
        Error::Io { action, path, source } => {
            put(SYSTEM, &[&path.to_string_lossy(), &source.to_string()]);
            out.extend_from_slice(&[index(&ACTIONS, action), index(&KINDS, &source.kind())]);
            let number = source.raw_os_error().and_then(|number| u32::try_from(number).ok());
            put_varint(out, number.map_or(0, |number| u64::from(number) + 1));
        }
        Error::TransactionTooLarge { bytes, bytes_max } => {
            put(TOO_LARGE, &[]);
            put_varint(out, *bytes as u64);
            put_varint(out, *bytes_max as u64);
        }
        Error::ExclusiveOpen { begun_by, age } => {
            put(EXCLUSIVE_OPEN, &[begun_by]);
            put_duration(out, *age);
        }
        Error::Unsupported { path, detail } => put(UNSUPPORTED, &[&path.to_string_lossy(), detail]),
        Error::TooBusy { path, tries, took, reason } => {
            put(TOO_BUSY, &[&path.to_string_lossy(), reason]);
            put_varint(out, u64::from(*tries));
            put_duration(out, *took);
        }
        Error::NoOwner { path, waited, reason } => {
            put(NO_OWNER, &[&path.to_string_lossy(), reason]);
            put_duration(out, *waited);
        }
        Error::OutcomeUnknown { reason } => put(OUTCOME_UNKNOWN, &[reason]),
        Error::ReaderExpired { kind, sequence, age } => {
            put(READER_EXPIRED, &[]);
            out.push(index(&READERS, kind));
            put_varint(out, *sequence);
            put_duration(out, *age);
        }
        Error::Superseded => put(SUPERSEDED, &[]),
        Error::Locked { path, owner } => put(LOCKED, &[&path.to_string_lossy(), owner]),
        other => put(OTHER, &[&other.to_string()]),
    }
}

pub fn decode(reader: &mut ByteReader<'_>) -> Option<Error> {
    let code = reader.u8()?;
    if let SYSTEM | TOO_LARGE | EXCLUSIVE_OPEN | TOO_BUSY | NO_OWNER | READER_EXPIRED = code {
        return decode_with_numbers(code, reader);
    }
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
        UNSUPPORTED => Error::Unsupported { path: PathBuf::from(text()?), detail: text()? },
        OUTCOME_UNKNOWN => Error::OutcomeUnknown { reason: text()? },
        SUPERSEDED => Error::Superseded,
        LOCKED => Error::Locked { path: PathBuf::from(text()?), owner: text()? },
        _ => return None,
    })
}

fn decode_with_numbers(code: u8, reader: &mut ByteReader<'_>) -> Option<Error> {
    let text = |reader: &mut ByteReader<'_>| Some(String::from_utf8_lossy(reader.bytes()?).into_owned());
    let duration = |reader: &mut ByteReader<'_>| reader.varint().map(Duration::from_micros);
    Some(match code {
        SYSTEM => {
            let (path, detail) = (PathBuf::from(text(reader)?), text(reader)?);
            let action = *ACTIONS.get(usize::from(reader.u8()?))?;
            let kind = *KINDS.get(usize::from(reader.u8()?))?;
            let source = match reader.varint()?.checked_sub(1) {
                Some(number) => io::Error::from_raw_os_error(i32::try_from(number).ok()?),
                None => io::Error::new(kind, detail),
            };
            Error::Io { action, path, source }
        }
        TOO_LARGE => {
            let (bytes, bytes_max) = (reader.varint()?, reader.varint()?);
            Error::TransactionTooLarge { bytes: bytes.try_into().ok()?, bytes_max: bytes_max.try_into().ok()? }
        }
        EXCLUSIVE_OPEN => Error::ExclusiveOpen { begun_by: text(reader)?, age: duration(reader)? },
        TOO_BUSY => {
            let (path, reason) = (PathBuf::from(text(reader)?), text(reader)?);
            Error::TooBusy { path, tries: reader.varint()?.try_into().ok()?, took: duration(reader)?, reason }
        }
        NO_OWNER => {
            let (path, reason) = (PathBuf::from(text(reader)?), text(reader)?);
            Error::NoOwner { path, waited: duration(reader)?, reason }
        }
        READER_EXPIRED => {
            let kind = *READERS.get(usize::from(reader.u8()?))?;
            Error::ReaderExpired { kind, sequence: reader.varint()?, age: duration(reader)? }
        }
        _ => return None,
    })
}
