package io.github.braiddb.kafka.streams;

import java.nio.ByteBuffer;
import java.time.Instant;
import java.util.Collection;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.Objects;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.query.MultiVersionedKeyQuery;
import org.apache.kafka.streams.query.Position;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.Query;
import org.apache.kafka.streams.query.QueryConfig;
import org.apache.kafka.streams.query.QueryResult;
import org.apache.kafka.streams.query.ResultOrder;
import org.apache.kafka.streams.query.VersionedKeyQuery;
import org.apache.kafka.streams.state.VersionedBytesStore;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.state.VersionedRecordIterator;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** A store of versions: {@link Versions} explains its rows. Values are returned behind their timestamps. */
final class BraidVersionedStore extends BraidStore implements VersionedCalls {
    private static final Logger LOG = LoggerFactory.getLogger(BraidVersionedStore.class);

    private final Versions versions;
    private final long retentionMs;
    private volatile long streamTime = ConsumerRecord.NO_TIMESTAMP;
    private long liveBucket = Long.MIN_VALUE;
    private Sensor dropped;

    BraidVersionedStore(String name, long retentionMs, long bucketMs) {
        super(name, new Layout(Layout.Kind.VERSIONED, Layout.Format.VERSIONED, bucketMs));
        this.retentionMs = retentionMs;
        versions = new Versions(bucketMs, retentionMs);
    }

    @Override
    void opened(Storage opened, StateStoreContext context) {
        dropped = KafkaInternals.droppedRecords(context);
        streamTime = opened.keep(Meta.TIME, ConsumerRecord.NO_TIMESTAMP, () -> streamTime);
        liveBucket = Long.MIN_VALUE;
    }

    private Versions.Reader reader(boolean isCommitted) {
        Storage open = storage();
        return new Versions.Reader() {
            @Override
            public byte[] get(byte[] key) {
                return open.get(key, isCommitted);
            }

            @Override
            public MergedRows scan(Range range) {
                return open.scan(range, isCommitted);
            }
        };
    }

    private boolean isExpired(long time) {
        return time < streamTime - retentionMs;
    }

    @Override
    public synchronized long put(Bytes key, byte[] value, long timestamp) {
        Objects.requireNonNull(key, "key cannot be null");
        Storage open = storage();
        long end = VersionedKeyValueStore.PUT_RETURN_CODE_NOT_PUT;
        if (isExpired(timestamp)) {
            dropped.record();
            LOG.warn("Skipping record for expired put.");
        } else {
            end = write(open, open::put, key.get(), value, timestamp);
        }
        moved();
        return end;
    }

    private long write(Storage open, Storage.Writer writer, byte[] key, byte[] value, long time) {
        streamTime = Math.max(streamTime, time);
        long bucket = versions.bucket(streamTime - retentionMs);
        if (bucket > liveBucket) {
            liveBucket = bucket;
            open.expire(versions.bucketStart(Long.MIN_VALUE), versions.bucketStart(bucket));
        }
        return versions.put(reader(false), writer, key, value, time, streamTime);
    }

    @Override
    public synchronized byte[] delete(Bytes key, long timestamp) {
        Objects.requireNonNull(key, "key cannot be null");
        if (isExpired(timestamp)) {
            dropped.record();
            LOG.warn("Skipping record for expired delete.");
            return null;
        }
        byte[] earlier = get(key, timestamp);
        put(key, null, timestamp);
        return earlier;
    }

    private Versions.Version find(Bytes key, boolean isCommitted) {
        Objects.requireNonNull(key, "key cannot be null");
        return Versions.latest(reader(isCommitted), key.get());
    }

    private Versions.Version find(Bytes key, long time, boolean isCommitted) {
        Objects.requireNonNull(key, "key cannot be null");
        Versions.Reader reader = reader(isCommitted);
        if (!isExpired(time)) {
            return versions.at(reader, key.get(), time, streamTime);
        }
        // The latest version has no age limit.
        Versions.Version latest = Versions.latest(reader, key.get());
        return latest != null && latest.from() <= time ? latest : null;
    }

    private static byte[] encode(Versions.Version version) {
        return version == null
                ? null
                : ByteBuffer.allocate(Long.BYTES + version.value().length)
                        .putLong(version.from()).put(version.value()).array();
    }

