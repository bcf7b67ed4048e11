"""The trees of a cache, and writes to them in a transaction.

| tree | key | value |
|---|---|---|
| `entries` | a key | `Entry`, with its value unless that is large |
| `large` | 16 random bytes | a large value |
| `rows` | row | key |
| `order` | order, row | key |
| `expiry` | expiry time, row | key |
| `tags` | tag, row | key |
| `meta` | a name | counters, settings; ends of ranges, if several processes share the cache |

Rows number the keys in the order of their insertion. The order is that of the evictions: the time
of the storage or of the last use, or the number of uses. Times are microseconds since 1970, and
numbers have 8 bytes, big-endian.

INVARIANT C1: a tree of the second half has a row exactly for each entry that belongs there. Every
write changes them in one transaction. `check` of the cache verifies it.
"""

from __future__ import annotations

import io
import os
import struct
import time
from collections.abc import Iterable, Iterator
from itertools import islice, takewhile
from typing import Any

from ._cache_ends import BEHIND_ALL, Bounds, Ends, Range, queue_of
from ._cache_values import Key, Value, is_digest

#: Keys, and the time of the last use and the number of uses of each.
Uses = list[tuple[bytes, tuple[int, int]]]

#: Expiry time (0: none), row, times of storage and of the last use, number of uses, size of a
#: large value; lengths of the tag and of a key that `entries` has the digest of; kind of the value.
_HEAD = struct.Struct(">QQQQQQHIc?")
_NUMBER = struct.Struct(">Q")
_PAIR = struct.Struct(">QQ")
_COUNTERS = struct.Struct(">QQQ")

#: Longest time to an expiry, which fits the bytes of a number.
_SECONDS_MAX = 1e12

#: Bytes of entries that a transaction rewrites to store uses: an entry is one record with its value.
_USES_BYTES = 1 << 18

#: Bytes that a small entry counts as.
_USE_BYTES_MIN = 1 << 10

#: Bytes from which a large value is a stream. Smaller ones are in the transaction's memory.
_STREAM_MIN = 1 << 20

TREES = ("entries", "large", "rows", "order", "expiry", "tags", "meta")
COUNTERS, ORDER, FORMAT, STATISTICS = b"counters", b"order", b"format", b"statistics"

#: Bounds of ranges: `Ends`.
ENDS = b"ends"

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
    return max(now + _microseconds(seconds), 1)


def time_us(seconds: float) -> int:
    """Return a time from seconds since 1970, which fits the bytes of a number."""
    return max(_microseconds(seconds), 0)


