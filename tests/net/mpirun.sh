#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The conformance suite with ranks that mpirun starts: 2, 3 and 4, or one number
# for each transport unless all cases run. Waiting ranks poll, so that more ranks
# than processors take long.
#
#     tests/net/mpirun.sh PROGRAM           (test_net_ucx)
set -u
command -v mpirun >/dev/null || {
    echo 'SKIPPED: mpirun is not installed'
    exit 77
}
"$1" --probe || exit
# Open MPI and UCX free memory only at process exit; the tests of the other
# transports reveal our own leaks.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
failed=0
for transport in ucx tcp; do
    ranks=$([ $transport = ucx ] && echo 3 || echo 2)
    [ -z "${LONGHAUL_ALL_CASES:-}" ] || ranks='2 3 4'
    for n in $ranks; do
        echo "$n ranks, $transport:"
        OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
            TEST_NET_TRANSPORT=$transport timeout 200 \
            mpirun --oversubscribe --mca mpi_yield_when_idle 1 \
            -x ASAN_OPTIONS -np $n \
            "$1" --mpi || failed=1
    done
done
exit $failed
