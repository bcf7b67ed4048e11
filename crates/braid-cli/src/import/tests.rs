use std::io::Read;

use anyhow::anyhow;
use serde_json::json;

use super::{
    format::{Format, KeySource, RecordParser},
    index::{INDEX_KEY_BYTES_MAX, IndexSpec, index_key, index_keys},
    pipeline::{self, ParsedRecord, Parsing, RecordSource},
    progress::{Plan, Progress},
    stages::Stages,
    table::{FieldType, TableOptions},
};
use crate::{
    dirt::{Dirt, DirtTally, Finding},
    input::{Identity, Position, RowReader, RowStyle},
};

fn spec(text: &str) -> IndexSpec {
    IndexSpec::parse(text).unwrap()
}

#[test]
fn index_argument_parses_name_field_and_lower() {
    assert_eq!(
        spec("a=b.c"),
        IndexSpec { name: "a".into(), field: "b.c".into(), lower: false, exact: true, unfinished: false }
    );
    assert_eq!(
        spec("a=b:lower"),
        IndexSpec { name: "a".into(), field: "b".into(), lower: true, exact: true, unfinished: false }
    );
    for text in ["a", "=b", "a=", "a=:lower"] {
        assert!(IndexSpec::parse(text).is_err(), "{text}");
    }
}

#[test]
fn index_keys_of_texts_numbers_and_lists_are_sorted_and_unique() {
    let specs = [spec("n=name:lower"), spec("t=tags"), spec("d=deep.er"), spec("o=object")];
    let record = json!({"name": "ÄRGER", "tags": ["b", 7, true, null, "b"], "deep": {"er": 1.5}, "object": {}});
    let expected = [(0, "ärger"), (1, "7"), (1, "b"), (1, "true"), (2, "1.5")];
    assert_eq!(index_keys(&specs, &record), expected.map(|(index, key)| (index, key.to_owned())));
    assert_eq!(index_keys(&specs, &json!([])), []);
}

#[test]
fn index_key_of_long_text_is_cut_at_character_boundary() {
    let text = "é".repeat(600);
    assert_eq!(index_key(&text).len(), INDEX_KEY_BYTES_MAX);
    let odd = format!("x{text}");
    assert_eq!(index_key(&odd).len(), INDEX_KEY_BYTES_MAX - 1);
    assert_eq!(index_key("short"), "short");
}

#[test]
fn format_of_file_name_is_guessed_from_extension() {
    let format = |name: &str| Format::of_name(std::path::Path::new(name));
    assert_eq!(format("a/b.jsonl"), Some(Format::Jsonl));
    assert_eq!(format("b.NDJSON.GZ"), Some(Format::Jsonl));
    assert_eq!(format("b.csv.zst"), Some(Format::Csv));
    assert_eq!(format("b.tsv"), Some(Format::Tsv));
    assert_eq!(format("freedb-complete-20040101.tar.bz2"), Some(Format::Freedb));
    assert_eq!((format("b.gz"), format("b.txt"), format("-")), (None, None, None));
}

#[test]
fn key_from_text_or_integer_is_accepted_and_other_values_are_refused() {
    let key = |key: &str, line: &str| {
        let parser = RecordParser::new(Format::Jsonl, &TableOptions::default(), &[], KeySource::parse(Some(key)));
        let mut findings = Vec::new();
        let record = parser.parse(line.as_bytes(), "", 3, &mut findings);
        assert_eq!(record.is_none(), findings.iter().any(|finding| finding.dirt == Dirt::MissingKey));
        record.map(|record| record.key)
    };
    assert_eq!(key("id", "{\"id\":\"x\"}"), Some(b"x".to_vec()));
    assert_eq!(key("id", "{\"id\":-7}"), Some(b"-7".to_vec()));
    assert_eq!(key("a.b", "{\"a\":{\"b\":1}}"), Some(b"1".to_vec()));
    assert_eq!(key("id:u64", "{\"id\":\"258\"}"), Some(258_u64.to_be_bytes().to_vec()));
    assert_eq!(key("id", "{\"id\":12345678901234567890123}"), Some(b"12345678901234567890123".to_vec()));
    assert_eq!(key("id", "{\"id\":1e400}"), None);
    assert_eq!(key("id", "{\"id\":1.5}"), None);
    assert_eq!(key("id:u64", "{\"id\":-1}"), None);
    assert_eq!(key("id", "{\"id\":[1]}"), None);
}

