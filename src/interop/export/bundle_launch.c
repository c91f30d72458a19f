/* SPDX-License-Identifier: Apache-2.0 */
/* Generates a bundle's launch.sh and job.sbatch. */
#include "interop/export/bundle.h"

#include <inttypes.h>

/* --- environment variables ------------------------------------------------ */

/* Adds the confidence of a link's advice on `topic`, in parentheses, if the
 * plan has it. */
static void put_confidence(lhi_text *out, const lh_link_advice *a,
                           lh_advice_topic topic)
{
    for (uint32_t i = 0; i < a->n_questions; i++)
        if (a->questions[i].topic == topic && a->questions[i].confidence) {
            lhi_text_puts(out, " (");
            lhi_text_add_escaped(out, a->questions[i].confidence, SIZE_MAX);
            lhi_text_puts(out, ")");
            return;
        }
}

/* Adds a comment line for each link whose advised setting fulfils the callback
 * has(): whether the plan assumes the setting, and the advice's confidence on
 * `topic`. */
static void put_links(lhi_text *out, const lh_plan *plan, lh_advice_topic topic,
                      bool has(const lh_link_setting *setting))
{
    for (uint32_t i = 0; i < plan->n_network; i++) {
        const lh_link_advice *a = &plan->network[i];
        if (!has(&a->advised.setting))
            continue;
        lhi_text_puts(out, "#   ");
        lhi_text_add_escaped(out, a->from, SIZE_MAX);
        lhi_text_puts(out, ">");
        lhi_text_add_escaped(out, a->to, SIZE_MAX);
        if (has(&a->planned.setting)) {
            lhi_text_puts(out, ", as in the plan\n");
            continue;
        }
        lhi_text_puts(out, ", advised");
        put_confidence(out, a, topic);
        lhi_text_puts(out, "\n");
    }
}

/* Checks whether a link setting uses more than one queue pair per connection.
 */
static bool has_queue_pairs(const lh_link_setting *setting)
{
    return setting->queue_pairs > 1;
}

/* Checks whether a link setting sprays packets over all paths. */
static bool sprays_packets(const lh_link_setting *setting)
{
    return setting->balancing == LH_BALANCING_SPRAY;
}

/* Adds NCCL's environment variables for the advised queue pairs and packet
 * spraying. They apply to all connections of a process (NCCL 2.28). Other link
 * settings belong to network cards and switches. */
static void put_nccl(lhi_text *out, const lh_plan *plan)
{
    uint32_t pairs = 1;
    bool spray = false;
    for (uint32_t i = 0; i < plan->n_network; i++) {
        const lh_link_setting *s = &plan->network[i].advised.setting;
        pairs = s->queue_pairs > pairs ? s->queue_pairs : pairs;
        spray = spray || sprays_packets(s);
    }
    if (pairs > 1) {
        lhi_text_printf(out,
                        "# Advice: %" PRIu32 " queue pairs between two GPUs, "
                        "for the links\n",
                        pairs);
        put_links(out, plan, LH_ADVICE_QUEUE_PAIRS, has_queue_pairs);
        lhi_text_printf(out, "export NCCL_IB_QPS_PER_CONNECTION=%" PRIu32 "\n",
                        pairs);
    }
    if (spray) {
        lhi_text_puts(out, "# Advice: spray packets over all paths, for the "
                           "links\n");
        put_links(out, plan, LH_ADVICE_BALANCING, sprays_packets);
        lhi_text_puts(out, "export NCCL_IB_ADAPTIVE_ROUTING=1\n");
    }
}

/* Returns the least power of two that is at least `least`, at most 2^30,
 * because NCCL counts buffer bytes in 32 bits. */
static int64_t round_up_to_power(double least)
{
    int64_t power = 1;

    while ((double)power < least && power < INT64_C(1) << 30)
        power *= 2;
    return power;
}

/* Adds the NCCL variables for the channels per peer and for the buffer size, in
 * bytes. */
static void put_channels(lhi_text *out, uint32_t channels, int64_t buffer)
{
    lhi_text_printf(out,
                    "export NCCL_NCHANNELS_PER_NET_PEER=%" PRIu32 "\n"
                    "export NCCL_MIN_NCHANNELS=%" PRIu32 "\n"
                    "export NCCL_BUFFSIZE=%" PRId64 "\n",
                    channels, channels, buffer);
}

/* Adds NCCL's channels, buffers and sockets as the job's links set them; if
 * links differ, the greatest value of each. Returns false if no link sets
 * channels. */
