/*
 * Calls in random order with random arguments, all within the header's rules: any result is right, a
 * crash is not. Each thread has handles of its own, and half of its calls are with handles that all
 * threads use at once.
 *
 *     fuzz FOLDER [SECONDS] [SEED]
 */
#undef NDEBUG
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "braiddb.h"

enum { THREADS = 4, SLOTS = 6, CALLS = 63 };

static char folder[4096];
static double seconds = 2;
static uint64_t calls[THREADS];
static int outcomes[128];

struct handles {
    braid_db *db[2];
    braid_tree *tree[SLOTS];
    braid_snapshot *snapshot[2];
    braid_transaction *transaction[2];
    braid_batch *batch[2];
    braid_scan *scan[SLOTS];
    braid_cursor *cursor[2];
    braid_value *value[SLOTS];
    braid_stream_writer *writer[1];
    braid_stream_reader *reader[1];
    braid_watch *watch[1];
    braid_options *options[1];
};

struct state {
    uint64_t random;
    int number;
    struct handles own;
    uint64_t savepoints[4];
    /* For callbacks: freed last. */
    braid_db *kept_db;
    braid_tree *kept_tree;
};

/*
 * A thread has the lock shared during a call with these handles. To free one, it takes the handle out
 * with the lock exclusive: then no other thread uses it.
 */
static struct handles shared;
static pthread_rwlock_t shared_lock;

