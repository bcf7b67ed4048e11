"""The change stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import _braiddb


@dataclass(frozen=True)
class Change:
    """A change of a commit.

    `kind` is "put", "delete", "delete_range", "merge", "add", "discard", "create_tree",
    "drop_tree", "rename_tree", "set_tree_options", "application_cursor" or "gap". A put of a value
    that was written as a stream has `stream`, whose `read()` returns it, instead of `value`. A gap
    is a part that the log lacks: read the data again.
    """

    kind: str
    tree: str | None = None
    tree_id: int | None = None
    key: bytes | None = None
    value: bytes | None = None
    expires: float | None = None
    start: bytes | None = None
    stop: bytes | None = None
    operands: list[tuple[str, bytes]] = field(default_factory=list)
    is_base_stored: bool = True
    stream: Any = None


@dataclass(frozen=True)
class Commit:
    """The changes of one commit. `token` resumes a watcher after it."""

    sequence: int
    time: float | None
    changes: list[Change]
    token: bytes


class Watcher:
    """Iterates over commits, in order, and waits for the next one."""

    def __init__(self, raw: _braiddb.RawWatcher) -> None:
        self._raw = raw

    def next(self, timeout: float | None = None) -> Commit | None:
        """Wait for the next commit.

        Return None after `timeout` seconds, once stopped, or at the end of a read-only database.
        """
        found = self._raw.next(timeout)
        if found is None:
            return None
        changes = [Change(**change) for change in found.pop("changes")]
        return Commit(changes=changes, **found)

    @property
    def is_stopped(self) -> bool:
        """True after `stop()`, and at the end of a read-only database."""
        return self._raw.is_stopped

    @property
    def token(self) -> bytes:
        """Resumes after the last returned commit."""
        return self._raw.token()

    def stop(self) -> None:
        """End the iteration, from any thread."""
        self._raw.stop()

    def __iter__(self) -> Iterator[Commit]:
        return self

    def __next__(self) -> Commit:
        commit = self.next()
        if commit is None:
            raise StopIteration
        return commit

    def __enter__(self) -> Watcher:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
