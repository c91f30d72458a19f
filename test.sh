#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds longhaul and tests it: `./test.sh --help` says how.
set -u
cd "$(dirname "$0")" || exit 1

usage() {
    cat <<'EOT'
Builds longhaul in every way that matters and tests all of it. On a bare Debian
12 machine it first installs what the tests need, as root or with sudo. The
last line is "N passed, N failed", with ", N skipped" where something that a
test needs is not to be had.

    ./test.sh            all: with sanitizers, by clang, by ThreadSanitizer, by
                         a plain compiler, and fuzzing
    ./test.sh --quick    what a change usually needs, in minutes: one optimised
                         build with its assertions, and the suites house, unit,
                         property, fuzz (each parser over its corpus) and cli
    ./test.sh --help     this

Environment:
    LONGHAUL_NO_INSTALL=1     install nothing; tests that lack something skip
    LONGHAUL_TORCH=PYTHON     a Python with torch, in place of getting torch
    LONGHAUL_PYTHON=PYTHON    a Python with longhaul, in place of installing it
    LONGHAUL_FUZZ_SECONDS=N   for each fuzz target (default 60; 0: none)
EOT
}

quick=
for option; do
    case $option in
    --quick) quick=yes ;;
    -h | --help)
        usage
        exit 0
        ;;
    *)
        echo "test.sh: there is no '$option'; try --help" >&2
        exit 2
        ;;
    esac
done
seconds=${LONGHAUL_FUZZ_SECONDS:-60}
passed=0 failed=0 skipped=0
begin=$(date +%s)

say() { printf '\n== %s (after %s s)\n' "$*" $(($(date +%s) - begin)); }

# step NAME COMMAND...: one check; what it prints is shown if it fails.
step() {
    name=$1
    shift
    mkdir -p build-logs
    if "$@" >build-logs/step.log 2>&1 </dev/null; then
        passed=$((passed + 1))
        echo "ok: $name"
    else
        failed=$((failed + 1))
        tail -n 40 build-logs/step.log
        echo "FAILED: $name"
        return 1
    fi
}

skip() {
    skipped=$((skipped + 1))
    echo "SKIPPED: $*"
}

# suite BUILD ARGUMENTS-OF-MESON-TEST...: runs and counts the tests of a build.
suite() {
    build=$1
    shift
    rm -f "$build/meson-logs/testlog.json"
    # Two more at a time than there are processors: some tests mostly wait. What
    # hangs is ended; what is slow on a busy machine is not.
    meson test -C "$build" --no-rebuild --print-errorlogs --quiet \
        --timeout-multiplier 4 --num-processes $(($(nproc) + 2)) "$@" \
        >build-logs/suite.log 2>&1 </dev/null
    if ! numbers=$(python3 tools/count-tests.py "$build/meson-logs/testlog.json"); then
        cat build-logs/suite.log
        failed=$((failed + 1))
        return
    fi
    # shellcheck disable=SC2086 # three numbers
    set -- $numbers
    echo "$1 passed, $2 failed, $3 skipped"
    passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
}

# get SCRIPT FOLDER: what the script of tools/ puts there, for tests that skip
# without it.
get() {
    mkdir -p build-logs
    if sh "tools/$1" "$2" >"build-logs/$2.log" 2>&1 </dev/null; then
        echo 'there'
    else
        tail -n 5 "build-logs/$2.log"
        echo "$2 IS NOT TO BE HAD: the tests that need it will be skipped"
        return 1
    fi
}

# configure FOLDER OPTIONS...: sets up, if need be.
configure() {
    [ -f "$1/build.ninja" ] || step "configure $1" meson setup "$@"
}

# build FOLDER OPTIONS...: sets up, if need be, and builds.
build() {
    configure "$@" && step "build $1" ninja -C "$1"
}

# suites FOLDER NAMES...: builds what the tests of these suites run, and runs
# them.
suites() {
    folder=$1
    shift
    # What meson.build files came to say since the last time is in the list.
    ninja -C "$folder" build.ninja >/dev/null
    # shellcheck disable=SC2046 # a list
    step "build $folder" ninja -C "$folder" \
        $(python3 tools/suite-targets.py "$folder" "$@") || return
    for name; do
        shift
        set -- "$@" --suite "$name"
    done
    suite "$folder" "$@"
}

