/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts whose predicted times differ by less than the prediction's error, and
 * the one of them that is closest to published practice. */
#include "planner/ties.h"

#include "base/fail.h"

/* Sequences from which context parallelism is recommended, in tokens
 * ("Parallelism Strategies Guide" of Megatron Core). */
enum { LONG_SEQUENCE = 8192 };

/* Checks whether the tensor-parallel or expert-parallel groups of a layout are
 * larger than a node of some datacenter ("Parallelism Strategies Guide"; README
 * of Megatron Core's mixture of experts). */
static bool exceeds_node(const lh_job *job, const lh_layout *l)
{
    for (uint32_t i = 0; i < job->n_datacenters; i++) {
        const uint32_t node = job->datacenters[i].gpus_per_node;
        if (lh_layout_site_tensor(l, i) > node ||
            (job->model->experts && lh_layout_expert_block(l) > node))
            return true;
    }
    return false;
}

/* Checks whether a layout deviates from the guides: groups larger than a node,
 * or context parallelism for sequences shorter than LONG_SEQUENCE. */
static bool is_unusual(const lh_job *job, const lh_layout *l)
{
    return exceeds_node(job, l) ||
           (l->context > 1 && job->training.sequence < LONG_SEQUENCE);
}

/* Computes the number of GPUs over which a layout divides the model. */
static uint64_t compute_size(const lh_layout *l)
{
    return (uint64_t)l->tensor * l->context * l->pipeline;
}

bool lh_choice_is_closer_to_practice(const lh_job *job, const lh_choice *a,
                                     const lh_choice *b)
{
    const lh_layout *x = &a->layout, *y = &b->layout;
    const bool odd_a = is_unusual(job, x), odd_b = is_unusual(job, y);
    const bool full_a = a->recompute == LH_RECOMPUTE_FULL;
    const bool full_b = b->recompute == LH_RECOMPUTE_FULL;
    if (odd_a != odd_b)
        return odd_b;
    if (full_a != full_b)
        return full_b;
    if (compute_size(x) != compute_size(y))
        return compute_size(x) < compute_size(y);
    if (x->pipeline != y->pipeline)
        return x->pipeline < y->pipeline;
    return x->chunks_per_device < y->chunks_per_device;
}

lh_status lhi_plan_find_ties(lhi_arena *mem, lh_plan *p, lh_error *err)
{
    const lh_choice *closest = &p->best;
    uint32_t n = 0;
    if (!p->accuracy)
        return LH_OK;
    const double most =
        (double)p->best.iteration_ns * (1 + p->accuracy->mean_percent / 100);
    for (uint32_t i = 0; i < p->n_alternatives; i++) {
        const lh_choice *a = &p->alternatives[i];
        if (a->status != LH_CHOICE_OK || (double)a->iteration_ns > most)
            continue;
        n++;
        if (lh_choice_is_closer_to_practice(p->job, a, closest))
            closest = a;
    }
    if (closest == &p->best)
        return LH_OK;
    lh_plan_ties *ties = LHI_NEW(mem, lh_plan_ties, 1);
    lh_choice *copy = LHI_NEW(mem, lh_choice, 1);
    if (!ties || !copy)
        return lhi_fail_nomem(err);
    *copy = *closest;
    copy->why = "";
    *ties = (lh_plan_ties){n, copy};
    p->ties = ties;
    return LH_OK;
}
