"""A cache on disk: values with expiry times, tags and a size limit.

The methods are those of the package diskcache. Values are bytes, str, and what JSON stores without
change; nothing is pickled without `pickle=True`.
"""

from __future__ import annotations

import functools
import json
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from types import TracebackType
from typing import Any, Literal, TypeVar

from . import _tuple
from ._db import Database, Path, Transaction, open_database
from ._errors import InvalidArgument

R = TypeVar("R")
Eviction = Literal["least-recently-used", "least-recently-stored", "none"]

#: Expiry time (0: none), order (time of storage or last use), length of the tag; then the tag,
#: the kind of the value, the value. Times are microseconds since 1970.
_HEAD = struct.Struct(">QQH")
_TIME = struct.Struct(">Q")
_NUMBER = struct.Struct("<q")

#: Least recently used entries that one step evicts at most.
_STEP = 64

_ABSENT: Any = object()


def _now() -> int:
    return time.time_ns() // 1000


def _is_json(value: Any) -> bool:
    """Return whether JSON stores a value without change."""
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return True
    if kind is float:
        return value == value and value not in (float("inf"), float("-inf"))
    if kind is list:
        return all(map(_is_json, value))
    return kind is dict and all(type(k) is str and _is_json(v) for k, v in value.items())


def _entry_key(key: Any) -> bytes:
    """Return the bytes of a key. A tuple differs from its only element."""
    return _tuple.pack((key,))


class _Entry:
    """A stored value."""

    __slots__ = ("data", "expires", "order", "start", "tag")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.expires, self.order, length = _HEAD.unpack_from(data)
        self.start = _HEAD.size + length
        self.tag = data[_HEAD.size : self.start]


