package io.github.braiddb;

import java.util.AbstractMap;
import java.util.AbstractSet;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Iterator;
import java.util.Map;
import java.util.NavigableSet;
import java.util.NoSuchElementException;
import java.util.Objects;
import java.util.Set;
import java.util.SortedSet;
import java.util.concurrent.ConcurrentNavigableMap;
import java.util.function.Function;

/** A range of a tree as a map. Keys outside are refused, as those of a sub-map are. */
final class TreeMapView extends AbstractMap<byte[], byte[]> implements ConcurrentNavigableMap<byte[], byte[]> {
    private final Tree tree;
    private final byte[] start;
    private final boolean isStartInclusive;
    private final byte[] end;
    private final boolean isEndInclusive;
    private final boolean isDescending;

    TreeMapView(Tree tree) {
        this(tree, null, true, null, false, false);
    }

    private TreeMapView(
            Tree tree,
            byte[] start,
            boolean isStartInclusive,
            byte[] end,
            boolean isEndInclusive,
            boolean isDescending) {
        this.tree = tree;
        this.start = start;
        this.isStartInclusive = isStartInclusive;
        this.end = end;
        this.isEndInclusive = isEndInclusive;
        this.isDescending = isDescending;
    }

    @Override
    public Comparator<? super byte[]> comparator() {
        Comparator<byte[]> order = Arrays::compareUnsigned;
        return isDescending ? order.reversed() : order;
    }

    private boolean has(byte[] key) {
        return KeyRange.of(start, isStartInclusive, end, isEndInclusive).contains(key);
    }

    private byte[] checked(byte[] key) {
        if (!has(key)) {
            throw new IllegalArgumentException("the key is outside of the sub-map's range");
        }
        return key;
    }

    private static byte[] asKey(Object key) {
        return (byte[]) Objects.requireNonNull(key, "key");
    }

    // Reads.

    @Override
    public byte[] get(Object key) {
        return has(asKey(key)) ? tree.get(asKey(key)) : null;
    }

    @Override
    public boolean containsKey(Object key) {
        return has(asKey(key)) && tree.contains(asKey(key));
    }

    @Override
    public boolean containsValue(Object value) {
        byte[] bytes = (byte[]) Objects.requireNonNull(value, "value");
        try (RowIterator rows = scan(null, true, null, false, false)) {
            while (rows.hasNext()) {
                if (Arrays.equals(rows.next().value(), bytes)) {
                    return true;
                }
            }
            return false;
        }
    }

    @Override
    public int size() {
        return (int) Math.min(Integer.MAX_VALUE, tree.count(range()));
    }

    @Override
    public boolean isEmpty() {
        return firstEntry() == null;
    }

    private KeyRange range() {
        return KeyRange.of(start, isStartInclusive, end, isEndInclusive);
    }

    /** Scans the part of this map within more bounds, in ascending order or not. */
    private RowIterator scan(
            byte[] from, boolean isFromInclusive, byte[] to, boolean isToInclusive, boolean isReverse) {
        TreeMapView part = narrowed(from, isFromInclusive, to, isToInclusive);
        KeyRange range = part.range();
        return tree.scan(isReverse ? range.reversed() : range);
    }

    private Entry<byte[], byte[]> firstOf(
            byte[] from, boolean isFromInclusive, byte[] to, boolean isToInclusive, boolean isReverse) {
        KeyRange range = narrowed(from, isFromInclusive, to, isToInclusive).range().limit(1);
        try (RowIterator rows = tree.scan(isReverse ? range.reversed() : range)) {
            return rows.hasNext() ? entry(rows.next()) : null;
        }
    }

    private static Entry<byte[], byte[]> entry(Row row) {
        return row == null ? null : new SimpleImmutableEntry<>(row.key(), row.value());
    }

