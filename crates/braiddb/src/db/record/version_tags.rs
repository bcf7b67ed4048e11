//! Tags that distinguish commits with equal sequence numbers.
//!
//! After a power failure, lost commits that were read but not synced leave no trace, and later
//! commits reuse their numbers. So each open without a clean close draws a random **tag** for the
//! numbers from there on. A version is the commit's number and (the incarnation XOR its tag).
//! Numbers before the first tag have none, so older versions stay valid.
//!
//! A commit just before the first commit with a tag stores the tag in the catalog. It needs no
//! sync: the log keeps no commit without its predecessors, so a crash that removes the tag removes
//! all commits with it.
//!
//! INVARIANT V1: the tag of a number never changes while a commit of that number exists, except by
//! [`merge`](VersionTags::begin): past [`TAGS_MAX`] one new tag replaces the older half. Earlier
//! versions of those commits then conflict, which is safe.
//!
//! | field | |
//! |---|---|
//! | version | u8 = 1 |
//! | count | varint |
//! | for each, ascending | first number, minus the previous one (varint); tag (u64) |

use super::version::Version;
use crate::{
    base::SequenceNumber,
    codec::{ByteReader, put_varint},
    platform::Runtime,
};

/// Key of the tags in the catalog.
pub const VERSION_TAGS: u8 = b'v';

/// Maximum number of tags. Each takes up to 18 bytes in the catalog.
const TAGS_MAX: usize = 1000;

/// Maps commit numbers to versions. Immutable after the open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionTags {
    incarnation: u64,
    tags: Vec<(SequenceNumber, u64)>,
}

impl VersionTags {
    pub fn new(incarnation: u64) -> VersionTags {
        VersionTags { incarnation, tags: Vec::new() }
    }

    pub fn of(&self, commit: SequenceNumber) -> Version {
        let after = match self.tags.last() {
            Some((first, _)) if *first > commit => self.tags.partition_point(|(first, _)| *first <= commit),
            _ => self.tags.len(),
        };
        let tag = after.checked_sub(1).and_then(|at| self.tags.get(at)).map_or(0, |(_, tag)| *tag);
        Version::new(self.incarnation ^ tag, commit)
    }

    /// Draws a tag for `first` and later numbers, which no commit has yet.
    pub fn begin(&mut self, first: SequenceNumber, runtime: &dyn Runtime) {
        self.tags.retain(|(other, _)| *other < first);
        if self.tags.len() >= TAGS_MAX {
            // A new tag, since an old one may be the tag of a lost commit.
            let merged = self.tags.first().map(|(first, _)| (*first, runtime.random_u64()));
            self.tags.splice(..TAGS_MAX / 2, merged);
        }
        self.tags.push((first, runtime.random_u64()));
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![1];
        put_varint(&mut out, self.tags.len() as u64);
        let mut before = 0;
        for (first, tag) in &self.tags {
            put_varint(&mut out, first - before);
            out.extend_from_slice(&tag.to_le_bytes());
            before = *first;
        }
        out
    }

    pub fn decode(&mut self, bytes: &[u8]) -> Option<()> {
        let mut reader = ByteReader::new(bytes);
        if reader.u8()? != 1 {
            return None;
        }
        let (count, mut before, mut tags) = (reader.varint()?, 0_u64, Vec::new());
        for _ in 0..count {
            let first = before.checked_add(reader.varint()?).filter(|first| tags.is_empty() || *first > before)?;
            tags.push((first, reader.u64()?));
            before = first;
        }
        reader.is_at_end().then(|| self.tags = tags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::SystemRuntime;

    fn with_tags(count: u64) -> VersionTags {
        let mut tags = VersionTags::new(7);
        (1..=count).for_each(|at| tags.begin(at * 10, &SystemRuntime::new()));
        tags
    }

    #[test]
    fn version_before_first_tag_has_bare_incarnation() {
        let tags = with_tags(2);
        assert_eq!(tags.of(9), Version::new(7, 9));
        assert_ne!(tags.of(10), Version::new(7, 10));
        assert_eq!(VersionTags::new(7).of(10), Version::new(7, 10));
    }

    #[test]
    fn tag_drawn_again_changes_only_later_versions() {
        let mut tags = with_tags(2);
        let before: Vec<Version> = (0..30).map(|commit| tags.of(commit)).collect();
        tags.begin(20, &SystemRuntime::new());
        for commit in 0..30 {
            assert_eq!(tags.of(commit) == before[commit as usize], commit < 20, "{commit}");
        }
    }

    #[test]
    fn tags_round_trip_and_refuse_truncated_bytes() {
        for count in [0, 1, 3, 200] {
            let tags = with_tags(count);
            let bytes = tags.encode();
            let mut decoded = VersionTags::new(7);
            assert_eq!((decoded.decode(&bytes), &decoded), (Some(()), &tags));
            for len in 0..bytes.len() {
                assert_eq!(VersionTags::new(7).decode(&bytes[..len]), None);
            }
        }
    }

    /// Otherwise the version of a lost commit could become valid again.
    #[test]
    fn tags_past_the_limit_merge_under_a_new_tag() {
        let tags = with_tags(TAGS_MAX as u64);
        let mut merged = tags.clone();
        merged.begin(1 << 40, &SystemRuntime::new());
        assert_eq!(merged.tags.len(), TAGS_MAX / 2 + 2);
        assert_eq!(merged.of(9), tags.of(9));
        for at in 1..=TAGS_MAX as u64 {
            assert_eq!(merged.of(at * 10) == tags.of(at * 10), at > TAGS_MAX as u64 / 2, "{at}");
        }
        let of_merged = merged.tags[0].1;
        assert!(tags.tags.iter().all(|(_, tag)| *tag != of_merged));
    }
}
