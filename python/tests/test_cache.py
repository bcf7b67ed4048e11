"""The cache."""

import io
import pickle
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from unittest import mock

import braiddb
import pytest


@pytest.fixture
def cache(path):
    with braiddb.Cache(path, use_interval=0) as cache:
        yield cache
        assert cache.check() == []


def test_values_keep_their_type(cache):
    values = [b"\x00", "é", 5, 1 << 70, -(1 << 20_000), 2.5, float("inf"), None, True, "", b""]
    values += [[1, "a", None], {"a": {"b": []}}, ()]
    values += [(1, 2.0, ("a", b"", None, False), uuid.UUID(int=5))]
    for number, value in enumerate(values):
        assert cache.set(number, value)
    for number, value in enumerate(values):
        assert cache[number] == value and type(cache[number]) is type(value)
    for value in (([],), {1: 2}, {1, 2}, [float("nan")], object(), bytearray(), [1 << 5000]):
        with pytest.raises(TypeError):
            cache["x"] = value
    assert len(cache) == len(values) and "x" not in cache
    keys = [None, b"k", "k", 1.5, ("a", (1, b"c")), (), ["a"], {"b": 1, "a": 2}, "k" * 100_000]
    for key in keys:
        cache[key] = "v"
        assert key in cache and cache[key] == "v"
    assert list(cache)[len(values) :] == keys
    assert cache[{"a": 2, "b": 1}] == "v" and ["b"] not in cache and "k" * 99_999 not in cache
    with pytest.raises(TypeError):
        cache[object()] = 1
    del cache["k"]
    assert b"k" in cache and "k" not in cache
    with pytest.raises(KeyError):
        del cache["k"]
    with pytest.raises(KeyError):
        cache["k"]


def test_pickle_must_be_asked_for(path):
    with braiddb.Cache(path, pickle=True) as cache:
        cache["a"] = (1, {2})
        assert cache["a"] == (1, {2})
        cache[frozenset("x")] = 1
        assert cache[frozenset("x")] == 1 and list(cache) == ["a", frozenset("x")]
    with braiddb.Cache(path) as cache:
        with pytest.raises(TypeError, match="pickle"):
            cache["a"]
        with pytest.raises(TypeError, match="pickle"):
            list(cache)


def test_reads_and_writes_of_diskcache(cache):
    assert cache.get("a", 7) == 7 and cache.get("a") is None
    assert cache.add("a", 1) and not cache.add("a", 2) and cache["a"] == 1
    assert cache.incr("n") == 1 and cache.incr("n", 5) == 6 and cache.decr("n") == 5
    with pytest.raises(KeyError):
        cache.incr("none", default=None)
    cache["text"], cache["flag"] = "x", True
    for key in ("text", "flag"):
        with pytest.raises(TypeError):
            cache.incr(key)
    assert cache.pop("text") == "x" and cache.pop("text", 3) == 3
    assert cache.delete("n") and not cache.delete("n")
    cache.set("t", 1, expire=100, tag="red")
    value, expires, tag = cache.get("t", expire_time=True, tag=True)
    assert value == 1 and 90 < expires - time.time() < 110 and tag == "red"
    assert cache.get("t", tag=True) == (1, "red")
    assert cache.touch("t") and cache.get("t", expire_time=True) == (1, None)
    assert cache.get("t", tag=True) == (1, "red") and not cache.touch("no")
    assert cache.pop("t", expire_time=True, tag=True) == (1, None, "red")
    assert cache.pop("t", expire_time=True, tag=True) == (None, None, None)
    assert cache.incr("f", 1.5) == 1.5 and cache.decr("f", 1) == 0.5


def test_expired_entries_are_absent_and_removed(cache):
    cache.reset("cull_limit", 0)
    cache.set("a", 1, expire=0)
    cache.set("b", 1, expire=-5)
    cache.set("c", 1, expire=100)
    time.sleep(0.001)
    assert "a" not in cache and cache.get("b") is None and not cache.delete("a")
    assert list(cache) == ["a", "b", "c"] and len(cache) == 3
    assert cache.add("b", 2) and cache["b"] == 2
    assert cache.expire() == 1 and len(cache) == 2
    assert cache.expire(now=time.time() + 101) == 1 and list(cache) == ["b"]
    cache.set("d", 1, expire=0)
    time.sleep(0.001)
    assert cache.incr("d") == 1 and cache.get("d", expire_time=True) == (1, None)


