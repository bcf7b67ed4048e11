package io.github.braiddb;

/** The request is impossible. Nothing was changed. */
public final class InvalidArgumentException extends BraidException {
    private static final long serialVersionUID = 1L;

    InvalidArgumentException(String message) {
        super(message);
    }
}
