package io.github.braiddb.kafka.streams;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.math.BigInteger;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Queries of other threads beside a writer that commits, until the store closes. */
class ConcurrentTest {
    private static final int KEYS = 20;
    private static final int READERS = 3;

    @TempDir
    private File directory;

    private static byte[] bytes(int number) {
        return new byte[] {(byte) (number >> 24), (byte) (number >> 16), (byte) (number >> 8), (byte) number};
    }

    private static int number(byte[] bytes) {
        return new BigInteger(bytes).intValue();
    }

    /** The writer sets all keys in order, round by round: a later key never has a later round. */
    private static void check(ReadOnlyKeyValueStore<Bytes, byte[]> reads) {
        List<Integer> rounds = new ArrayList<>();
        try (KeyValueIterator<Bytes, byte[]> rows = reads.all()) {
            rows.forEachRemaining(row -> rounds.add(number(row.value)));
        }
        assertEquals(KEYS, rounds.size());
        for (int i = 1; i < KEYS; i++) {
            assertTrue(rounds.get(i) <= rounds.get(i - 1), rounds::toString);
        }
        assertTrue(rounds.get(0) - rounds.get(KEYS - 1) <= 1, rounds::toString);
    }

    @ParameterizedTest
    @EnumSource(IsolationLevel.class)
    void queries_besideCommits_seeOneState(IsolationLevel isolation) throws InterruptedException {
        KeyValueStore<Bytes, byte[]> store = BraidStores.keyValueStore("store").get();
        store.init(new TestContext(directory, TestContext.exactlyOnce(true)), store);
        for (int key = 0; key < KEYS; key++) {
            store.put(Bytes.wrap(bytes(key)), bytes(0));
        }
        store.commit(Map.of());
        AtomicReference<Throwable> failure = new AtomicReference<>();
        AtomicLong checks = new AtomicLong();
        List<Thread> readers = new ArrayList<>();
        for (int i = 0; i < READERS; i++) {
            Thread reader = new Thread(() -> {
                try {
                    while (store.isOpen()) {
                        check(store.readOnly(isolation));
                        checks.incrementAndGet();
                    }
                } catch (InvalidStateStoreException e) {
                    // The store has closed.
                } catch (Throwable e) {
                    failure.compareAndSet(null, e);
                }
            });
            reader.start();
            readers.add(reader);
        }
        Random random = new Random(1);
        long end = System.nanoTime() + 1_500_000_000;
        for (int round = 1; System.nanoTime() < end; round++) {
            for (int key = 0; key < KEYS; key++) {
                store.put(Bytes.wrap(bytes(key)), bytes(round));
                if (random.nextInt(10) == 0) {
                    store.commit(Map.of());
                }
            }
        }
        store.close();
        for (Thread reader : readers) {
            reader.join(60_000);
        }
        assertNull(failure.get(), () -> String.valueOf(failure.get()));
        assertTrue(checks.get() > 100, "checks: " + checks);
    }
}
