package io.github.braiddb.kafka.streams;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.BitSet;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

class OverlayTest {
    private static byte[] bytes(int number) {
        return ByteBuffer.allocate(4).putInt(number).array();
    }

    /** Writes beside the first range, which builds the index, were lost if it read the rows first. */
    @Test
    void firstRange_besideWrites_hasEachEarlierRow() throws Exception {
        int rounds = 500;
        int rows = 2000;
        Random random = new Random(1);
        ExecutorService other = Executors.newSingleThreadExecutor();
        try {
            CyclicBarrier start = new CyclicBarrier(2);
            for (int round = 0; round < rounds; round++) {
                Overlay overlay = new Overlay();
                AtomicInteger written = new AtomicInteger();
                Future<?> writer = other.submit(() -> {
                    start.await();
                    for (int row = 0; row < rows; row++) {
                        overlay.put(bytes(row * 0x9E3779B9), bytes(row));
                        written.set(row + 1);
                    }
                    return null;
                });
                int begin = random.nextInt(rows);
                start.await();
                while (written.get() < begin) {
                    Thread.onSpinWait();
                }
                for (int scan = 0; scan < 2; scan++) {
                    int least = written.get();
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
                    assertTrue(seen.nextClearBit(0) >= least, () -> seen + " of " + least);
                }
                writer.get();
                try (Overlay.Rows found = overlay.scan(Range.ALL)) {
                    int count = 0;
                    for (; found.hasNext(); found.next()) {
                        count++;
                    }
                    assertEquals(rows, count, "round " + round);
                }
            }
        } finally {
            other.shutdown();
        }
    }

    @Test
    void rows_areThoseOfASortedMap() {
        Random random = new Random(1);
        for (int round = 0; round < 200; round++) {
            Overlay overlay = new Overlay();
            TreeMap<byte[], byte[]> model = new TreeMap<>(Arrays::compareUnsigned);
            // Ranges begin early, late, or not at all.
            int ranges = random.nextInt(3) * 10;
            for (int step = 0; step < 200; step++) {
                byte[] key = new byte[random.nextInt(3)];
                random.nextBytes(key);
                byte[] value = random.nextInt(4) == 0 ? null : bytes(step);
                overlay.put(key, value);
                model.put(key.clone(), value == null ? Overlay.DELETED : value);
                Arrays.fill(key, (byte) 7);
                if (ranges > 0 && random.nextInt(ranges) == 0) {
                    try (Overlay.Rows found = overlay.scan(Range.ALL)) {
                        for (Map.Entry<byte[], byte[]> row : model.entrySet()) {
                            Overlay.Entry entry = found.next();
                            assertArrayEquals(row.getKey(), entry.key());
                            assertArrayEquals(row.getValue() == Overlay.DELETED ? null : row.getValue(), entry.value());
                        }
                        assertFalse(found.hasNext());
                    }
                }
            }
            model.forEach((key, value) -> assertArrayEquals(value, overlay.get(key)));
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
}
