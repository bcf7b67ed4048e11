//! Makes a database with every kind of file and entry, for `scripts/check_format.sh`.
//!
//! ```text
//! cargo run --release -p tools --bin every_kind -- [--without-zstd] DIR BATCHES...
//! ```
//!
//! Each number is a life of the database in its own process: it writes this many batches, syncs the
//! log, and aborts. So the log has an epoch (one per open) for each of the last lives, with commits
//! that are in no run. Contents are reproducible.

use braiddb::{
    Batch, Compression, Db, Durability, Result, Tree, TreeCodec, TreeOptions, bulk::TableBuilder, merge::encode_set,
    options::Tuning,
};
use std::{
    env,
    process::{self, Command, ExitStatus},
    time::{Duration, UNIX_EPOCH},
};

const KEYS: u64 = 900;
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    /// Half compressible bytes.
    fn bytes(&mut self, length: u64) -> Vec<u8> {
        (0..length).map(|i| if i / 16 % 2 == 0 { self.below(256) as u8 } else { b'a' }).collect()
    }

    fn key(&mut self) -> Vec<u8> {
        let number = self.below(KEYS);
        let mut key = format!("{:02x}", number / 30).into_bytes();
        key.extend(
            [[0, 0, 0], [0, 0xff, b'x'], [b'y'; 3]][(number % 3) as usize].iter().take((number / 3 % 4) as usize),
        );
        if number.is_multiple_of(7) {
            key.extend(vec![b'-'; 300]);
        }
        key.extend(number.to_string().bytes());
        key.truncate(if number.is_multiple_of(11) { 2 } else { key.len() });
        key
    }
}

fn open(directory: &str) -> Result<Db> {
    let tuning = Tuning::new()
        .memtable_bytes(96 << 10)
        .partition_bytes(256 << 10)
        .unindexed_runs(3)
        .log_segment_bytes(16 << 10)
        .blob_file_bytes(512 << 10)
        .key_blocks(true);
    Db::builder().background_threads(0).tuning(tuning).durability(Durability::Buffered).open(directory)
}

fn compressed(db: &Db, name: &str, compression: Compression) -> Result<Tree> {
    db.tree_with(name, TreeOptions::new().compression(compression))
}

fn large_values(db: &Db) -> Result<Tree> {
    db.tree_with("large", TreeOptions::new().blob_threshold(200).codec(TreeCodec::new("raw", "json")?))
}

fn write(db: &Db, seed: u64, batches: u64, with_zstd: bool) -> Result<()> {
    let mut trees =
        vec![compressed(db, "plain", Compression::None)?, compressed(db, "lz4", Compression::Lz4)?, large_values(db)?];
    if with_zstd {
        trees.push(compressed(db, "zstd", Compression::Zstd)?);
    }
    let multi = db.multi_tree("pairs")?;
    let merged = db.tree("merged")?;
    let lasting = db.tree_with("lasting", TreeOptions::new().ttl(100 * YEAR))?;
    let streams = db.tree("streams")?;
    let append = db.merge_function("append")?;
    let functions = ["add", "max", "union"].map(|name| db.merge_function(name));
    let functions = functions.into_iter().collect::<Result<Vec<_>>>()?;
    let mut random = Random(seed);
    for round in 0..batches {
        let mut batch = db.batch();
        for _ in 0..=random.below(12) {
            let tree = &trees[random.below(trees.len() as u64) as usize];
            let (key, choice) = (random.key(), random.below(100));
            match choice {
                0..15 => batch.delete(tree, key),
                15..16 => batch.put(tree, key, random.bytes(150_000)),
                16..40 => batch.add(&multi, key, random.bytes(6)),
                40..45 => batch.delete_pair(&multi, key, b"none"),
                45..50 => {
                    let more = random.bytes(20);
                    batch.merge(tree, key, &append, more)
                }
                50..58 => {
                    let (number, one) = (random.below(20), random.below(1000));
                    let operand = match number % 3 {
                        0 => (one as i64 - 400).to_le_bytes().to_vec(),
                        1 => one.to_be_bytes().to_vec(),
                        _ => encode_set([random.bytes(5), one.to_be_bytes().to_vec()]),
                    };
                    batch.merge(&merged, number.to_be_bytes(), &functions[number as usize % 3], operand)
                }
                58..64 => {
                    // Expires long before or after this run. Not in the batch, because operands may
                    // follow there.
                    let (length, years) = (random.below(300), [20, 200][random.below(2) as usize]);
                    tree.put_until(key, random.bytes(length), UNIX_EPOCH + years * YEAR)?;
                    &mut batch
                }
                64..66 => batch.put(&lasting, key, "for a century"),
                _ => {
                    let length = random.below(500);
                    batch.put(tree, key, random.bytes(length))
                }
            };
        }
        if round % 40 == 39 {
            let tree = &trees[random.below(trees.len() as u64) as usize];
            let (start, end) = (random.key(), random.key());
            batch.delete_range(tree, start.clone().min(end.clone())..start.max(end));
        }
        if round % 29 == 28 {
            write_stream(&streams, &mut batch, &mut random)?;
        }
        if round % 97 == 96 {
            multi.delete(random.key())?;
        }
        batch.set_application_cursor(round.to_string());
        batch.commit_with(if round % 10 == 0 { Durability::Sync } else { Durability::Buffered })?;
    }
    Ok(())
}

