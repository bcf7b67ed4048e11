package io.github.braiddb.kafka.streams;

import java.util.NoSuchElementException;
import java.util.function.LongFunction;
import java.util.function.Predicate;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.state.KeyValueIterator;

/** Rows of some buckets, bucket by bucket, that a filter accepts. Ends when the store closes. */
final class BucketRows implements KeyValueIterator<Bytes, byte[]> {
    private final Storage storage;
    private final boolean isCommitted;
    private final boolean isReverse;
    private final LongFunction<Range> ranges;
    private final Predicate<byte[]> filter;
    private long bucket;
    private final long bucketLast;
    private MergedRows rows;
    private KeyValue<Bytes, byte[]> next;
    private boolean isAtEnd;

    /** {@code ranges} returns the range of a bucket. */
    BucketRows(
            Storage storage,
            boolean isCommitted,
            boolean isReverse,
            long bucketMin,
            long bucketMax,
            LongFunction<Range> ranges,
            Predicate<byte[]> filter) {
        this.storage = storage;
        this.isCommitted = isCommitted;
        this.isReverse = isReverse;
        this.ranges = ranges;
        this.filter = filter;
        bucket = isReverse ? bucketMax : bucketMin;
        bucketLast = isReverse ? bucketMin : bucketMax;
        isAtEnd = bucketMin > bucketMax;
    }

    @Override
    public boolean hasNext() {
        if (rows != null && rows.isEnded()) {
            next = null;
            isAtEnd = true;
        }
        while (next == null && !isAtEnd) {
            if (rows == null) {
                rows = storage.scan(ranges.apply(bucket).reversed(isReverse), isCommitted);
            }
            if (rows.hasNext()) {
                KeyValue<Bytes, byte[]> row = rows.next();
                next = filter.test(row.key.get()) ? row : null;
            } else {
                rows.close();
                rows = null;
                isAtEnd = bucket == bucketLast;
                bucket += isReverse ? -1 : 1;
            }
        }
        return next != null;
    }

    @Override
    public KeyValue<Bytes, byte[]> next() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        KeyValue<Bytes, byte[]> row = next;
        next = null;
        return row;
    }

    @Override
    public Bytes peekNextKey() {
        if (!hasNext()) {
            throw new NoSuchElementException();
        }
        return next.key;
    }

    @Override
    public void close() {
        isAtEnd = true;
        next = null;
        if (rows != null) {
            rows.close();
            rows = null;
        }
    }
}
