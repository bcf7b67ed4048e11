#!/usr/bin/env python3
"""Prints the contents of a dump of a BraidDB database: an independent reader, written from docs/dump.md alone.

    scripts/read_dump.py FILE       each pair: tree, tab, key in hexadecimal, tab, value in hexadecimal

Checks every checksum, the order of frames and records, and the totals. Applies built-in merge
functions. Uses only the standard library; Zstandard needs Python 3.14 or the zstd command. Not for
large databases.

Exits with 3 if the dump is damaged, with 4 if Zstandard is needed and missing.
"""

import sys
from pathlib import Path

from reader.database import ABSENT, FUNCTIONS, GIVEN, Tree, read_operands
from reader.fields import Corrupt, Reader, Unsupported, checksum, number, require, unpack
from reader.xxh3 import xxh3_64

CATALOG, RECORDS, PIECE, END = 1, 2, 3, 4
LONG, OPERANDS, EXPIRES, BENEATH = 1, 2, 4, 8


class Dump:
    def __init__(self, data):
        self.data, self.trees, self.looked_at = data, {}, bytearray(data[:64])
        require(data[:8] == b"BRAIDDMP" and len(data) >= 64, "no BRAIDDMP at the front")
        require(checksum(0, 0, data[:56]) == number(data, 56, 8), "the header's checksum does not match")
        require(number(data, 8, 4) == 1 and number(data, 12, 12) == 0, "an unknown version or feature")
        self.file_id, self.last = number(data, 32, 8), number(data, 40, 8)
        self.frames = self.records = self.bytes = 0

    def all_frames(self):
        """Yields (kind, tree, payload) of each frame except the last, which is only checked."""
        at = 64
        while True:
            head = self.data[at : at + 32]
            require(len(head) == 32 and checksum(self.file_id, at, head[:24]) == number(head, 24, 8), f"the frame at {at}")
            stored, length, kind, compression = (number(head, *field) for field in ((0, 4), (4, 4), (8, 1), (9, 1)))
            tree, payload = number(head, 10, 4), self.data[at + 32 : at + 32 + stored]
            require(length <= 2 << 20 and number(head, 14, 2) == 0 and len(payload) == stored, "a frame's length")
            require(stored == length if compression == 0 else stored < length, "a frame that packing has not made shorter")
            require(checksum(self.file_id, 0, payload) == number(head, 16, 8), f"the payload of the frame at {at}")
            require((kind in (RECORDS, PIECE)) == (tree != 0), "a frame of a tree that it cannot be of")
            at, payload = at + 32 + stored, unpack(compression, payload, length)
            if kind == END:
                self.check_end(Reader(payload))
                return require(at == len(self.data), "something comes after the end")
            self.looked_at += head
            self.frames += 1
            yield kind, tree, payload

    def check_end(self, reader):
        told = [reader.varint() for _ in range(4)]
        require(told == [self.frames, len(self.trees), self.records, self.bytes], f"the end tells {told}")
        require(reader.fixed(8) == xxh3_64(bytes(self.looked_at)) and reader.is_at_end(), "other frames than the end tells")

    def read_catalog(self, payload):
        reader = Reader(payload)
        while not reader.is_at_end():
            tag, item = reader.fixed(1), Reader(reader.bytes())
            require(tag <= 5 or tag >= 128, "an unknown item")
            if tag == 4:
                value = item.bytes()
                tree = Tree(item.take(len(item.data) - item.at).decode(), value)
                require(tree.id > max(self.trees, default=0), "trees out of order")
                self.trees[tree.id] = tree

    def entries(self):
        """Yields [tree, flags, key, sequence number, value] of each record, in order per tree."""
        key, tree_before, missing, entry = None, 0, 0, None
        for kind, tree, payload in self.all_frames():
            if kind == CATALOG:
                require(tree_before == 0, "a catalog frame among records")
                self.read_catalog(payload)
                continue
            require(tree in self.trees and tree >= tree_before, "records of an unknown tree, or out of order")
            if kind == PIECE:
                require(tree == tree_before and 0 < len(payload) <= missing, "a piece of nothing")
                entry[4] += payload
                missing -= len(payload)
                if missing == 0:
                    yield entry
                continue
            require(missing == 0, "a long value ends early")
            reader, key, sequence, tree_before = Reader(payload), b"", 0, tree
            while not reader.is_at_end():
                flags, shared = reader.fixed(1), reader.varint()
                require(flags < 16 and shared <= len(key), "a record of another form")
                key, sequence = key[:shared] + reader.bytes(), sequence + reader.zigzag()
                require(0 < sequence <= self.last, "a record of a later commit")
                if flags & EXPIRES:
                    reader.varint()
                length = reader.varint()
                self.records += 1
                self.bytes += len(key) + length
                if flags & LONG:
                    require(reader.is_at_end() and length > 0, "a long value amid records")
                    entry, missing = [tree, flags, key, sequence, b""], length
                else:
                    yield [tree, flags, key, sequence, reader.take(length)]
        require(missing == 0, "a long value ends early")

    def contents(self):
        """Yields (tree, key, value) with merge functions applied."""
        before, waiting = None, None
        for tree, flags, key, _, value in self.entries():
            place = (tree, key, value) if self.trees[tree].is_multi else (tree, key)
            if flags & BENEATH:
                require(waiting is not None and waiting[:2] == (tree, key), "a value beneath nothing")
                yield tree, key, merged(waiting[2], value)
                waiting = None
                continue
            if waiting:
                yield waiting[0], waiting[1], merged(waiting[2], None)
            require(before is None or place > before, "records out of order")
            before, waiting = place, (tree, key, value) if flags & OPERANDS else None
            if not waiting:
                yield tree, key, value
        if waiting:
            yield waiting[0], waiting[1], merged(waiting[2], None)


def merged(stored, value):
    base, given, _, operands = read_operands(stored)
    value = given if base == GIVEN else None if base == ABSENT else value
    for function, operand in operands:
        value = FUNCTIONS[function](value, operand)
    return value


def main(arguments):
    if len(arguments) != 1 or arguments[0].startswith("-"):
        raise SystemExit(__doc__)
    dump = Dump(Path(arguments[0]).read_bytes())
    pairs = list(dump.contents())
    for tree, key, value in sorted(pairs, key=lambda pair: dump.trees[pair[0]].name.encode()):
        print(dump.trees[tree].name, key.hex(), value.hex(), sep="\t")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Unsupported as error:
        print(f"read_dump: SKIPPED: {error}", file=sys.stderr)
        sys.exit(4)
    except (Corrupt, ValueError, IndexError) as error:
        print(f"read_dump: damaged: {error}", file=sys.stderr)
        sys.exit(3)