def test_tags_are_evicted(cache):
    for i in range(200):
        cache.set(i, i, tag="odd" if i % 2 else 0)
    cache.set(1, "other", tag=None)
    assert cache.evict("odd") == 99 and cache.evict("odd") == 0
    assert len(cache) == 101 and cache[1] == "other"
    assert cache.evict(0) == 100 and list(cache) == [1]
    cache.set("a", 1, tag="x"), cache.set("b", 2, tag="x\0y")
    assert cache.evict("x") == 1 and cache.evict("x\0y") == 1
    assert cache.clear() == 1 and len(cache) == 0 and cache.volume() == 0


def fill(cache, keys):
    for key in keys:
        cache[key] = b"x" * 1000


@pytest.mark.parametrize("policy", ["least-recently-used", "least-frequently-used"])
def test_used_entries_are_evicted_last(path, policy):
    settings = {"use_interval": 0, "size_limit": 20_000, "cull_limit": 2}
    with braiddb.Cache(path, eviction_policy=policy, **settings) as cache:
        fill(cache, range(10))
        assert len(cache) == 10
        assert cache[0] and cache[1] and cache[0]
        fill(cache, range(10, 26))
        assert cache.volume() <= 21_000
        assert 0 in cache and 1 in cache and 2 not in cache and 25 in cache
        assert cache.check() == []


def test_policy_changes_with_the_stored_order(path):
    with braiddb.Cache(path, size_limit=20_000) as cache:
        assert cache.eviction_policy == "least-recently-stored"
        fill(cache, range(10))
        cache.reset("use_interval", 0)
        cache.reset("eviction_policy", "least-recently-used")
        assert cache.check() == [] and cache[0]
    del cache  # With what it has in memory.
    with braiddb.Cache(path) as cache:
        assert cache.eviction_policy == "least-recently-used" and cache.size_limit == 20_000
        assert cache.check() == []
        cache.reset("size_limit", 5000)
        assert cache.cull() == 6 and list(cache) == [0, 7, 8, 9]
        with pytest.raises(braiddb.InvalidArgument):
            cache.reset("eviction_policy", "random")
        with pytest.raises(braiddb.InvalidArgument):
            cache.reset("no_setting", 1)
        with pytest.raises(braiddb.InvalidArgument):
            cache.reset("size_limit", -1)
        cache.reset("eviction_policy", "none")
        assert cache.cull() == 0 and cache.check() == [] and not cache._open()["cache.order"]
    with pytest.raises(TypeError, match="sqlite_cache_size"):
        braiddb.Cache(path.with_name("other"), sqlite_cache_size=1)


def test_interrupted_change_of_the_policy_is_completed(path):
    with braiddb.Cache(path) as cache:
        fill(cache, range(2500))
        run, calls = cache._run, []

        def stop(function, *args, **options):
            calls.append(function)
            if len(calls) == 4:
                raise KeyboardInterrupt
            return run(function, *args, **options)

        with mock.patch.object(cache, "_run", stop), pytest.raises(KeyboardInterrupt):
            cache.reset("eviction_policy", "least-recently-used")
        assert 0 < len(cache._open()["cache.order"]) < 2500
        cache["new"] = 1
    with braiddb.Cache(path) as cache:
        assert cache.check() == [] and len(cache._open()["cache.order"]) == 2501


def test_value_just_set_is_not_evicted(path):
    with braiddb.Cache(path, eviction_policy="least-frequently-used", use_interval=0) as cache:
        fill(cache, range(10))
        assert all(cache[key] for key in range(10))
        cache.reset("size_limit", 5000)
        cache["new"] = b"x"
        assert cache["new"] == b"x" and len(cache) == 1


def test_get_writes_nothing_and_waits_for_nobody(path):
    settings = {"eviction_policy": "least-recently-used", "use_interval": 0, "timeout": 0.01}
    with braiddb.Cache(path, statistics=True, **settings) as cache:
        fill(cache, range(3))
        before = cache._open().stats()["commits"]
        with mock.patch.object(cache, "_run", side_effect=braiddb.Conflict):
            assert cache[0] and cache.get("no") is None and 0 in cache
        assert cache._open().stats()["commits"] == before

        def read():
            began = time.monotonic()
            assert cache[0] == b"x" * 1000 and cache.get("new") is None
            assert list(cache) == [0, 1, 2] and len(cache) == 3
            assert cache.peekitem()[0] == 2 and cache.peek("q", default=5) == 5
            assert time.monotonic() - began < 5
            with pytest.raises(braiddb.Timeout):
                cache["new"] = 2
            with pytest.raises(braiddb.Timeout):
                cache.set("new", 2)
            with pytest.raises(braiddb.Timeout):
                del cache[0]
            for call in (cache.expire, cache.cull, lambda: cache.evict("t")):
                with pytest.raises(braiddb.Timeout) as raised:
                    call()
                assert raised.value.args == (0,)

        with cache.transact():
            cache[0], cache["new"] = b"", 1
            assert in_thread(read) is None
        assert cache["new"] == 1 and cache.stats() == (3, 2)


