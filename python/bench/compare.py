"""Compares BraidDB with other packages for Python.

    pip install ./python -r python/bench/requirements.txt
    python python/bench/compare.py run results.jsonl [--rows 1000000]
    python python/bench/compare.py report results.jsonl plot.svg

`run` measures every package three times, one after the other, each in its own process and a new
directory. It appends a line of JSON for each. `report` prints tables of the medians and writes a
plot. Both are of processor time, which other programs on the machine disturb less than wall time.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from plot import plot
from stores import CACHES, STORES

ROUNDS = 3
BATCH = 1000
#: Rows of one prefix.
PREFIX_ROWS = 100
#: Size limit of a full cache.
FULL_BYTES = 256 << 10

#: Measures, and what they count.
MEASURES = {
    "batch put": "rows, in commits of 1,000",
    "put": "commits of one row",
    "get": "random gets, right after the puts",
    "get, 10 s later": "random gets, when background work is done",
    "get_many": "random gets, 1,000 a call",
    "prefix scan": "rows, 100 a scan",
    "full scan": "rows",
    "get, 2 threads": "random gets",
    "get_many, 2 threads": "random gets",
    "cache set": "sets",
    "cache get": "gets",
    "cache set, full": "sets, each beyond the size limit",
    "cache push": "pushes",
    "cache pull": "pulls",
}


class Meter:
    """Measures wall time, and the processor time of all threads."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, float]] = {}

    def measure(self, name: str, count: int, work: Callable[[], Any], expected: Any = None) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        result = work()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        if expected is not None and result != expected:
            raise AssertionError(f"{name} returned {result}, not {expected}")
        self.found[name] = {"count": count, "wall": wall, "cpu": cpu}


def in_threads(count: int, work: Callable[[], Any]) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def rows_of(count: int, seed: int) -> list[tuple[bytes, bytes]]:
    """Return rows of 16 and 100 bytes in random order. Half of each value is compressible."""
    source = random.Random(seed)
    rows = [(b"%016d" % i, source.randbytes(50) + b"0123456789" * 5) for i in range(count)]
    source.shuffle(rows)
    return rows


