package io.github.braiddb.kafka.streams;

import io.github.braiddb.Batch;
import io.github.braiddb.BraidException;
import io.github.braiddb.Checkpoints.Publication;
import io.github.braiddb.Database;
import io.github.braiddb.KeyRange;
import io.github.braiddb.Options;
import io.github.braiddb.RowIterator;
import io.github.braiddb.Tree;
import java.io.File;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.LongSupplier;
import java.util.function.Supplier;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.streams.query.Position;

/**
 * The database of a store, and the rows that are not committed.
 *
 * <p>Puts go to an {@link Overlay}. A commit writes them and the offsets with one batch, so rows and
 * offsets agree after any failure. A store without transactions whose overlay is full writes it
 * before the commit: its rows are then ahead of its offsets, as they are with Kafka's own store. At
 * exactly-once the same batch notes this, and an open that finds the note empties the store, which
 * makes Kafka restore it.
 *
 * <p>Puts, commits and closes exclude each other. Reads of any threads run beside them. INVARIANT S1:
 * a reader takes the overlay before it reads the tree, and a commit replaces the overlay after it
 * has written the tree. The reverse order would lose rows of a commit in between.
 */
final class Storage implements AutoCloseable {
    private static final String FOLDER = "braiddb";

    /** Bytes of the longest key of BraidDB. A longer one would fail at the commit, with all other rows. */
    private static final int KEY_LEN_MAX = 65_536;

    /** Write buffers that the overlay may fill during {@link #hold}. */
    private static final int HELD_BUFFERS = 4;

    private final String store;
    private final Settings settings;
    private final Database database;
    private final Tree rows;
    private final Tree meta;
    private final Map<TopicPartition, Long> offsets = new HashMap<>();
    private final Set<MergedRows> iterators = ConcurrentHashMap.newKeySet();

    /** The rows that have expired; the next commit deletes them. */
    private KeyRange expired;

    private KeyRange expiredWritten;
    private boolean isAhead;

    /** True while rows must not be ahead of the offset, for a checkpoint. */
    private boolean isHeld;

    private Publication publication;

    /** Writes for records of the input: neither those of restores nor those of punctuators. */
    private long inputs;

    private long inputsOfCommit;

    /** The time of the first input since the last commit. */
    private long inputAt;

    private volatile long provenAt;
    private long inputsOfClaim = Long.MAX_VALUE;
    private volatile boolean isClaimed;
    private volatile boolean isProven;
    private volatile long commitsOfInputs;
    private volatile long states;

    /** Numbers that commits write beside the rows. */
    private final List<Kept> numbers = new ArrayList<>();
    private volatile Overlay overlay = new Overlay();
    private volatile Position committedPosition;
    private Position position;

    private Storage(String store, Settings settings, Database database, Layout layout) {
        this.store = store;
        this.settings = settings;
        this.database = database;
        meta = database.tree("meta");
        rows = layout.open(store, database);
        isAhead = meta.contains(Meta.AHEAD);
        if (isAhead && settings.isExactlyOnce() || meta.contains(Meta.CORRUPTED)) {
            rows.clear();
            meta.clear();
            isAhead = false;
        }
        provenAt = Meta.number(meta.get(Meta.PROVEN), 0);
        position = Meta.position(meta.get(Meta.POSITION));
        committedPosition = position.copy();
    }

    /** Opens the database of a store, in the directory of its task; without checkpoints if they are null. */
    static Storage open(
            String store, File taskDirectory, Settings settings, Layout layout, StoreCheckpoints checkpoints) {
        File directory = new File(new File(taskDirectory, FOLDER), store);
        if (checkpoints != null) {
            Bootstrap.run(checkpoints, layout, taskDirectory, directory);
        }
        Database database = null;
        try {
            database = Database.open(
                    directory.toPath(),
                    new Options().createParents(true).durability(settings.durability()),
                    Runtimes.of(settings.memory(), settings.threads()));
            return new Storage(store, settings, database, layout);
        } catch (RuntimeException e) {
            if (database != null) {
                database.close();
            }
            throw e instanceof BraidException failure ? Failures.of(store, failure) : e;
        }
    }

