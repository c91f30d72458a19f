/* SPDX-License-Identifier: Apache-2.0 */
/* The best plan that differs in one dimension: another tensor degree, another
 * placement, ... Whatever else it needs to be good may differ, too. */
#include "plan/explain/account.h"

#include "plan/layout/alike.h"
#include "plan/search/goal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    EACH_SIMULATED = 12, /* alternatives that only have a bound */
    MOST_PASSES = 300000 /* of all that are simulated */
};

typedef struct runner {
    const lh_job *job;
    const lh_plan_options *options;
    lhi_arena *mem;
    lh_plan *plan;
    lh_choice *list; /* the plan's alternatives */
    uint64_t passes; /* simulated */
} runner;

typedef bool (*differs_fn)(const lh_choice *a, const lh_choice *b);

#define DEGREE(name)                                                           \
    static bool name##_differs(const lh_choice *a, const lh_choice *b)         \
    {                                                                          \
        return a->layout.name != b->layout.name;                               \
    }

DEGREE(tensor)
DEGREE(context)
DEGREE(expert)
DEGREE(pipeline)
DEGREE(data)
DEGREE(micro_batch)
DEGREE(chunks_per_device)
DEGREE(sharding)

static bool zero_differs(const lh_choice *a, const lh_choice *b)
{
    return a->zero != b->zero;
}

static bool placement_differs(const lh_choice *a, const lh_choice *b)
{
    return a->placement != b->placement;
}

static bool sites_differ(const lh_choice *a, const lh_choice *b)
{
    return a->layout.outermost != b->layout.outermost ||
           !lhi_sites_same(a->layout.sites, b->layout.sites);
}

static bool recompute_differs(const lh_choice *a, const lh_choice *b)
{
    return a->recompute != b->recompute;
}

static bool schedule_differs(const lh_choice *a, const lh_choice *b)
{
    return a->layout.schedule && b->layout.schedule &&
           strcmp(a->layout.schedule, b->layout.schedule) != 0;
}

static const struct {
    const char *name;
    differs_fn differs;
} dimensions[] = {{"tensor", tensor_differs},
                  {"context", context_differs},
                  {"expert", expert_differs},
                  {"pipeline", pipeline_differs},
                  {"data", data_differs},
                  {"sites", sites_differ},
                  {"zero", zero_differs},
                  {"sharding", sharding_differs},
                  {"micro_batch", micro_batch_differs},
                  {"chunks_per_device", chunks_per_device_differs},
                  {"placement", placement_differs},
                  {"recompute", recompute_differs},
                  {"schedule", schedule_differs}};

enum { N_DIMENSIONS = sizeof dimensions / sizeof dimensions[0] };

bool lhi_dimension_known(const char *name)
{
    for (size_t i = 0; i < N_DIMENSIONS; i++)
        if (strcmp(dimensions[i].name, name) == 0)
            return true;
    return false;
}

/* What is known: a time, or one that it takes at least; or a cost. */
static int64_t value_of(const runner *r, const lh_choice *c)
{
    if (c->status == LH_CHOICE_OK)
        return lhi_value_of(r->options, c);
    bool bounded =
        c->status == LH_CHOICE_BOUNDED && r->options->goal == LH_PLAN_FASTEST;
    return bounded ? c->lower_bound_ns : INT64_MAX;
}

static bool is_better(const runner *r, const lh_choice *a, const lh_choice *b)
{
    return value_of(r, a) < INT64_MAX &&
           (!b || value_of(r, a) < value_of(r, b));
}

/* The least known; `simulated`: among those with a time. */
static lh_choice *find_least(const runner *r, differs_fn differs,
                             bool simulated)
{
    const lh_plan *p = r->plan;
    const lh_choice *best = NULL;
    for (uint32_t i = 0; i < p->n_methods; i++)
        if (p->methods[i].status == LH_CHOICE_OK &&
            differs(&p->methods[i], &p->best) &&
            is_better(r, &p->methods[i], best))
            best = &p->methods[i];
    for (uint32_t i = 0; i < p->n_alternatives; i++)
        if ((!simulated || r->list[i].status == LH_CHOICE_OK) &&
            differs(&r->list[i], &p->best) && is_better(r, &r->list[i], best))
            best = &r->list[i];
    return (lh_choice *)best;
}

