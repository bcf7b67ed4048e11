package io.github.braiddb.kafka.streams;

import java.nio.ByteBuffer;
import java.util.Arrays;

/**
 * Keys of window and session stores: {@code bucket | key | times}. A bucket is a part of the time, of
 * a fixed length; its number is 8 bytes, big-endian, with the sign bit inverted.
 *
 * <p>A window's times are {@code start | number}, of 8 and 4 bytes; a session's are {@code end | start},
 * of 8 bytes each. Key and times are a record's key in Kafka's changelog. The order by bucket, key and
 * time is that of Kafka's own store, which Kafka's cache depends on; and all rows of an expired bucket
 * are one range.
 */
final class Buckets {
    private final long bucketMs;

    /** Bytes of the times. */
    private final int timesLen;

    Buckets(long bucketMs, int timesLen) {
        this.bucketMs = bucketMs;
        this.timesLen = timesLen;
    }

    static long encoded(long time, long bucketMs) {
        return Math.floorDiv(time, bucketMs) ^ Long.MIN_VALUE;
    }

    long bucket(long time) {
        return Math.floorDiv(time, bucketMs);
    }

    /** Returns the first key of a bucket. */
    static byte[] start(long bucket) {
        return ByteBuffer.allocate(Long.BYTES).putLong(bucket ^ Long.MIN_VALUE).array();
    }

    /** Returns the key of a window. */
    byte[] window(byte[] key, long start, int number) {
        return ByteBuffer.allocate(Long.BYTES + key.length + timesLen)
                .putLong(encoded(start, bucketMs)).put(key).putLong(start).putInt(number).array();
    }

    /** Returns the key of a session. */
    byte[] session(byte[] key, long start, long end) {
        return ByteBuffer.allocate(Long.BYTES + key.length + timesLen)
                .putLong(encoded(end, bucketMs)).put(key).putLong(end).putLong(start).array();
    }

    /** Returns the key of a changelog record whose key has these times. */
    byte[] ofChangelog(byte[] keyAndTimes) {
        long time = ByteBuffer.wrap(keyAndTimes).getLong(keyAndTimes.length - timesLen);
        return ByteBuffer.allocate(Long.BYTES + keyAndTimes.length)
                .putLong(encoded(time, bucketMs)).put(keyAndTimes).array();
    }

    /** Returns the time of a changelog record's key that decides about its bucket. */
    long timeOfChangelog(byte[] keyAndTimes) {
        return ByteBuffer.wrap(keyAndTimes).getLong(keyAndTimes.length - timesLen);
    }

    int compareKey(byte[] row, byte[] key) {
        return Arrays.compareUnsigned(row, Long.BYTES, row.length - timesLen, key, 0, key.length);
    }

    byte[] key(byte[] row) {
        return Arrays.copyOfRange(row, Long.BYTES, row.length - timesLen);
    }

    /** Returns the first of the times: the start of a window, the end of a session. */
    long firstTime(byte[] row) {
        return ByteBuffer.wrap(row).getLong(row.length - timesLen);
    }

    /** Returns the start of a session. */
    long secondTime(byte[] row) {
        return ByteBuffer.wrap(row).getLong(row.length - timesLen + Long.BYTES);
    }

    /**
     * Returns the rows of a bucket that may have a key of a range and a first time of a range. Other
     * rows may lie between, since keys have any length.
     */
    Range range(long bucket, byte[] keyFrom, byte[] keyTo, long timeFrom, long timeTo) {
        byte[] from = start(bucket);
        if (keyFrom != null) {
            boolean isOneKey = Arrays.equals(keyFrom, keyTo);
            from = Arrays.copyOf(from, Long.BYTES + keyFrom.length + (isOneKey ? Long.BYTES : 0));
            System.arraycopy(keyFrom, 0, from, Long.BYTES, keyFrom.length);
            if (isOneKey) {
                ByteBuffer.wrap(from).putLong(from.length - Long.BYTES, timeFrom);
            }
        }
        if (keyTo == null) {
            return new Range(from, bucket == Long.MAX_VALUE ? null : start(bucket + 1), false, false);
        }
        return new Range(from, last(bucket, keyFrom, keyTo, timeTo), true, false);
    }

    /** Returns a key that no row of the range exceeds. */
    private byte[] last(long bucket, byte[] keyFrom, byte[] keyTo, long timeTo) {
        byte[] last = withTimes(bucket, keyTo, keyTo.length, timeTo);
        if (Arrays.equals(keyFrom, keyTo)) {
            return last;
        }
        // A key that keyTo begins with is in the range too, and its time may exceed the rest of keyTo.
        for (int len = 0; len < keyTo.length; len++) {
            byte[] shorter = withTimes(bucket, keyTo, len, timeTo);
            if (Arrays.compareUnsigned(shorter, last) > 0) {
                last = shorter;
            }
        }
        return last;
    }

    private byte[] withTimes(long bucket, byte[] key, int keyLen, long time) {
        byte[] row = new byte[Long.BYTES + keyLen + timesLen];
        ByteBuffer buffer = ByteBuffer.wrap(row);
        buffer.putLong(bucket ^ Long.MIN_VALUE).put(key, 0, keyLen).putLong(time);
        Arrays.fill(row, buffer.position(), row.length, (byte) 0xFF);
        return row;
    }
}
