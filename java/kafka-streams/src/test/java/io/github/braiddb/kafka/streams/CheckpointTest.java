package io.github.braiddb.kafka.streams;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.github.braiddb.BackupInfo;
import io.github.braiddb.Checkpoints;
import io.github.braiddb.ClosedException;
import io.github.braiddb.Database;
import io.github.braiddb.NotFoundException;
import io.github.braiddb.Tree;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import java.util.stream.Stream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Instances that publish checkpoints of a store, lose their disks, and come back late. */
class CheckpointTest {
    private static final TopicPartition PARTITION = new TopicPartition(TestContext.CHANGELOG, 0);
    private static final int KEYS = 300;
    private static final long WAIT_MS = 60_000;

    private final List<Instance> instances = new ArrayList<>();
    private final Topic topic = new Topic();

    @TempDir
    private Path folder;

    @AfterEach
    void close() {
        instances.forEach(instance -> instance.store.close());
    }

    /** The changelog as the brokers have it. */
    private static final class Topic {
        private final List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
        private String id = "first";
        private long start;
        private long deleteRetentionMs = -1;

        private synchronized long append(byte[] key, byte[] value) {
            records.add(TestContext.record(records.size(), key, value));
            return records.size() - 1;
        }

        private synchronized Changelog.Facts facts() {
            return new Changelog.Facts(id, start, records.size(), deleteRetentionMs);
        }
    }

    /** An instance with one task. Its directory is its disk. */
    private final class Instance implements Changelog {
        private final BraidKeyValueStore store = (BraidKeyValueStore) BraidStores.keyValueStore("store").get();
        private final File directory;
        private final Map<String, Object> configs = new HashMap<>();
        private TestContext context;
        private volatile boolean isActive = true;

        /** Runs once, after the next answer of the brokers. */
        private volatile Runnable afterFacts = () -> { };

        private long offset = -1;

        private Instance(String name, Map<String, ?> configs) {
            directory = folder.resolve(name).toFile();
            this.configs.put(BraidStoreConfig.CHECKPOINT_URL, place());
            this.configs.put(BraidStoreConfig.CHECKPOINT_INTERVAL_MS, 1);
            this.configs.put(Changelog.CONFIG, this);
            this.configs.putAll(configs);
            instances.add(this);
        }

        private Instance open() {
            return open("test");
        }

        private Instance open(String application) {
            context = new TestContext(directory, configs).of(application);
            store.init(context, store);
            return this;
        }

        /** Restores the records that the store lacks. Returns their number. */
        private int restore() {
            Long committed = store.committedOffset(PARTITION);
            List<ConsumerRecord<byte[], byte[]>> rest =
                    topic.records.subList(committed == null ? 0 : committed.intValue() + 1, topic.records.size());
            if (!rest.isEmpty()) {
                context.restore("store", rest);
            }
            offset = topic.records.size() - 1L;
            store.commit(Map.of(PARTITION, offset));
            return rest.size();
        }

        private void put(int key, byte[] value) {
            context.at(topic.records.size());
            store.put(key(key), value);
            offset = topic.append(key(key).get(), value);
        }

        private void commit() {
            store.commit(Map.of(PARTITION, offset));
        }

        /** Puts and commits until a checkpoint has the last commit. */
        private void publish() {
            long published = metric("checkpoint-published-total");
            await(() -> {
                put(0, value(0));
                commit();
                return metric("checkpoint-published-total") > published;
            });
            long last = offset;
            await(() -> newest() != null && newestOffset() == last);
        }

        private long metric(String name) {
            return context.metrics().metrics().entrySet().stream()
                    .filter(metric -> metric.getKey().name().equals("braiddb-" + name))
                    .mapToLong(metric -> ((Double) metric.getValue().metricValue()).longValue())
                    .findAny().orElseThrow();
        }

        @Override
        public TopicPartition partition() {
            return PARTITION;
        }

        @Override
        public boolean isActive() {
            return isActive;
        }

