/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts whose predicted times differ by less than the prediction's error, and
 * the simplest of them. */
#include "planner/ties.h"

#include "base/fail.h"

/* Sequences from which context parallelism is recommended, in tokens
 * ("Parallelism Strategies Guide" of Megatron Core). */
enum { LONG_SEQUENCE = 8192 };

/* Checks whether a layout is unusual: tensor parallelism wider than a node, or
 * context parallelism for sequences shorter than LONG_SEQUENCE. */
static bool is_unusual(const lh_job *job, const lh_layout *l)
{
    for (uint32_t i = 0; i < job->n_datacenters; i++)
        if (lh_layout_site_tensor(l, i) > job->datacenters[i].gpus_per_node)
            return true;
    return l->context > 1 && job->training.sequence < LONG_SEQUENCE;
}

/* Checks whether layout `a` is simpler than `b`: it has fewer pipeline stages;
 * or as many, and only `b` is unusual; or a smaller product of tensor and
 * context degree. */
static bool is_simpler(const lh_job *job, const lh_layout *a,
                       const lh_layout *b)
{
    const bool odd_a = is_unusual(job, a), odd_b = is_unusual(job, b);
    if (a->pipeline != b->pipeline)
        return a->pipeline < b->pipeline;
    if (odd_a != odd_b)
        return odd_b;
    return a->tensor * a->context < b->tensor * b->context;
}

lh_status lhi_plan_find_ties(lhi_arena *mem, lh_plan *p, lh_error *err)
{
    const lh_choice *simplest = &p->best;
    lh_plan_ties ties = {0};
    if (!p->accuracy)
        return LH_OK;
    const double most =
        (double)p->best.iteration_ns * (1 + p->accuracy->mean_percent / 100);
    for (uint32_t i = 0; i < p->n_alternatives; i++) {
        const lh_choice *a = &p->alternatives[i];
        if (a->status != LH_CHOICE_OK || (double)a->iteration_ns > most)
            continue;
        ties.n++;
        if (!is_simpler(p->job, &a->layout, &simplest->layout))
            continue;
        simplest = a;
        ties.simplest = i;
    }
    if (simplest == &p->best)
        return LH_OK;
    lh_plan_ties *kept = LHI_NEW(mem, lh_plan_ties, 1);
    if (!kept)
        return lhi_fail_nomem(err);
    *kept = ties;
    p->ties = kept;
    return LH_OK;
}
