"""Keys, values and tags of the cache as bytes.

A key is one element of a tuple key, or one of these bytes and JSON or a pickle. Entries are found
by at most `KEY_MAX` bytes of it: those of a longer key are a digest.
"""

from __future__ import annotations

import hashlib
import json
import struct
import uuid
from typing import Any, NamedTuple

from . import _tuple
from ._codecs import Codec
from ._errors import InvalidArgument

#: Longest key that is stored as it is, in bytes.
KEY_MAX = 512

_JSON_KEY, _PICKLED_KEY, _DIGEST = b"\xfc", b"\xfd", b"\xfe"

#: Largest integer within JSON, in bits: Python limits the conversion of digits.
_JSON_BITS = 4096

#: Largest integer within a tuple, in bits.
_TUPLE_BITS = 2040

_FLOAT = struct.Struct(">d")
_PLAIN = {type(None), bool, float, str, bytes, uuid.UUID}


class Key(NamedTuple):
    """A key: where its entry is, and the whole key if that is a digest."""

    at: bytes
    whole: bytes


class Value(NamedTuple):
    """The bytes of a value, and how they encode it."""

    kind: bytes
    data: bytes


def is_json(value: Any) -> bool:
    """Return whether JSON stores a value without change."""
    kind = type(value)
    if value is None or kind in (bool, str):
        return True
    if kind is int:
        return bool(value.bit_length() <= _JSON_BITS)
    if kind is float:
        return bool(value == value) and value not in (float("inf"), float("-inf"))
    if kind is list:
        return all(map(is_json, value))
    return kind is dict and all(type(k) is str and is_json(v) for k, v in value.items())


def _is_plain(value: Any) -> bool:
    """Return whether a tuple stores a value without change."""
    kind = type(value)
    if kind is tuple:
        return all(map(_is_plain, value))
    return kind in _PLAIN or (kind is int and value.bit_length() <= _TUPLE_BITS)


def _dumps(value: Any, sort_keys: bool = False) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=sort_keys)
    return text.encode()


class Coder:
    """Converts keys and values. Pickles only if it may; `codec` is for values of other types."""

    def __init__(self, may_pickle: bool, protocol: int, codec: Codec[Any] | None) -> None:
        self.may_pickle = may_pickle
        self.protocol = protocol
        self.codec = codec

    def _pickle(self, value: Any, use: str) -> bytes:
        if not self.may_pickle:
            kind = type(value).__name__
            raise TypeError(f"{use} without change: use Cache(pickle=True) for this {kind}")
        import pickle

        return pickle.dumps(value, self.protocol)

    def _unpickle(self, data: bytes) -> Any:
        if not self.may_pickle:
            raise TypeError("the entry is pickled: use Cache(pickle=True) if you trust the file")
        import pickle

        return pickle.loads(data)

    def key(self, key: Any) -> Key:
        """Return the bytes of a key. Equal tuples, lists and dicts have the same."""
        element: tuple[Any] = (key,)
        if isinstance(key, (list, dict)) and is_json(key):
            data = _JSON_KEY + _dumps(key, sort_keys=True)
        else:
            try:
                data = _tuple.pack(element)
            except (TypeError, ValueError):
                data = _PICKLED_KEY + self._pickle_key(key)
        if len(data) <= KEY_MAX:
            return Key(data, b"")
        return Key(_DIGEST + hashlib.sha256(data).digest(), data)

    def _pickle_key(self, key: Any) -> bytes:
        data = self._pickle(key, "a key cannot store it")
        import pickletools

        # The pickle of equal objects may differ in its notes for later use.
        return pickletools.optimize(data)

    def key_of(self, data: bytes) -> Any:
        """Return the key of its whole bytes."""
        kind = data[:1]
        if kind == _JSON_KEY:
            return json.loads(data[1:])
        if kind == _PICKLED_KEY:
            return self._unpickle(data[1:])
        return _tuple.unpack(data)[0]

    def value(self, value: Any) -> Value:
        """Return the bytes of a value."""
        kind = type(value)
        if kind is bytes:
            return Value(b"b", value)
        if kind is str:
            return Value(b"s", value.encode())
        if kind is int:
            size = value.bit_length() // 8 + 1
            return Value(b"i", value.to_bytes(size, "big", signed=True))
        if kind is float:
            return Value(b"f", _FLOAT.pack(value))
        if self.codec is not None:
            return Value(b"c", self.codec.encode(value))
        if kind is tuple and _is_plain(value):
            return Value(b"t", _tuple.pack((value,)))
        if is_json(value):
            return Value(b"j", _dumps(value))
        return Value(b"p", self._pickle(value, "neither JSON nor a tuple stores it"))

    def value_of(self, kind: bytes, data: bytes) -> Any:
        """Return the value of its bytes."""
        if kind == b"b":
            return data
        if kind == b"s":
            return data.decode()
        if kind == b"i":
            return int.from_bytes(data, "big", signed=True)
        if kind == b"f":
            return _FLOAT.unpack(data)[0]
        if kind == b"t":
            return _tuple.unpack(data)[0]
        if kind == b"j":
            return json.loads(data)
        if kind == b"c":
            if self.codec is None:
                raise TypeError("the value needs the codec of its writer: use Cache(disk=codec)")
            return self.codec.decode(data)
        return self._unpickle(data)


def is_digest(at: bytes) -> bool:
    """Return whether these bytes of a key are a digest."""
    return at[:1] == _DIGEST


def tag_bytes(tag: Any) -> bytes:
    """Return the bytes of a tag, none for None."""
    data = b"" if tag is None else _tuple.pack((tag,))
    if len(data) > KEY_MAX:
        raise InvalidArgument(f"a tag has at most {KEY_MAX} bytes, not {len(data)}")
    return data


def tag_of(data: bytes) -> Any:
    """Return the tag of its bytes."""
    return _tuple.unpack(data)[0] if data else None


def plain(value: Any) -> Any:
    """Return a key in which equal numbers are the same."""
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    if type(value) is list:
        return [plain(part) for part in value]
    if type(value) is dict:
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def call_key(base: str, used: list[tuple[Any, Any]], typed: bool) -> tuple[Any, ...]:
    """Return the key of a call: arguments by position and by name, lists and dicts as JSON."""
    values, coded = [], []
    for name, value in used:
        part = value if typed else plain(value)
        if isinstance(part, (list, dict)) and is_json(part):
            part = _dumps(part, sort_keys=True).decode()
            coded.append(name)
        values.append((name, part))
    by_place = tuple(part for name, part in values if not isinstance(name, str))
    by_name = tuple((name, part) for name, part in values if isinstance(name, str))
    key: tuple[Any, ...] = base, by_place, by_name
    if typed:
        types = (type(value) for _, value in used)
        key += (tuple(f"{kind.__module__}.{kind.__qualname__}" for kind in types),)
    # Equal text is another argument.
    return (*key, "json", tuple(coded)) if coded else key


def refused_argument(key: tuple[Any, ...]) -> str | None:
    """Return which argument of a call no tuple stores, None if tuples store all of them."""
    by_place = ((f"number {at}", value) for at, value in enumerate(key[1]))
    for name, value in (*by_place, *key[2]):
        try:
            _tuple.pack((value,))
        except (TypeError, ValueError):
            return str(name)
    return None


__all__ = [
    "Coder",
    "Key",
    "Value",
    "call_key",
    "is_digest",
    "refused_argument",
    "tag_bytes",
    "tag_of",
]
