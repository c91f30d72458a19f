/* SPDX-License-Identifier: Apache-2.0 */
/* Reading `data_parallel`: a list of chunks, or a map of these, operations
 * that passes launch, and the shorthand `elastic` that makes them. */
#include "pipe/file/pipe_file.h"

#include <inttypes.h>
#include <longhaul/elastic.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    const lhi_doc *doc;
    int64_t unit_ns;
    lhi_arena *scratch;
    lh_pipeline_desc *desc;
    lh_chunk *chunks;
    lhi_pipeline_origin *origin;
} reader;

static lh_status read_optional_time(const reader *r, const lhi_node *map,
                                    const char *key, int64_t *out_ns,
                                    lh_error *err)
{
    const lhi_node *node = lhi_find(map, key);
    if (!node)
        return LH_OK;
    return lhi_get_time(r->doc, node, r->unit_ns, out_ns, err);
}

static lh_status read_chunk_number(const reader *r, const lhi_node *map,
                                   uint32_t *out, const lhi_node **node,
                                   lh_error *err)
{
    LHI_TRY(lhi_need(r->doc, map, "chunk", node, err));
    return lhi_get_u32(r->doc, *node, 0, r->desc->n_chunks - 1, out, err);
}

static lh_status read_collective(const reader *r, const lhi_node *node,
                                 bool *seen, lh_error *err)
{
    static const char *const keys[] = {"chunk", "all_gather", "reduce_scatter",
                                       "latency", NULL};
    const lhi_node *value;
    uint32_t c;
    LHI_TRY(lhi_known_keys(r->doc, node, keys, err));
    LHI_TRY(read_chunk_number(r, node, &c, &value, err));
    if (seen[c])
        return lhi_doc_fail(r->doc, value, err, LH_EINPUT,
                            "chunk %" PRIu32 " is there twice; keep one", c);
    seen[c] = true;
    lh_chunk *chunk = &r->chunks[c];
    LHI_TRY(
        read_optional_time(r, node, "all_gather", &chunk->all_gather_ns, err));
    LHI_TRY(read_optional_time(r, node, "reduce_scatter",
                               &chunk->reduce_scatter_ns, err));
    return read_optional_time(r, node, "latency", &chunk->dp_latency_ns, err);
}

static lh_status read_collectives(const reader *r, const lhi_node *list,
                                  lh_error *err)
{
    LHI_TRY(lhi_want_list(r->doc, list, err));
    bool *seen = LHI_NEW(r->scratch, bool, r->desc->n_chunks);
    if (!seen)
        return lhi_fail_nomem(err);
    for (const lhi_node *n = list->first; n; n = n->next)
        LHI_TRY(read_collective(r, n, seen, err));
    return LH_OK;
}

/* --- operations -------------------------------------------------------------
 */

/* Digits into *out; what follows them, or NULL: none, or too large. */
static const char *read_digits(const char *text, uint32_t *out)
{
    uint64_t value = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++) {
        value = value * 10 + (uint64_t)(*at - '0');
        if (value >= LH_NONE)
            return NULL;
    }
    *out = (uint32_t)value;
    return at == text ? NULL : at;
}

/* "4B0": the backward of chunk 4 on microbatch 0. */
static lh_status read_point(const reader *r, const lhi_node *node,
                            lh_dp_point *out, lh_error *err)
{
    const char *text;
    LHI_TRY(lhi_get_string(r->doc, node, &text, err));
    const char *at = read_digits(text, &out->chunk);
    if (at && (*at == 'F' || *at == 'B')) {
        out->backward = *at == 'B';
        at = read_digits(at + 1, &out->microbatch);
        if (at && *at == '\0')
            return LH_OK;
    }
    return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                        "must be a chunk, F or B, and a microbatch, as 4B0");
}

