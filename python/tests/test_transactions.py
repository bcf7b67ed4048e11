"""Transactions: isolation, retries, iteration over own writes."""

import threading

import braiddb
import pytest


def test_transaction_commits_at_end_of_block(db):
    db["a"]
    with db.write() as tx:
        tx["a"][b"k"] = b"1"
        assert tx["a"][b"k"] == b"1" and b"k" not in db["a"] and len(tx) == 1
        tx["b"].update({b"x": b"y"})
    assert db["a"][b"k"] == b"1" and db["b"][b"x"] == b"y"
    with pytest.raises(braiddb.Closed):
        tx["a"][b"k"]
    with pytest.raises(ZeroDivisionError):
        with db.write() as tx:
            tx["a"][b"k"] = b"2"
            1 / 0
    assert db["a"][b"k"] == b"1"
    with db.write(durability="sync") as tx:
        tx["a"][b"k"] = b"3"
        tx.rollback()
    assert db["a"][b"k"] == b"1" and not tx.is_open


def test_savepoints_undo(db):
    with db.write() as tx:
        tree = tx["t"]
        tree[b"a"] = b"1"
        savepoint = tx.savepoint()
        tree[b"b"] = b"1"
        tx.rollback_to(savepoint)
        assert list(tree) == [b"a"]
    assert list(db["t"]) == [b"a"]


def test_conflict_is_raised_and_retried(db):
    tree = db["t"]
    tree[b"n"] = b"0"
    tx = db.write()
    value = int(tx["t"][b"n"])
    tree[b"n"] = b"5"
    tx["t"][b"n"] = b"%d" % (value + 1)
    with pytest.raises(braiddb.Conflict):
        tx.commit()
    tries = []

    @db.transaction
    def add(tx, by, *, times=1):
        """Adds."""
        tries.append(1)
        value = int(tx["t"][b"n"])
        if len(tries) == 1:
            tree[b"n"] = b"7"
        tx["t"][b"n"] = b"%d" % (value + by * times)
        return value

    assert add(1, times=2) == 7 and len(tries) == 2 and tree[b"n"] == b"9"
    assert add.__name__ == "add" and add.__doc__ == "Adds."

    @db.transaction(retries=2)
    def hopeless(tx):
        tries.append(1)
        tx["t"][b"n"]
        tree[b"n"] = b"x%d" % len(tries)
        tx["t"][b"n"] = b"y"

    tries.clear()
    with pytest.raises(braiddb.Conflict):
        hopeless()
    assert len(tries) == 3

    @db.transaction
    def raises(tx):
        tx["t"][b"n"] = b"never"
        raise KeyError(1)

    with pytest.raises(KeyError):
        raises()
    assert tree[b"n"] != b"never"


def test_threads_count_without_loss(db):
    tree = db["t"]
    tree[b"n"] = b"0"

    @db.transaction
    def add(tx):
        tx["t"][b"n"] = b"%d" % (int(tx["t"][b"n"]) + 1)

    def work():
        for _ in range(50):
            add()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tree[b"n"] == b"200"


def test_exclusive_transaction_makes_others_wait(db):
    tree = db["t"]
    done = threading.Event()

    def other():
        tree[b"b"] = b"1"
        done.set()

    with db.write(exclusive=True) as tx:
        thread = threading.Thread(target=other)
        thread.start()
        tx["t"][b"a"] = b"1"
        assert not done.wait(0.2)
    thread.join(10)
    assert done.is_set() and list(tree) == [b"a", b"b"]


def test_iteration_sees_own_later_writes(db):
    tree = db["t"]
    tree.update((b"%02d" % i, b"") for i in range(0, 90, 2))
    with db.write() as tx:
        inside, seen = tx["t"], []
        for key in inside:
            seen.append(key)
            if key == b"10":
                inside[b"11"] = b""
                del inside[b"12"]
                inside[b"03"] = b""
        assert seen == [b"%02d" % i for i in sorted({*range(0, 90, 2), 11} - {12})]
        assert list(inside.keys(reverse=True, stop=b"05")) == [b"04", b"03", b"02", b"00"]


def test_writes_while_iterating_do_not_disturb_latest(db):
    tree = db["t"]
    tree.update((b"%04d" % i, b"") for i in range(2000))
    count = 0
    for key in tree:
        tree[key + b"x"] = b""
        count += 1
    assert count == 2000 and len(tree) == 4000


def test_codec_and_multi_trees_share_a_transaction(db):
    users, index = db.tree("users", key=int, value="json"), db.multi("by name")
    with db.write() as tx:
        tx[users][1] = {"name": "Ann"}
        tx[index].add(b"Ann", b"1")
        assert tx[users][1] == {"name": "Ann"} and 1 not in users
    assert users[1] == {"name": "Ann"} and index[b"Ann"] == [b"1"]
    with db.snapshot() as snapshot:
        users[1] = None
        assert snapshot[users][1] == {"name": "Ann"} and users[1] is None
