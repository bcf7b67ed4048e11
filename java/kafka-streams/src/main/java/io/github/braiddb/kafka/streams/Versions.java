package io.github.braiddb.kafka.streams;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.state.VersionedRecord;

/**
 * The rows of a versioned store.
 *
 * <p>A version is valid from a time, inclusive, to a time, exclusive. The latest version of a key has no
 * end. Versions of a key do not overlap; where there is none, the key has no value.
 *
 * <pre>
 * latest:   00 key                              -> from(8) value
 * earlier:  01 bucket(8) keyLen(4) key to(8)    -> from(8) value
 * deletion: 01 bucket(8) keyLen(4) key to(8)    -> to(8), without a value
 * </pre>
 *
 * <p>The bucket is that of {@code to}: see {@link Buckets}. INVARIANT V1: each time at which a key's
 * value has changed is the {@code from} or the {@code to} of a row. A deletion at a time that is not
 * the end of a version has a row of its own, whose {@code from} is its {@code to}: a later put of an
 * earlier time ends there.
 */
final class Versions {
    static final byte LATEST = 0;
    static final byte EARLIER = 1;

    /** The end of the latest version. */
    static final long NO_END = -1;

    private final long bucketMs;
    private final long retentionMs;

    Versions(long bucketMs, long retentionMs) {
        this.bucketMs = bucketMs;
        this.retentionMs = retentionMs;
    }

    /** A version. Its value is null at a deletion. */
    record Version(long from, long to, byte[] value) {
        VersionedRecord<byte[]> record() {
            return to == NO_END ? new VersionedRecord<>(value, from) : new VersionedRecord<>(value, from, to);
        }
    }

    /** Reads rows. */
    interface Reader {
        byte[] get(byte[] key);

        MergedRows scan(Range range);
    }

    static byte[] latestKey(byte[] key) {
        byte[] row = new byte[1 + key.length];
        row[0] = LATEST;
        System.arraycopy(key, 0, row, 1, key.length);
        return row;
    }

    /** Returns the first key of a bucket. */
    byte[] bucketStart(long bucket) {
        return ByteBuffer.allocate(1 + Long.BYTES).put(EARLIER).putLong(bucket ^ Long.MIN_VALUE).array();
    }

    long bucket(long time) {
        return Math.floorDiv(time, bucketMs);
    }

    private byte[] earlierKey(long bucket, byte[] key, long to) {
        return ByteBuffer.allocate(1 + Long.BYTES + Integer.BYTES + key.length + Long.BYTES)
                .put(EARLIER).putLong(bucket ^ Long.MIN_VALUE).putInt(key.length).put(key).putLong(to).array();
    }

    private byte[] earlierKey(byte[] key, long to) {
        return earlierKey(bucket(to), key, to);
    }

    private static byte[] encode(long from, byte[] value) {
        return ByteBuffer.allocate(Long.BYTES + value.length).putLong(from).put(value).array();
    }

    private static long from(byte[] row) {
        return ByteBuffer.wrap(row).getLong();
    }

    private static byte[] value(byte[] row) {
        return Arrays.copyOfRange(row, Long.BYTES, row.length);
    }

    private static Version decode(byte[] row, long to) {
        long from = from(row);
        return new Version(from, to, from == to ? null : value(row));
    }

    /** Returns the latest version; null if the key has no value now. */
    static Version latest(Reader reader, byte[] key) {
        byte[] row = reader.get(latestKey(key));
        return row == null ? null : new Version(from(row), NO_END, value(row));
    }

    /** Returns the earlier version or deletion with the smallest end after a time, up to a stream time. */
    Version next(Reader reader, byte[] key, long time, long streamTime) {
        if (time >= streamTime) {
            return null;
        }
        for (long bucket = firstBucket(time, streamTime); bucket <= bucket(streamTime); bucket++) {
            Range range = new Range(
                    earlierKey(bucket, key, time + 1), earlierKey(bucket, key, Long.MAX_VALUE), true, false);
            try (MergedRows rows = reader.scan(range)) {
                if (rows.hasNext()) {
                    KeyValue<Bytes, byte[]> row = rows.next();
                    return decode(row.value, end(row.key.get()));
                }
            }
        }
        return null;
    }

