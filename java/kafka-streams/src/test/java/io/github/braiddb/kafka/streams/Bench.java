package io.github.braiddb.kafka.streams;

import java.io.File;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.stream.Stream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;
import org.apache.kafka.streams.state.WindowStoreIterator;

/**
 * Compares the stores with Kafka's RocksDB stores: a program, not a test. Prints nanoseconds of a call,
 * medians of three runs that take turns.
 *
 * <p>Arguments: rows, 100,000 if absent. Use a release build of the native library:
 * {@code -Dbraiddb.library}.
 */
final class Bench {
    private static final TopicPartition PARTITION = new TopicPartition(TestContext.CHANGELOG, 0);
    private static final int RUNS = 3;
    private static final int[] RANGE_ROWS = {10, 100};
    private static final int COMMIT_ROWS = 10_000;
    private static final Map<String, Object> CONFIGS = Map.of(StreamsConfig.METRICS_RECORDING_LEVEL_CONFIG, "INFO");
    private static final Duration RETENTION = Duration.ofHours(1);

    private final int rows;
    private final Map<String, Map<Boolean, List<Double>>> results = new LinkedHashMap<>();

    private Bench(int rows) {
        this.rows = rows;
    }

    public static void main(String[] arguments) throws Exception {
        Bench bench = new Bench(arguments.length == 0 ? 100_000 : Integer.parseInt(arguments[0]));
        // The first run warms up.
        for (int run = 0; run <= RUNS; run++) {
            if (run == 1) {
                bench.results.clear();
            }
            bench.run(run % 2 == 0);
            bench.run(run % 2 != 0);
        }
        System.out.printf("%-22s %12s %12s %8s%n", "ns a call", "BraidDB", "RocksDB", "ratio");
        bench.results.forEach((name, times) -> System.out.printf(
                "%-22s %12.0f %12.0f %8.2f%n", name, median(times.get(true)), median(times.get(false)),
                median(times.get(false)) / median(times.get(true))));
    }

    private static double median(List<Double> times) {
        double[] sorted = times.stream().mapToDouble(Double::doubleValue).sorted().toArray();
        return sorted[sorted.length / 2];
    }

    /** Work that is measured. */
    private interface Work {
        void run() throws Exception;
    }

    private void time(String name, boolean isOurs, int calls, Work work) throws Exception {
        long start = System.nanoTime();
        work.run();
        double each = (System.nanoTime() - start) / (double) calls;
        results.computeIfAbsent(name, n -> new LinkedHashMap<>()).computeIfAbsent(isOurs, n -> new ArrayList<>())
                .add(each);
    }

    private static Bytes key(int number) {
        return Bytes.wrap(ByteBuffer.allocate(16).putLong(number * 0x9E3779B97F4A7C15L).putLong(number).array());
    }

    private byte[] value(Random random) {
        byte[] value = new byte[100];
        random.nextBytes(value);
        Arrays.fill(value, 50, 100, (byte) 0);
        return value;
    }

    private void run(boolean isOurs) throws Exception {
        Path directory = Files.createTempDirectory("bench");
        try {
            keyValues(isOurs, directory.resolve("store").toFile());
            restore(isOurs, directory.resolve("restored").toFile());
            windows(isOurs, directory.resolve("windows").toFile());
        } finally {
            try (Stream<Path> files = Files.walk(directory)) {
                files.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
            }
        }
    }

    private KeyValueStore<Bytes, byte[]> open(boolean isOurs, TestContext context) {
        KeyValueStore<Bytes, byte[]> store =
                (isOurs ? BraidStores.keyValueStore("store") : Stores.persistentKeyValueStore("store")).get();
        store.init(context, store);
        return store;
    }