static lh_status read_bucket(const reader *r, const lhi_node *node,
                             lh_dp_op *out, lh_error *err)
{
    const char *text;
    LHI_TRY(lhi_get_string(r->doc, node, &text, err));
    const char *at = read_digits(text, &out->bucket);
    if (at && *at == '/') {
        at = read_digits(at + 1, &out->n_buckets);
        if (at && *at == '\0')
            return LH_OK;
    }
    return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                        "must be a number and how many there are, as 0/5");
}

static lh_status read_operation(const reader *r, const lhi_node *node,
                                lh_dp_op *out, lh_error *err)
{
    static const char *const keys[] = {"chunk",  "all_gather", "reduce_scatter",
                                       "bucket", "launch",     "before",
                                       NULL};
    const lhi_node *value;
    *out = (lh_dp_op){.n_buckets = 1, .before = {LH_NONE, 0, false}};
    LHI_TRY(lhi_known_keys(r->doc, node, keys, err));
    LHI_TRY(read_chunk_number(r, node, &out->chunk, &value, err));
    const lhi_node *gather = lhi_find(node, "all_gather");
    const lhi_node *scatter = lhi_find(node, "reduce_scatter");
    if (!gather == !scatter)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "give one of 'all_gather' and 'reduce_scatter'");
    out->is_reduce_scatter = scatter != NULL;
    LHI_TRY(lhi_get_time(r->doc, gather ? gather : scatter, r->unit_ns,
                         &out->transfer_ns, err));
    LHI_TRY(lhi_need(r->doc, node, "launch", &value, err));
    LHI_TRY(read_point(r, value, &out->launch, err));
    if ((value = lhi_find(node, "before")))
        LHI_TRY(read_point(r, value, &out->before, err));
    if ((value = lhi_find(node, "bucket")))
        LHI_TRY(read_bucket(r, value, out, err));
    return LH_OK;
}

static lh_status read_operations(const reader *r, const lhi_node *list,
                                 lh_error *err)
{
    LHI_TRY(lhi_want_list(r->doc, list, err));
    lh_dp_op *ops = LHI_NEW(r->scratch, lh_dp_op, list->n_items);
    const lhi_node **nodes =
        LHI_NEW(r->scratch, const lhi_node *, list->n_items);
    if (!ops || !nodes)
        return lhi_fail_nomem(err);
    for (const lhi_node *n = list->first; n; n = n->next) {
        nodes[n->index] = n;
        LHI_TRY(read_operation(r, n, &ops[n->index], err));
    }
    r->desc->dp_ops = ops;
    r->desc->n_dp_ops = list->n_items;
    r->origin->op_nodes = nodes;
    return LH_OK;
}

/* --- the shorthand ----------------------------------------------------------
 */

/* Parameters are not part of a pipeline: shares are of this many. */
#define WHOLE INT64_C(1000000000000)

static lh_status read_groups(const reader *r, const lhi_node *map,
                             const char *key, uint32_t *n,
                             const uint32_t **groups, lh_error *err)
{
    const lhi_node *list;
    LHI_TRY(lhi_need(r->doc, map, key, &list, err));
    LHI_TRY(lhi_want_list(r->doc, list, err));
    uint32_t *out = LHI_NEW(r->scratch, uint32_t, list->n_items);
    if (!out)
        return lhi_fail_nomem(err);
    for (const lhi_node *node = list->first; node; node = node->next)
        LHI_TRY(lhi_get_u32(r->doc, node, 1, LH_MAX_MICROBATCHES,
                            &out[node->index], err));
    *n = list->n_items;
    *groups = out;
    return LH_OK;
}

static lh_status read_share(const reader *r, const lhi_node *map,
                            const char *key, int64_t *out, lh_error *err)
{
    double share;
    const lhi_node *node = lhi_find(map, key);
    if (!node)
        return LH_OK;
    LHI_TRY(lhi_get_number(r->doc, node, -1e9, 1e9, &share, err));
    if (share < 0)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "a share of %.15g is %.15g less than none", share,
                            -share);
    if (share > 1)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "a share of %.15g is %.15g more than all there is",
                            share, share - 1);
    *out = llround(share * (double)WHOLE);
    return LH_OK;
}

