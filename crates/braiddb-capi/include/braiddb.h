/*
 * BraidDB: an embedded, ordered, transactional key-value store.
 *
 * Generated from the Rust sources of libbraiddb: do not edit.
 *
 * Rules for callers:
 *
 * - A call that can fail returns a `braid_code`: 0 and positive are no failures, negative are
 *   failures, and `braid_error_message` then describes the last one of the thread.
 * - Keys and values are any bytes: keys of up to 64 KiB, values of up to 4 GiB - 1. Names and
 *   messages are UTF-8 and end with a NUL. Calls copy what they are given.
 * - Pointers are valid for the stated length, or NULL where the call says so; a NULL elsewhere is
 *   refused with BRAID_INVALID_ARGUMENT. Out-parameters of handles are set to NULL on failure.
 * - Each handle is freed once, by the function of its type, and not used afterwards. Freeing NULL
 *   does nothing. Handles may be freed in any order, also after `braid_close`: handles of a closed
 *   database stay valid, and their calls fail with BRAID_CLOSED.
 * - Any thread may use any handle, and several threads one: calls on a scan, cursor, batch, stream,
 *   watcher or transaction, and on the trees of a transaction, wait for each other. Do not free a
 *   handle that another thread uses, and do not use bytes that the other thread's call invalidates.
 * - Callbacks must return: no longjmp, no C++ exception. The type of each states the threads that call
 *   it, and the calls that are allowed in it:
 *       braid_merge_fn    any thread, several at once; only braid_merge_set
 *       braid_free_fn     any thread; none
 *       braid_commit_fn   the committing thread, or one of the database; only those that read
 *       braid_watch_fn    the thread in braid_watch_run; all, but with its watcher only
 *                         braid_watch_stop
 * - The child of a fork must not use handles of its parent, nor open databases if the parent had one open.
 */


#ifndef BRAIDDB_H
#define BRAIDDB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The range begins after `start`.
#define BRAID_START_EXCLUSIVE 1

// The range includes `end`.
#define BRAID_END_INCLUSIVE 2

// `start` is a prefix: the range has all keys that begin with it; `end` must be NULL.
#define BRAID_PREFIX 4

// A scan goes from the end to the start.
#define BRAID_REVERSE 8

// Watch from the oldest commit that the log still has, not from now on.
#define BRAID_WATCH_FROM_OLDEST 1

// Also return commits before they are durable: a crash of the system may undo them.
#define BRAID_WATCH_UNSYNCED 2

// Result of a call: 0 and positive are no failures, negative are failures. After a failure
// `braid_error_message` describes it.
enum braid_code
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Done. 
  BRAID_OK = 0,
  // The key, or what a condition expects, is not there. Nothing was changed. 
  BRAID_NOT_FOUND = 1,
  // No more rows or changes. 
  BRAID_END = 2,
  // The time is up. 
  BRAID_TIMEOUT = 3,
  // An argument is impossible. Nothing was written. 
  BRAID_INVALID_ARGUMENT = -1,
  // The database is closed. 
  BRAID_CLOSED = -2,
  // The transaction conflicts with a later commit. Nothing was written: begin it again. 
  BRAID_CONFLICT = -3,
  // A file is damaged. 
  BRAID_CORRUPTION = -4,
  // The system refused an operation on a file. 
  BRAID_IO = -5,
  // The disk is full. The write was not applied; writes resume with space. 
  BRAID_DISK_FULL = -6,
  // Another handle or process has the database, backup, archive or bucket in use. 
  BRAID_LOCKED = -7,
  // The database takes no writes. 
  BRAID_READ_ONLY = -8,
  // The commit may or may not be there after the next open: its sync failed. 
  BRAID_OUTCOME_UNKNOWN = -9,
  // The named tree, database, file or function does not exist. 
  BRAID_NO_SUCH = -10,
  // It exists already. 
  BRAID_EXISTS = -11,
  // The transaction needs more memory than allowed. 
  BRAID_TOO_LARGE = -12,
  // A merge function failed on the key's operands. 
  BRAID_MERGE_FAILED = -13,
  // The snapshot, cursor, scan or transaction was in use for too long. 
  BRAID_EXPIRED = -14,
  // An exclusive transaction stayed open for too long. Nothing was written. 
  BRAID_EXCLUSIVE_OPEN = -15,
  // The log no longer has the commits that the watcher needs. 
  BRAID_WATCH_TOO_OLD = -16,
  // A callback of the program ended the call. 
  BRAID_ABORTED = -17,
  // The file or option needs another build. 
  BRAID_UNSUPPORTED = -18,
  // Another process changes the database too fast for this read. 
  BRAID_TOO_BUSY = -19,
  // The buffer is too small. 
  BRAID_BUFFER_TOO_SMALL = -20,
  // The transaction was committed or rolled back before. 
  BRAID_TRANSACTION_ENDED = -21,
  // A fault of BraidDB, caught at this boundary. Close the database, and report it. 
  BRAID_PANIC = -22,
  // Another failure. 
  BRAID_OTHER = -99,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum braid_code braid_code;
