"""How a cache stores and finds entries, and its queues."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from ._cache_base import ABSENT, CacheBase
from ._cache_ends import BEHIND_ALL, Bounds, Ends, Range
from ._cache_store import ENDS, Entry, Work, after, now_us
from ._cache_values import Key, tag_bytes, tag_of
from ._errors import InvalidArgument, NotFound
from ._shared import SharedDatabase

Side = Literal["back", "front"]

#: Number of the first entry of a queue, and the numbers around all of them.
_QUEUE_START = 500_000_000_000_000
_QUEUE_END = 999_999_999_999_999

#: Noted uses that a write stores.
_USES = 16

#: Bytes of a file object that are copied at once.
_PART = 1 << 20


class _End(NamedTuple):
    """An end of a range of a tree."""

    of: Range
    whole: Bounds
    is_reverse: bool
    #: Whether a key is one of the range, which other keys may be within.
    has: Callable[[bytes], bool]


class Queues(CacheBase):
    """Entries of a cache by their order."""

    def _store(
        self,
        key: Key | Callable[[Work], Key],
        value: Any,
        expire: float | None,
        read: bool,
        tag: Any,
        retry: bool,
        if_absent: bool,
    ) -> bool:
        tagged = tag_bytes(tag)

        def store(work: Work, put: Callable[..., Entry]) -> bool:
            now = now_us()
            at = key if isinstance(key, Key) else key(work)
            if if_absent and work.live(at.at, now) is not None:
                return False
            entry = put(work, at, after(now, expire), tagged, now)
            if not work.is_users:
                work.store_uses(_USES)
            work.cull(now, self.cull_limit, self.size_limit, entry.row)
            return True

        if read:
            return self._store_file(store, value, retry)
        encoded = self._coder.value(value)

        def put(work: Work, at: Key, expires: int, tagged: bytes, now: int) -> Entry:
            return work.put(at, encoded, expires, tagged, now, self.disk_min_file_size)

        return self._run(store, put, retry=retry)

    def _store_file(self, store: Callable[..., bool], file: Any, retry: bool) -> bool:
        """Copy a file object before the transaction, which then refers to the copy."""
        place, source = os.urandom(16), _Counted(file)
        if isinstance(self._open(), SharedDatabase):
            return self._store_copy(store, source, retry)
        large = self._source()[self._names["large"]]

        def put(work: Work, at: Key, expires: int, tagged: bytes, now: int) -> Entry:
            return work.put_placed(at, place, source.size, expires, tagged, now)

        def refer() -> bool:
            is_stored = False
            try:
                is_stored = self._run(store, put, retry=retry)
            finally:
                if not is_stored:
                    large.delete(place)
            return is_stored

        if self._opened.transaction is not None:
            large.put_stream(place, source)
            return refer()
        with large.open_stream(place, "wb") as copy:
            while part := source.read(_PART):
                copy.write(part)
            with self._opened.locked(None if retry else self._timeout):
                copy.close()
                return refer()

    def _store_copy(self, store: Callable[..., bool], source: _Counted, retry: bool) -> bool:
        """Copy a file object to a temporary file before the transaction, and then into it.

        Writers of all processes wait for the transaction, and it runs again if its owner ends.
        """
        with tempfile.SpooledTemporaryFile(_PART) as copy:
            while part := source.read(_PART):
                copy.write(part)

            def put(work: Work, at: Key, expires: int, tagged: bytes, now: int) -> Entry:
                place = os.urandom(16)
                copy.seek(0)
                work.large.put_stream(place, copy)
                return work.put_placed(at, place, source.size, expires, tagged, now)

            return self._run(store, put, retry=retry)

    def _value(self, source: Any, entry: Entry, as_file: bool = False) -> Any:
        """Return the value of an entry, `ABSENT` if another writer removed it meanwhile."""
        data = entry.value
        if entry.is_large:
            large = source[self._names["large"]]
            if as_file and entry.kind == b"b":
                try:
                    return large.open_stream(entry.value)
                except NotFound:
                    return ABSENT
            data = large.get(entry.value)
            if data is None:
                return ABSENT
        elif as_file and entry.kind == b"b":
            return io.BytesIO(data)
        return self._coder.value_of(entry.kind, data)

    def _fetch(self, source: Any, at: bytes, as_file: bool) -> tuple[Entry | None, Any]:
        before = None
        while True:
            data = source[self._names["entries"]].get(at)
            entry = None if data is None else Entry.read(data)
            # An entry whose value is lost is a miss; `check` reports it.
            if entry is None or not entry.is_live(now_us()) or data == before:
                return None, ABSENT
            value = self._value(source, entry, as_file)
            if value is not ABSENT:
                return entry, value
            before = data

    def peekitem(
        self,
        last: bool = True,
        expire_time: bool = False,
        tag: bool = False,
        retry: bool = False,
    ) -> Any:
        """Return the key and value that were inserted last, or first."""

        end = _End(("rows", b""), (b"", BEHIND_ALL), last, lambda row: True)
        found = self._end(end, False, retry)
        if found is None:
            raise KeyError("the cache is empty")
        entry, pair = found
        return with_flags(pair, entry, expire_time, tag)

    def _key_at(self, source: Any, end: _End, bounds: Bounds) -> tuple[bytes, bytes] | None:
        """Return the row of a tree at an end of a range, and the key of its entry."""
        tree = source[self._names[end.of[0]]]
        rows = tree.items if end.of[0] == "rows" else tree.keys
        start, stop = max(bounds[0], end.whole[0]), min(bounds[1], end.whole[1])
        for row in rows(start=start, stop=stop, reverse=end.is_reverse):
            key, at = row if end.of[0] == "rows" else (row, row)
            if end.has(key):
                return key, at
        return None

    def _end(self, end: _End, is_pull: bool, retry: bool) -> tuple[Entry, Any] | None:
        """Return the live entry at an end of a range. Remove expired ones before it."""

        def peek(source: Any) -> Any:
            if isinstance(source, SharedDatabase):
                with source.snapshot() as snapshot:
                    stored = Ends.read(snapshot[self._names["meta"]].get(ENDS)).get(end.of)
                    found = self._key_at(snapshot, end, stored or end.whole)
                    return peeked_at(snapshot, found)
            ends = self._opened.ends(self._name)
            while True:
                bounds = ends.get(end.of)
                found = self._key_at(source, end, bounds or end.whole)
                if ends.hold(end.of, bounds):
                    return peeked_at(source, found)

        def peeked_at(source: Any, found: tuple[bytes, bytes] | None) -> Any:
            if found is None:
                return None
            entry, value = self._fetch(source, found[1], False)
            if entry is None:
                return ABSENT
            return entry, (self._coder.key_of(entry.key or found[1]), value)

        # A peek at an entry that has not expired is a read, which waits for no writer.
        is_read = not is_pull and self._opened.transaction is None
        peeked = self._read(peek) if is_read else ABSENT
        if peeked is not ABSENT:
            return peeked  # type: ignore[no-any-return]

        def find(work: Work) -> tuple[Entry, Any] | None:
            while (at := self._find_end(work, end)) is not None:
                entry = work.find(at)
                if entry is None:
                    return None
                value = ABSENT
                if entry.is_live(now_us()):
                    value = self._value(work.tx, entry)
                if is_pull or value is ABSENT:
                    work.remove(at, entry)
                if value is not ABSENT:
                    return entry, (self._coder.key_of(entry.key or at), value)
            return None

        return self._run(find, retry=retry)

    def _find_end(self, work: Work, end: _End) -> bytes | None:
        """Return the key of the entry at an end of a range, and note the end."""
        found = self._key_at(work.tx, end, work.bounds(end.of) or end.whole)
        work.narrow(end.of, end.whole, end.is_reverse, None if found is None else found[0])
        return None if found is None else found[1]

    # Queues.

    def _queue(self, prefix: str | None, is_reverse: bool) -> _End:
        """Return an end of a queue."""
        first, last = self._queue_key(prefix, 0), self._queue_key(prefix, _QUEUE_END)
        if first.whole:
            raise InvalidArgument("the prefix of a queue is too long")
        of = "entries", b"" if prefix is None else first.at[:-16]
        has = lambda at: self._queue_number(prefix, at) is not None  # noqa: E731
        return _End(of, (first.at, last.at), is_reverse, has)

    def _queue_key(self, prefix: str | None, number: int) -> Key:
        return self._coder.key(number if prefix is None else f"{prefix}-{number:015d}")

    def _queue_number(self, prefix: str | None, at: bytes) -> int | None:
        key = self._coder.key_of(at)
        if prefix is None:
            return key if type(key) is int and 0 < key < _QUEUE_END else None
        digits = key[len(prefix) + 1 :]
        is_number = len(digits) == 15 and digits.isascii() and digits.isdigit()
        return int(digits) if is_number and 0 < int(digits) < _QUEUE_END else None

    def push(
        self,
        value: Any,
        prefix: str | None = None,
        side: Side = "back",
        expire: float | None = None,
        read: bool = False,
        tag: Any = None,
        retry: bool = False,
    ) -> Any:
        """Add a value to an end of a queue, and return its key.

        The keys of a queue are numbers from 500,000,000,000,000 on; with a prefix they are text,
        `prefix-number`.
        """
        _check_side(side)
        queue = self._queue(prefix, side == "back")
        pushed: list[int] = []

        def next_key(work: Work) -> Key:
            end = self._find_end(work, queue)
            before = None if end is None else self._queue_number(prefix, end)
            step = 1 if side == "back" else -1
            number = _QUEUE_START if before is None else before + step
            if not 0 < number < _QUEUE_END:
                raise InvalidArgument(f"the queue is full at its {side}")
            pushed[:] = [number]
            return self._queue_key(prefix, number)

        self._store(next_key, value, expire, read, tag, retry, False)
        return self._coder.key_of(self._queue_key(prefix, pushed[0]).at)

    def pull(
        self,
        prefix: str | None = None,
        default: Any = (None, None),
        side: Side = "front",
        expire_time: bool = False,
        tag: bool = False,
        retry: bool = False,
    ) -> Any:
        """Remove a key and value from an end of a queue and return them, or `default`."""
        return self._of_queue(prefix, default, side, expire_time, tag, retry, True)

    def peek(
        self,
        prefix: str | None = None,
        default: Any = (None, None),
        side: Side = "front",
        expire_time: bool = False,
        tag: bool = False,
        retry: bool = False,
    ) -> Any:
        """Return the key and value at an end of a queue, or `default`."""
        return self._of_queue(prefix, default, side, expire_time, tag, retry, False)

    def _of_queue(
        self,
        prefix: str | None,
        default: Any,
        side: Side,
        expire_time: bool,
        tag: bool,
        retry: bool,
        is_pull: bool,
    ) -> Any:
        _check_side(side)

        found = self._end(self._queue(prefix, side == "back"), is_pull, retry)
        entry, pair = (None, default) if found is None else found
        return with_flags(pair, entry, expire_time, tag)


class _Counted:
    """A file object to copy, and the bytes read from it."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.size = 0

    def read(self, size: int) -> bytes:
        part = self._file.read(size)
        if not isinstance(part, (bytes, bytearray, memoryview)):
            raise TypeError(f"the file's read() returns {type(part).__name__}, not bytes")
        self.size += len(part)
        return bytes(part)


def _check_side(side: str) -> None:
    if side not in ("front", "back"):
        raise InvalidArgument(f'a queue has the sides "front" and "back", not {side!r}')


def with_flags(value: Any, entry: Entry | None, expire_time: bool, tag: bool) -> Any:
    """Return a value, with the expiry time and the tag of its entry if wanted."""
    if not expire_time and not tag:
        return value
    expires = entry.expires / 1_000_000 if entry is not None and entry.expires else None
    found: tuple[Any, ...] = (value,)
    if expire_time:
        found += (expires,)
    if tag:
        found += (None if entry is None else tag_of(entry.tag),)
    return found


__all__ = ["Queues", "with_flags"]
