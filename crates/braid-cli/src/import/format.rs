//! Turns raw records into keys and JSON.

use std::{borrow::Cow, path::Path};

use serde_json::{Map, Value};

use super::{
    header::named_columns,
    number::canonical_number,
    table::{FieldType, TableOptions},
};
use crate::{
    dirt::{Dirt, Finding},
    freedb,
    input::{Fields, MARK, RowStyle, split_fields},
    notation::KeyNotation,
};

const KEY_BYTES_MAX: usize = 65_536;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// One JSON object per line.
    Jsonl,
    /// Comma-separated values (or with --delimiter), quoted as in RFC 4180; the first row names the
    /// columns.
    Csv,
    /// Tab-separated values, without quotes; the first row names the columns.
    Tsv,
    /// A tar archive of FreeDB discs.
    Freedb,
    /// Trees that `export` wrote.
    Export,
}

impl Format {
    pub fn of_name(path: &Path) -> Option<Format> {
        let name = path.file_name()?.to_str()?.to_ascii_lowercase();
        let name = [".gz", ".bz2", ".zst"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name);
        match name.rsplit_once('.')?.1 {
            "jsonl" | "ndjson" => Some(Format::Jsonl),
            "csv" => Some(Format::Csv),
            "tsv" => Some(Format::Tsv),
            "tar" | "tbz2" | "tgz" => Some(Format::Freedb),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Format::Jsonl => "jsonl",
            Format::Csv => "csv",
            Format::Tsv => "tsv",
            Format::Freedb => "freedb",
            Format::Export => "export",
        }
    }

    pub fn row_style(self, table: &TableOptions) -> Option<RowStyle> {
        match self {
            Format::Jsonl => Some(RowStyle::Lines),
            Format::Csv => Some(RowStyle::Csv(table.delimiter(self))),
            Format::Tsv => Some(RowStyle::Tsv(table.delimiter(self))),
            Format::Freedb | Format::Export => None,
        }
    }

    pub fn has_header(self) -> bool {
        matches!(self, Format::Csv | Format::Tsv)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KeySource {
    /// The record's number in the input, as 8 bytes, big-endian.
    #[default]
    RecordNumber,
    Field(String),
    /// The number in a field, as 8 bytes, big-endian.
    NumberField(String),
}

impl KeySource {
    pub fn notation(&self) -> KeyNotation {
        match self {
            KeySource::RecordNumber | KeySource::NumberField(_) => KeyNotation::U64,
            KeySource::Field(_) => KeyNotation::Text,
        }
    }

    pub fn parse(text: Option<&str>) -> KeySource {
        match text {
            None => KeySource::RecordNumber,
            Some(text) => match text.strip_suffix(":u64") {
                Some(field) => KeySource::NumberField(field.to_owned()),
                None => KeySource::Field(text.to_owned()),
            },
        }
    }
}

#[derive(Clone, Debug)]
pub struct RecordParser {
    format: Format,
    style: RowStyle,
    columns: Vec<(String, FieldType)>,
    nameless: usize,
    key: KeySource,
}

#[derive(Debug)]
pub struct Record {
    pub key: Vec<u8>,
    pub json: Vec<u8>,
    pub value: Value,
}

impl RecordParser {
    pub fn new(format: Format, table: &TableOptions, columns: &[String], key: KeySource) -> RecordParser {
        let named = named_columns(columns);
        let type_of = |name: &String| {
            let typed = table.types.iter().find(|typed| typed.field == *name);
            (name.clone(), typed.map_or(FieldType::Text, |typed| typed.of))
        };
        RecordParser {
            format,
            style: format.row_style(table).unwrap_or(RowStyle::Lines),
            columns: columns[..named].iter().map(type_of).collect(),
            nameless: columns.len() - named,
            key,
        }
    }

    /// Parses one record and appends each error to `findings`.
    pub fn parse(&self, bytes: &[u8], place: &str, number: u64, findings: &mut Vec<Finding>) -> Option<Record> {
        let (value, json) = match self.format {
            Format::Jsonl => self.parse_json(bytes, findings)?,
            Format::Csv | Format::Tsv => self.parse_row(bytes, findings)?,
            Format::Freedb => {
                let disc = freedb::parse(place, bytes, number, findings)?;
                let value = serde_json::to_value(&disc).ok()?;
                let json = serde_json::to_vec(&disc).ok()?;
                (value, json)
            }
            Format::Export => return None,
        };
        let key = self.key_of(&value, number, findings)?;
        Some(Record { key, json, value })
    }

    /// Takes the trimmed line as the value, byte for byte.
    fn parse_json(&self, bytes: &[u8], findings: &mut Vec<Finding>) -> Option<(Value, Vec<u8>)> {
        let indented = bytes.len() - bytes.trim_ascii_start().len();
        let bytes = bytes.trim_ascii();
        match serde_json::from_slice::<Value>(bytes) {
            Ok(value @ Value::Object(_)) => Some((value, bytes.to_vec())),
            Ok(_) => {
                findings.push(Finding::new(Dirt::NotAnObject, String::from_utf8_lossy(bytes)));
                None
            }
            Err(error) => {
                let excerpt = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]);
                let column = indented + error.column();
                let why = error.to_string();
                // The line number is always 1.
                let why = why.rfind(" at line ").map_or(why.as_str(), |end| &why[..end]);
                findings.push(Finding::new(Dirt::MalformedJson, format!("{why} at column {column}: {excerpt}")));
                None
            }
        }
    }

