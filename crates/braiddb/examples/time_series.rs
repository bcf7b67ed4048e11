//! A store of time series: two indexes, reports of one moment, deletion of old data, backup, restore.
//!
//! `readings` is ordered by sensor and time, `by_time` by time and sensor. One batch changes both.

#![allow(clippy::disallowed_methods)] // the engine's own code takes the time from its runtime

use braiddb::{
    Db, Durability, Read, Result, Snapshot, Tree,
    backup::{Backups, DirectoryTarget, Retention},
};
use std::ops::Range;
use std::path::Path;
use std::thread;
use std::time::SystemTime;

const SENSORS: u32 = 20;
const HOUR: u64 = 3_600;

struct Series {
    db: Db,
    readings: Tree, // sensor, second -> f64
    by_time: Tree,  // second, sensor -> nothing
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Reading {
    sensor: u32,
    second: u64,
    value: f64,
}

#[derive(Debug, PartialEq)]
struct Report {
    sensor: u32,
    count: usize,
    least: f64,
    mean: f64,
    greatest: f64,
    newest: Reading,
}

impl Series {
    fn open(path: &Path) -> Result<Self> {
        let db = Db::open(path)?;
        Ok(Self { readings: db.tree("readings")?, by_time: db.tree("by_time")?, db })
    }

    fn record(&self, readings: &[Reading]) -> Result<()> {
        let mut batch = self.db.batch();
        for reading in readings {
            let (sensor, second) = (reading.sensor.to_be_bytes(), reading.second.to_be_bytes());
            batch.put(&self.readings, [&sensor[..], &second].concat(), reading.value.to_le_bytes());
            batch.put(&self.by_time, [&second[..], &sensor].concat(), "");
        }
        batch.commit_with(Durability::Sync)?;
        Ok(())
    }

    /// Deletes readings before `second`: one range delete per sensor.
    fn expire(&self, second: u64) -> Result<()> {
        self.db.update(|tx| {
            for sensor in sensors(&tx.tree(&self.readings))? {
                tx.delete_range(&self.readings, key(sensor, 0)..key(sensor, second))?;
            }
            tx.delete_range(&self.by_time, ..second.to_be_bytes())
        })
    }

