package io.github.braiddb.kafka.streams;

import java.util.List;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.VersionedBytesStore;

/** The calls of a versioned store. Those of a plain key-value store, without timestamps, fail. */
interface VersionedCalls extends VersionedBytesStore {
    static UnsupportedOperationException unsupported() {
        return new UnsupportedOperationException(
                "A versioned store takes a timestamp with each write, and has no scans; its views have no writes");
    }

    @Override
    default void put(Bytes key, byte[] value) {
        throw unsupported();
    }

    @Override
    default byte[] putIfAbsent(Bytes key, byte[] value) {
        throw unsupported();
    }

    @Override
    default void putAll(List<KeyValue<Bytes, byte[]>> entries) {
        throw unsupported();
    }

    @Override
    default byte[] delete(Bytes key) {
        throw unsupported();
    }

    @Override
    default KeyValueIterator<Bytes, byte[]> range(Bytes from, Bytes to) {
        throw unsupported();
    }

    @Override
    default KeyValueIterator<Bytes, byte[]> all() {
        throw unsupported();
    }

    @Override
    default long approximateNumEntries() {
        throw unsupported();
    }
}
