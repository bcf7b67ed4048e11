package io.github.braiddb.kafka.streams;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.BitSet;
import java.util.Map;
import java.util.NavigableMap;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.junit.jupiter.api.Test;

class OverlayTest {
    private static byte[] bytes(int number) {
        return ByteBuffer.allocate(4).putInt(number).array();
    }

    /** Returns the numbers of the rows, whose keys must be in order. */
    private static BitSet scan(Overlay overlay) {
        BitSet seen = new BitSet();
        byte[] last = null;
        try (Overlay.Rows found = overlay.scan(Range.ALL)) {
            while (found.hasNext()) {
                Overlay.Entry entry = found.next();
                assertTrue(last == null || Arrays.compareUnsigned(last, entry.key()) < 0);
                last = entry.key();
                seen.set(ByteBuffer.wrap(entry.value()).getInt());
            }
        }
        return seen;
    }

    private static byte[] key(int row) {
        return bytes(row * 0x9E3779B9);
    }

    /** Another thread puts rows 0, 1, 2 and so on. Ranges have a prefix of them, and all that a get found before. */
    private static void readBesidePuts(ExecutorService other, int rows, int begin) throws Exception {
        Overlay overlay = new Overlay();
        CyclicBarrier start = new CyclicBarrier(2);
        Future<?> writer = other.submit(() -> {
            start.await();
            for (int row = 0; row < rows; row++) {
                overlay.put(key(row), bytes(row));
            }
            return null;
        });
        start.await();
        int least = 0;
        // The first range builds the index.
        for (int scan = 0; scan < 4; scan++) {
            while (least < rows && (overlay.get(key(least)) != null || least < begin) && !writer.isDone()) {
                least += overlay.get(key(least)) == null ? 0 : 1;
            }
            BitSet seen = scan(overlay);
            int count = seen.nextClearBit(0);
            assertEquals(seen.cardinality(), count, "a state that never was");
            int found = least;
            assertTrue(count >= found, () -> "get found " + found + " rows, the range " + count);
        }
        writer.get();
        assertEquals(rows, scan(overlay).cardinality());
        assertEquals(rows * (Overlay.ENTRY_BYTES + Overlay.INDEX_BYTES + 8L), overlay.bytes());
    }

    /** Rows that were put while the first range built the index were lost if it read the rows first. */
    @Test
    void ranges_besidePuts_haveAPrefixOfThem() throws Exception {
        ExecutorService other = Executors.newSingleThreadExecutor();
        Random random = new Random(1);
        try {
            for (int round = 0; round < 500; round++) {
                readBesidePuts(other, 2000, random.nextInt(2000));
            }
            for (int round = 0; round < 3000; round++) {
                readBesidePuts(other, 1 + random.nextInt(20), 0);
            }
        } finally {
            other.shutdown();
        }
    }

    @Test
    void range_besideLaterPuts_hasTheRowsOfItsStart() {
        Overlay overlay = new Overlay();
        NavigableMap<byte[], byte[]> model = new TreeMap<>(Arrays::compareUnsigned);
        for (int row = 0; row < 20; row += 2) {
            overlay.put(bytes(row), bytes(row));
            model.put(bytes(row), bytes(row));
        }
        Overlay.Rows begun = overlay.scan(Range.ALL);
        for (int row = 0; row < 20; row++) {
            overlay.put(bytes(row), row % 3 == 0 ? null : bytes(-row));
            overlay.put(bytes(row), bytes(100));
        }
        check(model, begun);
        assertEquals(1, scan(overlay).cardinality());
    }

    @Test
    void rows_areThoseOfASortedMap() {
        Random random = new Random(1);
        for (int round = 0; round < 200; round++) {
            Overlay overlay = new Overlay();
            NavigableMap<byte[], byte[]> model = new TreeMap<>(Arrays::compareUnsigned);
            int firstRange = random.nextInt(300);
            for (int step = 0; step < 200; step++) {
                byte[] key = new byte[random.nextInt(3)];
                random.nextBytes(key);
                int kind = random.nextInt(8);
                byte[] value = kind < 2 ? null : kind == 2 ? new byte[0] : bytes(step);
                overlay.put(key, value);
                model.put(key.clone(), value == null ? Overlay.DELETED : value.clone());
                // The caller may use its arrays again.
                Arrays.fill(key, (byte) 7);
                if (value != null) {
                    Arrays.fill(value, (byte) 7);
                }
                if (step >= firstRange && random.nextInt(10) == 0) {
                    byte[] from = new byte[random.nextInt(2)];
                    random.nextBytes(from);
                    check(model, overlay.scan(Range.ALL));
                    check(model.tailMap(from, true), overlay.scan(new Range(from, null, false, false)));
                    check(model.descendingMap(), overlay.scan(Range.ALL.reversed(true)));
                }
            }
            long bytes = 0;
            for (Map.Entry<byte[], byte[]> row : model.entrySet()) {
                byte[] found = overlay.get(row.getKey());
                assertArrayEquals(row.getValue(), found);
                if (row.getValue() == Overlay.DELETED) {
                    assertSame(Overlay.DELETED, found);
                } else {
                    assertNotSame(Overlay.DELETED, found);
                }
                bytes += Overlay.ENTRY_BYTES + row.getKey().length + row.getValue().length;
            }
            if (firstRange >= 200) {
                assertEquals(bytes, overlay.bytes());
            }
            assertNull(overlay.get(new byte[] {1, 2, 3, 4}));
            int[] count = {0};
            overlay.forEach((key, value) -> {
                count[0]++;
                assertArrayEquals(model.get(key), value == null ? Overlay.DELETED : value);
            });
            assertEquals(model.size(), count[0]);
            long deletions = model.values().stream().filter(value -> value == Overlay.DELETED).count();
            assertEquals(model.size() - 2 * deletions, overlay.netRows());
        }
    }

    private static void check(Map<byte[], byte[]> model, Overlay.Rows found) {
        try (found) {
            for (Map.Entry<byte[], byte[]> row : model.entrySet()) {
                Overlay.Entry entry = found.next();
                assertArrayEquals(row.getKey(), entry.key());
                assertArrayEquals(row.getValue() == Overlay.DELETED ? null : row.getValue(), entry.value());
            }
            assertFalse(found.hasNext());
        }
    }
}
