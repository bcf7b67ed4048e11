"""Exceptions. The extension module raises them by name."""

from __future__ import annotations


class Error(Exception):
    """Base of all errors of BraidDB."""


class InvalidArgument(Error, ValueError):
    """The request is impossible; nothing was changed."""


class NotFound(Error, LookupError):
    """A named tree, database or backup does not exist."""


class AlreadyExists(Error):
    """A named tree, database or directory exists already."""


class Closed(Error, ValueError):
    """The database was closed, or the transaction has ended."""


class Forked(Error, RuntimeError):
    """The handle belongs to the parent of this process."""


class Locked(Error):
    """Another handle or process has the database or backup in use."""


class ReadOnly(Error):
    """The handle takes no writes."""


class Conflict(Error):
    """Other commits changed the reads of the transaction. Nothing was written; begin it again."""


class ExclusiveOpen(Error):
    """An exclusive transaction stayed open for too long. Nothing was written."""


class TransactionTooLarge(Error):
    """Reads and writes of the transaction exceed its memory. Nothing was written."""


class Timeout(Error):
    """Another thread held the cache for longer than its `timeout`. Nothing was written."""


class OutcomeUnknown(Error):
    """A commit may or may not be applied: its sync failed, or no owner replied in time."""


class NoOwner(Error):
    """No process that shares the database took the call in time. Nothing was written."""


class Corruption(Error):
    """A file holds bytes that BraidDB did not write, or lacks bytes that it wrote."""

    path: str | None
    offset: int | None

    def __init__(self, text: str, path: str | None = None, offset: int | None = None) -> None:
        super().__init__(text)
        self.path = path
        self.offset = offset


class BackupDamaged(Corruption):
    """A backup changed after it was written."""


class DumpDamaged(Corruption):
    """A dump changed after it was written."""


class ArchiveGap(Error):
    """The log archive lacks commits."""


class IoError(Error, OSError):
    """The operating system refused an operation on a file."""


class DiskFull(Error, OSError):
    """The disk is full. The write was not applied; reads continue."""


class MergeFailed(Error):
    """A merge function failed on a key. Put or delete the key to repair it."""


class ReaderExpired(Error):
    """A snapshot, iterator or transaction was open for longer than `reader_age_max`."""


class WatchTooOld(Error):
    """The log lacks commits that a watcher has not seen: start over from a snapshot."""


class Unsupported(Error):
    """The file is of a newer version, or needs a feature that this build lacks."""


class TooBusy(Error):
    """Another process changes the database faster than it can be read."""
