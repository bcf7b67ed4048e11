"""A checkpoint saver for LangGraph that stores in a BraidDB database.

    saver = BraidSaver(braiddb.open("graphs.db"))
    graph = builder.compile(checkpointer=saver)

It passes the package langgraph-checkpoint-conformance: see check_langgraph_saver.py. Works with
`braiddb.open(..., shared=True)` too, so that several processes share the checkpoints.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import braiddb
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
)

#: Thread, namespace, id of a checkpoint. Ids sort by time.
Key = tuple[str, str, str]


def config_of(key: Key) -> RunnableConfig:
    names = ("thread_id", "checkpoint_ns", "checkpoint_id")
    return {"configurable": dict(zip(names, key))}


class BraidSaver(BaseCheckpointSaver[str]):
    """Stores checkpoints, the values of their channels, and pending writes in four trees."""

    def __init__(self, db: braiddb.Database, *, name: str = "langgraph", serde: Any = None) -> None:
        super().__init__(serde=serde)
        self.db = db

        def tree(part: str) -> Any:
            return db.tree(f"{name}.{part}", key=tuple, value=tuple)

        self._checkpoints = tree("checkpoints")  # key -> checkpoint, metadata, parent's id
        self._values = tree("values")  # thread, namespace, channel, version -> value
        self._writes = tree("writes")  # key, task path, task, index -> channel, value
        self._runs = tree("runs")  # run, key -> ()
        self._store = db.transaction(lambda tx, work, *args: work(tx, *args))

    # Reads, each of one state.

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        place = config["configurable"]
        scope = (place["thread_id"], place.get("checkpoint_ns", ""))
        with self.db.snapshot() as snapshot:
            checkpoints = snapshot[self._checkpoints]
            if id := get_checkpoint_id(config):
                key = (*scope, id)
            else:
                key = next(iter(checkpoints.keys(prefix=scope, reverse=True)), None)
            return None if key is None or key not in checkpoints else self._load(snapshot, key)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        place = config["configurable"] if config else {}
        scope = tuple(place[name] for name in ("thread_id", "checkpoint_ns") if name in place)
        only = get_checkpoint_id(config) if config else None
        end = get_checkpoint_id(before) if before else None
        with self.db.snapshot() as snapshot:
            keys = snapshot[self._checkpoints].keys(prefix=scope)
            for key in sorted(keys, key=lambda key: key[2], reverse=True):
                if limit is not None and limit <= 0:
                    return
                if (only and key[2] != only) or (end and key[2] >= end):
                    continue
                found = self._load(snapshot, key)
                if all(found.metadata.get(k) == v for k, v in (filter or {}).items()):
                    limit = None if limit is None else limit - 1
                    yield found

    def _load(self, source: Any, key: Key) -> CheckpointTuple:
        kind, data, kind_of_metadata, metadata, parent = source[self._checkpoints][key]
        checkpoint = self.serde.loads_typed((kind, data))
        versions = checkpoint["channel_versions"].items()
        stored = source[self._values].get_many([(*key[:2], *version) for version in versions])
        checkpoint["channel_values"] = {
            channel: self.serde.loads_typed(value)
            for (channel, _), value in zip(versions, stored)
            if value
        }
        # Sorted by path, task and index, the order in which a run applied them.
        writes = source[self._writes].items(prefix=key)
        return CheckpointTuple(
            config=config_of(key),
            checkpoint=checkpoint,
            metadata=self.serde.loads_typed((kind_of_metadata, metadata)),
            parent_config=config_of((*key[:2], parent)) if parent else None,
            pending_writes=[
                (at[4], channel, self.serde.loads_typed((kind, data)))
                for at, (channel, kind, data) in writes
            ],
        )

    # Writes, each one commit.

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        place = config["configurable"]
        key = (place["thread_id"], place.get("checkpoint_ns", ""), checkpoint["id"])
        rest: dict[str, Any] = {**checkpoint}
        values = rest.pop("channel_values")
        metadata = get_checkpoint_metadata(config, metadata)
        encode = self.serde.dumps_typed
        stored = [
            ((*key[:2], *version), encode(values[version[0]]) if version[0] in values else ())
            for version in new_versions.items()
        ]
        record = (*encode(rest), *encode(metadata), get_checkpoint_id(config))

        def work(tx: braiddb.Transaction) -> None:
            tx[self._values].put_many(stored)
            tx[self._checkpoints][key] = record
            if run := metadata.get("run_id"):
                tx[self._runs][(run, *key)] = ()

        self._store(work)
        return config_of(key)

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        place = config["configurable"]
        key = (place["thread_id"], place.get("checkpoint_ns", ""), place["checkpoint_id"])
        rows = [
            ((*key, task_path, task_id, WRITES_IDX_MAP.get(channel, i)), channel, value)
            for i, (channel, value) in enumerate(writes)
        ]
        encoded = [(at, (channel, *self.serde.dumps_typed(value))) for at, channel, value in rows]

        def work(tx: braiddb.Transaction) -> None:
            stored = tx[self._writes]
            for at, row in encoded:
                # A repeated task keeps its first writes; errors and interrupts are replaced.
                if at[-1] < 0 or at not in stored:
                    stored[at] = row

        self._store(work)

    def _delete(self, tx: Any, key: Key) -> None:
        kind, data = tx[self._checkpoints].pop(key)[2:4]
        if run := self.serde.loads_typed((kind, data)).get("run_id"):
            tx[self._runs].delete((run, *key))
        tx[self._writes].delete_range(prefix=key)

    def _drop_values(self, tx: Any, scope: tuple[str, ...]) -> None:
        """Delete the values of channels that no checkpoint of the scope uses."""
        used = {
            (*key[:2], *version)
            for key, (kind, data, *_) in tx[self._checkpoints].items(prefix=scope)
            for version in self.serde.loads_typed((kind, data))["channel_versions"].items()
        }
        tx[self._values].delete_many(set(tx[self._values].keys(prefix=scope)) - used)

    def delete_thread(self, thread_id: str) -> None:
        self.prune([thread_id], strategy="delete")

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        def work(tx: braiddb.Transaction) -> None:
            keys = [at[1:] for run in run_ids for at in tx[self._runs].keys(prefix=(run,))]
            for key in keys:
                self._delete(tx, key)
            for thread in {key[0] for key in keys}:
                self._drop_values(tx, (thread,))

        self._store(work)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        def work(tx: braiddb.Transaction) -> None:
            for tree in (self._checkpoints, self._values, self._writes):
                rows = tx[tree].items(prefix=(source_thread_id,))
                tx[tree].put_many([((target_thread_id, *at[1:]), row) for at, row in rows])
            for key in tx[self._checkpoints].keys(prefix=(target_thread_id,)):
                if run := self._load(tx, key).metadata.get("run_id"):
                    tx[self._runs][(run, *key)] = ()

        self._store(work)

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        if strategy not in ("keep_latest", "delete"):
            raise ValueError(f"no strategy {strategy!r}")

        def work(tx: braiddb.Transaction) -> None:
            for thread in thread_ids:
                keys = list(tx[self._checkpoints].keys(prefix=(thread,)))
                latest = {key[1]: key for key in keys} if strategy == "keep_latest" else {}
                kept = {key for last in latest.values() for key in self._chain(tx, last)}
                for key in keys:
                    if key not in kept:
                        self._delete(tx, key)
                self._drop_values(tx, (thread,))
                if strategy == "delete":
                    # Also writes whose checkpoint was never stored.
                    tx[self._writes].delete_range(prefix=(thread,))

        self._store(work)

    def _chain(self, tx: Any, key: Key) -> Iterator[Key]:
        """Yield a checkpoint, and the ancestors that rebuild its delta channels."""
        found = self._load(tx, key)
        wanted = set(found.metadata.get("counters_since_delta_snapshot", {}))
        wanted -= found.checkpoint["channel_values"].keys()
        yield key
        while wanted and found.parent_config:
            key = (*key[:2], found.parent_config["configurable"]["checkpoint_id"])
            if key not in tx[self._checkpoints]:
                return
            found = self._load(tx, key)
            wanted -= found.checkpoint["channel_values"].keys()
            yield key

    def get_next_version(self, current: str | int | None, channel: None) -> str:
        number = int(str(current or 0).split(".")[0]) + 1
        return f"{number:032}.{random.random():016}"

    # The asynchronous interface: the same in threads.

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(
        self, config: RunnableConfig | None, **options: Any
    ) -> AsyncIterator[CheckpointTuple]:
        for found in await asyncio.to_thread(lambda: [*self.list(config, **options)]):
            yield found

    async def aput(self, *args: Any) -> RunnableConfig:
        return await asyncio.to_thread(self.put, *args)

    async def aput_writes(self, *args: Any, **options: Any) -> None:
        await asyncio.to_thread(lambda: self.put_writes(*args, **options))

    async def adelete_thread(self, thread_id: str) -> None:
        await asyncio.to_thread(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await asyncio.to_thread(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await asyncio.to_thread(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        await asyncio.to_thread(lambda: self.prune(thread_ids, strategy=strategy))
