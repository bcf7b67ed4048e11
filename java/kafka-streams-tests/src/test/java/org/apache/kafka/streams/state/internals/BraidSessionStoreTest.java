package org.apache.kafka.streams.state.internals;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import io.github.braiddb.kafka.streams.BraidStores;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.Stores;
import org.junit.jupiter.api.Test;

/** Kafka's tests of a session store. The one that checks the text of a warning checks only the result here. */
public class BraidSessionStoreTest extends AbstractSessionBytesStoreTest {
    private int stores;

    /** Some tests open a second store beside that of the setup, so each has a name of its own. */
    @Override
    <K, V> SessionStore<K, V> buildSessionStore(long retentionPeriod, Serde<K> keySerde, Serde<V> valueSerde) {
        return Stores.sessionStoreBuilder(
                        BraidStores.sessionStore("session-store-" + stores++, Duration.ofMillis(retentionPeriod)),
                        keySerde,
                        valueSerde)
                .build();
    }

    /** One of the types that find the sessions of all keys by time. */
    @Override
    StoreType storeType() {
        return StoreType.RocksDBTimeOrderedSessionStoreWithIndex;
    }

    /** Kafka's own test reads and restores a store that is closed. A store of BraidDB is opened first. */
    @Override
    @Test
    public void shouldRestore() {
        List<KeyValue<Windowed<String>, Long>> expected = List.of(
                KeyValue.pair(new Windowed<>("a", new SessionWindow(0, 0)), 1L),
                KeyValue.pair(new Windowed<>("a", new SessionWindow(10, 10)), 2L),
                KeyValue.pair(new Windowed<>("a", new SessionWindow(100, 100)), 3L),
                KeyValue.pair(new Windowed<>("a", new SessionWindow(1000, 1000)), 4L));
        List<KeyValue<byte[], byte[]>> changelog = new ArrayList<>();
        for (KeyValue<Windowed<String>, Long> session : expected) {
            sessionStore.put(session.key, session.value);
            changelog.add(KeyValue.pair(
                    SessionKeySchema.toBinary(session.key, Serdes.String().serializer(), null, "any"),
                    Serdes.Long().serializer().serialize("any", session.value)));
        }
        sessionStore.close();
        sessionStore = buildSessionStore(10_000, Serdes.String(), Serdes.Long());
        sessionStore.init(context, sessionStore);
        assertFalse(sessionStore.fetch("a").hasNext());

        context.restore(sessionStore.name(), changelog);
        try (KeyValueIterator<Windowed<String>, Long> found = sessionStore.fetch("a")) {
            assertEquals(expected, Utils.toList(found));
        }
    }

    @Override
    @Test
    public void shouldNotThrowInvalidRangeExceptionWithNegativeFromKey() {
        sessionStore.put(new Windowed<>("b", new SessionWindow(0, 1)), 1L);
        sessionStore.put(new Windowed<>("a", new SessionWindow(0, 1)), 1L);
        assertFalse(sessionStore.findSessions("b", "a", 0L, 10L).hasNext());
        assertFalse(sessionStore.backwardFindSessions("b", "a", 0L, 10L).hasNext());
    }
}