    String store() {
        return store;
    }

    Database database() {
        return database;
    }

    boolean isOpen() {
        return !database.isClosed();
    }

    /** Returns the position of the writes; the writer changes it. */
    Position position() {
        return position;
    }

    /** Returns the position of the rows that {@link #get} with the same argument returns. */
    Position position(boolean isCommitted) {
        return isCommitted && settings.isTransactional() ? committedPosition : position;
    }

    private boolean isOverlayRead(boolean isCommitted) {
        return !(isCommitted && settings.isTransactional());
    }

    byte[] get(byte[] key, boolean isCommitted) {
        if (isOverlayRead(isCommitted)) {
            byte[] value = overlay.get(key);
            if (value != null) {
                return value == Overlay.DELETED ? null : value;
            }
        }
        try {
            return rows.get(key);
        } catch (BraidException e) {
            throw Failures.of(store, e);
        }
    }

    /** Reads a range as of now. The store's close ends the iterator. */
    MergedRows scan(Range range, boolean isCommitted) {
        try {
            KeyRange keys = range.keys();
            while (true) {
                Overlay seen = overlay;
                boolean isWritten = !range.isEmpty() && isOverlayRead(isCommitted);
                RowIterator read = range.isEmpty() ? null : rows.scan(keys);
                Overlay.Rows written = isWritten ? seen.scan(range) : null;
                if (seen == overlay) {
                    MergedRows merged = new MergedRows(this, written, read, range.isReverse());
                    iterators.add(merged);
                    if (database.isClosed()) {
                        merged.end();
                        throw Failures.closed(store, null);
                    }
                    return merged;
                }
                // A commit came between: the rows in both would be of different times.
                if (written != null) {
                    written.close();
                }
                if (read != null) {
                    read.close();
                }
            }
        } catch (BraidException e) {
            throw Failures.of(store, e);
        }
    }

    void ended(MergedRows iterator) {
        iterators.remove(iterator);
    }

    /** Sets a row, or deletes it if the value is null. */
    synchronized void put(byte[] key, byte[] value) {
        checkOpen();
        if (key.length > KEY_LEN_MAX) {
            throw new IllegalArgumentException("A key of store " + store + " has " + key.length
                    + " bytes with its times; BraidDB takes at most " + KEY_LEN_MAX);
        }
        overlay.put(key, value);
        long most = settings.writeBufferBytes();
        if (overlay.bytes() > most && !settings.isTransactional()
                && !(isHeld && overlay.bytes() / HELD_BUFFERS <= most)) {
            write(Map.of(), false);
        }
    }

    /** Adds the record whose rows were put to the position. */
    synchronized void consumed(String topic, int partition, long offset) {
        position.withComponent(topic, partition, offset);
        if (inputs == inputsOfCommit) {
            inputAt = System.currentTimeMillis();
        }
        inputs++;
    }

    /** As {@link #put}, for a restore: the rows are written by its end. */
    synchronized void putRestored(byte[] key, byte[] value) {
        checkOpen();
        restoring();
        overlay.put(key, value);
    }

    /** Makes commits write a number beside the rows. Returns its committed value. */
    synchronized long keep(byte[] name, long preset, LongSupplier now) {
        long written = Meta.number(meta.get(name), preset);
        numbers.add(new Kept(name, now, written));
        return written;
    }

    /** A number that commits write. */
    private static final class Kept {
        private final byte[] name;
        private final LongSupplier now;
        private long written;

        private Kept(byte[] name, LongSupplier now, long written) {
            this.name = name;
            this.now = now;
            this.written = written;
        }

        private boolean isChanged() {
            return now.getAsLong() != written;
        }
    }

    /** Makes the next commit delete a range of rows, which includes that of earlier calls. */
    synchronized void expire(byte[] from, byte[] to) {
        expired = KeyRange.of(from, to);
    }

    /** Returns the memory of uncommitted rows. */
    long uncommittedBytes() {
        return overlay.bytes();
    }

