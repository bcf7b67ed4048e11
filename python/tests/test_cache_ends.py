"""Ends of ranges and noted uses of the cache: they stay right whatever is removed and put."""

import gc
import io
import os
import pickle
import signal
import threading
import time
from unittest import mock

import braiddb
import pytest


@pytest.fixture
def cache(path):
    with braiddb.Cache(path, use_interval=0) as cache:
        yield cache
        assert cache.check() == []


def fill(cache, keys, size=1000):
    for key in keys:
        cache[key] = b"x" * size


class Starts:
    """Records where scans of a tree begin and end."""

    def __init__(self, name):
        self.found = []
        keys = braiddb.Tree.keys

        def record(tree, *, start=None, stop=None, **options):
            if tree.name == name:
                self.found.append((start, stop))
            return keys(tree, start=start, stop=stop, **options)

        self.patch = mock.patch.object(braiddb.Tree, "keys", record)

    def __enter__(self):
        self.patch.start()
        return self.found

    def __exit__(self, *args):
        self.patch.stop()


def test_evictions_begin_behind_the_evicted(cache):
    # Each eviction passed the tombstones of all earlier ones.
    cache.reset("cull_limit", 2)
    fill(cache, range(20))
    cache.reset("size_limit", cache.volume())
    order = cache._open()["cache.order"]
    evicted = b""
    for key in range(20, 30):
        first = order.first()[0]
        with Starts("cache.order") as starts:
            cache[key] = b"x" * 1000
        # Two rows are evicted, and the first of them is passed once more.
        if first != order.first()[0]:
            assert starts[0][0] >= evicted
            evicted = first
    assert evicted
    assert list(cache)[-1] == 29 and len(cache) <= 20


def test_expiry_begins_behind_the_expired(cache):
    cache.reset("cull_limit", 5)
    for key in range(20):
        cache.set(key, 1, expire=-1)
    with Starts("cache.expiry") as starts:
        for key in range(20, 25):
            cache.set(key, 1, expire=100)
    assert len(cache) == 5 and len(starts) == 5
    first = cache._open()["cache.expiry"].first()[0]
    cache[25] = 1
    with Starts("cache.expiry") as starts:
        cache[26] = 1
    assert [start for start, _ in starts] == [first]
    # An earlier expiry is before the bound.
    cache.reset("cull_limit", 0)
    cache.set(27, 1, expire=-1)
    assert cache.expire() == 1 and cache.expire() == 0


@pytest.mark.parametrize("prefix", [None, "q"])
@pytest.mark.parametrize("side", ["front", "back"])
def test_pulls_begin_behind_the_pulled(cache, prefix, side):
    keys = [cache.push(i, prefix) for i in range(30)]
    pulled = keys if side == "front" else keys[::-1]
    for i in range(10):
        assert cache.pull(prefix, side=side)[0] == pulled[i]
    with Starts("cache.entries") as bounds:
        assert cache.pull(prefix, side=side)[0] == pulled[10]
    end = cache._coder.key(pulled[9]).at
    at_front = side == "front"
    assert bounds and all(a >= end if at_front else b <= end + b"\0" for a, b in bounds)
    with Starts("cache.entries") as bounds:
        for i in range(11, 30):
            assert cache.peek(prefix, side=side)[0] == cache.pull(prefix, side=side)[0] == pulled[i]
        assert cache.pull(prefix) == cache.peek(prefix, side="back") == (None, None)
    assert len(set(bounds)) > 15


def test_queue_finds_what_is_put_outside_its_bounds(cache):
    def drain(prefix):
        return iter(lambda: cache.pull(prefix)[1], None)

    for prefix in (None, "q"):
        key = (lambda n: n) if prefix is None else (lambda n: f"q-{n:015d}")
        for i in range(5):
            cache.push(i, prefix)
        assert list(drain(prefix)) == [0, 1, 2, 3, 4]
        cache[key(5)], cache[key(999_999_999_999_998)] = "low", "high"
        assert cache.peek(prefix)[1] == "low" and cache.peek(prefix, side="back")[1] == "high"
        assert list(drain(prefix)) == ["low", "high"]
        cache.push("a", prefix), cache.push("b", prefix, side="front")
        assert list(drain(prefix)) == ["b", "a"]
        # Not of the queue.
        cache[10**16], cache["q-00000000000000x"], cache["q-1"] = 1, 1, 1
        assert cache.pull(prefix) == (None, None)


