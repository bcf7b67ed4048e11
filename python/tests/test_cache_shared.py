"""A cache that several processes have open."""

import io
import os
import signal
import threading
import time
from multiprocessing import get_context

import braiddb
import pytest
from braiddb._cache_ends import Ends
from test_process import finish, start

pytestmark = pytest.mark.skipif(os.name != "posix", reason="POSIX only")

OPTIONS = {"shared": True, "shared_timeout": 20, "durability": "buffered", "memory": 16 << 20}


@pytest.fixture
def pair(path):
    """Return the caches of an owner and a member, which act as those of two processes."""
    with braiddb.open(path, **OPTIONS) as owner, braiddb.open(path, **OPTIONS) as member:
        caches = braiddb.Cache(owner, use_interval=0), braiddb.Cache(member, use_interval=0)
        yield caches
        for cache in caches:
            assert cache.check() == []


def refreshed(cache):
    """Return the cache when its reads see all commits of other processes."""
    cache._borrowed.refresh()
    return cache


def test_cache_of_member_is_that_of_owner(pair):
    for number, cache in enumerate(pair):
        other = pair[1 - number]
        assert cache.set("a", "1") and not cache.add("a", "2") and cache.add("b", "2")
        assert refreshed(other)["a"] == "1" and other.pop("b") == "2"
        assert refreshed(cache).get("b") is None
        assert cache.incr("n") == 1 and other.incr("n", 5) == 6 and cache.decr("n") == 5
        cache.set("t", "x", expire=100, tag="red")
        assert other.touch("t", 0.01)
        time.sleep(0.02)
        assert cache.get("t") is None and other.expire() == 1
        for key in range(250):
            cache.set(key, key, tag="odd" if key % 2 else "even")
        assert other.evict("odd") == 125 and len(refreshed(cache)) == 127
        assert list(refreshed(other))[-3:] == [244, 246, 248] and list(cache.iterkeys())[0] == "a"
        assert other.delete(0) and not cache.delete(0)
        calls = []

        def double(x, calls=calls):
            calls.append(x)
            return 2 * x

        of_cache = cache.memoize(name="double")(double)
        of_other = other.memoize(name="double")(double)
        assert of_cache(4) == of_cache(4) == 8 and len(calls) == 1
        refreshed(other)
        assert of_other(4) == 8 and len(calls) == 1
        with cache.transact():
            cache["a"], cache["large"] = "2", b"x" * 3_000_000
            assert cache["a"] == "2" and len(cache["large"]) == 3_000_000
            assert other["a"] == "1" and "large" not in other
        assert refreshed(other)["a"] == "2" and other["large"] == b"x" * 3_000_000
        with pytest.raises(ZeroDivisionError), other.transact():
            del other["large"]
            other.set("a", io.BytesIO(b"y" * 2_000_000), read=True)
            assert other["a"] == b"y" * 2_000_000
            1 / 0
        assert refreshed(cache)["a"] == "2" and cache.read("large").read(4) == b"xxxx"
        assert cache.volume() > 3_000_000
        held = len(cache)
        assert held > 120 and cache.clear() == held
        assert len(refreshed(other)) == 0 and other.volume() == 0


def test_file_objects_of_all_sizes(pair):
    for number, cache in enumerate(pair):
        for size in (0, 10, 40_000, 1_500_000, 5_000_000):
            data = os.urandom(size)
            assert cache.set("file", io.BytesIO(data), read=True)
            assert refreshed(pair[1 - number]).read("file").read() == data
            assert not cache.add("file", io.BytesIO(b"never"), read=True)
            assert cache["file"] == data
        with pytest.raises(TypeError):
            cache.set("file", io.StringIO("text"), read=True)
        assert cache.pop("file") == data


def test_queue_of_processes(pair):
    owner, member = pair
    for number in range(300):
        (owner, member)[number % 2].push(b"%d" % number)
        (owner, member)[number % 3 % 2].push(b"x", prefix="q")
    assert member.peek()[1] == b"0" and owner.peek(prefix="q")[1] == b"x"
    for number in range(150):
        assert member.pull()[1] == b"%d" % (2 * number)
        assert owner.pull()[1] == b"%d" % (2 * number + 1)
    assert owner.pull() == member.pull() == (None, None)
    ends = Ends.read(member._borrowed["cache.meta"][b"ends"])
    assert ends.get(("entries", b""))[0] > b""
    # Before the end that the other one has stored.
    first = owner.push(b"front", side="front")
    assert member.push(b"back") == first + 1
    assert refreshed(member).peek() == (first, b"front") and member.pull() == (first, b"front")
    assert refreshed(owner).peekitem()[1] == b"back" and owner.pull()[1] == b"back"


