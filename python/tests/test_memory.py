"""Memory: no call leaks, and what a call returned outlives its source."""

import gc
import os
import sys
from pathlib import Path

import braiddb
import pytest

#: Rounds of each test; each makes its calls once. The package's figures are of 10,000,000.
ROUNDS = int(os.environ.get("BRAIDDB_LEAK_ROUNDS", "100000"))

#: Growth of resident memory that is allowed, in bytes a round. The smallest object has 16.
GROWTH = 40

#: Growth that is no leak: pages of the allocators and of the log's buffers.
NOISE = 3 << 20


def resident():
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def gets(db, tree, users, rounds):
    for i in range(rounds):
        key = b"%04d" % (i % 1000)
        tree[key], tree.get(b"absent"), key in tree, tree.get_many((key, b"absent"))


def rows(db, tree, users, rounds):
    for i in range(rounds):
        assert sum(1 for _ in tree.items(prefix=b"%03d" % (i % 100))) == 10
        next(iter(tree.keys(prefix=b"05", reverse=True)))
        assert tree.first() < tree.last()


def codecs(db, tree, users, rounds):
    for i in range(rounds):
        users["ann"] == {"age": 41}, users.get(str(i)), users.first()


def transactions(db, tree, users, rounds):
    for i in range(rounds):
        with db.write(durability="none") as tx:
            tx["t"][b"%04d" % (i % 1000)] = b"x" * 100
            tx["t"].get(b"%04d" % (i % 7))
        with db.snapshot() as snapshot:
            next(iter(snapshot["t"].items()))


def errors(db, tree, users, rounds):
    for _ in range(rounds):
        for key, kind in ((b"absent", KeyError), (5, TypeError)):
            try:
                tree[key]
            except kind:
                continue
            raise AssertionError("a key that is not there was found")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("work", [gets, rows, codecs, transactions, errors])
def test_calls_do_not_leak(path, work):
    assert ROUNDS * GROWTH > NOISE, "so few rounds cannot show a leak"
    with braiddb.open(path, memory=16 << 20, durability="buffered") as db:
        tree = db["t"]
        tree.update((b"%04d" % i, b"x" * 100) for i in range(1000))
        users = db.tree("users", key=str, value="json")
        users["ann"] = {"age": 41}
        db.flush()
        # Caches, allocators and the log's buffers reach their size.
        work(db, tree, users, max(ROUNDS // 10, 20_000))
        before = resident()
        work(db, tree, users, ROUNDS)
        growth = resident() - before
        print(f"{work.__name__}: {ROUNDS} rounds, resident memory grew by {growth >> 10} KiB")
        assert growth < ROUNDS * GROWTH


def test_views_of_values_outlive_their_transaction(path):
    db = braiddb.open(path, durability="buffered")
    big = os.urandom(1 << 20)
    db["t"].update({b"small": b"abc", b"big": big})
    with db.write() as tx:
        of_transaction = [memoryview(tx["t"][key]) for key in (b"small", b"big")]
        row = next(iter(tx["t"].items()))
        tx["t"][b"small"] = b"changed"
    with db.snapshot() as snapshot:
        of_snapshot = memoryview(snapshot["t"][b"big"])
        iterator = iter(snapshot["t"].values())
    # The iterator outlives its snapshot too.
    assert next(iterator) == big
    db["t"].clear()
    db.flush()
    db.close()
    del db, tx, snapshot
    gc.collect()
    assert [bytes(view) for view in of_transaction] == [b"abc", big]
    assert of_snapshot == big and row == (b"big", big)
    with pytest.raises(braiddb.Closed):
        next(iterator)


def test_arguments_are_copied_from_views(path):
    with braiddb.open(path, durability="buffered") as db:
        data = bytearray(b"key value")
        whole = memoryview(data)
        with db.write() as tx:
            tx["t"][whole[:3]] = whole[4:]
            data[:] = b"xxxxxxxxx"
        whole.release()
        data.clear()
        assert dict(db["t"].items()) == {b"key": b"value"}
        strided = memoryview(bytes(range(10)))[::2]
        db["t"][b"strided"] = strided
        assert db["t"][b"strided"] == bytes(range(0, 10, 2))
