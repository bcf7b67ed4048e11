"""Where ranges of a cache's trees begin and end.

A removed row leaves a tombstone until a merge drops it, and a scan passes all tombstones before the
first row. So evictions, expiries and pulls begin where the last one found a row. Bounds are in
memory only: the first scan of a range since the open passes all its tombstones.

INVARIANT C2: no row of a range is outside of its bounds. All writers hold the lock of `Opened`. A
put outside of bounds widens them before its commit. A scan narrows them for its transaction; the
commit then narrows them for all.

If several processes share a cache, the bounds are in its tree `meta`, and each transaction changes
them with the rows. There are then as many as fit into `_STORED_MAX` bytes.
"""

from __future__ import annotations

import struct
from typing import Optional

#: The first key, and a key behind the last one.
Bounds = tuple[bytes, bytes]

#: The name of a tree, and which of its ranges.
Range = tuple[str, bytes]

#: Maximum ranges with bounds. One more forgets all others.
_RANGES_MAX = 1024

#: Maximum bytes of stored bounds.
_STORED_MAX = 4096

#: Which tree, and the lengths of the three keys that follow.
_STORED = struct.Struct(">BHHH")
_TREES = ("entries", "rows", "order", "expiry", "tags")

#: A key behind those of the trees `rows`, `order` and `expiry`.
BEHIND_ALL = b"\xff" * 17

#: First bytes of the keys that are text, and of those that are integers from 1 on.
_TEXT, _INTEGERS = 0x02, range(0x15, 0x1D)

#: Bytes of the number at the end of a text key of a queue.
_DIGITS = 16


def queue_of(at: bytes) -> Range | None:
    """Return the range of the queue that may have this key of `entries`."""
    if at[0] == _TEXT and len(at) > _DIGITS:
        return "entries", at[:-_DIGITS]
    return ("entries", b"") if at[0] in _INTEGERS else None


class Ends:
    """The bounds of a cache. Readers use them without a lock."""

    def __init__(self) -> None:
        self._bounds: dict[Range, Bounds] = {}

    @staticmethod
    def read(data: bytes | None) -> Ends:
        """Return stored bounds."""
        ends, at = Ends(), 0
        while data is not None and at < len(data):
            tree, *lens = _STORED.unpack_from(data, at)
            at += _STORED.size
            keys = []
            for size in lens:
                keys.append(data[at : at + size])
                at += size
            ends._bounds[_TREES[tree], keys[0]] = keys[1], keys[2]
        return ends

    def pack(self) -> bytes:
        """Return the bounds to store: first those that were noted last."""
        parts: list[bytes] = []
        left = _STORED_MAX
        for (tree, rest), bounds in reversed(self._bounds.items()):
            keys = (rest, *bounds)
            part = _STORED.pack(_TREES.index(tree), *map(len, keys)) + b"".join(keys)
            left -= len(part)
            if left < 0:
                break
            parts.append(part)
        return b"".join(reversed(parts))

    def get(self, of: Range) -> Bounds | None:
        """Return the bounds of a range, None if they are not known."""
        return self._bounds.get(of)

    def widen(self, of: Range, key: bytes) -> None:
        """Include a key that is about to be put."""
        bounds = self._bounds.get(of)
        if bounds is not None and not bounds[0] <= key < bounds[1]:
            self._bounds[of] = min(bounds[0], key), max(bounds[1], key + b"\0")

    def narrow(self, of: Range, bounds: Bounds) -> None:
        """Set the bounds of a range. The caller is its only writer."""
        if len(self._bounds) >= _RANGES_MAX and of not in self._bounds:
            self.clear()
        self._bounds[of] = bounds

    def clear(self) -> None:
        """Forget all bounds."""
        # Readers have the dict, so it is replaced.
        self._bounds = {}

    def adopt(self, other: Ends) -> None:
        """Narrow the bounds to those of a transaction that was committed."""
        for of, bounds in other._bounds.items():
            self.narrow(of, bounds)

    def hold(self, of: Range, read: Optional[Bounds]) -> bool:
        """Return whether nothing was put outside of bounds that a reader has used."""
        now = self._bounds.get(of)
        return read is None or (now is not None and now[0] >= read[0] and now[1] <= read[1])


__all__ = ["BEHIND_ALL", "Bounds", "Ends", "Range", "queue_of"]
