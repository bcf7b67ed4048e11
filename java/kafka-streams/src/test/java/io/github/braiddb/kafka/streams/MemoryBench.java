package io.github.braiddb.kafka.streams;

import io.github.braiddb.SharedRuntime;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.stream.Stream;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * Measures the memory, disk space and open files of many stores in one process: a program, not a test,
 * for Linux. Prints the resident memory with open empty stores, with rows in each, and after
 * reads of all rows: memory of the process, and pages of mapped files, which the system can take.
 *
 * <p>Arguments: {@code braiddb} or {@code rocksdb}, the number of stores, rows of each, and
 * {@code braiddb.memory.bytes}. Give the virtual machine a fixed heap that it touches at its start.
 */
final class MemoryBench {
    private static final TopicPartition PARTITION = new TopicPartition(TestContext.CHANGELOG, 0);
    private static final int COMMIT_ROWS = 10_000;

    private MemoryBench() {}

    public static void main(String[] arguments) throws Exception {
        boolean isOurs = arguments[0].equals("braiddb");
        int count = Integer.parseInt(arguments[1]);
        int rows = Integer.parseInt(arguments[2]);
        Path folder = Files.createTempDirectory("memory");
        // The library and the classes of both are there.
        run(isOurs, 1, 1000, arguments[3], folder.resolve("warm"), false);
        run(isOurs, count, rows, arguments[3], folder.resolve("stores"), true);
        try (Stream<Path> files = Files.walk(folder)) {
            files.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
        }
    }

    private static void run(boolean isOurs, int count, int rows, String memory, Path folder, boolean isShown)
            throws Exception {
        long[] before = {kib("RssAnon:"), kib("RssFile:")};
        Map<String, Object> configs = Map.of(
                BraidStoreConfig.MEMORY_BYTES, memory, StreamsConfig.METRICS_RECORDING_LEVEL_CONFIG, "INFO");
        Settings settings = Settings.of(configs);
        SharedRuntime use = isOurs ? Runtimes.of(settings.memory(), settings.threads()) : null;
        List<KeyValueStore<Bytes, byte[]>> stores = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            String name = "store" + i;
            KeyValueStore<Bytes, byte[]> store =
                    (isOurs ? BraidStores.keyValueStore(name) : Stores.persistentKeyValueStore(name)).get();
            store.init(new TestContext(folder.toFile(), configs), store);
            stores.add(store);
        }
        show("open", before, count, folder, use, isShown);
        Random random = new Random(1);
        for (KeyValueStore<Bytes, byte[]> store : stores) {
            for (int row = 0; row < rows; row++) {
                byte[] value = new byte[100];
                random.nextBytes(value);
                store.put(key(row), value);
                if (row % COMMIT_ROWS == COMMIT_ROWS - 1 || row == rows - 1) {
                    store.commit(Map.of(PARTITION, (long) row));
                }
            }
        }
        show("with " + rows + " rows each", before, count, folder, use, isShown);
        for (KeyValueStore<Bytes, byte[]> store : stores) {
            for (int row = 0; row < rows; row++) {
                if (store.get(key(row)) == null) {
                    throw new IllegalStateException("a row is absent");
                }
            }
        }
        show("after reads of all", before, count, folder, use, isShown);
        stores.forEach(KeyValueStore::close);
    }

    private static Bytes key(int number) {
        return Bytes.wrap(ByteBuffer.allocate(16).putLong(number * 0x9E3779B97F4A7C15L).putLong(number).array());
    }

    private static long[] show(String state, long[] before, int count, Path folder, SharedRuntime use, boolean isShown)
            throws IOException, InterruptedException {
        // Background work ends.
        Thread.sleep(isShown ? 10_000 : 100);
        // The collector frees buffers in another thread.
        System.gc();
        Thread.sleep(1000);
        long anonymous = kib("RssAnon:");
        long mapped = kib("RssFile:");
        int open = new File("/proc/self/fd").list().length;
        long disk = 0;
        if (Files.exists(folder)) {
            try (Stream<Path> files = Files.walk(folder)) {
                disk = files.mapToLong(file -> file.toFile().isFile() ? file.toFile().length() : 0).sum();
            }
        }
        if (isShown) {
            System.out.printf("%-24s %,d KiB of memory and %,d KiB of mapped files; %,d and %,d KiB a store more than"
                            + " without; %d open files; %,d KiB of disk%n",
                    state, anonymous, mapped, (anonymous - before[0]) / count, (mapped - before[1]) / count, open,
                    disk >> 10);
            if (use != null) {
                System.out.println("    counted by the runtime: " + use.use());
            }
        }
        return new long[] {anonymous, mapped};
    }

    /** Returns a line of the process's status. */
    private static long kib(String name) throws IOException {
        return Files.readAllLines(Path.of("/proc/self/status")).stream()
                .filter(line -> line.startsWith(name))
                .mapToLong(line -> Long.parseLong(line.replaceAll("\\D", "")))
                .findFirst()
                .orElseThrow();
    }
}