static bool put_job_ends(lhi_text *out, const lh_job *job)
{
    enum { MOST_THREADS = 16 }; /* MAX_THREADS of NCCL's socket transport */
    lh_link_setting most = {0};

    for (uint32_t i = 0; i < job->n_datacenters * job->n_datacenters; i++) {
        const lh_link_setting *s = &job->wans[i].setting;
        double buffer =
            s->buffer_bytes > 0 ? s->buffer_bytes : LH_NCCL_BUFFER_BYTES;
        if (!s->channels)
            continue;
        if (s->channels > most.channels)
            most.channels = s->channels;
        if (s->sockets > most.sockets)
            most.sockets = s->sockets;
        if (buffer > most.buffer_bytes)
            most.buffer_bytes = buffer;
    }
    if (!most.channels)
        return false;
    lhi_text_puts(out, "# NCCL's ends, as in the job's links\n");
    put_channels(out, most.channels, (int64_t)most.buffer_bytes);
    if (!most.sockets)
        return true;
    uint32_t threads =
        most.sockets < MOST_THREADS ? most.sockets : MOST_THREADS;
    while (most.sockets % threads)
        threads--;
    lhi_text_printf(out,
                    "export NCCL_SOCKET_NTHREADS=%" PRIu32 "\n"
                    "export NCCL_NSOCKS_PERTHREAD=%" PRIu32 "\n",
                    threads, most.sockets / threads);
    return true;
}

/* Adds NCCL's channels and buffers as the job's links set them or, if they do
 * not, buffers large enough for the rate that the plan assumes. */
static void put_ends(lhi_text *out, const lh_plan *plan)
{
    lh_ends_limit limit;

    if (put_job_ends(out, plan->job) ||
        !lh_plan_find_ends_limit(plan, &limit) || limit.planned)
        return;
    int64_t buffer =
        round_up_to_power(limit.link_bytes_per_s * limit.round_trip_ns / 1e9 /
                          limit.ends.channels);
    lhi_text_puts(out, "# Bytes in flight that the plan assumes on ");
    lhi_text_add_escaped(out, limit.from, SIZE_MAX);
    lhi_text_puts(out, ">");
    lhi_text_add_escaped(out, limit.to, SIZE_MAX);
    lhi_text_printf(out,
                    ": %.3g Gb/s for each GPU\n"
                    "# over %.3g ms there and back. Each connection of a GPU "
                    "takes %.3g MiB of\n"
                    "# its memory for them.\n",
                    limit.link_bytes_per_s * 8e-9, limit.round_trip_ns / 1e6,
                    (double)buffer * limit.ends.channels / 0x1p20);
    put_channels(out, limit.ends.channels, buffer);
}

/* Adds the environment variables for CUDA connections, where Megatron requires
 * them, and for NCCL. */
static void put_environment(lhi_text *out, const lhi_bundle *b)
{
    if (b->form->planner_target == LH_TARGET_MEGATRON) {
        switch (lhi_megatron_connections(b->plan)) {
        case LHI_CONNECTIONS_ONE:
            lhi_text_puts(out, "export CUDA_DEVICE_MAX_CONNECTIONS=1\n");
            break;
        case LHI_CONNECTIONS_UNSET:
            lhi_text_puts(out, "unset CUDA_DEVICE_MAX_CONNECTIONS\n");
            break;
        case LHI_CONNECTIONS_ANY:
            break;
        }
    }
    put_nccl(out, b->plan);
    put_ends(out, b->plan);
}

/* --- launch.sh ------------------------------------------------------------ */

static const char start_of_launch[] =
    "#!/bin/sh\n"
    "# Starts the ranks of this host. Run on each host of the job:\n"
    "#     launch.sh [ARGUMENTS of the program]\n"
    "# Host index: the line of hosts-*.txt with this host's name (uname -n, "
    "or\n"
    "# LAUNCH_HOST); or NODE_RANK, the 0-based index over all these lines.\n"
    "# Rendezvous: MASTER_ADDR and MASTER_PORT; default: the host of rank 0.\n"
    "# Program: PROGRAM, in the form that torchrun accepts.\n"
    "set -euf\n"
    "here=$(cd \"$(dirname \"$0\")\" && pwd)\n"
    "die() {\n"
    "    echo \"launch.sh: $*\" >&2\n"
    "    exit 1\n"
    "}\n";

static const char find_host[] =
    "port=${MASTER_PORT:-$default_port}\n"
    "host=${LAUNCH_HOST:-$(uname -n)}\n"
    "short=${host%%.*}\n"
    "node=${NODE_RANK:-}\n"
    "master=${MASTER_ADDR:-}\n"
    "\n"
    "# Which line this host is, and which host has rank 0.\n"
    "n=0\n"
    "read_hosts() { # FILE, how many hosts it has to have\n"
    "    in_file=0\n"
    "    for name in $(sed -e 's/#.*//' \"$here/$1\"); do\n"
    "        if [ \"$n\" -eq \"$first_node\" ] && [ -z \"$master\" ]; then\n"
    "            master=$name\n"
    "        fi\n"
    "        if [ -z \"${NODE_RANK:-}\" ] &&\n"
    "            { [ \"$name\" = \"$host\" ] || [ \"$name\" = \"$short\" ]; }; "
    "then\n"
    "            [ -z \"$node\" ] || die \"$name is there twice in "
    "$here/hosts-*.txt\"\n"
    "            node=$n\n"
    "        fi\n"
    "        n=$((n + 1))\n"
    "        in_file=$((in_file + 1))\n"
    "    done\n"
    "    [ \"$in_file\" -eq \"$2\" ] ||\n"
    "        die \"$here/$1 has $in_file hosts, and the plan needs $2\"\n"
    "}\n";