def _microseconds(seconds: float) -> int:
    return int(max(min(seconds, _SECONDS_MAX), -_SECONDS_MAX) * 1_000_000)


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

    def __init__(self, name: str, tx: Any, notes: Any, ends: Ends | None, is_users: bool) -> None:
        self._name = name
        self.tx = tx
        self._notes = notes
        #: Uses that the transaction stores.
        self._taken: Uses = []
        self._uses_bytes = _USES_BYTES
        #: True in a `transact()` of the user.
        self.is_users = is_users
        names = (COUNTERS, ORDER) if ends is not None else (COUNTERS, ORDER, ENDS)
        stored, order, *stored_ends = self.meta.get_many(names)
        #: Bounds of all, and those that this transaction has narrowed. The same if they are stored.
        if ends is None:
            self._ends = self._own_ends = Ends.read(stored_ends[0])
        else:
            self._ends, self._own_ends = ends, Ends()
        self._stored_ends = self._ends.pack() if ends is None else None
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
        """Write the counters, and bounds that are stored."""
        now = (self.count, self.volume, self.last_row)
        if now != self._stored:
            self.meta[COUNTERS] = _COUNTERS.pack(*now)
            self._stored = now
        if self._stored_ends is not None:
            ends = self._ends.pack()
            if ends != self._stored_ends:
                self.meta[ENDS] = self._stored_ends = ends

    def end(self, is_committed: bool) -> None:
        """Tell what the transaction changed in memory, after its end."""
        if is_committed and self._ends is not self._own_ends:
            self._ends.adopt(self._own_ends)
        if not is_committed:
            self._notes.put_back(self._taken)

    # Ends of ranges: C2.

    def bounds(self, of: Range) -> Bounds | None:
        """Return the bounds of a range in this transaction, None if they are not known."""
        return self._own_ends.get(of) or self._ends.get(of)

    def narrow(self, of: Range, whole: Bounds, is_reverse: bool, end: bytes | None) -> None:
        """Note where the first or last row of a range is, or that there is none."""
        start, stop = self.bounds(of) or whole
        if end is None:
            start = stop
        elif is_reverse:
            stop = end + b"\0"
        else:
            start = end
        self._own_ends.narrow(of, (start, stop))

    def ordered(self, of: Range, whole: Bounds = (b"", BEHIND_ALL)) -> Iterator[bytes]:
        """Iterate over the keys of a range in order, and note the first."""
        start, stop = self.bounds(of) or whole
        keys = iter(getattr(self, of[0]).keys(start=start, stop=stop))
        first = next(keys, None)
        self.narrow(of, whole, False, first)
        if first is not None:
            yield first
            yield from keys

    def widen(self, of: Range, key: bytes) -> None:
        """Include a key that is about to be put."""
        self._own_ends.widen(of, key)
        self._ends.widen(of, key)

    def forget_ends(self) -> None:
        """Forget the bounds before writes of any keys."""
        self._own_ends.clear()
        self._ends.clear()

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
                self.widen((name, key[:-8] if name == "tags" else b""), key)
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
        if len(value.data) < _STREAM_MIN:
            self.large[place] = value.data
        else:
            self.large.put_stream(place, io.BytesIO(value.data))
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
            queue = queue_of(key.at)
            if queue is not None:
                self.widen(queue, key.at)
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

    # Uses, which reads have noted in memory.

    def store_uses(self, limit: int, is_alone: bool = False) -> int:
        """Store up to `limit` noted uses, of entries of up to `_USES_BYTES`. Return their number.

        In a transaction that does nothing else, the first entry may be of any size.
        """
        uses = self._notes.take_uses(limit)
        self._taken += uses
        stored = 0
        for at, use in uses:
            entry = self.find(at)
            if entry is None or self._store_use(at, entry, use, is_alone and stored == 0):
                stored += 1
            else:
                self._taken.remove((at, use))
                self._notes.put_back([(at, use)])
        return stored

    def _store_use(self, at: bytes, entry: Entry, use: tuple[int, int], is_alone: bool) -> bool:
        """Store a use, unless too much was rewritten already."""
        size = max(len(entry.value), _USE_BYTES_MIN)
        if size > self._uses_bytes and not is_alone:
            return False
        self._uses_bytes -= size
        # A key that was set again since then is as good as used.
        if entry.used < use[0]:
            self.change(at, entry, used=use[0], uses=entry.uses + use[1])
        return True

    def _move_used(self, at: bytes) -> bool | None:
        """Store the noted use of an entry that is to be evicted. Return whether it was stored.

        None if it is to be stored in another transaction.
        """
        entry, use = self.find(at), self._notes.take_use(at)
        if use is None:
            return True
        if entry is not None and not self._store_use(at, entry, use, False):
            self._notes.put_back([(at, use)])
            return False if len(entry.value) > _USES_BYTES else None
        self._taken.append((at, use))
        return True

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
        expired = takewhile(lambda key: key < stop, self.ordered(("expiry", b"")))
        return self.remove_indexed(self.expiry, islice(expired, limit))

    def remove_tagged(self, tag: bytes, limit: int) -> int:
        """Remove up to `limit` entries with a tag."""
        # No row begins with 0xff, which continues a tag with a NUL.
        keys = self.ordered(("tags", tag), (tag, tag + b"\xff"))
        return self.remove_indexed(self.tags, islice(keys, limit))

    def evict(self, limit: int, keep: int = -1) -> int:
        """Evict up to `limit` entries in their order, not that of the row `keep`.

        The noted use of an entry is stored instead, which moves it. Ends early if that would
        rewrite too much, and passes entries that are too large for it.
        """
        if POLICIES.get(self.policy) is None:
            return 0
        removed = 0
        passed: set[bytes] = set()
        while removed < limit:
            first = islice(self.ordered(("order", b"")), limit - removed + len(passed) + 1)
            keys = [key for key in first if key not in passed]
            if not keys:
                break
            for key in keys[: limit - removed]:
                at = self.order.get(key)
                if _PAIR.unpack(key)[1] == keep:
                    passed.add(key)
                elif at is not None and self._notes.has_use(at):
                    is_moved = self._move_used(at)
                    if is_moved is None:
                        return removed
                    if not is_moved:
                        passed.add(key)
                else:
                    removed += self.remove_indexed(self.order, (key,))
        return removed

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


__all__ = [
    "Entry",
    "Uses",
    "Work",
    "after",
    "counters",
    "index_rows",
    "now_us",
    "time_us",
    "whole_key",
]
