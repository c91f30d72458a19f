/* SPDX-License-Identifier: Apache-2.0 */
/* Plans with unequal microbatches (docs/theory/unequal.md):
 * 1. Lists degrees, replicas per datacenter and microbatch sizes whose product
 *    is the global batch, and estimates their iteration times.
 * 2. Searches the remaining dimensions of the best estimates quickly.
 * 3. Searches those of the best results again, with more work. */
#include "planner/unequal.h"

#include "base/fail.h"
#include "planner/fixed_layouts.h"
#include "planner/layout/layout.h"
#include "planner/layout/space.h"
#include "planner/search/search_budget.h"
#include "planner/search/unequal_bound.h"

#include <math.h>
#include <string.h>

enum {
    LISTING_DIVISOR = 10, /* of the plan's time, for the estimates */
    MAX_QUICK = LHI_MAX_FIXED_LAYOUTS, /* estimates searched */
    MAX_DEGREES = 3,                   /* of them, with the same degrees */
    MAX_REPLICAS = 8,                  /* replica counts tried per datacenter */
    MAX_FEW_REPLICAS = 3               /* with more than two datacenters */
};

/* Replicas and microbatch sizes per datacenter; 0 replicas: idle. */
typedef struct unequal_layout {
    const lhi_unequal_times *times;
    uint32_t pipeline;
    uint32_t replicas[LHI_UNEQUAL_MAX_SITES];
    uint32_t micro_batch[LHI_UNEQUAL_MAX_SITES];
    double ns; /* estimate */
} unequal_layout;

/* Search state. */
typedef struct unequal_search {
    const lh_job *job;
    unequal_layout best[MAX_QUICK]; /* least times first */
    uint32_t n;
} unequal_search;

/* --- estimates ------------------------------------------------------------ */

/* Checks whether two layouts with unequal microbatches have the same tensor,
 * context, expert and pipeline degrees. */
static bool have_same_degrees(const unequal_layout *a, const unequal_layout *b)
{
    return a->times == b->times && a->pipeline == b->pipeline;
}

/* Removes entry `i` from the list of the best layouts, s->best. */
static void remove_entry(unequal_search *s, uint32_t i)
{
    s->n--;
    memmove(&s->best[i], &s->best[i + 1], (s->n - i) * sizeof *s->best);
}

/* Stores a layout in s->best, sorted by estimated time, if it is among the
 * fastest; at most MAX_DEGREES entries have the same degrees, and equal ones
 * occur once. */
static void keep_layout(unequal_search *s, const unequal_layout *l)
{
    uint32_t same = 0, last = 0, at;
    for (uint32_t i = 0; i < s->n; i++)
        if (have_same_degrees(&s->best[i], l)) {
            if (memcmp(s->best[i].replicas, l->replicas, sizeof l->replicas) ==
                    0 &&
                memcmp(s->best[i].micro_batch, l->micro_batch,
                       sizeof l->micro_batch) == 0)
                return;
            same++;
            last = i;
        }
    if (same == MAX_DEGREES) {
        if (s->best[last].ns <= l->ns)
            return;
        remove_entry(s, last);
    } else if (s->n == MAX_QUICK) {
        if (s->best[s->n - 1].ns <= l->ns)
            return;
        s->n--;
    }
    for (at = s->n++; at > 0 && s->best[at - 1].ns > l->ns; at--)
        s->best[at] = s->best[at - 1];
    s->best[at] = *l;
}

/* Estimates the iteration time of a layout whose replicas and microbatch
 * sizes are set in all datacenters, and stores it if it is valid. Valid:
 * the sizes divide the batch, are unequal and not too many, and no experts
 * span datacenters. The estimate is the slowest datacenter's passes and the
 * bubble. */
