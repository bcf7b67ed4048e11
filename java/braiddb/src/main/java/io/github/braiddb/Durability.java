package io.github.braiddb;

/** What a commit waits for. The order of the constants is that of the native library. */
public enum Durability {
    /** The commit survives a loss of power: it waits for the disk. */
    SYNC,

    /** The commit survives the end of the process, not that of the system: the system has it. */
    BUFFERED,

    /** The commit survives neither until the next flush: it is in memory only. */
    NONE
}
