"""Trees as mappings."""

from __future__ import annotations

import io
from collections.abc import (
    Callable,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    MutableMapping,
    ValuesView,
)
from typing import Any, Generic, TypeVar, overload

from . import _braiddb
from ._codecs import Codec
from ._errors import InvalidArgument, NotFound
from ._streams import StreamReader, StreamWriter
from ._types import Bytes, Durability, Seconds

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")
T = TypeVar("T")

_ABSENT: Any = object()

#: First byte of the index entries of `braiddb-typed`. No tuple begins with it.
INDEX_ENTRIES = b"\xff"


class _Range(Generic[T]):
    """A range of a tree, iterated in one direction."""

    _kind = ""

    def __init__(
        self,
        tree: Any,
        prefix: Any = None,
        start: Any = None,
        stop: Any = None,
        reverse: bool = False,
    ) -> None:
        self._mapping = tree
        self._bounds = (prefix, start, stop)
        self._is_reverse = reverse

    def __len__(self) -> int:
        return int(self._mapping.count(*self._bounds))

    def __iter__(self) -> Iterator[T]:
        rows: Iterator[T] = self._mapping.scan(self._kind, *self._bounds, self._is_reverse)
        return rows

    def __reversed__(self) -> Iterator[T]:
        rows: Iterator[T] = self._mapping.scan(self._kind, *self._bounds, not self._is_reverse)
        return rows

    def _has(self, key: Any) -> bool:
        if self._bounds == (None, None, None):
            return key in self._mapping
        at, to = self._mapping._encoded(key), self._mapping._encoded_bounds(*self._bounds)
        prefix, start, stop = to
        is_in = (prefix is None or at.startswith(prefix)) and (start is None or at >= start)
        return is_in and (stop is None or at < stop) and key in self._mapping

    def __repr__(self) -> str:
        return f"<{self._kind} of {self._mapping!r}>"


class Keys(_Range[K], KeysView[K]):
    """Keys of a range."""

    _kind = "keys"

    def __contains__(self, key: object) -> bool:
        return self._has(key)


class Values(_Range[V], ValuesView[V]):
    """Values of a range."""

    _kind = "values"

    def __contains__(self, value: object) -> bool:
        return any(found == value for found in self)


class Items(_Range[tuple[K, V]], ItemsView[K, V]):
    """Items of a range."""

    _kind = "items"

    def __contains__(self, item: object) -> bool:
        if not isinstance(item, tuple) or len(item) != 2:
            return False
        return self._has(item[0]) and bool(self._mapping[item[0]] == item[1])


class _Reads(Generic[K, V]):
    """Reads beyond those of a mapping, for byte trees and trees with codecs."""

    def keys(
        self,
        *,
        prefix: K | None = None,
        start: K | None = None,
        stop: K | None = None,
        reverse: bool = False,
    ) -> Keys[K]:
        """Return a view of the keys in a range, in order."""
        return Keys(self, prefix, start, stop, reverse)

    def values(
        self,
        *,
        prefix: K | None = None,
        start: K | None = None,
        stop: K | None = None,
        reverse: bool = False,
    ) -> Values[V]:
        """Return a view of the values in a range, in order of their keys."""
        return Values(self, prefix, start, stop, reverse)

    def items(
        self,
        *,
        prefix: K | None = None,
        start: K | None = None,
        stop: K | None = None,
        reverse: bool = False,
    ) -> Items[K, V]:
        """Return a view of the items in a range, in order."""
        return Items(self, prefix, start, stop, reverse)


class TreeView(_braiddb.RawTree, _Reads[bytes, bytes], Mapping[bytes, bytes]):
    """A tree of bytes in a snapshot."""

    def _encoded(self, key: Bytes) -> bytes:
        return bytes(key)

    def _encoded_bounds(self, *bounds: Bytes | None) -> tuple[bytes | None, ...]:
        return tuple(None if bound is None else bytes(bound) for bound in bounds)

    def open_stream(self, key: Bytes, mode: str = "rb", *, buffering: int = 1 << 16) -> Any:
        """Open a value as a file object: "rb" to read it, "wb" to write it.

        A value that is written is committed by the close. An exception in the `with` block
        discards it. `put_stream(key, file, append=True)` appends.
        """
        if mode in ("rb", "r"):
            raw = self.stream_reader(key)
            if raw is None:
                raise NotFound(f"there is no key {bytes(key)!r}")
            reader = StreamReader(raw, f"{self.name}[{bytes(key)!r}]")
            return io.BufferedReader(reader, buffering) if buffering > 0 else reader
        if mode in ("wb", "w"):
            return StreamWriter(self.stream_writer(key))
        raise InvalidArgument(f'open_stream has the modes "rb" and "wb", not {mode!r}')

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Mapping) or len(self) != len(other):
            return False
        return all(key in other and other[key] == value for key, value in self.items())

    __hash__ = None  # type: ignore[assignment]


