//! Reads a dump front to back, so that it may come through a pipe.

use super::format::{FRAME_HEADER_LEN, Frame, FrameKind, Source, Totals, damaged, decode_header};
use crate::{
    base::{Error, FileId, MAX_SEQUENCE, Result, SequenceNumber},
    codec::{Checksummer, FILE_HEADER_LEN},
};
use std::{
    io::{self, Read},
    panic::{AssertUnwindSafe, catch_unwind},
};

pub struct FrameReader<'a> {
    input: &'a mut dyn Read,
    pub id: FileId,
    pub sequence: SequenceNumber,
    offset: u64,
    frames: u64,
    chain: Checksummer,
}

impl<'a> FrameReader<'a> {
    pub fn begin(input: &'a mut dyn Read) -> Result<FrameReader<'a>> {
        let mut reader = FrameReader { input, id: 0, sequence: 0, offset: 0, frames: 0, chain: Checksummer::new() };
        let mut header = [0; FILE_HEADER_LEN];
        let len = reader.fill(&mut header)?;
        (reader.id, reader.sequence) = decode_header(&header[..len])?;
        if reader.sequence > MAX_SEQUENCE {
            return Err(damaged(0, "the number of its last commit is one that no commit has"));
        }
        reader.chain.add(&header);
        Ok(reader)
    }

    pub fn offset(&self) -> u64 {
        self.offset
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            // The reader's state after a panic is the caller's concern.
            let read = catch_unwind(AssertUnwindSafe(|| self.input.read(&mut buffer[filled..])));
            match read.unwrap_or_else(|_| Err(io::Error::other("the reader panicked"))) {
                Ok(0) => break,
                Ok(count) => filled += count.min(buffer.len() - filled),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Error::io("read", "the dump", e)),
            }
        }
        self.offset += filled as u64;
        Ok(filled)
    }

    /// Does not verify the payload.
    pub fn next(&mut self) -> Result<Frame> {
        let offset = self.offset;
        let cut_short = |at: u64| damaged(at, "it ends there, in the middle: it was cut short");
        let mut header = [0; FRAME_HEADER_LEN];
        if self.fill(&mut header)? < FRAME_HEADER_LEN {
            return Err(cut_short(self.offset));
        }
        let (mut frame, len) = Frame::of_header(&header, self.id, offset)?;
        frame.payload.resize(len, 0);
        let mut payload = std::mem::take(&mut frame.payload);
        if self.fill(&mut payload)? < len {
            return Err(cut_short(self.offset));
        }
        frame.payload = payload;
        if frame.kind != FrameKind::End {
            self.frames += 1;
            self.chain.add(&header);
        }
        Ok(frame)
    }

    pub fn source(&mut self) -> Result<(Source, Frame)> {
        let mut source = Source::default();
        loop {
            let frame = self.next()?;
            if frame.kind != FrameKind::Catalog {
                source.check().map_err(|detail| damaged(frame.offset, detail))?;
                return Ok((source, frame));
            }
            let offset = frame.offset;
            match source.take(&frame.unpack(self.id)?) {
                Some(None) => {}
                Some(Some(item)) => {
                    let detail =
                        format!("at byte {offset} it holds an item (kind {item}) that this build does not know");
                    let detail = format!("{detail}; use a newer build");
                    return Err(Error::Unsupported { path: "the dump".into(), detail });
                }
                None => return Err(damaged(offset, "its description of the database cannot be decoded")),
            }
        }
    }

    pub fn end(&mut self, frame: Frame) -> Result<Totals> {
        let offset = frame.offset;
        let totals = Totals::decode(&frame.unpack(self.id)?);
        let totals = totals.ok_or_else(|| damaged(offset, "its end frame cannot be decoded"))?;
        if totals.frames != self.frames || totals.chain != self.chain.finish() {
            return Err(damaged(offset, "its frames do not match the totals in its end frame"));
        }
        let after = self.offset;
        if self.fill(&mut [0])? > 0 {
            return Err(damaged(after, "something comes after its end"));
        }
        Ok(totals)
    }
}

impl Source {
    fn check(&self) -> std::result::Result<(), String> {
        self.catalog.check().map_err(|what| format!("its description of the database is impossible: {what}"))
    }
}
