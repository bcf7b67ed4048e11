"""The asynchronous interface."""

import asyncio

import braiddb
import pytest


def test_commits_are_awaited_together(path):
    async def main(db):
        tree = db["t"]
        before = db.stats()["syncs"]
        numbers = await asyncio.gather(*(db.aio.put(tree, b"%04d" % i, b"v") for i in range(500)))
        assert len(set(numbers)) == 500 and len(tree) == 500
        assert db.stats()["syncs"] - before < 250
        await db.aio.delete(tree, b"0000")
        assert await db.aio.get(tree, b"0000", 7) == 7
        assert await db.aio.get_many(tree, [b"0001", b"no"]) == [b"v", None]
        assert await db.aio.items(tree, prefix=b"00", limit=2) == [(b"0001", b"v"), (b"0002", b"v")]
        users = db.tree("users", key=str, value="json")
        await db.aio.put(users, "ann", [1])
        assert users["ann"] == [1]
        await db.aio.delete(users, "ann")
        assert await db.aio.run(len, users) == 0
        with pytest.raises(braiddb.InvalidArgument):
            await db.aio.put(tree, b"k" * 70_000, b"")

    with braiddb.open(path) as db:
        asyncio.run(main(db))
    with braiddb.open(path) as db:
        assert len(db["t"]) == 499


def test_transactions_await_their_commit(path):
    async def main(db):
        async with db.aio.write() as tx:
            tx["t"][b"n"] = b"0"
        assert db["t"][b"n"] == b"0"
        with pytest.raises(ZeroDivisionError):
            async with db.aio.write() as tx:
                tx["t"][b"n"] = b"1"
                1 / 0
        assert db["t"][b"n"] == b"0"

        @db.aio.transaction
        async def add(tx):
            value = int(tx["t"][b"n"])
            await asyncio.sleep(0)
            tx["t"][b"n"] = b"%d" % (value + 1)

        await asyncio.gather(*(add() for _ in range(20)))
        assert db["t"][b"n"] == b"20"
        await db.aio.sync()

    with braiddb.open(path) as db:
        asyncio.run(main(db))


def test_changes_are_awaited(db):
    async def main():
        seen = []

        async def follow():
            async for commit in db.aio.watch(db["t"]):
                seen.extend(change.key for change in commit.changes)
                if len(seen) == 3:
                    return

        task = asyncio.create_task(follow())
        await asyncio.sleep(0.1)
        for key in (b"1", b"2", b"3"):
            await db.aio.put(db["t"], key, b"")
        await asyncio.wait_for(task, 20)
        assert seen == [b"1", b"2", b"3"]

    asyncio.run(main())
