package io.github.braiddb;

/** Another handle or process has the database, backup, archive or bucket in use. */
public final class LockedException extends BraidException {
    private static final long serialVersionUID = 1L;

    LockedException(String message) {
        super(message);
    }
}
