//! Tests of splitting, detection and decompression.

use std::{
    io::{Read, Write},
    path::Path,
};

use super::{
    Chunk, ChunkSink, Place, Position, Source, read_archive,
    rows::{RowReader, RowStyle, split_fields},
    text::Encoding,
};
use crate::dirt::Dirt;

fn rows(text: &[u8], style: RowStyle, bytes_max: usize) -> Vec<(String, u64, Option<Dirt>)> {
    let mut reader = RowReader::with_limit(Trickle(text), style, 0, bytes_max);
    reader.expect_columns(2);
    let mut rows = Vec::new();
    while let Some(row) = reader.next_row().unwrap() {
        rows.push((String::from_utf8(row.bytes().to_vec()).unwrap(), row.next_offset, row.defect));
    }
    rows
}

struct Trickle<'a>(&'a [u8]);

impl Read for Trickle<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = buffer.len().min(3);
        self.0.read(&mut buffer[..count])
    }
}

#[test]
fn lines_split_at_line_feeds() {
    let expected = [("a".to_owned(), 5, None), ("bc".to_owned(), 9, None), ("d".to_owned(), 11, None)];
    assert_eq!(rows(b"\xef\xbb\xbfa\nbc\r\n\nd", RowStyle::Lines, 100), expected);
    assert_eq!(rows(b"", RowStyle::Lines, 100), []);
}

#[test]
fn oversized_line_is_skipped_and_reported() {
    let mut text = b"one\n".to_vec();
    text.resize(1_000_000, b'x');
    text.extend_from_slice(b"\ntwo\n");
    let rows = rows(&text, RowStyle::Lines, 50);
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[1], ("x".repeat(50), 1_000_001, Some(Dirt::TooLarge)));
    assert_eq!(rows[2], ("two".to_owned(), 1_000_005, None));
}

#[test]
fn quoted_field_keeps_line_ends() {
    let first = |text: &[u8]| rows(text, RowStyle::Csv(b','), 100);
    let expected = [("a,\"b\nc\"".to_owned(), 8, None), ("5\" d,x".to_owned(), 15, None)];
    assert_eq!(first(b"a,\"b\nc\"\n5\" d,x\n"), expected);
    assert_eq!(first(b"a,\"b\nc\"\r\n5\" d,x\n")[0], ("a,\"b\nc\"".to_owned(), 9, None));
}

/// Returns rows as `position: bytes` or `position: why`.
fn places(text: &[u8], bytes_max: usize) -> Result<Vec<String>, String> {
    let whole = places_by_pieces(text, bytes_max, usize::MAX >> 1);
    assert_eq!(whole, places_by_pieces(text, bytes_max, 7));
    whole
}

fn places_by_pieces(text: &[u8], bytes_max: usize, piece_bytes: usize) -> Result<Vec<String>, String> {
    let mut reader = RowReader::with_limit(Trickle(text), RowStyle::Csv(b','), 0, bytes_max);
    reader.piece_bytes = piece_bytes;
    reader.expect_columns(2);
    let mut places = Vec::new();
    loop {
        match reader.next_row() {
            Err(error) => return Err(error.to_string()),
            Ok(None) => return Ok(places),
            Ok(Some(row)) => {
                let Position { offset, line, lines } = row.position;
                assert_eq!(&text[offset as usize..][..row.raw.len()], row.raw);
                assert_eq!(text[..offset as usize].iter().filter(|&&byte| byte == b'\n').count() as u64 + 1, line);
                let text = String::from_utf8_lossy(row.bytes()).into_owned();
                places.push(format!("{line}+{lines} @{offset} {}", if row.defect.is_some() { row.why } else { text }));
            }
        }
    }
}

#[test]
fn unclosed_quote_before_rows_loses_one_row() {
    let rows = ["1+1 @0 a,b", "2+1 @4 the quote in line 2 is not closed; the rows after it are read"];
    let rows = [rows.as_slice(), &["3+1 @9 e,f", "4+1 @13 g,h", "5+1 @17 i,j"]].concat();
    assert_eq!(places(b"a,b\nc,\"d\ne,f\ng,h\ni,j\n", 100).unwrap(), rows);
    let long = [b"c,\"d\n".to_vec(), b"e,f\n".repeat(100)].concat();
    let found = places(&long, 50).unwrap();
    assert_eq!((found.len(), found[100].as_str()), (101, "101+1 @401 e,f"));
    // A quote of a later row seems to close it.
    let closed = places(b"c,\"d\ne,f\ng,h\ni,j\nk,\"l\"\nm,n\n", 100).unwrap();
    assert_eq!(closed[0], "1+1 @0 the quote in line 1 is not closed; the rows after it are read");
    assert_eq!(closed[1..], ["2+1 @5 e,f", "3+1 @9 g,h", "4+1 @13 i,j", "5+1 @17 k,\"l\"", "6+1 @23 m,n"]);
}

