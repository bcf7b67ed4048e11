package io.github.braiddb;

import java.lang.ref.Reference;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.locks.LockSupport;

/**
 * An open database: a set of named trees. All threads may use it. One process at a time writes to a
 * database.
 *
 * <p>After {@link #close} every method of the database and of its trees, transactions, snapshots and
 * iterators throws {@link ClosedException}; they may be closed in any order, by any thread. Every
 * method throws {@link StorageException} or {@link CorruptionException} if a file cannot be read or
 * written.
 */
public final class Database implements AutoCloseable {
    /** Longest pause before a transaction is repeated. */
    private static final long PAUSE_MAX_NS = 50_000_000;

    private static final int REPEATS_MAX = 1000;

    final Handle handle;
    private final Place latest;
    private final Path path;

    /** Kept until the database is unreachable. */
    private final SharedRuntime runtime;

    private volatile boolean isClosed;

    private Database(Handle handle, Path path, SharedRuntime runtime) {
        this.handle = handle;
        this.path = path;
        this.runtime = runtime;
        latest = new Place.Latest(this);
    }

    /**
     * Opens a database, created if absent.
     *
     * @param path its directory
     * @return the database
     * @throws LockedException if it is open already, here or in another process
     * @throws UnsupportedException if a newer version wrote it
     */
    public static Database open(Path path) {
        return open(path, new Options());
    }

    /**
     * Opens a database with options.
     *
     * @param path its directory
     * @param options the options
     * @return the database
     * @throws LockedException if it is open already, here or in another process
     * @throws NotFoundException if it is absent and shall not be created
     * @throws UnsupportedException if a newer version wrote it
     * @throws InvalidArgumentException if an option has an impossible value
     */
    public static Database open(Path path, Options options) {
        return open(Objects.requireNonNull(path, "path"), options, null);
    }

    /**
     * Opens a database that shares memory and threads with others.
     *
     * @param path its directory
     * @param options the options, without memory and threads
     * @param runtime the shared memory and threads
     * @return the database
     */
    public static Database open(Path path, Options options, SharedRuntime runtime) {
        Encoder encoder = new Encoder().text(path == null ? null : path.toString());
        options.encode(encoder);
        Scratch scratch = encoder.scratch();
        try {
            scratch.check(Native.databaseOpen(
                    runtime == null ? 0 : runtime.handle.address, encoder.len(), scratch.address,
                    scratch.capacity()));
            return new Database(new Handle(scratch.buffer.getLong(0), Native::databaseFree), path, runtime);
        } finally {
            Scratch.CALLS.give(scratch);
            Reference.reachabilityFence(runtime);
        }
    }

    /**
     * Opens an empty database in memory, without files.
     *
     * @return the database
     */
    public static Database openInMemory() {
        return open(null, new Options(), null);
    }

    /**
     * Returns the database's directory.
     *
     * @return the path; null for a database in memory
     */
    public Path path() {
        return path;
    }

    /**
     * Returns true after {@link #close}.
     *
     * @return true if it is closed
     */
    public boolean isClosed() {
        return isClosed;
    }

    void checkOpen() {
        if (isClosed) {
            throw Errors.closed();
        }
    }

    Place latest() {
        return latest;
    }

    /** A call of the native library with this database. */
    private interface Call {
        long run(long database, long address, int capacity);
    }

    private long call(Scratch scratch, Call call) {
        checkOpen();
        try {
            return call.run(handle.address, scratch.address, scratch.capacity());
        } finally {
            Reference.reachabilityFence(this);
        }
    }

    private long call(Call call) {
        Scratch scratch = Scratch.CALLS.take(0);
        try {
            return scratch.check(call(scratch, call));
        } finally {
            Scratch.CALLS.give(scratch);
        }
    }

    private Decoder result(Encoder encoder, Call call) {
        Scratch scratch = encoder.scratch();
        try {
            return scratch.decoder(call(scratch, call), 0);
        } finally {
            Scratch.CALLS.give(scratch);
        }
    }

    /** Runs a call whose argument is a text. */
    private interface TextCall {
        long run(long database, int textLen, long address, int capacity);
    }

    private long callWith(String text, TextCall call) {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        Scratch scratch = Scratch.with(bytes);
        try {
            return scratch.check(call(scratch, (database, address, capacity) ->
                    call.run(database, bytes.length, address, capacity)));
        } finally {
            Scratch.CALLS.give(scratch);
        }
    }

    // Trees.

    private Handle openTree(String name, TreeOptions options, boolean isMulti, boolean create) {
        Encoder encoder = new Encoder().text(Objects.requireNonNull(name, "name"));
        options.encode(encoder);
        Scratch scratch = encoder.scratch();
        try {
            scratch.check(call(scratch, (database, address, capacity) -> Native.treeOpen(
                    database, isMulti ? 1 : 0, create ? 1 : 0, encoder.len(), address, capacity)));
            return new Handle(scratch.buffer.getLong(0), Native::treeFree);
        } finally {
            Scratch.CALLS.give(scratch);
        }
    }

