/* SPDX-License-Identifier: Apache-2.0 */
/* Result of a search over sizes: the best planned sizes, planned again by
 * longer searches, and their losses of nodes. */
#include "planner/size/size_internal.h"

#include "base/fail.h"

#include <math.h>
#include <string.h>

enum {
    MAX_CONFIRMED = 2, /* better sizes planned by a longer search */
    MAX_ROUNDS = 8     /* results replaced by a size with lost nodes */
};

/* A size is the knee if its product of time and cost is below this share of
 * those of the other sizes in the result, as for plans (cli/plan_cost.c):
 * products of neighbouring sizes differ by a few percent. */
static const double KNEE_SHARE = 0.9;

/* Factors by which the longer search may shorten the iteration of the quick
 * one: usually at least the first one (see QUICK_EFFORT), and about the second
 * one for models of few layers, whose even partitions are far from the best. */
static const double GAINS[MAX_CONFIRMED] = {0.95, 0.9};

/* Finds, among the sizes that were planned only quickly, the best one that
 * would be better than *best and meet the requirements if the longer search
 * shortened its iteration by `factor`. *out NULL: none. */
static lh_status find_promising(const lhi_size_search *s, double factor,
                                lhi_size_is_better_fn *is_better,
                                const lh_size *best,
                                const lhi_planned_size **out, lh_error *err)
{
    lh_size promising = *best;
    *out = NULL;
    for (uint32_t i = 0; i < s->n_planned; i++) {
        const lhi_planned_size *size = s->planned[i];
        if (size->depth != LHI_SIZE_QUICK || !size->n_plans)
            continue;
        lhi_sized_plan plan = size->plans[0];
        plan.iteration_ns = llround((double)plan.iteration_ns * factor);
        lh_size run;
        LHI_TRY(lhi_size_predict(s, &plan, best->spot, &run, err));
        if (lhi_size_meets(s, &run) && is_better(&run, &promising)) {
            promising = run;
            *out = size;
        }
    }
    return LH_OK;
}

/* Finds the best planned size by is_better(), plans it again by the longer
 * search, and then those that the longer search may make better. *found: a size
 * meets the requirements, and *best is its run. */
static lh_status confirm(lhi_size_search *s, lhi_size_is_better_fn *is_better,
                         bool *found, lh_size *best, lh_error *err)
{
    LHI_TRY(lhi_size_settle_best(s, false, is_better, found, best, err));
    if (!*found)
        return LH_OK;
    /* A plan of a larger size may leave nodes idle: then it is not planned. */
    const lhi_planned_size *size = lhi_size_find_planned(s, best->nodes);
    const int64_t quick_ns =
        size && size->n_plans ? size->plans[0].iteration_ns : 0;
    LHI_TRY(lhi_size_plan(s, best->nodes, LHI_SIZE_FULL, &size, err));
    const double factor =
        quick_ns > 0 && size->n_plans
            ? (double)size->plans[0].iteration_ns / (double)quick_ns
            : 1;
    LHI_TRY(lhi_size_find_best(s, false, is_better, found, best, err));
    for (int i = 0; i < MAX_CONFIRMED; i++) {
        LHI_TRY(find_promising(s, fmin(factor, GAINS[i]), is_better, best,
                               &size, err));
        if (!size)
            continue;
        LHI_TRY(lhi_size_plan(s, size->nodes, LHI_SIZE_FULL, &size, err));
        LHI_TRY(lhi_size_find_best(s, false, is_better, found, best, err));
    }
    return lhi_size_settle_best(s, false, is_better, found, best, err);
}

/* Predicts the training run for every plan of the nodes that remain after a
 * loss, on spot capacity if `spot`; *out: with prices the cheapest run that
 * meets the requirements, else the fastest. `size` has at least one plan. */
