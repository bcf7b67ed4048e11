package io.github.braiddb;

/** A named tree, database or backup does not exist. */
public final class NotFoundException extends BraidException {
    private static final long serialVersionUID = 1L;

    NotFoundException(String message) {
        super(message);
    }
}
