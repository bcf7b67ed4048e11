//! The bytes of records and of the header area.

use super::DIR;
use crate::{
    base::MAX_SEQUENCE,
    codec::{checksum, put_varint, zigzag},
    platform::{MemVfs, OpenMode, Vfs},
    wal::{
        RecordHeader, SegmentHeader,
        format::{MAX_LSN, MAX_TIME_US, SEGMENT_HEADER_LEN},
        record::{
            RECORD_HEADER_LEN_MAX, RECORD_HEADER_LEN_MIN, RecordFlags, SEAL_LEN_MAX, encode_seal, find_magic,
            payload_checksum,
        },
        scan::{Beyond, SegmentReader},
    },
};
use proptest::{collection::vec, prelude::*};
use std::path::Path;

fn segment() -> SegmentHeader {
    SegmentHeader {
        file_id: 0x0123_4567_89ab_cdef,
        start_lsn: 5_000_000,
        epoch: 7,
        number: 42,
        len: 16 << 20,
        previous_end_lsn: 4_999_000,
        previous_link: 0xdead_beef,
        previous_epoch: 6,
        durable_lsn: 5_000_000,
        previous_sequence: 1_000_000,
        base_time_us: 1_700_000_000_000_000,
        is_zeroed: false,
    }
}

fn header(payload: &[u8]) -> RecordHeader {
    let segment = segment();
    RecordHeader {
        flags: RecordFlags::default(),
        stored_len: payload.len() as u32,
        raw_len: payload.len() as u32,
        first_sequence: 1_000_001,
        last_sequence: 1_000_003,
        commit_time_us: segment.base_time_us + 1_000_000,
        previous_link: 0x1122_3344,
        durable_lsn: 5_000_000,
        payload_checksum: payload_checksum(&segment, SEGMENT_HEADER_LEN, payload),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn record_encoding_is_stable() {
    let mut bytes = Vec::new();
    let record = header(b"payload").encode(&segment(), SEGMENT_HEADER_LEN, &mut bytes);
    let expected = concat!(
        "f9b0",             // magic
        "1b",               // header length
        "48823553",         // low half of the header\'s checksum
        "44332211",         // link of the previous record
        "001a4f5583dfa6b1", // checksum of the payload
        "07",               // stored length
        "01",               // first sequence number
        "02",               // span
        "8801",             // LSN above durable_lsn
        "80897a",           // zigzag of a second
    );
    assert_eq!(hex(&bytes), expected);
    assert_eq!((record.header_len, record.file_len(), record.link), (27, 27 + 7, 0x0759_c65c));
    assert_eq!(RecordHeader::decode(&bytes, &segment(), SEGMENT_HEADER_LEN), Some(record));
}

#[test]
fn header_area_encoding_is_stable() {
    let (bytes, link) = segment().encode();
    let fields = concat!(
        "2a00000000000000",
        "0000000100000000",
        "58474c0000000000",
        "efbeadde00000000",
        "0600000000000000",
        "404b4c0000000000",
        "40420f0000000000",
        "00401e18240a0600",
        "fc61266278bd334e",
    );
    assert_eq!(hex(&bytes[64..]), fields);
    assert_eq!(SegmentHeader::decode(&bytes, Path::new(DIR)).unwrap(), (segment(), link));
    assert_eq!(link.to_le_bytes(), bytes[132..]);
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes;
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(SegmentHeader::decode(&flipped, Path::new(DIR)).is_err());
    }
}

#[test]
fn record_of_an_earlier_use_with_the_same_file_id_is_refused() {
    // The simulated disk's random numbers repeat with each open: a recycled segment got its old
    // file id again, and stale records showed syncs that the new use had not made.
    let mut bytes = Vec::new();
    header(b"payload").encode(&segment(), SEGMENT_HEADER_LEN, &mut bytes);
    let later = SegmentHeader { start_lsn: segment().start_lsn + segment().len, epoch: 8, ..segment() };
    assert_eq!(RecordHeader::decode(&bytes, &later, SEGMENT_HEADER_LEN), None);
    assert_ne!(
        payload_checksum(&later, SEGMENT_HEADER_LEN, b"payload"),
        payload_checksum(&segment(), SEGMENT_HEADER_LEN, b"payload")
    );
}

fn forge(flags: u8, payload_checksum: u64, varints: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xf9, 0xb0 | flags, 19 + varints.len() as u8, 0, 0, 0, 0, 1, 2, 3, 4];
    bytes.extend_from_slice(&payload_checksum.to_le_bytes());
    bytes.extend_from_slice(varints);
    sign(&mut bytes);
    bytes
}

