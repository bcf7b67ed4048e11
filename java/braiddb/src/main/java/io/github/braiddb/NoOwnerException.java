package io.github.braiddb;

/** No process that shares the database took the call in time. Nothing was written. */
public final class NoOwnerException extends BraidException {
    private static final long serialVersionUID = 1L;

    NoOwnerException(String message) {
        super(message);
    }
}
