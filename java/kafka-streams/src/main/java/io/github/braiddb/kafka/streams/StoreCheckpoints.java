package io.github.braiddb.kafka.streams;

import io.github.braiddb.Checkpoints;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.streams.processor.StateStoreContext;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The checkpoints of a store: where they are, which are those of this store, and counters.
 *
 * <p>A place belongs to one partition of one store of one application: {@code
 * URL/application/store/partition}. The database in a checkpoint names these and the id of the
 * changelog's topic ({@link Identity}).
 */
final class StoreCheckpoints {
    static final Logger LOG = LoggerFactory.getLogger("io.github.braiddb.kafka.streams.checkpoints");

    final Checkpoints place;
    final String shown;
    final String application;
    final String store;
    final String owner;
    final Changelog changelog;
    final long intervalMs;
    final long maxAgeMs;

    final AtomicLong published = new AtomicLong();
    final AtomicLong failed = new AtomicLong();
    final AtomicLong bytes = new AtomicLong();
    final AtomicLong installed = new AtomicLong();
    final AtomicLong refused = new AtomicLong();

    /** The last checkpoint that this store installed: a wiped directory must not get it again. */
    long installedId = -1;

    private StoreCheckpoints(String url, StateStoreContext context, String store, Settings settings, Changelog changelog) {
        application = context.applicationId();
        this.store = store;
        this.changelog = changelog;
        shown = (url.endsWith("/") ? url : url + "/") + application + "/" + store + "/"
                + changelog.partition().partition();
        place = Checkpoints.at(shown);
        owner = "task " + context.taskId() + " of process " + ProcessHandle.current().pid();
        intervalMs = settings.checkpointIntervalMs();
        maxAgeMs = settings.checkpointMaxAgeMs();
    }

    /** Returns the checkpoints of a store; null if there are to be none. */
    static StoreCheckpoints of(StateStoreContext context, String store, Settings settings, Changelog changelog) {
        String url = settings.checkpointUrl();
        if (url == null || changelog == null) {
            // Without a changelog the rows after a checkpoint are lost, and the store would go back in time.
            return null;
        }
        return new StoreCheckpoints(url, context, store, settings, changelog);
    }

    Identity identity(Changelog.Facts facts) {
        return new Identity(
                application, store, changelog.partition().topic(), changelog.partition().partition(), facts.topicId());
    }

    /** Returns the age up to which a checkpoint is installed. */
    long maxAgeMs(Changelog.Facts facts) {
        // The other half is for the restore of the tail, which also must not miss a deletion.
        return facts.deleteRetentionMs() < 0 ? maxAgeMs : Math.min(maxAgeMs, facts.deleteRetentionMs() / 2);
    }

    /**
     * Whose rows a database has.
     *
     * @param application the id of the application
     * @param store the store's name
     * @param topic the changelog's topic
     * @param partition its partition
     * @param topicId the topic's id
     */
    record Identity(String application, String store, String topic, int partition, String topicId) {}
}
