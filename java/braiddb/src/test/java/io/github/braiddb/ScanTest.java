package io.github.braiddb;

import static io.github.braiddb.Bytes.bytes;
import static io.github.braiddb.Bytes.text;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.NoSuchElementException;
import org.junit.jupiter.api.Test;

class ScanTest {
    private static List<String> keys(RowIterator rows) {
        List<String> keys = new ArrayList<>();
        rows.forEachRemaining(row -> keys.add(text(row.key())));
        return keys;
    }

    private static Tree filled(Database database, int rows) {
        Tree tree = database.tree("a");
        try (Batch batch = database.batch()) {
            for (int i = 0; i < rows; i++) {
                batch.put(tree, bytes(String.format("%06d", i)), bytes("v" + i));
            }
            batch.commit();
        }
        return tree;
    }

    @Test
    void ranges_have_the_bounds_that_they_name() {
        try (Database database = Database.openInMemory()) {
            Tree tree = database.tree("a");
            for (String key : List.of("a", "ab", "b", "ba", "c")) {
                tree.put(bytes(key), bytes(key));
            }
            assertEquals(List.of("a", "ab", "b", "ba", "c"), keys(tree.scan()));
            assertEquals(List.of("b", "ba"), keys(tree.scan(KeyRange.prefix(bytes("b")))));
            assertEquals(List.of("ba", "b"), keys(tree.scan(KeyRange.prefix(bytes("b")).reversed())));
            assertEquals(List.of("ab", "b"), keys(tree.scan(KeyRange.of(bytes("ab"), bytes("ba")))));
            assertEquals(
                    List.of("b", "ba"),
                    keys(tree.scan(KeyRange.of(bytes("ab"), false, bytes("ba"), true))));
            assertEquals(
                    List.of("ba", "b"),
                    keys(tree.scan(KeyRange.of(bytes("ab"), false, bytes("ba"), true).reversed())));
            assertEquals(List.of("c", "ba"), keys(tree.scan(KeyRange.all().reversed().limit(2))));
            assertEquals(List.of(), keys(tree.scan(KeyRange.all().limit(0))));
            assertEquals(List.of(), keys(tree.scan(KeyRange.of(bytes("c"), bytes("a")))));
            assertEquals(List.of("ba", "c"), keys(tree.scan(KeyRange.from(bytes("b\0")))));
            assertEquals(List.of("a", "ab", "b", "ba", "c"), keys(tree.scan(KeyRange.prefix(new byte[0]))));
            assertFalse(KeyRange.all().reversed().reversed().isReversed());
            tree.put(new byte[] {-1, -1}, bytes("last"));
            assertEquals(1, tree.count(KeyRange.prefix(new byte[] {-1})));
            tree.deleteRange(KeyRange.prefix(bytes("a")));
            assertEquals(4, tree.count());
            assertThrows(InvalidArgumentException.class, () -> KeyRange.all().limit(-1));
        }
    }

    @Test
    void scans_of_many_batches_return_every_row_once() {
        try (Database database = Database.openInMemory()) {
            Tree tree = filled(database, 5000);
            for (boolean isReversed : new boolean[] {false, true}) {
                KeyRange range = isReversed ? KeyRange.all().reversed() : KeyRange.all();
                int seen = 0;
                try (RowIterator rows = tree.scan(range)) {
                    while (rows.hasNext()) {
                        int expected = isReversed ? 4999 - seen : seen;
                        assertEquals(String.format("%06d", expected), text(rows.peekKey()));
                        Row row = rows.next();
                        assertEquals(String.format("%06d", expected), text(row.key()));
                        assertEquals("v" + expected, text(row.value()));
                        seen++;
                    }
                    assertThrows(NoSuchElementException.class, rows::next);
                }
                assertEquals(5000, seen);
                assertEquals(999, keys(tree.scan(range.limit(999))).size());
            }
            try (RowIterator rows = tree.scanKeys(KeyRange.all().reversed())) {
                Row row = rows.next();
                assertEquals("004999", text(row.key()));
                assertEquals(0, row.value().length);
                assertEquals(4999, rows.stream().count());
            }
        }
    }

