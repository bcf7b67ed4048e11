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
from collections.abc import Iterator, MutableMapping
from types import TracebackType
from typing import Any, Literal, Union

from ._db import Database, Path, open_database
from ._errors import Error

Flag = Literal["r", "w", "c", "n"]
_Data = Union[str, bytes, bytearray]

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

    def _open(self) -> Any:
        if self._db is None:
            raise error("DBM object has already been closed")
        return self._tree

    def _writable(self) -> Any:
        tree = self._open()
        if self._is_read_only:
            raise error("The database is opened for reading only")
        return tree

    def __getitem__(self, key: _Data) -> bytes:
        value: bytes | None = self._open().get(_bytes(key))
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: _Data, value: _Data) -> None:
        self._writable()[_bytes(key)] = _bytes(value)

    def __delitem__(self, key: _Data) -> None:
        try:
            del self._writable()[_bytes(key)]
        except KeyError:
            raise KeyError(key) from None

    def __contains__(self, key: object) -> bool:
        return _bytes(key) in self._open()  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._open())

    def __len__(self) -> int:
        return len(self._open())

    def get(self, key: _Data, default: Any = None) -> Any:
        """Return the value of a key, or `default`."""
        return self._open().get(_bytes(key), default)

    def setdefault(self, key: _Data, default: _Data = b"") -> bytes:
        """Return the value of a key, which is set to `default` if it is absent."""
        value: bytes = self._writable().setdefault(_bytes(key), _bytes(default))
        return value

    def keys(self) -> list[bytes]:  # type: ignore[override]
        """Return all keys."""
        return list(self._open())

    def clear(self) -> None:
        """Delete all keys."""
        self._writable().clear()

    def sync(self) -> None:
        """Make all writes durable."""
        self._open()
        if self._db is not None and not self._is_read_only:
            self._db.sync()

    def close(self) -> None:
        """Make all writes durable and close the database."""
        db, self._db = self._db, None
        if db is not None:
            db.close()

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
        dbm.clear()
    return dbm


__all__ = ["Dbm", "error", "open", "whichdb"]
