#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ranks started by Slurm, on a temporary cluster of two nodes on this host: munged,
# slurmctld and slurmd with their own files, sockets and ports.
#
#     tests/net/slurm.sh PROGRAM SOURCE_ROOT            some seconds
#     tests/net/slurm.sh PROGRAM SOURCE_ROOT limits     what time limits do:
#                                                       minutes
set -u
PATH=$PATH:/usr/sbin:/sbin
program=$(realpath "$1") root=$(realpath "$2") limits=${3:-}
for need in munged slurmctld slurmd srun sbatch scancel; do
    command -v $need >/dev/null || {
        echo "SKIPPED: no $need here; as root:" \
            apt-get install slurmctld slurmd slurm-client munge
        exit 77
    }
done

work=$(mktemp -d "${TMPDIR:-/tmp}/longhaul-slurm-XXXXXX") || exit 1
daemons=
is_up=
has_none() { [ -z "$(squeue -h)" ]; }
end() {
    trap - EXIT INT TERM
    # Steps end before the processes that monitor them.
    if [ "$is_up" ]; then
        scancel --full --signal=KILL --user="$(id -un)" 2>/dev/null
        patience=10
        await has_none
    fi
    # shellcheck disable=SC2086 # words
    [ -z "$daemons" ] || kill $daemons 2>/dev/null
    wait
    rm -rf "$work"
    exit "$1"
}
trap 'end 1' EXIT INT TERM

