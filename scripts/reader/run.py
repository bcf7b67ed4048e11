"""A run: ordered entries, range tombstones, and the embedded view ("Runs" in docs/internals/format.md)."""

from .fields import EXPIRING, Header, RANGE_DELETE, Reader, TOMBSTONE, checksum, number, require, unpack


def read_expiries(reader):
    """Reads the number of expiring entries and some of their times."""
    entries, count, times, time = reader.varint(), reader.varint(), [], 0
    require(1 <= count <= min(17, entries), "expiries of another form")
    for _ in range(count):
        time += reader.varint()
        times.append(time)
    return entries, times


def expiry(entry):
    """Returns the expiry time of an entry, or None."""
    return number(entry[3], 0, 8) if entry[2] == EXPIRING else None


class Run:
    FOOTER = 144
    PADDED_BLOCKS = 1
    GIVEN_SEQUENCE = 2

    def __init__(self, data):
        self.data = data
        header = Header(data, b"BRAIDRUN", self.PADDED_BLOCKS | self.GIVEN_SEQUENCE)
        self.file_id, self.is_padded = header.file_id, header.features & self.PADDED_BLOCKS != 0
        self.is_unnumbered, self.given = header.features & self.GIVEN_SEQUENCE != 0, 0
        self.blocks_read = {}
        self.read_footer()
        self.read_index()

    def read_footer(self):
        start = len(self.data) - self.FOOTER
        require(start >= 64, "the file is cut short")
        footer = self.data[start:]
        require(footer[:8] == b"BRAIDEND", "no footer")
        require(checksum(self.file_id, start, footer[:136]) == number(footer, 136, 8), "the footer's checksum does not match")
        reader = Reader(footer, 8)
        names = ["keys", "range_tombstones_at", "index", "index_end", "view", "view_length", "view_checksum", "entries"]
        names += ["tombstones", "raw_bytes", "smallest_sequence", "largest_sequence"]
        self.footer = {name: reader.fixed(8) for name in names}
        self.footer |= {name: reader.fixed(4) for name in ["blocks", "range_tombstones", "flags", "block_size"]}
        require(self.footer["flags"] <= 1, "an unknown flag")
        require(reader.fixed(8) == 0, "reserved bytes are not zero")
        require(reader.fixed(8) == len(self.data), "the file has another length")
        self.check_tail(start)

    def check_tail(self, footer_at):
        """Checks the zeros and the view between index and footer."""
        end, view, length = (self.footer[name] for name in ("index_end", "view", "view_length"))
        if length == 0:
            require(view == 0 and self.footer["view_checksum"] == 0 and end == footer_at, "no view, and yet something there")
            return
        require(view == (end + 4095) // 4096 * 4096 and view + length == footer_at, "the view is not in its place")
        require(not any(self.data[end:view]), "no zeros before the view")
        found = checksum(self.file_id, view, self.data[view:footer_at])
        require(found == self.footer["view_checksum"], "the view's checksum does not match")

    def unit(self, offset, length):
        """Returns the contents of a unit."""
        require(13 <= length and offset + length <= len(self.data) - self.FOOTER, "a unit outside the file")
        unit = self.data[offset : offset + length]
        require(checksum(self.file_id, offset, unit[8:]) == number(unit, 0, 8), f"the unit at {offset}: wrong checksum")
        raw_length, contents = number(unit, 9, 4), unit[13:]
        if unit[8] != 0:
            require(raw_length <= 256 * len(contents) + 64, "a unit unpacks to too much")
        return unpack(unit[8], contents, raw_length)

    def read_index(self):
        offset = self.footer["index"]
        require(self.data[offset + 8] == 0, "a compressed index")
        reader = Reader(self.unit(offset, self.footer["index_end"] - offset))
        self.blocks, at = [], 64
        for _ in range(reader.varint()):
            length, raw_length, entries = reader.varint(), reader.varint(), reader.fixed(1)
            self.blocks.append((at, length, raw_length, entries))
            at += length
            if self.is_padded:
                padding = reader.varint()
                require(length <= 13 + raw_length, "a block longer than before compression")
                require(padding == 0 or (length == 13 + raw_length and raw_length < 1 << 24), "zeros after a compressed block")
                require(padding < 4096, "more zeros than a page has")
                require(not any(self.data[at : at + padding]), "no zeros after a block")
                at += padding
        require(at == self.footer["keys"], "the data blocks do not end where the key chunks begin")
        self.chunks, first = [], 0
        for _ in range(reader.varint()):
            first += reader.varint()
            length = reader.varint()
            self.chunks.append((first, at, length))
            at += length
        require(at == self.footer["range_tombstones_at"], "the key chunks do not end where the tombstones begin")
        require(len(self.blocks) == self.footer["blocks"] <= 60000, "another number of blocks")
        # A run with only range tombstones has no key chunks, whatever its flag.
        require(len(self.chunks) == 0 or self.footer["flags"] & 1 == 1, "key chunks without their flag")
        require(len(self.chunks) > 0 or self.footer["flags"] & 1 == 0 or not self.blocks, "a flag without key chunks")
        self.smallest, self.largest = reader.bytes(), reader.bytes()
        self.blob_uses = [(reader.varint(), reader.varint(), reader.varint()) for _ in range(reader.varint())]
        self.expiries = (0, []) if reader.is_at_end() else read_expiries(reader)
        require(reader.is_at_end(), "the index is too long")

    def block(self, number_of_block):
        """Returns the entries of a block: (key, sequence number, kind, value)."""
        if number_of_block not in self.blocks_read:
            self.blocks_read[number_of_block] = list(self.read_block(number_of_block))
        return self.blocks_read[number_of_block]

    def read_block(self, number_of_block):
        offset, length, raw_length, entries = self.blocks[number_of_block]
        block = self.unit(offset, length)
        require(len(block) == raw_length and 1 <= block[-1] == entries, f"block {number_of_block} is not as the index says")
        base, slots_at = number(block, len(block) - 9, 8), len(block) - 9 - 2 * entries
        require(slots_at > 0, "a block of slots")
        reader = Reader(block[:slots_at])
        for slot in range(entries):
            require(number(block, slots_at + 2 * slot, 2) == reader.at, "a slot that leads to no entry")
            key_length, value_length, kind = reader.varint(), reader.varint(), reader.fixed(1)
            sequence = base + reader.zigzag()
            require(slot > 0 or sequence == base, "the base is not the first sequence number")
            sequence += self.given
            require(1 <= kind < RANGE_DELETE and (kind != TOMBSTONE or value_length == 0), "an entry of no kind")
            yield reader.take(key_length), sequence, kind, reader.take(value_length)
        require(reader.is_at_end(), "a gap before the slots")

    def places(self):
        """Yields ((block, slot), entry) of every entry, in order."""
        before = None
        for block in range(len(self.blocks)):
            for slot, entry in enumerate(self.block(block)):
                order = (entry[0], -entry[1])
                require(before is None or before < order, "entries out of order")
                before = order
                yield (block, slot), entry

    def entries(self):
        for _, entry in self.places():
            yield entry

    def verify_expiries(self):
        times = sorted(time for time in map(expiry, self.entries()) if time is not None)
        entries, told = self.expiries
        require(entries == len(times), "another number of entries expires")
        require(len(times) > 17 or told == times, "entries expire at other times")
        require(not times or (told[0], told[-1]) == (times[0], times[-1]), "the first or last entry expires at another time")
        require(set(told) <= set(times), "no entry expires at a time that is told")

    def after(self, place):
        block, slot = place
        require(block < len(self.blocks), "past the end of the run")
        return (block, slot + 1) if slot + 1 < self.blocks[block][3] else (block + 1, 0)

    def chunk_keys(self, number_of_chunk):
        """Yields (key, sequence number, kind) from a key chunk."""
        _, offset, length = self.chunks[number_of_chunk]
        reader, key = Reader(self.unit(offset, length)), b""
        base, is_first = reader.fixed(8), True
        while not reader.is_at_end():
            shared, rest, kind = reader.varint(), reader.varint(), reader.fixed(1)
            sequence = base + reader.zigzag()
            require(shared <= len(key), "a key shares more than there is")
            require(not is_first or (shared == 0 and sequence == base), "a chunk does not begin with a whole key")
            key, is_first = key[:shared] + reader.take(rest), False
            yield key, sequence + self.given, kind

    def keys(self):
        for chunk in range(len(self.chunks)):
            yield from self.chunk_keys(chunk)

    def range_tombstones(self):
        """Returns (start, end, sequence number) of each range tombstone."""
        start = self.footer["range_tombstones_at"]
        if start == self.footer["index"]:
            return []
        reader = Reader(self.unit(start, self.footer["index"] - start))
        found = [(reader.bytes(), reader.bytes(), reader.varint()) for _ in range(reader.varint())]
        require(reader.is_at_end() and found == sorted(found), "range tombstones are not as they should be")
        require(all(start < end for start, end, _ in found), "an empty range tombstone")
        return found

    def give(self, smallest, largest):
        """Sets the sequence number that the manifest gives to a run without numbers."""
        require(self.footer["largest_sequence"] == 0 and not self.range_tombstones(), "a run that should tell no sequence numbers")
        require(smallest == largest > 0, "the manifest does not give one sequence number")
        self.blocks_read, self.given = {}, largest
        self.footer["smallest_sequence"] = self.footer["largest_sequence"] = largest

    def verify(self):
        """Checks all parts of the run against each other."""
        entries, tombstones = list(self.entries()), self.range_tombstones()
        sequences = [entry[1] for entry in entries] + [sequence for _, _, sequence in tombstones]
        bounds = [entry[0] for entry in entries] + [key for tombstone in tombstones for key in tombstone[:2]]
        told = [self.footer[name] for name in ("entries", "tombstones", "raw_bytes", "range_tombstones")]
        found = [len(entries), sum(entry[2] == TOMBSTONE for entry in entries)]
        found += [sum(len(entry[0]) + len(entry[3]) for entry in entries), len(tombstones)]
        require(told == found, f"the footer's counts {told} are not those of the run {found}")
        require(self.smallest == min(bounds, default=b"") and self.largest == max(bounds, default=b""), "other bounds")
        require(self.footer["smallest_sequence"] == min(sequences, default=0), "another smallest sequence number")
        require(self.footer["largest_sequence"] == max(sequences, default=0), "another largest sequence number")
        if self.chunks:
            self.verify_chunks()

    def verify_chunks(self):
        firsts = [first for first, _, _ in self.chunks] + [len(self.blocks)]
        require(firsts[0] == 0, "the first key chunk is not of the first block")
        for chunk, (first, end) in enumerate(zip(firsts, firsts[1:])):
            require(first < end, "a key chunk without a block")
            expected = [entry[:3] for block in range(first, end) for entry in self.block(block)]
            require(list(self.chunk_keys(chunk)) == expected, f"key chunk {chunk} is not that of its blocks")
