//! Conditional requests (RFC 9110, section 13): versions of records as entity tags.
//!
//! Order of evaluation: `If-Match`, then `If-None-Match`, then `If-Range`. Records have no
//! modification time, so `If-Modified-Since` and `If-Unmodified-Since` are ignored, and a date in
//! `If-Range` never matches.

use crate::{
    coding::{Accepted, Coding, parse_tag},
    problem::Problem,
};
use braiddb::Version;
use hyper::{HeaderMap, header, header::HeaderName};

/// The tags of a header. Tags that no record can have are left out.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tags {
    is_any: bool,
    tags: Vec<Tag>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tag {
    version: Version,
    /// The coding of the representation that the tag names.
    coding: Option<Coding>,
    is_weak: bool,
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
    /// The client has this representation: coded, or the bytes.
    NotModified(Option<Coding>),
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
    pub fn of_read(&self, present: Version, accepted: Accepted) -> Result<Freshness, Problem> {
        self.check_matching(Some(present))?;
        let Some(tags) = &self.none_matching else { return Ok(Freshness::Modified) };
        if tags.is_any {
            return Ok(Freshness::NotModified(None));
        }
        let has = |coding: &Option<Coding>| tags.of_version(present).any(|tag| tag.coding == *coding);
        Ok(accepted.representations().find(has).map_or(Freshness::Modified, Freshness::NotModified))
    }

    /// Checks the preconditions of a write.
    pub fn of_write(&self, present: Option<Version>) -> Result<(), Problem> {
        self.check_matching(present)?;
        match (&self.none_matching, present) {
            (Some(tags), Some(present)) if tags.is_any || tags.of_version(present).next().is_some() => {
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
            Some(present) if tags.is_any || tags.of_version(present).any(|tag| !tag.is_weak) => Ok(()),
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
        for element in List(list) {
            match element? {
                Element::Any => self.is_any = true,
                Element::Tag { tag, is_weak } => {
                    self.tags.extend(parse_tag(tag).map(|(version, coding)| Tag { version, coding, is_weak }));
                }
            }
        }
        Some(())
    }

    /// Returns the tags of a version.
    fn of_version(&self, version: Version) -> impl Iterator<Item = &Tag> {
        self.tags.iter().filter(move |tag| tag.version == version)
    }
}

/// An element of `If-Match` or `If-None-Match`.
#[derive(Debug, PartialEq, Eq)]
enum Element<'l> {
    /// `*`, which is no element of a longer list.
    Any,
    /// With its quotes.
    Tag { tag: &'l [u8], is_weak: bool },
}

/// The elements of a list; `None` ends a malformed one.
struct List<'l>(&'l [u8]);

impl<'l> Iterator for List<'l> {
    type Item = Option<Element<'l>>;

    fn next(&mut self) -> Option<Option<Element<'l>>> {
        let mut rest = self.0.trim_ascii();
        if rest == b"*" {
            self.0 = b"";
            return Some(Some(Element::Any));
        }
        // Empty elements are allowed in lists.
        while let Some(after) = rest.strip_prefix(b",") {
            rest = after.trim_ascii_start();
        }
        if rest.is_empty() {
            return None;
        }
        self.0 = b"";
        let (tag, is_weak) = match rest.strip_prefix(b"W/") {
            Some(tag) => (tag, true),
            None => (rest, false),
        };
        let end = tag.strip_prefix(b"\"").and_then(|inside| inside.iter().position(|byte| *byte == b'"'));
        let Some((tag, after)) = end.and_then(|end| tag.split_at_checked(end + 2)) else { return Some(None) };
        let after = after.trim_ascii_start();
        if !matches!(after.first(), None | Some(b',')) {
            return Some(None);
        }
        self.0 = after;
        Some(Some(Element::Tag { tag, is_weak }))
    }
}

