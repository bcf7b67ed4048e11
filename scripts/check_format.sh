#!/usr/bin/env bash
# Is docs/format.md right? The reader written from it alone must find in the run files what the engine says is there.
#
#   scripts/check_format.sh [BRAID]     BRAID: the binary, if it is built already
set -euo pipefail
cd "$(dirname "$0")/.."
braid=${1:-}
if [[ -z $braid ]]; then
    cargo build --quiet --locked --release --package braid-cli
    braid=target/release/braid
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Three thousand records with an index, then some deleted and some changed, in several runs.
awk 'BEGIN { for (i = 0; i < 3000; i++)
    printf "{\"id\":\"k%05d\",\"artist\":\"Artist %d\",\"text\":\"%s\"}\n", i * 7919 % 3000, i % 97, substr("lorem ipsum dolor sit amet", 1, i % 26) }' \
    >"$work/records.jsonl"
"$braid" import "$work/db" "$work/records.jsonl" --tree records --format jsonl --key id --index by_artist=artist:lower >/dev/null
for number in 00010 00020 00030; do
    "$braid" del "$work/db" records "k$number" >/dev/null
    "$braid" put "$work/db" records "k${number}x" "changed" >/dev/null
done
"$braid" compact "$work/db" >/dev/null

python3 scripts/read_run.py --live "$work"/db/*.run >"$work/live"
"$braid" trees "$work/db" --json >"$work/trees"
read -r tree < <(python3 -c '
import json, sys
trees = [json.loads(line) for line in open(sys.argv[1])]
print(next(tree["id"] for tree in trees if tree["name"] == "records"))' "$work/trees")
prefix=$(printf '%08x' "$tree")
sed -n "s/^$prefix\([0-9a-f]*\) value \(.*\)/\1\t\2/p" "$work/live" >"$work/found"
"$braid" scan "$work/db" records --format hex >"$work/expected"
[[ $(wc -l <"$work/expected") -eq 3000 ]] || { echo "format: the engine scans another number of records" >&2; exit 1; }
cmp "$work/found" "$work/expected"
for run in "$work"/db/*.run; do
    python3 scripts/read_run.py "$run" | cut -d' ' -f1-3 >"$work/entries"
    python3 scripts/read_run.py --view "$run" | cut -d' ' -f1-3 | cmp - "$work/entries"
done
echo "format: $(wc -l <"$work/live") entries in $(ls "$work"/db/*.run | wc -l) runs are as docs/format.md says"