static lh_status find_run_after_loss(const lhi_size_search *s,
                                     const lhi_planned_size *size, bool spot,
                                     bool cheapest, lh_size *out, lh_error *err)
{
    LHI_TRY(lhi_size_predict(s, &size->plans[0], spot, out, err));
    for (uint32_t i = 1; i < size->n_plans; i++) {
        lh_size run;
        LHI_TRY(lhi_size_predict(s, &size->plans[i], spot, &run, err));
        const bool meets = lhi_size_meets(s, &run);
        if (meets != lhi_size_meets(s, out)
                ? meets
                : (meets && cheapest ? lhi_size_is_cheaper
                                     : lhi_size_is_faster)(&run, out))
            *out = run;
    }
    return LH_OK;
}

/* Plans, for each datacenter of the size, the nodes that remain after the loss
 * of some of its nodes; stores time, cost and deadline check in size->losses.
 * `cheapest`: by the cheapest plans that meet the requirements; else by the
 * fastest. */
static lh_status plan_losses(lhi_size_search *s, bool cheapest, lh_size *size,
                             lh_error *err)
{
    const uint32_t lost = s->options.lost_nodes;
    size->n_losses = 0;
    for (uint32_t i = 0; i < s->job->n_datacenters; i++) {
        uint32_t nodes[LH_MAX_DATACENTERS];
        const lhi_planned_size *rest;
        lh_size run;
        if (!size->nodes[i])
            continue;
        lh_size_loss *loss = &size->losses[size->n_losses++];
        *loss = (lh_size_loss){.datacenter = i,
                               .nodes = lost < size->nodes[i] ? lost
                                                              : size->nodes[i],
                               .iteration_s = -1,
                               .train_s = -1,
                               .usd = -1};
        memcpy(nodes, size->nodes, sizeof nodes);
        nodes[i] -= loss->nodes;
        if (!lhi_size_has_nodes(s, nodes))
            continue;
        LHI_TRY(lhi_size_plan(s, nodes, LHI_SIZE_FULL, &rest, err));
        if (!rest->n_plans)
            continue;
        LHI_TRY(find_run_after_loss(s, rest, size->spot, cheapest, &run, err));
        loss->iteration_s = (double)run.iteration_ns / 1e9;
        loss->train_s = run.train_s;
        loss->usd = run.usd;
        loss->meets_deadline =
            isfinite(run.train_s) && (!(s->options.deadline_s > 0) ||
                                      run.train_s <= s->options.deadline_s);
    }
    return LH_OK;
}

/* Checks whether two sizes have the same nodes, on the same capacity. */
static bool is_same_size(const lh_size *a, const lh_size *b)
{
    return memcmp(a->nodes, b->nodes, sizeof a->nodes) == 0 &&
           a->spot == b->spot;
}

/* Fills the result's sizes with the fewest GPUs, the least cost and, with a
 * budget, the least time, each with the consequences of lost nodes. *found:
 * some size meets the requirements. */
static lh_status fill_best(lhi_size_search *s, bool *found, lh_error *err)
{
    lh_size_result *r = s->result;
    LHI_TRY(lhi_size_grow(s, err));
    LHI_TRY(confirm(s, lhi_size_has_fewer_gpus, found, &r->fewest, err));
    if (*found && s->priced)
        LHI_TRY(confirm(s, lhi_size_is_cheaper, found, &r->cheapest, err));
    if (!*found)
        return LH_OK;
    if (s->options.budget_usd > 0)
        LHI_TRY(confirm(s, lhi_size_is_faster, found, &r->fastest, err));
    /* The later steps may have found better ones. */
    LHI_TRY(lhi_size_settle_best(s, false, lhi_size_has_fewer_gpus, found,
                                 &r->fewest, err));
    if (s->priced)
        LHI_TRY(lhi_size_settle_best(s, false, lhi_size_is_cheaper, found,
                                     &r->cheapest, err));
    else
        r->cheapest = r->fewest;
    if (s->options.budget_usd > 0)
        LHI_TRY(lhi_size_settle_best(s, false, lhi_size_is_faster, found,
                                     &r->fastest, err));
    else
        LHI_TRY(lhi_size_find_best(s, false, lhi_size_is_faster, found,
                                   &r->fastest, err));
    LHI_TRY(plan_losses(s, s->priced, &r->fewest, err));
    r->n_found = 1;
    if (is_same_size(&r->cheapest, &r->fewest)) {
        r->cheapest = r->fewest;
    } else {
        r->n_found = 2;
        LHI_TRY(plan_losses(s, s->priced, &r->cheapest, err));
    }
    if (is_same_size(&r->fastest, &r->cheapest) &&
        r->fastest.iteration_ns == r->cheapest.iteration_ns)
        r->fastest = r->cheapest;
    else if (s->options.budget_usd > 0)
        return plan_losses(s, false, &r->fastest, err);
    return LH_OK;
}

