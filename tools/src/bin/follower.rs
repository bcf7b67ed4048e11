//! One process writes, another reads beside it: the age of the shown state, and the cost of a
//! refresh.
//!
//! ```text
//! cargo run --release -p tools --bin follower             # ten seconds
//! cargo run --release -p tools --bin follower -- DIR 600  # this many, in this directory
//! ```

use braiddb::{
    Db, Durability, Follower, Result,
    platform::{SystemTime, UNIX_EPOCH},
};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

/// Number of accounts and the balance of each at first. Transfers keep the sum.
const ACCOUNTS: u64 = 100_000;
const EACH: u64 = 100;
/// Pause between refreshes.
const PAUSE: Duration = Duration::from_millis(20);

fn write(dir: &Path) -> Result<()> {
    let db = Db::builder().memory(32 << 20).durability(Durability::Buffered).open(dir)?;
    let (accounts, noted) = (db.tree("accounts")?, db.tree("noted")?);
    let mut number = 1_u64;
    loop {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (from, to) = (number >> 33 & 0x3fff_ffff, number >> 3 & 0x3fff_ffff);
        let (from, to) = (from % ACCOUNTS, to % ACCOUNTS);
        if from == to {
            continue;
        }
        db.update(|tx| {
            let balance = |key: u64| -> Result<u64> {
                let value = tx.get(&accounts, key.to_be_bytes())?;
                Ok(value.and_then(|v| Some(u64::from_le_bytes(*v.first_chunk()?))).unwrap_or(EACH))
            };
            let (a, b) = (balance(from)?, balance(to)?);
            if a > 0 {
                tx.put(&accounts, from.to_be_bytes(), (a - 1).to_le_bytes())?;
                tx.put(&accounts, to.to_be_bytes(), (b + 1).to_le_bytes())?;
            }
            tx.put(&noted, "now", now_us().to_le_bytes())
        })?;
    }
}

fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

fn fill(dir: &Path) -> Result<()> {
    let db = Db::open(dir)?;
    let accounts = db.tree("accounts")?;
    db.tree("noted")?;
    let mut batch = db.batch();
    for account in 0..ACCOUNTS {
        batch.put(&accounts, account.to_be_bytes(), EACH.to_le_bytes());
    }
    batch.commit_with(Durability::Sync)?;
    db.close()
}

#[derive(Default)]
struct Seen {
    took_us: Vec<u64>,
    stale_us: Vec<u64>,
    records: u64,
    manifests: u64,
    retries: u64,
    sums: u64,
}

fn percentile(values: &mut [u64], percent: usize) -> u64 {
    values.sort_unstable();
    values.get((values.len() * percent / 100).min(values.len().saturating_sub(1))).copied().unwrap_or(0)
}

fn read(follower: &Follower, duration: Duration) -> Result<Seen> {
    let (mut seen, start) = (Seen::default(), Instant::now());
    while start.elapsed() < duration {
        sleep(PAUSE);
        let refreshed = follower.refresh()?;
        let db = follower.db();
        if let Some(noted) = db.open_tree("noted")?.get("now")?
            && let Some(noted) = noted.first_chunk()
        {
            seen.stale_us.push(now_us().saturating_sub(u64::from_le_bytes(*noted)));
        }
        seen.took_us.push(refreshed.took.as_micros() as u64);
        seen.records += refreshed.records;
        seen.manifests += u64::from(refreshed.manifest_read);
        seen.retries += u64::from(refreshed.retries);
        if seen.took_us.len().is_multiple_of(50) {
            let accounts = db.open_tree("accounts")?;
            let mut sum = 0;
            for row in accounts.iter() {
                sum += row?.1.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            }
            assert_eq!(sum, ACCOUNTS * EACH, "a state between two commits");
            seen.sums += 1;
        }
    }
    Ok(seen)
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let [verb, dir] = arguments.as_slice()
        && verb == "write"
    {
        return Ok(write(Path::new(dir))?);
    }
    let temporary = env::temp_dir().join(format!("braiddb-example-follower-{}", std::process::id()));
    let dir = arguments.first().map_or(temporary, PathBuf::from).join("db");
    let seconds = arguments.get(1).map_or(Ok(10), |text| text.parse())?;
    fill(&dir)?;
    let mut writer = Command::new(env::current_exe()?).arg("write").arg(&dir).stdin(Stdio::null()).spawn()?;
    let follower = Db::builder().memory(64 << 20).refresh_every(None).open_follower(&dir)?;
    let before = follower.refresh()?.sequence;
    let done = read(&follower, Duration::from_secs(seconds));
    let commits = follower.refresh().map_or(0, |refreshed| refreshed.sequence - before);
    writer.kill()?;
    writer.wait()?;
    let mut seen = done?;
    let looks = seen.took_us.len();
    println!(
        "{commits} commits of another process were followed for {seconds} s in {looks} looks, {} ms apart",
        PAUSE.as_millis()
    );
    println!(
        "a look took {} us in the median, p99 {}, longest {}",
        percentile(&mut seen.took_us, 50),
        percentile(&mut seen.took_us, 99),
        percentile(&mut seen.took_us, 100)
    );
    println!(
        "right after it, the newest commit shown was {} us old in the median, p99 {}, oldest {}",
        percentile(&mut seen.stale_us, 50),
        percentile(&mut seen.stale_us, 99),
        percentile(&mut seen.stale_us, 100)
    );
    println!(
        "{} records of the log were read, the manifest {} times, {} times something had vanished meanwhile",
        seen.records, seen.manifests, seen.retries
    );
    println!("{} sums of all balances: always {}", seen.sums, ACCOUNTS * EACH);
    drop(follower);
    fs::remove_dir_all(dir)?;
    Ok(())
}
