"""The cache."""

import threading
import time

import braiddb
import pytest


@pytest.fixture
def cache(path):
    with braiddb.Cache(path, use_interval=0) as cache:
        yield cache
        assert cache.check() == []


def test_values_keep_their_type(cache):
    values = [b"\x00", "é", 5, 1 << 70, 2.5, None, True, [1, "a", None], {"a": {"b": []}}, "", b""]
    for number, value in enumerate(values):
        assert cache.set(number, value)
    for number, value in enumerate(values):
        assert cache[number] == value and type(cache[number]) is type(value)
    for value in ((1,), {1: 2}, {1, 2}, float("nan"), object()):
        with pytest.raises(TypeError):
            cache["x"] = value
    assert len(cache) == len(values) and "x" not in cache
    keys = [None, b"k", "k", 1.5, ("a", (1, b"c")), ()]
    for key in keys:
        cache[key] = "v"
        assert key in cache and cache[key] == "v"
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
    with braiddb.Cache(path) as cache:
        with pytest.raises(TypeError, match="pickle"):
            cache["a"]


def test_reads_and_writes_of_diskcache(cache):
    assert cache.get("a", 7) == 7 and cache.get("a") is None
    assert cache.add("a", 1) and not cache.add("a", 2) and cache["a"] == 1
    assert cache.incr("n") == 1 and cache.incr("n", 5) == 6 and cache.decr("n") == 5
    with pytest.raises(KeyError):
        cache.incr("none", default=None)
    cache["text"] = "x"
    with pytest.raises(TypeError):
        cache.incr("text")
    assert cache.pop("text") == "x" and cache.pop("text", 3) == 3
    assert cache.delete("n") and not cache.delete("n")
    cache.set("t", 1, expire=100, tag="red")
    value, expires, tag = cache.get("t", expire_time=True, tag=True)
    assert value == 1 and 90 < expires - time.time() < 110 and tag == "red"
    assert cache.get("t", tag=True) == (1, "red")
    assert cache.touch("t") and cache.get("t", expire_time=True) == (1, None)
    assert cache.get("t", tag=True) == (1, "red") and not cache.touch("no")
    assert cache.stats()[0] >= 4
    assert list(cache) == sorted(cache) and list(reversed(cache)) == list(cache)[::-1]


def test_expired_entries_are_absent_and_removed(cache):
    cache.set("a", 1, expire=0)
    cache.set("b", 1, expire=-5)
    cache.set("c", 1, expire=100)
    time.sleep(0.001)
    assert "a" not in cache and cache.get("b") is None and list(cache) == ["c"] and len(cache) == 3
    assert cache.add("b", 2) and cache["b"] == 2
    assert cache.expire() == 1 and len(cache) == 2
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


def test_least_recently_used_are_evicted(path):
    with braiddb.Cache(path, use_interval=0, size_limit=20_000) as cache:
        for i in range(10):
            cache[i] = b"x" * 1000
        assert len(cache) == 10
        assert cache[0] and cache[1]
        for i in range(10, 26):
            cache[i] = b"x" * 1000
            assert cache.volume() <= 20_000
        assert 0 in cache and 1 in cache and 2 not in cache and 25 in cache
        assert cache.check() == []
    with braiddb.Cache(path, eviction="least-recently-stored", size_limit=5000) as cache:
        cache["new"] = b""
        assert cache.volume() <= 5000 and list(cache) == ["new", 22, 23, 24, 25]
        with pytest.raises(braiddb.InvalidArgument):
            braiddb.Cache(path, eviction="random")
    with braiddb.Cache(path, eviction="none", size_limit=10) as cache:
        cache["more"] = b"x" * 100
        assert cache.cull() == 0 and cache["more"]


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


def test_index_entry_without_value_is_removed(db):
    cache = braiddb.Cache(db)
    cache.set("a", 1, tag="t", expire=-1)
    db["cache.values"].clear()
    assert len(cache.check()) == 5
    assert cache.evict("t") == 0 and cache.expire() == 0 and not db["cache.tags"]


def test_memoize_calls_once(cache):
    calls = []

    @cache.memoize(tag="f")
    def f(a, b=0, *, c="x"):
        calls.append((a, b, c))
        return [a, b, c]

    assert f(1, 2) == f(1, 2) == [1, 2, "x"] and len(calls) == 1
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


def test_cache_lives_in_a_database_with_others(db):
    cache, other = braiddb.Cache(db, name="a"), braiddb.Cache(db, name="b")
    cache["k"], other["k"] = 1, 2
    cache.close()
    assert cache["k"] == 1 and other["k"] == 2 and not db.closed
