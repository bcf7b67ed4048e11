package io.github.braiddb;

/**
 * Work in a transaction: see {@link Database#update(TransactionWork)}.
 *
 * @param <R> the result
 * @param <E> what the work throws
 */
@FunctionalInterface
public interface TransactionWork<R, E extends Exception> {
    /**
     * Reads and writes. May run several times.
     *
     * @param transaction the transaction, which the caller commits
     * @return the result
     * @throws E to roll back
     */
    R run(Transaction transaction) throws E;
}