#else
typedef int32_t braid_code;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// When a commit counts as done.
enum braid_durability
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // As the database's option "durability" says. 
  BRAID_DEFAULT = 0,
  // When it survives a power failure. 
  BRAID_SYNC = 1,
  // When it survives the end of the process. A crash of the system may lose the last commits. 
  BRAID_BUFFERED = 2,
  // When it is in memory. `braid_flush` makes it durable; a crash of the process may lose the last commits. 
  BRAID_MEMORY = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum braid_durability braid_durability;
#else
typedef int32_t braid_durability;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Isolation of a transaction.
enum braid_isolation
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Runs beside others. Its commit fails with `BRAID_CONFLICT` if commits since its begin changed what it read. 
  BRAID_OPTIMISTIC = 0,
  // Excludes all other writes until its end. No conflicts. 
  BRAID_EXCLUSIVE = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum braid_isolation braid_isolation;
#else
typedef int32_t braid_isolation;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// A move of a cursor.
enum braid_move
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // To the first row. 
  BRAID_FIRST = 0,
  // To the last row. 
  BRAID_LAST = 1,
  // To the next row; to the first one if the cursor is new. 
  BRAID_NEXT = 2,
  // To the previous row; to the last one if the cursor is new. 
  BRAID_PREV = 3,
  // To the first row with a key at or after `key`. 
  BRAID_SEEK = 4,
  // To the last row with a key before `key`. 
  BRAID_SEEK_BEFORE = 5,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum braid_move braid_move;
#else
typedef int32_t braid_move;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Kind of a change.
enum braid_change_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // `key` was set to `value`. 
  BRAID_CHANGE_PUT = 0,
  // `key` was set to a value written as a stream: read it. 
  BRAID_CHANGE_PUT_STREAM = 1,
  // `key` was deleted, with all its values. 
  BRAID_CHANGE_DELETE = 2,
  // The keys from `key` up to `value` (exclusive; `data` NULL: to the end) were deleted. 
  BRAID_CHANGE_DELETE_RANGE = 3,
  // Merge functions were applied to `key`: read it. 
  BRAID_CHANGE_MERGE = 4,
  // The pair was added. 
  BRAID_CHANGE_ADD = 5,
  // The pair was deleted. 
  BRAID_CHANGE_DELETE_PAIR = 6,
  // The tree was created. 
  BRAID_CHANGE_CREATE_TREE = 7,
  // The tree was dropped. 
  BRAID_CHANGE_DROP_TREE = 8,
  // Options or the name of a tree, or the application's cursor. 
  BRAID_CHANGE_OTHER = 9,
  // Changes that the log lacks, as of a bulk load. Read the tree again from a new snapshot, or all trees if `tree_id` is 0. 
  BRAID_CHANGE_GAP = 10,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum braid_change_kind braid_change_kind;
#else
typedef int32_t braid_change_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Writes that one commit applies together.
typedef struct braid_batch braid_batch;

// The changes of one commit.
typedef struct braid_changes braid_changes;

// A position in a tree: of the moment of `braid_cursor_new`, or of the tree's snapshot or
// transaction.
typedef struct braid_cursor braid_cursor;

// An open database.
typedef struct braid_db braid_db;

