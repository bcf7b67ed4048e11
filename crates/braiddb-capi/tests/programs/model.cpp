// Random operations on BraidDB and on std::map: same answers, also after the database was reopened.
//
//     model FOLDER [STEPS] [SEED]
#undef NDEBUG
#include <cassert>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <set>

#include "braiddb.hpp"

using namespace braiddb;
using Model = std::map<std::string, std::string>;

static std::mt19937_64 random_numbers;
static std::size_t below(std::size_t n) { return random_numbers() % n; }

static std::string a_key() {
    std::string key(1 + below(3), 'a');
    for (auto &c : key) c = "ab\0\xff"[below(4)];
    return key;
}
static std::string a_value() { return std::string(below(20) == 0 ? 5000 + below(9000) : below(30), char('a' + below(26))); }

struct Bounds {
    Range range;
    std::function<bool(const std::string &)> has;
    bool is_reverse = false;
};

static Bounds a_range() {
    Bounds bounds{{}, [](auto &) { return true; }};
    if (below(4) == 0) {
        auto prefix = a_key();
        bounds = {Range::prefix(prefix), [=](auto &key) { return key.compare(0, prefix.size(), prefix) == 0; }};
    } else {
        auto start = a_key(), end = a_key();
        auto from = below(3), to = below(3);
        if (from == 1) bounds.range.from(start);
        if (from == 2) bounds.range.after(start);
        if (to == 1) bounds.range.until(end);
        if (to == 2) bounds.range.through(end);
        bounds.has = [=](auto &key) {
            return (from == 0 || (from == 1 ? key >= start : key > start)) && (to == 0 || (to == 1 ? key < end : key <= end));
        };
    }
    if (below(2)) {
        bounds.range.reverse();
        bounds.is_reverse = true;
    }
    return bounds;
}

static void same_rows(const Tree &tree, const Model &model, const Bounds &bounds) {
    std::vector<std::pair<std::string, std::string>> wanted, got;
    for (auto &row : model)
        if (bounds.has(row.first)) wanted.push_back(row);
    if (bounds.is_reverse) std::reverse(wanted.begin(), wanted.end());
    for (auto [key, value] : tree.scan(bounds.range, 1 + below(200))) got.emplace_back(key, value);
    assert(got == wanted);
    assert(tree.count(bounds.range) == wanted.size());
}

static void change(Tree &tree, Model &model) {
    auto key = a_key(), value = a_value();
    switch (below(5)) {
        case 0: case 1: case 2:
            tree.put(key, value);
            model[key] = value;
            break;
        case 3:
            tree.remove(key);
            model.erase(key);
            break;
        default: {
            auto bounds = a_range();
            if (below(4)) break;
            tree.remove(bounds.range);
            for (auto it = model.begin(); it != model.end();) it = bounds.has(it->first) ? model.erase(it) : std::next(it);
        }
    }
}

static void read(const Tree &tree, const Model &model) {
    auto key = a_key();
    auto found = model.find(key);
    auto value = tree.get(key);
    assert(value.has_value() == (found != model.end()) && tree.contains(key) == value.has_value());
    if (value) assert(*value == found->second);
    same_rows(tree, model, a_range());
    std::vector<std::string> keys{key, a_key(), a_key()};
    auto values = tree.get_many({keys[0], keys[1], keys[2]});
    for (std::size_t i = 0; i < 3; i++) {
        auto at = model.find(keys[i]);
        assert(values[i] == (at == model.end() ? std::nullopt : std::optional(at->second)));
    }
}

