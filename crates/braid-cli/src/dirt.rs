//! What is wrong with an input, by kind: each kind is counted, and its first cases are kept as samples.
//!
//! Dirt comes in two grades. A *repaired* record is stored, and what was odd about it is counted; an *unusable* one
//! is skipped, or ends the import, as `--on-error` says.

use serde::{Deserialize, Serialize};

use crate::input::Position;

/// How many samples of a kind are kept: the first ones of the input.
const SAMPLES_PER_KIND: usize = 3;

/// The longest detail of a sample, in characters.
const SAMPLE_CHARACTERS_MAX: usize = 100;

macro_rules! kinds {
    ($( $(#[doc = $doc:literal])* $kind:ident, $name:literal, $unusable:literal, $explanation:literal; )*) => {
        /// One kind of dirt.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Dirt { $( $(#[doc = $doc])* $kind, )* }

        impl Dirt {
            /// All kinds, repaired ones first, in the order in which reports list them.
            pub const ALL: &[Dirt] = &[$( Dirt::$kind, )*];

            /// The name in reports and progress records; never changed once given.
            pub fn name(self) -> &'static str {
                match self { $( Dirt::$kind => $name, )* }
            }

            /// Whether a record with this dirt cannot be stored.
            pub fn is_unusable(self) -> bool {
                match self { $( Dirt::$kind => $unusable, )* }
            }

            /// What it is and what was done, for people.
            pub fn explanation(self) -> &'static str {
                match self { $( Dirt::$kind => $explanation, )* }
            }
        }
    };
}

kinds! {
    /// Lines end in CR LF, or in CR alone.
    CarriageReturns, "carriage-returns", false, "lines end in CR LF or CR";
    /// Text that is neither ASCII nor UTF-8.
    Latin1, "latin-1", false, "8-bit text read as ISO-8859-1 (bytes 80-9F as Windows-1252)";
    /// UTF-8 with damaged sequences among whole ones.
    BrokenUtf8, "broken-utf-8", false, "damaged UTF-8: each bad sequence became U+FFFD";
    /// A field given again after others came between.
    RepeatedField, "repeated-field", false, "a field given again later: joined, or dropped where it is the same";
    /// A field that ought to be there and is not.
    MissingField, "missing-field", false, "a field is missing: taken from elsewhere, or left empty";
    /// A field whose text is not of its form.
    BadField, "bad-field", false, "a field is not of its form: left out";
    /// The ids of a record do not include the one in its file's name.
    IdMismatch, "id-mismatch", false, "the ids disagree with the file's name: stored under all of them";
    /// The artist or the title is empty.
    EmptyTitle, "empty-title", false, "the artist or the title is empty";
    /// A text far larger than its purpose.
    HugeText, "huge-text", false, "a text of more than 16 KiB: stored whole";
    /// A line that is neither a comment nor a field.
    JunkLine, "junk-line", false, "a line that is neither comment nor field: left out";
    /// A disc none of whose ids fits its offsets.
    WrongDiscId, "wrong-disc-id", false, "no id of the disc fits its track offsets and length: kept";
    /// A link to a file that is not among the latest ones before it.
    LostLink, "lost-link", true, "a link to a file that did not come shortly before it";
    /// A file in the archive that is not a disc.
    NotADisc, "not-a-disc", true, "a file that is not named like a disc, or holds no fields";
    /// A disc without its one necessary field.
    MissingTitle, "missing-title", true, "a disc without DTITLE";
    /// A record above the size limit.
    TooLarge, "too-large", true, "a record above the size limit";
    /// A line that is not JSON.
    MalformedJson, "malformed-json", true, "not JSON";
    /// JSON that is not an object.
    NotAnObject, "not-an-object", true, "JSON, but not an object with named fields";
    /// A row with more or fewer columns than the header.
    WrongColumns, "wrong-columns", true, "a row whose number of columns is not the header's";
    /// A quote that is never closed, or closed where another was to open.
    UnclosedQuote, "unclosed-quote", true, "a quoted field that is not closed";
    /// Letters between the closing quote of a field and the delimiter.
    StrayQuote, "stray-quote", true, "letters after a closing quote: double the quotes inside a quoted field";
    /// A CR in a field without quotes, which may be a line end.
    LoneCr, "lone-cr", true, "a CR that ends no line, outside quotes: quote it, or mend the line ends";
    /// A byte order mark that is not at the beginning.
    StrayMark, "stray-mark", true, "a byte order mark inside the input: were files joined?";
    /// A field whose text is not of the type that was asked for.
    BadType, "bad-type", true, "a field is not of its type in --types";
    /// The field that makes the key is missing or is no scalar.
    MissingKey, "missing-key", true, "the key's field is missing, or is not text or a whole number";
    /// The field that makes the key is there, and empty.
    EmptyKey, "empty-key", true, "the key's field is empty: all such records would share one key";
    /// A zero byte in a row.
    ZeroByte, "zero-byte", true, "a zero byte in a row: it is no text, or UTF-16 that was joined to other text";
    /// A key longer than the engine takes.
    KeyTooLong, "key-too-long", true, "the key is longer than a key can be";
}

