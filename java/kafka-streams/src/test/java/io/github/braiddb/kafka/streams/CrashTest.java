package io.github.braiddb.kafka.streams;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** A process that writes a store is killed; the rows that the next one finds agree with its offset. */
class CrashTest {
    private static final TopicPartition PARTITION = new TopicPartition(TestContext.CHANGELOG, 0);
    private static final double VOLUME = Double.parseDouble(System.getProperty("braiddb.volume", "1"));
    private static final int KEYS = 500;

    @TempDir
    private File directory;

    private static Bytes key(long offset) {
        return Bytes.wrap(ByteBuffer.allocate(4).putInt((int) (offset % KEYS)).array());
    }

    private static byte[] value(long offset) {
        return ByteBuffer.allocate(100).putLong(offset).array();
    }

    private static Map<String, Object> configs(String durability, boolean isTransactional, long writeBuffer) {
        Map<String, Object> configs = new HashMap<>(TestContext.exactlyOnce(isTransactional));
        configs.put(BraidStoreConfig.DURABILITY, durability);
        configs.put(BraidStoreConfig.WRITE_BUFFER_BYTES, writeBuffer);
        return configs;
    }

    private static KeyValueStore<Bytes, byte[]> open(File directory, Map<String, Object> configs) {
        KeyValueStore<Bytes, byte[]> store = BraidStores.keyValueStore("store").get();
        store.init(new TestContext(directory, configs), store);
        return store;
    }

    /** The process that is killed: writes rows until then. */
    static final class Writer {
        private Writer() {}

        public static void main(String[] arguments) {
            KeyValueStore<Bytes, byte[]> store = CrashTest.open(
                    new File(arguments[0]),
                    configs(arguments[1], Boolean.parseBoolean(arguments[2]), Long.parseLong(arguments[3])));
            Random random = new Random();
            Long committed = store.committedOffset(PARTITION);
            System.out.println("started");
            for (long offset = committed == null ? 0 : committed + 1; ; offset++) {
                store.put(key(offset), value(offset));
                if (random.nextInt(300) == 0) {
                    store.commit(Map.of(PARTITION, offset));
                }
            }
        }
    }

    @ParameterizedTest
    @CsvSource({
        "buffered,true,16777216", "buffered,false,16777216", "buffered,false,5000", "sync,true,16777216",
        "none,true,16777216"
    })
    void rowsAndOffset_afterAKill_agree(String durability, boolean isTransactional, long writeBuffer)
            throws IOException, InterruptedException {
        Random random = new Random(durability.hashCode() + writeBuffer);
        List<String> command = new ArrayList<>();
        command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
        command.addAll(List.of("-cp", System.getProperty("java.class.path"), "-Xmx128m", Writer.class.getName()));
        command.addAll(List.of(
                directory.getPath(), durability, String.valueOf(isTransactional), String.valueOf(writeBuffer)));
        int found = 0;
        for (int round = 0; round < Math.max(1, 2 * VOLUME); round++) {
            Process writer = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.DISCARD).start();
            assertEquals("started", writer.inputReader().readLine());
            Thread.sleep(100 + random.nextInt(400));
            assertTrue(writer.isAlive());
            writer.destroyForcibly();
            assertTrue(writer.waitFor(60, TimeUnit.SECONDS));
            found += check(configs(durability, isTransactional, writeBuffer));
        }
        // Without a log a killed process may leave nothing; a store ahead of its offset is emptied.
        assertTrue(found > 0 || durability.equals("none") || writeBuffer < 10_000, "rows found: " + found);
    }

    /** Returns the number of rows. */
    private int check(Map<String, Object> configs) {
        KeyValueStore<Bytes, byte[]> store = open(directory, configs);
        Long committed = store.committedOffset(PARTITION);
        int count = 0;
        try (KeyValueIterator<Bytes, byte[]> rows = store.all()) {
            for (; rows.hasNext(); rows.next()) {
                count++;
            }
        }
        if (committed == null) {
            assertEquals(0, count);
        } else {
            assertEquals(Math.min(committed + 1, KEYS), count);
            for (long offset = Math.max(0, committed - KEYS + 1); offset <= committed; offset++) {
                assertArrayEquals(value(offset), store.get(key(offset)));
            }
        }
        store.close();
        return count;
    }
}
