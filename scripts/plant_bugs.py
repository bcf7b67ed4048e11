#!/usr/bin/env python3
"""Removes one safeguard at a time from a copy of the engine and reports which tests notice.

usage: plant_bugs.py [NAME-PART...]
       plant_bugs.py --check     checks that each plant's text occurs in the sources, in a second

Each plant removes one sync, checksum or ordering. Its tests run in the given order until one fails. A
plant that no test notices is reported as missed, and the exit status is 1. Tracked files are copied to
target/planted; the working tree is not changed. The first plant builds everything; later ones take
half a minute, or some minutes if no engine test notices.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
COPY = ROOT / "target" / "planted" / "tree"
BUILD = ROOT / "target" / "planted" / "build"
SRC = "crates/braiddb/src/"

# Tests for a plant: engine tests by name, and batteries on the simulated disk.
WAL = ["wal::"]
TABLES = ["table::", "view::"]
MANIFEST = ["version::"]
CRASHES = ["crash_exhaustive", "crash_random"]
OK = "Ok::<(), std::io::Error>(())"

# (name, file, original text, replacement, filters of the engine's tests, filters of `simulated`)
PLANTS = [
    ("log: the sync of a new segment's space", "wal/segment.rs",
     "spare.file.sync_data().map_err(|e| sync_failed(&spare.path, e))", f"{OK}.map_err(|e| sync_failed(&spare.path, e))", WAL, CRASHES),
    ("log: the sync of a new segment's name", "wal/segment.rs",
     "context.vfs.sync_dir(&context.dir).map_err(|e| sync_failed(&context.dir, e))",
     f"{OK}.map_err(|e| sync_failed(&context.dir, e))", WAL, CRASHES),
    ("log: the sync of a segment's header", "wal/segment.rs",
     "self.file.sync_bytes(&bytes, 0).map_err", f"{OK}.map_err", WAL, CRASHES),
    ("log: the sync of a durable commit", "wal/log.rs",
     'file.sync_data().map_err(|e| Error::io("sync", &path, e))?;', "let _ = (file, path);", WAL, CRASHES),
    ("log: the sync of values before the log", "wal/log.rs",
     "            pre_sync()?;\n", "            let _ = pre_sync;\n", WAL, CRASHES),
    ("log: the sync of what was replayed", "wal/recovery/outcome.rs",
     'segment.file().sync_data().map_err(|e| Error::io("sync", &segment.path, e))?;', "let _ = segment;", WAL, CRASHES),
    ("log: a payload's checksum", "wal/scan.rs",
     "payload_checksum(segment, offset, stored) == record.header.payload_checksum", "{ let _ = stored; true }", WAL, []),
    ("log: a segment header's checksum", "wal/format.rs",
     "if checksum(header.file_id, FILE_HEADER_LEN as u64, &rest[..CHECKSUM_AT - FILE_HEADER_LEN]) != sum {", "if sum == 1 {", WAL, []),
    ("log: the link to the record before", "wal/recovery.rs",
     "Found::Record(record) if record.header.previous_link == position.link => record,", "Found::Record(record) => record,", WAL, []),
    ("log: segments made ahead tell how far the log is synced now", "wal/log/ahead.rs",
     "let is_current = next.header.durable_lsn == self.durable_lsn();", "let is_current = true;", WAL, []),
    ("log: a segment made ahead follows the last one", "wal/log/ahead.rs",
     "let fits = last.start_lsn == follows && last.limit_lsn() == next.header.start_lsn;", "let fits = { let _ = (last, follows); true };", WAL, []),
    ("log: what stands past the end is looked for in later segments", "wal/recovery.rs",
     "if header.epoch == position.epoch && header.start_lsn >= position.lsn {", "if header.epoch == position.epoch && header.start_lsn == u64::MAX {", WAL, []),
    ("log: what the second thread has found", "wal/recovery_prefetch.rs",
     "self.found.lock().insert(probe.header.number, beyond);",
     "let _ = beyond; self.found.lock().insert(probe.header.number, Beyond::default());", WAL, []),
    ("log: only what was never written is passed over", "wal/scan.rs",
     "self.file.next_written(offset).map_err(io_error)?.unwrap_or(last)", "self.file.next_written(offset).map_err(io_error)?.map_or(last, |_| last)", WAL, []),
    ("system: what was never written is told rightly", "platform/os/posix/mapping.rs",
     "Ok(at) => Ok(Some(at)),", "Ok(at) => Ok(Some(at + 4096)),", ["platform::os::tests"], []),
    ("runs: the sync of a run", "table/writer.rs",
     'file.sync_data().map_err(|e| Error::io("sync", &path, e))?;', "let _ = (&file, &path);", TABLES, CRASHES),
    ("runs: the sync of a view", "view/writer.rs",
     'file.sync_data().map_err(|e| Error::io("sync", path, e))?;', "", ["db::maintenance::tests::unindexed_runs"], CRASHES),
    ("runs: the sync of names before a change of files is noted", "db/maintenance/install.rs",
     'engine.storage.table.vfs.sync_dir(&engine.dir).map_err(|e| Error::io("sync", &engine.dir, e))?;', "", ["db::maintenance::tests::flush", "db::maintenance::tests::unindexed_runs"], CRASHES),
    ("runs: a unit's checksum", "table/format.rs",
     "if checksum(file_id, offset, &unit[8..]) != sum {", "if sum == 1 {", TABLES, []),
    ("runs: a footer's checksum", "table/tail.rs",
     "if checksum(file_id, offset, fields).to_le_bytes() != sum {", "if sum == [1; 8] {", TABLES, []),
    ("views: a page's checksum", "view/format.rs",
     "page.len() == PAGE_BYTES && page[PAGE_PAYLOAD..] == checksum(file_id, offset, &page[..PAGE_PAYLOAD]).to_le_bytes()",
     "{ let _ = (file_id, offset); page.len() == PAGE_BYTES }", TABLES, []),
    ("views: a directory's checksum", "view/reader/open.rs",
     "if checksum(file_id, directory_at, &directory) != footer.directory_checksum {", "if footer.directory_checksum == 1 {", TABLES, []),
    ("views: a footer's checksum", "view/format.rs",
     "|| sum != checksum(file_id, offset, body).to_le_bytes() {", "|| (sum == [1; 8] && file_id == offset) {", TABLES, []),
    ("values: the sync of a blob file", "table/blob/writer.rs",
     "file.file.sync_data().map_err(|e| self.failed(Error::io(\"sync\", &file.path, e)))?;", "", ["blob"], CRASHES),
    ("values: the sync of a blob file's name", "table/blob/writer.rs",
     'self.context.vfs.sync_dir(dir).map_err(|e| self.failed(Error::io("sync", dir, e)))?;', "let _ = dir;", ["blob"], CRASHES),
    ("values: the checksum of a chunk", "table/blob/reader.rs",
     "if checksum(self.file_id, at, stored) != entry.checksum {", "if entry.checksum == 1 {", ["blob"], []),
    ("values: that the blob is the one referred to", "table/blob/reader.rs",
     "let same = sum == reference.checksum\n", "let same = (sum == reference.checksum || true)\n", ["blob"], []),
    ("manifest: the sync of a change", "version/manifest.rs",
     'self.file.sync_data().map_err(|e| in_doubt("sync", &self.path, e.to_string()))?;', "", MANIFEST, CRASHES),
    ("manifest: the sync of a new one", "version/manifest.rs",
     'file.sync_data().map_err(|e| Error::io("sync", path, e))?;\n    Ok(bytes', "Ok(bytes", MANIFEST, CRASHES),
    ("manifest: the sync of a new one's name", "version/manifest.rs",
     'self.vfs.sync_dir(&self.dir).map_err(|e| Error::io("sync", &self.dir, e))?;', "", MANIFEST, CRASHES),
    ("manifest: a record's checksum", "version/manifest.rs",
     "(record_checksum(file_id, offset, payload) == sum).then_some", "(record_checksum(file_id, offset, payload) == sum || true).then_some", MANIFEST, []),
    ("CURRENT: its sync", "version/current.rs",
     'self.file.sync_data().map_err(|e| Error::io("sync", &self.path, e))?;', "", MANIFEST, CRASHES),
    ("CURRENT: a slot's checksum", "version/current.rs",
     "if checksum(header.file_id, offset, &bytes[..SLOT_LEN - 8]) != sum {", "if sum == 1 {", MANIFEST, []),
    ("directory: its own name", "db/open/opening.rs",
     'settings.vfs.sync_dir(parent).map_err(|e| Error::io("sync", parent, e))?;', "let _ = parent;", ["db::open::tests"], CRASHES),
    ("loads: the sync of their names", "db/load/install.rs",
     'engine.storage.table.vfs.sync_dir(&engine.dir).map_err(|e| Error::io("sync", &engine.dir, e))?;', "", ["db::load::tests"], CRASHES),
    ("loads: the sync of the log before them", "db/load/install.rs",
     "engine.log.wal.as_ref().map_or(Ok(()), |wal| pipeline::sync_to(engine, wal.end_lsn()))", "{ let _ = engine; Ok(()) }", ["db::load::tests"], CRASHES),
    ("full disk: runs that many partitions read are written again", "db/maintenance/space/run_by_run.rs",
     "in runs_by_gain(engine, ranges, is_stuck) {", "in runs_by_gain(engine, ranges, is_stuck).into_iter().take(0) {", [], ["compact_of_overlapping_runs"]),
    ("files: what is removed is gone when a database is closed", "db/engine/memory.rs",
     "self.storage.table.deferred_close.finish();", "", ["deferred_close", "db::"], []),
]


def copy_tree():
    """Updates the copy; unchanged files keep their time, so that little is compiled."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout.decode().split("\0")
    for name in filter(None, names):
        source, target = ROOT / name, COPY / name
        if not source.is_file():
            continue
        if not target.exists() or source.read_bytes() != target.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)


