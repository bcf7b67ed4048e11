//! What the sorted view costs with 1, 4, 8 and 16 runs, beside a plain merging iterator over the same runs: time, key
//! comparisons, blocks and segments touched for each operation, and bytes of index for each key.
//!
//! ```text
//! cargo run --release -p braiddb --example runs -- [--rows N] [--operations N] [--rounds R] [--runs 1,4,8,16] [--json]
//! ```
//!
//! Everything is in memory, one thread asks, and every answer is checked. Times are the thread's processor time (elsewhere than
//! on Linux, the clock's). Compare figures of one run alone.

use braiddb::measure::{Layout, MeasureOptions, measure};

type Failure = Box<dyn std::error::Error>;

/// Nanoseconds that this thread has computed.
#[cfg(target_os = "linux")]
fn clock() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(not(target_os = "linux"))]
fn clock() -> u64 {
    use braiddb::platform::{Runtime, SystemRuntime};
    static RUNTIME: std::sync::LazyLock<SystemRuntime> = std::sync::LazyLock::new(SystemRuntime::new);
    RUNTIME.monotonic_ns()
}

fn main() -> Result<(), Failure> {
    let mut options = MeasureOptions { rows: 2_000_000, operations: 400_000, rounds: 5, layouts: Vec::new() };
    let (mut runs, mut json) = (vec![1, 4, 8, 16], false);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        if name == "--json" {
            json = true;
            continue;
        }
        let value = arguments.next().ok_or_else(|| format!("{name} wants a value"))?;
        match name.as_str() {
            "--rows" => options.rows = value.parse()?,
            "--operations" => options.operations = value.parse()?,
            "--rounds" => options.rounds = value.parse()?,
            "--runs" => runs = value.split(',').map(str::parse).collect::<Result<_, _>>()?,
            _ => return Err(format!("unknown option {name}").into()),
        }
    }
    if options.rows < 10_000 || options.operations == 0 || runs.iter().any(|runs| !(1..=31).contains(runs)) {
        return Err("10,000 rows or more, an operation or more, and 1 to 31 runs".into());
    }
    for layout in [Layout::Even, Layout::NineTenths] {
        // One run is one run, however its rows are spread.
        let of_layout = runs.iter().filter(|runs| **runs > 1 || layout == Layout::Even);
        options.layouts.extend(of_layout.map(|runs| (layout, *runs)));
    }
    let report = measure(&options, &clock, &mut |done| eprintln!("{done}"))?;
    print!("{}", if json { report.to_json() } else { report.to_markdown() });
    Ok(())
}
