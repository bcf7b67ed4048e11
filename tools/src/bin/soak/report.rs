//! Verdicts, and the output files.

use super::{options::Options, sample::Sample, worker::Tally};
use std::fmt::Write as _;

/// Maximum milliseconds of the 99.9th percentile of writes.
const WRITE_P999_MS_MAX: f64 = 5.0;
/// Maximum milliseconds of any write.
const STALL_MS_MAX: f64 = 100.0;
/// Maximum space amplification.
pub const SPACE_AMPLIFICATION_MAX: f64 = 1.35;
/// Maximum growth of memory from the first third of the time to the last.
const MEMORY_GROWTH_MAX: f64 = 1.05;
/// Minimum share of due operations that were done.
const DONE_SHARE_MIN: f64 = 0.99;

pub struct Verdict {
    pub what: &'static str,
    pub figure: f64,
    pub bar: f64,
    pub is_met: bool,
}

pub struct Outcome<'a> {
    pub options: &'a Options,
    pub highest_rate: f64,
    pub target_rate: f64,
    pub samples: &'a [Sample],
    pub totals: &'a Tally,
}

impl Outcome<'_> {
    fn most(&self, pick: impl Fn(&Sample) -> f64) -> f64 {
        self.samples.iter().map(pick).fold(0.0, f64::max)
    }

    fn memory_growth(&self) -> f64 {
        let mean = |samples: &[Sample]| {
            samples.iter().map(|sample| sample.memory_bytes as f64).sum::<f64>() / samples.len().max(1) as f64
        };
        let third = self.samples.len() / 3;
        mean(&self.samples[self.samples.len() - third..]) / mean(&self.samples[..third]).max(1.0)
    }

    fn rate(&self) -> f64 {
        let operations: u64 = self.samples.iter().map(|sample| sample.operations).sum();
        operations as f64 / self.samples.iter().map(|sample| sample.seconds).sum::<f64>()
    }

    pub fn budget_bytes(&self) -> f64 {
        (self.options.memory_mib << 20) as f64
    }

    pub fn write_amplification(&self) -> f64 {
        let sum = |pick: fn(&Sample) -> u64| self.samples.iter().map(pick).sum::<u64>() as f64;
        sum(|sample| sample.written_bytes) / sum(|sample| sample.user_bytes).max(1.0)
    }

    fn held_up(&self) -> (u64, f64) {
        match self.samples {
            [first, .., last] => (last.stalls - first.stalls, (last.slowed_us - first.slowed_us) as f64 / 1e3),
            _ => (0, 0.0),
        }
    }

    pub fn verdicts(&self) -> Vec<Verdict> {
        let at_most = |what, figure: f64, bar: f64| Verdict { what, figure, bar, is_met: figure <= bar };
        let writes = &self.totals.writes;
        let done = self.rate() / self.target_rate;
        vec![
            at_most(
                "p99.9 latency of writes from the due time, ms",
                writes.quantile_us(0.999) / 1e3,
                WRITE_P999_MS_MAX,
            ),
            at_most("slowest write from the due time, ms", writes.max_us() / 1e3, STALL_MS_MAX),
            at_most("slowest write from the call, ms", self.totals.writes_called.max_us() / 1e3, STALL_MS_MAX),
            at_most("maximum memory / budget", self.most(|s| s.memory_bytes as f64) / self.budget_bytes(), 1.0),
            at_most("memory in the last third / first third", self.memory_growth(), MEMORY_GROWTH_MAX),
            at_most("maximum space amplification", self.most(Sample::space_amplification), SPACE_AMPLIFICATION_MAX),
            Verdict {
                what: "operations done / due",
                figure: done,
                bar: DONE_SHARE_MIN,
                is_met: done >= DONE_SHARE_MIN,
            },
        ]
    }

    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let Options { records, memory_mib, threads, durable, .. } = self.options;
        let kind = if *durable { "durable" } else { "buffered" };
        let _ = writeln!(
            text,
            "{records} records, {memory_mib} MiB, {threads} threads, {kind} commits; highest sustained rate {:.0}/s, \
             then {:.0}/s for {} s",
            self.highest_rate,
            self.target_rate,
            self.samples.len()
        );
        let kinds = [
            ("writes, from the due time", &self.totals.writes),
            ("writes, from the call", &self.totals.writes_called),
            ("reads, from the due time", &self.totals.reads),
        ];
        for (name, all) in kinds {
            let at = |share| all.quantile_us(share);
            let _ = writeln!(
                text,
                "{name}: p50 {:.1} us, p99 {:.1} us, p99.9 {:.1} us, p99.99 {:.1} us, max {:.1} ms",
                at(0.5),
                at(0.99),
                at(0.999),
                at(0.9999),
                all.max_us() / 1e3
            );
        }
        let (stalls, slowed_ms) = self.held_up();
        let _ = writeln!(
            text,
            "write amplification {:.2}; by the engine's counters, writers stalled {stalls} times and were throttled \
             for {slowed_ms:.0} ms",
            self.write_amplification()
        );
        let late = self.samples.iter().filter(|s| s.writes.p999_us > 1e3 * WRITE_P999_MS_MAX).count();
        let _ = writeln!(text, "seconds with p99.9 of writes above {WRITE_P999_MS_MAX} ms: {late}");
        for Verdict { what, figure, bar, is_met } in self.verdicts() {
            let _ = writeln!(text, "{} {what}: {figure:.3} (bar {bar})", if is_met { "met   " } else { "MISSED" });
        }
        text
    }

    pub fn to_csv(&self) -> String {
        let mut text = String::from(
            "second,operations_per_s,write_p50_us,write_p99_us,write_p999_us,write_max_us,write_called_max_us,read_p50_us,\
             read_p99_us,read_p999_us,read_max_us,memory_bytes,memory_counted_bytes,space_bytes,log_bytes,live_bytes,\
             space_amplification,user_bytes,written_bytes,pressure_per_mille,stalls,slowed_us\n",
        );
        for sample in self.samples {
            let (writes, reads) = (&sample.writes, &sample.reads);
            let figures = [
                sample.operations as f64 / sample.seconds,
                writes.p50_us,
                writes.p99_us,
                writes.p999_us,
                writes.max_us,
                sample.writes_called.max_us,
                reads.p50_us,
                reads.p99_us,
                reads.p999_us,
                reads.max_us,
            ];
            let _ = write!(text, "{}", sample.second);
            for figure in figures {
                let _ = write!(text, ",{figure:.1}");
            }
            let _ = writeln!(
                text,
                ",{},{},{},{},{},{:.4},{},{},{},{},{}",
                sample.memory_bytes,
                sample.memory_counted_bytes,
                sample.space_bytes,
                sample.log_bytes,
                sample.live_bytes,
                sample.space_amplification(),
                sample.user_bytes,
                sample.written_bytes,
                sample.pressure_per_mille,
                sample.stalls,
                sample.slowed_us,
            );
        }
        text
    }

    pub fn to_json(&self) -> String {
        let verdicts: Vec<String> = self
            .verdicts()
            .iter()
            .map(|Verdict { what, figure, bar, is_met }| {
                format!("    {{\"what\": \"{what}\", \"figure\": {figure:.4}, \"bar\": {bar}, \"met\": {is_met}}}")
            })
            .collect();
        format!(
            "{{\n  \"records\": {},\n  \"memory_mib\": {},\n  \"threads\": {},\n  \"durable\": {},\n  \"dead_percent\": {},\n  \
             \"highest_rate\": {:.1},\n  \"target_rate\": {:.1},\n  \"seconds\": {},\n  \"write_amplification\": {:.4},\n  \
             \"stalls\": {},\n  \"slowed_ms\": {:.1},\n  \"verdicts\": [\n{}\n  ]\n}}\n",
            self.options.records,
            self.options.memory_mib,
            self.options.threads,
            self.options.durable,
            self.options.dead_percent.map_or("null".to_owned(), |percent| percent.to_string()),
            self.highest_rate,
            self.target_rate,
            self.samples.len(),
            self.write_amplification(),
            self.held_up().0,
            self.held_up().1,
            verdicts.join(",\n")
        )
    }
}