fn sign(bytes: &mut [u8]) {
    bytes[3..7].fill(0);
    let sum = checksum(segment().file_id, segment().start_lsn + SEGMENT_HEADER_LEN, bytes);
    bytes[3..7].copy_from_slice(&sum.to_le_bytes()[..4]);
}

fn varints(numbers: &[u64]) -> Vec<u8> {
    let mut out = Vec::new();
    numbers.iter().for_each(|number| put_varint(&mut out, *number));
    out
}

fn is_refused(bytes: &[u8]) -> bool {
    RecordHeader::decode(bytes, &segment(), SEGMENT_HEADER_LEN).is_none()
}

#[test]
fn record_header_has_one_encoding() {
    let good = varints(&[7, 1, 0, 136, 20]);
    assert!(!is_refused(&forge(0, 9, &good)));
    for (at, byte) in good.iter().enumerate().filter(|(_, byte)| **byte < 0x80) {
        let mut long = good.clone();
        long.splice(at..=at, [byte | 0x80, 0]);
        assert!(is_refused(&forge(0, 9, &long)), "{long:?}");
    }
    for len in 0..=u8::MAX {
        let mut bytes = forge(0, 9, &good);
        let own = bytes[2];
        bytes.resize(usize::from(len).max(RECORD_HEADER_LEN_MIN), 0);
        bytes[2] = len;
        sign(&mut bytes[..usize::from(len).max(RECORD_HEADER_LEN_MIN)]);
        assert_eq!(is_refused(&bytes), len != own);
    }
    for flags in 0..8u8 {
        let numbers: &[u64] = if flags & 1 == 0 { &[7, 1, 0, 136, 20] } else { &[7, 8, 1, 0, 136, 20] };
        assert_eq!(is_refused(&forge(flags, 9, &varints(numbers))), flags.count_ones() > 1, "{flags}");
    }
}

#[test]
fn record_header_with_numbers_out_of_range_is_refused() {
    let (base, lsn) = (segment().base_time_us, segment().start_lsn + SEGMENT_HEADER_LEN);
    let sequences = MAX_SEQUENCE - segment().previous_sequence;
    let u32_max = u64::from(u32::MAX);
    let later = zigzag((MAX_TIME_US - base).cast_signed());
    let cases: [(u8, u64, &[u64], bool); 17] = [
        (0, 9, &[u32_max, 1, 0, 0, 0], true),
        (0, 9, &[u32_max + 1, 1, 0, 0, 0], false),
        (0, 0, &[0, 1, 0, 0, 0], true),
        // The checksum of an empty payload is zero.
        (0, 9, &[0, 1, 0, 0, 0], false),
        (1, 9, &[10, 2560, 1, 0, 0, 0], true),
        (1, 9, &[10, 2561, 1, 0, 0, 0], false),
        (1, 9, &[u32_max, u32_max + 1, 1, 0, 0, 0], false),
        (0, 9, &[7, sequences, 0, 0, 0], true),
        (0, 9, &[7, sequences, 1, 0, 0], false),
        (0, 9, &[7, u64::MAX, 0, 0, 0], false),
        (0, 9, &[7, 1, u32_max, 0, 0], true),
        (0, 9, &[7, 1, u32_max + 1, 0, 0], false),
        (0, 9, &[7, 1, 0, lsn, 0], true),
        (0, 9, &[7, 1, 0, lsn + 1, 0], false),
        (0, 9, &[7, 1, 0, 0, later], true),
        (0, 9, &[7, 1, 0, 0, later + 2], false),
        (0, 9, &[7, 1, 0, 0, zigzag(-base.cast_signed() - 1)], false),
    ];
    for (flags, sum, numbers, is_good) in cases {
        assert_eq!(!is_refused(&forge(flags, sum, &varints(numbers))), is_good, "{numbers:?}");
    }
}

