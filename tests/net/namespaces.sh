#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Two hosts, emulated by network namespaces with a link of 100 Mbit/s between
# them, run the conformance suite, and a job, over MPI with UCX and with tcp.
#
#     tests/net/namespaces.sh PROGRAM LONGHAUL       (test_net_ucx, the program)
#
# Exit status 77 with the reason, if this is not possible here.
set -u
program=$1 longhaul=$2
skip() {
    echo "SKIPPED: $*"
    exit 77
}
"$program" --probe || exit
[ "$(id -u)" = 0 ] || skip 'network namespaces need root'
for tool in ip tc mpirun unshare; do
    command -v $tool >/dev/null || skip "$tool is not installed"
done
# As in mpirun.sh.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
a=lh$$a b=lh$$b
clean() {
    ip netns del $a 2>/dev/null
    ip netns del $b 2>/dev/null
    rm -rf "$work"
}
work=$(mktemp -d)
trap clean EXIT
trap 'exit 1' INT TERM
ip netns add $a 2>/dev/null && ip netns add $b 2>/dev/null ||
    skip 'network namespaces are not permitted here'
ip -n $a link add wan type veth peer name wan netns $b || skip 'no veth here'
number=1
for name in $a $b; do
    ip -n $name addr add 10.77.0.$number/24 dev wan
    ip -n $name link set lo up
    ip -n $name link set wan up
    tc -n $name qdisc add dev wan root tbf rate 100mbit burst 64kb latency 50ms ||
        skip 'no tbf here'
    number=$((number + 1))
done
tries=0 # the state takes up to a second
until ip -n $a link show wan | grep -q 'state UP' &&
    ip -n $b link show wan | grep -q 'state UP'; do
    tries=$((tries + 1))
    [ $tries -lt 600 ] || break
    sleep 0.1
done

# Replaces ssh: the last arguments are the command for the other host.
cat >"$work/agent" <<AGENT
#!/bin/sh
shift
exec ip netns exec $b unshare -u -i sh -c "hostname east; \$*"
AGENT
chmod +x "$work/agent"

# A job on two ranks; a rank's time is a tenth of a second, a message a quarter MB.
cat >"$work/pair.yaml" <<PAIR
longhaul: pipeline/1
time_unit: ms
microbatches: 4
devices: 2
uniform: {placement: ud, F: 10, D: 10, W: 5, memory: {F: 1, W: -1}}
PAIR

# there TRANSPORT COMMAND: two ranks of it, one on each host.
there() {
    ip netns exec $a unshare -u -i sh -c "hostname west; exec timeout 200 \
        env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        mpirun --mca plm_rsh_agent $work/agent --host west:1,east:1 -np 2 \
        --mca mpi_yield_when_idle 1 --mca btl_tcp_if_include wan \
        --mca oob_tcp_if_include wan --mca btl tcp,self --mca pml ob1 \
        -x UCX_TLS=tcp -x UCX_NET_DEVICES=wan -x TEST_NET_MBIT=100 \
        -x ASAN_OPTIONS -x TEST_NET_TRANSPORT=$1 $2"
}

failed=0
for transport in ucx tcp; do
    echo "two hosts, $transport:"
    there $transport "$program --mpi" || failed=1
    insecure=
    [ $transport != ucx ] || insecure=--insecure
    there $transport "$longhaul train $work/pair.yaml -s zb-h1 --steps 3 \
        --transport $transport $insecure --real-links --message-bytes 262144 --json" \
        >"$work/run.json" || failed=1
    [ "$(grep -c '"seconds"' "$work/run.json")" = 3 ] || {
        echo 'the job did not run'
        cat "$work/run.json"
        failed=1
    }
done

# The link between the hosts fails; TCP alone would detect this after many minutes.
for transport in ucx tcp; do
    echo "a link that goes down, $transport:"
    ip -n $a link set wan up
    until ip -n $a link show wan | grep -q 'state UP' &&
        ip -n $b link show wan | grep -q 'state UP'; do
        sleep 0.1
    done
    for rank in 0 1; do
        host=$a
        [ $rank = 0 ] || host=$b
        UCX_TLS=tcp UCX_NET_DEVICES=wan timeout 200 ip netns exec $host \
            unshare -i "$program" --apart $rank 10.77.0.1 4711 $transport \
            >"$work/rank$rank" 2>&1 &
        eval "pid$rank=$!"
    done
    tries=0
    until grep -q joined "$work/rank0" && grep -q joined "$work/rank1"; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || break
        sleep 0.1
    done
    ip -n $a link set wan down
    # shellcheck disable=SC2154 # set by eval
    wait "$pid0" || failed=1
    wait "$pid1" || failed=1
    cat "$work/rank0" "$work/rank1"
done
exit $failed
