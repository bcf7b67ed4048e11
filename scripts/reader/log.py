"""The log: segments, the chain of records, its end, and its commits ("The log" in docs/internals/format.md)."""

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
    stored: bytes
    raw_length: int

    def payload(self):
        return unpack(1 if self.flags == PACKED else 0, self.stored, self.raw_length)


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
        require(self.before_link < 1 << 32 and self.base_time < 1 << 63, "numbers out of range")
        self.first_link = total >> 32

    def begins_epoch(self):
        return self.epoch != self.before_epoch

    def record(self, offset):
        """Returns the intact record at an offset, or None."""
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
        first = self.before_sequence + shortest(reader)
        span, since_durable, time = shortest(reader), shortest(reader), shortest(reader)
        time = self.base_time + (time >> 1 if time & 1 == 0 else -(time + 1 >> 1))
        require(reader.is_at_end(), "a header of another length")
        require(max(stored_length, raw_length, span) < 1 << 32 and raw_length <= 256 * stored_length, "a length out of range")
        require(first + span < 1 << 62 and since_durable <= lsn and 0 <= time < 1 << 63, "a number out of range")
        end = offset + header_length + stored_length
        require(end <= self.length, "a payload past the end")
        stored = self.data[offset + header_length : end]
        require(number(header, 11, 8) == (checksum(self.file_id, lsn, stored) if stored else 0), "a payload: wrong checksum")
        links = number(header, 7, 4), total >> 32
        return Record(lsn, end, flags, *links, first, first + span, lsn - since_durable, stored, raw_length)

    def search(self, offset):
        """Yields intact records at any position from `offset` on."""
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
    """The commit groups from segment `oldest` on; the manifest knows the log as synced up to `durable_lsn`."""

    def __init__(self, segments, oldest, durable_lsn):
        self.segments, self.durable_lsn = segments, durable_lsn
        self.groups, self.past_end, self.epochs, self.seals, self.clean_closes = [], 0, 0, 0, 0
        self.last_sequence, self.end = 0, None
        if oldest == 0:
            return
        require(oldest in segments, "the oldest segment of the log is missing, or its header is damaged")
        segment = segments[oldest]
        while segment:
            segment = self.read_epoch(segment)

    def successor(self, epoch):
        """Returns the segment that begins the next epoch: the last one if failed opens left several."""
        found = [one for one in self.segments.values() if one.begins_epoch() and one.before_epoch == epoch]
        return max(found, key=lambda one: (one.epoch, one.number), default=None)

    def read_epoch(self, segment):
        """Reads an epoch from its first segment on; returns the first segment of the next one."""
        self.epochs += 1
        successor = self.successor(segment.epoch)
        end_lsn = successor.before_lsn if successor else None
        offset, link = HEADER, segment.first_link
        while segment.start_lsn + offset != end_lsn:
            require(segment.length <= len(segment.data), f"segment {segment.number} is shorter than its header says")
            record = segment.record(offset)
            if not record or record.link != link:
                require(not successor, f"epoch {segment.epoch} breaks before its recorded end")
                self.check_end(segment, offset)
                return None
            self.durable_lsn = max(self.durable_lsn, record.durable_lsn)
            offset, link = record.end, record.next_link
            if record.flags == SEAL:
                segment = self.sealed(segment, record)
                offset, link = HEADER, segment.first_link
            elif record.flags == NOTE:
                require(record.payload() == b"\x01" or not any(record.payload()), "a note with another payload")
                self.clean_closes += record.payload() == b"\x01"
            else:
                self.add(record)
        require(link == successor.before_link, f"epoch {segment.epoch} ends with another link")
        self.durable_lsn = max(self.durable_lsn, end_lsn)
        return successor

    def sealed(self, segment, record):
        self.seals += 1
        payload = record.payload()
        require(len(payload) == 16, "a seal of another length")
        following = self.segments.get(number(payload, 0, 8))
        require(following and following.file_id == number(payload, 8, 8), "a seal whose next segment is missing or another")
        require(following.epoch == segment.epoch == following.before_epoch, "a seal that leads into another epoch")
        end_lsn = segment.start_lsn + record.end
        require(following.start_lsn == following.before_lsn == end_lsn, "a segment that does not go on where the last ended")
        require(following.before_sequence == record.last_sequence, "a segment with another last sequence number")
        return following

    def add(self, record):
        require(self.last_sequence < record.first_sequence, "sequence numbers that do not grow")
        self.last_sequence = record.last_sequence
        reader, batches = Reader(record.payload()), []
        while not reader.is_at_end():
            batches.append((record.first_sequence + len(batches), list(read_batch(reader))))
        require(len(batches) == record.last_sequence - record.first_sequence + 1, "a commit group with another number of batches")
        self.groups.append((record.lsn, batches))

    def check_end(self, segment, offset):
        """Checks that the break is the log's end: nothing says that more was synced."""
        end_lsn, self.end = segment.start_lsn + offset, (segment.number, offset)
        later = [one for one in self.segments.values() if one.epoch == segment.epoch and one.start_lsn >= end_lsn]
        for one, begin in [(segment, offset)] + [(one, HEADER) for one in later]:
            for record in one.search(begin):
                self.past_end += 1
                self.durable_lsn = max(self.durable_lsn, record.durable_lsn)
        self.durable_lsn = max([self.durable_lsn] + [one.durable_lsn for one in later])
        require(self.durable_lsn <= end_lsn, f"the log breaks at LSN {end_lsn}, and was synced up to {self.durable_lsn}")
        lost = [one.number for one in self.segments.values() if one.epoch > segment.epoch]
        require(not lost, f"the chain does not reach the segments {lost}")


def read_batch(reader):
    """Yields (kind, key, value) of each operation."""
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
