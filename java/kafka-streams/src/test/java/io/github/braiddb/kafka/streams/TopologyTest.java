package io.github.braiddb.kafka.streams;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.TreeMap;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.TopologyConfig;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.StateStore;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.state.KeyValueStore;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Random topologies of the DSL: their results are those with Kafka's stores in memory. */
class TopologyTest {
    private static final double VOLUME = Double.parseDouble(System.getProperty("braiddb.volume", "1"));
    private static final Duration SIZE = Duration.ofSeconds(20);
    private static final Duration GRACE = Duration.ofSeconds(15);

    @TempDir
    private File directory;

    /** A record of an input. */
    private record Input(String topic, String key, String value, long time) {}

    static List<Integer> seeds() {
        List<Integer> seeds = new ArrayList<>();
        for (int seed = 0; seed < Math.max(4, 10 * VOLUME); seed++) {
            seeds.add(seed);
        }
        return seeds;
    }

    /**
     * Kafka's stores lose the results of windows that expire in the moment in which they close, so they
     * keep windows for a day here.
     */
    private static <S extends StateStore> Materialized<String, Long, S> counts(String name, boolean isReference) {
        Materialized<String, Long, S> counts = Materialized.as(name);
        return isReference ? counts.withRetention(Duration.ofDays(1)) : counts;
    }

