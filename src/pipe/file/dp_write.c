/* SPDX-License-Identifier: Apache-2.0 */
/* Writing `data_parallel`. */
#include "pipe/file/pipe_file.h"

#include <inttypes.h>
#include <stdio.h>

static bool append(json_t *list, json_t *item)
{
    return json_array_append_new(list, item) == 0; /* false on a NULL item */
}

static json_t *chunks_to_json(const lh_pipeline *p)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < p->n_chunks; i++) {
        const lh_chunk *c = &p->chunks[i];
        bool has = c->all_gather_ns || c->reduce_scatter_ns || c->dp_latency_ns;
        if (has && !append(list, json_pack("{s:I, s:I, s:I, s:I}", "chunk",
                                           (json_int_t)i, "all_gather",
                                           c->all_gather_ns, "reduce_scatter",
                                           c->reduce_scatter_ns, "latency",
                                           c->dp_latency_ns))) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

static json_t *point_to_json(const lh_dp_point *at)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRIu32 "%c%" PRIu32, at->chunk,
             at->backward ? 'B' : 'F', at->microbatch);
    return json_string(text);
}

static json_t *op_to_json(const lh_dp_op *op)
{
    char bucket[32];
    json_t *map =
        json_pack("{s:I, s:I, s:o}", "chunk", (json_int_t)op->chunk,
                  op->is_reduce_scatter ? "reduce_scatter" : "all_gather",
                  op->transfer_ns, "launch", point_to_json(&op->launch));
    snprintf(bucket, sizeof bucket, "%" PRIu32 "/%" PRIu32, op->bucket,
             op->n_buckets);
    bool ok =
        map &&
        (op->n_buckets == 1 ||
         json_object_set_new(map, "bucket", json_string(bucket)) == 0) &&
        (op->before.chunk == LH_NONE ||
         json_object_set_new(map, "before", point_to_json(&op->before)) == 0);
    if (ok)
        return map;
    json_decref(map);
    return NULL;
}

static json_t *ops_to_json(const lh_pipeline *p)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < p->n_dp_ops; i++)
        if (!append(list, op_to_json(&p->dp_ops[i]))) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static json_t *numbers_to_json(uint32_t n, const uint32_t *numbers)
{
    json_t *list = json_array();
    for (uint32_t i = 0; list && i < n; i++)
        if (!append(list, json_integer(numbers[i]))) {
            json_decref(list);
            return NULL;
        }
    return list;
}

/* Takes `chunks`. */
static json_t *all_to_json(const lh_pipeline *p, json_t *chunks)
{
    json_t *map = json_pack("{s:o}", "chunks", chunks);
    bool ok =
        map && (p->n_dp_ops == 0 ||
                json_object_set_new(map, "operations", ops_to_json(p)) == 0);
    if (ok && p->first_gathers > 0) {
        json_t *depth = json_integer((json_int_t)p->first_gathers - 1);
        ok = json_object_set_new(map, "prefetch", depth) == 0;
    }
    if (ok && p->n_enqueue > 0) {
        json_t *groups = json_pack(
            "{s:o, s:o}", "enqueue", numbers_to_json(p->n_enqueue, p->enqueue),
            "dequeue", numbers_to_json(p->n_dequeue, p->dequeue));
        ok = json_object_set_new(map, "groups", groups) == 0;
    }
    if (ok)
        return map;
    json_decref(map);
    return NULL;
}

bool lhi_dp_to_json(const lh_pipeline *p, json_t *map)
{
    json_t *chunks = chunks_to_json(p);
    if (!chunks)
        return false;
    if (p->n_dp_ops > 0 || p->n_enqueue > 0 || p->first_gathers > 0)
        return json_object_set_new(map, "data_parallel",
                                   all_to_json(p, chunks)) == 0;
    if (json_array_size(chunks) > 0)
        return json_object_set_new(map, "data_parallel", chunks) == 0;
    json_decref(chunks);
    return true;
}
