//! Frames and messages, whole and damaged.

use super::{open, put, reply};
use crate::{
    base::{EntryKind, Error, NoSpace, ReaderKind, TreeId},
    codec::Compression,
    db::{Durability, ForwardedCommit, Placed, TreeCodec, TreeOptions},
    platform::LocalStream,
    shared::{
        frame::{self, FrameError, FrameReader, PAYLOAD_BYTES_MAX},
        message::{NO_SESSION, PROTOCOL_VERSION, Reply, Request, TreeRequest},
    },
    txn::ReadSet,
};
use std::{
    io::{self, Read, Write},
    path::PathBuf,
    time::Duration,
};

fn requests() -> Vec<Request> {
    let mut reads = ReadSet::default();
    reads.add_key(b"\0\0\0\x02key");
    reads.add_range(b"\0\0\0\x02a", b"\0\0\0\x02b");
    let commit = ForwardedCommit { snapshot: 300, reads, batches: put(2, b"k", b"v"), is_exclusive: true };
    let options = TreeOptions {
        compression: Some(Compression::Lz4),
        blob_threshold: Some(0),
        ttl: Some(Duration::from_secs(5)),
        codec: Some(TreeCodec::new("tuple", "json").unwrap()),
    };
    vec![
        Request::Hello { version: PROTOCOL_VERSION, incarnation: 7, session: [9; 16] },
        Request::Commit { number: 200, left_us: 30_000_000, durability: Durability::Buffered, commit },
        Request::Commit { number: 1, left_us: 0, durability: Durability::Sync, commit: ForwardedCommit::default() },
        Request::Tree(TreeRequest { name: "albums".to_owned(), multi: true, exact: false, options }),
        Request::Tree(TreeRequest { name: "x".to_owned(), multi: false, exact: true, options: TreeOptions::default() }),
        Request::Function { name: "add".to_owned() },
        Request::Sync,
        Request::Goodbye,
        Request::Begin { left_us: 5_000_000 },
        Request::End,
        Request::Stream { tree: TreeId(7), key: b"film".to_vec() },
        Request::Part(vec![8; 300]),
        Request::EndStream,
    ]
}

fn replies() -> Vec<Reply> {
    let path = PathBuf::from("db/1.run");
    let errors = [
        Error::InvalidArgument("a".to_owned()),
        Error::NotFound("b".to_owned()),
        Error::AlreadyExists("c".to_owned()),
        Error::DiskFull { path: path.clone(), reason: NoSpace::Reserved },
        Error::ReadOnly { reason: "d".to_owned() },
        Error::CommitUnknown { reason: "e".to_owned() },
        Error::conflict("f"),
        Error::corruption(path.clone(), 300, "g"),
        Error::MergeFailed {
            tree: "h".to_owned(),
            function: "i".to_owned(),
            key: "j".to_owned(),
            reason: "k".to_owned(),
        },
        Error::Io { action: "sync", path: path.clone(), source: io::Error::from_raw_os_error(13) },
        Error::Io { action: "read", path: path.clone(), source: io::Error::new(io::ErrorKind::InvalidData, "l") },
        Error::TransactionTooLarge { bytes: 9, bytes_max: 8 },
        Error::ReaderExpired { kind: ReaderKind::Transaction, sequence: 7, age: Duration::from_secs(6) },
        Error::ExclusiveOpen { begun_by: "m".to_owned(), age: Duration::from_millis(5) },
        Error::Unsupported { path: path.clone(), detail: "n".to_owned() },
        Error::Superseded,
        Error::TooBusy { path: path.clone(), tries: 4, took: Duration::from_secs(3), reason: "o".to_owned() },
        Error::NoOwner { path: path.clone(), waited: Duration::from_secs(2), reason: "p".to_owned() },
        Error::OutcomeUnknown { reason: "q".to_owned() },
        Error::Locked { path, owner: "r".to_owned() },
    ];
    let placed = Placed { kind: EntryKind::Stream, value: vec![3; 40], len: 1 << 30 };
    let done = [Reply::Done { sequence: 300, incarnation: 1 << 60 }, Reply::Again, Reply::Placed(placed)];
    errors.into_iter().map(Reply::Refused).chain(done).collect()
}

fn payload(frame: &[u8]) -> Vec<u8> {
    FrameReader::default().read(&mut &*frame, &mut || false).unwrap().to_vec()
}

