#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds and tests longhaul: see `./test.sh --help`.
set -u
cd "$(dirname "$0")" || exit 1

usage() {
    cat <<'EOT'
Builds longhaul and tests it. On a bare Debian 12 machine it first installs the
packages that the tests need, as root or with sudo. Near the end it prints the
stages with their times and the twenty slowest tests; the last line is
"N passed, N failed", with ", N skipped" where a test lacks something it needs.

    ./test.sh            under 20 minutes on two cores, with the first fifth of
                         the random cases: the suites unit and fuzz with
                         AddressSanitizer and UndefinedBehaviorSanitizer, all
                         other ones by gcc, 10 s for each fuzzer
    ./test.sh --quick    under 4 minutes: one optimised build, and the suites
                         house, unit, property, fuzz
    ./test.sh --all      hours: all random cases by clang and with sanitizers,
                         threads with ThreadSanitizer, suite slow, the library by
                         a plain compiler, 60 s for each fuzzer
    ./test.sh --help     this

Environment:
    LONGHAUL_NO_INSTALL=1     install nothing; tests that lack something skip
    LONGHAUL_TORCH=PYTHON     a Python with torch, in place of installing torch
    LONGHAUL_PYTHON=PYTHON    a Python with longhaul, in place of installing it
    LONGHAUL_MEGATRON=FOLDER  a checkout of Megatron-LM, to import its tests'
                              configurations too
    LONGHAUL_FUZZ_SECONDS=N   for each fuzz target (0: none)
EOT
}

mode=usual
for option; do
    case $option in
    --quick) mode=quick ;;
    --all) mode=all ;;
    -h | --help)
        usage
        exit 0
        ;;
    *)
        echo "test.sh: unknown option '$option'; try --help" >&2
        exit 2
        ;;
    esac
done
if [ "$mode" = all ]; then
    seconds=${LONGHAUL_FUZZ_SECONDS:-60}
    export LONGHAUL_ALL_CASES=1
else
    seconds=${LONGHAUL_FUZZ_SECONDS:-10}
    unset LONGHAUL_ALL_CASES
fi
# The builds that compile the same share objects, if ccache is installed. Python
# may set LC_CTYPE for the compilers that it starts.
export CCACHE_DIR="${CCACHE_DIR:-$PWD/build-ccache}"
export CCACHE_SLOPPINESS="${CCACHE_SLOPPINESS:-locale}"
# Each module that a Python imports is compiled once: torch's take 8 s. The source
# folder and the system's Python remain as they are.
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX="${PYTHONPYCACHEPREFIX:-$PWD/build-pycache}"
passed=0 failed=0 skipped=0
begin=$(date +%s)
mkdir -p build-logs
rm -f build-logs/*.testlog build-logs/stages

# stage TITLE: ends the previous stage and begins a new one.
stage() {
    now=$(date +%s)
    [ -z "${stage_title:-}" ] ||
        printf '%5d s  %s\n' $((now - stage_begin)) "$stage_title" \
            >>build-logs/stages
    stage_title=$1 stage_begin=$now
    printf '\n== %s (after %s s)\n' "$1" $((now - begin))
}

# step NAME COMMAND...: runs one check; prints its output if it fails.
step() {
    name=$1
    shift
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
    rm -f "$build"/meson-logs/testlog*.json
    # Four tests more at a time than there are processors: some tests wait. Only a
    # test that hangs reaches its limit.
    meson test -C "$build" --no-rebuild --print-errorlogs --quiet \
        --timeout-multiplier 4 --num-processes $(($(nproc) + 4)) "$@" \
        >build-logs/suite.log 2>&1 </dev/null
    # With --setup NAME the log is testlog-NAME.json.
    if ! numbers=$(python3 tools/count-tests.py "$build"/meson-logs/testlog*.json); then
        cat build-logs/suite.log
        failed=$((failed + 1))
        return
    fi
    cp "$build"/meson-logs/testlog*.json "build-logs/$build-$(date +%s).testlog"
    # shellcheck disable=SC2086 # three numbers
    set -- $numbers
    echo "$1 passed, $2 failed, $3 skipped"
    passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
}

# begin NAME COMMAND...: starts a job in the background.
begin() {
    job=$1
    shift
    "$@" >"build-logs/$job.log" 2>&1 </dev/null &
    eval "job_$job=$!"
}

# end NAME: waits for a job; returns its status. Prints its log if it failed.
end() {
    eval "pid=\${job_$1:-} job_$1="
    [ -n "$pid" ] || return 0
    wait "$pid" || {
        tail -n 40 "build-logs/$1.log"
        return 1
    }
}

# get NAME FOLDER: waits for the job that fills the folder.
# Tests that need the folder skip without it.
get() {
    if end "$1"; then
        echo "$2: installed"
    else
        echo "$2 IS NOT AVAILABLE: the tests that need it will be skipped"
        return 1
    fi
}

await_packages() {
    [ -z "${job_packages:-}" ] ||
        step 'packages that tests need' end packages
}

# configure FOLDER OPTIONS...: unless it is configured.
configure() {
    [ -f "$1/build.ninja" ] || meson setup "$@"
}

# build FOLDER OPTIONS...: configures if need be, and builds.
build() {
    step "configure $1" configure "$@" && step "build $1" ninja -C "$1"
}

# suites FOLDER NAMES...: builds the programs that these suites run, and runs
# the suites, without the long searches.
suites() {
    folder=$1
    shift
    ninja -C "$folder" build.ninja >/dev/null # meson.build may be newer
    # shellcheck disable=SC2046 # a list
    step "build $folder" ninja -C "$folder" \
        $(python3 tools/suite-targets.py "$folder" "$@" \
            --without searches) || return
    for name; do
        shift
        set -- "$@" --suite "$name"
    done
    suite "$folder" "$@" --no-suite searches
}

# fuzz: runs every fuzzer in build-fuzz.
fuzz() {
    targets=$(sed -n "s/^  '\(.*\)': \[.*/\1/p" tests/fuzz/meson.build | wc -l)
    targets=$((targets + 1)) # damaged files for the program, beside them
    if JOBS=$((4 * $(nproc))) sh tests/fuzz/run.sh "$seconds" \
        </dev/null >build-logs/fuzz.log 2>&1; then
        passed=$((passed + targets))
        grep '^fuzz ' build-logs/fuzz.log
    else
        tail -n 40 build-logs/fuzz.log
        found=$(grep -c '^fuzz .*no finding' build-logs/fuzz.log)
        passed=$((passed + found)) failed=$((failed + targets - found))
    fi
}