// Takes the result of a merge function.
typedef struct braid_merge_result braid_merge_result;

// Options of a database or of a tree, by name: see `braid_options_set`.
typedef struct braid_options braid_options;

// Rows of a range, in order.
typedef struct braid_scan braid_scan;

// The database as of one commit.
typedef struct braid_snapshot braid_snapshot;

// Reads a value in pieces. It stays the value of the moment it was opened.
typedef struct braid_stream_reader braid_stream_reader;

// Writes a value of up to 4 GiB - 1 in pieces.
typedef struct braid_stream_writer braid_stream_writer;

// A serializable transaction.
typedef struct braid_transaction braid_transaction;

// A tree: of the newest state (`braid_tree_open`), of a snapshot, or of a transaction. All calls
// work for each, unless they say otherwise. It may be used by several threads.
typedef struct braid_tree braid_tree;

// A value that a call returned. It stays valid, also after changes of its key and after its
// database was closed, until `braid_value_free`.
typedef struct braid_value braid_value;

// A watcher of commits, in order.
typedef struct braid_watch braid_watch;

// Bytes of the program or of BraidDB. A null `data` means absent where a function says so, else
// empty.
typedef struct braid_slice {
  const void *data;
  // In bytes. 
  size_t len;
} braid_slice;

// A range of keys: from `start` on, up to but without `end`, unless `flags` say otherwise. A
// `data` of NULL is no bound. A NULL range has all keys.
typedef struct braid_range {
  struct braid_slice start;
  struct braid_slice end;
  uint32_t flags;
} braid_range;

// Called once when a commit is durable (`BRAID_OK` and the commit's number) or has failed, by the
// committing thread, one that closes the database, or one of the database's own. The failure's
// message is that of `braid_error_message` during the call. Calls that read are allowed in it;
// calls that write, wait or close are not: pass such work to another thread.
typedef void (*braid_commit_fn)(void *context, int32_t code, uint64_t sequence);

// A version of a record as text: a strong HTTP ETag, with a NUL at its end.
typedef struct braid_version_tag {
  char text[36];
} braid_version_tag;

// Applies one operand to a key's value (`data` NULL: absent), and passes the new value to
// `braid_merge_set`. Returns 0, or another number to fail: then reads of the key fail with
// `BRAID_MERGE_FAILED`. It must give the same result each time. Any thread calls it, also those of
// the database, and several at once. It must call nothing of this header but `braid_merge_set`.
typedef int32_t (*braid_merge_fn)(void *context,
                                  struct braid_slice key,
                                  struct braid_slice value,
                                  struct braid_slice operand,
                                  struct braid_merge_result *result);

// Frees the context of a callback. The thread calls it that frees the last user of the context:
// one of the program or of the database. It must call nothing of this header.
typedef void (*braid_free_fn)(void *context);

// A row that `braid_scan_fill` copied.
typedef struct braid_row {
  struct braid_slice key;
  struct braid_slice value;
} braid_row;

// Called for each commit: return 0 to go on. Another number ends `braid_watch_run`, whose thread
// calls it. `changes` is valid until it returns, and must not be freed. All calls are allowed in
// it, but with its watcher only `braid_watch_stop`.
typedef int32_t (*braid_watch_fn)(void *context, const struct braid_changes *changes);

// A change. The bytes are valid until the `braid_changes` is freed.
typedef struct braid_change {
  // A `braid_change_kind`. 
  int32_t kind;
  // The tree's number, unique forever; 0 if the change is of no tree. 
  uint32_t tree_id;
  // Its name; `data` is NULL if it is unknown, since the tree was dropped. 
  struct braid_slice tree_name;
  struct braid_slice key;
  struct braid_slice value;
  // Milliseconds since 1970; 0 if never. 
  uint64_t expires_ms;
} braid_change;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns an empty batch.
int32_t braid_batch_new(const struct braid_db *db, struct braid_batch **batch);

// Sets the value of `key`, or adds the pair to a tree of many values per key.
int32_t braid_batch_put(struct braid_batch *batch,
                        const struct braid_tree *tree,
                        const void *key,
                        size_t key_len,
                        const void *value,
                        size_t value_len);

