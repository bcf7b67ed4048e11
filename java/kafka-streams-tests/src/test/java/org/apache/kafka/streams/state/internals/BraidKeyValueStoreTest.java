package org.apache.kafka.streams.state.internals;

import static org.junit.jupiter.api.Assertions.assertFalse;

import io.github.braiddb.kafka.streams.BraidStores;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;
import org.junit.jupiter.api.Test;

/** Kafka's tests of a key-value store. Those that check the text of a warning check only the result here. */
public class BraidKeyValueStoreTest extends AbstractKeyValueStoreTest {
    @SuppressWarnings("unchecked")
    @Override
    protected <K, V> KeyValueStore<K, V> createKeyValueStore(StateStoreContext context) {
        StoreBuilder<KeyValueStore<K, V>> builder = Stores.keyValueStoreBuilder(
                BraidStores.keyValueStore("my-store"),
                (Serde<K>) context.keySerde(),
                (Serde<V>) context.valueSerde());
        KeyValueStore<K, V> store = builder.build();
        store.init(context, store);
        return store;
    }

    /** Puts rows, of which an unordered range could have some. */
    private void putRows() {
        for (int key = -2; key <= 2; key++) {
            store.put(key, "value " + key);
        }
    }

    private static void assertEmpty(KeyValueIterator<Integer, String> rows) {
        try (rows) {
            assertFalse(rows.hasNext());
        }
    }

    @Override
    @Test
    public void shouldNotThrowInvalidRangeExceptionWithNegativeFromKey() {
        putRows();
        assertEmpty(store.range(-1, 1));
    }

    @Override
    @Test
    public void shouldNotThrowInvalidReverseRangeExceptionWithNegativeFromKey() {
        putRows();
        assertEmpty(store.reverseRange(-1, 1));
    }

    @Override
    @Test
    public void shouldNotThrowInvalidRangeExceptionWithFromLargerThanTo() {
        putRows();
        assertEmpty(store.range(2, 1));
    }

    @Override
    @Test
    public void shouldNotThrowInvalidReverseRangeExceptionWithFromLargerThanTo() {
        putRows();
        assertEmpty(store.reverseRange(2, 1));
    }
}
