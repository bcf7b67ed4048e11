//! Planned faults of file system calls.

use std::{
    io,
    path::{Path, PathBuf},
};

/// A file system call.
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
    /// All calls.
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

/// The effect of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Returns this error. After a failed sync, its unsynced operations may be lost for good.
    Fail(io::ErrorKind),
    /// A write writes `bytes` bytes and returns this error; other calls fail as with
    /// [`Effect::Fail`].
    Short {
        /// Bytes written, at most.
        bytes: usize,
        /// The error.
        error: io::ErrorKind,
    },
}

/// A planned fault.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The kind of calls that match; all if `None`.
    pub call: Option<Call>,
    /// Only paths with this suffix match; an open file has the path of its open.
    pub path_suffix: Option<String>,
    /// Matching calls that succeed first.
    pub skip: u64,
    /// Fails later matching calls too.
    pub forever: bool,
    /// The effect.
    pub effect: Effect,
}

impl Fault {
    /// Fails one call, after `skip` calls.
    pub fn nth(skip: u64, error: io::ErrorKind) -> Fault {
        Fault { call: None, path_suffix: None, skip, forever: false, effect: Effect::Fail(error) }
    }

    /// Fails one `call`, after `skip` of them.
    pub fn nth_of(call: Call, skip: u64, error: io::ErrorKind) -> Fault {
        Fault { call: Some(call), ..Fault::nth(skip, error) }
    }

    /// Fails all calls after `skip` ones.
    pub fn all_from(skip: u64, error: io::ErrorKind) -> Fault {
        Fault { forever: true, ..Fault::nth(skip, error) }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Faults {
    planned: Vec<Fault>,
    counts: [u64; Call::ALL.len()],
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
            Effect::Fail(error) | Effect::Short { error, .. } => io::Error::new(error, "planned fault of the test"),
        }
    }
}

fn in_slashes(path: &Path) -> String {
    path.to_string_lossy().replace(std::path::MAIN_SEPARATOR, "/")
}
