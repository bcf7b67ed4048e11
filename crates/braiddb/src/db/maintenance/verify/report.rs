//! What a verification finds.

use crate::{
    base::{Error, FileNumber},
    db::files::names::numbered,
    version::CURRENT_NAME,
};
use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// What [`crate::Db::verify`] and [`crate::Db::verify_path`] have found.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Files read, damaged ones and log segments included.
    pub files: u64,
    /// Bytes read of them.
    pub bytes: u64,
    /// What is wrong, each damaged unit once: a data block, a page of a view, a chunk of a value, a record of the log or of the manifest,
    /// a slot of CURRENT, a missing file. Empty if the database is sound.
    pub problems: Vec<VerifyProblem>,
    /// How many more problems there were, where there were too many to be listed.
    pub problems_left_out: u64,
    /// What is odd but does no harm.
    pub notes: Vec<String>,
    /// Whether the database opens as it is.
    pub opens: bool,
}

impl VerifyReport {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty() && self.problems_left_out == 0
    }
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProblemKind {
    /// Bytes are not what was written.
    Damaged,
    /// A file is missing.
    Missing,
    /// The log ends with a torn or damaged record. A record that was being written when the process was killed or power failed looks the same
    /// as a durable one that was damaged later.
    TornTail,
    /// A record holds an operand that its built-in merge function can never apply.
    CannotApply,
    /// The system could not read the file, or this build cannot.
    Unreadable,
}

impl ProblemKind {
    /// Its name in the output of `braid verify --json`.
    pub fn name(self) -> &'static str {
        match self {
            ProblemKind::Damaged => "damaged",
            ProblemKind::Missing => "missing",
            ProblemKind::TornTail => "torn-tail",
            ProblemKind::CannotApply => "cannot-apply",
            ProblemKind::Unreadable => "unreadable",
        }
    }
}

/// The kind of a database's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum VerifiedFile {
    /// CURRENT.
    Current,
    /// A manifest.
    Manifest,
    /// A log segment.
    Log,
    /// A run.
    Run,
    /// A view.
    View,
    /// A blob file.
    Blob,
    /// The directory, or something else.
    Other,
}

impl VerifiedFile {
    /// Its name in the output of `braid verify --json`.
    pub fn name(self) -> &'static str {
        match self {
            VerifiedFile::Current => "current",
            VerifiedFile::Manifest => "manifest",
            VerifiedFile::Log => "log",
            VerifiedFile::Run => "run",
            VerifiedFile::View => "view",
            VerifiedFile::Blob => "blob",
            VerifiedFile::Other => "other",
        }
    }
}

/// A key of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TreeKey {
    /// The tree's name, if its catalog entry was read.
    pub tree: Option<String>,
    /// The tree's number.
    pub tree_id: u32,
    /// The key, as it stands in the tree; of a tree of many values, with its value.
    pub key: Vec<u8>,
}

/// The range of keys that a problem affects. No key outside is affected.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AffectedKeys {
    /// The least.
    pub from: TreeKey,
    /// The greatest.
    pub to: TreeKey,
}

/// Something that is wrong: what, where, and which keys it affects.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyProblem {
    /// What is wrong.
    pub kind: ProblemKind,
    /// In which kind of file.
    pub file: VerifiedFile,
    /// The number in the file's name, if it has one.
    pub number: Option<FileNumber>,
    /// The file.
    pub path: PathBuf,
    /// Where the damaged unit begins, in bytes.
    pub offset: u64,
    /// The length of the unit in bytes; 0 if it is not known, or the file is missing.
    pub len: u64,
    /// What was found there.
    pub detail: String,
    /// The keys that it affects, where that is known.
    pub keys: Option<AffectedKeys>,
    /// The last commit before it, in the log.
    pub last_commit: Option<u64>,
    /// How many other bytes of the file could not be checked because of it.
    pub unchecked_bytes: u64,
}

impl VerifyProblem {
    pub(super) fn new(kind: ProblemKind, path: &Path, offset: u64, len: u64, detail: impl Into<String>) -> Self {
        let (file, number) = file_of(path);
        VerifyProblem {
            kind,
            file,
            number,
            path: path.to_owned(),
            offset,
            len,
            detail: detail.into(),
            keys: None,
            last_commit: None,
            unchecked_bytes: 0,
        }
    }

