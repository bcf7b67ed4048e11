"""A cache on disk: values with expiry times, tags and a size limit.

The methods are those of the package diskcache, with its arguments. Values are bytes, str, numbers,
tuples of them, and what JSON stores without change; nothing is pickled without `pickle=True`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Iterator
from typing import Any, TypeVar

from ._cache_base import ABSENT, DEFAULT_SETTINGS
from ._cache_check import check
from ._cache_entries import Queues, with_flags
from ._cache_store import Entry, Work, after, counters, now_us, time_us, whole_key
from ._cache_values import call_key, refused_argument, tag_bytes
from ._db import Database
from ._errors import InvalidArgument, Timeout
from ._shared import SharedDatabase

R = TypeVar("R")

#: Entries that a step of a long removal removes at most.
_STEP = 100


class Cache(Queues):
    """A cache in the directory `directory`, or in a database that is open.

    Without a directory it is in a new temporary one. `timeout` is how long a write waits for other
    threads' `transact()`, in seconds: it then raises `Timeout`, unless `retry` is true. `disk` is
    a codec for values that are not bytes, str, int or float. In a database of your own, `name`
    begins the names of the cache's trees. There, a write also waits for exclusive transactions that
    are no `transact()`: until their end or `exclusive_wait_max` of the database, not for `timeout`.

    With `shared=True`, several processes have the cache open: open it in each, after a fork, with
    the same arguments. Writes then also wait for other processes, up to `timeout`.

    Settings: `size_limit` bounds `volume()`. Beyond it, a write removes up to
    `cull_limit` entries: expired ones, then others by `eviction_policy`: "least-recently-stored",
    "least-recently-used", "least-frequently-used" or "none". Uses are noted once per
    `use_interval` seconds, so that most reads write nothing. `statistics` counts hits and misses.
    Values from `disk_min_file_size` bytes on are stored apart. Further options are those of
    `braiddb.open`.
    """

    # Writes.

    def set(
        self,
        key: Any,
        value: Any,
        expire: float | None = None,
        read: bool = False,
        tag: Any = None,
        retry: bool = False,
    ) -> bool:
        """Set a value that expires after `expire` seconds. Return True.

        With `read` the value is a file object, whose bytes are stored.
        """
        return self._store(self._coder.key(key), value, expire, read, tag, retry, False)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.set(key, value)

    def add(
        self,
        key: Any,
        value: Any,
        expire: float | None = None,
        read: bool = False,
        tag: Any = None,
        retry: bool = False,
    ) -> bool:
        """Set a value if the key is absent. Return whether it was."""
        return self._store(self._coder.key(key), value, expire, read, tag, retry, True)

    def incr(
        self, key: Any, delta: float = 1, default: float | None = 0, retry: bool = False
    ) -> Any:
        """Add to a number and return the sum. With `default=None` an absent key is a KeyError."""
        at = self._coder.key(key)

        def change(work: Work) -> Any:
            now = now_us()
            entry = work.live(at.at, now)
            before = ABSENT if entry is None else self._value(work.tx, entry)
            if entry is None or before is ABSENT:
                if default is None:
                    raise KeyError(key)
                total = default + delta
                value = self._coder.value(total)
                entry = work.put(at, value, 0, b"", now, self.disk_min_file_size)
                work.cull(now, self.cull_limit, self.size_limit, entry.row)
                return total
            if type(before) not in (int, float):
                raise TypeError(f"the value is no number but a {type(before).__name__}")
            value = self._coder.value(before + delta)
            if entry.is_large:
                work.put(at, value, entry.expires, entry.tag, now, self.disk_min_file_size)
            else:
                uses = entry.uses + 1
                fields = {"kind": value.kind, "value": value.data, "uses": uses}
                work.change(at.at, entry, stored=now, used=now, **fields)
            return before + delta

        return self._run(change, retry=retry)

    def decr(
        self, key: Any, delta: float = 1, default: float | None = 0, retry: bool = False
    ) -> Any:
        """Subtract from a number and return the difference."""
        return self.incr(key, -delta, default, retry)

    def touch(self, key: Any, expire: float | None = None, retry: bool = False) -> bool:
        """Set the expiry time of a value. Return whether it is there."""
        at = self._coder.key(key).at

        def change(work: Work) -> bool:
            now = now_us()
            entry = work.live(at, now)
            if entry is not None:
                work.change(at, entry, expires=after(now, expire))
            return entry is not None

        return self._run(change, retry=retry)

    def pop(
        self,
        key: Any,
        default: Any = None,
        expire_time: bool = False,
        tag: bool = False,
        retry: bool = False,
    ) -> Any:
        """Remove a key and return its value, or `default`."""
        at = self._coder.key(key).at

        def change(work: Work) -> tuple[Entry | None, Any]:
            entry = work.live(at, now_us())
            if entry is None:
                return None, default
            value = self._value(work.tx, entry)
            work.remove(at, entry)
            return (None, default) if value is ABSENT else (entry, value)

        entry, value = self._run(change, retry=retry)
        return with_flags(value, entry, expire_time, tag)

    def delete(self, key: Any, retry: bool = False) -> bool:
        """Delete a key. Return whether it was there."""
        at = self._coder.key(key).at

        def change(work: Work) -> bool:
            entry = work.live(at, now_us())
            if entry is not None:
                work.remove(at, entry)
            return entry is not None

        return self._run(change, retry=retry)

    def __delitem__(self, key: Any, retry: bool = False) -> None:
        if not self.delete(key, retry):
            raise KeyError(key)

    # Reads.

    def get(
        self,
        key: Any,
        default: Any = None,
        read: bool = False,
        expire_time: bool = False,
        tag: bool = False,
        retry: bool = False,
    ) -> Any:
        """Return a value or `default`; with flags a tuple that has its expiry time and tag.

        With `read`, bytes are returned as a file object. A get waits for no writer, so `retry`
        changes nothing.
        """
        at = self._coder.key(key).at
        entry, value = self._read(self._fetch, at, read)
        if self.statistics:
            self._notes.count(entry is None)
        if entry is None:
            value = default
        elif self.eviction_policy in ("least-recently-used", "least-frequently-used"):
            now = now_us()
            if now - entry.used >= self.use_interval * 1_000_000:
                self._notes.use(at, now)
        return with_flags(value, entry, expire_time, tag)

    def __getitem__(self, key: Any) -> Any:
        value = self.get(key, ABSENT)
        if value is ABSENT:
            raise KeyError(key)
        return value

    def read(self, key: Any, retry: bool = False) -> Any:
        """Return the bytes of a key as a file object, other values as they are."""
        value = self.get(key, ABSENT, read=True, retry=retry)
        if value is ABSENT:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        at = self._coder.key(key).at
        data = self._read(lambda source: source[self._names["entries"]].get(at))
        return data is not None and Entry.read(data).is_live(now_us())

    def __len__(self) -> int:
        """Return the number of entries, with expired ones that were not removed yet."""
        return self._read(counters, self._names["meta"])[0]

    def __bool__(self) -> bool:
        return True

    def volume(self) -> int:
        """Return the bytes of entries: keys, values, tags, and 56 each for times and numbers.

        The files of the database may have fewer, as they are compressed, or more: the log, indexes,
        and removed entries until a merge drops them. `expire()` and `cull()` do not change those.
        """
        return self._read(counters, self._names["meta"])[1]

    # Iteration.

    def _snapshot(self, source: Any) -> Any:
        return source.snapshot() if isinstance(source, Database) else source

    def _keys(self, source: Any, rows: Iterator[bytes]) -> Iterator[Any]:
        for at in rows:
            whole = whole_key(source, self._names["entries"], at)
            if whole is not None:
                yield self._coder.key_of(whole)

    def _iterate(self, reverse: bool) -> Iterator[Any]:
        def begin(source: Any) -> Iterator[Any]:
            source = self._snapshot(source)
            # In a transaction, keys that come later are not of this iteration.
            stop = counters(source, self._names["meta"])[2] + 1
            rows = source[self._names["rows"]].values(stop=stop.to_bytes(8, "big"), reverse=reverse)
            return self._keys(source, iter(rows))

        return self._read(begin)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the keys of a snapshot as they were inserted, with expired ones."""
        return self._iterate(False)

    def __reversed__(self) -> Iterator[Any]:
        return self._iterate(True)

    def iterkeys(self, reverse: bool = False) -> Iterator[Any]:
        """Iterate over the keys of a snapshot in order, with expired ones."""

        def begin(source: Any) -> Iterator[Any]:
            source = self._snapshot(source)
            return self._keys(source, iter(source[self._names["entries"]].keys(reverse=reverse)))

        return self._read(begin)

    # Removal of many.

    def _remove_steps(self, step: Callable[[Work], int], retry: bool) -> int:
        """Remove entries in steps, between which others write. Return their number."""
        total = 0
        try:
            while True:
                removed = self._run(step, retry=retry)
                total += removed
                if removed == 0:
                    return total
        except Timeout as error:
            raise Timeout(total) from error

    def expire(self, now: float | None = None, retry: bool = False) -> int:
        """Remove expired entries. Return their number.

        A `Timeout` has the number of the removed ones in `args`, as those of `evict` and `cull`.
        """
        until = now_us() if now is None else time_us(now)
        return self._remove_steps(lambda work: work.remove_expired(until, _STEP), retry)

    def evict(self, tag: Any, retry: bool = False) -> int:
        """Remove the entries with a tag. Return their number."""
        tagged = tag_bytes(tag)
        if not tagged:
            raise InvalidArgument("a tag is not None")
        return self._remove_steps(lambda work: work.remove_tagged(tagged, _STEP), retry)

    def cull(self, retry: bool = False) -> int:
        """Remove expired entries, then evict others until the cache is within its limit."""
        until = now_us()
        if self._opened.transaction is None:
            # Evictions look for noted uses, too, but only so many in a transaction.
            try:
                self._store_uses(self._notes.use_count(), retry)
            except Timeout as error:
                raise Timeout(0) from error

        def step(work: Work) -> int:
            removed = work.remove_expired(until, _STEP)
            while removed < _STEP and work.volume > self.size_limit and work.evict(1):
                removed += 1
            return removed

        return self._remove_steps(step, retry)

    def clear(self, retry: bool = False) -> int:
        """Remove all entries, in one transaction. Return their number."""
        return self._run(Work.clear, retry=retry)

    def check(self, fix: bool = False, retry: bool = False) -> list[str]:
        """Compare the indexes and counters with the entries. Return the differences.

        Other writers of the cache wait meanwhile. `fix` mends them, in one transaction if several
        processes share the cache.
        """
        db = self._open()
        if isinstance(db, SharedDatabase):
            if not fix:
                return check(db, self._names, self._run, False)
            with self.transact(retry):
                return check(db, self._names, self._run, True)
        with self._opened.locked(None if retry else self._timeout):
            return check(db, self._names, self._run, fix)

    # Functions.

    def memoize(
        self,
        name: str | None = None,
        typed: bool = False,
        expire: float | None = None,
        tag: Any = None,
        ignore: Container[Any] = (),
    ) -> Callable[[Callable[..., R]], Callable[..., R]]:
        """Decorate a function whose results are cached by its arguments.

        With `typed`, 1 and 1.0 are different. `ignore` has positions and names of arguments that
        do not matter. With `expire=0` results are looked up, but not stored. The key of a call is
        `function.__cache_key__(*args, **kwargs)`.
        """
        if callable(name):
            raise TypeError("memoize has parentheses: @cache.memoize()")

        def decorate(function: Callable[..., R]) -> Callable[..., R]:
            base = name or f"{function.__module__}.{function.__qualname__}"

            def key_of(*args: Any, **kwargs: Any) -> tuple[Any, ...]:
                used: list[tuple[Any, Any]]
                used = [(at, arg) for at, arg in enumerate(args) if at not in ignore]
                used += [item for item in sorted(kwargs.items()) if item[0] not in ignore]
                return call_key(base, used, typed)

            @functools.wraps(function)
            def call(*args: Any, **kwargs: Any) -> R:
                key = key_of(*args, **kwargs)
                try:
                    value = self.get(key, ABSENT)
                except TypeError as error:
                    which = refused_argument(key)
                    if which is None:
                        raise
                    raise TypeError(f"argument {which} of {base}: {error}") from error
                if value is ABSENT:
                    value = function(*args, **kwargs)
                    if expire is None or expire > 0:
                        self.set(key, value, expire, tag=tag, retry=True)
                return value  # type: ignore[no-any-return]

            call.__cache_key__ = key_of  # type: ignore[attr-defined]
            return call

        return decorate


__all__ = ["DEFAULT_SETTINGS", "Cache", "Timeout"]
