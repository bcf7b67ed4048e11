"""The cache beside a dict and a list: random calls, rollbacks and closes."""

import contextlib
import copy
import io
import random

import braiddb
import pytest


class Undo(Exception):
    """Ends a transaction."""


class Model:
    """What the cache must have: values, tags and the order of insertion."""

    def __init__(self):
        self.rows, self.queue = {}, []

    def set(self, key, value, tag):
        self.rows[key] = (value, tag)


def value_of(rng):
    size = rng.choice([0, 5, 40, 60, 3000])
    return rng.choice([bytes([rng.randrange(256)]) * size, "é" * size, size, [size], (size, None)])


def step(cache, model, rng):
    """Make one call, and compare its result."""
    key, tag = rng.choice([1, "b", b"c", ("d", 1), "long" * 500, None]), rng.choice([None, "t", 7])
    value = value_of(rng)
    is_there = key in model.rows
    kind = rng.randrange(13)
    if kind < 3:
        assert cache.set(key, value, tag=tag)
        model.set(key, value, tag)
    elif kind == 3:
        assert cache.add(key, value, tag=tag) != is_there
        if not is_there:
            model.set(key, value, tag)
    elif kind == 4:
        data = bytes(rng.randrange(200))
        assert cache.set(key, io.BytesIO(data), read=True, tag=tag)
        model.set(key, data, tag)
    elif kind == 5:
        assert cache.pop(key, "none", tag=True) == model.rows.pop(key, ("none", None))
    elif kind == 6:
        assert cache.delete(key) == is_there
        model.rows.pop(key, None)
    elif kind == 7:
        assert cache.touch(key, 1000) == is_there
    elif kind == 8:
        found = [key for key, row in model.rows.items() if row[1] == "t"]
        assert cache.evict("t") == len(found)
        for key in found:
            del model.rows[key]
    elif kind == 9:
        assert cache.set(key, value, expire=-1)
        model.rows.pop(key, None)
        cache.expire()
    elif kind == 10:
        model.queue.append((cache.push(value, "queue"), value))
    elif kind == 11:
        side = rng.randrange(2)
        wanted = model.queue.pop(-side) if model.queue else (None, None)
        assert cache.pull("queue", side=("front", "back")[side]) == wanted
    elif type(model.rows.get(key, (0,))[0]) is int:
        total = cache.incr(key, 3)
        before, tag = model.rows.get(key, (0, None))
        assert total == before + 3
        model.set(key, total, tag)


def compare(cache, model):
    rows = dict(model.queue) | {key: row[0] for key, row in model.rows.items()}
    assert len(cache) == len(rows)
    assert {key: cache[key] for key in cache} == rows
    assert [key for key in cache if key in model.rows] == list(model.rows)
    assert sorted(map(repr, cache.iterkeys())) == sorted(map(repr, rows))
    assert [cache.get(key, tag=True) for key in model.rows] == list(model.rows.values())


@pytest.mark.parametrize("seed", range(6))
def test_cache_has_what_the_model_has(path, seed):
    rng = random.Random(seed)
    model = Model()
    settings = {
        "disk_min_file_size": 50,
        "eviction_policy": rng.choice(["none", "least-recently-used", "least-frequently-used"]),
        "use_interval": 0,
    }
    cache = braiddb.Cache(path, **settings)
    for _ in range(60):
        for _ in range(rng.randrange(1, 6)):
            step(cache, model, rng)
        kind, before = rng.randrange(8), copy.deepcopy(model)
        if kind < 3:
            with contextlib.suppress(Undo), cache.transact():
                for _ in range(rng.randrange(6)):
                    step(cache, model, rng)
                compare(cache, model)
                if kind == 0:
                    raise Undo
            model = before if kind == 0 else model
        elif kind == 3:
            cache.close()
        elif kind == 4:
            policies = ["least-recently-stored", "least-recently-used", "none"]
            cache.reset("eviction_policy", rng.choice(policies))
        compare(cache, model)
        assert cache.check() == [], f"seed {seed}"
    cache.close()
