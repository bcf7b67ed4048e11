//! Parses the file of a disc.
//!
//! Consecutive lines with one keyword are joined before decoding, because writers split long lines
//! inside escapes and UTF-8 sequences. A keyword that recurs later continues its field, as the
//! format demands, but counts as dirt; the same text is dropped.
//!
//! A file is unusable only if its name is not an id, it has no fields, or it lacks DTITLE.

use super::{
    disc::Disc,
    text::{self, Encoding},
};
use crate::dirt::{Dirt, Finding};

const HUGE_TEXT_BYTES: usize = 16 << 10;

/// Maximum tracks: the Red Book allows 99, plus one for sources that count from one.
const TRACKS_MAX: usize = 100;

/// `path` is `category/xxxxxxxx` in the archive. `None` means that a finding makes the file
/// unusable.
pub fn parse(path: &str, bytes: &[u8], number: u64, findings: &mut Vec<Finding>) -> Option<Disc> {
    let (category, name) = category_and_name(path);
    let file_id = as_disc_id(name.as_bytes());
    let found_before = findings.len();
    let raw = RawFile::take_apart(bytes, findings);
    if file_id.is_none() || raw.fields.is_empty() {
        findings.truncate(found_before);
        findings.push(Finding::new(Dirt::NotADisc, path));
        return None;
    }
    let encoding = text::detect(raw.fields.iter().map(|field| field.text.as_slice()).chain([raw.submitted_via]));
    if let Some(dirt) = encoding.dirt() {
        findings.push(Finding::new(dirt, path));
    }
    let mut disc = Disc {
        number,
        category: category.to_owned(),
        length_seconds: raw.length_seconds,
        revision: raw.revision,
        submitted_via: text::decode(raw.submitted_via, encoding),
        offsets: raw.offsets,
        ..Disc::default()
    };
    let mut builder =
        Builder { disc: &mut disc, findings, has_title: false, tracks: Vec::new(), track_texts: Vec::new() };
    for field in &raw.fields {
        builder.take(field, encoding);
    }
    builder.finish(file_id).then_some(disc)
}

fn category_and_name(path: &str) -> (&str, &str) {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    (folder.rsplit('/').next().unwrap_or(""), name)
}

fn as_disc_id(text: &[u8]) -> Option<String> {
    let text = text.trim_ascii();
    let is_id = text.len() == 8 && text.iter().all(u8::is_ascii_hexdigit);
    is_id.then(|| text.iter().map(|byte| char::from(byte.to_ascii_lowercase())).collect())
}

struct RawField<'a> {
    keyword: &'a [u8],
    text: Vec<u8>,
}

impl RawField<'_> {
    fn append(&mut self, text: &[u8]) {
        if self.keyword == b"DISCID" {
            self.text.push(b',');
        }
        self.text.extend_from_slice(text);
    }
}

#[derive(Default)]
struct RawFile<'a> {
    fields: Vec<RawField<'a>>,
    offsets: Vec<u32>,
    in_offsets: bool,
    length_seconds: Option<u32>,
    revision: Option<u32>,
    submitted_via: &'a [u8],
}

