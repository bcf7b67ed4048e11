package io.github.braiddb;

/**
 * Other commits changed the reads of the transaction. Nothing was written; begin it again, or
 * use {@link Database#update(TransactionWork)}, which does.
 */
public final class ConflictException extends BraidException {
    private static final long serialVersionUID = 1L;

    ConflictException(String message) {
        super(message);
    }
}
