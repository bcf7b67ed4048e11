"""BraidDB: an embedded, ordered, transactional key-value store.

    import braiddb

    db = braiddb.open("music.db")
    albums = db["albums"]
    albums[b"01"] = b"Ten"              # durable when it returns
    with db.write() as tx:              # a transaction
        tx["albums"][b"02"] = b"Vs."
    for key, value in albums.items(prefix=b"0"):
        print(key, value)
    db.close()
"""

from __future__ import annotations

import os
from typing import Any, Literal, overload

from . import _braiddb
from ._codecs import Codec
from ._db import Database, Follower, Path, Snapshot, Transaction, open_database, open_in_memory
from ._errors import (
    AlreadyExists,
    ArchiveGap,
    BackupDamaged,
    Closed,
    Conflict,
    Corruption,
    DiskFull,
    DumpDamaged,
    Error,
    ExclusiveOpen,
    Forked,
    InvalidArgument,
    IoError,
    Locked,
    MergeFailed,
    NoOwner,
    NotFound,
    OutcomeUnknown,
    ReaderExpired,
    ReadOnly,
    Timeout,
    TooBusy,
    TransactionTooLarge,
    Unsupported,
    WatchTooOld,
)
from ._shared import SharedDatabase
from ._streams import StreamReader, StreamWriter
from ._trees import CodecTree, CodecView, MultiTree, MultiTreeView, Tree, TreeView
from ._tuple import Float32, Versionstamp
from ._watch import Change, Commit, Watcher
from .cache import Cache

__version__ = _braiddb.__version__


@overload
def open(path: Path, *, shared: Literal[True], **options: Any) -> SharedDatabase: ...
@overload
def open(path: Path, **options: Any) -> Database: ...
def open(path: Path, **options: Any) -> Database:
    """Open the database in the directory `path`, created if absent.

    Options, each as in `braiddb::Builder`:

    - `create`, `create_parents`, `read_only`: bool
    - `durability`: "sync" (default), "buffered" or "none"
    - `memory`: bytes for memtables, cache and indexes; 256 MiB by default
    - `compression`: "lz4" (default), "zstd" or "none"
    - `merge`: a dict of names and functions `(key, value or None, operand) -> value`
    - `blob_threshold`, `background_threads`, `open_files_max`, `disk_reserve`, `garbage_percent`: int
    - `reader_age_warn`, `reader_age_max`, `exclusive_wait_max`, `slow_commit`: seconds or timedelta
    - `log_retention` (bytes), `log_retention_age`, `log_archive` (a directory)
    - `read_in_place`, `direct_io`: bool; `scrub`, `rate_limit`: bytes per second
    - `shared`: bool; `shared_timeout`: seconds or timedelta. With `shared=True` several processes
      write the database at once, and the result is a `SharedDatabase`.
    """
    return open_database(path, options)


def in_memory(**options: Any) -> Database:
    """Create a database in memory, with the options of `open`. It ends with its last handle."""
    return open_in_memory(options)


def follow(path: Path, **options: Any) -> Follower:
    """Follow a database that another process writes. Writes nothing and takes no lock."""
    return Follower(path, options)


def backups(path: Path) -> list[dict[str, Any]]:
    """List the backups in the directory `path`, oldest first."""
    return _braiddb.backups(os.fsdecode(path))


def verify_backups(path: Path, id: int | None = None) -> tuple[list[int], list[int]]:
    """Read backups and compare their checksums. Return the ids of intact and of damaged ones."""
    return _braiddb.verify_backups(os.fsdecode(path), id)


def delete_backup(path: Path, id: int) -> None:
    """Delete a backup. Files that other backups share remain."""
    _braiddb.delete_backup(os.fsdecode(path), id)


def restore(
    backups: Path,
    path: Path,
    *,
    id: int | None = None,
    archive: Path | None = None,
    commit: int | None = None,
    time: float | None = None,
) -> int:
    """Restore a backup, the newest by default, to the new directory `path`.

    With the log archive `archive`, restore the state just after `commit`, just before `time` in
    seconds since 1970, or the latest. Return the last commit.
    """
    if archive is None and (commit is not None or time is not None):
        raise InvalidArgument("a commit or a time needs a log archive")
    if archive is not None and id is not None:
        raise InvalidArgument("an id and an archive exclude each other")
    if commit is not None and time is not None:
        raise InvalidArgument("use one of commit and time")
    log = None if archive is None else os.fsdecode(archive)
    target, to = os.fsdecode(backups), os.fsdecode(path)
    return _braiddb.restore(target, to, id=id, archive=log, commit=commit, time=time)


def verify(path: Path) -> dict[str, Any]:
    """Check every checksum of a database, which need not open. Writes nothing."""
    return _braiddb.verify_path(os.fsdecode(path))


__all__ = [
    "AlreadyExists",
    "ArchiveGap",
    "BackupDamaged",
    "Cache",
    "Change",
    "Closed",
    "Codec",
    "CodecTree",
    "CodecView",
    "Commit",
    "Conflict",
    "Corruption",
    "Database",
    "DiskFull",
    "DumpDamaged",
    "Error",
    "ExclusiveOpen",
    "Float32",
    "Follower",
    "Forked",
    "InvalidArgument",
    "IoError",
    "Locked",
    "MergeFailed",
    "MultiTree",
    "MultiTreeView",
    "NoOwner",
    "NotFound",
    "OutcomeUnknown",
    "ReadOnly",
    "ReaderExpired",
    "SharedDatabase",
    "Snapshot",
    "StreamReader",
    "StreamWriter",
    "Timeout",
    "TooBusy",
    "Transaction",
    "TransactionTooLarge",
    "Tree",
    "TreeView",
    "Unsupported",
    "Versionstamp",
    "WatchTooOld",
    "Watcher",
    "backups",
    "delete_backup",
    "follow",
    "in_memory",
    "open",
    "restore",
    "verify",
    "verify_backups",
]
