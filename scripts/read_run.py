#!/usr/bin/env python3
"""Prints a run file of BraidDB: an independent reader, written from docs/format.md alone.

    scripts/read_run.py [--keys | --view | --tombstones | --summary] FILE.run
    scripts/read_run.py --live FILE.run...

  (nothing)     each entry: key in hexadecimal, sequence number, kind, value in hexadecimal
  --keys        key, sequence number and kind from the key chunks
  --view        key, sequence number and kind in the order of the embedded view, with its stale mark
  --tombstones  range tombstones: start, end, sequence number
  --summary     what the footer says
  --live        what the runs taken together hold: the newest version of each key that is not deleted; key, kind, value

Checks every checksum it passes. Standard library only; reads no Zstandard before Python 3.14. For people and for tests, not for large files.
"""

import sys

from lz4_block import unpack
from xxh3 import xxh3_64

KINDS = {1: "value", 2: "tombstone", 3: "blob", 4: "merge", 5: "expiring", 6: "multi-value"}
MASK = (1 << 64) - 1


class Corrupt(Exception):
    pass


def require(holds, what):
    if not holds:
        raise Corrupt(what)


def checksum(file_id, offset, data):
    return xxh3_64(data, file_id ^ (offset * 0x9E3779B97F4A7C15 & MASK))


def number(data, at, length):
    require(at + length <= len(data), "bytes end early")
    return int.from_bytes(data[at : at + length], "little")


class Reader:
    """Takes fields off the front of some bytes."""

    def __init__(self, data):
        self.data, self.at = data, 0

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

    def is_at_end(self):
        return self.at == len(self.data)


