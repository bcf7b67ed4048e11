// BraidDB for C++17: a header-only layer over braiddb.h with owners, exceptions and ranges.
//
//   braiddb::Db db = braiddb::Db::open("music.db");
//   braiddb::Tree albums = db.tree("albums");
//   albums.put("1", "Ten");
//   for (auto [key, value] : albums.scan()) { ... }   // string_views, valid until the next row
//
// Keys and values are std::string_view, or std::span<const std::byte> with C++20. Failures throw
// braiddb::Error. Objects are movable; the destructors free their handles.
#ifndef BRAIDDB_HPP
#define BRAIDDB_HPP

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>
#if __cplusplus >= 202002L
#include <cstddef>
#include <span>
#endif

#include "braiddb.h"

namespace braiddb {

// A failed call: its code, and the library's message as what().
class Error : public std::runtime_error {
public:
    explicit Error(std::int32_t code) : Error(code, braid_error_message()) {}
    Error(std::int32_t code, const char *message) : std::runtime_error(message), code_(code) {}
    std::int32_t code() const noexcept { return code_; }
    bool is_conflict() const noexcept { return code_ == BRAID_CONFLICT; }

private:
    std::int32_t code_;
};

// Returns the codes that are no failures.
inline std::int32_t check(std::int32_t code) {
    if (code < 0) throw Error(code);
    return code;
}

// Bytes of a key or a value.
class Bytes {
public:
    Bytes(std::string_view text) : data_(text.data()), len_(text.size()) {}
    Bytes(const std::string &text) : data_(text.data()), len_(text.size()) {}
    Bytes(const char *text) : Bytes(std::string_view(text)) {}
    Bytes(const void *data, std::size_t len) : data_(data), len_(len) {}
#if __cplusplus >= 202002L
    Bytes(std::span<const std::byte> bytes) : data_(bytes.data()), len_(bytes.size()) {}
    Bytes(std::span<const unsigned char> bytes) : data_(bytes.data()), len_(bytes.size()) {}
#endif
    const void *data() const noexcept { return data_; }
    std::size_t size() const noexcept { return len_; }
    // Present even if empty: NULL means absent in C.
    braid_slice slice() const noexcept { return {data_ ? data_ : static_cast<const void *>(""), len_}; }

private:
    const void *data_;
    std::size_t len_;
};

inline std::string_view view(braid_slice bytes) noexcept {
    return bytes.data ? std::string_view(static_cast<const char *>(bytes.data), bytes.len) : std::string_view();
}

namespace detail {
template <class T, void (*Free)(T *)>
struct Deleter {
    void operator()(T *handle) const noexcept { Free(handle); }
};
template <class T, void (*Free)(T *)>
using Owned = std::unique_ptr<T, Deleter<T, Free>>;

inline void close(braid_db *db) { braid_close(db); }
// A time of 0 or less has passed: the value expires at once.
inline std::uint64_t ms(std::chrono::milliseconds time) {
    return time.count() > 0 ? static_cast<std::uint64_t>(time.count()) : 0;
}
}  // namespace detail

// A value that stays valid as long as this object, also after changes of its key.
class Value {
public:
    explicit Value(braid_value *value) : value_(value) {}
    std::string_view view() const noexcept { return braiddb::view(braid_value_bytes(value_.get())); }
    operator std::string_view() const noexcept { return view(); }
    std::string str() const { return std::string(view()); }
#if __cplusplus >= 202002L
    std::span<const std::byte> bytes() const noexcept {
        auto text = view();
        return {reinterpret_cast<const std::byte *>(text.data()), text.size()};
    }
#endif
    friend bool operator==(const Value &value, std::string_view text) noexcept { return value.view() == text; }
    friend bool operator!=(const Value &value, std::string_view text) noexcept { return value.view() != text; }

private:
    detail::Owned<braid_value, braid_value_free> value_;
};

// A range of keys: Range().from("a").until("b"), Range::prefix("user/"), Range().reverse().
class Range {
public:
    static Range prefix(Bytes prefix) {
        Range range;
        range.start_ = copy(prefix);
        range.flags_ = BRAID_PREFIX;
        return range;
    }
    Range &from(Bytes key) { start_ = copy(key); return *this; }
    Range &after(Bytes key) { start_ = copy(key); flags_ |= BRAID_START_EXCLUSIVE; return *this; }
    Range &until(Bytes key) { end_ = copy(key); return *this; }
    Range &through(Bytes key) { end_ = copy(key); flags_ |= BRAID_END_INCLUSIVE; return *this; }
    Range &reverse() { flags_ |= BRAID_REVERSE; return *this; }
    braid_range raw() const noexcept { return {slice(start_), slice(end_), flags_}; }

private:
    static std::string copy(Bytes key) { return {static_cast<const char *>(key.data()), key.size()}; }
    static braid_slice slice(const std::optional<std::string> &key) noexcept {
        return key ? braid_slice{key->data(), key->size()} : braid_slice{nullptr, 0};
    }
    std::optional<std::string> start_, end_;
    std::uint32_t flags_ = 0;
};

// Options by name: Options{{"memory", "256MiB"}}.
class Options {
public:
    Options() : options_(braid_options_new()) {}
    Options(std::initializer_list<std::pair<const char *, const char *>> options) : Options() {
        for (auto &[name, value] : options) set(name, value);
    }
    Options &set(const char *name, const char *value) {
        check(braid_options_set(options_.get(), name, value));
        return *this;
    }
    // Returns the new value of a key; an exception makes the merge fail. Any thread calls it, several
    // at once. It must not call the database.
    using Merge = std::function<std::string(std::string_view key, std::optional<std::string_view> value,
                                            std::string_view operand)>;
    Options &merge(const char *name, Merge function) {
        auto context = std::make_unique<Merge>(std::move(function));
        check(braid_options_add_merge(options_.get(), name, apply, context.get(), drop));
        (void)context.release();  // `drop` frees it.
        return *this;
    }
    const braid_options *raw() const noexcept { return options_.get(); }

private:
    static std::int32_t apply(void *context, braid_slice key, braid_slice value, braid_slice operand,
                              braid_merge_result *result) {
        try {
            auto old = value.data ? std::optional(view(value)) : std::nullopt;
            std::string made = (*static_cast<Merge *>(context))(view(key), old, view(operand));
            return braid_merge_set(result, made.data(), made.size());
        } catch (...) {
            return BRAID_ABORTED;
        }
    }
    static void drop(void *context) { delete static_cast<Merge *>(context); }
    detail::Owned<braid_options, braid_options_free> options_;
};

// A row of a scan: valid until the next one.
struct Row {
    std::string_view key, value;
};

// Rows of a range, read many at once. Movable; one pass.
class Scan {
public:
    Scan(braid_scan *scan, std::size_t buffer_bytes) : scan_(scan), buffer_(buffer_bytes), rows_(256) {}

