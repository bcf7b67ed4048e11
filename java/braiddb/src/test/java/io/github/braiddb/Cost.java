package io.github.braiddb;

import static io.github.braiddb.Bytes.bytes;

import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.function.IntUnaryOperator;

/** Prints the processor time of calls in nanoseconds: medians of nine runs in one thread, in memory. */
final class Cost {
    private static final int ROWS = 100_000;
    private static final int RUNS = 9;
    private static final ThreadMXBean THREAD = ManagementFactory.getThreadMXBean();

    private static long sink;

    private Cost() {}

    public static void main(String[] arguments) {
        try (Database database = Database.openInMemory();
                Batch batch = database.batch();
                Transaction transaction = database.begin()) {
            byte[][] keys = new byte[ROWS][];
            for (int i = 0; i < ROWS; i++) {
                keys[i] = bytes(String.format("key %08d", i));
            }
            measure("cheapest call of the library", 1_000_000, i -> (int) transaction.changes());
            Random random = new Random(1);
            byte[][] shuffled = keys.clone();
            Collections.shuffle(Arrays.asList(shuffled), random);
            for (int len : new int[] {10, 100, 1000, 10_000}) {
                Tree tree = filled(database, batch, "v" + len, keys, len);
                measure("get, value of " + len + " B", 300_000, i -> tree.get(shuffled[i % ROWS]).length);
            }
            Tree tree = database.tree("v100");
            byte[] absent = bytes("no such key");
            measure("get, absent", 300_000, i -> tree.get(absent) == null ? 1 : 0);
            measure("contains", 300_000, i -> tree.contains(shuffled[i % ROWS]) ? 1 : 0);
            List<byte[]> hundred = new ArrayList<>(Arrays.asList(shuffled).subList(0, 100));
            measure("getAll of 100 keys, a key", 300_000, 100, i -> tree.getAll(hundred).size());
            measure("scan of all rows, 100 B, a row", ROWS, ROWS, i -> scan(tree.scan()));
            measure("scan of keys, a row", ROWS, ROWS, i -> scan(tree.scanKeys(KeyRange.all())));
            measure("scan of 100 rows, a row", 300_000, 100, i ->
                    scan(tree.scan(KeyRange.from(shuffled[i % ROWS]).limit(100))));
            measure("scan of 10 rows, all", 100_000, i ->
                    scan(tree.scan(KeyRange.from(shuffled[i % ROWS]).limit(10))));
            byte[] value = new byte[100];
            Tree written = database.tree("written");
            measure("put, 100 B, without sync", 100_000, i -> {
                written.put(shuffled[i % ROWS], value, Durability.NONE);
                return 1;
            });
            measure("batch of 1,000 puts, a put", 100_000, 1000, i -> {
                for (int n = 0; n < 1000; n++) {
                    batch.put(written, shuffled[(i * 1000 + n) % ROWS], value);
                }
                return (int) batch.commit(Durability.NONE);
            });
            measure("transaction of 10 puts, a put", 100_000, 10, i -> {
                try (Transaction writes = database.begin()) {
                    TransactionTree in = writes.tree(written);
                    for (int n = 0; n < 10; n++) {
                        in.put(shuffled[(i * 10 + n) % ROWS], value);
                    }
                    return (int) writes.commit(Durability.NONE);
                }
            });
            measure("put into an open transaction", 20_000, i -> {
                transaction.tree(written).put(shuffled[i % 1000], value);
                return 1;
            });
        }
        System.out.println(sink == 0 ? "" : " ");
    }

    private static Tree filled(Database database, Batch batch, String name, byte[][] keys, int len) {
        Tree tree = database.tree(name);
        for (byte[] key : keys) {
            batch.put(tree, key, new byte[len]);
            if (batch.sizeInBytes() > 1 << 20) {
                batch.commit(Durability.NONE);
            }
        }
        batch.commit(Durability.NONE);
        database.flush();
        return tree;
    }

    private static int scan(RowIterator rows) {
        int bytes = 0;
        while (rows.hasNext()) {
            bytes += rows.next().value().length;
        }
        return bytes;
    }

    private static void measure(String name, int count, IntUnaryOperator call) {
        measure(name, count, 1, call);
    }

    /** Measures {@code count} units of work, of which each call does {@code perCall}. */
    private static void measure(String name, int count, int perCall, IntUnaryOperator call) {
        int calls = Math.max(1, count / perCall);
        double[] costs = new double[RUNS];
        for (int run = -3; run < RUNS; run++) {
            long begin = THREAD.getCurrentThreadCpuTime();
            for (int i = 0; i < calls; i++) {
                sink += call.applyAsInt(i);
            }
            if (run >= 0) {
                costs[run] = (double) (THREAD.getCurrentThreadCpuTime() - begin) / calls / perCall;
            }
        }
        Arrays.sort(costs);
        System.out.printf("%-40s %9.1f ns (least %.1f)%n", name, costs[RUNS / 2], costs[0]);
    }
}
