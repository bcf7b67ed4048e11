#!/usr/bin/env bash
# Compares the test vectors of tuple keys with FoundationDB's tuple libraries for Python (package
# `foundationdb`) and Node (package `fdb-tuple`). Installs both into a temporary folder; neither
# needs the client library for tuples.
#
#   scripts/check-tuple-vectors.sh [python] [node]
#
# Ends with code 3 if a language or its registry cannot be reached, and names it.
#
# A vector may have `differs`: the bytes of a library that contradicts the specification there. The
# check expects exactly these, so a corrected library is noticed.
set -euo pipefail
cd "$(dirname "$0")/.."
readonly vectors=$PWD/crates/braiddb-typed/tests/vectors.json
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
readonly foundationdb=8.0.0 fdb_tuple=1.0.0
languages=("$@")
[[ $# -gt 0 ]] || languages=(python node)

cannot() {
    printf 'SKIPPED: %s\n' "$*"
    unchecked=3
}

check_python() {
    python3 -m venv "$work/venv" || { cannot "python: no python3 with venv"; return 0; }
    "$work/venv/bin/pip" install --quiet --disable-pip-version-check "foundationdb==$foundationdb" ||
        { cannot "python: foundationdb $foundationdb cannot be installed"; return 0; }
    cat >"$work/check.py" <<'PYTHON'
import importlib.metadata, json, struct, sys, types, uuid

try:
    import fdb.tuple as tuple_layer
except Exception as error:
    # The package's root may load the client library; its tuple module does not need it.
    print(f"PYTHON: import fdb.tuple FAILS without the client library ({error}): loading tuple.py alone", file=sys.stderr)
    import importlib.util, pathlib, site
    package = types.ModuleType("fdb")
    package.is_api_version_selected = lambda: False
    package.impl = types.SimpleNamespace(Value=type("Value", (), {}))
    sys.modules["fdb"] = package
    folder = next(path for path in map(pathlib.Path, site.getsitepackages()) if (path / "fdb").is_dir())
    spec = importlib.util.spec_from_file_location("fdb.tuple", folder / "fdb" / "tuple.py")
    tuple_layer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tuple_layer)

if not hasattr(sys.modules["fdb"], "impl"):
    # Versionstamp.to_bytes asks for a class of the module that loads the client library.
    print("PYTHON: fdb.impl is absent without the client library: a stand-in makes versionstamps work", file=sys.stderr)
    sys.modules["fdb"].impl = types.SimpleNamespace(Value=type("Value", (), {}))


def element(value):
    if isinstance(value, list):
        return tuple(element(member) for member in value)
    if not isinstance(value, dict):
        return value
    (name, text), = value.items()
    if name == "bytes":
        return bytes.fromhex(text)
    if name == "uuid":
        return uuid.UUID(text)
    if name == "versionstamp":
        return tuple_layer.Versionstamp.from_bytes(bytes.fromhex(text))
    if name == "float":
        number = struct.unpack(">f", bytes.fromhex(text))[0] if isinstance(text, str) else text
        return tuple_layer.SingleFloat(number)
    if name == "double":
        return struct.unpack(">d", bytes.fromhex(text))[0]
    return int(text, 16)


failed = 0
vectors = json.load(open(sys.argv[1]))["vectors"]
for vector in vectors:
    expected = vector.get("differs", {}).get("python", vector["bytes"])
    try:
        packed = tuple_layer.pack(element(vector["key"])).hex()
        # NaNs are unequal to themselves: compare what is packed again.
        again = tuple_layer.pack(tuple_layer.unpack(bytes.fromhex(vector["bytes"]))).hex()
    except Exception as error:
        packed = again = f"{type(error).__name__}: {error}"
    if (packed, again) != (expected, expected):
        failed += 1
        print(f"PYTHON: {json.dumps(vector['key'])}: packs {packed}, unpacks and packs {again}, expected {expected}")
version = importlib.metadata.version("foundationdb")
print(f"python, foundationdb {version}: {len(vectors) - failed} of {len(vectors)} vectors agree")
sys.exit(failed > 0)
PYTHON
    "$work/venv/bin/python" "$work/check.py" "$vectors"
}

check_node() {
    command -v node >/dev/null && command -v npm >/dev/null || { cannot "node: no node or no npm"; return 0; }
    (cd "$work" && npm install --silent --no-save --ignore-scripts --no-audit --no-fund "fdb-tuple@$fdb_tuple") ||
        { cannot "node: fdb-tuple $fdb_tuple cannot be installed"; return 0; }
    cat >"$work/check.js" <<'NODE'
const fs = require('fs')
const { pack, unpack } = require('fdb-tuple')

// JSON.parse loses the difference of 1 and 1.0, and of large integers: numbers become objects first.
const number = /("(?:[^"\\]|\\.)*")|(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)/g
const kept = (line) => line.replace(number, (all, text, digits) => text ?? `{"number":"${digits}"}`)

const floatOf = (json) => {
  if (json.number !== undefined) return { type: 'float', value: Number(json.number) }
  const rawEncoding = Buffer.from(json, 'hex')
  return { type: 'float', value: rawEncoding.readFloatBE(0), rawEncoding }
}

const element = (json) => {
  if (json === null || typeof json !== 'object') return json
  if (Array.isArray(json)) return json.map(element)
  const [[name, value]] = Object.entries(json)
  switch (name) {
    case 'number':
      if (/[.eE]/.test(value)) return { type: 'double', value: Number(value) }
      return Number.isSafeInteger(Number(value)) ? Number(value) : BigInt(value)
    case 'bytes': return Buffer.from(value, 'hex')
    case 'uuid': return { type: 'uuid', value: Buffer.from(value.replace(/-/g, ''), 'hex') }
    case 'versionstamp': return { type: 'versionstamp', value: Buffer.from(value, 'hex') }
    case 'float': return floatOf(value)
    case 'double': {
      const rawEncoding = Buffer.from(value, 'hex')
      return { type: 'double', value: rawEncoding.readDoubleBE(0), rawEncoding }
    }
    case 'int': return value.startsWith('-') ? -BigInt(value.slice(1)) : BigInt(value)
  }
}

let failed = 0
const vectors = JSON.parse(kept(fs.readFileSync(process.argv[2], 'utf8'))).vectors
for (const vector of vectors) {
  const expected = vector.differs?.node ?? vector.bytes
  let packed, again
  try {
    packed = pack(element(vector.key)).toString('hex')
    again = pack(unpack(Buffer.from(vector.bytes, 'hex'), true)).toString('hex')
  } catch (error) {
    packed = again = `${error}`
  }
  if (packed !== expected || again !== expected) {
    failed += 1
    console.log(`NODE: ${JSON.stringify(vector.key)}: packs ${packed}, unpacks and packs ${again}, expected ${expected}`)
  }
}
const version = require('fdb-tuple/package.json').version
console.log(`node, fdb-tuple ${version}: ${vectors.length - failed} of ${vectors.length} vectors agree`)
process.exit(failed > 0 ? 1 : 0)
NODE
    node "$work/check.js" "$vectors"
}

failed=0
unchecked=0
for language in "${languages[@]}"; do
    "check_$language" || failed=1
done
[[ $failed -eq 0 ]] || exit 1
exit "$unchecked"