    class iterator {
    public:
        using iterator_category = std::input_iterator_tag;
        using value_type = Row;
        using difference_type = std::ptrdiff_t;
        using pointer = const Row *;
        using reference = Row;
        iterator() = default;
        explicit iterator(Scan *scan) : scan_(scan) { ++*this; }
        Row operator*() const { return scan_->row(); }
        iterator &operator++() {
            if (!scan_->advance()) scan_ = nullptr;
            return *this;
        }
        void operator++(int) { ++*this; }
        friend bool operator==(const iterator &a, const iterator &b) noexcept { return a.scan_ == b.scan_; }
        friend bool operator!=(const iterator &a, const iterator &b) noexcept { return a.scan_ != b.scan_; }

    private:
        Scan *scan_ = nullptr;
    };
    iterator begin() { return iterator(this); }
    iterator end() { return {}; }

private:
    Row row() const noexcept { return {view(rows_[at_].key), view(rows_[at_].value)}; }
    bool advance() {
        if (count_ > 0 && ++at_ < count_) return true;
        for (;;) {
            std::size_t needed = 0;
            at_ = count_ = 0;
            auto code = braid_scan_fill(scan_.get(), buffer_.data(), buffer_.size(), rows_.data(), rows_.size(),
                                        &count_, &needed);
            if (code != BRAID_BUFFER_TOO_SMALL) return check(code) == BRAID_OK;
            buffer_.resize(needed);
        }
    }
    detail::Owned<braid_scan, braid_scan_free> scan_;
    std::vector<char> buffer_;
    std::vector<braid_row> rows_;
    std::size_t at_ = 0, count_ = 0;
};

// A tree of the newest state, a snapshot or a transaction.
class Tree {
public:
    explicit Tree(braid_tree *tree) : tree_(tree) {}

