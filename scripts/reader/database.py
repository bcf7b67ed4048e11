"""Reads a database directory, checks its files against each other, and returns the contents."""

import time

from .blob import BlobFile, references, unwrapped
from .fields import Corrupt, MERGE, RANGE_DELETE, Reader, STREAM, TOMBSTONE, VALUE, require
from .log import Log, Segment
from .manifest import Manifest, read_current
from .run import Run, expiry
from .view import View, is_within


BENEATH, ABSENT, GIVEN = range(3)


def read_operands(stored):
    """Returns (base, value, reach, [(function, operand)]) of a merge entry."""
    reader = Reader(stored)
    base = reader.fixed(1)
    require(base <= GIVEN, "operands on an unknown base")
    value = reader.bytes() if base == GIVEN else None
    reach, operands = reader.varint(), []
    while not reader.is_at_end():
        function, operand = reader.varint(), reader.bytes()
        require(function in FUNCTIONS, "a merge function that is not built in")
        operands.append((function, operand))
    return base, value, reach, operands


def add(value, operand):
    total = int.from_bytes(value or bytes(8), "little") + int.from_bytes(operand, "little")
    return (total % (1 << 64)).to_bytes(8, "little")


def members(stored):
    reader, found = Reader(stored or b""), set()
    while not reader.is_at_end():
        found.add(reader.bytes())
    return found


def unite(value, operand):
    def framed(member):
        length, out = len(member), b""
        while length >= 0x80:
            out, length = out + bytes([length & 0x7F | 0x80]), length >> 7
        return out + bytes([length]) + member

    return b"".join(framed(member) for member in sorted(members(value) | members(operand)))


FUNCTIONS = {
    1: add,
    2: lambda value, operand: operand if value is None else max(value, operand),
    3: lambda value, operand: operand if value is None else min(value, operand),
    4: lambda value, operand: (value or b"") + operand,
    5: unite,
}


class Tree:
    def __init__(self, name, value):
        reader = Reader(value)
        require(reader.fixed(1) == 1, "a catalog entry of an unknown version")
        self.name, self.id, flags = name, reader.fixed(4), reader.fixed(1)
        require(flags <= 1, "a tree with unknown flags")
        self.is_multi = flags == 1
        self.compression, self.blob_threshold = reader.fixed(1), reader.varint()
        self.ttl = 0 if reader.is_at_end() else reader.varint()
        self.codec = None if reader.is_at_end() else (reader.bytes(), reader.bytes())
        require(self.compression in (0, 1, 2, 255) and reader.is_at_end(), "a catalog entry of another form")