impl Dirt {
    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<Dirt> {
        Dirt::ALL.iter().copied().find(|dirt| dirt.name() == name)
    }
}

/// One case of dirt in a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The kind.
    pub dirt: Dirt,
    /// The field or the bytes concerned, for people.
    pub detail: String,
}

impl Finding {
    /// A finding; the detail is cut to a readable length.
    pub fn new(dirt: Dirt, detail: impl AsRef<str>) -> Finding {
        let detail = detail.as_ref();
        let mut cut: String = detail.chars().take(SAMPLE_CHARACTERS_MAX).collect();
        if cut.len() < detail.len() {
            cut.push('…');
        }
        Finding { dirt, detail: cut.replace(|c: char| c.is_control(), "·") }
    }
}

/// One kept case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// The number of the record in its input, counted from 1.
    pub record: u64,
    /// Its first line, counted from 1, where records have lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// How many lines it has, if it has several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<u64>,
    /// The bytes before it. Imports by earlier versions did not store it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// The file in the archive; empty where records have no names.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub place: String,
    /// What exactly.
    pub detail: String,
}

impl Sample {
    /// Where the record is, for people.
    pub fn place(&self) -> String {
        let position =
            Position { offset: self.offset.unwrap_or(0), line: self.line.unwrap_or(0), lines: self.lines.unwrap_or(1) };
        let path = if self.place.is_empty() { String::new() } else { format!(" {}", self.place) };
        format!("record {}{path}{}", self.record, if self.offset.is_some() { shown(position) } else { String::new() })
    }
}

/// A position after the number of a record, for people.
pub fn shown(position: Position) -> String {
    match position {
        Position { line: 0, offset, .. } => format!(", byte {offset}"),
        Position { line, lines, offset } if lines > 1 => format!(", lines {line}-{}, byte {offset}", line + lines - 1),
        Position { line, offset, .. } => format!(", line {line}, byte {offset}"),
    }
}

/// The count and the samples of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindTally {
    /// [`Dirt::name`].
    pub kind: String,
    /// How many records have it.
    pub records: u64,
    /// The first of them.
    pub samples: Vec<Sample>,
}

/// What an import met so far. It travels in the progress record, so that a resumed import reports on the whole input.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DirtTally {
    kinds: Vec<KindTally>,
}

impl DirtTally {
    /// Counts a record's findings. A kind that occurs several times in one record counts once.
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

    /// Numbers records of an import by an earlier version, which counted them from `first`, from 1.
    pub fn renumber(&mut self, first: u64) {
        for sample in self.kinds.iter_mut().flat_map(|tally| &mut tally.samples) {
            sample.record = sample.record.saturating_sub(first).saturating_add(1);
        }
    }

    /// The kinds that were met, in the order of [`Dirt::ALL`].
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
