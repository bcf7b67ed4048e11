/*
 * Calls in random order with random arguments, from several threads, all within the header's rules:
 * any result is right, a crash is not.
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

enum { THREADS = 3, SLOTS = 6 };

static char folder[4096];
static double seconds = 2;
static uint64_t calls[THREADS];
static int outcomes[128];

struct state {
    uint64_t random;
    braid_db *db[2];
    braid_tree *tree[SLOTS];
    braid_snapshot *snapshot[2];
    braid_transaction *transaction[2];
    braid_batch *batch[2];
    braid_scan *scan[SLOTS];
    braid_cursor *cursor[2];
    braid_value *value[SLOTS];
    braid_stream_writer *writer;
    braid_stream_reader *reader;
    braid_watch *watch;
    braid_changes *changes;
    braid_options *options;
    int number;
};

static uint64_t next_random(struct state *s) {
    s->random ^= s->random << 13, s->random ^= s->random >> 7, s->random ^= s->random << 17;
    return s->random;
}
static size_t below(struct state *s, size_t n) { return next_random(s) % n; }
/* An element of an array. */
#define ANY(s, array) (&(array)[below(s, sizeof(array) / sizeof *(array))])

static int32_t note(int32_t code) {
    assert(strcmp(braid_code_name(code), "unknown") != 0 && code != BRAID_PANIC);
    assert(code >= 0 || braid_error_message()[0]);
    outcomes[code < 0 ? 28 + (-code < 99 ? -code : 99) : code] = 1;
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

/* Short waits: a thread's own exclusive transaction is in its way. */
static braid_options *some_options(void) {
    braid_options *options = braid_options_new();
    assert(braid_options_set(options, "exclusive_wait_max", "1ms") == BRAID_OK);
    assert(braid_options_set(options, "memory", "8MiB") == BRAID_OK);
    return options;
}

static void done(void *context, int32_t code, uint64_t sequence) {
    (void)context, (void)sequence;
    assert(strcmp(braid_code_name(code), "unknown") != 0);
}

static void use(braid_slice bytes) {
    /* Reads what a call returned. */
    volatile uint64_t sum = 0;
    for (size_t i = 0; i < bytes.len && bytes.data; i++) sum += ((const unsigned char *)bytes.data)[i];
}

static void one_call(struct state *s) {
    char path[5000];
    char buffer[4096];
    size_t capacity = below(s, 3) ? sizeof buffer : below(s, 40), len;
    uint64_t number;
    braid_slice key = some_bytes(s), value = some_bytes(s), second;
    braid_range range = some_range(s);
    const braid_range *maybe_range = below(s, 4) ? &range : NULL;
    braid_tree **tree = ANY(s, s->tree);
    braid_db **db = ANY(s, s->db);
    braid_value **kept = ANY(s, s->value);
    braid_scan **scan = ANY(s, s->scan);
    braid_transaction **transaction = ANY(s, s->transaction);
    braid_batch **batch = ANY(s, s->batch);
    braid_cursor **cursor = ANY(s, s->cursor);
    braid_snapshot **snapshot = ANY(s, s->snapshot);
    int32_t durability = below(s, 20) ? (int32_t)below(s, 3) : (int32_t)next_random(s);
    braid_version_tag version;
    memset(&version, (int)below(s, 256), sizeof version);
    switch (below(s, 60)) {
        case 0:
            if (!*db) {
                snprintf(path, sizeof path, "%s/%d-%d", folder, s->number, (int)below(s, 2));
                note(below(s, 2) ? braid_open(path, s->options, db) : braid_open_in_memory(s->options, db));
            }
            break;
        case 1:
            if (*db && below(s, 20) == 0) note(braid_close(*db)), *db = NULL;
            break;
        case 2: case 3:
            if (!*tree) note(braid_tree_open(*db, some_text(s), below(s, 3) ? NULL : s->options, tree));
            break;
        case 4: if (below(s, 10) == 0) braid_tree_free(*tree), *tree = NULL; break;
        case 5: if (!*snapshot) note(braid_snapshot_new(*db, snapshot)); break;
        case 6: {
            braid_tree **made = ANY(s, s->tree);
            if (made != tree && !*made) note(braid_snapshot_tree(*snapshot, *tree, made));
            break;
        }
        case 7: braid_snapshot_free(*snapshot), *snapshot = NULL; break;
        case 8: if (!*transaction) note(braid_begin(*db, (int32_t)below(s, 3) ? 0 : (int32_t)below(s, 3), transaction)); break;
        case 9: {
            braid_tree **made = ANY(s, s->tree);
            if (made != tree && !*made) note(braid_transaction_tree(*transaction, *tree, made));
            break;
        }
        case 10: note(braid_commit(*transaction, durability, &number)); break;
        case 11: note(braid_commit_async(*transaction, below(s, 9) ? done : NULL, NULL)); break;
        case 12: note(braid_rollback(*transaction)); break;
        case 13: note(braid_savepoint(*transaction, &number)); break;
        case 14: note(braid_rollback_to(*transaction, below(s, 4))); break;
        case 15: braid_transaction_free(*transaction), *transaction = NULL; break;
        case 16: if (!*batch) note(braid_batch_new(*db, batch)); break;
        case 17: note(braid_batch_put_ttl(*batch, *tree, key.data, key.len, value.data, value.len, below(s, 3))); break;
        case 18: note(braid_batch_delete(*batch, *tree, key.data, key.len)); break;
        case 19: note(braid_batch_delete_pair(*batch, *tree, key.data, key.len, value.data, value.len)); break;
        case 20: note(braid_batch_delete_range(*batch, *tree, maybe_range)); break;
        case 21: note(braid_batch_merge(*batch, *tree, some_text(s), key.data, key.len, value)); break;
        case 22: note(braid_batch_commit(*batch, durability, &number)); break;
        case 23: note(braid_batch_commit_async(*batch, done, NULL)); break;
        case 24: if (below(s, 5) == 0) braid_batch_free(*batch), *batch = NULL; else note(braid_batch_clear(*batch)); break;
        case 25: case 26: case 27: note(braid_put(*tree, key.data, key.len, value.data, value.len)); break;
        case 28: note(braid_put_ttl(*tree, key.data, key.len, value.data, value.len, next_random(s) >> below(s, 64))); break;
        case 29: case 30: if (!*kept && note(braid_get(*tree, key.data, key.len, kept)) == BRAID_OK) use(braid_value_bytes(*kept)); break;
        case 31: use(braid_value_bytes(*kept)), braid_value_free(*kept), *kept = NULL; break;
        case 32: if (note(braid_get_into(*tree, key.data, key.len, buffer, capacity, &len)) == BRAID_OK) use((braid_slice){buffer, len}); break;
        case 33: {
            braid_slice keys[5], values[5];
            for (int i = 0; i < 5; i++) keys[i] = some_bytes(s);
            note(braid_get_many(*tree, keys, below(s, 6), buffer, capacity, values, &len));
            break;
        }
        case 34: note(braid_contains(*tree, key.data, key.len)); break;
        case 35: note(braid_delete(*tree, key.data, key.len)); break;
        case 36: note(braid_delete_range(*tree, maybe_range)); break;
        case 37: note(braid_count(*tree, maybe_range, &number)); break;
        case 38: {
            braid_value *popped = NULL, *of = NULL;
            note(braid_pop(*tree, below(s, 2), &popped, &of));
            use(braid_value_bytes(popped)), use(braid_value_bytes(of));
            braid_value_free(popped), braid_value_free(of);
            break;
        }
        case 39: note(braid_compare_and_set(*tree, key.data, key.len, value, some_bytes(s))); break;
        case 40:
            if (!*kept && note(braid_get_version(*tree, key.data, key.len, kept, &version)) == BRAID_OK)
                note(braid_put_if_version(*tree, key.data, key.len, value, &version, &version));
            break;
        case 41: note(braid_put_if_version(*tree, key.data, key.len, value, below(s, 2) ? &version : NULL, NULL)); break;
        case 42: note(braid_merge(*tree, some_text(s), key.data, key.len, value)); break;
        case 43: note(braid_delete_pair(*tree, key.data, key.len, value.data, value.len)); break;
        case 44: note(braid_contains_pair(*tree, key.data, key.len, value.data, value.len)); break;
        case 45: if (!*scan) note(braid_scan_new(*tree, maybe_range, scan)); break;
        case 46: case 47:
            if (note(braid_scan_next(*scan, &key, &second)) == BRAID_OK) use(key), use(second);
            break;
        case 48: {
            braid_row rows[9];
            if (note(braid_scan_fill(*scan, buffer, capacity, rows, below(s, 10), &len, NULL)) == BRAID_OK)
                for (size_t i = 0; i < len; i++) use(rows[i].key), use(rows[i].value);
            break;
        }
        case 49: braid_scan_free(*scan), *scan = NULL; break;
        case 50: if (!*cursor) note(braid_cursor_new(*tree, cursor)); break;
        case 51: case 52:
            note(braid_cursor_move(*cursor, (int32_t)below(s, 7), key.data, key.len));
            if (note(braid_cursor_row(*cursor, &key, &second)) == BRAID_OK) use(key), use(second);
            break;
        case 53: braid_cursor_free(*cursor), *cursor = NULL; break;
        case 54:
            if (!s->writer) note(braid_stream_writer_new(*tree, key.data, key.len, &s->writer));
            note(braid_stream_write(s->writer, value.data, value.len));
            if (below(s, 3) == 0) note(braid_stream_commit(s->writer, durability, &number));
            if (below(s, 5) == 0) braid_stream_writer_free(s->writer), s->writer = NULL;
            break;
        case 55:
            if (!s->reader) note(braid_stream_reader_new(*tree, key.data, key.len, &s->reader));
            if (note(braid_stream_read(s->reader, below(s, 6000), buffer, capacity, &len)) == BRAID_OK) use((braid_slice){buffer, len});
            if (below(s, 5) == 0) braid_stream_reader_free(s->reader), s->reader = NULL;
            break;
        case 56:
            if (!s->watch) note(braid_watch_new(*db, below(s, 2) ? *tree : NULL, below(s, 2) ? value : (braid_slice){NULL, 0}, (braid_slice){NULL, 0}, (uint32_t)below(s, 4), &s->watch));
            if (note(braid_watch_next(s->watch, below(s, 2), &s->changes)) == BRAID_OK) {
                braid_change change;
                for (size_t i = 0; braid_changes_get(s->changes, i, &change) == BRAID_OK; i++) use(change.key), use(change.value), use(change.tree_name);
                use(braid_changes_token(s->changes));
                braid_changes_free(s->changes), s->changes = NULL;
            }
            if (below(s, 10) == 0) braid_watch_stop(s->watch);
            if (below(s, 10) == 0) braid_watch_free(s->watch), s->watch = NULL;
            break;
        case 57: note(braid_options_set(s->options, some_text(s), some_text(s))); break;
        case 58: braid_options_free(s->options), s->options = some_options(); break;
        default:
            switch (below(s, 60)) {
                case 0: note(braid_flush(*db)); break;
                case 1: note(braid_compact(*db)); break;
                case 2: note(braid_verify(*db, &number)); break;
                case 3: note(braid_sync(*db)); break;
                case 4: if (!*kept) note(braid_stats(*db, kept)); break;
                case 5: if (!*kept) note(braid_tree_name(*tree, kept)); break;
                case 6: if (!*scan) note(braid_trees(*db, scan)); break;
                case 7: note(braid_drop_tree(*db, some_text(s))); break;
                case 8: note(braid_rename_tree(*db, some_text(s), some_text(s))); break;
                case 9:
                    snprintf(path, sizeof path, "%s/backup-%d", folder, s->number);
                    note(braid_backup(*db, path, &number));
                    note(braid_backup_verify(path, number));
                    break;
                default: break;
            }
    }
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void *calling(void *argument) {
    struct state *s = argument;
    double until = now() + seconds;
    for (uint64_t i = 0; i % 64 || now() < until; i++) one_call(s), calls[s->number]++;
    /* Databases first: what remains must stay valid. */
    for (int i = 0; i < 2; i++)
        if (s->db[i]) braid_close(s->db[i]);
    for (int i = 0; i < SLOTS; i++) use(braid_value_bytes(s->value[i])), braid_value_free(s->value[i]), braid_scan_free(s->scan[i]), braid_tree_free(s->tree[i]);
    for (int i = 0; i < 2; i++) braid_snapshot_free(s->snapshot[i]), braid_transaction_free(s->transaction[i]), braid_batch_free(s->batch[i]), braid_cursor_free(s->cursor[i]);
    braid_stream_writer_free(s->writer), braid_stream_reader_free(s->reader), braid_watch_free(s->watch), braid_options_free(s->options);
    return NULL;
}

int main(int argc, char **argv) {
    assert(argc >= 2 && strlen(argv[1]) < sizeof folder);
    strcpy(folder, argv[1]);
    if (argc > 2) seconds = atof(argv[2]);
    uint64_t seed = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    static struct state states[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        states[i] = (struct state){.random = seed * 1000003 + (uint64_t)i + 1, .number = i, .options = some_options()};
        assert(pthread_create(&threads[i], NULL, calling, &states[i]) == 0);
    }
    uint64_t sum = 0;
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL), sum += calls[i];
    int kinds = 0;
    for (int i = 0; i < 128; i++) kinds += outcomes[i];
    printf("%llu calls, %d kinds of results, seed %llu\n", (unsigned long long)sum, kinds, (unsigned long long)seed);
    return 0;
}
