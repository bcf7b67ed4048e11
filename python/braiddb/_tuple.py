"""Tuples as keys, in the encoding of FoundationDB's tuple layer.

The bytes sort as the tuples do, and libraries of many languages read them. `braiddb-typed` writes
the same bytes. Elements: None, bytes, str, int, float, Float32, bool, UUID,
Versionstamp, tuples.
"""

from __future__ import annotations

import struct
import uuid
from typing import Union

Element = Union[None, bytes, str, int, float, bool, uuid.UUID, "tuple[Element, ...]"]


class Float32(float):
    """A float of 32 bits. Its bytes differ from those of the same `float`."""


class Versionstamp(bytes):
    """A versionstamp of 12 bytes, which FoundationDB assigns."""


_NULL, _BYTES, _TEXT, _NESTED = 0x00, 0x01, 0x02, 0x05
_NEGATIVE_BIG, _ZERO, _POSITIVE_BIG = 0x0B, 0x14, 0x1D
_FLOAT, _DOUBLE, _FALSE, _TRUE, _UUID, _STAMP = 0x20, 0x21, 0x26, 0x27, 0x30, 0x33


def pack(key: tuple[Element, ...]) -> bytes:
    """Return the bytes of a tuple."""
    out = bytearray()
    for element in key:
        _encode(element, out, False)
    return bytes(out)


def unpack(data: bytes) -> tuple[Element, ...]:
    """Return the tuple of these bytes. Raise ValueError if they are none."""
    elements: list[Element] = []
    at = 0
    try:
        while at < len(data):
            element, at = _decode(data, at)
            elements.append(element)
    except (IndexError, struct.error, UnicodeDecodeError) as error:
        raise ValueError(f"no tuple: {data!r}") from error
    return tuple(elements)


def _encode(element: Element, out: bytearray, is_nested: bool) -> None:
    if element is None:
        out += b"\x00\xff" if is_nested else b"\x00"
    elif element is True:
        out.append(_TRUE)
    elif element is False:
        out.append(_FALSE)
    elif isinstance(element, Versionstamp):
        if len(element) != 12:
            raise ValueError("a versionstamp has 12 bytes")
        out.append(_STAMP)
        out += element
    elif isinstance(element, bytes):
        out.append(_BYTES)
        out += element.replace(b"\x00", b"\x00\xff") + b"\x00"
    elif isinstance(element, str):
        out.append(_TEXT)
        out += element.encode().replace(b"\x00", b"\x00\xff") + b"\x00"
    elif isinstance(element, int):
        _encode_int(element, out)
    elif isinstance(element, float):
        is_single = isinstance(element, Float32)
        bits = struct.pack(">f" if is_single else ">d", element)
        out.append(_FLOAT if is_single else _DOUBLE)
        out += _flipped(bits, bits[0] & 0x80 != 0)
    elif isinstance(element, uuid.UUID):
        out.append(_UUID)
        out += element.bytes
    elif isinstance(element, tuple):
        out.append(_NESTED)
        for inner in element:
            _encode(inner, out, True)
        out.append(0)
    else:
        raise TypeError(f"a tuple key cannot have a {type(element).__name__}")


def _encode_int(number: int, out: bytearray) -> None:
    size = (abs(number).bit_length() + 7) // 8
    if size > 255:
        raise ValueError("an integer of a tuple key has at most 255 bytes")
    if number >= 0:
        out += bytes([_ZERO + size]) if size <= 8 else bytes([_POSITIVE_BIG, size])
        out += number.to_bytes(size, "big")
    else:
        # One's complement, so that the bytes sort.
        out += bytes([_ZERO - size]) if size <= 8 else bytes([_NEGATIVE_BIG, size ^ 0xFF])
        out += ((1 << (8 * size)) - 1 + number).to_bytes(size, "big")


def _flipped(bits: bytes, is_negative: bool) -> bytes:
    """Return the bits of a float in the order of the numbers, or back."""
    if is_negative:
        return bytes(byte ^ 0xFF for byte in bits)
    return bytes([bits[0] ^ 0x80]) + bits[1:]


def _take(data: bytes, at: int, size: int) -> bytes:
    part = data[at : at + size]
    if len(part) != size:
        raise IndexError("the bytes are cut short")
    return part


def _decode_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    start = at
    while True:
        end = data.index(0, at)
        if data[end + 1 : end + 2] != b"\xff":
            return data[start:end].replace(b"\x00\xff", b"\x00"), end + 1
        at = end + 2


def _decode_float(data: bytes, at: int, size: int, form: str) -> tuple[float, int]:
    bits = _take(data, at, size)
    number = struct.unpack(form, _flipped(bits, bits[0] & 0x80 == 0))[0]
    return float(number), at + size


def _decode_int(data: bytes, code: int, at: int) -> tuple[int, int]:
    if code == _POSITIVE_BIG:
        size, is_negative, at = data[at], False, at + 1
    elif code == _NEGATIVE_BIG:
        size, is_negative, at = data[at] ^ 0xFF, True, at + 1
    else:
        size, is_negative = abs(code - _ZERO), code < _ZERO
    number = int.from_bytes(_take(data, at, size), "big")
    if is_negative:
        number -= (1 << (8 * size)) - 1
    return number, at + size


def _decode_nested(data: bytes, at: int) -> tuple[tuple[Element, ...], int]:
    elements: list[Element] = []
    while True:
        if data[at] == _NULL:
            if data[at + 1 : at + 2] != b"\xff":
                return tuple(elements), at + 1
            elements.append(None)
            at += 2
        else:
            element, at = _decode(data, at)
            elements.append(element)


def _decode(data: bytes, at: int) -> tuple[Element, int]:
    code = data[at]
    at += 1
    if code == _NULL:
        return None, at
    if code == _BYTES:
        return _decode_bytes(data, at)
    if code == _TEXT:
        text, at = _decode_bytes(data, at)
        return text.decode(), at
    if code == _NESTED:
        return _decode_nested(data, at)
    if _NEGATIVE_BIG <= code <= _POSITIVE_BIG:
        return _decode_int(data, code, at)
    if code == _FLOAT:
        single, at = _decode_float(data, at, 4, ">f")
        return Float32(single), at
    if code == _DOUBLE:
        return _decode_float(data, at, 8, ">d")
    if code in (_FALSE, _TRUE):
        return code == _TRUE, at
    if code == _UUID:
        return uuid.UUID(bytes=_take(data, at, 16)), at + 16
    if code == _STAMP:
        return Versionstamp(_take(data, at, 12)), at + 12
    raise ValueError(f"no tuple: {data!r} has the unknown type code {code:#04x}")
