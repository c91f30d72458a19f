/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds over all sizes, by branch and bound on boxes of sizes. A box holds the
 * sizes between two corners. Its upper corner has the most nodes, so that the
 * bound on its iteration time holds for the whole box: a layout for fewer nodes
 * is also one for more. Without failures a run is never longer. */
#include "planner/size/size_internal.h"

#include "base/fail.h"
#include "format/job/job_values.h"
#include "format/job/model_size.h"
#include "format/job/parse.h"
#include "model/shape.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum {
    MAX_BOXES = 4000, /* stops the search; the bound stays valid */
    MAX_PLANS = 8,    /* planned for their proven bounds */
    MAX_USELESS = 2   /* successive plans that raise no bound end it */
};
/* The sizes from `low` to `high`. */
typedef struct box {
    uint32_t low[LH_MAX_DATACENTERS], high[LH_MAX_DATACENTERS];
    double value; /* lower bound on the objective */
} box;

/* Objective of one branch and bound. */
typedef enum bound_objective {
    BOUND_GPUS,
    BOUND_USD,
    BOUND_TIME
} bound_objective;

/* State of one branch and bound. */
typedef struct bound_search {
    lhi_size_search *s;
    bound_objective objective;
    double usd_per_iteration; /* least, of all GPUs */
    double message_bytes;     /* of all pipelines, if each crosses once */
    double params_bytes;      /* of all replicas' rings between datacenters */
    uint32_t n_boxes, n_plans;
    uint32_t n_useless; /* successive plans that raised no bound */
    box *boxes;
} bound_search;

/* Checks whether size `a` has at most as many nodes as size `b` in every
 * datacenter; a[i], b[i]: nodes of datacenter i. */
static bool is_within(const lhi_size_search *s, const uint32_t *a,
                      const uint32_t *b)
{
    for (uint32_t i = 0; i < s->job->n_datacenters; i++)
        if (a[i] > b[i])
            return false;
    return true;
}

/* Returns the best known lower bound, in seconds, on the iteration time of all
 * sizes with at most nodes[i] nodes in each datacenter i. */
static double find_known_bound_s(const lhi_size_search *s,
                                 const uint32_t *nodes)
{
    double bound = lhi_size_work_bound_s(s, nodes);
    for (uint32_t i = 0; i < s->n_planned; i++)
        if ((double)s->planned[i]->bound_ns / 1e9 > bound &&
            is_within(s, nodes, s->planned[i]->nodes))
            bound = (double)s->planned[i]->bound_ns / 1e9;
    return bound;
}

/* Returns the GPU count of a size with nodes[i] nodes in datacenter i,
 * including each used datacenter's spare nodes. */
static double count_gpus(const lhi_size_search *s, const uint32_t *nodes)
{
    double gpus = 0;
    for (uint32_t i = 0; i < s->job->n_datacenters; i++)
        gpus += (double)(nodes[i] + (nodes[i] ? s->failures.spares : 0)) *
                s->job->datacenters[i].gpus_per_node;
    return gpus;
}

double lhi_size_price_hour(const lhi_size_search *s, const uint32_t *nodes)
{
    const double share = s->options.spot_price;
    double usd = 0;
    for (uint32_t i = 0; i < s->job->n_datacenters; i++)
        usd += (double)(nodes[i] + (nodes[i] ? s->failures.spares : 0)) *
               s->job->datacenters[i].gpus_per_node *
               s->job->datacenters[i].usd_per_gpu_hour;
    return share > 0 && share < 1 ? share * usd : usd;
}

/* Returns the least price per byte of the traffic between datacenter `i` and
 * the others. */
static double find_least_usd_per_byte(const lhi_size_search *s, uint32_t i)
{
    const uint32_t n = s->job->n_datacenters;
    double least = DBL_MAX;
    for (uint32_t k = 0; k < n; k++) {
        if (k == i || !s->ranges[k].most)
            continue;
        least = fmin(least, s->job->wans[(size_t)i * n + k].usd_per_gb);
        least = fmin(least, s->job->wans[(size_t)k * n + i].usd_per_gb);
    }
    return least < DBL_MAX ? least / 1e9 : 0;
}

/* Returns the largest share of an iteration's work that nodes[k] nodes in each
 * datacenter k can do before the deadline, at most 1. */
static double bound_share(const lhi_size_search *s, const uint32_t *nodes)
{
    return fmin(1, lhi_size_longest_s(s) / lhi_size_work_bound_s(s, nodes));
}

