#!/usr/bin/env bash
# Makes the Debian package, installs it on this system, compiles and runs programs with it, and
# removes it. Needs root. Refuses to run where the package is installed.
#
#   packaging/test-debian.sh
set -euo pipefail
cd "$(dirname "$0")/.."
readonly name=libbraiddb-dev
if dpkg-query -W "$name" 2>/dev/null; then
    echo "$name is installed here"
    exit 1
fi
work=$(mktemp -d)
trap 'dpkg --purge "$name" 2>/dev/null || true; rm -rf "$work"' EXIT

packaging/debian.sh "$work"
package=("$work/$name"_*.deb)
dpkg-deb --info "${package[0]}"
dpkg-deb --contents "${package[0]}"
dpkg-deb --field "${package[0]}" Depends | grep -qE '^libc6 \(>= [0-9.]+\), libgcc-s1 \(>= [0-9.]+\)$' ||
    { echo "its dependencies have no versions"; exit 1; }
dpkg --install "${package[0]}"

# Only the system's places.
examples=$PWD/crates/braiddb-capi/examples
cd "$work"
unset PKG_CONFIG_PATH PKG_CONFIG_LIBDIR LD_LIBRARY_PATH
# shellcheck disable=SC2046
cc -o c "$examples/quickstart.c" $(pkg-config --cflags --libs braiddb)
# shellcheck disable=SC2046
c++ -std=c++17 -o cpp "$examples/quickstart.cpp" $(pkg-config --cflags --libs braiddb)
ldd c | grep libbraiddb
[[ $(./c first | head -n 1) = "ten: Pearl Jam" && $(./cpp second | head -n 1) = "ten: Pearl Jam" ]]

dpkg --purge "$name"
[[ -z $(find /usr/include /usr/lib -name '*braiddb*') ]] || { echo "the package leaves files"; exit 1; }
# The library's link was a trigger's.
if ldconfig -p | grep braiddb; then exit 1; fi
echo "the Debian package works, and leaves nothing"
