//! Conditional requests (RFC 9110, section 13): versions of records as entity tags.
//!
//! Order of evaluation: `If-Match`, then `If-None-Match`, then `If-Range`. Records have no
//! modification time, so `If-Modified-Since` and `If-Unmodified-Since` are ignored, and a date in
//! `If-Range` never matches.

use crate::{
    coding::{Coding, parse_tag},
    problem::Problem,
};
use braiddb::Version;
use hyper::{HeaderMap, header, header::HeaderName};

/// The tags of a header. Tags that no record can have are left out.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tags {
    is_any: bool,
    strong: Vec<Version>,
    weak: Vec<Version>,
    /// Those of both that name a coded record.
    coded: Vec<(Version, Coding)>,
}

/// The preconditions of a request.
#[derive(Debug, Default)]
pub struct Conditions {
    matching: Option<Tags>,
    none_matching: Option<Tags>,
}

/// The result of the preconditions of a read that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    Modified,
    NotModified,
}

impl Conditions {
    pub fn of(headers: &HeaderMap) -> Result<Conditions, Problem> {
        Ok(Conditions {
            matching: Tags::of(headers, &header::IF_MATCH)?,
            none_matching: Tags::of(headers, &header::IF_NONE_MATCH)?,
        })
    }

    pub fn is_empty(&self) -> bool {
        self.matching.is_none() && self.none_matching.is_none()
    }

    /// Checks the preconditions of a read of an existing record.
    pub fn of_read(&self, present: Version) -> Result<Freshness, Problem> {
        self.check_matching(Some(present))?;
        match &self.none_matching {
            Some(tags) if tags.has_weakly(present) => Ok(Freshness::NotModified),
            _ => Ok(Freshness::Modified),
        }
    }

    /// Returns the coding of the stored answer that is still fresh: that of the tag which the client
    /// gave. `None` for one that is not coded.
    pub fn fresh_coding(&self, present: Version, accepted: Option<Coding>) -> Option<Coding> {
        let tags = self.none_matching.as_ref()?;
        let mut codings = tags.coded.iter().filter(|(version, _)| *version == present).map(|(_, coding)| *coding);
        codings.clone().find(|coding| Some(*coding) == accepted).or_else(|| {
            let count = |versions: &[Version]| versions.iter().filter(|version| **version == present).count();
            let has_bare = count(&tags.strong) + count(&tags.weak) > codings.clone().count();
            codings.next().filter(|_| !has_bare)
        })
    }

    /// Checks the preconditions of a write.
    pub fn of_write(&self, present: Option<Version>) -> Result<(), Problem> {
        self.check_matching(present)?;
        match (&self.none_matching, present) {
            (Some(tags), Some(present)) if tags.has_weakly(present) => {
                let detail = "the record exists with a version that If-None-Match names: read it, then use If-Match";
                Err(Problem::precondition_failed(detail))
            }
            _ => Ok(()),
        }
    }

    /// Checks the preconditions of a change of a tree. Trees have no versions, so only `*` matches.
    pub fn of_tree(&self, is_there: bool) -> Result<(), Problem> {
        if self.matching.as_ref().is_some_and(|tags| !(is_there && tags.is_any)) {
            let detail = match is_there {
                true => "trees have no versions: only If-Match: * matches one",
                false => "there is no tree with this name, and If-Match asks for one",
            };
            return Err(Problem::precondition_failed(detail));
        }
        if is_there && self.none_matching.as_ref().is_some_and(|tags| tags.is_any) {
            return Err(Problem::precondition_failed("the tree exists, and If-None-Match: * asks for none"));
        }
        Ok(())
    }

    fn check_matching(&self, present: Option<Version>) -> Result<(), Problem> {
        let Some(tags) = &self.matching else { return Ok(()) };
        match present {
            Some(present) if tags.is_any || tags.strong.contains(&present) => Ok(()),
            Some(present) => Err(Problem::precondition_failed(format!(
                "the record has the version {present}, which If-Match does not name: read it again"
            ))),
            None => Err(Problem::precondition_failed(
                "there is no record with this key, and If-Match asks for one: put it without If-Match",
            )),
        }
    }
}

