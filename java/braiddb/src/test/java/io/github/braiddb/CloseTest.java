package io.github.braiddb;

import static io.github.braiddb.Bytes.bytes;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(300)
class CloseTest {
    /** Eight threads read and write through all kinds of handles, while others close them. */
    @Test
    void handles_close_in_any_order_under_eight_threads() throws Exception {
        Random random = new Random(Bytes.seed());
        for (int round = 0; round < Bytes.volume(100); round++) {
            Database database = Database.openInMemory();
            Tree tree = database.tree("a");
            for (int i = 0; i < 200; i++) {
                tree.put(bytes("k" + i), bytes("v"), Durability.NONE);
            }
            Snapshot snapshot = database.snapshot();
            Transaction transaction = database.begin();
            List<AutoCloseable> handles = new ArrayList<>(List.of(
                    database, snapshot, transaction, tree.scan(), snapshot.tree(tree).scan(),
                    transaction.tree(tree).scan(), database.watch(), database.batch(), tree.bulkLoader()));
            Collections.shuffle(handles, random);
            SnapshotTree in_snapshot = snapshot.tree(tree);
            TransactionTree in_transaction = transaction.tree(tree);
            AtomicReference<Throwable> fault = new AtomicReference<>();
            CyclicBarrier start = new CyclicBarrier(8);
            List<Thread> threads = new ArrayList<>();
            for (int i = 0; i < 8; i++) {
                int number = i;
                threads.add(new Thread(() -> {
                    try {
                        start.await();
                        for (int n = 0; n < handles.size(); n++) {
                            AutoCloseable handle = handles.get((n + number) % handles.size());
                            try {
                                tree.get(bytes("k1"));
                                in_snapshot.get(bytes("k1"));
                                in_transaction.put(bytes("k1"), bytes("w"));
                                if (handle instanceof RowIterator rows && rows.hasNext()) {
                                    rows.next();
                                }
                            } catch (ClosedException | java.util.NoSuchElementException e) {
                                // Another thread was faster.
                            }
                            handle.close();
                        }
                    } catch (Throwable e) {
                        fault.compareAndSet(null, e);
                    }
                }));
            }
            threads.forEach(Thread::start);
            for (Thread thread : threads) {
                thread.join();
            }
            if (fault.get() != null) {
                throw new AssertionError("round " + round, fault.get());
            }
            assertTrue(database.isClosed());
        }
    }

    @Test
    void misuse_ends_no_virtual_machine() throws Exception {
        Misuse misuse = Misuse.run(Math.max(2, Bytes.volume(5)), Bytes.seed());
        assertEquals(Map.of(), misuse.faults);
        assertTrue(misuse.calls.get() > 1000, misuse.outcomes::toString);
        assertTrue(misuse.outcomes.containsKey("ClosedException"), misuse.outcomes::toString);
    }

    /** The collector frees handles that nobody closes, and closes their database. */
    @Test
    void forgotten_handles_are_freed() throws Exception {
        Database kept = Database.openInMemory();
        Tree tree = kept.tree("a");
        for (int i = 0; i < 100; i++) {
            tree.put(bytes("k" + i), bytes("v"), Durability.NONE);
        }
        for (int i = 0; i < 1000; i++) {
            kept.snapshot();
            kept.begin().tree(tree).scan().next();
            tree.scan().next();
        }
        long deadline = System.nanoTime() + 60_000_000_000L;
        while (kept.stats().snapshots() > 0 && System.nanoTime() < deadline) {
            System.gc();
            Thread.sleep(20);
        }
        assertEquals(0, kept.stats().snapshots());
        kept.close();
    }
}
