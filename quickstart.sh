#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# From a bare Debian 12 machine to a plan: installs the compiler and the two
# libraries that longhaul needs (as root or with sudo), builds it in ./build,
# and plans Llama 3 70B over two datacenters. What comes out is in ./out.
#
#     ./quickstart.sh [JOB]
set -eu
cd "$(dirname "$0")"
job=${1:-examples/llama3-70b-two-sites.yaml}
say() { printf '\n== %s\n' "$*"; }

say 'Packages'
sh tools/need-packages.sh gcc libc6-dev meson ninja-build pkg-config \
    libyaml-dev libjansson-dev
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

say 'Result'
sed -n -e '/^iteration /p' -e '/^layout /p' -e '/^schedule /p' out/plan.txt
echo
echo "plan          $PWD/out/plan.json"
echo "all layouts   $PWD/out/plan.html"
echo "trace         $PWD/out/trace.json (open in https://ui.perfetto.dev)"
echo "report        $PWD/out/report.html"