failed=0
fail() {
    echo "FAILED: $*"
    failed=1
}
patience=100 # seconds until a test is taken to hang
[ -z "$limits" ] || patience=300
# await COMMAND...: until it succeeds.
await() {
    since=$(date +%s)
    until "$@" >/dev/null 2>&1; do
        sleep 0.1
        [ $(($(date +%s) - since)) -lt $patience ] || return 1
    done
}
# Nothing of ours has run yet.
quit() {
    cat "$work"/*.log 2>/dev/null | tail -n 60
    echo "SKIPPED: $* here (as $(id -un))"
    end 77
}

# ---- the cluster ----

host=$(hostname -s)
user=$(id -un)
# shellcheck disable=SC2046 # numbers
set -- $(python3 -c '
import socket
all = [socket.socket() for _ in range(4)]
for s in all: s.bind(("127.0.0.1", 0))
print(*[s.getsockname()[1] for s in all])')
mkdir "$work/state"
head -c 128 /dev/urandom >"$work/munge.key"
chmod 600 "$work/munge.key"
cat >"$work/slurm.conf" <<CONF
ClusterName=longhaul
SlurmctldHost=$host(127.0.0.1)
SlurmUser=$user
SlurmdUser=$user
SlurmctldPort=$1
AuthType=auth/munge
AuthInfo=socket=$work/munge.sock
CredType=cred/munge
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool-%n
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd-%n.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/linear
SchedulerType=sched/builtin
MpiDefault=none
KillWait=30
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=here NodeHostname=$host NodeAddr=127.0.0.1 Port=$2 CPUs=8
NodeName=there NodeHostname=$host NodeAddr=127.0.0.1 Port=$3 CPUs=8
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
CONF
export SLURM_CONF="$work/slurm.conf" LONGHAUL_PORT="$4"
munged --foreground --force --socket="$work/munge.sock" \
    --key-file="$work/munge.key" --log-file="$work/munged.log" \
    --pid-file="$work/munged.pid" --seed-file="$work/munge.seed" \
    >"$work/munged-said.log" 2>&1 &
daemons=$!
await test -S "$work/munge.sock" || quit 'munged does not start'
slurmctld -D >"$work/slurmctld-said.log" 2>&1 &
daemons="$daemons $!"
for node in here there; do
    slurmd -D -N $node >"$work/slurmd-said-$node.log" 2>&1 &
    daemons="$daemons $!"
done
are_idle() { [ "$(sinfo -h -N -o %T | grep -c idle)" = 2 ]; }
await are_idle || quit 'Slurm does not start'
is_up=yes

cd "$work" || end 1
mkdir bin
ln -s "$program" bin/longhaul
PATH=$work/bin:$PATH
# UCX frees memory only at process exit.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"

# ---- ranks as tasks of a step ----

cat >p.yaml <<'YAML'
longhaul: pipeline/1
time_unit: ms
microbatches: 8
devices: 4
uniform: {placement: ud, F: 5, D: 5, W: 5}
YAML
play() { srun --quiet "$@" -s 1f1b --steps 2 >out 2>err; }
# said STATUS PATTERN WHAT [TIMES]: the last run's status, and a line that it printed
# once, or TIMES times.
said() {
    if [ "$1" != "$status" ] ||
        [ "$(cat out err | grep -c "$2")" != "${4:-1}" ]; then
        fail "$3: $status"
        cat out err
    fi
}

play_all() {
    play -n 4 longhaul train p.yaml --transport tcp
    status=$?
    said 1 'export LONGHAUL_SECRET' 'no secret' # the node's first rank
    export LONGHAUL_SECRET=0123456789abcdef0123456789abcdef
    for mpi in none pmi2; do
        play -n 4 --mpi=$mpi longhaul train p.yaml --transport tcp
        status=$?
        said 0 'on 4 ranks, timed over tcp' "tcp, --mpi=$mpi"
    done
    play -n 4 longhaul train p.yaml --transport ucx
    status=$?
    if grep -q 'UCX' err; then
        echo "SKIPPED ucx: $(head -n 1 err)"
    else
        said 0 'on 4 ranks, timed over ucx' ucx
    fi
    play -n 3 longhaul train p.yaml --transport tcp
    status=$?
    said 1 '3 ranks were started, but the plan has 4: srun -n 4' \
        'too few ranks' 3
    export LONGHAUL_HOST=127.0.0.1
    play -N 2 -n 4 longhaul train p.yaml --transport tcp
    status=$?
    said 0 'on 4 ranks, timed over tcp' 'two nodes'
    unset LONGHAUL_HOST
}
[ "$limits" ] || play_all
unset LONGHAUL_SECRET LONGHAUL_PORT

# ---- training, with the example ----

sed -e 's/hidden: 128, ffn: 384/hidden: 64, ffn: 96/' \
    -e 's/head_dim: 32/head_dim: 16/' -e 's/sequence: 128/sequence: 32/' \
    "$root/examples/tiny-llama-cpu.yaml" >job.yaml
longhaul plan -q job.yaml -o plan.json >out 2>&1 || fail "plan: $(cat out)"
yes 'It was the best of times, it was the worst of times.' |
    head -n 200 >book.txt
if longhaul train plan.json --device cpu --data book.txt --steps 1 2>&1 |
    grep -q OpenBLAS; then
    echo 'SKIPPED training: OpenBLAS is not installed'
    end $failed
fi

n_lines() { if [ -f run.jsonl ]; then wc -l <run.jsonl; else echo 0; fi; }
# submit OPTIONS...: has the example run until it has a line more in its log.
submit() {
    before=$(n_lines)
    id=$(STEPS=1000000 sbatch --parsable "$@" "$root/examples/slurm.sbatch") ||
        fail "sbatch $*"
    await is_further || {
        fail "job $id does not train: $(cat "longhaul-$id.out")"
        end 1
    }
}
is_further() { [ "$(n_lines)" -gt "$before" ]; }
# Kills one rank of the job, a child process of one of Slurm's.
kill_rank() {
    for pid in $(pgrep -x longhaul); do
        parent=$(ps -o ppid= -p "$pid" | tr -d ' ')
        [ "$(readlink "/proc/$pid/cwd")" = "$work" ] &&
            [ "$(cat "/proc/$parent/comm")" = longhaul ] || continue
        kill -9 "$pid"
        return
    done
    fail 'no rank runs in a child process'
}
has_restarted() { grep -q 'all ranks restart (' "longhaul-$id.out"; }
has_ended() { [ -z "$(squeue -h -j "$id" 2>/dev/null)" ]; }
# The last checkpoint is of the last iteration that the log has.
has_saved() {
    await has_ended || fail "$1: the job does not end"
    last=$(tail -n 1 run.jsonl | sed 's/.*"step": *\([0-9]*\).*/\1/')
    folder=$(printf 'run/step-%08d' $((last + 1)))
    [ -f "$folder/model.safetensors" ] ||
        { fail "$1: no $folder"; ls run; cat "longhaul-$id.out"; }
}

if [ "$limits" ]; then
    submit --time=1 --signal=CONT@1
    has_saved 'the time limit'
    first=$last lines=$(n_lines)
    # Slurm may send it up to a minute early, and here does.
    submit --time=1 --signal=TERM@55
    has_saved 'the signal before the time limit'
else
    submit
    kill_rank
    await has_restarted || fail "no restart: $(cat "longhaul-$id.out")"
    before=$(n_lines)
    await is_further || fail "no iteration after the restart"
    scancel "$id"
    has_saved scancel
    first=$last lines=$(n_lines)
    submit
    scancel --signal=TERM "$id"
    has_saved SIGTERM
fi
[ "$(sed 's/.*"step": *\([0-9]*\).*/\1/' run.jsonl |
    sed -n "$((lines + 1))p")" = $((first + 1)) ] ||
    fail 'the second job does not go on where the first one ended'
[ $failed = 0 ] && echo 'all that Slurm started ended as it should'
end $failed