class Tree(TreeView, MutableMapping[bytes, bytes]):
    """A tree of bytes: a sorted mapping that is stored in a database."""

    def delete(self, key: Bytes) -> None:
        """Delete a key, which may be absent. Faster than `del`, which reads the key."""
        self.delete_many((key,))

    @overload
    def pop(self, key: Bytes, /) -> bytes: ...
    @overload
    def pop(self, key: Bytes, /, default: bytes) -> bytes: ...
    @overload
    def pop(self, key: Bytes, /, default: D) -> bytes | D: ...
    def pop(self, key: Bytes, /, default: Any = _ABSENT) -> Any:
        """Remove a key atomically and return its value."""
        value = self.remove(key)
        if value is not None:
            return value
        if default is _ABSENT:
            raise KeyError(key)
        return default

    def popitem(self) -> tuple[bytes, bytes]:
        """Remove and return the last item."""
        row = self.pop_last()
        if row is None:
            raise KeyError("the tree is empty")
        return row

    def setdefault(self, key: Bytes, default: Bytes = b"") -> bytes:
        """Return the value of a key, which is set to `default` if it is absent."""
        while True:
            value = self.get(key)
            if value is not None:
                return value
            if self.put_if_absent(key, default):
                return bytes(default)

    def update(self, other: Any = (), /, **rows: bytes) -> None:
        """Put many rows, from a mapping or pairs, in one commit."""
        if rows:
            raise TypeError("keys are bytes, so update() takes no keyword arguments")
        self.put_many(_pairs(other))

    def extend(self, rows: Iterable[tuple[Bytes, Bytes]], batch: int = 1000) -> None:
        """Put many rows in commits of `batch` rows. Each is atomic, the whole is not."""
        for part in _batches(rows, batch):
            self.put_many(part)

    def fetch_update(
        self, key: Bytes, function: Callable[[bytes | None], bytes | None]
    ) -> bytes | None:
        """Change a value atomically by `function`, and return the previous one.

        None is an absent value. The function runs again after a conflict.
        """
        while True:
            before = self.get(key)
            if self.compare_and_set(key, before, function(before)):
                return before


