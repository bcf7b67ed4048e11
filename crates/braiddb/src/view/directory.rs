//! The part of a view kept in memory: entry counts of segments, and the anchors.

use super::anchors::{Anchors, AnchorsBuilder};
use super::bits::common_prefix_len;
use super::format::{FLAG_CONTINUATION, FLAG_COUNT, SEGMENT_LANES};
use super::simd::Simd;
use crate::codec::{ByteReader, put_bytes};

const SEGMENTS_PER_SUM: usize = 64;

/// An anchor covers its segment and the continuation segments after it: together a **group**.
#[derive(Debug)]
pub(crate) struct Directory {
    flags: Vec<u8>,
    sums: Vec<u64>,
    entries: u64,
    pub(crate) anchors: Anchors,
    /// Segment of each anchor; empty if equal, as without continuation segments.
    segments: Vec<u32>,
}

impl Directory {
    /// Decodes a directory of exactly `segments` segments; `None` if it is invalid.
    pub(crate) fn decode(bytes: &[u8], segments: u32, simd: Simd) -> Option<Directory> {
        let mut reader = ByteReader::new(bytes);
        let segments = segments as usize;
        // Each segment takes at least a byte: a wrong number cannot reserve more than the file's
        // length.
        if segments > reader.remaining() {
            return None;
        }
        let mut anchors = AnchorsBuilder::new(reader.bytes()?);
        let mut directory = DirectoryParts { flags: Vec::with_capacity(segments), ..DirectoryParts::default() };
        for segment in 0..segments {
            let flags = reader.u8()?;
            directory.push(flags)?;
            if flags & FLAG_CONTINUATION != 0 {
                continue;
            }
            anchors.push(if segment == 0 { &[] } else { reader.bytes()? })?;
            directory.groups.push(segment as u32);
        }
        reader.is_at_end().then(|| directory.finish(anchors.finish(simd)))
    }

    pub(crate) fn segments(&self) -> u32 {
        self.flags.len() as u32
    }

    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    #[inline]
    pub(crate) fn count(&self, segment: u32) -> usize {
        usize::from(self.flags[segment as usize] & FLAG_COUNT)
    }

    #[inline]
    pub(crate) fn is_continuation(&self, segment: u32) -> bool {
        self.flags[segment as usize] & FLAG_CONTINUATION != 0
    }

    pub(crate) fn entries_before(&self, segment: u32) -> u64 {
        let segment = segment as usize;
        if segment >= self.flags.len() {
            return self.entries;
        }
        let sum = segment / SEGMENTS_PER_SUM;
        let rest = &self.flags[sum * SEGMENTS_PER_SUM..segment];
        self.sums[sum] + rest.iter().map(|flags| u64::from(flags & FLAG_COUNT)).sum::<u64>()
    }

    pub(crate) fn anchor_at_rank(&self, rank: u64) -> usize {
        let sum = self.sums.partition_point(|&s| s <= rank).saturating_sub(1);
        let mut segment = sum * SEGMENTS_PER_SUM;
        let mut before = self.sums.get(sum).copied().unwrap_or(0);
        while segment + 1 < self.flags.len() {
            before += u64::from(self.flags[segment] & FLAG_COUNT);
            if before > rank {
                break;
            }
            segment += 1;
        }
        if self.segments.is_empty() {
            return segment;
        }
        self.segments.partition_point(|&s| s as usize <= segment).saturating_sub(1)
    }

    /// The segment count past the end.
    #[inline]
    pub(crate) fn segment_of(&self, anchor: usize) -> u32 {
        if self.segments.is_empty() {
            return (anchor as u32).min(self.segments());
        }
        self.segments.get(anchor).copied().unwrap_or(self.segments())
    }

    pub(crate) fn resident_bytes(&self) -> usize {
        self.flags.len() + self.sums.len() * 8 + self.segments.len() * 4 + self.anchors.resident_bytes()
    }
}

#[derive(Default)]
struct DirectoryParts {
    flags: Vec<u8>,
    sums: Vec<u64>,
    entries: u64,
    groups: Vec<u32>,
}

impl DirectoryParts {
    fn push(&mut self, flags: u8) -> Option<()> {
        let count = flags & !FLAG_CONTINUATION;
        let first_is_continuation = self.flags.is_empty() && flags & FLAG_CONTINUATION != 0;
        if count == 0 || usize::from(count) > SEGMENT_LANES || first_is_continuation {
            return None;
        }
        if self.flags.len().is_multiple_of(SEGMENTS_PER_SUM) {
            self.sums.push(self.entries);
        }
        self.flags.push(flags);
        self.entries += u64::from(count);
        Some(())
    }

