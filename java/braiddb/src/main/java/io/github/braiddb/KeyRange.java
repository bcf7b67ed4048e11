package io.github.braiddb;

import java.util.Arrays;
import java.util.Objects;

/**
 * A range of keys, with the direction and the limit of a scan. Keys are in the order of their
 * unsigned bytes: {@link Arrays#compareUnsigned(byte[], byte[])}. Immutable.
 */
public final class KeyRange {
    private static final int PREFIX = 1;
    private static final int START_EXCLUSIVE = 2;
    private static final int END_INCLUSIVE = 4;
    private static final int REVERSE = 8;

    private static final KeyRange ALL = new KeyRange(0, null, null, Long.MAX_VALUE);

    private final int flags;
    private final byte[] start;
    private final byte[] end;
    private final long limit;

    private KeyRange(int flags, byte[] start, byte[] end, long limit) {
        this.flags = flags;
        this.start = start;
        this.end = end;
        this.limit = limit;
    }

    /**
     * Returns the range of all keys.
     *
     * @return the range
     */
    public static KeyRange all() {
        return ALL;
    }

    /**
     * Returns the range of the keys that begin with a prefix.
     *
     * @param prefix the prefix; all keys have the empty one
     * @return the range
     */
    public static KeyRange prefix(byte[] prefix) {
        return new KeyRange(PREFIX, prefix.clone(), null, Long.MAX_VALUE);
    }

    /**
     * Returns the range from {@code start}, inclusive, to {@code end}, exclusive.
     *
     * @param start the first key; null for no bound
     * @param end the key after the last; null for no bound
     * @return the range
     */
    public static KeyRange of(byte[] start, byte[] end) {
        return of(start, true, end, false);
    }

    /**
     * Returns a range with bounds of either kind.
     *
     * @param start the lower bound; null for none
     * @param isStartInclusive true if the range has the key {@code start}
     * @param end the upper bound; null for none
     * @param isEndInclusive true if the range has the key {@code end}
     * @return the range
     */
    public static KeyRange of(byte[] start, boolean isStartInclusive, byte[] end, boolean isEndInclusive) {
        int flags = (isStartInclusive ? 0 : START_EXCLUSIVE) | (isEndInclusive ? END_INCLUSIVE : 0);
        return new KeyRange(flags, copy(start), copy(end), Long.MAX_VALUE);
    }

    /**
     * Returns the range of the keys from {@code start} on, inclusive.
     *
     * @param start the first key
     * @return the range
     */
    public static KeyRange from(byte[] start) {
        return of(Objects.requireNonNull(start, "start"), null);
    }

    /**
     * Returns the range of the keys up to {@code end}, exclusive.
     *
     * @param end the key after the last
     * @return the range
     */
    public static KeyRange to(byte[] end) {
        return of(null, Objects.requireNonNull(end, "end"));
    }

    /**
     * Returns this range for a scan in the other direction.
     *
     * @return the range
     */
    public KeyRange reversed() {
        return new KeyRange(flags ^ REVERSE, start, end, limit);
    }

    /**
     * Returns this range for a scan that ends after some rows. Counts and deletes ignore the limit.
     *
     * @param rows the most rows
     * @return the range
     * @throws InvalidArgumentException if {@code rows} is negative
     */
    public KeyRange limit(long rows) {
        if (rows < 0) {
            throw new InvalidArgumentException("the limit is negative: " + rows);
        }
        return new KeyRange(flags, start, end, rows);
    }

    /**
     * Returns true if a scan goes from the last key to the first.
     *
     * @return the direction
     */
    public boolean isReversed() {
        return (flags & REVERSE) != 0;
    }

    /**
     * Returns the most rows that a scan returns.
     *
     * @return the limit; {@link Long#MAX_VALUE} for none
     */
    public long limit() {
        return limit;
    }

    /**
     * Returns true if the range has this key. Takes time in proportion to the key.
     *
     * @param key the key
     * @return true if it is within the bounds
     */
    public boolean contains(byte[] key) {
        if ((flags & PREFIX) != 0) {
            return key.length >= start.length && Arrays.equals(key, 0, start.length, start, 0, start.length);
        }
        int toStart = start == null ? 1 : Arrays.compareUnsigned(key, start);
        int toEnd = end == null ? -1 : Arrays.compareUnsigned(key, end);
        return (toStart > 0 || toStart == 0 && (flags & START_EXCLUSIVE) == 0)
                && (toEnd < 0 || toEnd == 0 && (flags & END_INCLUSIVE) != 0);
    }

    Encoder encode() {
        return encode(new Encoder());
    }

    Encoder encode(Encoder encoder) {
        return encoder.flags(flags).bytes(start).bytes(end);
    }

    private static byte[] copy(byte[] key) {
        return key == null ? null : key.clone();
    }

    @Override
    public String toString() {
        return "KeyRange[flags=" + flags + ", start=" + Arrays.toString(start) + ", end=" + Arrays.toString(end)
                + ", limit=" + limit + "]";
    }
}
