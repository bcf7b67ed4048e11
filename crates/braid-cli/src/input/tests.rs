//! Tests of splitting, recognition and decompression.

use std::{
    io::{Read, Write},
    path::Path,
};

use super::{
    Chunk, ChunkSink, Place, Source, read_archive,
    rows::{RowReader, RowStyle, split_fields},
};
use crate::dirt::Dirt;

/// Rows with offsets and defects, read through a reader that gives few bytes at a time.
fn rows(text: &[u8], style: RowStyle, bytes_max: usize) -> Vec<(String, u64, Option<Dirt>)> {
    let mut reader = RowReader::with_limit(Trickle(text), style, 0, bytes_max);
    let mut rows = Vec::new();
    while let Some(row) = reader.next_row().unwrap() {
        rows.push((String::from_utf8(row.bytes.to_vec()).unwrap(), row.next_offset, row.defect));
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
fn lines_end_at_line_feeds() {
    let expected = [("a".to_owned(), 5, None), ("bc".to_owned(), 9, None), ("d".to_owned(), 11, None)];
    assert_eq!(rows(b"\xef\xbb\xbfa\nbc\r\n\nd", RowStyle::Lines, 100), expected);
    assert_eq!(rows(b"", RowStyle::Lines, 100), []);
}

#[test]
fn oversized_lines_are_passed_over() {
    let mut text = b"one\n".to_vec();
    text.resize(1_000_000, b'x');
    text.extend_from_slice(b"\ntwo\n");
    let rows = rows(&text, RowStyle::Lines, 50);
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[1], ("x".repeat(50), 1_000_001, Some(Dirt::TooLarge)));
    assert_eq!(rows[2], ("two".to_owned(), 1_000_005, None));
}

#[test]
fn quoted_rows_hold_line_ends() {
    let first = |text: &[u8]| rows(text, RowStyle::Csv, 100);
    let expected = [("a,\"b\nc\"".to_owned(), 8, None), ("5\" d,x".to_owned(), 15, None)];
    assert_eq!(first(b"a,\"b\nc\"\n5\" d,x\n"), expected);
    assert_eq!(first(b"a,\"b\nc\"\r\n5\" d,x\n")[0], ("a,\"b\nc\"".to_owned(), 9, None));
}

#[test]
fn a_quote_that_is_not_closed_costs_one_row() {
    let expected = [
        ("a,b".to_owned(), 4, None),
        ("c,\"d".to_owned(), 9, Some(Dirt::UnclosedQuote)),
        ("e,f".to_owned(), 13, None),
        ("g,h".to_owned(), 17, None),
    ];
    assert_eq!(rows(b"a,b\nc,\"d\ne,f\ng,h\n", RowStyle::Csv, 100), expected);
    let mut long = b"c,\"d\n".to_vec();
    long.extend(b"e,f\n".repeat(100));
    let rows = rows(&long, RowStyle::Csv, 50);
    assert_eq!((rows.len(), rows[0].2, rows[1].2), (101, Some(Dirt::UnclosedQuote), None));
}

#[test]
fn rows_split_into_fields() {
    let fields = |row: &[u8], style| -> Vec<String> {
        split_fields(row, style).iter().map(|field| String::from_utf8(field.to_vec()).unwrap()).collect()
    };
    assert_eq!(fields(b"a,\"b \"\"c\"\", d\",,e\"f", RowStyle::Csv), ["a", "b \"c\", d", "", "e\"f"]);
    assert_eq!(fields(b"\"a\"b,\"\",", RowStyle::Csv), ["ab", "", ""]);
    assert_eq!(fields(b"a\t\"b\t", RowStyle::Tsv), ["a", "\"b", ""]);
    assert_eq!(fields(b"", RowStyle::Csv), [""]);
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
fn compression_is_recognised_and_streams_follow_each_other() {
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
fn an_input_is_known_again() {
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
fn an_archive_is_read_from_any_member() {
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
