#!/usr/bin/env bash
# Makes a Debian package of the C library and its headers in FOLDER.
#
#   packaging/debian.sh FOLDER
#
# Needs Debian's dpkg-dev, and installs cargo-deb if it is missing. The package's description is in
# crates/braiddb-capi/Cargo.toml. It depends on versions of libraries that dpkg-shlibdeps finds.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(realpath "${1:?name a folder for the package}")
readonly cargo_deb=3.8.0
command -v cargo-deb >/dev/null || cargo install --locked --version "$cargo_deb" cargo-deb

# Links and the pkg-config file are files of the stage; cargo-deb finds it in the target folder, and
# moves libraries to the folder of their architecture.
stage=${CARGO_TARGET_DIR:-$PWD/target}/release/debian
rm -rf "$stage"
DESTDIR=$stage scripts/install-c.sh /usr
triplet=$(dpkg-architecture -q DEB_HOST_MULTIARCH)
sed -i "s|^libdir=.*|libdir=\${prefix}/lib/$triplet|" "$stage/usr/lib/pkgconfig/braiddb.pc"
strip --strip-unneeded "$stage"/usr/lib/libbraiddb.so.*.*.*
strip --strip-debug "$stage/usr/lib/libbraiddb.a"
cargo deb --locked --no-build --package braiddb-capi --multiarch same --output "$folder"
