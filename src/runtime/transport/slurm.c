/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "runtime/transport/slurm.h"

#include "base/fail.h"
#include "runtime/transport/sockets.h"

#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ports below Linux's ephemeral range. */
enum { FIRST_PORT = 20000, N_PORTS = 10000 };

/* Checks that the process itself is a Slurm step task. Open MPI's and Hydra's
 * mpirun start their helpers by srun, so the Slurm variables may describe a
 * helper. */
static bool is_step_task(void)
{
    uint64_t rank, n, pmi;
    if (!lhi_launch_parse_number("SLURM_PROCID", UINT32_MAX, NULL, &rank) ||
        !lhi_launch_parse_number("SLURM_STEP_NUM_TASKS", UINT32_MAX, NULL,
                                 &n) ||
        getenv("OMPI_COMM_WORLD_SIZE"))
        return false;
    return (!lhi_launch_parse_number("PMI_RANK", UINT32_MAX, NULL, &pmi) ||
            pmi == rank) &&
           (!lhi_launch_parse_number("PMI_SIZE", UINT32_MAX, NULL, &pmi) ||
            pmi == n);
}

bool lhi_slurm_is_launched(void)
{
    return is_step_task() &&
           (getenv("LONGHAUL_SECRET") || !lhi_mpi_is_launched());
}

lh_status lhi_slurm_first_node(const char *list, char *out, size_t room,
                               lh_error *err)
{
    char name[sizeof((lhi_launch_settings *)NULL)->host];
    size_t n = 0;
    const char *at = list;
    while (*at && *at != ',' && n < sizeof name) {
        if (*at != '[') {
            name[n++] = *at++;
            continue;
        }
        size_t first = strcspn(at + 1, "-,]");
        const char *end = strchr(at, ']');
        if (first == 0 || !end || first > sizeof name - n)
            break;
        memcpy(name + n, at + 1, first);
        n += first;
        at = end + 1;
    }
    if ((*at && *at != ',') || n == 0 || n >= room)
        return lhi_fail(err, LH_EINVAL,
                        "SLURM_STEP_NODELIST: cannot parse the first node of "
                        "'%.100s'; set LONGHAUL_HOST to rank 0's host",
                        list);
    memcpy(out, name, n);
    out[n] = '\0';
    return LH_OK;
}

/* Checks that rank 0 runs on the host to which the others connect. */
static lh_status check_first_host(const lhi_launch_settings *s, lh_error *err)
{
    const char *here = getenv("SLURMD_NODENAME");
    if (here && strcmp(here, s->host) != 0)
        return lhi_fail(err, LH_EINVAL,
                        "rank 0 runs on node %.100s, not on %.100s, the first "
                        "of the step: set LONGHAUL_HOST to it, or distribute "
                        "tasks by block",
                        here, s->host);
    return lhi_launch_check_first_host(s, "LONGHAUL_HOST", err);
}

/* Determines rank 0's host: from LONGHAUL_HOST, else loopback for one node,
 * else the step's first node. */
static lh_status find_host(lhi_launch_settings *s, lh_error *err)
{
    const char *named = getenv("LONGHAUL_HOST");
    const char *nodes = getenv("SLURM_STEP_NODELIST");
    uint64_t n_nodes = 0;
    if (named && *named)
        return lhi_launch_set_host(s, "LONGHAUL_HOST", named, err);
    if (lhi_launch_parse_number("SLURM_STEP_NUM_NODES", UINT32_MAX, NULL,
                                &n_nodes) &&
        n_nodes == 1) {
        snprintf(s->host, sizeof s->host, "127.0.0.1");
        return LH_OK;
    }
    if (!nodes)
        return lhi_fail(err, LH_EINVAL,
                        "SLURM_STEP_NODELIST is not set: set LONGHAUL_HOST to "
                        "rank 0's host");
    LHI_TRY(lhi_slurm_first_node(nodes, s->host, sizeof s->host, err));
    return s->rank == 0 ? check_first_host(s, err) : LH_OK;
}

/* Determines rank 0's port: from LONGHAUL_PORT, else the first that Slurm
 * reserved, else computed from `job` and `step`. */
static lh_status find_port(lhi_launch_settings *s, uint64_t job, uint64_t step,
                           lh_error *err)
{
    uint64_t port;
    if (!lhi_launch_parse_number("SLURM_STEP_RESV_PORTS", 65535, "-,", &port) ||
        port == 0)
        /* Concurrent jobs on a node have nearby numbers, so spread them. */
        port = FIRST_PORT + (job % N_PORTS * 61 + step % N_PORTS) % N_PORTS;
    return lhi_launch_read_port(s, (uint16_t)port, err);
}

lh_status lhi_slurm_read_environment(lhi_launch_settings *out, lh_error *err)
{
    lhi_launch_settings s = {0};
    uint64_t rank, n, job, step;
    if (!lhi_launch_parse_number("SLURM_PROCID", UINT32_MAX, NULL, &rank) ||
        !lhi_launch_parse_number("SLURM_STEP_NUM_TASKS", LHI_NET_MAX_RANKS,
                                 NULL, &n) ||
        !lhi_launch_parse_number("SLURM_JOB_ID", UINT32_MAX, NULL, &job) ||
        !lhi_launch_parse_number("SLURM_STEP_ID", UINT32_MAX, NULL, &step) ||
        rank >= n)
        return lhi_fail(
            err, LH_EINVAL,
            "SLURM_PROCID, SLURM_STEP_NUM_TASKS (at most %d), SLURM_JOB_ID and "
            "SLURM_STEP_ID do not identify a rank: start it with srun",
            LHI_NET_MAX_RANKS);
    s.rank = (uint32_t)rank;
    s.n_ranks = (uint32_t)n;
    snprintf(s.job, sizeof s.job, "slurm %" PRIu64 ".%" PRIu64, job, step);
    lhi_launch_read_secret(&s);
    LHI_TRY(find_port(&s, job, step, err));
    LHI_TRY(find_host(&s, err));
    *out = s;
    return LH_OK;
}
