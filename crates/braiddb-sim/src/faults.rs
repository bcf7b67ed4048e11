//! Calls that fail on purpose.

use std::{
    io,
    path::{Path, PathBuf},
};

/// A call of the file system, for counting and failing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Call {
    /// `create_dir_all`.
    CreateDirectory,
    /// `open` of an existing file.
    Open,
    /// `open` of a new file.
    Create,
    /// `list`.
    List,
    /// `remove`.
    Remove,
    /// `rename`.
    Rename,
    /// `hard_link`.
    Link,
    /// `sync_dir`.
    SyncDirectory,
    /// `lock`.
    Lock,
    /// `read_at`.
    Read,
    /// `write_at`.
    Write,
    /// `set_len`.
    SetLength,
    /// `preallocate`.
    Reserve,
    /// `sync_data`.
    Sync,
}

impl Call {
    /// Every call.
    pub const ALL: [Call; 14] = [
        Call::CreateDirectory,
        Call::Open,
        Call::Create,
        Call::List,
        Call::Remove,
        Call::Rename,
        Call::Link,
        Call::SyncDirectory,
        Call::Lock,
        Call::Read,
        Call::Write,
        Call::SetLength,
        Call::Reserve,
        Call::Sync,
    ];
}

/// What a failing call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It does nothing and returns this error. A sync that fails leaves what it should have synced possibly lost for
    /// good.
    Fail(io::ErrorKind),
    /// A write writes so many bytes and returns this error; another call fails as with [`Effect::Fail`].
    Short {
        /// The bytes that are written, if there are so many.
        bytes: usize,
        /// What is returned.
        error: io::ErrorKind,
    },
}

/// A failure to come.
#[derive(Clone, Debug)]
pub struct Fault {
    /// Which calls count; all if `None`.
    pub call: Option<Call>,
    /// Only calls on paths that end so count; for an open file that is the path it was opened by.
    pub path_suffix: Option<String>,
    /// How many calls that count go well before.
    pub skip: u64,
    /// Whether all later calls that count fail too.
    pub forever: bool,
    /// What happens.
    pub effect: Effect,
}

impl Fault {
    /// The call after the next `skip` calls, of whatever kind, fails once.
    pub fn nth(skip: u64, error: io::ErrorKind) -> Fault {
        Fault { call: None, path_suffix: None, skip, forever: false, effect: Effect::Fail(error) }
    }

    /// The same among the calls of one kind.
    pub fn nth_of(call: Call, skip: u64, error: io::ErrorKind) -> Fault {
        Fault { call: Some(call), ..Fault::nth(skip, error) }
    }

    /// From the call after the next `skip` on, every call fails.
    pub fn all_from(skip: u64, error: io::ErrorKind) -> Fault {
        Fault { forever: true, ..Fault::nth(skip, error) }
    }
}

/// The failures to come, and the calls so far.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    planned: Vec<Fault>,
    counts: [u64; Call::ALL.len()],
    /// The calls that failed on purpose, in order.
    pub(crate) fired: Vec<(Call, PathBuf)>,
}

impl Faults {
    pub(crate) fn inject(&mut self, fault: Fault) {
        self.planned.push(fault);
    }

    pub(crate) fn clear(&mut self) {
        self.planned.clear();
    }

    pub(crate) fn count(&self, call: Option<Call>) -> u64 {
        match call {
            Some(call) => self.counts[call as usize],
            None => self.counts.iter().sum(),
        }
    }

    /// Counts a call, and says whether it must fail.
    pub(crate) fn next(&mut self, call: Call, path: &Path) -> Option<Effect> {
        self.counts[call as usize] += 1;
        let mut effect = None;
        self.planned.retain_mut(|fault| {
            let suffix_fits =
                fault.path_suffix.as_ref().is_none_or(|suffix| in_slashes(path).ends_with(suffix.as_str()));
            if fault.call.is_some_and(|kind| kind != call) || !suffix_fits {
                return true;
            }
            if fault.skip > 0 {
                fault.skip -= 1;
                return true;
            }
            effect = effect.or(Some(fault.effect));
            fault.forever
        });
        if effect.is_some() {
            self.fired.push((call, path.to_owned()));
        }
        effect
    }
}

impl Effect {
    pub(crate) fn error(self) -> io::Error {
        match self {
            Effect::Fail(error) | Effect::Short { error, .. } => {
                io::Error::new(error, "this call was told to fail by the test")
            }
        }
    }
}

/// A path with slashes, on systems that have something else between names too.
fn in_slashes(path: &Path) -> String {
    path.to_string_lossy().replace(std::path::MAIN_SEPARATOR, "/")
}