    fn finish(self, anchors: Anchors) -> Directory {
        let no_continuations = self.groups.len() == self.flags.len();
        Directory {
            flags: self.flags,
            sums: self.sums,
            entries: self.entries,
            anchors,
            segments: if no_continuations { Vec::new() } else { self.groups },
        }
    }
}

/// Prefix-compresses separators until `finish` knows the common prefix.
#[derive(Clone, Debug, Default)]
pub(crate) struct DirectoryWriter {
    flags: Vec<u8>,
    /// For each separator but the first: bytes shared with the previous one, and bytes that follow.
    lengths: Vec<(u32, u32)>,
    rests: Vec<u8>,
    last: Vec<u8>,
    prefix_len: usize,
    segments: u32,
}

impl DirectoryWriter {
    pub(crate) fn push(&mut self, count: usize, separator: &[u8]) {
        self.flags.push(count as u8);
        self.segments += 1;
        if self.segments == 1 {
            return;
        }
        debug_assert!(separator > self.last.as_slice(), "{separator:?} after {:?}", self.last);
        let shared = common_prefix_len(&self.last, separator);
        self.prefix_len = if self.lengths.is_empty() { separator.len() } else { self.prefix_len.min(shared) };
        self.rests.extend_from_slice(&separator[shared..]);
        self.lengths.push((shared as u32, (separator.len() - shared) as u32));
        self.last.truncate(shared);
        self.last.extend_from_slice(&separator[shared..]);
    }

    pub(crate) fn push_continuation(&mut self, count: usize) {
        self.flags.push(count as u8 | FLAG_CONTINUATION);
        self.segments += 1;
    }

    pub(crate) fn segments(&self) -> u32 {
        self.segments
    }

    pub(crate) fn estimated_bytes(&self) -> usize {
        self.flags.len() * 4 + self.rests.len()
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        let mut out = Vec::new();
        put_bytes(&mut out, &self.last[..self.prefix_len]);
        let mut separator: Vec<u8> = Vec::new();
        let (mut lengths, mut rests) = (self.lengths.iter(), self.rests.as_slice());
        for (segment, &flags) in self.flags.iter().enumerate() {
            out.push(flags);
            if segment == 0 || flags & FLAG_CONTINUATION != 0 {
                continue;
            }
            if let Some(&(shared, rest)) = lengths.next() {
                let (now, later) = rests.split_at(rest as usize);
                separator.truncate(shared as usize);
                separator.extend_from_slice(now);
                rests = later;
            }
            put_bytes(&mut out, &separator[self.prefix_len..]);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_written_and_decoded_is_unchanged() {
        let mut writer = DirectoryWriter::default();
        let mut separators = vec![Vec::new()];
        writer.push(5, b"ignored");
        for i in 0..500u32 {
            let separator = format!("tree/{:04}", i * 7).into_bytes();
            writer.push(1 + i as usize % 32, &separator);
            separators.push(separator);
            if i % 50 == 0 {
                writer.push_continuation(32);
                writer.push_continuation(3);
            }
        }
        let segments = writer.segments();
        let bytes = writer.finish();
        let directory = Directory::decode(&bytes, segments, Simd::detect()).unwrap();
        let mut before = 0;
        let mut anchor = 0;
        for segment in 0..segments {
            assert_eq!(directory.entries_before(segment), before);
            if !directory.is_continuation(segment) {
                assert_eq!(directory.segment_of(anchor), segment);
                assert_eq!(directory.anchors.separator(anchor), separators[anchor]);
                assert_eq!(directory.anchors.find(&separators[anchor]), anchor);
                anchor += 1;
            }
            for rank in [before, before + directory.count(segment) as u64 - 1] {
                assert_eq!(directory.anchor_at_rank(rank), anchor - 1);
            }
            before += directory.count(segment) as u64;
        }
        assert_eq!((directory.entries(), directory.entries_before(segments)), (before, before));
        assert_eq!(directory.segment_of(anchor), segments);
        for len in 0..bytes.len() {
            assert!(Directory::decode(&bytes[..len], segments, Simd::Portable).is_none());
        }
        assert!(Directory::decode(&bytes, segments - 1, Simd::Portable).is_none());
        assert!(Directory::decode(&bytes, u32::MAX, Simd::Portable).is_none());
    }
}