static lh_status read_buckets(const reader *r, const lhi_node *map,
                              lh_elastic_plan *out, lh_error *err)
{
    static const char *const keys[] = {"scatter", "forward", "backward", NULL};
    uint32_t *const values[] = {&out->scatter_buckets, &out->forward_buckets,
                                &out->backward_buckets};
    const lhi_node *buckets = lhi_find(map, "buckets"), *node;
    if (!buckets)
        return LH_OK;
    LHI_TRY(lhi_known_keys(r->doc, buckets, keys, err));
    for (int i = 0; keys[i]; i++)
        if ((node = lhi_find(buckets, keys[i])))
            LHI_TRY(lhi_get_u32(r->doc, node, 0, LH_MAX_MICROBATCHES, values[i],
                                err));
    return LH_OK;
}

static lh_status need_loop(const reader *r, const lhi_node *node, lh_error *err)
{
    uint32_t P = r->desc->n_devices;
    for (uint32_t c = 0; c < r->desc->n_chunks; c++)
        if (r->chunks[c].device != c % P || r->desc->n_chunks % P)
            return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                                "needs placement ud or loop: chunk c on "
                                "device c mod %" PRIu32,
                                P);
    return LH_OK;
}

static lh_status take_operations(const reader *r, const lhi_node *node,
                                 const lh_elastic_case *given,
                                 const lh_elastic_plan *wanted, lh_error *err)
{
    lh_elastic_plan *plan;
    lh_error why = {0};
    lh_dp_op *made;
    uint32_t n;
    lh_status status = lh_elastic_plan_make(given, wanted, &plan, &why);
    if (status == LH_OK) {
        status = lh_elastic_operations(given, plan, &made, &n, &why);
        lh_elastic_plan_free(plan);
    }
    if (status == LH_ENOMEM)
        return lhi_fail_nomem(err);
    if (status != LH_OK)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT, "%s", why.text);
    lh_dp_op *ops = LHI_NEW(r->scratch, lh_dp_op, n);
    const lhi_node **nodes = LHI_NEW(r->scratch, const lhi_node *, n);
    for (uint32_t i = 0; ops && nodes && i < n; i++) {
        ops[i] = made[i];
        nodes[i] = node;
    }
    lh_elastic_ops_free(made);
    if (!ops || !nodes)
        return lhi_fail_nomem(err);
    r->desc->dp_ops = ops;
    r->desc->n_dp_ops = n;
    r->origin->op_nodes = nodes;
    return LH_OK;
}