/* Times that have passed, and functions that are not taken. */
static void edges() {
    auto alive = std::make_shared<int>();
    auto function = [alive](auto, auto, auto) { return std::string(); };
    {
        Options options;
        try {
            options.merge(nullptr, function);
            assert(false);
        } catch (const Error &error) {
            assert(error.code() == BRAID_INVALID_ARGUMENT);
        }
        assert(alive.use_count() == 2);
        options.merge("empty", function);
        assert(alive.use_count() == 3);
        Db db = Db::in_memory(options);
    }
    assert(alive.use_count() == 2);
    Db db = Db::in_memory();
    Tree tree = db.tree("times");
    for (auto ms : {0, -1, -3600000}) {
        std::chrono::milliseconds ttl(ms);
        tree.put("a", "1"), tree.put("b", "1");
        tree.put("a", "2", ttl);
        Batch batch = db.batch();
        batch.put(tree, "b", "2", ttl).put(tree, "c", "1", std::chrono::hours(1)).put(tree, "d", "1");
        batch.commit();
        assert(!tree.contains("a") && !tree.contains("b") && tree.contains("c") && tree.contains("d"));
    }
}

int main(int argc, char **argv) {
    assert(argc >= 2);
    edges();
    std::string path = std::string(argv[1]) + "/model";
    long steps = argc > 2 ? std::stol(argv[2]) : 20000;
    random_numbers.seed(argc > 3 ? std::stoull(argv[3]) : 1);
    Options options{{"memory", "8MiB"}, {"durability", "buffered"}};
    Model model;
    std::set<std::pair<std::string, std::string>> pairs;
    std::optional<Db> db = Db::open(path, options);
    std::optional<Tree> tree = db->tree("model"), multi = db->multi_tree("pairs");
    for (long step = 0; step < steps; step++) {
        switch (below(12)) {
            case 0: case 1: case 2: change(*tree, model); break;
            case 3: case 4: read(*tree, model); break;
            case 5: {
                auto before = db->snapshot().tree(*tree);
                auto old = model;
                for (int i = 0; i < 5; i++) change(*tree, model);
                read(before, old);
                break;
            }
            case 6: {
                auto transaction = db->begin();
                auto inside = transaction.tree(*tree);
                auto changed = model;
                for (int i = 0; i < 4; i++) change(inside, changed), read(inside, changed);
                auto savepoint = transaction.savepoint();
                auto kept = changed;
                for (int i = 0; i < 4; i++) change(inside, changed), read(inside, changed);
                if (below(2)) transaction.rollback_to(savepoint), changed = kept;
                read(inside, changed);
                if (below(2)) transaction.commit(), model = changed;
                else transaction.rollback();
                break;
            }
            case 7: {
                auto popped = below(2) ? tree->pop_first() : tree->pop_last();
                assert(popped.has_value() == !model.empty());
                if (popped) assert(model.at(popped->first.str()) == popped->second.view()), model.erase(popped->first.str());
                break;
            }
            case 8: {
                auto key = a_key(), value = a_value();
                auto at = model.find(key);
                std::optional<Bytes> expected;
                if (at != model.end()) expected = Bytes(at->second);
                assert(!tree->compare_and_set(key, Bytes("never this"), Bytes(value)));
                assert(tree->compare_and_set(key, expected, Bytes(value)));
                model[key] = value;
                break;
            }
            case 9: {
                auto batch = db->batch();
                auto key = a_key(), other = a_key(), value = a_value();
                batch.put(*tree, key, value).remove(*tree, other);
                batch.commit();
                model[key] = value;
                model.erase(other);
                break;
            }
            case 10: {
                auto key = a_key(), value = a_key();
                below(3) ? (void)(multi->put(key, value), pairs.insert({key, value}))
                         : (void)(multi->remove(key, value), pairs.erase({key, value}));
                std::vector<std::pair<std::string, std::string>> got;
                for (auto [at, of] : multi->scan()) got.emplace_back(at, of);
                assert(std::equal(got.begin(), got.end(), pairs.begin(), pairs.end()));
                break;
            }
            default:
                if (below(200) == 0) {
                    tree.reset(), multi.reset();
                    below(2) ? db->close() : db.reset();
                    db = Db::open(path, options);
                    tree = db->tree("model"), multi = db->multi_tree("pairs");
                } else if (below(100) == 0) {
                    below(2) ? db->flush() : db->compact();
                }
                same_rows(*tree, model, {{}, [](auto &) { return true; }});
        }
    }
    std::cout << steps << " operations agree\n";
    return 0;
}