    std::optional<Value> get(Bytes key) const {
        braid_value *value = nullptr;
        if (check(braid_get(raw(), key.data(), key.size(), &value)) != BRAID_OK) return std::nullopt;
        return Value(value);
    }
    // Values of many keys, of one state; nothing for absent ones.
    std::vector<std::optional<std::string>> get_many(const std::vector<Bytes> &keys) const {
        std::vector<braid_slice> wanted, values(keys.size());
        for (auto &key : keys) wanted.push_back(key.slice());
        std::vector<char> buffer(64 * keys.size());
        std::size_t needed = 0;
        for (;;) {
            auto code = braid_get_many(raw(), wanted.data(), wanted.size(), buffer.data(), buffer.size(),
                                       values.data(), &needed);
            if (code != BRAID_BUFFER_TOO_SMALL) { check(code); break; }
            buffer.resize(needed);
        }
        std::vector<std::optional<std::string>> out;
        for (auto &value : values) out.push_back(value.data ? std::optional<std::string>(view(value)) : std::nullopt);
        return out;
    }
    bool contains(Bytes key) const { return check(braid_contains(raw(), key.data(), key.size())) == BRAID_OK; }
    void put(Bytes key, Bytes value) { check(braid_put(raw(), key.data(), key.size(), value.data(), value.size())); }
    // The value expires after `ttl`; at once if it is 0 or less.
    void put(Bytes key, Bytes value, std::chrono::milliseconds ttl) {
        check(braid_put_ttl(raw(), key.data(), key.size(), value.data(), value.size(), detail::ms(ttl)));
    }
    void remove(Bytes key) { check(braid_delete(raw(), key.data(), key.size())); }
    void remove(const Range &range) { auto of = range.raw(); check(braid_delete_range(raw(), &of)); }
    std::uint64_t count(const Range &range = {}) const {
        auto of = range.raw();
        std::uint64_t count = 0;
        check(braid_count(raw(), &of, &count));
        return count;
    }
    std::optional<std::pair<Value, Value>> pop_first() { return pop(false); }
    std::optional<std::pair<Value, Value>> pop_last() { return pop(true); }
    // Sets the value if it is `expected`; nothing means absent.
    bool compare_and_set(Bytes key, std::optional<Bytes> expected, std::optional<Bytes> wanted) {
        auto slice = [](const std::optional<Bytes> &of) { return of ? of->slice() : braid_slice{nullptr, 0}; };
        return check(braid_compare_and_set(raw(), key.data(), key.size(), slice(expected), slice(wanted))) == BRAID_OK;
    }
    void merge(const char *function, Bytes key, Bytes operand) {
        check(braid_merge(raw(), function, key.data(), key.size(), operand.slice()));
    }
    // Rows of a range, of the state of this moment.
    Scan scan(const Range &range = {}, std::size_t buffer_bytes = 64 << 10) const {
        auto of = range.raw();
        braid_scan *scan = nullptr;
        check(braid_scan_new(raw(), &of, &scan));
        return Scan(scan, buffer_bytes);
    }
    // Of trees with many values per key, opened with the option "multi": `put` adds a pair.
    void remove(Bytes key, Bytes value) {
        check(braid_delete_pair(raw(), key.data(), key.size(), value.data(), value.size()));
    }
    bool contains(Bytes key, Bytes value) const {
        return check(braid_contains_pair(raw(), key.data(), key.size(), value.data(), value.size())) == BRAID_OK;
    }
    braid_tree *raw() const noexcept { return tree_.get(); }

private:
    std::optional<std::pair<Value, Value>> pop(bool last) {
        braid_value *key = nullptr, *value = nullptr;
        if (check(braid_pop(raw(), last, &key, &value)) != BRAID_OK) return std::nullopt;
        return std::pair<Value, Value>(Value(key), Value(value));
    }
    detail::Owned<braid_tree, braid_tree_free> tree_;
};

// The database as of one commit.
class Snapshot {
public:
    explicit Snapshot(braid_snapshot *snapshot) : snapshot_(snapshot) {}
    Tree tree(const Tree &tree) const {
        braid_tree *at = nullptr;
        check(braid_snapshot_tree(snapshot_.get(), tree.raw(), &at));
        return Tree(at);
    }
    std::uint64_t sequence() const noexcept { return braid_snapshot_sequence(snapshot_.get()); }

private:
    detail::Owned<braid_snapshot, braid_snapshot_free> snapshot_;
};

// A serializable transaction; rolled back by the destructor unless committed.
class Transaction {
public:
    explicit Transaction(braid_transaction *transaction) : transaction_(transaction) {}
    Tree tree(const Tree &tree) const {
        braid_tree *at = nullptr;
        check(braid_transaction_tree(transaction_.get(), tree.raw(), &at));
        return Tree(at);
    }
    std::uint64_t commit(braid_durability durability = BRAID_DEFAULT) {
        std::uint64_t sequence = 0;
        check(braid_commit(transaction_.get(), durability, &sequence));
        return sequence;
    }
    void rollback() { check(braid_rollback(transaction_.get())); }
    std::uint64_t savepoint() {
        std::uint64_t savepoint = 0;
        check(braid_savepoint(transaction_.get(), &savepoint));
        return savepoint;
    }
    void rollback_to(std::uint64_t savepoint) { check(braid_rollback_to(transaction_.get(), savepoint)); }
    braid_transaction *raw() const noexcept { return transaction_.get(); }

private:
    detail::Owned<braid_transaction, braid_transaction_free> transaction_;
};

// Writes that one commit applies together.
class Batch {
public:
    explicit Batch(braid_batch *batch) : batch_(batch) {}
    Batch &put(const Tree &tree, Bytes key, Bytes value) {
        check(braid_batch_put(raw(), tree.raw(), key.data(), key.size(), value.data(), value.size()));
        return *this;
    }
    // The value expires after `ttl` from this call on; at once if it is 0 or less.
    Batch &put(const Tree &tree, Bytes key, Bytes value, std::chrono::milliseconds ttl) {
        check(braid_batch_put_ttl(raw(), tree.raw(), key.data(), key.size(), value.data(), value.size(),
                                  detail::ms(ttl)));
        return *this;
    }
    Batch &remove(const Tree &tree, Bytes key) {
        check(braid_batch_delete(raw(), tree.raw(), key.data(), key.size()));
        return *this;
    }
    Batch &merge(const Tree &tree, const char *function, Bytes key, Bytes operand) {
        check(braid_batch_merge(raw(), tree.raw(), function, key.data(), key.size(), operand.slice()));
        return *this;
    }
    // Commits and empties it.
    std::uint64_t commit(braid_durability durability = BRAID_DEFAULT) {
        std::uint64_t sequence = 0;
        check(braid_batch_commit(raw(), durability, &sequence));
        return sequence;
    }
    std::size_t size() const noexcept { return braid_batch_len(batch_.get()); }
    braid_batch *raw() const noexcept { return batch_.get(); }

private:
    detail::Owned<braid_batch, braid_batch_free> batch_;
};

// An open database; closed by the destructor.
class Db {
public:
    static Db open(const std::string &path, const Options &options = {}) {
        braid_db *db = nullptr;
        check(braid_open(path.c_str(), options.raw(), &db));
        return Db(db);
    }
    static Db in_memory(const Options &options = {}) {
        braid_db *db = nullptr;
        check(braid_open_in_memory(options.raw(), &db));
        return Db(db);
    }
    // Closes, and throws what the destructor would ignore.
    void close() { check(braid_close(db_.release())); }
    Tree tree(const std::string &name) const { return open_tree(name, nullptr); }
    Tree tree(const std::string &name, const Options &options) const { return open_tree(name, options.raw()); }
    Tree multi_tree(const std::string &name) const { return tree(name, Options{{"multi", "true"}}); }
    Snapshot snapshot() const {
        braid_snapshot *snapshot = nullptr;
        check(braid_snapshot_new(raw(), &snapshot));
        return Snapshot(snapshot);
    }
    Transaction begin(braid_isolation isolation = BRAID_OPTIMISTIC) const {
        braid_transaction *transaction = nullptr;
        check(braid_begin(raw(), isolation, &transaction));
        return Transaction(transaction);
    }
    // Runs `work` in a transaction, commits it, and repeats both after a conflict, at most `tries` times.
    template <class Work>
    auto update(Work work, int tries = 1000) const {
        for (;;) {
            Transaction transaction = begin();
            try {
                if constexpr (std::is_void_v<decltype(work(transaction))>) {
                    work(transaction);
                    transaction.commit();
                    return;
                } else {
                    auto result = work(transaction);
                    transaction.commit();
                    return result;
                }
            } catch (const Error &error) {
                if (!error.is_conflict() || --tries <= 0) throw;
            }
        }
    }
    Batch batch() const {
        braid_batch *batch = nullptr;
        check(braid_batch_new(raw(), &batch));
        return Batch(batch);
    }
    void sync() const { check(braid_sync(raw())); }
    void flush() const { check(braid_flush(raw())); }
    void compact() const { check(braid_compact(raw())); }
    braid_db *raw() const noexcept { return db_.get(); }

private:
    explicit Db(braid_db *db) : db_(db) {}
    Tree open_tree(const std::string &name, const braid_options *options) const {
        braid_tree *tree = nullptr;
        check(braid_tree_open(raw(), name.c_str(), options, &tree));
        return Tree(tree);
    }
    detail::Owned<braid_db, detail::close> db_;
};

}  // namespace braiddb

#endif
