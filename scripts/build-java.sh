#!/usr/bin/env bash
# Builds the Java package with the native library of this platform: java/braiddb/target/braiddb-*.jar.
#
#   scripts/build-java.sh            a release build; needs Rust, a C compiler, Java 17 and Maven
#   scripts/build-java.sh --native   only the native library, to java/native/target/jar
#   scripts/build-java.sh --kafka-streams    also java/kafka-streams/target/braiddb-kafka-streams-*.jar,
#                                            and the example of java/examples/kafka-streams
#
# BRAIDDB_PROFILE is the profile of cargo: release by default.
set -euo pipefail
cd "$(dirname "$0")/.."

case $(uname -s) in
Linux) system=linux library=libbraiddb_jni.so ;;
Darwin) system=macos library=libbraiddb_jni.dylib ;;
MINGW* | MSYS* | CYGWIN*) system=windows library=braiddb_jni.dll ;;
*) system=$(uname -s | tr '[:upper:]' '[:lower:]') library=libbraiddb_jni.so ;;
esac
case $(uname -m) in
x86_64 | amd64) processor=x86_64 ;;
aarch64 | arm64) processor=aarch64 ;;
*) processor=$(uname -m) ;;
esac

profile=${BRAIDDB_PROFILE:-release}
# Checkpoints in S3: a minute of build time that tests do not need.
features=()
[[ $profile != release ]] || features=(--features s3)
cargo build --quiet --locked --profile "$profile" ${features[@]+"${features[@]}"} --manifest-path java/native/Cargo.toml
built=${CARGO_TARGET_DIR:-java/native/target}/${profile/#dev/debug}/$library
# NativeLibrary.java looks for it here.
folder=java/native/target/jar/io/github/braiddb/native/$system-$processor
mkdir -p "$folder"
cp "$built" "$folder/"

[[ ${1-} != --native ]] || exit 0
modules=braiddb
[[ ${1-} != --kafka-streams ]] || modules=braiddb,kafka-streams,examples/kafka-streams
mvn -q -B -f java/pom.xml -pl "$modules" -DskipTests package
for module in ${modules//,/ }; do
    [[ $module == examples/* ]] || ls "java/$module"/target/braiddb-*.jar
done