    private void keyValues(boolean isOurs, File directory) throws Exception {
        KeyValueStore<Bytes, byte[]> store = open(isOurs, new TestContext(directory, CONFIGS));
        Random random = new Random(1);
        time("put", isOurs, rows, () -> {
            for (int i = 0; i < rows; i++) {
                store.put(key(i), value(random));
                if (i % COMMIT_ROWS == COMMIT_ROWS - 1) {
                    store.commit(Map.of(PARTITION, (long) i));
                }
            }
        });
        time("get", isOurs, rows, () -> {
            for (int i = 0; i < rows; i++) {
                if (store.get(key(random.nextInt(rows))) == null) {
                    throw new IllegalStateException("a row is absent");
                }
            }
        });
        time("get of an absent key", isOurs, rows, () -> {
            for (int i = 0; i < rows; i++) {
                if (store.get(key(rows + random.nextInt(rows))) != null) {
                    throw new IllegalStateException("a row is present");
                }
            }
        });
        time("get and put", isOurs, rows, () -> {
            for (int i = 0; i < rows; i++) {
                Bytes key = key(random.nextInt(rows));
                byte[] value = store.get(key);
                value[0]++;
                store.put(key, value);
                if (i % COMMIT_ROWS == COMMIT_ROWS - 1) {
                    store.commit(Map.of(PARTITION, (long) rows + i));
                }
            }
        });
        for (int length : RANGE_ROWS) {
            int ranges = rows / length;
            time("range of " + length + " rows", isOurs, ranges, () -> {
                for (int i = 0; i < ranges; i++) {
                    try (KeyValueIterator<Bytes, byte[]> found = store.range(key(random.nextInt(rows)), null)) {
                        for (int row = 0; row < length && found.hasNext(); row++) {
                            found.next();
                        }
                    }
                }
            });
        }
        time("row of a full scan", isOurs, rows, () -> {
            try (KeyValueIterator<Bytes, byte[]> found = store.all()) {
                for (; found.hasNext(); found.next()) {}
            }
        });
        store.commit(Map.of(PARTITION, 2L * rows));
        time("repeated commit", isOurs, rows, () -> {
            for (int i = 0; i < rows; i++) {
                store.commit(Map.of(PARTITION, 2L * rows));
            }
        });
        store.close();
    }

    private void restore(boolean isOurs, File directory) throws Exception {
        TestContext context = new TestContext(directory, CONFIGS);
        KeyValueStore<Bytes, byte[]> store = open(isOurs, context);
        Random random = new Random(1);
        List<List<ConsumerRecord<byte[], byte[]>>> batches = new ArrayList<>();
        for (int i = 0; i < rows; i++) {
            if (i % 1000 == 0) {
                batches.add(new ArrayList<>());
            }
            batches.get(batches.size() - 1).add(TestContext.record(i, key(i).get(), value(random)));
        }
        time("restored record", isOurs, rows, () -> {
            for (List<ConsumerRecord<byte[], byte[]>> batch : batches) {
                context.restore("store", batch);
            }
            store.commit(Map.of(PARTITION, (long) rows));
        });
        store.close();
    }

    private void windows(boolean isOurs, File directory) throws Exception {
        Topology topology = new Topology();
        topology.addSource("source", new ByteArrayDeserializer(), new ByteArrayDeserializer(), "input")
                .addProcessor("processor", () -> new ContextualProcessor<byte[], byte[], Void, Void>() {
                    @Override
                    public void process(Record<byte[], byte[]> record) {}
                }, "source");
        Duration size = Duration.ofSeconds(10);
        topology.addStateStore(
                Stores.windowStoreBuilder(
                        isOurs
                                ? BraidStores.windowStore("windows", RETENTION, size, false)
                                : Stores.persistentWindowStore("windows", RETENTION, size, false),
                        Serdes.Bytes(), Serdes.ByteArray()).withLoggingDisabled(),
                "processor");
        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, "bench");
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "none:1");
        properties.put(StreamsConfig.STATE_DIR_CONFIG, directory.getPath());
        try (TopologyTestDriver driver = new TopologyTestDriver(topology, properties)) {
            WindowStore<Bytes, byte[]> store = driver.getWindowStore("windows");
            Random random = new Random(1);
            int keys = rows / 100;
            time("window get and put", isOurs, rows, () -> {
                for (int i = 0; i < rows; i++) {
                    Bytes key = key(random.nextInt(keys));
                    long start = i / 10 * 10;
                    store.fetch(key, start);
                    store.put(key, value(random), start);
                    if (i % COMMIT_ROWS == COMMIT_ROWS - 1) {
                        store.commit(Map.of());
                    }
                }
            });
            time("windows of a key", isOurs, keys, () -> {
                for (int i = 0; i < keys; i++) {
                    try (WindowStoreIterator<byte[]> found = store.fetch(key(random.nextInt(keys)), 0L, (long) rows)) {
                        for (; found.hasNext(); found.next()) {}
                    }
                }
            });
        }
    }
}