static uint64_t next_random(struct state *s) {
    s->random ^= s->random << 13, s->random ^= s->random >> 7, s->random ^= s->random << 17;
    return s->random;
}
static size_t below(struct state *s, size_t n) { return next_random(s) % n; }
/* An element of an array. */
#define ANY(s, array) (&(array)[below(s, sizeof(array) / sizeof *(array))])
#define IN(slot) __atomic_load_n(slot, __ATOMIC_ACQUIRE)
/* Puts a handle in a slot, or frees it if the slot has one. */
#define KEEP(slot, made, free_it)                                                                               \
    do {                                                                                                        \
        __typeof__(made) none = NULL;                                                                           \
        if (!__atomic_compare_exchange_n(slot, &none, made, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) free_it(made); \
    } while (0)
/* Takes the handle of a slot out, to free it. */
#define TAKE(h, slot, taken)                                        \
    do {                                                            \
        int is_shared = (h) == &shared;                             \
        if (is_shared) pthread_rwlock_unlock(&shared_lock);         \
        if (is_shared) pthread_rwlock_wrlock(&shared_lock);         \
        (taken) = __atomic_exchange_n(slot, NULL, __ATOMIC_ACQ_REL); \
        if (is_shared) pthread_rwlock_unlock(&shared_lock);         \
        if (is_shared) pthread_rwlock_rdlock(&shared_lock);         \
    } while (0)

static int32_t note(int32_t code) {
    assert(strcmp(braid_code_name(code), "unknown") != 0 && code != BRAID_PANIC);
    assert(code >= 0 || braid_error_message()[0]);
    __atomic_store_n(&outcomes[code < 0 ? 28 + (-code < 99 ? -code : 99) : code], 1, __ATOMIC_RELAXED);
    return code;
}

static const char junk[70000] = "abcabcabc\0\377\1";
static braid_slice some_bytes(struct state *s) {
    static const size_t lens[] = {0, 1, 2, 3, 8, 300, 5000, 65535, 65536};
    braid_slice bytes = {junk + below(s, 12), lens[below(s, below(s, 4) ? 5 : 9)]};
    if (below(s, 30) == 0) bytes.data = NULL;
    return bytes;
}
static const char *some_text(struct state *s) {
    static const char *const texts[] = {"a", "b", "multi", "true", "memory", "64KiB", "8MiB", "ttl", "1s", "", "\xff\xfe",
                                        "add", "append", "max", "none", "lz4", "durability", "buffered", "compression",
                                        "create", "no such name", "18446744073709551615TiB", "-1"};
    return below(s, 40) ? texts[below(s, sizeof texts / sizeof *texts)] : NULL;
}
static braid_range some_range(struct state *s) {
    braid_range range = {{NULL, 0}, {NULL, 0}, (uint32_t)below(s, 20) ? (uint32_t)below(s, 16) : (uint32_t)next_random(s)};
    if (below(s, 2)) range.start = some_bytes(s);
    if (below(s, 2)) range.end = some_bytes(s);
    return range;
}
static uint64_t some_time(struct state *s) { return next_random(s) >> below(s, 64); }

/* Short waits: a thread's own exclusive transaction is in its way. */
static braid_options *some_options(void) {
    braid_options *options = braid_options_new();
    assert(braid_options_set(options, "exclusive_wait_max", "1ms") == BRAID_OK);
    assert(braid_options_set(options, "slow_commit", "0s") == BRAID_OK);
    assert(braid_options_set(options, "memory", "8MiB") == BRAID_OK);
    return options;
}

/* Reads what a call returned. */
static void use(braid_slice bytes) {
    volatile uint64_t sum = 0;
    for (size_t i = 0; i < bytes.len && bytes.data; i++) sum += ((const unsigned char *)bytes.data)[i];
}
static void use_changes(const braid_changes *changes) {
    braid_change change;
    for (size_t i = 0; braid_changes_get(changes, i, &change) == BRAID_OK; i++)
        use(change.key), use(change.value), use(change.tree_name);
    use(braid_changes_token(changes));
}

/* Calls that read are allowed in it. */
static void done(void *context, int32_t code, uint64_t sequence) {
    (void)sequence;
    assert(strcmp(braid_code_name(code), "unknown") != 0);
    assert(code >= 0 || braid_error_message()[0]);
    braid_value *value;
    if (note(braid_get(context, "abc", 3, &value)) == BRAID_OK) use(braid_value_bytes(value));
    braid_value_free(value);
}

/* All calls are allowed in it. */
static int32_t each(void *context, const braid_changes *changes) {
    struct state *s = context;
    use_changes(changes);
    note(braid_put(s->kept_tree, "abc", 3, "ab", 2));
    return below(s, 2) ? 0 : -7;
}
static void run_watch(struct state *s) {
    braid_watch *watch;
    note(braid_watch_new(s->kept_db, NULL, (braid_slice){NULL, 0}, (braid_slice){NULL, 0}, BRAID_WATCH_UNSYNCED, &watch));
    if (note(braid_put(s->kept_tree, "abc", 3, "a", 1)) == BRAID_OK) note(braid_watch_run(watch, each, s));
    braid_watch_free(watch);
}

static void administer(struct state *s, struct handles *h, braid_db *db, braid_tree *tree) {
    char path[5000];
    uint64_t number;
    braid_value *value = NULL;
    braid_scan *names = NULL;
    switch (below(s, 60)) {
        case 0: note(braid_flush(db)); break;
        case 1: note(braid_compact(db)); break;
        case 2: note(braid_verify(db, &number)); break;
        case 3: note(braid_sync(db)); break;
        case 4: note(braid_stats(db, &value)); break;
        case 5: note(braid_tree_name(tree, &value)); break;
        case 6: note(braid_trees(db, &names)); break;
        case 7: note(braid_drop_tree(db, some_text(s))); break;
        case 8: note(braid_rename_tree(db, some_text(s), some_text(s))); break;
        case 9:
            snprintf(path, sizeof path, "%s/backup-%d", folder, h == &shared ? THREADS : s->number);
            note(braid_backup(db, path, &number));
            note(braid_backup_verify(path, number));
            break;
        case 10: run_watch(s); break;
        default: break;
    }
    use(braid_value_bytes(value)), braid_value_free(value);
    if (names) KEEP(ANY(s, h->scan), names, braid_scan_free);
}

static void open_database(struct state *s, struct handles *h) {
    char path[5000];
    braid_db *db, **slot = ANY(s, h->db);
    braid_options *options = IN(h->options);
    if (IN(slot) || !options) return;
    snprintf(path, sizeof path, "%s/%d-%d", folder, h == &shared ? THREADS : s->number, (int)below(s, 2));
    note(below(s, 2) ? braid_open(path, options, &db) : braid_open_in_memory(options, &db));
    if (db) KEEP(slot, db, braid_close);
}

/* Frees a handle while other threads use those that came from it. */
static void free_one(struct state *s, struct handles *h) {
    switch (below(s, 12)) {
        case 0: {
            braid_db *db;
            if (below(s, 20)) break;
            TAKE(h, ANY(s, h->db), db);
            if (db) note(braid_close(db));
            break;
        }
#define FREE(number, type, field, free_it)   \
    case number: {                           \
        type *taken;                         \
        TAKE(h, ANY(s, h->field), taken);    \
        free_it(taken);                      \
        break;                               \
    }
        FREE(1, braid_tree, tree, braid_tree_free)
        FREE(2, braid_snapshot, snapshot, braid_snapshot_free)
        FREE(3, braid_transaction, transaction, braid_transaction_free)
        FREE(4, braid_batch, batch, braid_batch_free)
        FREE(5, braid_scan, scan, braid_scan_free)
        FREE(6, braid_cursor, cursor, braid_cursor_free)
        FREE(7, braid_value, value, braid_value_free)
        FREE(8, braid_stream_writer, writer, braid_stream_writer_free)
        FREE(9, braid_stream_reader, reader, braid_stream_reader_free)
        FREE(10, braid_watch, watch, braid_watch_free)
        default: {
            braid_options *taken, *made = some_options();
            TAKE(h, h->options, taken);
            braid_options_free(taken);
            KEEP(h->options, made, braid_options_free);
        }
    }
}

/* `h` is the thread's own or `shared`: then bytes that another thread's call invalidates are not read. */
static void one_call(struct state *s, struct handles *h) {
    int is_shared = h == &shared;
    char buffer[4096];
    size_t capacity = below(s, 3) ? sizeof buffer : below(s, 40), len;
    uint64_t number;
    braid_slice key = some_bytes(s), value = some_bytes(s), second;
    braid_range range = some_range(s);
    const braid_range *maybe_range = below(s, 4) ? &range : NULL;
    braid_tree *tree = IN(ANY(s, h->tree)), *made_tree = NULL;
    braid_db *db = IN(ANY(s, h->db));
    braid_scan *scan = IN(ANY(s, h->scan));
    braid_transaction *transaction = IN(ANY(s, h->transaction));
    braid_batch *batch = IN(ANY(s, h->batch));
    braid_cursor *cursor = IN(ANY(s, h->cursor));
    braid_snapshot *snapshot = IN(ANY(s, h->snapshot));
    braid_stream_writer *writer = IN(h->writer);
    braid_stream_reader *reader = IN(h->reader);
    braid_watch *watch = IN(h->watch);
    braid_options *options = IN(h->options);
    braid_value *got = NULL, *other = NULL;
    int32_t durability = below(s, 20) ? (int32_t)below(s, 4) : (int32_t)next_random(s);
    braid_version_tag version;
    memset(&version, (int)below(s, 256), sizeof version);
    switch (below(s, CALLS)) {
        case 0: open_database(s, h); break;
        case 1: case 2: case 3: note(braid_tree_open(db, some_text(s), below(s, 3) ? NULL : options, &made_tree)); break;
        case 4: note(braid_snapshot_tree(snapshot, tree, &made_tree)); break;
        case 5: note(braid_transaction_tree(transaction, tree, &made_tree)); break;
        case 6:
            note(braid_snapshot_new(db, &snapshot));
            if (snapshot) KEEP(ANY(s, h->snapshot), snapshot, braid_snapshot_free);
            break;
        case 7: case 8:
            note(braid_begin(db, (int32_t)below(s, 3) ? 0 : (int32_t)below(s, 3), &transaction));
            if (transaction) KEEP(ANY(s, h->transaction), transaction, braid_transaction_free);
            break;
        case 9:
            note(braid_batch_new(db, &batch));
            if (batch) KEEP(ANY(s, h->batch), batch, braid_batch_free);
            break;
        case 10: note(braid_commit(transaction, durability, &number)); break;
        case 11: note(braid_commit_async(transaction, below(s, 9) ? done : NULL, s->kept_tree)); break;
        case 12: note(braid_rollback(transaction)); break;
        case 13: note(braid_savepoint(transaction, ANY(s, s->savepoints))); break;
        case 14: note(braid_rollback_to(transaction, *ANY(s, s->savepoints))); break;
        case 15: free_one(s, h); break;
        case 16: case 17: note(braid_batch_put(batch, tree, key.data, key.len, value.data, value.len)); break;
        case 18: note(braid_batch_put_ttl(batch, tree, key.data, key.len, value.data, value.len, some_time(s))); break;
        case 19: note(braid_batch_delete(batch, tree, key.data, key.len)); break;
        case 20: note(braid_batch_delete_pair(batch, tree, key.data, key.len, value.data, value.len)); break;
        case 21: note(braid_batch_delete_range(batch, tree, maybe_range)); break;
        case 22: note(braid_batch_merge(batch, tree, some_text(s), key.data, key.len, value)); break;
        case 23: note(braid_batch_commit(batch, durability, &number)); break;
        case 24: note(braid_batch_commit_async(batch, below(s, 9) ? done : NULL, s->kept_tree)); break;
        case 25: note(braid_batch_clear(batch)), braid_batch_len(batch); break;
        case 26: case 27: case 28: note(braid_put(tree, key.data, key.len, value.data, value.len)); break;
        case 29: note(braid_put_ttl(tree, key.data, key.len, value.data, value.len, some_time(s))); break;
        case 30: case 31:
            note(below(s, 2) ? braid_get(tree, key.data, key.len, &got) : braid_get_expiry(tree, key.data, key.len, &got, &number));
            use(braid_value_bytes(got));
            if (got) KEEP(ANY(s, h->value), got, braid_value_free);
            got = NULL;
            break;
        case 32:
            if (note(braid_get_into(tree, key.data, key.len, buffer, capacity, &len)) == BRAID_OK) use((braid_slice){buffer, len});
            break;
        case 33: {
            braid_slice keys[5], values[5];
            for (int i = 0; i < 5; i++) keys[i] = some_bytes(s);
            note(braid_get_many(tree, keys, below(s, 6), buffer, capacity, values, &len));
            break;
        }
        case 34: note(braid_contains(tree, key.data, key.len)); break;
        case 35: note(braid_delete(tree, key.data, key.len)); break;
        case 36: note(braid_delete_range(tree, maybe_range)); break;
        case 37: note(braid_count(tree, maybe_range, &number)); break;
        case 38: note(braid_pop(tree, below(s, 2), &got, &other)), use(braid_value_bytes(got)), use(braid_value_bytes(other)); break;
        case 39: note(braid_compare_and_set(tree, key.data, key.len, value, some_bytes(s))); break;
        case 40:
            if (note(braid_get_version(tree, key.data, key.len, &got, &version)) == BRAID_OK)
                note(braid_put_if_version(tree, key.data, key.len, value, &version, &version));
            break;
        case 41: note(braid_put_if_version(tree, key.data, key.len, value, below(s, 2) ? &version : NULL, NULL)); break;
        case 42: note(braid_merge(tree, some_text(s), key.data, key.len, value)); break;
        case 43: note(braid_delete_pair(tree, key.data, key.len, value.data, value.len)); break;
        case 44: note(braid_contains_pair(tree, key.data, key.len, value.data, value.len)); break;
        case 45:
            note(braid_scan_new(tree, maybe_range, &scan));
            if (scan) KEEP(ANY(s, h->scan), scan, braid_scan_free);
            break;
        case 46: case 47:
            if (note(braid_scan_next(scan, &key, &second)) == BRAID_OK && !is_shared) use(key), use(second);
            break;
        case 48: {
            braid_row rows[9];
            if (note(braid_scan_fill(scan, buffer, capacity, rows, below(s, 10), &len, NULL)) == BRAID_OK)
                for (size_t i = 0; i < len; i++) use(rows[i].key), use(rows[i].value);
            break;
        }
        case 49:
            note(braid_cursor_new(tree, &cursor));
            if (cursor) KEEP(ANY(s, h->cursor), cursor, braid_cursor_free);
            break;
        case 50: case 51:
            note(braid_cursor_move(cursor, (int32_t)below(s, 7), key.data, key.len));
            if (note(braid_cursor_row(cursor, &key, &second)) == BRAID_OK && !is_shared) use(key), use(second);
            break;
        case 52:
            note(braid_stream_writer_new(tree, key.data, key.len, &writer));
            if (writer) KEEP(h->writer, writer, braid_stream_writer_free);
            break;
        case 53: note(braid_stream_write(writer, value.data, value.len)); break;
        case 54: note(braid_stream_commit(writer, durability, &number)); break;
        case 55:
            note(braid_stream_reader_new(tree, key.data, key.len, &reader));
            if (reader) KEEP(h->reader, reader, braid_stream_reader_free);
            break;
        case 56:
            if (note(braid_stream_read(reader, below(s, 6000), buffer, capacity, &len)) == BRAID_OK) use((braid_slice){buffer, len});
            break;
        case 57:
            note(braid_watch_new(db, below(s, 2) ? tree : NULL, below(s, 2) ? value : (braid_slice){NULL, 0}, (braid_slice){NULL, 0}, (uint32_t)below(s, 4), &watch));
            if (watch) KEEP(h->watch, watch, braid_watch_free);
            break;
        case 58: {
            braid_changes *changes;
            if (note(braid_watch_next(watch, below(s, 2), &changes)) == BRAID_OK) use_changes(changes);
            braid_changes_free(changes);
            if (below(s, 10) == 0) note(braid_watch_stop(watch));
            break;
        }
        case 59: note(braid_options_set(options, some_text(s), some_text(s))); break;
        case 60: case 61: free_one(s, h); break;
        default: administer(s, h, db, tree);
    }
    if (made_tree) KEEP(ANY(s, h->tree), made_tree, braid_tree_free);
    braid_value_free(got), braid_value_free(other);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Databases first: what remains must stay valid. */
static void free_all(struct handles *h) {
    for (int i = 0; i < 2; i++)
        if (h->db[i]) note(braid_close(h->db[i]));
    for (int i = 0; i < SLOTS; i++)
        use(braid_value_bytes(h->value[i])), braid_value_free(h->value[i]), braid_scan_free(h->scan[i]), braid_tree_free(h->tree[i]);
    for (int i = 0; i < 2; i++)
        braid_snapshot_free(h->snapshot[i]), braid_transaction_free(h->transaction[i]), braid_batch_free(h->batch[i]), braid_cursor_free(h->cursor[i]);
    braid_stream_writer_free(h->writer[0]), braid_stream_reader_free(h->reader[0]), braid_watch_free(h->watch[0]), braid_options_free(h->options[0]);
}

static void *calling(void *argument) {
    struct state *s = argument;
    double until = now() + seconds;
    for (uint64_t i = 0; i % 64 || now() < until; i++, calls[s->number]++) {
        if (below(s, 2)) {
            one_call(s, &s->own);
            continue;
        }
        pthread_rwlock_rdlock(&shared_lock);
        one_call(s, &shared);
        pthread_rwlock_unlock(&shared_lock);
    }
    free_all(&s->own);
    return NULL;
}

int main(int argc, char **argv) {
    assert(argc >= 2 && strlen(argv[1]) < sizeof folder);
    strcpy(folder, argv[1]);
    if (argc > 2) seconds = atof(argv[2]);
    uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    printf("seed %llu: ", (unsigned long long)seed), fflush(stdout);
    pthread_rwlockattr_t attributes;
    pthread_rwlockattr_init(&attributes);
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&shared_lock, &attributes);
    shared.options[0] = some_options();
    static struct state states[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        struct state *s = &states[i];
        char path[5000];
        *s = (struct state){.random = seed * 1000003 + (uint64_t)i + 1, .number = i, .own.options = {some_options()}};
        snprintf(path, sizeof path, "%s/kept-%d", folder, i);
        assert(braid_open(path, s->own.options[0], &s->kept_db) == BRAID_OK);
        assert(braid_tree_open(s->kept_db, "kept", NULL, &s->kept_tree) == BRAID_OK);
        assert(pthread_create(&threads[i], NULL, calling, s) == 0);
    }
    uint64_t sum = 0;
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL), sum += calls[i];
    free_all(&shared);
    for (int i = 0; i < THREADS; i++) assert(braid_close(states[i].kept_db) == BRAID_OK), braid_tree_free(states[i].kept_tree);
    int kinds = 0;
    for (int i = 0; i < 128; i++) kinds += outcomes[i];
    printf("%llu calls, %d kinds of results\n", (unsigned long long)sum, kinds);
    return 0;
}