/// The story: the lines of a text cut inside its quotes were read as rows.
#[test]
fn unclosed_quote_before_text_swallows_it() {
    let expected = ["1+1 @0 a,b", "2+2 @4 the quote in line 2 swallows the line after it"];
    assert_eq!(places(b"a,b\nc,\"Main St\nSpringfield, IL", 100).unwrap(), expected);
    let closed = places(b"c,\"d\ne\ng,h\ni,j\nk,\"l\"\nm,n\n", 100).unwrap();
    assert_eq!(closed, ["1+5 @0 the quote in line 1 swallows the 4 lines after it", "6+1 @21 m,n"]);
    let endless = [b"a,b\nc,\"d\n".to_vec(), b"text\n".repeat(100)].concat();
    let error = places(&endless, 50).unwrap_err();
    assert_eq!(error, "the quote in line 2 (byte 6) is not closed within 50 bytes: close it, or remove it");
}

#[test]
fn rows_read_in_pieces_equal_rows_read_at_once() {
    let mut state = 1_u64;
    let mut next = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for _ in 0..20_000 {
        let length = next(40);
        let text: Vec<u8> = (0..length).map(|_| b"aaa,,\"\"\n\n\r"[next(10) as usize]).collect();
        let whole = places_by_pieces(&text, 1000, 1000);
        let pieces = places_by_pieces(&text, 1000, 1 + next(5) as usize);
        assert_eq!(whole, pieces, "{:?}", String::from_utf8_lossy(&text));
    }
}

#[test]
fn oversized_row_with_quoted_line_ends_is_skipped_completely() {
    let long = "x".repeat(300_000);
    let text = format!("a,b\n\"c\nd\",{long},\"e\n\"\"f\",{long}\ng,h\n");
    for piece_bytes in [7, 1000, 100_000] {
        let found = places_by_pieces(text.as_bytes(), 50, piece_bytes).unwrap();
        let last = format!("5+1 @{} g,h", text.len() - 4);
        assert_eq!(found, ["1+1 @0 a,b", "2+3 @4 600016 bytes", &last]);
    }
}

#[test]
fn utf_16_converts_to_utf_8_and_refuses_unpaired_surrogates() {
    let text = "a€😀\n".repeat(20_000);
    for (encoding, mark, bytes_of) in [
        (Encoding::Utf16Le, [0xff, 0xfe], u16::to_le_bytes as fn(u16) -> [u8; 2]),
        (Encoding::Utf16Be, [0xfe, 0xff], u16::to_be_bytes),
    ] {
        let mut bytes = mark.to_vec();
        bytes.extend(text.encode_utf16().flat_map(bytes_of));
        assert_eq!(Encoding::of_mark(&bytes), encoding);
        let read = |bytes: Vec<u8>| {
            let mut out = Vec::new();
            let result = encoding.reader(Box::new(std::io::Cursor::new(bytes))).read_to_end(&mut out);
            (String::from_utf8(out).unwrap(), result.map_err(|error| error.to_string()))
        };
        assert_eq!(read(bytes.clone()), (text.clone(), Ok(text.len())));
        let cut = read(bytes[..bytes.len() - 1].to_vec());
        assert_eq!(cut.0, text[..text.len() - 1]);
        assert!(cut.1.unwrap_err().contains("ends in the middle of a UTF-16 character"), "{encoding:?}");
        let (mut wrong, high) = (bytes.clone(), bytes_of(0xd800));
        wrong[100_002..100_004].copy_from_slice(&high);
        let wrong = read(wrong).1.unwrap_err();
        assert!(wrong.contains("an unpaired UTF-16 surrogate at byte 100002"), "{wrong}");
    }
}

