package io.github.braiddb.kafka.streams;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.errors.InvalidStateStoreException;
import org.apache.kafka.streams.errors.ProcessorStateException;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Opens, closes, commits, offsets, lost processes and restores. */
class LifecycleTest {
    private static final TopicPartition PARTITION = new TopicPartition(TestContext.CHANGELOG, 0);

    private final List<BraidKeyValueStore> opened = new ArrayList<>();
    private TestContext context;

    @TempDir
    private File directory;

    @AfterEach
    void close() {
        opened.forEach(BraidKeyValueStore::close);
    }

    private BraidKeyValueStore open(Map<String, ?> configs) {
        context = new TestContext(directory, configs);
        BraidKeyValueStore store = (BraidKeyValueStore) BraidStores.keyValueStore("store").get();
        opened.add(store);
        store.init(context, store);
        return store;
    }

    private static Map<String, Object> with(Map<String, Object> configs, String name, Object value) {
        Map<String, Object> all = new HashMap<>(configs);
        all.put(name, value);
        return all;
    }

    private static Bytes key(int number) {
        return Bytes.wrap(String.format("key %06d", number).getBytes());
    }

    private static byte[] value(int number) {
        return ("value " + number).getBytes();
    }

    private static void putMany(BraidKeyValueStore store) {
        for (int number = 0; number < 1000; number++) {
            store.put(key(number), value(number));
        }
    }

    private static int count(BraidKeyValueStore store) {
        int count = 0;
        try (KeyValueIterator<Bytes, byte[]> rows = store.all()) {
            for (; rows.hasNext(); rows.next()) {
                count++;
            }
        }
        return count;
    }

    @Test
    void commit_withoutAChange_writesNothing() {
        BraidKeyValueStore store = open(Map.of());
        store.put(key(1), value(1));
        store.commit(Map.of(PARTITION, 7L));
        long commits = store.storage().database().stats().commits();
        for (int i = 0; i < 10; i++) {
            store.commit(Map.of(PARTITION, 7L));
            store.commit(Map.of());
        }
        assertEquals(commits, store.storage().database().stats().commits());
        store.commit(Map.of(PARTITION, 8L));
        assertEquals(commits + 1, store.storage().database().stats().commits());
        assertEquals(8, store.committedOffset(PARTITION));
    }

    @Test
    void commit_ofASignedOffset_returnsItAfterARestart() {
        BraidKeyValueStore store = open(Map.of());
        assertNull(store.committedOffset(PARTITION));
        store.commit(Map.of(PARTITION, -4L));
        assertEquals(-4, store.committedOffset(PARTITION));
        store.close();
        store = open(Map.of());
        assertEquals(-4, store.committedOffset(PARTITION));
        assertNull(store.committedOffset(new TopicPartition(TestContext.CHANGELOG, 1)));
    }

