package io.github.braiddb;

/** A tree as of a snapshot: see {@link Snapshot#tree}. All threads may use it. */
public final class SnapshotTree extends BaseTree {
    SnapshotTree(Tree tree, Place place) {
        super(tree.handle, place);
    }
}