static lh_status read_elastic(const reader *r, const lhi_node *map,
                              lh_error *err)
{
    static const char *const keys[] = {"enqueue", "dequeue",   "transfer",
                                       "latency", "gradients", "parameters",
                                       "buckets", NULL};
    lh_elastic_plan wanted = {0};
    int64_t latency_ns = 0;
    LHI_TRY(lhi_known_keys(r->doc, map, keys, err));
    LHI_TRY(need_loop(r, map, err));
    const lh_chunk *c = &r->chunks[0];
    uint32_t P = r->desc->n_devices;
    int64_t b_ns = c->d_ns + c->w_ns;
    lh_elastic_case given = {.stages = P,
                             .replicas = 1,
                             .chunks = r->desc->n_chunks / P,
                             .microbatches = r->desc->n_microbatches,
                             .f_ns = c->f_ns > 0 ? c->f_ns : 1,
                             .b_ns = b_ns > 0 ? b_ns : 1,
                             .params = WHOLE};
    const lhi_node *node;
    LHI_TRY(lhi_need(r->doc, map, "transfer", &node, err));
    LHI_TRY(lhi_get_time(r->doc, node, r->unit_ns, &given.dp_ns, err));
    LHI_TRY(read_optional_time(r, map, "latency", &latency_ns, err));
    LHI_TRY(read_groups(r, map, "enqueue", &wanted.n_enqueue, &wanted.enqueue,
                        err));
    LHI_TRY(read_groups(r, map, "dequeue", &wanted.n_dequeue, &wanted.dequeue,
                        err));
    LHI_TRY(read_share(r, map, "gradients", &wanted.params_g, err));
    LHI_TRY(read_share(r, map, "parameters", &wanted.params_p, err));
    if (wanted.params_p > wanted.params_g)
        return lhi_doc_fail(r->doc, lhi_find(map, "parameters"), err, LH_EINPUT,
                            "a share of %.12g is %.12g more than 'gradients', "
                            "%.12g; ZeRO-3 shards both",
                            (double)wanted.params_p / (double)WHOLE,
                            (double)(wanted.params_p - wanted.params_g) /
                                (double)WHOLE,
                            (double)wanted.params_g / (double)WHOLE);
    LHI_TRY(read_buckets(r, map, &wanted, err));
    for (uint32_t i = 0; i < r->desc->n_chunks; i++)
        r->chunks[i].dp_latency_ns = latency_ns;
    for (uint32_t i = 0; i < P; i++)
        r->chunks[i].all_gather_ns = r->chunks[i].reduce_scatter_ns =
            given.dp_ns;
    r->desc->n_enqueue = wanted.n_enqueue;
    r->desc->n_dequeue = wanted.n_dequeue;
    r->desc->enqueue = wanted.enqueue;
    r->desc->dequeue = wanted.dequeue;
    return take_operations(r, map, &given, &wanted, err);
}

/* Of operations that are written out. */
static lh_status read_group_lists(const reader *r, const lhi_node *map,
                                  lh_error *err)
{
    static const char *const keys[] = {"enqueue", "dequeue", NULL};
    LHI_TRY(lhi_known_keys(r->doc, map, keys, err));
    LHI_TRY(read_groups(r, map, "enqueue", &r->desc->n_enqueue,
                        &r->desc->enqueue, err));
    return read_groups(r, map, "dequeue", &r->desc->n_dequeue,
                       &r->desc->dequeue, err);
}

lh_status lhi_dp_read(const lhi_doc *doc, const lhi_node *node, int64_t unit_ns,
                      lhi_arena *scratch, lh_pipeline_desc *desc,
                      lh_chunk *chunks, lhi_pipeline_origin *origin,
                      lh_error *err)
{
    static const char *const keys[] = {"chunks",   "operations", "groups",
                                       "prefetch", "elastic",    NULL};
    reader r = {doc, unit_ns, scratch, desc, chunks, origin};
    if (node->kind != LHI_MAP)
        return read_collectives(&r, node, err);
    LHI_TRY(lhi_known_keys(doc, node, keys, err));
    const lhi_node *list = lhi_find(node, "chunks");
    const lhi_node *operations = lhi_find(node, "operations");
    const lhi_node *elastic = lhi_find(node, "elastic");
    const lhi_node *groups = lhi_find(node, "groups");
    const lhi_node *prefetch = lhi_find(node, "prefetch");
    if (elastic && (list || operations || groups || prefetch))
        return lhi_doc_fail(doc, elastic, err, LH_EINPUT,
                            "'elastic' makes chunks, operations and groups "
                            "itself and fetches all at once; keep it, or the "
                            "other keys");
    if (prefetch) {
        LHI_TRY(lhi_get_u32(doc, prefetch, 0, LH_MAX_CHUNKS,
                            &desc->first_gathers, err));
        desc->first_gathers++;
    }
    if (elastic)
        return read_elastic(&r, elastic, err);
    if (list)
        LHI_TRY(read_collectives(&r, list, err));
    if (groups)
        LHI_TRY(read_group_lists(&r, groups, err));
    return operations ? read_operations(&r, operations, err) : LH_OK;
}
