package io.github.braiddb;

import java.nio.ByteBuffer;

/**
 * The native library. The last two arguments of most methods are the address and the capacity of a
 * {@link Scratch}, with the arguments of many bytes. Results below 0 are codes of {@link Errors}.
 *
 * <p>The caller keeps every object whose handle it passes reachable until the call returns.
 */
final class Native {
    static {
        NativeLibrary.load();
    }

    private Native() {}

    static native long address(ByteBuffer buffer);

    static native long takeResult(long result, long address, int capacity);

    static native long databaseOpen(long runtime, int optionsLen, long address, int capacity);

    static native long databaseClose(long database, long address, int capacity);

    static native void databaseFree(long database);

    static native long databaseSync(long database, long address, int capacity);

    static native long databaseFlush(long database, long address, int capacity);

    static native long databaseCompact(long database, long address, int capacity);

    static native long databaseArchiveNow(long database, long address, int capacity);

    static native long databaseRevokeExclusive(long database, long address, int capacity);

    static native long databaseTrees(long database, long address, int capacity);

    static native long databaseDropTree(long database, int nameLen, long address, int capacity);

    static native long databaseRenameTree(long database, int namesLen, long address, int capacity);

    static native long databaseApplicationCursor(long database, long address, int capacity);

    static native long databaseStats(long database, long address, int capacity);

    static native long databaseVerify(long database, long address, int capacity);

    static native long databaseCheckpoint(long database, int pathLen, long address, int capacity);

    static native long databaseBackup(long database, int isFull, int pathLen, long address, int capacity);

    static native long runtimeOpen(long memory, int threads, long address, int capacity);

    static native long runtimeStats(long runtime, long address, int capacity);

    static native void runtimeFree(long runtime);

    static native long adminBackups(int pathLen, long address, int capacity);

    static native long adminDeleteBackup(long id, int pathLen, long address, int capacity);

    static native long adminVerifyBackups(long id, int pathLen, long address, int capacity);

    static native long adminRestore(long id, long commit, long time, int argumentsLen, long address, int capacity);

    static native long adminVerifyPath(int pathLen, long address, int capacity);

    static native long checkpointsNewest(int placeLen, long address, int capacity);

    static native long checkpointsInstall(long id, int argumentsLen, long address, int capacity);

    static native long checkpointsClaim(int argumentsLen, long address, int capacity);

    static native long publicationBegin(long database, long epoch, int placeLen, long address, int capacity);

    static native long publicationNext(long publication, long address, int capacity);

    static native long publicationInfo(long publication, long address, int capacity);

    static native long publicationCancel(long publication, long address, int capacity);

    static native void publicationFree(long publication);

    static native long snapshotOpen(long database, long address, int capacity);

    static native long snapshotClose(long place, long address, int capacity);

    static native long transactionBegin(long database, int isExclusive, long address, int capacity);

    static native long transactionCommit(long place, int durability, long address, int capacity);

    static native long transactionRollback(long place, long address, int capacity);

    static native long transactionLen(long place, long address, int capacity);

    static native long transactionSavepoint(long place, long address, int capacity);

    static native long transactionRollbackTo(long place, long number, long address, int capacity);

    static native long transactionSetApplicationCursor(long place, int cursorLen, long address, int capacity);

    static native void placeFree(long place);

    static native long treeOpen(
            long database, int isMulti, int create, int argumentsLen, long address, int capacity);

    static native void treeFree(long tree);

    static native long treeName(long tree, long address, int capacity);

    static native long treeGet(long tree, long place, int keyLen, long address, int capacity);

    static native long treeContains(long tree, long place, int keyLen, long address, int capacity);

    static native long treeGetWithExpiry(long tree, long place, int keyLen, long address, int capacity);

    static native long treeGetMany(long tree, long place, int keysLen, long address, int capacity);

    static native long treePut(
            long tree,
            long place,
            int keyLen,
            int valueLen,
            int expiryKind,
            long expiry,
            int durability,
            long address,
            int capacity);

    static native long treeDelete(
            long tree, long place, int keyLen, int durability, long address, int capacity);

    static native long treeInsert(long tree, long place, int keyLen, int valueLen, long address, int capacity);

    static native long treeRemove(long tree, long place, int keyLen, long address, int capacity);

    static native long treePutIfAbsent(
            long tree, long place, int keyLen, int valueLen, long address, int capacity);

    static native long treeCompareAndSet(long tree, long place, int argumentsLen, long address, int capacity);

    static native long treeMerge(
            long tree, long place, int durability, int argumentsLen, long address, int capacity);

    static native long treeDeleteRange(long tree, long place, int rangeLen, long address, int capacity);

    static native long treeCount(long tree, long place, int rangeLen, long address, int capacity);

    static native long treeLenEstimate(long tree, long address, int capacity);

    static native long treeEnd(long tree, long place, int isLast, long address, int capacity);

    static native long treePop(long tree, long place, int isLast, long address, int capacity);

    static native long multiAdd(long tree, long place, int keyLen, int valueLen, long address, int capacity);

    static native long multiDeletePair(
            long tree, long place, int keyLen, int valueLen, long address, int capacity);

    static native long multiDelete(long tree, long place, int keyLen, long address, int capacity);

    static native long multiDeleteRange(long tree, long place, int rangeLen, long address, int capacity);

    static native long multiContainsPair(
            long tree, long place, int keyLen, int valueLen, long address, int capacity);

    static native long multiCountValues(long tree, long place, int keyLen, long address, int capacity);

    static native long multiCount(long tree, long place, int rangeLen, long address, int capacity);

    static native long multiEndValue(
            long tree, long place, int isLast, int keyLen, long address, int capacity);

    static native long multiPop(long tree, long place, int isLast, long address, int capacity);

    static native long scanOpen(
            long tree, long place, int flags, int rowsMax, int rangeLen, long address, int capacity);

    static native long scanValues(
            long tree, long place, int rowsMax, int isReverse, int keyLen, long address, int capacity);

    static native long scanNext(long scan, int rowsMax, long address, int capacity);

    static native long scanSeek(long scan, int keyLen, int valueLen, long address, int capacity);

    static native void scanFree(long scan);

    static native long batchCommit(
            long database,
            int durability,
            int treesLen,
            long writes,
            int writesLen,
            long address,
            int capacity);

    static native long loaderOpen(long tree, int isSorted, long memory, long address, int capacity);

    static native long loaderAdd(long loader, int rowsLen, long address, int capacity);

    static native long loaderFinish(long loader, long address, int capacity);

    static native void loaderFree(long loader);

    static native long watchOpen(
            long database,
            long tree,
            long after,
            int isFromOldest,
            int isUnsynced,
            int argumentsLen,
            long address,
            int capacity);

    static native long watchNext(long watcher, long timeoutMicros, long address, int capacity);

    static native long watchToken(long watcher, long address, int capacity);

    static native long watchClose(long watcher, long address, int capacity);

    static native void watchFree(long watcher);
}
