//! Generates one disc, and its file with possible flaws.

use super::words::{self, Script};
use crate::random::Random;

/// Maximum line length of the format.
const LINE_BYTES_MAX: usize = 254;

const CATEGORIES: [(&str, u64); 11] = [
    ("blues", 4),
    ("classical", 10),
    ("country", 5),
    ("data", 3),
    ("folk", 6),
    ("jazz", 9),
    ("misc", 20),
    ("newage", 4),
    ("reggae", 3),
    ("rock", 30),
    ("soundtrack", 6),
];

#[derive(Clone, Debug)]
pub struct DiscFile {
    pub path: String,
    pub bytes: Vec<u8>,
    /// The data that an import must store; `None` if the file cannot be stored.
    pub truth: Option<Truth>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Truth {
    pub artist: String,
    pub title: String,
    pub disc_ids: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    RepeatedField,
    IdMismatch,
    EmptyTitle,
    EmptyArtist,
    NoSlash,
    BrokenUtf8,
    HugeExtended,
    NoTitle,
    NoId,
    NotADisc,
    Empty,
    JunkLine,
    BadYear,
    MissingTrack,
}

const FLAWS: [(Flaw, u64); 14] = [
    (Flaw::RepeatedField, 40),
    (Flaw::IdMismatch, 40),
    (Flaw::EmptyTitle, 15),
    (Flaw::EmptyArtist, 10),
    (Flaw::NoSlash, 60),
    (Flaw::BrokenUtf8, 30),
    (Flaw::HugeExtended, 4),
    (Flaw::NoTitle, 8),
    (Flaw::NoId, 8),
    (Flaw::NotADisc, 3),
    (Flaw::Empty, 2),
    (Flaw::JunkLine, 15),
    (Flaw::BadYear, 20),
    (Flaw::MissingTrack, 15),
];

pub fn disc_file(seed: u64, number: u64, discs: u64) -> DiscFile {
    let mut random = Random::of(seed, number);
    let category = category(number, discs);
    let flaw = draw_flaw(&mut random);
    match flaw {
        Some(Flaw::NotADisc) => {
            let bytes = b"This folder is mirrored daily.\n".to_vec();
            return DiscFile { path: format!("{category}/README.{number}"), bytes, truth: None };
        }
        Some(Flaw::Empty) => {
            let path = format!("{category}/{:08x}", random.next() as u32);
            return DiscFile { path, bytes: Vec::new(), truth: None };
        }
        _ => {}
    }
    let disc = Disc::draw(&mut random, seed, discs, flaw);
    disc.write(&mut random, category, flaw)
}

pub(super) fn category(number: u64, discs: u64) -> &'static str {
    let percent = (u128::from(number) * 100 / u128::from(discs.max(1))) as u64;
    let mut sum = 0;
    for (name, share) in CATEGORIES {
        sum += share;
        if percent < sum {
            return name;
        }
    }
    CATEGORIES[CATEGORIES.len() - 1].0
}

fn draw_flaw(random: &mut Random) -> Option<Flaw> {
    let mut draw = random.below(10_000);
    for (flaw, share) in FLAWS {
        if draw < share {
            return Some(flaw);
        }
        draw -= share;
    }
    None
}

struct Disc {
    script: Script,
    artist: String,
    title: String,
    tracks: Vec<String>,
    offsets: Vec<u64>,
    length_seconds: u64,
    ids: Vec<String>,
    extended: String,
}

