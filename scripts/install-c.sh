#!/usr/bin/env bash
# Builds the C library and installs it with its headers and its pkg-config file.
#
#   scripts/install-c.sh PREFIX          as /usr/local
#   DESTDIR=stage scripts/install-c.sh /usr     for packages
set -euo pipefail
cd "$(dirname "$0")/.."
readonly prefix=${1:?name a prefix, as /usr/local}
readonly crate=crates/braiddb-capi root=${DESTDIR-}$prefix
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
major=${version%%.*}

cargo build --locked --release --package braiddb-capi
readonly built=${CARGO_TARGET_DIR:-target}/release

install -d "$root"/{include,lib/pkgconfig}
install -m 644 "$crate"/include/braiddb.{h,hpp} "$root/include"
install -m 644 "$built/libbraiddb.a" "$root/lib"
case $(uname -s) in
    Darwin)
        install -m 755 "$built/libbraiddb.dylib" "$root/lib/libbraiddb.$major.dylib"
        ln -sf "libbraiddb.$major.dylib" "$root/lib/libbraiddb.dylib"
        ;;
    *)
        install -m 755 "$built/libbraiddb.so" "$root/lib/libbraiddb.so.$version"
        ln -sf "libbraiddb.so.$version" "$root/lib/libbraiddb.so.$major"
        ln -sf "libbraiddb.so.$major" "$root/lib/libbraiddb.so"
        ;;
esac
sed "s|@PREFIX@|$prefix|; s|@VERSION@|$version|" "$crate/braiddb.pc.in" >"$root/lib/pkgconfig/braiddb.pc"
echo "installed libbraiddb $version in $root"
