#!/usr/bin/env bash
# Compiles the C and C++ programs of crates/braiddb-capi against the library and its header, and runs
# them: plainly, with AddressSanitizer, and under valgrind.
#
#   scripts/test-capi.sh FOLDER_OF_LIBBRAIDDB [SECONDS]
#
# SECONDS is the time of the fuzzed calls: 5 unless given, 3600 for a long run. Without a C++ compiler
# it ends with code 3; a missing valgrind is named.
set -euo pipefail
cd "$(dirname "$0")/.."
readonly library=$(realpath "$1") seconds=${2:-5}
readonly crate=$PWD/crates/braiddb-capi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

command -v c++ >/dev/null || { echo "SKIPPED: there is no C++ compiler"; exit 3; }
[[ -e $library/libbraiddb.so ]] || { echo "there is no $library/libbraiddb.so: build braiddb-capi first"; exit 1; }
# Programs load it by its soname.
ln -s "$library/libbraiddb.so" "$work/libbraiddb.so.0"
ln -s "$library/libbraiddb.so" "$work/libbraiddb.so"

# compile OUTPUT OPTIONS...
compile() {
    local output=$1
    shift
    "$@" -O1 -g -Wall -Wextra -Werror -I "$crate/include" -o "$work/$output" \
        -L "$work" -Wl,-rpath,"$work" -lbraiddb -lpthread
}
c() { compile "$1" cc -std=c11 -D_GNU_SOURCE -x c "$2" -x none "${@:3}"; }
cpp() { compile "$1" c++ -std=c++17 -x c++ "$2" -x none "${@:3}"; }
# folder NAME: an empty one.
folder() { rm -rf "${work:?}/data" && mkdir "$work/data" && echo "$work/data"; }
run() {
    printf '%s: ' "$*" | sed "s|$work/||g"
    "$@"
}

programs=$crate/tests/programs
for flags in "" "-fsanitize=address"; do
    # shellcheck disable=SC2086
    {
        c every_call "$programs/every_call.c" $flags
        c failures "$programs/failures.c" $flags
        c fuzz "$programs/fuzz.c" $flags
        cpp model "$programs/model.cpp" $flags
    }
    # Rust's own threads keep what they have until the end.
    export ASAN_OPTIONS=detect_leaks=0
    run "$work/every_call" "$(folder)"
    run "$work/failures" "$(folder)"
    run "$work/model" "$(folder)" 20000 "$RANDOM"
    run "$work/fuzz" "$(folder)" "$seconds" "$RANDOM"
done

# The examples, with the output that they should have.
c quickstart "$crate/examples/quickstart.c" -Wpedantic
diff <(run "$work/quickstart" "$work/first") - <<'TEXT'
quickstart first: ten: Pearl Jam
2 albums, 3 before
ten = Pearl Jam
versus = Pearl Jam
bob has 30
TEXT
for standard in 17 20; do
    compile quickstart_cpp c++ -std=c++$standard -Wpedantic -x c++ "$crate/examples/quickstart.cpp" -x none
    rm -rf "$work/second"
    diff <(run "$work/quickstart_cpp" "$work/second") - <<'TEXT'
quickstart_cpp second: ten: Pearl Jam
ten = Pearl Jam
versus = Pearl Jam
visit 1
the longest title is Vitalogy
Nirvana: Dave
Nirvana: Krist
Nirvana: Kurt
TEXT
done

# A program that links the static library needs no other file of BraidDB.
cc -std=c11 -I "$crate/include" "$crate/examples/quickstart.c" "$library/libbraiddb.a" -lpthread -ldl -lm -o "$work/static"
run "$work/static" "$work/third" >/dev/null && echo "linked statically"

if command -v valgrind >/dev/null; then
    c every_call "$programs/every_call.c"
    c failures "$programs/failures.c"
    cpp model "$programs/model.cpp"
    for program in "every_call $(folder)" "failures $(folder)" "model $(folder) 500"; do
        # shellcheck disable=SC2086
        run valgrind --quiet --error-exitcode=9 --leak-check=full --show-leak-kinds=definite \
            --errors-for-leak-kinds=definite "$work"/$program
    done
else
    echo "SKIPPED: there is no valgrind"
fi
