"""Databases that several processes write."""

import io
import os
import signal
import threading
import time

import braiddb
import pytest
from test_process import start

pytestmark = pytest.mark.skipif(os.name != "posix", reason="POSIX only")

#: Threads of one process stand for the other processes where no kill is needed.
OPTIONS = {"shared": True, "shared_timeout": 20, "durability": "buffered", "memory": 8 << 20}


@pytest.fixture
def pair(path):
    """Return an owner and a member."""
    with braiddb.open(path, **OPTIONS) as owner, braiddb.open(path, **OPTIONS) as member:
        assert owner.is_owner and not member.is_owner
        yield owner, member


def test_mapping_of_member_is_that_of_owner(pair):
    for db in pair:
        tree = db["of the owner" if db.is_owner else "of a member"]
        tree[b"a"] = b"1"
        tree.update({b"b": b"2", b"c": b"3", b"d": b"4"})
        assert tree[b"a"] == b"1" and tree.get(b"x", 5) == 5 and b"b" in tree and b"x" not in tree
        assert tree.get_many([b"a", b"x"]) == [b"1", None]
        assert len(tree) == 4 and list(tree) == [b"a", b"b", b"c", b"d"]
        assert list(tree.items(prefix=b"b")) == [(b"b", b"2")]
        assert list(tree.values(start=b"b", reverse=True)) == [b"4", b"3", b"2"]
        assert list(tree[b"a":b"c"]) == [(b"a", b"1"), (b"b", b"2")]
        assert tree.first() == (b"a", b"1") and tree.last() == (b"d", b"4")
        del tree[b"a"]
        with pytest.raises(KeyError):
            del tree[b"a"]
        with pytest.raises(KeyError):
            tree[b"a"]
        assert tree.pop(b"b") == b"2" and tree.pop(b"b", None) is None
        assert tree.put_if_absent(b"e", b"5") and not tree.put_if_absent(b"e", b"6")
        assert tree.compare_and_set(b"e", b"5", b"6") and not tree.compare_and_set(b"e", b"5", b"7")
        assert tree.fetch_update(b"e", lambda value: value + b"!") == b"6" and tree[b"e"] == b"6!"
        assert tree.setdefault(b"f", b"7") == b"7"
        assert tree.pop_first() == (b"c", b"3") and tree.popitem() == (b"f", b"7")
        tree.delete(b"d")
        tree.delete(b"absent")
        tree.merge(b"sum", "add", (5).to_bytes(8, "little"))
        tree.merge(b"sum", "add", (6).to_bytes(8, "little"))
        assert int.from_bytes(tree[b"sum"], "little") == 11
        tree.put(b"long", b"x", ttl=3600)
        tree.put(b"long", b"y", keep_ttl=True)
        tree.put(b"until", b"x", expires=2e9, durability="sync")
        assert tree.get_with_expiry(b"long")[1] and tree.get_with_expiry(b"until") == (b"x", 2e9)
        tree.put(b"gone", b"x", ttl=0)
        assert b"gone" not in tree
        del tree[b"l":b"m"]
        assert tree.count(prefix=b"l") == 0 and tree.ttl is None and tree.name.startswith("of ")
        tree.clear()
        assert not tree and not list(tree.items())
        db.sync()
    assert pair[1].trees() == ["of a member", "of the owner"]
    assert "of a member" in pair[1] and pair[1].stats()["commits"] >= 0


def test_reads_see_own_writes_at_once_and_others_after_refresh(pair):
    owner, member = pair
    of_owner, of_member = owner["t"], member["t"]
    for i in range(200):
        of_member[b"m"] = of_owner[b"o"] = b"%d" % i
        assert of_member[b"m"] == of_owner[b"m"] == b"%d" % i
        member.refresh()
        assert of_member[b"o"] == b"%d" % i


def test_codecs_are_stored(pair):
    owner, member = pair
    owner.tree("users", key=str, value="json")["ann"] = {"age": 41}
    users = member.tree("users", key=str, value="json")
    assert users["ann"] == {"age": 41} and users.codec == "utf8/json"
    users["bob"] = {"age": 7}
    with pytest.raises(braiddb.InvalidArgument):
        member.tree("users", key=int, value="json")
    owner["bytes"][b"a"] = b"1"
    with pytest.raises(braiddb.Unsupported, match="codecs"):
        member.tree("bytes", key=str, declare=True)
    member.tree("short", ttl=60)
    assert owner.tree("short").ttl == 60