/// Puts a stream in the batch, or appends to one directly.
fn write_stream(streams: &Tree, batch: &mut Batch, random: &mut Random) -> Result<()> {
    let (number, length) = (random.below(4), 10_000 + random.below(30_000));
    let bytes = random.bytes(length);
    if number % 2 == 0 {
        batch.put_stream(streams.write_stream(number.to_be_bytes(), bytes.as_slice())?);
    } else {
        streams.append_stream(number.to_be_bytes(), bytes.as_slice())?;
    }
    Ok(())
}

fn load(db: &Db, directory: &str, number: u64) -> Result<()> {
    let (loaded, mut random) = (compressed(db, "lz4", Compression::Lz4)?, Random(number));
    let records = |first: u64| (0..300u64).map(move |i| format!("{:02x}{i:03}", first + i / 30));
    loaded.bulk_load(records(number).map(|key| (key, random.bytes(60))))?;
    let large = large_values(db)?;
    large.bulk_load((0..40u64).map(|i| (i.to_be_bytes(), vec![i as u8; 20 * i as usize])))?;
    let path = format!("{directory}/{number}.table");
    let mut table = TableBuilder::create(&path, &loaded.table_spec()?)?;
    for key in records(number + 5) {
        table.add(key, "of a table")?;
    }
    table.finish()?;
    loaded.ingest([&path])?;
    std::fs::remove_file(&path).map_err(|e| braiddb::Error::io("remove", path, e))?;
    loaded.put(format!("{:02x}007", number), "newer than the load")?;
    Ok(())
}

fn live(directory: &str, number: u64, batches: u64, with_zstd: bool) -> Result<()> {
    let db = open(directory)?;
    if number == 1 {
        db.tree("dropped")?.put("gone", "with its tree")?;
        db.tree("renamed")?;
        db.tree("empty")?;
    }
    // Snapshots pin all versions of a key: more than fit into one segment of a view.
    let mut snapshots = Vec::new();
    for version in 0..if number == 1 { 100 } else { 0 } {
        db.tree("versions")?.put("hot", version.to_string())?;
        snapshots.push(db.snapshot());
    }
    // Only in long lives: the load flushes and merges, which removes versions that only snapshots
    // pinned.
    if batches > 100 {
        load(&db, directory, number)?;
    }
    write(&db, number, batches, with_zstd)?;
    if number == 1 {
        db.drop_tree("dropped")?;
        db.rename_tree("renamed", "renämed")?;
    }
    db.sync()?;
    process::abort() // Not closed: what the memtable has is in the log alone.
}

/// Writes as a second process that shares the database. Aborts, so that the record of its session
/// stays.
fn share(directory: &str) -> Result<()> {
    let open = || Db::builder().open_shared(directory);
    let (_owner, member) = (open()?, open()?);
    member.tree("shared")?.put("a", "from a member")?;
    process::abort()
}

/// Returns true if `abort` ended the process: no exit code, or a special one on Windows.
fn is_killed(status: ExitStatus) -> bool {
    const STATUS_STACK_BUFFER_OVERRUN: i32 = 0xC000_0409_u32 as i32;
    if cfg!(windows) { status.code() == Some(STATUS_STACK_BUFFER_OVERRUN) } else { status.code().is_none() }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut arguments: Vec<String> = env::args().skip(1).collect();
    let with_zstd = arguments.first().is_none_or(|first| first != "--without-zstd");
    arguments.drain(..usize::from(!with_zstd));
    let (directory, lives) = arguments.split_first().ok_or("which directory?")?;
    if let Ok(number) = env::var("EVERY_KIND_LIFE") {
        let number: usize = number.parse()?;
        if number == 0 {
            return Ok(share(directory)?);
        }
        return Ok(live(directory, number as u64, lives[number - 1].parse()?, with_zstd)?);
    }
    for number in 0..=lives.len() {
        let mut command = Command::new(env::current_exe()?);
        let status = command.args(env::args().skip(1)).env("EVERY_KIND_LIFE", number.to_string()).status()?;
        if !is_killed(status) {
            return Err(format!("life {number} ended with {status}").into());
        }
    }
    Ok(())
}
