"""XXH3 with 64-bit output, the checksum of BraidDB's files. Standard library only; slow.

The algorithm: https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md
"""

import struct

STRIPE = struct.Struct("<8Q")
MASK = (1 << 64) - 1
PRIME32_1, PRIME32_2, PRIME32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
PRIME64_1, PRIME64_2, PRIME64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
PRIME64_4, PRIME64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
PRIME_MX1, PRIME_MX2 = 0x165667919E3779F9, 0x9FB21C651E98DF25

SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)


def u32(data, at):
    return int.from_bytes(data[at : at + 4], "little")


def u64(data, at):
    return int.from_bytes(data[at : at + 8], "little")


def fold(a, b):
    product = a * b
    return (product & MASK) ^ (product >> 64)


def avalanche(h):
    h ^= h >> 37
    h = h * PRIME_MX1 & MASK
    return h ^ h >> 32


def avalanche_xxh64(h):
    h ^= h >> 33
    h = h * PRIME64_2 & MASK
    h ^= h >> 29
    h = h * PRIME64_3 & MASK
    return h ^ h >> 32


def swap32(x):
    return int.from_bytes(x.to_bytes(4, "little"), "big")


def swap64(x):
    return int.from_bytes(x.to_bytes(8, "little"), "big")


def rotate(x, by):
    return (x << by | x >> (64 - by)) & MASK


def short(data, seed):
    """Up to 16 bytes."""
    n = len(data)
    if n > 8:
        flip1 = (u64(SECRET, 24) ^ u64(SECRET, 32)) + seed & MASK
        flip2 = (u64(SECRET, 40) ^ u64(SECRET, 48)) - seed & MASK
        low, high = u64(data, 0) ^ flip1, u64(data, n - 8) ^ flip2
        return avalanche(n + swap64(low) + high + fold(low, high) & MASK)
    if n >= 4:
        seed ^= swap32(seed & 0xFFFFFFFF) << 32
        flip = (u64(SECRET, 8) ^ u64(SECRET, 16)) - seed & MASK
        h = u32(data, n - 4) + (u32(data, 0) << 32) ^ flip
        h ^= rotate(h, 49) ^ rotate(h, 24)
        h = h * PRIME_MX2 & MASK
        h ^= (h >> 35) + n & MASK
        h = h * PRIME_MX2 & MASK
        return h ^ h >> 28
    if n > 0:
        combined = data[0] << 16 | data[n >> 1] << 24 | data[n - 1] | n << 8
        return avalanche_xxh64(combined ^ (u32(SECRET, 0) ^ u32(SECRET, 4)) + seed & MASK)
    return avalanche_xxh64(seed ^ u64(SECRET, 56) ^ u64(SECRET, 64))


def mix16(data, at, secret_at, seed):
    low = u64(data, at) ^ (u64(SECRET, secret_at) + seed & MASK)
    high = u64(data, at + 8) ^ (u64(SECRET, secret_at + 8) - seed & MASK)
    return fold(low, high)


def middle(data, seed):
    """17 to 240 bytes."""
    n = len(data)
    h = n * PRIME64_1 & MASK
    if n <= 128:
        for i in range((n - 1) // 32, -1, -1):
            h += mix16(data, 16 * i, 32 * i, seed) + mix16(data, n - 16 * (i + 1), 32 * i + 16, seed)
        return avalanche(h & MASK)
    for i in range(8):
        h += mix16(data, 16 * i, 16 * i, seed)
    h = avalanche(h & MASK)
    for i in range(8, n // 16):
        h += mix16(data, 16 * i, 16 * (i - 8) + 3, seed)
    h += mix16(data, n - 16, 136 - 17, seed)
    return avalanche(h & MASK)


def accumulate(lanes, data, at, secret, secret_at):
    values, secrets = STRIPE.unpack_from(data, at), STRIPE.unpack_from(secret, secret_at)
    for i in range(8):
        key = values[i] ^ secrets[i]
        lanes[i ^ 1] = lanes[i ^ 1] + values[i] & MASK
        lanes[i] = lanes[i] + (key & 0xFFFFFFFF) * (key >> 32) & MASK


def long(data, seed):
    """More than 240 bytes."""
    n = len(data)
    secret = bytearray()
    for at in range(0, 192, 16):
        secret += (u64(SECRET, at) + seed & MASK).to_bytes(8, "little")
        secret += (u64(SECRET, at + 8) - seed & MASK).to_bytes(8, "little")
    lanes = [PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1]
    stripes = (192 - 64) // 8
    block = 64 * stripes
    blocks = (n - 1) // block
    for b in range(blocks):
        for s in range(stripes):
            accumulate(lanes, data, b * block + 64 * s, secret, 8 * s)
        for i in range(8):
            h = lanes[i]
            h = (h ^ h >> 47 ^ u64(secret, 192 - 64 + 8 * i)) * PRIME32_1 & MASK
            lanes[i] = h
    for s in range((n - 1 - blocks * block) // 64):
        accumulate(lanes, data, blocks * block + 64 * s, secret, 8 * s)
    accumulate(lanes, data, n - 64, secret, 192 - 64 - 7)
    h = n * PRIME64_1 & MASK
    for i in range(4):
        h += fold(lanes[2 * i] ^ u64(secret, 11 + 16 * i), lanes[2 * i + 1] ^ u64(secret, 19 + 16 * i))
    return avalanche(h & MASK)


def xxh3_64(data, seed=0):
    """Returns the hash of bytes under a 64-bit seed."""
    if len(data) <= 16:
        return short(data, seed)
    return middle(data, seed) if len(data) <= 240 else long(data, seed)