// Sets the value of `key`, which expires after `ttl_ms` from this call on; at once if 0. Not for
// trees of many values per key.
int32_t braid_batch_put_ttl(struct braid_batch *batch,
                            const struct braid_tree *tree,
                            const void *key,
                            size_t key_len,
                            const void *value,
                            size_t value_len,
                            uint64_t ttl_ms);

// Deletes `key`, with all its values in a tree of many values per key.
int32_t braid_batch_delete(struct braid_batch *batch,
                           const struct braid_tree *tree,
                           const void *key,
                           size_t key_len);

// Deletes one pair from a tree of many values per key.
int32_t braid_batch_delete_pair(struct braid_batch *batch,
                                const struct braid_tree *tree,
                                const void *key,
                                size_t key_len,
                                const void *value,
                                size_t value_len);

// Deletes the keys of a range, NULL for all.
int32_t braid_batch_delete_range(struct braid_batch *batch,
                                 const struct braid_tree *tree,
                                 const struct braid_range *range);

// Applies a merge function: see `braid_merge`.
int32_t braid_batch_merge(struct braid_batch *batch,
                          const struct braid_tree *tree,
                          const char *function,
                          const void *key,
                          size_t key_len,
                          struct braid_slice operand);

// Returns the number of writes in the batch; 0 for NULL.
size_t braid_batch_len(const struct braid_batch *batch);

// Empties the batch.
int32_t braid_batch_clear(struct braid_batch *batch);

// Commits the batch, and empties it, also if this fails. `sequence`, which may be NULL, takes the
// number of the commit.
int32_t braid_batch_commit(struct braid_batch *batch, int32_t durability, uint64_t *sequence);

// Commits the batch, and empties it. Calls `done` once when the commit is durable, or has failed,
// also when this call fails: see `braid_commit_fn`. A `done` of NULL is refused, and changes
// nothing.
int32_t braid_batch_commit_async(struct braid_batch *batch, braid_commit_fn done, void *context);

// Frees a batch.
void braid_batch_free(struct braid_batch *batch);

// Returns the version of the library, as "0.1.0".
const char *braid_version(void);

// Returns the message of this thread's last failed call: valid until its next failed call, never
// NULL.
const char *braid_error_message(void);

// Returns the name of a `braid_code`, as "BRAID_CONFLICT"; "unknown" for other numbers.
const char *braid_code_name(int32_t code);

// Sets the value of `key` to `wanted` if it is `expected`. A `data` of NULL means absent, for
// both. `BRAID_NOT_FOUND` if the value is another one. Not for trees of snapshots and
// transactions.
int32_t braid_compare_and_set(const struct braid_tree *tree,
                              const void *key,
                              size_t key_len,
                              struct braid_slice expected,
                              struct braid_slice wanted);

// Returns the value of `key` and its version. Not for trees of transactions.
int32_t braid_get_version(const struct braid_tree *tree,
                          const void *key,
                          size_t key_len,
                          struct braid_value **value,
                          struct braid_version_tag *version);

// Sets the value of `key` if its version is `expected`, or deletes it if `wanted.data` is NULL. An
// `expected` of NULL means absent. `BRAID_NOT_FOUND` if the version is another one, else
// `version`, which may be NULL, takes the new one. Not for trees of snapshots and transactions.
int32_t braid_put_if_version(const struct braid_tree *tree,
                             const void *key,
                             size_t key_len,
                             struct braid_slice wanted,
                             const struct braid_version_tag *expected,
                             struct braid_version_tag *version);

// Returns a cursor, on no row yet. In a transaction, the keys that its moves pass count as read.
int32_t braid_cursor_new(const struct braid_tree *tree, struct braid_cursor **cursor);

// Moves the cursor: `how` is a `braid_move`, of which seeks take `key`. `BRAID_END` if there is no
// such row. After a failed move it is on no row, and steps fail again: seek.
int32_t braid_cursor_move(struct braid_cursor *cursor,
                          int32_t how,
                          const void *key,
                          size_t key_len);

