#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs tests many times on a loaded machine, to find tests that depend on time, load
# or order.
#
#     tools/repeat-tests.sh BUILD TIMES LOAD [ARGUMENTS OF meson test...]
#
# LOAD busy processes run beside the tests. Prints a line for each round with
# failures, and at the end how many rounds and tests failed; exit status 1 if any
# did. Example: tools/repeat-tests.sh build-gcc 200 20 --suite threads
set -eu
if [ $# -lt 3 ]; then
    sed -n 's/^#  *//p' "$0" | sed -n '2,9p' >&2
    exit 2
fi
build=$1 times=$2 load=$3
shift 3
cd "$(dirname "$0")/.."
busy=
i=0
while [ "$i" -lt "$load" ]; do
    nice -n 0 sh -c 'while :; do :; done' &
    busy="$busy $!"
    i=$((i + 1))
done
# shellcheck disable=SC2064,SC2086 # the processes started above
trap "kill $busy 2>/dev/null || :" EXIT
trap 'exit 130' INT TERM
ninja -C "$build" >/dev/null
failed_rounds=0 failed_tests=0 tests=0 round=1
while [ "$round" -le "$times" ]; do
    meson test -C "$build" --no-rebuild --quiet --timeout-multiplier 20 "$@" \
        >/dev/null 2>&1 </dev/null || :
    set_counts=$(python3 - "$build/meson-logs/testlog.json" <<'PYTHON'
import json, sys
results = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
bad = [t["name"] for t in results
       if t["result"] not in ("OK", "SKIP", "EXPECTEDFAIL")]
print(len(results), len(bad), ", ".join(bad))
PYTHON
)
    tests=$((tests + ${set_counts%% *}))
    rest=${set_counts#* }
    if [ "${rest%% *}" -gt 0 ]; then
        failed_rounds=$((failed_rounds + 1))
        failed_tests=$((failed_tests + ${rest%% *}))
        echo "round $round: failed: ${rest#* }"
        cp "$build/meson-logs/testlog.txt" "$build/meson-logs/failed-$round.txt"
    fi
    round=$((round + 1))
done
echo "$times rounds at a load of $load, $tests test runs: $failed_tests failed" \
    "in $failed_rounds rounds"
[ "$failed_rounds" = 0 ]