    /**
     * Returns a tree, created if absent. A handle costs a call: keep it.
     *
     * @param name its name
     * @return the tree
     * @throws InvalidArgumentException if the tree keeps many values per key
     */
    public Tree tree(String name) {
        return tree(name, new TreeOptions());
    }

    /**
     * Returns a tree with options, created if absent.
     *
     * @param name its name
     * @param options the options
     * @return the tree
     * @throws InvalidArgumentException if the tree exists with other options
     */
    public Tree tree(String name, TreeOptions options) {
        return new Tree(this, openTree(name, options, false, true));
    }

    /**
     * Returns a tree that exists.
     *
     * @param name its name
     * @return the tree
     * @throws NotFoundException if it does not exist
     */
    public Tree openTree(String name) {
        return new Tree(this, openTree(name, new TreeOptions(), false, false));
    }

    /**
     * Returns a tree of many sorted values per key, created if absent.
     *
     * @param name its name
     * @return the tree
     * @throws InvalidArgumentException if the tree keeps one value per key
     */
    public MultiTree multiTree(String name) {
        return new MultiTree(this, openTree(name, new TreeOptions(), true, true));
    }

    /**
     * Returns a tree of many sorted values per key that exists.
     *
     * @param name its name
     * @return the tree
     * @throws NotFoundException if it does not exist
     */
    public MultiTree openMultiTree(String name) {
        return new MultiTree(this, openTree(name, new TreeOptions(), true, false));
    }