def in_thread(function):
    """Call a function in another thread, and return its exception."""
    found = []

    def call():
        try:
            found.append(function())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join(60)
    assert not thread.is_alive(), "the thread waits for ever"
    return found[0]


def test_writers_evict_together_without_conflicts(path):
    with braiddb.Cache(path, size_limit=50_000, cull_limit=3) as cache:

        def work(number):
            for i in range(100):
                cache.set((number, i), b"x" * 500, expire=0.001 if i % 3 == 0 else None, tag=number)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert cache._open().stats()["transaction_conflicts"] == 0
        assert cache.volume() <= 52_000 and cache.check() == []


def test_statistics_outlive_the_close(path):
    with braiddb.Cache(path, statistics=True) as cache:
        cache["a"] = 1
        assert cache["a"] and cache.get("b") is None
        assert cache.reset("hits") == 1 and cache.reset("misses") == 1
    del cache  # With what it has in memory.
    with braiddb.Cache(path) as cache:
        assert cache["a"] and cache.stats(reset=True) == (2, 1)
        assert cache.stats(enable=False) == (0, 0)
        assert cache["a"] and cache.stats(enable=False) == (0, 0)


def test_large_values_are_stored_apart(cache):
    large = bytes(range(256)) * 1000
    cache["a"] = large
    cache["b"] = large.hex()
    cache["a"] = large[1:]
    assert cache["a"] == large[1:] and cache["b"] == large.hex()
    apart = cache._open()["cache.large"]
    assert len(apart) == 2 and cache.volume() > 3 * len(large) - 1
    cache.touch("a", 100)
    assert cache.get("a", expire_time=True)[0] == large[1:]
    assert cache.pop("b") == large.hex() and len(apart) == 1
    assert cache.clear() == 1 and len(apart) == 0 and cache.volume() == 0


def test_files_are_stored_and_read_in_parts(cache):
    large = bytes(range(256)) * 10_000
    assert cache.set("a", io.BytesIO(large), read=True, tag="t")
    assert cache.add("b", io.BytesIO(b"small"), read=True)
    assert not cache.add("a", io.BytesIO(b"other"), read=True)
    assert len(cache._open()["cache.large"]) == 2
    with cache.read("a") as file:
        file.seek(-5, 2)
        assert file.read() == large[-5:] and "cache.large" in file.name
    assert cache.get("b", read=True).read() == b"small" and cache["a"] == large
    cache["text"], cache["bytes"] = "abc", b"xyz"
    assert cache.read("text") == "abc" and cache.read("bytes").read() == b"xyz"
    with pytest.raises(KeyError):
        cache.read("no")
    with pytest.raises(TypeError):
        cache.set("c", io.StringIO("text"), read=True)
    with cache.transact():
        cache.set("c", io.BytesIO(large), read=True)
        assert cache["c"] == large
    assert cache["c"] == large and cache.check() == []


def test_file_that_uses_the_cache_is_refused_in_a_transaction(cache):
    class File:
        def read(self, size):
            cache["b"] = 1
            return b""

    assert cache.set("a", File(), read=True) and cache["a"] == b"" and cache["b"] == 1
    with pytest.raises(braiddb.InvalidArgument, match="has not returned"):
        with cache.transact():
            cache.set("c", File(), read=True)
    assert "c" not in cache


def test_queues_have_two_ends(cache):
    assert cache.pull() == (None, None) and cache.peek("q", default=None) is None
    first = cache.push("a")
    assert (first, cache.push("b"), cache.push("z", side="front")) == (first, first + 1, first - 1)
    assert cache[first] == "a" and cache.peek() == (first - 1, "z")
    assert cache.pull() == (first - 1, "z") and cache.pull(side="back") == (first + 1, "b")
    assert cache.pull(expire_time=True, tag=True) == ((first, "a"), None, None)
    # Keys of others beside it are no numbers of the queue.
    cache["q-500000000000x"], cache["q-5"], cache[0.5], cache[True] = 1, 2, 3, 4
    key = cache.push(5, "q", expire=100, tag="t")
    assert key == "q-500000000000000" and cache.push(6, "q") == "q-500000000000001"
    assert cache.pull("q", tag=True) == ((key, 5), "t")
    assert cache.pull("q") == ("q-500000000000001", 6) and cache.pull("q") == (None, None)
    assert cache.push(7, expire=-1) == first and cache.peek() == (None, None) and len(cache) == 4
    with pytest.raises(ValueError):
        cache.push(1, side="left")


