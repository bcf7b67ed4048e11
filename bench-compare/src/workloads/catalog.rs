//! The list of workloads.

use super::{Context, Measure, kill, large, load, memory, mixed, queue, read, scale, sync, warm_open, write, ycsb};
use anyhow::{Context as _, Result};

pub struct Workload {
    pub name: &'static str,
    pub what: &'static str,
    pub run: fn(&Context<'_>) -> Result<Vec<Measure>>,
    pub in_memory: bool,
    /// Approximate bytes of data for each of N rows.
    pub row_bytes: u64,
    /// The only engines to run.
    pub only: Option<&'static [&'static str]>,
}

impl Workload {
    pub fn includes(&self, engine: &str) -> bool {
        self.only.is_none_or(|engines| engines.contains(&engine))
    }

    const fn in_memory(mut self) -> Workload {
        self.in_memory = true;
        self
    }

    const fn row_bytes(mut self, bytes: u64) -> Workload {
        self.row_bytes = bytes;
        self
    }

    const fn only(mut self, engines: &'static [&'static str]) -> Workload {
        self.only = Some(engines);
        self
    }
}

const fn workload(name: &'static str, what: &'static str, run: fn(&Context<'_>) -> Result<Vec<Measure>>) -> Workload {
    Workload { name, what, run, in_memory: false, row_bytes: 144, only: None }
}

pub fn all() -> Vec<Workload> {
    vec![
        workload("fillseq_b100", "N puts in key order, 100 a commit, buffered", write::fillseq_b100),
        workload("fillrandom_b100", "N puts in random order, 100 a commit, buffered", write::fillrandom_b100),
        workload("fillrandom_b1", "N puts in random order, one a commit, buffered", write::fillrandom_b1),
        workload("overwrite", "N/2 random overwrites, 100 a commit, of N rows", write::overwrite),
        workload("overwrite_16n", "8 N random overwrites, 100 a commit, of 16 N rows", write::overwrite_sixteen)
            .row_bytes(16 * 144)
            .only(&["braiddb", "rocksdb"]),
        workload("deleterandom", "N/2 deletes, 100 a commit, of N rows; then a scan", write::deleterandom),
        workload("readrandom", "gets of random rows, one thread", read::readrandom),
        workload("readrandom_t2", "gets of random rows, two threads", read::readrandom_two_threads),
        workload("multi_get16", "gets of 16 random rows at a time", read::multi_get),
        workload("readmissing", "gets of missing keys", read::readmissing),
        workload("seek_next1", "seeks to random places, one row each", read::seek_one),
        workload("seek_next50", "seeks to random places, 50 rows each", read::seek_fifty),
        workload("prefix_scan", "scans of the 16 rows of a random prefix", read::prefix_scan),
        workload("scan_all", "scans of all rows, forward, loaded in random order", read::scan_all),
        workload("scan_reverse", "scans of all rows, backward", read::scan_reverse),
        workload("readwhilewriting_10k", "random gets beside 10,000 puts a second", mixed::at_rate),
        workload("readwhilewriting_free", "random gets beside puts as fast as they go", mixed::unbounded),
        workload("latency_load", "half gets, half puts, at 20 to 95 % of the highest rate", load::latency_load),
        workload("memory_small", "in memory: gets and prefixes beside 10,000 and 80,000 puts a second", memory::small)
            .in_memory(),
        workload("memory_large", "the same with keys of 10 and values of 800 bytes, N/4 rows", memory::large)
            .in_memory(),
        workload("commit_sync_1", "durable commits of one put, one thread", sync::commit_sync_one),
        workload("commit_sync_4", "durable commits of one put, 4 threads", sync::commit_sync_four),
        workload("commit_sync_16", "durable commits of one put, 16 threads", sync::commit_sync_sixteen),
        workload("sync_cpu", "processor time of durable commits of 1 and 100 puts on N rows of 1 KiB", sync::sync_cpu)
            .row_bytes(1040),
        workload("bulk_sorted", "a load of N sorted rows by the call made for it, until durable", write::bulk_sorted),
        workload("queue", "pops of N/8 rows by one thread, and by four beside 50,000 pushes a second", queue::queue)
            .only(&["braiddb", "lmdb", "redb"]),
        workload("cold_read", "random gets, page cache dropped, cache an eighth of the data", read::cold_read),
        workload("open_after_kill", "N/4 buffered commits, kill -9, open, look for each", kill::open_after_kill),
        workload("open_warm", "gets, then seeks, in the first two seconds after an open", warm_open::open_warm),
        workload(
            "at_scale",
            "0.78 N puts of N random keys, 10 a commit; after a rest, gets and seeks",
            scale::at_scale,
        )
        .only(&["braiddb", "rocksdb", "lmdb"]),
        workload(
            "at_scale_sorted",
            "the same rows loaded in key order; gets and seeks, before and after a scan",
            scale::at_scale_sorted,
        )
        .only(&["braiddb", "rocksdb", "lmdb"]),
        workload("large_values", "puts and gets of 1 MiB", large::large_values),
        workload("db1k", "space of N/2 documents of 1.1 KB once idle", write::kilobyte_documents).row_bytes(550),
        workload("ycsb_a", "zipf: half reads, half updates of 1 KiB rows", ycsb::a).row_bytes(260),
        workload("ycsb_b", "zipf: 95 % reads, 5 % updates", ycsb::b).row_bytes(260),
        workload("ycsb_c", "zipf: reads", ycsb::c).row_bytes(260),
        workload("ycsb_d", "latest: 95 % reads, 5 % inserts", ycsb::d).row_bytes(260),
        workload("ycsb_e", "zipf: 95 % scans of up to 100 rows, 5 % inserts", ycsb::e).row_bytes(260),
        workload("ycsb_e_half", "as ycsb_e, with a cache of half the data", ycsb::e_half).row_bytes(260),
        workload("ycsb_f", "zipf: half reads, half read-modify-writes", ycsb::f).row_bytes(260),
    ]
}

pub fn by_name(name: &str) -> Result<Workload> {
    all().into_iter().find(|workload| workload.name == name).with_context(|| format!("no workload {name:?}"))
}