    /// What an error is about. Its advice is left out: who reads this has done as it says.
    pub(super) fn of(error: &Error, path: &Path) -> VerifyProblem {
        match error {
            Error::Corruption { path, offset, detail } => {
                VerifyProblem::new(ProblemKind::Damaged, path, *offset, 0, detail)
            }
            other => VerifyProblem::new(ProblemKind::Unreadable, path, 0, 0, other.to_string()),
        }
    }
}

/// The kind and number of a file, by its name.
fn file_of(path: &Path) -> (VerifiedFile, Option<FileNumber>) {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if name == CURRENT_NAME {
        return (VerifiedFile::Current, None);
    }
    match numbered(name) {
        Some((number, "manifest")) => (VerifiedFile::Manifest, Some(number)),
        Some((number, "wal")) => (VerifiedFile::Log, Some(number)),
        Some((number, "run")) => (VerifiedFile::Run, Some(number)),
        Some((number, "view")) => (VerifiedFile::View, Some(number)),
        Some((number, "blob")) => (VerifiedFile::Blob, Some(number)),
        _ => (VerifiedFile::Other, None),
    }
}

impl fmt::Display for TreeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.tree, self.tree_id) {
            (Some(name), _) => write!(f, "tree {name:?}")?,
            (None, 0) => write!(f, "the catalog")?,
            (None, id) => write!(f, "tree number {id}")?,
        }
        let shown = self.key.get(..SHOWN_KEY_BYTES).unwrap_or(&self.key);
        write!(f, " key \"{}\"{}", shown.escape_ascii(), if shown.len() < self.key.len() { ".." } else { "" })
    }
}

/// The most bytes of a key that a message shows.
const SHOWN_KEY_BYTES: usize = 48;

impl fmt::Display for VerifyProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match self.kind {
            ProblemKind::Missing => write!(f, "{path}: {}", self.detail)?,
            _ => write!(f, "{path} at offset {}", self.offset)?,
        }
        if self.len > 0 {
            write!(f, ", {} bytes", self.len)?;
        }
        match self.kind {
            ProblemKind::Missing => {}
            ProblemKind::TornTail => write!(f, ": torn or damaged tail of the log: {}", self.detail)?,
            _ => write!(f, ": {}", self.detail)?,
        }
        if let Some(commit) = self.last_commit {
            write!(f, "; the last commit before it is {commit}")?;
        }
        if let Some(AffectedKeys { from, to }) = &self.keys {
            if from == to { write!(f, "; affects {from}")? } else { write!(f, "; affects {from} to {to}")? }
        }
        if self.unchecked_bytes > 0 {
            write!(f, "; {} bytes of the file could not be checked", self.unchecked_bytes)?;
        }
        Ok(())
    }
}

impl From<VerifyProblem> for Error {
    fn from(problem: VerifyProblem) -> Error {
        Error::corruption(problem.path, problem.offset, problem.detail)
    }
}

/// How far a verification has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifyProgress {
    /// Bytes checked.
    pub bytes: u64,
    /// About how many there are.
    pub bytes_total: u64,
    /// Problems found so far.
    pub problems: u64,
}

/// How to verify.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct VerifyOptions {
    /// How many files are read at once; 0 for as many as there are background threads, at most 4.
    pub threads: usize,
    /// Called after each file, from several threads.
    pub progress: Option<Arc<dyn Fn(VerifyProgress) + Send + Sync>>,
}

impl fmt::Debug for VerifyOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifyOptions").field("threads", &self.threads).finish_non_exhaustive()
    }
}

impl VerifyOptions {
    /// Sets how many files are read at once.
    pub fn threads(mut self, threads: usize) -> VerifyOptions {
        self.threads = threads;
        self
    }

    /// Has progress reported.
    pub fn progress(mut self, report: impl Fn(VerifyProgress) + Send + Sync + 'static) -> VerifyOptions {
        self.progress = Some(Arc::new(report));
        self
    }
}
