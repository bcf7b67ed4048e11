package io.github.braiddb;

/** Another process changes the database faster than it can be read. */
public final class TooBusyException extends BraidException {
    private static final long serialVersionUID = 1L;

    TooBusyException(String message) {
        super(message);
    }
}