static const char start_ranks[] =
    "[ -n \"$node\" ] || die \"$host is in none of $here/hosts-*.txt: put the "
    "names of the hosts there, or set NODE_RANK\"\n"
    "\n"
    "# Behind the program's own arguments come the plan's.\n"
    "for word in $(sed -e '/^#/d' \"$here/args.txt\"); do\n"
    "    [ \"$word\" != schedule.csv ] || word=$here/schedule.csv\n"
    "    set -- \"$@\" \"$word\"\n"
    "done\n";

/* Runs the program with the plan's schedule. */
static const char with_plan[] =
    "\n"
    "# longhaul.megatron runs the passes of the plan, in place of Megatron's.\n"
    "# shellcheck disable=SC2086 # several words\n"
    "set -- -m longhaul.megatron --plan \"$here/plan.json\" $PROGRAM \"$@\"\n"
    "PROGRAM=\n";

/* Starts a torchrun for each of this host's lines in nodes.txt. */
static const char start_each[] =
    "\n"
    "pids=\n"
    "stop() { kill $pids 2>/dev/null || true; }\n"
    "trap stop INT TERM\n"
    "line=0\n"
    "while read -r of gpus ranks _; do\n"
    "    [ \"$of\" != '#' ] || continue\n"
    "    if [ \"$of\" = \"$node\" ]; then\n"
    "        (\n"
    "            [ \"$gpus\" = all ] || export CUDA_VISIBLE_DEVICES=\"$gpus\"\n"
    "            # shellcheck disable=SC2086 # several words\n"
    "            exec torchrun --nnodes=\"$n_lines\" --node-rank=\"$line\" \\\n"
    "                --nproc-per-node=\"$ranks\" --master-addr=\"$master\" \\\n"
    "                --master-port=\"$port\" $PROGRAM \"$@\" </dev/null\n"
    "        ) &\n"
    "        pids=\"$pids $!\"\n"
    "    fi\n"
    "    line=$((line + 1))\n"
    "done <\"$here/nodes.txt\"\n"
    "[ -n \"$pids\" ] || die \"there is no host $node: the plan has $n\"\n"
    "\n"
    "# The others wait for a torchrun that has failed: it stops them, too.\n"
    "failed=0\n"
    "left=$pids\n"
    "while [ -n \"$left\" ]; do\n"
    "    still=\n"
    "    for pid in $left; do\n"
    "        if [ \"$left\" != \" $pid\" ] && kill -0 \"$pid\" 2>/dev/null; "
    "then\n"
    "            still=\"$still $pid\"\n"
    "        else\n"
    "            code=0\n"
    "            wait \"$pid\" || code=$?\n"
    "            [ \"$code\" -ne 0 ] || continue\n"
    "            [ \"$failed\" -ne 0 ] || failed=$code\n"
    "            stop\n"
    "            # A signal ends the waiting and not what is waited for.\n"
    "            wait \"$pid\" || true\n"
    "        fi\n"
    "    done\n"
    "    left=$still\n"
    "    [ \"$left\" = \"${left# * }\" ] || sleep 1\n"
    "done\n"
    "exit \"$failed\"\n";

void lhi_bundle_add_launch_script(lhi_text *out, const lhi_bundle *b)
{
    const lhi_launches *launches = b->launches;
    const lhi_launch *first = &launches->all[0];
    lhi_text_puts(out, start_of_launch);
    lhi_text_puts(out, b->form->program);
    put_environment(out, b);
    lhi_text_printf(
        out,
        "\nn_lines=%" PRIu32 " # of nodes.txt\n"
        "first_node=%" PRIu32 " # has rank 0\n"
        "default_port=%" PRIu32 "\n",
        launches->n,
        lhi_launches_hosts_before(b->plan, launches, first->datacenter) +
            first->host,
        b->port);
    lhi_text_puts(out, find_host);
    for (uint32_t d = 0; d < b->plan->job->n_datacenters; d++) {
        if (launches->n_hosts[d] == 0)
            continue;
        lhi_text_puts(out, "read_hosts 'hosts-");
        lhi_bundle_add_site_name(out, b->plan, d);
        lhi_text_printf(out, ".txt' %" PRIu32 "\n", launches->n_hosts[d]);
    }
    if (!b->form->has_arguments)
        lhi_text_puts(out, "[ -n \"$node\" ] || die \"$host is in none of "
                           "$here/hosts-*.txt: put the names of the hosts "
                           "there, or set NODE_RANK\"\n");
    else
        lhi_text_puts(out, start_ranks);
    if (b->has_plan)
        lhi_text_puts(out, with_plan);
    lhi_text_puts(out, start_each);
}

