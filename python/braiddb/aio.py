"""The asynchronous interface: `db.aio`.

Writes apply at once, and the awaited result is ready when they are durable: thousands of tasks
share a sync, without a thread each. Reads run in the default executor of the loop.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from ._db import Database, Transaction, pause_before
from ._errors import Conflict
from ._trees import CodecTree, MultiTree, Tree
from ._watch import Commit

if TYPE_CHECKING:
    from . import _braiddb

R = TypeVar("R")

#: Longest wait of a thread for the next commit, in seconds.
_WAIT = 0.5


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


async def durable(commit: _braiddb.RawCommit) -> int:
    """Await a commit, and return its number."""
    loop = asyncio.get_running_loop()
    while True:
        ready = loop.create_future()

        def wake(ready: asyncio.Future[None] = ready) -> None:
            try:
                loop.call_soon_threadsafe(_set, ready)
            except RuntimeError:
                pass  # The loop was closed, so no task waits.

        sequence = commit.poll(wake)
        if sequence is not None:
            return sequence
        await ready


async def _in_thread(function: Callable[..., R], *args: Any) -> R:
    return await asyncio.get_running_loop().run_in_executor(None, function, *args)


class AsyncTransaction:
    """A transaction for an `async with` block, whose end awaits the commit.

    Its reads and writes are ordinary calls: they touch memory, or the disk for cold data.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._transaction: Transaction | None = None

    async def __aenter__(self) -> Transaction:
        self._transaction = self._db.write()
        return self._transaction

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        tx, self._transaction = self._transaction, None
        if tx is None or not tx.is_open:
            return
        if kind is not None:
            tx.rollback()
        else:
            await durable(tx._source.commit_async())


class AsyncDatabase:
    """Calls of a database for tasks of asyncio."""

    def __init__(self, db: Database) -> None:
        self._db = db

    async def put(self, tree: Tree | CodecTree[Any, Any], key: Any, value: Any) -> int:
        """Set a value. It is visible at once; the result is ready when it is durable."""
        if isinstance(tree, CodecTree):
            raw, key, value = tree.raw, tree._encode(key), tree._value.encode(value)
        else:
            raw = tree
        return await durable(raw.put_async(key, value))

    async def delete(self, tree: Tree | CodecTree[Any, Any], key: Any) -> int:
        """Delete a key, which may be absent."""
        if isinstance(tree, CodecTree):
            raw, key = tree.raw, tree._encode(key)
        else:
            raw = tree
        return await durable(raw.delete_async(key))

    async def get(self, tree: Any, key: Any, default: Any = None) -> Any:
        """Return the value of a key, or `default`."""
        return await _in_thread(tree.get, key, default)

    async def get_many(self, tree: Any, keys: Iterable[Any]) -> list[Any]:
        """Return the values of keys; None for absent ones."""
        return await _in_thread(tree.get_many, list(keys))

    async def items(self, tree: Any, *, limit: int | None = None, **bounds: Any) -> list[Any]:
        """Return the items of a range, at most `limit`."""

        def read() -> list[Any]:
            rows = iter(tree.items(**bounds))
            return list(rows if limit is None else (row for _, row in zip(range(limit), rows)))

        return await _in_thread(read)

    async def run(self, function: Callable[..., R], *args: Any) -> R:
        """Call a function that may touch the disk, in the executor."""
        return await _in_thread(function, *args)

    def write(self) -> AsyncTransaction:
        """Begin a transaction for an `async with` block."""
        return AsyncTransaction(self._db)

    def transaction(
        self, function: Callable[..., Awaitable[R]], /
    ) -> Callable[..., Awaitable[R]]:
        """Decorate a coroutine that takes a transaction first. Calls repeat it after conflicts."""

        @functools.wraps(function)
        async def call(*args: Any, **kwargs: Any) -> R:
            for attempt in range(1000):
                try:
                    async with self.write() as tx:
                        result = await function(tx, *args, **kwargs)
                    return result
                except Conflict:
                    await asyncio.sleep(pause_before(attempt))
            async with self.write() as tx:
                result = await function(tx, *args, **kwargs)
            return result

        return call

    async def sync(self) -> None:
        """Make all earlier commits durable."""
        await _in_thread(self._db.sync)

    async def watch(
        self, tree: Tree | CodecTree[Any, Any] | MultiTree | None = None, **options: Any
    ) -> AsyncIterator[Commit]:
        """Iterate over commits, with the options of `Database.watch`."""
        with self._db.watch(tree, **options) as watcher:
            while True:
                commit = await _in_thread(watcher.next, _WAIT)
                if commit is not None:
                    yield commit
                elif watcher.is_stopped:
                    return


__all__ = ["AsyncDatabase", "AsyncTransaction"]
