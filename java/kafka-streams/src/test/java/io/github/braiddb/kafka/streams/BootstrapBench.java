package io.github.braiddb.kafka.streams;

import io.github.braiddb.BackupInfo;
import io.github.braiddb.Checkpoints;
import com.sun.management.OperatingSystemMXBean;
import java.io.File;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.stream.Stream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * Measures how soon a store with an empty disk has all rows: a program, not a test. There are no brokers:
 * records come from memory through the restore callback, so the figures of a full restore are lower than
 * with a network. Compares Kafka's RocksDB store, this store, and this store with a checkpoint in a
 * directory that lacks the last hundredth of the records. Prints the processor time of all threads too,
 * and the size of checkpoints after random changes.
 *
 * <p>Arguments: rows, 1,000,000 if absent, and a folder for all files, a new temporary one if absent.
 */
final class BootstrapBench {
    private static final TopicPartition PARTITION = new TopicPartition(TestContext.CHANGELOG, 0);
    private static final int BATCH = 1000;

    /** Records between two commits: Kafka commits restored stores as it polls. */
    private static final int COMMIT_RECORDS = 100_000;

    private static final Map<String, Object> CONFIGS = Map.of(StreamsConfig.METRICS_RECORDING_LEVEL_CONFIG, "INFO");

    /** Rows that change between two checkpoints, in thousandths. */
    private static final int[] CHANGES = {1, 10, 100};

    /** Publications, each after changes of a hundredth of the rows. */
    private static final int MANY = 100;

    private static final OperatingSystemMXBean PROCESS =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private final int rows;
    private final Path folder;

    private BootstrapBench(int rows, Path folder) {
        this.rows = rows;
        this.folder = folder;
    }

    public static void main(String[] arguments) throws Exception {
        int rows = arguments.length == 0 ? 1_000_000 : Integer.parseInt(arguments[0]);
        Path folder = arguments.length < 2 ? Files.createTempDirectory("bootstrap") : Path.of(arguments[1]);
        new BootstrapBench(rows, folder).run();
    }

    private void run() throws Exception {
        // Warms up the code of all.
        for (int warm : new int[] {Math.min(rows, 200_000), rows}) {
            BootstrapBench bench = new BootstrapBench(warm, folder);
            double[] seconds = bench.measure(warm == rows);
            if (warm == rows) {
                System.out.printf("%d rows: RocksDB %.1f s, BraidDB %.1f s, BraidDB from a checkpoint %.1f s%n",
                        rows, seconds[0], seconds[1], seconds[2]);
                System.out.printf("processor time: RocksDB %.2f s, BraidDB %.2f s, BraidDB from a checkpoint %.2f s%n",
                        seconds[3], seconds[4], seconds[5]);
                System.out.printf("times sooner than RocksDB: %.1f; records replayed: %.2f %%%n",
                        seconds[0] / seconds[2], 100.0 * bench.tail() / rows);
            }
        }
    }

    private int tail() {
        return rows / 100;
    }

    private double[] measure(boolean isShown) throws Exception {
        double[] rocks = full(Stores.persistentKeyValueStore("store").get(), "rocksdb");
        double[] braid = full(BraidStores.keyValueStore("store").get(), "braiddb");
        publish(isShown);
        Map<String, Object> configs = new HashMap<>(CONFIGS);
        configs.put(BraidStoreConfig.CHECKPOINT_URL, folder.resolve("checkpoints").toString());
        configs.put(Changelog.CONFIG, changelog());
        long start = System.nanoTime();
        long startTime = PROCESS.getProcessCpuTime();
        KeyValueStore<Bytes, byte[]> store = BraidStores.keyValueStore("store").get();
        TestContext context = new TestContext(folder.resolve("node").toFile(), configs);
        store.init(context, store);
        long installed = System.nanoTime();
        long installedTime = PROCESS.getProcessCpuTime();
        Long offset = ((BraidStore) store).committedOffset(PARTITION);
        if (offset == null || offset != rows - tail() - 1) {
            throw new IllegalStateException("it begins with offset " + offset);
        }
        restore(context, store, (int) (offset + 1), rows);
        long end = System.nanoTime();
        long endTime = PROCESS.getProcessCpuTime();
        check(store);
        store.close();
        if (isShown) {
            System.out.printf("installation %.1f s, tail %.1f s; processor time %.2f s and %.2f s%n",
                    (installed - start) / 1e9, (end - installed) / 1e9, (installedTime - startTime) / 1e9,
                    (endTime - installedTime) / 1e9);
        }
        wipe(folder.resolve("node"));
        wipe(folder.resolve("checkpoints"));
        return new double[] {
            rocks[0], braid[0], (end - start) / 1e9, rocks[1], braid[1], (endTime - startTime) / 1e9
        };
    }

    /** Returns the seconds of a full restore and those of the processor. */
    private double[] full(KeyValueStore<Bytes, byte[]> store, String name) throws Exception {
        File directory = folder.resolve(name).toFile();
        long start = System.nanoTime();
        long startTime = PROCESS.getProcessCpuTime();
        TestContext context = new TestContext(directory, CONFIGS);
        store.init(context, store);
        restore(context, store, 0, rows);
        double seconds = (System.nanoTime() - start) / 1e9;
        double processor = (PROCESS.getProcessCpuTime() - startTime) / 1e9;
        check(store);
        store.close();
        wipe(directory.toPath());
        return new double[] {seconds, processor};
    }