static void finish_layout(unequal_search *s, unequal_layout *l)
{
    const uint32_t n = s->job->n_datacenters;
    const lh_layout *degrees = &l->times->group.layout;
    uint64_t sequences = 0;
    uint32_t groups = 0, first = 0;
    bool unequal = false;
    double slowest = 0;
    for (uint32_t dc = 0; dc < n; dc++) {
        if (!l->replicas[dc])
            continue;
        if ((uint64_t)l->replicas[dc] * lhi_group_size(degrees) %
                lh_layout_expert_block(degrees) !=
            0)
            return;
        const uint32_t mb = l->micro_batch[dc];
        const double ns = (double)l->times->ns[dc][mb - 1];
        first = groups++ ? first : mb;
        unequal = unequal || mb != first;
        sequences += (uint64_t)l->replicas[dc] * mb;
        slowest = ns > slowest ? ns : slowest;
    }
    if (!unequal || s->job->training.global_batch % sequences != 0)
        return;
    const uint64_t microbatches = s->job->training.global_batch / sequences;
    if (microbatches > LHI_MOST_MICROBATCHES)
        return;
    l->ns = slowest / l->pipeline * (double)(microbatches + l->pipeline - 1);
    keep_layout(s, l);
}

/* Returns the i-th replica count to try out of at most `most`: the largest
 * ones, then powers of two; 0: no more. */
static uint32_t get_replicas(uint32_t most, uint32_t i)
{
    uint32_t power = 1;
    if (i < MAX_FEW_REPLICAS - 1 || most <= MAX_REPLICAS)
        return i < most ? most - i : 0;
    while (2 * power <= most)
        power *= 2;
    return power >> (i - MAX_FEW_REPLICAS + 1);
}

/* Sets the replicas and microbatch sizes of datacenters `dc` and later in every
 * way in which no microbatch takes longer than `most_ns`, and stores the
 * resulting layouts. With more than two datacenters, tries only the two largest
 * sizes of each. */
static void set_sites(unequal_search *s, unequal_layout *l, uint32_t dc,
                      int64_t most_ns)
{
    const uint32_t n = s->job->n_datacenters;
    const uint32_t most = n > 2 ? MAX_FEW_REPLICAS : MAX_REPLICAS;
    uint32_t sizes = 0;
    if (dc >= n || dc >= LHI_UNEQUAL_MAX_SITES) { /* n is at most that */
        finish_layout(s, l);
        return;
    }
    const uint32_t room = l->times->ranks[dc] / l->pipeline;
    l->replicas[dc] = l->micro_batch[dc] = 0;
    set_sites(s, l, dc + 1, most_ns);
    for (uint32_t mb = LHI_UNEQUAL_MAX_MICRO_BATCH; mb > 0; mb--) {
        if (l->times->ns[dc][mb - 1] > most_ns || (n > 2 && sizes == 2))
            continue;
        sizes++;
        for (uint32_t i = 0; i < most && get_replicas(room, i); i++) {
            l->replicas[dc] = get_replicas(room, i);
            l->micro_batch[dc] = mb;
            set_sites(s, l, dc + 1, most_ns);
        }
    }
    l->replicas[dc] = l->micro_batch[dc] = 0;
}

/* Returns a lower bound, in ns, on the estimated time of all layouts with these
 * degrees: all replicas that fit process sequences at their datacenter's
 * highest rate. */
static double estimate_least(const unequal_search *s,
                             const lhi_unequal_times *times, uint32_t pipeline)
{
    double rate = 0;
    for (uint32_t dc = 0; dc < s->job->n_datacenters; dc++) {
        const uint32_t room = times->ranks[dc] / pipeline;
        double most = 0;
        for (uint32_t i = 0; i < LHI_UNEQUAL_MAX_MICRO_BATCH; i++)
            most = fmax(most, (i + 1.0) / fmax((double)times->ns[dc][i], 1));
        rate += (double)room * pipeline * most;
    }
    return s->job->training.global_batch / rate;
}

/* Lists the layouts with unequal microbatches for one set of degrees. With more
 * than two datacenters, each pair of datacenter and size in turn sets a
 * microbatch's longest time. */
static void list_layouts(unequal_search *s, const lhi_unequal_times *times,
                         uint32_t pipeline)
{
    unequal_layout l = {.times = times, .pipeline = pipeline};
    const uint32_t n = s->job->n_datacenters;
    if (s->n == MAX_QUICK &&
        estimate_least(s, times, pipeline) >= s->best[MAX_QUICK - 1].ns)
        return;
    if (n == 2)
        set_sites(s, &l, 0, INT64_MAX);
    for (uint32_t dc = 0; n > 2 && dc < n; dc++)
        for (uint32_t i = 0; i < LHI_UNEQUAL_MAX_MICRO_BATCH; i++)
            if (times->ranks[dc] >= pipeline)
                set_sites(s, &l, 0, times->ns[dc][i]);
}

