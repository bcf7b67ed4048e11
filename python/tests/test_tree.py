"""Trees of bytes as mappings."""

import datetime
import threading
import time
from collections.abc import Mapping, MutableMapping

import braiddb
import pytest


@pytest.fixture
def tree(db):
    tree = db["t"]
    tree.update((b"%03d" % i, b"v%d" % i) for i in range(100))
    return tree


def test_tree_is_mutable_mapping(tree):
    assert isinstance(tree, MutableMapping)
    assert tree[b"007"] == b"v7"
    assert tree.get(b"no") is None and tree.get(b"no", 5) == 5
    assert len(tree) == 100 and b"007" in tree and b"no" not in tree
    with pytest.raises(KeyError) as error:
        tree[b"no"]
    assert error.value.args == (b"no",)
    with pytest.raises(KeyError):
        del tree[b"no"]
    del tree[b"007"]
    assert b"007" not in tree
    assert tree.pop(b"008") == b"v8" and tree.pop(b"008", 1) == 1
    with pytest.raises(KeyError):
        tree.pop(b"008")
    assert tree.setdefault(b"008", b"new") == b"new" == tree.setdefault(b"008", b"other")
    assert tree.popitem() == (b"099", b"v99")
    tree.clear()
    assert not tree and tree.first() is None and tree.pop_first() is None
    with pytest.raises(KeyError):
        tree.popitem()


def test_ranges_select_and_order_rows(tree):
    keys = [b"%03d" % i for i in range(100)]
    assert list(tree) == keys and list(reversed(tree)) == keys[::-1]
    assert list(tree.keys(prefix=b"01")) == keys[10:20]
    assert list(tree.keys(prefix=b"01", reverse=True)) == keys[19:9:-1]
    assert list(tree.keys(start=b"0105", stop=b"02")) == keys[11:20]
    assert list(tree.keys(prefix=b"01", start=b"015", stop=b"9")) == keys[15:20]
    assert [key for key, _ in tree[b"098":]] == keys[98:]
    assert list(tree[:b"001"]) == [(b"000", b"v0")] == list(tree.items(stop=b"001"))
    assert list(tree[b"5":b"1"]) == [] == list(tree.keys(start=b"5", stop=b"1", reverse=True))
    assert list(tree.values(prefix=b"09", reverse=True))[0] == b"v99"
    assert tree.count(prefix=b"01") == 10 == len(tree.keys(prefix=b"01"))
    assert b"015" in tree.keys(prefix=b"01") and b"025" not in tree.keys(prefix=b"01")
    assert b"019" not in tree.keys(start=b"010", stop=b"019")
    assert (b"015", b"v15") in tree.items() and (b"015", b"v16") not in tree.items()
    assert b"v15" in tree.values() and b"x" not in tree.values(prefix=b"01")
    assert tree.keys(prefix=b"00") & {b"001", b"500"} == {b"001"}
    assert list(tree.keys(prefix=b"\xff")) == []
    with pytest.raises(ValueError):
        tree[b"1":b"2":2]
    del tree[b"010":b"020"]
    assert tree.count() == 90
    tree.delete_range(prefix=b"02")
    assert tree.count() == 80


def test_iterators_read_beyond_batches(db):
    tree = db["many"]
    rows = {b"%05d" % i: b"x" * (i % 300) for i in range(3000)}
    tree.extend(rows.items(), batch=700)
    assert dict(tree.items()) == rows == tree
    assert list(tree.keys(reverse=True)) == sorted(rows, reverse=True)
    view = tree.items(prefix=b"01")
    assert list(reversed(view)) == list(view)[::-1] and len(view) == 1000


def test_values_of_all_sizes_survive(db):
    tree = db["sizes"]
    values = {b"%d" % size: bytes([size % 251]) * size for size in (0, 1, 100, 5000, 3_000_000)}
    for key, value in values.items():
        tree[key] = value
    assert dict(tree.items()) == values
    assert set(tree.keys()) == set(values)
    assert tree.get_many([b"0", b"no", b"5000"]) == [b"", None, values[b"5000"]]


