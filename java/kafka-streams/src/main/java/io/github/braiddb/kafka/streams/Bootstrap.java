package io.github.braiddb.kafka.streams;

import static io.github.braiddb.kafka.streams.StoreCheckpoints.LOG;

import io.github.braiddb.BackupInfo;
import io.github.braiddb.Database;
import io.github.braiddb.NotFoundException;
import io.github.braiddb.Options;
import io.github.braiddb.Tree;
import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.time.Duration;
import java.time.Instant;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;
import org.apache.kafka.streams.errors.ProcessorStateException;

/**
 * Installs the newest checkpoint as the database of a store that has none.
 *
 * <p>The database is made beside the store's directory, checked there, and moved with one rename, so
 * the store's directory has a whole and right database or none. Whatever goes wrong, the store begins
 * empty, and Kafka restores it in full.
 */
final class Bootstrap {
    private static final String FOLDER = "braiddb-install";

    /** Publications of the owner may delete a checkpoint while it is downloaded. */
    private static final int ATTEMPTS = 3;

    private final StoreCheckpoints checkpoints;
    private final Layout layout;
    private final Path directory;
    private final Path staging;

    private Bootstrap(StoreCheckpoints checkpoints, Layout layout, File taskDirectory, File directory) {
        this.checkpoints = checkpoints;
        this.layout = layout;
        this.directory = directory.toPath();
        // A folder for each store: the installation puts its downloads beside the database.
        staging = taskDirectory.toPath().resolve(FOLDER).resolve(checkpoints.store);
    }

    /** A checkpoint that must not be installed. */
    private static final class RefusedException extends Exception {
        private static final long serialVersionUID = 1;

        private RefusedException(String reason) {
            super(reason);
        }
    }

    /** Installs the newest checkpoint if the directory is absent or empty. */
    static void run(StoreCheckpoints checkpoints, Layout layout, File taskDirectory, File directory) {
        Bootstrap bootstrap = new Bootstrap(checkpoints, layout, taskDirectory, directory);
        String[] files = directory.list();
        if (files == null || files.length == 0) {
            bootstrap.run();
        }
        bootstrap.deleteStaging();
    }

    private void run() {
        long start = System.nanoTime();
        try {
            Path made = staging.resolve("database");
            BackupInfo info = download(made);
            if (info == null) {
                LOG.info("Store {} has no checkpoint in {}: Kafka restores it in full",
                        checkpoints.store, checkpoints.shown);
                return;
            }
            // The checkpoint may have records that came during the download, so ask only now.
            Changelog.Facts facts = checkpoints.changelog.facts();
            long offset = check(made, facts);
            Files.createDirectories(directory.getParent());
            Files.deleteIfExists(directory);
            Files.move(made, directory, StandardCopyOption.ATOMIC_MOVE);
            checkpoints.installedId = info.id();
            checkpoints.installed.incrementAndGet();
            LOG.info("Store {} begins with checkpoint {} of {}: {} bytes of {}, installed in {} ms; Kafka restores"
                            + " {} from offset {} to {}",
                    checkpoints.store, info.id(), checkpoints.shown, info.bytes(), info.taken(),
                    (System.nanoTime() - start) / 1_000_000, checkpoints.changelog.partition(), offset + 1,
                    facts.end());
        } catch (RefusedException e) {
            checkpoints.refused.incrementAndGet();
            LOG.warn("Store {} does not use the newest checkpoint of {}, and Kafka restores it in full: {}",
                    checkpoints.store, checkpoints.shown, e.getMessage());
        } catch (RuntimeException | IOException e) {
            checkpoints.failed.incrementAndGet();
            LOG.warn("Store {} could not install a checkpoint of {}, and Kafka restores it in full",
                    checkpoints.store, checkpoints.shown, e);
        }
    }

    /** Returns the checkpoint that was installed in the directory {@code made}; null if there is none. */
    private BackupInfo download(Path made) throws IOException, RefusedException {
        for (int attempt = 1; ; attempt++) {
            Optional<BackupInfo> newest = checkpoints.place.newest();
            if (newest.isEmpty()) {
                return null;
            }
            BackupInfo info = newest.get();
            checkAge(info.taken(), checkpoints.changelog.facts());
            if (info.id() <= checkpoints.installedId) {
                throw new RefusedException("this store had installed it, and its directory was wiped since");
            }
            // A killed process may have left it unchecked. Complete downloads stay and are used.
            deleteAll(made);
            Files.createDirectories(staging);
            try {
                checkpoints.place.install(info.id(), made);
                return info;
            } catch (NotFoundException e) {
                if (attempt == ATTEMPTS) {
                    throw e;
                }
            }
        }
    }

    /** A compacted topic keeps a deletion for a time only; a row that an old checkpoint has would come back. */
    private void checkAge(Instant since, Changelog.Facts facts) throws RefusedException {
        Duration age = Duration.between(since, Instant.now());
        long max = checkpoints.maxAgeMs(facts);
        if (age.toMillis() > max) {
            throw new RefusedException("its last input is " + age.toSeconds() + " s old, and deletions after it may be gone from"
                    + " the changelog; the most is " + max / 1000 + " s: the lower of "
                    + BraidStoreConfig.CHECKPOINT_MAX_AGE_MS + " and half of the topic's delete.retention.ms");
        }
    }

    /** Returns the offset in the database if it is this store's, and Kafka can restore the rest. */
    private long check(Path made, Changelog.Facts facts) throws RefusedException {
        try (Database database = Database.open(made, new Options())) {
            Tree meta = database.tree("meta");
            StoreCheckpoints.Identity wanted = checkpoints.identity(facts);
            StoreCheckpoints.Identity found = Meta.identity(meta.get(Meta.IDENTITY));
            if (!wanted.equals(found)) {
                throw new RefusedException("it is of " + found + ", not of " + wanted);
            }
            byte[] offsetRow = meta.get(Meta.offsetKey(checkpoints.changelog.partition()));
            long offset = Meta.number(offsetRow, -1);
            checkAge(Instant.ofEpochMilli(Meta.number(meta.get(Meta.PROVEN), 0)), facts);
            if (offset < 0 || meta.contains(Meta.AHEAD) || meta.contains(Meta.CORRUPTED)) {
                throw new RefusedException("its rows do not agree with an offset");
            }
            if (offset >= facts.end() || offset + 1 < facts.start()) {
                throw new RefusedException("it ends at offset " + offset + ", and the changelog has those from "
                        + facts.start() + " to " + (facts.end() - 1));
            }
            layout.open(checkpoints.store, database);
            return offset;
        } catch (ProcessorStateException e) {
            throw new RefusedException(e.getMessage());
        }
    }

    private void deleteStaging() {
        try {
            deleteAll(staging);
            // Fails while other stores of the task install.
            Files.deleteIfExists(staging.getParent());
        } catch (IOException e) {
            LOG.debug("{} stays", staging, e);
        }
    }

    private static void deleteAll(Path directory) throws IOException {
        if (!Files.exists(directory)) {
            return;
        }
        List<Path> paths;
        try (Stream<Path> found = Files.walk(directory)) {
            paths = found.sorted(Comparator.reverseOrder()).toList();
        }
        for (Path path : paths) {
            Files.delete(path);
        }
    }
}
