"""CURRENT and the manifest: the runs and views, and the start of the log."""

from dataclasses import dataclass, field

from .fields import Corrupt, Header, Reader, checksum, number, require
from .run import read_expiries


@dataclass
class RunMeta:
    number: int
    file_id: int
    length: int
    raw_bytes: int
    entries: int
    tombstones: int
    blocks: int
    smallest: bytes
    largest: bytes
    smallest_sequence: int
    largest_sequence: int
    range_tombstones: int
    blob_uses: list
    has_key_chunks: bool
    view: int
    view_length: int
    expiries: tuple = (0, [])


@dataclass
class ViewMeta:
    number: int
    file_id: int
    length: int
    entries: int
    segments: int
    stale: int
    tombstones: int
    highest_sequence: int
    runs: int


@dataclass
class Partition:
    start: bytes
    end: bytes | None
    runs: list = field(default_factory=list)
    loose: list = field(default_factory=list)
    view: ViewMeta | None = None


def read_current(data):
    """Returns (manifest number, synced length) from the valid slot with the higher generation."""
    found = []
    for at in (0, 4096):
        slot = data[at : at + 80]
        try:
            header = Header(slot, b"BRAIDCUR")
            require(checksum(header.file_id, at, slot[:72]) == number(slot, 72, 8), "a slot: wrong checksum")
            found.append((header.second, header.first, number(slot, 64, 8)))
        except Corrupt:
            continue
    require(found, "CURRENT has no valid slot")
    return max(found)[1:]


class Manifest:
    def __init__(self, data, synced):
        self.runs, self.partitions = {}, {}
        self.flushed = self.log = self.durable_lsn = self.next_file = self.last_sequence = self.incarnation = self.epoch = 0
        self.ignored = self.time = self.time_ahead = 0
        file_id = Header(data, b"BRAIDMAN").file_id
        require(64 <= synced <= len(data), "the manifest is shorter than CURRENT says")
        at = 64
        while at < len(data):
            length = number(data, at, 4) if at + 12 <= len(data) else None
            payload = data[at + 12 : at + 12 + length] if length is not None else b""
            is_whole = length is not None and len(payload) == length
            if not is_whole or checksum(file_id ^ length, at, payload) != number(data, at + 4, 8):
                require(at >= synced, f"the manifest's edit at {at}: wrong checksum")
                self.ignored = len(data) - at
                break
            self.apply(Reader(payload))
            at += 12 + length
        self.check_cover()

    def apply(self, reader):
        while not reader.is_at_end():
            tag = reader.fixed(1)
            require(1 <= tag <= 13, "an unknown change")
            (self.new_run, self.new_partition, self.drop_partition, self.add_loose, self.set_runs, self.set_flushed, self.set_log,
             self.set_next_file, self.set_last_sequence, self.set_incarnation, self.set_epoch, self.new_expiring_run, self.set_time)[tag - 1](reader)
        named = {run for partition in self.partitions.values() for run in partition.runs + partition.loose}
        require(named <= self.runs.keys(), "a partition has a run that is unknown")
        self.runs = {number: run for number, run in self.runs.items() if number in named}

    def new_run(self, reader):
        numbers = [reader.varint(), reader.fixed(8)] + [reader.varint() for _ in range(5)]
        bounds = [reader.bytes(), reader.bytes()]
        sequences = [reader.varint() for _ in range(3)]
        uses = [(reader.varint(), reader.varint(), reader.varint()) for _ in range(reader.varint())]
        run = RunMeta(*numbers, *bounds, *sequences, uses, reader.flag(), reader.varint(), reader.varint())
        self.runs[run.number] = run
        return run

    def new_expiring_run(self, reader):
        run = self.new_run(reader)
        run.expiries = read_expiries(reader)

    def set_time(self, reader):
        self.time, self.time_ahead = max(self.time, reader.varint()), reader.varint()

    def new_partition(self, reader):
        partition, start = reader.varint(), reader.bytes()
        require(partition not in self.partitions, "a partition made twice")
        self.partitions[partition] = Partition(start, reader.bytes() if reader.flag() else None)

    def drop_partition(self, reader):
        require(self.partitions.pop(reader.varint(), None), "an unknown partition is dropped")

    def partition(self, reader):
        number = reader.varint()
        require(number in self.partitions, "an unknown partition")
        return self.partitions[number]

    def add_loose(self, reader):
        self.partition(reader).loose.append(reader.varint())

    def set_runs(self, reader):
        partition = self.partition(reader)
        partition.runs = [reader.varint() for _ in range(reader.varint())]
        partition.loose = [reader.varint() for _ in range(reader.varint())]
        partition.view = None
        if reader.flag():
            numbers = [reader.varint(), reader.fixed(8)] + [reader.varint() for _ in range(6)]
            partition.view = ViewMeta(*numbers, reader.fixed(1))
            require(partition.view.runs == len(partition.runs), "a view of another number of runs")

    def set_flushed(self, reader):
        self.flushed = max(self.flushed, reader.varint())

    def set_log(self, reader):
        self.log, self.durable_lsn = reader.varint(), reader.varint()

    def set_next_file(self, reader):
        self.next_file = max(self.next_file, reader.varint())

    def set_last_sequence(self, reader):
        self.last_sequence = max(self.last_sequence, reader.varint())

    def set_incarnation(self, reader):
        self.incarnation = reader.varint()

    def set_epoch(self, reader):
        self.epoch = reader.varint()

    def check_cover(self):
        partitions = sorted(self.partitions.values(), key=lambda partition: partition.start)
        ends = [b""] + [partition.end for partition in partitions]
        require(ends[-1] is None and None not in ends[:-1], "the partitions do not end with the last key")
        require(ends[:-1] == [partition.start for partition in partitions], "the partitions do not cover all keys")