    @Override
    public byte[] get(Bytes key) {
        return encode(find(key, false));
    }

    @Override
    public byte[] get(Bytes key, long asOf) {
        return encode(find(key, asOf, false));
    }

    @Override
    public VersionedBytesStore readOnly(IsolationLevel isolation) {
        return isCommitted(isolation) ? new Committed() : this;
    }

    /** Reads of the committed versions. Other calls fail. */
    private final class Committed implements VersionedCalls {
        @Override
        public byte[] get(Bytes key) {
            return encode(find(key, true));
        }

        @Override
        public byte[] get(Bytes key, long asOf) {
            return encode(find(key, asOf, true));
        }

        @Override
        public long put(Bytes key, byte[] value, long timestamp) {
            throw VersionedCalls.unsupported();
        }

        @Override
        public byte[] delete(Bytes key, long timestamp) {
            throw VersionedCalls.unsupported();
        }

        @Override
        public String name() {
            return BraidVersionedStore.this.name();
        }

        @Override
        public void init(StateStoreContext context, StateStore root) {
            throw VersionedCalls.unsupported();
        }

        @Override
        public void close() {
            throw VersionedCalls.unsupported();
        }

        @Override
        public boolean persistent() {
            return true;
        }

        @Override
        public boolean isOpen() {
            return BraidVersionedStore.this.isOpen();
        }
    }

    @Override
    void restore(Storage open, Collection<ConsumerRecord<byte[], byte[]>> records) {
        for (ConsumerRecord<byte[], byte[]> record : records) {
            write(open, open::putRestored, record.key(), record.value(), record.timestamp());
        }
        open.endRestore();
    }

    @Override
    public <R> QueryResult<R> query(Query<R> query, PositionBound bound, QueryConfig config) {
        long start = System.nanoTime();
        Position position = storage().position(isCommitted(config.getIsolationLevel()));
        int partition = context().taskId().partition();
        QueryResult<R> result;
        if (!(query instanceof VersionedKeyQuery) && !(query instanceof MultiVersionedKeyQuery)) {
            result = QueryResult.forUnknownQueryType(query, this);
        } else if (!KafkaInternals.isPermitted(position, bound, partition)) {
            result = QueryResult.notUpToBound(position, bound, partition);
        } else {
            result = QueryResult.forResult(answer(query, isCommitted(config.getIsolationLevel())));
        }
        if (config.isCollectExecutionInfo()) {
            result.addExecutionInfo(
                    "Handled in " + getClass() + " in " + (System.nanoTime() - start) + "ns");
        }
        result.setPosition(position.copy());
        return result;
    }

    /** Answers one of the two queries; its class decides about the class of the result. */
    @SuppressWarnings("unchecked")
    private <R> R answer(Query<R> query, boolean isCommitted) {
        if (query instanceof VersionedKeyQuery<?, ?> one) {
            Bytes key = (Bytes) one.key();
            Versions.Version found = one.asOfTimestamp().isPresent()
                    ? find(key, one.asOfTimestamp().get().toEpochMilli(), isCommitted)
                    : find(key, isCommitted);
            return (R) (found == null ? null : found.record());
        }
        MultiVersionedKeyQuery<?, ?> many = (MultiVersionedKeyQuery<?, ?>) query;
        long from = many.fromTime().map(Instant::toEpochMilli).orElse(Long.MIN_VALUE);
        long to = many.toTime().map(Instant::toEpochMilli).orElse(Long.MAX_VALUE);
        List<VersionedRecord<byte[]>> found = versions.within(
                reader(isCommitted), ((Bytes) many.key()).get(), from, to, streamTime);
        if (many.resultOrder() != ResultOrder.ASCENDING) {
            Collections.reverse(found);
        }
        return (R) new Records(found.iterator());
    }

    /** Versions that were read already. */
    private record Records(Iterator<VersionedRecord<byte[]>> records) implements VersionedRecordIterator<byte[]> {
        @Override
        public boolean hasNext() {
            return records.hasNext();
        }

        @Override
        public VersionedRecord<byte[]> next() {
            return records.next();
        }

        @Override
        public void close() {}
    }
}