    /** Publishes a checkpoint of all but the last records, as an active instance does. */
    private void publish(boolean isShown) throws Exception {
        Map<String, Object> configs = new HashMap<>(CONFIGS);
        TestContext context = new TestContext(folder.resolve("owner").toFile(), configs);
        BraidKeyValueStore store = (BraidKeyValueStore) BraidStores.keyValueStore("store").get();
        store.init(context, store);
        restore(context, store, 0, rows - tail());
        Changelog.Facts facts = changelog().facts();
        store.storage().identify(
                new StoreCheckpoints.Identity("test", "store", PARTITION.topic(), 0, facts.topicId()));
        store.storage().database().tree("meta").put(Meta.PROVEN, Meta.number(System.currentTimeMillis()));
        Checkpoints place = Checkpoints.at(folder.resolve("checkpoints") + "/test/store/0");
        long epoch = place.claim("bench");
        long start = System.nanoTime();
        BackupInfo all = place.publish(store.storage().database(), epoch).orElseThrow();
        if (isShown) {
            System.out.printf("checkpoint of %d bytes published in %.1f s%n", all.bytes(), (System.nanoTime() - start) / 1e9);
            changes(context, store);
        }
        store.close();
        wipe(folder.resolve("owner"));
    }

    /** Publishes checkpoints elsewhere after changes of random rows. */
    private void changes(TestContext context, BraidKeyValueStore store) throws Exception {
        Random random = new Random(3);
        Checkpoints place = Checkpoints.at(folder.resolve("changes").toString());
        long epoch = place.claim("bench");
        place.publish(store.storage().database(), epoch).orElseThrow();
        for (int thousandths : CHANGES) {
            BackupInfo next = change(context, store, place, epoch, thousandths, random);
            System.out.printf("%.1f %% changed: %d of %d bytes are new, in %d of %d files%n",
                    thousandths / 10.0, next.bytesCopied(), next.bytes(), next.filesCopied(), next.files());
        }
        // Merges of files are among many publications.
        long uploaded = 0;
        for (int i = 0; i < MANY; i++) {
            uploaded += change(context, store, place, epoch, 10, random).bytesCopied();
        }
        System.out.printf("%d times 1 %% changed: %d bytes are new, %d a changed row%n",
                MANY, uploaded, uploaded / MANY / (rows / 100));
        wipe(folder.resolve("changes"));
    }

    /** Changes thousandths of the rows, and publishes. */
    private BackupInfo change(
            TestContext context, BraidKeyValueStore store, Checkpoints place, long epoch, int thousandths, Random random) {
        long changed = (long) rows * thousandths / 1000;
        List<ConsumerRecord<byte[], byte[]>> batch = new ArrayList<>();
        for (long i = 0; i < changed; i++) {
            batch.add(TestContext.record(rows, key(random.nextInt(rows - tail())), value(random)));
            if (batch.size() == BATCH || i == changed - 1) {
                context.restore("store", batch);
                batch.clear();
            }
        }
        return place.publish(store.storage().database(), epoch).orElseThrow();
    }

    private Changelog changelog() {
        return new Changelog() {
            @Override
            public TopicPartition partition() {
                return PARTITION;
            }

            @Override
            public boolean isActive() {
                return false;
            }

            @Override
            public Facts facts() {
                return new Facts("id", 0, rows, -1);
            }
        };
    }

    private void restore(TestContext context, KeyValueStore<Bytes, byte[]> store, int from, int to) {
        Random random = new Random(from);
        List<ConsumerRecord<byte[], byte[]>> batch = new ArrayList<>(BATCH);
        for (int at = from; at < to; at++) {
            batch.add(TestContext.record(at, key(at), value(random)));
            if (batch.size() == BATCH || at == to - 1) {
                context.restore("store", batch);
                batch.clear();
            }
            if (at % COMMIT_RECORDS == COMMIT_RECORDS - 1 || at == to - 1) {
                store.commit(Map.of(PARTITION, (long) at));
            }
        }
    }

    private void check(KeyValueStore<Bytes, byte[]> store) {
        Random random = new Random(7);
        for (int i = 0; i < 1000; i++) {
            if (store.get(Bytes.wrap(key(random.nextInt(rows)))) == null) {
                throw new IllegalStateException("a row is absent");
            }
        }
    }

    private static byte[] value(Random random) {
        byte[] value = new byte[100];
        random.nextBytes(value);
        java.util.Arrays.fill(value, 50, 100, (byte) 0);
        return value;
    }

    private static byte[] key(long number) {
        return ByteBuffer.allocate(16).putLong(number * 0x9E3779B97F4A7C15L).putLong(number).array();
    }

    private static void wipe(Path path) throws Exception {
        if (Files.exists(path)) {
            try (Stream<Path> files = Files.walk(path)) {
                files.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
            }
        }
    }
}
