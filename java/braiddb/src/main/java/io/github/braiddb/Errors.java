package io.github.braiddb;

/** Makes exceptions from codes of the native library. Both lists of codes are in the same order. */
final class Errors {
    /** The key is absent. */
    static final long ABSENT = -1;

    /** The result is in a box, since it did not fit. */
    static final long OVERFLOW = -2;

    /** The next row of a scan does not fit. */
    static final long TOO_SMALL = -3;

    private static final long INTERNAL = -100;

    private Errors() {}

    static BraidException of(long code, String message, String path, long offset) {
        int index = (int) Math.min(INTERNAL - code, Integer.MAX_VALUE);
        return switch (index) {
            case 1 -> new ClosedException(message);
            case 2 -> new InvalidArgumentException(message);
            case 3 -> new NotFoundException(message);
            case 4 -> new AlreadyExistsException(message);
            case 5 -> new LockedException(message);
            case 6 -> new ReadOnlyException(message);
            case 7 -> new ConflictException(message);
            case 8 -> new ExclusiveOpenException(message);
            case 9 -> new TransactionTooLargeException(message);
            case 10 -> new OutcomeUnknownException(message);
            case 11 -> new CorruptionException(message, path, offset);
            case 12 -> new BackupDamagedException(message, path, offset);
            case 13 -> new ArchiveGapException(message);
            case 14 -> new StorageException(message);
            case 15 -> new DiskFullException(message);
            case 16 -> new MergeFailedException(message);
            case 17 -> new ReaderExpiredException(message);
            case 18 -> new WatchTooOldException(message);
            case 19 -> new UnsupportedException(message);
            case 20 -> new TooBusyException(message);
            case 21 -> new NoOwnerException(message);
            case 22 -> new DumpDamagedException(message, path, offset);
            case 23 -> new BraidException(message);
            default -> new InternalException(message);
        };
    }

    static ClosedException closed() {
        return new ClosedException("the database was closed");
    }
}