    /** Returns the part between both bounds in ascending order. */
    private TreeMapView narrowed(byte[] from, boolean isFromInclusive, byte[] to, boolean isToInclusive) {
        byte[] lower = start;
        boolean isLowerInclusive = isStartInclusive;
        if (from != null) {
            int order = start == null ? 1 : Arrays.compareUnsigned(from, start);
            if (order > 0 || order == 0 && !isFromInclusive) {
                lower = from;
                isLowerInclusive = isFromInclusive;
            }
        }
        byte[] upper = end;
        boolean isUpperInclusive = isEndInclusive;
        if (to != null) {
            int order = end == null ? -1 : Arrays.compareUnsigned(to, end);
            if (order < 0 || order == 0 && !isToInclusive) {
                upper = to;
                isUpperInclusive = isToInclusive;
            }
        }
        return new TreeMapView(tree, lower, isLowerInclusive, upper, isUpperInclusive, isDescending);
    }

    private Entry<byte[], byte[]> after(byte[] key, boolean isInclusive) {
        return isDescending
                ? firstOf(null, true, asKey(key), isInclusive, true)
                : firstOf(asKey(key), isInclusive, null, false, false);
    }

    private Entry<byte[], byte[]> before(byte[] key, boolean isInclusive) {
        return isDescending
                ? firstOf(asKey(key), isInclusive, null, false, false)
                : firstOf(null, true, asKey(key), isInclusive, true);
    }

    private static byte[] keyOf(Entry<byte[], byte[]> entry) {
        return entry == null ? null : entry.getKey();
    }

    @Override
    public Entry<byte[], byte[]> lowerEntry(byte[] key) {
        return before(key, false);
    }

    @Override
    public byte[] lowerKey(byte[] key) {
        return keyOf(lowerEntry(key));
    }

    @Override
    public Entry<byte[], byte[]> floorEntry(byte[] key) {
        return before(key, true);
    }

    @Override
    public byte[] floorKey(byte[] key) {
        return keyOf(floorEntry(key));
    }

    @Override
    public Entry<byte[], byte[]> ceilingEntry(byte[] key) {
        return after(key, true);
    }

    @Override
    public byte[] ceilingKey(byte[] key) {
        return keyOf(ceilingEntry(key));
    }

    @Override
    public Entry<byte[], byte[]> higherEntry(byte[] key) {
        return after(key, false);
    }

    @Override
    public byte[] higherKey(byte[] key) {
        return keyOf(higherEntry(key));
    }

    @Override
    public Entry<byte[], byte[]> firstEntry() {
        return firstOf(null, true, null, false, isDescending);
    }

    @Override
    public Entry<byte[], byte[]> lastEntry() {
        return firstOf(null, true, null, false, !isDescending);
    }

    @Override
    public byte[] firstKey() {
        return present(firstEntry()).getKey();
    }

    @Override
    public byte[] lastKey() {
        return present(lastEntry()).getKey();
    }

    private static Entry<byte[], byte[]> present(Entry<byte[], byte[]> entry) {
        if (entry == null) {
            throw new NoSuchElementException();
        }
        return entry;
    }

    @Override
    public byte[] getOrDefault(Object key, byte[] absent) {
        byte[] value = get(key);
        return value == null ? absent : value;
    }

    // Writes.

    @Override
    public byte[] put(byte[] key, byte[] value) {
        return tree.getAndPut(checked(key), value);
    }

    @Override
    public byte[] remove(Object key) {
        return has(asKey(key)) ? tree.remove(asKey(key)) : null;
    }

    @Override
    public byte[] putIfAbsent(byte[] key, byte[] value) {
        Objects.requireNonNull(value, "value");
        while (!tree.putIfAbsent(checked(key), value)) {
            byte[] present = tree.get(key);
            if (present != null) {
                return present;
            }
        }
        return null;
    }

    @Override
    public boolean remove(Object key, Object value) {
        return value != null && has(asKey(key)) && tree.compareAndSet(asKey(key), (byte[]) value, null);
    }

