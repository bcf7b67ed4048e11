package io.github.braiddb;

import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;

/**
 * Calls for backups and closed databases: see {@link Database#backup(Path)}. Every method throws
 * {@link StorageException} if a file cannot be read or written.
 */
public final class Backups {
    private Backups() {}

    /** Runs a call whose argument is a path. */
    private interface Call {
        long run(int pathLen, long address, int capacity);
    }

    private static Decoder call(Path path, Call call) {
        byte[] text = path.toString().getBytes(StandardCharsets.UTF_8);
        Scratch scratch = Scratch.with(text);
        try {
            return scratch.decoder(call.run(text.length, scratch.address, scratch.capacity()), 0);
        } finally {
            Scratch.CALLS.give(scratch);
        }
    }

    /**
     * Lists the backups in a directory.
     *
     * @param directory the directory
     * @return the backups by number
     */
    public static List<BackupInfo> list(Path directory) {
        Decoder result = call(directory, Native::adminBackups);
        int count = result.count();
        List<BackupInfo> backups = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            backups.add(BackupInfo.decode(result));
        }
        return backups;
    }

    /**
     * Deletes a backup, with the files that no other one has.
     *
     * @param directory the directory
     * @param id its number
     * @throws NotFoundException if it does not exist
     */
    public static void delete(Path directory, long id) {
        call(directory, (len, address, capacity) -> Native.adminDeleteBackup(id, len, address, capacity));
    }

    /**
     * Result of a check of backups.
     *
     * @param intact the numbers of intact backups
     * @param damaged the numbers of damaged ones
     */
    public record Report(List<Long> intact, List<Long> damaged) {}

    /**
     * Reads all backups and compares their checksums.
     *
     * @param directory the directory
     * @return which are intact
     */
    public static Report verify(Path directory) {
        Decoder result = call(directory, (len, address, capacity) ->
                Native.adminVerifyBackups(-1, len, address, capacity));
        return new Report(numbers(result), numbers(result));
    }

    private static List<Long> numbers(Decoder decoder) {
        int count = decoder.count();
        List<Long> numbers = new ArrayList<>(count);
        for (int i = 0; i < count; i++) {
            numbers.add(decoder.number());
        }
        return numbers;
    }

    /**
     * Restores the newest backup to a new database.
     *
     * @param directory the directory of backups
     * @param path the directory of the new database: absent, or empty
     * @return its last commit
     * @throws NotFoundException if there is no backup
     * @throws AlreadyExistsException if {@code path} is not empty
     * @throws BackupDamagedException if the backup is damaged
     */
    public static long restore(Path directory, Path path) {
        return restore(directory, path, -1, null, -1, -1);
    }

    /**
     * Restores a backup to a new database, as {@link #restore(Path, Path)}.
     *
     * @param directory the directory of backups
     * @param path the directory of the new database
     * @param id the number of the backup
     * @return its last commit
     */
    public static long restore(Path directory, Path path, long id) {
        if (id < 0) {
            throw new InvalidArgumentException("the number of a backup is negative: " + id);
        }
        return restore(directory, path, id, null, -1, -1);
    }

    /**
     * Restores the state at a time, from backups and the log archive.
     *
     * @param directory the directory of backups
     * @param archive the directory of {@link Options#logArchive}
     * @param path the directory of the new database
     * @param time the time; null for the last archived commit
     * @return its last commit
     * @throws ArchiveGapException if the archive lacks commits
     */
    public static long restore(Path directory, Path archive, Path path, Instant time) {
        return restore(
                directory, path, -1, Objects.requireNonNull(archive, "archive"), -1,
                time == null ? -1 : Tree.micros(time));
    }

    private static long restore(Path directory, Path path, long id, Path archive, long commit, long time) {
        Encoder encoder = new Encoder().text(directory.toString()).text(path.toString());
        encoder.text(archive == null ? null : archive.toString());
        Scratch scratch = encoder.scratch();
        try {
            return scratch.check(Native.adminRestore(
                    id, commit, time, encoder.len(), scratch.address, scratch.capacity()));
        } finally {
            Scratch.CALLS.give(scratch);
        }
    }

    /**
     * Checks every checksum of a database that need not open.
     *
     * @param path its directory
     * @return the report
     */
    public static VerifyReport verifyDatabase(Path path) {
        return VerifyReport.decode(call(path, Native::adminVerifyPath));
    }
}