# The last line, and whether all is well.
sum() {
    say 'Sum'
    if [ "$skipped" -gt 0 ]; then
        echo "$passed passed, $failed failed, $skipped skipped"
    else
        echo "$passed passed, $failed failed"
    fi
    [ "$failed" = 0 ] && [ "$passed" -gt 0 ]
}

packages='gcc g++ libc6-dev meson ninja-build pkg-config libyaml-dev
    libjansson-dev zlib1g-dev libssl-dev libucx-dev libopenmpi-dev openmpi-bin
    libopenblas0-pthread iproute2 procps slurmctld slurmd
    slurm-client munge clang libclang-rt-14-dev lld wasi-libc libclang-rt-14-dev-wasm32
    nodejs python3 python3-dev python3-venv mandoc chromium
    zsh fish binutils'
if [ -z "${LONGHAUL_NO_INSTALL:-}" ]; then
    say 'Packages'
    # shellcheck disable=SC2086 # words
    step packages sh tools/need-packages.sh $packages ||
        echo 'going on with what there is'
fi

if [ -n "$quick" ]; then
    say 'gcc, optimised, with assertions: what a change usually needs'
    # Without debug information, which takes longer to write than to read.
    configure build-quick -Doptimization=2 -Ddebug=false &&
        suites build-quick house unit property fuzz cli
    sum
    exit
fi

if [ -z "${LONGHAUL_TORCH:-}" ] && [ -z "${LONGHAUL_NO_INSTALL:-}" ] &&
    ! python3 -c 'import torch' 2>/dev/null; then
    say 'PyTorch, for the tests that exchange schedules with it'
    get get-torch.sh build-torch &&
        export LONGHAUL_TORCH="$PWD/build-torch/bin/python"
fi

if [ -z "${LONGHAUL_NO_INSTALL:-}" ]; then
    say 'What the playground is compiled with'
    get get-wasm.sh build-wasm
fi

if [ -z "${LONGHAUL_PYTHON:-}" ] && [ -z "${LONGHAUL_NO_INSTALL:-}" ]; then
    say 'The Python package, installed as a user would'
    get get-wheel.sh build-wheel &&
        export LONGHAUL_PYTHON="$PWD/build-wheel/bin/python"
fi

# With -g1 a report has file and line, which is all that is needed of it.
say 'gcc, AddressSanitizer, UndefinedBehaviorSanitizer: all but what searches find'
if build build-asan -Dbuildtype=debugoptimized -Dc_args=-g1 \
    -Db_sanitize=address,undefined -Db_lundef=false; then
    # What searches find, and what other programs make of it, is not theirs.
    suite build-asan --no-suite searches --no-suite peers
fi

if command -v clang >/dev/null; then
    say 'clang, optimised, without sanitizers: all tests but slow and browser'
    if CC=clang build build-clang -Dbuildtype=release -Dplayground=disabled; then
        suite build-clang --no-suite browser
    fi
else
    skip 'clang is not installed: no build with it, no fuzzing'
fi

say 'ThreadSanitizer: what runs on several threads'
configure build-tsan -Dbuildtype=debugoptimized -Dc_args=-g1 \
    -Dplayground=disabled -Db_sanitize=thread -Db_lundef=false && suites build-tsan threads

say 'The library by a plain compiler, without configuring'
step 'cc -std=c11' sh tools/plain-cc.sh

if [ "$seconds" -gt 0 ] && command -v clang >/dev/null; then
    say "Fuzzing every parser for $seconds s, and the program beside them"
    targets=$(sed -n "s/^  '\(.*\)': \[.*/\1/p" tests/fuzz/meson.build | wc -l)
    targets=$((targets + 1)) # damaged files for the program, beside them
    # Six at a time on two processors: each has its minute, and all are done
    # sooner.
    if JOBS=$((3 * $(nproc))) sh tests/fuzz/run.sh "$seconds" </dev/null >build-logs/fuzz.log 2>&1; then
        passed=$((passed + targets))
        grep '^fuzz ' build-logs/fuzz.log
    else
        tail -n 40 build-logs/fuzz.log
        found=$(grep -c '^fuzz .*no finding' build-logs/fuzz.log)
        passed=$((passed + found)) failed=$((failed + targets - found))
    fi
fi

sum
