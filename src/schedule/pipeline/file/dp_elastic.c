/* SPDX-License-Identifier: Apache-2.0 */
/* The shorthand `elastic` in `data_parallel`: an elastic schedule's
 * communication (docs/theory/elastic.md). */
#include "schedule/elastic/elastic.h"
#include "schedule/pipeline/file/pipe_file.h"

#include <inttypes.h>
#include <longhaul/experimental/elastic.h>
#include <math.h>

/* Nominal parameter count to which shares apply, since a pipeline has no
 * parameters. */
#define NOMINAL_PARAMS INT64_C(1000000000000)

/* The shorthand's values. */
typedef struct elastic_text {
    lhi_dp_groups groups;
    int64_t transfer_ns, latency_ns;
    double gradients, parameters; /* shares */
    uint32_t scatter, forward, backward;
} elastic_text;

/* Checks that `share`, the value of `key` in the map, is from 0 to 1. LH_EINPUT
 * with the key's position otherwise. */
static lh_status check_share(const lhi_read_context *r, const lhi_node *map,
                             const char *key, double share, lh_error *err)
{
    const lhi_node *node = lhi_node_find(map, key);
    if (share < 0)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "a share of %.15g is %.15g below 0", share, -share);
    if (share > 1)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                            "a share of %.15g is %.15g above 1", share,
                            share - 1);
    return LH_OK;
}

/* Converts a share (0 to 1) to a parameter count out of NOMINAL_PARAMS. */
static int64_t convert_share_to_params(double share)
{
    return llround(share * (double)NOMINAL_PARAMS);
}

/* Checks both shares, and that the parameter share is at most the gradient
 * share (schema callback). */
static lh_status check_shares(const lhi_read_context *r, const lhi_node *map,
                              void *it, lh_error *err)
{
    const elastic_text *e = it;
    LHI_TRY(check_share(r, map, "gradients", e->gradients, err));
    LHI_TRY(check_share(r, map, "parameters", e->parameters, err));
    double gradients =
        (double)convert_share_to_params(e->gradients) / (double)NOMINAL_PARAMS;
    double parameters =
        (double)convert_share_to_params(e->parameters) / (double)NOMINAL_PARAMS;
    if (parameters <= gradients)
        return LH_OK;
    return lhi_doc_fail(r->doc, lhi_node_find(map, "parameters"), err,
                        LH_EINPUT,
                        "a share of %.12g is %.12g above 'gradients', %.12g; "
                        "ZeRO-3 shards both",
                        parameters,
                        (double)(convert_share_to_params(e->parameters) -
                                 convert_share_to_params(e->gradients)) /
                            (double)NOMINAL_PARAMS,
                        gradients);
}

static const lhi_schema_field bucket_rows[] = {
    {"scatter", LHI_INTEGER(elastic_text, scatter), .most = LH_MAX_MICROBATCHES,
     .when = LHI_DEFAULTED},
    {"forward", LHI_INTEGER(elastic_text, forward), .most = LH_MAX_MICROBATCHES,
     .when = LHI_DEFAULTED},
    {"backward", LHI_INTEGER(elastic_text, backward),
     .most = LH_MAX_MICROBATCHES, .when = LHI_DEFAULTED},
};
static const lhi_schema bucket_table = {
    LHI_ROWS("buckets", elastic_text, bucket_rows)};

static const lhi_schema_field elastic_rows[] = {
    {"transfer", LHI_TIME(elastic_text, transfer_ns)},
    {"latency", LHI_TIME(elastic_text, latency_ns), .when = LHI_DEFAULTED},
    {NULL, LHI_INLINED(elastic_text, groups), .table = &lhi_dp_groups_schema},
    {"gradients", LHI_REAL(elastic_text, gradients), .low = -1e9, .high = 1e9,
     .when = LHI_DEFAULTED},
    {"parameters", LHI_REAL(elastic_text, parameters), .low = -1e9, .high = 1e9,
     .when = LHI_DEFAULTED},
    {"buckets", LHI_NESTED_MAP(elastic_text), .table = &bucket_table,
     .when = LHI_DEFAULTED},
};
const lhi_schema lhi_dp_elastic_schema = {
    LHI_ROWS("elastic", elastic_text, elastic_rows), .check = check_shares};

/* Fails with LH_EINPUT at `node` unless the placement is a loop: chunk c is on
 * device c mod P, with equally many chunks on all P devices. */
static lh_status require_loop(const lhi_read_context *r,
                              const lh_pipeline_desc *d, const lhi_node *node,
                              lh_error *err)
{
    uint32_t P = d->n_devices;
    for (uint32_t c = 0; c < d->n_chunks; c++)
        if (d->chunks[c].device != c % P || d->n_chunks % P)
            return lhi_doc_fail(r->doc, node, err, LH_EINPUT,
                                "requires placement ud or loop: chunk c on "
                                "device c mod %" PRIu32,
                                P);
    return LH_OK;
}

