"""The trees of a cache, and writes to them in a transaction.

| tree | key | value |
|---|---|---|
| `entries` | a key | `Entry`, with its value unless that is large |
| `large` | 16 random bytes | a large value |
| `rows` | row | key |
| `order` | order, row | key |
| `expiry` | expiry time, row | key |
| `tags` | tag, row | key |
| `meta` | a name | counters, settings |

Rows number the keys in the order of their insertion. The order is that of the evictions: the time
of the storage or of the last use, or the number of uses. Times are microseconds since 1970, and
numbers have 8 bytes, big-endian.

INVARIANT C1: a tree of the second half has a row exactly for each entry that belongs there. Every
write changes them in one transaction. `check` of the cache verifies it.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterable
from itertools import islice
from typing import Any

from ._cache_values import Key, Value, is_digest

#: Expiry time (0: none), row, times of storage and of the last use, number of uses, size of a
#: large value; lengths of the tag and of a key that `entries` has the digest of; kind of the value.
_HEAD = struct.Struct(">QQQQQQHIc?")
_NUMBER = struct.Struct(">Q")
_PAIR = struct.Struct(">QQ")
_COUNTERS = struct.Struct(">QQQ")

#: Longest time to an expiry, which fits the bytes of a number.
_SECONDS_MAX = 1e12

TREES = ("entries", "large", "rows", "order", "expiry", "tags", "meta")
COUNTERS, ORDER, FORMAT, STATISTICS = b"counters", b"order", b"format", b"statistics"

#: Which field of an entry orders the evictions of a policy.
POLICIES = {
    "least-recently-stored": "stored",
    "least-recently-used": "used",
    "least-frequently-used": "uses",
    "none": None,
}


def now_us() -> int:
    """Return the time."""
    return int(time.time() * 1_000_000)


def after(now: int, seconds: float | None) -> int:
    """Return the expiry time after some seconds."""
    if seconds is None:
        return 0
    return max(now + int(min(seconds, _SECONDS_MAX) * 1_000_000), 1)


class Entry:
    """An entry. `value` is the value, or the key of a large one."""

    __slots__ = (
        "expires",
        "is_large",
        "key",
        "kind",
        "row",
        "size",
        "stored",
        "tag",
        "used",
        "uses",
        "value",
    )

    expires: int
    row: int
    stored: int
    used: int
    uses: int
    size: int
    kind: bytes
    is_large: bool
    tag: bytes
    key: bytes
    value: bytes

    @staticmethod
    def read(data: bytes) -> Entry:
        """Return the entry of its bytes."""
        entry = Entry()
        (
            entry.expires,
            entry.row,
            entry.stored,
            entry.used,
            entry.uses,
            entry.size,
            tag,
            key,
            entry.kind,
            entry.is_large,
        ) = _HEAD.unpack_from(data)
        end = _HEAD.size + tag
        entry.tag = data[_HEAD.size : end]
        entry.key = data[end : end + key]
        entry.value = data[end + key :]
        return entry

    def pack(self) -> bytes:
        """Return the bytes of the entry."""
        head = _HEAD.pack(
            self.expires,
            self.row,
            self.stored,
            self.used,
            self.uses,
            self.size,
            len(self.tag),
            len(self.key),
            self.kind,
            self.is_large,
        )
        return b"".join((head, self.tag, self.key, self.value))

    def is_live(self, now: int) -> bool:
        """Return whether the entry has not expired."""
        return self.expires == 0 or self.expires > now

    def weight(self, at: bytes) -> int:
        """Return the bytes that count as the entry's volume."""
        head = _HEAD.size + len(self.tag) + len(self.key)
        return len(at) + head + len(self.value) + self.size


def whole_key(source: Any, entries: str, at: bytes) -> bytes | None:
    """Return the whole bytes of a key, None if its entry is gone."""
    if not is_digest(at):
        return at
    data = source[entries].get(at)
    return None if data is None else Entry.read(data).key


def counters(source: Any, meta: str) -> tuple[int, int, int]:
    """Return the number of entries, their volume and the last row."""
    count, volume, row = _COUNTERS.unpack(source[meta].get(COUNTERS) or bytes(_COUNTERS.size))
    return count, volume, row


def index_rows(entry: Entry, policy: str) -> dict[str, bytes]:
    """Return the rows of C1 that an entry has: names of trees and keys."""
    rows = {"rows": _NUMBER.pack(entry.row)}
    field = POLICIES.get(policy)
    if field is not None:
        rows["order"] = _PAIR.pack(getattr(entry, field), entry.row)
    if entry.expires:
        rows["expiry"] = _PAIR.pack(entry.expires, entry.row)
    if entry.tag:
        rows["tags"] = entry.tag + _NUMBER.pack(entry.row)
    return rows


