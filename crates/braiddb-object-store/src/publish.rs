//! Publication of a backup: the step that makes its description visible.
//!
//! A holder of the lock may be suspended at any point, for any time. Meanwhile its lease expires,
//! the next holder takes it, and deletes the files of unfinished backups. If the suspended process
//! then published its description, it would name deleted files. Store and lease are separate
//! objects, so no check of the lease right before the write helps.
//!
//! **Protocol.** The publisher (1) creates the description's object as a *placeholder* with random
//! contents, (2) reads the lease, and gives up if it was taken, (3) replaces the placeholder by the
//! description on condition of the placeholder's ETag. The next holder, once it has the lease and
//! before anything else, closes all placeholders: it replaces each on condition of its ETag, then
//! deletes it.
//!
//! INVARIANT P1: a description becomes visible only if its publisher held the lease when all files
//! were put, or it was visible before the next holder listed the objects. Proof: the placeholder was
//! created before the read (2) of the lease. If the lease was taken before (2), the publisher gives
//! up. If after, the next holder's list shows the placeholder or the description. Steps (3) and
//! the closing are conditional on the same ETag, so exactly one of them succeeds. Placeholders are
//! random, so no ETag of one occurs twice, and a deleted one has none.
//!
//! INVARIANT P2: no deletion hits an object that a visible description needs. Deleters list under
//! the lease and read it afterwards, so the list has nothing of a later holder; and they read the
//! lease again if a listed object is missing, since a later holder may have deleted a description
//! and use its files. Ids are never given twice (`next` of the lease), so no name is used again, and
//! a late deletion hits only objects of that list.

use crate::{
    failure,
    lease::{self, Held},
    remote::Remote,
};
use braiddb::{Error, Result};
use bytes::Bytes;
use object_store::{Error as StoreError, ObjectMeta, PutMode, UpdateVersion};

const PLACEHOLDER_MAGIC: &[u8] = b"braiddb placeholder\n";

/// Shorter than any description.
const PLACEHOLDER_LEN: u64 = PLACEHOLDER_MAGIC.len() as u64 + 16;

const DESCRIPTION_SUFFIX: &str = ".backup";

fn random_placeholder(remote: &Remote) -> Bytes {
    let mut bytes = PLACEHOLDER_MAGIC.to_vec();
    for _ in 0..2 {
        bytes.extend_from_slice(&remote.options.runtime.random_u64().to_le_bytes());
    }
    bytes.into()
}

fn is_placeholder(bytes: &[u8]) -> bool {
    bytes.len() as u64 == PLACEHOLDER_LEN && bytes.starts_with(PLACEHOLDER_MAGIC)
}

fn may_be_placeholder(name: &str, len: u64) -> bool {
    len == PLACEHOLDER_LEN && name.ends_with(DESCRIPTION_SUFFIX)
}

/// Returns whether the object is a placeholder, which is no backup.
pub async fn is_hidden(remote: &Remote, object: &ObjectMeta) -> Result<bool> {
    let Some(name) = object.location.filename().filter(|name| may_be_placeholder(name, object.size)) else {
        return Ok(false);
    };
    // A missing object is listed, and its reader finds it missing.
    Ok(remote.get(name).await?.is_some_and(|(bytes, _)| is_placeholder(&bytes)))
}

pub async fn publish(remote: &Remote, held: &Held, name: &str, bytes: Bytes) -> Result<()> {
    let (placeholder, version) = create_placeholder(remote, name).await?;
    held.verify(remote).await?;
    let mut attempts = remote.attempts();
    let mut version = version;
    loop {
        let error = match remote.put_once(name, &bytes, PutMode::Update(version.clone())).await {
            Ok(_) => return Ok(()),
            Err(StoreError::Precondition { .. } | StoreError::AlreadyExists { .. } | StoreError::NotFound { .. }) => {
                None
            }
            Err(e) if failure::is_transient(&e) => Some(e),
            Err(e) => return Err(remote.error("publish", name, &e)),
        };
        match remote.get(name).await? {
            // An attempt whose reply was lost.
            Some((found, _)) if found == bytes => return Ok(()),
            Some((found, unchanged)) if found == placeholder => version = unchanged,
            _ => return Err(lease::lost(remote, None)),
        }
        if !attempts.next().await {
            let error = error.unwrap_or(StoreError::Generic { store: "braiddb", source: "too many conflicts".into() });
            return Err(remote.error("publish", name, &error));
        }
    }
}

/// Each attempt has other contents: a late attempt must not create the placeholder of this one
/// again after it was closed.
async fn create_placeholder(remote: &Remote, name: &str) -> Result<(Bytes, UpdateVersion)> {
    let mut tried: Vec<Bytes> = Vec::new();
    let mut attempts = remote.attempts();
    loop {
        let bytes = random_placeholder(remote);
        tried.push(bytes.clone());
        let error = match remote.put_once(name, &bytes, PutMode::Create).await {
            Ok(put) if put.e_tag.is_some() => {
                return Ok((bytes, UpdateVersion { e_tag: put.e_tag, version: put.version }));
            }
            Ok(_) => None,
            Err(e) if failure::is_transient(&e) || matches!(e, StoreError::AlreadyExists { .. }) => Some(e),
            Err(e) => return Err(remote.error("create", name, &e)),
        };
        match remote.get(name).await? {
            Some((found, version)) if tried.contains(&found) => return Ok((found, version)),
            Some(_) => {
                return Err(Error::AlreadyExists(format!("there is another {}", remote.path_of(name).display())));
            }
            None => {}
        }
        if !attempts.next().await {
            let error = error.unwrap_or(StoreError::Generic { store: "braiddb", source: "it disappeared".into() });
            return Err(remote.error("create", name, &error));
        }
    }
}

/// Closes the placeholders of former holders. Afterwards none of them can publish.
pub async fn close_placeholders(remote: &Remote) -> Result<()> {
    for object in remote.list().await? {
        let Some(name) = object.location.filename().filter(|name| may_be_placeholder(name, object.size)) else {
            continue;
        };
        close(remote, name).await?;
    }
    Ok(())
}

async fn close(remote: &Remote, name: &str) -> Result<()> {
    let mut attempts = remote.attempts();
    let mut closed: Vec<Bytes> = Vec::new();
    loop {
        let (found, version) = match remote.get(name).await? {
            Some((found, version)) if is_placeholder(&found) => (found, version),
            // Published just now, or deleted.
            _ => return Ok(()),
        };
        if closed.contains(&found) {
            return remote.delete(name).await;
        }
        // A plain deletion could hit the description that its publisher puts meanwhile.
        let bytes = random_placeholder(remote);
        closed.push(bytes.clone());
        let error = match remote.put_once(name, &bytes, PutMode::Update(version)).await {
            Ok(_) => continue,
            Err(StoreError::Precondition { .. } | StoreError::AlreadyExists { .. } | StoreError::NotFound { .. }) => {
                continue;
            }
            Err(e) if failure::is_transient(&e) => e,
            Err(e) => return Err(remote.error("close", name, &e)),
        };
        if !attempts.next().await {
            return Err(remote.error("close", name, &error));
        }
    }
}
