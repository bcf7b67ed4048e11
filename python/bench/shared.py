"""Compares shared databases of BraidDB with diskcache: several processes write at the same time.

    pip install ./python -r python/bench/requirements.txt
    python python/bench/shared.py [--cache] [--processes 8] [--seconds 5] [--rounds 3]

Each process puts rows of its own. Each put is one call with a value of 100 bytes, and waits for no
disk: `durability="buffered"`, and diskcache's own default. With `--cache`, each call is one of
`braiddb.Cache`, and after each set there are nine gets of keys that all processes set. Prints the
calls a second of all processes, and the median of the rounds.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

VALUE = b"v" * 100


def braiddb_put(path: str) -> Callable[[bytes], Any]:
    import braiddb

    db = braiddb.open(path, durability="buffered", shared=True, shared_timeout=20)
    tree = db["rows"]
    return lambda key: tree.put(key, VALUE)


def diskcache_put(path: str) -> Callable[[bytes], Any]:
    import diskcache

    # Without evictions, which BraidDB's trees do not have either.
    cache = diskcache.Cache(path, eviction_policy="none", timeout=20)
    return lambda key: cache.set(key, VALUE)


#: Keys of all processes, and the gets after each set.
KEYS, GETS = 1000, 9


def mixed(cache: Any) -> Callable[[bytes], Any]:
    """Return calls of a cache: one of ten is a set."""
    random.seed(os.getpid())

    def call(_: bytes) -> None:
        cache.set(random.randrange(KEYS), VALUE, retry=True)
        for _ in range(GETS):
            cache.get(random.randrange(KEYS))

    return call


def braiddb_cache(path: str) -> Callable[[bytes], Any]:
    import braiddb

    return mixed(braiddb.Cache(path, shared=True, timeout=20))


def diskcache_cache(path: str) -> Callable[[bytes], Any]:
    import diskcache

    return mixed(diskcache.Cache(path, timeout=20))


#: What opens a package, and the calls of each of its functions.
PUTS = {"braiddb": braiddb_put, "diskcache": diskcache_put}
CACHES = {"Cache": braiddb_cache, "diskcache": diskcache_cache}
OPENS = {(False, name): (1, put) for name, put in PUTS.items()}
OPENS.update({(True, name): (1 + GETS, call) for name, call in CACHES.items()})


def work(package: tuple[bool, str], path: str, worker: int, seconds: float, ready: Any, counts: Any) -> None:
    calls, opened = OPENS[package]
    put = opened(path)
    put(b"%d/first" % worker)
    ready.wait()
    began = time.perf_counter()
    done = 0
    while time.perf_counter() - began < seconds:
        put(b"%d/%d" % (worker, done))
        done += 1
    counts.put(calls * done / (time.perf_counter() - began))
    # The owner stays until the others are done, or a change of owners is measured too.
    ready.wait()


def calls_a_second(package: tuple[bool, str], processes: int, seconds: float) -> float:
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        ready, counts = spawn.Barrier(processes), spawn.Queue()
        crew = [
            spawn.Process(target=work, args=(package, f"{folder}/db", n, seconds, ready, counts))
            for n in range(processes)
        ]
        for worker in crew:
            worker.start()
        total = sum(counts.get(timeout=seconds + 60) for _ in crew)
        for worker in crew:
            worker.join()
            if worker.exitcode != 0:
                raise SystemExit(f"a process of {package[1]} failed with {worker.exitcode}")
        return float(total)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cache", action="store_true")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    found: dict[str, list[float]] = {name: [] for of_cache, name in OPENS if of_cache is args.cache}
    for _ in range(args.rounds):
        for name, rates in found.items():
            rates.append(calls_a_second((args.cache, name), args.processes, args.seconds))
            print(f"{name:10} {rates[-1]:10,.0f} calls/s", flush=True)
    medians = {name: statistics.median(rates) for name, rates in found.items()}
    ours, theirs = medians.values()
    print(f"medians: {medians}, ratio {ours / theirs:.2f}")


if __name__ == "__main__":
    main()
