package io.github.braiddb.kafka.streams;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.Random;
import java.util.TreeMap;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.BytesSerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.ReadOnlyKeyValueStore;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Random calls on a key-value store, compared with a map; with commits, restarts and lost processes. */
class KeyValueModelTest {
    private static final TopicPartition PARTITION = new TopicPartition(TestContext.CHANGELOG, 0);
    private static final double VOLUME = Double.parseDouble(System.getProperty("braiddb.volume", "1"));

    private final Random random = new Random(20261130);
    private NavigableMap<Bytes, String> model = new TreeMap<>();
    private NavigableMap<Bytes, String> committed = new TreeMap<>();
    private long offset;
    private long committedOffset = -1;
    private boolean isTransactional;
    private KeyValueStore<Bytes, byte[]> store;
    private TestContext context;

    /** An open iterator, with the rows that it must return. */
    private record Open(KeyValueIterator<Bytes, byte[]> rows, List<Map.Entry<Bytes, String>> expected) {}

    @TempDir
    private File directory;

    private Bytes key() {
        byte[] key = new byte[random.nextInt(3)];
        for (int i = 0; i < key.length; i++) {
            key[i] = (byte) (random.nextBoolean() ? random.nextInt(4) : 252 + random.nextInt(4));
        }
        return Bytes.wrap(key);
    }

    private static byte[] bytes(String value) {
        return value == null ? null : value.getBytes();
    }

    private void open(boolean isExactlyOnce, long writeBuffer) {
        Map<String, Object> configs = new HashMap<>();
        if (isExactlyOnce) {
            configs.putAll(TestContext.exactlyOnce(isTransactional));
        }
        configs.put(StreamsConfig.TRANSACTIONAL_STATE_STORES_CONFIG, isTransactional);
        configs.put(BraidStoreConfig.WRITE_BUFFER_BYTES, writeBuffer);
        context = new TestContext(directory, configs);
        store = BraidStores.keyValueStore("store").get();
        store.init(context, store);
    }

    private static void check(
            KeyValueIterator<Bytes, byte[]> rows, Iterable<Map.Entry<Bytes, String>> expected, int limit) {
        int count = 0;
        for (Map.Entry<Bytes, String> row : expected) {
            if (count++ == limit) {
                return;
            }
            assertTrue(rows.hasNext());
            assertEquals(row.getKey(), rows.peekNextKey());
            KeyValue<Bytes, byte[]> found = rows.next();
            assertEquals(row.getKey(), found.key);
            assertEquals(row.getValue(), new String(found.value));
        }
        assertFalse(rows.hasNext());
    }

    private void checkReads(ReadOnlyKeyValueStore<Bytes, byte[]> reads, NavigableMap<Bytes, String> expected) {
        Bytes key = key();
        assertArrayEquals(bytes(expected.get(key)), reads.get(key));
        Bytes from = random.nextInt(5) == 0 ? null : key();
        Bytes to = random.nextInt(5) == 0 ? null : key();
        NavigableMap<Bytes, String> part = expected;
        if (from != null && to != null && from.compareTo(to) > 0) {
            part = new TreeMap<>();
        } else {
            part = from == null ? part : part.tailMap(from, true);
            part = to == null ? part : part.headMap(to, true);
        }
        try (KeyValueIterator<Bytes, byte[]> rows = reads.range(from, to)) {
            check(rows, part.entrySet(), Integer.MAX_VALUE);
        }
        try (KeyValueIterator<Bytes, byte[]> rows = reads.reverseRange(from, to)) {
            check(rows, part.descendingMap().entrySet(), Integer.MAX_VALUE);
        }
        Bytes prefix = key();
        List<Map.Entry<Bytes, String>> prefixed = new ArrayList<>();
        for (Map.Entry<Bytes, String> row : expected.entrySet()) {
            if (startsWith(row.getKey(), prefix)) {
                prefixed.add(row);
            }
        }
        try (KeyValueIterator<Bytes, byte[]> rows =
                reads.prefixScan(prefix, new BytesSerializer())) {
            check(rows, prefixed, Integer.MAX_VALUE);
        }
    }

    /** Compares without the code under test. */
    private static boolean startsWith(Bytes key, Bytes prefix) {
        int len = prefix.get().length;
        return key.get().length >= len && Arrays.equals(key.get(), 0, len, prefix.get(), 0, len);
    }

    private void write() {
        Bytes key = key();
        String value = random.nextInt(3) == 0 ? null : "value " + random.nextInt(1_000_000);
        context.at(++offset);
        switch (random.nextInt(4)) {
            case 0 -> {
                assertArrayEquals(bytes(model.get(key)), store.putIfAbsent(key, bytes(value)));
                if (value != null) {
                    model.putIfAbsent(key, value);
                }
                return;
            }
            case 1 -> {
                assertArrayEquals(bytes(model.remove(key)), store.delete(key));
                return;
            }
            case 2 -> store.putAll(List.of(KeyValue.pair(key, bytes(value))));
            default -> store.put(key, bytes(value));
        }
        if (value == null) {
            model.remove(key);
        } else {
            model.put(key, value);
        }
    }

    private void commit() {
        store.commit(Map.of(PARTITION, offset));
        committed = new TreeMap<>(model);
        committedOffset = offset;
    }

    /** Restarts. Lost writes are those that Kafka would repeat from the offset. */
    private void restart(boolean isExactlyOnce, long writeBuffer) {
        if (random.nextBoolean()) {
            commit();
        }
        store.close();
        if (isExactlyOnce) {
            model = new TreeMap<>(committed);
        }
        open(isExactlyOnce, writeBuffer);
        Long found = store.committedOffset(PARTITION);
        assertEquals(committedOffset < 0 ? null : (Long) committedOffset, found);
        offset = Math.max(offset, committedOffset);
    }

    @ParameterizedTest
    @CsvSource({"false,false,16777216", "true,true,16777216", "false,false,700", "true,true,700"})
    void randomCalls_matchAMap(boolean isExactlyOnce, boolean isTransactional, long writeBuffer) {
        this.isTransactional = isTransactional;
        open(isExactlyOnce, writeBuffer);
        List<Open> iterators = new ArrayList<>();
        for (int step = 0; step < 6000 * VOLUME; step++) {
            int choice = random.nextInt(100);
            if (choice < 60) {
                write();
            } else if (choice < 80) {
                checkReads(store, model);
            } else if (choice < 85) {
                checkReads(
                        store.readOnly(IsolationLevel.READ_COMMITTED),
                        isTransactional ? committed : model);
            } else if (choice < 90) {
                iterators.add(new Open(store.all(), List.copyOf(new TreeMap<>(model).entrySet())));
            } else if (choice < 95 && !iterators.isEmpty()) {
                Open open = iterators.remove(random.nextInt(iterators.size()));
                check(open.rows, open.expected, random.nextInt(20));
                open.rows.close();
            } else if (choice < 98) {
                commit();
                assertEquals(0, store.approximateNumUncommittedBytes());
            } else if (choice == 98 && random.nextInt(10) == 0) {
                iterators.forEach(open -> open.rows.close());
                iterators.clear();
                restart(isExactlyOnce, writeBuffer);
            }
        }
        iterators.forEach(open -> check(open.rows, open.expected, Integer.MAX_VALUE));
        iterators.forEach(open -> open.rows.close());
        store.close();
    }
}
