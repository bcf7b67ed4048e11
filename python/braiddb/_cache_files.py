"""The databases of caches: opened once in a process, and the lock of their writers."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

from ._cache_store import Work
from ._db import Database, open_database
from ._errors import ExclusiveOpen, InvalidArgument, Timeout, Unsupported
from ._shared import SharedDatabase


class Notes:
    """What reads of a cache note in memory, so that they write nothing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hits = self._misses = 0
        #: Times of the last use and numbers of uses.
        self._uses: dict[bytes, tuple[int, int]] = {}

    def count(self, is_miss: bool) -> None:
        """Count a hit or a miss."""
        with self._lock:
            if is_miss:
                self._misses += 1
            else:
                self._hits += 1

    def use(self, at: bytes, now: int) -> None:
        """Note a use. Without space for another key, it is forgotten."""
        with self._lock:
            before = self._uses.get(at)
            if before is not None or len(self._uses) < _USES_MAX:
                self._uses[at] = now, (0 if before is None else before[1]) + 1

    def counts(self) -> tuple[int, int]:
        """Return the hits and misses."""
        with self._lock:
            return self._hits, self._misses

    def take_counts(self) -> tuple[int, int]:
        """Return the hits and misses, and begin again."""
        with self._lock:
            counts = self._hits, self._misses
            self._hits = self._misses = 0
            return counts

    def take_uses(self, limit: int) -> list[tuple[bytes, tuple[int, int]]]:
        """Return up to `limit` uses, and forget them."""
        with self._lock:
            found = list(islice(self._uses.items(), limit))
            for at, _ in found:
                del self._uses[at]
            return found


class Opened:
    """A database that caches of this process share.

    Its lock admits one writer at a time, as SQLite does, so that writes of caches neither conflict
    nor repeat. Readers take no lock. The lock also guards the open and the close.
    """

    def __init__(self, path: str | None) -> None:
        self.path = path
        #: The database in `path`. Caches in a database of the user refer to that themselves.
        self.db: Database | None = None
        self.options: dict[str, Any] = {}
        self.users = 0
        self.notes: dict[str, Notes] = {}
        self._lock = threading.RLock()
        self._writer: int | None = None
        self._works: dict[str, Work] = {}
        self._tx: Any = None

    @contextmanager
    def locked(self, timeout: float | None) -> Iterator[None]:
        """Wait for the turn to write, at most `timeout` seconds."""
        wait = -1 if timeout is None else min(max(timeout, 0), threading.TIMEOUT_MAX)
        if not self._lock.acquire(timeout=wait):
            raise Timeout(f"another thread wrote to the cache for {timeout} seconds")
        try:
            yield
        finally:
            self._lock.release()

    def open(self, options: dict[str, Any], timeout: float | None) -> Database:
        """Open the database for one more cache, if it is not open."""
        with self.locked(timeout):
            if self.db is None or self.db.closed:
                assert self.path is not None
                if options.get("shared"):
                    raise _not_shared()
                # A cache can lose its last writes to a power failure.
                self.db = open_database(self.path, {"durability": "buffered", **options})
                self.options = options
                self.users = 0
            elif options and options != self.options:
                raise InvalidArgument(f"the cache {self.path!r} is open with other options")
            self.users += 1
            return self.db

    def close(self) -> None:
        """Release the database for one cache. The last one closes it."""
        with self.locked(None):
            self.users -= 1
            if self.users <= 0 and self.db is not None:
                db, self.db = self.db, None
                db.close()

    @property
    def transaction(self) -> Any:
        """The transaction of this thread, if it is in one."""
        return self._tx if self._writer == threading.get_ident() else None

    @contextmanager
    def write(
        self, name: str, timeout: float | None, is_exclusive: bool, database: Callable[[], Database]
    ) -> Iterator[Work]:
        """Yield the transaction of this thread, or a new one of `database()`."""
        if self._writer == threading.get_ident():
            yield self._work(name)
            return
        with self.locked(timeout):
            try:
                with database().write(exclusive=is_exclusive) as self._tx:
                    self._writer = threading.get_ident()
                    try:
                        yield self._work(name)
                        for work in self._works.values():
                            work.finish()
                    finally:
                        self._writer = None
                        self._works = {}
            except ExclusiveOpen as error:
                raise Timeout(str(error)) from error
            finally:
                self._tx = None

    def _work(self, name: str) -> Work:
        work = self._works.get(name)
        if work is None:
            work = self._works[name] = Work(name, self._tx)
        return work


#: Keys whose uses wait for a write.
_USES_MAX = 4096

_paths: weakref.WeakValueDictionary[tuple[int, str], Opened] = weakref.WeakValueDictionary()
_paths_lock = threading.Lock()


def _not_shared() -> Unsupported:
    # Its writes do not conflict, and large values are streams.
    return Unsupported("a cache is not available in a database opened with shared=True")


def opened_at(path: str) -> Opened:
    """Return the database in a directory, which may not be open."""
    key = (os.getpid(), os.path.realpath(path))
    with _paths_lock:
        opened = _paths.get(key)
        if opened is None:
            opened = _paths[key] = Opened(path)
        return opened


def opened_in(db: Database) -> Opened:
    """Return the state of the caches in an open database."""
    if isinstance(db, SharedDatabase):
        raise _not_shared()
    with _paths_lock:
        if db._caches is None:
            db._caches = Opened(None)
        return db._caches  # type: ignore[no-any-return]


__all__ = ["Notes", "Opened", "opened_at", "opened_in"]
