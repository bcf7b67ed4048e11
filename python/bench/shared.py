"""Compares shared databases of BraidDB with diskcache: several processes put rows of their own.

    pip install ./python -r python/bench/requirements.txt
    python python/bench/shared.py [--processes 8] [--seconds 5] [--rounds 3]

Each put is one call with a value of 100 bytes, and waits for no disk: `durability="buffered"`, and
diskcache's own default. Prints the puts a second of all processes, and the median of the rounds.
"""

from __future__ import annotations

import argparse
import multiprocessing
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


OPENS = {"braiddb": braiddb_put, "diskcache": diskcache_put}


def work(package: str, path: str, worker: int, seconds: float, ready: Any, counts: Any) -> None:
    put = OPENS[package](path)
    put(b"%d/first" % worker)
    ready.wait()
    began = time.perf_counter()
    done = 0
    while time.perf_counter() - began < seconds:
        put(b"%d/%d" % (worker, done))
        done += 1
    counts.put(done / (time.perf_counter() - began))
    # The owner stays until the others are done, or a change of owners is measured too.
    ready.wait()


def puts_a_second(package: str, processes: int, seconds: float) -> float:
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
                raise SystemExit(f"a process of {package} failed with {worker.exitcode}")
        return float(total)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    found: dict[str, list[float]] = {package: [] for package in OPENS}
    for _ in range(args.rounds):
        for package, rates in found.items():
            rates.append(puts_a_second(package, args.processes, args.seconds))
            print(f"{package:10} {rates[-1]:10,.0f} puts/s", flush=True)
    medians = {package: statistics.median(rates) for package, rates in found.items()}
    print(f"medians: {medians}, ratio {medians['braiddb'] / medians['diskcache']:.2f}")


if __name__ == "__main__":
    main()