    @Override
    public boolean replace(byte[] key, byte[] expected, byte[] value) {
        Objects.requireNonNull(expected, "expected");
        return tree.compareAndSet(checked(key), expected, Objects.requireNonNull(value, "value"));
    }

    @Override
    public byte[] replace(byte[] key, byte[] value) {
        Objects.requireNonNull(value, "value");
        while (true) {
            byte[] present = tree.get(checked(key));
            if (present == null || tree.compareAndSet(key, present, value)) {
                return present;
            }
        }
    }

    @Override
    public void clear() {
        tree.deleteRange(range());
    }

    @Override
    public Entry<byte[], byte[]> pollFirstEntry() {
        return poll(isDescending);
    }

    @Override
    public Entry<byte[], byte[]> pollLastEntry() {
        return poll(!isDescending);
    }

    private Entry<byte[], byte[]> poll(boolean isLast) {
        if (start == null && end == null) {
            return entry(isLast ? tree.popLast() : tree.popFirst());
        }
        while (true) {
            Entry<byte[], byte[]> found = firstOf(null, true, null, false, isLast);
            if (found == null || tree.compareAndSet(found.getKey(), found.getValue(), null)) {
                return found;
            }
        }
    }

    // Parts.

    @Override
    public ConcurrentNavigableMap<byte[], byte[]> subMap(
            byte[] from, boolean isFromInclusive, byte[] to, boolean isToInclusive) {
        if (comparator().compare(from, to) > 0) {
            throw new IllegalArgumentException("the first key is after the last");
        }
        return part(from, isFromInclusive, to, isToInclusive);
    }

    /** Returns the part between both bounds in this map's order. */
    private TreeMapView part(byte[] from, boolean isFromInclusive, byte[] to, boolean isToInclusive) {
        for (byte[] bound : new byte[][] {from, to}) {
            // Bounds may be equal to those of this map, of whichever kind.
            if (bound != null && !KeyRange.of(start, true, end, true).contains(bound)) {
                throw new IllegalArgumentException("the bound is outside of the sub-map's range");
            }
        }
        return isDescending
                ? narrowed(copy(to), isToInclusive, copy(from), isFromInclusive)
                : narrowed(copy(from), isFromInclusive, copy(to), isToInclusive);
    }

    private static byte[] copy(byte[] key) {
        return key == null ? null : key.clone();
    }

    @Override
    public ConcurrentNavigableMap<byte[], byte[]> headMap(byte[] to, boolean isInclusive) {
        return part(null, true, asKey(to), isInclusive);
    }

    @Override
    public ConcurrentNavigableMap<byte[], byte[]> tailMap(byte[] from, boolean isInclusive) {
        return part(asKey(from), isInclusive, null, false);
    }

    @Override
    public ConcurrentNavigableMap<byte[], byte[]> subMap(byte[] from, byte[] to) {
        return subMap(from, true, to, false);
    }

    @Override
    public ConcurrentNavigableMap<byte[], byte[]> headMap(byte[] to) {
        return headMap(to, false);
    }

    @Override
    public ConcurrentNavigableMap<byte[], byte[]> tailMap(byte[] from) {
        return tailMap(from, true);
    }

    @Override
    public ConcurrentNavigableMap<byte[], byte[]> descendingMap() {
        return new TreeMapView(tree, start, isStartInclusive, end, isEndInclusive, !isDescending);
    }

    @Override
    public NavigableSet<byte[]> keySet() {
        return new Keys(this);
    }

    @Override
    public NavigableSet<byte[]> navigableKeySet() {
        return keySet();
    }

    @Override
    public NavigableSet<byte[]> descendingKeySet() {
        return descendingMap().navigableKeySet();
    }

