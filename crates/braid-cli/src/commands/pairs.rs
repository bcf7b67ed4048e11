//! Prints keys and values to standard output.

use std::io::Write;

use anyhow::Result;
use braiddb::TreeCodec;
use serde_json::{Value, json};

use crate::{
    arguments::PairFormat,
    notation::{KeyNotation, key_to_json, show_key},
    output::Stdout,
    text_form::{to_hex, to_json, to_text},
    typed::shown,
};

pub struct PairPrinter {
    out: Stdout,
    format: PairFormat,
    keys: KeyNotation,
    codec: Option<TreeCodec>,
}

impl PairPrinter {
    pub fn new(format: PairFormat, keys: KeyNotation, codec: Option<TreeCodec>) -> PairPrinter {
        PairPrinter { out: Stdout::new(), format, keys, codec }
    }

    pub fn print(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        write_pair(&mut self.out, self.format, self.keys, self.codec, (key, value))
    }

    pub fn finish(self) -> Result<()> {
        self.out.finish()
    }
}

pub fn write_pair(
    out: &mut dyn Write,
    format: PairFormat,
    keys: KeyNotation,
    codec: Option<TreeCodec>,
    (key, stored): (&[u8], &[u8]),
) -> Result<()> {
    let value = &*shown(codec, stored);
    match format {
        PairFormat::Text => writeln!(out, "{}\t{}", show_key(key, keys), to_text(value))?,
        PairFormat::Hex => writeln!(out, "{}\t{}", to_hex(key), to_hex(stored))?,
        PairFormat::Json => writeln!(out, "{}", json_pair(key, value, keys))?,
        PairFormat::Jsonl => {
            out.write_all(&document_pair(key, value, keys)?)?;
            out.write_all(b"\n")?;
        }
    }
    Ok(())
}

pub fn json_pair(key: &[u8], value: &[u8], keys: KeyNotation) -> Value {
    json!({"key": key_to_json(key, keys), "value": to_json(value)})
}

pub fn document_pair(key: &[u8], value: &[u8], keys: KeyNotation) -> Result<Vec<u8>> {
    let mut out = b"{\"key\":".to_vec();
    serde_json::to_writer(&mut out, &key_to_json(key, keys))?;
    out.extend_from_slice(b",\"value\":");
    out.extend(document(value)?);
    out.push(b'}');
    Ok(out)
}

/// Returns a value as a one-line document: unchanged if it is JSON.
pub fn document(value: &[u8]) -> Result<Vec<u8>> {
    // Parse into a `Value`: serde_json does not check skipped text for UTF-8.
    if serde_json::from_slice::<Value>(value).is_err() {
        return Ok(serde_json::to_vec(&to_json(value))?);
    }
    if !value.contains(&b'\n') && !value.contains(&b'\r') {
        return Ok(value.to_vec());
    }
    // In JSON, line ends are white space between tokens.
    Ok(value.iter().map(|&byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }).collect())
}
