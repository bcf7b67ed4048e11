package io.github.braiddb;

/** A tree of many values per key as of a snapshot: see {@link Snapshot#tree(MultiTree)}. */
public final class SnapshotMultiTree extends BaseMultiTree {
    SnapshotMultiTree(MultiTree tree, Place place) {
        super(tree.handle, place);
    }
}
