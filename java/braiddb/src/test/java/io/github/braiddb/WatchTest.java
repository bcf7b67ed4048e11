package io.github.braiddb;

import static io.github.braiddb.Bytes.bytes;
import static io.github.braiddb.Bytes.text;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

@Timeout(60)
class WatchTest {
    @TempDir Path folder;

    @Test
    void watcher_returns_the_changes_of_each_commit() throws InterruptedException {
        try (Database database = Database.open(folder.resolve("db"));
                Watcher watcher = database.watch()) {
            assertNull(watcher.poll(Duration.ZERO));
            Tree tree = database.tree("a");
            MultiTree multi = database.multiTree("m");
            assertEquals(Change.Kind.CREATE_TREE, watcher.next().changes().get(0).kind());
            assertEquals("m", watcher.next().changes().get(0).tree());
            byte[] large = new byte[300_000];
            try (Batch batch = database.batch()) {
                batch.put(tree, bytes("k"), large).delete(tree, bytes("x")).add(multi, bytes("y"), bytes("z"));
                batch.put(tree, bytes("t"), bytes("u"), Duration.ofHours(1)).add(tree, bytes("n"), 3);
                batch.deleteRange(tree, KeyRange.of(bytes("p"), bytes("q")));
                batch.setApplicationCursor(bytes("cursor"));
                long sequence = batch.commit();
                ChangeSet set = watcher.next();
                assertEquals(sequence, set.sequence());
                Change put = change(set, Change.Kind.PUT);
                assertEquals("a", put.tree());
                assertArrayEquals(large, put.value());
                assertEquals("x", text(change(set, Change.Kind.DELETE).key()));
                assertEquals("z", text(change(set, Change.Kind.ADD).value()));
                assertEquals("q", text(change(set, Change.Kind.DELETE_RANGE).end()));
                Change merge = change(set, Change.Kind.MERGE);
                assertEquals("add", merge.operands().get(0).function());
                assertEquals("cursor", text(change(set, Change.Kind.APPLICATION_CURSOR).value()));
                assertEquals(1, set.changes().stream().filter(c -> c.expires() != null).count());
            }
        }
    }

    private static Change change(ChangeSet set, Change.Kind kind) {
        return set.changes().stream().filter(change -> change.kind() == kind).findFirst().orElseThrow();
    }

    @Test
    void token_resumes_after_a_reopen() throws InterruptedException {
        Options options = new Options().logRetention(1 << 24);
        byte[] token;
        try (Database database = Database.open(folder.resolve("db"), options)) {
            Tree tree = database.tree("a");
            Tree other = database.tree("b");
            try (Watcher watcher = database.watch(new WatchOptions().tree(tree).prefix(bytes("k")))) {
                tree.put(bytes("k1"), bytes("v"));
                tree.put(bytes("x"), bytes("v"));
                other.put(bytes("k"), bytes("v"));
                tree.put(bytes("k2"), bytes("v"));
                assertEquals("k1", text(watcher.next().changes().get(0).key()));
                token = watcher.token();
            }
        }
        try (Database database = Database.open(folder.resolve("db"), options);
                Watcher watcher = database.watch(
                        new WatchOptions().resume(token).tree(database.tree("a")).prefix(bytes("k")))) {
            assertEquals("k2", text(watcher.next().changes().get(0).key()));
            assertThrows(
                    InvalidArgumentException.class,
                    () -> database.watch(new WatchOptions().resume(new byte[] {1})));
            assertThrows(
                    InvalidArgumentException.class,
                    () -> database.watch(new WatchOptions().fromOldest().after(3)));
        }
    }

    @Test
    void close_and_interrupt_end_a_wait() throws Exception {
        try (Database database = Database.openInMemory()) {
            for (boolean closeDatabase : List.of(false, true)) {
                Watcher watcher = database.watch();
                CompletableFuture<ChangeSet> next = CompletableFuture.supplyAsync(() -> {
                    try {
                        return watcher.next();
                    } catch (InterruptedException e) {
                        throw new AssertionError(e);
                    }
                });
                Thread interrupted = new Thread(() ->
                        assertThrows(InterruptedException.class, () -> database.watch().next()));
                interrupted.start();
                interrupted.interrupt();
                interrupted.join();
                if (closeDatabase) {
                    database.close();
                } else {
                    watcher.close();
                }
                ExecutionException e = assertThrows(ExecutionException.class, next::get);
                assertEquals(ClosedException.class, e.getCause().getClass());
            }
        }
    }
}