#[test]
fn record_header_never_exceeds_its_maximum_length() {
    let segment = SegmentHeader { start_lsn: MAX_LSN - 1, previous_sequence: 0, base_time_us: 0, ..segment() };
    let longest = RecordHeader {
        flags: RecordFlags::LZ4,
        stored_len: u32::MAX,
        raw_len: u32::MAX,
        first_sequence: MAX_SEQUENCE - u64::from(u32::MAX),
        last_sequence: MAX_SEQUENCE,
        commit_time_us: MAX_TIME_US,
        previous_link: u32::MAX,
        durable_lsn: 0,
        payload_checksum: u64::MAX,
    };
    let mut bytes = Vec::new();
    assert!(longest.encode(&segment, 1 << 40, &mut bytes).header_len <= RECORD_HEADER_LEN_MAX);
    bytes.clear();
    let payload = encode_seal(u64::MAX, u64::MAX);
    let seal = RecordHeader { flags: RecordFlags::SEAL, stored_len: 16, raw_len: 16, ..longest };
    assert!(seal.encode(&segment, 1 << 40, &mut bytes).file_len() <= SEAL_LEN_MAX);
    assert_eq!(payload.len(), 16);
}

fn beyond(len: u64, offsets: &[u64], fill: &dyn Fn(u64) -> u8) -> (Beyond, u64) {
    let segment = SegmentHeader { len, ..segment() };
    let mut bytes: Vec<u8> = (0..len).map(fill).collect();
    for (count, offset) in offsets.iter().enumerate() {
        let payload = [7; 3];
        let sequence = segment.previous_sequence + 1 + count as u64;
        let header = RecordHeader {
            first_sequence: sequence,
            last_sequence: sequence,
            payload_checksum: payload_checksum(&segment, *offset, &payload),
            ..header(&payload)
        };
        let mut record = Vec::new();
        header.encode(&segment, *offset, &mut record);
        record.extend_from_slice(&payload);
        bytes[*offset as usize..][..record.len()].copy_from_slice(&record);
    }
    let (vfs, path) = (MemVfs::new(), Path::new("/segment"));
    let file = vfs.open(path, OpenMode::CreateNew).unwrap();
    file.write_at(&bytes, 0).unwrap();
    (SegmentReader::new(&segment, &*file, path).beyond(0).unwrap(), segment.previous_sequence)
}

#[test]
fn scan_finds_records_at_any_offset() {
    let edges = [136 + (256 << 10), 136 + (512 << 10)];
    for shift in 0..70 {
        let mut offsets = vec![136 + shift, 1000 + shift];
        offsets.extend(edges.map(|edge| edge + 2 - shift));
        let len = (600 << 10) + 7;
        offsets.push(len - 32 - shift);
        for fill in [&(|_| 0u8) as &dyn Fn(u64) -> u8, &|_| 0xf9, &|at| [0xf9, 0xb0][at as usize % 2], &|at| at as u8] {
            let (found, _) = beyond(len, &offsets, fill);
            assert_eq!(found.records, 5, "{shift}");
        }
    }
}

fn any_flags() -> impl Strategy<Value = RecordFlags> {
    prop::sample::select(vec![RecordFlags::default(), RecordFlags::LZ4, RecordFlags::SEAL, RecordFlags::NOTE])
}

fn any_number() -> impl Strategy<Value = u64> {
    (0..64u32, any::<u64>()).prop_map(|(shift, number)| number >> shift)
}

prop_compose! {
    fn any_place()(
        file_id in any::<u64>(),
        start_lsn in any_number(),
        offset in 0..(1u64 << 40),
        previous_sequence in any_number(),
        base_time_us in any_number(),
    ) -> (SegmentHeader, u64) {
        let (previous_sequence, base_time_us) = (previous_sequence % (1 << 61), base_time_us.min(MAX_TIME_US));
        (SegmentHeader { file_id, start_lsn: start_lsn % MAX_LSN, previous_sequence, base_time_us, ..segment() }, offset)
    }
}

