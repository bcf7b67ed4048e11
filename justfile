# `just` lists what there is; https://just.systems

# what there is
default:
    @just --list --unsorted

# what CI runs; or only some stages of it, as in `just check fmt clippy`
check *stages:
    .ci/run {{stages}}

# what is quick: before each commit
quick:
    .ci/run fmt tidy clippy

# all tests, or those of a name
test *arguments:
    cargo test --workspace {{arguments}}

# import a made-up FreeDB dump, kill the importer, resume, look up
demo *arguments:
    cargo run --release -- demo {{arguments}}

# measure beside RocksDB, LMDB and others: hours, and half an hour to build; see bench-compare/README.md
compare *arguments:
    cd bench-compare && cargo run --release -- run {{arguments}}

# the structure of the source tree, and which layer imports which
tidy:
    cargo xtask tidy --graph

# the API's documentation, in a browser
docs:
    cargo doc --workspace --no-deps --open

# in the one style
fmt:
    cargo fmt --all