    private static KTable<?, String> aggregate(
            Random random, KStream<String, String> stream, String name, boolean isReference) {
        KGroupedStream<String, String> grouped = random.nextBoolean()
                ? stream.groupByKey(Grouped.with(name + "-grouped", Serdes.String(), Serdes.String()))
                : stream.groupBy((key, value) -> key + value.length() % 2, Grouped.with(name + "-regrouped", Serdes.String(), Serdes.String()));
        EmitStrategy emit = random.nextBoolean() ? EmitStrategy.onWindowClose() : EmitStrategy.onWindowUpdate();
        return switch (random.nextInt(7)) {
            case 0 -> grouped.count(Materialized.as(name)).mapValues(count -> "count " + count);
            case 1 -> grouped.reduce((a, b) -> b.length() > 20 ? b : a + b, Materialized.as(name));
            case 2 -> grouped.windowedBy(TimeWindows.ofSizeAndGrace(SIZE, GRACE)).emitStrategy(emit)
                    .count(counts(name, isReference)).mapValues(count -> "tumbling " + count);
            case 3 -> grouped.windowedBy(TimeWindows.ofSizeAndGrace(SIZE, GRACE).advanceBy(Duration.ofSeconds(7)))
                    .emitStrategy(emit).count(counts(name, isReference)).mapValues(count -> "hopping " + count);
            case 4 -> grouped.windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(SIZE, GRACE)).emitStrategy(emit)
                    .count(counts(name, isReference)).mapValues(count -> "sliding " + count);
            // Its retention decides which closed sessions a late record can join.
            case 5 -> grouped.windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofSeconds(4), GRACE))
                    .count(Materialized.as(name)).mapValues(count -> "session " + count);
            default -> grouped.windowedBy(TimeWindows.ofSizeAndGrace(SIZE, GRACE))
                    .count(counts(name, isReference))
                    .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()))
                    .mapValues(count -> "suppressed " + count);
        };
    }

    private static KStream<String, String> text(KTable<?, String> table) {
        return table.toStream().map((key, value) -> new KeyValue<>(text(key), value));
    }

    private static String text(Object key) {
        return key instanceof Windowed<?> windowed
                ? windowed.key() + "@" + windowed.window().start() + "/" + windowed.window().end()
                : key.toString();
    }

    /** Makes a topology. The same seed makes the same one. */
    private static Topology topology(int seed, Properties properties, boolean isReference) {
        Random random = new Random(seed);
        StreamsBuilder builder = new StreamsBuilder(
                new TopologyConfig(new StreamsConfig(properties)));
        Consumed<String, String> texts = Consumed.with(Serdes.String(), Serdes.String());
        KStream<String, String> left = builder.stream("left", texts);
        KStream<String, String> right = builder.stream("right", texts);
        for (int part = 0; part < 3; part++) {
            String name = "part-" + part;
            JoinWindows windows = JoinWindows.ofTimeDifferenceAndGrace(Duration.ofSeconds(5), GRACE);
            KStream<String, String> result = switch (random.nextInt(7)) {
                case 0 -> left.join(right, (a, b) -> a + "+" + b, windows, StreamJoined.as(name));
                case 1 -> left.leftJoin(right, (a, b) -> a + "+" + b, windows, StreamJoined.as(name));
                case 2 -> left.outerJoin(right, (a, b) -> a + "+" + b, windows, StreamJoined.as(name));
                case 3 -> text(left.toTable(Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as(name + "-l"))
                        .outerJoin(
                                right.toTable(Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as(
                                        name + "-r")),
                                (a, b) -> a + "+" + b,
                                Materialized.as(name)));
                case 4 -> text(left.toTable(Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as(name + "-l"))
                        .join(
                                right.toTable(Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as(
                                        name + "-r")),
                                value -> value.substring(0, 1),
                                (a, b) -> a + "+" + b,
                                Materialized.as(name)));
                default -> text(aggregate(random, random.nextBoolean() ? left : left.merge(right), name, isReference));
            };
            result.to("output");
        }
        return builder.build(properties);
    }

    private Properties properties(int seed, Class<?> suppliers) {
        Random random = new Random(seed);
        Properties properties = new Properties();
        properties.put(StreamsConfig.APPLICATION_ID_CONFIG, "topology");
        properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "none:1");
        properties.put(StreamsConfig.STATE_DIR_CONFIG, new File(directory, suppliers.getSimpleName()).getPath());
        properties.put(StreamsConfig.DSL_STORE_SUPPLIERS_CLASS_CONFIG, suppliers);
        properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        properties.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, random.nextBoolean() ? "0" : "100000000");
        properties.put(StreamsConfig.DSL_STORE_FORMAT_CONFIG, random.nextBoolean() ? "HEADERS" : "DEFAULT");
        properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG,
                random.nextBoolean() ? StreamsConfig.EXACTLY_ONCE_V2 : StreamsConfig.AT_LEAST_ONCE);
        properties.put(StreamsConfig.TRANSACTIONAL_STATE_STORES_CONFIG, String.valueOf(random.nextBoolean()));
        properties.put(BraidStoreConfig.WRITE_BUFFER_BYTES, random.nextBoolean() ? "2000" : "10000000");
        return properties;
    }

    private static List<Input> inputs(int seed) {
        Random random = new Random(seed);
        List<Input> inputs = new ArrayList<>();
        long now = Duration.ofHours(1).toMillis();
        for (int i = 0; i < 400; i++) {
            now += random.nextInt(40) == 0 ? random.nextInt(60_000) : random.nextInt(1500);
            long time = random.nextInt(4) == 0 ? now - random.nextInt(30_000) : now;
            String key = String.valueOf((char) ('a' + random.nextInt(4)));
            String value = String.valueOf((char) ('a' + random.nextInt(4))) + i;
            inputs.add(new Input(random.nextBoolean() ? "left" : "right", key, value, time));
        }
        return inputs;
    }

    /** Returns the outputs after each input. */
    private static List<String> run(Topology topology, Properties properties, List<Input> inputs) {
        List<String> outputs = new ArrayList<>();
        try (TopologyTestDriver driver = new TopologyTestDriver(topology, properties, Instant.ofEpochMilli(0))) {
            Map<String, TestInputTopic<String, String>> topics = new TreeMap<>();
            for (String topic : List.of("left", "right")) {
                topics.put(topic, driver.createInputTopic(topic, new StringSerializer(), new StringSerializer()));
            }
            Deserializer<String> texts = new StringDeserializer();
            TestOutputTopic<String, String> output =
                    driver.createOutputTopic("output", texts, texts);
            int count = 0;
            for (Input input : inputs) {
                topics.get(input.topic).pipeInput(input.key, input.value, input.time);
                // The results of a window that closes are emitted at most once a second.
                driver.advanceWallClockTime(Duration.ofSeconds(2));
                List<String> records = new ArrayList<>();
                while (!output.isEmpty()) {
                    records.add(count + " " + output.readRecord());
                }
                // Windows of different keys close in any order.
                Collections.sort(records);
                outputs.addAll(records);
                count++;
            }
        }
        return outputs;
    }

    @ParameterizedTest
    @MethodSource("seeds")
    void randomTopology_hasTheResultsOfStoresInMemory(int seed) {
        List<Input> inputs = inputs(seed);
        Properties ours = properties(seed, BraidDslStoreSuppliers.class);
        Properties inMemory = properties(seed, BuiltInDslStoreSuppliers.InMemoryDslStoreSuppliers.class);
        Topology topology = topology(seed, ours, false);
        List<String> expected = run(topology(seed, inMemory, true), inMemory, inputs);
        assertTrue(expected.size() > 10, topology.describe().toString());
        assertEquals(expected, run(topology, ours, inputs), () -> ours + "\n" + topology.describe());
    }

    /** Kafka 4.4.0 loses all of them: their segments are gone when the record comes that closes them. */
    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void windowsThatCloseByAJump_areEmitted(boolean isSession) {
        Properties properties = properties(1, BraidDslStoreSuppliers.class);
        properties.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, "0");
        StreamsBuilder builder = new StreamsBuilder(new TopologyConfig(new StreamsConfig(properties)));
        KGroupedStream<String, String> grouped = builder
                .stream("left", Consumed.with(Serdes.String(), Serdes.String()))
                .groupByKey(Grouped.with(Serdes.String(), Serdes.String()));
        KTable<Windowed<String>, Long> counts = isSession
                ? grouped.windowedBy(SessionWindows.ofInactivityGapAndGrace(SIZE, GRACE))
                        .emitStrategy(EmitStrategy.onWindowClose()).count()
                : grouped.windowedBy(TimeWindows.ofSizeAndGrace(SIZE, GRACE))
                        .emitStrategy(EmitStrategy.onWindowClose()).count();
        text(counts.mapValues(String::valueOf)).to("output");
        builder.stream("right", Consumed.with(Serdes.String(), Serdes.String())).to("output");
        List<Input> inputs = new ArrayList<>();
        for (int i = 0; i < 10; i++) {
            inputs.add(new Input("left", "key" + i, "value", i));
        }
        inputs.add(new Input("left", "last", "value", Duration.ofMinutes(10).toMillis()));
        List<String> outputs = run(builder.build(properties), properties, inputs);
        assertEquals(10, outputs.size(), outputs.toString());
        for (int i = 0; i < 10; i++) {
            String expected = "key=key" + i + "@" + (isSession ? i + "/" + i : "0/20000") + ", value=1";
            assertTrue(outputs.get(i).startsWith("10 ") && outputs.get(i).contains(expected), outputs.get(i));
        }
    }
}
