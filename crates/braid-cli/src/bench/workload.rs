//! The workloads, and what each of them does.

use clap::ValueEnum;

use super::{arguments::BenchArguments, rows::ValueSize, worker::Action, ycsb::Mix};

/// A workload, by the name that users of RocksDB's db_bench know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum Workload {
    /// Put all rows in the order of keys, into an empty database
    FillSeq,
    /// Put rows chosen at random, as many as there may be, into an empty database
    FillRandom,
    /// Put all rows in order, 1000 in a commit, into an empty database
    FillBatch,
    /// Put a thousandth as many at random, each commit durable, into an empty database
    FillSync,
    /// Put a thousandth as many at random, with values of 100,000 bytes, into an empty database
    #[value(name = "fill100K", alias = "fill100k")]
    FillLarge,
    /// Put rows chosen at random
    Overwrite,
    /// Get rows chosen at random, and put each
    UpdateRandom,
    /// Delete all rows in the order of keys
    DeleteSeq,
    /// Delete rows chosen at random
    DeleteRandom,
    /// Get rows chosen at random
    ReadRandom,
    /// Get keys that are not there
    ReadMissing,
    /// Get rows chosen at random, 16 with one call
    MultiReadRandom,
    /// Get rows chosen at random, while one more thread puts
    ReadWhileWriting,
    /// Read all rows in order
    ReadSeq,
    /// Read all rows in reverse order
    ReadReverse,
    /// Seek a row chosen at random, and read those after it (--seek-nexts)
    SeekRandom,
    /// Read all rows that begin as one chosen at random (--prefix-size)
    PrefixScan,
    /// Half reads, half updates; this and the next five are YCSB's, in a tree of their own, loaded when first needed
    #[value(name = "ycsb-a")]
    YcsbA,
    /// 95 % reads, 5 % updates
    #[value(name = "ycsb-b")]
    YcsbB,
    /// Reads
    #[value(name = "ycsb-c")]
    YcsbC,
    /// 95 % reads of the latest rows, 5 % inserts
    #[value(name = "ycsb-d")]
    YcsbD,
    /// 95 % scans of 1 to 100 rows, 5 % inserts
    #[value(name = "ycsb-e")]
    YcsbE,
    /// Half reads, half reads followed by an update
    #[value(name = "ycsb-f")]
    YcsbF,
    /// Merge everything into as few files as possible
    Compact,
    /// Show what the engine counts
    Stats,
    /// Check every byte of every file, and that exactly the right rows are there
    Verify,
}

/// What a workload acts with.
#[derive(Clone, Copy, Debug)]
pub enum Work {
    /// Operations on rows.
    Rows(Plan),
    /// One of those on the whole.
    Compact,
    /// Likewise.
    Stats,
    /// Likewise.
    Verify,
}

/// The tree that rows are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// That of most workloads, in which rows are in the order of their numbers.
    Plain,
    /// That of YCSB's, in which they are not.
    Ycsb,
}

/// Operations on rows.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// What is done.
    pub action: Action,
    /// Rows are chosen below this.
    pub rows: u64,
    /// Operations; `u64::MAX` for as many as there are rows.
    pub operations: u64,
    /// Each row once, in order; else at random.
    pub in_order: bool,
    /// Rows in a commit or a call.
    pub batch: u64,
    /// Each commit is durable.
    pub is_durable: bool,
    /// Sizes of values that are put.
    pub value_size: ValueSize,
    /// It begins with an empty database.
    pub begins_empty: bool,
    /// One more thread puts.
    pub has_writer: bool,
    /// Where the rows are.
    pub which: Which,
}

/// Values of most workloads.
const VALUE_BYTES: usize = 100;
/// Those of YCSB: ten fields of a hundred bytes.
const YCSB_VALUE_BYTES: usize = 1000;
/// Those of fill100K.
const LARGE_VALUE_BYTES: usize = 100_000;
/// Slow workloads do this fraction of what others do.
const SLOW_FRACTION: u64 = 1000;
/// Rows in a commit of fillbatch.
const BATCH_ROWS: u64 = 1000;
/// Rows in a call of multireadrandom.
const MULTI_ROWS: u64 = 16;