/* --- job.sbatch ----------------------------------------------------------- */

/* Returns the GPU count per node in the datacenters that the plan uses; 0
 * if it differs between them. */
static uint32_t count_gpus_per_node(const lhi_bundle *b)
{
    uint32_t gpus = 0;
    for (uint32_t d = 0; d < b->plan->job->n_datacenters; d++) {
        uint32_t here = b->plan->job->datacenters[d].gpus_per_node;
        if (b->launches->n_hosts[d] == 0)
            continue;
        if (gpus && gpus != here)
            return 0;
        gpus = here;
    }
    return gpus;
}

/* Adds the first lines of job.sbatch, which request `n_hosts` nodes and their
 * GPUs from Slurm. */
static void put_sbatch_lines(lhi_text *out, const lhi_bundle *b,
                             uint32_t n_hosts)
{
    uint32_t gpus = count_gpus_per_node(b);
    lhi_text_printf(out,
                    "#!/bin/bash\n"
                    "#SBATCH --job-name=longhaul\n"
                    "#SBATCH --nodes=%" PRIu32 "\n"
                    "#SBATCH --ntasks-per-node=1\n",
                    n_hosts);
    if (gpus)
        lhi_text_printf(out, "#SBATCH --gpus-per-node=%" PRIu32 "\n", gpus);
    lhi_text_puts(out, "#SBATCH --exclusive\n");
    if (!gpus)
        lhi_text_puts(out, "# Nodes have different numbers of GPUs: "
                           "--exclusive allocates all of them.\n");
}

static const char about_sites[] =
    "# Slurm does not know the site of each node, and the plan depends on it.\n"
    "# Set the nodes of each site here, or before sbatch, as "
    "\"west[001-004]\"; and\n"
    "# allocate all of them: sbatch --nodelist=west[001-004],east[001-004] "
    "job.sbatch\n"
    "# [ARGUMENTS]. For a site that stays empty, its hosts file is used "
    "unchanged.\n"
    "# launch.sh searches that file for its host name, so the node order of "
    "Slurm\n"
    "# is irrelevant.\n";

static const char write_hosts[] =
    "set -euf -o pipefail\n"
    "bundle=${BUNDLE:-${SLURM_SUBMIT_DIR:-.}}\n"
    "[ -x \"$bundle/launch.sh\" ] || {\n"
    "    echo \"job.sbatch: $bundle has no launch.sh: submit it from its own "
    "folder,\" \\\n"
    "        \"or set BUNDLE\" >&2\n"
    "    exit 1\n"
    "}\n"
    "write_hosts() { # FILE NODES\n"
    "    [ -n \"$2\" ] || return 0\n"
    "    scontrol show hostnames \"$2\" >\"$bundle/$1\"\n"
    "}\n";

void lhi_bundle_add_sbatch_script(lhi_text *out, const lhi_bundle *b)
{
    const lh_plan *plan = b->plan;
    const uint32_t n = plan->job->n_datacenters;
    uint32_t n_hosts = lhi_launches_hosts_before(plan, b->launches, n);
    put_sbatch_lines(out, b, n_hosts);
    lhi_text_puts(out, about_sites);
    for (uint32_t d = 0; d < n; d++) {
        if (b->launches->n_hosts[d] == 0)
            continue;
        lhi_text_puts(out, "# ");
        lhi_text_add_escaped(out, plan->job->datacenters[d].name, SIZE_MAX);
        lhi_text_printf(out,
                        ": %" PRIu32 " nodes\n"
                        "SITE_%" PRIu32 "_NODES=${SITE_%" PRIu32 "_NODES:-}\n",
                        b->launches->n_hosts[d], d, d);
    }
    lhi_text_puts(out, write_hosts);
    for (uint32_t d = 0; d < n; d++) {
        if (b->launches->n_hosts[d] == 0)
            continue;
        lhi_text_puts(out, "write_hosts 'hosts-");
        lhi_bundle_add_site_name(out, plan, d);
        lhi_text_printf(out, ".txt' \"$SITE_%" PRIu32 "_NODES\"\n", d);
    }
    lhi_text_printf(out,
                    "srun --nodes=%" PRIu32 " --ntasks=%" PRIu32
                    " --ntasks-per-node=1 --kill-on-bad-exit=1 \\\n"
                    "    \"$bundle/launch.sh\" \"$@\"\n",
                    n_hosts, n_hosts);
}
