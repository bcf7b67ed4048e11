#!/usr/bin/env bash
# Checks docs/internals/format.md: a reader written from it alone must find the same contents in databases as
# the engine does, and must refuse files with a wrong byte.
#
#   scripts/check_format.sh [BRAID EVERY_KIND]     uses these binaries instead of building them
set -Eeuo pipefail
trap 'echo "format: line $LINENO ended with $?: $BASH_COMMAND" >&2' ERR
cd "$(dirname "$0")/.."
command -v python3 >/dev/null || { echo "format: NOT CHECKED: there is no python3" >&2; exit 1; }
if [[ $# -eq 0 ]]; then
    cargo build --quiet --locked --release --package braid-cli --package tools --bin braid --bin every_kind
    set -- "${CARGO_TARGET_DIR:-target}"/release/{braid,every_kind}
fi
readonly braid=$1 every_kind=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
compared=0
refused=0

die() {
    echo "format: $*" >&2
    exit 1
}

zstd=()
if ! python3 scripts/read_db.py --has-zstd; then
    printf '%s\n' "" "format: SKIPPED: Zstandard, which needs Python 3.14 or the zstd command" "" >&2
    zstd=(--without-zstd)
fi

# Prints the engine's view of a database in the reader's notation. Read-only.
scan() {
    local tree
    "$braid" trees "$1" --read-only --json >"$work/trees.json" || return
    python3 -c '
import json, sys
for name in sorted(json.loads(line)["name"] for line in open(sys.argv[1])):
    print(name)' "$work/trees.json" >"$work/trees"
    while read -r tree; do
        "$braid" scan "$1" "$tree" --read-only --format hex --keys hex >"$work/pairs" || return
        sed "s/^/$tree\t/" "$work/pairs"
    done <"$work/trees"
}

# Checks that reader and engine find the same contents.
compare() {
    scan "$1" >"$work/expected"
    python3 scripts/read_db.py "$1" >"$work/found" 2>"$work/met" || die "the reader fails: $(<"$work/met")"
    cmp "$work/found" "$work/expected"
    cat "$work/met" >>"$work/all_met"
    compare_dump "$1"
    ((++compared))
}

# Checks that the dump reader finds the same contents in a dump, and refuses flipped bytes.
compare_dump() {
    local status byte
    rm -f "$work/dump"
    "$braid" dump "$1" "$work/dump" --read-only >/dev/null 2>&1 || die "no dump of $1"
    python3 scripts/read_dump.py "$work/dump" >"$work/of_dump" 2>"$work/complaint" || die "$(<"$work/complaint")"
    cmp "$work/of_dump" "$work/expected"
    ((++compared))
    for byte in 70 100 $(($(wc -c <"$work/dump") / 2)); do
        status=0
        flip "$work/dump" "$byte"
        python3 scripts/read_dump.py "$work/dump" >"$work/of_dump" 2>"$work/complaint" || status=$?
        flip "$work/dump" "$byte"
        [[ $status -eq 3 ]] || die "byte $byte of a dump is flipped, and the reader exits with $status"
        ((++refused))
    done
}

# Flips a bit of the byte at an offset of a file.
flip() {
    local byte
    byte=$(od -An -tu1 -j "$2" -N 1 "$1")
    printf "\\x$(printf %02x $((byte ^ 16)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

# Checks that the reader refuses a database while a byte of a file is flipped.
refuse() {
    local status=0
    flip "$1/$2" "$3"
    python3 scripts/read_db.py "$1" >"$work/found" 2>"$work/complaint" || status=$?
    flip "$1/$2" "$3"
    [[ $status -eq 3 ]] || die "byte $3 of $2 is flipped, and the reader exits with $status"
    ((++refused))
}

# Succeeds if `verify` reports only reasons for an earlier end of the log: a torn tail, or a missing
# blob of a commit.
log_ends_earlier() {
    local why='torn or damaged tail of the log'
    # Through a file: grep would end first, and the reader then fail at times.
    if python3 scripts/read_db.py "$1" 2>"$work/met" >/dev/null &&
        grep -q '[1-9][0-9]* records without their blobs, which end the log' "$work/met"; then
        why+='|[/\\][0-9]+\.blob at offset'
    fi
    grep -Eq "^problem: .*($why)" "$work/complaint" && ! grep '^problem: ' "$work/complaint" | grep -Eqv "$why"
}

# Checks that reader and engine agree on a damaged database: both refuse it, or both find the same.
# Reader and `verify` also read superseded entries; a scan does not.
agree() {
    local status=0
    if scan "$1" >"$work/expected" 2>"$work/complaint"; then
        "$braid" verify "$1" --read-only >"$work/complaint" || status=$?
        if [[ $status -eq 0 ]] || log_ends_earlier "$1"; then
            compare "$1"
            return
        fi
        status=0
    fi
    python3 scripts/read_db.py "$1" >"$work/found" 2>"$work/met" || status=$?
    [[ $status -eq 3 ]] || die "$2: the engine refuses it, and the reader exits with $status: $(<"$work/complaint")"
    ((++refused))
}

# 3,000 records with an index, some then deleted or changed, in several runs.
awk 'BEGIN { for (i = 0; i < 3000; i++)
    printf "{\"id\":\"k%05d\",\"artist\":\"Artist %d\",\"text\":\"%s\"}\n", i * 7919 % 3000, i % 97, substr("lorem ipsum dolor sit amet", 1, i % 26) }' \
    >"$work/records.jsonl"
"$braid" create "$work/db"
"$braid" import "$work/db" "$work/records.jsonl" --tree records --format jsonl --key id --index by_artist=artist:lower >/dev/null
for number in 00010 00020 00030; do
    "$braid" del "$work/db" records "k$number" >/dev/null
    "$braid" put "$work/db" records "k${number}x" "changed" >/dev/null
done
compare "$work/db"
[[ $(grep -c '^records' "$work/found") -eq 3000 ]] || die "the engine scans another number of records"
"$braid" compact "$work/db" >/dev/null
compare "$work/db"

# All kinds of files and entries. Each number is a process that ends with a kill.
for lives in "300 5" "1200 150" "1500 3 1 2"; do
    # shellcheck disable=SC2086
    "$every_kind" ${zstd[@]+"${zstd[@]}"} "$work/kinds ($lives)" $lives
    compare "$work/kinds ($lives)"
done
"$braid" compact "$work/kinds (1500 3 1 2)" >/dev/null
compare "$work/kinds (1500 3 1 2)"

# Every kind must occur, or the comparison proves nothing about it.
kinds=("views in files" "embedded views" "segments that continue another" "stale entries" "loose runs" "key chunks"
    "uncompressed blocks" "blocks of LZ4" "range tombstones in runs" "trees of many values" "blobs read" "streams read" "commits in the log"
    "blobs in the log" "streams in the log" "range deletes in the log" "sealed segments of the log" "entries of runs that expire"
    "values that have expired" "runs that are given a sequence number" "clean closes in the log" "tags of versions"
    "sessions of sharing processes")
[[ ${#zstd[@]} -gt 0 ]] || kinds+=("blocks of Zstandard")
for kind in "${kinds[@]}"; do
    grep -q "^ *[1-9][0-9]* $kind\$" "$work/all_met" || die "nothing here has $kind"
done
grep -q "^ *[2-9] epochs of the log" "$work/all_met" || die "no log here has two epochs"

# Flipped bytes in runs, views, manifests and referenced blobs must be refused.
db="$work/kinds (300 5)"
for file in "$db"/*.run "$db"/*.view "$db"/MANIFEST-*; do
    length=$(wc -c <"$file")
    for offset in 20 $((length / 2)) $((length - 1)); do
        refuse "$db" "$(basename "$file")" "$offset"
    done
done
"$braid" create "$work/small"
"$braid" put "$work/small" t key "$(printf '%06000d' 1)" >/dev/null
"$braid" put "$work/small" t other value >/dev/null
for place in "*.blob 40" "*.blob 70" "*.blob 110" "*.blob 140"; do
    file=$(cd "$work/small" && ls ${place% *})
    refuse "$work/small" "$file" "${place#* }"
done
flip "$work/small/CURRENT" 70
refuse "$work/small" CURRENT 4166

# Damage near the log's end may look like its end; reader and engine must agree. Offsets backwards:
read -r end wal < <(sed -n 's/^ *\([0-9]*\) is where the log ends, in \(.*\)/\1 \2/p' <(python3 scripts/read_db.py "$db" 2>&1 >/dev/null))
for back in 1 20 60 200 1000 $((end - 140)); do
    flip "$db/$wal" $((end - back))
    agree "$db" "$wal, flipped $back bytes before its end"
    flip "$db/$wal" $((end - back))
done
blob=$(cd "$db" && ls -- *.blob | tail -1)
truncate -s -100 "$db/$blob"
agree "$db" "$blob, cut short"

echo "format: $compared databases and dumps are as docs/internals/format.md and docs/dump.md say, $refused damaged ones are refused"