    /** The entries, which are compared by the contents of keys and values. */
    @Override
    public Set<Entry<byte[], byte[]>> entrySet() {
        return new AbstractSet<>() {
            @Override
            public Iterator<Entry<byte[], byte[]>> iterator() {
                return iterate(TreeMapView::entry);
            }

            @Override
            public int size() {
                return TreeMapView.this.size();
            }

            @Override
            public boolean contains(Object other) {
                return other instanceof Map.Entry<?, ?> entry
                        && entry.getKey() instanceof byte[] key
                        && entry.getValue() instanceof byte[] value
                        && Arrays.equals(get(key), value);
            }

            @Override
            public boolean remove(Object other) {
                return other instanceof Map.Entry<?, ?> entry
                        && entry.getKey() instanceof byte[] key
                        && TreeMapView.this.remove(key, entry.getValue());
            }

            @Override
            public void clear() {
                TreeMapView.this.clear();
            }
        };
    }

    private <T> Iterator<T> iterate(Function<Row, T> map) {
        RowIterator rows = scan(null, true, null, false, isDescending);
        return new Iterator<>() {
            private byte[] last;

            @Override
            public boolean hasNext() {
                return rows.hasNext();
            }

            @Override
            public T next() {
                Row row = rows.next();
                last = row.key();
                return map.apply(row);
            }

            @Override
            public void remove() {
                if (last == null) {
                    throw new IllegalStateException("there is no row to remove");
                }
                tree.delete(last);
                last = null;
            }
        };
    }

    /** The keys of a map. */
    private static final class Keys extends AbstractSet<byte[]> implements NavigableSet<byte[]> {
        private final TreeMapView map;

        Keys(TreeMapView map) {
            this.map = map;
        }

        @Override
        public Comparator<? super byte[]> comparator() {
            return map.comparator();
        }

        @Override
        public int size() {
            return map.size();
        }

        @Override
        public boolean isEmpty() {
            return map.isEmpty();
        }

        @Override
        public boolean contains(Object key) {
            return map.containsKey(key);
        }

        @Override
        public boolean remove(Object key) {
            return map.remove(key) != null;
        }

        @Override
        public void clear() {
            map.clear();
        }

        @Override
        public Iterator<byte[]> iterator() {
            return map.iterate(Row::key);
        }

        @Override
        public Iterator<byte[]> descendingIterator() {
            return descendingSet().iterator();
        }

        @Override
        public NavigableSet<byte[]> descendingSet() {
            return map.descendingKeySet();
        }

        @Override
        public byte[] first() {
            return map.firstKey();
        }

        @Override
        public byte[] last() {
            return map.lastKey();
        }

        @Override
        public byte[] lower(byte[] key) {
            return map.lowerKey(key);
        }

        @Override
        public byte[] floor(byte[] key) {
            return map.floorKey(key);
        }

        @Override
        public byte[] ceiling(byte[] key) {
            return map.ceilingKey(key);
        }

        @Override
        public byte[] higher(byte[] key) {
            return map.higherKey(key);
        }

        @Override
        public byte[] pollFirst() {
            return keyOf(map.pollFirstEntry());
        }

        @Override
        public byte[] pollLast() {
            return keyOf(map.pollLastEntry());
        }

        @Override
        public NavigableSet<byte[]> subSet(
                byte[] from, boolean isFromInclusive, byte[] to, boolean isToInclusive) {
            return map.subMap(from, isFromInclusive, to, isToInclusive).navigableKeySet();
        }

        @Override
        public NavigableSet<byte[]> headSet(byte[] to, boolean isInclusive) {
            return map.headMap(to, isInclusive).navigableKeySet();
        }

        @Override
        public NavigableSet<byte[]> tailSet(byte[] from, boolean isInclusive) {
            return map.tailMap(from, isInclusive).navigableKeySet();
        }

        @Override
        public SortedSet<byte[]> subSet(byte[] from, byte[] to) {
            return subSet(from, true, to, false);
        }

        @Override
        public SortedSet<byte[]> headSet(byte[] to) {
            return headSet(to, false);
        }

        @Override
        public SortedSet<byte[]> tailSet(byte[] from) {
            return tailSet(from, true);
        }
    }
}
