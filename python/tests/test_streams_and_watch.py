"""Streams, the change stream, backups."""

import asyncio
import io
import threading
import time

import braiddb
import pytest


def test_stream_is_a_file(db):
    films = db["films"]
    data = bytes(range(256)) * 20_000
    with films.open_stream(b"1", "wb") as file:
        assert isinstance(file, io.RawIOBase) and file.writable()
        for start in range(0, len(data), 70_000):
            file.write(data[start : start + 70_000])
        assert b"1" not in films and file.tell() == len(data)
    with films.open_stream(b"1") as file:
        assert file.read(5) == data[:5] and file.tell() == 5
        file.seek(-10, io.SEEK_END)
        assert file.read() == data[-10:] and file.read() == b""
        file.seek(1000)
        films[b"1"] = b"changed"
        assert file.read() == data[1000:]
    assert file.closed
    with films.open_stream(b"1", buffering=0) as file:
        assert isinstance(file, io.RawIOBase) and len(file) == 7
        place = bytearray(4)
        assert file.readinto(place) == 4 and place == b"chan"
    with pytest.raises(ValueError):
        file.read()
    with pytest.raises(braiddb.NotFound):
        films.open_stream(b"no")
    with pytest.raises(ValueError):
        films.open_stream(b"1", "ab")


def test_stream_is_discarded_without_close(db):
    films = db["films"]
    with pytest.raises(ZeroDivisionError):
        with films.open_stream(b"1", "wb") as file:
            file.write(b"x" * 100_000)
            1 / 0
    with pytest.warns(ResourceWarning):
        films.open_stream(b"1", "wb").write(b"part")
    assert b"1" not in films
    with pytest.raises(ValueError):
        file.write(b"")


def test_stream_copies_a_file_object(db):
    films = db["films"]
    films.put_stream(b"1", io.BytesIO(b"ab" * 50_000))
    films.put_stream(b"1", io.BytesIO(b"end"), append=True)
    assert films[b"1"] == b"ab" * 50_000 + b"end"
    with db.write() as tx:
        tx["films"].put_stream(b"2", io.BytesIO(b"x" * 100_000))
        with tx["films"].open_stream(b"2") as file:
            assert file.read() == b"x" * 100_000
        assert b"2" not in films

    class Broken(io.RawIOBase):
        def read(self, size=-1):
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        films.put_stream(b"1", Broken())
    with db.snapshot() as snapshot:
        del films[b"2"]
        assert len(snapshot["films"].open_stream(b"2").read()) == 100_000


def test_watcher_returns_commits_and_resumes(path):
    with braiddb.open(path, log_retention=1 << 24) as db:
        tree, multi = db["t"], db.multi("m")
        watcher = db.watch(tree)
        tree[b"a"] = b"1"
        with db.write() as tx:
            tx["t"][b"b"] = b"2"
            tx.multi("m").add(b"k", b"v")
            del tx["t"][b"a"]
        first, second = watcher.next(5), watcher.next(5)
        assert [(c.kind, c.tree, c.key, c.value) for c in first.changes] == [
            ("put", "t", b"a", b"1")
        ]
        assert [(c.kind, c.key) for c in second.changes] == [("delete", b"a"), ("put", b"b")]
        assert watcher.next(0) is None and first.sequence < second.sequence
        assert abs(first.time - time.time()) < 60
        whole = db.watch(resume=first.token).next(5)
        assert ("add", b"k", b"v") in [(c.kind, c.key, c.value) for c in whole.changes]
        tree.put_stream(b"s", io.BytesIO(b"x" * 20_000_000))
        tree.merge(b"n", "add", bytes(8))
        tree.delete_range(prefix=b"z")
        stream, merge, range_ = (watcher.next(5).changes[0] for _ in range(3))
        assert len(stream.stream) == 20_000_000 and stream.stream.read() == b"x" * 20_000_000
        assert merge.operands == [("add", bytes(8))] and merge.is_base_stored
        assert (range_.kind, range_.start, range_.stop) == ("delete_range", b"z", b"{")
        token = watcher.token
        multi.add(b"k", b"w")
        assert db.watch(multi).next(0) is None
    with braiddb.open(path, log_retention=1 << 24) as db:
        commit = db.watch(resume=token).next(5)
        assert [(c.kind, c.value) for c in commit.changes] == [("add", b"w")]
        assert db.watch(oldest=True).next(5).changes
        with pytest.raises(braiddb.InvalidArgument):
            db.watch(oldest=True, after=1)
        with pytest.raises(braiddb.InvalidArgument):
            db.watch(resume=b"no token")


def test_stopped_watcher_ends_its_loop(db):
    tree, seen = db["t"], []
    watcher = db.watch(db.tree("c", key=str, value="json"), prefix=b"a")
    thread = threading.Thread(target=lambda: seen.extend(watcher))
    thread.start()
    tree[b"x"] = b""
    db["c"][b"ab"] = b"1"
    for _ in range(1000):
        if seen:
            break
        time.sleep(0.01)
    watcher.stop()
    thread.join(10)
    assert not thread.is_alive() and [c.key for commit in seen for c in commit.changes] == [b"ab"]
    with pytest.raises(StopIteration):
        next(watcher)


def test_close_ends_a_waiting_watcher(path):
    db, errors = braiddb.open(path), []
    watcher = db.watch()

    def wait():
        try:
            next(watcher)
        except braiddb.Closed as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    db.close()
    thread.join(10)
    assert not thread.is_alive() and len(errors) == 1