// Returns the cursor's row: valid until its next move. Either pointer may be NULL. `BRAID_END` if
// it is on none. After a failure of the value (`BRAID_MERGE_FAILED`, `BRAID_CORRUPTION`) moves go
// on.
int32_t braid_cursor_row(const struct braid_cursor *cursor,
                         struct braid_slice *key,
                         struct braid_slice *value);

// Frees a cursor.
void braid_cursor_free(struct braid_cursor *cursor);

// Opens or creates a database. `options` may be NULL.
int32_t braid_open(const char *path, const struct braid_options *options, struct braid_db **db);

// Opens an empty database in memory, without files. `options` may be NULL.
int32_t braid_open_in_memory(const struct braid_options *options, struct braid_db **db);

// Closes a database, and frees its handle, also if this fails: makes its commits durable, ends its
// work and releases its lock. Other handles of the database stay valid until they are freed: their
// calls fail with `BRAID_CLOSED`. A failure means that background work had failed.
int32_t braid_close(struct braid_db *db);

// Makes all earlier commits durable, with one device flush.
int32_t braid_sync(const struct braid_db *db);

// Writes the newest commits from memory to sorted files, and makes them durable.
int32_t braid_flush(const struct braid_db *db);

// Merges all files that hold garbage, and so removes it. Takes time in proportion to their size.
int32_t braid_compact(const struct braid_db *db);

// Reads every byte and compares its checksum: `BRAID_CORRUPTION` with the first damage.
// `problems`, which may be NULL, takes the number of damaged places.
int32_t braid_verify(const struct braid_db *db, uint64_t *problems);

// Returns statistics as lines of a name, a space and a number. Names are those of Rust's
// `braiddb::stats::Stats`. Of commits that took long, `slow_commits_CAUSE` has the number and
// `slow_commit_us_CAUSE` the microseconds of that part; a cause is `sync`, for example.
int32_t braid_stats(const struct braid_db *db, struct braid_value **statistics);

// Lists the trees, by name: keys of the scan are names, values "multi" or empty.
int32_t braid_trees(const struct braid_db *db, struct braid_scan **names);

// Drops a tree with all its records.
int32_t braid_drop_tree(const struct braid_db *db, const char *name);

// Renames a tree.
int32_t braid_rename_tree(const struct braid_db *db, const char *from, const char *to);

// Adds a backup of the database to a directory of backups, which share unchanged files. `id`,
// which may be NULL, takes its number.
int32_t braid_backup(const struct braid_db *db, const char *directory, uint64_t *id);

// Checks the backups in a directory: that of number `id`, or all if 0.
int32_t braid_backup_verify(const char *directory, uint64_t id);

// Makes a database in `path`, which must not exist or be empty, from the backup of number `id`, or
// from the newest if 0. `options` may be NULL.
int32_t braid_restore(const char *directory,
                      uint64_t id,
                      const char *path,
                      const struct braid_options *options);

// Sets the new value, in a merge function and its thread. It copies the bytes; the last call
// counts.
int32_t braid_merge_set(struct braid_merge_result *result, const void *value, size_t len);

// Returns a list of options, empty, or NULL without memory. Free it with `braid_options_free`; the
// calls that take it copy it.
struct braid_options *braid_options_new(void);

// Sets an option. Unknown names and impossible values fail here.
//
// Of a database: "memory" (a size, as "256MiB"), "durability" ("sync", "buffered", "memory"),
// "create", "create_parents", "read_only", "read_in_place", "direct_io" ("true" or "false"),
// "open_files_max", "background_threads" (numbers), "scrub" (bytes a second), "log_retention",
// "disk_reserve" (sizes), "log_retention_age", "reader_age_warn", "reader_age_max",
// "exclusive_wait_max", "slow_commit" (times, as "30s"), "log_archive" (a directory).
//
// Of a tree: "ttl" (a time), "multi" ("true": many values per key).
//
// Of both: "compression" ("none", "lz4", "zstd"), "blob_threshold" (a size).
int32_t braid_options_set(struct braid_options *options, const char *name, const char *value);

