package io.github.braiddb;

import static io.github.braiddb.Bytes.bytes;
import static io.github.braiddb.Bytes.text;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class TransactionTest {
    @TempDir Path folder;

    @Test
    void commit_applies_all_writes_and_rollback_none() {
        try (Database database = Database.openInMemory()) {
            Tree tree = database.tree("a");
            Tree other = database.tree("b");
            tree.put(bytes("old"), bytes("1"));
            try (Transaction transaction = database.begin()) {
                TransactionTree in = transaction.tree(tree);
                in.put(bytes("new"), bytes("2"));
                in.delete(bytes("old"));
                transaction.tree(other).add(bytes("count"), 5);
                assertEquals("2", text(in.get(bytes("new"))));
                assertNull(in.get(bytes("old")));
                assertEquals(1, in.count());
                assertEquals("1", text(tree.get(bytes("old"))));
                assertEquals(3, transaction.changes());
                assertTrue(transaction.commit() > transaction.sequence());
                assertFalse(transaction.isOpen());
                assertThrows(ClosedException.class, () -> in.get(bytes("new")));
                assertThrows(ClosedException.class, transaction::commit);
            }
            assertNull(tree.get(bytes("old")));
            assertEquals(8, other.get(bytes("count")).length);
            try (Transaction transaction = database.begin()) {
                transaction.tree(tree).clear();
            }
            assertEquals(1, tree.count());
        }
    }

    @Test
    void commit_after_a_change_of_its_reads_conflicts() {
        try (Database database = Database.openInMemory()) {
            Tree tree = database.tree("a");
            try (Transaction transaction = database.begin()) {
                assertNull(transaction.tree(tree).get(bytes("k")));
                tree.put(bytes("k"), bytes("other"));
                transaction.tree(tree).put(bytes("k"), bytes("mine"));
                assertThrows(ConflictException.class, transaction::commit);
                assertFalse(transaction.isOpen());
            }
            assertEquals("other", text(tree.get(bytes("k"))));
        }
    }

    @Test
    void update_repeats_conflicts_until_all_count() throws InterruptedException {
        try (Database database = Database.openInMemory()) {
            Tree tree = database.tree("a");
            AtomicInteger runs = new AtomicInteger();
            List<Thread> threads = new ArrayList<>();
            for (int i = 0; i < 4; i++) {
                threads.add(new Thread(() -> {
                    for (int n = 0; n < 50; n++) {
                        database.update(Durability.NONE, transaction -> {
                            runs.incrementAndGet();
                            TransactionTree in = transaction.tree(tree);
                            byte[] value = in.get(bytes("n"));
                            int next = value == null ? 1 : ByteBuffer.wrap(value).getInt() + 1;
                            Thread.yield();
                            in.put(bytes("n"), ByteBuffer.allocate(4).putInt(next).array());
                            return next;
                        });
                    }
                }));
            }
            for (Thread thread : threads) {
                thread.start();
            }
            for (Thread thread : threads) {
                thread.join();
            }
            assertEquals(200, ByteBuffer.wrap(tree.get(bytes("n"))).getInt());
            assertTrue(runs.get() >= 200);
        }
    }

    @Test
    void update_whose_work_throws_is_rolled_back() {
        try (Database database = Database.openInMemory()) {
            Tree tree = database.tree("a");
            assertThrows(IOException.class, () -> database.update(transaction -> {
                transaction.tree(tree).put(bytes("k"), bytes("v"));
                throw new IOException("no");
            }));
            assertTrue(tree.isEmpty());
            String result = database.update(transaction -> "done");
            assertEquals("done", result);
        }
    }

    @Test
    void savepoint_undoes_later_writes() {
        try (Database database = Database.openInMemory(); Transaction transaction = database.begin()) {
            TransactionTree in = transaction.tree(database.tree("a"));
            in.put(bytes("1"), bytes("v"));
            Savepoint savepoint = transaction.savepoint();
            in.put(bytes("2"), bytes("v"));
            RowIterator rows = in.scan();
            rows.next();
            transaction.rollbackTo(savepoint);
            assertFalse(rows.hasNext());
            assertEquals(1, in.count());
            try (Transaction other = database.begin()) {
                assertThrows(InvalidArgumentException.class, () -> other.rollbackTo(savepoint));
            }
        }
    }

    @Test
    void exclusive_transaction_never_conflicts() {
        try (Database database = Database.openInMemory()) {
            Tree tree = database.tree("a");
            try (Transaction transaction = database.beginExclusive()) {
                assertTrue(transaction.tree(tree).putIfAbsent(bytes("k"), bytes("v")));
                assertFalse(transaction.tree(tree).compareAndSet(bytes("k"), bytes("w"), null));
                assertEquals("v", text(transaction.tree(tree).getAndPut(bytes("k"), bytes("w"))));
                assertTrue(transaction.tree(tree).compareAndSet(bytes("k"), bytes("w"), bytes("x")));
                transaction.commit(Durability.BUFFERED);
            }
            assertEquals("x", text(tree.get(bytes("k"))));
            Transaction lost = database.beginExclusive();
            assertTrue(database.revokeExclusive());
            tree.put(bytes("k"), bytes("y"));
            lost.close();
        }
    }

    /** An iterator kept the native transaction, so the close of an exclusive one ended nothing. */
    @Test
    void close_ends_a_transaction_with_an_open_iterator() {
        Options options = new Options().exclusiveWaitMax(Duration.ofMillis(500));
        try (Database database = Database.open(folder.resolve("db"), options)) {
            Tree tree = database.tree("a");
            tree.put(bytes("k"), bytes("v"));
            Transaction transaction = database.beginExclusive();
            RowIterator rows = transaction.tree(tree).scan();
            rows.next();
            transaction.close();
            tree.put(bytes("k"), bytes("w"));
            rows.close();
        }
    }

    @Test
    void application_cursor_is_committed_with_the_writes() {
        try (Database database = Database.openInMemory()) {
            Tree tree = database.tree("a");
            assertNull(database.applicationCursor());
            try (Transaction transaction = database.begin()) {
                transaction.tree(tree).put(bytes("k"), bytes("v"));
                transaction.setApplicationCursor(bytes("offset 7"));
                transaction.commit();
            }
            assertEquals("offset 7", text(database.applicationCursor()));
            try (Batch batch = database.batch()) {
                batch.put(tree, bytes("k"), bytes("w")).setApplicationCursor(bytes("offset 8")).commit();
            }
            assertEquals("offset 8", text(database.applicationCursor()));
        }
    }

    @Test
    void trees_of_another_database_are_refused() {
        try (Database one = Database.openInMemory(); Database two = Database.openInMemory()) {
            Tree tree = two.tree("a");
            MultiTree multi = two.multiTree("m");
            try (Transaction transaction = one.begin(); Snapshot snapshot = one.snapshot(); Batch batch = one.batch()) {
                assertThrows(InvalidArgumentException.class, () -> transaction.tree(tree));
                assertThrows(InvalidArgumentException.class, () -> transaction.tree(multi));
                assertThrows(InvalidArgumentException.class, () -> snapshot.tree(tree));
                assertThrows(InvalidArgumentException.class, () -> batch.put(tree, bytes("k"), bytes("v")));
                assertThrows(InvalidArgumentException.class, () -> one.watch(new WatchOptions().tree(tree)));
            }
        }
    }
}