impl Disc {
    fn draw(random: &mut Random, seed: u64, discs: u64, flaw: Option<Flaw>) -> Disc {
        let artist_number = if random.chance(330) { 0 } else { 1 + random.skewed_below(discs.max(1)) };
        let (mut artist, script) = words::artist(seed, artist_number);
        let mut title = words::title(random, script);
        match flaw {
            Some(Flaw::EmptyTitle) => title.clear(),
            Some(Flaw::EmptyArtist) => artist.clear(),
            Some(Flaw::NoSlash) => title.clone_from(&artist),
            _ => {}
        }
        if random.chance(100) && title.is_ascii() {
            title = title.replace(" and ", " \\ ");
        }
        let count = random.between(2, 14) + random.below(7);
        let tracks = (0..count).map(|_| words::title(random, script)).collect();
        let mut offsets = Vec::new();
        let mut at = 150;
        for _ in 0..count {
            offsets.push(at);
            at += random.between(90 * 75, 390 * 75);
        }
        let length_seconds = at / 75;
        let mut ids = vec![disc_id(&offsets, length_seconds)];
        if random.chance(800) {
            for _ in 0..random.between(1, 2) {
                ids.push(disc_id(&offsets, length_seconds + ids.len() as u64));
            }
        }
        let bytes = match flaw {
            Some(Flaw::HugeExtended) => random.between(20_000, 120_000),
            _ if random.chance(3500) => random.between(20, 500),
            _ => 0,
        };
        let extended = words::prose(random, script, bytes as usize);
        Disc { script, artist, title, tracks, offsets, length_seconds, ids, extended }
    }

    fn write(self, random: &mut Random, category: &str, flaw: Option<Flaw>) -> DiscFile {
        let mut file = FileText::begin(random, &self);
        self.write_comments(&mut file, random);
        let mut ids = self.ids.clone();
        let mut name = ids[0].clone();
        if flaw == Some(Flaw::IdMismatch) {
            name = format!("{:08x}", random.next() as u32);
            if !ids.contains(&name) {
                ids.push(name.clone());
            }
        }
        if flaw == Some(Flaw::NoId) {
            ids = vec![name.clone()];
        } else {
            file.field("DISCID", &self.ids.join(","));
        }
        if flaw != Some(Flaw::NoTitle) {
            file.field("DTITLE", &self.title_line(flaw));
        }
        self.write_year_and_genre(&mut file, random, flaw);
        self.write_tracks(&mut file, random, flaw);
        let text = self.extended.as_str();
        file.field("EXTD", text);
        if flaw == Some(Flaw::JunkLine) {
            file.line(b"recorded live, see the booklet");
        }
        let with_track_texts = random.chance(400);
        for number in 0..self.tracks.len() {
            let text = if with_track_texts { words::prose(random, self.script, 30) } else { String::new() };
            file.field(&format!("EXTT{number}"), &text);
        }
        if flaw == Some(Flaw::RepeatedField) {
            file.field("DTITLE", &self.title_line(flaw));
        }
        file.field("PLAYORDER", "");
        let truth = Truth { artist: self.artist, title: self.title, disc_ids: ids };
        let truth = (flaw != Some(Flaw::NoTitle)).then_some(truth);
        DiscFile { path: format!("{category}/{name}"), bytes: file.bytes, truth }
    }

    fn title_line(&self, flaw: Option<Flaw>) -> String {
        match flaw {
            Some(Flaw::NoSlash) => self.artist.clone(),
            _ => format!("{} / {}", self.artist, self.title),
        }
    }

    fn write_comments(&self, file: &mut FileText, random: &mut Random) {
        file.line(b"# xmcd");
        file.line(b"#");
        file.line(b"# Track frame offsets:");
        for offset in &self.offsets {
            file.line(format!("#\t{offset}").as_bytes());
        }
        file.line(b"#");
        file.line(format!("# Disc length: {} seconds", self.length_seconds).as_bytes());
        file.line(b"#");
        file.line(format!("# Revision: {}", random.skewed_below(30)).as_bytes());
        file.line(b"# Processed by: cddbd v1.5.2PL0 Copyright (c) Steve Scherf et al.");
        let program = random.pick(&["xmcd 2.6", "ExactAudioCopy v0.95b4", "CDex 1.51", "KsCD 1.4", "Grip 3.1.4"]);
        file.line(format!("# Submitted via: {program}").as_bytes());
        file.line(b"#");
    }