    /// All readings of some time, in order of time, as the snapshot has them.
    fn at(&self, snapshot: &Snapshot, seconds: Range<u64>) -> Result<Vec<Reading>> {
        let (by_time, readings) = (snapshot.tree(&self.by_time), snapshot.tree(&self.readings));
        let mut found = Vec::new();
        for row in by_time.range(seconds.start.to_be_bytes()..seconds.end.to_be_bytes()) {
            let (index_key, _) = row?;
            let (second, sensor) = index_key.split_at(8);
            let key = [sensor, second].concat();
            if let Some(value) = readings.get(&key)? {
                found.push(reading(&key, &value));
            }
        }
        Ok(found)
    }
}

fn key(sensor: u32, second: u64) -> Vec<u8> {
    [&sensor.to_be_bytes()[..], &second.to_be_bytes()].concat()
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

fn reading(key: &[u8], value: &[u8]) -> Reading {
    let value = f64::from_le_bytes(value.try_into().expect("values have eight bytes"));
    Reading { sensor: number(&key[..4]) as u32, second: number(&key[4..]), value }
}

/// Finds the sensors by one seek for each.
fn sensors(readings: &impl Read) -> Result<Vec<u32>> {
    let (mut found, mut next) = (Vec::new(), 0);
    while let Some(row) = readings.range(key(next, 0)..).next() {
        let sensor = number(&row?.0[..4]) as u32;
        found.push(sensor);
        next = sensor + 1;
    }
    Ok(found)
}

/// Summarizes some time of a sensor; `None` if it has no reading then.
fn report(readings: &impl Read, sensor: u32, seconds: Range<u64>) -> Result<Option<Report>> {
    let rows = readings.range(key(sensor, seconds.start)..key(sensor, seconds.end));
    let rows = rows.map(|row| row.map(|(key, value)| reading(&key, &value))).collect::<Result<Vec<_>>>()?;
    let Some(&newest) = rows.last() else { return Ok(None) };
    let values = || rows.iter().map(|reading| reading.value);
    Ok(Some(Report {
        sensor,
        count: rows.len(),
        least: values().fold(f64::INFINITY, f64::min),
        mean: values().sum::<f64>() / rows.len() as f64,
        greatest: values().fold(f64::NEG_INFINITY, f64::max),
        newest,
    }))
}

fn reports(readings: &impl Read, seconds: Range<u64>) -> Result<Vec<Report>> {
    let sensors = sensors(readings)?.into_iter();
    sensors.filter_map(|sensor| report(readings, sensor, seconds.clone()).transpose()).collect()
}

/// Records one reading of each sensor every ten seconds.
fn measure(series: &Series, seconds: Range<u64>) -> Result<()> {
    for second in seconds.step_by(10) {
        let value = |sensor| 20.0 + f64::from(sensor) + (second % 600) as f64 / 100.0;
        let readings = (0..SENSORS).map(|sensor| Reading { sensor, second, value: value(sensor) });
        series.record(&readings.collect::<Vec<_>>())?;
    }
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::temp_dir().join(format!("braiddb-time-series-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let series = Series::open(&dir.join("series.db"))?;
    measure(&series, 0..HOUR)?;

    // A report of one moment, beside a writer.
    let snapshot = series.db.snapshot();
    let first_hour = thread::scope(|scope| {
        let writer = scope.spawn(|| measure(&series, HOUR..2 * HOUR));
        let before = reports(&snapshot.tree(&series.readings), 0..u64::MAX)?;
        writer.join().expect("the writer does not panic")?;
        assert_eq!(reports(&snapshot.tree(&series.readings), 0..u64::MAX)?, before);
        Result::Ok(before)
    })?;
    assert_eq!(first_hour.len(), SENSORS as usize);
    assert_eq!(series.at(&snapshot, HOUR - 20..HOUR + 20)?.len(), 2 * SENSORS as usize);
    drop(snapshot);
    println!("{:?}", first_hour[0]);
    let two_hours = reports(&series.readings, 0..u64::MAX)?;
    assert!(two_hours.iter().all(|report| report.count == 720));
    println!("{:?}", two_hours[0]);

    // All sensors by time, and the newest reading of one.
    let some = series.at(&series.db.snapshot(), 5_000..5_030)?;
    assert_eq!(some.len(), 3 * SENSORS as usize);
    assert!(some.is_sorted_by_key(|reading| (reading.second, reading.sensor)));
    let (newest, _) = series.readings.prefix(7_u32.to_be_bytes()).next_back().expect("there are readings")?;
    assert_eq!(number(&newest[4..]), 2 * HOUR - 10);

    // The second backup copies only new files.
    let target = DirectoryTarget::open(dir.join("backups"))?;
    let full = series.db.backup(&target)?;
    series.expire(HOUR)?;
    let later = series.db.backup(&target)?;
    println!("backups of {} and {} bytes", full.bytes_copied, later.bytes_copied);
    Backups::new(&target).retain(Retention::new().keep(1), SystemTime::now())?;
    let kept = reports(&series.readings, 0..u64::MAX)?;
    assert!(kept.iter().all(|report| report.count == 360));
    assert_eq!(series.by_time.len()?, u64::from(SENSORS) * 360);

    // The database is lost, and restored.
    series.db.close()?;
    std::fs::remove_dir_all(dir.join("series.db"))?;
    Db::builder().restore(&target, None, dir.join("series.db"))?;
    let series = Series::open(&dir.join("series.db"))?;
    assert_eq!(reports(&series.readings, 0..u64::MAX)?, kept);
    assert!(series.db.verify()?.is_sound());
    println!("restored {} readings", series.readings.len()?);
    series.db.close()?;
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}
