package io.github.braiddb;

import java.lang.ref.Reference;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Objects;
import java.util.Optional;

/**
 * Checkpoints of a database in a directory or an S3 bucket, from which other processes make copies:
 * see {@link #install}. A checkpoint shares files with those before it, so a publication uploads new
 * files only. The two newest stay.
 *
 * <p>Processes may own the database one after another, each with its copy. Each {@linkplain #claim
 * claims} the place first; a publication with an earlier claim has no effect. All threads may use it.
 */
public final class Checkpoints {
    private final String place;

    private Checkpoints(String place) {
        this.place = place;
    }

    /**
     * Names a place. Nothing is read or written yet.
     *
     * @param place a directory, or {@code s3://BUCKET/PREFIX} with credentials in the environment
     *     ({@code AWS_ACCESS_KEY_ID} and so on)
     * @return its checkpoints
     */
    public static Checkpoints at(String place) {
        return new Checkpoints(Objects.requireNonNull(place, "place"));
    }

    /**
     * Returns the newest checkpoint.
     *
     * @return it; empty if there is none
     */
    public Optional<BackupInfo> newest() {
        byte[] text = place.getBytes(StandardCharsets.UTF_8);
        Scratch scratch = Scratch.with(text);
        try {
            Decoder found = scratch.decoder(
                    Native.checkpointsNewest(text.length, scratch.address, scratch.capacity()), 0);
            return Optional.ofNullable(found).map(BackupInfo::decode);
        } finally {
            Scratch.CALLS.give(scratch);
        }
    }

    /**
     * Makes a new database from a checkpoint. Compares every checksum. Needs space for two copies; a
     * repeated call after a failure goes on with the files in {@code PATH.download}.
     *
     * @param id the number of the checkpoint
     * @param path the directory of the new database: absent, or empty
     * @throws NotFoundException if the checkpoint does not exist, or was deleted meanwhile
     * @throws AlreadyExistsException if {@code path} is not empty
     * @throws BackupDamagedException if the checkpoint is damaged
     */
    public void install(long id, Path path) {
        Encoder encoder = new Encoder().text(place).text(path.toString());
        Scratch scratch = encoder.scratch();
        try {
            scratch.check(Native.checkpointsInstall(id, encoder.len(), scratch.address, scratch.capacity()));
        } finally {
            Scratch.CALLS.give(scratch);
        }
    }

    /**
     * Makes this process the one that publishes here, until the next claim.
     *
     * @param owner a name for people
     * @return the epoch for {@link #publish}
     * @throws LockedException while another process publishes or claims
     */
    public long claim(String owner) {
        Encoder encoder = new Encoder().text(place).text(owner);
        Scratch scratch = encoder.scratch();
        try {
            return scratch.check(Native.checkpointsClaim(encoder.len(), scratch.address, scratch.capacity()));
        } finally {
            Scratch.CALLS.give(scratch);
        }
    }

    /**
     * Publishes the latest state, while reads and writes go on.
     *
     * @param database the database
     * @param epoch the result of {@link #claim}
     * @return the checkpoint; empty if there was a later claim
     */
    public Optional<BackupInfo> publish(Database database, long epoch) {
        try (Publication publication = begin(database, epoch)) {
            publication.awaitTaken();
            return publication.finish();
        }
    }

    /**
     * Begins to publish the latest state in another thread.
     *
     * @param database the database
     * @param epoch the result of {@link #claim}
     * @return the publication
     */
    public Publication begin(Database database, long epoch) {
        byte[] text = place.getBytes(StandardCharsets.UTF_8);
        Scratch scratch = Scratch.with(text);
        try {
            database.checkOpen();
            scratch.check(Native.publicationBegin(
                    database.handle.address, epoch, text.length, scratch.address, scratch.capacity()));
            return new Publication(new Handle(scratch.buffer.getLong(0), Native::publicationFree));
        } finally {
            Scratch.CALLS.give(scratch);
            Reference.reachabilityFence(database);
        }
    }

    /**
     * A publication in progress. {@link #cancel} may be called by any thread, the other methods by one
     * at a time.
     */
    public static final class Publication implements AutoCloseable {
        private static final long TAKEN = 0;
        private static final long PUBLISHED = 1;

        private final Handle handle;
        private boolean isEnded;

        private Publication(Handle handle) {
            this.handle = handle;
        }

        private long next() {
            Scratch scratch = Scratch.CALLS.take(0);
            try {
                return scratch.check(
                        Native.publicationNext(handle.address, scratch.address, scratch.capacity()));
            } catch (BraidException e) {
                isEnded = true;
                throw e;
            } finally {
                Scratch.CALLS.give(scratch);
                Reference.reachabilityFence(this);
            }
        }

        /**
         * Waits until the state is fixed that is published: later commits are not in it.
         *
         * @return false if there was a later claim
         */
        public boolean awaitTaken() {
            isEnded |= next() != TAKEN;
            return !isEnded;
        }

        /**
         * Waits for the end. Call {@link #awaitTaken} before.
         *
         * @return the checkpoint; empty if there was a later claim
         * @throws ClosedException after {@link #cancel} or a close of the database
         */
        public Optional<BackupInfo> finish() {
            if (isEnded || next() != PUBLISHED) {
                isEnded = true;
                return Optional.empty();
            }
            isEnded = true;
            Scratch scratch = Scratch.CALLS.take(0);
            try {
                return Optional.of(BackupInfo.decode(scratch.decoder(
                        Native.publicationInfo(handle.address, scratch.address, scratch.capacity()), 0)));
            } finally {
                Scratch.CALLS.give(scratch);
                Reference.reachabilityFence(this);
            }
        }

        /** Makes the publication fail, unless it is visible already. Does not wait. */
        public void cancel() {
            Scratch scratch = Scratch.CALLS.take(0);
            try {
                scratch.check(Native.publicationCancel(handle.address, scratch.address, scratch.capacity()));
            } finally {
                Scratch.CALLS.give(scratch);
                Reference.reachabilityFence(this);
            }
        }

        /** Cancels it unless it has ended. */
        @Override
        public void close() {
            if (!isEnded) {
                cancel();
            }
        }
    }
}
