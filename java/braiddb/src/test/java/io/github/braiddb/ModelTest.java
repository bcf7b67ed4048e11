package io.github.braiddb;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.Random;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Random calls against maps: trees, batches, transactions, snapshots, reopens, flushes. */
class ModelTest {
    private static final int TREES = 3;

    @TempDir Path folder;

    private final long seed = Bytes.seed();
    private final Random random = new Random(seed);
    private final List<NavigableMap<byte[], byte[]>> model = new ArrayList<>();
    private final List<Held> held = new ArrayList<>();
    private Database database;
    private List<Tree> trees;

    /** A snapshot and its contents. */
    private record Held(Snapshot snapshot, List<NavigableMap<byte[], byte[]>> model) {}

    private static NavigableMap<byte[], byte[]> map() {
        return new TreeMap<>(Arrays::compareUnsigned);
    }

    private static List<NavigableMap<byte[], byte[]>> copy(List<NavigableMap<byte[], byte[]>> maps) {
        List<NavigableMap<byte[], byte[]>> copies = new ArrayList<>();
        for (NavigableMap<byte[], byte[]> map : maps) {
            NavigableMap<byte[], byte[]> copy = map();
            copy.putAll(map);
            copies.add(copy);
        }
        return copies;
    }

    private void open() {
        Options options = new Options().memory(16 << 20).durability(Durability.BUFFERED).blobThreshold(2000);
        database = Database.open(folder.resolve("db"), options);
        trees = new ArrayList<>();
        for (int i = 0; i < TREES; i++) {
            trees.add(database.tree("tree " + i));
        }
    }

    private void close() {
        held.forEach(each -> each.snapshot.close());
        held.clear();
        database.close();
    }

    private byte[] key() {
        byte[] key = new byte[1 + random.nextInt(3)];
        for (int i = 0; i < key.length; i++) {
            key[i] = (byte) (random.nextInt(6) - 3);
        }
        return key;
    }

    private byte[] value() {
        int len = random.nextInt(20) == 0 ? random.nextInt(100_000) : random.nextInt(50);
        return Bytes.random(random, len);
    }

    private KeyRange range() {
        KeyRange range = switch (random.nextInt(5)) {
            case 0 -> KeyRange.all();
            case 1 -> KeyRange.prefix(key());
            case 2 -> KeyRange.from(key());
            case 3 -> KeyRange.to(key());
            default -> KeyRange.of(key(), random.nextBoolean(), key(), random.nextBoolean());
        };
        if (random.nextBoolean()) {
            range = range.reversed();
        }
        return random.nextInt(3) == 0 ? range.limit(random.nextInt(20)) : range;
    }

    @Test
    void random_calls_agree_with_maps() {
        for (int i = 0; i < TREES; i++) {
            model.add(map());
        }
        open();
        for (int step = 0; step < Bytes.volume(3000); step++) {
            int tree = random.nextInt(TREES);
            switch (random.nextInt(20)) {
                case 0, 1, 2, 3 -> write(trees.get(tree), model.get(tree));
                case 4, 5 -> batch();
                case 6, 7, 8, 9 -> transaction();
                case 10 -> held.add(new Held(database.snapshot(), copy(model)));
                case 11 -> {
                    if (!held.isEmpty()) {
                        held.remove(random.nextInt(held.size())).snapshot.close();
                    }
                }
                case 12, 13 -> {
                    if (!held.isEmpty()) {
                        Held one = held.get(random.nextInt(held.size()));
                        read(one.snapshot.tree(trees.get(tree)), one.model.get(tree));
                    }
                }
                case 14 -> {
                    if (random.nextInt(10) == 0) {
                        database.flush();
                    }
                }
                case 15 -> {
                    if (random.nextInt(20) == 0) {
                        close();
                        open();
                    }
                }
                default -> read(trees.get(tree), model.get(tree));
            }
        }
        for (int i = 0; i < TREES; i++) {
            same(trees.get(i).scan(), model.get(i), KeyRange.all());
        }
        close();
    }

    private void write(Tree tree, NavigableMap<byte[], byte[]> map) {
        byte[] key = key();
        byte[] value = value();
        switch (random.nextInt(8)) {
            case 0 -> {
                tree.delete(key);
                map.remove(key);
            }
            case 1 -> assertArrayEquals(map.put(key, value), tree.getAndPut(key, value));
            case 2 -> assertArrayEquals(map.remove(key), tree.remove(key));
            case 3 -> assertEquals(map.putIfAbsent(key, value) == null, tree.putIfAbsent(key, value));
            case 4 -> {
                byte[] expected = random.nextBoolean() ? map.get(key) : value();
                boolean isSame = Arrays.equals(map.get(key), expected);
                assertEquals(isSame, tree.compareAndSet(key, expected, value));
                if (isSame) {
                    map.put(key, value);
                }
            }
            case 5 -> {
                if (random.nextInt(5) == 0) {
                    KeyRange range = range();
                    tree.deleteRange(range);
                    map.keySet().removeIf(range::contains);
                }
            }
            default -> {
                tree.put(key, value);
                map.put(key, value);
            }
        }
    }