/* Returns a lower bound on the price of an iteration's traffic between
 * datacenters, for all sizes in box `x` (docs/theory/sizes.md, "Traffic between
 * datacenters"). */
static double bound_traffic_usd(const bound_search *b, const box *x)
{
    const lhi_size_search *s = b->s;
    const uint32_t n = s->job->n_datacenters;
    double usd = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t alone[LH_MAX_DATACENTERS] = {0};
        uint32_t others[LH_MAX_DATACENTERS] = {0};
        for (uint32_t k = 0; k < n; k++)
            (k == i ? alone : others)[k] = x->high[k];
        const double share =
            1 - fmax(bound_share(s, alone), bound_share(s, others));
        usd = fmax(usd, find_least_usd_per_byte(s, i) *
                            fmin(b->params_bytes, share * b->message_bytes));
    }
    return usd;
}

/* Sets the lower bound on the objective (GPUs or cost) of all sizes in box `x`,
 * from x->low to x->high nodes per datacenter. Returns false if none can meet
 * the requirements. */
static bool bound_box(const bound_search *b, box *x)
{
    const lhi_size_search *s = b->s;
    const double deadline = s->options.deadline_s;
    const double seconds = find_known_bound_s(s, x->high) * s->iterations;
    x->value = count_gpus(s, x->low);
    double usd = lhi_size_price_hour(s, x->low) * seconds / LHI_HOUR_S;
    usd = fmax(usd, b->usd_per_iteration * s->iterations);
    usd += bound_traffic_usd(b, x) * s->iterations;
    if (b->objective != BOUND_GPUS)
        x->value = b->objective == BOUND_USD ? usd : seconds;
    return isfinite(seconds) && !(deadline > 0 && seconds > deadline) &&
           !(s->options.budget_usd > 0 && usd > s->options.budget_usd);
}

/* Removes the open box (range of sizes) with the least bound from the list,
 * into *out. */
static void take_least(bound_search *b, box *out)
{
    uint32_t least = 0;
    for (uint32_t i = 1; i < b->n_boxes; i++)
        if (b->boxes[i].value < b->boxes[least].value)
            least = i;
    *out = b->boxes[least];
    b->boxes[least] = b->boxes[--b->n_boxes];
}

/* Returns the datacenter with the widest range of nodes in the box; a range of
 * 0 means that the box holds one size. */
static uint32_t find_widest(const bound_search *b, const box *x)
{
    uint32_t widest = 0;
    for (uint32_t i = 1; i < b->s->job->n_datacenters; i++)
        if (x->high[i] - x->low[i] > x->high[widest] - x->low[widest])
            widest = i;
    return widest;
}

/* Returns the least price of an iteration's GPU time: matrix products at peak
 * rates, and all passes. */
static double price_iteration(const lhi_size_search *s)
{
    double flop_usd = DBL_MAX, second_usd = DBL_MAX;
    for (uint32_t i = 0; i < s->job->n_datacenters; i++) {
        const lh_datacenter *site = &s->job->datacenters[i];
        const double usd = site->usd_per_gpu_hour / LHI_HOUR_S;
        if (!s->ranges[i].most)
            continue;
        second_usd = fmin(second_usd, usd);
        flop_usd = fmin(flop_usd, usd / lhi_gpu_max_flops_per_s(
                                            &site->gpu, s->job->framework.fp8));
    }
    const double share = s->options.spot_price;
    const double usd = fmax(flop_usd * s->flops, second_usd * s->gpu_s);
    return share > 0 && share < 1 ? share * usd : usd;
}

/* Sets the traffic of an iteration between a datacenter and the others, in
 * bytes, for two cases: every pipeline crosses between them once, there and
 * back; or no pipeline crosses, but every ring of replicas does. A ring reduces
 * gradients and gathers parameters, or reduces without shards in twice the
 * bytes. Omits expert parameters, because their replicas may form no ring. */
static lh_status find_traffic(bound_search *b, lh_error *err)
{
    const lh_job *job = b->s->job;
    lh_cost_options options = {.size = sizeof options,
                               .estimate_missing = true};
    const double element = lhi_precision_bytes(job->training.precision);
    LHI_TRY(lhi_complete_cost_options(job, &options, &options, err));
    const double wire = options.gradient_wire_bytes;
    const double experts =
        (double)lhi_model_range_params(job->model, 0, job->model->layers)
            .experts;
    b->message_bytes = 2.0 * job->training.global_batch *
                       (double)job->training.sequence * job->model->hidden *
                       element;
    b->params_bytes = ((double)lh_model_params(job->model) - experts) *
                      (wire + fmin(wire, element));
    return LH_OK;
}