def run(arguments):
    """Returns whether the tests pass, and the failed tests or the compiler error."""
    environment = dict(os.environ, CARGO_TARGET_DIR=str(BUILD), RUSTFLAGS="--cap-lints allow")
    done = subprocess.run(["cargo", "test", "--no-fail-fast", *arguments], cwd=COPY, env=environment, capture_output=True, text=True)
    if done.returncode == 0:
        return True, []
    red = re.findall(r"^test (\S+) \.\.\. FAILED", done.stdout, re.M)
    return False, red or [line for line in done.stderr.splitlines() if line.startswith("error")][:1]


def stages(engine, simulated):
    if engine:
        yield "engine", ["-p", "braiddb", "--lib", "--", *engine]
    for name in simulated:
        yield "simulated", ["--release", "-p", "braiddb-sim", "--test", "simulated", "--", name]


def check():
    """Fails unless each plant's original text stands exactly once in its file."""
    wrong = 0
    for name, file, present, *_ in PLANTS:
        path = ROOT / SRC / file
        count = path.read_text(encoding="utf-8").count(present) if path.exists() else 0
        if count != 1:
            wrong += 1
            print(f"{name}: its text occurs {count} times in {file}")
    print(f"{len(PLANTS) - wrong} of {len(PLANTS)} plants fit the sources")
    sys.exit(1 if wrong else 0)


def main():
    if sys.argv[1:] == ["--check"]:
        check()
    chosen = [plant for plant in PLANTS if (not sys.argv[1:] or any(part in plant[0] for part in sys.argv[1:]))]
    copy_tree()
    missed = []
    print("| what is left out | noticed by |\n|---|---|", flush=True)
    for name, file, present, planted, engine, simulated in chosen:
        path = COPY / SRC / file
        text = path.read_text()
        count = text.count(present)
        if count != 1:
            sys.exit(f"{name}: its text occurs {count} times in {file}")
        path.write_text(text.replace(present, planted))
        begun, noticed = time.monotonic(), None
        try:
            for stage, arguments in stages(engine, simulated):
                green, red = run(arguments)
                if not green:
                    if red and red[0].startswith("error"):
                        sys.exit(f"{name}: {red[0]}")
                    noticed = f"{stage}: {len(red)}, such as `{red[0] if red else '?'}`"
                    break
        finally:
            path.write_text(text)
        if noticed is None:
            missed.append(name)
        print(f"| {name} | {noticed or '**nothing**'} | <!-- {time.monotonic() - begun:.0f} s -->", flush=True)
    print(f"{len(chosen) - len(missed)} of {len(chosen)} noticed", flush=True)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
