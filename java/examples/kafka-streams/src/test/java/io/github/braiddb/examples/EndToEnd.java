package io.github.braiddb.examples;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Records per second from a topic through a store to another topic, and the memory of the instance,
 * with BraidDB and with Kafka's RocksDB store: a program, not a test, for Linux. Three brokers and the
 * instance share the machine. Each run is a process that reads the whole topic with an empty store; its
 * time ends with the close, when all is sent and committed. The stores take turns to go first, so
 * take an even number of rounds; the warm-up before them does not count. Build the native library for
 * release: {@code scripts/build-java.sh --kafka-streams}.
 *
 * <p>Arguments: {@code cluster.sh}, an empty folder, then settings: {@code records=}, {@code keys=},
 * {@code rounds=}, and those of Kafka Streams.
 */
final class EndToEnd {
    private static final int PARTITIONS = 6;
    private static final int VALUE_BYTES = 100;
    private static final String IN = "numbers";
    private static final String OUT = "latest";

    private EndToEnd() {}

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("instance")) {
            instance(Long.parseLong(arguments[1]), List.of(arguments).subList(2, arguments.length));
            return;
        }
        long records = 2_000_000;
        int keys = 500_000;
        int rounds = 4;
        List<String> settings = new ArrayList<>();
        for (String argument : List.of(arguments).subList(2, arguments.length)) {
            String[] setting = argument.split("=", 2);
            switch (setting[0]) {
                case "records" -> records = Long.parseLong(setting[1]);
                case "keys" -> keys = Integer.parseInt(setting[1]);
                case "rounds" -> rounds = Integer.parseInt(setting[1]);
                default -> settings.add(argument);
            }
        }
        Path files = Path.of(arguments[1]).toAbsolutePath();
        try (Cluster cluster = new Cluster(Path.of(arguments[0]), files.resolve("cluster"), 0, List.of())) {
            // A process that is stopped leaves none behind.
            Runtime.getRuntime().addShutdownHook(new Thread(() -> {
                ProcessHandle.current().children().forEach(ProcessHandle::destroyForcibly);
            }));
            for (int number = 1; number <= Cluster.COUNT; number++) {
                cluster.startBroker(number);
            }
            fill(cluster.addresses(), records, keys);
            System.out.printf("%,d records, %,d keys, %s%n", records, keys, settings);
            for (int round = 0; round <= rounds; round++) {
                boolean isOdd = round % 2 == 1;
                for (String store : List.of(isOdd ? "braiddb" : "rocksdb", isOdd ? "rocksdb" : "braiddb")) {
                    run(cluster.addresses(), files, store, round, records, settings);
                }
            }
        }
    }

    private static void fill(String brokers, long records, int keys) throws InterruptedException, ExecutionException {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", brokers))) {
            List<NewTopic> topics = List.of(
                    new NewTopic(IN, PARTITIONS, (short) 1), new NewTopic(OUT, PARTITIONS, (short) 1));
            admin.createTopics(topics).all().get();
        }
        Random random = new Random(1);
        AtomicReference<Exception> failure = new AtomicReference<>();
        Properties settings = Feed.producer(brokers);
        settings.setProperty("batch.size", "131072");
        try (KafkaProducer<String, byte[]> producer = new KafkaProducer<>(settings, null, new ByteArraySerializer())) {
            for (long record = 0; record < records; record++) {
                byte[] value = new byte[VALUE_BYTES];
                random.nextBytes(value);
                ProducerRecord<String, byte[]> sent = new ProducerRecord<>(IN, "key-" + random.nextInt(keys), value);
                producer.send(sent, (metadata, e) -> failure.compareAndSet(null, e));
            }
        }
        if (failure.get() != null) {
            throw new IllegalStateException("the topic is not complete", failure.get());
        }
    }

    private static void run(
            String brokers, Path files, String store, int round, long records, List<String> settings)
            throws IOException, InterruptedException {
        Path state = files.resolve("state-" + store + "-" + round);
        List<String> command = new ArrayList<>(List.of(
                ProcessHandle.current().info().command().orElseThrow(),
                "-Xms256m",
                "-Xmx256m",
                "-XX:+AlwaysPreTouch",
                "-XX:+UseSerialGC",
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
                "-cp",
                System.getProperty("java.class.path"),
                EndToEnd.class.getName(),
                "instance",
                String.valueOf(records),
                "bootstrap.servers=" + brokers,
                "application.id=end-to-end-" + store + "-" + round,
                "state.dir=" + state));
        command.addAll(settings);
        if (store.equals("braiddb")) {
            command.add("dsl.store.suppliers.class=io.github.braiddb.kafka.streams.BraidDslStoreSuppliers");
        }
        System.out.printf(round == 0 ? "warm-up, %2$s: " : "round %1$d, %2$s: ", round, store);
        Cluster.delete(state);
        int status = new ProcessBuilder(command).inheritIO().start().waitFor();
        if (status != 0) {
            throw new IllegalStateException("the instance failed: " + status);
        }
        Cluster.delete(state);
    }

    /** Reads the whole topic, and prints a line of figures. */
    private static void instance(long records, List<String> more) throws Exception {
        Properties settings = new Properties();
        settings.setProperty("replication.factor", "1");
        settings.setProperty("auto.offset.reset", "earliest");
        settings.setProperty("statestore.cache.max.bytes", "0");
        settings.setProperty("num.stream.threads", "2");
        settings.setProperty("commit.interval.ms", "1000");
        for (String argument : more) {
            String[] setting = argument.split("=", 2);
            settings.setProperty(setting[0], setting[1]);
        }
        AtomicLong seen = new AtomicLong();
        AtomicLong firstNs = new AtomicLong();
        CountDownLatch all = new CountDownLatch(1);
        AtomicReference<Throwable> failure = new AtomicReference<>();
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(IN, Consumed.with(Serdes.String(), Serdes.ByteArray()))
                .peek((key, value) -> firstNs.compareAndSet(0, System.nanoTime()))
                .groupByKey(Grouped.with(Serdes.String(), Serdes.ByteArray()))
                .aggregate(
                        () -> new byte[0],
                        (key, value, before) -> value,
                        Materialized.with(Serdes.String(), Serdes.ByteArray()))
                .toStream()
                .peek((key, value) -> {
                    if (seen.incrementAndGet() == records) {
                        all.countDown();
                    }
                })
                .to(OUT, Produced.with(Serdes.String(), Serdes.ByteArray()));
        long anonymous;
        long mapped;
        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings)) {
            streams.setUncaughtExceptionHandler(e -> {
                failure.set(e);
                all.countDown();
                return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
            });
            streams.start();
            if (!all.await(15, TimeUnit.MINUTES)) {
                throw new IllegalStateException("only " + seen + " records were processed");
            }
            anonymous = mebibytes("RssAnon:");
            mapped = mebibytes("RssFile:");
        }
        if (failure.get() != null) {
            throw new IllegalStateException("after " + seen + " records", failure.get());
        }
        double seconds = (System.nanoTime() - firstNs.get()) / 1e9;
        Duration processor = ProcessHandle.current().info().totalCpuDuration().orElseThrow();
        System.out.printf(
                "%,.0f records/s; %.1f s of processor time; memory %,d MiB at most, %,d MiB and %,d MiB mapped at the end%n",
                records / seconds, processor.toMillis() / 1e3, mebibytes("VmHWM:"), anonymous, mapped);
    }

    /** Returns a line of the process's status. */
    private static long mebibytes(String name) throws IOException {
        return Files.readAllLines(Path.of("/proc/self/status")).stream()
                .filter(line -> line.startsWith(name))
                .mapToLong(line -> Long.parseLong(line.replaceAll("\\D", "")) >> 10)
                .findFirst()
                .orElseThrow();
    }
}