def test_backup_restores(db, tmp_path):
    tree = db["t"]
    tree[b"a"] = b"1"
    backups, restored = tmp_path / "backups", tmp_path / "restored"
    first = db.backup(backups)
    tree[b"a"] = b"2"
    second = db.backup(backups)
    assert [b["id"] for b in braiddb.backups(backups)] == [first["id"], second["id"]]
    assert braiddb.verify_backups(backups) == ([first["id"], second["id"]], [])
    assert braiddb.restore(backups, restored, id=first["id"]) == first["sequence"]
    with braiddb.open(restored) as other:
        assert other["t"][b"a"] == b"1"
    braiddb.restore(backups, tmp_path / "newest")
    with braiddb.open(tmp_path / "newest") as other:
        assert other["t"][b"a"] == b"2"
    with pytest.raises(braiddb.AlreadyExists):
        braiddb.restore(backups, restored)
    with pytest.raises(braiddb.InvalidArgument):
        braiddb.restore(backups, tmp_path / "x", commit=1)
    braiddb.delete_backup(backups, first["id"])
    assert len(braiddb.backups(backups)) == 1
    assert db.checkpoint(tmp_path / "copy") > 0
    assert braiddb.verify(tmp_path / "copy")["is_sound"]


def test_archive_restores_a_commit(tmp_path):
    archive = tmp_path / "archive"
    with braiddb.open(tmp_path / "db", log_archive=archive) as db:
        tree = db["t"]
        tree[b"a"] = b"1"
        db.backup(tmp_path / "backups")
        with db.write() as tx:
            tx["t"][b"a"] = b"2"
        at = db.snapshot().sequence
        tree[b"a"] = b"3"
        db.archive_now()
    restored = braiddb.restore(tmp_path / "backups", tmp_path / "new", archive=archive, commit=at)
    assert restored == at
    with braiddb.open(tmp_path / "new") as db:
        assert db["t"][b"a"] == b"2"


def test_damage_is_reported_with_its_place(db, path):
    tree = db["t"]
    tree.update((b"%05d" % i, bytes([i % 256]) * 200) for i in range(5000))
    db.flush()
    db.close()
    run = max(path.rglob("*.run"), key=lambda file: file.stat().st_size)
    data = bytearray(run.read_bytes())
    data[1000] ^= 0xFF
    run.write_bytes(data)
    report = braiddb.verify(path)
    assert not report["is_sound"] and report["problems"][0]["path"].endswith(run.name)
    with braiddb.open(path) as db:
        with pytest.raises(braiddb.Corruption) as error:
            list(db["t"].items())
        assert error.value.path.endswith(run.name) and error.value.offset > 0


def test_file_that_uses_the_transaction_that_reads_it_is_refused(db):
    # It waited for the lock of the transaction, which its own thread had.
    class File:
        def read(self, size):
            return use()

    db["t"][b"a"] = b"1"
    uses = [
        lambda tx: tx["t"][b"a"],
        lambda tx: tx["t"].put(b"a", b"2"),
        lambda tx: next(iter(tx["t"])),
        lambda tx: tx.commit(),
        lambda tx: tx.rollback(),
    ]
    for call in uses:
        with db.write() as tx:

            def use(call=call, tx=tx):
                return call(tx)

            for stream in (tx["t"].put_stream, lambda *a: tx["t"].put_stream(*a, append=True)):
                with pytest.raises(braiddb.InvalidArgument, match="has not returned"):
                    stream(b"s", File())
            tx["t"][b"after"] = b"1"
    assert list(db["t"]) == [b"a", b"after"]


def test_merge_function_that_uses_its_transaction_is_refused():
    calls = []

    def merge(key, value, operand):
        calls.append(key)
        return tx["t"][b"other"]

    with braiddb.in_memory(merge={"f": merge}) as db:
        db["t"].merge(b"a", "f", b"1")
        tx = db.write()
        with pytest.raises(braiddb.MergeFailed, match="has not returned"):
            tx["t"][b"a"]
        tx.rollback()
    assert calls


def test_watcher_of_a_read_only_database_ends(db, path):
    # It returned at once from each wait, so the loop around it never slept.
    db["t"][b"a"] = b"1"
    db.sync()
    follower = braiddb.follow(path, refresh_every=1000)
    with braiddb.open(path, read_only=True) as reader:
        for source in (reader, follower.db()):
            with source.watch(oldest=True, unsynced=True) as watcher:
                kinds = [change.kind for commit in watcher for change in commit.changes]
                assert "put" in kinds and watcher.is_stopped
                began, used = time.monotonic(), time.process_time()
                assert watcher.next() is None and watcher.next(timeout=5) is None
                assert time.monotonic() - began < 4 and time.process_time() - used < 1

        async def collect():
            return [commit async for commit in reader.aio.watch(oldest=True, unsynced=True)]

        assert asyncio.run(asyncio.wait_for(collect(), 60))


def test_watcher_waits_and_stops(db):
    watcher = db.watch()
    began = time.monotonic()
    assert watcher.next(timeout=0.05) is None and time.monotonic() - began > 0.04
    assert not watcher.is_stopped
    watcher.stop()
    assert watcher.is_stopped and watcher.next() is None


def test_closed_state_of_a_follower_ends_its_handles_only(db, path):
    # The close ended the state that all handles of the follower share.
    db["t"][b"a"] = b"1"
    db.sync()
    follower = braiddb.follow(path, refresh_every=1000)
    state, other = follower.db(), follower.db()
    tree = state["t"]
    state.close()
    with pytest.raises(braiddb.Closed):
        tree[b"a"]
    assert state.closed and not other.closed
    assert other["t"][b"a"] == b"1" and follower.db()["t"][b"a"] == b"1"
    db["t"][b"a"] = b"2"
    assert follower.refresh() and follower.db()["t"][b"a"] == b"2"
