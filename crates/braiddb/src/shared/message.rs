//! Messages: the payloads of frames.
//!
//! A connection begins with `Hello`. Then the client sends one request at a time, and the owner
//! answers each with one reply. Numbers are varints, byte strings have their length before them.
//!
//! | request | first byte | fields |
//! |---|---|---|
//! | `Hello` | 1 | protocol version u8, incarnation u64 (0: any), session (16 bytes; zeros: none) |
//! | `Commit` | 2 | number, microseconds for which the client will wait, flags u8 (1: buffered, 2: exclusive), snapshot, keys read (count, strings), ranges read (count, pairs of strings), batches to the end, as in the log |
//! | `Tree` | 3 | flags u8 (1: multi-tree, 2: fail if its options differ), name, options |
//! | `Function` | 4 | name |
//! | `Sync` | 5 | |
//! | `Goodbye` | 6 | |
//! | `Begin` | 7 | microseconds for which the client will wait for the exclusive right |
//! | `End` | 8 | gives up the exclusive right and the streams |
//! | `Stream` | 9 | tree u32, key: begins a value |
//! | `Part` | 10 | bytes of the value |
//! | `EndStream` | 11 | ends the value, for the next commit of this connection |
//!
//! | reply | first byte | fields |
//! |---|---|---|
//! | `Done` | 1 | commit number that the client must see, incarnation u64 |
//! | `Refused` | 2 | an error, see `errors.rs` |
//! | `Again` | 3 | the owner is closing and has done nothing |
//! | `Placed` | 4 | kind of the entry u8, length of the value, bytes of the entry |

use super::{errors, frame};
use crate::{
    base::{EntryKind, Error, SequenceNumber, TreeId},
    codec::{ByteReader, Compression, put_bytes, put_varint},
    db::{Durability, ForwardedCommit, Placed, TreeCodec, TreeOptions},
    txn::ReadSet,
};
use std::time::Duration;

/// Version of this protocol. All processes of a database must have the same one.
pub const PROTOCOL_VERSION: u8 = 3;

pub type SessionId = [u8; 16];

/// The session of connections that only wait for the end of the owner.
pub const NO_SESSION: SessionId = [0; 16];

const HELLO: u8 = 1;
const COMMIT: u8 = 2;
const TREE: u8 = 3;
const FUNCTION: u8 = 4;
const SYNC: u8 = 5;
const GOODBYE: u8 = 6;
const BEGIN: u8 = 7;
const END: u8 = 8;
const STREAM: u8 = 9;
const PART: u8 = 10;
const END_STREAM: u8 = 11;

const DONE: u8 = 1;
const REFUSED: u8 = 2;
const AGAIN: u8 = 3;
const PLACED: u8 = 4;

const BUFFERED: u8 = 1;
const EXCLUSIVE: u8 = 2;

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
    Begin {
        left_us: u64,
    },
    End,
    Stream {
        tree: TreeId,
        key: Vec<u8>,
    },
    Part(Vec<u8>),
    EndStream,
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
    Placed(Placed),
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
                let is_buffered = u8::from(*durability != Durability::Sync);
                out.push(is_buffered * BUFFERED + u8::from(commit.is_exclusive) * EXCLUSIVE);
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
            Request::Begin { left_us } => {
                out.push(BEGIN);
                put_varint(&mut out, *left_us);
            }
            Request::End => out.push(END),
            Request::Stream { tree, key } => {
                out.push(STREAM);
                out.extend_from_slice(&tree.0.to_le_bytes());
                put_bytes(&mut out, key);
            }
            Request::Part(bytes) => {
                out.push(PART);
                put_bytes(&mut out, bytes);
            }
            Request::EndStream => out.push(END_STREAM),
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
            BEGIN => Request::Begin { left_us: reader.varint()? },
            END => Request::End,
            STREAM => {
                let tree = TreeId(u32::from_le_bytes(*reader.take(4)?.first_chunk()?));
                Request::Stream { tree, key: reader.bytes()?.to_vec() }
            }
            PART => Request::Part(reader.bytes()?.to_vec()),
            END_STREAM => Request::EndStream,
            _ => return None,
        };
        reader.is_at_end().then_some(request)
    }
}

fn decode_commit(payload: &[u8], mut reader: ByteReader<'_>) -> Option<Request> {
    let (number, left_us) = (reader.varint()?, reader.varint()?);
    let flags = reader.u8().filter(|flags| flags & !(BUFFERED | EXCLUSIVE) == 0)?;
    let durability = if flags & BUFFERED == 0 { Durability::Sync } else { Durability::Buffered };
    let is_exclusive = flags & EXCLUSIVE != 0;
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
    let commit = ForwardedCommit { snapshot, reads, batches, is_exclusive };
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
            Reply::Placed(Placed { kind, value, len }) => {
                out.extend_from_slice(&[PLACED, *kind as u8]);
                put_varint(&mut out, *len);
                put_bytes(&mut out, value);
            }
        }
        frame::finish(out)
    }

    pub fn decode(payload: &[u8]) -> Option<Reply> {
        let mut reader = ByteReader::new(payload);
        let reply = match reader.u8()? {
            DONE => Reply::Done { sequence: reader.varint()?, incarnation: reader.u64()? },
            REFUSED => Reply::Refused(errors::decode(&mut reader)?),
            AGAIN => Reply::Again,
            PLACED => {
                let (kind, len) = (EntryKind::from_byte(reader.u8()?)?, reader.varint()?);
                Reply::Placed(Placed { kind, value: reader.bytes()?.to_vec(), len })
            }
            _ => return None,
        };
        reader.is_at_end().then_some(reply)
    }
}
