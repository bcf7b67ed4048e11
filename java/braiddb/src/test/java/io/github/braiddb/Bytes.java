package io.github.braiddb;

import java.nio.charset.StandardCharsets;
import java.util.Random;

/** Keys and values of tests. */
final class Bytes {
    private Bytes() {}

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] bytes) {
        return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
    }

    static byte[] random(Random random, int len) {
        byte[] bytes = new byte[len];
        random.nextBytes(bytes);
        return bytes;
    }

    /** Returns the seed of a random test: that of the property {@code braiddb.seed}, or a new one. */
    static long seed() {
        long seed = Long.getLong("braiddb.seed", System.nanoTime());
        System.out.println("repeat this with -Dtest.options=-Dbraiddb.seed=" + seed);
        return seed;
    }

    /** Returns so many repeats times the property {@code braiddb.volume}, 1 by default. */
    static int volume(int repeats) {
        return (int) (repeats * Double.parseDouble(System.getProperty("braiddb.volume", "1")));
    }
}