fn run_lines(
    text: Vec<u8>,
    threads: usize,
    consume: &mut dyn FnMut(Vec<ParsedRecord>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    run_reader(Box::new(std::io::Cursor::new(text)), threads, consume)
}

fn run_reader(
    reader: Box<dyn Read + Send>,
    threads: usize,
    consume: &mut dyn FnMut(Vec<ParsedRecord>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let parser = RecordParser::new(Format::Jsonl, &TableOptions::default(), &[], KeySource::RecordNumber);
    let stages = Stages::default();
    let parsing = Parsing { parser: &parser, specs: &[], stages: &stages, threads };
    let rows = RowReader::new(reader, RowStyle::Lines, 0, 1);
    pipeline::run(RecordSource::Rows(rows, None), 0, parsing, consume)
}

#[test]
fn pipeline_with_any_number_of_parsers_keeps_order() {
    let text: String = (0..20_000).map(|number| format!("{{\"n\":{number}}}\n")).collect();
    for threads in [1, 4] {
        let (mut next, mut offset) = (0_u64, 0);
        run_lines(text.clone().into_bytes(), threads, &mut |chunk| {
            for record in chunk {
                let ready = record.ready.unwrap();
                assert_eq!((record.number, ready.key.as_slice()), (next, next.to_be_bytes().as_slice()));
                assert_eq!(ready.json, format!("{{\"n\":{next}}}").as_bytes());
                offset += ready.json.len() as u64 + 1;
                assert_eq!(record.next_offset, offset);
                next += 1;
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(next, 20_000);
    }
}

#[test]
fn pipeline_with_failed_writer_returns_its_error() {
    let text = "{}\n".repeat(100_000).into_bytes();
    let mut chunks = 0;
    let error = run_lines(text, 3, &mut |_| {
        chunks += 1;
        if chunks == 2 { Err(anyhow!("full")) } else { Ok(()) }
    })
    .unwrap_err();
    assert_eq!((chunks, error.to_string().as_str()), (2, "full"));
}

#[test]
fn pipeline_with_read_error_consumes_records_before_it() {
    struct Broken(Vec<u8>);
    impl Read for Broken {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            if self.0.is_empty() {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            let count = self.0.as_slice().read(buffer)?;
            self.0.drain(..count);
            Ok(count)
        }
    }
    let mut records = 0;
    let text = format!("{}{{\"cut", "{}\n".repeat(5000)).into_bytes();
    let result = run_reader(Box::new(Broken(text)), 2, &mut |chunk| {
        records += chunk.len();
        Ok(())
    });
    assert_eq!((records, crate::exit::code_of(&result.unwrap_err())), (5000, crate::exit::INPUT));
}

#[test]
fn dirt_tally_counts_once_per_record_and_keeps_samples() {
    let mut tally = DirtTally::default();
    for record in 0..10 {
        let findings = [Dirt::JunkLine, Dirt::JunkLine, Dirt::Latin1].map(|dirt| Finding::new(dirt, "x\ny"));
        tally.add(record, Position::default(), "rock/1", &findings[..if record < 5 { 2 } else { 3 }]);
    }
    let kinds = tally.kinds();
    let counts: Vec<_> = kinds.iter().map(|(dirt, kind)| (*dirt, kind.records, kind.samples.len())).collect();
    assert_eq!(counts, [(Dirt::Latin1, 5, 3), (Dirt::JunkLine, 10, 3)]);
    assert_eq!((kinds[1].1.samples[2].record, kinds[1].1.samples[0].detail.as_str()), (2, "x·y"));
}

#[test]
fn dirt_name_maps_back_to_kind() {
    for &dirt in Dirt::ALL {
        assert_eq!(Dirt::from_name(dirt.name()), Some(dirt));
    }
}

#[test]
fn progress_record_round_trips_and_detects_other_plans() {
    let plan = Plan {
        source: Identity { length: Some(9), head_hash: "ab".into() },
        format: "csv".into(),
        key: Some("id".into()),
        number_from: 5,
        indexes: vec![spec("a=b:lower")],
        table: TableOptions { no_header: true, ..TableOptions::default() },
    };
    let mut progress = Progress::begin(plan.clone());
    assert_eq!(progress.next_number, 5);
    progress.columns = vec!["id".into()];
    progress.dirt.add(3, Position { offset: 9, line: 2, lines: 3 }, "", &[Finding::new(Dirt::Latin1, "x")]);
    let json = serde_json::to_vec(&progress).unwrap();
    assert_eq!(serde_json::from_slice::<Progress>(&json).unwrap(), progress);

    let same = Plan { source: Identity { length: None, ..plan.source.clone() }, ..plan.clone() };
    plan.check_same(&same).unwrap();
    let others = [
        Plan { source: Identity { length: Some(8), ..plan.source.clone() }, ..plan.clone() },
        Plan { format: "tsv".into(), ..plan.clone() },
        Plan { key: None, ..plan.clone() },
        Plan { number_from: 6, ..plan.clone() },
        Plan { indexes: Vec::new(), ..plan.clone() },
        Plan { table: TableOptions::default(), ..plan.clone() },
    ];
    for other in others {
        assert!(plan.check_same(&other).is_err(), "{other:?}");
    }
}

#[test]
fn progress_of_earlier_version_has_no_lines() {
    let old = json!({
        "plan": {"source": {"length": 9, "head_hash": "ab"}, "format": "csv", "key": "id", "number_from": 5, "indexes": []},
        "next_number": 8, "next_offset": 40, "stored": 2, "replaced": 0, "skipped": 1, "complete": false,
        "dirt": [{"kind": "latin-1", "records": 1, "samples": [{"record": 6, "detail": "x"}]}],
    });
    let mut progress: Progress = serde_json::from_value(old).unwrap();
    assert_eq!((progress.next_line, progress.plan.table.is_default()), (None, true));
    progress.dirt.renumber(progress.plan.number_from);
    let sample = &progress.dirt.kinds()[0].1.samples[0];
    assert_eq!((sample.record, sample.place().as_str()), (2, "record 2"));
}

#[test]
fn field_of_each_type_converts_or_is_refused() {
    let value = |of: FieldType, text: &str| of.value_of(text.to_owned()).ok().map(|(_, json)| json);
    for (of, text, expected) in [
        (FieldType::Text, " 1 ", Some("\" 1 \"")),
        (FieldType::Text, "", Some("\"\"")),
        (FieldType::Int, "", Some("null")),
        (FieldType::Int, "-007", Some("-7")),
        (FieldType::Int, "+0", Some("0")),
        (FieldType::Int, "123456789012345678901234567890", Some("123456789012345678901234567890")),
        (FieldType::Int, "1.0", None),
        (FieldType::Int, "-", None),
        (FieldType::Float, "1.50", Some("1.50")),
        (FieldType::Float, "1,5", None),
        (FieldType::Float, "NaN", None),
        (FieldType::Bool, "TRUE", Some("true")),
        (FieldType::Bool, "0", Some("false")),
        (FieldType::Bool, "yes", None),
        (FieldType::Json, "[1, {}]", Some("[1,{}]")),
        (FieldType::Json, "[1", None),
    ] {
        assert_eq!(value(of, text).as_deref(), expected, "{of:?} {text:?}");
    }
}
