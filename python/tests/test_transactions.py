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


def test_exclusive_transaction_creates_no_trees(db):
    # The creation is a commit, which would wait for the end of the transaction: for itself.
    db["old"]
    with db.write(exclusive=True) as tx:
        tx["old"][b"k"] = b"1"
        with pytest.raises(braiddb.NotFound, match="create 'new' before it"):
            tx["new"]
        with pytest.raises(braiddb.NotFound, match="create 'many' before it"):
            tx.multi("many")
    assert db["old"][b"k"] == b"1" and db.trees() == ["old"]
    db["new"]
    with db.write(exclusive=True) as tx:
        tx["new"][b"k"] = b"1"


def test_writes_wait_for_an_exclusive_transaction_as_long_as_set(path):
    with braiddb.open(path, exclusive_wait_max=0.2) as db:
        tree, raised = db["t"], []

        def write():
            calls = [lambda: tree.__setitem__(b"a", b"2"), lambda: tree.put(b"a", b"2")]
            for call in (*calls, lambda: db.write(exclusive=True)):
                try:
                    call()
                except braiddb.Error as error:
                    raised.append(type(error))

        with db.write(exclusive=True) as tx:
            tx["t"][b"a"] = b"1"
            thread = threading.Thread(target=write)
            thread.start()
            thread.join(60)
            assert not thread.is_alive() and tree.get(b"a") is None
        assert raised == [braiddb.ExclusiveOpen] * 3 and tree[b"a"] == b"1"
        write()
        assert len(raised) == 3 and tree[b"a"] == b"2"


@pytest.mark.parametrize("kind", ["keys", "values", "items"])
def test_loop_sees_a_write_after_its_last_row(db, kind):
    with db.write() as tx:
        tree = tx["t"]
        tree[b"a"] = b"a"
        loop, reverse = iter(getattr(tree, kind)()), iter(getattr(tree, kind)(reverse=True))
        next(loop), next(reverse)
        tree[b"b"], tree[b"0"] = b"b", b"0"
        row = {"keys": b"b", "values": b"b", "items": (b"b", b"b")}[kind]
        assert next(loop) == row and next(reverse) == (
            b"0" if kind != "items" else (b"0", b"0")
        )
        with pytest.raises(StopIteration):
            next(loop)
        tree[b"c"] = b"c"
        with pytest.raises(StopIteration):  # An iterator that has ended stays so.
            next(loop)


def test_loop_over_pairs_sees_a_write_after_its_last_row(db):
    with db.write() as tx:
        tree = tx.multi("m")
        tree.add(b"a", b"1")
        pairs, values = iter(tree.items()), iter(tree.values(b"a"))
        assert next(pairs) == (b"a", b"1") and next(values) == b"1"
        tree.add(b"a", b"2"), tree.add(b"b", b"3")
        assert list(pairs) == [(b"a", b"2"), (b"b", b"3")] and list(values) == [b"2"]


def test_closed_snapshot_raises_closed(db):
    db["t"]
    snapshot = db.snapshot()
    snapshot.close()
    for use in (lambda: snapshot["t"], lambda: snapshot[db["t"]], lambda: snapshot.sequence):
        with pytest.raises(braiddb.Closed):
            use()


def test_iteration_over_a_snapshot_is_of_the_snapshot(db):
    tree, pairs = db["t"], db.multi("m")
    rows = [(b"%04d" % i, b"%d" % i) for i in range(1000)]
    tree.update(rows)
    pairs.add_many(rows)
    numbers = db.tree("n", key=int, value=int)
    numbers.update((i, i) for i in range(1000))
    with db.snapshot() as snapshot:
        view = snapshot["t"]
        forms = [
            (view.items(), rows),
            (reversed(view.items()), rows[::-1]),
            (view.keys(reverse=True), [key for key, _ in rows[::-1]]),
            (view.values(prefix=b"00"), [value for _, value in rows[:100]]),
            (view[b"0500":b"0510"], rows[500:510]),
            (view, [key for key, _ in rows]),
            (snapshot[pairs].items(), rows),
            (snapshot[numbers].items(start=5), [(i, i) for i in range(5, 1000)]),
        ]
        loops = [iter(form) for form, _ in forms[:2]]
        firsts = [[next(loop)] for loop in loops]
        tree.clear()
        pairs.clear()
        numbers.clear()
        tree.update((b"%04d" % i, b"new") for i in range(0, 2000, 3))
        db.flush()
        db.compact()
        for first, loop, (_, wanted) in zip(firsts, loops, forms):
            assert first + list(loop) == wanted
        for form, wanted in forms[2:]:
            assert list(form) == wanted
    # A loop over the latest state reads one snapshot, too.
    loop = iter(tree)
    next(loop)
    tree.clear()
    assert len(list(loop)) == 666
