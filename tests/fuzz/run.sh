#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the fuzz targets with clang and runs each for SECONDS (default 60), as
# many at a time as JOBS says (default: one per processor). Findings end up in
# build-fuzz/findings and make this fail.
#
#     tests/fuzz/run.sh [SECONDS [TARGET...]]
set -eu
cd "$(dirname "$0")/../.."
seconds=${1:-60}
[ $# -gt 0 ] && shift
build=${BUILD:-build-fuzz}
[ -f "$build/build.ninja" ] ||
    CC=clang meson setup "$build" -Dfuzz=true -Dbuildtype=debugoptimized \
        -Dc_args=-g1 -Db_lundef=false >/dev/null
ninja -C "$build" fuzzers
[ $# -gt 0 ] || set -- $(sed -n "s/^  '\(.*\)': \[.*/\1/p" tests/fuzz/meson.build)
mkdir -p "$build/findings"

export build seconds
one='
name=$1
mkdir -p "$build/corpus/$name"
dict=tests/fuzz/$name.dict
[ -f "$dict" ] || dict=tests/fuzz/yaml.dict
log=$build/fuzz_$name.log
if "$build/tests/fuzz/fuzz_$name" -max_total_time="$seconds" -timeout=20 \
    -rss_limit_mb=2048 -max_len=8192 -dict="$dict" -print_final_stats=1 \
    -artifact_prefix="$build/findings/$name-" \
    "$build/corpus/$name" "tests/fuzz/corpus/$name" >"$log" 2>&1
then
    runs=$(sed -n "s/stat::number_of_executed_units: *//p" "$log")
    echo "fuzz $name: $runs runs in $seconds s, no finding"
else
    echo "fuzz $name: FAILED, see $log" >&2
    tail -n 30 "$log" >&2
    exit 1
fi
'
printf '%s\n' "$@" |
    xargs -P "${JOBS:-$(nproc)}" -n 1 sh -c "$one" fuzz