/* Checks whether a size that was planned later, for losses or bounds, is better
 * than those in the result; answer in *better. */
static lh_status check_planned(const lhi_size_search *s, bool *better,
                               lh_error *err)
{
    const lh_size_result *r = s->result;
    lh_size best;
    bool found;
    LHI_TRY(lhi_size_find_best(s, false, lhi_size_has_fewer_gpus, &found, &best,
                               err));
    *better =
        found && (!r->n_found || lhi_size_has_fewer_gpus(&best, &r->fewest));
    if (*better || !found || !s->priced)
        return LH_OK;
    LHI_TRY(
        lhi_size_find_best(s, false, lhi_size_is_cheaper, &found, &best, err));
    *better = found && lhi_size_is_cheaper(&best, &r->cheapest);
    if (*better || !found || !(s->options.budget_usd > 0))
        return LH_OK;
    LHI_TRY(
        lhi_size_find_best(s, false, lhi_size_is_faster, &found, &best, err));
    *better = found && lhi_size_is_faster(&best, &r->fastest);
    return LH_OK;
}

/* Plans the fastest size so far, with a budget the cheapest, and the largest
 * one as deeply as a plan's default: only such a search or a bound may show
 * that no size meets the requirements. *found: a size meets them. */
static lh_status search_deeply(lhi_size_search *s, bool *found, lh_error *err)
{
    uint32_t most[LH_MAX_DATACENTERS] = {0};
    lh_size run;
    LHI_TRY(lhi_size_find_best(s, true, lhi_size_is_faster, found, &run, err));
    if (*found)
        LHI_TRY(lhi_size_plan_deeply(s, run.nodes, err));
    LHI_TRY(lhi_size_find_best(s, true, lhi_size_is_cheaper, found, &run, err));
    if (*found && s->options.budget_usd > 0)
        LHI_TRY(lhi_size_plan_deeply(s, run.nodes, err));
    LHI_TRY(lhi_size_find_best(s, false, lhi_size_has_fewer_gpus, found, &run,
                               err));
    if (*found)
        return LH_OK;
    lhi_size_fill_nodes(s, true, most);
    LHI_TRY(lhi_size_plan_deeply(s, most, err));
    return lhi_size_find_best(s, false, lhi_size_has_fewer_gpus, found, &run,
                              err);
}

/* Plans the fastest size so far and the largest one by the longer search, so
 * that the fastest size of the result is not one of even partitions only.
 * *found: a size meets the requirements after all. */
static lh_status confirm_fastest(lhi_size_search *s, bool *found, lh_error *err)
{
    uint32_t most[LH_MAX_DATACENTERS] = {0};
    const lhi_planned_size *size;
    lh_size run;
    lhi_size_fill_nodes(s, true, most);
    LHI_TRY(lhi_size_plan(s, most, LHI_SIZE_FULL, &size, err));
    LHI_TRY(lhi_size_find_best(s, true, lhi_size_is_faster, found, &run, err));
    if (*found)
        LHI_TRY(lhi_size_plan(s, run.nodes, LHI_SIZE_FULL, &size, err));
    return lhi_size_find_best(s, false, lhi_size_has_fewer_gpus, found, &run,
                              err);
}

/* Returns the product of a run's time and cost below which it is the knee. */
static double limit_product(const lhi_size_search *s)
{
    const lh_size_result *r = s->result;
    double least = r->cheapest.train_s * r->cheapest.usd;
    if (s->options.budget_usd > 0)
        least = fmin(least, r->fastest.train_s * r->fastest.usd);
    return KNEE_SHARE * least;
}

/* Fills the result's knee: the planned size with the least product of time and
 * cost, planned again by the longer search, unless a size of the result has
 * about the same product. */
