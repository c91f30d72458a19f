#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Two hosts, emulated by network namespaces, with two links between them. One link
# fails and recovers, then the other, during message exchange and during training;
# then both fail.
#
#     tests/net/rails.sh PAIR LONGHAUL SOURCE_ROOT    (rails_pair, the program)
#     tests/net/rails.sh PAIR rates MBIT1 MBIT2       how much goes over one, and
#                                                     over both, links of MBIT
#
# Exit status 77 with the reason, if this is not possible here.
set -u
pair=$1 longhaul=$2 root=$3
skip() {
    echo "SKIPPED: $*"
    exit 77
}
"$pair" --probe || exit
[ "$(id -u)" = 0 ] || skip 'network namespaces need root'
for tool in ip tc; do
    command -v $tool >/dev/null || skip "$tool is not installed"
done
a=lhra$$ b=lhrb$$
clean() {
    for pid in ${pids:-}; do
        kill -9 "$pid" 2>/dev/null
    done
    ip netns del $a 2>/dev/null
    ip netns del $b 2>/dev/null
    rm -rf "$work"
}
work=$(mktemp -d)
trap clean EXIT
trap 'exit 1' INT TERM
ip netns add $a 2>/dev/null && ip netns add $b 2>/dev/null ||
    skip 'network namespaces are not permitted here'
for k in 0 1; do
    ip -n $a link add rail$k type veth peer name rail$k netns $b ||
        skip 'no veth here'
    number=1
    for name in $a $b; do
        ip -n $name addr add 10.78.$k.$number/24 dev rail$k
        ip -n $name link set rail$k up
        number=$((number + 1))
    done
done
ip -n $a link set lo up
ip -n $b link set lo up
are_up() {
    for name in $a $b; do
        for k in 0 1; do
            ip -n $name link show rail$k | grep -q 'state UP' || return 1
        done
    done
}
# Waits for a condition; the limit ends a hanging test.
until_so() {
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || return 1
        sleep 0.1
    done
}
until_so are_up || skip 'the links do not come up'
port=4711
# start WHAT RAILS FILE: both ranks, in the background.
start() {
    port=$((port + 1))
    pids=
    for rank in 0 1; do
        host=$a
        [ $rank = 0 ] || host=$b
        timeout 200 ip netns exec $host "$pair" $rank 10.78.0.1 $port "$2" \
            "$1" "$3" >"$work/rank$rank" 2>&1 &
        pids="$pids $!"
    done
}
failed=0
await() {
    for pid in $pids; do
        wait "$pid" || failed=1
    done
    pids=
}

if [ "$longhaul" = rates ]; then
    k=0
    for mbit in "$3" "$4"; do
        for name in $a $b; do
            tc -n $name qdisc add dev rail$k root tbf rate "${mbit}mbit" \
                burst 256kb latency 20ms || skip 'no tbf here'
        done
        k=$((k + 1))
    done
    for rails in - rail0 rail1 rail0,rail1; do
        start stream $rails $(($3 * 1000000))
        await
        echo "$rails: $(tail -n 1 "$work/rank0")"
    done
    exit $failed
fi

# Rounds that are done; more of them.
rounds() {
    grep -cx '[0-9]*' "$work/rank0"
}
goes_on() {
    [ "$(rounds)" -gt "$1" ]
}
go_on() {
    seen=$(($(rounds) + 5))
    until_so goes_on $seen || {
        echo 'it does not go on'
        failed=1
    }
}
told() {
    grep -q "$1" "$work/rank1"
}
is_back() {
    told "rail $1 of ranks 1 and 0 .* is reconnected"
}

echo 'messages, while one link and then the other goes down and comes back:'
start pings rail0,rail1 "$work/stop"
go_on
for rail in 0 1; do
    ip -n $a link set rail$rail down
    go_on
    ip -n $a link set rail$rail up
    until_so are_up
    go_on
    until_so is_back $rail
