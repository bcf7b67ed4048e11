# `just` lists the recipes; https://just.systems

# list the recipes
default:
    @just --list --unsorted

# run the CI stages, or only some: `just check fmt clippy`
check *stages:
    .ci/run {{stages}}

# run the quick stages before each commit
quick:
    .ci/run fmt tidy clippy

# run all tests, or tests by name
test *arguments:
    cargo test --workspace {{arguments}}

# import a generated FreeDB dump, kill the importer, resume, look up
demo *arguments:
    cargo run --release -- demo {{arguments}}

# benchmark beside RocksDB, LMDB and others: hours, half an hour to build; see bench-compare/README.md
compare *arguments:
    cd bench-compare && cargo run --release -- run {{arguments}}

# install the C library, its headers and its pkg-config file: `just install-c /usr/local`
install-c prefix:
    scripts/install-c.sh {{prefix}}

# check the structure of the source tree and print the layer imports
tidy:
    cargo xtask tidy --graph

# open the API documentation in a browser
docs:
    cargo doc --workspace --no-deps --open

# format all code
fmt:
    cargo fmt --all
