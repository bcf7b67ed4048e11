#!/usr/bin/env bash
# Kills brokers and instances of java/examples/kafka-streams with SIGKILL, and checks that all results
# count each input exactly once: with and without enable.transactional.statestores, with checkpoints,
# with standby tasks, and that a planted fault is found.
#
#   scripts/test-kafka.sh [rounds [kind ...]]
#
# A round takes half a minute; without an argument there are two of each of the four kinds, and the
# planted faults (leak), one round each. Kinds are plain, transactional, checkpoints, standbys and
# leak.
# BRAIDDB_SEED chooses the kills. Needs 3 GiB of memory. Exits with 3 if it cannot run: there is no
# Maven, no JDK, or no package registry. Runs with the Java of JAVA_HOME, or the one on the PATH.
set -euo pipefail
cd "$(dirname "$0")/.."
readonly rounds=${1:-2}
kinds=("${@:2}")
[[ ${#kinds[@]} -gt 0 ]] || kinds=(plain transactional checkpoints standbys leak)
for kind in "${kinds[@]}"; do
    case $kind in
        plain | transactional | checkpoints | standbys | leak) ;;
        *)
            echo "there is no kind '$kind'; kinds are plain, transactional, checkpoints, standbys and leak" >&2
            exit 2
            ;;
    esac
done
[[ $rounds =~ ^[1-9][0-9]*$ ]] || {
    echo "the first argument is a number of rounds, not '$rounds'" >&2
    exit 2
}
readonly seed=${BRAIDDB_SEED:-1}
readonly example=$PWD/java/examples/kafka-streams
readonly java=${JAVA_HOME:+$JAVA_HOME/bin/}java

skip() {
    echo "SKIPPED: $*"
    exit 3
}
command -v mvn >/dev/null || skip "there is no Maven"
command -v "${java}c" >/dev/null || skip "there is no JDK"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Runs a command with Maven. Only a failed download is a skip.
build() {
    "$@" >"$work/maven" 2>&1 && return
    cat "$work/maven"
    ! grep -qE 'Could not transfer|failed to transfer|No plugin found for prefix|Cannot access .* in offline mode' "$work/maven" ||
        skip "Maven cannot get jars: can the package registry be reached?"
    exit 1
}
build mvn -q -B --no-transfer-progress -f "$example/brokers.xml" \
    dependency:build-classpath -Dmdep.outputFile="$work/classpath"
BRAIDDB_PROFILE=${BRAIDDB_PROFILE:-dev} build scripts/build-java.sh --kafka-streams

classpath=$example/target/classes:$example/target/test-classes:$(<"$example/target/classpath")
run() {
    echo "exactly once: $*"
    "$java" -Xmx256m -Dorg.slf4j.simpleLogger.defaultLogLevel=error -cp "$classpath" \
        io.github.braiddb.examples.ExactlyOnce "$example/cluster.sh" "$work/files" "seed=$seed" "$@" || {
        tail -n 20 "$work"/files/*.log
        exit 1
    }
}
transactional=enable.transactional.statestores=true
for kind in "${kinds[@]}"; do
    case $kind in
        plain) run "rounds=$rounds" ;;
        transactional) run "rounds=$rounds" $transactional ;;
        checkpoints) run "rounds=$rounds" $transactional checkpoints=true ;;
        standbys) run "rounds=$rounds" $transactional checkpoints=true standbys=1 ;;
        leak)
            run rounds=1 leak=true
            run rounds=1 leak=true $transactional
            ;;
    esac
done
