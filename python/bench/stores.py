"""The packages that compare.py measures, behind one interface.

Each opens with 256 MiB of cache and write buffers, and a put waits for no disk. Loops are written
as a program would write them, so that no call of this file is in the measured path of one package
only.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

MEMORY = 256 << 20

Rows = Sequence[tuple[bytes, bytes]]


def _parts(rows: Sequence[Any], size: int) -> Iterable[Sequence[Any]]:
    return (rows[at : at + size] for at in range(0, len(rows), size))


def after(prefix: bytes) -> bytes:
    """Return the key behind all keys with a prefix, which does not end in 0xff."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


class BraidDB:
    def __init__(self, path: str) -> None:
        import braiddb

        self.version = braiddb.__version__
        self.db = braiddb.open(path, durability="buffered", memory=MEMORY)
        self.tree = self.db["rows"]

    def put_batches(self, rows: Rows, size: int) -> None:
        for part in _parts(rows, size):
            self.tree.put_many(part)

    def put(self, rows: Rows) -> None:
        tree = self.tree
        for key, value in rows:
            tree[key] = value

    def get(self, keys: Sequence[bytes]) -> int:
        get = self.tree.get
        return sum(1 for key in keys if get(key) is not None)

    def get_many(self, keys: Sequence[bytes], size: int) -> int:
        return sum(sum(v is not None for v in self.tree.get_many(p)) for p in _parts(keys, size))

    def scan(self) -> int:
        return sum(1 for _ in self.tree.items())

    def prefixes(self, prefixes: Sequence[bytes]) -> int:
        items = self.tree.items
        return sum(1 for prefix in prefixes for _ in items(prefix=prefix))

    def close(self) -> None:
        self.db.close()


class RocksDict:
    def __init__(self, path: str) -> None:
        import rocksdict

        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(64 << 20)
        table = rocksdict.BlockBasedOptions()
        table.set_block_cache(rocksdict.Cache(MEMORY - (64 << 20)))
        table.set_bloom_filter(10, False)
        options.set_block_based_table_factory(table)
        self.version = importlib.metadata.version("rocksdict")
        self.package, self.options = rocksdict, options
        self.db = rocksdict.Rdict(path, options)

    def put_batches(self, rows: Rows, size: int) -> None:
        for part in _parts(rows, size):
            batch = self.package.WriteBatch(raw_mode=True)
            for key, value in part:
                batch.put(key, value)
            self.db.write(batch)

    def put(self, rows: Rows) -> None:
        db = self.db
        for key, value in rows:
            db[key] = value

    def get(self, keys: Sequence[bytes]) -> int:
        get = self.db.get
        return sum(1 for key in keys if get(key) is not None)

    def get_many(self, keys: Sequence[bytes], size: int) -> int:
        found = (self.db.get(list(part)) for part in _parts(keys, size))
        return sum(sum(v is not None for v in values) for values in found)

    def scan(self) -> int:
        return sum(1 for _ in self.db.items())

    def prefixes(self, prefixes: Sequence[bytes]) -> int:
        count = 0
        for prefix in prefixes:
            options = self.package.ReadOptions()
            options.set_iterate_upper_bound(after(prefix))
            count += sum(1 for _ in self.db.items(from_key=prefix, read_opt=options))
        return count

    def close(self) -> None:
        self.db.close()


class Plyvel:
    def __init__(self, path: str) -> None:
        import plyvel

        self.version = plyvel.__version__
        buffer = 64 << 20
        self.db = plyvel.DB(
            path,
            create_if_missing=True,
            write_buffer_size=buffer,
            lru_cache_size=MEMORY - buffer,
            bloom_filter_bits=10,
        )

    def put_batches(self, rows: Rows, size: int) -> None:
        for part in _parts(rows, size):
            with self.db.write_batch() as batch:
                for key, value in part:
                    batch.put(key, value)

    def put(self, rows: Rows) -> None:
        put = self.db.put
        for key, value in rows:
            put(key, value)

    def get(self, keys: Sequence[bytes]) -> int:
        get = self.db.get
        return sum(1 for key in keys if get(key) is not None)

    def get_many(self, keys: Sequence[bytes], size: int) -> int:
        return self.get(keys)

    def scan(self) -> int:
        return sum(1 for _ in self.db.iterator())

    def prefixes(self, prefixes: Sequence[bytes]) -> int:
        iterator = self.db.iterator
        return sum(1 for prefix in prefixes for _ in iterator(prefix=prefix))

    def close(self) -> None:
        self.db.close()


