package io.github.braiddb;

import java.lang.ref.Reference;

/** Which commits a {@link Watcher} returns: by default, all from now on. For one thread. */
public final class WatchOptions {
    private Handle tree;
    private Place place;
    private byte[] prefix;
    private byte[] token;
    private long after = -1;
    private boolean isFromOldest;
    private boolean isUnsynced;

    /** Options for all commits from now on. */
    public WatchOptions() {}

    /**
     * Watches one tree only.
     *
     * @param tree the tree
     * @return this
     */
    public WatchOptions tree(Tree tree) {
        this.tree = tree.handle;
        place = tree.place;
        return this;
    }

    /**
     * Watches one tree of many values per key only.
     *
     * @param tree the tree
     * @return this
     */
    public WatchOptions tree(MultiTree tree) {
        this.tree = tree.handle;
        place = tree.place;
        return this;
    }

    /**
     * Watches the keys with a prefix only.
     *
     * @param prefix the prefix
     * @return this
     */
    public WatchOptions prefix(byte[] prefix) {
        this.prefix = prefix.clone();
        return this;
    }

    /**
     * Begins behind a commit.
     *
     * @param commit the number of the last commit that is known
     * @return this
     */
    public WatchOptions after(long commit) {
        if (commit < 0) {
            throw new InvalidArgumentException("the number of a commit is negative: " + commit);
        }
        after = commit;
        return this;
    }

    /**
     * Begins behind the commit of a token: see {@link ChangeSet#token}.
     *
     * @param token the token
     * @return this
     */
    public WatchOptions resume(byte[] token) {
        this.token = token.clone();
        return this;
    }

    /**
     * Begins with the oldest commit that the log has.
     *
     * @return this
     */
    public WatchOptions fromOldest() {
        isFromOldest = true;
        return this;
    }

    /**
     * Returns commits before they are synced. A loss of power may undo them.
     *
     * @return this
     */
    public WatchOptions unsynced() {
        isUnsynced = true;
        return this;
    }

    Watcher open(Database database) {
        if (place != null && place.database != database) {
            throw new InvalidArgumentException("the tree is another database's");
        }
        if ((after >= 0 ? 1 : 0) + (token != null ? 1 : 0) + (isFromOldest ? 1 : 0) > 1) {
            throw new InvalidArgumentException("use one of after, resume and fromOldest");
        }
        Encoder encoder = new Encoder().bytes(prefix).bytes(token);
        Scratch scratch = encoder.scratch();
        try {
            database.checkOpen();
            scratch.check(Native.watchOpen(
                    database.handle.address, tree == null ? 0 : tree.address, after, isFromOldest ? 1 : 0,
                    isUnsynced ? 1 : 0, encoder.len(), scratch.address, scratch.capacity()));
            return new Watcher(database, new Handle(scratch.buffer.getLong(0), Native::watchFree));
        } finally {
            Scratch.CALLS.give(scratch);
            Reference.reachabilityFence(database);
            Reference.reachabilityFence(this);
        }
    }
}
