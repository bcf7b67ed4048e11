//! The command line of `braid bench`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};

use super::{
    distribution::Distribution,
    ledger::ROWS_MAX,
    rows::{HEAD_BYTES, ValueSize},
    workload::Workload,
};
use crate::notation::parse_size;

/// What is run unless something is asked for.
const BENCHMARKS: &str = "fillseq,fillrandom,overwrite,readrandom,readmissing,multireadrandom,seekrandom,prefixscan,\
                          readseq,readreverse,updaterandom,readwhilewriting,compact,readrandom,verify";
/// The longest key that the engine takes, less the byte that a missing key has more.
const KEY_BYTES_MAX: usize = 65_536 - 1;
/// Longer values would make the pool that they are cut from too large.
const VALUE_BYTES_MAX: u64 = 1 << 30;

/// `braid bench`
#[derive(Clone, Debug, Args)]
pub struct BenchArguments {
    /// What to run, in this order
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', default_value = BENCHMARKS, hide_default_value = true)]
    pub benchmarks: Vec<Workload>,
    /// The database to work in, created if there is none, and kept [default: a temporary one, removed at the end]
    #[arg(long, value_name = "DIR")]
    pub db: Option<PathBuf>,
    /// Have fills write on top of what is there; without this, each begins with an empty database
    #[arg(long)]
    pub use_existing_db: bool,
    /// Rows that there may be, and operations of what writes
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=ROWS_MAX / 2))]
    pub num: u64,
    /// Operations of what writes to rows chosen at random [default: as --num, and a thousandth of it in fillsync and fill100K]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub writes: Option<u64>,
    /// Operations of what reads [default: as --num; passes read all rows, scans about as many rows as --num says]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub reads: Option<u64>,
    /// Bytes of a key
    #[arg(long, value_name = "BYTES", default_value = "16", value_parser = parse_key_size)]
    pub key_size: usize,
    /// Bytes of a value; as MIN-MAX, any number from the one to the other [default: 100; 1000 in YCSB]
    #[arg(long, value_name = "BYTES", value_parser = parse_value_size)]
    pub value_size: Option<ValueSize>,
    /// The share of a value that compresses to nothing, from 0 to 1; the rest is random
    #[arg(long, value_name = "SHARE", default_value = "0.5", value_parser = parse_share)]
    pub compressible: f64,
    /// Threads that share the operations
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256))]
    pub threads: u64,
    /// How rows are chosen where they are at random: uniform, zipfian[:0.99], latest[:0.99] or sequential [default: uniform; that of
    /// YCSB there]
    #[arg(long, value_name = "NAME")]
    pub distribution: Option<Distribution>,
    /// Run for so many seconds what chooses rows at random, not for a number of operations
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub duration: Option<Duration>,
    /// Write no more than so many rows a second: all threads together, or the writer of readwhilewriting
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u64).range(1..))]
    pub write_rate: Option<u64>,
    /// Rows in a commit, or in a call of multireadrandom [default: 1; 1000 in fillbatch, 16 in multireadrandom]
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub batch_size: Option<u64>,
    /// Rows that seekrandom reads after each one it seeks
    #[arg(long, value_name = "ROWS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1_000_000_000))]
    pub seek_nexts: u64,
    /// Bytes that the keys of a prefixscan have in common: each less makes it 256 times as many rows
    #[arg(long, value_name = "BYTES", default_value_t = 7, value_parser = clap::value_parser!(u8).range(1..=8))]
    pub prefix_size: u8,
    /// Commit durably: each commit returns when it is on the disk
    #[arg(long)]
    pub sync: bool,
    /// Memory for caches and for what is not yet in files
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "256M")]
    pub memory: u64,
    /// How blocks are compressed
    #[arg(long, value_name = "METHOD", default_value = "lz4")]
    pub compression: CompressionArgument,
    /// Read and write tables past the system's cache
    #[arg(long)]
    pub direct_io: bool,
    /// Let flushes and merges write no more than so many bytes a second
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub rate_limit: Option<u64>,
    /// Lower that limit, to a tenth at most, while more than a hundredth of the reads from the device and of the syncs takes longer
    #[arg(long, value_name = "MICROSECONDS", requires = "rate_limit", value_parser = clap::value_parser!(u64).range(1..))]
    pub rate_target: Option<u64>,
    /// Show latencies: mean, percentiles, maximum; and what the benchmark itself costs
    #[arg(long)]
    pub histogram: bool,
    /// What chance is drawn from
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Print a line of JSON for each benchmark, and nothing else
    #[arg(long)]
    pub json: bool,
    /// Tell progress every so many seconds, in lines on standard error [default: on a terminal, in one line that moves]
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub stats_interval: Option<Duration>,
}

/// How blocks are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompressionArgument {
    /// Not at all.
    None,
    /// LZ4.
    Lz4,
    /// Zstandard.
    Zstd,
}

impl From<CompressionArgument> for braiddb::Compression {
    fn from(argument: CompressionArgument) -> braiddb::Compression {
        match argument {
            CompressionArgument::None => braiddb::Compression::None,
            CompressionArgument::Lz4 => braiddb::Compression::Lz4,
            CompressionArgument::Zstd => braiddb::Compression::Zstd,
        }
    }
}

fn parse_key_size(text: &str) -> Result<usize, String> {
    let bytes = text.parse().ok().filter(|bytes| (HEAD_BYTES..=KEY_BYTES_MAX).contains(bytes));
    bytes.ok_or_else(|| format!("{text:?} is no size of a key: from {HEAD_BYTES} to {KEY_BYTES_MAX} bytes"))
}

/// `100`, `64K` or `50-200`.
pub fn parse_value_size(text: &str) -> Result<ValueSize, String> {
    let one = |text: &str| -> Result<usize, String> {
        let bytes = parse_size(text).ok().filter(|bytes| *bytes <= VALUE_BYTES_MAX);
        let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
        bytes.ok_or_else(|| format!("{text:?} is no size of a value: write 100, 64K or 50-200, up to 1G"))
    };
    let (min, max) = text.split_once('-').unwrap_or((text, text));
    let (min, max) = (one(min)?, one(max)?);
    if min > max {
        return Err(format!("{text:?} ends before it begins: write MIN-MAX"));
    }
    Ok(ValueSize { min, max })
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| format!("{text:?} is no share: a number from 0 to 1"))
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds: &f64| *seconds > 0.0);
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.ok_or_else(|| format!("{text:?} is no number of seconds above 0"))
}