impl<'a> RawFile<'a> {
    fn take_apart(bytes: &'a [u8], findings: &mut Vec<Finding>) -> RawFile<'a> {
        let mut file = RawFile::default();
        // Files of old Macintosh programs have no line feeds.
        let separator = if bytes.contains(&b'\n') { b'\n' } else { b'\r' };
        let mut carriage_returns = separator == b'\r' && bytes.contains(&b'\r');
        let mut segment: Option<RawField<'a>> = None;
        let trimmed = bytes.trim_ascii_end();
        let bytes = match trimmed.strip_suffix(b".") {
            Some(rest) if rest.last().is_none_or(|byte| matches!(byte, b'\n' | b'\r')) => rest,
            _ => bytes,
        };
        for line in bytes.split(|&byte| byte == separator) {
            let line = match line.strip_suffix(b"\r") {
                Some(stripped) => {
                    carriage_returns = true;
                    stripped
                }
                None => line,
            };
            if line.first() == Some(&b'#') {
                file.take_comment(&line[1..]);
            } else if let Some((keyword, text)) = split_keyword(line) {
                match &mut segment {
                    Some(open) if open.keyword == keyword => open.append(text),
                    _ => {
                        file.take_segment(segment.take(), findings);
                        segment = Some(RawField { keyword, text: text.to_vec() });
                    }
                }
            } else if !line.trim_ascii().is_empty() {
                findings.push(Finding::new(Dirt::JunkLine, String::from_utf8_lossy(line)));
            }
        }
        file.take_segment(segment, findings);
        if carriage_returns {
            findings.push(Finding::new(Dirt::CarriageReturns, ""));
        }
        file
    }

    fn take_segment(&mut self, segment: Option<RawField<'a>>, findings: &mut Vec<Finding>) {
        let Some(segment) = segment else { return };
        match self.fields.iter_mut().find(|field| field.keyword == segment.keyword) {
            None => self.fields.push(segment),
            Some(field) => {
                findings.push(Finding::new(Dirt::RepeatedField, String::from_utf8_lossy(segment.keyword)));
                if field.text != segment.text {
                    field.append(&segment.text);
                }
            }
        }
    }

    fn take_comment(&mut self, comment: &'a [u8]) {
        let comment = comment.trim_ascii();
        if let Some(number) = as_number(comment) {
            if self.in_offsets && self.offsets.len() < TRACKS_MAX {
                self.offsets.push(number);
            }
            return;
        }
        if comment.is_empty() {
            return;
        }
        self.in_offsets = comment.starts_with(b"Track frame offsets");
        if let Some(rest) = comment.strip_prefix(b"Disc length:") {
            let digits = rest.trim_ascii().split(|byte| !byte.is_ascii_digit()).next();
            self.length_seconds = digits.and_then(as_number);
        } else if let Some(rest) = comment.strip_prefix(b"Revision:") {
            self.revision = as_number(rest.trim_ascii());
        } else if let Some(rest) = comment.strip_prefix(b"Submitted via:") {
            self.submitted_via = rest.trim_ascii();
        }
    }
}

fn split_keyword(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = line.iter().position(|&byte| byte == b'=')?;
    let keyword = line[..end].trim_ascii();
    let (letters, _) = split_number(keyword);
    let known = [&b"DISCID"[..], b"DTITLE", b"DYEAR", b"DGENRE", b"TTITLE", b"EXTD", b"EXTT", b"PLAYORDER"];
    known.contains(&letters).then_some((keyword, &line[end + 1..]))
}

fn split_number(keyword: &[u8]) -> (&[u8], &[u8]) {
    let digits = keyword.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    keyword.split_at(keyword.len() - digits)
}

fn as_number(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

struct Builder<'a> {
    disc: &'a mut Disc,
    findings: &'a mut Vec<Finding>,
    has_title: bool,
    tracks: Vec<Option<String>>,
    track_texts: Vec<(usize, String)>,
}

impl Builder<'_> {
    fn take(&mut self, field: &RawField<'_>, encoding: Encoding) {
        let decoded = text::decode(&field.text, encoding);
        let value = text::unescape(&decoded);
        if value.len() > HUGE_TEXT_BYTES {
            let keyword = String::from_utf8_lossy(field.keyword);
            self.findings.push(Finding::new(Dirt::HugeText, format!("{keyword}: {} bytes", value.len())));
        }
        let (letters, number) = split_number(field.keyword);
        match (letters, number.is_empty()) {
            (b"DISCID", true) => self.take_ids(&field.text),
            (b"DTITLE", true) => self.take_title(&value),
            (b"DYEAR", true) => self.take_year(&value),
            (b"DGENRE", true) => self.disc.genre = value.trim().to_owned(),
            (b"EXTD", true) => self.disc.extended = value.into_owned(),
            (b"PLAYORDER", true) => self.take_play_order(&value),
            (b"TTITLE", false) => self.take_track(field.keyword, number, value.trim()),
            (b"EXTT", false) => self.take_track_text(field.keyword, number, &value),
            _ => self.bad(field.keyword, &value),
        }
    }

    fn bad(&mut self, keyword: &[u8], value: &str) {
        let keyword = String::from_utf8_lossy(keyword);
        self.findings.push(Finding::new(Dirt::BadField, format!("{keyword}={value}")));
    }

