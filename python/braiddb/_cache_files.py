"""The databases of caches: opened once in a process, and the lock of their writers.

If several processes share a database, each write of a cache is an exclusive transaction. The owner
of the database admits one at a time, and it ends with its process.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

from ._cache_ends import Ends
from ._cache_store import Uses, Work
from ._db import Database, Transaction, open_database
from ._errors import ExclusiveOpen, Forked, InvalidArgument, NoOwner, Timeout
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

    def forget_counts(self, counts: tuple[int, int]) -> None:
        """Subtract hits and misses that were stored or returned."""
        with self._lock:
            self._hits -= counts[0]
            self._misses -= counts[1]

    def has_use(self, at: bytes) -> bool:
        """Return whether a use of a key is noted."""
        return at in self._uses

    def use_count(self) -> int:
        """Return the number of keys with noted uses."""
        return len(self._uses)

    def take_use(self, at: bytes) -> tuple[int, int] | None:
        """Return the noted use of a key, and forget it."""
        with self._lock:
            return self._uses.pop(at, None)

    def take_uses(self, limit: int) -> Uses:
        """Return up to `limit` uses, and forget them."""
        with self._lock:
            found = list(islice(self._uses.items(), limit))
            for at, _ in found:
                del self._uses[at]
            return found

    def put_back(self, uses: Uses) -> None:
        """Note uses again that were not stored."""
        with self._lock:
            for at, (used, count) in uses:
                later = self._uses.get(at, (0, 0))
                self._uses[at] = max(used, later[0]), count + later[1]


class User:
    """Stands for an open cache, and ends with it."""

    __slots__ = ("__weakref__",)


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
        #: Open caches. One that is dropped without a close is none.
        self.users: weakref.WeakSet[User] = weakref.WeakSet()
        self.notes: dict[str, Notes] = {}
        self._ends: dict[str, Ends] = {}
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._writer: int | None = None
        self._works: dict[str, Work] = {}
        self._tx: Any = None
        self._is_exclusive = False

    def ends(self, name: str) -> Ends:
        """Return the bounds of a cache."""
        return self._ends.setdefault(name, Ends())

    def check_process(self) -> None:
        """Refuse the child of a fork: a thread of the parent may have held the locks."""
        if os.getpid() != self._process:
            raise Forked(
                f"process {os.getpid()} is a fork of process {self._process}, which opened the "
                'cache: open it after the fork, or start workers with the method "spawn"'
            )

    @contextmanager
    def locked(self, timeout: float | None) -> Iterator[None]:
        """Wait for the turn to write, at most `timeout` seconds."""
        self.check_process()
        wait = -1 if timeout is None else min(max(timeout, 0), threading.TIMEOUT_MAX)
        if not self._lock.acquire(timeout=wait):
            raise Timeout(f"another thread wrote to the cache for {timeout} seconds")
        try:
            yield
        finally:
            self._lock.release()

    def open(self, user: User, options: dict[str, Any], timeout: float | None) -> Database:
        """Open the database for one more cache, if it is not open."""
        with self.locked(timeout):
            if self.db is None or self.db.closed:
                assert self.path is not None
                # A cache can lose its last writes to a power failure.
                self.db = open_database(self.path, {"durability": "buffered", **options})
                self.options = options
                self.users.clear()
                # Another process may have written meanwhile.
                self._ends.clear()
            elif options and options != self.options:
                raise InvalidArgument(f"the cache {self.path!r} is open with other options")
            self.users.add(user)
            return self.db

    def close(self, user: User) -> None:
        """Release the database for one cache. The last one closes it."""
        with self.locked(None):
            self.users.discard(user)
            if not self.users and self.db is not None:
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
        until = None if timeout is None else time.monotonic() + timeout
        with self.locked(timeout):
            works = self._works
            is_committed = False
            try:
                with _begin(database(), is_exclusive, until) as self._tx:
                    self._writer, self._is_exclusive = threading.get_ident(), is_exclusive
                    try:
                        yield self._work(name)
                        for work in works.values():
                            work.finish()
                    finally:
                        self._writer = None
                is_committed = True
            except (ExclusiveOpen, NoOwner) as error:
                raise Timeout(str(error)) from error
            finally:
                self._tx, self._works = None, {}
                for work in works.values():
                    work.end(is_committed)

    def _work(self, name: str) -> Work:
        work = self._works.get(name)
        if work is None:
            notes = self.notes.setdefault(name, Notes())
            # Of several processes, the bounds are stored.
            ends = None if isinstance(self._tx.database, SharedDatabase) else self.ends(name)
            work = self._works[name] = Work(name, self._tx, notes, ends, self._is_exclusive)
        return work


#: Shortest time for the answer of another process.
_SECONDS_MIN = 0.1

#: Keys whose uses wait for a write.
_USES_MAX = 4096

_paths: weakref.WeakValueDictionary[tuple[int, str], Opened] = weakref.WeakValueDictionary()
_paths_lock = threading.Lock()


def _unlock_paths() -> None:
    global _paths_lock
    _paths_lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    # Another thread may hold the lock at the fork.
    os.register_at_fork(after_in_child=_unlock_paths)


def _begin(db: Database, is_exclusive: bool, until: float | None) -> Transaction:
    if not isinstance(db, SharedDatabase):
        return db.write(exclusive=is_exclusive)
    while True:
        left = None if until is None else max(until - time.monotonic(), _SECONDS_MIN)
        try:
            return db.write_alone(left)
        except (ExclusiveOpen, NoOwner):
            # The timeout of the database may be shorter.
            if until is not None and time.monotonic() >= until:
                raise


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
    with _paths_lock:
        if db._caches is None:
            db._caches = Opened(None)
        return db._caches  # type: ignore[no-any-return]


__all__ = ["Notes", "Opened", "User", "opened_at", "opened_in"]
