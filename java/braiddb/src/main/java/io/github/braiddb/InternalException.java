package io.github.braiddb;

/** A fault of BraidDB itself. Please report it with its message. */
public final class InternalException extends BraidException {
    private static final long serialVersionUID = 1L;

    InternalException(String message) {
        super(message);
    }
}
