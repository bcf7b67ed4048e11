package io.github.braiddb;

import static io.github.braiddb.Bytes.bytes;
import static io.github.braiddb.Bytes.text;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

class MultiTreeTest {
    private static List<String> pairs(RowIterator rows) {
        List<String> pairs = new ArrayList<>();
        rows.forEachRemaining(row -> pairs.add(text(row.key()) + text(row.value())));
        return pairs;
    }

    @Test
    void pairs_are_sorted_in_every_state() {
        try (Database database = Database.openInMemory()) {
            MultiTree tree = database.multiTree("m");
            for (String pair : List.of("b2", "a1", "b1", "c1", "b3", "b2")) {
                tree.add(bytes(pair.substring(0, 1)), bytes(pair.substring(1)));
            }
            try (Snapshot snapshot = database.snapshot(); Transaction transaction = database.begin()) {
                TransactionMultiTree in = transaction.tree(tree);
                in.add(bytes("b"), bytes("0"));
                in.deletePair(bytes("b"), bytes("3"));
                tree.delete(bytes("c"));
                assertEquals(List.of("a1", "b1", "b2", "b3"), pairs(tree.scan()));
                assertEquals(List.of("a1", "b1", "b2", "b3", "c1"), pairs(snapshot.tree(tree).scan()));
                assertEquals(List.of("a1", "b0", "b1", "b2", "c1"), pairs(in.scan()));
                assertEquals(List.of("c1", "b2", "b1", "b0", "a1"), pairs(in.scan(KeyRange.all().reversed())));
                assertEquals(List.of("b0", "b1", "b2"), pairs(in.values(bytes("b"))));
                assertEquals(List.of("b2", "b1", "b0"), pairs(in.valuesReversed(bytes("b"))));
                assertEquals(List.of("b3", "b2", "b1"), pairs(snapshot.tree(tree).valuesReversed(bytes("b"))));
                assertEquals(List.of("b1", "b2", "b3"), pairs(tree.values(bytes("b"))));
                for (ReadableMultiTree of : new ReadableMultiTree[] {tree, snapshot.tree(tree), in}) {
                    assertEquals("m", of.name());
                    assertEquals(3, of.countValues(bytes("b")));
                    assertEquals(3, of.count(KeyRange.prefix(bytes("b"))));
                    assertTrue(of.contains(bytes("a")));
                    assertFalse(of.contains(bytes("d")));
                    assertTrue(of.containsPair(bytes("b"), bytes("2")));
                    assertFalse(of.containsPair(bytes("b"), bytes("4")));
                }
                assertEquals("0", text(in.firstValue(bytes("b"))));
                assertEquals("3", text(tree.lastValue(bytes("b"))));
                assertNull(tree.firstValue(bytes("c")));
            }
            assertEquals(new Row(bytes("a"), bytes("1")), tree.popFirst());
            assertEquals(new Row(bytes("b"), bytes("3")), tree.popLast());
            tree.deletePair(bytes("b"), bytes("1"));
            assertEquals(1, tree.count());
            tree.deleteRange(KeyRange.from(bytes("b")));
            assertNull(tree.popFirst());
            tree.clear();
        }
    }

    @Test
    void scan_in_a_transaction_sees_pairs_ahead() {
        try (Database database = Database.openInMemory()) {
            MultiTree tree = database.multiTree("m");
            for (int i = 0; i < 50; i++) {
                tree.add(bytes("k" + i / 20), bytes(String.format("%02d", i)));
            }
            for (boolean isReversed : new boolean[] {false, true}) {
                try (Transaction transaction = database.begin()) {
                    TransactionMultiTree in = transaction.tree(tree);
                    KeyRange range = isReversed ? KeyRange.all().reversed() : KeyRange.all();
                    RowIterator rows = in.scan(range);
                    List<String> seen = new ArrayList<>();
                    while (rows.hasNext()) {
                        Row row = rows.next();
                        seen.add(text(row.value()));
                        // Every pair is deleted behind the scan, and one is added ahead of it.
                        in.deletePair(row.key(), row.value());
                        if (seen.size() == 3) {
                            in.add(bytes("k1"), bytes("25+"));
                        }
                    }
                    assertEquals(51, seen.size());
                    assertTrue(seen.contains("25+"));
                    assertEquals(0, in.count());
                }
            }
        }
    }
}
