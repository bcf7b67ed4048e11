package io.github.braiddb;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/** Encodes arguments of many parts. */
final class Encoder {
    private ByteBuffer bytes = buffer(new byte[64]);

    private static ByteBuffer buffer(byte[] bytes) {
        return ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
    }

    private ByteBuffer space(long len) {
        if (bytes.remaining() < len) {
            long needed = bytes.position() + len;
            if (needed > Integer.MAX_VALUE - 8) {
                throw new InvalidArgumentException("the arguments of a call exceed 2,147,483,639 bytes");
            }
            int capacity = (int) Math.min(Math.max(needed, 2L * bytes.capacity()), Integer.MAX_VALUE - 8);
            int at = bytes.position();
            bytes = buffer(Arrays.copyOf(bytes.array(), capacity)).position(at);
        }
        return bytes;
    }

    Encoder flags(int flags) {
        space(1).put((byte) flags);
        return this;
    }

    Encoder number(long number) {
        space(8).putLong(number);
        return this;
    }

    /** Adds bytes; null is absent. */
    Encoder bytes(byte[] part) {
        if (part == null) {
            space(4).putInt(-1);
        } else {
            space(4L + part.length).putInt(part.length).put(part);
        }
        return this;
    }

    Encoder text(String text) {
        return bytes(text == null ? null : text.getBytes(StandardCharsets.UTF_8));
    }

    Encoder option(String name, Object value) {
        return value == null ? this : text(name).text(value.toString());
    }

    byte[] toBytes() {
        return Arrays.copyOf(bytes.array(), len());
    }

    int len() {
        return bytes.position();
    }

    Scratch scratch() {
        Scratch scratch = Scratch.CALLS.take(len());
        scratch.buffer.put(0, bytes.array(), 0, len());
        return scratch;
    }
}
