package io.github.braiddb.kafka.streams;

import java.util.Arrays;
import java.util.Collection;
import java.util.function.Predicate;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A window or session store: {@link Buckets} explains its keys.
 *
 * <p>A row expires when its time is {@code retentionMs} before the stream time, the largest time of a
 * put. Reads hide expired rows at once; a commit deletes the buckets that have only expired ones.
 *
 * <p>A window that is emitted when it closes may expire before: its retention can be its size and grace,
 * and the stream time jumps. So the reads by time that emit windows return expired rows too, which stay
 * for {@link #EMIT_LAG_MS} and the retention once more.
 */
abstract class TimedStore extends BraidStore implements KafkaInternals.Retaining {
    private static final Logger LOG = LoggerFactory.getLogger(TimedStore.class);

    /** Milliseconds of stream time that expired windows wait for their emission at least. */
    static final long EMIT_LAG_MS = 600_000;

    final Buckets buckets;
    private final long retentionMs;
    private final long lagMs;
    private volatile long streamTime = ConsumerRecord.NO_TIMESTAMP;
    private long liveBucket = Long.MIN_VALUE;
    private Sensor dropped;

    TimedStore(String name, Layout layout, Buckets buckets, long retentionMs, boolean isEmittedAtClose) {
        super(name, layout);
        this.buckets = buckets;
        this.retentionMs = retentionMs;
        lagMs = isEmittedAtClose ? retentionMs + EMIT_LAG_MS : 0;
    }

    @Override
    void opened(Storage opened, StateStoreContext context) {
        dropped = KafkaInternals.droppedRecords(context);
        streamTime = opened.keep(Meta.TIME, ConsumerRecord.NO_TIMESTAMP, () -> streamTime);
        liveBucket = Long.MIN_VALUE;
    }

    /** Returns how long after the first time of a row a record can change it. */
    abstract long sizeMs();

    /**
     * {@inheritDoc}
     *
     * <p>Kafka compares with times of records. The stream time of the store is that of its rows, which
     * begin up to their size before.
     */
    @Override
    public final long retentionPeriod() {
        long period = retentionMs + sizeMs() + lagMs;
        return period < retentionMs ? Long.MAX_VALUE : period;
    }

    /** Returns the first time that is not expired. */
    final long liveFrom() {
        long time = streamTime;
        return time == ConsumerRecord.NO_TIMESTAMP ? 0 : time - retentionMs + 1;
    }

    /** Returns the first time that reads for an emission return. */
    final long emittableFrom() {
        return liveFrom() - lagMs;
    }

    /** Advances the stream time. Returns false for a time that is expired. */
    final boolean advance(long time) {
        if (time > streamTime) {
            streamTime = time;
            expire();
        }
        return time >= liveFrom();
    }

    /** Advances the stream time. Returns false for a record that is too late, and counts it. */
    final boolean accept(long time) {
        if (advance(time)) {
            return true;
        }
        dropped.record();
        LOG.warn("Skipping record for expired segment.");
        return false;
    }

    private void expire() {
        long bucket = buckets.bucket(emittableFrom());
        if (bucket > liveBucket) {
            liveBucket = bucket;
            storage().expire(null, Buckets.start(bucket));
        }
    }

    /** Reads the rows whose key and first time are within ranges, from a live time on. Null keys are no bound. */
    final KeyValueIterator<Bytes, byte[]> scan(
            Bytes keyFrom,
            Bytes keyTo,
            long timeFrom,
            long timeTo,
            long liveFrom,
            boolean isReverse,
            boolean isCommitted,
            Predicate<byte[]> filter) {
        long first = Math.max(Math.max(0, timeFrom), liveFrom);
        long last = Math.min(timeTo, streamTime);
        byte[] from = keyFrom == null ? null : keyFrom.get();
        byte[] to = keyTo == null ? null : keyTo.get();
        if (from != null && to != null && Arrays.compareUnsigned(from, to) > 0) {
            LOG.warn("Store {}: returning no rows, since the first key of the range is behind the last", name());
            last = first - 1;
        }
        return new BucketRows(
                storage(),
                isCommitted,
                isReverse,
                buckets.bucket(first),
                last < first ? buckets.bucket(first) - 1 : buckets.bucket(last),
                bucket -> buckets.range(bucket, from, to, first, timeTo),
                row -> isWithin(row, from, to, first, timeTo) && filter.test(row));
    }

    private boolean isWithin(byte[] row, byte[] from, byte[] to, long first, long last) {
        long time = buckets.firstTime(row);
        if (time < first || time > last) {
            return false;
        }
        return (from == null || buckets.compareKey(row, from) >= 0) && (to == null || buckets.compareKey(row, to) <= 0);
    }

    @Override
    void restore(Storage open, Collection<ConsumerRecord<byte[], byte[]>> records) {
        for (ConsumerRecord<byte[], byte[]> record : records) {
            streamTime = Math.max(streamTime, buckets.timeOfChangelog(record.key()));
        }
        expire();
        long liveFrom = liveFrom();
        open.restore(rows -> {
            for (ConsumerRecord<byte[], byte[]> record : records) {
                if (buckets.timeOfChangelog(record.key()) >= liveFrom) {
                    rows.put(buckets.ofChangelog(record.key()), record.value());
                }
            }
        });
    }
}
