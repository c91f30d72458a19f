/* SPDX-License-Identifier: Apache-2.0 */
/* Parts shared by several keys of a pipeline file. */
#include "pipe/file/pipe_file.h"

#include <string.h>

#define MEMORY_MOST (INT64_C(1) << 60)

/* Changes of memory by F, D and W, and static memory. Without `memory`, passes
 * use none. */
static const lhi_field memory_rows[] = {
    {"F", LHI_WHOLE(lh_chunk, mem_f), .least = -MEMORY_MOST,
     .most = MEMORY_MOST, .when = LHI_KEPT},
    {"D", LHI_WHOLE(lh_chunk, mem_d), .least = -MEMORY_MOST,
     .most = MEMORY_MOST, .when = LHI_KEPT},
    {"W", LHI_WHOLE(lh_chunk, mem_w), .least = -MEMORY_MOST,
     .most = MEMORY_MOST, .when = LHI_KEPT},
    {"static", LHI_WHOLE(lh_chunk, mem_static), .most = MEMORY_MOST,
     .when = LHI_KEPT},
};
static const lhi_table memory_table = {
    LHI_ROWS("memory", lh_chunk, memory_rows)};

static const lhi_field work_rows[] = {
    {"F", LHI_TIME(lh_chunk, f_ns)},
    {"D", LHI_TIME(lh_chunk, d_ns)},
    {"W", LHI_TIME(lh_chunk, w_ns)},
    {"memory", LHI_PART(lh_chunk), .table = &memory_table, .when = LHI_KEPT},
    {"offload", LHI_TIME(lh_chunk, offload_ns), .when = LHI_LEFT_OUT},
};
const lhi_table lhi_work_table = {LHI_ROWS("work", lh_chunk, work_rows)};

static const lhi_field groups_rows[] = {
    {"enqueue", LHI_LIST(lhi_dp_groups, enqueue, n_enqueue), .of = LHI_F_WHOLE,
     .least = 1, .most = LH_MAX_MICROBATCHES},
    {"dequeue", LHI_LIST(lhi_dp_groups, dequeue, n_dequeue), .of = LHI_F_WHOLE,
     .least = 1, .most = LH_MAX_MICROBATCHES},
};
const lhi_table lhi_dp_groups_table = {
    LHI_ROWS("groups", lhi_dp_groups, groups_rows)};

lh_status lhi_need_chunks(const lhi_reading *r, const lhi_pipeline_text *text,
                          const lhi_node *map, lh_error *err)
{
    if (text->desc.n_chunks > 0)
        return LH_OK;
    return lhi_doc_fail(r->doc, map, err, LH_EINPUT,
                        "give 'chunks' or 'uniform'");
}

lh_chunk *lhi_own_chunks(const lhi_reading *r, lhi_pipeline_text *text)
{
    uint32_t n = text->desc.n_chunks;
    lh_chunk *chunks = LHI_NEW(r->mem, lh_chunk, n);
    if (chunks && n > 0)
        memcpy(chunks, text->desc.chunks, n * sizeof *chunks);
    text->desc.chunks = chunks;
    return chunks;
}

const lhi_node **lhi_items(const lhi_reading *r, const lhi_node *list)
{
    const lhi_node **nodes = LHI_NEW(r->mem, const lhi_node *, list->n_items);
    for (const lhi_node *n = list->first; nodes && n; n = n->next)
        nodes[n->index] = n;
    return nodes;
}
