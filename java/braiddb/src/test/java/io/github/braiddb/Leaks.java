package io.github.braiddb;

import static io.github.braiddb.Bytes.bytes;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** Makes gets, iterates as many rows, and prints by how many KiB the process has grown. Linux only. */
final class Leaks {
    private static final int ROWS = 10_000;
    private static final int WARM_UP = 1_000_000;

    private Leaks() {}

    public static void main(String[] arguments) throws IOException {
        int gets = Integer.parseInt(arguments[0]);
        try (Database database = Database.openInMemory()) {
            Tree tree = database.tree("a");
            try (Batch batch = database.batch()) {
                for (int i = 0; i < ROWS; i++) {
                    batch.put(tree, bytes("key " + i), new byte[100]);
                }
                batch.commit();
            }
            // The virtual machine grows until its compiler has seen the calls often.
            run(database, tree, WARM_UP);
            long before = residentKib();
            run(database, tree, gets);
            System.out.println("grown by " + (residentKib() - before) + " KiB");
        }
    }

    private static void run(Database database, Tree tree, int gets) {
        byte[][] keys = new byte[ROWS][];
        for (int i = 0; i < ROWS; i++) {
            keys[i] = bytes("key " + i);
        }
        long found = 0;
        for (int i = 0; i < gets; i++) {
            found += tree.get(keys[i % ROWS]).length;
            if (i % 100 == 0) {
                // Each of these has native objects of its own.
                try (RowIterator rows = tree.scan()) {
                    found += rows.next().value().length - 100;
                }
                try (Transaction transaction = database.begin()) {
                    transaction.tree(tree).scan(KeyRange.all().limit(3)).forEachRemaining(row -> {});
                    transaction.tree(tree).put(keys[i % ROWS], new byte[100]);
                }
                try (Snapshot snapshot = database.snapshot()) {
                    found += snapshot.tree(tree).get(keys[0]).length - 100;
                }
            }
            if (i % ROWS == 0) {
                int rows = 0;
                try (RowIterator all = tree.scan()) {
                    for (; all.hasNext(); rows++) {
                        found += all.next().value().length - 100;
                    }
                }
                if (rows != ROWS) {
                    throw new AssertionError("a scan has " + rows + " rows");
                }
                database.openTree("a").first();
                try {
                    database.openTree("b");
                } catch (NotFoundException e) {
                    found += 0;
                }
            }
        }
        if (found != 100L * gets) {
            throw new AssertionError("a get found a wrong value");
        }
    }

    private static long residentKib() throws IOException {
        System.gc();
        return Files.readAllLines(Path.of("/proc/self/status")).stream()
                .filter(line -> line.startsWith("VmRSS:"))
                .mapToLong(line -> Long.parseLong(line.replaceAll("\\D", "")))
                .findFirst()
                .orElseThrow();
    }
}