class Run:
    FOOTER = 144

    def __init__(self, data):
        self.data = data
        self.read_header()
        self.read_footer()
        self.read_index()

    def read_header(self):
        header = self.data[:64]
        require(header[:8] == b"BRAIDRUN", "no run")
        require(checksum(0, 0, header[:56]) == number(header, 56, 8), "the header's checksum does not match")
        require(number(header, 8, 4) == 1 and number(header, 12, 4) == 0, "an unknown version")
        require(number(header, 16, 8) == 0, "an unknown required feature")
        self.file_id = number(header, 32, 8)

    def read_footer(self):
        start = len(self.data) - self.FOOTER
        require(start >= 64, "the file is cut short")
        reader = Reader(self.data[start:])
        footer = reader.data
        require(footer[:8] == b"BRAIDEND", "no footer")
        require(checksum(self.file_id, start, footer[:136]) == number(footer, 136, 8), "the footer's checksum does not match")
        reader.take(8)
        names = ["keys", "range_tombstones_at", "index", "index_end", "view", "view_length", "view_checksum", "entries"]
        names += ["tombstones", "raw_bytes", "smallest_sequence", "largest_sequence"]
        self.footer = {name: reader.fixed(8) for name in names}
        self.footer |= {name: reader.fixed(4) for name in ["blocks", "range_tombstones", "flags", "block_size"]}
        require(reader.fixed(8) == 0, "reserved bytes are not zero")
        require(reader.fixed(8) == len(self.data), "the file has another length")

    def unit(self, offset, length):
        """The contents of the unit that stands there."""
        require(13 <= length and offset + length <= len(self.data) - self.FOOTER, "a unit outside the file")
        unit = self.data[offset : offset + length]
        require(checksum(self.file_id, offset, unit[8:]) == number(unit, 0, 8), f"the unit at {offset}: wrong checksum")
        raw_length, contents = number(unit, 9, 4), unit[13:]
        if unit[8] == 0:
            require(len(contents) == raw_length, "a unit has another length")
            return contents
        require(raw_length <= 256 * len(contents) + 64, "a unit unpacks to too much")
        if unit[8] == 1:
            return unpack(contents, raw_length)
        require(unit[8] == 2, "an unknown compression")
        return unpack_zstandard(contents)

    def read_index(self):
        offset = self.footer["index"]
        reader = Reader(self.unit(offset, self.footer["index_end"] - offset))
        self.blocks, at = [], 64
        for _ in range(reader.varint()):
            length, raw_length, entries = reader.varint(), reader.varint(), reader.fixed(1)
            self.blocks.append((at, length, raw_length, entries))
            at += length
        require(at == self.footer["keys"], "the data blocks do not end where the key chunks begin")
        self.chunks, first = [], 0
        for _ in range(reader.varint()):
            first += reader.varint()
            length = reader.varint()
            self.chunks.append((first, at, length))
            at += length
        require(at == self.footer["range_tombstones_at"], "the key chunks do not end where the tombstones begin")
        self.smallest, self.largest = reader.bytes(), reader.bytes()
        self.blob_uses = [(reader.varint(), reader.varint(), reader.varint()) for _ in range(reader.varint())]
        require(reader.is_at_end(), "the index is too long")

    def block(self, number_of_block):
        """The entries of a block: (key, sequence number, kind, value)."""
        offset, length, raw_length, entries = self.blocks[number_of_block]
        block = self.unit(offset, length)
        require(len(block) == raw_length and block[-1] == entries, f"block {number_of_block} is not as the index says")
        base, slots_at = number(block, len(block) - 9, 8), len(block) - 9 - 2 * entries
        reader = Reader(block[:slots_at])
        for slot in range(entries):
            require(number(block, slots_at + 2 * slot, 2) == reader.at, "a slot that leads to no entry")
            key_length, value_length, kind = reader.varint(), reader.varint(), reader.fixed(1)
            sequence = base + reader.zigzag()
            yield reader.take(key_length), sequence, kind, reader.take(value_length)
        require(reader.is_at_end(), "a gap before the slots")

    def entries(self):
        before = None
        for number_of_block in range(len(self.blocks)):
            for entry in self.block(number_of_block):
                order = (entry[0], -entry[1])
                require(before is None or before < order, "entries out of order")
                before = order
                yield entry

    def keys(self):
        """(key, sequence number, kind) from the key chunks."""
        for _, offset, length in self.chunks:
            reader, key = Reader(self.unit(offset, length)), b""
            base = reader.fixed(8)
            while not reader.is_at_end():
                shared, rest, kind = reader.varint(), reader.varint(), reader.fixed(1)
                sequence = base + reader.zigzag()
                require(shared <= len(key), "a key shares more than there is")
                key = key[:shared] + reader.take(rest)
                yield key, sequence, kind

    def range_tombstones(self):
        start = self.footer["range_tombstones_at"]
        if start == self.footer["index"]:
            return []
        reader = Reader(self.unit(start, self.footer["index"] - start))
        found = [(reader.bytes(), reader.bytes(), reader.varint()) for _ in range(reader.varint())]
        require(reader.is_at_end() and found == sorted(found), "range tombstones are not as they should be")
        return found

    def view(self):
        """((block, slot), stale, tag) of each entry, in the order of the embedded view."""
        start, length = self.footer["view"], self.footer["view_length"]
        if length == 0:
            return
        view = self.data[start : start + length]
        require(checksum(self.file_id, start, view) == self.footer["view_checksum"], "the view's checksum does not match")
        footer_at = length - 96
        footer = view[footer_at:]
        require(footer[:8] == b"BRAIDVFT", "no footer of a view")
        require(checksum(self.file_id, start + footer_at, footer[:88]) == number(footer, 88, 8), "the view's footer: wrong checksum")
        segments, runs, directory_length = number(footer, 16, 4), number(footer, 20, 4), number(footer, 48, 8)
        require(runs == 1, "the view of a run is made of one run")
        directory = view[footer_at - directory_length : footer_at]
        directory_at = start + footer_at - directory_length
        require(checksum(self.file_id, directory_at, directory) == number(footer, 56, 8), "the directory: wrong checksum")
        reader, seen = Reader(directory), 0
        reader.bytes()
        for segment in range(segments):
            flags = reader.fixed(1)
            if segment > 0 and flags & 0x80 == 0:
                reader.bytes()
            page = 4096 * (segment // 31)
            if segment % 31 == 0:
                sum_of_page = checksum(self.file_id, start + page, view[page : page + 4088])
                require(sum_of_page == number(view, page + 4088, 8), f"page {page // 4096} of the view: wrong checksum")
            record = view[page + 128 * (segment % 31) :][:128]
            place = (number(record, 96, 2), number(record, 98, 2))
            count = flags & 0x3F
            require(all(selector == 0xFF for selector in record[count:32]), "a segment has more entries than it should")
            for lane in range(count):
                selector = record[lane]
                require(selector & 0x1F == 0, "a run that is not there")
                yield place, selector & 0x80 != 0, record[64 + lane]
                place = self.after(place)
            seen += count
        require(reader.is_at_end() and seen == number(footer, 8, 8), "the view has another number of entries")

    def after(self, place):
        block, slot = place
        require(block < len(self.blocks), "past the end of the run")
        return (block, slot + 1) if slot + 1 < self.blocks[block][3] else (block + 1, 0)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def unpack_zstandard(contents):
    try:
        from compression import zstd
    except ImportError:
        raise SystemExit("read_run: Zstandard needs Python 3.14 or later") from None
    return zstd.decompress(contents)


def print_view(run):
    blocks = {}
    for (block, slot), is_stale, tag in run.view():
        if block not in blocks:
            blocks = {block: list(run.block(block))}
        key, sequence, kind, _ = blocks[block][slot]
        require(tag == xxh3_64(key) & 0xFF, "a tag that is not its key's")
        print(key.hex(), sequence, KINDS.get(kind, kind), "stale" if is_stale else "-")


def print_live(runs):
    newest, tombstones = {}, [tombstone for run in runs for tombstone in run.range_tombstones()]
    for run in runs:
        for key, sequence, kind, value in run.entries():
            if key not in newest or newest[key][0] < sequence:
                newest[key] = sequence, kind, value
    for key, (sequence, kind, value) in sorted(newest.items()):
        is_covered = any(start <= key < end and sequence < deleted for start, end, deleted in tombstones)
        if KINDS.get(kind) != "tombstone" and not is_covered:
            print(key.hex(), KINDS.get(kind, kind), value.hex() or "-")


def main(arguments):
    flags = [argument for argument in arguments if argument.startswith("--")]
    paths = [argument for argument in arguments if not argument.startswith("--")]
    flag = flags[0] if flags else "--entries"
    if len(flags) > 1 or not paths or len(paths) > 1 and flag != "--live":
        raise SystemExit(__doc__)
    runs = [Run(read(path)) for path in paths]
    run = runs[0]
    if flag == "--live":
        print_live(runs)
    elif flag == "--entries":
        for key, sequence, kind, value in run.entries():
            print(key.hex(), sequence, KINDS.get(kind, kind), value.hex() or "-")
    elif flag == "--keys":
        for key, sequence, kind in run.keys():
            print(key.hex(), sequence, KINDS.get(kind, kind))
    elif flag == "--tombstones":
        for start, end, sequence in run.range_tombstones():
            print(start.hex(), end.hex(), sequence)
    elif flag == "--view":
        print_view(run)
    elif flag == "--summary":
        for name, value in run.footer.items():
            print(f"{name}: {value}")
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (Corrupt, ValueError, IndexError) as error:
        raise SystemExit(f"read_run: damaged: {error}") from None
