"""The log: its segments, the chain of their records, where it ends, and the commits in it ("The log" in docs/format.md)."""

from dataclasses import dataclass

from .fields import Corrupt, Header, RANGE_DELETE, Reader, TOMBSTONE, checksum, number, require, unpack

HEADER = 136
PACKED, SEAL, NOTE = 1, 2, 4


@dataclass
class Record:
    lsn: int
    end: int
    flags: int
    link: int
    next_link: int
    first_sequence: int
    last_sequence: int
    durable_lsn: int
    payload: bytes


class Segment:
    def __init__(self, data, file_number):
        header = Header(data, b"BRAIDWAL")
        self.data, self.file_id = data, header.file_id
        self.start_lsn, self.epoch = header.first, header.second
        fields = [number(data, at, 8) for at in range(64, 128, 8)]
        self.number, self.length, self.before_lsn, self.before_link, self.before_epoch = fields[:5]
        self.durable_lsn, self.before_sequence, self.base_time = fields[5:]
        total = number(data, 128, 8)
        require(checksum(self.file_id, 64, data[64:128]) == total, "the header area: wrong checksum")
        require(self.number == file_number, "the segment has another number than its name")
        require(self.length <= len(data), "the segment is shorter than its header says")
        require(self.before_link < 1 << 32 and self.base_time < 1 << 63, "numbers out of range")
        self.first_link = total >> 32

    def begins_epoch(self):
        return self.epoch != self.before_epoch

    def record(self, offset):
        """The whole record that stands there, or None."""
        try:
            return self.parse(offset)
        except Corrupt:
            return None

    def parse(self, offset):
        lsn, fixed = self.start_lsn + offset, self.data[offset : min(offset + 19, self.length)]
        require(len(fixed) == 19 and fixed[0] == 0xF9 and fixed[1] - 0xB0 in (0, PACKED, SEAL, NOTE), "no record")
        flags, header_length = fixed[1] - 0xB0, fixed[2]
        header = self.data[offset : min(offset + header_length, self.length)]
        require(len(header) == header_length, "a header past the end")
        total = checksum(self.file_id, lsn, header[:3] + bytes(4) + header[7:])
        require(total & 0xFFFFFFFF == number(header, 3, 4), "a header: wrong checksum")
        reader = Reader(header, 19)
        stored_length = shortest(reader)
        raw_length = shortest(reader) if flags == PACKED else stored_length
        require(max(stored_length, raw_length) < 1 << 32 and raw_length <= max(256 * stored_length, stored_length), "a length")
        first = self.before_sequence + shortest(reader)
        last = first + shortest(reader)
        durable_lsn, _ = lsn - shortest(reader), shortest(reader)
        require(reader.is_at_end() and durable_lsn >= 0, "a header of another length")
        end = offset + header_length + stored_length
        require(end <= self.length, "a payload past the end")
        stored = self.data[offset + header_length : end]
        payload_checksum = checksum(self.file_id, lsn, stored) if stored else 0
        require(number(header, 11, 8) == payload_checksum, "a payload: wrong checksum")
        payload = unpack(1, stored, raw_length) if flags == PACKED else stored
        return Record(lsn, end, flags, number(header, 7, 4), total >> 32, first, last, durable_lsn, payload)

    def search(self, offset):
        """Whole records from `offset` on, wherever they stand."""
        while True:
            offset = self.data.find(b"\xf9", offset, self.length)
            if offset < 0:
                return
            record = self.record(offset)
            if record:
                yield record
            offset += 1


def shortest(reader):
    at = reader.at
    value = reader.varint()
    require(reader.at == at + 1 or reader.data[reader.at - 1] != 0, "a varint that takes more bytes than it needs")
    return value


class Log:
    """The records of the chain, from the oldest segment that the manifest names."""

    def __init__(self, segments, manifest):
        self.segments, self.manifest, self.commits, self.discarded = segments, manifest, [], 0
        self.epochs = []
        if manifest.log == 0:
            return
        require(manifest.log in segments, "the oldest segment of the log is missing")
        segment = segments[manifest.log]
        while segment:
            segment = self.read_epoch(segment)
        lost = [one.number for one in segments.values() if one.epoch not in self.epochs]
        require(not lost, f"the chain does not reach the segments {lost}")

    def successor(self, epoch):
        found = [one for one in self.segments.values() if one.begins_epoch() and one.before_epoch == epoch]
        require(len(found) <= 1, f"epoch {epoch} has more than one successor")
        return found[0] if found else None

    def read_epoch(self, segment):
        """Reads an epoch from its first segment on; returns the first segment of the next one."""
        self.epochs.append(segment.epoch)
        successor = self.successor(segment.epoch)
        end_lsn = successor.before_lsn if successor else None
        offset, link = HEADER, segment.first_link
        while segment.start_lsn + offset != end_lsn:
            record = segment.record(offset)
            if not record or record.link != link:
                require(not successor, f"epoch {segment.epoch} breaks before its recorded end")
                self.check_end(segment, offset)
                return None
            offset, link = record.end, record.next_link
            if record.flags == SEAL:
                if segment.start_lsn + offset == end_lsn:
                    break
                segment = self.sealed(segment, record)
                offset, link = HEADER, segment.first_link
            elif record.flags != NOTE:
                self.add(record)
        require(link == successor.before_link, f"epoch {segment.epoch} ends with another link")
        return successor

    def sealed(self, segment, record):
        require(len(record.payload) == 16, "a seal of another length")
        following = self.segments.get(number(record.payload, 0, 8))
        require(following and following.file_id == number(record.payload, 8, 8), "a seal whose next segment is missing or another")
        require(following.epoch == segment.epoch == following.before_epoch, "a seal that leads into another epoch")
        require(following.before_lsn == segment.start_lsn + record.end, "a segment that does not go on where the last ended")
        require(following.before_sequence == record.last_sequence, "a segment with another last sequence number")
        return following

    def add(self, record):
        before = self.commits[-1][0] if self.commits else 0
        reader, sequence = Reader(record.payload), record.first_sequence
        while not reader.is_at_end():
            require(before < sequence, "sequence numbers that do not grow")
            self.commits.append((sequence, list(read_batch(reader))))
            sequence += 1
        require(sequence == record.last_sequence + 1, "a commit group with another number of batches")

    def check_end(self, segment, offset):
        """Is the break the end of the log? It is none if something knows that more was synced."""
        end = segment.start_lsn + offset
        require(self.manifest.durable_lsn <= end, f"the log breaks at LSN {end}, and the manifest knows more to be synced")
        later = [one for one in self.segments.values() if one.epoch == segment.epoch and one.start_lsn > segment.start_lsn]
        for one, begin in [(segment, offset)] + [(one, HEADER) for one in later]:
            for record in one.search(begin):
                self.discarded += 1
                require(record.durable_lsn <= end, f"the log breaks at LSN {end}, and a later record knows more to be synced")


def read_batch(reader):
    """(kind, key, value) of each operation."""
    count = reader.varint()
    require(count & 1 == 0, "a reserved bit is set")
    before, has_range_deletes_only = None, True
    for _ in range(count >> 1):
        kind, key = reader.fixed(1), reader.bytes()
        value = b"" if kind == TOMBSTONE else reader.bytes()
        require(1 <= kind <= RANGE_DELETE, "an operation of no kind")
        if kind == RANGE_DELETE:
            require(has_range_deletes_only, "a range delete behind another operation")
        else:
            require(before is None or before < key, "operations out of order")
            before, has_range_deletes_only = key, False
        yield kind, key, value
