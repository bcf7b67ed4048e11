"""Shared parts of all files: numbers, checksums, file header, compression ("Conventions" in docs/internals/format.md)."""

import subprocess

from .lz4_block import unpack as unpack_lz4
from .xxh3 import xxh3_64

MASK = (1 << 64) - 1
VALUE, TOMBSTONE, BLOB, MERGE, EXPIRING, STREAM, RANGE_DELETE = range(1, 8)


class Corrupt(Exception):
    pass


class Unsupported(Exception):
    pass


def require(holds, what):
    if not holds:
        raise Corrupt(what)


def checksum(file_id, offset, data):
    return xxh3_64(data, file_id ^ (offset * 0x9E3779B97F4A7C15 & MASK))


def number(data, at, length):
    require(at >= 0 and at + length <= len(data), "bytes end early")
    return int.from_bytes(data[at : at + length], "little")


class Reader:
    """Reads fields from the front of a byte string."""

    def __init__(self, data, at=0):
        self.data, self.at = data, at

    def take(self, length):
        require(self.at + length <= len(self.data), "bytes end early")
        self.at += length
        return self.data[self.at - length : self.at]

    def fixed(self, length):
        return int.from_bytes(self.take(length), "little")

    def varint(self):
        value = 0
        for shift in range(0, 70, 7):
            byte = self.fixed(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                require(value <= MASK, "a varint is too large")
                return value
        raise Corrupt("a varint is too long")

    def bytes(self):
        return self.take(self.varint())

    def zigzag(self):
        value = self.varint()
        return value >> 1 if value & 1 == 0 else -(value + 1 >> 1)

    def flag(self):
        value = self.fixed(1)
        require(value <= 1, "a flag is neither 0 nor 1")
        return value == 1

    def is_at_end(self):
        return self.at == len(self.data)


class Header:
    """The 64 bytes at the front of a file."""

    def __init__(self, data, magic, known_features=0):
        require(len(data) >= 64, "the file header is cut short")
        require(data[:8] == magic, f"no {magic.decode()} at the front")
        require(checksum(0, 0, data[:56]) == number(data, 56, 8), "the header's checksum does not match")
        require(number(data, 8, 4) in (1, 2, 3) and number(data, 12, 4) == 0, "an unknown version")
        self.features = number(data, 16, 8)
        require(self.features & ~known_features == 0, "an unknown required feature")
        self.file_id, self.first, self.second = (number(data, at, 8) for at in (32, 40, 48))


def unpack(compression, packed, length):
    """Decompresses to `length` bytes."""
    require(compression <= 2, "an unknown compression")
    if compression == 0:
        require(len(packed) == length, "stored bytes have another length")
        return packed
    contents = unpack_lz4(packed, length) if compression == 1 else unpack_zstandard(packed)
    require(len(contents) == length, "unpacked bytes have another length")
    return contents


def unpack_zstandard(packed):
    try:
        from compression import zstd
    except ImportError:
        return unpack_zstandard_by_command(packed)
    return zstd.decompress(packed)


def unpack_zstandard_by_command(packed):
    try:
        result = subprocess.run(["zstd", "-dcq"], input=packed, capture_output=True)
    except FileNotFoundError:
        raise Unsupported("Zstandard needs Python 3.14 or the zstd command") from None
    require(result.returncode == 0, "Zstandard: " + result.stderr.decode(errors="replace").strip())
    return result.stdout