prop_compose! {
    fn any_record()(
        (segment, offset) in any_place(),
        flags in any_flags(),
        (stored_len, raw_len, span) in any::<(u32, u32, u32)>(),
        (sequence, behind, time) in (any_number(), any_number(), any_number()),
        (previous_link, sum) in any::<(u32, u64)>(),
    ) -> (SegmentHeader, u64, RecordHeader) {
        let most = u32::try_from(u64::from(stored_len) * 256).unwrap_or(u32::MAX);
        let first_sequence = segment.previous_sequence + sequence % (1 << 60);
        let header = RecordHeader {
            flags,
            stored_len,
            raw_len: if flags == RecordFlags::LZ4 { raw_len.min(most) } else { stored_len },
            first_sequence,
            last_sequence: first_sequence + u64::from(span),
            commit_time_us: time.min(MAX_TIME_US),
            previous_link,
            durable_lsn: (segment.start_lsn + offset).saturating_sub(behind),
            payload_checksum: if stored_len == 0 { 0 } else { sum },
        };
        (segment, offset, header)
    }
}

proptest! {
    #[test]
    fn record_round_trips((segment, offset, header) in any_record(), before in vec(any::<u8>(), 0..9), bit in any::<u16>()) {
        let mut bytes = before.clone();
        let record = header.encode(&segment, offset, &mut bytes);
        let mut own = bytes.split_off(before.len());
        prop_assert_eq!(&bytes, &before);
        prop_assert_eq!(record.header, header);
        prop_assert_eq!(own.len(), record.header_len);
        own.extend_from_slice(&before);
        prop_assert_eq!(RecordHeader::decode(&own, &segment, offset), Some(record));
        for len in 0..record.header_len {
            prop_assert_eq!(RecordHeader::decode(&own[..len], &segment, offset), None);
        }
        // At another place, in another use of the file, or with a flipped bit, it is not a record.
        prop_assert_eq!(RecordHeader::decode(&own, &segment, offset + 1), None);
        let other = SegmentHeader { file_id: segment.file_id ^ 1, ..segment };
        prop_assert_eq!(RecordHeader::decode(&own, &other, offset), None);
        let bit = usize::from(bit) % (record.header_len * 8);
        own[bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(RecordHeader::decode(&own, &segment, offset), None);
    }

    #[test]
    fn record_decoder_accepts_any_bytes(bytes in vec(any::<u8>(), 0..80), flags in 0..8u8, signed in any::<bool>()) {
        let mut bytes = bytes;
        if signed && bytes.len() >= 19 {
            bytes.truncate(RECORD_HEADER_LEN_MAX);
            (bytes[0], bytes[1], bytes[2]) = (0xf9, 0xb0 | flags, bytes.len() as u8);
            sign(&mut bytes);
        }
        if let Some(record) = RecordHeader::decode(&bytes, &segment(), SEGMENT_HEADER_LEN) {
            let mut again = Vec::new();
            prop_assert_eq!(record.header.encode(&segment(), SEGMENT_HEADER_LEN, &mut again), record);
            prop_assert_eq!(&bytes, &again);
        }
    }

    #[test]
    fn record_decoder_accepts_any_varints(flags in 0..8u8, numbers in vec(any_number(), 0..8), sum in any::<u64>()) {
        let bytes = forge(flags, sum, &varints(&numbers));
        if let Some(record) = RecordHeader::decode(&bytes, &segment(), SEGMENT_HEADER_LEN) {
            prop_assert_eq!(record.header_len, bytes.len());
            let mut again = Vec::new();
            record.header.encode(&segment(), SEGMENT_HEADER_LEN, &mut again);
            prop_assert_eq!(&bytes, &again);
        }
    }

    #[test]
    fn find_magic_returns_the_first(bytes in vec(prop::sample::select(vec![0, 0xb0, 0xb4, 0xb7, 0xb8, 0xf9]), 0..300)) {
        let begins = |at: &usize| matches!(bytes[*at..], [0xf9] | [0xf9, 0xb0 | 0xb4, ..]);
        prop_assert_eq!(find_magic(&bytes), (0..bytes.len()).find(begins));
    }
}
