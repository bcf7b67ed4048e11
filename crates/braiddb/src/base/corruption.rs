//! Damage, as a value: the file, the place, and the tree if known.

use super::FileNumber;
use std::{
    fmt,
    path::{Path, PathBuf},
};

/// Name of the file that names the manifest.
pub const CURRENT_NAME: &str = "CURRENT";

/// The kind of a database file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum DatabaseFile {
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
    /// The directory, or another file.
    Other,
}

impl DatabaseFile {
    /// Returns its name in the output of `braid verify --json`.
    pub fn name(self) -> &'static str {
        match self {
            DatabaseFile::Current => "current",
            DatabaseFile::Manifest => "manifest",
            DatabaseFile::Log => "log",
            DatabaseFile::Run => "run",
            DatabaseFile::View => "view",
            DatabaseFile::Blob => "blob",
            DatabaseFile::Other => "other",
        }
    }

    /// Returns the kind and the number of a file, which its name has.
    pub(crate) fn of(path: &Path) -> (DatabaseFile, Option<FileNumber>) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name == CURRENT_NAME {
            return (DatabaseFile::Current, None);
        }
        match numbered(name) {
            Some((number, "manifest")) => (DatabaseFile::Manifest, Some(number)),
            Some((number, "wal")) => (DatabaseFile::Log, Some(number)),
            Some((number, "run")) => (DatabaseFile::Run, Some(number)),
            Some((number, "view")) => (DatabaseFile::View, Some(number)),
            Some((number, "blob")) => (DatabaseFile::Blob, Some(number)),
            _ => (DatabaseFile::Other, None),
        }
    }
}

/// Splits a file name into number and kind: "manifest" or the extension.
pub(crate) fn numbered(name: &str) -> Option<(FileNumber, &str)> {
    if let Some(number) = name.strip_prefix("MANIFEST-") {
        return Some((number.parse().ok()?, "manifest"));
    }
    let (stem, extension) = name.rsplit_once('.')?;
    let known = matches!(extension, "wal" | "run" | "view" | "blob");
    Some((stem.parse().ok().filter(|_| known)?, extension))
}

/// Damage that a call found: see [`crate::Error::Corruption`]. [`crate::Db::verify`] lists all.
///
/// ```
/// # fn main() -> braiddb::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("braiddb-doc-corruption-{}", std::process::id()));
/// # braiddb::Db::open(&dir)?.close()?;
/// use braiddb::{Db, Error, verify::DatabaseFile};
///
/// std::fs::write(dir.join("CURRENT"), "not a file of BraidDB").expect("the directory exists");
/// match Db::open(&dir) {
///     Err(Error::Corruption(damage)) => {
///         assert_eq!(damage.file_kind(), DatabaseFile::Current);
///         assert_eq!(damage.path(), dir.join("CURRENT"));
///     }
///     other => panic!("{other:?}"),
/// }
/// # std::fs::remove_dir_all(dir).ok();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corruption {
    pub(crate) path: PathBuf,
    pub(crate) offset: u64,
    pub(crate) detail: String,
    tree: Option<String>,
}

impl Corruption {
    pub(crate) fn new(path: PathBuf, offset: u64, detail: String) -> Corruption {
        Corruption { path, offset, detail, tree: None }
    }

    /// Keeps a tree that is known already.
    pub(crate) fn in_tree(mut self, name: impl FnOnce() -> Option<String>) -> Corruption {
        self.tree = self.tree.or_else(name);
        self
    }

    /// Returns the damaged file, or the database directory if no single file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the kind of the file.
    pub fn file_kind(&self) -> DatabaseFile {
        DatabaseFile::of(&self.path).0
    }

    /// Returns the number in the file's name; `None` for CURRENT and other files.
    pub fn file_number(&self) -> Option<u64> {
        DatabaseFile::of(&self.path).1
    }

    /// Returns the offset of the damage in the file, in bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the tree whose read or write found the damage; `None` if unknown, as at an open. The
    /// same bytes may hold other trees too.
    pub fn tree(&self) -> Option<&str> {
        self.tree.as_deref()
    }

    /// Describes the damage, for people.
    pub fn detail(&self) -> &str {
        &self.detail
    }
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Corruption { path, offset, detail, .. } = self;
        write!(
            f,
            "corruption in {} at byte {offset}: {detail}; `braid verify` lists all damage; restore the database from a \
             backup, or copy what is intact with `braid salvage`",
            path.display()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_and_number_come_from_file_name() {
        let of = |name: &str| {
            let damage = Corruption::new(Path::new("db").join(name), 7, String::new());
            (damage.file_kind(), damage.file_number())
        };
        assert_eq!(of("CURRENT"), (DatabaseFile::Current, None));
        assert_eq!(of("MANIFEST-000012"), (DatabaseFile::Manifest, Some(12)));
        assert_eq!(of("000034.wal"), (DatabaseFile::Log, Some(34)));
        assert_eq!(of("000035.run"), (DatabaseFile::Run, Some(35)));
        assert_eq!(of("000036.view"), (DatabaseFile::View, Some(36)));
        assert_eq!(of("000037.blob"), (DatabaseFile::Blob, Some(37)));
        assert_eq!(of("x.run"), (DatabaseFile::Other, None));
        assert_eq!(of("000037.txt"), (DatabaseFile::Other, None));
    }
}
