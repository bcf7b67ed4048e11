#!/usr/bin/env bash
# Fills small file systems (ext4 on loop devices, tmpfs), deletes, and checks that writes resume.
# Needs root. Usage: scripts/test-full-disk.sh [MiB ...]
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(id -u)" = 0 ] || { echo "SKIPPED: only root can mount file systems"; exit 0; }
sizes=("$@")
[ ${#sizes[@]} -gt 0 ] || sizes=(8 16 32 64)
test=$(cargo test -p braiddb --test full_disk --no-run --message-format=json | grep -o '"executable":"[^"]*full_disk[^"]*"' | cut -d'"' -f4)
cargo build -q -p braid-cli
braid=$(cargo metadata --format-version 1 --no-deps | grep -o '"target_directory":"[^"]*"' | cut -d'"' -f4)/debug/braid
work=$(mktemp -d)
place=$work/place
mkdir "$place"
finish() { mountpoint -q "$place" && umount "$place"; rm -rf "$work"; }
trap finish EXIT

# Exits with a message unless the command exits with the expected code.
must() {
    local want=$1 got=0
    shift
    "$@" >"$work/out" 2>&1 || got=$?
    [ "$got" = "$want" ] || { cat "$work/out"; echo "FAILED: $* ended with $got, not $want"; exit 1; }
}

# Prints about 100 MiB of incompressible records with ascending keys.
records() {
    head -c 75000000 /dev/urandom | base64 -w 800 | awk '{printf "{\"id\":\"%07d\",\"text\":\"%s\"}\n", NR, $0}'
}
records >"$work/in.jsonl"

try_command() {
    must 0 "$braid" create "$place/db"
    must 4 "$braid" import "$place/db" "$work/in.jsonl" --tree t --key id --resume
    must 0 "$braid" verify "$place/db"
    must 0 "$braid" get "$place/db" t 0000100
    # One process per delete; each opens the database on the full disk.
    for number in $(seq 1 60); do
        must 0 "$braid" del "$place/db" t "$(printf %07d "$number")"
    done
    must 0 "$braid" compact "$place/db"
    must 0 "$braid" stats "$place/db"
    grep "disk reserve" "$work/out" || true
    must 0 "$braid" verify "$place/db"
    must 1 "$braid" get "$place/db" t 0000050
    must 0 "$braid" get "$place/db" t 0000100
}

for size in "${sizes[@]}"; do
    for kind in ext4 tmpfs; do
        for what in random ascending command; do
            if [ $kind = ext4 ]; then
                truncate -s "${size}M" "$work/image"
                mkfs.ext4 -q -F -m 0 "$work/image"
                mount -o loop "$work/image" "$place"
            else
                mount -t tmpfs -o "size=${size}m" none "$place"
            fi
            echo "== $kind, $size MiB, $what"
            if [ $what = command ]; then
                try_command
            else
                BRAIDDB_FULL_DISK_DIR=$place BRAIDDB_FULL_DISK_ORDER=$what "$test" --exact \
                    delete_range_and_compact_on_full_volume_give_space_back --nocapture | grep -v '^$\|running\|^test '
            fi
            umount "$place"
            rm -f "$work/image"
        done
    done
done
echo "writes resumed on every file system"
