//! Messages: the payloads of frames.
//!
//! A connection begins with `Hello`. Then the client sends one request at a time, and the owner
//! answers each with one reply. Numbers are varints, byte strings have their length before them.
//!
//! | request | first byte | fields |
//! |---|---|---|
//! | `Hello` | 1 | protocol version u8, incarnation u64 (0: any), session (16 bytes; zeros: none) |
//! | `Commit` | 2 | number, microseconds for which the client will wait, durability u8, snapshot, keys read (count, strings), ranges read (count, pairs of strings), batches to the end, as in the log |
//! | `Tree` | 3 | flags u8 (1: multi-tree, 2: fail if its options differ), name, options |
//! | `Function` | 4 | name |
//! | `Sync` | 5 | |
//! | `Goodbye` | 6 | |
//!
//! | reply | first byte | fields |
//! |---|---|---|
//! | `Done` | 1 | commit number that the client must see, incarnation u64 |
//! | `Refused` | 2 | an error, see `errors.rs` |
//! | `Again` | 3 | the owner is closing and has done nothing |

use super::{errors, frame};
use crate::{
    base::{Error, SequenceNumber},
    codec::{ByteReader, Compression, put_bytes, put_varint},
    db::{Durability, ForwardedCommit, TreeCodec, TreeOptions},
    txn::ReadSet,
};
use std::time::Duration;

/// Version of this protocol. All processes of a database must have the same one.
pub const PROTOCOL_VERSION: u8 = 2;

pub type SessionId = [u8; 16];

/// The session of connections that only wait for the end of the owner.
pub const NO_SESSION: SessionId = [0; 16];

const HELLO: u8 = 1;
const COMMIT: u8 = 2;
const TREE: u8 = 3;
const FUNCTION: u8 = 4;
const SYNC: u8 = 5;
const GOODBYE: u8 = 6;

const DONE: u8 = 1;
const REFUSED: u8 = 2;
const AGAIN: u8 = 3;

const MULTI: u8 = 1;
const EXACT: u8 = 2;

/// No compression of its own.
const DEFAULT_COMPRESSION: u8 = 255;

#[derive(Debug)]
pub enum Request {
    Hello {
        version: u8,
        incarnation: u64,
        session: SessionId,
    },
    Commit {
        number: u64,
        /// Time for which the client will wait, in microseconds: later the request must not begin.
        left_us: u64,
        durability: Durability,
        commit: ForwardedCommit,
    },
    Tree(TreeRequest),
    Function {
        name: String,
    },
    Sync,
    Goodbye,
}

/// A tree to open or create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeRequest {
    pub name: String,
    pub multi: bool,
    /// Fails if an existing tree has other options.
    pub exact: bool,
    pub options: TreeOptions,
}

#[derive(Debug)]
pub enum Reply {
    Done { sequence: SequenceNumber, incarnation: u64 },
    Refused(Error),
    Again,
}

impl Request {
    /// Returns the frame of the request. `None` if it is too long.
    pub fn frame(&self) -> Option<Vec<u8>> {
        let mut out = frame::begin();
        match self {
            Request::Hello { version, incarnation, session } => {
                out.extend_from_slice(&[HELLO, *version]);
                out.extend_from_slice(&incarnation.to_le_bytes());
                out.extend_from_slice(session);
            }
            Request::Commit { number, left_us, durability, commit } => {
                out.push(COMMIT);
                put_varint(&mut out, *number);
                put_varint(&mut out, *left_us);
                out.push(u8::from(*durability != Durability::Sync));
                put_varint(&mut out, commit.snapshot);
                put_varint(&mut out, commit.reads.keys().count() as u64);
                commit.reads.keys().for_each(|key| put_bytes(&mut out, key));
                put_varint(&mut out, commit.reads.ranges().len() as u64);
                for (start, end) in commit.reads.ranges().iter() {
                    put_bytes(&mut out, start);
                    put_bytes(&mut out, end);
                }
                out.extend_from_slice(&commit.batches);
            }
            Request::Tree(TreeRequest { name, multi, exact, options }) => {
                let flags = u8::from(*multi) * MULTI + u8::from(*exact) * EXACT;
                out.extend_from_slice(&[TREE, flags]);
                put_bytes(&mut out, name.as_bytes());
                put_options(&mut out, options);
            }
            Request::Function { name } => {
                out.push(FUNCTION);
                put_bytes(&mut out, name.as_bytes());
            }
            Request::Sync => out.push(SYNC),
            Request::Goodbye => out.push(GOODBYE),
        }
        frame::finish(out)
    }

