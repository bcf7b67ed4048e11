package io.github.braiddb;

/** The database, snapshot, iterator or watcher was closed, or the transaction has ended. */
public final class ClosedException extends BraidException {
    private static final long serialVersionUID = 1L;

    ClosedException(String message) {
        super(message);
    }
}