    /** Returns the first bucket of versions that end behind a time. Earlier ones have expired. */
    private long firstBucket(long time, long streamTime) {
        return bucket(Math.max(time + 1, streamTime - retentionMs));
    }

    private static long end(byte[] row) {
        return ByteBuffer.wrap(row).getLong(row.length - Long.BYTES);
    }

    /** Returns the version at a time; null if the key had no value. */
    Version at(Reader reader, byte[] key, long time, long streamTime) {
        Version latest = latest(reader, key);
        if (latest != null && latest.from <= time) {
            return latest;
        }
        Version next = next(reader, key, time, streamTime);
        return next != null && next.from <= time && next.value != null ? next : null;
    }

    /** Returns the versions that are valid within a time, in ascending order. */
    List<VersionedRecord<byte[]>> within(Reader reader, byte[] key, long from, long to, long streamTime) {
        List<VersionedRecord<byte[]>> versions = new ArrayList<>();
        // Earlier versions can be read from this time on; none of them ends behind the stream time.
        long first = Math.min(Math.max(from, streamTime - retentionMs), streamTime);
        if (to >= streamTime - retentionMs) {
            for (long bucket = firstBucket(first, streamTime); bucket <= bucket(streamTime); bucket++) {
                Range range = new Range(
                        earlierKey(bucket, key, first + 1), earlierKey(bucket, key, Long.MAX_VALUE), true, false);
                try (MergedRows rows = reader.scan(range)) {
                    while (rows.hasNext()) {
                        KeyValue<Bytes, byte[]> row = rows.next();
                        Version version = decode(row.value, end(row.key.get()));
                        if (version.value != null && version.from <= to) {
                            versions.add(version.record());
                        }
                    }
                }
            }
        }
        Version latest = latest(reader, key);
        if (latest != null && latest.from <= to) {
            versions.add(latest.record());
        }
        return versions;
    }

    /**
     * Sets the value from a time on; null deletes it. Returns the time at which it ends: that of the next
     * change, or {@link #NO_END}. The stream time is at least {@code time}.
     */
    long put(Reader reader, Storage.Writer writer, byte[] key, byte[] value, long time, long streamTime) {
        Version latest = latest(reader, key);
        // No change is behind the stream time, so one at it needs no search.
        Version next = latest != null && latest.from <= time ? null : next(reader, key, time, streamTime);
        if (next == null && (latest == null || latest.from <= time)) {
            putLast(reader, writer, key, value, time, latest);
            return NO_END;
        }
        boolean isInside = next != null && next.from <= time && next.value != null;
        long end = next == null ? latest.from : isInside ? next.to : Math.min(next.from, end(latest, next));
        if (isInside && next.from < time) {
            writer.put(earlierKey(key, time), encode(next.from, next.value));
        }
        if (value != null) {
            writer.put(earlierKey(key, end), encode(time, value));
            return end;
        }
        if (isInside) {
            writer.put(earlierKey(key, end), encode(end, new byte[0]));
        }
        if (!isInside || next.from == time) {
            noteDeletion(reader, writer, key, time);
        }
        return end;
    }

    private static long end(Version latest, Version next) {
        return latest == null ? next.from : latest.from;
    }

    /** Puts a version behind all others. */
    private void putLast(
            Reader reader, Storage.Writer writer, byte[] key, byte[] value, long time, Version latest) {
        if (latest != null && latest.from < time) {
            writer.put(earlierKey(key, time), encode(latest.from, latest.value));
        }
        if (value != null) {
            writer.put(latestKey(key), encode(time, value));
            return;
        }
        if (latest != null) {
            writer.put(latestKey(key), null);
        }
        if (latest == null || latest.from == time) {
            noteDeletion(reader, writer, key, time);
        }
    }

    /** Keeps V1 for a deletion, unless a version ends there. */
    private void noteDeletion(Reader reader, Storage.Writer writer, byte[] key, long time) {
        byte[] row = earlierKey(key, time);
        if (reader.get(row) == null) {
            writer.put(row, encode(time, new byte[0]));
        }
    }
}
