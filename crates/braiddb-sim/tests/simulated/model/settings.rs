//! Options of a case.

use crate::common::{PATH, SmallOptions};
use braiddb::{Builder, platform::Vfs};
use braiddb_sim::{Random, SimDisk, SimRuntime};
use std::{path::Path, sync::Arc, time::Duration};

pub const ARCHIVE: &str = "/archive";
pub const BACKUPS: &str = "/backups";
pub const COPIES: &str = "/copies";
pub const TABLES: &str = "/tables";

#[derive(Clone, Debug)]
pub struct Settings {
    options: SmallOptions,
    /// Bytes of log retention.
    kept: u64,
    pub archives: bool,
    pub reader_hours_max: Option<u64>,
    crashes: bool,
}

impl Settings {
    pub fn random(random: &mut Random, crashes: bool) -> Settings {
        Settings {
            options: SmallOptions::random(random),
            kept: [0, 10_000, u64::MAX, u64::MAX][random.index(4)],
            archives: random.chance(1, 3),
            reader_hours_max: [None, None, Some(1), Some(4)][random.index(4)],
            crashes,
        }
    }

    pub fn keeps_all(&self) -> bool {
        self.kept == u64::MAX
    }

    /// Returns a disk, with a journal only if the case can crash.
    pub fn disk(&self) -> Arc<SimDisk> {
        let disk = if self.crashes { SimDisk::new(1) } else { SimDisk::without_journal(1) };
        for dir in [Path::new(PATH).parent().expect("a parent"), Path::new(COPIES), Path::new(TABLES)] {
            disk.create_dir_all(dir).expect("a directory");
        }
        if self.crashes { disk.fork() } else { disk }
    }

    pub fn builder(&self, disk: &Arc<SimDisk>, runtime: &Arc<SimRuntime>) -> Builder {
        let mut builder = self.plain_builder(disk, runtime);
        if self.kept > 0 {
            builder = builder.log_retention(self.kept);
        }
        if self.archives {
            builder = builder.log_archive(ARCHIVE);
        }
        match self.reader_hours_max {
            Some(hours) => builder.reader_age_max(Duration::from_secs(hours * 3600)),
            None => builder,
        }
    }

    /// Returns a builder for copies and read-only opens.
    pub fn plain_builder(&self, disk: &Arc<SimDisk>, runtime: &Arc<SimRuntime>) -> Builder {
        self.options.builder_by(disk, Arc::clone(runtime))
    }
}
