package io.github.braiddb.kafka.streams;

import java.time.Instant;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.ReadOnlyWindowStore;
import org.apache.kafka.streams.state.WindowStoreIterator;

/** Reads of a window store: with the uncommitted rows, or without. */
record WindowView(BraidWindowStore store, boolean isCommitted) implements ReadOnlyWindowStore<Bytes, byte[]> {
    @Override
    public byte[] fetch(Bytes key, long start) {
        return store.window(key, start, isCommitted);
    }

    @Override
    public WindowStoreIterator<byte[]> fetch(Bytes key, Instant from, Instant to) {
        return store.windows(key, from.toEpochMilli(), to.toEpochMilli(), false, isCommitted);
    }

    @Override
    public WindowStoreIterator<byte[]> backwardFetch(Bytes key, Instant from, Instant to) {
        return store.windows(key, from.toEpochMilli(), to.toEpochMilli(), true, isCommitted);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetch(Bytes keyFrom, Bytes keyTo, Instant from, Instant to) {
        return store.windows(keyFrom, keyTo, from.toEpochMilli(), to.toEpochMilli(), false, isCommitted);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetch(
            Bytes keyFrom, Bytes keyTo, Instant from, Instant to) {
        return store.windows(keyFrom, keyTo, from.toEpochMilli(), to.toEpochMilli(), true, isCommitted);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> all() {
        return store.windows(null, null, 0, Long.MAX_VALUE, false, isCommitted);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardAll() {
        return store.windows(null, null, 0, Long.MAX_VALUE, true, isCommitted);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> fetchAll(Instant from, Instant to) {
        return store.windows(null, null, from.toEpochMilli(), to.toEpochMilli(), false, isCommitted);
    }

    @Override
    public KeyValueIterator<Windowed<Bytes>, byte[]> backwardFetchAll(Instant from, Instant to) {
        return store.windows(null, null, from.toEpochMilli(), to.toEpochMilli(), true, isCommitted);
    }
}