def test_transactions_are_serializable(pair):
    for db in pair:
        users = db.tree("users", key=str, value=int)
        users["n"] = 0

        @db.transaction
        def increment(tx):
            tx[users]["n"] += 1
            tx["other"][b"k"] = b"%d" % tx[users]["n"]
            return tx[users]["n"]

        assert [increment(), increment()] == [1, 2]
        assert db["other"][b"k"] == b"2"
        with pytest.raises(ZeroDivisionError), db.write() as tx:
            tx["other"][b"k"] = b"never"
            1 / 0
        with db.write(durability="sync") as tx:
            tree = tx["other"]
            tree[b"a"], tree[b"b"] = b"1", b"2"
            assert list(tree.items(prefix=b"a")) == [(b"a", b"1")] and len(tree) == 3
            mark = tx.savepoint()
            del tree[b"a"]
            tree.merge(b"sum", "add", bytes(8))
            tx.rollback_to(mark)
        assert list(db["other"]) == [b"a", b"b", b"k"] and db["other"][b"k"] == b"2"
        assert not tx.is_open
        with pytest.raises(braiddb.Closed):
            tree[b"a"]
        db["other"].clear()


def test_conflict_between_processes_is_raised_and_repeated(pair):
    owner, member = pair
    of_owner = owner["t"]
    of_owner[b"n"] = b"0"
    with pytest.raises(braiddb.Conflict), member.write() as tx:
        assert tx["t"][b"n"] == b"0"
        of_owner[b"n"] = b"1"
        tx["t"][b"n"] = b"2"
    runs = []

    @member.transaction
    def change(tx):
        runs.append(tx["t"][b"n"])
        if len(runs) == 1:
            of_owner[b"n"] = b"7"
        tx["t"][b"n"] = runs[-1] + b"!"

    change()
    assert runs == [b"1", b"7"] and of_owner[b"n"] == b"7!"


def test_transaction_that_takes_too_long_is_repeated_few_times(path):
    # It ran a thousand times.
    with braiddb.open(path, reader_age_max=0.05, **OPTIONS) as db:
        tree, runs = db["t"], []
        tree[b"a"] = b"1"

        @db.transaction
        def slow(tx, times):
            runs.append(tx["t"][b"a"])
            until = time.monotonic() + 30
            while len(runs) <= times and time.monotonic() < until:
                time.sleep(0.02)
                tx["t"][b"a"]
            tx["t"][b"b"] = b"2"

        slow(3)
        assert len(runs) == 4 and tree[b"b"] == b"2"
        runs.clear()
        with pytest.raises(braiddb.ReaderExpired):
            slow(100)
        assert len(runs) == 4


def test_transaction_sees_a_tree_that_is_created_in_it(pair):
    _, member = pair
    with member.write() as tx:
        tx["a"][b"k"] = b"1"
    with member.write() as tx:
        of_a, of_b = tx["a"], tx["b"]
        of_b[b"k"] = of_a[b"k"]
    with pytest.raises(braiddb.Conflict), member.write() as tx:
        tx["a"][b"k"] = b"2"
        # Created too late: the transaction reads a state without it.
        tx["c"][b"k"] = b"2"

    @member.transaction
    def create(tx):
        tx["a"][b"k"] = b"3"
        tx["d"][b"k"] = b"3"

    create()
    assert member["a"][b"k"] == b"3" and member["b"][b"k"] == b"1" and not member["c"]


def test_snapshot_has_one_state(pair):
    owner, member = pair
    owner["t"].update({b"a": b"1", b"b": b"2"})
    with member.snapshot() as snapshot:
        owner["t"].clear()
        view = snapshot["t"]
        assert dict(view.items()) == {b"a": b"1", b"b": b"2"} and list(view) == [b"a", b"b"]
        assert view.get_with_expiry(b"a") == (b"1", None) and snapshot.sequence > 0
        with pytest.raises(braiddb.ReadOnly):
            view[b"a"] = b"2"
        with pytest.raises(braiddb.ReadOnly):
            view.merge(b"a", "add", bytes(8))
    assert not member.snapshot()["t"]


def test_merge_function_in_python(path):
    def longest(key, value, operand):
        return max(value or b"", operand, key=len)

    options = {**OPTIONS, "merge": {"longest": longest}}
    with braiddb.open(path, **options) as owner, braiddb.open(path, **options) as member:
        member["t"].merge(b"a", "longest", b"ant")

        @member.transaction
        def merge(tx):
            tx["t"].merge(b"a", "longest", b"aardvark")

        merge()
        owner["t"].merge(b"a", "longest", b"ape")
        assert owner["t"][b"a"] == b"aardvark"
        member.refresh()
        assert member["t"][b"a"] == b"aardvark"