class Lmdb:
    def __init__(self, path: str) -> None:
        import lmdb

        self.version = lmdb.__version__
        # The operating system caches its pages.
        self.env = lmdb.open(path, map_size=8 << 30, sync=False, metasync=False)

    def put_batches(self, rows: Rows, size: int) -> None:
        for part in _parts(rows, size):
            with self.env.begin(write=True) as tx:
                tx.cursor().putmulti(part)

    def put(self, rows: Rows) -> None:
        begin = self.env.begin
        for key, value in rows:
            with begin(write=True) as tx:
                tx.put(key, value)

    def get(self, keys: Sequence[bytes]) -> int:
        # Each get sees the latest commit, as in the other packages.
        begin, count = self.env.begin, 0
        for key in keys:
            with begin() as tx:
                count += tx.get(key) is not None
        return count

    def get_many(self, keys: Sequence[bytes], size: int) -> int:
        count = 0
        for part in _parts(keys, size):
            with self.env.begin() as tx:
                count += len(tx.cursor().getmulti(part))
        return count

    def scan(self) -> int:
        with self.env.begin() as tx:
            return sum(1 for _ in tx.cursor())

    def prefixes(self, prefixes: Sequence[bytes]) -> int:
        count = 0
        for prefix in prefixes:
            with self.env.begin() as tx:
                cursor = tx.cursor()
                if cursor.set_range(prefix):
                    rows = itertools.takewhile(lambda row: row[0].startswith(prefix), cursor)
                    count += sum(1 for _ in rows)
        return count

    def close(self) -> None:
        self.env.close()


class Sqlite:
    def __init__(self, path: str) -> None:
        import os
        import threading

        self.version = sqlite3.sqlite_version
        os.mkdir(path)
        self.path = os.path.join(path, "rows.db")
        self.local = threading.local()
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("CREATE TABLE rows (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID")

    @property
    def db(self) -> sqlite3.Connection:
        """The connection of this thread."""
        if not hasattr(self.local, "db"):
            self.local.db = sqlite3.connect(self.path, isolation_level=None)
            self.local.db.execute("PRAGMA synchronous = OFF")
            self.local.db.execute(f"PRAGMA cache_size = -{MEMORY >> 10}")
        found: sqlite3.Connection = self.local.db
        return found

    def put_batches(self, rows: Rows, size: int) -> None:
        for part in _parts(rows, size):
            self.db.execute("BEGIN")
            self.db.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?)", part)
            self.db.execute("COMMIT")

    def put(self, rows: Rows) -> None:
        execute = self.db.execute
        for row in rows:
            execute("INSERT OR REPLACE INTO rows VALUES (?, ?)", row)

    def get(self, keys: Sequence[bytes]) -> int:
        execute, count = self.db.execute, 0
        for key in keys:
            row = execute("SELECT value FROM rows WHERE key = ?", (key,)).fetchone()
            count += row is not None
        return count

    def get_many(self, keys: Sequence[bytes], size: int) -> int:
        text = f"SELECT key, value FROM rows WHERE key IN ({', '.join('?' * size)})"
        return sum(len(self.db.execute(text, part).fetchall()) for part in _parts(keys, size))

    def scan(self) -> int:
        return sum(1 for _ in self.db.execute("SELECT key, value FROM rows ORDER BY key"))

    def prefixes(self, prefixes: Sequence[bytes]) -> int:
        text = "SELECT key, value FROM rows WHERE key >= ? AND key < ? ORDER BY key"
        execute = self.db.execute
        return sum(1 for p in prefixes for _ in execute(text, (p, after(p))))

    def close(self) -> None:
        self.db.close()


class _Cache:
    """A cache with the interface of diskcache."""

    cache: Any

    def set(self, rows: Rows) -> None:
        put = self.cache.set
        for key, value in rows:
            put(key, value)

    def get(self, keys: Sequence[bytes]) -> int:
        get = self.cache.get
        return sum(1 for key in keys if get(key) is not None)

    def push(self, rows: Rows) -> None:
        push = self.cache.push
        for _, value in rows:
            push(value)

    def pull(self, count: int) -> int:
        pull = self.cache.pull
        return sum(1 for _ in range(count) if pull()[0] is not None)

    def close(self) -> None:
        self.cache.close()


class BraidCache(_Cache):
    def __init__(self, path: str, **settings: Any) -> None:
        import braiddb

        self.version = braiddb.__version__
        self.cache = braiddb.Cache(path, **settings)


class DiskCache(_Cache):
    def __init__(self, path: str, **settings: Any) -> None:
        import diskcache

        self.version = diskcache.__version__
        self.cache = diskcache.Cache(path, **settings)


STORES: dict[str, Any] = {
    "braiddb": BraidDB,
    "rocksdict": RocksDict,
    "plyvel": Plyvel,
    "lmdb": Lmdb,
    "sqlite3": Sqlite,
}
CACHES: dict[str, Any] = {"braiddb.Cache": BraidCache, "diskcache": DiskCache}
