"""Databases that several processes write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._db import Database, Transaction
from ._errors import Conflict, ReaderExpired, Unsupported

if TYPE_CHECKING:
    from .aio import AsyncDatabase


class SharedDatabase(Database):
    """A database that several processes on a machine have open at once, with the same options.

    The first process to open it is the owner and commits for the others. When it ends, even by a
    kill, another takes over. Reads see all acknowledged writes of their own process, and those of
    others at most some milliseconds later. `NoOwner` is raised if no process took a write in time,
    `OutcomeUnknown` if none replied. A function of `transaction` runs again after `ReaderExpired`,
    at most three times.

    An exclusive transaction excludes the writers of all processes. It ends with its process; if the
    owner ends meanwhile, its commit raises `Conflict`, and so does a stream. `watch`, `aio`, appends
    to streams, and changes of trees raise `Unsupported`. `compact`, `backup` and other operations
    run in the owner.
    """

    _conflicts = (Conflict, ReaderExpired)
    _expiries_max = 3

    @property
    def is_owner(self) -> bool:
        """True if this process commits for the others."""
        return self._raw.is_owner

    def refresh(self) -> None:
        """Make the following reads see all commits that any process has acknowledged before."""
        self._raw.refresh()

    def write_alone(self, timeout: float | None) -> Transaction:
        """Begin an exclusive transaction, within `timeout` if `shared_timeout` is longer."""
        return Transaction(self, True, None, timeout)

    @property
    def aio(self) -> AsyncDatabase:
        """Not available."""
        raise Unsupported("aio is not available in a database opened with shared=True")

    def __repr__(self) -> str:
        return f"<SharedDatabase {self._path!r}{' (closed)' if self.closed else ''}>"


__all__ = ["SharedDatabase"]
