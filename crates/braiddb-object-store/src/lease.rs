//! The lock of a target: a lease in the object `lease`.
//!
//! | line | |
//! |---|---|
//! | `braiddb lease 1` | format |
//! | `epoch N` | one more at each acquisition |
//! | `holder X` | 32 hexadecimal digits, random at each acquisition |
//! | `revision N` | one more at each write of this holder |
//! | `next N` | the lowest id that no backup has reserved |
//! | `until N` | microseconds since 1970: others may take the lease afterwards; 0 if it was released |
//! | `owner TEXT` | for messages |
//!
//! **Writes.** Each write is conditional on the ETag of the one before. The ETag of S3 is a hash of
//! the contents, so equal contents would let a late writer pass.
//! INVARIANT L1: no two writes of a lease have equal contents: `holder` is random and `revision`
//! grows. So an ETag names one write. The object is never deleted.
//!
//! **Time.** Clocks only decide when the lease may be taken. Nothing depends on the former holder
//! noticing the loss in time: see `publish.rs`.

use crate::{
    failure,
    remote::{Attempts, Remote},
};
use braiddb::{Error, Result};
use bytes::Bytes;
use object_store::{Error as StoreError, PutMode, UpdateVersion};
use std::{fmt::Write as _, io};

pub const LEASE_NAME: &str = "lease";

const FORMAT_LINE: &str = "braiddb lease 1";

/// Failed attempts to take a free lease before another process is reported as its holder.
const RACES_MAX: u32 = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub epoch: u64,
    pub holder: String,
    pub revision: u64,
    pub next_id: u64,
    pub until_us: u64,
    pub owner: String,
}

/// The lease of this process, with the version of its last write.
#[derive(Clone, Debug)]
pub struct Held {
    pub lease: Lease,
    version: UpdateVersion,
}

impl Lease {
    fn encode(&self) -> Bytes {
        let Lease { epoch, holder, revision, next_id, until_us, owner } = self;
        let mut text = String::new();
        let written = writeln!(
            text,
            "{FORMAT_LINE}\nepoch {epoch}\nholder {holder}\nrevision {revision}\nnext {next_id}\nuntil {until_us}\nowner {}",
            owner.replace(['\n', '\r'], " ")
        );
        written.expect("a String takes any text");
        text.into()
    }

    pub fn decode(bytes: &[u8]) -> Option<Lease> {
        let mut lines = std::str::from_utf8(bytes).ok()?.strip_suffix('\n')?.split('\n');
        let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        field("braiddb lease").filter(|version| *version == "1")?;
        let epoch = field("epoch")?.parse().ok()?;
        let holder = field("holder")?.to_owned();
        let revision = field("revision")?.parse().ok()?;
        let next_id = field("next")?.parse().ok()?;
        let until_us = field("until")?.parse().ok()?;
        let owner = field("owner")?.to_owned();
        lines.next().is_none().then_some(Lease { epoch, holder, revision, next_id, until_us, owner })
    }

    fn is_of(&self, other: &Lease) -> bool {
        (self.epoch, &self.holder) == (other.epoch, &other.holder)
    }
}

pub fn locked(remote: &Remote, owner: String) -> Error {
    Error::Locked { path: remote.path_of(""), owner }
}

/// The error of a holder whose lease another process has taken.
pub fn lost(remote: &Remote, now: Option<&Lease>) -> Error {
    let by =
        now.map_or_else(|| "another process".to_owned(), |lease| format!("{} (epoch {})", lease.owner, lease.epoch));
    let text = format!(
        "{by} took the lock, since this process did not renew it in time; nothing was published, and earlier backups \
         are unchanged: run it again"
    );
    let source = io::Error::new(io::ErrorKind::ResourceBusy, text);
    Error::Io { action: "change the backups in", path: remote.path_of(""), source }
}

pub fn is_lost(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. } if source.kind() == io::ErrorKind::ResourceBusy)
}

async fn read(remote: &Remote) -> Result<Option<(Lease, UpdateVersion)>> {
    let Some((bytes, version)) = remote.get(LEASE_NAME).await? else { return Ok(None) };
    match Lease::decode(&bytes) {
        Some(lease) => Ok(Some((lease, version))),
        None => Err(Error::BackupDamaged {
            path: remote.path_of(LEASE_NAME),
            detail: "it is no lease of this version. If no process writes backups, rename it".to_owned(),
        }),
    }
}

