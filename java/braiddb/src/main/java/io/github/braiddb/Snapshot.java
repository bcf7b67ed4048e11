package io.github.braiddb;

import java.lang.ref.Reference;

/**
 * The state after one commit. It pins old versions of rows until its close; after that its trees and
 * iterators throw {@link ClosedException}. All threads may use it.
 */
public final class Snapshot implements AutoCloseable {
    private final Handle handle;
    private final Place.OfSnapshot place;
    private final long sequence;

    Snapshot(Database database, Handle handle, long sequence) {
        this.handle = handle;
        place = new Place.OfSnapshot(database, handle);
        this.sequence = sequence;
    }

    /**
     * Returns the number of the commit.
     *
     * @return the number
     */
    public long sequence() {
        return sequence;
    }

    /**
     * Returns a tree as of this snapshot. Costs no call.
     *
     * @param tree a tree of the same database
     * @return the view
     * @throws InvalidArgumentException if the tree is another database's
     */
    public SnapshotTree tree(Tree tree) {
        checkIsOf(tree.place.database);
        return new SnapshotTree(tree, place);
    }

    /**
     * Returns a tree of many values per key as of this snapshot. Costs no call.
     *
     * @param tree a tree of the same database
     * @return the view
     * @throws InvalidArgumentException if the tree is another database's
     */
    public SnapshotMultiTree tree(MultiTree tree) {
        checkIsOf(tree.place.database);
        return new SnapshotMultiTree(tree, place);
    }

    private void checkIsOf(Database database) {
        if (database != place.database) {
            throw new InvalidArgumentException("the tree is another database's");
        }
    }

    /** Releases the snapshot. Does nothing if it is closed. Waits for reads of other threads. */
    @Override
    public void close() {
        place.close();
        Scratch scratch = Scratch.CALLS.take(0);
        try {
            scratch.check(Native.snapshotClose(handle.address, scratch.address, scratch.capacity()));
        } finally {
            Scratch.CALLS.give(scratch);
            Reference.reachabilityFence(this);
        }
    }
}
