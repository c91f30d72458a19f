/* SPDX-License-Identifier: Apache-2.0 */
/* A rank of a run that mpirun or the like has started: one in this process. */
#include "engine/steps.h"

#include "base/clock.h"

#include <inttypes.h>

/* mpirun kills all once one has ended: the one that says why goes first. */
static void leave_saying(const lhi_job *job, const char *why)
{
    if (job->o.failed)
        job->o.failed(job->o.context, why);
    if (!why)
        lhi_sleep_for(300000000);
}

static lh_status run_rank(const lhi_job *job, lhi_mpi *mpi,
                          const lhi_net_link *links, char **text, size_t *size,
                          lh_error *err)
{
    uint32_t n = job->exec->n_ranks * job->n_replicas;
    lhi_net *net;
    lhi_left left;
    if (lhi_mpi_n_ranks(mpi) != n) {
        if (lhi_mpi_rank(mpi) != 0) /* all find the same; rank 0 says it */
            leave_saying(job, NULL);
        return lhi_fail(err, LH_EINVAL,
                        "%" PRIu32 " ranks were started, but the plan has "
                        "%" PRIu32 ": mpirun -np %" PRIu32,
                        lhi_mpi_n_ranks(mpi), n, n);
    }
    LHI_TRY(lhi_net_mpi(mpi, job->o.transport,
                        job->emulates ? job->exec->n_links : 0, links, &net,
                        err));
    lh_status status = lhi_job_rank(job, net, text, size, &left, err);
    bool speaks = status == LH_OK || lhi_net_speaks(net);
    if (status != LH_OK && status != LH_ECANCELED)
        leave_saying(job, speaks ? lhi_net_failure(net) : NULL);
    lhi_net_close(net);
    lhi_job_leave(&left);
    return status;
}

lh_status lhi_job_launched(const lhi_job *job, const lhi_net_link *links,
                           char **text, size_t *size, lh_error *err)
{
    lhi_mpi *mpi;
    if (!lhi_mpi_launched())
        return lhi_fail(err, LH_EINVAL,
                        "transport %s carries messages between processes that "
                        "mpirun has started: mpirun -np %" PRIu32
                        " longhaul train ...",
                        job->o.transport, job->exec->n_ranks * job->n_replicas);
    LHI_TRY(lhi_mpi_start(&mpi, err));
    lh_status status = run_rank(job, mpi, links, text, size, err);
    lhi_mpi_end(mpi, status != LH_OK);
    return status;
}
