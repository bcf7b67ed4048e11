// A tour of BraidDB from C++17: trees, ranges, a transaction, a merge function.
//
//     c++ -std=c++17 quickstart.cpp $(pkg-config --cflags --libs braiddb) -o quickstart && ./quickstart music.db
#include <iostream>

#include "braiddb.hpp"

using braiddb::Db, braiddb::Options, braiddb::Range, braiddb::Transaction, braiddb::Tree;

int main(int argc, char **argv) try {
    if (argc != 2) {
        std::cerr << "usage: " << argv[0] << " DATABASE\n";
        return 2;
    }
    Options options{{"memory", "64MiB"}, {"durability", "buffered"}};
    options.merge("longest", [](auto, auto old, auto operand) {
        return std::string(old && old->size() >= operand.size() ? *old : operand);
    });
    Db db = Db::open(argv[1], options);

    Tree albums = db.tree("albums");
    albums.put("ten", "Pearl Jam");
    albums.put("versus", "Pearl Jam");
    albums.put("nevermind", "Nirvana");
    if (auto artist = albums.get("ten")) std::cout << "ten: " << artist->view() << '\n';
    for (auto [key, value] : albums.scan(Range().from("t"))) std::cout << key << " = " << value << '\n';

    Tree counters = db.tree("counters");
    int visits = db.update([&](Transaction &transaction) {
        Tree tree = transaction.tree(counters);
        auto old = tree.get("visits");
        int next = (old ? std::stoi(old->str()) : 0) + 1;
        tree.put("visits", std::to_string(next));
        return next;
    });
    std::cout << "visit " << visits << '\n';

    Tree titles = db.tree("titles");
    titles.merge("longest", "title", "Vs.");
    titles.merge("longest", "title", "Vitalogy");
    titles.merge("longest", "title", "Ten");
    std::cout << "the longest title is " << titles.get("title")->view() << '\n';

    // Many values per key.
    Tree members = db.multi_tree("members");
    members.put("Nirvana", "Dave");
    members.put("Nirvana", "Krist");
    members.put("Nirvana", "Kurt");
    for (auto [band, name] : members.scan(Range::prefix("Nirvana"))) std::cout << band << ": " << name << '\n';
    db.close();
    return 0;
} catch (const braiddb::Error &error) {
    std::cerr << braid_code_name(error.code()) << ": " << error.what() << '\n';
    return 1;
}
