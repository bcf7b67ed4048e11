package io.github.braiddb;

/** A commit may or may not be applied: its sync failed. */
public final class OutcomeUnknownException extends BraidException {
    private static final long serialVersionUID = 1L;

    OutcomeUnknownException(String message) {
        super(message);
    }
}
