"""Databases, transactions and snapshots."""

from __future__ import annotations

import atexit
import functools
import inspect
import os
import random
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, Union, overload

from . import _braiddb
from ._codecs import RAW, Codec, codec_of
from ._errors import Closed, Conflict, InvalidArgument, NotFound, ReaderExpired
from ._trees import (
    INDEX_ENTRIES,
    CodecTree,
    CodecView,
    MultiTree,
    MultiTreeView,
    Tree,
    TreeView,
)
from ._types import Bytes, Durability, Seconds
from ._watch import Watcher

if TYPE_CHECKING:
    from .aio import AsyncDatabase

K = TypeVar("K")
V = TypeVar("V")
R = TypeVar("R")

Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]

#: Longest pause before a transaction is repeated, in seconds.
_PAUSE_MAX = 0.05

atexit.register(_braiddb.close_all)


class _Context:
    """Ends with its `with` block."""

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        raise NotImplementedError


class Database(_Context):
    """An open database: a set of named trees. All its methods may be called from any thread."""

    #: Errors after which a transaction is repeated.
    _conflicts: tuple[type[Exception], ...] = (Conflict,)

    #: How often a transaction is repeated that took longer than `reader_age_max`.
    _expiries_max = 0

    def __init__(self, raw: _braiddb.RawDb, path: str) -> None:
        self._raw = raw
        self._path = path
        self._trees: dict[str, Tree] = {}
        self._multi_trees: dict[str, MultiTree] = {}
        #: What the caches in this database share.
        self._caches: Any = None

    @property
    def path(self) -> str:
        """The database's directory."""
        return self._path

    @property
    def closed(self) -> bool:
        """True after `close()`."""
        return self._raw.is_closed

    def __repr__(self) -> str:
        return f"<Database {self._path!r}{' (closed)' if self.closed else ''}>"

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Make all commits durable and release the database. Its handles then raise `Closed`."""
        self._raw.close()

    # Trees.

    def __getitem__(self, name: str) -> Tree:
        """Return a tree of bytes, created if absent."""
        tree = self._trees.get(name)
        if tree is None:
            tree = self._trees[name] = Tree(self._raw, name)
        return tree

    def __contains__(self, name: object) -> bool:
        return any(name == listed[0] for listed in self._raw.trees())

    def __iter__(self) -> Iterator[str]:
        return iter(self.trees())

    def __delitem__(self, name: str) -> None:
        """Drop a tree with its contents."""
        try:
            self._raw.drop_tree(name)
        finally:
            self._trees.pop(name, None)
            self._multi_trees.pop(name, None)

    def trees(self) -> list[str]:
        """Return the names of all trees, in order."""
        return [listed[0] for listed in self._raw.trees()]

    def rename(self, name: str, to: str) -> None:
        """Rename a tree."""
        self._raw.rename_tree(name, to)
        self._trees.pop(name, None)
        self._multi_trees.pop(name, None)

    @overload
    def tree(
        self,
        name: str,
        *,
        create: bool = ...,
        ttl: Seconds | None = ...,
        compression: str | None = ...,
        blob_threshold: int | None = ...,
    ) -> Tree: ...
    @overload
    def tree(
        self,
        name: str,
        *,
        key: type[K] | Codec[K],
        value: type[V] | Codec[V],
        create: bool = ...,
        declare: bool = ...,
        ttl: Seconds | None = ...,
        compression: str | None = ...,
        blob_threshold: int | None = ...,
    ) -> CodecTree[K, V]: ...
    @overload
    def tree(
        self,
        name: str,
        *,
        key: type[K] | Codec[K],
        value: str,
        create: bool = ...,
        declare: bool = ...,
        ttl: Seconds | None = ...,
        compression: str | None = ...,
        blob_threshold: int | None = ...,
    ) -> CodecTree[K, Any]: ...
    @overload
    def tree(
        self,
        name: str,
        *,
        key: type[K] | Codec[K],
        create: bool = ...,
        declare: bool = ...,
        ttl: Seconds | None = ...,
        compression: str | None = ...,
        blob_threshold: int | None = ...,
    ) -> CodecTree[K, bytes]: ...
    @overload
    def tree(
        self,
        name: str,
        *,
        value: Any,
        create: bool = ...,
        declare: bool = ...,
        ttl: Seconds | None = ...,
        compression: str | None = ...,
        blob_threshold: int | None = ...,
    ) -> CodecTree[bytes, Any]: ...
    def tree(
        self,
        name: str,
        *,
        key: Any = None,
        value: Any = None,
        create: bool = True,
        declare: bool = False,
        ttl: Seconds | None = None,
        compression: str | None = None,
        blob_threshold: int | None = None,
    ) -> Any:
        """Return a tree with options, created if absent.

        `key` is bytes, str, int or tuple; `value` also "json", "msgpack" or "pickle"; both may be a
        `Codec`. The tree stores their names, and an open with others is refused. An existing tree
        of bytes with records gets codecs only with `declare=True`. A typed tree of Rust with
        indexes is returned as a `CodecView`, without writes.
        """
        options: dict[str, Any] = {
            "create": create,
            "ttl": ttl,
            "compression": compression,
            "blob_threshold": blob_threshold,
        }
        if key is None and value is None:
            return Tree(self._raw, name, **options)
        keys: Codec[Any] = RAW if key is None else codec_of(key, True)
        values: Codec[Any] = RAW if value is None else codec_of(value, False)
        codec = f"{keys.name}/{values.name}"
        raw = Tree(self._raw, name, codec=codec, declare=declare, **options)
        if keys.name == "tuple" and raw.count(start=INDEX_ENTRIES) > 0:
            # Writes from here would bypass the indexes of a typed tree.
            return CodecView(raw, keys, values)
        return CodecTree(raw, keys, values)

    def multi(self, name: str, *, create: bool = True) -> MultiTree:
        """Return a multi-tree, which keeps many sorted values under one key."""
        tree = self._multi_trees.get(name)
        if tree is None:
            tree = self._multi_trees[name] = MultiTree(self._raw, name, create=create)
        return tree

    # Transactions.

    def write(
        self, *, exclusive: bool = False, durability: Durability | None = None
    ) -> Transaction:
        """Begin a serializable transaction, for a `with` block.

        The end of the block commits it; an exception rolls it back. The commit raises `Conflict` if
        other commits changed its reads; `transaction` repeats it then. An exclusive transaction
        never conflicts: all other commits wait for its end. It creates no trees.
        """
        return Transaction(self, exclusive, durability)

    @overload
    def transaction(self, function: Callable[..., R], /) -> Callable[..., R]: ...
    @overload
    def transaction(
        self,
        function: None = ...,
        /,
        *,
        exclusive: bool = ...,
        durability: Durability | None = ...,
        retries: int = ...,
    ) -> Callable[[Callable[..., R]], Callable[..., R]]: ...
    def transaction(
        self,
        function: Any = None,
        /,
        *,
        exclusive: bool = False,
        durability: Durability | None = None,
        retries: int = 1000,
    ) -> Any:
        """Decorate a function that takes a transaction first. Calls repeat it after conflicts."""

        def decorate(function: Callable[..., R]) -> Callable[..., R]:
            if inspect.iscoroutinefunction(function):
                raise TypeError("the function is asynchronous: use db.aio.transaction")

            @functools.wraps(function)
            def call(*args: Any, **kwargs: Any) -> R:
                expiries = 0
                for attempt in range(retries + 1):
                    tx = self.write(exclusive=exclusive, durability=durability)
                    try:
                        with tx:
                            result = function(tx, *args, **kwargs)
                        return result
                    except self._conflicts as error:
                        expiries += isinstance(error, ReaderExpired)
                        if attempt == retries or expiries > self._expiries_max:
                            raise
                    pause(attempt)
                raise AssertionError("the loop returns or raises")

            return call

        return decorate if function is None else decorate(function)

    def snapshot(self) -> Snapshot:
        """Return a snapshot of the latest commit."""
        return Snapshot(self)

    # Operation.

    def sync(self) -> None:
        """Make all earlier commits durable."""
        self._raw.sync()

    def flush(self) -> None:
        """Write memtables to runs."""
        self._raw.flush()

    def compact(self) -> None:
        """Merge everything into as few runs as possible."""
        self._raw.compact()

    def verify(self) -> dict[str, Any]:
        """Check every checksum of every file. The result has `is_sound` and `problems`."""
        return self._raw.verify()

    def stats(self) -> dict[str, Any]:
        """Return counters and sizes.

        `slow_commits` has the last commits above the option `slow_commit` (0.1 s), with their cause
        and the microseconds of each part; `slow_commit_totals` has, by cause, their number and the
        microseconds of that part.
        """
        return self._raw.stats()

    def backup(self, path: Path, *, full: bool = False) -> dict[str, Any]:
        """Add a backup of the latest state to the directory `path`, while others write."""
        return self._raw.backup(os.fsdecode(path), full)

    def checkpoint(self, path: Path) -> int:
        """Copy the latest state to a new database. Return its last commit."""
        return self._raw.checkpoint(os.fsdecode(path))

    def archive_now(self) -> int:
        """Archive the log that remains. Return its last commit."""
        return self._raw.archive_now()

    def revoke_exclusive(self) -> bool:
        """End a lost exclusive transaction. Return whether there was one."""
        return self._raw.revoke_exclusive()

    def watch(
        self,
        tree: Tree | CodecTree[Any, Any] | MultiTree | None = None,
        *,
        prefix: Bytes | None = None,
        after: int | None = None,
        resume: bytes | None = None,
        oldest: bool = False,
        unsynced: bool = False,
    ) -> Watcher:
        """Iterate over the commits from now on, after one, or after that of a token.

        A commit is returned once it is synced. `log_retention` of `open` says how much of the log
        is kept for watchers. The iteration over a read-only database ends at its last commit.
        """
        of = tree.raw if isinstance(tree, CodecView) else tree
        raw = _braiddb.RawWatcher(
            self._raw,
            tree=of,
            prefix=prefix,
            after=after,
            resume=resume,
            oldest=oldest,
            unsynced=unsynced,
        )
        return Watcher(raw)

    @property
    def aio(self) -> AsyncDatabase:
        """The asynchronous interface."""
        from .aio import AsyncDatabase

        return AsyncDatabase(self)


def pause_before(attempt: int) -> float:
    """Return a random pause before a transaction is repeated, in seconds."""
    return random.uniform(0, min(_PAUSE_MAX, 0.0001 * 2 ** min(attempt, 16)))


def pause(attempt: int) -> None:
    """Wait before a transaction is repeated."""
    time.sleep(pause_before(attempt))


class _View(_Context):
    """Trees of a snapshot or a transaction, by name or by handle."""

    _tree: Any = TreeView
    _multi_tree: Any = MultiTreeView
    _source: Any = None

    def __init__(self, db: Database) -> None:
        self._db = db
        self._views: dict[object, Any] = {}

    def _open(self, name: str) -> Tree:
        return self._db[name]

    def _existing(self, name: str) -> Tree:
        tree = self._db._trees.get(name)
        if tree is None:
            tree = self._db._trees[name] = self._db.tree(name, create=False)
        return tree

    def _raw(self) -> Any:
        if self._source is None:
            raise Closed("the snapshot was closed")
        return self._source

    def _viewed(self, tree: Any) -> Any:
        source = self._raw()
        if isinstance(tree, str):
            view = self._views.get(tree)
            if view is None:
                view = self._views[tree] = self._tree(source, self._open(tree))
            return view
        if isinstance(tree, CodecView):
            return tree._at(self._tree(source, tree.raw))
        if isinstance(tree, MultiTreeView):
            return self._multi_tree(source, tree)
        if isinstance(tree, TreeView):
            return self._tree(source, tree)
        raise TypeError(f"a tree, or the name of one, expected, not {type(tree).__name__}")


class Snapshot(_View):
    """The state after one commit. It pins old versions until it is closed or dropped."""

    def __init__(self, db: Database) -> None:
        super().__init__(db)
        self._source = db._raw.snapshot()

    @property
    def sequence(self) -> int:
        """The number of its last commit."""
        return int(self._raw().sequence)

    def _open(self, name: str) -> Tree:
        return self._existing(name)

    @overload
    def __getitem__(self, tree: str | Tree) -> TreeView: ...
    @overload
    def __getitem__(self, tree: CodecTree[K, V]) -> CodecView[K, V]: ...
    @overload
    def __getitem__(self, tree: MultiTree) -> MultiTreeView: ...
    def __getitem__(self, tree: Any) -> Any:
        """Return a tree as of this snapshot."""
        return self._viewed(tree)

    def close(self) -> None:
        """Release the snapshot. Its trees and iterators release it when they are dropped."""
        self._source = None
        self._views.clear()

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Transaction(_View):
    """A serializable transaction. Reads see its own writes."""

    _tree = Tree
    _multi_tree = MultiTree

    def __init__(
        self,
        db: Database,
        exclusive: bool,
        durability: Durability | None,
        timeout: Seconds | None = None,
    ) -> None:
        super().__init__(db)
        self._source = _braiddb.RawTransaction(db._raw, exclusive, timeout)
        self._is_exclusive = exclusive
        self._durability = durability

    def _open(self, name: str) -> Tree:
        if not self._is_exclusive:
            return self._db[name]
        try:
            return self._existing(name)
        except NotFound:
            raise self._not_found(name) from None

    @staticmethod
    def _not_found(name: str) -> NotFound:
        # The creation is a commit of its own, which would wait for this transaction.
        return NotFound(f"an exclusive transaction creates no trees: create {name!r} before it")

    @overload
    def __getitem__(self, tree: str | Tree) -> Tree: ...
    @overload
    def __getitem__(self, tree: CodecTree[K, V]) -> CodecTree[K, V]: ...
    @overload
    def __getitem__(self, tree: MultiTree) -> MultiTree: ...
    def __getitem__(self, tree: Any) -> Any:
        """Return a tree in this transaction, to read and write."""
        return self._viewed(tree)

    def multi(self, name: str) -> MultiTree:
        """Return a multi-tree in this transaction."""
        try:
            return self[self._db.multi(name, create=not self._is_exclusive)]
        except NotFound:
            raise self._not_found(name) from None

    @property
    def database(self) -> Database:
        """The database that it changes."""
        return self._db

    @property
    def is_open(self) -> bool:
        """True until its end."""
        return bool(self._source.is_open)

    @property
    def sequence(self) -> int:
        """The last commit that it sees."""
        return int(self._source.sequence)

    def __len__(self) -> int:
        """Return the number of keys and ranges written."""
        return int(self._source.changes())

    def __bool__(self) -> bool:
        return True

    def commit(self) -> int:
        """Commit, and return the commit's number."""
        return int(self._source.commit(self._durability))

    def rollback(self) -> None:
        """Discard the transaction."""
        self._source.rollback()

    def savepoint(self) -> _braiddb.RawSavepoint:
        """Return a savepoint for `rollback_to`."""
        return self._source.savepoint()  # type: ignore[no-any-return]

    def rollback_to(self, savepoint: _braiddb.RawSavepoint) -> None:
        """Undo all writes since the savepoint. Reads since then are still checked."""
        self._source.rollback_to(savepoint)

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.rollback()
        elif self.is_open:
            self.commit()


