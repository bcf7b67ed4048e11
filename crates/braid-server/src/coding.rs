//! Content codings gzip (RFC 1952) and zstd (RFC 8878): negotiation and entity tags.
//!
//! A coded body is another representation than its bytes, so it has another strong entity tag: that of
//! the bytes with the coding's name, `"..-zstd"`. One rule for records and the files of the page:
//!
//! - `If-None-Match` gives 304 for the tag of the bytes, and for that of a coding that the client
//!   accepts: it can use each. The 304 has the tag of the one that it may use.
//! - `If-Match`, and conditions of writes, are about the version, which all its tags name.
//! - `If-Range` takes the tag of the bytes, since ranges are of the bytes.

use braiddb::Version;
use hyper::{
    HeaderMap, Method,
    header::{self, HeaderName},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    Gzip,
    Zstd,
}

impl Coding {
    pub fn name(self) -> &'static str {
        match self {
            Coding::Gzip => "gzip",
            Coding::Zstd => "zstd",
        }
    }

    /// Finds a coding by its name.
    pub fn of(name: &str) -> Option<Coding> {
        match name.trim() {
            name if name.eq_ignore_ascii_case("zstd") => Some(Coding::Zstd),
            name if name.eq_ignore_ascii_case("gzip") || name.eq_ignore_ascii_case("x-gzip") => Some(Coding::Gzip),
            _ => None,
        }
    }

    /// Returns the entity tag of a coded body by the strong tag of its bytes.
    pub fn tag_of(self, tag: &str) -> String {
        format!("{}-{}\"", tag.strip_suffix('"').unwrap_or(tag), self.name())
    }

    /// Returns the entity tag of a coded record.
    pub fn tag(self, version: Version) -> String {
        self.tag_of(&version.etag())
    }
}

/// The codings that a client accepts (RFC 9110, section 12.5.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// The coding with the highest weight; of equals zstd, which takes less time. `None`: the client
    /// prefers the bytes.
    pub preferred: Option<Coding>,
    gzip: bool,
    zstd: bool,
}

impl Accepted {
    /// Without the header no coding is accepted: many clients that leave it out decode none.
    pub fn of(headers: &HeaderMap) -> Accepted {
        // Weights in thousandths. `any` is that of `*`: it applies to codings that are not listed.
        let (mut zstd, mut gzip, mut identity, mut any) = (None, None, None, None);
        for (name, weight) in weighted(headers, &header::ACCEPT_ENCODING) {
            match Coding::of(name) {
                Some(Coding::Zstd) => zstd = Some(weight),
                Some(Coding::Gzip) => gzip = Some(weight),
                None if name == "*" => any = Some(weight),
                None if name.eq_ignore_ascii_case("identity") => identity = Some(weight),
                None => {}
            }
        }
        let weight = |given: Option<u16>| given.or(any).unwrap_or(0);
        let (zstd, gzip) = (weight(zstd), weight(gzip));
        let (best, coding) = if zstd >= gzip { (zstd, Coding::Zstd) } else { (gzip, Coding::Gzip) };
        // Bytes as they are need no mention to be acceptable, so any coding that is named wins.
        let is_preferred = best > 0 && best >= identity.unwrap_or(0);
        Accepted { preferred: is_preferred.then_some(coding), gzip: gzip > 0, zstd: zstd > 0 }
    }

    /// Returns the codings that the answer to a request may have. A range is of the bytes.
    pub fn of_request(method: &Method, headers: &HeaderMap) -> Accepted {
        // RFC 9110, section 14.2: `Range` of other methods is ignored.
        let is_ranged = *method == Method::GET && headers.contains_key(header::RANGE);
        if is_ranged { Accepted::default() } else { Accepted::of(headers) }
    }

    pub fn has(self, coding: Coding) -> bool {
        match coding {
            Coding::Gzip => self.gzip,
            Coding::Zstd => self.zstd,
        }
    }

    /// Returns the representations that the client may have in use, the one to prefer first.
    pub fn representations(self) -> impl Iterator<Item = Option<Coding>> {
        let codings = [Coding::Zstd, Coding::Gzip].into_iter().filter(move |coding| self.has(*coding));
        let others = codings.filter(move |coding| Some(*coding) != self.preferred).map(Some);
        self.preferred.map(Some).into_iter().chain([None]).chain(others)
    }
}

