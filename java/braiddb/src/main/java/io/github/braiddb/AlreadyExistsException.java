package io.github.braiddb;

/** A named tree, database or directory exists already. */
public final class AlreadyExistsException extends BraidException {
    private static final long serialVersionUID = 1L;

    AlreadyExistsException(String message) {
        super(message);
    }
}
