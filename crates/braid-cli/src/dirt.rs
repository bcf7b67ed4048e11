//! Counts the problems ("dirt") of an input by kind, with samples.
//!
//! A record with *repaired* dirt is stored. A record with *unusable* dirt is skipped, or ends the
//! import with `--on-error stop`.

use serde::{Deserialize, Serialize};

use crate::input::Position;

const SAMPLES_PER_KIND: usize = 3;

const SAMPLE_CHARACTERS_MAX: usize = 100;

macro_rules! kinds {
    ($( $(#[doc = $doc:literal])* $kind:ident, $name:literal, $unusable:literal, $explanation:literal; )*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Dirt { $( $(#[doc = $doc])* $kind, )* }

        impl Dirt {
            pub const ALL: &[Dirt] = &[$( Dirt::$kind, )*];

            /// Returns the name in reports and progress records. Names never change.
            pub fn name(self) -> &'static str {
                match self { $( Dirt::$kind => $name, )* }
            }

            pub fn is_unusable(self) -> bool {
                match self { $( Dirt::$kind => $unusable, )* }
            }

            pub fn explanation(self) -> &'static str {
                match self { $( Dirt::$kind => $explanation, )* }
            }
        }
    };
}

kinds! {
    CarriageReturns, "carriage-returns", false, "lines end in CR LF or CR";
    Latin1, "latin-1", false, "8-bit text read as ISO-8859-1 (bytes 80-9F as Windows-1252)";
    BrokenUtf8, "broken-utf-8", false, "damaged UTF-8: each bad sequence became U+FFFD";
    RepeatedField, "repeated-field", false, "a repeated field: joined, or dropped if equal";
    MissingField, "missing-field", false, "a field is missing: taken from elsewhere, or left empty";
    BadField, "bad-field", false, "a malformed field: left out";
    IdMismatch, "id-mismatch", false, "the ids differ from the file's name: stored under all of them";
    EmptyTitle, "empty-title", false, "the artist or the title is empty";
    HugeText, "huge-text", false, "a text of more than 16 KiB: stored unchanged";
    JunkLine, "junk-line", false, "a line that is neither comment nor field: left out";
    WrongDiscId, "wrong-disc-id", false, "no id of the disc matches its track offsets and length: kept";
    LostLink, "lost-link", true, "a link to a file that is missing, or too far before it";
    NotADisc, "not-a-disc", true, "a file without the name of a disc, or without fields";
    MissingTitle, "missing-title", true, "a disc without DTITLE";
    TooLarge, "too-large", true, "a record above the size limit";
    MalformedJson, "malformed-json", true, "not JSON";
    NotAnObject, "not-an-object", true, "JSON, but not an object with named fields";
    WrongColumns, "wrong-columns", true, "a row with more or fewer columns than the header";
    UnclosedQuote, "unclosed-quote", true, "a quoted field that is not closed";
    StrayQuote, "stray-quote", true, "text after a closing quote: double the quotes inside a quoted field";
    LoneCr, "lone-cr", true, "a CR outside quotes that ends no line: quote it, or fix the line ends";
    StrayMark, "stray-mark", true, "a byte order mark inside the input: were files joined?";
    BadType, "bad-type", true, "a field does not have its type in --types";
    MissingKey, "missing-key", true, "the key's field is missing, or is not text or a whole number";
    EmptyKey, "empty-key", true, "the key's field is empty: these records would share one key";
    ZeroByte, "zero-byte", true, "a zero byte in a row: not text, or UTF-16 joined to other text";
    KeyTooLong, "key-too-long", true, "the key is longer than 65,536 bytes";
}

impl Dirt {
    pub fn from_name(name: &str) -> Option<Dirt> {
        Dirt::ALL.iter().copied().find(|dirt| dirt.name() == name)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub dirt: Dirt,
    pub detail: String,
}

impl Finding {
    pub fn new(dirt: Dirt, detail: impl AsRef<str>) -> Finding {
        let detail = detail.as_ref();
        let mut cut: String = detail.chars().take(SAMPLE_CHARACTERS_MAX).collect();
        if cut.len() < detail.len() {
            cut.push('…');
        }
        Finding { dirt, detail: cut.replace(|c: char| c.is_control(), "·") }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    pub record: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub place: String,
    pub detail: String,
}

impl Sample {
    pub fn place(&self) -> String {
        let position =
            Position { offset: self.offset.unwrap_or(0), line: self.line.unwrap_or(0), lines: self.lines.unwrap_or(1) };
        let path = if self.place.is_empty() { String::new() } else { format!(" {}", self.place) };
        format!("record {}{path}{}", self.record, if self.offset.is_some() { shown(position) } else { String::new() })
    }
}

pub fn shown(position: Position) -> String {
    match position {
        Position { line: 0, offset, .. } => format!(", byte {offset}"),
        Position { line, lines, offset } if lines > 1 => format!(", lines {line}-{}, byte {offset}", line + lines - 1),
        Position { line, offset, .. } => format!(", line {line}, byte {offset}"),
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindTally {
    pub kind: String,
    pub records: u64,
    pub samples: Vec<Sample>,
}

/// The dirt of an import so far, kept in the progress record for resumed imports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DirtTally {
    kinds: Vec<KindTally>,
}

impl DirtTally {
    pub fn add(&mut self, record: u64, position: Position, place: &str, findings: &[Finding]) {
        for (index, finding) in findings.iter().enumerate() {
            if findings[..index].iter().any(|earlier| earlier.dirt == finding.dirt) {
                continue;
            }
            let tally = self.kind_mut(finding.dirt);
            tally.records += 1;
            if tally.samples.len() < SAMPLES_PER_KIND {
                tally.samples.push(Sample {
                    record,
                    line: (position.line > 0).then_some(position.line),
                    lines: (position.lines > 1).then_some(position.lines),
                    offset: Some(position.offset),
                    place: place.to_owned(),
                    detail: finding.detail.clone(),
                });
            }
        }
    }

    /// Corrects record numbers of an earlier version, which counted from `first` instead of 1.
    pub fn renumber(&mut self, first: u64) {
        for sample in self.kinds.iter_mut().flat_map(|tally| &mut tally.samples) {
            sample.record = sample.record.saturating_sub(first).saturating_add(1);
        }
    }

    pub fn kinds(&self) -> Vec<(Dirt, &KindTally)> {
        let mut kinds: Vec<_> =
            self.kinds.iter().filter_map(|tally| Some((Dirt::from_name(&tally.kind)?, tally))).collect();
        kinds.sort_by_key(|(dirt, _)| *dirt);
        kinds
    }

    fn kind_mut(&mut self, dirt: Dirt) -> &mut KindTally {
        let index = match self.kinds.iter().position(|tally| tally.kind == dirt.name()) {
            Some(index) => index,
            None => {
                self.kinds.push(KindTally { kind: dirt.name().to_owned(), records: 0, samples: Vec::new() });
                self.kinds.len() - 1
            }
        };
        &mut self.kinds[index]
    }
}