def test_stored_ends_hold_in_one_process_too(path):
    # An end that a cache of one process passed was stored, and entries before it were lost.
    def push(cache, side):
        with cache:
            return cache.push(b"v", side=side)

    for side, far in (("front", "back"), ("back", "front")):
        with braiddb.Cache(path, **OPTIONS) as shared:
            for _ in range(3):
                shared.push(b"v", side=side)
            assert [shared.pull(side=side)[1] for _ in range(4)] == [b"v"] * 3 + [None]
        key = push(braiddb.Cache(path), side)
        with braiddb.Cache(path, **OPTIONS) as shared:
            assert shared.pull(side=far)[0] == key and shared.pull() == (None, None)
            assert shared.check() == []


def test_ends_are_stored_and_few():
    ends = Ends()
    for number in range(300):
        ends.narrow(("tags", b"%03d" % number), (b"a" * 20, b"b"))
    ends.narrow(("order", b""), (b"x", b"y"))
    data = ends.pack()
    read = Ends.read(data)
    assert len(data) <= 4096 and read.pack() == data
    assert read.get(("order", b"")) == (b"x", b"y") and read.get(("tags", b"299"))[1] == b"b"
    assert read.get(("tags", b"000")) is None and Ends.read(None).pack() == b""


def test_policy_changes_and_damage_is_mended(pair):
    owner, member = pair
    for key in range(2000):
        owner.set(key, key)
    is_over = threading.Event()

    def store():
        key = 10_000
        while not is_over.is_set():
            owner.set(key, key)
            key += 1

    thread = threading.Thread(target=store)
    thread.start()
    member.reset("eviction_policy", "least-recently-used")
    is_over.set()
    thread.join()
    assert member.check() == []
    for key in range(100):
        refreshed(owner).get(key)
    owner.reset("eviction_policy")
    assert owner.eviction_policy == "least-recently-used"
    member.reset("size_limit", member.volume() // 2)
    assert member.cull() > 900
    db = member._borrowed
    del db["cache.rows"][next(iter(db["cache.rows"]))]
    db["cache.large"][b"0" * 16] = b"lost"
    assert len(refreshed(owner).check()) == 2
    assert len(owner.check(fix=True)) == 2 and refreshed(member).check() == []


HOLDER = """
    import braiddb, sys
    cache = braiddb.Cache(sys.argv[1], shared=True)
    if len(sys.argv) > 2:
        print("open", flush=True)
        sys.stdin.readline()
    with cache.transact():
        for key in range(200):
            cache[key] = b"new" * (500_000 if key % 50 == 0 else 1)
        print("written", flush=True)
        sys.stdin.readline()
    cache.close()
    print("ended", flush=True)
"""


@pytest.mark.parametrize("is_owner", [True, False])
def test_writes_wait_for_transact_of_another_process(path, is_owner):
    if not is_owner:
        cache = braiddb.Cache(path, timeout=0.7, shared=True)
    holder = start(HOLDER, path, "wait", stdin=-1)
    assert holder.stdout.readline() == "open\n"
    if is_owner:
        cache = braiddb.Cache(path, timeout=0.7, shared=True)
    with cache:
        assert cache._opened.db.is_owner is not is_owner
        cache[1] = "old"
        holder.stdin.write("\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == "written\n"
        calls = [
            lambda: cache.set(1, "mine"),
            lambda: cache.__setitem__(1, "mine"),
            lambda: cache.set(1, io.BytesIO(b"mine" * 1_000_000), read=True),
            lambda: cache.set(1, b"mine" * 1_000_000),
            lambda: cache.incr("n"),
            lambda: cache.pop(1),
            lambda: cache.push("x"),
            lambda: cache.transact().__enter__(),
            lambda: cache.evict("tag"),
        ]
        for call in calls:
            began = time.monotonic()
            with pytest.raises(braiddb.Timeout):
                call()
            assert 0.5 < time.monotonic() - began < 5
            began = time.monotonic()
            assert cache[1] == "old" and len(cache) == 1 and 1 in cache and list(cache) == [1]
            assert time.monotonic() - began < 5
        threading.Timer(1.5, lambda: (holder.stdin.write("\n"), holder.stdin.flush())).start()
        assert cache.set("after", "mine", retry=True)
        assert cache[0] == b"new" * 500_000 and cache["after"] == "mine" and len(cache) == 201
        assert finish(holder) == (0, "ended\n")
        assert cache.check() == []


@pytest.mark.parametrize("is_owner", [True, False])
def test_kill_within_transact_loses_nothing(path, is_owner):
    with braiddb.Cache(path, timeout=30, shared=True) as cache:
        values = {key: os.urandom(1_200_000 if key % 50 == 0 else 30) for key in range(200)}
        for key, value in values.items():
            cache.set(key, value, tag="t")
        if is_owner:
            cache.close()
        holder = start(HOLDER, path, stdin=-1)
        assert holder.stdout.readline() == "written\n"
        holder.kill()
        assert holder.wait(timeout=60) == -signal.SIGKILL
        holder.stdin.close()
        cache["next"] = "x"
        assert len(cache) == 201 and all(cache[key] == value for key, value in values.items())
        assert cache.check() == [] and cache.evict("t") == 200


def count(path, number, size_limit):
    with braiddb.Cache(path, shared=True, size_limit=size_limit, timeout=30) as cache:
        for i in range(100):
            cache.incr("n")
            cache.set(f"{number}/{i}", os.urandom(1000 if i % 10 else 50_000), tag=number)
            assert cache.get(f"{number}/{i}") is not None or cache.volume() >= size_limit - 51_000
            with cache.transact():
                cache["sum"] = cache.get("sum", 0) + 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_lose_no_increment_and_evict_by_size(path, method):
    context = get_context(method)
    limit = 600_000
    crew = [context.Process(target=count, args=(path, number, limit)) for number in range(4)]
    for process in crew:
        process.start()
    for process in crew:
        process.join(120)
        assert process.exitcode == 0
    with braiddb.Cache(path, shared=True, eviction_policy="least-recently-stored") as cache:
        assert cache._opened.db.is_owner and cache.check() == []
        assert limit - 120_000 < cache.volume() < limit + 60_000
        found = [cache.get("n"), cache.get("sum")]
        # They are stored again all the time.
        assert found == [400, 400]


KILLED = """
    import braiddb, sys
    cache = braiddb.Cache(sys.argv[1], shared=True, timeout=30)
    print("open", flush=True)
    while True:
        value = cache.incr(sys.argv[2])
        cache.set(("large", sys.argv[2]), str(value) * 400_000)
        print(value, flush=True)
"""


def test_owners_are_killed_and_no_acknowledged_increment_is_lost(path):
    crew = [start(KILLED, path, f"n{number}") for number in range(3)]
    for process in crew:
        assert process.stdout.readline() == "open\n"
    with braiddb.Cache(path, shared=True, timeout=30) as cache:
        for number, process in enumerate(crew):
            while int(process.stdout.readline()) < 5:
                pass
            process.kill()
            lines = process.stdout.read().splitlines(keepends=True)
            process.wait()
            # A line that the kill cut off has no end.
            last = max([5, *(int(line) for line in lines if line.endswith("\n"))])
            refreshed_value = cache.incr(f"n{number}", 0)
            assert last <= refreshed_value <= last + 1
            large = cache.get(("large", f"n{number}"))
            assert large in (str(last) * 400_000, str(last + 1) * 400_000)
        assert cache._opened.db.is_owner and cache.check() == []
        assert cache.incr("own") == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_child_of_fork_opens_its_own(path):
    with braiddb.Cache(path, shared=True) as cache:
        cache["a"] = 1
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with pytest.raises(braiddb.Forked):
                    cache["a"]
                with braiddb.Cache(path, shared=True, timeout=20) as own:
                    code = 0 if own["a"] == 1 and own.incr("a") == 2 else 2
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert cache.incr("a") == 3


def test_cache_that_one_process_has_alone_is_not_shared(path):
    code = "import braiddb, sys; braiddb.Cache(sys.argv[1], shared=True, shared_timeout=0.5)"
    with braiddb.Cache(path):
        returned, output = finish(start(code, path))
        assert returned == 1 and "NoOwner" in output
        with pytest.raises(braiddb.InvalidArgument, match="other options"):
            braiddb.Cache(path, shared=True)
    with braiddb.Cache(path, shared=True):
        assert finish(start(code, path)) == (0, "")