#[test]
fn messages_are_decoded_as_they_were_encoded() {
    for request in requests() {
        let decoded = Request::decode(&payload(&request.frame().unwrap())).unwrap();
        assert_eq!(format!("{decoded:?}"), format!("{request:?}"));
    }
    for reply in replies() {
        let decoded = Reply::decode(&payload(&reply.frame().unwrap())).unwrap();
        assert_eq!(format!("{decoded:?}"), format!("{reply:?}"));
    }
    let other = Reply::Refused(Error::Closed).frame().unwrap();
    let Some(Reply::Refused(other)) = Reply::decode(&payload(&other)) else { unreachable!() };
    assert!(other.to_string().contains(&Error::Closed.to_string()), "{other}");
}

#[test]
fn shortened_message_is_refused() {
    let frames = requests().iter().map(|request| request.frame().unwrap()).collect::<Vec<_>>();
    for (request, frame) in requests().iter().zip(frames) {
        let payload = payload(&frame);
        for len in 0..payload.len() {
            // The batches of a commit end with the payload; the owner decodes them.
            if let Some(decoded) = Request::decode(&payload[..len]) {
                assert!(matches!(decoded, Request::Commit { .. }), "{len} bytes of {request:?}");
            }
        }
    }
    for reply in replies() {
        let payload = payload(&reply.frame().unwrap());
        for len in 0..payload.len() {
            assert!(Reply::decode(&payload[..len]).is_none(), "{len} bytes of {reply:?}");
        }
    }
}

#[test]
fn frame_with_flipped_bit_is_refused() {
    let frame = requests()[1].frame().unwrap();
    for bit in 0..frame.len() * 8 {
        let mut damaged = frame.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        // A longer length waits for bytes that do not come.
        let outcome = FrameReader::default().read(&mut &*damaged, &mut || true).map(<[u8]>::to_vec);
        assert!(matches!(outcome, Err(FrameError::Malformed | FrameError::Ended)), "bit {bit}: {outcome:?}");
    }
}

/// Bytes that arrive one at a time, and the start of the next frame.
struct Trickle<'a>(&'a [u8]);

impl Read for Trickle<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some((first, rest)) = self.0.split_first() else { return Ok(0) };
        buffer[0] = *first;
        self.0 = rest;
        Ok(1)
    }
}

#[test]
fn frames_are_read_from_any_pieces() {
    let mut commit = requests().remove(1);
    if let Request::Commit { commit, .. } = &mut commit {
        commit.batches = put(2, b"k", &vec![5; 3 << 20]);
    }
    let frames: Vec<Vec<u8>> = [&requests()[0], &commit, &requests()[6]].map(|r| r.frame().unwrap()).to_vec();
    let all = frames.concat();
    let (mut trickle, mut whole) = (Trickle(&all), &*all);
    let (mut slow, mut fast) = (FrameReader::default(), FrameReader::default());
    for frame in &frames {
        assert_eq!(slow.read(&mut trickle, &mut || false).unwrap(), payload(frame));
        assert_eq!(fast.read(&mut whole, &mut || false).unwrap(), payload(frame));
    }
    assert!(matches!(fast.read(&mut whole, &mut || false), Err(FrameError::Ended)));
}

/// Bytes, and then a silent peer.
struct Silent<'a>(&'a [u8]);

impl Read for Silent<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.0.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.0.read(buffer)
    }
}

/// A peer that stopped within a frame kept its half of 256 MiB in the owner's memory for ever.
#[test]
fn frame_that_does_not_go_on_is_given_up() {
    let frame = requests()[1].frame().unwrap();
    let pauses = |bytes: &[u8]| {
        let mut pauses = 0;
        let mut frames = FrameReader::with_pauses(3);
        let outcome = frames.read(&mut Silent(bytes), &mut || {
            pauses += 1;
            pauses == 50
        });
        assert!(matches!(outcome, Err(FrameError::Late)));
        pauses
    };
    assert_eq!(pauses(&frame[..20]), 2);
    assert_eq!(pauses(&frame[..1]), 2);
    assert_eq!(pauses(b""), 50, "a client may be idle for long");
}

#[test]
fn payload_above_limit_has_no_frame() {
    let mut frame = frame::begin();
    frame.resize(frame.len() + PAYLOAD_BYTES_MAX + 1, 1);
    assert!(frame::finish(frame).is_none());
}