    /**
     * Lists the trees by name.
     *
     * @return a new list
     */
    public List<TreeInfo> trees() {
        Decoder result = result(new Encoder(), Native::databaseTrees);
        int count = result.count();
        List<TreeInfo> trees = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            String name = result.text();
            boolean isMulti = result.bool();
            String codec = result.text();
            long ttl = result.number();
            trees.add(new TreeInfo(name, isMulti, codec, ttl < 0 ? null : Duration.ofNanos(ttl * 1000)));
        }
        return trees;
    }

    /**
     * Drops a tree with its contents. Takes about the time of one put.
     *
     * @param name its name
     * @throws NotFoundException if it does not exist
     */
    public void dropTree(String name) {
        callWith(name, Native::databaseDropTree);
    }

    /**
     * Renames a tree. Handles of it stay valid.
     *
     * @param from its name
     * @param to its new name
     * @throws NotFoundException if it does not exist
     * @throws AlreadyExistsException if another tree has the new name
     */
    public void renameTree(String from, String to) {
        Encoder names = new Encoder()
                .text(Objects.requireNonNull(from, "from"))
                .text(Objects.requireNonNull(to, "to"));
        result(names, (database, address, capacity) ->
                Native.databaseRenameTree(database, names.len(), address, capacity));
    }

    // Commits of several writes.

    /**
     * Begins a serializable transaction. Its commit throws {@link ConflictException} if other commits
     * have changed what it has read: {@link #update} repeats it then.
     *
     * @return the transaction, to be closed
     */
    public Transaction begin() {
        return begin(false);
    }

    /**
     * Begins a transaction that never conflicts: all other commits wait for its end.
     *
     * @return the transaction, to be closed soon
     * @throws ExclusiveOpenException if another one stays open for too long
     */
    public Transaction beginExclusive() {
        return begin(true);
    }

    private Transaction begin(boolean isExclusive) {
        Scratch scratch = Scratch.CALLS.take(0);
        try {
            long sequence = scratch.check(call(scratch, (database, address, capacity) ->
                    Native.transactionBegin(database, isExclusive ? 1 : 0, address, capacity)));
            Handle place = new Handle(scratch.buffer.getLong(0), Native::placeFree);
            return new Transaction(this, place, sequence);
        } finally {
            Scratch.CALLS.give(scratch);
        }
    }

    /**
     * Runs work in a transaction and commits it. After a conflict it runs again, after a random
     * pause, at most 1,000 times: so it should have no other effects.
     *
     * @param work reads and writes through the transaction, and does not end it
     * @param <R> the result
     * @param <E> what the work throws; then the transaction is rolled back
     * @return the result of the committed run
     * @throws E the work's exception
     * @throws ConflictException if all runs have conflicted
     */
    public <R, E extends Exception> R update(TransactionWork<R, E> work) throws E {
        return repeat(work, null);
    }

    /**
     * As {@link #update(TransactionWork)}, with its own durability.
     *
     * @param durability what the commit waits for
     * @param work reads and writes through the transaction
     * @param <R> the result
     * @param <E> what the work throws
     * @return the result of the committed run
     * @throws E the work's exception
     */
    public <R, E extends Exception> R update(Durability durability, TransactionWork<R, E> work) throws E {
        return repeat(work, Objects.requireNonNull(durability, "durability"));
    }

    private <R, E extends Exception> R repeat(TransactionWork<R, E> work, Durability durability) throws E {
        for (int attempt = 0; ; attempt++) {
            try (Transaction transaction = begin()) {
                R result = work.run(transaction);
                if (durability == null) {
                    transaction.commit();
                } else {
                    transaction.commit(durability);
                }
                return result;
            } catch (ConflictException e) {
                if (attempt == REPEATS_MAX) {
                    throw e;
                }
            }
            long longest = Math.min(PAUSE_MAX_NS, 100_000L << Math.min(attempt, 16));
            LockSupport.parkNanos(ThreadLocalRandom.current().nextLong(longest));
        }
    }

    /**
     * Returns an empty batch: writes that one commit applies together, without reads.
     *
     * @return the batch, to be closed
     */
    public Batch batch() {
        checkOpen();
        return new Batch(this);
    }

    /**
     * Takes a snapshot of the latest commit. It pins old versions of rows until its close.
     *
     * @return the snapshot, to be closed
     */
    public Snapshot snapshot() {
        Scratch scratch = Scratch.CALLS.take(0);
        try {
            long sequence = scratch.check(call(scratch, Native::snapshotOpen));
            Handle place = new Handle(scratch.buffer.getLong(0), Native::placeFree);
            return new Snapshot(this, place, sequence);
        } finally {
            Scratch.CALLS.give(scratch);
        }
    }

    /**
     * Watches the commits from now on.
     *
     * @return the watcher, to be closed
     */
    public Watcher watch() {
        return watch(new WatchOptions());
    }

    /**
     * Watches commits.
     *
     * @param options which ones
     * @return the watcher, to be closed
     * @throws WatchTooOldException if the log lacks the commits
     */
    public Watcher watch(WatchOptions options) {
        return options.open(this);
    }

    /**
     * Returns the bytes that {@link Transaction#setApplicationCursor} or
     * {@link Batch#setApplicationCursor} set last.
     *
     * @return the bytes; null if none were set
     */
    public byte[] applicationCursor() {
        Scratch scratch = Scratch.CALLS.take(0);
        try {
            return scratch.value(call(scratch, Native::databaseApplicationCursor), 0);
        } finally {
            Scratch.CALLS.give(scratch);
        }
    }

    // Operation.

    /** Makes all earlier commits durable, with one flush of the disk. */
    public void sync() {
        call(Native::databaseSync);
    }

    /** Writes the newest commits from memory to files. */
    public void flush() {
        call(Native::databaseFlush);
    }

    /** Merges all files that hold garbage. Takes time in proportion to their size. */
    public void compact() {
        call(Native::databaseCompact);
    }

    /**
     * Ends a lost exclusive transaction.
     *
     * @return true if there was one
     */
    public boolean revokeExclusive() {
        return call(Native::databaseRevokeExclusive) != 0;
    }

    /**
     * Archives the log that remains: see {@link Options#logArchive}.
     *
     * @return the last archived commit
     */
    public long archiveNow() {
        return call(Native::databaseArchiveNow);
    }

    /**
     * Checks every checksum of every file. Takes time in proportion to their size.
     *
     * @return the report; damage is no exception here
     */
    public VerifyReport verify() {
        return VerifyReport.decode(result(new Encoder(), Native::databaseVerify));
    }

    /**
     * Returns counters and sizes.
     *
     * @return the present ones
     */
    public Stats stats() {
        return new Stats(result(new Encoder(), Native::databaseStats));
    }

    /**
     * Adds a backup of the latest state to a directory of backups, which share unchanged files.
     * Others may write meanwhile. See {@link Backups} for restores.
     *
     * @param directory the directory, created if absent
     * @return the backup
     */
    public BackupInfo backup(Path directory) {
        return backup(directory, false);
    }

    /**
     * Adds a backup.
     *
     * @param directory the directory, created if absent
     * @param isFull true to share no files with earlier backups
     * @return the backup
     */
    public BackupInfo backup(Path directory, boolean isFull) {
        byte[] text = directory.toString().getBytes(StandardCharsets.UTF_8);
        Scratch scratch = Scratch.with(text);
        try {
            return BackupInfo.decode(scratch.decoder(call(scratch, (database, address, capacity) ->
                    Native.databaseBackup(database, isFull ? 1 : 0, text.length, address, capacity)), 0));
        } finally {
            Scratch.CALLS.give(scratch);
        }
    }

    /**
     * Copies the latest state to a new database. On the same file system most files are linked.
     *
     * @param path the directory of the new one
     * @return its last commit
     * @throws AlreadyExistsException if the directory is not empty
     */
    public long checkpoint(Path path) {
        return callWith(path.toString(), Native::databaseCheckpoint);
    }

    /**
     * Makes all commits durable and releases the database. Does nothing if it is closed. Waits for
     * background work.
     *
     * @throws StorageException if background work had failed; the database is closed all the same
     */
    @Override
    public void close() {
        isClosed = true;
        Scratch scratch = Scratch.CALLS.take(0);
        try {
            scratch.check(Native.databaseClose(handle.address, scratch.address, scratch.capacity()));
        } finally {
            Scratch.CALLS.give(scratch);
            Reference.reachabilityFence(this);
            Reference.reachabilityFence(runtime);
        }
    }

    @Override
    public String toString() {
        return "Database[" + (path == null ? "in memory" : path) + (isClosed ? ", closed" : "") + "]";
    }
}
