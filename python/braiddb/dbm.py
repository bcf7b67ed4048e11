"""A database with the interface of Python's `dbm` modules, for `shelve` and old programs.

    import braiddb.dbm, shelve

    with shelve.Shelf(braiddb.dbm.open("settings", "c")) as settings:
        settings["size"] = (80, 25)

Keys and values are bytes; text is encoded as UTF-8. Writes survive the end of the process;
`sync()` and `close()` make them survive a power failure.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, MutableMapping
from types import TracebackType
from typing import Any, Literal, TypeVar, Union

from ._db import Database, Path, open_database
from ._errors import Error

Flag = Literal["r", "w", "c", "n"]
_Data = Union[str, bytes, bytearray]
R = TypeVar("R")

#: The tree that holds the items.
_TREE = "dbm"


class error(OSError):
    """Base of the errors of this module, as every dbm module has one."""


def _bytes(data: _Data) -> bytes:
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, (bytes, bytearray)):
        return bytes(data)
    raise TypeError(f"keys and values are bytes or str, not {type(data).__name__}")


class Dbm(MutableMapping[Any, bytes]):
    """A mapping of bytes, in key order."""

    def __init__(self, db: Database, is_read_only: bool) -> None:
        self._db: Database | None = db
        self._is_read_only = is_read_only
        try:
            self._tree = db.tree(_TREE, create=not is_read_only)
        except Error:
            db.close()
            raise

    def _call(self, call: Callable[[Any], R], is_write: bool = False) -> R:
        """Call a function with the tree. Errors of the database are those of this module."""
        if self._db is None:
            raise error("DBM object has already been closed")
        if is_write and self._is_read_only:
            raise error("The database is opened for reading only")
        try:
            return call(self._tree)
        except Error as failure:
            raise error(str(failure)) from failure

    def __getitem__(self, key: _Data) -> bytes:
        data = _bytes(key)
        value: bytes | None = self._call(lambda tree: tree.get(data))
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: _Data, value: _Data) -> None:
        row = _bytes(key), _bytes(value)
        self._call(lambda tree: tree.__setitem__(*row), True)

    def __delitem__(self, key: _Data) -> None:
        data = _bytes(key)
        if self._call(lambda tree: tree.remove(data), True) is None:
            raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        data = _bytes(key)  # type: ignore[arg-type]
        return self._call(lambda tree: data in tree)

    def __iter__(self) -> Iterator[bytes]:
        return self._rows(self._call(iter))

    def _rows(self, rows: Iterator[bytes]) -> Iterator[bytes]:
        while (key := self._call(lambda _: next(rows, None))) is not None:
            yield key

    def __len__(self) -> int:
        return self._call(len)

    def __bool__(self) -> bool:
        # The length counts all keys.
        return self._call(bool)

    def get(self, key: _Data, default: Any = None) -> Any:
        """Return the value of a key, or `default`."""
        data = _bytes(key)
        return self._call(lambda tree: tree.get(data, default))

    def setdefault(self, key: _Data, default: _Data = b"") -> bytes:
        """Return the value of a key, which is set to `default` if it is absent."""
        row = _bytes(key), _bytes(default)
        value: bytes = self._call(lambda tree: tree.setdefault(*row), True)
        return value

    def keys(self) -> list[bytes]:  # type: ignore[override]
        """Return all keys."""
        return self._call(list)

    def clear(self) -> None:
        """Delete all keys."""
        self._call(lambda tree: tree.clear(), True)

    def sync(self) -> None:
        """Make all writes durable."""
        db = self._db
        if self._is_read_only or db is None:
            self._call(lambda _: None)
        else:
            self._call(lambda _: db.sync())

    def close(self) -> None:
        """Make all writes durable and close the database."""
        db, self._db = self._db, None
        if db is not None:
            try:
                db.close()
            except Error as failure:
                raise error(str(failure)) from failure

    def __enter__(self) -> Dbm:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def whichdb(file: Path) -> str | None:
    """Return "braiddb.dbm" if the path is a database of BraidDB, as `dbm.whichdb` does."""
    is_database = os.path.exists(os.path.join(os.fsdecode(file), "CURRENT"))
    return "braiddb.dbm" if is_database else None


def open(file: Path, flag: Flag = "r", mode: int = 0o666) -> Dbm:
    """Open a database, which is a directory.

    `flag` is "r" to read an existing one, "w" to also write it, "c" to create it if absent, or "n"
    to create an empty one. `mode` is the mode of a new directory, made searchable where it is
    readable.
    """
    if flag not in ("r", "w", "c", "n"):
        raise ValueError(f"Flag must be one of 'r', 'w', 'c', or 'n', not {flag!r}")
    path = os.fsdecode(file)
    if flag in ("r", "w") and whichdb(path) is None:
        raise error(errno.ENOENT, "there is no database", path)
    if flag == "n" and os.path.isfile(path):
        os.remove(path)  # A database of another module.
    if flag in ("c", "n") and not os.path.exists(path):
        os.mkdir(path, mode | (mode & 0o444) >> 2)
    options = {"durability": "buffered", "create": flag in ("c", "n"), "read_only": flag == "r"}
    try:
        dbm = Dbm(open_database(path, options), flag == "r")
    except Error as failure:
        raise error(str(failure)) from failure
    if flag == "n":
        try:
            dbm.clear()
        except BaseException:
            dbm.close()
            raise
    return dbm


__all__ = ["Dbm", "error", "open", "whichdb"]
