#!/usr/bin/env bash
# Installs the C library of crates/braiddb-capi to a temporary prefix, compiles its C and C++
# programs with pkg-config against that prefix, and runs them: plainly, with AddressSanitizer, and
# under valgrind. Then runs the commands and the program of docs/guide/c.md.
#
#   scripts/test-capi.sh FOLDER_OF_LIBBRAIDDB [SECONDS]
#
# SECONDS is the time of the fuzzed calls: 5 unless given, 3600 for a long run. Without a C++
# compiler or pkg-config it ends with code 3; a missing valgrind is named.
set -euo pipefail
cd "$(dirname "$0")/.."
library=$(realpath "$1")
readonly seconds=${2:-5} crate=$PWD/crates/braiddb-capi
# Outside the tree: no build file of Rust is near.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for tool in c++ pkg-config; do
    command -v "$tool" >/dev/null || { echo "SKIPPED: there is no $tool"; exit 3; }
done
[[ -e $library/libbraiddb.so ]] || { echo "there is no $library/libbraiddb.so: build braiddb-capi first"; exit 1; }

BUILT=$library scripts/install-c.sh "$work/prefix"
# Not those of the system.
export PKG_CONFIG_LIBDIR=$work/prefix/lib/pkgconfig LD_LIBRARY_PATH=$work/prefix/lib
version=$(pkg-config --modversion braiddb)
# Programs load it by a name that changes with each version that may break them.
soname=$(LC_ALL=C readelf -d "$work/prefix/lib/libbraiddb.so" | sed -n 's/.*soname: \[\(.*\)\]/\1/p')
wanted=${version%%.*}
[[ $wanted != 0 ]] || wanted=$(cut -d. -f1-2 <<<"$version")
[[ $soname = "libbraiddb.so.$wanted" && -e $work/prefix/lib/$soname ]] ||
    { echo "version $version has the soname \"$soname\""; exit 1; }

# compile OUTPUT COMPILER OPTIONS...
compile() {
    local output=$1
    shift
    # shellcheck disable=SC2046
    "$@" -O1 -g -Wall -Wextra -Werror -o "$work/$output" $(pkg-config --cflags --libs braiddb) -lpthread
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
readonly quickstart='ten: Pearl Jam
2 albums, 3 before
ten = Pearl Jam
versus = Pearl Jam
bob has 30'
diff <("$work/quickstart" "$work/first") - <<<"$quickstart"
for standard in 17 20; do
    compile quickstart_cpp c++ -std=c++$standard -Wpedantic -x c++ "$crate/examples/quickstart.cpp" -x none
    rm -rf "$work/second"
    diff <("$work/quickstart_cpp" "$work/second") - <<'TEXT'
ten: Pearl Jam
ten = Pearl Jam
versus = Pearl Jam
visit 1
the longest title is Vitalogy
Nirvana: Dave
Nirvana: Krist
Nirvana: Kurt
TEXT
done
echo "the examples print what they should"

# The guide's commands, in a copy of the tree, which stands for the clone; and its program.
block() { sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/p" docs/guide/c.md | sed '/^```/d'; }
mkdir "$work/clone"
git ls-files -z --cached --others --exclude-standard | xargs -0 cp --parents --no-dereference -t "$work/clone"
commands=$(block sh)
[[ $commands = "git clone "* ]] || { echo "the guide does not begin with a clone"; exit 1; }
diff <(cd "$work/clone" && env -u PKG_CONFIG_LIBDIR -u LD_LIBRARY_PATH BUILT="$library" bash -euc "${commands#*$'\n'}" | tail -n 5) \
    - <<<"$quickstart"
block c >"$work/guide.c"
c guide "$work/guide.c" -Wpedantic
(cd "$work" && diff <(./guide) - <<<"Pearl Jam")
echo "the guide's commands and program print what they should"

# A program that links the static library needs no other file of BraidDB.
cc -std=c11 -I "$work/prefix/include" "$crate/examples/quickstart.c" "$work/prefix/lib/libbraiddb.a" \
    -lpthread -ldl -lm -o "$work/static"
env -u LD_LIBRARY_PATH "$work/static" "$work/third" >/dev/null && echo "linked statically"

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
