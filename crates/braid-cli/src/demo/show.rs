//! Runs the demonstration: writes a dump, imports half of it in a child process, kills that
//! process, checks the acknowledged records, resumes the import, checks again, and looks up discs.

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
    thread,
    time::Instant,
};

use anyhow::{Context, Result};
use braiddb::Db;

use super::{
    importer::{ImportRun, Importer},
    lookups::run_lookups,
    screen::{Closing, write_screen},
    verification::{Verification, verify},
};
use crate::{
    arguments::DemoArguments,
    bar::Bar,
    exit::{NOT_FOUND, OK, SYSTEM, failure, usage},
    freedb::generator::{DumpOptions, DumpReport, write_dump},
    import::Acknowledgement,
    notation::{show_bytes, show_count},
    output::Stdout,
};

const LOOKUPS: u64 = 3000;

pub(super) const ALBUMS: &str = "albums";

#[derive(Clone, Copy, Debug)]
pub struct Dump {
    pub seed: u64,
    pub discs: u64,
}

pub fn run(arguments: &DemoArguments) -> Result<u8> {
    let began = Instant::now();
    // Patient: the directory must be removed even if writes fail.
    let mut out = Stdout::patient();
    if cfg!(debug_assertions) {
        writeln!(
            out,
            "This is a debug build: it is slow, and its numbers mean nothing. Use `cargo run --release -- demo`.\n"
        )?;
    }
    let place = Place::prepare(arguments)?;
    let dump = Dump { seed: arguments.seed, discs: arguments.discs };
    let threads = thread::available_parallelism().map_or(2, usize::from);
    writeln!(out, "Working in {}", place.folder.display())?;
    out.flush()?;

    let report = make_dump(dump, &place.dump, threads, &mut out)?;
    let importer =
        Importer { db: &place.db, dump: &place.dump, log: &place.log, memory: arguments.memory, discs: dump.discs };
    let first = importer.run(false, Some(dump.discs / 2))?;
    describe_kill(&first, &mut out)?;

    let db = open(&place, arguments)?;
    let survived = verify(&db, dump, first.acknowledged.next_number, threads)?;
    db.close()?;
    writeln!(
        out,
        "  {} lost of these {}; {:.1} s to check them",
        show_count(survived.lost.len() as u64),
        show_count(survived.acknowledged),
        survived.seconds
    )?;
    out.flush()?;

    let second = importer.run(true, None)?;
    writeln!(out, "Resumed: {}", stored_and_refused(&second))?;
    out.flush()?;
    let reopened = Instant::now();
    let db = open(&place, arguments)?;
    let open_seconds = reopened.elapsed().as_secs_f64();
    let verified = verify(&db, dump, second.acknowledged.next_number, threads)?;
    let lookups = run_lookups(&db, dump, LOOKUPS)?;
    db.flush()?;
    let stats = db.stats();
    db.close()?;

    let all = Verification::joined(&survived, &verified);
    let ok = all.lost.is_empty() && verified.extra == 0 && second.acknowledged.complete;
    let closing = Closing {
        dump: report,
        imports: [&first, &second],
        open_seconds,
        verified: &verified,
        lookups: &lookups,
        stats: &stats,
        seconds: began.elapsed().as_secs_f64(),
    };
    write_screen(&closing, &mut out)?;
    place.finish(ok, &mut out)?;
    for loss in all.lost.iter().take(10) {
        writeln!(out, "lost: {loss}")?;
    }
    if verified.extra > 0 {
        writeln!(out, "{} unexpected records", show_count(verified.extra))?;
    }
    writeln!(out, "{} lost of {} acknowledged", show_count(all.lost.len() as u64), show_count(all.acknowledged))?;
    out.finish()?;
    Ok(if ok { OK } else { NOT_FOUND })
}

fn open(place: &Place, arguments: &DemoArguments) -> Result<Db> {
    let memory = usize::try_from(arguments.memory).unwrap_or(usize::MAX);
    Ok(Db::builder().memory(memory).create(false).open(&place.db)?)
}

fn make_dump(dump: Dump, path: &Path, threads: usize, out: &mut dyn Write) -> Result<DumpReport> {
    let began = Instant::now();
    let bar = Bar::count(Some(dump.discs), "dump  ");
    let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
    let mut compressed = BufWriter::with_capacity(1 << 20, file);
    let options = DumpOptions { seed: dump.seed, discs: dump.discs, threads };
    let report = write_dump(&options, &mut compressed, &mut |discs| bar.set_count(discs))
        .with_context(|| format!("cannot write {}", path.display()))?;
    bar.finish();
    let seconds = began.elapsed().as_secs_f64();
    writeln!(
        out,
        "Made a dump of {} discs in {seconds:.1} s: {}, as .tar.bz2 {}",
        show_count(dump.discs),
        show_bytes(report.archive_bytes),
        show_bytes(report.compressed_bytes)
    )?;
    out.flush()?;
    Ok(report)
}

fn describe_kill(run: &ImportRun, out: &mut dyn Write) -> Result<()> {
    let acknowledged = stored_and_refused(run);
    if run.killed {
        writeln!(out, "Killed the importer (process {}) when it had acknowledged: {acknowledged}", run.process)?;
    } else {
        writeln!(out, "The importer (process {}) ended before it could be killed: {acknowledged}", run.process)?;
    }
    Ok(out.flush()?)
}

fn stored_and_refused(run: &ImportRun) -> String {
    let Acknowledgement { next_number, stored, .. } = run.acknowledged;
    let refused = next_number.saturating_sub(stored);
    format!("{} records stored, {} dirty ones refused", show_count(stored), show_count(refused))
}

struct Place {
    folder: PathBuf,
    dump: PathBuf,
    db: PathBuf,
    log: PathBuf,
    is_temporary: bool,
}

impl Place {
    fn prepare(arguments: &DemoArguments) -> Result<Place> {
        let (folder, is_temporary) = match &arguments.dir {
            Some(folder) => (folder.clone(), false),
            None => (std::env::temp_dir().join(format!("braid-demo-{}", std::process::id())), !arguments.keep),
        };
        let db = folder.join("music.braid");
        if db.exists() {
            return Err(usage(format!("{} exists already: remove it, or choose another --dir", db.display())));
        }
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let dump = folder.join("freedb.tar.bz2");
        let log = folder.join("importer.log");
        Ok(Place { folder, dump, db, log, is_temporary })
    }

    fn finish(&self, ok: bool, out: &mut dyn Write) -> Result<()> {
        if self.is_temporary && ok {
            return fs::remove_dir_all(&self.folder)
                .map_err(|error| failure(SYSTEM, format!("cannot remove {}: {error}", self.folder.display())));
        }
        writeln!(out, "The dump and the database are in {}", self.folder.display())?;
        Ok(())
    }
}
