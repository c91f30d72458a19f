/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the groups, shares and buckets of an elastic plan against its
 * pipeline's operations, which repeat them. */
#include "planner/file/plan_file.h"

#include "schedule/pipeline/pipeline_internal.h"

#include <inttypes.h>
#include <math.h>

/* Returns a key's node in the document's `elastic` map, or NULL. */
static const lhi_node *find_key(const lhi_doc *doc, const char *key)
{
    return lhi_node_find(lhi_node_find(doc->root, "elastic"), key);
}

/* Checks that the microbatch groups under `key` in the file equal those of the
 * plan's pipeline. has[0..n-1]: sizes in the file; want[0..n_want-1]: sizes in
 * the pipeline. */
static lh_status check_groups(const lhi_doc *doc, const char *key, uint32_t n,
                              const uint32_t *has, uint32_t n_want,
                              const uint32_t *want, lh_error *err)
{
    if (n != n_want)
        return lhi_doc_fail(doc, find_key(doc, key), err, LH_EINPUT,
                            "has %" PRIu32 " groups, but the plan's pipeline "
                            "has %" PRIu32,
                            n, n_want);
    for (uint32_t i = 0; i < n; i++)
        if (has[i] != want[i])
            return lhi_doc_fail(doc, find_key(doc, key), err, LH_EINPUT,
                                "group %" PRIu32 " has %" PRIu32
                                " microbatches, but %" PRIu32
                                " in the plan's pipeline",
                                i, has[i], want[i]);
    return LH_OK;
}

/* Values derived from one kind's operations. */
typedef struct operation_values {
    double share;     /* of the last operation */
    uint32_t buckets; /* most of any; fewer if a group is short */
} operation_values;

/* Returns the sharded share and the largest bucket count of a pipeline's
 * data-parallel operations of one kind; all zero if it has none. */
static operation_values read_operation_values(const lh_pipeline *p,
                                              lh_dp_kind kind)
{
    operation_values s = {0};
    for (uint32_t i = 0; i < p->n_dp_ops; i++) {
        const lh_dp_op *op = &p->dp_ops[i];
        if (op->kind != kind)
            continue;
        s.share = op->share;
        if (op->n_buckets > s.buckets)
            s.buckets = op->n_buckets;
    }
    return s;
}

/* Checks that the sharded share `has`, under `key` in the file, equals that of
 * the pipeline's data-parallel operations `s`. Accepts any share if the
 * pipeline has none. */
static lh_status check_share(const lhi_doc *doc, const char *key, double has,
                             const operation_values *s, lh_error *err)
{
    if (!s->buckets || fabs(has - s->share) <= 1e-9)
        return LH_OK;
    return lhi_doc_fail(doc, find_key(doc, key), err, LH_EINPUT,
                        "is %.12g, but the operations of the plan's pipeline "
                        "have a share of %.12g",
                        has, s->share);
}

/* Checks that the number of buckets `has`, under `key` in the file, equals that
 * of the pipeline's data-parallel operations `s`. */
static lh_status check_buckets(const lhi_doc *doc, const char *key,
                               uint32_t has, const operation_values *s,
                               lh_error *err)
{
    if (!s->buckets || has == s->buckets)
        return LH_OK;
    return lhi_doc_fail(doc, lhi_node_find(find_key(doc, "buckets"), key), err,
                        LH_EINPUT,
                        "is %" PRIu32 ", but the plan's pipeline has %" PRIu32,
                        has, s->buckets);
}

lh_status lhi_check_elastic_operations(const lhi_doc *doc, const lh_plan *plan,
                                       lh_error *err)
{
    const lh_plan_elastic *e = plan->best.elastic;
    const lh_pipeline *p = plan->pipeline;
    if (!e)
        return LH_OK;
    const operation_values scatter = read_operation_values(p, LH_DP_RSG),
                           forward = read_operation_values(p, LH_DP_AGF),
                           backward = read_operation_values(p, LH_DP_AGB);
    LHI_TRY(check_groups(doc, "enqueue", e->n_enqueue, e->enqueue, p->n_enqueue,
                         p->enqueue, err));
    LHI_TRY(check_groups(doc, "dequeue", e->n_dequeue, e->dequeue, p->n_dequeue,
                         p->dequeue, err));
    LHI_TRY(check_share(doc, "gradients", e->gradients, &scatter, err));
    LHI_TRY(check_share(doc, "parameters", e->parameters, &forward, err));
    LHI_TRY(check_share(doc, "parameters", e->parameters, &backward, err));
    LHI_TRY(check_buckets(doc, "scatter", e->scatter_buckets, &scatter, err));
    LHI_TRY(check_buckets(doc, "forward", e->forward_buckets, &forward, err));
    return check_buckets(doc, "backward", e->backward_buckets, &backward, err);
}