def test_keys_other_than_bytes_are_refused(tree):
    for bad in ("a", 1, None):
        with pytest.raises(TypeError):
            tree[bad]
        with pytest.raises(TypeError):
            tree[b"a"] = bad
    with pytest.raises(TypeError, match="key=str"):
        tree["a"] = b""
    with pytest.raises(braiddb.InvalidArgument):
        tree[b"k" * 70_000] = b""
    tree[bytearray(b"m")] = memoryview(b"value")[1:]
    assert tree[memoryview(b"m")] == b"alue"


def test_conditional_writes_compare(tree):
    assert tree.compare_and_set(b"a", None, b"1")
    assert not tree.compare_and_set(b"a", None, b"2") and tree[b"a"] == b"1"
    assert tree.compare_and_set(b"a", b"1", b"2") and tree[b"a"] == b"2"
    assert tree.compare_and_set(b"a", b"2", None) and b"a" not in tree
    assert tree.put_if_absent(b"a", b"1") and not tree.put_if_absent(b"a", b"2")
    assert tree.fetch_update(b"a", lambda value: value + b"!") == b"1" and tree[b"a"] == b"1!"
    assert tree.fetch_update(b"a", lambda value: None) == b"1!" and b"a" not in tree


def test_expired_values_are_absent(tree):
    tree.put(b"a", b"1", ttl=1000)
    value, expires = tree.get_with_expiry(b"a")
    assert value == b"1" and 990 < expires - time.time() < 1010
    tree.put(b"a", b"2", keep_ttl=True)
    assert tree.get_with_expiry(b"a") == (b"2", expires)
    tree.put(b"a", b"3", ttl=datetime.timedelta(0))
    assert b"a" not in tree and tree.get_with_expiry(b"a") is None
    tree.put(b"b", b"1", expires=time.time() + 100)
    assert tree.get_with_expiry(b"b")[1] is not None
    tree[b"b"] = b"2"
    assert tree.get_with_expiry(b"b") == (b"2", None)
    with pytest.raises(braiddb.InvalidArgument):
        tree.put(b"b", b"1", ttl=1, keep_ttl=True)
    with pytest.raises(ValueError):
        tree.put(b"b", b"1", ttl=-1)


def test_trees_of_a_database_are_named(db):
    db["b"]
    db["a"][b"1"] = b"1"
    assert db.trees() == ["a", "b"] == list(db) and "a" in db and "c" not in db
    db.rename("a", "c")
    assert db["c"][b"1"] == b"1" and "a" not in db
    old = db["c"]
    del db["c"]
    with pytest.raises(braiddb.NotFound):
        old[b"1"]
    assert len(db["c"]) == 0
    with pytest.raises(LookupError):
        db.tree("absent", create=False)
    with pytest.raises(braiddb.InvalidArgument):
        db.multi("b")
    assert db.tree("short", ttl=5).ttl == 5.0


def test_merge_functions_of_python_apply(path):
    calls = []

    def longest(key, value, operand):
        calls.append(key)
        return max(value or b"", operand, key=len)

    def fails(key, value, operand):
        raise RuntimeError("not today")

    with braiddb.open(path, merge={"longest": longest, "fails": fails}) as db:
        tree = db["t"]
        tree.merge(b"k", "longest", b"ab")
        tree.merge(b"k", "longest", b"a")
        with db.write() as tx:
            tx["t"].merge(b"k", "longest", b"abc")
        assert tree[b"k"] == b"abc" and calls
        tree.merge(b"n", "add", (3).to_bytes(8, "little"))
        db.flush()
        db.compact()
        assert tree[b"k"] == b"abc"
        tree.merge(b"bad", "fails", b"1")
        with pytest.raises(braiddb.MergeFailed, match="RuntimeError: not today"):
            tree[b"bad"]
        with pytest.raises(braiddb.MergeFailed):
            list(tree.items())
        with pytest.raises(braiddb.NotFound):
            tree.merge(b"k", "unknown", b"")


