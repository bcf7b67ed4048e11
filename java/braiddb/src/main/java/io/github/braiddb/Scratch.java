package io.github.braiddb;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.atomic.AtomicReferenceArray;

/**
 * A direct buffer for the arguments and the result of a call. Buffers come from a pool with places
 * for each thread, so that a call makes none; virtual threads share the places.
 */
final class Scratch {
    /** Bytes of a new buffer. */
    private static final int SIZE = 64 << 10;

    /** Larger buffers are not in the pools of threads. */
    private static final int POOLED_MAX = 1 << 20;

    /** Larger buffers are never kept. */
    private static final int LARGE_MAX = 16 << 20;

    /**
     * Buffers above {@link #POOLED_MAX} that no call uses, for all threads: 64 MiB at most. The collector
     * frees a direct buffer when it finds it, not before: batches that each make a large buffer would
     * take as much native memory as the heap may have.
     */
    private static final AtomicReferenceArray<Scratch> LARGE = new AtomicReferenceArray<>(4);

    /** Bytes that each call leaves for a short result, or the details of a failure. */
    static final int RESULT_MIN = 4 << 10;

    /** Buffers of calls. */
    static final Pool CALLS = new Pool();

    /** Buffers that scans and batches keep for longer than a call. */
    static final Pool HELD = new Pool();

    final ByteBuffer buffer;
    final long address;

    private Scratch(int capacity) {
        buffer = ByteBuffer.allocateDirect(capacity).order(ByteOrder.LITTLE_ENDIAN);
        address = Native.address(buffer);
        if (address == 0) {
            throw new UnsupportedOperationException("this virtual machine has no direct buffers");
        }
    }

    static final class Pool {
        private static final int THREADS = 64;

        /** Two buffers for each place; places are cache lines apart. */
        private static final int STRIDE = 16;

        private final AtomicReferenceArray<Scratch> places = new AtomicReferenceArray<>(THREADS * STRIDE);

        private static int place() {
            return (int) (Thread.currentThread().getId() & THREADS - 1) * STRIDE;
        }

        /** Takes a buffer with space for these arguments and a short result. */
        Scratch take(long argumentsLen) {
            int place = place();
            Scratch pooled = places.getAndSet(place, null);
            if (pooled == null) {
                pooled = places.getAndSet(place + 1, null);
            }
            long needed = argumentsLen + RESULT_MIN;
            if (pooled != null && pooled.buffer.capacity() >= needed) {
                return pooled;
            }
            return of(needed);
        }

        /** Returns a buffer that no call uses any more. */
        void give(Scratch scratch) {
            if (scratch.buffer.capacity() <= POOLED_MAX) {
                int place = place();
                places.setRelease(places.getPlain(place) == null ? place : place + 1, scratch);
            } else if (scratch.buffer.capacity() <= LARGE_MAX) {
                giveLarge(scratch);
            }
        }
    }

    private static Scratch takeLarge(long capacity) {
        for (int i = 0; i < LARGE.length(); i++) {
            Scratch kept = LARGE.get(i);
            if (kept != null && kept.buffer.capacity() >= capacity && LARGE.compareAndSet(i, kept, null)) {
                return kept;
            }
        }
        return null;
    }

    /** Keeps the buffer if there is a place, or one with a smaller buffer. */
    private static void giveLarge(Scratch scratch) {
        for (int i = 0; i < LARGE.length(); i++) {
            if (LARGE.compareAndSet(i, null, scratch)) {
                return;
            }
        }
        for (int i = 0; i < LARGE.length(); i++) {
            Scratch kept = LARGE.get(i);
            if (kept != null && kept.buffer.capacity() < scratch.buffer.capacity()
                    && LARGE.compareAndSet(i, kept, scratch)) {
                return;
            }
        }
    }

    /** Returns a buffer of at least this capacity. */
    static Scratch of(long capacity) {
        if (capacity > Integer.MAX_VALUE - 8) {
            throw new InvalidArgumentException(
                    capacity + " bytes of keys and values in one call: a buffer holds 2,147,483,639");
        }
        if (capacity <= SIZE || capacity > LARGE_MAX) {
            return new Scratch((int) Math.max(SIZE, capacity));
        }
        Scratch kept = takeLarge(capacity);
        // Powers of two fit later calls too.
        return kept != null ? kept : new Scratch(Integer.highestOneBit((int) capacity - 1) << 1);
    }

    int capacity() {
        return buffer.capacity();
    }

    /** Copies the arguments to the start of a buffer of the pool. */
    static Scratch with(byte[] arguments) {
        Scratch scratch = CALLS.take(arguments.length);
        scratch.buffer.put(0, arguments);
        return scratch;
    }

    static Scratch with(byte[] first, byte[] second) {
        Scratch scratch = CALLS.take((long) first.length + second.length);
        scratch.buffer.put(0, first);
        scratch.buffer.put(first.length, second);
        return scratch;
    }

    /** Returns a result of at least 0, or throws. */
    long check(long result) {
        if (result < 0) {
            throw failure(result);
        }
        return result;
    }

    /** Returns the value at {@code offset} of so many bytes, null if it is absent, or throws. */
    byte[] value(long result, int offset) {
        if (result >= 0) {
            byte[] value = new byte[(int) result];
            buffer.get(offset, value);
            return value;
        }
        if (result == Errors.ABSENT) {
            return null;
        }
        if (result == Errors.OVERFLOW) {
            return takeBoxed(buffer.getLong(offset), buffer.getLong(offset + 8));
        }
        throw failure(result);
    }

    private static byte[] takeBoxed(long box, long len) {
        Scratch scratch = CALLS.take(len);
        try {
            return scratch.value(Native.takeResult(box, scratch.address, scratch.capacity()), 0);
        } finally {
            CALLS.give(scratch);
        }
    }

    /** Returns a decoder of the result, or null if it is absent. */
    Decoder decoder(long result, int offset) {
        byte[] value = value(result, offset);
        return value == null ? null : new Decoder(value);
    }

    private BraidException failure(long code) {
        long offset = buffer.getLong(0);
        int messageLen = length(8);
        int pathLen = length(12 + messageLen);
        return Errors.of(code, text(12, messageLen), text(16 + messageLen, pathLen), offset);
    }

    private int length(int at) {
        return Math.max(0, Math.min(buffer.getInt(at), capacity() - at - 8));
    }

    private String text(int at, int len) {
        byte[] bytes = new byte[len];
        buffer.get(at, bytes);
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
