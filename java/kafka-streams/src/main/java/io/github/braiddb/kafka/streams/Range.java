package io.github.braiddb.kafka.streams;

import io.github.braiddb.KeyRange;
import java.util.Arrays;
import java.util.concurrent.ConcurrentNavigableMap;
import java.util.concurrent.ConcurrentSkipListMap;

/**
 * A range of keys and a direction.
 *
 * @param from the first key; null for none
 * @param to the last key, or the key after it; null for none
 * @param isToInclusive true if {@code to} is the last key
 * @param isReverse true for the last row first
 */
record Range(byte[] from, byte[] to, boolean isToInclusive, boolean isReverse) {
    static final Range ALL = new Range(null, null, false, false);

    static Range prefix(byte[] prefix) {
        return new Range(prefix, after(prefix), false, false);
    }

    Range reversed(boolean isReverse) {
        return new Range(from, to, isToInclusive, isReverse);
    }

    /** Returns true if no key can be in the range. */
    boolean isEmpty() {
        if (from == null || to == null) {
            return false;
        }
        int order = Arrays.compareUnsigned(from, to);
        return order > 0 || order == 0 && !isToInclusive;
    }

    KeyRange keys() {
        KeyRange range = KeyRange.of(from, true, to, isToInclusive);
        return isReverse ? range.reversed() : range;
    }

    <V> ConcurrentNavigableMap<byte[], V> of(ConcurrentNavigableMap<byte[], V> map) {
        ConcurrentNavigableMap<byte[], V> part = map;
        if (isEmpty()) {
            part = new ConcurrentSkipListMap<>(map.comparator());
        } else if (from != null && to != null) {
            part = map.subMap(from, true, to, isToInclusive);
        } else if (from != null) {
            part = map.tailMap(from, true);
        } else if (to != null) {
            part = map.headMap(to, isToInclusive);
        }
        return isReverse ? part.descendingMap() : part;
    }

    /** Returns the first key behind all keys with this prefix; null if there is none. */
    static byte[] after(byte[] prefix) {
        int len = prefix.length;
        while (len > 0 && prefix[len - 1] == (byte) 0xFF) {
            len--;
        }
        if (len == 0) {
            return null;
        }
        byte[] after = Arrays.copyOf(prefix, len);
        after[len - 1]++;
        return after;
    }
}
