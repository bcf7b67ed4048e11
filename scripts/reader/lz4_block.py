"""Unpacks the LZ4 block format. Standard library only.

The format: https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md
"""


def unpack(packed, length):
    """Returns the `length` bytes in `packed`; raises ValueError or IndexError if it is malformed."""
    out = bytearray()
    at = 0

    def extended(count):
        nonlocal at
        if count == 15:
            while True:
                more = packed[at]
                at += 1
                count += more
                if more != 255:
                    break
        return count

    while at < len(packed):
        token = packed[at]
        at += 1
        literals = extended(token >> 4)
        if at + literals > len(packed) or len(out) + literals > length:
            raise ValueError("literals past the end")
        out += packed[at : at + literals]
        at += literals
        if at == len(packed):
            break
        distance = packed[at] | packed[at + 1] << 8
        at += 2
        match = extended(token & 15) + 4
        if not 0 < distance <= len(out) or len(out) + match > length:
            raise ValueError("a match outside the output")
        start = len(out) - distance
        repeated = bytes(out[start : start + match])
        out += (repeated * -(-match // len(repeated)))[:match]
    if len(out) != length:
        raise ValueError(f"{len(out)} bytes instead of {length}")
    return bytes(out)
