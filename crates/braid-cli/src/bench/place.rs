//! The directory of the benchmark database.

use std::{
    fs::{self, File, TryLockError},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use braiddb::{Db, platform::RateLimiter};

use super::arguments::BenchArguments;
use crate::exit::{SYSTEM, failure, usage};

pub const PLAIN_TREE: &str = "bench";
pub const YCSB_TREE: &str = "bench-ycsb";

#[derive(Debug)]
pub struct Place {
    dir: PathBuf,
    is_temporary: bool,
    builder: braiddb::Builder,
    /// Excludes other benchmarks, not other commands, while the database is closed and removed.
    _lock: File,
}

impl Place {
    /// Refuses a database that was not made by benchmarks.
    pub fn prepare(arguments: &BenchArguments) -> Result<Place> {
        let builder = Db::builder()
            .memory(usize::try_from(arguments.memory).unwrap_or(usize::MAX))
            .compression(arguments.compression.into())
            .direct_io(arguments.direct_io);
        let builder = match arguments.rate_limit {
            Some(rate) => builder.rate_limiter(Arc::new(match arguments.rate_target {
                Some(target) => RateLimiter::by_latency(rate / 10, rate, Duration::from_micros(target)),
                None => RateLimiter::new(rate),
            })),
            None => builder,
        };
        let (dir, is_temporary) = match &arguments.db {
            Some(dir) => (dir.clone(), false),
            None => (std::env::temp_dir().join(format!("braid-bench-{}", std::process::id())), true),
        };
        let lock = take_lock(&dir)?;
        let place = Place { dir, is_temporary, builder, _lock: lock };
        place.check()?;
        Ok(place)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn is_temporary(&self) -> bool {
        self.is_temporary
    }

    pub fn open(&self) -> Result<Db> {
        Ok(self.builder.clone().open(&self.dir)?)
    }

    pub fn clear(&self) -> Result<()> {
        for entry in fs::read_dir(&self.dir).with_context(|| format!("cannot read {}", self.dir.display()))? {
            let path = entry?.path();
            if is_of_database(&path) {
                fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            }
        }
        Ok(())
    }

    pub fn finish(&self) -> Result<()> {
        if !self.is_temporary {
            return Ok(());
        }
        fs::remove_dir_all(&self.dir)
            .map_err(|error| failure(SYSTEM, format!("cannot remove {}: {error}", self.dir.display())))
    }

    fn check(&self) -> Result<()> {
        let shown = self.dir.display();
        let mut entries = fs::read_dir(&self.dir).with_context(|| format!("cannot read {shown}"))?;
        if entries.next().is_none() {
            return Ok(());
        }
        if self.is_temporary {
            return Err(failure(SYSTEM, format!("{shown} is left over from another process: remove it")));
        }
        if !self.dir.join("CURRENT").exists() {
            return Err(usage(format!("{shown} is neither empty nor a database: name another directory")));
        }
        let db = self.builder.clone().create(false).open(&self.dir)?;
        let trees = db.trees()?;
        let foreign = trees.iter().find(|tree| ![PLAIN_TREE, YCSB_TREE].contains(&tree.name.as_str()));
        db.close()?;
        match foreign {
            Some(tree) => Err(usage(format!(
                "{shown} has a tree that no benchmark made ({}), and fills would remove it: name another directory",
                tree.name
            ))),
            None => Ok(()),
        }
    }
}

fn take_lock(dir: &Path) -> Result<File> {
    let shown = dir.display();
    if dir.is_file() {
        return Err(usage(format!("{shown} is a file, not a database: a database is a directory")));
    }
    fs::create_dir_all(dir).with_context(|| format!("cannot create {shown}"))?;
    let file = open_lock(dir).with_context(|| format!("cannot open {shown}, or the lock file beside it"))?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(failure(
            SYSTEM,
            format!("another benchmark is running in {shown}: wait for it, or name another directory"),
        )),
        // Some file systems cannot lock directories; the database has its own lock.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(file),
    }
}

#[cfg(unix)]
fn open_lock(dir: &Path) -> std::io::Result<File> {
    File::open(dir)
}

/// Opens a lock file beside the directory, which Windows cannot lock.
#[cfg(not(unix))]
fn open_lock(dir: &Path) -> std::io::Result<File> {
    let mut name = std::path::absolute(dir)?.into_os_string();
    name.push(".bench-lock");
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(windows)]
    {
        const FILE_FLAG_DELETE_ON_CLOSE: u32 = 0x0400_0000;
        std::os::windows::fs::OpenOptionsExt::custom_flags(&mut options, FILE_FLAG_DELETE_ON_CLOSE);
    }
    options.open(name)
}

fn is_of_database(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let is_numbered = |number: &str| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let by_kind = name
        .rsplit_once('.')
        .is_some_and(|(number, kind)| is_numbered(number) && ["wal", "run", "view", "blob"].contains(&kind));
    let is_manifest = name.strip_prefix("MANIFEST-").is_some_and(is_numbered);
    by_kind || is_manifest || ["CURRENT", "LOCK", "SYNC-FAILED"].contains(&name)
}
