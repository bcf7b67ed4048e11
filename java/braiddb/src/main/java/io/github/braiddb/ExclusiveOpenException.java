package io.github.braiddb;

/** An exclusive transaction stayed open for too long. Nothing was written. */
public final class ExclusiveOpenException extends BraidException {
    private static final long serialVersionUID = 1L;

    ExclusiveOpenException(String message) {
        super(message);
    }
}
