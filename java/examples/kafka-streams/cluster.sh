#!/usr/bin/env bash
# Three brokers of Kafka and three instances of the example on this machine.
#
#   cluster.sh start          starts brokers, a feed of plays, and instances; waits until all work
#   cluster.sh stop           ends them; keeps their files
#   cluster.sh clean          stops them and deletes their files
#
# Single processes, in the foreground; NUMBER is 1, 2 or 3:
#
#   cluster.sh prepare        gets Kafka's jars from Maven, and formats the brokers' storage
#   cluster.sh broker NUMBER
#   cluster.sh feed [PLAYS-A-SECOND]
#   cluster.sh instance NUMBER [SETTING=VALUE...]
#
# CLUSTER_DIR is the folder for files, target/cluster beside this script by default. CLUSTER_PORT is
# the first of nine ports on 127.0.0.1: brokers have 19092 to 19094, controllers the next three,
# instances the last three. CLUSTER_CLASSES replaces the classpath of instances. JAVA_HOME chooses the
# Java. Needs Maven, and scripts/build-java.sh --kafka-streams before.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly here
readonly files=${CLUSTER_DIR:-$here/target/cluster}
readonly port=${CLUSTER_PORT:-19092}
readonly java=${JAVA_HOME:+$JAVA_HOME/bin/}java
readonly brokers=127.0.0.1:$port,127.0.0.1:$((port + 1)),127.0.0.1:$((port + 2))
# Small processes that start fast. The name of the folder marks them.
readonly small=("-Dcluster.files=$files" -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto
    -Dorg.slf4j.simpleLogger.showDateTime=true -Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS
    -Dorg.slf4j.simpleLogger.log.io.github.braiddb=info "-Dorg.slf4j.simpleLogger.defaultLogLevel=${CLUSTER_LOG:-warn}")

die() {
    echo "cluster.sh: $*" >&2
    exit 1
}

broker_settings() {
    local number=$1
    cat <<SETTINGS
process.roles=broker,controller
node.id=$number
listeners=BROKER://127.0.0.1:$((port + number - 1)),CONTROLLER://127.0.0.1:$((port + number + 2))
listener.security.protocol.map=BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=BROKER
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:$((port + 3)),2@127.0.0.1:$((port + 4)),3@127.0.0.1:$((port + 5))
log.dirs=$files/broker-$number
# A commit survives the loss of any one broker.
default.replication.factor=3
min.insync.replicas=2
auto.create.topics.enable=false
offsets.topic.num.partitions=3
transaction.state.log.num.partitions=3
# Detects killed brokers and instances within seconds, and aborts their transactions.
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
group.min.session.timeout.ms=1000
group.initial.rebalance.delay.ms=200
transaction.abort.timed.out.transaction.cleanup.interval.ms=1000
# Small.
num.network.threads=2
num.io.threads=2
log.cleaner.dedupe.buffer.size=4194304
log.index.size.max.bytes=1048576
SETTINGS
}

prepare() {
    mkdir -p "$files"
    [[ -s $files/classpath ]] || mvn -q -B --no-transfer-progress -f "$here/brokers.xml" \
        dependency:build-classpath -Dmdep.outputFile="$files/classpath" >&2 || die "Maven cannot get Kafka's jars"
    local number
    for number in 1 2 3; do
        broker_settings "$number" >"$files/broker-$number.properties"
        [[ -e $files/broker-$number/meta.properties ]] || "$java" "${small[@]}" -Xmx64m -cp "$(<"$files/classpath")" \
            kafka.tools.StorageTool format --cluster-id BraidDB-example-AAAAAA \
            --config "$files/broker-$number.properties" >&2
    done
}

run_broker() {
    cd "$files"
    exec "$java" "${small[@]}" -Xmx256m -cp "$(<classpath)" kafka.Kafka "$files/broker-$1.properties"
}