static double percent(const runner *r, const lh_choice *c)
{
    lh_choice at_least = *c;
    if (c->status == LH_CHOICE_BOUNDED)
        at_least.iteration_ns = c->lower_bound_ns;
    return 100 * lhi_behind(r->options, &at_least, &r->plan->best);
}

/* `least`: what nothing that differs is below. */
static lh_status say_why(const runner *r, const lh_choice *least, lh_choice *c,
                         lh_error *err)
{
    char text[120];
    const char *in = r->options->goal == LH_PLAN_CHEAPEST ? " in cost" : "";
    if (c->status == LH_CHOICE_BOUNDED)
        snprintf(text, sizeof text, "%+.1f %% or more", percent(r, c));
    else if (value_of(r, least) < value_of(r, c))
        snprintf(text, sizeof text, "%+.1f %%%s; none is below %+.1f %%",
                 percent(r, c), in, percent(r, least));
    else
        snprintf(text, sizeof text, "%+.1f %%%s", percent(r, c), in);
    c->why = lhi_arena_strdup(r->mem, text);
    return c->why ? LH_OK : lhi_fail_nomem(err);
}

static uint64_t passes_of(const lh_choice *c)
{
    return (uint64_t)c->layout.pipeline * c->layout.chunks_per_device *
           c->microbatches * 3;
}

static lh_status simulate(runner *r, lh_choice *slot, lh_error *err)
{
    lhi_layout_search s = {
        .job = r->job, .options = *r->options, .mem = r->mem};
    lhi_candidate c = {.config = lhi_config_of(slot),
                       .bound_ns = slot->lower_bound_ns};
    r->passes += passes_of(slot);
    LHI_TRY(lhi_candidate_simulate(&s, &c, err));
    *slot = c.choice;
    r->plan->n_bounded--;
    r->plan->n_simulated++;
    return slot->status == LH_CHOICE_OK ? say_why(r, slot, slot, err) : LH_OK;
}

/* A bound that is below every time known does not say which is the best. */
static lh_status find_best(runner *r, differs_fn differs, lh_choice **least,
                           lh_error *err)
{
    for (uint32_t i = 0;; i++) {
        *least = find_least(r, differs, false);
        if (!*least || (*least)->status != LH_CHOICE_BOUNDED ||
            i == EACH_SIMULATED || r->passes + passes_of(*least) > MOST_PASSES)
            return LH_OK;
        LHI_TRY(simulate(r, *least, err));
    }
}

static lh_status add_runner(runner *r, int dimension, lh_plan_runner *runners,
                            lh_error *err)
{
    differs_fn differs = dimensions[dimension].differs;
    lh_choice *least, *best;
    LHI_TRY(find_best(r, differs, &least, err));
    if (!least)
        return LH_OK;
    best = find_least(r, differs, true);
    lh_plan_runner *out = &runners[r->plan->n_runners++];
    *out = (lh_plan_runner){.dimension = dimensions[dimension].name,
                            .choice = best ? *best : *least};
    return say_why(r, least, &out->choice, err);
}

lh_status lhi_plan_runners(const lh_job *job, const lh_plan_options *options,
                           lhi_arena *mem, lh_plan *plan, lh_error *err)
{
    runner r = {.job = job, .options = options, .mem = mem, .plan = plan};
    uint32_t n = plan->n_alternatives;
    lh_plan_runner *runners = LHI_NEW(mem, lh_plan_runner, N_DIMENSIONS);
    r.list = LHI_NEW(mem, lh_choice, n + (size_t)1);
    if (!runners || !r.list)
        return lhi_fail_nomem(err);
    if (n)
        memcpy(r.list, plan->alternatives, n * sizeof *r.list);
    for (int i = 0; i < N_DIMENSIONS; i++)
        LHI_TRY(add_runner(&r, i, runners, err));
    plan->runners = runners;
    plan->alternatives = r.list;
    return LH_OK;
}