def _pairs(other: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(other, Mapping):
        return other.items()
    if hasattr(other, "keys"):
        return [(key, other[key]) for key in other.keys()]
    return other  # type: ignore[no-any-return]


def _batches(rows: Iterable[Any], size: int) -> Iterator[list[Any]]:
    part: list[Any] = []
    for row in rows:
        part.append(row)
        if len(part) >= size:
            yield part
            part = []
    if part:
        yield part


class CodecView(_Reads[K, V], Mapping[K, V]):
    """A tree with codecs in a snapshot."""

    def __init__(self, raw: Any, key: Codec[K], value: Codec[V]) -> None:
        self.raw = raw
        self._key, self._value = key, value
        self._encode, self._decode = key.encode, value.decode
        self._end = INDEX_ENTRIES if key.name == "tuple" else None

    @property
    def name(self) -> str:
        """The tree's name."""
        return str(self.raw.name)

    @property
    def codec(self) -> str:
        """The names of the codecs."""
        return f"{self._key.name}/{self._value.name}"

    def _at(self, raw: Any) -> CodecView[K, V]:
        is_writable = isinstance(self, CodecTree) and isinstance(raw, Tree)
        kind = CodecTree if is_writable else CodecView
        return kind(raw, self._key, self._value)

    def _encoded(self, key: K) -> bytes:
        return self._encode(key)

    def _encoded_bounds(self, prefix: Any, start: Any, stop: Any) -> tuple[bytes | None, ...]:
        if prefix is not None:
            if self._key.prefix is None:
                raise TypeError(f"keys of the codec {self._key.name!r} have no prefixes")
            prefix = self._key.prefix(prefix)
        start = None if start is None else self._encode(start)
        # Typed trees keep index entries behind all tuples.
        stop = self._end if stop is None else self._encode(stop)
        if prefix and self._key.name == "tuple":
            # Behind these bytes, 0xff continues a text or bytes with a NUL: another element.
            start = prefix if start is None else max(start, prefix)
            stop, prefix = min(stop, prefix + b"\xff"), None
        return prefix, start, stop

    @overload
    def __getitem__(self, key: slice) -> Iterator[tuple[K, V]]: ...
    @overload
    def __getitem__(self, key: K) -> V: ...
    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            if key.step is not None:
                raise ValueError("a slice of keys has no step: use items(reverse=True)")
            return iter(self.items(start=key.start, stop=key.stop))
        data = self.raw.get(self._encode(key))
        if data is None:
            raise KeyError(key)
        return self._decode(data)

    def get(self, key: K, default: Any = None) -> Any:
        """Return the value of a key, or `default`."""
        data = self.raw.get(self._encode(key))
        return default if data is None else self._decode(data)

    def get_many(self, keys: Iterable[K]) -> list[V | None]:
        """Return the values of keys; None for absent ones."""
        found = self.raw.get_many([self._encode(key) for key in keys])
        return [None if data is None else self._decode(data) for data in found]

    def get_with_expiry(self, key: K) -> tuple[V, float | None] | None:
        """Return a value and its expiry time in seconds since 1970, or None."""
        found = self.raw.get_with_expiry(self._encode(key))
        return None if found is None else (self._decode(found[0]), found[1])

    def scan(self, kind: str, prefix: Any, start: Any, stop: Any, reverse: bool) -> Iterator[Any]:
        """Iterate over keys, values or items."""
        rows = self.raw.scan(kind, *self._encoded_bounds(prefix, start, stop), reverse)
        key, value = self._key.decode, self._decode
        if kind == "keys":
            return map(key, rows)
        if kind == "values":
            return map(value, rows)
        return ((key(row[0]), value(row[1])) for row in rows)

    def count(self, prefix: K | None = None, start: K | None = None, stop: K | None = None) -> int:
        """Count the keys in a range exactly."""
        return int(self.raw.count(*self._encoded_bounds(prefix, start, stop)))

    def _item(self, row: tuple[bytes, bytes] | None) -> tuple[K, V] | None:
        return None if row is None else (self._key.decode(row[0]), self._decode(row[1]))

    def first(self) -> tuple[K, V] | None:
        """Return the first item, or None. Takes the same time behind any number of pops."""
        return self._item(self._first_row())

    def _first_row(self) -> tuple[bytes, bytes] | None:
        row: tuple[bytes, bytes] | None = self.raw.first()
        return None if row is None or (self._end is not None and row[0] >= self._end) else row

    def last(self) -> tuple[K, V] | None:
        """Return the last item, or None."""
        if self._end is not None:
            return next(iter(self.items(reverse=True)), None)
        return self._item(self.raw.last())

    def __contains__(self, key: object) -> bool:
        return self._encode(key) in self.raw  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[K]:
        return iter(self.keys())

    def __reversed__(self) -> Iterator[K]:
        return iter(self.keys(reverse=True))

    def __len__(self) -> int:
        return len(self.raw) if self._end is None else self.count()

    def __bool__(self) -> bool:
        return self._first_row() is not None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self.codec}>"


