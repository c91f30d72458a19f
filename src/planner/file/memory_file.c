/* SPDX-License-Identifier: Apache-2.0 */
/* `memory` of a plan: docs/formats/plan.md. */
#include "planner/explain/rank_memory.h"
#include "planner/file/plan_file.h"

#include <inttypes.h>

#define PART(key, member)                                                      \
    {                                                                          \
        key, LHI_INTEGER(lh_plan_memory, member), .most = INT64_MAX / 8        \
    }

static const lhi_schema_field memory_rows[] = {
    {"rank", LHI_INTEGER(lh_plan_memory, rank), .most = LH_MAX_DEVICES},
    PART("parameters_bytes", parameters_bytes),
    PART("gradients_bytes", gradients_bytes),
    PART("optimizer_bytes", optimizer_bytes),
    PART("activations_bytes", activations_bytes),
    PART("buffers_bytes", buffers_bytes),
    PART("temporary_bytes", temporary_bytes),
};
const lhi_schema lhi_memory_table = {
    LHI_ROWS("memory of a rank", lh_plan_memory, memory_rows)};

/* Checks that the memory parts of one rank in a plan file add up to the peak
 * memory that follows from the pipeline and the rank's pass order. */
static lh_status check_rank(const lhi_doc *doc, const lhi_node *map,
                            const lh_plan *p, uint32_t rank, lh_error *err)
{
    const lh_plan_memory *m = &p->rank_memory[rank];
    int64_t sum = m->parameters_bytes + m->gradients_bytes +
                  m->optimizer_bytes + m->activations_bytes + m->buffers_bytes +
                  m->temporary_bytes;
    int64_t throughout, most;
    if (m->rank != rank)
        return lhi_doc_fail(doc, lhi_node_find(map, "rank"), err, LH_EINPUT,
                            "is %" PRIu32
                            ", but the entry belongs to rank %" PRIu32,
                            m->rank, rank);
    if (!lhi_rank_compute_peak_memory(p->pipeline, p->schedule, rank,
                                      &throughout, &most))
        return lhi_doc_fail(doc, lhi_node_find(doc->root, "schedule"), err,
                            LH_EINPUT,
                            "device %" PRIu32 " has passes that the plan's "
                            "pipeline does not have",
                            rank);
    if (sum == most)
        return LH_OK;
    return lhi_doc_fail(doc, map, err, LH_EINPUT,
                        "adds up to %" PRId64 " bytes, but rank %" PRIu32
                        " holds %" PRId64 " at most",
                        sum, rank, most);
}

lh_status lhi_memory_check(const lhi_doc *doc, const lh_plan *p, lh_error *err)
{
    const lhi_node *list = lhi_node_find(doc->root, "memory");
    const lhi_node *map = list ? list->first : NULL;
    if (p->n_ranks && p->n_ranks != p->best.layout.pipeline)
        return lhi_doc_fail(doc, list, err, LH_EINPUT,
                            "has %" PRIu32 " entries for %" PRIu32
                            " pipeline ranks",
                            p->n_ranks, p->best.layout.pipeline);
    for (uint32_t i = 0; i < p->n_ranks && map; i++, map = map->next)
        LHI_TRY(check_rank(doc, map, p, i, err));
    return LH_OK;
}