// Adds a merge function of the program, for databases opened with these options. `context` goes to
// each call of `apply`; `free_context`, if not NULL, is called with it once when neither the
// options nor a database need it any more, and never if this call fails.
int32_t braid_options_add_merge(struct braid_options *options,
                                const char *name,
                                braid_merge_fn apply,
                                void *context,
                                braid_free_fn free_context);

// Frees options.
void braid_options_free(struct braid_options *options);

// Begins a scan of a range of keys, NULL for all. Its rows are those of the tree at this moment,
// or of its snapshot or transaction. Of a tree of many values per key, each pair is a row.
//
// After a failure of one value (`BRAID_MERGE_FAILED`, `BRAID_CORRUPTION`) the scan continues
// behind it. Every other failure is the result of all later calls: begin another scan.
//
// In a transaction, all keys from the bound where the scan begins to the last row that a call
// returned count as read, and after `BRAID_END` the whole range. So does a row that did not fit in
// a buffer. Later writes of the transaction appear ahead of the position. `braid_scan_next` seeks
// each row there: `braid_scan_fill` is faster.
int32_t braid_scan_new(const struct braid_tree *tree,
                       const struct braid_range *range,
                       struct braid_scan **scan);

// Moves to the next row. Its key and value are valid until the next call with the scan; either
// pointer may be NULL. `BRAID_END` after the last row.
int32_t braid_scan_next(struct braid_scan *scan,
                        struct braid_slice *key,
                        struct braid_slice *value);

// Copies the next rows, at most `rows_max` and as far as they fit, to `buffer`, and their places
// in it to `rows`. `count` takes their number. `BRAID_END` with a count of 0 after the last row;
// `BRAID_BUFFER_TOO_SMALL` if the next row alone does not fit: then `needed`, which may be NULL,
// takes its size, and the scan stays before it. A failure behind rows is the result of the next
// call.
int32_t braid_scan_fill(struct braid_scan *scan,
                        void *buffer,
                        size_t capacity,
                        struct braid_row *rows,
                        size_t rows_max,
                        size_t *count,
                        size_t *needed);

// Frees a scan.
void braid_scan_free(struct braid_scan *scan);

// Takes a snapshot. It retains old versions until it and its trees are freed.
int32_t braid_snapshot_new(const struct braid_db *db, struct braid_snapshot **snapshot);

// Returns the number of the snapshot's last commit; 0 for NULL.
uint64_t braid_snapshot_sequence(const struct braid_snapshot *snapshot);

// Returns a handle that reads `tree` in the snapshot. Writes through it are refused.
int32_t braid_snapshot_tree(const struct braid_snapshot *snapshot,
                            const struct braid_tree *tree,
                            struct braid_tree **in_snapshot);

// Frees a snapshot. Its trees stay valid.
void braid_snapshot_free(struct braid_snapshot *snapshot);

// Begins a value of `key`. It is visible after `braid_stream_commit`. Not for trees of snapshots
// and transactions.
int32_t braid_stream_writer_new(const struct braid_tree *tree,
                                const void *key,
                                size_t key_len,
                                struct braid_stream_writer **writer);

// Appends bytes. After a failure, free the writer, and begin again.
int32_t braid_stream_write(struct braid_stream_writer *writer, const void *data, size_t len);

// Commits the value. The writer takes nothing more, also if this fails.
int32_t braid_stream_commit(struct braid_stream_writer *writer,
                            int32_t durability,
                            uint64_t *sequence);

// Frees a writer; without a commit, its value is discarded.
void braid_stream_writer_free(struct braid_stream_writer *writer);

// Opens the value of `key` for reading in pieces; any value, however it was written.
// `BRAID_NOT_FOUND` and NULL if it is absent.
int32_t braid_stream_reader_new(const struct braid_tree *tree,
                                const void *key,
                                size_t key_len,
                                struct braid_stream_reader **reader);

// Returns the value's length in bytes; 0 for NULL.
uint64_t braid_stream_len(const struct braid_stream_reader *reader);

// Copies up to `capacity` bytes from `offset` on to `buffer`. `count` takes their number, which is
// less only at the end; `BRAID_END` at or after it.
int32_t braid_stream_read(struct braid_stream_reader *reader,
                          uint64_t offset,
                          void *buffer,
                          size_t capacity,
                          size_t *count);

