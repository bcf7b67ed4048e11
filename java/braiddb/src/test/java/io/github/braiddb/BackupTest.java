package io.github.braiddb;

import static io.github.braiddb.Bytes.bytes;
import static io.github.braiddb.Bytes.text;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class BackupTest {
    @TempDir Path folder;

    @Test
    void backups_restore_the_state_that_they_took() {
        Path backups = folder.resolve("backups");
        try (Database database = Database.open(folder.resolve("db"))) {
            Tree tree = database.tree("a");
            tree.put(bytes("k"), bytes("1"));
            BackupInfo first = database.backup(backups);
            tree.put(bytes("k"), bytes("2"));
            BackupInfo second = database.backup(backups, true);
            assertTrue(second.id() > first.id() && second.bytes() > 0 && second.taken() != null);
            assertEquals(List.of(first.id(), second.id()), Backups.list(backups).stream().map(BackupInfo::id).toList());
            assertEquals(List.of(first.id(), second.id()), Backups.verify(backups).intact());
            assertEquals(second.sequence(), Backups.restore(backups, folder.resolve("newest")));
            Backups.restore(backups, folder.resolve("first"), first.id());
            assertThrows(
                    AlreadyExistsException.class, () -> Backups.restore(backups, folder.resolve("first")));
            Backups.delete(backups, first.id());
            assertThrows(NotFoundException.class, () -> Backups.delete(backups, 77));
            assertEquals(1, Backups.list(backups).size());
            database.checkpoint(folder.resolve("copy"));
        }
        for (String name : List.of("newest", "copy", "first")) {
            try (Database database = Database.open(folder.resolve(name))) {
                String expected = name.equals("first") ? "1" : "2";
                assertEquals(expected, text(database.openTree("a").get(bytes("k"))));
            }
        }
    }

    @Test
    void archive_restores_a_later_commit() {
        Path archive = folder.resolve("archive");
        Options options = new Options().logArchive(archive);
        try (Database database = Database.open(folder.resolve("db"), options)) {
            Tree tree = database.tree("a");
            database.backup(folder.resolve("backups"));
            tree.put(bytes("k"), bytes("late"));
            database.archiveNow();
        }
        Backups.restore(folder.resolve("backups"), archive, folder.resolve("restored"), null);
        try (Database database = Database.open(folder.resolve("restored"))) {
            assertEquals("late", text(database.openTree("a").get(bytes("k"))));
        }
    }

    @Test
    void damage_is_reported() throws IOException {
        Path path = folder.resolve("db");
        try (Database database = Database.open(path)) {
            Tree tree = database.tree("a");
            for (int i = 0; i < 2000; i++) {
                tree.put(bytes("key " + i), new byte[100], Durability.NONE);
            }
            database.flush();
            database.compact();
            database.sync();
            assertTrue(database.verify().isSound());
            Stats stats = database.stats();
            assertEquals(stats.numbers().get("commits"), stats.commits());
            assertTrue(stats.diskBytes() > 0 && stats.lastSequence() >= 2000);
            assertTrue(stats.failure().isEmpty());
        }
        VerifyReport sound = Backups.verifyDatabase(path);
        assertTrue(sound.isSound() && sound.files() > 0 && sound.bytes() > 0 && sound.problems().isEmpty());
        List<Path> files;
        try (Stream<Path> walk = Files.walk(path)) {
            files = walk.filter(Files::isRegularFile).filter(f -> f.toFile().length() > 4096).toList();
        }
        for (Path file : files) {
            byte[] bytes = Files.readAllBytes(file);
            for (int i = 1000; i < 2000; i++) {
                bytes[i] ^= 0x55;
            }
            Files.write(file, bytes);
        }
        VerifyReport damaged = Backups.verifyDatabase(path);
        assertFalse(damaged.isSound());
        assertTrue(damaged.problems().get(0).path().contains("db"));
        CorruptionException e = assertThrows(CorruptionException.class, () -> {
            try (Database database = Database.open(path)) {
                database.openTree("a").scan().forEachRemaining(row -> {});
            }
        });
        assertTrue(e.path().contains("db"), e::path);
    }

    @Test
    void shared_runtime_counts_its_databases() {
        SharedRuntime runtime = SharedRuntime.of(64 << 20, 2);
        try (Database one = Database.open(folder.resolve("1"), new Options(), runtime);
                Database two = Database.open(folder.resolve("2"), new Options(), runtime)) {
            one.tree("a").put(bytes("k"), bytes("v"));
            assertNull(two.tree("a").get(bytes("k")));
            assertEquals(2, runtime.use().databases());
            assertEquals(64 << 20, runtime.use().memory());
        }
        assertEquals(0, runtime.use().databases());
    }

    @Test
    void options_reach_the_engine() {
        Options options = new Options()
                .memory(32 << 20)
                .durability(Durability.BUFFERED)
                .compression(Compression.LZ4)
                .blobThreshold(1 << 16)
                .backgroundThreads(1)
                .openFilesMax(100)
                .garbagePercent(30)
                .slowCommit(Duration.ZERO)
                .createParents(true);
        try (Database database = Database.open(folder.resolve("x/y"), options)) {
            database.tree("a", new TreeOptions().compression(Compression.NONE).blobThreshold(1000));
            assertEquals(100, database.stats().numbers().get("open_files_max"));
            long slow = database.stats().numbers().entrySet().stream()
                    .filter(number -> number.getKey().startsWith("slow_commits_"))
                    .mapToLong(Map.Entry::getValue)
                    .sum();
            assertEquals(database.stats().commits(), slow);
        }
        assertThrows(
                InvalidArgumentException.class,
                () -> Database.open(folder.resolve("z"), new Options().blobThreshold(-1)));
    }
}
