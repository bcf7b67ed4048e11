package io.github.braiddb.kafka.streams;

import java.util.function.Function;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.WindowStoreIterator;

/** Rows under other keys, such as windows. */
class Mapped<K> implements KeyValueIterator<K, byte[]> {
    private final KeyValueIterator<Bytes, byte[]> rows;
    private final Function<byte[], K> key;

    Mapped(KeyValueIterator<Bytes, byte[]> rows, Function<byte[], K> key) {
        this.rows = rows;
        this.key = key;
    }

    /** Rows under the starts of their windows. */
    static final class Starts extends Mapped<Long> implements WindowStoreIterator<byte[]> {
        Starts(KeyValueIterator<Bytes, byte[]> rows, Function<byte[], Long> key) {
            super(rows, key);
        }
    }

    @Override
    public boolean hasNext() {
        return rows.hasNext();
    }

    @Override
    public KeyValue<K, byte[]> next() {
        KeyValue<Bytes, byte[]> row = rows.next();
        return KeyValue.pair(key.apply(row.key.get()), row.value);
    }

    @Override
    public K peekNextKey() {
        return key.apply(rows.peekNextKey().get());
    }

    @Override
    public void close() {
        rows.close();
    }
}