class Cache:
    """A cache in the directory `path`, or in a database that is open.

    `size_limit` bounds the bytes of keys and values. Beyond it, a write evicts the entries that
    were not used for the longest time, or stored first. A use is noted once per `use_interval`
    seconds, so that most reads write nothing. In a database of your own, `name` begins the names of
    the cache's trees.
    """

    def __init__(
        self,
        path: Path | Database,
        *,
        name: str = "cache",
        size_limit: int = 1 << 30,
        eviction: Eviction = "least-recently-used",
        use_interval: float = 60.0,
        pickle: bool = False,
        **options: Any,
    ) -> None:
        if eviction not in ("least-recently-used", "least-recently-stored", "none"):
            raise InvalidArgument(f"no eviction {eviction!r}")
        self._is_own = not isinstance(path, Database)
        if isinstance(path, Database):
            self._db = path
        else:
            # A cache can lose its last writes to a power failure.
            self._db = open_database(path, {"durability": "buffered", **options})
        self._names = [f"{name}.{part}" for part in ("values", "order", "expiry", "tags", "meta")]
        for tree in self._names:
            self._db[tree]
        self._size_limit = size_limit
        self._eviction = eviction
        self._use_interval = int(use_interval * 1_000_000)
        self._pickle = pickle
        self._local = threading.local()
        self._run = self._db.transaction(lambda tx, work, *args: work(tx, *args))
        self._hits = self._misses = 0

    # Values.

    def _encode(self, value: Any) -> bytes:
        if type(value) is bytes:
            return b"b" + value
        if type(value) is str:
            return b"s" + value.encode()
        if _is_json(value):
            return b"j" + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        if self._pickle:
            import pickle

            return b"p" + pickle.dumps(value)
        kind = type(value).__name__
        raise TypeError(f"JSON cannot store this {kind} without change: use Cache(pickle=True)")

    def _decode(self, entry: _Entry) -> Any:
        kind, data = entry.data[entry.start : entry.start + 1], entry.data[entry.start + 1 :]
        if kind == b"b":
            return data
        if kind == b"s":
            return data.decode()
        if kind == b"j":
            return json.loads(data)
        if self._pickle:
            import pickle

            return pickle.loads(data)
        raise TypeError("the value is pickled: use Cache(pickle=True) if you trust the file")

    # Writes, each in a transaction.

    def _write(self, work: Callable[..., R], *args: Any) -> R:
        current = getattr(self._local, "transaction", None)
        if current is not None:
            return work(current, *args)
        return self._run(work, *args)  # type: ignore[no-any-return]

    def _source(self) -> Any:
        """Return where to read: the database, or the transaction of this thread."""
        current = getattr(self._local, "transaction", None)
        return self._db if current is None else current

    def _find(self, source: Any, key: bytes) -> _Entry | None:
        """Return the entry of a key if it has not expired."""
        data = source[self._names[0]].get(key)
        if data is None:
            return None
        entry = _Entry(data)
        return entry if entry.expires == 0 or entry.expires > _now() else None

    def _count(self, tx: Transaction, entries: int, size: int) -> None:
        # Merges do not conflict.
        meta = tx[self._names[4]]
        meta.merge(b"entries", "add", _NUMBER.pack(entries))
        meta.merge(b"bytes", "add", _NUMBER.pack(size))

    def _remove(self, tx: Transaction, key: bytes, data: bytes) -> None:
        values, order, expiry, tags, _ = (tx[name] for name in self._names)
        entry = _Entry(data)
        values.delete(key)
        order.delete(_TIME.pack(entry.order) + key)
        if entry.expires:
            expiry.delete(_TIME.pack(entry.expires) + key)
        if entry.tag:
            tags.delete(entry.tag + key)
        self._count(tx, -1, -len(key) - len(data))

    def _put(self, tx: Transaction, key: bytes, value: bytes, expires: int, tag: bytes) -> None:
        values, order, expiry, tags, _ = (tx[name] for name in self._names)
        before = values.get(key)
        if before is not None:
            self._remove(tx, key, before)
        now = _now()
        data = _HEAD.pack(expires, now, len(tag)) + tag + value
        values[key] = data
        order[_TIME.pack(now) + key] = b""
        if expires:
            expiry[_TIME.pack(expires) + key] = b""
        if tag:
            tags[tag + key] = b""
        self._count(tx, 1, len(key) + len(data))

    @staticmethod
    def _expiry_of(expire: float | None) -> int:
        return 0 if expire is None else max(_now() + int(expire * 1_000_000), 1)

    @staticmethod
    def _tag_of(tag: Any) -> bytes:
        return b"" if tag is None else _tuple.pack((tag,))

    def set(self, key: Any, value: Any, expire: float | None = None, tag: Any = None) -> bool:
        """Set a value that expires after `expire` seconds. Return True."""
        args = (_entry_key(key), self._encode(value), self._expiry_of(expire), self._tag_of(tag))
        self._write(self._put, *args)
        self._make_room()
        return True

    def add(self, key: Any, value: Any, expire: float | None = None, tag: Any = None) -> bool:
        """Set a value if the key is absent. Return whether it was."""
        at, data = _entry_key(key), self._encode(value)
        until, tagged = self._expiry_of(expire), self._tag_of(tag)

        def work(tx: Transaction) -> bool:
            if self._find(tx, at) is not None:
                return False
            self._put(tx, at, data, until, tagged)
            return True

        added = self._write(work)
        self._make_room()
        return added

    def incr(self, key: Any, delta: int = 1, default: int | None = 0) -> int:
        """Add to an integer and return the sum. With `default=None` an absent key is a KeyError."""
        at = _entry_key(key)

        def work(tx: Transaction) -> int:
            entry = self._find(tx, at)
            if entry is None and default is None:
                raise KeyError(key)
            before = default if entry is None else self._decode(entry)
            if type(before) is not int:
                raise TypeError(f"the value is no int but a {type(before).__name__}")
            expires, tag = (0, b"") if entry is None else (entry.expires, entry.tag)
            self._put(tx, at, self._encode(before + delta), expires, tag)
            return before + delta

        return self._write(work)

    def decr(self, key: Any, delta: int = 1, default: int | None = 0) -> int:
        """Subtract from an integer and return the difference."""
        return self.incr(key, -delta, default)

    def touch(self, key: Any, expire: float | None = None) -> bool:
        """Set the expiry time of a value. Return whether it is there."""
        at, until = _entry_key(key), self._expiry_of(expire)

        def work(tx: Transaction) -> bool:
            entry = self._find(tx, at)
            if entry is not None:
                self._put(tx, at, entry.data[entry.start :], until, entry.tag)
            return entry is not None

        return self._write(work)

    def pop(self, key: Any, default: Any = None) -> Any:
        """Remove a key and return its value, or `default`."""
        at = _entry_key(key)

        def work(tx: Transaction) -> Any:
            data = tx[self._names[0]].get(at)
            if data is None:
                return default
            entry = self._find(tx, at)
            self._remove(tx, at, data)
            return default if entry is None else self._decode(entry)

        return self._write(work)

    def delete(self, key: Any) -> bool:
        """Delete a key. Return whether it was there."""
        return self.pop(key, _ABSENT) is not _ABSENT

    # Reads.

    def get(
        self, key: Any, default: Any = None, expire_time: bool = False, tag: bool = False
    ) -> Any:
        """Return a value or `default`; with flags a tuple that has its expiry time and tag."""
        at = _entry_key(key)
        entry = self._find(self._source(), at)
        if entry is None:
            self._misses += 1
            value, expires, tagged = default, None, None
        else:
            self._hits += 1
            self._note_use(at, entry)
            value = self._decode(entry)
            expires = entry.expires / 1_000_000 if entry.expires else None
            tagged = _tuple.unpack(entry.tag)[0] if entry.tag else None
        if expire_time and tag:
            return value, expires, tagged
        if expire_time or tag:
            return value, expires if expire_time else tagged
        return value

    def _note_use(self, key: bytes, entry: _Entry) -> None:
        now = _now()
        if self._eviction != "least-recently-used" or now - entry.order < self._use_interval:
            return

        def work(tx: Transaction) -> None:
            values, order = tx[self._names[0]], tx[self._names[1]]
            if values.get(key) == entry.data:
                head = _HEAD.pack(entry.expires, now, len(entry.tag))
                values[key] = head + entry.data[_HEAD.size :]
                order.delete(_TIME.pack(entry.order) + key)
                order[_TIME.pack(now) + key] = b""

        self._write(work)

    def __contains__(self, key: object) -> bool:
        return self._find(self._source(), _entry_key(key)) is not None

    def __getitem__(self, key: Any) -> Any:
        value = self.get(key, _ABSENT)
        if value is _ABSENT:
            raise KeyError(key)
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        self.set(key, value)

    def __delitem__(self, key: Any) -> None:
        if not self.delete(key):
            raise KeyError(key)

    def __iter__(self) -> Iterator[Any]:
        return self.iterkeys()

    def __reversed__(self) -> Iterator[Any]:
        return self.iterkeys(reverse=True)

    def iterkeys(self, reverse: bool = False) -> Iterator[Any]:
        """Iterate over keys in order, without expired ones."""
        now = _now()
        for at, data in self._source()[self._names[0]].items(reverse=reverse):
            expires = _HEAD.unpack_from(data)[0]
            if expires == 0 or expires > now:
                yield _tuple.unpack(at)[0]

    def _meta(self, name: bytes) -> int:
        data = self._source()[self._names[4]].get(name)
        return 0 if data is None else int(_NUMBER.unpack(data)[0])

    def __len__(self) -> int:
        """Return the number of entries, with expired ones that were not removed yet."""
        return self._meta(b"entries")

    def __bool__(self) -> bool:
        return True

    def volume(self) -> int:
        """Return the bytes of keys and values."""
        return self._meta(b"bytes")

    def stats(self, reset: bool = False) -> tuple[int, int]:
        """Return the hits and misses of this object."""
        counts = (self._hits, self._misses)
        if reset:
            self._hits = self._misses = 0
        return counts

    # Removal of many.

    def _remove_all(self, index: str, size: int, find: Callable[[Any], list[bytes]]) -> int:
        """Remove entries in steps, until `find` returns no more. Return their number.

        It returns entries of `index`, whose keys begin at `size`.
        """

        def step(tx: Transaction) -> tuple[int, int]:
            values, removed = tx[self._names[0]], 0
            found = find(tx)
            for at in found:
                data = values.get(at[size:])
                if data is not None:
                    self._remove(tx, at[size:], data)
                    removed += 1
                # Also an entry without a value, or this would not end.
                tx[index].delete(at)
            return len(found), removed

        total = 0
        while True:
            found, removed = self._write(step)
            total += removed
            if found == 0:
                return total

    def expire(self) -> int:
        """Remove expired entries. Return their number."""
        until = _TIME.pack(_now() + 1)
        index = self._names[2]
        return self._remove_all(
            index, _TIME.size, lambda tx: list(islice(tx[index].keys(stop=until), _STEP))
        )

    def evict(self, tag: Any) -> int:
        """Remove the entries with a tag. Return their number."""
        prefix = self._tag_of(tag)
        if not prefix:
            raise InvalidArgument("a tag is not None")
        index = self._names[3]
        return self._remove_all(
            index,
            len(prefix),
            # Behind these bytes, 0xff continues a tag with a NUL.
            lambda tx: list(islice(tx[index].keys(start=prefix, stop=prefix + b"\xff"), _STEP)),
        )

    def clear(self) -> int:
        """Remove all entries. Return their number."""

        def work(tx: Transaction) -> int:
            count = len(tx[self._names[0]])
            for name in self._names:
                tx[name].clear()
            return count

        return self._write(work)

    def cull(self) -> int:
        """Remove expired entries, then evict others until the cache is within its limit."""
        return self.expire() + self._evict_to(self._size_limit)

    def _make_room(self) -> None:
        if self._eviction != "none" and self.volume() > self._size_limit:
            self.cull()

    def _evict_to(self, limit: int) -> int:
        if self._eviction == "none":
            return 0

        def oldest(tx: Any) -> list[bytes]:
            values, order, _, _, meta = (tx[name] for name in self._names)
            size = meta.get(b"bytes")
            over = (0 if size is None else _NUMBER.unpack(size)[0]) - limit
            found: list[bytes] = []
            for at in order.keys():
                if over <= 0 or len(found) >= _STEP:
                    break
                key = at[_TIME.size :]
                found.append(at)
                over -= len(key) + len(values.get(key) or b"")
            return found

        return self._remove_all(self._names[1], _TIME.size, oldest)

    def check(self) -> list[str]:
        """Compare the indexes with the entries. Return the differences."""
        with self._db.snapshot() as snapshot:
            values, order, expiry, tags, meta = (snapshot[name] for name in self._names)
            wanted: tuple[set[bytes], set[bytes], set[bytes]] = (set(), set(), set())
            size = 0
            for key, data in values.items():
                entry = _Entry(data)
                size += len(key) + len(data)
                wanted[0].add(_TIME.pack(entry.order) + key)
                if entry.expires:
                    wanted[1].add(_TIME.pack(entry.expires) + key)
                if entry.tag:
                    wanted[2].add(entry.tag + key)
            found = [set(order), set(expiry), set(tags)]
            names = ("order", "expiry", "tags")
            wrong = [n for n, want, has in zip(names, wanted, found) if want != has]
            counts = {b"entries": len(values), b"bytes": size}
            for name, count in counts.items():
                stored = meta.get(name)
                if (0 if stored is None else _NUMBER.unpack(stored)[0]) != count:
                    wrong.append(name.decode())
            return [f"the index {name} differs from the entries" for name in wrong]

    # Compositions.

    @contextmanager
    def transact(self) -> Iterator[None]:
        """Make the calls of this thread in a `with` block one transaction.

        All other writes of the database wait for its end. An exception undoes it.
        """
        if getattr(self._local, "transaction", None) is not None:
            yield
            return
        with self._db.write(exclusive=True) as tx:
            self._local.transaction = tx
            try:
                yield
            finally:
                self._local.transaction = None
        self._make_room()

    def memoize(
        self,
        name: str | None = None,
        typed: bool = False,
        expire: float | None = None,
        tag: Any = None,
    ) -> Callable[[Callable[..., R]], Callable[..., R]]:
        """Decorate a function whose results are cached by its arguments.

        Arguments are those of keys: None, bool, int, float, str, bytes, UUID, tuples. With `typed`,
        1 and 1.0 are different. The key of a call is `function.__cache_key__(*args, **kwargs)`.
        """
        if callable(name):
            raise TypeError("memoize has parentheses: @cache.memoize()")

        def decorate(function: Callable[..., R]) -> Callable[..., R]:
            base = name or f"{function.__module__}.{function.__qualname__}"

            def key_of(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
                named = tuple(sorted(kwargs.items()))
                if typed:
                    return base, args, named
                return base, _plain(args), _plain(named)

            @functools.wraps(function)
            def call(*args: Any, **kwargs: Any) -> R:
                key = key_of(*args, **kwargs)
                value = self.get(key, _ABSENT)
                if value is _ABSENT:
                    value = function(*args, **kwargs)
                    self.set(key, value, expire, tag)
                return value  # type: ignore[no-any-return]

            call.__cache_key__ = key_of  # type: ignore[attr-defined]
            return call

        return decorate

    def close(self) -> None:
        """Close the cache, and its database if it opened that."""
        if self._is_own:
            self._db.close()

    def __enter__(self) -> Cache:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _plain(value: Any) -> Any:
    """Return a key in which equal numbers are the same."""
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


__all__ = ["Cache"]
