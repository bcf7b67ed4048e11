package io.github.braiddb;

import static io.github.braiddb.Bytes.bytes;
import static io.github.braiddb.Bytes.text;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class TreeTest {
    @TempDir Path folder;

    @Test
    void values_after_reopen_are_there() {
        Path path = folder.resolve("db");
        try (Database database = Database.open(path)) {
            Tree tree = database.tree("a");
            tree.put(bytes("k"), bytes("v"));
            tree.put(bytes("empty"), bytes(""));
            tree.put(bytes("empty"), bytes(""), Durability.BUFFERED);
            assertEquals("a", tree.name());
            assertEquals(path, database.path());
        }
        try (Database database = Database.open(path, new Options().create(false))) {
            Tree tree = database.openTree("a");
            assertEquals("v", text(tree.get(bytes("k"))));
            assertArrayEquals(new byte[0], tree.get(bytes("empty")));
            assertNull(tree.get(bytes("other")));
            assertEquals(2, tree.count());
        }
    }

    @Test
    void writes_of_one_key_change_it_as_named() {
        try (Database database = Database.openInMemory()) {
            Tree tree = database.tree("a");
            byte[] key = bytes("k");
            assertTrue(tree.isEmpty());
            assertNull(tree.getAndPut(key, bytes("1")));
            assertEquals("1", text(tree.getAndPut(key, bytes("2"))));
            assertFalse(tree.putIfAbsent(key, bytes("3")));
            assertEquals("2", text(tree.get(key)));
            assertFalse(tree.compareAndSet(key, bytes("1"), bytes("4")));
            assertTrue(tree.compareAndSet(key, bytes("2"), bytes("4")));
            assertEquals("4", text(tree.remove(key)));
            assertNull(tree.remove(key));
            assertFalse(tree.contains(key));
            assertTrue(tree.compareAndSet(key, null, bytes("5")));
            assertTrue(tree.contains(key));
            assertTrue(tree.compareAndSet(key, bytes("5"), null));
            assertTrue(tree.putIfAbsent(key, bytes("6")));
            tree.delete(key);
            tree.delete(key, Durability.NONE);
            assertNull(tree.get(key));
            tree.add(key, 40);
            tree.add(key, 2);
            assertEquals(42, ByteBuffer.wrap(tree.get(key)).order(ByteOrder.LITTLE_ENDIAN).getLong());
            assertThrows(NotFoundException.class, () -> tree.merge(key, "no such function", key));
        }
    }

    @Test
    void rows_at_the_ends_are_returned_and_removed() {
        try (Database database = Database.openInMemory()) {
            Tree tree = database.tree("a");
            assertNull(tree.first());
            assertNull(tree.popLast());
            for (String key : List.of("a", "b", "c")) {
                tree.put(bytes(key), bytes(key + key));
            }
            assertEquals(new Row(bytes("a"), bytes("aa")), tree.first());
            assertEquals(new Row(bytes("c"), bytes("cc")), tree.last());
            assertNotEquals(tree.first(), tree.last());
            assertEquals(tree.first(), tree.popFirst());
            assertEquals(new Row(bytes("c"), bytes("cc")), tree.popLast());
            assertEquals(1, tree.count(KeyRange.from(bytes("b"))));
            assertEquals(0, tree.count(KeyRange.to(bytes("b"))));
            tree.clear();
            assertEquals(0, tree.count());
        }
    }

    @Test
    void rows_with_a_time_to_live_expire() throws InterruptedException {
        try (Database database = Database.openInMemory()) {
            Tree tree = database.tree("a");
            Instant before = Instant.now();
            tree.put(bytes("hour"), bytes("v"), Duration.ofHours(1));
            ReadableTree.Expiring found = tree.getWithExpiry(bytes("hour")).orElseThrow();
            assertEquals("v", text(found.value()));
            Duration left = Duration.between(before, found.expires());
            assertTrue(left.toMinutes() >= 59 && left.toMinutes() <= 61, left::toString);
            tree.putKeepingTtl(bytes("hour"), bytes("w"));
            assertEquals(found.expires(), tree.getWithExpiry(bytes("hour")).orElseThrow().expires());
            tree.put(bytes("never"), bytes("v"));
            assertNull(tree.getWithExpiry(bytes("never")).orElseThrow().expires());
            assertTrue(tree.getWithExpiry(bytes("absent")).isEmpty());
            tree.putUntil(bytes("past"), bytes("v"), Instant.EPOCH.plusSeconds(1));
            assertNull(tree.get(bytes("past")));
            Tree of_tree = database.tree("ttl", new TreeOptions().ttl(Duration.ofDays(1)));
            of_tree.put(bytes("k"), bytes("v"));
            assertTrue(of_tree.getWithExpiry(bytes("k")).orElseThrow().expires().isAfter(before));
            assertThrows(
                    InvalidArgumentException.class,
                    () -> tree.put(bytes("k"), bytes("v"), Duration.ofSeconds(Long.MAX_VALUE)));
            assertThrows(
                    InvalidArgumentException.class, () -> tree.putUntil(bytes("k"), bytes("v"), Instant.MIN));
        }
    }

    @Test
    void values_of_any_size_are_copied_whole() {
        try (Database database = Database.open(folder.resolve("db"))) {
            Tree tree = database.tree("a");
            Random random = new Random(1);
            for (int len : new int[] {1, 4095, 4096, 4097, 65_535, 65_536, 65_537, 1 << 20, 5_000_000}) {
                byte[] key = bytes("key of " + len);
                byte[] value = Bytes.random(random, len);
                tree.put(key, value);
                assertArrayEquals(value, tree.get(key));
                assertArrayEquals(value, tree.getAll(List.of(bytes("no"), key)).get(1));
                assertArrayEquals(value, tree.getAndPut(key, value));
                assertArrayEquals(value, tree.getWithExpiry(key).orElseThrow().value());
                try (RowIterator rows = tree.scan(KeyRange.prefix(key))) {
                    assertArrayEquals(value, rows.next().value());
                    assertFalse(rows.hasNext());
                }
                assertArrayEquals(value, tree.remove(key));
            }
            byte[] key = Bytes.random(random, 65_536);
            tree.put(key, key);
            assertArrayEquals(key, tree.get(key));
            assertArrayEquals(key, tree.first().key());
            byte[] tooLong = new byte[65_537];
            assertThrows(InvalidArgumentException.class, () -> tree.put(tooLong, key));
        }
    }

    @Test
    void many_keys_are_read_in_one_call() {
        try (Database database = Database.openInMemory()) {
            Tree tree = database.tree("a");
            tree.put(bytes("a"), bytes("1"));
            tree.put(bytes("c"), bytes("3"));
            List<byte[]> values = tree.getAll(List.of(bytes("c"), bytes("b"), bytes("a"), bytes("c")));
            assertEquals(List.of("3", "1", "3"), values.stream().filter(v -> v != null).map(Bytes::text).toList());
            assertNull(values.get(1));
            assertTrue(tree.getAll(List.of()).isEmpty());
        }
    }

    @Test
    void trees_are_listed_renamed_and_dropped() {
        try (Database database = Database.openInMemory()) {
            Tree tree = database.tree("a", new TreeOptions().ttl(Duration.ofMinutes(2)));
            database.multiTree("m");
            assertEquals(
                    List.of(
                            new TreeInfo("a", false, null, Duration.ofMinutes(2)),
                            new TreeInfo("m", true, null, null)),
                    database.trees());
            database.renameTree("a", "b");
            assertEquals("b", tree.name());
            assertThrows(AlreadyExistsException.class, () -> database.renameTree("b", "m"));
            database.dropTree("b");
            assertThrows(NotFoundException.class, () -> database.openTree("b"));
            assertThrows(InvalidArgumentException.class, () -> database.tree("m"));
            assertThrows(InvalidArgumentException.class, () -> database.tree("\ud83d\ude00".repeat(100_000)));
        }
    }

    @Test
    void errors_have_their_own_classes() {
        Path path = folder.resolve("db");
        assertThrows(NotFoundException.class, () -> Database.open(path, new Options().create(false)));
        try (Database database = Database.open(path)) {
            LockedException locked = assertThrows(LockedException.class, () -> Database.open(path));
            assertTrue(locked.getMessage().contains("db"), locked::getMessage);
            database.tree("a");
        }
        try (Database database = Database.open(path, new Options().readOnly(true))) {
            assertThrows(ReadOnlyException.class, () -> database.openTree("a").put(bytes("k"), bytes("v")));
        }
        assertThrows(NullPointerException.class, () -> Database.open(null));
    }

    @Test
    void calls_after_the_close_throw_closed() {
        Database database = Database.open(folder.resolve("db"));
        Tree tree = database.tree("a");
        MultiTree multi = database.multiTree("m");
        tree.put(bytes("k"), bytes("v"));
        Snapshot snapshot = database.snapshot();
        SnapshotTree view = snapshot.tree(tree);
        Transaction transaction = database.begin();
        TransactionTree in = transaction.tree(tree);
        RowIterator rows = tree.scan();
        Watcher watcher = database.watch();
        Batch batch = database.batch();
        batch.put(tree, bytes("k"), bytes("v"));
        database.close();
        database.close();
        assertTrue(database.isClosed());
        assertThrows(ClosedException.class, () -> tree.get(bytes("k")));
        assertThrows(ClosedException.class, () -> tree.put(bytes("k"), bytes("v")));
        assertThrows(ClosedException.class, () -> tree.scan());
        assertThrows(ClosedException.class, () -> multi.add(bytes("k"), bytes("v")));
        assertThrows(ClosedException.class, () -> view.get(bytes("k")));
        assertThrows(ClosedException.class, () -> in.get(bytes("k")));
        assertThrows(ClosedException.class, transaction::commit);
        assertThrows(ClosedException.class, watcher::token);
        assertThrows(ClosedException.class, batch::commit);
        assertThrows(ClosedException.class, database::stats);
        rows.next();
        rows.close();
        transaction.close();
        watcher.close();
        batch.close();
        snapshot.close();
        Database.open(folder.resolve("db")).close();
    }

    @Test
    void null_arguments_throw_and_change_nothing() {
        try (Database database = Database.openInMemory()) {
            Tree tree = database.tree("a");
            assertThrows(NullPointerException.class, () -> tree.get(null));
            assertThrows(NullPointerException.class, () -> tree.put(bytes("k"), (byte[]) null));
            assertThrows(NullPointerException.class, () -> tree.put(null, bytes("v")));
            assertThrows(NullPointerException.class, () -> tree.scan(null));
            assertThrows(NullPointerException.class, () -> tree.compareAndSet(null, null, null));
            assertThrows(NullPointerException.class, () -> database.tree(null));
            try (Batch batch = database.batch()) {
                assertThrows(NullPointerException.class, () -> batch.put(tree, bytes("k"), null));
                assertEquals(0, batch.size());
                batch.commit();
            }
            assertTrue(tree.isEmpty());
        }
    }
}
