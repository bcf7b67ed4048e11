#!/usr/bin/env bash
# Builds the native library of the Java package, and tests the package with each Java.
#
#   scripts/test-java.sh [java-home...]
#
# Runs the tests, a program that misuses the package under -Xcheck:jni, and the example on the module
# path. Without arguments, uses the oldest and the newest JDK from 17 on that it finds in
# /usr/lib/jvm, in JAVA_HOME and on the PATH.
#
# BRAIDDB_VOLUME is the part of the full volumes to run: 1 by default. Exits with 3 if it cannot run:
# there is no Maven, no JDK, or no package registry.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly version_min=17
readonly volume=${BRAIDDB_VOLUME:-1}

skip() {
    echo "SKIPPED: $*"
    exit 3
}

# Prints version and path of each JDK, one for each version.
find_javas() {
    local javac home version
    for javac in /usr/lib/jvm/*/bin/javac "${JAVA_HOME:-/none}/bin/javac" "$(command -v javac || true)"; do
        [[ -x $javac ]] || continue
        version=$("$javac" -version 2>&1 | sed -nE 's/^javac ([0-9]+).*/\1/p')
        home=$(dirname "$(dirname "$(readlink -f "$javac")")")
        if [[ -n $version && $version -ge $version_min ]]; then
            echo "$version $home"
        fi
    done | sort -n | awk '!seen[$1]++'
}

command -v mvn >/dev/null || skip "there is no Maven"
javas=("$@")
if [[ ${#javas[@]} -eq 0 ]]; then
    mapfile -t javas < <(find_javas | awk '{print $2}')
    if [[ ${#javas[@]} -gt 2 ]]; then
        javas=("${javas[0]}" "${javas[-1]}")
    fi
fi
[[ ${#javas[@]} -gt 0 ]] || skip "there is no JDK $version_min or later"
export JAVA_HOME=${javas[0]}
maven() { mvn -q -B --no-transfer-progress -f java/pom.xml "$@"; }

echo "building the native library"
BRAIDDB_PROFILE=${BRAIDDB_PROFILE:-dev} scripts/build-java.sh --native
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Downloads with Maven. Only a failed download is a skip.
get() {
    maven -pl braiddb "$@" >"$work/maven" 2>&1 && return
    cat "$work/maven"
    ! grep -qE 'Could not transfer|failed to transfer|No plugin found for prefix|Cannot access .* in offline mode' "$work/maven" ||
        skip "Maven cannot get the plugins and JUnit: can the package registry be reached?"
    exit 1
}
# The other modules need the first one, which is not in a registry: only their largest part is asked for.
get dependency:resolve dependency:resolve-plugins
get dependency:get -Dartifact=org.apache.kafka:kafka-streams:4.3.1:jar:test -Dtransitive=false

tests=()
for JAVA_HOME in "${javas[@]}"; do
    echo "testing with $("$JAVA_HOME/bin/javac" -version), $JAVA_HOME"
    maven clean verify "-Dtest.options=-Dbraiddb.volume=$volume" ${tests[@]+"${tests[@]}"}
    # The long tests of the stores of Kafka Streams run once.
    tests=('-Dtest=!CrashTest,!SameAsKafkaTest,!TopologyTest' -Dsurefire.failIfNoSpecifiedTests=false)

    classes=java/braiddb/target
    access=()
    "$JAVA_HOME/bin/java" --help | grep -e --enable-native-access >/dev/null &&
        access=(--enable-native-access=ALL-UNNAMED)
    seconds=$(awk "BEGIN { print int(60 * $volume) + 5 }")
    echo "misusing it for $seconds s under -Xcheck:jni"
    "$JAVA_HOME/bin/java" ${access[@]+"${access[@]}"} -Xcheck:jni -Xmx256m \
        -cp "$classes/classes:$classes/test-classes" io.github.braiddb.Misuse "$seconds" >"$work/misuse" 2>&1 ||
        { cat "$work/misuse"; exit 1; }
    cat "$work/misuse"
    if grep -E 'WARNING.*JNI|WARNING in native|FATAL ERROR' "$work/misuse"; then
        exit 1
    fi

    echo "running the example"
    [[ ${#access[@]} -eq 0 ]] || access=(--enable-native-access=io.github.braiddb)
    "$JAVA_HOME/bin/java" ${access[@]+"${access[@]}"} -p "$classes/"braiddb-*.jar --add-modules io.github.braiddb \
        java/examples/Quickstart.java >"$work/output" 2>&1 || { cat "$work/output"; exit 1; }
    grep -qx 'apples left: 9' "$work/output" || { cat "$work/output"; exit 1; }
done
