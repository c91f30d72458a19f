#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds longhaul on a bare Debian 12 machine and runs a plan. Installs the compiler
# and libraries (as root or with sudo), builds in ./build, plans Llama 3 70B over
# two datacenters, and runs the plan here with emulated links and timed passes.
# Then trains a small model, and compares a second training run with the prediction
# from the first. Results are in ./out.
#
#     ./quickstart.sh [JOB]
set -eu
cd "$(dirname "$0")"
job=${1:-examples/llama3-70b-two-sites.yaml}
say() { printf '\n== %s\n' "$*"; }

say 'Packages'
sh tools/need-packages.sh gcc libc6-dev meson ninja-build pkg-config \
    libyaml-dev libjansson-dev zlib1g-dev libopenblas0-pthread \
    clang lld wasi-libc libclang-rt-14-dev-wasm32
sh tools/get-wasm.sh || echo 'going on without the playground'
echo 'all there'

say 'Building in ./build'
[ -f build/build.ninja ] ||
    meson setup build --buildtype=release >/dev/null </dev/null
ninja -C build cli/longhaul >build/quickstart.log 2>&1 </dev/null || {
    tail -n 40 build/quickstart.log
    exit 1
}
longhaul=build/cli/longhaul
$longhaul --version
mkdir -p out

say "longhaul plan $job"
$longhaul plan "$job" -o out/plan.json --top 5 --html out/plan.html \
    >out/plan.txt
cat out/plan.txt

say 'The same layout under every schedule: longhaul compare'
$longhaul compare "$job" --html out/report.html

say 'One iteration of the plan: longhaul simulate out/plan.json'
$longhaul simulate out/plan.json --trace out/trace.json

# Runs at four times the planned speed; messages carry fewer bytes, but have their
# planned durations.
emulated='--speed 4 --steps 2 --message-bytes 65536'
say "The plan, run here: longhaul train out/plan.json $emulated"
# shellcheck disable=SC2086 # words
$longhaul train out/plan.json $emulated --trace out/measured.json \
    --html out/run.html >out/run.txt
cat out/run.txt

say 'The fastest layout for 1F1B, run in the same way'
{
    grep -v '^layout:' "$job"
    echo 'layout: {schedule: 1f1b}'
} >out/1f1b.yaml
$longhaul plan out/1f1b.yaml -o out/1f1b.json --top 1 >/dev/null
# shellcheck disable=SC2086 # words
$longhaul train out/1f1b.json $emulated >out/run-1f1b.txt
cat out/run-1f1b.txt

say 'Training for real, on this processor: longhaul train out/tiny.json --device cpu'
sed 's/pipeline: 4/pipeline: 2/' examples/tiny-llama-cpu.yaml >out/tiny.yaml
$longhaul plan out/tiny.yaml -o out/tiny.json --top 1 >/dev/null
$longhaul train out/tiny.json --device cpu --data README.md --steps 40 \
    --rate 3e-3 --validation 0.1 --profile-out out/tiny-run.json

say 'The next run, predicted from that one: profile: tiny-run.json in the job'
{
    cat out/tiny.yaml
    echo 'profile: tiny-run.json'
} >out/tiny-again.yaml
$longhaul plan out/tiny-again.yaml -o out/tiny-again.json --top 1 >/dev/null
$longhaul train out/tiny-again.json --device cpu --data README.md --steps 10 \
    >out/run-tiny.txt
cat out/run-tiny.txt

say 'Result'
sed -n -e '/^iteration /p' -e '/^layout /p' -e '/^schedule /p' out/plan.txt
sed -n 's/^measured  \(.*\)/emulated  \1 from the plan, at 4 times its speed/p' \
    out/run.txt
sed -n 's/^measured  \(.*\)/with 1f1b \1 from its own plan/p' out/run-1f1b.txt
sed -n 's/^predicted     /next run      predicted /p' out/run-tiny.txt
sed -n 's/^measured  /trained   /p' out/run-tiny.txt
echo
echo "plan          $PWD/out/plan.json"
echo "all layouts   $PWD/out/plan.html"
echo "trace         $PWD/out/trace.json (open in https://ui.perfetto.dev)"
echo "measured      $PWD/out/run.html"
echo "report        $PWD/out/report.html"
echo 'several hosts  install libssl-dev and build again; for mpirun also'
echo '              libopenmpi-dev, since ranks find each other by MPI then'
if $longhaul playground -o out/playground.html 2>/dev/null; then
    echo "playground    $PWD/out/playground.html"
fi
