package io.github.braiddb.kafka.streams;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.File;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.Optional;
import java.util.Random;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.query.MultiVersionedKeyQuery;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.Query;
import org.apache.kafka.streams.query.QueryConfig;
import org.apache.kafka.streams.query.VersionedKeyQuery;
import org.apache.kafka.streams.state.VersionedBytesStore;
import org.apache.kafka.streams.state.VersionedKeyValueStore;
import org.apache.kafka.streams.state.VersionedRecord;
import org.apache.kafka.streams.state.VersionedRecordIterator;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Random calls on a versioned store, compared with a map of all changes of each key. */
class VersionsModelTest {
    private static final double VOLUME = Double.parseDouble(System.getProperty("braiddb.volume", "1"));
    private static final TopicPartition PARTITION = new TopicPartition(TestContext.CHANGELOG, 0);
    private static final long RETENTION_MS = Duration.ofMinutes(5).toMillis();

    /** Changes are at multiples of it, so that their times meet. */
    private static final long STEP_MS = 5000;

    private final Random random = new Random(46);
    private final List<String> keys = List.of("a", "b", "ab", "", "abc", "b\0");
    private final Map<String, NavigableMap<Long, Optional<String>>> model = new HashMap<>();
    private final List<ConsumerRecord<byte[], byte[]>> changelog = new ArrayList<>();
    private long streamTime = -1;
    private long now = Duration.ofHours(1).toMillis();
    private VersionedBytesStore store;
    private TestContext context;

    @TempDir
    private File directory;

    private void open(String folder) {
        context = new TestContext(new File(directory, folder), Map.of());
        store = (VersionedBytesStore)
                BraidStores.versionedKeyValueStore("store", Duration.ofMillis(RETENTION_MS)).get();
        store.init(context, store);
    }

    private static Bytes bytes(String text) {
        return Bytes.wrap(text.getBytes());
    }

    private long time() {
        return (now - random.nextInt((int) RETENTION_MS * 5 / 4) + 10_000) / STEP_MS * STEP_MS;
    }

    private NavigableMap<Long, Optional<String>> changes(String key) {
        return model.computeIfAbsent(key, k -> new TreeMap<>());
    }

    private static String text(VersionedRecord<byte[]> record) {
        return record == null ? "none" : new String(record.value()) + record.timestamp() + record.validTo();
    }

    /** Returns the text of the version of a change. */
    private String text(NavigableMap<Long, Optional<String>> changes, Map.Entry<Long, Optional<String>> change) {
        if (change == null || change.getValue().isEmpty()) {
            return "none";
        }
        return change.getValue().get() + change.getKey() + Optional.ofNullable(changes.higherKey(change.getKey()));
    }

    private String expected(String key, long time) {
        NavigableMap<Long, Optional<String>> changes = changes(key);
        Map.Entry<Long, Optional<String>> change = changes.floorEntry(time);
        boolean isExpired = time < streamTime - RETENTION_MS;
        return isExpired && change != null && changes.higherKey(change.getKey()) != null
                ? "none"
                : text(changes, change);
    }

    private List<String> expected(String key, long from, long to) {
        NavigableMap<Long, Optional<String>> changes = changes(key);
        List<String> expected = new ArrayList<>();
        for (Map.Entry<Long, Optional<String>> change : changes.headMap(to, true).entrySet()) {
            Long end = changes.higherKey(change.getKey());
            boolean isLive = to >= streamTime - RETENTION_MS
                    && end != null && end > Math.max(from, streamTime - RETENTION_MS);
            if (change.getValue().isPresent() && (end == null || isLive)) {
                expected.add(text(changes, change));
            }
        }
        return expected;
    }

    private static String decode(byte[] record) {
        return record == null
                ? "none"
                : new String(record, 8, record.length - 8) + ByteBuffer.wrap(record).getLong();
    }

    private <R> R answer(Query<R> query) {
        return store.query(query, PositionBound.unbounded(), new QueryConfig(false)).getResult();
    }

