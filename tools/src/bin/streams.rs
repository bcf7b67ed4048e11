//! Large values as streams: written, read, appended to, and measured.
//!
//! ```text
//! cargo run --release -p tools --bin streams                  # shows the calls
//! cargo run --release -p tools --bin streams -- DIR 2048      # measures a stream of this many MiB
//! cargo run --release -p tools --bin streams -- DIR 1024 beside # and small durable commits beside it
//! ```
//!
//! Reports bytes written by the engine's count and by the system's (`/proc/self/io`), the growth of
//! peak memory, and the speed. The data is incompressible noise.

use braiddb::{Compression, Db, Durability};
use std::{
    env,
    error::Error,
    fs,
    hash::{DefaultHasher, Hasher},
    io::{self, Read, Seek, SeekFrom, Write},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

type Done<T = ()> = Result<T, Box<dyn Error>>;

const MIB: u64 = 1 << 20;

/// Seeded noise that hashes the bytes read.
struct Noise {
    state: u64,
    left: u64,
    sum: DefaultHasher,
}

impl Noise {
    fn new(seed: u64, len: u64) -> Noise {
        Noise { state: seed | 1, left: len, sum: DefaultHasher::new() }
    }
}

impl Read for Noise {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = (buf.len() as u64).min(self.left) as usize;
        for part in buf[..len].chunks_mut(8) {
            self.state ^= self.state << 13;
            self.state ^= self.state >> 7;
            self.state ^= self.state << 17;
            let bytes = self.state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes();
            part.copy_from_slice(&bytes[..part.len()]);
        }
        self.sum.write(&buf[..len]);
        self.left -= len as u64;
        Ok(len)
    }
}

fn main() -> Done {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => show(),
        [dir, mib] => measure(Path::new(dir), mib.parse::<u64>()? * MIB),
        [dir, mib, "beside"] => measure_beside(Path::new(dir), mib.parse::<u64>()? * MIB),
        _ => Err("which directory, and how many MiB?".into()),
    }
}

fn show() -> Done {
    let db = Db::in_memory()?;
    let (files, names) = (db.tree("files")?, db.tree("names")?);

    files.put_stream(b"1", Noise::new(1, 5 * MIB))?;

    let mut writer = files.stream_writer(b"2")?;
    for line in 0..100_000 {
        writeln!(writer, "line {line}")?;
    }
    writer.commit()?;

    // Reads from any position; the reader sees the value as of its open.
    let mut reader = files.stream(b"2")?.ok_or("it was written")?;
    reader.seek(SeekFrom::End(-11))?;
    let mut end = String::new();
    reader.read_to_string(&mut end)?;
    println!("of {} bytes, the last are {end:?}", reader.len());
    println!("bytes 5 to 10: {:?}", files.read_range(b"2", 5..10)?.map(String::from_utf8).transpose()?);

    // Writes only the new bytes.
    files.append_stream(b"2", &b"and one more\n"[..])?;

    // Atomically with other writes.
    let tx = db.begin()?;
    tx.put_stream(&files, b"3", Noise::new(3, 3 * MIB))?;
    tx.put(&names, b"3", b"noise")?;
    tx.commit()?;
    println!("the third has {} bytes", files.stream(b"3")?.map_or(0, |stream| stream.len()));
    Ok(())
}

fn status(name: &str) -> Done<u64> {
    let text = fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)).ok_or("not in /proc/self/status")?;
    Ok(line.trim_matches(|c: char| !c.is_ascii_digit()).parse::<u64>()? * 1024)
}

fn written() -> Done<u64> {
    let text = fs::read_to_string("/proc/self/io")?;
    let line = text.lines().find_map(|line| line.strip_prefix("write_bytes: ")).ok_or("not in /proc/self/io")?;
    Ok(line.parse()?)
}

fn open(dir: &Path) -> Done<Db> {
    Ok(Db::builder().memory(64 << 20).compression(Compression::None).open(dir)?)
}

fn megabytes_per_s(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / 1e6 / time.as_secs_f64()
}

