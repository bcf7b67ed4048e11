package io.github.braiddb;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReferenceArray;
import java.util.stream.Stream;

/**
 * Random misuse: eight threads call shared handles with nulls, huge sizes and wrong trees, and close
 * all of them at any time. Every call returns, or throws an exception that it documents.
 *
 * <p>Run by its tests, or as a program for a number of seconds with a seed.
 */
final class Misuse {
    private static final int THREADS = 8;
    private static final int PLACES = 6;

    private final AtomicReferenceArray<Database> databases = new AtomicReferenceArray<>(2);
    private final AtomicReferenceArray<Tree> trees = new AtomicReferenceArray<>(PLACES);
    private final AtomicReferenceArray<MultiTree> multis = new AtomicReferenceArray<>(PLACES);
    private final AtomicReferenceArray<Snapshot> snapshots = new AtomicReferenceArray<>(PLACES);
    private final AtomicReferenceArray<Transaction> transactions = new AtomicReferenceArray<>(PLACES);
    private final AtomicReferenceArray<RowIterator> iterators = new AtomicReferenceArray<>(PLACES);
    private final AtomicReferenceArray<Batch> batches = new AtomicReferenceArray<>(PLACES);
    private final AtomicReferenceArray<Watcher> watchers = new AtomicReferenceArray<>(2);
    private final AtomicReferenceArray<BulkLoader> loaders = new AtomicReferenceArray<>(2);
    private final AtomicReferenceArray<Savepoint> savepoints = new AtomicReferenceArray<>(2);

    private final Path folder;
    final AtomicLong calls = new AtomicLong();
    final ConcurrentHashMap<String, AtomicLong> outcomes = new ConcurrentHashMap<>();
    final ConcurrentHashMap<String, Throwable> faults = new ConcurrentHashMap<>();

    private Misuse(Path folder) {
        this.folder = folder;
    }

    public static void main(String[] arguments) throws Exception {
        long seconds = Long.parseLong(arguments[0]);
        long seed = arguments.length > 1 ? Long.parseLong(arguments[1]) : System.nanoTime();
        System.out.println("seed " + seed);
        Misuse misuse = run(seconds, seed);
        System.out.println(misuse.calls + " calls in " + seconds + " s: " + misuse.outcomes);
        misuse.faults.values().forEach(Throwable::printStackTrace);
        System.exit(misuse.faults.isEmpty() ? 0 : 1);
    }

