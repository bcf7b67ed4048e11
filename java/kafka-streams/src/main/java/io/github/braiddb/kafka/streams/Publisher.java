package io.github.braiddb.kafka.streams;

import static io.github.braiddb.kafka.streams.StoreCheckpoints.LOG;

import io.github.braiddb.BackupInfo;
import io.github.braiddb.BraidException;
import io.github.braiddb.Checkpoints.Publication;
import io.github.braiddb.ClosedException;
import java.util.Optional;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;

/**
 * Publishes checkpoints of an open store while its task is active.
 *
 * <p><b>Owner.</b> After the task was assigned to another instance, this one may go on for a while, and
 * must not publish its old state over that of the next owner. Each owner claims the place, and only
 * the last claimant can publish. A claim proves nothing by itself: an instance may make it after it
 * lost the task. INVARIANT B1: an instance publishes only after a commit with a row that was put after
 * its claim for a record of the input. Kafka commits a store after the group has accepted the input
 * offsets of the task, so the instance owned the task at a time after its claim, and any owner since
 * then claims later. Rows of punctuators prove nothing: without new input offsets Kafka commits
 * stores without a question to the group.
 *
 * <p><b>Age.</b> The age of a checkpoint counts from the last commit with input, not from its
 * publication: an instance that lost its task and does not know it must not make its old state look
 * young. So an idle store is not published again.
 *
 * <p><b>State.</b> A checkpoint has the rows of its offset and no others: see {@link Storage#hold}.
 */
final class Publisher implements Runnable, AutoCloseable {
    private static final long TICK_MS_MIN = 20;
    private static final long TICK_MS_MAX = 10_000;
    private static final long RETRY_MS = 60_000;

    /** Each failure doubles the time to the next attempt, up to the interval. */
    private static final int DOUBLINGS_MAX = 10;

    private static final long HOLD_MS = 60_000;
    private static final String BROKEN = "rows without an offset had to be written before the state was taken";
    private static final ScheduledThreadPoolExecutor THREADS = threads();

    private final StoreCheckpoints checkpoints;
    private final Storage storage;
    private final Future<?> ticks;

    /** The claim; 0 without one. */
    private long epoch;

    /** Commits with input before this number are not of the present time as owner. */
    private long commitsSeen;

    private Changelog.Facts facts;
    private long publishedState = -1;

    /** The earliest time of the next claim or publication: {@link System#nanoTime}. */
    private long dueAt;

    /** Failures since the last success. */
    private int failures;

    private Publisher(StoreCheckpoints checkpoints, Storage storage) {
        this.checkpoints = checkpoints;
        this.storage = storage;
        // Stores that open together must not publish together.
        pause(ThreadLocalRandom.current().nextLong(retryMs()));
        long tick = Math.max(TICK_MS_MIN, Math.min(checkpoints.intervalMs / 4, TICK_MS_MAX));
        ticks = THREADS.scheduleWithFixedDelay(this, tick, tick, TimeUnit.MILLISECONDS);
    }

    private static ScheduledThreadPoolExecutor threads() {
        ScheduledThreadPoolExecutor threads = new ScheduledThreadPoolExecutor(2, task -> {
            Thread thread = new Thread(task, "braiddb-checkpoints");
            thread.setDaemon(true);
            return thread;
        });
        threads.setRemoveOnCancelPolicy(true);
        return threads;
    }

    static Publisher start(StoreCheckpoints checkpoints, Storage storage, Settings settings) {
        if (settings.isExactlyOnce() && !settings.isTransactional()) {
            LOG.warn("Store {} publishes no checkpoints: at exactly-once Kafka commits its offset only at its close."
                    + " Set enable.transactional.statestores", checkpoints.store);
            return null;
        }
        return new Publisher(checkpoints, storage);
    }

    @Override
    public synchronized void run() {
        try {
            tick();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        } catch (ClosedException e) {
            LOG.debug("Store {} was closed during a checkpoint", checkpoints.store);
        } catch (RuntimeException e) {
            if (storage.isOpen()) {
                failed(e.toString(), e);
            }
        }
    }

