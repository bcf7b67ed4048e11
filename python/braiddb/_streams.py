"""Large values as file objects."""

from __future__ import annotations

import io
import os
import warnings
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import _braiddb


class StreamReader(io.RawIOBase):
    """Reads a value in parts, at one snapshot. Its memory is independent of the value's size."""

    def __init__(self, raw: _braiddb.RawStreamReader, name: str) -> None:
        super().__init__()
        self._raw: _braiddb.RawStreamReader | None = raw
        #: The tree and the key, for messages.
        self.name = name
        self._size = raw.length()
        self._position = 0

    def __len__(self) -> int:
        return self._size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def _open(self) -> _braiddb.RawStreamReader:
        if self._raw is None:
            raise ValueError("I/O operation on closed file")
        return self._raw

    def read(self, size: int | None = -1, /) -> bytes:
        """Read up to `size` bytes, or all that follow."""
        left = max(self._size - self._position, 0)
        count = left if size is None or size < 0 else min(size, left)
        parts = []
        while count > 0:
            part = self._open().read_at(self._position, count)
            self._position += len(part)
            count -= len(part)
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Any, /) -> int:
        with memoryview(buffer).cast("B") as place:
            part = self.read(len(place))
            place[: len(part)] = part
        return len(part)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        self._open()
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError("a seek to before the beginning")
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        self._open()
        return self._position

    def close(self) -> None:
        self._raw = None
        super().close()


class StreamWriter(io.RawIOBase):
    """Writes a value in parts. The close commits it; an exception in a `with` block discards it."""

    def __init__(self, raw: _braiddb.RawStreamWriter) -> None:
        super().__init__()
        self._raw: _braiddb.RawStreamWriter | None = raw
        self._position = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        """Write all of `data`."""
        if self._raw is None:
            raise ValueError("I/O operation on closed file")
        count = self._raw.write(data if isinstance(data, bytes) else bytes(memoryview(data)))
        self._position += count
        return count

    def tell(self) -> int:
        return self._position

    def discard(self) -> None:
        """Close the file without a commit."""
        raw, self._raw = self._raw, None
        if raw is not None:
            raw.discard()
        super().close()

    def close(self) -> None:
        """Commit the value and close the file."""
        raw, self._raw = self._raw, None
        try:
            if raw is not None:
                raw.commit()
        finally:
            super().close()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def __del__(self) -> None:
        # A part of a value is not committed.
        if getattr(self, "_raw", None) is not None:
            warnings.warn(f"unclosed {self!r}: its value is discarded", ResourceWarning, 2)
            self.discard()