impl Workload {
    /// The name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// What it does.
    pub fn work(self, arguments: &BenchArguments) -> Work {
        let num = arguments.num;
        let put = Plan {
            action: Action::Put,
            rows: num,
            operations: arguments.writes.unwrap_or(num),
            in_order: false,
            batch: arguments.batch_size.unwrap_or(1),
            is_durable: arguments.sync,
            value_size: arguments.value_size.unwrap_or(ValueSize::fixed(VALUE_BYTES)),
            begins_empty: false,
            has_writer: false,
            which: Which::Plain,
        };
        let fill = Plan { begins_empty: !arguments.use_existing_db, ..put };
        let few = (num / SLOW_FRACTION).max(1);
        let slow_fill = Plan { rows: few, operations: arguments.writes.unwrap_or(few), ..fill };
        let all = Plan { in_order: true, operations: num, ..fill };
        let reads = arguments.reads.unwrap_or(num);
        let read = |action| Plan { action, operations: reads, batch: 1, ..put };
        let pass = |reverse| {
            let operations = arguments.reads.unwrap_or(u64::MAX);
            Plan { action: Action::Pass { reverse }, operations, in_order: true, batch: 1, ..put }
        };
        let ycsb = |mix: Mix| Plan {
            action: Action::Mixed(mix),
            operations: arguments.reads.unwrap_or((num / mix.rows_per_operation()).max(1)),
            value_size: arguments.value_size.unwrap_or(ValueSize::fixed(YCSB_VALUE_BYTES)),
            which: Which::Ycsb,
            ..put
        };
        let bytes = usize::from(arguments.prefix_size);
        let rows_of_prefix = 1_u64 << (8 * (8 - bytes as u32)).min(63);
        Work::Rows(match self {
            Workload::FillSeq => all,
            Workload::FillRandom => fill,
            Workload::FillBatch => Plan { batch: arguments.batch_size.unwrap_or(BATCH_ROWS), ..all },
            Workload::FillSync => Plan { is_durable: true, ..slow_fill },
            Workload::FillLarge => Plan { value_size: ValueSize::fixed(LARGE_VALUE_BYTES), ..slow_fill },
            Workload::Overwrite => put,
            Workload::UpdateRandom => Plan { action: Action::Update, batch: 1, ..put },
            Workload::DeleteSeq => Plan { action: Action::Delete, begins_empty: false, ..all },
            Workload::DeleteRandom => Plan { action: Action::Delete, ..put },
            Workload::ReadRandom => read(Action::Get),
            Workload::ReadMissing => read(Action::GetMissing),
            Workload::MultiReadRandom => {
                Plan { batch: arguments.batch_size.unwrap_or(MULTI_ROWS), ..read(Action::MultiGet) }
            }
            Workload::ReadWhileWriting => Plan { has_writer: true, batch: put.batch, ..read(Action::Get) },
            Workload::ReadSeq => pass(false),
            Workload::ReadReverse => pass(true),
            Workload::SeekRandom => read(Action::Seek { nexts: arguments.seek_nexts }),
            Workload::PrefixScan => {
                let operations = arguments.reads.unwrap_or((num / rows_of_prefix).max(1));
                Plan { operations, ..read(Action::Prefix { bytes }) }
            }
            Workload::YcsbA => ycsb(Mix::A),
            Workload::YcsbB => ycsb(Mix::B),
            Workload::YcsbC => ycsb(Mix::C),
            Workload::YcsbD => ycsb(Mix::D),
            Workload::YcsbE => ycsb(Mix::E),
            Workload::YcsbF => ycsb(Mix::F),
            Workload::Compact => return Work::Compact,
            Workload::Stats => return Work::Stats,
            Workload::Verify => return Work::Verify,
        })
    }
}
