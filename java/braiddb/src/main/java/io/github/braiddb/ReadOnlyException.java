package io.github.braiddb;

/** The handle takes no writes. */
public final class ReadOnlyException extends BraidException {
    private static final long serialVersionUID = 1L;

    ReadOnlyException(String message) {
        super(message);
    }
}