# The classes and libraries of the example.
example_classpath() {
    if [[ -n ${CLUSTER_CLASSES-} ]]; then
        printf '%s' "$CLUSTER_CLASSES"
        return
    fi
    [[ -s $here/target/classpath && -d $here/target/classes ]] || die "build it first: scripts/build-java.sh --kafka-streams"
    printf '%s' "$here/target/classes:$(<"$here/target/classpath")"
}

run_feed() {
    exec "$java" "${small[@]}" -Xmx64m -cp "$(example_classpath)" \
        io.github.braiddb.examples.Feed "$brokers" "${1:-100}"
}

run_instance() {
    local number=$1 access=()
    shift
    "$java" --help | grep -e --enable-native-access >/dev/null && access=(--enable-native-access=ALL-UNNAMED)
    exec "$java" "${small[@]}" ${access[@]+"${access[@]}"} -Xmx256m -cp "$(example_classpath)" \
        io.github.braiddb.examples.PlayCounts "$here/application.properties" \
        "bootstrap.servers=$brokers" "state.dir=$files/instance-$number" \
        "application.server=127.0.0.1:$((port + number + 5))" "$@"
}

# Checks that a process runs: its number may be that of another one by now.
runs() { [[ -e $files/$1.pid && $(ps -o args= -p "$(<"$files/$1.pid")") == *"$files"* ]]; }

# Starts a process in the background; its number and its output go to files.
background() {
    local name=$1
    shift
    ! runs "$name" || die "$name runs already"
    CLUSTER_DIR=$files "${BASH_SOURCE[0]}" "$@" >>"$files/$name.log" 2>&1 </dev/null &
    echo $! >"$files/$name.pid"
}

# Waits until a command succeeds, while the process of that name runs.
await() {
    local name=$1 attempt
    shift
    for ((attempt = 0; attempt < 240; attempt++)); do
        ! "$@" 2>/dev/null || return 0
        kill -0 "$(<"$files/$name.pid")" 2>/dev/null || break
        sleep 0.5
    done
    tail -n 5 "$files/$name.log" >&2
    die "$name does not start; see $files/$name.log"
}
listens() { (: <>"/dev/tcp/127.0.0.1/$1"); }
# Asks the instance in this process: no other program is needed.
is_running() {
    local answer
    exec 3<>"/dev/tcp/127.0.0.1/$1" || return 1
    printf 'GET /state HTTP/1.0\r\n\r\n' >&3
    answer=$(cat <&3)
    exec 3>&-
    [[ $answer == *RUNNING* ]]
}

start() {
    local number
    prepare
    for number in 1 2 3; do
        background "broker-$number" broker "$number"
    done
    for number in 1 2 3; do
        await "broker-$number" listens $((port + number - 1))
    done
    background feed feed
    # A global table needs its topic at the start.
    await feed grep -q "the topics exist" "$files/feed.log"
    for number in 1 2 3; do
        background "instance-$number" instance "$number"
    done
    for number in 1 2 3; do
        await "instance-$number" is_running $((port + number + 5))
        echo "instance $number: http://127.0.0.1:$((port + number + 5))/plays-by-track"
    done
}

# Ends processes in the order in which they need each other.
stop() {
    local name pid attempt
    for name in feed instance-{1,2,3} broker-{1,2,3}; do
        if ! runs "$name"; then
            rm -f "$files/$name.pid"
            continue
        fi
        pid=$(<"$files/$name.pid")
        rm "$files/$name.pid"
        kill "$pid" 2>/dev/null || continue
        # The last brokers may wait for the others: those are killed.
        for ((attempt = 0; attempt < 60; attempt++)); do
            kill -0 "$pid" 2>/dev/null || continue 2
            sleep 0.25
        done
        kill -9 "$pid" 2>/dev/null || true
    done
}

case ${1-} in
start) start ;;
stop) stop ;;
clean)
    stop
    rm -rf "$files"
    ;;
prepare) prepare ;;
broker) run_broker "$2" ;;
feed) run_feed "${@:2}" ;;
instance) run_instance "${@:2}" ;;
*)
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
    exit 2
    ;;
esac