// Frees a reader.
void braid_stream_reader_free(struct braid_stream_reader *reader);

// Begins a transaction; `isolation` is a `braid_isolation`.
int32_t braid_begin(const struct braid_db *db,
                    int32_t isolation,
                    struct braid_transaction **transaction);

// Returns a handle that reads and writes `tree` in the transaction: it sees the transaction's
// snapshot and its own writes.
int32_t braid_transaction_tree(const struct braid_transaction *transaction,
                               const struct braid_tree *tree,
                               struct braid_tree **in_transaction);

// Commits, and ends the transaction, also if this fails. `sequence`, which may be NULL, takes the
// number of the commit.
int32_t braid_commit(struct braid_transaction *transaction, int32_t durability, uint64_t *sequence);

// Commits, and ends the transaction. Calls `done` once when the commit is durable, or has failed,
// also when this call fails: see `braid_commit_fn`. A `done` of NULL is refused, and changes
// nothing.
int32_t braid_commit_async(struct braid_transaction *transaction,
                           braid_commit_fn done,
                           void *context);

// Ends the transaction without its writes.
int32_t braid_rollback(struct braid_transaction *transaction);

// Marks the transaction's present writes. `savepoint` takes a number for `braid_rollback_to`,
// never 0 and never given twice.
int32_t braid_savepoint(struct braid_transaction *transaction, uint64_t *savepoint);

// Undoes the writes since a savepoint. Later savepoints end, and are refused from then on; this
// one remains. Reads stay recorded.
int32_t braid_rollback_to(struct braid_transaction *transaction, uint64_t savepoint);

// Frees a transaction: rolls it back if it is open. Its trees stay valid, but fail with
// `BRAID_TRANSACTION_ENDED`.
void braid_transaction_free(struct braid_transaction *transaction);

// Opens a tree, and creates it if it is absent. `options` may be NULL; an existing
// tree must have these options.
int32_t braid_tree_open(const struct braid_db *db,
                        const char *name,
                        const struct braid_options *options,
                        struct braid_tree **tree);

// Returns the tree's present name.
int32_t braid_tree_name(const struct braid_tree *tree, struct braid_value **name);

// Frees a handle of a tree.
void braid_tree_free(struct braid_tree *tree);

// Returns the value of `key`: `BRAID_NOT_FOUND` and NULL if it is absent.
int32_t braid_get(const struct braid_tree *tree,
                  const void *key,
                  size_t key_len,
                  struct braid_value **value);

// Copies the value of `key` to `buffer`. `value_len` takes its length, also if it does not fit:
// then nothing is copied, and the result is `BRAID_BUFFER_TOO_SMALL`.
int32_t braid_get_into(const struct braid_tree *tree,
                       const void *key,
                       size_t key_len,
                       void *buffer,
                       size_t capacity,
                       size_t *value_len);

// Reads `count` keys at once, of one state of the tree, and copies their values to `buffer`.
// `values` takes their places in it; `data` is NULL for an absent key. `needed`, which may be
// NULL, takes the bytes of all values. If they do not fit, the result is `BRAID_BUFFER_TOO_SMALL`,
// and `values` has those that did; the others have `data` NULL and their length.
int32_t braid_get_many(const struct braid_tree *tree,
                       const struct braid_slice *keys,
                       size_t count,
                       void *buffer,
                       size_t capacity,
                       struct braid_slice *values,
                       size_t *needed);

// `BRAID_OK` if the tree has `key`, else `BRAID_NOT_FOUND`.
int32_t braid_contains(const struct braid_tree *tree, const void *key, size_t key_len);

// Sets the value of `key`, or adds the pair to a tree of many values per key.
int32_t braid_put(const struct braid_tree *tree,
                  const void *key,
                  size_t key_len,
                  const void *value,
                  size_t value_len);

// Sets the value of `key`, which expires after `ttl_ms`; at once if 0. Not for trees of many
// values per key.
int32_t braid_put_ttl(const struct braid_tree *tree,
                      const void *key,
                      size_t key_len,
                      const void *value,
                      size_t value_len,
                      uint64_t ttl_ms);

