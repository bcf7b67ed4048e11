"""Codecs of keys and values. A tree stores the names of its codecs."""

from __future__ import annotations

import importlib
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from . import _tuple

T = TypeVar("T")


@dataclass(frozen=True)
class Codec(Generic[T]):
    """Converts Python objects to bytes and back.

    `name` has 1 to 31 of the characters a to z, 0 to 9, `-`, `_` and `.`; the tree stores it. The
    bytes of keys must sort as the objects, or scans have another order. `prefix`, if the codec has
    prefixes, converts one.
    """

    name: str
    encode: Callable[[T], bytes]
    decode: Callable[[bytes], T]
    prefix: Callable[[T], bytes] | None = None


def _encode_bytes(value: bytes) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"bytes expected, not {type(value).__name__}")


def _encode_str(value: str) -> bytes:
    if isinstance(value, str):
        return value.encode()
    raise TypeError(f"str expected, not {type(value).__name__}")


def _decode_str(data: bytes) -> str:
    return data.decode()


_SIGN = 1 << 63
_KEY = struct.Struct(">Q")
_NUMBER = struct.Struct("<q")


def _int(value: int) -> int:
    if isinstance(value, int) and -_SIGN <= value < _SIGN:
        return value
    raise ValueError(f"an int of 64 bits expected, not {value!r}")


def _encode_int_key(value: int) -> bytes:
    return _KEY.pack(_int(value) + _SIGN)


def _decode_int_key(data: bytes) -> int:
    return cast(int, _KEY.unpack(data)[0]) - _SIGN


def _encode_int(value: int) -> bytes:
    return _NUMBER.pack(_int(value))


def _decode_int(data: bytes) -> int:
    return cast(int, _NUMBER.unpack(data)[0])


def _encode_tuple(value: tuple[Any, ...]) -> bytes:
    if isinstance(value, tuple):
        return _tuple.pack(value)
    raise TypeError(f"tuple expected, not {type(value).__name__}")


_dumps = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _encode_json(value: Any) -> bytes:
    return _dumps(value).encode()


def _msgpack() -> Codec[Any]:
    try:
        msgpack: Any = importlib.import_module("msgpack")
    except ImportError as error:
        raise ImportError('the codec "msgpack" needs the package: pip install msgpack') from error
    return Codec("msgpack", msgpack.packb, msgpack.unpackb)


def _pickle() -> Codec[Any]:
    import pickle

    return Codec("pickle", pickle.dumps, pickle.loads)


RAW: Codec[bytes] = Codec("raw", _encode_bytes, bytes, _encode_bytes)
_TEXT: Codec[str] = Codec("utf8", _encode_str, _decode_str, _encode_str)
_TUPLE: Codec[tuple[Any, ...]] = Codec("tuple", _encode_tuple, _tuple.unpack, _encode_tuple)
_JSON: Codec[Any] = Codec("json", _encode_json, json.loads)

_KEYS: dict[object, Codec[Any]] = {
    bytes: RAW,
    str: _TEXT,
    int: Codec("i64", _encode_int_key, _decode_int_key),
    tuple: _TUPLE,
}
_VALUES: dict[object, Codec[Any]] = {
    bytes: RAW,
    str: _TEXT,
    # As the merge functions "add" and "max" of numbers need them.
    int: Codec("i64le", _encode_int, _decode_int),
    tuple: _TUPLE,
    "json": _JSON,
}
_LATER: dict[object, Callable[[], Codec[Any]]] = {"msgpack": _msgpack, "pickle": _pickle}


def codec_of(kind: object, is_key: bool) -> Codec[Any]:
    """Return the codec for an argument `key=` or `value=`."""
    if isinstance(kind, Codec):
        return kind
    known = _KEYS if is_key else _VALUES
    if kind in known:
        return known[kind]
    if not is_key and kind in _LATER:
        return _LATER[kind]()
    kinds = "bytes, str, int, tuple" + ("" if is_key else ', "json", "msgpack", "pickle"')
    raise ValueError(f"no codec {kind!r}: use {kinds} or a braiddb.Codec")