def test_rollback_restores_ends(cache):
    cache.reset("cull_limit", 0)
    for i in range(5):
        cache.push(i, "q", expire=100, tag="t")
    cache.set("old", 1, expire=-1)
    with pytest.raises(ZeroDivisionError), cache.transact():
        assert cache.pull("q")[1] == 0 and cache.pull("q")[1] == 1
        assert cache.evict("t") == 3 and cache.expire() == 1 and cache.pull("q") == (None, None)
        1 / 0
    assert cache.peek("q")[1] == 0 and cache.pull("q")[1] == 0
    assert cache.evict("t") == 4 and cache.expire() == 1


def test_ends_are_read_again_after_another_process_wrote(path):
    with braiddb.Cache(path) as cache:
        cache.push(1, "q")
        assert cache.pull("q")[1] == 1 and cache.pull("q") == (None, None)
        cache.close()
        with braiddb.open(path) as db:
            braiddb.Cache(db)["q-000000000000007"] = 7
        assert cache.pull("q")[1] == 7


def test_changed_policy_and_mended_rows_are_found(db):
    cache = braiddb.Cache(db, eviction_policy="least-frequently-used", use_interval=0)
    fill(cache, range(20))
    assert all(cache[key] for key in range(10))
    cache.reset("size_limit", 12_000)
    cache.cull()
    assert sorted(cache) == list(range(10)) + [19]
    # Its number of uses is below those that the bound begins with.
    cache.reset("cull_limit", 0)
    assert cache[19]
    cache.reset("size_limit", 11_000)
    cache.cull()
    cache["new"] = b"x"
    cache.reset("size_limit", cache.volume() - 1)
    cache.cull()
    assert "new" not in cache
    cache.reset("eviction_policy", "least-recently-stored")
    db["cache.order"].clear()
    cache.reset("size_limit", 6000)
    assert cache.cull() == 0 and cache.check(fix=True)
    assert cache.cull() > 0 and cache.volume() <= 6000
    # Numbers of uses are below all times.
    cache.reset("eviction_policy", "least-frequently-used")
    cache.reset("size_limit", 2000)
    assert cache.cull() > 0 and cache.volume() <= 2000 and cache.check() == []


def test_cull_keeps_entries_that_were_just_used(path):
    # It stored 100 of the noted uses and evicted by the old times of the others.
    with braiddb.Cache(path, eviction_policy="least-recently-used", use_interval=0) as cache:
        fill(cache, range(300), 4000)
        assert all(cache[key] for key in range(250))
        cache.reset("size_limit", 200_000)
        assert cache.cull() > 200
        left = list(cache)
        assert left == list(range(250 - len(left), 250)) and cache.check() == []


