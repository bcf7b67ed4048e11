"""Compares the indexes of a cache with its entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from ._cache_store import ORDER, Entry, Work, counters, index_rows
from ._db import Database

_INDEXES = ("rows", "order", "expiry", "tags")

#: Changes of one transaction.
_STEP = 1000


class _Found:
    """Differences, and the changes that end them."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        #: Rows to delete, and to put: names of trees, keys, values.
        self.extra: list[tuple[str, bytes]] = []
        self.missing: list[tuple[str, bytes, bytes]] = []
        self.count = self.volume = self.row = 0


def _compare(source: Any, names: dict[str, str]) -> _Found:
    found = _Found()
    policy = (source[names["meta"]].get(ORDER) or b"").decode()
    wanted: dict[str, dict[bytes, bytes]] = {name: {} for name in _INDEXES}
    unused = set(source[names["large"]])
    lost = 0
    for at, data in source[names["entries"]].items():
        entry = Entry.read(data)
        if entry.is_large and entry.value not in unused:
            lost += 1
            found.extra.append(("entries", at))
            continue
        if entry.is_large:
            unused.discard(entry.value)
        found.count += 1
        found.volume += entry.weight(at)
        found.row = max(found.row, entry.row)
        for name, key in index_rows(entry, policy).items():
            wanted[name][key] = at
    if lost:
        found.problems.append(f"{lost} entries have lost their values")
    if unused:
        found.problems.append(f"{len(unused)} large values have no entry")
        found.extra += [("large", place) for place in unused]
    for name in _INDEXES:
        has, want = dict(source[names[name]].items()), wanted[name]
        extra = [(name, key) for key in has if key not in want]
        missing = [(name, key, at) for key, at in want.items() if has.get(key) != at]
        if extra or missing:
            rows = f"{len(extra)} rows too many, {len(missing)} missing"
            found.problems.append(f"the index {name} differs from the entries: {rows}")
        found.extra += extra
        found.missing += missing
    count, volume, row = counters(source, names["meta"])
    for name, stored, actual in (("entries", count, found.count), ("bytes", volume, found.volume)):
        if stored != actual:
            found.problems.append(f"the number of {name} is {actual}, not {stored} as noted")
    if row < found.row:
        found.problems.append("the last row is not the last one")
    found.row = max(row, found.row)
    return found


def _parts(rows: list[Any]) -> Iterator[list[Any]]:
    left = iter(rows)
    while part := list(islice(left, _STEP)):
        yield part


def _mend(found: _Found, run: Callable[..., None]) -> None:
    def delete(work: Work, part: list[tuple[str, bytes]]) -> None:
        for name, key in part:
            getattr(work, name).delete(key)

    def put(work: Work, part: list[tuple[str, bytes, bytes]]) -> None:
        work.forget_ends()
        for name, key, at in part:
            getattr(work, name)[key] = at

    def count(work: Work) -> None:
        work.count, work.volume, work.last_row = found.count, found.volume, found.row

    for extra in _parts(found.extra):
        run(delete, extra)
    for missing in _parts(found.missing):
        run(put, missing)
    run(count)


def check(db: Database, names: dict[str, str], run: Callable[..., None], fix: bool) -> list[str]:
    """Return the differences, which `fix` mends through `run`. No other writer may run."""
    with db.snapshot() as snapshot:
        found = _compare(snapshot, names)
    if fix and found.problems:
        _mend(found, run)
    return found.problems


__all__ = ["check"]
