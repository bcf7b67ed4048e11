package io.github.braiddb;

import static io.github.braiddb.Bytes.bytes;
import static io.github.braiddb.Bytes.text;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Arrays;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.NoSuchElementException;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentNavigableMap;
import org.junit.jupiter.api.Test;

class MapViewTest {
    /** Calls of a map of bytes and a {@link TreeMap} agree, also of their parts. */
    @Test
    void random_calls_agree_with_a_tree_map() {
        long seed = Bytes.seed();
        try (Database database = Database.openInMemory(); Batch batch = database.batch()) {
            Random random = new Random(seed);
            for (int round = 0; round < Bytes.volume(10); round++) {
                NavigableMap<byte[], byte[]> map = database.tree("t" + round).asMap();
                NavigableMap<byte[], byte[]> model = new TreeMap<>(Arrays::compareUnsigned);
                for (int step = 0; step < 300; step++) {
                    step(random, map, model, 3);
                }
                same(map, model);
            }
        }
    }

    private static byte[] key(Random random) {
        return Bytes.random(random, 1 + random.nextInt(2));
    }

    private static void step(
            Random random, NavigableMap<byte[], byte[]> map, NavigableMap<byte[], byte[]> model, int depth) {
        byte[] key = key(random);
        byte[] to = key(random);
        byte[] value = bytes("v" + random.nextInt(5));
        switch (random.nextInt(depth > 0 ? 23 : 18)) {
            case 0 -> same(put(map, key, value), put(model, key, value));
            case 1 -> assertArrayEquals(model.remove(key), map.remove(key));
            case 2 -> assertArrayEquals(model.get(key), map.get(key));
            case 3 -> same(map.floorEntry(key), model.floorEntry(key));
            case 4 -> same(map.lowerEntry(key), model.lowerEntry(key));
            case 5 -> same(map.ceilingEntry(key), model.ceilingEntry(key));
            case 6 -> same(map.higherEntry(key), model.higherEntry(key));
            case 7 -> same(map.firstEntry(), model.firstEntry());
            case 8 -> same(map.lastEntry(), model.lastEntry());
            case 9 -> same(map.pollFirstEntry(), model.pollFirstEntry());
            case 10 -> same(map.pollLastEntry(), model.pollLastEntry());
            case 11 -> assertEquals(model.size(), map.size());
            case 12 -> assertEquals(model.containsKey(key), map.containsKey(key));
            case 13 -> assertArrayEquals(model.floorKey(key), map.floorKey(key));
            case 14 -> assertArrayEquals(model.higherKey(key), map.higherKey(key));
            case 15, 16, 17 -> {
                for (int i = 0; i < 8; i++) {
                    byte[] added = key(random);
                    put(map, added, value);
                    put(model, added, value);
                }
            }
            case 18 -> step(random, map.descendingMap(), model.descendingMap(), depth - 1);
            case 19 -> part(random, map, model, depth, m -> m.subMap(key, to));
            case 20 -> part(random, map, model, depth, m -> m.headMap(key, true));
            case 21 -> part(random, map, model, depth, m -> m.tailMap(key, false));
            default -> part(random, map, model, depth, m -> m.subMap(key, false, to, true));
        }
        assertEquals(model.isEmpty(), map.isEmpty());
    }

    private interface Part {
        Map<byte[], byte[]> of(NavigableMap<byte[], byte[]> map);
    }

    /** Compares parts, or that both refuse to make them. */
    private static void part(
            Random random,
            NavigableMap<byte[], byte[]> map,
            NavigableMap<byte[], byte[]> model,
            int depth,
            Part part) {
        NavigableMap<byte[], byte[]> expected;
        try {
            expected = (NavigableMap<byte[], byte[]>) part.of(model);
        } catch (IllegalArgumentException e) {
            assertThrows(IllegalArgumentException.class, () -> part.of(map));
            return;
        }
        NavigableMap<byte[], byte[]> found = (NavigableMap<byte[], byte[]>) part.of(map);
        same(found, expected);
        step(random, found, expected, depth - 1);
    }

    private static String put(NavigableMap<byte[], byte[]> map, byte[] key, byte[] value) {
        try {
            return "was " + text(map.put(key, value));
        } catch (IllegalArgumentException e) {
            return "refused";
        }
    }

    private static void same(Object found, Object expected) {
        assertEquals(expected, found);
    }

    private static void same(Map.Entry<byte[], byte[]> found, Map.Entry<byte[], byte[]> expected) {
        assertEquals(expected == null, found == null);
        if (expected != null) {
            assertArrayEquals(expected.getKey(), found.getKey());
            assertArrayEquals(expected.getValue(), found.getValue());
        }
    }

    private static void same(NavigableMap<byte[], byte[]> found, NavigableMap<byte[], byte[]> expected) {
        Iterator<Map.Entry<byte[], byte[]>> entries = found.entrySet().iterator();
        expected.entrySet().forEach(entry -> same(entries.next(), entry));
        assertFalse(entries.hasNext());
        Iterator<byte[]> keys = found.descendingKeySet().iterator();
        expected.descendingKeySet().forEach(key -> assertArrayEquals(key, keys.next()));
        assertFalse(keys.hasNext());
    }

    @Test
    void atomic_calls_compare_contents() {
        try (Database database = Database.openInMemory()) {
            ConcurrentNavigableMap<byte[], byte[]> map = database.tree("a").asMap();
            assertThrows(NoSuchElementException.class, map::firstKey);
            assertNull(map.putIfAbsent(bytes("k"), bytes("1")));
            assertEquals("1", text(map.putIfAbsent(bytes("k"), bytes("2"))));
            assertFalse(map.replace(bytes("k"), bytes("0"), bytes("3")));
            assertTrue(map.replace(bytes("k"), bytes("1"), bytes("3")));
            assertEquals("3", text(map.replace(bytes("k"), bytes("4"))));
            assertNull(map.replace(bytes("absent"), bytes("4")));
            assertFalse(map.remove(bytes("k"), bytes("3")));
            assertTrue(map.containsValue(bytes("4")));
            assertTrue(map.entrySet().contains(Map.entry(bytes("k"), bytes("4"))));
            assertTrue(map.remove(bytes("k"), bytes("4")));
            assertEquals("x", text(map.getOrDefault(bytes("k"), bytes("x"))));
            map.merge(bytes("k"), bytes("a"), (a, b) -> bytes(text(a) + text(b)));
            map.merge(bytes("k"), bytes("b"), (a, b) -> bytes(text(a) + text(b)));
            assertEquals("ab", text(map.get(bytes("k"))));
            map.keySet().removeIf(key -> true);
            assertTrue(map.isEmpty());
            assertThrows(NullPointerException.class, () -> map.get(null));
            for (String key : List.of("a", "b", "c")) {
                map.put(bytes(key), bytes(key));
            }
            map.subMap(bytes("b"), bytes("c")).clear();
            assertEquals(2, map.size());
            assertEquals("c", text(map.navigableKeySet().pollLast()));
        }
    }
}
