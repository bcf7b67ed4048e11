package org.apache.kafka.streams.state.internals;

import static org.junit.jupiter.api.Assertions.assertFalse;

import io.github.braiddb.kafka.streams.BraidStores;
import java.time.Duration;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;
import org.junit.jupiter.api.Test;

/** Kafka's tests of a window store. The one that checks the text of a warning checks only the result here. */
public class BraidWindowStoreTest extends AbstractWindowBytesStoreTest {
    private int stores;

    /** Some tests open a second store beside that of the setup, so each has a name of its own. */
    @Override
    <K, V> WindowStore<K, V> buildWindowStore(
            long retentionPeriod, long windowSize, boolean retainDuplicates, Serde<K> keySerde, Serde<V> valueSerde) {
        return Stores.windowStoreBuilder(
                        BraidStores.windowStore(
                                "window-store-" + stores++,
                                Duration.ofMillis(retentionPeriod),
                                Duration.ofMillis(windowSize),
                                retainDuplicates),
                        keySerde,
                        valueSerde)
                .build();
    }

    @Override
    @Test
    public void shouldNotThrowInvalidRangeExceptionWithNegativeFromKey() {
        windowStore.put(-1, "value", 1);
        windowStore.put(1, "value", 1);
        assertFalse(windowStore.fetch(-1, 1, 0L, 10L).hasNext());
        assertFalse(windowStore.backwardFetch(-1, 1, 0L, 10L).hasNext());
    }
}
