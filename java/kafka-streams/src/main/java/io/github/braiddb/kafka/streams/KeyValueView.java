package io.github.braiddb.kafka.streams;

import java.util.Objects;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Reads of a key-value store: with the uncommitted rows, or without. */
final class KeyValueView implements ReadOnlyKeyValueStore<Bytes, byte[]> {
    private static final Logger LOG = LoggerFactory.getLogger(BraidKeyValueStore.class);

    private final BraidStore store;
    private final boolean isCommitted;

    KeyValueView(BraidStore store, boolean isCommitted) {
        this.store = store;
        this.isCommitted = isCommitted;
    }

    @Override
    public byte[] get(Bytes key) {
        Objects.requireNonNull(key, "key cannot be null");
        return store.storage().get(key.get(), isCommitted);
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> range(Bytes from, Bytes to) {
        return range(from, to, false);
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> reverseRange(Bytes from, Bytes to) {
        return range(from, to, true);
    }

    private KeyValueIterator<Bytes, byte[]> range(Bytes from, Bytes to, boolean isReverse) {
        Range range = new Range(from == null ? null : from.get(), to == null ? null : to.get(), true, isReverse);
        if (range.isEmpty()) {
            // Serializers that do not keep the order of keys, as of negative integers, make such ranges.
            LOG.warn("Store {}: returning no rows, since the first key of the range is behind the last", store.name());
        }
        return store.storage().scan(range, isCommitted);
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> all() {
        return store.storage().scan(Range.ALL, isCommitted);
    }

    @Override
    public KeyValueIterator<Bytes, byte[]> reverseAll() {
        return store.storage().scan(Range.ALL.reversed(true), isCommitted);
    }

    @Override
    public <PS extends Serializer<P>, P> KeyValueIterator<Bytes, byte[]> prefixScan(P prefix, PS serializer) {
        Objects.requireNonNull(prefix, "prefix cannot be null");
        Objects.requireNonNull(serializer, "prefixKeySerializer cannot be null");
        return store.storage().scan(Range.prefix(serializer.serialize(null, prefix)), isCommitted);
    }

    @Override
    public long approximateNumEntries() {
        return store.storage().rowsEstimate(isCommitted);
    }
}