/// Other programs, and earlier versions, can connect. The owner survives all that they send.
#[test]
fn owner_survives_malformed_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let tree = db.tree("t").unwrap();
    let hello = |session| {
        let hello = Request::Hello { version: PROTOCOL_VERSION, incarnation: 0, session };
        hello.frame().unwrap()
    };
    let commit = |batches| {
        let commit = ForwardedCommit { batches, ..ForwardedCommit::default() };
        Request::Commit { number: 1, left_us: 1_000_000, durability: Durability::Buffered, commit }.frame().unwrap()
    };
    let mut wrong_version = frame::begin();
    wrong_version.extend_from_slice(&[1, 99]);
    wrong_version.extend_from_slice(&[0; 24]);
    // Entries of kinds that only the owner makes, of the catalog, and of an unknown tree.
    let mut blob = put(2, b"k", &[0; 30]);
    blob[1] = 3;
    let mut expiring = put(2, b"k", b"1");
    expiring[1] = 5;
    let mut operands = put(2, b"k", &[255; 3]);
    operands[1] = 4;
    let batches = [blob, expiring, operands, put(0, b"ix", b"x"), put(77, b"k", b"v"), vec![255; 9], vec![9]];
    // In a multi-tree: a key that is no pair, and a value.
    let multi = db.multi_tree("m").unwrap().in_state(&db.state().unwrap()).unwrap().id().0;
    let pairs = [put(multi, b"no pair", b""), put(multi, b"key\0\x01value", b"v")];
    let mut sent = vec![
        vec![b'x'; 5000],
        vec![0; 12],
        frame::finish(wrong_version).unwrap(),
        commit(put(2, b"k", b"v")),
        [hello(NO_SESSION), commit(put(2, b"k", b"v"))].concat(),
        [hello([1; 16]), hello([1; 16])].concat(),
    ];
    sent.extend(batches.into_iter().chain(pairs).map(|batch| [hello([2; 16]), commit(batch)].concat()));
    // Parts of no stream, streams of a multi-tree and of no tree, and what needs a session.
    let begin = |tree| Request::Stream { tree: TreeId(tree), key: b"k".to_vec() };
    let [hello, of_none] = [hello([3; 16]), hello(NO_SESSION)];
    for request in [Request::Part(vec![1]), Request::EndStream, begin(multi), begin(77), begin(0)] {
        sent.push([hello.clone(), request.frame().unwrap()].concat());
    }
    sent.extend([begin(2), Request::Begin { left_us: 1 }].map(|r| [of_none.clone(), r.frame().unwrap()].concat()));
    for (at, bytes) in sent.iter().enumerate() {
        let stream = LocalStream::connect(dir.path(), Duration::from_millis(20)).unwrap();
        (&stream).write_all(bytes).unwrap();
        let mut frames = FrameReader::default();
        let refused = loop {
            match reply(&mut frames, &stream) {
                Ok(Some(Reply::Done { .. })) => {}
                Ok(Some(Reply::Refused(_))) | Err(FrameError::Ended | FrameError::Broken) => break true,
                other => panic!("message {at}: {other:?}"),
            }
        };
        assert!(refused);
        assert_eq!(tree.get("k").unwrap(), None, "message {at}");
    }
    let member = open(dir.path());
    member.tree("t").unwrap().put("k", "v").unwrap();
    assert_eq!(tree.get("k").unwrap().unwrap(), "v");
}

/// A client that lost its reply sends the request again, on another connection or to the next
/// owner.
#[test]
fn repeated_request_is_applied_once() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(dir.path());
    let tree = first.tree("t").unwrap();
    let id = first.state().unwrap().open_tree("t").unwrap().id().0;
    let hello = Request::Hello { version: PROTOCOL_VERSION, incarnation: 0, session: [7; 16] };
    let send = |number: u64, value: &[u8]| {
        let commit = ForwardedCommit { batches: put(id, b"k", value), ..ForwardedCommit::default() };
        let commit = Request::Commit { number, left_us: 1_000_000, durability: Durability::Buffered, commit };
        let stream = LocalStream::connect(dir.path(), Duration::from_millis(20)).unwrap();
        let mut frames = FrameReader::default();
        let mut exchange = |request: &Request| {
            (&stream).write_all(&request.frame().unwrap()).unwrap();
            reply(&mut frames, &stream).unwrap().unwrap()
        };
        exchange(&hello);
        exchange(&commit)
    };
    assert!(matches!(send(1, b"1"), Reply::Done { .. }));
    tree.put("k", "by another").unwrap();
    assert!(matches!(send(1, b"1"), Reply::Done { .. }));
    assert_eq!(tree.get("k").unwrap().unwrap(), "by another");
    assert!(matches!(send(3, b"3"), Reply::Done { .. }));
    assert!(matches!(send(2, b"2"), Reply::Again), "the session is past it");
    assert_eq!(tree.get("k").unwrap().unwrap(), "3");
    first.close().unwrap();
    let next = open(dir.path());
    let tree = next.tree("t").unwrap();
    tree.put("k", "by another").unwrap();
    assert!(matches!(send(3, b"3"), Reply::Done { .. }));
    assert_eq!(tree.get("k").unwrap().unwrap(), "by another");
    assert!(matches!(send(4, b"4"), Reply::Done { .. }));
    assert_eq!(tree.get("k").unwrap().unwrap(), "4");
}