    long rowsEstimate(boolean isCommitted) {
        try {
            long uncommitted = isOverlayRead(isCommitted) ? overlay.netRows() : 0;
            return Math.max(0, rows.countEstimate() + uncommitted);
        } catch (BraidException e) {
            throw Failures.of(store, e);
        }
    }

    Long committedOffset(TopicPartition partition) {
        try {
            byte[] offset = meta.get(Meta.offsetKey(partition));
            return offset == null ? null : Meta.number(offset, 0);
        } catch (BraidException e) {
            throw Failures.of(store, e);
        }
    }

    /** Writes the uncommitted rows and the offsets with one batch. Costs nothing if nothing changed. */
    synchronized void commit(Map<TopicPartition, Long> changelog) {
        checkOpen();
        boolean isSame = overlay.isEmpty() && !isAhead && numbers.stream().noneMatch(Kept::isChanged)
                && expired == expiredWritten
                && position.equals(committedPosition);
        for (Map.Entry<TopicPartition, Long> offset : changelog.entrySet()) {
            isSame &= offset.getValue() == null || offset.getValue().equals(offsets.get(offset.getKey()));
        }
        if (!isSame) {
            write(changelog, true);
        }
    }

    /** Writes rows of the changelog with one batch: {@code restore} adds them. */
    synchronized void restore(Consumer<Writer> restore) {
        checkOpen();
        restoring();
        if (!overlay.isEmpty()) {
            write(Map.of(), false);
        }
        try (Batch batch = database.batch()) {
            restore.accept((key, value) -> put(batch, key, value));
            addNotes(batch);
            batch.commit();
            noted();
        } catch (BraidException e) {
            throw Failures.of(store, e);
        }
    }

    /** Writes what a restore has put, before its offset comes. The changelog has committed rows only. */
    synchronized void endRestore() {
        checkOpen();
        try (Batch batch = database.batch()) {
            overlay.forEach((key, value) -> put(batch, key, value));
            addNotes(batch);
            batch.commit();
            noted();
            overlay = new Overlay();
        } catch (BraidException e) {
            throw Failures.of(store, e);
        }
    }

    /** Takes rows. */
    interface Writer {
        void put(byte[] key, byte[] value);
    }

    private void put(Batch batch, byte[] key, byte[] value) {
        if (value == null) {
            batch.delete(rows, key);
        } else {
            batch.put(rows, key, value);
        }
    }

