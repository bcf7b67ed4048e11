package io.github.braiddb;

import java.lang.ref.Reference;
import java.nio.ByteBuffer;

/**
 * A load of many rows into a tree: see {@link Tree#bulkLoader} and {@link Tree#unsortedLoader()}. Rows
 * are collected, and the native library is called once for about 60 KiB of them; so a refused row may
 * be reported by a later call. Threads take turns. {@link #close} discards a load that is not
 * finished.
 */
public final class BulkLoader implements AutoCloseable {
    /** Kept reachable during calls. */
    private final Tree tree;

    private final Handle handle;
    private Scratch rows = Scratch.HELD.take(0);
    private int len;

    private BulkLoader(Tree tree, Handle handle) {
        this.tree = tree;
        this.handle = handle;
    }

    static BulkLoader open(Tree tree, boolean isSorted, long memory) {
        Scratch scratch = Scratch.CALLS.take(0);
        try {
            tree.place.database.checkOpen();
            scratch.check(Native.loaderOpen(
                    tree.handle.address, isSorted ? 1 : 0, memory, scratch.address, scratch.capacity()));
            return new BulkLoader(tree, new Handle(scratch.buffer.getLong(0), Native::loaderFree));
        } finally {
            Scratch.CALLS.give(scratch);
            Reference.reachabilityFence(tree);
        }
    }

    /**
     * Adds a row.
     *
     * @param key the key
     * @param value the value
     * @return this
     * @throws InvalidArgumentException if the keys must ascend, and this one does not
     * @throws ClosedException after the end
     */
    public synchronized BulkLoader add(byte[] key, byte[] value) {
        checkOpen();
        long needed = 8L + key.length + value.length;
        if (len + needed > rows.capacity() - Scratch.RESULT_MIN) {
            send();
            if (needed > rows.capacity() - Scratch.RESULT_MIN) {
                Scratch larger = Scratch.of(needed + Scratch.RESULT_MIN);
                Scratch.HELD.give(rows);
                rows = larger;
            }
        }
        ByteBuffer buffer = rows.buffer.position(len);
        buffer.putInt(key.length).put(key).putInt(value.length).put(value);
        len = buffer.position();
        return this;
    }

    private void checkOpen() {
        tree.place.database.checkOpen();
        if (rows == null) {
            throw new ClosedException("the load has ended");
        }
    }

    private void send() {
        int sent = len;
        len = 0;
        if (sent > 0) {
            rows.check(Native.loaderAdd(handle.address, sent, rows.address, rows.capacity()));
        }
    }

    /**
     * Commits all rows together. The load has ended then, also if this fails.
     *
     * @return the number of rows
     * @throws InvalidArgumentException if the keys must ascend, and did not
     * @throws DiskFullException if there is no space; nothing was loaded
     */
    public synchronized long finish() {
        checkOpen();
        try {
            send();
            return rows.check(Native.loaderFinish(handle.address, rows.address, rows.capacity()));
        } finally {
            close();
        }
    }

    /** Discards the rows unless they are committed. */
    @Override
    public synchronized void close() {
        if (rows != null) {
            Scratch.HELD.give(rows);
            rows = null;
            handle.free();
        }
    }
}