def test_cull_counts_all_uses(path):
    settings = {"eviction_policy": "least-frequently-used", "use_interval": 0}
    with braiddb.Cache(path, **settings) as cache:
        fill(cache, range(200), 4000)
        assert all(cache[key] for _ in range(3) for key in range(100, 200))
        cache.close()
        # More bytes than one transaction rewrites for uses.
        assert all(cache[key] for key in range(100))
        cache.reset("size_limit", cache.volume() // 2 + 2000)
        assert cache.cull() == 100 and list(cache) == list(range(100, 200))


def test_write_evicts_no_entry_with_a_noted_use(path):
    settings = {"eviction_policy": "least-recently-used", "use_interval": 0, "cull_limit": 10}
    with braiddb.Cache(path, **settings) as cache:
        fill(cache, range(100))
        assert all(cache[key] for key in range(50))
        cache.reset("size_limit", cache.volume() - 20_000)
        cache["new"] = 1
        assert all(key in cache for key in range(50)) and len(cache) == 91


def test_used_entry_that_is_too_large_to_move_stays(path):
    settings = {"eviction_policy": "least-recently-used", "use_interval": 0}
    with braiddb.Cache(path, disk_min_file_size=1 << 20, **settings) as cache:
        fill(cache, range(6), 300_000)
        assert cache[0] and cache[1]
        cache.reset("size_limit", 1_000_000)
        cache["new"] = 1
        assert list(cache) == [0, 1, "new"] and cache._notes.use_count() == 2
        cache.cull()
        assert cache._notes.use_count() == 0 and cache.check() == []


def test_uses_of_other_keys_make_no_write_too_large(path):
    # A write of a full cache rewrote every entry that was used.
    settings = {"eviction_policy": "least-recently-used", "use_interval": 0, "memory": 16 << 20}
    with braiddb.Cache(path, **settings) as cache:
        fill(cache, range(600), 32_000)
        cache.reset("size_limit", cache.volume())
        assert all(cache[key] for key in range(600))
        for key in range(600, 620):
            cache[key] = b"x" * 32_000
        with cache.transact():
            assert all(cache[key] for key in range(500, 600))
            cache["new"] = 1
        cache.reset("size_limit", 1_000_000)
        cache.cull()
        assert cache.volume() <= 1_000_000 and cache.check() == []


def test_rolled_back_uses_are_noted_again(path):
    settings = {"eviction_policy": "least-recently-used", "use_interval": 0}
    with braiddb.Cache(path, **settings) as cache:
        fill(cache, range(20))
        assert all(cache[key] for key in range(20))
        cache.reset("size_limit", 10_000)
        with pytest.raises(ZeroDivisionError), cache.transact():
            cache["new"] = 1
            assert cache._notes.use_count() < 20
            1 / 0
        assert cache._notes.use_count() == 20
        with mock.patch.object(cache, "_notes", wraps=cache._notes):
            cache.cull()
        assert cache.check() == []


def test_large_bytes_are_streams(path):
    with braiddb.Cache(path, memory=16 << 20) as cache:
        large = os.urandom(1 << 20) * 48
        cache["a"] = large
        with cache.transact():
            cache.set("b", io.BytesIO(large), read=True)
            cache["c"] = large
        assert cache["a"] == cache["b"] == cache["c"] == large and cache.check() == []


def test_dropped_caches_release_the_database(path):
    dropped = braiddb.Cache(path)
    cache = braiddb.Cache(path)
    copy = pickle.loads(pickle.dumps(cache))
    with pytest.raises(braiddb.InvalidArgument) as raised:
        braiddb.Cache(path, cull_limit=-1)
    del dropped, copy
    gc.collect()
    cache["a"] = 1
    cache.close()
    with braiddb.open(path) as db:
        assert len(db["cache.entries"]) == 1
    assert raised.value
    cache["b"] = 2
    del cache, raised
    gc.collect()
    with braiddb.open(path) as db:
        assert len(db["cache.entries"]) == 2


def test_constructor_that_fails_releases_the_database(path):
    with pytest.raises(braiddb.InvalidArgument) as raised:
        braiddb.Cache(path, cull_limit=-1)
    with braiddb.open(path):
        assert raised.value


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_child_of_fork_waits_for_no_lock(path):
    with braiddb.Cache(path, statistics=True) as cache:
        cache["a"], held, done = 1, threading.Event(), threading.Event()

        def hold():
            with cache.transact():
                held.set()
                done.wait(60)

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait(60)
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            calls = [
                lambda: cache.set("a", 2, retry=True),
                lambda: cache["a"],
                lambda: cache.pull(retry=True),
                lambda: cache.stats(),
                lambda: cache.close(),
                lambda: cache.check(retry=True),
            ]
            failed = []
            for number, call in enumerate(calls):
                try:
                    call()
                    failed.append(number)
                except braiddb.Forked:
                    pass
            os._exit(len(failed))
        done.set()
        thread.join()
        assert os.waitpid(child, 0)[1] == 0
        assert cache["a"] == 1


def test_settings_that_are_whole_numbers(cache):
    assert cache.reset("cull_limit", 10.0) == 10 and type(cache.cull_limit) is int
    cache.reset("size_limit", 0.5)
    cache["a"], cache["b"] = 1, 2
    assert len(cache) == 1
    for key, value in (("cull_limit", 1.5), ("size_limit", float("nan")), ("cull_limit", 1e400)):
        with pytest.raises(braiddb.InvalidArgument):
            cache.reset(key, value)
    cache.reset("cull_limit", 0)
    cache.set("old", 1, expire=-float("inf"))
    assert cache.expire(now=-1) == 0 and cache.expire(now=time.time()) == 1
    cache.set("new", 1, expire=float("inf"))
    assert "new" in cache and cache.expire(now=1e300) == 0


def test_memoize_takes_lists_and_dicts(cache):
    calls = []

    @cache.memoize()
    def f(*args, **kwargs):
        calls.append((args, kwargs))
        return len(calls)

    assert f([1, "a"], rows={"b": 1, "a": [None]}) == 1
    assert f([1.0, "a"], rows={"a": [None], "b": True}) == 1
    assert f([1, "a"], rows={"b": 1}) == 2 and f('[1,"a"]', rows={"b": 1}) == 3
    assert f((1, "a")) == 4 and f([1, "a"]) == 5 and f('{"b":1}') == 6 and f({"b": 1}) == 7
    assert f.__cache_key__([1, "a"]) in cache
    for args, kwargs, name in (((1, {2}), {}, "number 1"), ((), {"x": object()}, "x")):
        with pytest.raises(TypeError, match=f"argument {name} of .*f: "):
            f(*args, **kwargs)

    @cache.memoize(typed=True)
    def g(value):
        calls.append(value)
        return len(calls)

    calls.clear()
    assert g([1]) == 1 and g([1.0]) == 2 and g([1]) == 1