/// Parses an entity tag of a record, of its bytes or coded.
pub fn parse_tag(tag: &[u8]) -> Option<(Version, Option<Coding>)> {
    for coding in [Coding::Gzip, Coding::Zstd] {
        let Some(bare) = tag.strip_suffix(b"\"").and_then(|tag| tag.strip_suffix(coding.name().as_bytes())) else {
            continue;
        };
        let version = Version::from_etag(&[bare.strip_suffix(b"-")?, b"\""].concat())?;
        return Some((version, Some(coding)));
    }
    Version::from_etag(tag).map(|version| (version, None))
}

/// Returns the elements of a header with their weights in thousandths.
fn weighted<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = (&'h str, u16)> {
    let lists = headers.get_all(name).iter().filter_map(|list| list.to_str().ok());
    lists.flat_map(|list| list.split(',')).map(|element| {
        let mut parts = element.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default();
        let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        (name, weight.map_or(1000, thousandths))
    })
}

/// A malformed weight counts as 0.
fn thousandths(weight: &str) -> u16 {
    match weight.parse::<f32>() {
        Ok(weight) if (0.0..=1.0).contains(&weight) => (weight * 1000.0) as u16,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    fn accepted(lists: &[&'static str]) -> Option<Coding> {
        all_accepted(lists).preferred
    }

    fn all_accepted(lists: &[&'static str]) -> Accepted {
        let mut headers = HeaderMap::new();
        for list in lists {
            headers.append(header::ACCEPT_ENCODING, HeaderValue::from_static(list));
        }
        Accepted::of(&headers)
    }

    #[test]
    fn preferred_coding_is_chosen() {
        for list in ["", "identity", "br, deflate", "gzip;q=0", "gzip;q=0.0, *;q=0", "gzip;q=x", "gzip;q=2", "*;q=0"] {
            assert_eq!(accepted(&[list]), None, "{list}");
        }
        assert_eq!(accepted(&[]), None);
        for list in
            ["gzip", "GZip", "x-gzip", "gzip;q=0.001", "br, gzip ; q=0.5", "zstd;q=0.4, gzip;q=0.5", "*, zstd;q=0"]
        {
            assert_eq!(accepted(&[list]), Some(Coding::Gzip), "{list}");
        }
        for list in
            ["zstd", "gzip, zstd", "deflate, gzip, br, zstd", "*", "gzip;q=0.4, *;q=0.5", "gzip;q=0.5;x=y, zstd"]
        {
            assert_eq!(accepted(&[list]), Some(Coding::Zstd), "{list}");
        }
        assert_eq!(accepted(&["gzip;q=0.5, identity"]), None);
        assert_eq!(accepted(&["br", "gzip"]), Some(Coding::Gzip));
    }

    #[test]
    fn acceptable_representations_are_in_the_order_of_preference() {
        let (gzip, zstd) = (Some(Coding::Gzip), Some(Coding::Zstd));
        let order = |list| all_accepted(&[list]).representations().collect::<Vec<_>>();
        assert_eq!(order(""), [None]);
        assert_eq!(order("gzip"), [gzip, None]);
        assert_eq!(order("gzip, zstd;q=0.5"), [gzip, None, zstd]);
        assert_eq!(order("gzip;q=0.1, zstd;q=0.2, identity"), [None, zstd, gzip]);
        assert_eq!(order("*;q=0.5, gzip;q=0"), [zstd, None]);
    }

    #[test]
    fn range_of_a_get_is_of_the_bytes() {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        headers.insert(header::RANGE, HeaderValue::from_static("bytes=0-1"));
        assert_eq!(Accepted::of_request(&Method::GET, &headers), Accepted::default());
        assert!(Accepted::of_request(&Method::HEAD, &headers).has(Coding::Gzip));
    }

    #[test]
    fn tag_of_a_coding_names_the_version() {
        let version: Version = "\"0000000000000007-0000000000000001\"".parse().unwrap();
        for coding in [Coding::Gzip, Coding::Zstd] {
            let tag = coding.tag(version);
            assert_eq!(tag, format!("\"0000000000000007-0000000000000001-{}\"", coding.name()));
            assert_eq!(parse_tag(tag.as_bytes()), Some((version, Some(coding))));
        }
        assert_eq!(parse_tag(version.etag().as_bytes()), Some((version, None)));
        for wrong in ["", "\"", "\"gzip\"", "-gzip\"", "\"0000000000000007-0000000000000001gzip\"", "\"x-gzip\""] {
            assert_eq!(parse_tag(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
