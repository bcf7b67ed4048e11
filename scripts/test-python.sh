#!/usr/bin/env bash
# Builds the wheel of the Python package and tests it in temporary environments.
#
#   scripts/test-python.sh [--ends] [python...]
#
# Without interpreters, uses every CPython from 3.10 on that it finds on the PATH and in pyenv; with
# --ends only the oldest and the newest. Exits with 3 if there is none, or no package registry.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly minor_min=10

skip() {
    echo "SKIPPED: $*"
    exit 3
}

# Prints minor versions and paths of the usable interpreters, one for each version.
find_pythons() {
    local python
    for python in "$(command -v python3 || true)" $(compgen -c python3. | grep -xE 'python3\.[0-9]+' | sort -u) ~/.pyenv/versions/3.*/bin/python; do
        "$python" - "$minor_min" 2>/dev/null <<'PYTHON' || true
import ensurepip, sys, sysconfig
is_usable = sys.implementation.name == "cpython" and not sysconfig.get_config_var("Py_GIL_DISABLED")
if is_usable and sys.version_info >= (3, int(sys.argv[1])):
    print(sys.version_info[1], sys.executable)
PYTHON
    done | sort -n | awk '!seen[$1]++'
}

only_ends=
[[ ${1-} != --ends ]] || { only_ends=yes; shift; }
pythons=("$@")
if [[ ${#pythons[@]} -eq 0 ]]; then
    mapfile -t pythons < <(find_pythons | awk '{print $2}')
    if [[ -n $only_ends && ${#pythons[@]} -gt 2 ]]; then
        pythons=("${pythons[0]}" "${pythons[-1]}")
    fi
fi
[[ ${#pythons[@]} -gt 0 ]] || skip "there is no CPython 3.$minor_min or later with venv"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"${pythons[-1]}" -m venv "$work/build"
"$work/build/bin/pip" install --quiet --disable-pip-version-check 'maturin>=1.9,<2' 'mypy>=1.10' ||
    skip "maturin cannot be installed"
echo "building the wheel"
(cd python && "$work/build/bin/maturin" build --quiet --locked --profile dev --out "$work/wheels")
wheel=("$work"/wheels/braiddb-*-abi3-*.whl)
listed=$("$work/build/bin/python" -m zipfile --list "${wheel[0]}")
for file in LICENSE-MIT LICENSE-APACHE py.typed _braiddb.pyi; do
    grep -q "/$file " <<<"$listed" ||
        { echo "the wheel lacks $file" >&2; exit 1; }
done
(cd python && "$work/build/bin/mypy" --cache-dir "$work/mypy")

for python in "${pythons[@]}"; do
    echo "testing with $("$python" --version), $python"
    rm -rf "$work/test"
    "$python" -m venv "$work/test"
    "$work/test/bin/pip" install --quiet --disable-pip-version-check "${wheel[0]}[test]"
    # From another directory, so that the tests import the wheel.
    (cd python/tests && "$work/test/bin/python" -m pytest -q -p no:cacheprovider)
done

# Once is enough: the class has no code for a version of Python.
echo "testing with the tests of diskcache"
python/tests/suites/run-diskcache.sh "$work/test/bin/python"