class CodecTree(CodecView[K, V], MutableMapping[K, V]):
    """A tree with codecs: a sorted mapping of Python objects."""

    def _optional(self, value: V | None) -> bytes | None:
        return None if value is None else self._value.encode(value)

    def __setitem__(self, key: K, value: V) -> None:
        self.raw[self._encode(key)] = self._value.encode(value)

    def __delitem__(self, key: Any) -> None:
        if isinstance(key, slice):
            if key.step is not None:
                raise ValueError("a slice of keys has no step")
            self.delete_range(start=key.start, stop=key.stop)
            return
        try:
            del self.raw[self._encode(key)]
        except KeyError:
            raise KeyError(key) from None

    def put(
        self,
        key: K,
        value: V,
        *,
        ttl: Seconds | None = None,
        expires: float | None = None,
        keep_ttl: bool = False,
        durability: Durability | None = None,
    ) -> None:
        """Set a value, with options."""
        encoded, data = self._encode(key), self._value.encode(value)
        self.raw.put(
            encoded, data, ttl=ttl, expires=expires, keep_ttl=keep_ttl, durability=durability
        )

    def put_many(
        self,
        rows: Iterable[tuple[K, V]],
        ttl: Seconds | None = None,
        durability: Durability | None = None,
    ) -> None:
        """Put many rows in one commit."""
        encode = self._value.encode
        self.raw.put_many([(self._encode(k), encode(v)) for k, v in rows], ttl, durability)

    def delete_many(self, keys: Iterable[K], durability: Durability | None = None) -> None:
        """Delete keys that may be absent, in one commit."""
        self.raw.delete_many([self._encode(key) for key in keys], durability)

    def delete(self, key: K) -> None:
        """Delete a key, which may be absent. Faster than `del`, which reads the key."""
        self.raw.delete(self._encode(key))

    def delete_range(
        self, prefix: K | None = None, start: K | None = None, stop: K | None = None
    ) -> None:
        """Delete all keys in a range in constant time."""
        self.raw.delete_range(*self._encoded_bounds(prefix, start, stop))

    def remove(self, key: K) -> V | None:
        """Remove a key and return its value, or None."""
        data = self.raw.remove(self._encode(key))
        return None if data is None else self._decode(data)

    def pop(self, key: K, default: Any = _ABSENT) -> Any:
        """Remove a key atomically and return its value."""
        data = self.raw.remove(self._encode(key))
        if data is not None:
            return self._decode(data)
        if default is _ABSENT:
            raise KeyError(key)
        return default

    def popitem(self) -> tuple[K, V]:
        """Remove and return the last item."""
        row = self.pop_last()
        if row is None:
            raise KeyError("the tree is empty")
        return row

    def pop_first(self) -> tuple[K, V] | None:
        """Remove and return the first item, or None."""
        return self._item(self.raw.pop_first())

    def pop_last(self) -> tuple[K, V] | None:
        """Remove and return the last item, or None."""
        return self._item(self.raw.pop_last())

    def clear(self) -> None:
        """Delete all keys in constant time."""
        self.raw.clear()

    def put_if_absent(self, key: K, value: V) -> bool:
        """Put a value if the key is absent. Return whether it was."""
        return bool(self.raw.put_if_absent(self._encode(key), self._value.encode(value)))

    def setdefault(self, key: K, default: Any = None) -> Any:
        """Return the value of a key, which is set to `default` if it is absent."""
        encoded = self._encode(key)
        while True:
            data = self.raw.get(encoded)
            if data is not None:
                return self._decode(data)
            if self.raw.put_if_absent(encoded, self._value.encode(default)):
                return default

    def update(self, other: Any = (), /, **rows: V) -> None:
        """Put many rows, from a mapping or pairs, in one commit."""
        pairs: Any = [*_pairs(other), *rows.items()]
        self.put_many(pairs)

    def extend(self, rows: Iterable[tuple[K, V]], batch: int = 1000) -> None:
        """Put many rows in commits of `batch` rows. Each is atomic, the whole is not."""
        for part in _batches(rows, batch):
            self.put_many(part)

    def compare_and_set(self, key: K, expected: V | None, new: V | None) -> bool:
        """Change a value if its bytes are those of `expected`. None is an absent value."""
        change = (self._optional(expected), self._optional(new))
        return bool(self.raw.compare_and_set(self._encode(key), *change))

    def fetch_update(self, key: K, function: Callable[[V | None], V | None]) -> V | None:
        """Change a value atomically by `function`, and return the previous one."""

        def change(data: bytes | None) -> bytes | None:
            return self._optional(function(None if data is None else self._decode(data)))

        before = self.raw.fetch_update(self._encode(key), change)
        return None if before is None else self._decode(before)

    def merge(self, key: K, function: str, operand: Any) -> None:
        """Apply a merge function. An operand that is not bytes is encoded as a value."""
        if not isinstance(operand, bytes):
            operand = self._value.encode(operand)
        self.raw.merge(self._encode(key), function, operand)


class MultiTreeView(_braiddb.RawMultiTree):
    """A multi-tree in a snapshot. It keeps many sorted values under one key."""

    def values(self, key: Bytes, *, reverse: bool = False) -> Iterator[bytes]:
        """Iterate over the values of a key, in order."""
        return self.scan_values(key, reverse)

    def __getitem__(self, key: Bytes) -> list[bytes]:
        """Return all values of a key; an absent key has none."""
        return list(self.scan_values(key))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


class MultiTree(MultiTreeView):
    """A multi-tree: it keeps many sorted values under one key. It serves as an index."""


__all__ = ["CodecTree", "CodecView", "MultiTree", "MultiTreeView", "Tree", "TreeView"]
