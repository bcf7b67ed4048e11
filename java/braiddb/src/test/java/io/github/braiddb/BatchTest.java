package io.github.braiddb;

import static io.github.braiddb.Bytes.bytes;
import static io.github.braiddb.Bytes.text;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.management.BufferPoolMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class BatchTest {
    @TempDir Path folder;

    @Test
    void commit_applies_all_writes_in_order() {
        try (Database database = Database.openInMemory(); Batch batch = database.batch()) {
            Tree a = database.tree("a");
            Tree b = database.tree("b");
            MultiTree m = database.multiTree("m");
            a.put(bytes("range1"), bytes("v"));
            m.add(bytes("gone"), bytes("v"));
            m.add(bytes("k"), bytes("gone"));
            batch.put(a, bytes("k"), bytes("1")).put(b, bytes("k"), bytes("2")).put(a, bytes("k"), bytes("3"));
            batch.deleteRange(a, KeyRange.prefix(bytes("range"))).put(a, bytes("range2"), bytes("v"));
            batch.put(a, bytes("x"), bytes("v")).delete(a, bytes("x"));
            batch.add(a, bytes("n"), 5).merge(a, bytes("n"), "add", BaseTree.addend(6));
            batch.put(b, bytes("ttl"), bytes("v"), Duration.ofHours(1));
            batch.putUntil(b, bytes("past"), bytes("v"), Instant.EPOCH);
            batch.add(m, bytes("k"), bytes("w")).deletePair(m, bytes("k"), bytes("gone")).delete(m, bytes("gone"));
            assertEquals(14, batch.size());
            assertTrue(batch.sizeInBytes() > 100);
            assertNull(a.get(bytes("k")));
            batch.commit();
            assertEquals(0, batch.size());
            assertEquals("3", text(a.get(bytes("k"))));
            assertEquals("2", text(b.get(bytes("k"))));
            assertEquals(3, a.count());
            assertEquals(11, a.get(bytes("n"))[0]);
            assertTrue(b.getWithExpiry(bytes("ttl")).orElseThrow().expires() != null);
            assertNull(b.get(bytes("past")));
            assertEquals(1, m.count());
            batch.put(a, bytes("k"), bytes("4")).clear();
            batch.put(a, bytes("l"), bytes("5")).commit(Durability.BUFFERED);
            assertEquals("3", text(a.get(bytes("k"))));
            assertEquals("5", text(a.get(bytes("l"))));
        }
    }

    @Test
    void batch_of_megabytes_grows() {
        try (Database database = Database.open(folder.resolve("db")); Batch batch = database.batch()) {
            Tree tree = database.tree("a");
            Random random = new Random(2);
            for (int i = 0; i < 3000; i++) {
                batch.put(tree, bytes("k" + i), Bytes.random(random, i));
            }
            batch.commit();
            assertEquals(3000, tree.count());
            assertEquals(2999, tree.get(bytes("k2999")).length);
        }
    }

    /** Each batch of megabytes made a buffer, which stayed until the collector found it. */
    @Test
    void large_batches_share_buffers() {
        try (Database database = Database.openInMemory()) {
            Tree tree = database.tree("a");
            long before = directBytes();
            for (int commit = 0; commit < 50; commit++) {
                try (Batch batch = database.batch()) {
                    for (int i = 0; i < 40; i++) {
                        batch.put(tree, bytes("k" + i), new byte[65_536]);
                    }
                    batch.commit(Durability.NONE);
                }
            }
            long grown = directBytes() - before;
            assertTrue(grown < 20 << 20, grown + " bytes");
        }
    }

    private static long directBytes() {
        return ManagementFactory.getPlatformMXBeans(BufferPoolMXBean.class).stream()
                .filter(pool -> pool.getName().equals("direct"))
                .mapToLong(BufferPoolMXBean::getTotalCapacity)
                .sum();
    }

    @Test
    void failed_commit_keeps_the_writes() {
        try (Database database = Database.openInMemory(); Batch batch = database.batch()) {
            Tree tree = database.tree("a");
            batch.put(tree, bytes("k"), bytes("v")).merge(tree, bytes("k"), "no such function", bytes("x"));
            assertThrows(NotFoundException.class, batch::commit);
            assertEquals(2, batch.size());
            assertTrue(tree.isEmpty());
            batch.close();
            batch.close();
            assertThrows(ClosedException.class, () -> batch.put(tree, bytes("k"), bytes("v")));
            assertThrows(ClosedException.class, batch::commit);
        }
    }

    @Test
    void bulk_loads_commit_all_rows_or_none() {
        try (Database database = Database.open(folder.resolve("db"))) {
            Tree sorted = database.tree("sorted");
            try (BulkLoader loader = sorted.bulkLoader()) {
                for (int i = 0; i < 20_000; i++) {
                    loader.add(bytes(String.format("%06d", i)), bytes("value of " + i));
                }
                assertEquals(20_000, loader.finish());
                assertThrows(ClosedException.class, () -> loader.add(bytes("x"), bytes("y")));
            }
            assertEquals("value of 777", text(sorted.get(bytes("000777"))));
            Tree unsorted = database.tree("unsorted");
            try (BulkLoader loader = unsorted.unsortedLoader(1 << 20)) {
                for (int i = 20_000; i > 0; i--) {
                    loader.add(bytes(i + "k"), bytes("old"));
                }
                loader.add(bytes("7k"), new byte[100_000]);
                loader.finish();
            }
            assertEquals(20_000, unsorted.count());
            assertEquals(100_000, unsorted.get(bytes("7k")).length);
            Tree left = database.tree("left");
            try (BulkLoader loader = left.bulkLoader()) {
                loader.add(bytes("a"), bytes("b"));
            }
            assertTrue(left.isEmpty());
            BulkLoader wrong = left.bulkLoader();
            wrong.add(bytes("b"), bytes("")).add(bytes("a"), bytes(""));
            assertThrows(InvalidArgumentException.class, wrong::finish);
            assertTrue(left.isEmpty());
        }
    }
}