    private static List<String> texts(VersionedRecordIterator<byte[]> records) {
        List<String> texts = new ArrayList<>();
        records.forEachRemaining(record -> texts.add(text(record)));
        return texts;
    }

    private void put(String key, String value, long time) {
        byte[] bytes = value == null ? null : value.getBytes();
        long end = store.put(bytes(key), bytes, time);
        if (time < streamTime - RETENTION_MS) {
            assertEquals(VersionedKeyValueStore.PUT_RETURN_CODE_NOT_PUT, end);
            return;
        }
        changelog.add(new ConsumerRecord<>(
                TestContext.CHANGELOG, 0, changelog.size(), time, TimestampType.CREATE_TIME, 0, 0, key.getBytes(),
                bytes, new RecordHeaders(), Optional.empty()));
        streamTime = Math.max(streamTime, time);
        changes(key).put(time, Optional.ofNullable(value));
        Long next = changes(key).higherKey(time);
        assertEquals(next == null ? VersionedKeyValueStore.PUT_RETURN_CODE_VALID_TO_UNDEFINED : next, end);
    }

    private void checkReads() {
        String key = keys.get(random.nextInt(keys.size()));
        long time = time() + random.nextInt(3) - 1;
        long other = time();
        assertEquals(expected(key, time), text(answer(
                VersionedKeyQuery.<Bytes, byte[]>withKey(bytes(key)).asOf(Instant.ofEpochMilli(time)))));
        assertEquals(
                expected(key, time).replaceFirst("Optional.*", ""), decode(store.get(bytes(key), time)));
        assertEquals(
                expected(key, Long.MAX_VALUE).replaceFirst("Optional.*", ""), decode(store.get(bytes(key))));
        MultiVersionedKeyQuery<Bytes, byte[]> many = MultiVersionedKeyQuery.<Bytes, byte[]>withKey(bytes(key))
                .fromTime(Instant.ofEpochMilli(Math.min(time, other)))
                .toTime(Instant.ofEpochMilli(Math.max(time, other)));
        List<String> expected = expected(key, Math.min(time, other), Math.max(time, other));
        assertEquals(expected, texts(answer(many.withAscendingTimestamps())));
        Collections.reverse(expected);
        assertEquals(expected, texts(answer(many.withDescendingTimestamps())));
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void randomCalls_matchTheChanges(boolean isRestored) {
        open("first");
        for (int step = 0; step < 10_000 * VOLUME; step++) {
            String key = keys.get(random.nextInt(keys.size()));
            switch (random.nextInt(8)) {
                case 0, 1, 2 -> {
                    put(key, random.nextInt(3) == 0 ? null : "value " + random.nextInt(1000) + "@", time());
                    now += random.nextInt(500);
                }
                case 3 -> {
                    long time = time();
                    if (time >= streamTime - RETENTION_MS) {
                        String found = expected(key, time).replaceFirst("Optional.*", "");
                        assertEquals(found, decode(store.delete(bytes(key), time)));
                        changelog.add(new ConsumerRecord<>(
                                TestContext.CHANGELOG, 0, changelog.size(), time, TimestampType.CREATE_TIME, 0, 0,
                                key.getBytes(), null, new RecordHeaders(), Optional.empty()));
                        changes(key).put(time, Optional.empty());
                        streamTime = Math.max(streamTime, time);
                    }
                }
                default -> checkReads();
            }
            if (step % 1000 == 999) {
                store.commit(Map.of(PARTITION, (long) step));
                store.close();
                if (isRestored) {
                    // A store that is lost comes back from the changelog.
                    open("step " + step);
                    for (int at = 0; at < changelog.size(); at += 300) {
                        context.restore("store", changelog.subList(at, Math.min(at + 300, changelog.size())));
                    }
                } else {
                    open("first");
                    assertEquals(step, store.committedOffset(PARTITION));
                }
            }
        }
        store.close();
    }
}