    /**
     * Keeps the rows in the database those of its offset, from now until {@link #release}: rows are not
     * written before their commit. Waits for a commit if they are ahead now. Returns false if none
     * came, the store was closed, or a restore began.
     */
    synchronized boolean hold(long millis) throws InterruptedException {
        long until = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis);
        while (isAhead && isOpen()) {
            long left = TimeUnit.NANOSECONDS.toMillis(until - System.nanoTime());
            if (left <= 0) {
                return false;
            }
            wait(left);
        }
        isHeld = isOpen() && isProven;
        return isHeld;
    }

    /** Ends {@link #hold}. Returns false if it had ended, since the uncommitted rows became too many. */
    synchronized boolean release() {
        boolean wasHeld = isHeld;
        isHeld = false;
        return wasHeld;
    }

    /**
     * Begins a publication, which the close and the end of {@link #hold} cancel before they write
     * rows. Returns null after these.
     */
    synchronized Publication begin(Supplier<Publication> begin) {
        publication = isHeld && isOpen() ? begin.get() : null;
        return publication;
    }

    synchronized void ended() {
        isHeld = false;
        publication = null;
    }

    /** Must come before a write of rows that are ahead: a state with them must not become visible. */
    private void endHold() {
        if (isHeld && publication != null) {
            publication.cancel();
        }
        isHeld = false;
    }

    /** Notes whose rows these are. Returns false if they are another's. */
    synchronized boolean identify(StoreCheckpoints.Identity identity) {
        checkOpen();
        StoreCheckpoints.Identity known = Meta.identity(meta.get(Meta.IDENTITY));
        if (known == null) {
            meta.put(Meta.IDENTITY, Meta.encode(identity));
        }
        return known == null || known.equals(identity);
    }

    /** Notes a claim. Then a commit of a later input proves that the claimant owned the task after it. */
    synchronized void claimed() {
        inputsOfClaim = inputs;
        isClaimed = true;
        isProven = false;
    }

    /** Returns false after a restore: the task became a standby, perhaps only for a time. */
    boolean isClaimed() {
        return isClaimed;
    }

    boolean isProven() {
        return isProven;
    }

    /** Ends claim and checkpoint: restored rows are ahead of the offset, and not of this owner. */
    private void restoring() {
        inputsOfClaim = Long.MAX_VALUE;
        isClaimed = false;
        isProven = false;
        endHold();
    }

    /** Returns a time in milliseconds before the group accepted the last commit that had input. */
    long provenAt() {
        return provenAt;
    }

    /** Returns the number of commits that had input. */
    long commitsOfInputs() {
        return commitsOfInputs;
    }

    /** Returns the number of committed states. */
    long states() {
        return states;
    }

    /** Makes the next open empty the store: Kafka says that its offset is not one of the changelog. */
    synchronized void corrupted() {
        checkOpen();
        try {
            meta.put(Meta.CORRUPTED, new byte[0]);
        } catch (BraidException e) {
            throw Failures.of(store, e);
        }
    }

    private void addNotes(Batch batch) {
        for (Kept number : numbers) {
            if (number.isChanged()) {
                batch.put(meta, number.name, Meta.number(number.now.getAsLong()));
            }
        }
        batch.put(meta, Meta.POSITION, Meta.encode(position));
        if (expired != expiredWritten) {
            batch.deleteRange(rows, expired);
        }
    }

    private void noted() {
        numbers.forEach(number -> number.written = number.now.getAsLong());
        expiredWritten = expired;
        committedPosition = position.copy();
    }

    private void write(Map<TopicPartition, Long> changelog, boolean isCommit) {
        Overlay written = overlay;
        if (!isCommit) {
            endHold();
        }
        try (Batch batch = database.batch()) {
            written.forEach((key, value) -> put(batch, key, value));
            addNotes(batch);
            changelog.forEach((partition, offset) -> {
                if (offset != null) {
                    batch.put(meta, Meta.offsetKey(partition), Meta.number(offset));
                }
            });
            if (isCommit && isAhead) {
                batch.delete(meta, Meta.AHEAD);
            } else if (!isCommit && !isAhead) {
                batch.put(meta, Meta.AHEAD, new byte[0]);
            }
            boolean hasInput = isCommit && inputs > inputsOfCommit;
            if (hasInput) {
                batch.put(meta, Meta.PROVEN, Meta.number(inputAt));
            }
            batch.commit();
            noted();
            isAhead = !isCommit;
            if (isCommit) {
                states++;
                if (hasInput) {
                    commitsOfInputs++;
                    provenAt = inputAt;
                }
                inputsOfCommit = inputs;
                isProven |= inputs > inputsOfClaim;
                notifyAll();
            }
            changelog.forEach((partition, offset) -> {
                if (offset != null) {
                    offsets.put(partition, offset);
                }
            });
            overlay = new Overlay();
        } catch (BraidException e) {
            throw Failures.of(store, e);
        }
    }

    void checkOpen() {
        if (database.isClosed()) {
            throw Failures.closed(store, null);
        }
    }

    /**
     * Closes the iterators and the database. Without transactions and exactly-once, writes the
     * uncommitted rows, as Kafka's own store keeps them. Does nothing if it is closed.
     */
    @Override
    public synchronized void close() {
        if (database.isClosed()) {
            return;
        }
        try {
            if (publication != null) {
                // The rows may be ahead from here on.
                publication.cancel();
            }
            if (!overlay.isEmpty() && !settings.isTransactional() && !settings.isExactlyOnce()) {
                write(Map.of(), false);
            }
        } finally {
            notifyAll();
            try {
                database.close();
            } catch (BraidException e) {
                throw Failures.of(store, e);
            } finally {
                iterators.forEach(MergedRows::end);
            }
        }
    }
}