// Returns the value of `key`, and when it expires, in milliseconds since 1970; 0 if never.
int32_t braid_get_expiry(const struct braid_tree *tree,
                         const void *key,
                         size_t key_len,
                         struct braid_value **value,
                         uint64_t *expires_ms);

// Deletes `key`, which may be absent, with all its values in a tree of many values per key.
int32_t braid_delete(const struct braid_tree *tree, const void *key, size_t key_len);

// Deletes the keys of a range, NULL for all.
int32_t braid_delete_range(const struct braid_tree *tree, const struct braid_range *range);

// Counts the keys of a range, or the pairs in a tree of many values per key, exactly. NULL is all.
int32_t braid_count(const struct braid_tree *tree,
                    const struct braid_range *range,
                    uint64_t *count);

// Removes the first row, or the last one with `last`, and returns it: `BRAID_NOT_FOUND` if the
// tree is empty. Of a tree of many values per key, a pair. Not for trees of snapshots and
// transactions.
int32_t braid_pop(const struct braid_tree *tree,
                  bool last,
                  struct braid_value **key,
                  struct braid_value **value);

// Applies a merge function to the value of `key`: one of the program's
// (`braid_options_add_merge`), or "add" (8 bytes, little-endian), "max", "min", "append", "union",
// "json_merge_patch".
int32_t braid_merge(const struct braid_tree *tree,
                    const char *function,
                    const void *key,
                    size_t key_len,
                    struct braid_slice operand);

// Deletes one pair of a tree of many values per key. It may be absent.
int32_t braid_delete_pair(const struct braid_tree *tree,
                          const void *key,
                          size_t key_len,
                          const void *value,
                          size_t value_len);

// `BRAID_OK` if a tree of many values per key has this pair, else `BRAID_NOT_FOUND`.
int32_t braid_contains_pair(const struct braid_tree *tree,
                            const void *key,
                            size_t key_len,
                            const void *value,
                            size_t value_len);

// Returns the bytes of a value, without a copy: valid until it is freed. Of NULL, `data` is NULL.
struct braid_slice braid_value_bytes(const struct braid_value *value);

// Frees a value.
void braid_value_free(struct braid_value *value);

// Begins to watch commits. A `tree` of NULL is all trees. `prefix` restricts the keys of a tree;
// `data` NULL is all. `token`, if `data` is not NULL, continues after the changes of an earlier
// watcher (`braid_changes_token`). `flags` are of `BRAID_WATCH_`.
int32_t braid_watch_new(const struct braid_db *db,
                        const struct braid_tree *tree,
                        struct braid_slice prefix,
                        struct braid_slice token,
                        uint32_t flags,
                        struct braid_watch **watch);

// Waits for the next commit with matching changes, at most `timeout_ms` (UINT64_MAX: forever).
// `BRAID_TIMEOUT` without one, `BRAID_END` once the watcher is stopped.
int32_t braid_watch_next(struct braid_watch *watch,
                         uint64_t timeout_ms,
                         struct braid_changes **changes);

// Calls `each` with every commit, in this thread, until it returns another number than 0
// (`BRAID_ABORTED`), or the watcher is stopped by another thread (`BRAID_END`).
int32_t braid_watch_run(struct braid_watch *watch, braid_watch_fn each, void *context);

// Stops a watcher: all waiting and later calls end. May be called while another thread waits.
int32_t braid_watch_stop(const struct braid_watch *watch);

// Frees a watcher. No other thread may wait in it: stop it first.
void braid_watch_free(struct braid_watch *watch);

// Returns the number of changes; 0 for NULL.
size_t braid_changes_count(const struct braid_changes *changes);

// Returns the number of the commit; 0 for NULL.
uint64_t braid_changes_sequence(const struct braid_changes *changes);

// Returns the token to continue after this commit: store it with the effects of the changes.
struct braid_slice braid_changes_token(const struct braid_changes *changes);

// Returns the change of number `index`, from 0 on.
int32_t braid_changes_get(const struct braid_changes *changes,
                          size_t index,
                          struct braid_change *change);

// Frees the changes of a commit.
void braid_changes_free(struct braid_changes *changes);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* BRAIDDB_H */