    fn parse_row(&self, bytes: &[u8], findings: &mut Vec<Finding>) -> Option<(Value, Vec<u8>)> {
        if bytes.starts_with(MARK) {
            findings.push(Finding::new(Dirt::StrayMark, shown(bytes)));
            return None;
        }
        if memchr::memchr(0, bytes).is_some() {
            findings.push(Finding::new(Dirt::ZeroByte, shown(bytes)));
            return None;
        }
        let Fields { mut fields, has_stray_quote } = split_fields(bytes, self.style);
        if has_stray_quote {
            findings.push(Finding::new(Dirt::StrayQuote, shown(bytes)));
            return None;
        }
        if let Err(why) = self.check_fields(bytes, &fields) {
            findings.push(why);
            return None;
        }
        fields.truncate(self.columns.len());
        let (texts, dirt) = freedb::decode_fields(fields.iter().map(AsRef::as_ref));
        if let Some(dirt) = dirt {
            findings.push(Finding::new(dirt, shown(bytes)));
        }
        let mut pairs = Map::with_capacity(texts.len());
        let mut json = String::from("{");
        for ((column, of), text) in self.columns.iter().zip(texts) {
            match of.value_of(text) {
                Ok((value, text)) => {
                    if json.len() > 1 {
                        json.push(',');
                    }
                    json.push_str(&Value::String(column.clone()).to_string());
                    json.push(':');
                    json.push_str(&text);
                    pairs.insert(column.clone(), value);
                }
                Err(why) => {
                    findings.push(Finding::new(Dirt::BadType, format!("{column}: {why}")));
                    return None;
                }
            }
        }
        json.push('}');
        Some((Value::Object(pairs), json.into_bytes()))
    }

    fn check_fields(&self, bytes: &[u8], fields: &[Cow<'_, [u8]>]) -> Result<(), Finding> {
        let (count, named) = (fields.len(), self.columns.len());
        if count < named || count > named + self.nameless {
            let detail = format!("{count} columns, not {}: {}", named + self.nameless, shown(bytes));
            return Err(Finding::new(Dirt::WrongColumns, detail));
        }
        if let Some(at) = fields.iter().skip(named).position(|field| !field.is_empty()) {
            let detail = format!("column {} has a value but no name: {}", named + at + 1, shown(bytes));
            return Err(Finding::new(Dirt::WrongColumns, detail));
        }
        // A tsv field may contain CR. A CR is refused only where it may be a line end: at the end
        // of the row (CR CR LF), and in tables with one column.
        let counts = matches!(self.style, RowStyle::Csv(_)) || named == 1 || bytes.ends_with(b"\r");
        if counts && memchr::memchr(b'\r', bytes).is_some() {
            // Fields that were quoted are `Cow::Owned`.
            let is_lone = |field: &Cow<'_, [u8]>| matches!(field, Cow::Borrowed(text) if text.contains(&b'\r'));
            if fields.iter().any(is_lone) {
                return Err(Finding::new(Dirt::LoneCr, shown(bytes)));
            }
        }
        Ok(())
    }

    fn key_of(&self, value: &Value, number: u64, findings: &mut Vec<Finding>) -> Option<Vec<u8>> {
        let key = match &self.key {
            KeySource::RecordNumber => Some(number.to_be_bytes().to_vec()),
            KeySource::Field(field) => field_of(value, field).and_then(key_text).map(String::into_bytes),
            KeySource::NumberField(field) => field_of(value, field)
                .and_then(key_text)
                .and_then(|text| text.trim().parse::<u64>().ok())
                .map(|number| number.to_be_bytes().to_vec()),
        };
        let Some(key) = key else {
            findings.push(Finding::new(Dirt::MissingKey, shown(value.to_string().as_bytes())));
            return None;
        };
        if key.is_empty() {
            findings.push(Finding::new(Dirt::EmptyKey, shown(value.to_string().as_bytes())));
            return None;
        }
        if key.len() > KEY_BYTES_MAX {
            findings.push(Finding::new(Dirt::KeyTooLong, format!("{} bytes", key.len())));
            return None;
        }
        Some(key)
    }
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned()
}

pub fn field_of<'v>(value: &'v Value, field: &str) -> Option<&'v Value> {
    if let Some(found) = value.get(field) {
        return Some(found);
    }
    let (head, rest) = field.split_once('.')?;
    field_of(value.get(head)?, rest)
}

/// Returns the key text of a value. Numbers with a fraction or an exponent are refused: they have
/// many texts.
fn key_text(value: &Value) -> Option<String> {
    match value {
        Value::Number(number) => {
            let text = number.to_string();
            if text.contains(['.', 'e', 'E']) { None } else { canonical_number(&text) }
        }
        other => scalar_text(other),
    }
}

pub fn scalar_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}
