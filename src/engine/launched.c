/* SPDX-License-Identifier: Apache-2.0 */
/* A rank of a run that mpirun or the like has started: one in this process. */
#include "engine/steps.h"

#include "base/realtime.h"

#include <inttypes.h>

/* mpirun kills all once one has ended: the one that says why goes first. */
static void leave_saying(const lhi_job *job, const char *why)
{
    if (job->o.failed)
        job->o.failed(job->o.context, why);
    if (!why)
        lhi_sleep_for(300000000);
}

static lh_status launched_main(lhi_net *net, void *of, char **result,
                               size_t *size, lh_error *err)
{
    const lhi_job *job = of;
    lh_status status = lhi_job_rank(net, of, result, size, err);
    bool speaks = status == LH_OK || lhi_net_speaks(net);
    if (status != LH_OK && status != LH_ECANCELED)
        leave_saying(job, speaks ? lhi_net_failure(net) : NULL);
    return status;
}

static lh_status check_ranks(const lhi_job *job, const lhi_mpi *mpi,
                             lh_error *err)
{
    uint32_t n = job->exec->n_ranks * job->n_replicas;
    if (lhi_mpi_n_ranks(mpi) == n)
        return LH_OK;
    if (lhi_mpi_rank(mpi) != 0) /* all find the same; rank 0 says it */
        leave_saying(job, NULL);
    return lhi_fail(err, LH_EINVAL,
                    "%" PRIu32 " ranks were started, but the plan has "
                    "%" PRIu32 ": mpirun -np %" PRIu32,
                    lhi_mpi_n_ranks(mpi), n, n);
}

lh_status lhi_job_launched(lhi_job *job, uint32_t n_links,
                           const lhi_net_link *links, lhi_rank_result *result,
                           lh_error *err)
{
    lhi_mpi *mpi;
    if (!lhi_mpi_launched())
        return lhi_fail(err, LH_EINVAL,
                        "transport %s carries messages between processes that "
                        "mpirun has started: mpirun -np %" PRIu32
                        " longhaul train ...",
                        job->o.transport, job->exec->n_ranks * job->n_replicas);
    lhi_mpi_work work = {.transport = job->o.transport,
                         .insecure = job->o.insecure,
                         .n_links = n_links,
                         .links = links};
    LHI_TRY(lhi_job_digest_of(job, work.digest, err));
    LHI_TRY(lhi_mpi_start(&mpi, err));
    lh_status status = check_ranks(job, mpi, err);
    if (status == LH_OK) {
        status = lhi_mpi_meet(mpi, &work, err);
        if (status != LH_OK && lhi_mpi_rank(mpi) != 0)
            leave_saying(job, NULL);
    }
    if (status == LH_OK)
        status = lhi_mpi_run(mpi, &work, launched_main, job, result, err);
    lhi_mpi_end(mpi, status != LH_OK);
    return status;
}