def test_threads_of_processes_lose_no_increment(pair):
    def work(db):
        tree = db.tree("counters", key=str, value=int)

        @db.transaction
        def increment(tx):
            tx[tree]["n"] = tx[tree].get("n", 0) + 1

        for _ in range(30):
            increment()

    threads = [threading.Thread(target=work, args=(db,)) for db in pair for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pair[0].tree("counters", key=str, value=int)["n"] == 120


def test_exclusive_transaction_excludes_other_processes(pair):
    for number, db in enumerate(pair):
        other, runs = pair[1 - number], []
        db["t"][b"n"] = b"0"

        def write(other=other, runs=runs):
            other["t"][b"n"] = b"other"
            runs.append("other")

        with db.write(exclusive=True) as tx:
            assert tx["t"][b"n"] == b"0"
            thread = threading.Thread(target=write)
            thread.start()
            thread.join(0.3)
            assert thread.is_alive() and other["t"][b"n"] == b"0"
            with pytest.raises(braiddb.NotFound, match="creates no trees"):
                tx["new"]
            tx["t"][b"n"] = b"1"
            runs.append("exclusive")
        thread.join(20)
        assert runs == ["exclusive", "other"]
        with pytest.raises(ZeroDivisionError), db.write(exclusive=True) as tx:
            tx["t"][b"n"] = b"never"
            1 / 0
        other.refresh()
        assert other["t"][b"n"] == b"other"

        @db.transaction(exclusive=True)
        def change(tx):
            tx["t"][b"n"] += b"!"

        change()
        assert db["t"][b"n"] == b"other!"


def test_wait_for_exclusive_transaction_ends_at_the_timeout(pair, path):
    with braiddb.open(path, **{**OPTIONS, "shared_timeout": 0.5}) as impatient:
        tree = impatient["t"]
        for db in pair:
            with db.write(exclusive=True):
                for call in (lambda: tree.put(b"a", b"1"), lambda: impatient.write(exclusive=True)):
                    with pytest.raises(braiddb.ExclusiveOpen):
                        call()
            tree[b"a"] = b"1"


def test_multi_tree_of_member_is_that_of_owner(pair):
    for number, db in enumerate(pair):
        tree, other = db.multi("m"), pair[1 - number]
        tree.add(b"a", b"1")
        tree.add_many([(b"a", b"2"), (b"b", b"3"), (b"c", b"4")])
        with db.write() as tx:
            of_tx = tx[tree]
            of_tx.add(b"a", b"0")
            of_tx.discard(b"a", b"2")
            assert of_tx[b"a"] == [b"0", b"1"] and list(of_tx.items(prefix=b"b")) == [(b"b", b"3")]
        other.refresh()
        found = other.multi("m", create=False)
        assert found[b"a"] == [b"0", b"1"] and len(found) == 4 and b"a" in found
        assert list(found) == list(tree) and tree.count(start=b"b") == 2
        snapshot = db.snapshot()
        assert found.pop_first() == (b"a", b"0") and found.pop_last() == (b"c", b"4")
        found.discard(b"a", b"1")
        found.delete(b"b")
        assert not found and len(snapshot[tree]) == 4
        with pytest.raises(braiddb.ReadOnly):
            snapshot[tree].add(b"x", b"y")
        tree.add(b"x", b"y")
        tree.clear()
        other.refresh()
        assert not found
        with db.write() as tx:
            tx.multi("new of the owner" if db.is_owner else "new of a member").add(b"k", b"v")
    with pytest.raises(braiddb.InvalidArgument), pair[0].write() as tx:
        tx[pair[1].multi("m")]


def test_streams_of_member_are_those_of_owner(pair):
    data = os.urandom(3_000_000)
    for number, db in enumerate(pair):
        tree, other = db["t"], pair[1 - number]
        for size in (0, 100, 3_000_000):
            tree.put_stream(b"a", io.BytesIO(data[:size]))
            with tree.open_stream(b"b", "wb") as file:
                for at in range(0, size, 70_000):
                    file.write(data[at : min(at + 70_000, size)])
            other.refresh()
            for key in (b"a", b"b"):
                with other["t"].open_stream(key) as file:
                    assert file.read() == data[:size]
        with db.write(exclusive=bool(number)) as tx:
            tx["t"].put_stream(b"c", io.BytesIO(data))
            with tx["t"].open_stream(b"c") as file:
                file.seek(-5, 2)
                assert file.read() == data[-5:]
            assert b"c" not in other["t"]
        with pytest.raises(ZeroDivisionError), tree.open_stream(b"c", "wb") as file:
            file.write(data[:2_000_000])
            1 / 0

        class Broken:
            def read(self, size):
                raise OSError("broken")

        with pytest.raises(OSError, match="broken"):
            tree.put_stream(b"c", Broken())
        other.refresh()
        with db.snapshot() as snapshot, snapshot["t"].open_stream(b"c") as file:
            assert file.read() == other["t"][b"c"] == data
        tree.clear()
        other.refresh()


def test_calls_that_a_shared_database_lacks(pair, tmp_path):
    owner, member = pair
    tree = member["t"]
    tree[b"a"] = b"1"
    calls = [
        lambda: member.watch(),
        lambda: member.watch(member.multi("m")),
        lambda: member.aio,
        lambda: member.rename("t", "u"),
        lambda: member.__delitem__("t"),
        lambda: member.revoke_exclusive(),
        lambda: tree.put_stream(b"a", io.BytesIO(b"x"), append=True),
        lambda: tree.len_estimate(),
        lambda: tree.put_async(b"a", b"1"),
        lambda: member.compact(),
        lambda: member.backup(tmp_path / "backup"),
    ]
    for call in calls:
        with pytest.raises(braiddb.Unsupported, match="shared"):
            call()
    owner.flush()
    owner.compact()
    owner.backup(tmp_path / "backup")
    assert owner.verify()["is_sound"]
    with pytest.raises(braiddb.InvalidArgument), owner.write() as tx:
        tx[tree]
    with pytest.raises(braiddb.InvalidArgument):
        braiddb.open(tmp_path / "other", shared_timeout=1)
    with pytest.raises(braiddb.InvalidArgument):
        braiddb.open(tmp_path / "other", shared=True, read_only=True)


def test_database_open_in_another_way_has_no_owner(db, path):
    with pytest.raises(braiddb.NoOwner):
        braiddb.open(path, shared=True, shared_timeout=0.2)


def test_closed_database_refuses_calls_and_hands_over(pair):
    owner, member = pair
    tree, of_member = owner["t"], member["t"]
    tree[b"a"] = b"1"
    owner.close()
    assert owner.closed
    with pytest.raises(braiddb.Closed):
        tree[b"a"]
    of_member[b"b"] = b"2"
    assert member.is_owner and dict(of_member.items()) == {b"a": b"1", b"b": b"2"}


WRITER = """
    import braiddb, sys, time
    path, name, count = sys.argv[1:]
    db = braiddb.open(path, shared=True, shared_timeout=30, durability="buffered")
    tree, sums = db["t"], db.tree("sums", key=str, value=int)

    @db.transaction
    def write(tx, i):
        tx[tree][b"%s-%06d" % (name.encode(), i)] = b"x"
        tx[sums]["all"] = tx[sums].get("all", 0) + 1

    print("owner" if db.is_owner else "member", flush=True)
    i, left = 0, int(count)
    while left > 0:
        write(i)
        print(i, flush=True)
        i += 1
        # Only writes of an owner count, so a member ends after it took over.
        left -= db.is_owner
    print("owner" if db.is_owner else "member", flush=True)
"""


def test_member_takes_over_from_a_killed_owner(path):
    owner = start(WRITER, path, "owner", 10**9)
    assert owner.stdout.readline() == "owner\n"
    member = start(WRITER, path, "member", 50)
    assert member.stdout.readline() == "member\n"
    for process in (owner, member):
        while int(process.stdout.readline()) < 20:
            pass
    owner.kill()
    # Lines that the kill cut off have no end.
    lines = owner.stdout.read().splitlines(keepends=True)
    assert owner.wait(timeout=60) == -signal.SIGKILL
    acknowledged = max([20, *(int(line) for line in lines if line.endswith("\n"))])
    *_, last, role = member.stdout.read().split()
    assert member.wait(timeout=60) == 0 and role == "owner"
    with braiddb.open(path) as db:
        tree = db["t"]
        of_owner = tree.count(prefix=b"owner")
        # Its last calls may lack their lines.
        assert acknowledged < of_owner <= acknowledged + 3
        of_member = int(last) + 1
        assert tree.count(prefix=b"member") == of_member
        assert db.tree("sums", key=str, value=int)["all"] == of_owner + of_member
        assert db.verify()["is_sound"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_child_of_fork_gets_an_error(pair):
    tree = pair[1]["t"]
    tree[b"a"] = b"1"
    child = os.fork()
    if child == 0:
        code = 1
        try:
            tree[b"a"]
        except braiddb.Forked:
            code = 0
        os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    tree[b"b"] = b"2"
    assert pair[0]["t"][b"b"] == b"2"