#[test]
fn row_splits_into_fields_by_style() {
    let fields = |row: &[u8], style| -> Vec<String> {
        split_fields(row, style).fields.iter().map(|field| String::from_utf8(field.to_vec()).unwrap()).collect()
    };
    assert_eq!(fields(b"a,\"b \"\"c\"\", d\",,e\"f", RowStyle::Csv(b',')), ["a", "b \"c\", d", "", "e\"f"]);
    assert_eq!(fields(b"\"a\",\"\",", RowStyle::Csv(b',')), ["a", "", ""]);
    assert!(split_fields(b"\"a\"b,\"\",", RowStyle::Csv(b',')).has_stray_quote);
    assert!(!split_fields(b"a\"b\",\"\"\"\"", RowStyle::Csv(b',')).has_stray_quote);
    assert_eq!(fields(b"a\t\"b\t", RowStyle::Tsv(b'\t')), ["a", "\"b", ""]);
    assert_eq!(fields(b"", RowStyle::Csv(b',')), [""]);
}

fn compressed(form: &str, parts: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    for part in parts {
        match form {
            "gz" => {
                let mut encoder = flate2::write::GzEncoder::new(&mut out, flate2::Compression::fast());
                encoder.write_all(part).unwrap();
                encoder.finish().unwrap();
            }
            "bz2" => {
                let mut encoder = bzip2::write::BzEncoder::new(&mut out, bzip2::Compression::fast());
                encoder.write_all(part).unwrap();
                encoder.finish().unwrap();
            }
            "zst" => out.extend(zstd::encode_all(*part, 1).unwrap()),
            _ => out.extend_from_slice(part),
        }
    }
    out
}

fn read_from(path: &Path, offset: u64) -> anyhow::Result<Vec<u8>> {
    let mut out = Vec::new();
    Source::open(path)?.into_reader(offset)?.read_to_end(&mut out)?;
    Ok(out)
}

#[test]
fn compressed_input_of_several_streams_is_detected_and_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("input");
    for form in ["plain", "gz", "bz2", "zst"] {
        std::fs::write(&path, compressed(form, &[b"hello ", b"world"])).unwrap();
        assert_eq!(read_from(&path, 0).unwrap(), b"hello world", "{form}");
        assert_eq!(read_from(&path, 4).unwrap(), b"o world", "{form}");
        if form != "plain" {
            assert!(read_from(&path, 100).is_err(), "{form}");
            let whole = std::fs::read(&path).unwrap();
            std::fs::write(&path, &whole[..whole.len() - 3]).unwrap();
            assert!(read_from(&path, 0).is_err(), "{form}, truncated");
        }
    }
    std::fs::write(&path, b"\xfd7zXZ\0...").unwrap();
    assert!(Source::open(&path).is_err());
    assert!(Source::open(folder.path()).is_err());
}

#[test]
fn identity_of_same_bytes_matches() {
    let folder = tempfile::tempdir().unwrap();
    let identity = |bytes: &[u8]| {
        let path = folder.path().join("input");
        std::fs::write(&path, bytes).unwrap();
        Source::open(&path).unwrap().identity
    };
    let one = identity(b"some bytes");
    assert!(one.matches(&identity(b"some bytes")));
    assert!(!one.matches(&identity(b"some bytez")));
    let mut from_pipe = one.clone();
    from_pipe.length = None;
    assert!(one.matches(&from_pipe) && from_pipe.matches(&one));
    let long = vec![7; 2 << 20];
    assert!(!identity(&long).matches(&identity(&long[1..])));
}

#[test]
fn archive_is_readable_from_any_member() {
    let mut builder = tar::Builder::new(Vec::new());
    let long_name = format!("rock/{}", "n".repeat(150));
    for (path, bytes) in [("rock/1", &b"one"[..]), ("rock/2", &[b'x'; 512]), (&long_name, b""), ("rock/4", b"four")] {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        builder.append_data(&mut header, path, bytes).unwrap();
    }
    let archive = builder.into_inner().unwrap();
    let read = |offset: u64, end: usize| {
        let mut records = Vec::new();
        let mut take = |chunk: Chunk| {
            for record in &chunk.records {
                records.push((record.place.to_string(), chunk.bytes_of(record).to_vec(), record.next_offset));
            }
            Ok(())
        };
        let mut sink = ChunkSink::new(0, &mut take);
        let result = read_archive(&archive[offset as usize..end], Place::of(offset), &mut sink);
        sink.flush().unwrap();
        (records, result.is_ok())
    };
    let (all, whole) = read(0, archive.len());
    assert!(whole);
    assert_eq!(
        all.iter().map(|record| record.0.as_str()).collect::<Vec<_>>(),
        ["rock/1", "rock/2", &long_name, "rock/4"]
    );
    for index in 0..all.len() {
        assert_eq!(read(all[index].2, archive.len()).0, all[index + 1..], "from record {index}");
    }
    let (some, whole) = read(0, 512 + 512 + 512 + 100);
    assert_eq!((some.len(), whole), (1, false));
}