    @Test
    void uncommittedBytes_ofRepeatedPuts_countTheRowOnce() {
        BraidKeyValueStore store = open(TestContext.exactlyOnce(true));
        assertEquals(0, store.approximateNumUncommittedBytes());
        store.put(key(1), value(1));
        long once = store.approximateNumUncommittedBytes();
        assertTrue(once > 10);
        for (int i = 0; i < 100; i++) {
            store.put(key(1), value(1));
        }
        assertEquals(once, store.approximateNumUncommittedBytes());
        assertEquals(1, store.approximateNumEntries());
        store.commit(Map.of());
        assertEquals(0, store.approximateNumUncommittedBytes());
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void close_atExactlyOnce_discardsUncommittedRows(boolean isTransactional) {
        BraidKeyValueStore store = open(TestContext.exactlyOnce(isTransactional));
        store.put(key(1), value(1));
        store.commit(Map.of(PARTITION, 1L));
        store.put(key(1), value(2));
        store.put(key(2), value(2));
        store.close();
        store = open(TestContext.exactlyOnce(isTransactional));
        assertArrayEquals(value(1), store.get(key(1)));
        assertNull(store.get(key(2)));
        assertEquals(1, store.committedOffset(PARTITION));
    }

    @Test
    void close_atLeastOnce_keepsUncommittedRows() {
        BraidKeyValueStore store = open(Map.of());
        store.commit(Map.of(PARTITION, 1L));
        store.put(key(1), value(1));
        store.close();
        store = open(Map.of());
        assertArrayEquals(value(1), store.get(key(1)));
        assertEquals(1, store.committedOffset(PARTITION));
    }

    /** Rows that were written before their offsets must not be read again at exactly-once. */
    @Test
    void open_afterAFullBufferWithoutCommit_emptiesTheStore() {
        Map<String, Object> configs = with(
                TestContext.exactlyOnce(false), BraidStoreConfig.WRITE_BUFFER_BYTES, 1000);
        BraidKeyValueStore store = open(configs);
        store.put(key(1), value(1));
        store.commit(Map.of(PARTITION, 1L));
        putMany(store);
        assertTrue(store.approximateNumUncommittedBytes() < 1500);
        store.close();
        store = open(configs);
        assertNull(store.committedOffset(PARTITION));
        assertEquals(0, count(store));

        // The commit after a full buffer makes the rows valid again.
        putMany(store);
        store.commit(Map.of(PARTITION, 2L));
        store.close();
        store = open(configs);
        assertEquals(2, store.committedOffset(PARTITION));
        assertEquals(1000, count(store));
    }

    @Test
    void open_atExactlyOnce_afterARunAtLeastOnce_emptiesAStoreAheadOfItsOffset() {
        BraidKeyValueStore store = open(Map.of());
        store.put(key(1), value(1));
        store.commit(Map.of(PARTITION, 1L));
        store.close();
        assertEquals(1, count(open(TestContext.exactlyOnce(true))));
        close();
        store = open(Map.of());
        store.put(key(2), value(2));
        store.close();
        store = open(TestContext.exactlyOnce(true));
        assertNull(store.committedOffset(PARTITION));
        assertEquals(0, count(store));
    }

    /** Serdes of byte arrays pass the arrays of the application. */
    @Test
    void arrays_thatTheApplicationChanges_leaveTheRow() {
        BraidKeyValueStore store = open(Map.of());
        byte[] key = {1};
        byte[] value = {1, 1};
        store.put(Bytes.wrap(key), value);
        key[0] = 2;
        value[0] = 2;
        store.get(Bytes.wrap(new byte[] {1}))[1] = 2;
        try (KeyValueIterator<Bytes, byte[]> rows = store.all()) {
            KeyValue<Bytes, byte[]> row = rows.next();
            assertArrayEquals(new byte[] {1}, row.key.get());
            row.key.get()[0] = 3;
            row.value[0] = 3;
        }
        assertArrayEquals(new byte[] {1, 1}, store.get(Bytes.wrap(new byte[] {1})));
    }

    @Test
    void put_ofAKeyThatIsTooLong_failsAtOnce() {
        BraidKeyValueStore store = open(Map.of());
        assertThrows(IllegalArgumentException.class, () -> store.put(Bytes.wrap(new byte[65_537]), value(1)));
        store.put(Bytes.wrap(new byte[65_536]), value(1));
        store.commit(Map.of());
        assertEquals(1, count(store));
    }

    @Test
    void put_withTransactions_neverWritesBeforeTheCommit() {
        BraidKeyValueStore store = open(with(
                TestContext.exactlyOnce(true), BraidStoreConfig.WRITE_BUFFER_BYTES, 1000));
        long commits = store.storage().database().stats().commits();
        putMany(store);
        assertEquals(commits, store.storage().database().stats().commits());
        assertTrue(store.approximateNumUncommittedBytes() > 100_000);
    }

    @Test
    void open_ofAnOpenDirectory_namesTheReason() {
        BraidKeyValueStore first = open(Map.of());
        ProcessorStateException failure = assertThrows(ProcessorStateException.class, () -> open(Map.of()));
        assertTrue(failure.getMessage().contains("needs its own state.dir"), failure.getMessage());
        first.put(key(1), value(1));
    }

    @Test
    void open_ofAWipedDirectory_isEmpty() throws IOException {
        BraidKeyValueStore store = open(Map.of());
        store.put(key(1), value(1));
        store.commit(Map.of(PARTITION, 1L));
        store.close();
        try (Stream<Path> files = Files.walk(directory.toPath())) {
            files.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
        }
        store = open(Map.of());
        assertNull(store.committedOffset(PARTITION));
        assertEquals(0, count(store));
    }

    @Test
    void init_ofAClosedStore_opensItAgain() {
        BraidKeyValueStore store = open(Map.of());
        assertThrows(IllegalStateException.class, () -> store.init(context, store));
        store.put(key(1), value(1));
        store.commit(Map.of());
        store.close();
        store.close();
        store.init(context, store);
        assertArrayEquals(value(1), store.get(key(1)));
    }

    @Test
    void calls_afterTheClose_throwInvalidStateStoreException() {
        BraidKeyValueStore store = open(Map.of());
        putMany(store);
        KeyValueIterator<Bytes, byte[]> started = store.all();
        started.next();
        KeyValueIterator<Bytes, byte[]> fresh = store.range(key(5), key(900));
        store.close();
        assertFalse(store.isOpen());
        assertThrows(InvalidStateStoreException.class, started::next);
        assertThrows(InvalidStateStoreException.class, fresh::hasNext);
        assertThrows(InvalidStateStoreException.class, () -> store.get(key(1)));
        assertThrows(InvalidStateStoreException.class, () -> store.put(key(1), value(1)));
        assertThrows(InvalidStateStoreException.class, () -> store.commit(Map.of()));
        assertThrows(InvalidStateStoreException.class, store::all);
        assertThrows(InvalidStateStoreException.class, store::approximateNumEntries);
        started.close();
        fresh.close();
        fresh.close();
    }

    @Test
    void iterator_beforeACommit_returnsItsRowsAfterIt() {
        BraidKeyValueStore store = open(Map.of());
        putMany(store);
        try (KeyValueIterator<Bytes, byte[]> rows = store.all()) {
            store.put(key(0), value(-1));
            store.delete(key(999));
            store.commit(Map.of());
            store.put(key(1), value(-1));
            for (int number = 0; number < 1000; number++) {
                KeyValue<Bytes, byte[]> row = rows.next();
                assertEquals(key(number), row.key);
                assertArrayEquals(value(number), row.value);
            }
            assertFalse(rows.hasNext());
        }
    }

    /** A loop that writes behind its position would not end otherwise. */
    @Test
    void iterator_withPutsBehindIt_ends() {
        BraidKeyValueStore store = open(Map.of());
        putMany(store);
        int count = 0;
        try (KeyValueIterator<Bytes, byte[]> rows = store.all()) {
            for (; rows.hasNext(); rows.next()) {
                store.put(key(10_000 + count++), value(1));
            }
        }
        assertEquals(1000, count);
    }

    @Test
    void restore_thatIsInterrupted_canBeRepeated() {
        List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        for (int offset = 0; offset < 3000; offset++) {
            byte[] value = offset % 7 == 0 ? null : value(offset);
            records.add(TestContext.record(offset, key(offset % 1000).get(), value));
        }
        BraidKeyValueStore store = open(TestContext.exactlyOnce(false));
        context.restore("store", records.subList(0, 1000));
        store.commit(Map.of(PARTITION, 999L));
        context.restore("store", records.subList(1000, 2000));
        store.close();
        store = open(TestContext.exactlyOnce(false));
        assertEquals(999, store.committedOffset(PARTITION));
        context.restore("store", records.subList(1000, 3000));
        store.commit(Map.of(PARTITION, 2999L));
        for (int number = 0; number < 1000; number++) {
            int last = number + 2000;
            assertArrayEquals(last % 7 == 0 ? null : value(last), store.get(key(number)));
        }
    }

    @Test
    void position_survivesARestart() {
        BraidKeyValueStore store = open(TestContext.exactlyOnce(true));
        context.at(5);
        store.put(key(1), value(1));
        assertEquals(5, store.getPosition().getPartitionPositions(TestContext.TOPIC).get(0));
        store.commit(Map.of(PARTITION, 1L));
        context.at(6);
        store.put(key(1), value(2));
        assertEquals(6, store.getPosition().getPartitionPositions(TestContext.TOPIC).get(0));
        store.close();
        store = open(TestContext.exactlyOnce(true));
        assertEquals(5, store.getPosition().getPartitionPositions(TestContext.TOPIC).get(0));
    }

    @Test
    void metrics_areRemovedAtTheClose() {
        BraidKeyValueStore store = open(Map.of());
        putMany(store);
        Map<String, Double> values = new HashMap<>();
        context.metrics().metrics().forEach((MetricName name, Metric metric) -> {
            if (name.name().startsWith("braiddb-")) {
                assertEquals("store", name.tags().get("braiddb-state-id"));
                values.put(name.name(), (Double) metric.metricValue());
            }
        });
        assertEquals(12, values.size(), values.toString());
        assertEquals(1000, values.get("braiddb-estimate-num-keys"));
        assertEquals(store.approximateNumUncommittedBytes(), values.get("braiddb-uncommitted-bytes"));
        assertTrue(values.get("braiddb-memory-bytes") > 0, values.toString());
        store.close();
        assertTrue(context.metrics().metrics().keySet().stream().noneMatch(name -> name.name().startsWith("braiddb-")));
    }

    @ParameterizedTest
    @ValueSource(strings = {
        BraidStoreConfig.MEMORY_BYTES, BraidStoreConfig.BACKGROUND_THREADS, BraidStoreConfig.WRITE_BUFFER_BYTES,
        BraidStoreConfig.DURABILITY
    })
    void init_withAnImpossibleSetting_namesIt(String name) {
        ConfigException failure = assertThrows(ConfigException.class, () -> open(Map.of(name, "-1")));
        assertTrue(failure.getMessage().contains(name), failure.getMessage());
    }

    @ParameterizedTest
    @ValueSource(strings = {"sync", "buffered", "NONE"})
    void durability_ofEachKind_commits(String durability) {
        BraidKeyValueStore store = open(Map.of(BraidStoreConfig.DURABILITY, durability));
        putMany(store);
        store.commit(Map.of(PARTITION, 1L));
        store.close();
        assertEquals(1000, count(open(Map.of())));
    }

    @Test
    void runtimes_withEqualSettings_areOne() {
        assertSame(Runtimes.of(64 << 20, 2), Runtimes.of(64 << 20, 2));
        assertNotSame(Runtimes.of(64 << 20, 2), Runtimes.of(65 << 20, 2));
    }
}
