/* SPDX-License-Identifier: Apache-2.0 */
/* Runs one rank in a process that mpirun, srun or a similar launcher started.
 */
#include "runtime/engine/job.h"

#include "base/realtime.h"
#include "runtime/transport/slurm.h"

#include <inttypes.h>
#include <string.h>

/* Calls the caller's callback for a failed run with the message `why`, and the
 * caller exits; NULL: another rank prints the message. A rank without a message
 * sleeps first, because mpirun kills all processes when one ends. */
static void exit_with_message(const lhi_job *job, const char *why)
{
    if (job->o.failed)
        job->o.failed(job->o.context, why);
    if (!why)
        lhi_sleep_for(300000000);
}

/* Main function of a rank started by mpirun or srun: runs job `of`; *result
 * (*size bytes): rank 0's outcome. After a failure it ends the process with a
 * message. */
static lh_status launched_main(lhi_net *net, void *of, char **result,
                               size_t *size, lh_error *err)
{
    const lhi_job *job = of;
    lh_status status = lhi_job_run_rank(net, of, result, size, err);
    bool speaks = status == LH_OK || lhi_net_is_reporter(net);
    if (status != LH_OK && status != LH_ECANCELED)
        exit_with_message(job, speaks ? lhi_net_failure(net) : NULL);
    return status;
}

/* Fails unless the launcher, called `how` in the message, started as many ranks
 * as the plan has, and `rank` is one of them. */
static lh_status check_ranks(const lhi_job *job, uint32_t rank,
                             uint32_t n_ranks, const char *how, lh_error *err)
{
    uint32_t n = lhi_grid_count_ranks(&job->grid);
    if (n_ranks == n)
        return LH_OK;
    if (rank != 0) /* all ranks detect it; rank 0 reports it */
        exit_with_message(job, NULL);
    return lhi_fail(err, LH_EINVAL,
                    "%" PRIu32 " ranks were started, but the plan has "
                    "%" PRIu32 ": %s %" PRIu32,
                    n_ranks, n, how, n);
}

/* Runs this process as one rank of a Slurm step: connects to the other ranks
 * and runs the job. *result: its result. */
static lh_status run_slurm_task(lhi_job *job, uint32_t n_links,
                                const lhi_net_link *links,
                                lhi_rank_result *result, lh_error *err)
{
    lhi_slurm_settings s;
    lhi_net *net = NULL;
    unsigned char digest[LHI_SETUP_BYTES];
    lh_status status = lhi_slurm_read_environment(&s, err);
    if (status != LH_OK) {
        if (!lhi_slurm_is_first_rank())
            exit_with_message(job, NULL);
        return status;
    }
    LHI_TRY(check_ranks(job, s.rank, s.n_ranks, "srun -n", err));
    LHI_TRY(lhi_job_compute_digest(job, digest, err));
    const lhi_tcp_options o = {.rank = s.rank,
                               .n_ranks = s.n_ranks,
                               .host = s.host,
                               .port = s.port,
                               .job = s.job,
                               .setup = digest,
                               .secret = s.secret,
                               .secret_size = strlen(s.secret),
                               .join_ns = LHI_SLURM_JOIN_TIMEOUT_NS,
                               .silence_ns = job->o.silence_ns,
                               .n_links = n_links,
                               .links = links,
                               .insecure = job->o.insecure,
                               .n_rails = job->o.n_rails,
                               .rails = job->o.rails};
    status = strcmp(job->o.transport, "ucx") == 0 ? lhi_net_ucx(&o, &net, err)
                                                  : lhi_net_tcp(&o, &net, err);
    if (status == LH_EINVAL && s.rank != 0) /* all ranks detect it */
        exit_with_message(job, NULL);
    if (status != LH_OK)
        return status;
    return lhi_rank_run(net, launched_main, job, result, err);
}

lh_status lhi_job_run_launched(lhi_job *job, uint32_t n_links,
                               const lhi_net_link *links,
                               lhi_rank_result *result, lh_error *err)
{
    lhi_mpi *mpi;
    uint32_t n = lhi_grid_count_ranks(&job->grid);
    job->launched = true;
    if (lhi_slurm_is_launched())
        return run_slurm_task(job, n_links, links, result, err);
    if (!lhi_mpi_is_launched())
        return lhi_fail(err, LH_EINVAL,
                        "transport %s requires ranks started by mpirun or "
                        "srun: mpirun -np %" PRIu32
                        " longhaul train ..., or srun -n %" PRIu32,
                        job->o.transport, n, n);
    lhi_mpi_setup work = {.transport = job->o.transport,
                          .insecure = job->o.insecure,
                          .n_rails = job->o.n_rails,
                          .rails = job->o.rails,
                          .n_links = n_links,
                          .links = links,
                          .silence_ns = job->o.silence_ns};
    LHI_TRY(lhi_job_compute_digest(job, work.digest, err));
    LHI_TRY(lhi_mpi_start(&mpi, err));
    lh_status status = check_ranks(job, lhi_mpi_rank(mpi), lhi_mpi_n_ranks(mpi),
                                   "mpirun -np", err);
    if (status == LH_OK) {
        status = lhi_mpi_exchange(mpi, &work, err);
        if (status != LH_OK && lhi_mpi_rank(mpi) != 0)
            exit_with_message(job, NULL);
    }
    if (status == LH_OK)
        status = lhi_mpi_run(mpi, &work, launched_main, job, result, err);
    lhi_mpi_finalise(mpi, status != LH_OK);
    return status;
}
