package io.github.braiddb;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.temporal.ChronoUnit;

/** Decodes a result of many parts. */
final class Decoder {
    private final ByteBuffer bytes;

    Decoder(byte[] bytes) {
        this.bytes = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
    }

    boolean isAtEnd() {
        return !bytes.hasRemaining();
    }

    boolean bool() {
        return bytes.get() != 0;
    }

    int count() {
        return bytes.getInt();
    }

    long number() {
        return bytes.getLong();
    }

    /** Returns bytes; null if absent. */
    byte[] bytes() {
        int len = bytes.getInt();
        if (len == -1) {
            return null;
        }
        byte[] part = new byte[len];
        bytes.get(part);
        return part;
    }

    /** Returns a text; null if absent. */
    String text() {
        byte[] part = bytes();
        return part == null ? null : new String(part, StandardCharsets.UTF_8);
    }

    /** Returns a time; null if absent. */
    Instant time() {
        long micros = bytes.getLong();
        return micros == -1 ? null : Instant.EPOCH.plus(micros, ChronoUnit.MICROS);
    }

    Row row() {
        return new Row(bytes(), bytes());
    }
}
