//! The workloads and their plans.

use clap::ValueEnum;

use super::{arguments::BenchArguments, rows::ValueSize, worker::Action, ycsb::Mix};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "lower")]
pub enum Workload {
    /// Put all rows in key order into an empty database
    FillSeq,
    /// Put random rows, --num times, into an empty database
    FillRandom,
    /// Put all rows in order into an empty database, 1000 per commit
    FillBatch,
    /// Put a thousandth as many random rows into an empty database, with synced commits
    FillSync,
    /// Put a thousandth as many random rows into an empty database, with values of 100,000 bytes
    #[value(name = "fill100K", alias = "fill100k")]
    FillLarge,
    /// Put random rows
    Overwrite,
    /// Get random rows and put each
    UpdateRandom,
    /// Delete all rows in key order
    DeleteSeq,
    /// Delete random rows
    DeleteRandom,
    /// Get random rows
    ReadRandom,
    /// Get missing keys
    ReadMissing,
    /// Get random rows, 16 per call
    MultiReadRandom,
    /// Get random rows while another thread puts rows
    ReadWhileWriting,
    /// Read all rows in order
    ReadSeq,
    /// Read all rows in reverse order
    ReadReverse,
    /// Seek a random row and read the rows after it (--seek-nexts)
    SeekRandom,
    /// Read all rows that share a prefix with a random row (--prefix-size)
    PrefixScan,
    /// Half reads, half updates; YCSB's workloads use their own tree, loaded when first needed
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
    /// Merge all data into as few files as possible
    Compact,
    /// Show the engine's statistics
    Stats,
    /// Check every byte of every file, and that exactly the right rows exist
    Verify,
}

#[derive(Clone, Copy, Debug)]
pub enum Work {
    Rows(Plan),
    Compact,
    Stats,
    Verify,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The tree of most workloads, with keys in row order.
    Plain,
    /// The YCSB tree, with keys in random order.
    Ycsb,
}

#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub action: Action,
    pub rows: u64,
    /// Number of operations; `u64::MAX`: one per row.
    pub operations: u64,
    /// Each row once, in order, instead of random rows.
    pub in_order: bool,
    pub batch: u64,
    pub is_durable: bool,
    pub value_size: ValueSize,
    pub begins_empty: bool,
    pub has_writer: bool,
    pub which: Which,
}

const VALUE_BYTES: usize = 100;
const YCSB_VALUE_BYTES: usize = 1000;
const LARGE_VALUE_BYTES: usize = 100_000;
const SLOW_FRACTION: u64 = 1000;
const BATCH_ROWS: u64 = 1000;
const MULTI_ROWS: u64 = 16;

impl Workload {
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

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
