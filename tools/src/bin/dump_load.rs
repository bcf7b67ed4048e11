//! Moves a database by a dump and reports the speed.
//!
//! ```text
//! cargo run --release -p tools --bin dump_load -- [RECORDS] [DIRECTORY]
//! ```
//!
//! Dumps 16-byte keys with half compressible 100-byte values, and a film of 64 MiB, into a file;
//! checks and loads it. Then one thread dumps into a pipe while another loads from it. Speeds are
//! in MB (a million bytes) of keys and values a second.

use braiddb::{
    Builder, Db, Result,
    dump::{DumpOptions, LoadOptions, check_dump},
};
use std::{
    fs::File,
    io::{BufReader, BufWriter, Read},
    path::Path,
    time::Instant,
};

const VALUE_LEN: usize = 100;

const FILM_LEN: u64 = 64 << 20;

fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

fn fill(db: &Db, records: u64) -> Result<()> {
    let mut state = 7;
    let albums = db.tree("albums")?;
    albums.bulk_load((0..records).map(|number| {
        let mut value = [b'x'; VALUE_LEN];
        value[..VALUE_LEN / 2].fill_with(|| next(&mut state) as u8);
        (format!("{number:016}"), value)
    }))?;
    for number in (0..records).step_by(100) {
        albums.put(format!("{number:016}"), b"changed since")?;
    }
    let films = db.tree("films")?;
    films.put_stream(b"The Void", std::io::repeat(b'v').take(FILM_LEN))?;
    let by_year = db.multi_tree("by_year")?;
    (1960..2020_u32).try_for_each(|year| by_year.add(year.to_be_bytes(), b"The Void").map(|_| ()))
}

fn rate(bytes: u64, start: Instant) -> f64 {
    bytes as f64 / 1e6 / start.elapsed().as_secs_f64()
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let records: u64 = arguments.next().map_or(Ok(20_000), |text| text.parse())?;
    let temporary = tempfile::tempdir()?;
    let dir = arguments.next().map_or_else(|| temporary.path().to_owned(), |dir| Path::new(&dir).to_owned());

    let db = Builder::new().durability(braiddb::Durability::Buffered).open(dir.join("from"))?;
    fill(&db, records)?;
    let snapshot = db.snapshot();

    let path = dir.join("moved.dump");
    for threads in [1, 2] {
        let start = Instant::now();
        let file = File::create(&path)?;
        let options = DumpOptions::new().threads(threads);
        let report = snapshot.dump(BufWriter::with_capacity(1 << 20, &file), options)?;
        file.sync_all()?;
        let speed = rate(report.bytes, start);
        println!("dump, {threads} threads: {} records, {} bytes, {speed:.0} MB/s", report.records, report.dump_bytes);
    }
    let start = Instant::now();
    let info = check_dump(&mut BufReader::with_capacity(1 << 20, File::open(&path)?))?;
    let bytes = info.trees.iter().map(|tree| tree.bytes).sum();
    println!("check: {:.0} MB/s", rate(bytes, start));
    for threads in [1, 2] {
        let to = dir.join(format!("to {threads}"));
        let start = Instant::now();
        let options = LoadOptions::new().threads(threads);
        let mut input = BufReader::with_capacity(1 << 20, File::open(&path)?);
        let report = Builder::new().load(&to, &mut input, options)?;
        println!("load, {threads} threads: {:.0} MB/s", rate(report.bytes, start));
    }

    let (mut from, to) = std::io::pipe()?;
    let start = Instant::now();
    let report = std::thread::scope(|scope| {
        let dumping = scope.spawn(move || snapshot.dump(to, DumpOptions::default()));
        let loaded = Builder::new().load(dir.join("through a pipe"), &mut from, LoadOptions::default());
        drop(from);
        dumping.join().expect("the dump thread does not panic").and(loaded)
    })?;
    println!("through a pipe: {:.0} MB/s", rate(report.bytes, start));

    let moved = Db::open(dir.join("through a pipe"))?;
    assert_eq!(moved.open_tree("albums")?.get(format!("{:016}", 100))?.as_deref(), Some(&b"changed since"[..]));
    let film = moved.open_tree("films")?.stream(b"The Void")?.expect("it was put");
    assert_eq!(film.len(), FILM_LEN);
    Ok(())
}
