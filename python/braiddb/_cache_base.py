"""The opening, settings, transactions and statistics of a cache."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeVar

from ._cache_files import Notes, User, opened_at, opened_in
from ._cache_store import ENDS, FORMAT, ORDER, POLICIES, STATISTICS, TREES, Work, counters
from ._cache_values import Coder
from ._codecs import Codec
from ._db import Database, Path, pause
from ._errors import (
    Closed,
    Conflict,
    InvalidArgument,
    Timeout,
    TransactionTooLarge,
    Unsupported,
)
from ._shared import SharedDatabase

R = TypeVar("R")
Self = TypeVar("Self", bound="CacheBase")

#: Settings of a new cache. A cache stores those that differ.
DEFAULT_SETTINGS: dict[str, Any] = {
    "statistics": 0,
    "tag_index": 0,
    "eviction_policy": "least-recently-stored",
    "size_limit": 1 << 30,
    "cull_limit": 10,
    "use_interval": 60.0,
    "disk_min_file_size": 1 << 15,
    "disk_pickle_protocol": 5,
}

#: Version of the trees.
_FORMAT = b"1"
_SETTING = b"setting "

#: Noted uses that a close stores, and those of one transaction.
_USES_AT_CLOSE, _USES_STEP = 1000, 100

#: Settings that are whole numbers.
_WHOLE = ("statistics", "tag_index", "cull_limit", "disk_pickle_protocol")

ABSENT: Any = object()


class CacheBase:
    """The settings and the database of a cache."""

    statistics: Any
    tag_index: Any
    eviction_policy: str
    size_limit: float
    cull_limit: int
    use_interval: float
    disk_min_file_size: int
    disk_pickle_protocol: int

    def __init__(
        self,
        directory: Path | Database | None = None,
        timeout: float = 60,
        disk: Codec[Any] | None = None,
        *,
        name: str = "cache",
        pickle: bool = False,
        **settings: Any,
    ) -> None:
        if disk is not None and not isinstance(disk, Codec):
            raise InvalidArgument("disk is a braiddb.Codec: the database stores all values")
        options = {k: v for k, v in settings.items() if k not in DEFAULT_SETTINGS}
        settings = {k: v for k, v in settings.items() if k in DEFAULT_SETTINGS}
        self._arguments = {"disk": disk, "name": name, "pickle": pickle, **options}
        self._timeout = timeout
        self._name = name
        self._names = {tree: f"{name}.{tree}" for tree in TREES}
        self._depth = 0
        self._coder = Coder(pickle, DEFAULT_SETTINGS["disk_pickle_protocol"], disk)
        self._options = options
        self._borrowed = directory if isinstance(directory, Database) else None
        if isinstance(directory, Database):
            if options:
                raise TypeError(f"there are no settings {', '.join(options)}")
            self._directory = directory.path
            self._opened = opened_in(directory)
        else:
            self._directory = _make_directory(directory)
            self._opened = opened_at(self._directory)
        self._notes = self._opened.notes.setdefault(name, Notes())
        self._user = User()
        self._is_open = False
        try:
            self._begin(self._open(), settings)
        except BaseException:
            # The traceback keeps this object.
            if self._is_open:
                self._is_open = False
                self._opened.close(self._user)
            raise

    def _open(self) -> Database:
        """Return the database, opened again after a close."""
        opened = self._opened
        if self._borrowed is not None:
            return self._borrowed
        while True:
            if not self._is_open:
                with opened.locked(self._timeout):
                    if not self._is_open:
                        opened.open(self._user, self._options, self._timeout)
                        self._is_open = True
            db = opened.db
            # None if another thread closed the cache just now.
            if db is not None:
                return db

    def _begin(self, db: Database, settings: dict[str, Any]) -> None:
        """Create the trees, and read and store settings."""
        for tree in self._names.values():
            db[tree]
        meta = db[self._names["meta"]]
        version = meta.get(FORMAT)
        if not isinstance(db, SharedDatabase) and meta.get(ENDS) is not None:
            # One process has them in memory.
            self._run(lambda work: work.meta.delete(ENDS))
        if version not in (None, _FORMAT):
            raise Unsupported(f"the cache {self._name!r} is of another version of this package")
        for key, value in {**DEFAULT_SETTINGS, **self._stored_settings(db)}.items():
            self._apply(key, value)
        settings = {key: self._checked(key, value) for key, value in settings.items()}
        if version is None:
            policy = settings.get("eviction_policy", self.eviction_policy)

            def first(work: Work) -> None:
                if work.meta.get(FORMAT) is None:
                    work.meta[FORMAT], work.meta[ORDER] = _FORMAT, policy.encode()

            self._run(first)
        for key, value in settings.items():
            if getattr(self, key) != value:
                self.reset(key, value)
        if meta.get(ORDER) != self.eviction_policy.encode():
            self._reorder()

    @property
    def directory(self) -> str:
        """The cache's directory."""
        return self._directory

    @property
    def timeout(self) -> float:
        """How long a write waits for others, in seconds."""
        return self._timeout

    @property
    def disk(self) -> Codec[Any] | None:
        """The codec of values of other types."""
        return self._coder.codec

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._directory!r})"

    # Settings.

    def _stored_settings(self, source: Any) -> dict[str, Any]:
        rows = source[self._names["meta"]].items(prefix=_SETTING)
        return {key[len(_SETTING) :].decode(): json.loads(value) for key, value in rows}

    @staticmethod
    def _checked(key: str, value: Any) -> Any:
        """Return the value of a setting, a whole number as an int."""
        if key not in DEFAULT_SETTINGS:
            raise InvalidArgument(f"there is no setting {key!r}")
        if key == "eviction_policy":
            if value not in POLICIES:
                raise InvalidArgument(f"no eviction policy {value!r}: use {', '.join(POLICIES)}")
            return value
        # Not a number is not from 0 on, either.
        if not isinstance(value, (bool, int, float)) or not value >= 0:
            raise InvalidArgument(f"{key} is a number from 0 on, not {value!r}")
        if key in _WHOLE and isinstance(value, float):
            if not value.is_integer():
                raise InvalidArgument(f"{key} is a whole number, not {value!r}")
            return int(value)
        return value

    def _apply(self, key: str, value: Any) -> None:
        setattr(self, key, value)
        if key == "disk_pickle_protocol":
            self._coder.protocol = value

    def reset(self, key: str, value: Any = ABSENT, update: bool = True) -> Any:
        """Read a setting that another object may have changed, or change it.

        Without `update` the change is for this object only. Also reads "count", "size", "hits" and
        "misses".
        """
        if value is ABSENT:
            return self._reload(key)
        value = self._checked(key, value)
        if not update:
            if key == "eviction_policy":
                raise InvalidArgument("all objects of a cache evict by one policy")
        else:

            def store(work: Work) -> None:
                work.meta[_SETTING + key.encode()] = json.dumps(value).encode()

            self._run(store)
        self._apply(key, value)
        if key == "eviction_policy":
            order = self._source()[self._names["meta"]].get(ORDER)
            if order != value.encode():
                self._reorder()
        return value

    def _reload(self, key: str) -> Any:
        if key in ("count", "size"):
            found = self._read(counters, self._names["meta"])
            return found[key == "size"]
        if key in ("hits", "misses"):
            return self._statistics()[key == "misses"]
        if key not in DEFAULT_SETTINGS:
            raise InvalidArgument(f"there is no setting {key!r}")
        stored = self._stored_settings(self._source())
        self._apply(key, stored.get(key, DEFAULT_SETTINGS[key]))
        return getattr(self, key)

    def _reorder(self) -> None:
        """Build the order of evictions for another policy, in steps while others wait.

        If other processes may write, it is one transaction.
        """
        policy = self.eviction_policy.encode()

        def begin(work: Work) -> None:
            # A build that is cut short evicts nothing; the next open completes it.
            work.meta[ORDER], work.policy = b"", ""
            work.order.clear()

        def step(work: Work, rows: list[bytes], is_last: bool) -> None:
            work.policy = policy.decode()
            for at in rows:
                entry = work.find(at)
                key = None if entry is None else work.index_rows(entry).get("order")
                if key is not None:
                    work.widen(("order", b""), key)
                    work.order[key] = at
            if is_last:
                work.meta[ORDER] = policy
            else:
                work.policy = ""

        is_shared = isinstance(self._open(), SharedDatabase)
        with self.transact() if is_shared else self._opened.locked(self._timeout):
            self._run(begin)
            keys, is_last = list(self._source()[self._names["entries"]]), False
            while not is_last:
                part, keys = keys[:1000], keys[1000:]
                is_last = not keys
                self._run(step, part, is_last)

    def create_tag_index(self) -> None:
        """Note that tags are indexed, as they always are."""
        self.reset("tag_index", 1)

    def drop_tag_index(self) -> None:
        """Note that tags need no index. They keep it."""
        self.reset("tag_index", 0)

    # Transactions.

    def _transact(self, retry: bool = False, is_exclusive: bool = False) -> Any:
        """Return a context manager of this thread's transaction, or a new one."""
        timeout = None if retry else self._timeout
        return self._opened.write(self._name, timeout, is_exclusive, self._open)

    def _run(self, function: Callable[..., R], *args: Any, retry: bool = False) -> R:
        """Call a function with the transaction of this thread, or a new one."""
        until = time.monotonic() + self._timeout
        attempt = 0
        while True:
            try:
                with self._transact(retry) as work:
                    result = function(work, *args)
                    work.finish()
                    return result
            except Conflict as error:
                # With a writer that is no cache of this process.
                if self._opened.transaction is not None:
                    raise
                if not retry and time.monotonic() > until:
                    raise Timeout(str(error)) from error
            pause(attempt)
            attempt += 1

    def _source(self) -> Any:
        """Return where to read: the database, or the transaction of this thread."""
        current = self._opened.transaction
        return self._open() if current is None else current

    def _read(self, function: Callable[..., R], *args: Any) -> R:
        """Call a function with a source, again if another thread closed it meanwhile."""
        while True:
            source = self._source()
            try:
                return function(source, *args)
            except Closed:
                is_lasting = source is self._opened.db or self._borrowed is not None
                if is_lasting or self._opened.transaction is not None:
                    raise

    @contextmanager
    def transact(self, retry: bool = False) -> Iterator[None]:
        """Make the calls of this thread in a `with` block one transaction.

        Other writes of the cache's database wait for its end, and reads see the values from before
        it. An exception undoes it. If several processes share the database and the owner ends
        meanwhile, the end raises `Conflict` and nothing was written.
        """
        with self._transact(retry, True):
            yield

    # Statistics.

    def _statistics(self, reset: bool = False) -> tuple[int, int]:
        """Return the hits and misses, with those stored at earlier closes."""
        self._opened.check_process()
        recent = self._notes.counts()
        stored = self._read(lambda source: source[self._names["meta"]].get(STATISTICS))
        before = (0, 0) if stored is None else json.loads(stored)
        if reset and stored is not None:
            self._run(lambda work: work.meta.delete(STATISTICS))
        if reset:
            self._notes.forget_counts(recent)
        return before[0] + recent[0], before[1] + recent[1]

    def stats(self, enable: bool = True, reset: bool = False) -> tuple[int, int]:
        """Return the hits and misses while they were counted. `enable` says whether to go on."""
        found = self._statistics(reset)
        if bool(self.statistics) != bool(enable):
            self.reset("statistics", int(enable))
        return found

    # The end.

    def close(self) -> None:
        """Release the database; the last of its caches in a process closes it.

        The next call opens it again. A database of your own stays open.
        """
        if self._borrowed is not None:
            return
        with self._opened.locked(None):
            if self._opened.transaction is not None:
                raise InvalidArgument("a cache is not closed within transact()")
            if not self._is_open:
                return
            try:
                self._store_uses(_USES_AT_CLOSE)
                self._store_counts()
            finally:
                self._is_open = False
                self._opened.close(self._user)

    def _store_uses(self, limit: int, retry: bool = False) -> None:
        """Store up to `limit` noted uses, in transactions of bounded size."""
        left = min(limit, self._notes.use_count())
        while left > 0:
            stored = 0
            try:
                stored = self._run(Work.store_uses, min(left, _USES_STEP), True, retry=retry)
            except TransactionTooLarge:
                # An entry that fills the memory of a transaction; its use stays in memory.
                pass
            left -= max(stored, 1)

    def _store_counts(self) -> None:
        recent = self._notes.counts()
        if recent == (0, 0):
            return

        def store(work: Work) -> None:
            stored = work.meta.get(STATISTICS)
            before = (0, 0) if stored is None else json.loads(stored)
            total = [before[0] + recent[0], before[1] + recent[1]]
            work.meta[STATISTICS] = json.dumps(total).encode()

        self._run(store)
        self._notes.forget_counts(recent)

    def __enter__(self: Self) -> Self:
        self._open()
        self._depth += 1
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Another thread may be in a block of the same object.
        self._depth -= 1
        if self._depth <= 0:
            self.close()

    def __getstate__(self) -> tuple[Any, ...]:
        if self._borrowed is not None:
            raise TypeError("a cache in an open database cannot be pickled")
        return self._directory, self._timeout, self._arguments

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        directory, timeout, arguments = state
        self.__init__(directory, timeout, **arguments)  # type: ignore[misc]


def _make_directory(directory: Path | None) -> str:
    if directory is None:
        return tempfile.mkdtemp(prefix="braiddb-cache-")
    path = os.path.expandvars(os.path.expanduser(os.fsdecode(directory)))
    os.makedirs(path, 0o755, exist_ok=True)
    return path


__all__ = ["ABSENT", "DEFAULT_SETTINGS", "CacheBase"]
