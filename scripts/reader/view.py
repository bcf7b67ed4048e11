"""A sorted view: the order of the entries of its runs ("Sorted views" in docs/internals/format.md)."""

from .fields import BLOB, EXPIRING, Header, MERGE, Reader, STREAM, TOMBSTONE, checksum, number, require
from .xxh3 import xxh3_64

PAGE, FOOTER = 4096, 96


def first_difference(a, b):
    """Returns the first differing bit of two keys extended with zeros; None if only trailing zeros differ."""
    for at in range(max(len(a), len(b))):
        differing = (a[at] if at < len(a) else 0) ^ (b[at] if at < len(b) else 0)
        if differing:
            return 8 * at + 8 - differing.bit_length()
    return None


def is_within(key, bounds):
    return bounds[0] <= key and (bounds[1] is None or key < bounds[1])


class View:
    """The view in bytes `start..end` of a file, over `runs`, for keys within `bounds` (the end may be None)."""

    def __init__(self, data, start, end, file_id, runs, bounds):
        self.data, self.start, self.end, self.file_id = data, start, end, file_id
        self.runs, self.bounds = runs, bounds
        self.read_footer()
        self.read_directory()

    @classmethod
    def of_file(cls, data, runs, bounds):
        header = Header(data, b"BRAIDVEW")
        require(not any(data[64:PAGE]), "no zeros before the view")
        return cls(data, PAGE, len(data), header.file_id, runs, bounds)

    @classmethod
    def of_run(cls, run):
        start = run.footer["view"]
        return cls(run.data, start, start + run.footer["view_length"], run.file_id, [run], (b"", None))

    def read_footer(self):
        self.footer_at = self.end - FOOTER
        require(self.footer_at >= self.start, "the view is cut short")
        footer = self.data[self.footer_at : self.end]
        require(footer[:8] == b"BRAIDVFT", "no footer of a view")
        require(checksum(self.file_id, self.footer_at, footer[:88]) == number(footer, 88, 8), "the view's footer: wrong checksum")
        require(not any(footer[64:88]), "reserved bytes are not zero")
        self.entries, self.segments, count = number(footer, 8, 8), number(footer, 16, 4), number(footer, 20, 4)
        self.stale, self.tombstones, self.highest_sequence = (number(footer, at, 8) for at in (24, 32, 40))
        self.directory_at = self.footer_at - number(footer, 48, 8)
        self.directory_checksum = number(footer, 56, 8)
        require(count == len(self.runs) <= 31, "the view has another number of runs")
        self.record_length = 128 if count <= 8 else 192 if count <= 24 else 256
        self.records_in_page = (PAGE - 8) // self.record_length

    def read_directory(self):
        require(self.directory_at >= self.start, "the directory is too long")
        directory = self.data[self.directory_at : self.footer_at]
        require(checksum(self.file_id, self.directory_at, directory) == self.directory_checksum, "the directory: wrong checksum")
        reader = Reader(directory)
        prefix = reader.bytes()
        self.directory = []
        for segment in range(self.segments):
            flags = reader.fixed(1)
            is_continuation, count = flags & 0x80 != 0, flags & 0x3F
            require(flags & 0x40 == 0 and 1 <= count <= 32, "flags that are none")
            require(segment > 0 or not is_continuation, "the first segment continues nothing")
            has_separator = segment > 0 and not is_continuation
            separator = prefix + reader.bytes() if has_separator else b"" if segment == 0 else None
            self.directory.append((count, is_continuation, separator))
        require(reader.is_at_end(), "the directory is too long")

    def records(self):
        """Reads the segment records and checks their pages."""
        pages = -(-self.segments // self.records_in_page)
        require(self.start + PAGE * pages == self.directory_at, "the directory does not follow the pages")
        left = self.segments
        for at in range(self.start, self.directory_at, PAGE):
            page, count = self.data[at : at + PAGE], min(left, self.records_in_page)
            require(checksum(self.file_id, at, page[: PAGE - 8]) == number(page, PAGE - 8, 8), f"the page at {at}: wrong checksum")
            require(not any(page[count * self.record_length : PAGE - 8]), "no zeros behind the records of a page")
            for record in range(count):
                yield page[record * self.record_length : (record + 1) * self.record_length]
            left -= count

    def merged(self):
        """Returns the expected contents: (run, place, entry) of all entries of its runs, in order."""
        found = []
        for run, source in enumerate(self.runs):
            found += [(run, place, entry) for place, entry in source.places() if is_within(entry[0], self.bounds)]
        return sorted(found, key=lambda item: (item[2][0], -item[2][1]))

    def verify(self):
        """Checks the view against the runs; returns its (run, place, entry, is stale) in order."""
        expected, tombstones = self.merged(), [one for run in self.runs for one in run.range_tombstones()]
        require(len(expected) == self.entries, f"the view tells {self.entries} entries, the runs have {len(expected)}")
        marked, before = [], None
        for run, place, entry in expected:
            is_covered = any(start <= entry[0] < end and entry[1] < sequence for start, end, sequence in tombstones)
            marked.append((run, place, entry, entry[0] == before or is_covered))
            before = entry[0]
        at = 0
        for record, (count, is_continuation, separator) in zip(self.records(), self.directory):
            self.verify_segment(record, marked[at : at + count], marked[at - 1] if at else None, is_continuation, separator)
            self.verify_cursors(record, expected, at)
            at += count
        require(at == len(marked), "the segments have another number of entries")
        require(self.stale == sum(item[3] for item in marked), "another number of stale entries")
        live = sum(not item[3] and item[2][2] == TOMBSTONE for item in marked)
        require(self.tombstones == live, "another number of tombstones")
        highest = max((run.footer["largest_sequence"] for run in self.runs), default=0)
        require(self.highest_sequence == highest, "another highest sequence number")
        return marked

    def verify_segment(self, record, items, before, is_continuation, separator):
        last_key = before[2][0] if before else None
        if is_continuation:
            require(all(item[2][0] == last_key for item in items), "a continuation of something else")
        else:
            require(last_key is None or last_key < separator, "a separator that is not past the keys before it")
            require(separator <= items[0][2][0], "a separator past the keys behind it")
        require(all(selector == 0xFF for selector in record[len(items) : 32]), "selectors past the last entry")
        for lane, (run, _, (key, _, kind, _), is_stale) in enumerate(items):
            needs_more = kind in (BLOB, MERGE, EXPIRING, STREAM)
            selector = run | needs_more << 5 | (kind == TOMBSTONE) << 6 | is_stale << 7
            require(record[lane] == selector, f"selector {record[lane]:#04x} of {key.hex()} should be {selector:#04x}")
            require(record[64 + lane] == xxh3_64(key) & 0xFF, f"the tag of {key.hex()} is another")
        self.verify_differences(record, [item[2][0] for item in items])

    @staticmethod
    def verify_differences(record, keys):
        base = record[32]
        for lane in range(1, 32):
            told = record[32 + lane]
            if lane >= len(keys) or keys[lane] == keys[lane - 1]:
                require(told == 255, "a difference where there is none")
            elif base == 255:
                require(told != 255, "no difference where there is one")
            else:
                difference = first_difference(keys[lane - 1], keys[lane])
                require(difference is not None, "keys that cannot be told apart by a bit, and a base that is not 255")
                require(told == difference - 8 * base, f"{keys[lane].hex()} differs at {difference}, and the view tells {told} + 8 * {base}")

    def verify_cursors(self, record, expected, at):
        wanted = {}
        for run, place, _ in expected[at:]:
            wanted.setdefault(run, place)
            if len(wanted) == len(self.runs):
                break
        for run in range(len(self.runs)):
            place = (number(record, 96 + 4 * run, 2), number(record, 98 + 4 * run, 2))
            require(place == wanted.get(run, place), f"the cursor of run {run} is {place}, should be {wanted.get(run)}")