class Work:
    """Writes in one transaction."""

    entries: Any
    large: Any
    rows: Any
    order: Any
    expiry: Any
    tags: Any
    meta: Any

    def __init__(self, name: str, tx: Any) -> None:
        self._name = name
        self.tx = tx
        stored, order = self.meta.get_many((COUNTERS, ORDER))
        self.count, self.volume, self.last_row = _COUNTERS.unpack(stored or bytes(_COUNTERS.size))
        self.policy = "" if order is None else order.decode()
        self._stored = (self.count, self.volume, self.last_row)

    def __getattr__(self, name: str) -> Any:
        if name not in TREES:
            raise AttributeError(name)
        tree = self.tx[f"{self._name}.{name}"]
        setattr(self, name, tree)
        return tree

    def finish(self) -> None:
        """Write the counters."""
        now = (self.count, self.volume, self.last_row)
        if now != self._stored:
            self.meta[COUNTERS] = _COUNTERS.pack(*now)
            self._stored = now

    def find(self, at: bytes) -> Entry | None:
        """Return an entry, even an expired one."""
        data = self.entries.get(at)
        return None if data is None else Entry.read(data)

    def live(self, at: bytes, now: int) -> Entry | None:
        """Return an entry that has not expired."""
        entry = self.find(at)
        return entry if entry is not None and entry.is_live(now) else None

    def index_rows(self, entry: Entry) -> dict[str, bytes]:
        """Return the rows of C1 that an entry has: names of trees and keys."""
        return index_rows(entry, self.policy)

    def _reindex(self, at: bytes, before: dict[str, bytes], then: dict[str, bytes]) -> None:
        for name, key in before.items():
            if then.get(name) != key:
                getattr(self, name).delete(key)
        for name, key in then.items():
            if before.get(name) != key:
                getattr(self, name)[key] = at

    def remove(self, at: bytes, entry: Entry) -> None:
        """Remove an entry with its rows and its large value."""
        self._reindex(at, self.index_rows(entry), {})
        self._forget(at, entry)
        self.entries.delete(at)

    def _forget(self, at: bytes, entry: Entry) -> None:
        if entry.is_large:
            self.large.delete(entry.value)
        self.count -= 1
        self.volume -= entry.weight(at)

    def put(
        self, key: Key, value: Value, expires: int, tag: bytes, now: int, inline_max: float
    ) -> Entry:
        """Put an entry. A key that is there keeps its row."""
        if len(value.data) < inline_max:
            return self._put(key, value, None, expires, tag, now)
        place = os.urandom(16)
        self.large[place] = value.data
        return self._put(key, Value(value.kind, place), len(value.data), expires, tag, now)

    def put_placed(
        self, key: Key, place: bytes, size: int, expires: int, tag: bytes, now: int
    ) -> Entry:
        """Put an entry of bytes that are in `large` already."""
        return self._put(key, Value(b"b", place), size, expires, tag, now)

    def _put(
        self, key: Key, value: Value, size: int | None, expires: int, tag: bytes, now: int
    ) -> Entry:
        before = self.find(key.at)
        rows: dict[str, bytes] = {}
        entry = Entry()
        if before is None:
            self.last_row += 1
            entry.row = self.last_row
        else:
            entry.row = before.row
            rows = self.index_rows(before)
            self._forget(key.at, before)
        entry.expires, entry.stored, entry.used, entry.uses = expires, now, now, 0
        entry.kind, entry.is_large, entry.size = value.kind, size is not None, size or 0
        entry.tag, entry.key, entry.value = tag, key.whole, value.data
        self.entries[key.at] = entry.pack()
        self._reindex(key.at, rows, self.index_rows(entry))
        self.count += 1
        self.volume += entry.weight(key.at)
        return entry

    def change(self, at: bytes, entry: Entry, **fields: Any) -> None:
        """Change fields of an entry, which is in the tree as it was read."""
        rows = self.index_rows(entry)
        self.volume -= entry.weight(at)
        for field, value in fields.items():
            setattr(entry, field, value)
        self.volume += entry.weight(at)
        self.entries[at] = entry.pack()
        self._reindex(at, rows, self.index_rows(entry))

    def note_uses(self, uses: Iterable[tuple[bytes, tuple[int, int]]]) -> None:
        """Store times of the last use and numbers of uses."""
        for at, (used, count) in uses:
            entry = self.find(at)
            # A key that was set again since then is as good as used.
            if entry is not None and entry.used < used:
                self.change(at, entry, used=used, uses=entry.uses + count)

    # Removal of many. Each returns the number of entries that it removed.

    def remove_indexed(self, tree: Any, keys: Iterable[bytes]) -> int:
        """Remove the entries of keys of an index."""
        removed = 0
        for key in list(keys):
            at = tree.get(key)
            entry = None if at is None else self.find(at)
            if at is None or entry is None:
                tree.delete(key)  # Damage, which would be found again and again.
            else:
                self.remove(at, entry)
                removed += 1
        return removed

    def remove_expired(self, now: int, limit: int) -> int:
        """Remove up to `limit` entries that expired before now."""
        stop = _PAIR.pack(now, 0)
        return self.remove_indexed(self.expiry, islice(self.expiry.keys(stop=stop), limit))

    def remove_tagged(self, tag: bytes, limit: int) -> int:
        """Remove up to `limit` entries with a tag."""
        # No row begins with 0xff, which continues a tag with a NUL.
        keys = self.tags.keys(start=tag, stop=tag + b"\xff")
        return self.remove_indexed(self.tags, islice(keys, limit))

    def evict(self, limit: int, keep: int = -1) -> int:
        """Evict up to `limit` entries in their order, not that of the row `keep`."""
        if POLICIES.get(self.policy) is None:
            return 0
        keys = (key for key in self.order.keys() if _PAIR.unpack(key)[1] != keep)
        return self.remove_indexed(self.order, islice(keys, limit))

    def cull(self, now: int, limit: int, size_limit: float, keep: int) -> None:
        """Remove up to `limit` entries: expired ones, and others if the cache is full.

        The entry of the row `keep` was just put, so it is not evicted.
        """
        if limit > 0:
            limit -= self.remove_expired(now, limit)
        if limit > 0 and self.volume >= size_limit:
            self.evict(limit, keep)

    def clear(self) -> int:
        """Remove all entries."""
        removed = self.count
        for name in TREES[:-1]:
            getattr(self, name).clear()
        self.count = self.volume = 0
        return int(removed)


__all__ = ["Entry", "Work", "after", "counters", "index_rows", "now_us", "whole_key"]