# finish: prints the times and the last line; its status is the run's.
finish() {
    stage 'Times'
    cat build-logs/stages
    echo 'The slowest tests:'
    python3 tools/count-tests.py --slowest 20 build-logs/*.testlog
    echo
    if [ "$skipped" -gt 0 ]; then
        echo "$passed passed, $failed failed, $skipped skipped"
    else
        echo "$passed passed, $failed failed"
    fi
    [ "$failed" = 0 ] && [ "$passed" -gt 0 ]
}

# The builds need these; the tests need the other ones too, which are installed
# during the first builds.
packages='gcc g++ libc6-dev meson ninja-build pkg-config libyaml-dev
    libjansson-dev zlib1g-dev libssl-dev libucx-dev libopenmpi-dev openmpi-bin
    libopenblas0-pthread iproute2 procps clang libclang-rt-14-dev lld ccache
    python3 python3-dev python3-venv binutils wasi-libc
    libclang-rt-14-dev-wasm32'
more_packages='slurmctld slurmd slurm-client munge nodejs mandoc chromium zsh
    fish'
# Torch is downloaded while the packages are installed, if there is a Python that
# can make environments.
begin_torch() {
    [ -n "${job_torch:-}" ] || [ "$mode" = quick ] ||
        [ -n "${LONGHAUL_TORCH:-}" ] || python3 -c 'import torch' 2>/dev/null ||
        ! python3 -c 'import ensurepip, venv' 2>/dev/null || {
        begin torch sh tools/get-torch.sh build-torch
        LONGHAUL_TORCH=$PWD/build-torch/bin/python
    }
}
if [ -z "${LONGHAUL_NO_INSTALL:-}" ]; then
    stage 'Packages'
    begin_torch
    # shellcheck disable=SC2086 # words
    step packages sh tools/need-packages.sh $packages ||
        echo 'continuing with the packages that are installed'
fi

if [ "$mode" = quick ]; then
    stage 'gcc, optimised: suites house, unit, property, fuzz'
    # Writing debug information takes longer than it saves.
    [ -f build-quick/build.ninja ] ||
        step 'configure build-quick' meson setup build-quick \
            -Doptimization=2 -Ddebug=false -Dplayground=disabled \
            -Dpage=disabled
    suites build-quick house unit property fuzz
    finish
    exit
fi

# Mostly downloads: they run in parallel with the first builds.
if [ -z "${LONGHAUL_NO_INSTALL:-}" ]; then
    stage 'Sources of the playground'
    # shellcheck disable=SC2086 # words
    begin packages sh tools/need-packages.sh $more_packages
    begin wasm sh tools/get-wasm.sh build-wasm
    begin_torch
    get wasm build-wasm
fi

if [ "$mode" = all ]; then
    await_packages
    stage 'gcc, AddressSanitizer, UndefinedBehaviorSanitizer: all suites'
    # With -g1 a report has file and line.
    if build build-asan -Dbuildtype=debugoptimized -Dc_args=-g1 \
        -Db_sanitize=address,undefined -Db_lundef=false -Dall_cases=true; then
        suite build-asan --no-suite searches --no-suite peers
    fi
fi

sanitized=''
if command -v clang >/dev/null; then
    sanitized=yes
else
    skip 'clang is not installed: no sanitizers, no fuzzing'
fi
# AddressSanitizer finds the accesses that the first three checks precede, and the
# processor allows unaligned accesses. These checks are half of the build's time,
# and the lines of reports another sixth: --all has both.
sanitizing='-fno-sanitize=null,object-size,pointer-overflow,alignment'
lines=false
[ "$mode" != all ] || sanitizing='-g1' lines=true
configure_fuzz() {
    CC=clang CC_LD=$(command -v ld.lld >/dev/null && echo lld || echo bfd) \
        configure build-fuzz -Dfuzz=true -Doptimization=1 -Ddebug=$lines \
        -Dc_args="$sanitizing" -Db_sanitize=address,undefined \
        -Db_lundef=false -Dplayground=disabled -Dpage=disabled
}
[ -z "$sanitized" ] || begin configure configure_fuzz
if [ "$mode" = all ]; then
    stage 'clang, optimised: build'
    main='build-clang'
    CC=clang build $main -Dbuildtype=release -Dall_cases=true
else
    stage 'gcc, optimised: build'
    main='build-gcc'
    step 'configure build-gcc' configure $main -Doptimization=2 -Ddebug=false
    ninja -C $main build.ninja >/dev/null # meson.build may be newer
    # Unit tests and replays run with sanitizers, if there is clang.
    # shellcheck disable=SC2046 # a list
    step 'build build-gcc' ninja -C $main $([ -z "$sanitized" ] ||
        python3 tools/suite-targets.py $main --without unit fuzz slow)
fi
# These wait for downloads, or use the processor while tests wait. The wheel
# takes its objects from ccache.
if [ -z "${LONGHAUL_PYTHON:-}" ] && [ -z "${LONGHAUL_NO_INSTALL:-}" ]; then
    begin wheel sh tools/get-wheel.sh build-wheel
fi
[ "$mode" != all ] || begin plain nice -n 10 sh tools/plain-cc.sh

if [ -n "$sanitized" ]; then
    stage 'clang, AddressSanitizer, UndefinedBehaviorSanitizer: unit, fuzz'
    step 'configure build-fuzz' end configure
    suites build-fuzz unit fuzz
    if [ "$seconds" -gt 0 ]; then
        stage "Fuzzers: $seconds s each"
        fuzz
    fi
fi

if [ "$mode" = all ]; then
    stage 'ThreadSanitizer: suite threads'
    step 'configure build-tsan' configure build-tsan \
        -Dbuildtype=debugoptimized -Dc_args=-g1 -Dplayground=disabled \
        -Db_sanitize=thread -Db_lundef=false
    suites build-tsan threads
fi

stage 'Waiting for packages and downloads'
await_packages
[ -z "${job_plain:-}" ] ||
    step 'the library by cc -std=c11, without configuring' end plain
if [ -n "${job_wheel:-}" ]; then
    get wheel build-wheel && export LONGHAUL_PYTHON="$PWD/build-wheel/bin/python"
fi
if [ -n "${job_torch:-}" ]; then
    get torch build-torch || LONGHAUL_TORCH=
fi
[ -z "${LONGHAUL_TORCH:-}" ] || export LONGHAUL_TORCH
if [ "$mode" = usual ] && [ -n "$sanitized" ]; then
    stage 'gcc, optimised: all suites, without those run with sanitizers'
    suite $main --no-suite unit --no-suite fuzz
else
    stage "$main: all suites"
    suite $main
fi
if [ "$mode" = all ]; then
    stage 'Suite slow'
    suite $main --setup slow --suite slow
fi
finish
