package io.github.braiddb;

/** How blocks of rows are compressed. */
public enum Compression {
    /** Not at all. */
    NONE,

    /** LZ4: fast. */
    LZ4,

    /** Zstandard: small. */
    ZSTD
}