    static Misuse run(long seconds, long seed) throws IOException, InterruptedException {
        Path folder = Files.createTempDirectory("misuse");
        Misuse misuse = new Misuse(folder);
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(seconds);
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < THREADS; i++) {
            Random random = new Random(seed + i);
            threads.add(new Thread(() -> {
                while (System.nanoTime() < end) {
                    misuse.call(random);
                }
            }));
        }
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
        misuse.closeAll();
        try (Stream<Path> files = Files.walk(folder)) {
            files.sorted((a, b) -> b.compareTo(a)).forEach(file -> file.toFile().delete());
        }
        return misuse;
    }

    private void closeAll() {
        for (int i = 0; i < databases.length(); i++) {
            if (databases.get(i) != null) {
                databases.get(i).close();
            }
        }
    }

    private void call(Random random) {
        String outcome = "returned";
        try {
            step(random);
        } catch (BraidException e) {
            outcome = e.getClass().getSimpleName();
            if (e instanceof InternalException || e instanceof CorruptionException) {
                faults.putIfAbsent(e.toString(), e);
            }
        } catch (NullPointerException | IllegalArgumentException | java.util.NoSuchElementException e) {
            outcome = e.getClass().getSimpleName();
            // Null arguments are refused, and handles that are not open yet are null.
        } catch (InterruptedException e) {
            outcome = "interrupted";
        } catch (OutOfMemoryError e) {
            outcome = "OutOfMemoryError";
        } catch (Throwable e) {
            faults.putIfAbsent(e.toString(), e);
        }
        calls.incrementAndGet();
        outcomes.computeIfAbsent(outcome, name -> new AtomicLong()).incrementAndGet();
    }

    private static <T> T one(Random random, AtomicReferenceArray<T> places) {
        return places.get(random.nextInt(places.length()));
    }

    private static <T> T put(Random random, AtomicReferenceArray<T> places, T handle) {
        places.set(random.nextInt(places.length()), handle);
        return handle;
    }

    private static byte[] bytes(Random random) {
        return switch (random.nextInt(40)) {
            case 0 -> null;
            case 1 -> new byte[0];
            case 2 -> new byte[65_536];
            case 3 -> new byte[65_537];
            case 4 -> Bytes.random(random, random.nextInt(300_000));
            case 5 -> random.nextInt(20) == 0 ? new byte[20_000_000] : new byte[4096];
            default -> Bytes.random(random, 1 + random.nextInt(random.nextBoolean() ? 2 : 100));
        };
    }

    private static KeyRange range(Random random) {
        KeyRange range = switch (random.nextInt(6)) {
            case 0 -> KeyRange.all();
            case 1 -> KeyRange.prefix(bytes(random));
            case 2 -> null;
            default -> KeyRange.of(bytes(random), random.nextBoolean(), bytes(random), random.nextBoolean());
        };
        if (range != null && random.nextBoolean()) {
            range = range.reversed();
        }
        return range != null && random.nextInt(4) == 0 ? range.limit(random.nextInt(5)) : range;
    }

    private ReadableTree readable(Random random) {
        return switch (random.nextInt(3)) {
            case 0 -> one(random, trees);
            case 1 -> one(random, snapshots).tree(one(random, trees));
            default -> one(random, transactions).tree(one(random, trees));
        };
    }

    private void step(Random random) throws Exception {
        switch (random.nextInt(24)) {
            case 0 -> open(random);
            case 1 -> close(random);
            case 2, 3 -> write(random, one(random, trees));
            case 4, 5, 6, 7 -> read(random, readable(random));
            case 8, 9, 10 -> iterate(random);
            case 11, 12 -> transact(random);
            case 13 -> batch(random);
            case 14 -> multi(random);
            case 15 -> put(random, snapshots, one(random, databases).snapshot());
            case 16 -> put(random, transactions, one(random, databases).begin());
            case 17 -> put(random, iterators, readable(random).scan(range(random)));
            case 18 -> watch(random);
            case 19 -> load(random);
            case 20 -> names(random);
            case 21 -> {
                if (random.nextInt(50) == 0) {
                    System.gc();
                }
            }
            case 22 -> map(random);
            default -> admin(random);
        }
    }

    private void open(Random random) {
        int at = random.nextInt(databases.length());
        Database earlier = databases.get(at);
        if (earlier == null || earlier.isClosed()) {
            Database opened = random.nextBoolean()
                    ? Database.openInMemory()
                    : Database.open(folder.resolve("db" + at), new Options().durability(Durability.NONE).memory(8 << 20));
            databases.set(at, opened);
        }
        Database database = one(random, databases);
        put(random, trees, database.tree("t" + random.nextInt(3)));
        put(random, multis, database.multiTree("m" + random.nextInt(2)));
        put(random, batches, database.batch());
    }

    private void close(Random random) {
        switch (random.nextInt(14)) {
            case 0 -> {
                if (random.nextInt(20) == 0) {
                    one(random, databases).close();
                }
            }
            case 1, 2, 3 -> one(random, snapshots).close();
            case 4, 5, 6 -> one(random, transactions).close();
            case 7, 8, 9 -> one(random, iterators).close();
            case 10, 11 -> one(random, batches).close();
            case 12 -> one(random, watchers).close();
            default -> one(random, loaders).close();
        }
    }

    private static void write(Random random, Tree tree) {
        byte[] key = bytes(random);
        switch (random.nextInt(14)) {
            case 0 -> tree.delete(key);
            case 1 -> tree.getAndPut(key, bytes(random));
            case 2 -> tree.remove(key);
            case 3 -> tree.putIfAbsent(key, bytes(random));
            case 4 -> tree.compareAndSet(key, bytes(random), bytes(random));
            case 5 -> tree.merge(key, random.nextBoolean() ? "add" : "none", bytes(random));
            case 6 -> tree.put(key, bytes(random), Duration.ofNanos(random.nextLong()));
            case 7 -> tree.putUntil(key, bytes(random), Instant.ofEpochMilli(random.nextLong()));
            case 8 -> tree.deleteRange(range(random));
            case 9 -> tree.popFirst();
            case 10 -> tree.popLast();
            case 11 -> tree.put(key, bytes(random), random.nextInt(9) == 0 ? null : Durability.NONE);
            case 12 -> tree.putKeepingTtl(key, bytes(random));
            default -> tree.put(key, bytes(random));
        }
    }

    private static void read(Random random, ReadableTree tree) {
        switch (random.nextInt(8)) {
            case 0 -> tree.contains(bytes(random));
            case 1 -> tree.first();
            case 2 -> tree.last();
            case 3 -> tree.count(range(random));
            case 4 -> tree.getWithExpiry(bytes(random));
            case 5 -> {
                List<byte[]> keys = new ArrayList<>();
                for (int i = random.nextInt(20); i > 0; i--) {
                    keys.add(bytes(random));
                }
                tree.getAll(keys);
            }
            case 6 -> tree.name();
            default -> tree.get(bytes(random));
        }
    }

    private void iterate(Random random) {
        RowIterator rows = one(random, iterators);
        for (int i = random.nextInt(40); i > 0 && rows.hasNext(); i--) {
            if (random.nextInt(4) == 0) {
                rows.peekKey();
            }
            Row row = rows.next();
            if (row.key() == null || row.value() == null) {
                throw new AssertionError("a row lacks bytes");
            }
        }
    }

    private void transact(Random random) {
        Transaction transaction = one(random, transactions);
        TransactionTree tree = transaction.tree(one(random, trees));
        switch (random.nextInt(14)) {
            case 0 -> transaction.commit();
            case 1 -> transaction.rollback();
            case 2 -> put(random, savepoints, transaction.savepoint());
            case 3 -> transaction.rollbackTo(one(random, savepoints));
            case 4 -> transaction.setApplicationCursor(bytes(random));
            case 5 -> tree.delete(bytes(random));
            case 6 -> tree.clear();
            case 7 -> tree.popFirst();
            case 8 -> tree.add(bytes(random), 1);
            case 9 -> tree.compareAndSet(bytes(random), bytes(random), bytes(random));
            case 10 -> transaction.tree(one(random, multis)).add(bytes(random), bytes(random));
            case 11 -> put(random, iterators, transaction.tree(one(random, multis)).scan(range(random)));
            default -> tree.put(bytes(random), bytes(random));
        }
    }

    private void batch(Random random) {
        Batch batch = one(random, batches);
        switch (random.nextInt(9)) {
            case 0 -> batch.commit();
            case 1 -> batch.commit(Durability.NONE);
            case 2 -> batch.delete(one(random, trees), bytes(random));
            case 3 -> batch.deleteRange(one(random, trees), range(random));
            case 4 -> batch.merge(one(random, trees), bytes(random), "add", bytes(random));
            case 5 -> batch.add(one(random, multis), bytes(random), bytes(random));
            case 6 -> batch.clear();
            case 7 -> batch.put(one(random, trees), bytes(random), bytes(random), Duration.ofHours(1));
            default -> batch.put(one(random, trees), bytes(random), bytes(random));
        }
    }

    private void multi(Random random) {
        MultiTree tree = one(random, multis);
        switch (random.nextInt(9)) {
            case 0 -> tree.delete(bytes(random));
            case 1 -> tree.deletePair(bytes(random), bytes(random));
            case 2 -> put(random, iterators, tree.values(bytes(random)));
            case 3 -> put(random, iterators, one(random, snapshots).tree(tree).scan(range(random)));
            case 4 -> tree.popFirst();
            case 5 -> tree.countValues(bytes(random));
            case 6 -> tree.count(range(random));
            case 7 -> tree.lastValue(bytes(random));
            default -> tree.add(bytes(random), bytes(random));
        }
    }

    private void watch(Random random) throws InterruptedException {
        switch (random.nextInt(4)) {
            case 0 -> put(random, watchers, one(random, databases).watch());
            case 1 -> put(
                    random, watchers,
                    one(random, databases).watch(new WatchOptions().tree(one(random, trees)).prefix(bytes(random))));
            case 2 -> one(random, databases).watch(new WatchOptions().resume(bytes(random)));
            default -> one(random, watchers).poll(Duration.ofMillis(random.nextInt(3)));
        }
    }

    private void load(Random random) {
        switch (random.nextInt(6)) {
            case 0 -> put(random, loaders, one(random, trees).bulkLoader());
            case 1 -> put(random, loaders, one(random, trees).unsortedLoader(1 << 20));
            case 2 -> one(random, loaders).finish();
            default -> one(random, loaders).add(bytes(random), bytes(random));
        }
    }

    private void names(Random random) {
        Database database = one(random, databases);
        String name = switch (random.nextInt(5)) {
            case 0 -> null;
            case 1 -> "";
            case 2 -> "\ud800 half a character";
            case 3 -> "x".repeat(100_000);
            default -> "t" + random.nextInt(3);
        };
        switch (random.nextInt(6)) {
            case 0 -> database.renameTree(name, "t" + random.nextInt(5));
            case 1 -> {
                if (random.nextInt(10) == 0) {
                    database.dropTree(name);
                }
            }
            case 2 -> database.openMultiTree(name);
            case 3 -> put(random, trees, database.openTree(name));
            case 4 -> database.trees();
            default -> {
                if (name != null && name.length() < 10) {
                    put(random, trees, database.tree(name, new TreeOptions().ttl(Duration.ofDays(1))));
                }
            }
        }
    }

    private void map(Random random) {
        java.util.NavigableMap<byte[], byte[]> map = one(random, trees).asMap();
        if (random.nextBoolean()) {
            map = map.headMap(bytes(random), true).descendingMap();
        }
        map.put(bytes(random), bytes(random));
        map.lowerEntry(bytes(random));
        map.size();
    }

    private void admin(Random random) {
        Database database = one(random, databases);
        switch (random.nextInt(40)) {
            case 0 -> database.flush();
            case 1 -> database.sync();
            case 2 -> database.compact();
            case 3 -> database.verify();
            case 4 -> database.applicationCursor();
            case 5 -> database.checkpoint(folder.resolve("c" + random.nextInt(3)));
            case 6 -> Database.open(folder, null);
            default -> database.stats();
        }
    }
}