fn measure(dir: &Path, len: u64) -> Done {
    let db = open(dir)?;
    let tree = db.tree("large")?;
    tree.put(b"before", b"so that the database has its files and its memory")?;
    fs::write("/proc/self/clear_refs", "5")?;
    let (memory, system) = (status("VmRSS:")?, written()?);
    let stats = db.stats();
    let start = Instant::now();
    let mut noise = Noise::new(9, len);
    tree.put_stream(b"large", &mut noise)?;
    let took = start.elapsed();
    println!("in: {len} bytes in {took:.1?}, {:.0} MB/s, durable", megabytes_per_s(len, took));
    println!("    peak memory {:.1} MiB higher than before", (status("VmHWM:")? - memory) as f64 / MIB as f64);

    fs::write("/proc/self/clear_refs", "5")?;
    let (memory, start) = (status("VmRSS:")?, Instant::now());
    let mut reader = tree.stream(b"large")?.ok_or("it was written")?;
    let (mut sum, mut buffer, mut count) = (DefaultHasher::new(), vec![0; 64 << 10], 0);
    loop {
        let read = reader.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        sum.write(&buffer[..read]);
        count += read as u64;
    }
    let took = start.elapsed();
    println!("out: {count} bytes in {took:.1?}, {:.0} MB/s, checksummed", megabytes_per_s(len, took));
    println!("    peak memory {:.1} MiB higher than before", (status("VmHWM:")? - memory) as f64 / MIB as f64);
    let is_same = count == len && sum.finish() == noise.sum.finish();
    println!("    {}", if is_same { "the same bytes" } else { "OTHER BYTES" });

    drop(reader);
    db.flush()?;
    let after = db.stats();
    let own = (after.blob_bytes_written - stats.blob_bytes_written)
        + (after.log_bytes_written - stats.log_bytes_written)
        + (after.run_bytes_written - stats.run_bytes_written);
    println!("write amplification: {:.4} by the engine's counters (blobs, log and runs)", own as f64 / len as f64);
    drop((tree, db));
    println!(
        "                     {:.4} by the system's counters (all files)",
        (written()? - system) as f64 / len as f64
    );
    if is_same { Ok(()) } else { Err("the bytes read differ from those written".into()) }
}

fn commits(db: &Db, stop: &AtomicBool) -> Done<Vec<Duration>> {
    let tree = db.tree("small")?;
    let mut times = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let mut batch = db.batch();
        batch.put(&tree, (times.len() as u64).to_be_bytes(), [7; 100]);
        let start = Instant::now();
        batch.commit_with(Durability::Sync)?;
        times.push(start.elapsed());
    }
    Ok(times)
}

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |per_mille: usize| times.get(times.len() * per_mille / 1000).or(times.last()).copied().unwrap_or_default();
    println!(
        "{what}: {} commits, median {:.2?}, p99 {:.2?}, p99.9 {:.2?}, longest {:.2?}",
        times.len(),
        at(500),
        at(990),
        at(999),
        at(1000)
    );
}

fn measure_beside(dir: &Path, len: u64) -> Done {
    let db = open(dir)?;
    let (tree, stop) = (db.tree("large")?, AtomicBool::new(false));
    let alone = thread::scope(|scope| {
        let commits = scope.spawn(|| commits(&db, &stop).map_err(|e| e.to_string()));
        thread::sleep(Duration::from_secs(5));
        stop.store(true, Ordering::Relaxed);
        commits.join()
    });
    report("alone", alone.map_err(|_| "a thread panicked")??);
    stop.store(false, Ordering::Relaxed);
    let start = Instant::now();
    let beside = thread::scope(|scope| {
        let commits = scope.spawn(|| commits(&db, &stop).map_err(|e| e.to_string()));
        let put = tree.put_stream(b"large", Noise::new(5, len)).map_err(|e| e.to_string());
        stop.store(true, Ordering::Relaxed);
        put.map(|_| commits.join())
    });
    let took = start.elapsed();
    report("beside the stream", beside?.map_err(|_| "a thread panicked")??);
    println!("the stream: {:.0} MB/s", megabytes_per_s(len, took));
    Ok(())
}