def measure_store(name: str, path: str, count: int) -> dict[str, Any]:
    rows, source, meter = rows_of(count, 1), random.Random(2), Meter()
    store = STORES[name](path)
    meter.measure("batch put", count, lambda: store.put_batches(rows, BATCH))
    some = rows_of(count, 3)[: count // 5]
    meter.measure("put", len(some), lambda: store.put(some))
    keys = [row[0] for row in source.choices(rows, k=count // 2)]
    meter.measure("get", len(keys), lambda: store.get(keys), len(keys))
    # In SQLite and LMDB a call returns a repeated key once or twice.
    whole = len(rows) // BATCH * BATCH // 2
    distinct = [row[0] for row in rows[:whole]]
    source.shuffle(distinct)
    meter.measure("get_many", whole, lambda: store.get_many(distinct, BATCH), whole)
    of_prefix = len(b"%d" % PREFIX_ROWS) - 1
    scans = count // PREFIX_ROWS // 2
    prefixes = [row[0][:-of_prefix] for row in source.choices(rows, k=scans)]
    total = scans * PREFIX_ROWS
    meter.measure("prefix scan", total, lambda: store.prefixes(prefixes), total)
    meter.measure("full scan", count, store.scan, count)
    time.sleep(10)
    meter.measure("get, 10 s later", len(keys), lambda: store.get(keys), len(keys))
    twice = lambda work: lambda: in_threads(2, work)  # noqa: E731
    meter.measure("get, 2 threads", 2 * len(keys), twice(lambda: store.get(keys)))
    many = twice(lambda: store.get_many(distinct, BATCH))
    meter.measure("get_many, 2 threads", 2 * whole, many)
    store.close()
    return {"version": store.version, "measures": meter.found}


def measure_cache(name: str, path: str, count: int) -> dict[str, Any]:
    rows, meter = rows_of(count // 20, 1), Meter()
    store = CACHES[name](path)
    meter.measure("cache set", len(rows), lambda: store.set(rows))
    keys = [row[0] for row in random.Random(2).choices(rows, k=2 * len(rows))]
    meter.measure("cache get", len(keys), lambda: store.get(keys), len(keys))
    meter.measure("cache push", len(rows), lambda: store.push(rows))
    meter.measure("cache pull", len(rows), lambda: store.pull(len(rows)), len(rows))
    store.close()
    full = CACHES[name](f"{path}-full", size_limit=FULL_BYTES)
    full.set(rows)
    others = rows_of(2 * len(rows), 4)[: len(rows)]
    meter.measure("cache set, full", len(others), lambda: full.set(others))
    full.close()
    return {"version": store.version, "measures": meter.found}


def run(results: Path, count: int) -> None:
    names = [*STORES, *CACHES]
    for number in range(ROUNDS):
        for name in names[number:] + names[:number]:
            with tempfile.TemporaryDirectory() as folder:
                command = [sys.executable, __file__, "one", name, f"{folder}/db", str(count)]
                line = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            with results.open("a") as file:
                file.write(line)
            print(line, end="", flush=True)


def one(name: str, path: str, count: int) -> None:
    measure = measure_store if name in STORES else measure_cache
    found = {"package": name, "rows": count, "python": platform.python_version()}
    print(json.dumps({**found, **measure(name, path, count)}))


def medians(results: Path) -> tuple[dict[str, dict[str, tuple[float, float]]], dict[str, str]]:
    """Return calls a second and processor microseconds of a call, by measure and package."""
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    versions = {line["package"]: line["version"] for line in lines}
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for measure in MEASURES:
        for package in versions:
            runs = [x["measures"].get(measure) for x in lines if x["package"] == package]
            runs = [run for run in runs if run]
            if runs:
                rate = statistics.median(run["count"] / run["wall"] for run in runs)
                cost = statistics.median(run["cpu"] / run["count"] * 1e6 for run in runs)
                found.setdefault(measure, {})[package] = (rate, cost)
    return found, versions


def table(found: dict[str, dict[str, tuple[float, float]]], packages: list[str]) -> str:
    own, others = packages[0], packages[1:]
    lines = [f"| microseconds (thousand a second) | {' | '.join(packages)} | best other / {own} |"]
    lines.append("|" + "---|" * (len(packages) + 2))
    for measure, values in found.items():
        if own in values:
            cells = [f"{values[p][1]:.2f} ({values[p][0] / 1000:,.0f})" for p in packages]
            cost = min(values[p][1] for p in others) / values[own][1]
            ratio = values[own][0] / max(values[p][0] for p in others)
            lines.append(f"| {measure} | {' | '.join(cells)} | {cost:.2f} ({ratio:.2f}) |")
    return "\n".join(lines)


def report(results: Path, picture: Path) -> None:
    found, versions = medians(results)
    print("Medians: processor time of a call or row; in brackets, calls or rows by wall time.")
    print("Versions:", ", ".join(f"{name} {version}" for name, version in versions.items()))
    for packages in (list(STORES), list(CACHES)):
        print("\n" + table(found, packages))
    for call, alone in (("get", "get, 10 s later"), ("get_many", "get_many")):
        pairs = ((p, found[f"{call}, 2 threads"][p][0] / found[alone][p][0]) for p in STORES)
        print(f"\n{call}, two threads to one:", ", ".join(f"{p} {r:.2f}" for p, r in pairs))
    picture.write_text(plot({m: {p: v[1] for p, v in x.items()} for m, x in found.items()}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("run")
    command.add_argument("results", type=Path)
    command.add_argument("--rows", type=int, default=1_000_000)
    command = commands.add_parser("report")
    command.add_argument("results", type=Path)
    command.add_argument("picture", type=Path)
    command = commands.add_parser("one")
    command.add_argument("name")
    command.add_argument("path")
    command.add_argument("rows", type=int)
    options = parser.parse_args()
    if options.command == "run":
        run(options.results, options.rows)
    elif options.command == "report":
        report(options.results, options.picture)
    else:
        one(options.name, options.path, options.rows)


if __name__ == "__main__":
    main()