/* Lists the layouts with unequal microbatches for all n sets of degrees in
 * `all` and all pipeline degrees that the job allows, if at least two
 * datacenters hold a replica; ends early if the caller asks to stop. */
static void list_all(unequal_search *s, const lhi_unequal_times *all,
                     uint32_t n, const lh_plan_options *options,
                     const lh_plan *plan)
{
    const uint32_t want = s->job->layout.pipeline;
    const uint32_t layers = s->job->model->layers;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t pp = 1; pp <= layers; pp++) {
            if (options->progress &&
                options->progress(options->context, i * layers + pp - 1,
                                  n * layers, plan->best.iteration_ns))
                return;
            uint32_t sites = 0;
            for (uint32_t dc = 0; dc < s->job->n_datacenters; dc++)
                sites += all[i].ranks[dc] >= pp;
            if (sites > 1 && (!want || want == pp))
                list_layouts(s, &all[i], pp);
        }
}

/* --- searches ------------------------------------------------------------- */

/* Fixes in a copy of the job the degrees, sites and microbatch sizes of layout
 * `l`; the copy's lists are in `mem`. */
static lh_status fix_layout(const unequal_layout *l, lhi_arena *mem,
                            lh_job *job, lh_error *err)
{
    const uint32_t n = job->n_datacenters;
    lh_sites *sites = LHI_NEW(mem, lh_sites, 1);
    lh_site_group *groups = LHI_NEW(mem, lh_site_group, n);
    lh_site_stages *parts = LHI_NEW(mem, lh_site_stages, n);
    uint32_t *sizes = LHI_NEW(mem, uint32_t, n);
    uint32_t *gpus = LHI_NEW(mem, uint32_t, n);
    lh_layout *to = &job->layout;
    if (!sites || !groups || !parts || !sizes || !gpus)
        return lhi_fail_nomem(err);
    to->micro_batch = to->data = 0;
    for (uint32_t dc = 0; dc < n; dc++) {
        if (!l->replicas[dc])
            continue;
        const uint32_t g = sites->n_groups++;
        parts[g] = (lh_site_stages){dc, l->pipeline};
        groups[g] = (lh_site_group){
            .replicas = l->replicas[dc], .n_parts = 1, .parts = &parts[g]};
        sizes[g] = l->micro_batch[dc];
        gpus[dc] = l->replicas[dc] * l->pipeline *
                   lhi_group_size(&l->times->group.layout);
        to->data += l->replicas[dc];
        to->micro_batch =
            sizes[g] > to->micro_batch ? sizes[g] : to->micro_batch;
    }
    job->min_gpus = gpus; /* the search may end without a result */
    sites->groups = groups;
    to->sites = sites;
    to->group_micro_batches = sizes;
    to->tensor = l->times->group.layout.tensor;
    to->context = l->times->group.layout.context;
    to->expert = l->times->group.layout.expert;
    to->expert_tensor = l->times->group.layout.expert_tensor;
    to->pipeline = l->pipeline;
    to->outermost = LH_OUTERMOST_DATA;
    return LH_OK;
}

lh_status lhi_plan_search_unequal(const lh_plan_options *options,
                                  lhi_arena *mem, lh_plan *plan, lh_error *err)
{
    unequal_search s = {.job = plan->job};
    lhi_unequal_times *all;
    uint32_t n;
    if (!lhi_unequal_is_searched(plan->job, options))
        return LH_OK;
    LHI_TRY(lhi_unequal_list_times(plan->job, mem, &all, &n, err));
    lhi_deadline end;
    const lh_plan_options in_time = lhi_options_with_deadline(
        options,
        lhi_compute_search_deadline(options, lhi_read_processor_seconds(),
                                    1.0 / LISTING_DIVISOR),
        &end);
    list_all(&s, all, n, &in_time, plan);
    lh_job *jobs = LHI_NEW(mem, lh_job, MAX_QUICK);
    if (!jobs)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < s.n; i++) {
        jobs[i] = *plan->job;
        LHI_TRY(fix_layout(&s.best[i], mem, &jobs[i], err));
    }
    return lhi_plan_search_fixed(options, jobs, s.n, mem, plan, err);
}