/// Returns the tag of a 304 for a text with this tag, by the rule of `coding.rs`; `None` if the text is
/// to be sent.
pub fn fresh_tag(headers: &HeaderMap, tag: &str, accepted: Accepted) -> Option<String> {
    let lists = headers.get_all(header::IF_NONE_MATCH);
    let given: Vec<_> = lists.iter().flat_map(|list| List(list.as_bytes())).flatten().collect();
    if given.contains(&Element::Any) {
        return Some(tag.to_owned());
    }
    let tags = accepted.representations().map(|coding| coding.map_or(tag.to_owned(), |coding| coding.tag_of(tag)));
    let is_given = |wanted: &String| {
        given.iter().any(|element| matches!(element, Element::Tag { tag, .. } if *tag == wanted.as_bytes()))
    };
    tags.into_iter().find(is_given)
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
        let tag = |version, is_weak| Tag { version, coding: None, is_weak };
        let all = tags(&[&format!(" {a},W/{b} , ,\"other, \",")]).unwrap();
        assert_eq!(all, Tags { is_any: false, tags: vec![tag(a, false), tag(b, true)] });
        assert_eq!(tags(&[&a.to_string(), &c.to_string()]).unwrap().tags, [tag(a, false), tag(c, false)]);
        assert!(tags(&[" * "]).unwrap().is_any);
        assert_eq!(tags(&["\"\""]).unwrap(), Tags::default());
        for wrong in [
            "abc",
            "\"",
            "\"abc",
            "W/",
            "W/abc",
            "w/\"abc\"",
            "\"a\" \"b\"",
            "*, \"a\"",
            "\"a\", *",
            "\"a\",*",
            "\"a\"b",
        ] {
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

    fn accepting(list: &'static str) -> Accepted {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT_ENCODING, list.parse().unwrap());
        Accepted::of(&headers)
    }

    /// A client got 304 for a coded answer of another client, which it could not decode.
    #[test]
    fn fresh_answer_is_one_that_the_client_can_use() {
        let [a, b, _] = versions();
        let (gzip, zstd) = (Coding::Gzip.tag(a), Coding::Zstd.tag(a));
        let fresh = Freshness::NotModified;
        for (list, accepted, expected) in [
            (a.to_string(), "gzip", fresh(None)),
            (gzip.clone(), "gzip", fresh(Some(Coding::Gzip))),
            (gzip.clone(), "", Freshness::Modified),
            (gzip.clone(), "zstd", Freshness::Modified),
            (gzip.clone(), "gzip;q=0.1, zstd", fresh(Some(Coding::Gzip))),
            (format!("W/{gzip}"), "", Freshness::Modified),
            (format!("W/{gzip}"), "*", fresh(Some(Coding::Gzip))),
            (format!("{a}, {gzip}"), "", fresh(None)),
            (format!("{a}, {gzip}"), "gzip", fresh(Some(Coding::Gzip))),
            (format!("{a}, {gzip}"), "zstd", fresh(None)),
            (format!("{gzip}, {zstd}"), "gzip, zstd", fresh(Some(Coding::Zstd))),
            (format!("{}, {a}", Coding::Gzip.tag(b)), "gzip", fresh(None)),
            (Coding::Gzip.tag(b), "gzip", Freshness::Modified),
            ("*".to_owned(), "gzip", fresh(None)),
        ] {
            let given = conditions(&[(header::IF_NONE_MATCH, list.clone())]);
            assert_eq!(given.of_read(a, accepting(accepted)).unwrap(), expected, "{list} {accepted}");
            // The files of the page have the same rule.
            let mut headers = HeaderMap::new();
            headers.insert(header::IF_NONE_MATCH, list.parse().unwrap());
            let tag = match expected {
                Freshness::Modified => None,
                Freshness::NotModified(coding) => Some(coding.map_or(a.to_string(), |coding| coding.tag(a))),
            };
            assert_eq!(fresh_tag(&headers, &a.to_string(), accepting(accepted)), tag, "{list} {accepted}");
        }
        let matching = conditions(&[(header::IF_MATCH, gzip.clone())]);
        assert!(matching.of_write(Some(a)).is_ok() && matching.of_write(Some(b)).is_err());
        let other = conditions(&[(header::IF_NONE_MATCH, gzip.clone())]);
        assert!(other.of_write(Some(a)).is_err() && other.of_write(Some(b)).is_ok());
        let mut ranged = HeaderMap::new();
        ranged.insert(header::IF_RANGE, gzip.parse().unwrap());
        assert!(!permits_range(&ranged, a), "the client has coded bytes");
    }

    /// If-Match decides first; a weak tag matches in If-None-Match only.
    #[test]
    fn preconditions_are_checked_in_the_order_of_the_standard() {
        let [a, b, _] = versions();
        let both = conditions(&[(header::IF_MATCH, b.to_string()), (header::IF_NONE_MATCH, a.to_string())]);
        assert!(both.of_read(a, Accepted::default()).is_err(), "If-Match fails before If-None-Match is asked");
        assert_eq!(both.of_read(b, Accepted::default()).unwrap(), Freshness::Modified);
        let both = conditions(&[(header::IF_MATCH, a.to_string()), (header::IF_NONE_MATCH, format!("W/{a}"))]);
        assert_eq!(both.of_read(a, Accepted::default()).unwrap(), Freshness::NotModified(None));
        assert!(both.of_write(Some(a)).is_err());

        let weak = conditions(&[(header::IF_MATCH, format!("W/{a}"))]);
        assert!(weak.of_read(a, Accepted::default()).is_err());
        let any = conditions(&[(header::IF_MATCH, "*".to_owned())]);
        assert!(any.of_write(Some(a)).is_ok() && any.of_write(None).is_err());
        let absent = conditions(&[(header::IF_NONE_MATCH, "*".to_owned())]);
        assert!(absent.of_write(None).is_ok() && absent.of_write(Some(a)).is_err());
        assert_eq!(absent.of_read(a, Accepted::default()).unwrap(), Freshness::NotModified(None));
        assert!(conditions(&[]).is_empty() && !absent.is_empty());
    }
}
