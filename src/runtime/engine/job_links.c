/* SPDX-License-Identifier: Apache-2.0 */
/* The pipeline's links for the emulated network. Sharing between copies is
 * already in the transfer times: the pipeline describes one copy while the
 * others send too. Each copy therefore has its own links. */
#include "runtime/engine/job.h"

#include <inttypes.h>
#include <stdlib.h>

size_t lhi_job_count_links(const lhi_job *job)
{
    return (size_t)job->pipeline->n_resources *
           lhi_grid_count_copies(&job->grid);
}

lh_status lhi_job_list_links(const lhi_job *job, lhi_net_link *links,
                             lh_error *err)
{
    const lh_pipeline *p = job->pipeline;
    bool *seen = calloc((size_t)p->n_resources + 1, sizeof *seen);
    lh_status status = seen ? LH_OK : lhi_fail_nomem(err);
    for (uint32_t i = 0; status == LH_OK && i < p->n_links; i++) {
        const lh_link *l = &p->links[i];
        lhi_net_link *to = &links[p->link_resources[i]];
        if (seen[p->link_resources[i]] && (to->latency_ns != l->latency_ns ||
                                           to->transfer_ns != l->transfer_ns))
            status = lhi_fail(
                err, LH_EUNSUPPORTED,
                "link '%.60s' has a different latency or transfer time between "
                "ranks %" PRIu32 " and %" PRIu32
                " than before; emulated links with the same name must be equal",
                l->name, l->from, l->to);
        *to = (lhi_net_link){l->latency_ns, l->transfer_ns, 0};
        seen[p->link_resources[i]] = true;
    }
    for (size_t i = p->n_resources;
         status == LH_OK && i < lhi_job_count_links(job); i++)
        links[i] = links[i - p->n_resources];
    free(seen);
    return status;
}
