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

/* Returns the emulated link of a copy for pipeline link `l`. If its stages have
 * different tensor degrees, a message has parts, and the link a time per byte
 * that gives all parts of a message of the lower degree the transfer time. */
static lhi_net_link make_link(const lhi_job *job, const lh_link *l)
{
    const lhi_grid *g = &job->grid;
    const uint32_t from = lhi_grid_get_tensor(g, l->from),
                   to = lhi_grid_get_tensor(g, l->to);
    if (from == to)
        return (lhi_net_link){.latency_ns = l->latency_ns,
                              .transfer_ns = l->transfer_ns};
    const double bytes = (double)lhi_job_count_rows(job) *
                         job->model->model->hidden * sizeof(float) /
                         (from < to ? from : to);
    return (lhi_net_link){.latency_ns = l->latency_ns,
                          .ns_per_byte = (double)l->transfer_ns / bytes};
}

/* Checks whether two links have the same times, and stages with the same tensor
 * degrees, in either direction. */
static bool are_equal_links(const lhi_job *job, const lh_link *a,
                            const lh_link *b)
{
    const lhi_grid *g = &job->grid;
    const uint32_t from = lhi_grid_get_tensor(g, a->from),
                   to = lhi_grid_get_tensor(g, a->to),
                   other_from = lhi_grid_get_tensor(g, b->from),
                   other_to = lhi_grid_get_tensor(g, b->to);
    return a->latency_ns == b->latency_ns && a->transfer_ns == b->transfer_ns &&
           ((from == other_from && to == other_to) ||
            (from == other_to && to == other_from));
}

/* Returns the rule by which messages and data-parallel pieces share links. */
static lhi_link_sharing find_sharing(const lh_pipeline *p)
{
    return p->dp_priority == LH_DP_FAIR             ? LHI_LINK_FAIR
           : p->dp_priority == LH_DP_PIPELINE_FIRST ? LHI_LINK_MESSAGES_FIRST
                                                    : LHI_LINK_FIFO;
}

lh_status lhi_job_list_links(const lhi_job *job, lhi_net_link *links,
                             lh_error *err)
{
    const lh_pipeline *p = job->pipeline;
    const lh_link **seen = calloc((size_t)p->n_resources + 1, sizeof *seen);
    lh_status status = seen ? LH_OK : lhi_fail_nomem(err);
    for (uint32_t i = 0; status == LH_OK && i < p->n_links; i++) {
        const lh_link *l = &p->links[i];
        const lh_link **first = &seen[p->link_resources[i]];
        if (*first && !are_equal_links(job, *first, l))
            status = lhi_fail(
                err, LH_EUNSUPPORTED,
                "link '%.60s' has a different latency, transfer time or tensor "
                "degree between ranks %" PRIu32 " and %" PRIu32
                " than before; emulated links with the same name must be equal",
                l->name, l->from, l->to);
        *first = *first ? *first : l;
        links[p->link_resources[i]] = make_link(job, l);
    }
    for (uint32_t i = 0; p->shared_at && i < p->shared_at[p->n_devices]; i++)
        links[p->shared[i]].sharing = find_sharing(p);
    for (size_t i = p->n_resources;
         status == LH_OK && i < lhi_job_count_links(job); i++)
        links[i] = links[i - p->n_resources];
    free(seen);
    return status;
}
