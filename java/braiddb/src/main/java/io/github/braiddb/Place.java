package io.github.braiddb;

import java.util.concurrent.locks.ReentrantLock;

/** A state in which trees are read: the latest, a snapshot, or a transaction. */
abstract class Place {
    final Database database;

    Place(Database database) {
        this.database = database;
    }

    /** Returns the address for a call, or throws. {@link #release} follows. */
    abstract long acquire();

    /** Ends a call. */
    abstract void release();

    /** Returns the number of writes after which a scan reads its rows again. */
    int writes() {
        return 0;
    }

    /** Notes a write, before {@link #release}. */
    void noteWrite() {}

    boolean isTransaction() {
        return false;
    }

    /** The latest state of a database. */
    static final class Latest extends Place {
        Latest(Database database) {
            super(database);
        }

        @Override
        long acquire() {
            database.checkOpen();
            return 0;
        }

        @Override
        void release() {}
    }

    /** A snapshot. Threads share it, so only the cleaner frees the handle: see {@link Handle}. */
    static final class OfSnapshot extends Place {
        private final Handle handle;
        private volatile boolean isClosed;

        OfSnapshot(Database database, Handle handle) {
            super(database);
            this.handle = handle;
        }

        @Override
        long acquire() {
            database.checkOpen();
            if (isClosed) {
                throw new ClosedException("the snapshot was closed");
            }
            return handle.address;
        }

        void close() {
            isClosed = true;
        }

        @Override
        void release() {}
    }

    /** A transaction. Calls take turns, so its end frees the handle at once. */
    static final class OfTransaction extends Place {
        private final Handle handle;
        private final ReentrantLock lock = new ReentrantLock();
        private boolean isEnded;
        private volatile int writes;

        OfTransaction(Database database, Handle handle) {
            super(database);
            this.handle = handle;
        }

        @Override
        long acquire() {
            lock.lock();
            if (isEnded || database.isClosed()) {
                lock.unlock();
                throw isEnded
                        ? new ClosedException("the transaction has ended: begin another one")
                        : Errors.closed();
            }
            return handle.address;
        }

        @Override
        void release() {
            lock.unlock();
        }

        @Override
        int writes() {
            return writes;
        }

        @Override
        void noteWrite() {
            writes++;
        }

        @Override
        boolean isTransaction() {
            return true;
        }

        boolean isOpen() {
            lock.lock();
            try {
                return !isEnded;
            } finally {
                lock.unlock();
            }
        }

        /** Notes the end of the transaction: the caller holds the lock. */
        void end() {
            isEnded = true;
            handle.free();
        }

        /** Rolls back unless it has ended. */
        void rollback() {
            Scratch scratch = Scratch.CALLS.take(0);
            lock.lock();
            try {
                if (!isEnded) {
                    // Iterators keep the native transaction, so freeing the handle does not end it.
                    Native.transactionRollback(handle.address, scratch.address, scratch.capacity());
                    end();
                }
            } finally {
                lock.unlock();
                Scratch.CALLS.give(scratch);
            }
        }
    }
}
