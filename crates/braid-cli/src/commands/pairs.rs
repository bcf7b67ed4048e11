//! Keys and values on standard output.

use std::io::{BufWriter, StdoutLock, Write};

use anyhow::Result;

use crate::{
    arguments::PairFormat,
    notation::{KeyNotation, show_key, to_hex, to_printable},
};

/// Prints pairs, one a line.
pub struct PairPrinter {
    out: BufWriter<StdoutLock<'static>>,
    format: PairFormat,
    keys: KeyNotation,
}

impl PairPrinter {
    /// A printer to standard output.
    pub fn new(format: PairFormat, keys: KeyNotation) -> PairPrinter {
        PairPrinter { out: BufWriter::new(std::io::stdout().lock()), format, keys }
    }

    /// Prints a pair.
    pub fn print(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        match self.format {
            PairFormat::Text => writeln!(self.out, "{}\t{}", show_key(key, self.keys), to_printable(value))?,
            PairFormat::Hex => writeln!(self.out, "{}\t{}", to_hex(key), to_hex(value))?,
            PairFormat::Json => {
                self.out.write_all(&json_pair(key, value, self.keys)?)?;
                self.out.write_all(b"\n")?;
            }
        }
        Ok(())
    }

    /// Writes out what is buffered.
    pub fn finish(mut self) -> Result<()> {
        Ok(self.out.flush()?)
    }
}

/// `{"key":..,"value":..}` in one line.
pub fn json_pair(key: &[u8], value: &[u8], keys: KeyNotation) -> Result<Vec<u8>> {
    let mut out = b"{\"key\":".to_vec();
    match (keys, <[u8; 8]>::try_from(key)) {
        (KeyNotation::U64, Ok(bytes)) => write!(out, "{}", u64::from_be_bytes(bytes))?,
        (KeyNotation::Hex, _) => serde_json::to_writer(&mut out, &to_hex(key))?,
        _ => out.extend(json_text(key)?),
    }
    out.extend_from_slice(b",\"value\":");
    out.extend(json_value(value)?);
    out.push(b'}');
    Ok(out)
}

/// A value as JSON in one line: itself if it is JSON, else a string.
pub fn json_value(value: &[u8]) -> Result<Vec<u8>> {
    if serde_json::from_slice::<serde::de::IgnoredAny>(value).is_err() {
        return json_text(value);
    }
    if !value.contains(&b'\n') && !value.contains(&b'\r') {
        return Ok(value.to_vec());
    }
    // Line ends stand only between tokens in valid JSON, where a space does as well.
    Ok(value.iter().map(|&byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }).collect())
}

fn json_text(bytes: &[u8]) -> Result<Vec<u8>> {
    Ok(match std::str::from_utf8(bytes) {
        Ok(text) => serde_json::to_vec(text)?,
        Err(_) => serde_json::to_vec(&format!("hex:{}", to_hex(bytes)))?,
    })
}