    /// Fields of a later revision of the format, which a quarter of the discs lacks.
    fn write_year_and_genre(&self, file: &mut FileText, random: &mut Random, flaw: Option<Flaw>) {
        if flaw == Some(Flaw::BadYear) {
            file.field("DYEAR", "19?9");
        } else if random.chance(7500) {
            let year = if random.chance(8500) { random.between(1955, 2026).to_string() } else { String::new() };
            file.field("DYEAR", &year);
            let genres = ["Rock", "Pop", "Jazz", "Blues", "Classical", "Folk", "Electronica", "Hip-Hop", "Metal", ""];
            file.field("DGENRE", random.pick(&genres));
        }
    }

    fn write_tracks(&self, file: &mut FileText, random: &mut Random, flaw: Option<Flaw>) {
        let missing = (flaw == Some(Flaw::MissingTrack)).then(|| random.below(self.tracks.len() as u64) as usize);
        for (number, title) in self.tracks.iter().enumerate() {
            if Some(number) != missing {
                file.field(&format!("TTITLE{number}"), title);
            }
        }
        if flaw == Some(Flaw::BrokenUtf8) && file.charset == Charset::Utf8 {
            file.cut_last_multibyte_character();
        }
    }
}

/// FreeDB's id: digit sums of the track starts, playing time, and number of tracks.
fn disc_id(offsets: &[u64], length_seconds: u64) -> String {
    let digits = |mut number: u64| {
        let mut sum = 0;
        while number > 0 {
            sum += number % 10;
            number /= 10;
        }
        sum
    };
    let sum: u64 = offsets.iter().map(|offset| digits(offset / 75)).sum();
    let playing = length_seconds - offsets[0] / 75;
    format!("{:02x}{:04x}{:02x}", sum % 255, playing & 0xffff, offsets.len())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Charset {
    Utf8,
    Latin1,
}

struct FileText {
    bytes: Vec<u8>,
    charset: Charset,
    line_end: &'static [u8],
}

impl FileText {
    fn begin(random: &mut Random, disc: &Disc) -> FileText {
        let latin1 = disc.script == Script::Latin && random.chance(6000);
        FileText {
            bytes: Vec::with_capacity(2048),
            charset: if latin1 { Charset::Latin1 } else { Charset::Utf8 },
            line_end: if random.chance(200) { b"\r\n" } else { b"\n" },
        }
    }

    fn line(&mut self, line: &[u8]) {
        self.bytes.extend_from_slice(line);
        self.bytes.extend_from_slice(self.line_end);
    }

    fn field(&mut self, keyword: &str, text: &str) {
        let escaped = text.replace('\\', "\\\\").replace('\n', "\\n").replace('\t', "\\t");
        let encoded = match self.charset {
            Charset::Utf8 => escaped.into_bytes(),
            // All letters of this script are below U+0100.
            Charset::Latin1 => escaped.chars().map(|c| u8::try_from(u32::from(c)).unwrap_or(b'?')).collect(),
        };
        let room = LINE_BYTES_MAX - keyword.len() - 1;
        let mut rest = encoded.as_slice();
        loop {
            let (part, after) = rest.split_at(room.min(rest.len()));
            self.bytes.extend_from_slice(keyword.as_bytes());
            self.bytes.push(b'=');
            self.line(part);
            rest = after;
            if rest.is_empty() {
                return;
            }
        }
    }

    /// Removes the last byte of the last non-ASCII character, if it is in a track title.
    fn cut_last_multibyte_character(&mut self) {
        let Some(at) = self.bytes.iter().rposition(|byte| !byte.is_ascii()) else { return };
        let line = self.bytes[..at].iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        if self.bytes[line..].starts_with(b"TTITLE") {
            self.bytes.remove(at);
        }
    }
}
