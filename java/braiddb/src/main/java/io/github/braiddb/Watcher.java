package io.github.braiddb;

import java.lang.ref.Reference;
import java.time.Duration;

/**
 * Returns commits in order, once they are synced: see {@link Database#watch()}. Threads take turns;
 * {@link #close} ends the wait of another thread.
 */
public final class Watcher implements AutoCloseable {
    /** Longest wait in the native library, where a thread cannot be interrupted. */
    private static final long WAIT_MAX_NS = 50_000_000;

    private final Database database;
    private final Handle handle;

    Watcher(Database database, Handle handle) {
        this.database = database;
        this.handle = handle;
    }

    /**
     * Waits for the next commit.
     *
     * @return the commit
     * @throws InterruptedException if the thread is interrupted
     * @throws ClosedException if the watcher or the database is closed meanwhile
     * @throws WatchTooOldException if the log lacks commits that this watcher has not seen
     */
    public ChangeSet next() throws InterruptedException {
        while (true) {
            ChangeSet found = poll(Duration.ofNanos(Long.MAX_VALUE));
            if (found != null) {
                return found;
            }
        }
    }

    /**
     * Waits for the next commit for some time.
     *
     * @param timeout the longest wait; of a database that is read only, 0 is enough
     * @return the commit; null if there was none
     * @throws InterruptedException if the thread is interrupted
     * @throws ClosedException if the watcher or the database is closed meanwhile
     * @throws WatchTooOldException if the log lacks commits that this watcher has not seen
     */
    public ChangeSet poll(Duration timeout) throws InterruptedException {
        long left;
        try {
            left = Math.max(0, timeout.toNanos());
        } catch (ArithmeticException e) {
            left = Long.MAX_VALUE;
        }
        long begin = System.nanoTime();
        while (true) {
            if (Thread.interrupted()) {
                throw new InterruptedException();
            }
            long rest = left - (System.nanoTime() - begin);
            Decoder found = tryNext(Math.max(0, Math.min(rest, WAIT_MAX_NS)) / 1000);
            if (found != null) {
                return ChangeSet.decode(found);
            }
            if (rest <= 0) {
                return null;
            }
        }
    }

    private Decoder tryNext(long micros) {
        database.checkOpen();
        Scratch scratch = Scratch.CALLS.take(0);
        try {
            return scratch.decoder(
                    Native.watchNext(handle.address, micros, scratch.address, scratch.capacity()), 0);
        } finally {
            Scratch.CALLS.give(scratch);
            Reference.reachabilityFence(this);
        }
    }

    /**
     * Returns the token of the last returned commit: {@link WatchOptions#resume} continues there,
     * also after the database was opened again.
     *
     * @return the token
     */
    public byte[] token() {
        database.checkOpen();
        Scratch scratch = Scratch.CALLS.take(0);
        try {
            return scratch.value(Native.watchToken(handle.address, scratch.address, scratch.capacity()), 0);
        } finally {
            Scratch.CALLS.give(scratch);
            Reference.reachabilityFence(this);
        }
    }

    /** Stops. Does nothing if it is closed. */
    @Override
    public void close() {
        Scratch scratch = Scratch.CALLS.take(0);
        try {
            scratch.check(Native.watchClose(handle.address, scratch.address, scratch.capacity()));
        } finally {
            Scratch.CALLS.give(scratch);
            Reference.reachabilityFence(this);
        }
    }
}
