#!/usr/bin/env bash
# Builds the C library and installs it with its headers and its pkg-config file.
#
#   scripts/install-c.sh PREFIX                 as /usr/local
#   DESTDIR=stage scripts/install-c.sh /usr     for packages
#
# LIBDIR names the folder of libraries in PREFIX: lib unless set. With BUILT, a folder that has the
# built library, it builds nothing.
set -euo pipefail
cd "$(dirname "$0")/.."
readonly prefix=${1:?name a prefix, as /usr/local}
readonly crate=crates/braiddb-capi libdir=${LIBDIR:-lib} root=${DESTDIR-}$prefix
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
# Versions that may break programs differ here: see crates/braiddb-capi/build.rs.
abi=${version%%.*}
[[ $abi != 0 ]] || abi=$(cut -d. -f1-2 <<<"$version")

if [[ -n ${BUILT-} ]]; then
    built=$BUILT
else
    cargo build --locked --release --package braiddb-capi
    built=${CARGO_TARGET_DIR:-target}/release
fi

install -d "$root/include" "$root/$libdir/pkgconfig"
install -m 644 "$crate"/include/braiddb.{h,hpp} "$root/include"
install -m 644 "$built/libbraiddb.a" "$root/$libdir"
case $(uname -s) in
    Darwin)
        install -m 755 "$built/libbraiddb.dylib" "$root/$libdir/libbraiddb.$abi.dylib"
        ln -sf "libbraiddb.$abi.dylib" "$root/$libdir/libbraiddb.dylib"
        ;;
    *)
        install -m 755 "$built/libbraiddb.so" "$root/$libdir/libbraiddb.so.$version"
        ln -sf "libbraiddb.so.$version" "$root/$libdir/libbraiddb.so.$abi"
        ln -sf "libbraiddb.so.$abi" "$root/$libdir/libbraiddb.so"
        ;;
esac
sed "s|@PREFIX@|$prefix|; s|@LIBDIR@|$libdir|; s|@VERSION@|$version|" "$crate/braiddb.pc.in" \
    >"$root/$libdir/pkgconfig/braiddb.pc"
echo "installed libbraiddb $version in $root"