/* Checks whether planning the largest size of box `x` may exclude the box by
 * the proven bound on its time: it misses the deadline at the best efficiency
 * so far, and the latest plans raised bounds; or it is the box's only size and
 * would be better than the result. */
static bool is_worth_planning(const bound_search *b, const box *x)
{
    const lhi_size_search *s = b->s;
    const lh_size *found = s->result->n_found ? &s->result->fewest : NULL;
    if (b->objective != BOUND_GPUS || b->n_plans == MAX_PLANS ||
        lhi_size_find_planned(s, x->high))
        return false;
    if (b->n_useless < MAX_USELESS &&
        lhi_size_work_bound_s(s, x->high) >
            lhi_size_longest_s(s) * lhi_size_best_efficiency(s, NULL))
        return true;
    return found && is_within(s, x->high, x->low) &&
           x->value < (double)(found->gpus + found->spare_gpus);
}

/* Plans the largest size of box `x` (range of sizes) if its bound may exclude
 * the box, and updates the box's bound. *open: the box may still hold a
 * solution. */
static lh_status plan_largest(bound_search *b, box *x, bool *open,
                              lh_error *err)
{
    const lhi_planned_size *size;
    const double value = x->value;
    *open = true;
    if (!is_worth_planning(b, x))
        return LH_OK;
    const double before = find_known_bound_s(b->s, x->high);
    b->n_plans++;
    LHI_TRY(lhi_size_plan(b->s, x->high, LHI_SIZE_QUICK, &size, err));
    b->n_useless =
        find_known_bound_s(b->s, x->high) > before ? 0 : b->n_useless + 1;
    *open = bound_box(b, x);
    x->value = fmax(x->value, value);
    return LH_OK;
}

/* Computes a lower bound on the objective (GPUs or cost) over all sizes in the
 * ranges, by branch and bound over boxes of sizes; *bound 0: no size can meet
 * the requirements. */
static lh_status search(bound_search *b, double *bound, lh_error *err)
{
    bool open;
    *bound = 0;
    const uint32_t n = b->s->job->n_datacenters;
    box x = {.value = 0};
    for (uint32_t i = 0; i < n; i++) {
        x.low[i] = b->s->ranges[i].least;
        x.high[i] = b->s->ranges[i].most;
    }
    if (!bound_box(b, &x))
        return LH_OK;
    b->boxes[b->n_boxes++] = x;
    while (b->n_boxes > 0) {
        take_least(b, &x);
        LHI_TRY(plan_largest(b, &x, &open, err));
        if (!open)
            continue;
        const uint32_t at = find_widest(b, &x);
        if (x.high[at] == x.low[at] || b->n_boxes + 2 > MAX_BOXES) {
            *bound = x.value;
            return LH_OK;
        }
        box lower = x, upper = x;
        lower.high[at] = x.low[at] + (x.high[at] - x.low[at]) / 2;
        upper.low[at] = lower.high[at] + 1;
        box *const halves[] = {&lower, &upper};
        for (int i = 0; i < 2; i++) {
            open = bound_box(b, halves[i]);
            halves[i]->value = fmax(halves[i]->value, x.value);
            if (open)
                b->boxes[b->n_boxes++] = *halves[i];
        }
    }
    return LH_OK;
}

lh_status lhi_size_bound(lhi_size_search *s, lh_error *err)
{
    bound_search b = {.s = s,
                      .usd_per_iteration = s->priced ? price_iteration(s) : 0,
                      .boxes = LHI_NEW(s->mem, box, MAX_BOXES)};
    if (!b.boxes)
        return lhi_fail_nomem(err);
    double gpus;
    LHI_TRY(find_traffic(&b, err));
    LHI_TRY(search(&b, &gpus, err));
    s->result->gpus_bound = (uint32_t)gpus;
    if (!s->priced)
        return LH_OK;
    b.objective = BOUND_USD;
    b.n_boxes = 0;
    LHI_TRY(search(&b, &s->result->usd_bound, err));
    if (!(s->options.budget_usd > 0))
        return LH_OK;
    b.objective = BOUND_TIME;
    b.n_boxes = 0;
    return search(&b, &s->result->train_bound_s, err);
}