class Follower:
    """Follows a database that another process writes.

    `refresh_every` of `follow` is the time between two refreshes, in seconds; one by default.
    """

    def __init__(self, path: Path, options: dict[str, Any]) -> None:
        self._path = os.fsdecode(path)
        self._raw = _braiddb.RawFollower(self._path, options)

    def db(self) -> Database:
        """Return the read-only database as of the last refresh.

        Its close ends its own handles only.
        """
        return Database(self._raw.db(), self._path)

    def refresh(self) -> bool:
        """Advance to the latest commits. Return whether there were any."""
        return self._raw.refresh()


def open_database(path: Path, options: dict[str, Any]) -> Database:
    """Open a database."""
    name = os.fsdecode(path)
    own = {option: value for option, value in options.items() if option != "shared"}
    if options.get("shared"):
        from ._shared import SharedDatabase

        if own.get("read_only"):
            raise InvalidArgument("a shared database is not read_only: use braiddb.follow")
        return SharedDatabase(_braiddb.RawDb(name, own, shared=True), name)
    if own.get("shared_timeout") is not None:
        raise InvalidArgument("shared_timeout needs shared=True")
    return Database(_braiddb.RawDb(name, own), name)


def open_in_memory(options: dict[str, Any]) -> Database:
    """Open a database in memory."""
    return Database(_braiddb.RawDb(None, options), ":memory:")


__all__ = ["Database", "Follower", "NotFound", "Snapshot", "Transaction"]
