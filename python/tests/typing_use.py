"""A program that mypy and pyright check: what types a user gets."""

from __future__ import annotations

from typing import Any

import braiddb
from typing_extensions import assert_type


def use(db: braiddb.Database) -> None:
    tree = db["t"]
    assert_type(tree, braiddb.Tree)
    assert_type(tree[b"a"], bytes)
    assert_type(tree.get(b"a"), "bytes | None")
    assert_type(tree.get(b"a", 1), "bytes | int")
    assert_type(tree.pop(b"a"), bytes)
    for key, value in tree.items(prefix=b"a", reverse=True):
        assert_type(key, bytes)
        assert_type(value, bytes)
    for key, value in tree[b"a":b"b"]:
        assert_type(value, bytes)
    del tree[b"a":b"b"]
    users = db.tree("users", key=str, value=int)
    assert_type(users, "braiddb.CodecTree[str, int]")
    assert_type(users.first(), "tuple[str, int] | None")
    users["a"] = 1
    documents = db.tree("documents", key=int, value="json")
    assert_type(documents, "braiddb.CodecTree[int, Any]")
    with db.write(durability="buffered") as tx:
        assert_type(tx, braiddb.Transaction)
        assert_type(tx[users], "braiddb.CodecTree[str, int]")
        assert_type(tx["t"], braiddb.Tree)
    with db.snapshot() as snapshot:
        assert_type(snapshot["t"], braiddb.TreeView)
        assert_type(snapshot[users], "braiddb.CodecView[str, int]")

    @db.transaction
    def add(tx: braiddb.Transaction, by: int) -> int:
        tx[users]["a"] += by
        return tx[users]["a"]

    assert_type(add(1), int)
    for commit in db.watch(tree):
        assert_type(commit.changes[0].key, "bytes | None")
    assert_type(db.multi("m")[b"k"], "list[bytes]")


def use_shared() -> None:
    db = braiddb.open("shared.db", shared=True, shared_timeout=5)
    assert_type(db, braiddb.SharedDatabase)
    assert_type(db.is_owner, bool)
    assert_type(db["t"], braiddb.Tree)
    assert_type(braiddb.open("own.db", memory=1 << 20), braiddb.Database)


async def use_async(db: braiddb.Database) -> None:
    assert_type(await db.aio.put(db["t"], b"a", b"b"), int)
    async for commit in db.aio.watch():
        assert_type(commit, braiddb.Commit)
