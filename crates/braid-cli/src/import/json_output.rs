//! Records as JSON lines into a file, compressed as its name says.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

/// Lines on their way into a file. The file has another name until it is whole.
pub struct JsonOutput {
    out: Encoder,
    path: PathBuf,
}

enum Encoder {
    Plain(BufWriter<Box<dyn Write>>),
    Gzip(Box<flate2::write::GzEncoder<BufWriter<File>>>),
    Bzip2(Box<bzip2::write::BzEncoder<BufWriter<File>>>),
    Zstd(Box<zstd::stream::write::Encoder<'static, BufWriter<File>>>),
}

impl JsonOutput {
    /// Begins the file; `-` is standard output.
    pub fn create(path: &Path) -> Result<JsonOutput> {
        let path = path.to_path_buf();
        if path == Path::new("-") {
            return Ok(JsonOutput { out: Encoder::Plain(BufWriter::new(Box::new(io::stdout()))), path });
        }
        let partial = partial_name(&path);
        let file = File::create(&partial).with_context(|| format!("cannot create {}", partial.display()))?;
        let out = match path.extension().and_then(|extension| extension.to_str()) {
            Some("gz") => {
                let level = flate2::Compression::fast();
                Encoder::Gzip(Box::new(flate2::write::GzEncoder::new(BufWriter::new(file), level)))
            }
            Some("bz2") => {
                let level = bzip2::Compression::best();
                Encoder::Bzip2(Box::new(bzip2::write::BzEncoder::new(BufWriter::new(file), level)))
            }
            Some("zst") => Encoder::Zstd(Box::new(zstd::stream::write::Encoder::new(BufWriter::new(file), 3)?)),
            _ => Encoder::Plain(BufWriter::new(Box::new(file))),
        };
        Ok(JsonOutput { out, path })
    }

    /// Adds a line.
    pub fn line(&mut self, json: &[u8]) -> Result<()> {
        let out: &mut dyn Write = match &mut self.out {
            Encoder::Plain(out) => out,
            Encoder::Gzip(out) => out,
            Encoder::Bzip2(out) => out,
            Encoder::Zstd(out) => out,
        };
        out.write_all(json)?;
        out.write_all(b"\n")?;
        Ok(())
    }

    /// Ends the file and gives it its name.
    pub fn finish(self) -> Result<()> {
        match self.out {
            Encoder::Plain(mut out) => out.flush()?,
            Encoder::Gzip(out) => out.finish()?.flush()?,
            Encoder::Bzip2(out) => out.finish()?.flush()?,
            Encoder::Zstd(out) => out.finish()?.flush()?,
        }
        if self.path != Path::new("-") {
            std::fs::rename(partial_name(&self.path), &self.path)
                .with_context(|| format!("cannot rename {}", partial_name(&self.path).display()))?;
        }
        Ok(())
    }
}

fn partial_name(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    PathBuf::from(name)
}
