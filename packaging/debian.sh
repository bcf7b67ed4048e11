#!/usr/bin/env bash
# Makes a Debian package of the C library and its headers: libbraiddb-dev_VERSION_ARCH.deb in FOLDER.
#
#   packaging/debian.sh FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(realpath "${1:?name a folder for the package}")
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
chmod 755 "$stage"
DESTDIR=$stage scripts/install-c.sh /usr
# Debian keeps libraries by architecture.
triplet=$(dpkg-architecture -q DEB_HOST_MULTIARCH 2>/dev/null || cc -print-multiarch)
mkdir "$stage/usr/lib/$triplet"
mv "$stage"/usr/lib/{libbraiddb.*,pkgconfig} "$stage/usr/lib/$triplet"
sed -i "s|^libdir=.*|libdir=\${prefix}/lib/$triplet|" "$stage/usr/lib/$triplet/pkgconfig/braiddb.pc"
install -Dm644 LICENSE-MIT LICENSE-APACHE -t "$stage/usr/share/doc/libbraiddb-dev"
version=$(sed -n 's/^Version: //p' "$stage/usr/lib/$triplet/pkgconfig/braiddb.pc")
architecture=$(dpkg --print-architecture)
mkdir "$stage/DEBIAN"
cat >"$stage/DEBIAN/control" <<CONTROL
Package: libbraiddb-dev
Version: $version
Architecture: $architecture
Section: libdevel
Priority: optional
Maintainer: The BraidDB authors <braiddb@users.noreply.github.com>
Depends: libc6, libgcc-s1
Installed-Size: $(du -ks "$stage/usr" | cut -f1)
Homepage: https://github.com/braiddb/braiddb
Description: embedded, ordered, transactional key-value store
 The library libbraiddb, its headers for C and C++, and its pkg-config file.
CONTROL
printf 'activate-noawait ldconfig\n' >"$stage/DEBIAN/triggers"
dpkg-deb --root-owner-group --build "$stage" "$folder/libbraiddb-dev_${version}_$architecture.deb"
