package io.github.braiddb.kafka.streams;

import java.util.Collection;
import java.util.List;
import java.util.Objects;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.state.HeadersBytesStore;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;
import org.apache.kafka.streams.state.TimestampedBytesStore;

/** A key-value store. The subclasses only state the form of their values. */
class BraidKeyValueStore extends BraidStore implements KeyValueStore<Bytes, byte[]> {
    private final KeyValueView all = new KeyValueView(this, false);
    private final KeyValueView committed = new KeyValueView(this, true);

    BraidKeyValueStore(String name, Layout.Format format) {
        super(name, new Layout(Layout.Kind.KEY_VALUE, format, 0));
    }

    static BraidKeyValueStore of(String name, Layout.Format format) {
        return switch (format) {
            case TIMESTAMPED -> new Timestamped(name);
            case HEADERS -> new WithHeaders(name);
            default -> new BraidKeyValueStore(name, format);
        };
    }

    /** A store whose values begin with a timestamp. */
    static final class Timestamped extends BraidKeyValueStore implements TimestampedBytesStore {
        private Timestamped(String name) {
            super(name, Layout.Format.TIMESTAMPED);
        }
    }

    /** A store whose values begin with headers and a timestamp. */
    static final class WithHeaders extends BraidKeyValueStore implements HeadersBytesStore {
        private WithHeaders(String name) {
            super(name, Layout.Format.HEADERS);
        }
    }

    @Override
    public synchronized void put(Bytes key, byte[] value) {
        Objects.requireNonNull(key, "key cannot be null");
        storage().put(key.get(), value);
        moved();
    }

    @Override
    public synchronized byte[] putIfAbsent(Bytes key, byte[] value) {
        byte[] earlier = get(key);
        if (earlier == null) {
            put(key, value);
        }
        return earlier;
    }

    @Override
    public synchronized void putAll(List<KeyValue<Bytes, byte[]>> entries) {
        for (KeyValue<Bytes, byte[]> entry : entries) {
            Objects.requireNonNull(entry.key, "key cannot be null");
        }
        for (KeyValue<Bytes, byte[]> entry : entries) {
            put(entry.key, entry.value);
        }
    }

    @Override
    public synchronized byte[] delete(Bytes key) {
        byte[] earlier = get(key);
        put(key, null);
        return earlier;
    }

    @Override
    void restore(Storage open, Collection<ConsumerRecord<byte[], byte[]>> records) {
        open.restore(rows -> records.forEach(record -> rows.put(record.key(), record.value())));
    }

    @Override
    public ReadOnlyKeyValueStore<Bytes, byte[]> readOnly(IsolationLevel isolation) {
        return isCommitted(isolation) ? committed : all;
    }

    @Override
    public byte[] get(Bytes key) {
        return all.get(key);
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> range(Bytes from, Bytes to) {
        return all.range(from, to);
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> reverseRange(Bytes from, Bytes to) {
        return all.reverseRange(from, to);
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> all() {
        return all.all();
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> reverseAll() {
        return all.reverseAll();
    }

    @Override
    public <PS extends Serializer<P>, P> KeyValueIterator<Bytes, byte[]> prefixScan(P prefix, PS serializer) {
        return all.prefixScan(prefix, serializer);
    }

    @Override
    public long approximateNumEntries() {
        return all.approximateNumEntries();
    }
}