    private void batch() {
        List<NavigableMap<byte[], byte[]>> changed = copy(model);
        try (Batch batch = database.batch()) {
            for (int writes = random.nextInt(30); writes > 0; writes--) {
                int tree = random.nextInt(TREES);
                byte[] key = key();
                if (random.nextInt(3) == 0) {
                    batch.delete(trees.get(tree), key);
                    changed.get(tree).remove(key);
                } else {
                    byte[] value = value();
                    batch.put(trees.get(tree), key, value);
                    changed.get(tree).put(key, value);
                }
            }
            if (random.nextInt(5) > 0) {
                batch.commit();
                adopt(changed);
            }
        }
    }

    private void adopt(List<NavigableMap<byte[], byte[]>> changed) {
        model.clear();
        model.addAll(changed);
    }

    private void transaction() {
        List<NavigableMap<byte[], byte[]>> changed = copy(model);
        try (Transaction transaction = database.begin()) {
            for (int calls = random.nextInt(12); calls > 0; calls--) {
                int at = random.nextInt(TREES);
                TransactionTree tree = transaction.tree(trees.get(at));
                NavigableMap<byte[], byte[]> map = changed.get(at);
                byte[] key = key();
                byte[] value = value();
                switch (random.nextInt(8)) {
                    case 0 -> read(tree, map);
                    case 1 -> assertArrayEquals(map.remove(key), tree.remove(key));
                    case 2 -> assertEquals(map.putIfAbsent(key, value) == null, tree.putIfAbsent(key, value));
                    case 3 -> {
                        Savepoint savepoint = transaction.savepoint();
                        tree.clear();
                        transaction.rollbackTo(savepoint);
                    }
                    case 4 -> writeDuringScan(tree, map);
                    case 5 -> assertArrayEquals(map.put(key, value), tree.getAndPut(key, value));
                    default -> {
                        tree.put(key, value);
                        map.put(key, value);
                    }
                }
            }
            if (random.nextInt(4) > 0) {
                transaction.commit();
                adopt(changed);
            }
        }
    }

    /** A scan in a transaction returns what is ahead of it at each step. */
    private void writeDuringScan(TransactionTree tree, NavigableMap<byte[], byte[]> map) {
        boolean isReversed = random.nextBoolean();
        NavigableMap<byte[], byte[]> ordered = isReversed ? map.descendingMap() : map;
        try (RowIterator rows = tree.scan(isReversed ? KeyRange.all().reversed() : KeyRange.all())) {
            Map.Entry<byte[], byte[]> expected = ordered.firstEntry();
            while (expected != null) {
                Row row = rows.next();
                assertArrayEquals(expected.getKey(), row.key());
                assertArrayEquals(expected.getValue(), row.value());
                if (random.nextInt(4) == 0) {
                    byte[] key = key();
                    byte[] value = value();
                    tree.put(key, value);
                    map.put(key, value);
                }
                if (random.nextInt(8) == 0) {
                    byte[] key = key();
                    tree.delete(key);
                    map.remove(key);
                }
                expected = ordered.higherEntry(row.key());
            }
            assertEquals(false, rows.hasNext());
        }
    }

    private void read(ReadableTree tree, NavigableMap<byte[], byte[]> map) {
        byte[] key = key();
        switch (random.nextInt(6)) {
            case 0 -> assertArrayEquals(map.get(key), tree.get(key));
            case 1 -> assertEquals(map.containsKey(key), tree.contains(key));
            case 2 -> {
                List<byte[]> keys = new ArrayList<>();
                for (int i = random.nextInt(20); i > 0; i--) {
                    keys.add(key());
                }
                List<byte[]> values = tree.getAll(keys);
                for (int i = 0; i < keys.size(); i++) {
                    assertArrayEquals(map.get(keys.get(i)), values.get(i));
                }
            }
            case 3 -> {
                Row last = tree.last();
                if (map.isEmpty()) {
                    assertNull(last);
                } else {
                    assertEquals(new Row(map.lastKey(), map.lastEntry().getValue()), last);
                }
            }
            case 4 -> {
                KeyRange range = range();
                assertEquals(map.keySet().stream().filter(range::contains).count(), tree.count(range));
            }
            default -> {
                KeyRange range = range();
                same(tree.scan(range), map, range);
            }
        }
    }

    private static void same(RowIterator rows, NavigableMap<byte[], byte[]> map, KeyRange range) {
        NavigableMap<byte[], byte[]> ordered = range.isReversed() ? map.descendingMap() : map;
        Iterator<Map.Entry<byte[], byte[]>> expected = ordered.entrySet().stream()
                .filter(entry -> range.contains(entry.getKey()))
                .limit(range.limit())
                .iterator();
        try (rows) {
            while (expected.hasNext()) {
                Map.Entry<byte[], byte[]> entry = expected.next();
                assertEquals(new Row(entry.getKey(), entry.getValue()), rows.next());
            }
            assertEquals(false, rows.hasNext());
        }
    }
}
