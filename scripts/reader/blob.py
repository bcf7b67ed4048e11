"""Blob files: large values, and the references to them ("Blob files" in docs/internals/format.md)."""

from .fields import BLOB, EXPIRING, Header, Reader, STREAM, VALUE, checksum, number, require, unpack

CHUNK = 65536


class Reference:
    def __init__(self, reader):
        self.file, self.offset, self.value_length, self.record_length = (reader.varint() for _ in range(4))
        self.offset *= 8
        self.compression, self.checksum = reader.varint(), reader.fixed(8)


def references(kind, value):
    """Returns the references of an entry, in order."""
    kind, value = unwrapped(kind, value)
    if kind not in (BLOB, STREAM):
        return []
    reader, found = Reader(value), []
    length = reader.varint() if kind == STREAM else None
    while not reader.is_at_end():
        found.append(Reference(reader))
    if kind == BLOB:
        require(len(found) == 1, "a blob reference is too long")
    else:
        require(length == sum(one.value_length for one in found), "a stream's pieces have another length than it says")
        require(all(one.value_length > 0 for one in found), "a stream has an empty piece")
    return found


def unwrapped(kind, value):
    """Returns kind and value of an entry without its expiry."""
    if kind != EXPIRING:
        return kind, value
    require(len(value) >= 9 and value[8] in (VALUE, BLOB, STREAM), "an expiring entry holds nothing that may expire")
    return value[8], value[9:]


class BlobFile:
    def __init__(self, data):
        self.data = data
        self.file_id = Header(data, b"BRAIDBLB").file_id

    def passes(self, offset, data, total):
        return checksum(self.file_id, offset, data) == total

    def value(self, reference, key):
        """Returns the value that the entry of `key` refers to."""
        at = reference.offset
        header = self.data[at : at + 40]
        require(header[:4] == b"BLOB" and not any(header[5:8]) and number(header, 28, 4) == 0, f"no blob record at {at}")
        require(self.passes(at, header[:32], number(header, 32, 8)), f"the blob record at {at}: wrong checksum")
        length, record_length, key_length = number(header, 8, 8), number(header, 16, 8), number(header, 24, 4)
        told = (header[4], length, record_length, number(header, 32, 8))
        referred = (reference.compression, reference.value_length, reference.record_length, reference.checksum)
        require(told == referred, f"the blob record at {at} is not the one that is referred to")
        require(at + record_length <= len(self.data), "a blob record past the end of the file")
        chunks = -(-length // CHUNK)
        table_end = 40 + key_length + 12 * chunks
        table = self.data[at + 40 : at + table_end]
        require(self.passes(at + 40, table, number(self.data, at + table_end, 8)), f"the chunk table of the blob at {at}: wrong checksum")
        require(table[:key_length] == key, f"the blob at {at} belongs to another key")
        reader, place, value = Reader(table, key_length), at + table_end + 8, b""
        for _ in range(chunks):
            stored_length, total = reader.fixed(4), reader.fixed(8)
            is_packed, stored_length = stored_length >> 31, stored_length & 0x7FFFFFFF
            stored = self.data[place : place + stored_length]
            require(self.passes(place, stored, total), f"the chunk at {place}: wrong checksum")
            value += unpack(header[4] if is_packed else 0, stored, min(CHUNK, length - len(value)))
            place += stored_length
        require(place == at + record_length, f"the blob record at {at} has another length")
        return value

    def records(self):
        """Yields the offset of each record in the file."""
        at = 64
        while at + 40 <= len(self.data):
            header = self.data[at : at + 40]
            if header[:4] == b"BLOB" and self.passes(at, header[:32], number(header, 32, 8)):
                yield at
                at += (number(header, 16, 8) + 7) // 8 * 8
            else:
                at += 8