def test_keys_are_iterated_as_inserted_and_in_order(cache):
    for key in (3, 1, 2):
        cache[key] = 0
    cache[1] = 5
    assert list(cache) == [3, 1, 2] and list(reversed(cache)) == [2, 1, 3]
    assert list(cache.iterkeys()) == [1, 2, 3] and list(cache.iterkeys(reverse=True)) == [3, 2, 1]
    assert cache.peekitem() == (2, 0) and cache.peekitem(last=False) == (3, 0)
    cache.set("x", 1, expire=-1)
    assert cache.peekitem(expire_time=True) == ((2, 0), None) and "x" not in list(cache)
    cache.clear()
    with pytest.raises(KeyError):
        cache.peekitem()


def test_iteration_is_of_a_snapshot(cache):
    for key in range(999):
        cache[key] = key
    cache["k" * 1000] = 999
    loops = [iter(cache), reversed(cache), cache.iterkeys(), cache.iterkeys(reverse=True)]
    firsts = [next(loop) for loop in loops]
    assert firsts[:2] == [0, "k" * 1000] and firsts[2] == 0
    cache.clear()
    cache["new"] = 1
    assert [len(list(loop)) for loop in loops] == [999] * 4
    with cache.transact():
        keys = iter(cache)
        cache["newer"] = 1
        assert list(keys) == ["new"]


def test_transact_is_atomic_and_isolated(cache):
    cache["n"] = 0

    def work():
        for _ in range(20):
            with cache.transact():
                cache["n"] = cache["n"] + 1
                with cache.transact():
                    cache.incr("m")

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache["n"] == 60 == cache["m"]
    with pytest.raises(ZeroDivisionError):
        with cache.transact():
            cache["n"] = 0
            assert cache["n"] == 0
            1 / 0
    assert cache["n"] == 60


def test_transact_makes_others_wait(cache):
    cache["n"], done = 1, threading.Event()

    def other():
        cache["n"] = 10
        done.set()

    thread = threading.Thread(target=other)
    with cache.transact():
        before = cache["n"]
        thread.start()
        assert not done.wait(0.2)
        cache["n"] = before + 1
    thread.join(10)
    assert cache["n"] == 10


def test_caches_of_a_database_share_a_transaction(db):
    cache, other = braiddb.Cache(db, timeout=1), braiddb.Cache(db, timeout=1, name="other")
    with pytest.raises(ZeroDivisionError):
        with cache.transact():
            cache["a"], other["a"] = 1, 2
            assert other["a"] == 2 and len(other) == 1
            1 / 0
    assert "a" not in cache and "a" not in other and len(other) == 0


def test_index_entry_without_value_is_removed(db):
    cache = braiddb.Cache(db, cull_limit=0)
    cache.set("a", 1, tag="t", expire=-1)
    db["cache.entries"].clear()
    assert len(cache.check()) == 6
    assert cache.evict("t") == 0 and cache.expire() == 0 and not db["cache.tags"]


def test_check_mends_what_it_finds(db):
    cache = braiddb.Cache(db, disk_min_file_size=10)
    for i in range(3):
        cache.set(i, b"x" * 20, tag="t", expire=100)
    large = db["cache.large"]
    del large[large.first()[0]]
    large[b"lost"] = b"x"
    db["cache.order"].clear()
    db["cache.tags"][b"extra"] = b""
    db["cache.meta"][b"counters"] = bytes(24)
    problems = cache.check(fix=True)
    assert len(problems) == 9 and cache.check() == []
    assert len(cache) == 2 and cache.evict("t") == 2 and cache.volume() == 0
    cache["new"] = 1
    assert cache.check() == []


def test_lost_value_is_a_miss(db):
    cache = braiddb.Cache(db, disk_min_file_size=10)
    cache["a"] = b"x" * 20
    db["cache.large"].clear()
    assert cache.get("a", 7) == 7 and cache.pop("a", 7) == 7 and cache.check() == []


