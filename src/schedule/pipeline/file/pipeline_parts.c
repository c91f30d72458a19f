/* SPDX-License-Identifier: Apache-2.0 */
/* Parts shared by several keys in a pipeline file. */
#include "schedule/pipeline/file/pipe_file.h"

#include <string.h>

/* Maximum amount of memory, in the pipeline's unit. */
#define MEMORY_MOST (INT64_C(1) << 60)

/* Memory changes by F, D and W, and static memory. Without `memory`, passes use
 * none. */
static const lhi_schema_field memory_rows[] = {
    {"F", LHI_INTEGER(lh_chunk, mem_f), .least = -MEMORY_MOST,
     .most = MEMORY_MOST, .when = LHI_DEFAULTED},
    {"D", LHI_INTEGER(lh_chunk, mem_d), .least = -MEMORY_MOST,
     .most = MEMORY_MOST, .when = LHI_DEFAULTED},
    {"W", LHI_INTEGER(lh_chunk, mem_w), .least = -MEMORY_MOST,
     .most = MEMORY_MOST, .when = LHI_DEFAULTED},
    {"static", LHI_INTEGER(lh_chunk, mem_static), .most = MEMORY_MOST,
     .when = LHI_DEFAULTED},
};
static const lhi_schema memory_table = {
    LHI_ROWS("memory", lh_chunk, memory_rows)};

static const lhi_schema_field work_rows[] = {
    {"F", LHI_TIME(lh_chunk, f_ns)},
    {"D", LHI_TIME(lh_chunk, d_ns)},
    {"W", LHI_TIME(lh_chunk, w_ns)},
    {"memory", LHI_NESTED_MAP(lh_chunk), .table = &memory_table,
     .when = LHI_DEFAULTED},
    {"offload", LHI_TIME(lh_chunk, offload_ns), .when = LHI_OPTIONAL},
};
const lhi_schema lhi_chunk_schema = {LHI_ROWS("work", lh_chunk, work_rows)};

static const lhi_schema_field groups_rows[] = {
    {"enqueue", LHI_LIST(lhi_dp_groups, enqueue, n_enqueue),
     .item_type = LHI_FIELD_INTEGER, .least = 1, .most = LH_MAX_MICROBATCHES},
    {"dequeue", LHI_LIST(lhi_dp_groups, dequeue, n_dequeue),
     .item_type = LHI_FIELD_INTEGER, .least = 1, .most = LH_MAX_MICROBATCHES},
};
const lhi_schema lhi_dp_groups_schema = {
    LHI_ROWS("groups", lhi_dp_groups, groups_rows)};

lh_status lhi_pipeline_require_chunks(const lhi_read_context *r,
                                      const lhi_pipeline_text *text,
                                      const lhi_node *map, lh_error *err)
{
    if (text->desc.n_chunks > 0)
        return LH_OK;
    return lhi_doc_fail(r->doc, map, err, LH_EINPUT,
                        "give 'chunks' or 'uniform'");
}

lh_chunk *lhi_pipeline_copy_chunks(const lhi_read_context *r,
                                   lhi_pipeline_text *text)
{
    uint32_t n = text->desc.n_chunks;
    lh_chunk *chunks = LHI_NEW(r->mem, lh_chunk, n);
    if (chunks && n > 0)
        memcpy(chunks, text->desc.chunks, n * sizeof *chunks);
    text->desc.chunks = chunks;
    return chunks;
}

/* Returns an array of the list's items by index, for error positions, allocated
 * in r->mem; NULL: out of memory. */
const lhi_node **lhi_list_nodes(const lhi_read_context *r, const lhi_node *list)
{
    const lhi_node **nodes = LHI_NEW(r->mem, const lhi_node *, list->n_items);
    for (const lhi_node *n = list->first; nodes && n; n = n->next)
        nodes[n->index] = n;
    return nodes;
}