    fn take_ids(&mut self, list: &[u8]) {
        for item in list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|item| !item.is_empty()) {
            match as_disc_id(item) {
                Some(id) if !self.disc.disc_ids.contains(&id) => self.disc.disc_ids.push(id),
                Some(_) => {}
                None => self.bad(b"DISCID", &String::from_utf8_lossy(item)),
            }
        }
    }

    fn take_title(&mut self, value: &str) {
        self.has_title = true;
        let (artist, title) = match value.split_once(" / ") {
            Some((artist, title)) => (artist.trim(), title.trim()),
            // If the artist or title is empty, its space is often missing too.
            None => match (value.trim().strip_prefix("/ "), value.trim().strip_suffix(" /")) {
                (Some(title), _) => ("", title.trim()),
                (_, Some(artist)) => (artist.trim(), ""),
                _ if value.trim() == "/" => ("", ""),
                _ => (value.trim(), value.trim()),
            },
        };
        if artist.is_empty() || title.is_empty() {
            self.findings.push(Finding::new(Dirt::EmptyTitle, format!("DTITLE={value}")));
        }
        self.disc.artist = artist.to_owned();
        self.disc.title = title.to_owned();
    }

    fn take_year(&mut self, value: &str) {
        let value = value.trim();
        if value.is_empty() {
            return;
        }
        match value.parse::<u16>() {
            Ok(year) if (1000..=2999).contains(&year) => self.disc.year = Some(year),
            _ => self.bad(b"DYEAR", value),
        }
    }

    fn take_play_order(&mut self, value: &str) {
        for item in value.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            match item.parse() {
                Ok(number) => self.disc.play_order.push(number),
                Err(_) => return self.bad(b"PLAYORDER", value),
            }
        }
    }

    fn take_track(&mut self, keyword: &[u8], number: &[u8], title: &str) {
        match as_number(number).map(|number| number as usize) {
            Some(number) if number < TRACKS_MAX => {
                if self.tracks.len() <= number {
                    self.tracks.resize(number + 1, None);
                }
                self.tracks[number] = Some(title.to_owned());
            }
            _ => self.bad(keyword, title),
        }
    }

    fn take_track_text(&mut self, keyword: &[u8], number: &[u8], value: &str) {
        match as_number(number).map(|number| number as usize) {
            Some(number) if number < TRACKS_MAX => self.track_texts.push((number, value.to_owned())),
            _ => self.bad(keyword, value),
        }
    }

    fn finish(mut self, file_id: Option<String>) -> bool {
        self.finish_tracks();
        self.finish_year();
        if let Some(file_id) = file_id {
            if self.disc.disc_ids.is_empty() {
                self.findings.push(Finding::new(Dirt::MissingField, "DISCID"));
                self.disc.disc_ids.push(file_id);
            } else if !self.disc.disc_ids.contains(&file_id) {
                let detail = format!("{} in a file named {file_id}", self.disc.disc_ids.join(","));
                self.findings.push(Finding::new(Dirt::IdMismatch, detail));
                self.disc.disc_ids.push(file_id);
            }
        }
        if let Some(id) = id_of_offsets(self.disc)
            && !self.disc.disc_ids.iter().any(|known| fits(known, id))
        {
            let detail = format!("{}, not {id:08x}", self.disc.disc_ids.join(","));
            self.findings.push(Finding::new(Dirt::WrongDiscId, detail));
        }
        if !self.has_title {
            self.findings.push(Finding::new(Dirt::MissingTitle, self.disc.disc_ids.join(",")));
        }
        self.has_title
    }

    /// Takes a missing year from EXTD, where older programs wrote `YEAR: 1987 ID3G: 17`.
    fn finish_year(&mut self) {
        if self.disc.year.is_some() {
            return;
        }
        let Some((before, after)) = self.disc.extended.split_once("YEAR:") else { return };
        let digits: String = after.trim_start().chars().take_while(char::is_ascii_digit).collect();
        let is_word = before.chars().last().is_none_or(|c| !c.is_alphanumeric());
        self.disc.year = digits.parse().ok().filter(|year| is_word && (1000..=2999).contains(year));
    }

    fn finish_tracks(&mut self) {
        let offsets = self.disc.offsets.len();
        let mut tracks = std::mem::take(&mut self.tracks);
        if tracks.len() < offsets {
            tracks.resize(offsets, None);
        } else if offsets > 0 && tracks.len() > offsets {
            let detail = format!("{} track titles for {offsets} offsets", tracks.len());
            self.findings.push(Finding::new(Dirt::BadField, detail));
        }
        for (number, title) in tracks.into_iter().enumerate() {
            if title.is_none() {
                self.findings.push(Finding::new(Dirt::MissingField, format!("TTITLE{number}")));
            }
            self.disc.tracks.push(title.unwrap_or_default());
        }
        if self.track_texts.iter().any(|(_, text)| !text.is_empty()) {
            let texts = std::mem::take(&mut self.track_texts);
            self.disc.track_extended = vec![String::new(); self.disc.tracks.len()];
            for (number, text) in texts {
                match self.disc.track_extended.get_mut(number) {
                    Some(slot) => *slot = text,
                    None => self.bad(format!("EXTT{number}").as_bytes(), &text),
                }
            }
        }
    }
}

const FRAMES: u32 = 75;

fn id_of_offsets(disc: &Disc) -> Option<u32> {
    let (first, length) = (disc.offsets.first()?, disc.length_seconds?);
    let digits = |mut number: u32| {
        let mut sum = 0;
        while number > 0 {
            sum += number % 10;
            number /= 10;
        }
        sum
    };
    let sum: u32 = disc.offsets.iter().map(|offset| digits(offset / FRAMES)).sum();
    let seconds = length.checked_sub(first / FRAMES).filter(|seconds| *seconds <= 0xffff)?;
    Some((sum % 255) << 24 | seconds << 8 | disc.offsets.len() as u32)
}

/// Programs round the playing time differently, by at most one second.
fn fits(known: &str, id: u32) -> bool {
    let Ok(known) = u32::from_str_radix(known, 16) else { return false };
    let seconds = |id: u32| id >> 8 & 0xffff;
    known & 0xff00_00ff == id & 0xff00_00ff && seconds(known).abs_diff(seconds(id)) <= 1
}
