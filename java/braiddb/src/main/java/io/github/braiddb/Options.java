package io.github.braiddb;

import java.nio.file.Path;
import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Options of an open. Each method returns these options, so calls chain. An option that is not set
 * is the engine's choice: see docs/guide/tuning.md. For one thread.
 */
public final class Options {
    private final Map<String, String> values = new LinkedHashMap<>();

    /** Options without a value. */
    public Options() {}

    /**
     * Creates the database if it is absent; true by default.
     *
     * @param create true to create it
     * @return this
     */
    public Options create(boolean create) {
        values.put("create", String.valueOf(create));
        return this;
    }

    /**
     * Creates the parents of the directory too; false by default.
     *
     * @param create true to create them
     * @return this
     */
    public Options createParents(boolean create) {
        values.put("createParents", String.valueOf(create));
        return this;
    }

    /**
     * Opens for reads only; false by default. Several processes may.
     *
     * @param readOnly true for reads only
     * @return this
     */
    public Options readOnly(boolean readOnly) {
        values.put("readOnly", String.valueOf(readOnly));
        return this;
    }

    /**
     * Sets the memory of memtables and cache.
     *
     * @param bytes the budget in bytes
     * @return this
     */
    public Options memory(long bytes) {
        values.put("memory", String.valueOf(bytes));
        return this;
    }

    /**
     * Sets what a commit waits for; {@link Durability#SYNC} by default.
     *
     * @param durability the durability
     * @return this
     */
    public Options durability(Durability durability) {
        values.put("durability", String.valueOf(durability.ordinal()));
        return this;
    }

    /**
     * Sets the compression of new trees.
     *
     * @param compression the compression
     * @return this
     */
    public Options compression(Compression compression) {
        values.put("compression", String.valueOf(compression));
        return this;
    }

    /**
     * Sets the size from which values go to files of their own.
     *
     * @param bytes bytes of a value
     * @return this
     */
    public Options blobThreshold(int bytes) {
        values.put("blobThreshold", String.valueOf(bytes));
        return this;
    }

    /**
     * Sets the number of threads that flush and merge.
     *
     * @param threads the threads
     * @return this
     */
    public Options backgroundThreads(int threads) {
        values.put("backgroundThreads", String.valueOf(threads));
        return this;
    }

    /**
     * Sets the age of a snapshot, iterator or transaction that {@link Stats} reports.
     *
     * @param age the age
     * @return this
     */
    public Options readerAgeWarn(Duration age) {
        values.put("readerAgeWarn", String.valueOf(Tree.micros(age)));
        return this;
    }

    /**
     * Sets the age at which a snapshot, iterator or transaction expires: then it throws
     * {@link ReaderExpiredException}.
     *
     * @param age the age
     * @return this
     */
    public Options readerAgeMax(Duration age) {
        values.put("readerAgeMax", String.valueOf(Tree.micros(age)));
        return this;
    }

    /**
     * Sets how long commits wait for an exclusive transaction.
     *
     * @param time the time
     * @return this
     */
    public Options exclusiveWaitMax(Duration time) {
        values.put("exclusiveWaitMax", String.valueOf(Tree.micros(time)));
        return this;
    }

    /**
     * Reports commits that take this long, with their cause: see {@link Database#stats}. The default is 100
     * milliseconds.
     *
     * @param time the time
     * @return this
     */
    public Options slowCommit(Duration time) {
        values.put("slowCommit", String.valueOf(Tree.micros(time)));
        return this;
    }

    /**
     * Keeps so much of the log for watchers.
     *
     * @param bytes bytes of the log
     * @return this
     */
    public Options logRetention(long bytes) {
        values.put("logRetention", String.valueOf(bytes));
        return this;
    }

    /**
     * Keeps the log of so long a time for watchers.
     *
     * @param age the age
     * @return this
     */
    public Options logRetentionAge(Duration age) {
        values.put("logRetentionAge", String.valueOf(Tree.micros(age)));
        return this;
    }

    /**
     * Copies the log to a directory, for restores to a point in time.
     *
     * @param directory the directory
     * @return this
     */
    public Options logArchive(Path directory) {
        values.put("logArchive", String.valueOf(directory.toAbsolutePath()));
        return this;
    }

    /**
     * Limits the open files.
     *
     * @param files the limit
     * @return this
     */
    public Options openFilesMax(int files) {
        values.put("openFilesMax", String.valueOf(files));
        return this;
    }

    /**
     * Leaves so much of the disk free: writes fail before it is full.
     *
     * @param bytes bytes to leave free
     * @return this
     */
    public Options diskReserve(long bytes) {
        values.put("diskReserve", String.valueOf(bytes));
        return this;
    }

    /**
     * Limits the space of overwritten rows in files.
     *
     * @param percent percent of the live bytes
     * @return this
     */
    public Options garbagePercent(int percent) {
        values.put("garbagePercent", String.valueOf(percent));
        return this;
    }

    /**
     * Maps files to memory; see docs/guide/durability.md for the risk.
     *
     * @param readInPlace true to map them
     * @return this
     */
    public Options readInPlace(boolean readInPlace) {
        values.put("readInPlace", String.valueOf(readInPlace));
        return this;
    }

    /**
     * Bypasses the cache of the system in background work.
     *
     * @param directIo true to bypass it
     * @return this
     */
    public Options directIo(boolean directIo) {
        values.put("directIo", String.valueOf(directIo));
        return this;
    }

    /**
     * Verifies files in the background at this rate.
     *
     * @param bytesPerSecond bytes for each second
     * @return this
     */
    public Options scrub(long bytesPerSecond) {
        values.put("scrub", String.valueOf(bytesPerSecond));
        return this;
    }

    /**
     * Limits background writes.
     *
     * @param bytesPerSecond bytes for each second
     * @return this
     */
    public Options rateLimit(long bytesPerSecond) {
        values.put("rateLimit", String.valueOf(bytesPerSecond));
        return this;
    }

    void encode(Encoder encoder) {
        values.forEach(encoder::option);
    }
}
