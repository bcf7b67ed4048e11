package io.github.braiddb.kafka.streams;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.File;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.function.Function;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.query.PositionBound;
import org.apache.kafka.streams.query.Query;
import org.apache.kafka.streams.query.QueryConfig;
import org.apache.kafka.streams.query.QueryResult;
import org.apache.kafka.streams.query.WindowKeyQuery;
import org.apache.kafka.streams.query.WindowRangeQuery;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Random calls on a store of BraidDB and on the one of Kafka 4.4.0, with equal results. */
class SameAsKafkaTest {
    private static final double VOLUME = Double.parseDouble(System.getProperty("braiddb.volume", "1"));
    private static final Duration RETENTION = Duration.ofMinutes(5);
    private static final QueryConfig CONFIG = new QueryConfig(false);

    private final Random random = new Random(46);
    private final List<String> keys = List.of("a", "b", "ab", "aa", "", "\uFFFF", "abc", "c", "b\0");


    /** The stream time grows; times of calls are around it. */
    private long now = Duration.ofHours(1).toMillis();

    private String text = "";

    @TempDir
    private File directory;

    private TopologyTestDriver driver(boolean isCached, StoreBuilder<?>... stores) {
        Topology topology = new Topology();
        topology.addSource("source", new StringDeserializer(), new StringDeserializer(), "input").addProcessor("processor", () -> new ContextualProcessor<String, String, Void, Void>() {
            @Override
            public void process(Record<String, String> record) {}
        }, "source");
        for (StoreBuilder<?> store : stores) {
            if (isCached) {
                store.withCachingEnabled();
            }
            topology.addStateStore(store, "processor");
        }
        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, "same");
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "none:1");
        properties.put(StreamsConfig.STATE_DIR_CONFIG, directory.getPath());
        properties.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, isCached ? "100000000" : "0");
        return new TopologyTestDriver(topology, properties);
    }

    private String key() {
        return keys.get(random.nextInt(keys.size()));
    }

    private String bound() {
        return keys.get(random.nextInt(keys.size() - 1));
    }

    private String orNull(String text) {
        return random.nextInt(6) == 0 ? null : text;
    }

    private String value() {
        return "value " + random.nextInt(1000);
    }

    private long time() {
        return now - random.nextInt((int) RETENTION.toMillis() * 3 / 2) + 10_000;
    }

    private static <R> List<R> rows(Iterator<R> rows) {
        List<R> list = new ArrayList<>();
        rows.forEachRemaining(list::add);
        return list;
    }

    /** Notes the arguments of the next calls, for the message of a failure. */
    private void arguments(Object... arguments) {
        text = Arrays.toString(arguments);
    }

    private <S, R> void same(S ours, S kafkas, Function<S, R> call) {
        assertEquals(result(kafkas, call), result(ours, call), text);
    }

    private static <S, R> Object result(S store, Function<S, R> call) {
        R result = call.apply(store);
        if (result instanceof KeyValueIterator<?, ?> rows) {
            try (rows) {
                return rows(rows);
            }
        }
        return result;
    }

    private static <R> Object answer(StateStore store, Query<R> query, Function<R, Object> text) {
        QueryResult<R> result = store.query(query, PositionBound.unbounded(), CONFIG);
        return result.isFailure() ? result.getFailureReason() : text.apply(result.getResult());
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void windows(boolean isCached) {
        Duration size = Duration.ofSeconds(30);
        try (TopologyTestDriver driver = driver(
                isCached,
                Stores.windowStoreBuilder(
                        BraidStores.windowStore("ours", RETENTION, size, false), Serdes.String(), Serdes.String())
                        .withLoggingDisabled(),
                Stores.windowStoreBuilder(
                        Stores.persistentWindowStore("kafkas", RETENTION, size, false), Serdes.String(),
                        Serdes.String()).withLoggingDisabled())) {
            runWindows(isCached, driver.getWindowStore("ours"), driver.getWindowStore("kafkas"));
        }
    }

    @Test
    void windowsWithDuplicates() {
        Duration size = Duration.ofSeconds(30);
        try (TopologyTestDriver driver = driver(
                false,
                Stores.windowStoreBuilder(
                        BraidStores.windowStore("ours", RETENTION, size, true), Serdes.String(), Serdes.String())
                        .withLoggingDisabled(),
                Stores.windowStoreBuilder(
                        Stores.persistentWindowStore("kafkas", RETENTION, size, true), Serdes.String(),
                        Serdes.String()).withLoggingDisabled())) {
            runWindows(false, driver.getWindowStore("ours"), driver.getWindowStore("kafkas"));
        }
    }

    private void runWindows(boolean isCached, WindowStore<String, String> ours, WindowStore<String, String> kafkas) {
        for (int step = 0; step < 2000 * VOLUME; step++) {
            String key = key();
            String from = orNull(bound());
            String to = orNull(bound());
            long start = time();
            long oneTime = time();
            long otherTime = time();
            Instant first = Instant.ofEpochMilli(isCached ? Math.min(oneTime, otherTime) : oneTime);
            Instant last = Instant.ofEpochMilli(isCached ? Math.max(oneTime, otherTime) : otherTime);
            arguments(key, from, to, start, first.toEpochMilli(), last.toEpochMilli(), step, now);
            switch (random.nextInt(14)) {
                case 0, 1, 2, 3, 4, 5 -> {
                    String value = orNull(value());
                    ours.put(key, value, start);
                    kafkas.put(key, value, start);
                    now += random.nextInt(500);
                }
                case 6 -> same(ours, kafkas, store -> store.fetch(key, start));
                case 7 -> same(ours, kafkas, store -> store.fetch(key, first, last));
                case 8 -> same(ours, kafkas, store -> store.backwardFetch(key, first, last));
                case 9 -> same(ours, kafkas, store -> store.fetch(from, to, first, last));
                case 10 -> same(ours, kafkas, store -> store.backwardFetch(from, to, first, last));
                case 11 -> {
                    same(ours, kafkas, store -> store.fetchAll(first, last));
                    same(ours, kafkas, store -> store.backwardFetchAll(first, last));
                }
                case 12 -> {
                    same(ours, kafkas, WindowStore::all);
                    same(ours, kafkas, WindowStore::backwardAll);
                }
                default -> {
                    ours.commit(Map.of());
                    kafkas.commit(Map.of());
                    same(ours, kafkas, store -> answer(
                            store, WindowKeyQuery.withKeyAndWindowStartRange(key, first, last),
                            SameAsKafkaTest::rows));
                    same(ours, kafkas, store -> answer(
                            store, WindowRangeQuery.<String, String>withWindowStartRange(first, last),
                            SameAsKafkaTest::rows));
                }
            }
            if (step % 500 == 499) {
                ours.commit(Map.of());
                kafkas.commit(Map.of());
            }
        }
    }

    /** Kafka's cache throws for most backward reads of sessions, so they are compared without one. */
    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void sessions(boolean isCached) {
        try (TopologyTestDriver driver = driver(
                isCached,
                Stores.sessionStoreBuilder(
                        BraidStores.sessionStore("ours", RETENTION), Serdes.String(), Serdes.String())
                        .withLoggingDisabled(),
                Stores.sessionStoreBuilder(
                        Stores.persistentSessionStore("kafkas", RETENTION), Serdes.String(), Serdes.String())
                        .withLoggingDisabled())) {
            SessionStore<String, String> ours = driver.getSessionStore("ours");
            SessionStore<String, String> kafkas = driver.getSessionStore("kafkas");
            for (int step = 0; step < 2000 * VOLUME; step++) {
                String key = key();
                String from = orNull(bound());
                String to = orNull(bound());
                long oneTime = time();
                long otherTime = time();
                long first = isCached ? Math.min(oneTime, otherTime) : oneTime;
                long last = isCached ? Math.max(oneTime, otherTime) : otherTime;
                arguments(key, from, to, first, last, step, now);
                Windowed<String> session = new Windowed<>(
                        key, new SessionWindow(Math.min(first, last), Math.max(first, last)));
                switch (random.nextInt(12)) {
                    case 0, 1, 2, 3, 4 -> {
                        String value = orNull(value());
                        ours.put(session, value);
                        kafkas.put(session, value);
                        now += random.nextInt(500);
                    }
                    case 5 -> {
                        ours.remove(session);
                        kafkas.remove(session);
                    }
                    case 6 -> same(ours, kafkas, store -> store.fetchSession(
                            key, session.window().start(), session.window().end()));
                    case 7 -> same(ours, kafkas, store -> store.findSessions(key, first, last));
                    case 8 -> {
                        if (!isCached) {
                            same(ours, kafkas, store -> store.backwardFindSessions(key, first, last));
                        }
                    }
                    case 9 -> {
                        same(ours, kafkas, store -> store.findSessions(from, to, first, last));
                        if (!isCached) {
                            same(ours, kafkas, store -> store.backwardFindSessions(from, to, first, last));
                        }
                    }
                    case 10 -> {
                        same(ours, kafkas, store -> store.fetch(key));
                        same(ours, kafkas, store -> store.backwardFetch(key));
                    }
                    default -> {
                        same(ours, kafkas, store -> store.fetch(from, to));
                        ours.commit(Map.of());
                        kafkas.commit(Map.of());
                        same(ours, kafkas, store -> answer(
                                store, WindowRangeQuery.<String, String>withKey(key), SameAsKafkaTest::rows));
                    }
                }
            }
        }
    }
}