    @Test
    void scan_sees_the_tree_as_of_its_begin() {
        try (Database database = Database.openInMemory()) {
            Tree tree = filled(database, 100);
            try (RowIterator rows = tree.scan()) {
                tree.clear();
                tree.put(bytes("z"), bytes("new"));
                assertEquals(100, keys(rows).size());
            }
            assertEquals(List.of("z"), keys(tree.scan()));
        }
    }

    @Test
    void scan_in_a_transaction_sees_writes_ahead() {
        try (Database database = Database.openInMemory()) {
            Tree tree = filled(database, 100);
            try (Transaction transaction = database.begin()) {
                TransactionTree in = transaction.tree(tree);
                RowIterator rows = in.scan();
                assertEquals("000000", text(rows.next().key()));
                in.delete(bytes("000001"));
                in.put(bytes("0000015"), bytes("between"));
                assertEquals("0000015", text(rows.next().key()));
                in.put(bytes("zz"), bytes("behind"));
                List<String> rest = keys(rows);
                assertEquals(99, rest.size());
                assertEquals("zz", rest.get(98));
                assertFalse(rows.hasNext());
                try (RowIterator reversed = in.scan(KeyRange.all().reversed().limit(2))) {
                    assertEquals("zz", text(reversed.next().key()));
                    in.put(bytes("000099a"), bytes("x"));
                    assertEquals("000099a", text(reversed.next().key()));
                    assertFalse(reversed.hasNext());
                }
                RowIterator open = in.scan();
                transaction.commit();
                assertThrows(ClosedException.class, () -> keys(open));
            }
        }
    }

    @Test
    void scan_grows_its_buffer_for_large_rows() {
        try (Database database = Database.openInMemory()) {
            Tree tree = database.tree("a");
            for (int i = 0; i < 40; i++) {
                byte[] value = new byte[i % 3 == 0 ? 200_000 + i : 10];
                value[value.length - 1] = (byte) i;
                tree.put(bytes(String.format("%02d", i)), value);
            }
            int seen = 0;
            try (RowIterator rows = tree.scan()) {
                for (; rows.hasNext(); seen++) {
                    Row row = rows.next();
                    assertEquals(seen % 3 == 0 ? 200_000 + seen : 10, row.value().length);
                    assertEquals(seen, row.value()[row.value().length - 1]);
                }
            }
            assertEquals(40, seen);
        }
    }

    @Test
    void closed_iterator_has_no_rows() {
        try (Database database = Database.openInMemory()) {
            Tree tree = filled(database, 100);
            RowIterator rows = tree.scan();
            rows.next();
            rows.close();
            rows.close();
            assertFalse(rows.hasNext());
            assertThrows(NoSuchElementException.class, rows::next);
            try (Snapshot snapshot = database.snapshot()) {
                RowIterator open = snapshot.tree(tree).scan();
                snapshot.close();
                assertThrows(ClosedException.class, () -> keys(open));
            }
        }
    }

    @Test
    void key_range_contains_what_its_scan_returns() {
        byte[][] keys = {{}, {0}, {1}, {1, 0}, {1, 2}, {2}, {-1}, {-1, -1}};
        List<KeyRange> ranges = new ArrayList<>(List.of(KeyRange.all()));
        for (byte[] a : keys) {
            ranges.add(KeyRange.prefix(a));
            for (byte[] b : keys) {
                for (int kinds = 0; kinds < 4; kinds++) {
                    ranges.add(KeyRange.of(a, (kinds & 1) != 0, b, (kinds & 2) != 0));
                }
            }
        }
        try (Database database = Database.openInMemory()) {
            Tree tree = database.tree("a");
            for (byte[] key : keys) {
                tree.put(key, key);
            }
            for (KeyRange range : ranges) {
                List<byte[]> expected = new ArrayList<>();
                for (byte[] key : keys) {
                    if (range.contains(key)) {
                        expected.add(key);
                    }
                }
                List<byte[]> found = tree.scan(range).stream().map(Row::key).toList();
                assertArrayEquals(expected.toArray(), found.toArray(), range::toString);
                assertEquals(expected.size(), tree.count(range), range::toString);
                assertTrue(tree.scanKeys(range.reversed()).stream().count() == expected.size());
            }
        }
    }
}
