//! Writes JSON lines to a file, compressed according to its name.

use std::{
    io::{BufWriter, Write},
    path::Path,
};

use anyhow::Result;

use crate::output::OutputFile;

pub struct JsonOutput {
    out: Encoder,
}

type Buffered = BufWriter<OutputFile>;

enum Encoder {
    Plain(Buffered),
    Gzip(Box<flate2::write::GzEncoder<Buffered>>),
    Bzip2(Box<bzip2::write::BzEncoder<Buffered>>),
    Zstd(Box<zstd::stream::write::Encoder<'static, Buffered>>),
}

impl JsonOutput {
    pub fn create(path: &Path) -> Result<JsonOutput> {
        JsonOutput::begin(OutputFile::create(path)?, path)
    }

    /// Creates a file whose writes succeed after a signal too.
    pub fn create_outliving_signals(path: &Path) -> Result<JsonOutput> {
        JsonOutput::begin(OutputFile::create(path)?.outliving_signals(), path)
    }

    fn begin(file: OutputFile, path: &Path) -> Result<JsonOutput> {
        let file = BufWriter::new(file);
        let out = match path.extension().and_then(|extension| extension.to_str()) {
            Some("gz") => Encoder::Gzip(Box::new(flate2::write::GzEncoder::new(file, flate2::Compression::fast()))),
            Some("bz2") => Encoder::Bzip2(Box::new(bzip2::write::BzEncoder::new(file, bzip2::Compression::best()))),
            Some("zst") => Encoder::Zstd(Box::new(zstd::stream::write::Encoder::new(file, 3)?)),
            _ => Encoder::Plain(file),
        };
        Ok(JsonOutput { out })
    }

    pub fn line(&mut self, json: &[u8]) -> Result<()> {
        self.bytes(json)?;
        self.bytes(b"\n")
    }

    pub fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        let out: &mut dyn Write = match &mut self.out {
            Encoder::Plain(out) => out,
            Encoder::Gzip(out) => out,
            Encoder::Bzip2(out) => out,
            Encoder::Zstd(out) => out,
        };
        Ok(out.write_all(bytes)?)
    }

    pub fn finish(self) -> Result<()> {
        let file = match self.out {
            Encoder::Plain(out) => out,
            Encoder::Gzip(out) => out.finish()?,
            Encoder::Bzip2(out) => out.finish()?,
            Encoder::Zstd(out) => out.finish()?,
        };
        file.into_inner().map_err(std::io::IntoInnerError::into_error)?.finish()
    }
}
