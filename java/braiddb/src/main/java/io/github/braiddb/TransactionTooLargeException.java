package io.github.braiddb;

/** Reads and writes of the transaction exceed its memory. Nothing was written. */
public final class TransactionTooLargeException extends BraidException {
    private static final long serialVersionUID = 1L;

    TransactionTooLargeException(String message) {
        super(message);
    }
}
