package io.github.braiddb;

import java.util.Arrays;
import java.util.HexFormat;

/**
 * A key and its value. Rows are equal if both have the same bytes.
 *
 * @param key the key; the caller owns the array
 * @param value the value; the caller owns the array
 */
public record Row(byte[] key, byte[] value) {
    @Override
    public boolean equals(Object other) {
        return other instanceof Row row && Arrays.equals(key, row.key) && Arrays.equals(value, row.value);
    }

    @Override
    public int hashCode() {
        return 31 * Arrays.hashCode(key) + Arrays.hashCode(value);
    }

    @Override
    public String toString() {
        HexFormat hex = HexFormat.of();
        return "Row[key=" + hex.formatHex(key) + ", value=" + hex.formatHex(value) + "]";
    }
}