/// Takes the lease; `Locked` if another process has it.
pub async fn acquire(remote: &Remote) -> Result<Held> {
    let runtime = &remote.options.runtime;
    let holder = format!("{:016x}{:016x}", runtime.random_u64(), runtime.random_u64());
    let mut races = 0;
    let mut attempts = remote.attempts();
    loop {
        let found = read(remote).await?;
        let (epoch, next_id, mode) = match found {
            None => (1, 1, PutMode::Create),
            Some((lease, version)) if lease.holder == holder => return Ok(Held { lease, version }),
            Some((lease, _)) if lease.until_us > runtime.unix_time_us() => {
                return Err(locked(remote, format!("{} (epoch {})", lease.owner, lease.epoch)));
            }
            Some((lease, version)) => (lease.epoch + 1, lease.next_id, PutMode::Update(version)),
        };
        let until_us = runtime.unix_time_us() + lease_us(remote);
        let owner = runtime.process_name();
        let lease = Lease { epoch, holder: holder.clone(), revision: 0, next_id, until_us, owner };
        match remote.put_once(LEASE_NAME, &lease.encode(), mode).await {
            Ok(put) if put.e_tag.is_some() => {
                return Ok(Held { lease, version: UpdateVersion { e_tag: put.e_tag, version: put.version } });
            }
            // The next read shows whether this or another process has it.
            Ok(_) => {}
            Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) if races < RACES_MAX => races += 1,
            Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) => {
                return Err(locked(remote, "several processes that try to lock it".to_owned()));
            }
            Err(e) if failure::is_transient(&e) => {
                if !attempts.next().await {
                    return Err(remote.error("lock", LEASE_NAME, &e));
                }
            }
            Err(e) => return Err(remote.error("lock", LEASE_NAME, &e)),
        }
    }
}

fn lease_us(remote: &Remote) -> u64 {
    u64::try_from(remote.options.lease_time.as_micros()).unwrap_or(u64::MAX / 2)
}

impl Held {
    /// Fails if another process took the lease before this call. It may be taken right after.
    pub async fn verify(&self, remote: &Remote) -> Result<()> {
        match read(remote).await? {
            Some((lease, _)) if lease.is_of(&self.lease) => Ok(()),
            found => Err(lost(remote, found.as_ref().map(|(lease, _)| lease))),
        }
    }

    /// Writes the lease with the change of `edit`, and prolongs it. Fails if it was taken.
    pub async fn write(
        &mut self,
        remote: &Remote,
        mut attempts: Attempts,
        edit: impl Fn(&mut Lease) + Send,
    ) -> Result<()> {
        loop {
            let mut wanted = self.lease.clone();
            wanted.revision += 1;
            wanted.until_us = remote.options.runtime.unix_time_us() + lease_us(remote);
            edit(&mut wanted);
            let mode = PutMode::Update(self.version.clone());
            let error = match remote.put_once(LEASE_NAME, &wanted.encode(), mode).await {
                Ok(put) if put.e_tag.is_some() => {
                    self.lease = wanted;
                    self.version = UpdateVersion { e_tag: put.e_tag, version: put.version };
                    return Ok(());
                }
                Ok(_) => conflicts(),
                Err(StoreError::Precondition { .. } | StoreError::AlreadyExists { .. }) => conflicts(),
                Err(e) if failure::is_transient(&e) => e,
                Err(e) => return Err(remote.error("renew", LEASE_NAME, &e)),
            };
            // Was it an attempt whose reply was lost, or another process?
            match read(remote).await? {
                Some((lease, version)) if lease.is_of(&self.lease) => {
                    let is_written = lease == wanted;
                    (self.lease, self.version) = (lease, version);
                    if is_written {
                        return Ok(());
                    }
                }
                found => return Err(lost(remote, found.as_ref().map(|(lease, _)| lease))),
            }
            if !attempts.next().await {
                return Err(remote.error("renew", LEASE_NAME, &error));
            }
        }
    }
}

fn conflicts() -> StoreError {
    StoreError::Generic { store: "braiddb", source: "too many conflicts".into() }
}
