//! The command line of `braid bench`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};

use super::{
    distribution::Distribution,
    ledger::ROWS_MAX,
    rows::{HEAD_BYTES, ValueSize},
    workload::Workload,
};
use crate::notation::{parse_seconds, parse_size};

/// Benchmarks to run by default.
const BENCHMARKS: &str = "fillseq,fillrandom,overwrite,readrandom,readmissing,multireadrandom,seekrandom,prefixscan,\
                          readseq,readreverse,updaterandom,readwhilewriting,compact,readrandom,verify";
/// Maximum key size: one byte below the engine's limit, since a missing key is one byte longer.
const KEY_BYTES_MAX: usize = 65_536 - 1;
/// Maximum value size; bounds the pool of random bytes.
const VALUE_BYTES_MAX: u64 = 1 << 30;

/// `braid bench`
#[derive(Clone, Debug, Args)]
pub struct BenchArguments {
    /// Benchmarks to run, in this order
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', default_value = BENCHMARKS, hide_default_value = true)]
    pub benchmarks: Vec<Workload>,
    /// The database to use; created if missing, and kept [default: a temporary one, removed at the
    /// end]
    #[arg(long, value_name = "DIR")]
    pub db: Option<PathBuf>,
    /// Fill on top of the existing rows; by default each fill starts with an empty database
    #[arg(long)]
    pub use_existing_db: bool,
    /// Number of possible rows, and of write operations
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..=ROWS_MAX / 2))]
    pub num: u64,
    /// Write operations on random rows [default: --num; a thousandth of it in fillsync and
    /// fill100K]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub writes: Option<u64>,
    /// Read operations [default: --num; full passes read all rows, scans about --num rows in total]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub reads: Option<u64>,
    /// Key size in bytes
    #[arg(long, value_name = "BYTES", default_value = "16", value_parser = parse_key_size)]
    pub key_size: usize,
    /// Value size in bytes; MIN-MAX: uniformly random [default: 100; 1000 in YCSB]
    #[arg(long, value_name = "BYTES", value_parser = parse_value_size)]
    pub value_size: Option<ValueSize>,
    /// Share of a value that compresses to nothing, from 0 to 1; the remainder is random
    #[arg(long, value_name = "SHARE", default_value = "0.5", value_parser = parse_share)]
    pub compressible: f64,
    /// Number of threads that share the operations
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256))]
    pub threads: u64,
    /// Distribution of random rows: uniform, zipfian[:0.99], latest[:0.99] or sequential [default:
    /// uniform; in YCSB, that of the workload]
    #[arg(long, value_name = "NAME")]
    pub distribution: Option<Distribution>,
    /// Run random workloads for this number of seconds instead of a number of operations
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub duration: Option<Duration>,
    /// Maximum rows written per second, by all threads or by the writer of readwhilewriting
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u64).range(1..))]
    pub write_rate: Option<u64>,
    /// Rows per commit, or per call of multireadrandom [default: 1; 1000 in fillbatch, 16 in
    /// multireadrandom]
    #[arg(long, value_name = "ROWS", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub batch_size: Option<u64>,
    /// Rows that seekrandom reads after each seek
    #[arg(long, value_name = "ROWS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1_000_000_000))]
    pub seek_nexts: u64,
    /// Length in bytes of a prefixscan's prefix; each byte less matches 256 times as many rows
    #[arg(long, value_name = "BYTES", default_value_t = 7, value_parser = clap::value_parser!(u8).range(1..=8))]
    pub prefix_size: u8,
    /// Sync each commit to disk before it returns
    #[arg(long)]
    pub sync: bool,
    /// Memory for caches and for data not yet in files
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "256M")]
    pub memory: u64,
    /// Compression of blocks
    #[arg(long, value_name = "METHOD", default_value = "lz4")]
    pub compression: CompressionArgument,
    /// Read and write tables with direct I/O, bypassing the page cache
    #[arg(long)]
    pub direct_io: bool,
    /// Maximum bytes per second that flushes and merges write
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub rate_limit: Option<u64>,
    /// Lower --rate-limit, down to a tenth, while more than 1% of device reads and syncs take
    /// longer than this
    #[arg(long, value_name = "MICROSECONDS", requires = "rate_limit", value_parser = clap::value_parser!(u64).range(1..))]
    pub rate_target: Option<u64>,
    /// Show latencies (mean, percentiles, maximum) and the overhead of the benchmark itself
    #[arg(long)]
    pub histogram: bool,
    /// Seed of the random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Print one line of JSON per benchmark, and nothing else
    #[arg(long)]
    pub json: bool,
    /// Print a progress line to standard error at this interval [default: on a terminal, one line
    /// updated in place]
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    pub stats_interval: Option<Duration>,
}

/// Compression of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompressionArgument {
    /// No compression.
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
    bytes.ok_or_else(|| format!("{text:?} is not a valid key size: give {HEAD_BYTES} to {KEY_BYTES_MAX} bytes"))
}

/// Parses `100`, `64K` or `50-200`.
pub fn parse_value_size(text: &str) -> Result<ValueSize, String> {
    let one = |text: &str| -> Result<usize, String> {
        let bytes = parse_size(text).ok().filter(|bytes| *bytes <= VALUE_BYTES_MAX);
        let bytes = bytes.and_then(|bytes| usize::try_from(bytes).ok());
        bytes.ok_or_else(|| format!("{text:?} is not a valid value size: give 100, 64K or 50-200, up to 1G"))
    };
    let (min, max) = text.split_once('-').unwrap_or((text, text));
    let (min, max) = (one(min)?, one(max)?);
    if min > max {
        return Err(format!("{text:?} has a minimum above its maximum: give MIN-MAX"));
    }
    Ok(ValueSize { min, max })
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| format!("{text:?} is not a share: give a number from 0 to 1"))
}