def test_killed_transaction_loses_no_value(path):
    code = """
        import braiddb, sys
        cache = braiddb.Cache(sys.argv[1])
        cache["large"], cache["small"], cache["gone"] = b"x" * 100_000, 1, b"y" * 100_000
        cache.close()
        cache["n"] = 5
        with cache.transact():
            cache["large"], cache["small"] = b"new" * 100_000, 2
            cache.pop("gone"), cache.push("queued"), cache.incr("n")
            with cache.transact():
                cache["large"] = "newer" * 100_000
            print("ready", flush=True)
            sys.stdin.read()
    """
    command = [sys.executable, "-c", textwrap.dedent(code), str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdout.readline() == "ready\n"
        process.kill()
    with braiddb.Cache(path) as cache:
        assert cache["large"] == b"x" * 100_000 and cache["gone"] == b"y" * 100_000
        assert cache["small"] == 1 and cache["n"] == 5 and cache.pull() == (None, None)
        assert cache.check() == []


def test_close_ends_with_the_last_user_and_opens_again(path):
    cache, other = braiddb.Cache(path), braiddb.Cache(path, name="other")
    cache["a"], other["a"] = 1, 2
    cache.close(), cache.close()
    with pytest.raises(braiddb.Locked):
        braiddb.open(path)
    with pytest.raises(braiddb.InvalidArgument):
        braiddb.Cache(path, memory=1 << 25)
    other.close()
    with braiddb.open(path) as db:
        assert "cache.entries" in db
    assert cache["a"] == 1 and other["a"] == 2
    with cache:
        with cache:
            pass
        with pytest.raises(braiddb.InvalidArgument):
            with cache.transact():
                cache.close()
        assert cache["a"] == 1
    other.close()
    with braiddb.open(path):
        pass
    del cache, other


def test_readers_survive_the_close_of_another_thread(path):
    cache, stop = braiddb.Cache(path), threading.Event()
    cache["a"] = 1

    def read():
        while not stop.is_set():
            assert cache["a"] == 1 and "a" in cache and len(cache) >= 1
            cache[threading.get_ident()] = 1
            del cache[threading.get_ident()]
        return "ended"

    found = []
    threads = [threading.Thread(target=lambda: found.append(in_thread(read))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        cache.close()
    stop.set()
    for thread in threads:
        thread.join()
    cache.close()
    assert found == ["ended", "ended"]


def test_cache_is_pickled_as_its_directory(path):
    with braiddb.Cache(path, timeout=5, name="n") as cache:
        cache["a"] = 1
        other = pickle.loads(pickle.dumps(cache))
        assert other["a"] == 1 and other.directory == cache.directory and other.timeout == 5
        other.close()


def test_codec_stores_values_of_other_types(path):
    codec = braiddb.Codec("real", lambda value: b"%d" % value.real, lambda data: complex(int(data)))
    with braiddb.Cache(path, disk=codec) as cache:
        cache["a"], cache["b"] = 255 + 0j, "text"
        assert cache["a"] == 255 + 0j and cache["b"] == "text" and cache.disk is codec
    with braiddb.Cache(path) as cache, pytest.raises(TypeError, match="codec"):
        cache["a"]
    with pytest.raises(ValueError):
        braiddb.Cache(path, disk="json")


def test_memoize_calls_once(cache):
    calls = []

    @cache.memoize(tag="f")
    def f(a, b=0, *, c="x"):
        calls.append((a, b, c))
        return [a, b, c]

    assert f(1, 2) == f(1, 2) == [1, 2, "x"] and len(calls) == 1 and f.__wrapped__ is not f
    assert f(1.0, 2) == [1, 2, "x"] and len(calls) == 1
    assert f(1, b=2) == [1, 2, "x"] and len(calls) == 2
    assert f.__cache_key__(1, 2) in cache and f.__name__ == "f"
    assert cache.evict("f") == 2
    assert f(1, 2) and len(calls) == 3

    @cache.memoize(name="typed", typed=True)
    def g(a):
        calls.append(a)
        return None

    calls.clear()
    g(1), g(1.0), g(1), g(True)
    assert calls == [1, 1.0, True]
    with pytest.raises(TypeError):
        cache.memoize(g)

    @cache.memoize(name="some", ignore={0, "b"}, expire=0)
    def h(*args, **kwargs):
        calls.append(args)
        return 1

    assert h.__cache_key__(1, 2, a=1, b=2) == h.__cache_key__(3, 2, a=1, b=4)
    assert h.__cache_key__(1, None, "a") != h.__cache_key__(1, a=None)
    calls.clear()
    h(1), h(1)
    assert len(calls) == 2


def test_cache_lives_in_a_database_with_others(db):
    cache, other = braiddb.Cache(db, name="a"), braiddb.Cache(db, name="b")
    cache["k"], other["k"] = 1, 2
    cache.close()
    assert cache["k"] == 1 and other["k"] == 2 and not db.closed