static lh_status fill_knee(lhi_size_search *s, lh_error *err)
{
    const lhi_planned_size *size;
    lh_size knee;
    bool found;
    s->result->knee = (lh_size){0};
    if (!s->priced || !s->result->n_found)
        return LH_OK;
    LHI_TRY(lhi_size_find_best(s, false, lhi_size_has_less_product, &found,
                               &knee, err));
    if (!found || knee.train_s * knee.usd >= limit_product(s))
        return LH_OK;
    LHI_TRY(lhi_size_plan(s, knee.nodes, LHI_SIZE_FULL, &size, err));
    LHI_TRY(lhi_size_settle_best(s, false, lhi_size_has_less_product, &found,
                                 &knee, err));
    if (knee.train_s * knee.usd < limit_product(s))
        s->result->knee = knee;
    return LH_OK;
}

/* Counts the planned sizes, and sets the accuracy of the result's sizes. */
static lh_status finish_result(lhi_size_search *s, lh_error *err)
{
    for (uint32_t i = 0; i < s->n_planned; i++)
        s->result->n_planned += lhi_size_is_in_ranges(s, s->planned[i]->nodes);
    return lhi_size_state_accuracy(s, err);
}

lh_status lhi_size_fill_result(lhi_size_search *s, lh_error *err)
{
    lh_size_result *r = s->result;
    bool found, better = true, deep = false;
    for (int i = 0; i < MAX_ROUNDS && better; i++) {
        LHI_TRY(fill_best(s, &found, err));
        LHI_TRY(fill_knee(s, err)); /* may plan sizes */
        LHI_TRY(check_planned(s, &better, err));
        if (better)
            continue;
        LHI_TRY(lhi_size_bound(s, err));
        LHI_TRY(check_planned(s, &better, err));
        if (found || better || deep)
            continue;
        LHI_TRY(search_deeply(s, &better, err));
        if (!better)
            LHI_TRY(confirm_fastest(s, &better, err));
        deep = true;
    }
    if (!found) {
        LHI_TRY(lhi_size_settle_best(s, true, lhi_size_is_faster, &found,
                                     &r->fastest, err));
        if (!found)
            return lhi_fail(err, LH_EINFEASIBLE,
                            "%s: no size in the ranges fits in memory",
                            s->job->name);
        r->fewest = r->cheapest = r->fastest;
    }
    return finish_result(s, err);
}

/* Copies the losses of a size from the result, if it has them for the same
 * size. */
static void keep_losses(const lh_size *from, lh_size *to)
{
    if (!is_same_size(from, to) || from->iteration_ns != to->iteration_ns)
        return;
    to->n_losses = from->n_losses;
    memcpy(to->losses, from->losses, sizeof to->losses);
}

lh_status lhi_size_fill_interrupted(lhi_size_search *s, lh_error *err)
{
    lh_size_result *r = s->result;
    lh_size *const sizes[] = {&r->fewest, &r->cheapest, &r->fastest};
    lhi_size_is_better_fn *const is_better[] = {
        lhi_size_has_fewer_gpus,
        s->priced ? lhi_size_is_cheaper : lhi_size_has_fewer_gpus,
        lhi_size_is_faster};
    bool found, all = false;
    lh_size best;
    LHI_TRY(lhi_size_find_best(s, false, lhi_size_has_fewer_gpus, &found, &best,
                               err));
    all = !found;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        LHI_TRY(lhi_size_find_best(s, all,
                                   all ? lhi_size_is_faster : is_better[i],
                                   &found, &best, err));
        if (!found)
            return lhi_fail(err, LH_ECANCELED, "stopped");
        keep_losses(sizes[i], &best);
        *sizes[i] = best;
    }
    r->knee = (lh_size){0};
    r->n_found = all ? 0 : is_same_size(&r->fewest, &r->cheapest) ? 1 : 2;
    r->n_planned = 0;
    r->gpus_bound = 0;
    r->usd_bound = r->train_bound_s = 0;
    r->all_planned = false;
    r->interrupted = true;
    return finish_result(s, err);
}
