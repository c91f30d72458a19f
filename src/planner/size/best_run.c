/* SPDX-License-Identifier: Apache-2.0 */
/* Comparison of predicted training runs, and the best run of a size or of all
 * planned sizes. */
#include "planner/size/size_internal.h"

#include "base/fail.h"

/* --- comparison ----------------------------------------------------------- */

/* Returns the GPU count of a size's predicted run, spares included. */
static uint32_t count_gpus(const lh_size *size)
{
    return size->gpus + size->spare_gpus;
}

bool lhi_size_has_fewer_gpus(const lh_size *a, const lh_size *b)
{
    if (count_gpus(a) != count_gpus(b))
        return count_gpus(a) < count_gpus(b);
    return a->usd != b->usd ? a->usd < b->usd : a->train_s < b->train_s;
}

bool lhi_size_is_cheaper(const lh_size *a, const lh_size *b)
{
    if (a->usd != b->usd)
        return a->usd < b->usd;
    return lhi_size_has_fewer_gpus(a, b);
}

bool lhi_size_is_faster(const lh_size *a, const lh_size *b)
{
    return a->train_s != b->train_s ? a->train_s < b->train_s
                                    : lhi_size_is_cheaper(a, b);
}

bool lhi_size_has_less_product(const lh_size *a, const lh_size *b)
{
    return a->train_s * a->usd < b->train_s * b->usd;
}

/* --- best run ------------------------------------------------------------- */

lh_status lhi_size_find_best_run(const lhi_size_search *s,
                                 const lhi_planned_size *size, bool all,
                                 lhi_size_is_better_fn *is_better, bool *found,
                                 lh_size *out, lh_error *err)
{
    *found = false;
    *out = (lh_size){0};
    for (uint32_t i = 0; i < size->n_plans; i++)
        for (int spot = 0; spot <= (s->options.spot_price > 0); spot++) {
            lh_size run;
            LHI_TRY(lhi_size_predict(s, &size->plans[i], spot, &run, err));
            if (!all && !lhi_size_meets(s, &run))
                continue;
            if (!*found || is_better(&run, out))
                *out = run;
            *found = true;
        }
    return LH_OK;
}

bool lhi_size_is_in_ranges(const lhi_size_search *s, const uint32_t *nodes)
{
    for (uint32_t i = 0; i < s->job->n_datacenters; i++)
        if (nodes[i] < s->ranges[i].least || nodes[i] > s->ranges[i].most)
            return false;
    return true;
}

lh_status lhi_size_find_best(const lhi_size_search *s, bool all,
                             lhi_size_is_better_fn *is_better, bool *found,
                             lh_size *out, lh_error *err)
{
    *found = false;
    *out = (lh_size){0};
    for (uint32_t i = 0; i < s->n_planned; i++) {
        lh_size run;
        bool here;
        if (!lhi_size_is_in_ranges(s, s->planned[i]->nodes))
            continue;
        LHI_TRY(lhi_size_find_best_run(s, s->planned[i], all, is_better, &here,
                                       &run, err));
        if (here && (!*found || is_better(&run, out)))
            *out = run;
        *found = *found || here;
    }
    return LH_OK;
}