done
go_on
touch "$work/stop"
await
rm "$work/stop"
grep -hvx "[0-9]*" "$work/rank0" "$work/rank1" | grep -v joined
for k in 0 1; do
    told "rail $k of ranks 1 and 0 .* is lost" && is_back $k || {
        echo "rail $k: nobody says that it went and came"
        failed=1
    }
done

echo 'both go down:'
start pings rail0,rail1 "$work/stop"
go_on
ip -n $a link set rail0 down
ip -n $a link set rail1 down
for pid in $pids; do # has to fail
    wait "$pid" && failed=1
done
pids=
tail -qn 1 "$work/rank0" "$work/rank1"
for rank in 0 1; do
    tail -n 1 "$work/rank$rank" | grep -q "over 2 rails for [1-9][0-9]" ||
        failed=1
done
ip -n $a link set rail0 up
ip -n $a link set rail1 up
until_so are_up

echo 'training, while one link goes down and comes back:'
sed -e 's/hidden: 128, ffn: 384/hidden: 64, ffn: 96/' \
    -e 's/head_dim: 32/head_dim: 16/' -e 's/sequence: 128/sequence: 32/' \
    -e 's/pipeline: 4/pipeline: 2/' \
    "$root/examples/tiny-llama-cpu.yaml" >"$work/job.yaml"
yes 'It was the best of times, it was the worst of times.' |
    head -n 99 >"$work/text"
"$longhaul" plan "$work/job.yaml" -o "$work/plan.json" >/dev/null || exit 1
train() {
    where=$1 steps=$2
    shift 2
    "$@" "$longhaul" train "$work/plan.json" --device cpu --data "$work/text" \
        --steps "$steps" --min-rate 1e-3 --warmup 0 --rate 1e-3 \
        --checkpoint "$work/$where" ${rails:-}
}
rails=
train probe 1 env >"$work/said" 2>&1 || {
    grep 'OpenBLAS is not installed' "$work/said" && exit $failed
    cat "$work/said"
    exit 1
}
rails='--transport tcp --rails rail0,rail1'
log() {
    [ ! -f "$work/log" ] || wc -l <"$work/log"
}
port=$((port + 1))
for rank in 0 1; do
    host=$a
    [ $rank = 0 ] || host=$b
    more=
    [ $rank = 1 ] || more="--log $work/log"
    rails="--transport tcp --rails rail0,rail1 $more"
    train far 4000 timeout 250 ip netns exec $host env SLURM_PROCID=$rank \
        SLURM_STEP_NUM_TASKS=2 SLURM_JOB_ID=1 SLURM_STEP_ID=0 \
        SLURM_STEP_NUM_NODES=2 LONGHAUL_HOST=10.78.0.1 LONGHAUL_PORT=$port \
        LONGHAUL_SECRET=0123456789abcdef0123456789abcdef \
        >"$work/said$rank" 2>&1 &
    pids="${pids:-} $!"
    [ $rank = 1 ] || first=$!
done
logged() {
    [ "$(($(log) + 0))" -gt "$1" ]
}
until_so logged 2 || failed=1
ip -n $b link set rail0 down
n=$(log)
until_so logged $((n + 3)) || failed=1
ip -n $b link set rail0 up
until_so are_up
until_so grep -q 'rail 0 of ranks 1 and 0 .* is reconnected' "$work/said1"
n=$(log)
until_so logged $((n + 3)) || failed=1
# Rank 0 is asked to stop: after this step. timeout passes a signal on to its
# child and to its group, and two interrupts would end it at once.
kill -TERM "$(pgrep -P "$first" | head -n 1)" 2>/dev/null
for pid in $pids; do
    wait "$pid"
done
pids=
cat "$work/said0" "$work/said1"
grep -q 'rail 0 of ranks 1 and 0 .* is lost' "$work/said1" || failed=1
last=$(find "$work/far" -name 'step-*' | sort | tail -n 1)
steps=$(echo "$last" | sed 's/.*step-0*//')
rails=
train near "$steps" env >"$work/said" 2>&1 || failed=1
cmp "$last/model.safetensors" \
    "$work/near/$(basename "$last")/model.safetensors" || exit 1
echo "$steps steps, the same weights as without rails"
exit $failed