def test_snapshot_keeps_its_state(db):
    db["t"][b"a"] = b"1"
    multi = db.multi("m")
    multi.add(b"k", b"1")
    with db.snapshot() as snapshot:
        db["t"][b"a"] = b"2"
        multi.add(b"k", b"2")
        view = snapshot["t"]
        assert isinstance(view, Mapping) and not isinstance(view, MutableMapping)
        assert view[b"a"] == b"1" and list(view.items()) == [(b"a", b"1")] and len(view) == 1
        assert snapshot[multi][b"k"] == [b"1"]
        for write in (
            lambda: view.put(b"a", b"3"),
            lambda: view.clear(),
            lambda: snapshot[multi].add(b"k", b"3"),
        ):
            with pytest.raises(braiddb.ReadOnly):
                write()
        with pytest.raises(braiddb.NotFound):
            snapshot["absent"]
    assert "absent" not in db


def test_multi_tree_keeps_sorted_values(db):
    tags = db.multi("tags")
    tags.add_many([(b"b", b"2"), (b"a", b"9"), (b"b", b"1"), (b"b", b"1")])
    assert list(tags) == [(b"a", b"9"), (b"b", b"1"), (b"b", b"2")] and len(tags) == 3
    assert tags[b"b"] == [b"1", b"2"] and tags[b"c"] == []
    assert list(tags.values(b"b", reverse=True)) == [b"2", b"1"]
    assert list(tags.items(start=b"b", reverse=True)) == [(b"b", b"2"), (b"b", b"1")]
    assert tags.contains_pair(b"b", b"1") and b"c" not in tags and tags.count_values(b"b") == 2
    assert (tags.first_value(b"b"), tags.last_value(b"b")) == (b"1", b"2")
    with db.write() as tx:
        inside = tx.multi("tags")
        inside.add(b"b", b"3")
        inside.discard(b"b", b"1")
        assert inside[b"b"] == [b"2", b"3"] and tags[b"b"] == [b"1", b"2"]
        assert list(inside.items(reverse=True)) == [(b"b", b"3"), (b"b", b"2"), (b"a", b"9")]
    assert tags.pop_first() == (b"a", b"9") and tags.pop_last() == (b"b", b"3")
    tags.delete(b"b")
    assert not tags