        @Override
        public Facts facts() {
            Facts facts = topic.facts();
            Runnable then = afterFacts;
            afterFacts = () -> { };
            then.run();
            return facts;
        }
    }

    private String place() {
        return folder.resolve("checkpoints").toString();
    }

    private Checkpoints checkpoints() {
        return Checkpoints.at(place() + "/test/store/0");
    }

    private BackupInfo newest() {
        return checkpoints().newest().orElse(null);
    }

    private int reads;

    /** Returns the offset in the newest checkpoint, -1 if it was deleted meanwhile. */
    private long newestOffset() {
        Path path = folder.resolve("read " + reads++);
        try {
            checkpoints().install(newest().id(), path);
        } catch (NotFoundException e) {
            return -1;
        }
        try (Database database = Database.open(path)) {
            return Meta.number(database.tree("meta").get(Meta.offsetKey(PARTITION)), -1);
        }
    }

    private static void await(BooleanSupplier condition) {
        long until = System.nanoTime() + WAIT_MS * 1_000_000;
        while (!condition.getAsBoolean()) {
            assertTrue(System.nanoTime() < until, "it did not happen in time");
            pause(5);
        }
    }

    private static void pause(long millis) {
        try {
            Thread.sleep(millis);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    private static Bytes key(int number) {
        return Bytes.wrap(ByteBuffer.allocate(4).putInt(number).array());
    }

    private static byte[] value(long number) {
        return ByteBuffer.allocate(200).putLong(number).array();
    }

    private static void wipe(Path path) {
        try (Stream<Path> files = Files.walk(path)) {
            files.sorted(Comparator.reverseOrder()).map(Path::toFile).forEach(File::delete);
        } catch (IOException e) {
            throw new IllegalStateException(e);
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

    private void checkRows(BraidKeyValueStore store) {
        Map<Bytes, byte[]> wanted = new HashMap<>();
        topic.records.forEach(record -> {
            if (record.value() == null) {
                wanted.remove(Bytes.wrap(record.key()));
            } else {
                wanted.put(Bytes.wrap(record.key()), record.value());
            }
        });
        int count = 0;
        try (KeyValueIterator<Bytes, byte[]> rows = store.all()) {
            for (; rows.hasNext(); count++) {
                KeyValue<Bytes, byte[]> row = rows.next();
                assertArrayEquals(wanted.get(row.key), row.value);
            }
        }
        assertEquals(wanted.size(), count);
    }

    private Instance published(Map<String, ?> configs) {
        Instance first = new Instance("first", configs).open();
        for (int key = 0; key < KEYS; key++) {
            first.put(key, value(key));
        }
        first.commit();
        first.publish();
        first.isActive = false;
        return first;
    }

    private static Map<String, Object> configs(boolean isExactlyOnce) {
        return isExactlyOnce ? TestContext.exactlyOnce(true) : Map.of();
    }

    @ParameterizedTest
    @ValueSource(booleans = {false, true})
    void open_onAnEmptyDisk_beginsWithTheCheckpoint(boolean isExactlyOnce) {
        Instance first = published(configs(isExactlyOnce));
        long checkpoint = first.offset;
        pause(50);
        for (int key = 0; key < 10; key++) {
            first.put(key * 7, key % 3 == 0 ? null : value(-key));
        }
        first.commit();
        first.put(5, value(-5));
        Instance second = new Instance("second", configs(isExactlyOnce)).open();
        assertEquals(checkpoint, second.store.committedOffset(PARTITION));
        assertEquals(11, second.restore());
        checkRows(second.store);
        assertEquals(1, second.metric("checkpoint-installed-total"));
        assertFalse(Files.exists(second.directory.toPath().resolve("braiddb-install")));

        // The next owner goes on, and its checkpoint shares files with the first.
        second.publish();
        assertTrue(newest().bytesCopied() < newest().bytes(), newest().toString());
        second.isActive = false;
        second.store.close();
        wipe(second.directory.toPath());
        Instance third = new Instance("third", configs(isExactlyOnce)).open();
        assertEquals(0, third.restore());
        checkRows(third.store);
    }

    /** Each checkpoint must have the rows of its offset, whatever was written and committed meanwhile. */
    @ParameterizedTest
    @CsvSource({"false,16777216", "false,3000", "true,16777216"})
    void checkpoints_duringWritesAndCommits_haveTheRowsOfTheirOffset(boolean isExactlyOnce, long writeBuffer)
            throws InterruptedException {
        Map<String, Object> configs = new HashMap<>(configs(isExactlyOnce));
        configs.put(BraidStoreConfig.WRITE_BUFFER_BYTES, writeBuffer);
        Instance writer = new Instance("first", configs).open();
        boolean[] isEnded = {false};
        Thread thread = new Thread(() -> {
            Random random = new Random(writeBuffer);
            for (long next = 0; !isEnded[0] || next < 1000; next++) {
                writer.put((int) (next % KEYS), value(next));
                if (random.nextInt(60) == 0) {
                    writer.commit();
                    pause(1);
                }
            }
        });
        thread.start();
        long last = -1;
        int checked = 0;
        // Rows of a small buffer are mostly ahead of their offset, so publications are rare.
        int wanted = writeBuffer < 10_000 ? 2 : 12;
        for (long until = System.nanoTime() + WAIT_MS * 1_000_000; checked < wanted; ) {
            assertTrue(System.nanoTime() < until, checked + " checkpoints only");
            BackupInfo info = newest();
            if (info == null || info.id() == last) {
                pause(1);
                continue;
            }
            Path path = folder.resolve("read " + reads++);
            try {
                checkpoints().install(info.id(), path);
            } catch (NotFoundException e) {
                continue;
            }
            last = info.id();
            checked++;
            try (Database database = Database.open(path)) {
                long offset = Meta.number(database.tree("meta").get(Meta.offsetKey(PARTITION)), -1);
                assertFalse(database.tree("meta").contains(Meta.AHEAD));
                Tree rows = database.openTree("rows KEY_VALUE PLAIN 0");
                assertEquals(Math.min(offset + 1, KEYS), rows.count());
                for (long at = Math.max(0, offset - KEYS + 1); at <= offset; at++) {
                    assertArrayEquals(value(at), rows.get(key((int) (at % KEYS)).get()), "offset " + offset);
                }
            }
        }
        isEnded[0] = true;
        thread.join();
        // A tiny buffer overflows while the state is taken.
        assertTrue(writeBuffer < 10_000 || writer.metric("checkpoint-failed-total") == 0);
    }

    @Test
    void zombie_thatGoesOn_doesNotReplaceTheNextOwnersCheckpoint() {
        Instance zombie = published(Map.of());
        Instance owner = new Instance("second", Map.of()).open();
        owner.restore();
        owner.publish();
        long newest = newest().id();
        owner.isActive = false;
        pause(50);

        // It still believes that it is active, and in the worst case its commits are late ones that Kafka
        // had accepted. It finds out that there was a later claim, and claims the place again.
        zombie.isActive = true;
        String claimed = claim();
        for (int round = 0; claim().equals(claimed); round++) {
            assertTrue(round < 20);
            zombie.store.put(key(1), value(-1));
            zombie.store.commit(Map.of(PARTITION, zombie.offset));
            for (int i = 0; i < 200 && claim().equals(claimed); i++) {
                pause(5);
            }
        }
        // Kafka refuses its commits from now on.
        for (int i = 0; i < 30; i++) {
            zombie.store.put(key(i), value(-1));
            pause(10);
        }
        assertEquals(newest, newest().id());
        owner.isActive = true;
        owner.publish();
        assertTrue(newest().id() > newest);
        Instance third = new Instance("third", Map.of()).open();
        assertEquals(owner.offset, third.store.committedOffset(PARTITION));
        third.restore();
        checkRows(third.store);
    }

    private String[] claims() {
        return new File(place() + "/test/store/0").list((folder, name) -> name.endsWith(".owner"));
    }

    private String claim() {
        return Stream.of(claims()).max(Comparator.naturalOrder()).orElseThrow();
    }

    @Test
    void standby_publishesNothing() {
        Instance standby = new Instance("first", Map.of());
        standby.isActive = false;
        standby.open();
        for (int i = 0; i < 30; i++) {
            standby.put(i, value(i));
            standby.commit();
            pause(5);
        }
        assertNull(newest());
        standby.isActive = true;
        standby.publish();
        assertNotNull(newest());
    }

    @Test
    void restore_withoutPuts_publishesNothing() {
        for (int key = 0; key < KEYS; key++) {
            topic.append(key(key).get(), value(key));
        }
        Instance restoring = new Instance("first", Map.of()).open();
        for (int i = 0; i < 20; i++) {
            restoring.restore();
            restoring.commit();
            pause(5);
        }
        assertNull(newest());
        restoring.publish();
        checkRows(new Instance("second", Map.of()).open().store);
    }

    /** Kafka commits a store without a question to the group if no record was processed. */
    @Test
    void commits_ofAPunctuator_proveNothing() {
        Instance first = new Instance("first", Map.of()).open();
        for (boolean isClaimed : new boolean[] {false, true}) {
            for (int i = 0; i < 30; i++) {
                first.context.at(-1);
                first.store.put(key(i), value(i));
                first.offset = topic.append(key(i).get(), value(i));
                first.commit();
                pause(5);
            }
            assertNull(newest());
            if (!isClaimed) {
                assertFalse(Files.exists(Path.of(place())));
                first.put(1, value(1));
                first.commit();
                await(() -> Files.exists(Path.of(place(), "test", "store", "0")) && claims().length == 1);
            }
        }
        first.publish();
        checkRows(new Instance("second", Map.of()).open().store);
    }

    /** Kafka makes an active task a standby and back, and the store stays open. */
    @Test
    void taskThatWasStandbyForATime_claimsAgain() {
        Instance first = new Instance("first", Map.of()).open();
        first.publish();
        pause(100);
        String claimed = claim();
        long newest = newest().id();
        for (int i = 0; i < 20; i++) {
            topic.append(key(i).get(), value(-i));
            first.restore();
            pause(5);
        }
        assertEquals(newest, newest().id());
        first.publish();
        assertNotEquals(claimed, claim());
        checkRows(new Instance("second", Map.of()).open().store);
    }

    private void checkRefused(Instance refused, String metric) {
        assertEquals(1, refused.metric(metric));
        assertNull(refused.store.committedOffset(PARTITION));
        assertEquals(0, count(refused.store));
        assertFalse(Files.exists(refused.directory.toPath().resolve("braiddb-install")));
        assertEquals(topic.records.size(), refused.restore());
        checkRows(refused.store);
    }

    @Test
    void open_withATornCheckpoint_beginsEmpty() throws IOException {
        published(Map.of());
        Path run;
        try (Stream<Path> files = Files.list(Path.of(place(), "test", "store", "0"))) {
            run = files.filter(file -> file.toString().endsWith(".run")).findAny().orElseThrow();
        }
        byte[] bytes = Files.readAllBytes(run);
        bytes[bytes.length / 2] ^= 1;
        Files.write(run, bytes);
        checkRefused(new Instance("second", Map.of()).open(), "checkpoint-failed-total");
        Files.delete(run);
        checkRefused(new Instance("third", Map.of()).open(), "checkpoint-failed-total");
    }

    /** A process that was killed during an installation leaves files, in the worst case unchecked ones. */
    @Test
    void open_afterAKilledInstallation_installsAgain() throws IOException {
        Instance first = published(Map.of());
        Path staging = folder.resolve("second").resolve("braiddb-install").resolve("store");
        Files.createDirectories(staging.resolve("database.download"));
        Files.writeString(staging.resolve("database.download").resolve("000001-0-000001.run.part"), "torn");
        try (Database unchecked = Database.open(staging.resolve("database"))) {
            unchecked.tree("meta").put(Meta.offsetKey(PARTITION), Meta.number(5));
        }
        Files.createDirectories(folder.resolve("second").resolve("braiddb").resolve("store"));
        Instance second = new Instance("second", Map.of()).open();
        assertEquals(first.offset, second.store.committedOffset(PARTITION));
        checkRows(second.store);
    }

    /** The checkpoint that was downloaded is gone, and the newest has records that came meanwhile. */
    @Test
    void open_whileTheOwnerPublishes_installsTheNextCheckpoint() {
        Instance first = published(Map.of());
        long before = first.offset;
        Instance second = new Instance("second", Map.of());
        second.afterFacts = () -> {
            first.isActive = true;
            for (int i = 0; i < 3; i++) {
                first.publish();
            }
            first.isActive = false;
        };
        second.open();
        assertEquals(1, second.metric("checkpoint-installed-total"));
        assertEquals(first.offset, second.store.committedOffset(PARTITION));
        assertTrue(first.offset > before);
        checkRows(second.store);
    }

    @Test
    void open_withACheckpointOfAnotherApplication_beginsEmpty() throws IOException {
        published(Map.of());
        Path from = Path.of(place(), "test", "store", "0");
        Path to = Path.of(place(), "other", "store", "0");
        Files.createDirectories(to);
        try (Stream<Path> files = Files.list(from)) {
            for (Path file : files.toList()) {
                Files.copy(file, to.resolve(file.getFileName()));
            }
        }
        checkRefused(new Instance("second", Map.of()).open("other"), "checkpoint-refused-total");
    }

    @Test
    void open_withAnOldCheckpoint_beginsEmpty() {
        published(Map.of());
        pause(30);
        checkRefused(
                new Instance("second", Map.of(BraidStoreConfig.CHECKPOINT_MAX_AGE_MS, 20)).open(),
                "checkpoint-refused-total");
        topic.deleteRetentionMs = 40;
        checkRefused(new Instance("third", Map.of()).open(), "checkpoint-refused-total");
        topic.deleteRetentionMs = 1_000_000;
        assertEquals(0, new Instance("fourth", Map.of()).open().restore());
    }

    /** Only a commit of input shows that the instance still had its task. */
    @Test
    void open_withAnOldStateThatWasPublishedAgain_beginsEmpty() {
        Instance first = new Instance("first", Map.of()).open();
        first.publish();
        pause(2000);
        long published = first.metric("checkpoint-published-total");
        first.context.at(-1);
        await(() -> {
            first.store.put(key(0), value(1));
            first.offset = topic.append(key(0).get(), value(1));
            first.commit();
            return first.metric("checkpoint-published-total") > published;
        });
        first.isActive = false;
        checkRefused(
                new Instance("second", Map.of(BraidStoreConfig.CHECKPOINT_MAX_AGE_MS, 2000)).open(),
                "checkpoint-refused-total");
        assertNotNull(new Instance("third", Map.of()).open().store.committedOffset(PARTITION));
    }

    @Test
    void idleStore_isNotPublishedAgain() {
        topic.deleteRetentionMs = 100_000;
        Instance first = new Instance("first", Map.of(BraidStoreConfig.CHECKPOINT_MAX_AGE_MS, 400)).open();
        await(() -> {
            first.put(0, value(0));
            first.commit();
            return newest() != null;
        });
        pause(700);
        long newest = newest().id();
        pause(500);
        assertEquals(newest, newest().id());
    }

    @Test
    void topicThatKeepsNoDeletions_getsNoCheckpoints() {
        topic.deleteRetentionMs = 0;
        Instance first = new Instance("first", Map.of()).open();
        for (int i = 0; i < 40; i++) {
            first.put(i, value(i));
            first.commit();
            pause(5);
        }
        assertNull(newest());
        assertEquals(0, first.metric("checkpoint-failed-total"));
    }

    @Test
    void open_withAnotherChangelog_beginsEmpty() {
        Instance first = published(Map.of());
        topic.id = "second";
        checkRefused(new Instance("second", Map.of()).open(), "checkpoint-refused-total");
        topic.id = "first";
        topic.start = first.offset + 2;
        Instance third = new Instance("third", Map.of()).open();
        assertNull(third.store.committedOffset(PARTITION));
        topic.start = first.offset + 1;
        assertEquals(first.offset, new Instance("fourth", Map.of()).open().store.committedOffset(PARTITION));
        topic.records.subList((int) first.offset, topic.records.size()).clear();
        checkRefused(new Instance("fifth", Map.of()).open(), "checkpoint-refused-total");
        // Nor is the store with the rows of the first topic published as one of the second.
        topic.id = "second";
        long newest = newest().id();
        first.store.close();
        first.open();
        first.isActive = true;
        for (int i = 0; i < 20; i++) {
            first.put(i, value(i));
            first.commit();
            pause(10);
        }
        assertEquals(newest, newest().id());
        assertTrue(first.metric("checkpoint-failed-total") > 0);
    }

    /** Kafka wipes a directory whose offset is not in the changelog: the next open must not loop. */
    @Test
    void open_afterAWipe_doesNotInstallTheSameCheckpointAgain() {
        Instance first = published(Map.of());
        Instance second = new Instance("second", Map.of()).open();
        assertEquals(first.offset, second.store.committedOffset(PARTITION));
        second.isActive = false;
        second.store.close();
        wipe(second.directory.toPath());
        checkRefused(second.open(), "checkpoint-refused-total");
        second.store.close();
        wipe(second.directory.toPath());
        first.isActive = true;
        first.publish();
        first.isActive = false;
        assertEquals(first.offset, second.open().store.committedOffset(PARTITION));
    }

    /** Kafka does not wipe it at at-least-once, and commits without an offset. */
    @Test
    void commit_withoutAnOffset_emptiesTheStoreAtTheNextOpen() {
        Instance first = published(Map.of());
        first.store.commit(Map.of());
        first.store.close();
        first.open();
        assertNull(first.store.committedOffset(PARTITION));
        assertEquals(0, count(first.store));
        assertEquals(topic.records.size(), first.restore());
        first.store.close();
        first.open();
        checkRows(first.store);
    }

    @Test
    void publication_thatFails_isCountedAndRepeated() throws IOException {
        Files.writeString(Path.of(place()), "a file");
        Instance first = new Instance("first", Map.of()).open();
        await(() -> {
            first.put(1, value(1));
            first.commit();
            return first.metric("checkpoint-failed-total") > 2;
        });
        Files.delete(Path.of(place()));
        first.publish();
        checkRows(new Instance("second", Map.of()).open().store);
    }

    /** Each attempt asks the brokers, which may be down for long. */
    @Test
    void claim_thatFails_isRepeatedAfterAPause() {
        Instance first = new Instance("first", Map.of(BraidStoreConfig.CHECKPOINT_INTERVAL_MS, 800));
        AtomicInteger asked = new AtomicInteger();
        Runnable[] refuse = {null};
        first.open();
        refuse[0] = () -> {
            asked.incrementAndGet();
            first.afterFacts = refuse[0];
            throw new IllegalStateException("the brokers are down");
        };
        first.afterFacts = refuse[0];
        for (long until = System.nanoTime() + 2_000_000_000; System.nanoTime() < until; pause(5)) {
            first.put(1, value(1));
            first.commit();
        }
        // A tick comes each 200 ms.
        long failed = first.metric("checkpoint-failed-total");
        assertTrue(failed >= 1 && failed <= 3, failed + " failures");
        // The last attempt may not have counted its failure yet.
        await(() -> first.metric("checkpoint-failed-total") == asked.get());
        first.afterFacts = () -> { };
        first.publish();
    }

    /** At exactly-once without transactions Kafka commits stores at their close only. */
    @Test
    void exactlyOnce_withoutTransactions_installsButDoesNotPublish() {
        published(Map.of());
        long newest = newest().id();
        Instance second = new Instance("second", TestContext.exactlyOnce(false)).open();
        assertEquals(0, second.restore());
        for (int i = 0; i < 20; i++) {
            second.put(i, value(i));
            second.commit();
            pause(5);
        }
        assertEquals(newest, newest().id());
    }

    /** The uncommitted rows become too many while the state is taken. */
    @Test
    void publication_whoseRowsGetAhead_isNotVisible() throws InterruptedException {
        Instance first = new Instance("first", Map.of(BraidStoreConfig.WRITE_BUFFER_BYTES, 100));
        first.isActive = false;
        Storage storage = first.open().store.storage();
        long epoch = checkpoints().claim("test");
        storage.claimed();
        int ended = 0;
        for (int round = 0; round < 30; round++) {
            first.put(1, value(round));
            first.commit();
            assertTrue(storage.hold(WAIT_MS));
            try (Checkpoints.Publication publication =
                    storage.begin(() -> checkpoints().begin(storage.database(), epoch))) {
                for (int i = 0; i < 10; i++) {
                    first.put(i, value(-i));
                }
                assertFalse(storage.release());
                publication.awaitTaken();
                publication.finish();
            } catch (ClosedException e) {
                ended++;
            } finally {
                storage.ended();
            }
            first.commit();
            if (newest() != null) {
                Path path = folder.resolve("read " + reads++);
                checkpoints().install(newest().id(), path);
                try (Database database = Database.open(path)) {
                    assertFalse(database.tree("meta").contains(Meta.AHEAD));
                }
            }
        }
        assertTrue(ended > 0);
    }

    /** Rows are ahead of the offset, and the publication waits for the next commit. */
    @Test
    void close_beforeTheCommitOfAPublication_isNoFailure() {
        Instance first = new Instance("first", Map.of(BraidStoreConfig.WRITE_BUFFER_BYTES, 100)).open();
        await(() -> {
            first.put(1, value(1));
            first.commit();
            for (int i = 0; i < 10; i++) {
                first.put(i, value(i));
            }
            pause(50);
            return isPublisherIn("hold");
        });
        long failed = first.metric("checkpoint-failed-total");
        first.store.close();
        await(() -> !isPublisherIn("hold"));
        first.open();
        assertEquals(failed, first.metric("checkpoint-failed-total"));
    }

    private static boolean isPublisherIn(String... methods) {
        return Thread.getAllStackTraces().entrySet().stream()
                .filter(thread -> thread.getKey().getName().equals("braiddb-checkpoints"))
                .flatMap(thread -> Stream.of(thread.getValue()))
                .anyMatch(frame -> List.of(methods).contains(frame.getMethodName()));
    }

    @Test
    void close_duringAPublication_releasesTheDirectory() {
        Instance first = new Instance("first", Map.of()).open();
        Random random = new Random(1);
        byte[] large = new byte[100_000];
        int ended = 0;
        for (int round = 0; ended < 5; round++) {
            assertTrue(round < 100, ended + " publications were ended");
            long before = newest() == null ? -1 : newest().id();
            for (int i = 1; i < 50; i++) {
                random.nextBytes(large);
                first.put(i, large.clone());
            }
            boolean isSeen = false;
            for (long until = System.nanoTime() + 1_000_000_000; !isSeen && System.nanoTime() < until; ) {
                first.put(0, value(round));
                first.commit();
                isSeen = isPublisherIn("awaitTaken", "finish");
            }
            first.store.close();
            ended += isSeen && (newest() == null ? -1 : newest().id()) == before ? 1 : 0;
            first.open();
        }
        first.publish();
        checkRows(new Instance("second", Map.of()).open().store);
    }
}