class Database:
    def __init__(self, directory):
        self.directory = directory
        self.counts, self.blobs, self.walks, self.by_key = {}, {}, {}, None
        number, synced = self.during("CURRENT", read_current)
        self.manifest = self.during(f"MANIFEST-{number:06}", Manifest, synced)
        self.now = max(time.time_ns() // 1000 + self.manifest.time_ahead, self.manifest.time)
        self.runs = {number: self.during(f"{number:06}.run", self.open_run, meta) for number, meta in self.manifest.runs.items()}
        self.read_partitions()
        self.read_log()

    def during(self, name, read, *arguments):
        """Applies `read` to the file; errors get its name."""
        path = self.directory / name
        require(path.is_file(), f"{name} is missing")
        try:
            return read(path.read_bytes(), *arguments)
        except (Corrupt, ValueError, IndexError) as error:
            raise Corrupt(f"{name}: {error}") from None

    def count(self, what, number=1):
        self.counts[what] = self.counts.get(what, 0) + number

    def open_run(self, data, meta):
        run = Run(data)
        run.verify()
        if run.footer["view_length"]:
            View.of_run(run).verify()
            self.count("embedded views")
        if run.is_unnumbered:
            run.give(meta.smallest_sequence, meta.largest_sequence)
            self.count("runs that are given a sequence number")
        told = (meta.file_id, meta.length, meta.smallest, meta.largest, meta.blob_uses, meta.has_key_chunks, meta.expiries)
        has_key_chunks = run.footer["flags"] & 1 == 1
        found = (run.file_id, len(data), run.smallest, run.largest, run.blob_uses, has_key_chunks, run.expiries)
        require(told == found, "the manifest tells another run")
        names = ["raw_bytes", "entries", "tombstones", "blocks", "smallest_sequence", "largest_sequence", "range_tombstones"]
        for name in names + ["view", "view_length"]:
            require(getattr(meta, name) == run.footer[name], f"the manifest tells another {name.replace('_', ' ')}")
        self.verify_blob_uses(run)
        run.verify_expiries()
        self.count("entries of runs that expire", run.expiries[0])
        self.count("runs")
        self.count("blocks", len(run.blocks))
        self.count("blocks of LZ4", sum(data[block[0] + 8] == 1 for block in run.blocks))
        self.count("blocks of Zstandard", sum(data[block[0] + 8] == 2 for block in run.blocks))
        self.count("uncompressed blocks", sum(data[block[0] + 8] == 0 for block in run.blocks))
        self.count("key chunks", len(run.chunks))
        self.count("range tombstones in runs", len(run.range_tombstones()))
        return run

    def verify_blob_uses(self, run):
        """Reads all values that the run refers to, superseded ones too."""
        uses = {}
        for entry in run.entries():
            found = references(entry[2], entry[3])
            if found:
                self.value(entry)
            for reference in found:
                length, count = uses.get(reference.file, (0, 0))
                uses[reference.file] = length + reference.record_length, count + 1
        found = [(file, *use) for file, use in sorted(uses.items())]
        require(found == run.blob_uses, f"the blob uses are {found}, and the run tells {run.blob_uses}")

    def read_partitions(self):
        """Collects entries and range tombstones of runs, clipped to their partition."""
        self.entries, self.tombstones = [], []
        for partition in self.manifest.partitions.values():
            bounds = partition.start, partition.end
            if partition.view is not None:
                self.read_view(partition, bounds)
            for number in partition.runs + partition.loose:
                run = self.runs[number]
                self.entries += [entry for entry in run.entries() if is_within(entry[0], bounds)]
                for start, end, sequence in run.range_tombstones():
                    start, end = max(start, bounds[0]), end if bounds[1] is None else min(end, bounds[1])
                    if start < end:
                        self.tombstones.append((start, end, sequence))
            self.count("partitions")
            self.count("loose runs", len(partition.loose))

    def read_view(self, partition, bounds):
        """Checks the view of a partition; the contents come from the runs."""
        meta, runs = partition.view, [self.runs[number] for number in partition.runs]
        name = f"{meta.number:06}.view"
        view = self.during(name, View.of_file, runs, bounds)
        self.during(name, lambda _: view.verify())
        self.count("views in files")
        self.count("segments", view.segments)
        self.count("segments that continue another", sum(segment[1] for segment in view.directory))
        self.count("stale entries", view.stale)
        told = (meta.file_id, meta.length, meta.entries, meta.segments, meta.stale, meta.tombstones, meta.highest_sequence)
        found = (view.file_id, len(view.data), view.entries, view.segments, view.stale, view.tombstones, view.highest_sequence)
        require(told == found, f"the manifest tells another view: {told}, not {found}")

    def segments(self):
        """Returns the log's segments; one with a damaged header is missing if the chain needs it."""
        found = {}
        for path in self.directory.glob("*.wal"):
            try:
                found[int(path.stem)] = Segment(path.read_bytes(), int(path.stem))
            except Corrupt:
                self.count("files that are no segment of the log")
        return found

    def read_log(self):
        """Adds the log's commits above the flushed sequence number."""
        log = Log(self.segments(), self.manifest.log, self.manifest.durable_lsn)
        self.count("epochs of the log", log.epochs)
        self.count("sealed segments of the log", log.seals)
        self.count("clean closes in the log", log.clean_closes)
        if log.end:
            self.count(f"is where the log ends, in {log.end[0]:06}.wal", log.end[1])
        self.count("whole records past the end of the log", log.past_end)
        for lsn, batches in log.groups:
            batches = [(sequence, operations) for sequence, operations in batches if sequence > self.manifest.flushed]
            if not self.has_blobs(batches):
                require(lsn >= log.durable_lsn, f"the log's record at LSN {lsn} is synced, and a blob of it is damaged")
                self.count("records without their blobs, which end the log")
                return
            self.count("commits in the log", len(batches))
            for sequence, operations in batches:
                for kind, key, value in operations:
                    if kind == RANGE_DELETE:
                        self.tombstones.append((key, value, sequence))
                        self.count("range deletes in the log")
                    else:
                        self.entries.append((key, sequence, kind, value))

    def has_blobs(self, batches):
        """Returns whether all values that the batches refer to are readable."""
        try:
            for sequence, operations in batches:
                for kind, key, value in operations:
                    if kind != RANGE_DELETE and (found := references(kind, value)):
                        self.value((key, sequence, kind, value))
                        self.count("blobs in the log" if len(found) == 1 else "streams in the log")
            return True
        except Corrupt:
            return False

    def open_blob_file(self, number):
        self.blobs[number] = self.during(f"{number:06}.blob", BlobFile)
        self.walks[number] = set(self.blobs[number].records())
        self.count("blob files")

    def value(self, entry):
        key, _, kind, value = entry
        if kind == MERGE:
            return self.merged(entry)
        found, (kind, value) = references(kind, value), unwrapped(kind, value)
        require(kind == VALUE or found or kind == STREAM, "an entry of no kind")
        if kind == VALUE:
            return value
        self.count("streams read" if kind == STREAM else "blobs read")
        return b"".join(self.piece(reference, key) for reference in found)

    def piece(self, reference, key):
        if reference.file not in self.blobs:
            self.open_blob_file(reference.file)
        require(reference.offset in self.walks[reference.file], f"{reference.file:06}.blob: a walk does not meet a record")
        return self.during(f"{reference.file:06}.blob", lambda _: self.blobs[reference.file].value(reference, key))

    def merged(self, entry):
        """Applies the operands to the value beneath them."""
        operands, value = [], None
        while entry is not None and entry[2] == MERGE:
            key, sequence, _, stored = entry
            base, value, reach, here = read_operands(stored)
            operands = here + operands
            entry = self.newest(key, sequence - reach - 1) if base == BENEATH else None
            self.count("operands", len(here))
        if entry is not None:
            value = self.value(entry)
        for function, operand in operands:
            value = FUNCTIONS[function](value, operand)
        return value

    def newest(self, key, at):
        """Returns the entry of a key visible at a sequence number, or None."""
        if self.by_key is None:
            self.by_key = {}
            for entry in self.entries:
                self.by_key.setdefault(entry[0], []).append(entry)
        versions = [entry for entry in self.by_key[key] if entry[1] <= at]
        if not versions:
            return None
        entry = max(versions, key=lambda entry: entry[1])
        is_covered = any(start <= key < end and entry[1] < deleted <= at for start, end, deleted in self.tombstones)
        return None if self.is_gone(entry) or is_covered else entry

    def is_gone(self, entry):
        expires = expiry(entry)
        if expires is not None and expires <= self.now:
            self.count("values that have expired")
            return True
        return entry[2] == TOMBSTONE

    def live(self):
        """Yields the newest version of each live key."""
        before = None
        for entry in sorted(self.entries, key=lambda entry: (entry[0], -entry[1])):
            key, sequence, _, _ = entry
            is_newest, before = key != before, key
            is_covered = any(start <= key < end and sequence < deleted for start, end, deleted in self.tombstones)
            if is_newest and not is_covered and not self.is_gone(entry):
                yield entry

    def contents(self):
        """Yields (tree, key, value) of all trees by name, without the catalog."""
        trees, pairs, next_tree = {}, {}, None
        for entry in self.live():
            tree, key = int.from_bytes(entry[0][:4], "big"), entry[0][4:]
            if tree != 0:
                pairs.setdefault(tree, []).append((key, self.value(entry)))
            elif key[:1] == b"n":
                found = Tree(key[1:].decode(), self.value(entry))
                trees[found.id] = found
            elif key == b"i":
                next_tree = int.from_bytes(self.value(entry), "little")
            elif key == b"v":
                self.count("tags of versions", len(version_tags(self.value(entry))))
            elif key[:1] == b"z":
                require(len(key) == 17, "a session's id of another length")
                record = Reader(self.value(entry))
                for _number_and_time in range(2):
                    record.varint()
                require(record.is_at_end(), "a session's record and something after it")
                self.count("sessions of sharing processes")
            else:
                require(key in (b"c", b"g", b"r") or key[:1] in (b"d", b"f"), "an unknown entry of the catalog")
        require(pairs.keys() <= trees.keys(), f"entries of unknown trees: {sorted(pairs.keys() - trees.keys())}")
        require(all(tree < (next_tree or 0) for tree in trees), "a tree id that is not given out yet")
        for tree in sorted(trees.values(), key=lambda tree: tree.name.encode()):
            self.count("trees")
            self.count("trees of many values", tree.is_multi)
            for key, value in pairs.get(tree.id, []):
                yield tree.name, *(unescape(key, value) if tree.is_multi else (key, value))


def version_tags(value):
    """Returns (first commit number, tag) of each tag in the catalog's entry."""
    reader, found, first = Reader(value), [], 0
    require(reader.fixed(1) == 1, "tags of an unknown version")
    for _ in range(reader.varint()):
        distance = reader.varint()
        require(distance > 0 or not found, "tags out of order")
        first += distance
        require(first < 1 << 64, "a tag of a number out of range")
        found.append((first, reader.fixed(8)))
    require(reader.is_at_end(), "tags and something after them")
    return found


def unescape(key, value):
    """Returns key and value of a pair in a multi-tree."""
    require(value == b"", "a pair with a value of its own")
    found, at = bytearray(), 0
    while True:
        zero = key.find(0, at)
        require(0 <= zero < len(key) - 1, "a pair without an end of its key")
        found += key[at:zero]
        at = zero + 2
        if key[zero + 1] == 1:
            return bytes(found), key[at:]
        require(key[zero + 1] == 0xFF, "an escape that is none")
        found.append(0)