def test_multi_tree_in_transaction_reads_beyond_batches(db):
    tags = db.multi("many")
    pairs = [(b"%02d" % (i // 90), b"%03d" % (i % 90)) for i in range(900)]
    tags.add_many(pairs)
    with db.write() as tx:
        inside = tx[tags]
        assert list(inside.items()) == pairs
        assert list(inside.items(reverse=True)) == pairs[::-1]
        assert list(inside.values(b"04")) == [value for key, value in pairs if key == b"04"]
        assert list(inside.items(prefix=b"04")) == [p for p in pairs if p[0] == b"04"]


def test_closed_database_refuses_calls(path):
    db = braiddb.open(path)
    tree, multi, snapshot = db["t"], db.multi("m"), db.snapshot()
    tree.update({b"a": b"1", b"b": b"2"})
    rows, view, tx = iter(tree.items()), snapshot["t"], db.write()
    next(rows)
    db.close()
    db.close()
    assert db.closed
    calls = [
        lambda: tree[b"a"],
        lambda: tree.put(b"a", b"1"),
        lambda: next(rows),
        lambda: list(tree),
        lambda: view[b"a"],
        lambda: tx["t"][b"a"],
        lambda: tx.commit(),
        lambda: multi.add(b"a", b"1"),
        lambda: db["other"],
        lambda: db.stats(),
        lambda: db.snapshot(),
        lambda: db.write(),
        lambda: db.sync(),
    ]
    for call in calls:
        with pytest.raises(braiddb.Closed):
            call()
    assert issubclass(braiddb.Closed, braiddb.Error)
    with braiddb.open(path) as db:
        assert db["t"][b"a"] == b"1"


def test_open_refuses_what_is_wrong(path, tmp_path):
    with pytest.raises(braiddb.NotFound):
        braiddb.open(path, create=False)
    with pytest.raises(TypeError, match="no option"):
        braiddb.open(path, memori=1)
    with pytest.raises(braiddb.InvalidArgument):
        braiddb.open(path, durability="maybe")
    (tmp_path / "file").write_text("x")
    with pytest.raises(braiddb.Error):
        braiddb.open(tmp_path / "file" / "db")
    with braiddb.open(path) as db:
        db["t"][b"a"] = b"1"
        with pytest.raises(braiddb.Locked):
            braiddb.open(path)
    with braiddb.open(path, read_only=True) as db:
        assert db["t"][b"a"] == b"1"
        with pytest.raises(braiddb.ReadOnly):
            db["t"][b"a"] = b"2"
    with braiddb.in_memory(memory=1 << 24) as db:
        db["t"][b"a"] = b"1"
        assert db.stats()["commits"] >= 1


def test_stats_name_causes_of_slow_commits(path):
    with braiddb.open(path, slow_commit=0) as db:
        db["t"][b"a"] = b"1"
        stats = db.stats()
    totals = stats["slow_commit_totals"]
    assert sum(commits for commits, _ in totals.values()) == stats["commits"] >= 2
    last = stats["slow_commits"][-1]
    assert last["sequence"] == stats["last_sequence"] and last["records"] == 1
    assert last["cause"] == max(last["parts_us"], key=last["parts_us"].get)
    assert last["cause"] in totals and last["took_us"] >= last["parts_us"][last["cause"]] > 0


def test_merge_functions_beside_threads_and_compactions_do_not_block(path):
    """A thread that waited with the GIL for a lock of a merge would never get it."""

    def count(key, value, operand):
        return b"%d" % (int(value or b"0") + int(operand))

    failed = []

    def work(number):
        try:
            for i in range(300):
                tree.merge(b"%d" % (i % 7), "count", b"1")
                if i % 10 == number:
                    list(tree.items())
                if i % 100 == number:
                    db.compact()
        except BaseException as error:
            failed.append(error)

    options = {"merge": {"count": count}, "durability": "buffered", "memory": 1 << 20}
    with braiddb.open(path, **options) as db:
        tree = db["t"]
        threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
        assert not failed and sum(map(int, tree.values())) == 1200


def test_first_and_last_pass_no_popped_rows(db):
    # They were scans, which pass the tombstones of all pops.
    tree, users = db["t"], db.tree("users", key=tuple, value="json")
    tree.update((b"%06d" % i, b"x") for i in range(30_000))
    tree.delete_many(b"%06d" % i for i in range(29_980))
    for i in range(29_980, 29_990):
        assert tree.pop_first() == (b"%06d" % i, b"x")

    def cost(read):
        def once():
            began = time.perf_counter()
            assert read()[0] == b"029990"
            return time.perf_counter() - began

        return min(once() for _ in range(20))

    texts = db.tree("t", key=str, value=str, declare=True)
    scan = cost(lambda: next(iter(tree.items())))
    assert cost(tree.first) * 5 < scan
    assert cost(lambda: [texts.first()[0].encode()]) * 5 < scan
    assert tree.last() == (b"029999", b"x") and users.first() is users.last() is None
    with db.write() as tx:
        view = tx["t"]
        assert view.first() == (b"029990", b"x") and view.pop_first() == (b"029990", b"x")
        assert view.first() == (b"029991", b"x")
        with db.snapshot() as snapshot:
            assert snapshot["t"].first() == (b"029990", b"x")
            assert snapshot["t"].last() == (b"029999", b"x")
        view.clear()
        assert view.first() is view.last() is None
        view[b"a"] = b"1"
        assert view.first() == view.last() == (b"a", b"1")
    users["a", 1], users["b", 2] = 1, 2
    users.raw[b"\xff"] = b"index"
    assert users.first() == (("a", 1), 1) and users.last() == (("b", 2), 2) and users
    del users["a", 1], users["b", 2]
    assert users.first() is None and not users
