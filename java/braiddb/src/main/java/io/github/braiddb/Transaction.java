package io.github.braiddb;

/**
 * A serializable transaction. Reads see its own writes, and else the state at its begin. Threads take
 * turns. {@link #close} rolls back what was not committed.
 *
 * <p>After the end every method except {@link #close} and {@link #isOpen} throws
 * {@link ClosedException}.
 */
public final class Transaction implements AutoCloseable {
    private final Place.OfTransaction place;
    private final long sequence;

    Transaction(Database database, Handle handle, long sequence) {
        place = new Place.OfTransaction(database, handle);
        this.sequence = sequence;
    }

    /** A call of the native library with the transaction. */
    private interface Call {
        long run(long place, long address, int capacity);
    }

    private long call(Scratch scratch, Call call) {
        long address = place.acquire();
        try {
            return scratch.check(call.run(address, scratch.address, scratch.capacity()));
        } finally {
            place.release();
        }
    }

    private long call(Call call) {
        Scratch scratch = Scratch.CALLS.take(0);
        try {
            return call(scratch, call);
        } finally {
            Scratch.CALLS.give(scratch);
        }
    }

    /**
     * Returns a tree in this transaction. Costs no call.
     *
     * @param tree a tree of the same database
     * @return the view
     * @throws InvalidArgumentException if the tree is another database's
     */
    public TransactionTree tree(Tree tree) {
        checkIsOf(tree.place.database);
        return new TransactionTree(tree, place);
    }

    /**
     * Returns a tree of many values per key in this transaction. Costs no call.
     *
     * @param tree a tree of the same database
     * @return the view
     * @throws InvalidArgumentException if the tree is another database's
     */
    public TransactionMultiTree tree(MultiTree tree) {
        checkIsOf(tree.place.database);
        return new TransactionMultiTree(tree, place);
    }

    private void checkIsOf(Database database) {
        if (database != place.database) {
            throw new InvalidArgumentException("the tree is another database's");
        }
    }

    /**
     * Returns the number of the last commit that it sees.
     *
     * @return the number
     */
    public long sequence() {
        return sequence;
    }

    /**
     * Returns true until the end.
     *
     * @return true if it was neither committed nor rolled back
     */
    public boolean isOpen() {
        return place.isOpen();
    }

    /**
     * Returns the number of keys and ranges that it has written.
     *
     * @return the number
     */
    public long changes() {
        return call(Native::transactionLen);
    }

    /**
     * Commits, and waits as the database's durability says.
     *
     * @return the number of the commit
     * @throws ConflictException if other commits have changed what it has read; nothing was written
     * @throws DiskFullException if there is no space; nothing was written
     * @throws OutcomeUnknownException if the sync failed
     */
    public long commit() {
        return commit(-1);
    }

    /**
     * Commits with its own durability.
     *
     * @param durability what the call waits for
     * @return the number of the commit
     * @throws ConflictException if other commits have changed what it has read; nothing was written
     * @throws DiskFullException if there is no space; nothing was written
     * @throws OutcomeUnknownException if the sync failed
     */
    public long commit(Durability durability) {
        return commit(durability.ordinal());
    }

    private long commit(int durability) {
        Scratch scratch = Scratch.CALLS.take(0);
        try {
            long address = place.acquire();
            try {
                return scratch.check(Native.transactionCommit(
                        address, durability, scratch.address, scratch.capacity()));
            } finally {
                place.end();
                place.release();
            }
        } finally {
            Scratch.CALLS.give(scratch);
        }
    }

    /** Discards the writes. Does nothing after the end. */
    public void rollback() {
        place.rollback();
    }

    /**
     * Returns the present state, for {@link #rollbackTo}.
     *
     * @return the state
     */
    public Savepoint savepoint() {
        return new Savepoint(place, call(Native::transactionSavepoint));
    }

    /**
     * Undoes the writes since a savepoint. Reads since then are still checked.
     *
     * @param savepoint a savepoint of this transaction
     * @throws InvalidArgumentException if the savepoint is another transaction's, or undone
     */
    public void rollbackTo(Savepoint savepoint) {
        if (savepoint.place() != place) {
            throw new InvalidArgumentException("the savepoint is another transaction's");
        }
        call((address, buffer, capacity) -> {
            place.noteWrite();
            return Native.transactionRollbackTo(address, savepoint.number(), buffer, capacity);
        });
    }

    /**
     * Sets bytes that the commit stores beside its writes, such as the position in a queue:
     * {@link Database#applicationCursor} returns them.
     *
     * @param cursor the bytes
     */
    public void setApplicationCursor(byte[] cursor) {
        Scratch scratch = Scratch.with(cursor);
        try {
            call(scratch, (address, buffer, capacity) ->
                    Native.transactionSetApplicationCursor(address, cursor.length, buffer, capacity));
        } finally {
            Scratch.CALLS.give(scratch);
        }
    }

    /** Rolls back if it is open. */
    @Override
    public void close() {
        rollback();
    }
}