impl Tags {
    fn of(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Tags>, Problem> {
        let mut tags = None;
        for value in headers.get_all(name) {
            let wrong = || {
                Problem::bad_request(format!(
                    "{name} needs * or a list of entity tags, each in quotes, as the header ETag has them"
                ))
            };
            tags.get_or_insert_with(Tags::default).add(value.as_bytes()).ok_or_else(wrong)?;
        }
        Ok(tags)
    }

    /// Adds a list of tags; `None` if it is malformed.
    fn add(&mut self, list: &[u8]) -> Option<()> {
        let mut rest = list.trim_ascii();
        if rest == b"*" {
            self.is_any = true;
            return Some(());
        }
        loop {
            // Empty elements are allowed in lists.
            while let Some(after) = rest.strip_prefix(b",") {
                rest = after.trim_ascii_start();
            }
            if rest.is_empty() {
                return Some(());
            }
            let (tag, is_weak) = match rest.strip_prefix(b"W/") {
                Some(tag) => (tag, true),
                None => (rest, false),
            };
            let inside = tag.strip_prefix(b"\"")?;
            let end = 1 + inside.iter().position(|byte| *byte == b'"')?;
            let (tag, after) = tag.split_at_checked(end + 1)?;
            if let Some((version, coding)) = parse_tag(tag) {
                if is_weak { &mut self.weak } else { &mut self.strong }.push(version);
                self.coded.extend(coding.map(|coding| (version, coding)));
            }
            rest = after.trim_ascii_start();
            if !rest.is_empty() && rest[0] != b',' {
                return None;
            }
        }
    }

    fn has_weakly(&self, present: Version) -> bool {
        self.is_any || self.strong.contains(&present) || self.weak.contains(&present)
    }
}

/// Returns whether `Range` applies: there is no `If-Range`, or it has the strong tag of the record.
pub fn permits_range(headers: &HeaderMap, present: Version) -> bool {
    match headers.get(header::IF_RANGE) {
        None => true,
        Some(tag) => Version::from_etag(tag.as_bytes().trim_ascii()) == Some(present),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions() -> [Version; 3] {
        [1, 2, 3].map(|number| format!("\"0000000000000007-{number:016x}\"").parse().unwrap())
    }

    fn tags(lists: &[&str]) -> Option<Tags> {
        let mut tags = Tags::default();
        lists.iter().try_for_each(|list| tags.add(list.as_bytes())).map(|()| tags)
    }

    #[test]
    fn list_of_tags_is_parsed_or_refused() {
        let [a, b, c] = versions();
        let all = tags(&[&format!(" {a},W/{b} , ,\"other, \",")]).unwrap();
        assert_eq!(all, Tags { is_any: false, strong: vec![a], weak: vec![b], coded: vec![] });
        assert!(all.has_weakly(a) && all.has_weakly(b) && !all.has_weakly(c));
        assert_eq!(tags(&[&a.to_string(), &c.to_string()]).unwrap().strong, [a, c]);
        assert!(tags(&[" * "]).unwrap().is_any);
        assert_eq!(tags(&["\"\""]).unwrap(), Tags::default());
        for wrong in ["abc", "\"", "\"abc", "W/", "W/abc", "w/\"abc\"", "\"a\" \"b\"", "*, \"a\"", "\"a\"b"] {
            assert_eq!(tags(&[wrong]), None, "{wrong}");
        }
    }

    fn conditions(headers: &[(HeaderName, String)]) -> Conditions {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name.clone(), value.parse().unwrap());
        }
        Conditions::of(&map).unwrap()
    }

    /// A cache keeps the coded and the plain answer apart by the tag of a 304.
    #[test]
    fn fresh_answer_is_that_of_the_tag_given() {
        let [a, b, _] = versions();
        let (gzip, zstd) = (Coding::Gzip.tag(a), Coding::Zstd.tag(a));
        for (list, accepted, fresh) in [
            (a.to_string(), Some(Coding::Gzip), None),
            (gzip.clone(), Some(Coding::Gzip), Some(Coding::Gzip)),
            (format!("W/{gzip}"), None, Some(Coding::Gzip)),
            (format!("{a}, {gzip}"), None, None),
            (format!("{a}, {gzip}"), Some(Coding::Gzip), Some(Coding::Gzip)),
            (format!("{a}, {gzip}"), Some(Coding::Zstd), None),
            (format!("{gzip}, {zstd}"), Some(Coding::Zstd), Some(Coding::Zstd)),
            (format!("{}, {a}", Coding::Gzip.tag(b)), Some(Coding::Gzip), None),
            ("*".to_owned(), Some(Coding::Gzip), None),
        ] {
            let given = conditions(&[(header::IF_NONE_MATCH, list.clone())]);
            assert_eq!(given.of_read(a).unwrap(), Freshness::NotModified, "{list}");
            assert_eq!(given.fresh_coding(a, accepted), fresh, "{list}");
        }
        let matching = conditions(&[(header::IF_MATCH, gzip.clone())]);
        assert!(matching.of_write(Some(a)).is_ok() && matching.of_write(Some(b)).is_err());
        let mut ranged = HeaderMap::new();
        ranged.insert(header::IF_RANGE, gzip.parse().unwrap());
        assert!(!permits_range(&ranged, a), "the client has coded bytes");
    }

    /// If-Match decides first; a weak tag matches in If-None-Match only.
    #[test]
    fn preconditions_are_checked_in_the_order_of_the_standard() {
        let [a, b, _] = versions();
        let both = conditions(&[(header::IF_MATCH, b.to_string()), (header::IF_NONE_MATCH, a.to_string())]);
        assert!(both.of_read(a).is_err(), "If-Match fails before If-None-Match is asked");
        assert_eq!(both.of_read(b).unwrap(), Freshness::Modified);
        let both = conditions(&[(header::IF_MATCH, a.to_string()), (header::IF_NONE_MATCH, format!("W/{a}"))]);
        assert_eq!(both.of_read(a).unwrap(), Freshness::NotModified);
        assert!(both.of_write(Some(a)).is_err());

        let weak = conditions(&[(header::IF_MATCH, format!("W/{a}"))]);
        assert!(weak.of_read(a).is_err());
        let any = conditions(&[(header::IF_MATCH, "*".to_owned())]);
        assert!(any.of_write(Some(a)).is_ok() && any.of_write(None).is_err());
        let absent = conditions(&[(header::IF_NONE_MATCH, "*".to_owned())]);
        assert!(absent.of_write(None).is_ok() && absent.of_write(Some(a)).is_err());
        assert_eq!(absent.of_read(a).unwrap(), Freshness::NotModified);
        assert!(conditions(&[]).is_empty() && !absent.is_empty());
    }
}