    pub fn decode(payload: &[u8]) -> Option<Request> {
        let mut reader = ByteReader::new(payload);
        let request = match reader.u8()? {
            HELLO => {
                let (version, incarnation) = (reader.u8()?, reader.u64()?);
                Request::Hello { version, incarnation, session: reader.take(16)?.try_into().ok()? }
            }
            COMMIT => return decode_commit(payload, reader),
            TREE => {
                let flags = reader.u8().filter(|flags| flags & !(MULTI | EXACT) == 0)?;
                let name = text(&mut reader)?;
                let options = options(&mut reader)?;
                Request::Tree(TreeRequest { name, multi: flags & MULTI != 0, exact: flags & EXACT != 0, options })
            }
            FUNCTION => Request::Function { name: text(&mut reader)? },
            SYNC => Request::Sync,
            GOODBYE => Request::Goodbye,
            _ => return None,
        };
        reader.is_at_end().then_some(request)
    }
}

fn decode_commit(payload: &[u8], mut reader: ByteReader<'_>) -> Option<Request> {
    let (number, left_us) = (reader.varint()?, reader.varint()?);
    let durability = match reader.u8()? {
        0 => Durability::Sync,
        1 => Durability::Buffered,
        _ => return None,
    };
    let snapshot = reader.varint()?;
    let mut reads = ReadSet::default();
    for _ in 0..reader.varint()? {
        reads.add_key(reader.bytes()?);
    }
    for _ in 0..reader.varint()? {
        let (start, end) = (reader.bytes()?, reader.bytes()?);
        reads.add_range(start, end);
    }
    let batches = payload.get(reader.position()..)?.to_vec();
    let commit = ForwardedCommit { snapshot, reads, batches };
    Some(Request::Commit { number, left_us, durability, commit })
}

fn text(reader: &mut ByteReader<'_>) -> Option<String> {
    String::from_utf8(reader.bytes()?.to_vec()).ok()
}

fn put_options(out: &mut Vec<u8>, options: &TreeOptions) {
    let TreeOptions { compression, blob_threshold, ttl, codec } = options;
    out.push(compression.map_or(DEFAULT_COMPRESSION, |method| method as u8));
    put_varint(
        out,
        blob_threshold.map_or(0, |bytes| bytes as u64).min(u64::MAX - 1) + u64::from(blob_threshold.is_some()),
    );
    let micros = |ttl: Duration| u64::try_from(ttl.as_micros()).unwrap_or(u64::MAX - 1).min(u64::MAX - 1);
    put_varint(out, ttl.map_or(0, |ttl| micros(ttl) + 1));
    out.push(u8::from(codec.is_some()));
    if let Some(codec) = codec {
        put_bytes(out, codec.key().as_bytes());
        put_bytes(out, codec.value().as_bytes());
    }
}

fn options(reader: &mut ByteReader<'_>) -> Option<TreeOptions> {
    let compression = match reader.u8()? {
        DEFAULT_COMPRESSION => None,
        byte => Some(Compression::from_byte(byte)?),
    };
    let blob_threshold = match reader.varint()? {
        0 => None,
        more => Some(usize::try_from(more - 1).ok()?),
    };
    let ttl = reader.varint()?.checked_sub(1).map(Duration::from_micros);
    let codec = match reader.u8()? {
        0 => None,
        1 => {
            let (key, value) = (reader.bytes()?, reader.bytes()?);
            Some(TreeCodec::new(str::from_utf8(key).ok()?, str::from_utf8(value).ok()?).ok()?)
        }
        _ => return None,
    };
    Some(TreeOptions { compression, blob_threshold, ttl, codec })
}

impl Reply {
    /// Returns the frame of the reply. `None` if it is too long.
    pub fn frame(&self) -> Option<Vec<u8>> {
        let mut out = frame::begin();
        match self {
            Reply::Done { sequence, incarnation } => {
                out.push(DONE);
                put_varint(&mut out, *sequence);
                out.extend_from_slice(&incarnation.to_le_bytes());
            }
            Reply::Refused(error) => {
                out.push(REFUSED);
                errors::encode(error, &mut out);
            }
            Reply::Again => out.push(AGAIN),
        }
        frame::finish(out)
    }

    pub fn decode(payload: &[u8]) -> Option<Reply> {
        let mut reader = ByteReader::new(payload);
        let reply = match reader.u8()? {
            DONE => Reply::Done { sequence: reader.varint()?, incarnation: reader.u64()? },
            REFUSED => Reply::Refused(errors::decode(&mut reader)?),
            AGAIN => Reply::Again,
            _ => return None,
        };
        reader.is_at_end().then_some(reply)
    }
}
