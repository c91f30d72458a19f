#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the fuzz targets with clang and runs each for SECONDS (default 60), JOBS at
# a time (default: one per processor). Without a TARGET, mutate.py tests the program
# with damaged files in parallel until the targets end: at most 10,000 files, for
# which SECONDS 600 suffice. Without sanitizers they take about ten minutes of a
# processor: tests/fuzz/mutate.py --program build/cli/longhaul
# Findings are stored in build-fuzz/findings and make this fail.
#
#     tests/fuzz/run.sh [SECONDS [TARGET...]]
set -eu
cd "$(dirname "$0")/../.."
seconds=${1:-60}
[ $# -gt 0 ] && shift
build=${BUILD:-build-fuzz}
[ -f "$build/build.ninja" ] ||
    CC=clang meson setup "$build" -Dfuzz=true -Doptimization=1 \
        -Dc_args=-g1 -Db_sanitize=address,undefined -Db_lundef=false \
        -Dplayground=disabled -Dpage=disabled >/dev/null
ninja -C "$build" fuzzers
mutants=
[ $# -gt 0 ] || mutants=yes
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
jobs=${JOBS:-$(nproc)}
if [ -n "$mutants" ]; then
    python3 tests/fuzz/mutate.py --program "$build/cli/longhaul" \
        --seconds $((($# + jobs - 1) / jobs * seconds)) \
        --findings "$build/findings" >"$build/mutants.log" 2>&1 &
    mutants=$!
    trap 'kill "$mutants" 2>/dev/null || :' EXIT
fi
status=0
printf '%s\n' "$@" | xargs -P "$jobs" -n 1 sh -c "$one" fuzz || status=1
if [ -n "$mutants" ]; then
    if wait "$mutants"; then
        echo "fuzz $(tail -n 1 "$build/mutants.log")"
    else
        echo "fuzz mutants: FAILED, see $build/mutants.log" >&2
        tail -n 30 "$build/mutants.log" >&2
        status=1
    fi
fi
exit "$status"