    private void pause(long millis) {
        dueAt = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis);
    }

    private long retryMs() {
        return Math.min(checkpoints.intervalMs, RETRY_MS);
    }

    private void failed(String reason, Throwable cause) {
        pause(Math.min(checkpoints.intervalMs, retryMs() << Math.min(failures, DOUBLINGS_MAX)));
        failures++;
        checkpoints.failed.incrementAndGet();
        LOG.warn("Store {} could not publish a checkpoint to {}, and tries again: {}",
                checkpoints.store, checkpoints.shown, reason, cause);
    }

    private void tick() throws InterruptedException {
        if (!storage.isOpen()) {
            return;
        }
        if (!checkpoints.changelog.isActive() || epoch != 0 && !storage.isClaimed()) {
            disown();
            return;
        }
        if (System.nanoTime() - dueAt < 0) {
            return;
        }
        if (epoch == 0) {
            if (storage.commitsOfInputs() > commitsSeen) {
                claim();
            }
            return;
        }
        if (!storage.isProven()) {
            return;
        }
        boolean isChanged = storage.states() != publishedState;
        // Nobody may install an old state.
        boolean isOld = System.currentTimeMillis() - storage.provenAt() >= checkpoints.maxAgeMs(facts);
        if (isChanged && !isOld) {
            pause(checkpoints.intervalMs);
            publish();
        }
    }

    private void disown() {
        epoch = 0;
        commitsSeen = storage.commitsOfInputs();
    }

    private void claim() {
        facts = checkpoints.changelog.facts();
        if (!storage.identify(checkpoints.identity(facts))) {
            failed("it has rows of another topic, since its changelog was deleted and created again", null);
            return;
        }
        long maxAgeMs = checkpoints.maxAgeMs(facts);
        if (maxAgeMs < checkpoints.intervalMs) {
            LOG.warn("Checkpoints of store {} are used for {} ms only, and taken each {} ms: see {} and the"
                            + " delete.retention.ms of {}", checkpoints.store, maxAgeMs, checkpoints.intervalMs,
                    BraidStoreConfig.CHECKPOINT_MAX_AGE_MS, checkpoints.changelog.partition().topic());
        }
        epoch = checkpoints.place.claim(checkpoints.owner);
        storage.claimed();
    }

    private void publish() throws InterruptedException {
        if (!storage.hold(HOLD_MS)) {
            if (!storage.isOpen() || !storage.isProven()) {
                return;
            }
            failed("no commit within " + HOLD_MS / 1000 + " s made its rows agree with its offset", null);
            return;
        }
        long state = storage.states();
        try (Publication publication =
                storage.begin(() -> checkpoints.place.begin(storage.database(), epoch))) {
            if (publication == null) {
                if (storage.isOpen()) {
                    failed(BROKEN, null);
                }
                return;
            }
            boolean isTaken = publication.awaitTaken();
            if (!storage.release() && isTaken) {
                failed(BROKEN, null);
                return;
            }
            Optional<BackupInfo> info = publication.finish();
            if (info.isEmpty()) {
                disown();
                pause(retryMs());
                LOG.info("Store {} publishes no more checkpoints to {}: another instance has claimed it",
                        checkpoints.store, checkpoints.shown);
                return;
            }
            publishedState = state;
            failures = 0;
            checkpoints.published.incrementAndGet();
            checkpoints.bytes.addAndGet(info.get().bytesCopied());
            LOG.debug("Store {} published checkpoint {}", checkpoints.store, info.get());
        } catch (BraidException e) {
            if (!(e instanceof ClosedException)) {
                throw e;
            }
            // A close has ended when this returns.
            if (!storage.release() && storage.isOpen()) {
                failed(BROKEN, null);
            }
        } finally {
            storage.ended();
        }
    }

    /** Begins no more publications. The close of the storage ends the present one. */
    @Override
    public void close() {
        ticks.cancel(false);
    }
}