/* Copies the n data-parallel operations `made`, which an elastic plan
 * generated, into the pipeline description `text`. Errors in them refer to
 * `node`, the position of the key `elastic`. */
static lh_status copy_operations(const lhi_read_context *r,
                                 const lhi_node *node, const lh_dp_op *made,
                                 uint32_t n, lhi_pipeline_text *text,
                                 lh_error *err)
{
    lh_dp_op *ops = LHI_NEW(r->mem, lh_dp_op, n);
    const lhi_node **nodes = LHI_NEW(r->mem, const lhi_node *, n);
    if (!ops || !nodes)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n; i++) {
        ops[i] = made[i];
        nodes[i] = node;
    }
    text->desc.dp_ops = ops;
    text->desc.n_dp_ops = n;
    text->origin.op_nodes = nodes;
    return LH_OK;
}

/* Builds the elastic plan from the group sizes and shares in `wanted`, and adds
 * its data-parallel operations to the pipeline description `text`. Errors refer
 * to `node`, the position of the key `elastic`. */
static lh_status build_operations(const lhi_read_context *r,
                                  const lhi_node *node,
                                  const lh_elastic_case *given,
                                  const lh_elastic_plan *wanted,
                                  lhi_pipeline_text *text, lh_error *err)
{
    lh_elastic_plan *plan;
    lh_error why = {0};
    lh_dp_op *made;
    uint32_t n;
    lh_status status = lhi_elastic_plan_make(given, wanted, &plan, &why);
    if (status == LH_OK) {
        status = lhi_elastic_operations(given, plan, &made, &n, &why);
        lh_elastic_plan_free(plan);
    }
    if (status == LH_ENOMEM)
        return lhi_fail_nomem(err);
    if (status != LH_OK)
        return lhi_doc_fail(r->doc, node, err, LH_EINPUT, "%s", why.text);
    status = copy_operations(r, node, made, n, text, err);
    lhi_elastic_ops_free(made);
    return status;
}

/* Expands the parsed key `elastic` (enqueue and dequeue groups, partial
 * sharding) into data-parallel operations and times, which are added to `text`.
 * All passes count with chunk 0's durations. */
static lh_status expand_elastic(const lhi_read_context *r, const lhi_node *map,
                                const elastic_text *e, lhi_pipeline_text *text,
                                lh_error *err)
{
    lh_pipeline_desc *d = &text->desc;
    lh_chunk *chunks = lhi_pipeline_copy_chunks(r, text);
    if (!chunks)
        return lhi_fail_nomem(err);
    uint32_t P = d->n_devices;
    int64_t f_ns = chunks[0].f_ns, b_ns = chunks[0].d_ns + chunks[0].w_ns;
    lh_elastic_case given = {.stages = P,
                             .replicas = 1,
                             .chunks = d->n_chunks / P,
                             .microbatches = d->n_microbatches,
                             .f_ns = f_ns > 0 ? f_ns : 1,
                             .b_ns = b_ns > 0 ? b_ns : 1,
                             .dp_ns = e->transfer_ns,
                             .params = NOMINAL_PARAMS};
    lh_elastic_plan wanted = {.n_enqueue = e->groups.n_enqueue,
                              .n_dequeue = e->groups.n_dequeue,
                              .enqueue = e->groups.enqueue,
                              .dequeue = e->groups.dequeue,
                              .params_g = convert_share_to_params(e->gradients),
                              .params_p =
                                  convert_share_to_params(e->parameters),
                              .scatter_buckets = e->scatter,
                              .forward_buckets = e->forward,
                              .backward_buckets = e->backward};
    for (uint32_t i = 0; i < d->n_chunks; i++)
        chunks[i].dp_latency_ns = e->latency_ns;
    for (uint32_t i = 0; i < P; i++)
        chunks[i].all_gather_ns = chunks[i].reduce_scatter_ns = e->transfer_ns;
    d->n_enqueue = e->groups.n_enqueue;
    d->n_dequeue = e->groups.n_dequeue;
    d->enqueue = e->groups.enqueue;
    d->dequeue = e->groups.dequeue;
    return build_operations(r, map, &given, &wanted, text, err);
}

lh_status lhi_dp_elastic_read(const lhi_read_context *r, const lhi_node *map,
                              void *owner, lh_error *err)
{
    lhi_pipeline_text *text = owner;
    elastic_text e = {0};
    if (map->parent->n_items > 1)
        return lhi_doc_fail(
            r->doc, map, err, LH_EINPUT,
            "'elastic' generates chunks, operations, groups "
            "and fetches; it cannot be combined with other keys");
    LHI_TRY(lhi_schema_read(r, map, &lhi_dp_elastic_schema, &e, err));
    LHI_TRY(require_loop(r, &text->desc, map, err));
    return expand_elastic(r, map, &e, text, err);
}
