/* SPDX-License-Identifier: Apache-2.0 */
/* Search over elastic plans by event simulation. For every chunk count, queue
 * length and sharding level, each stage recomputes as little as its memory
 * allows; a simulation gives the time. Less recomputation never makes a run
 * longer, because the orders of passes and communications are fixed. No other
 * set of operations can therefore be better. */
#include "planner/elastic/pipeline.h"
#include "schedule/elastic/elastic.h"
#include "schedule/elastic/elastic_internal.h"

#include <inttypes.h>
#include <longhaul/experimental/simulate.h>
#include <string.h>

/* The best plan and the arena that owns it. */
typedef struct best_plan {
    lh_elastic_search_result best;
    lhi_arena *mem;
    lh_elastic_plan *plan;
} best_plan;

/* Search state. */
typedef struct event_search {
    lhi_arena *mem; /* scratch for one setting */
    const lh_elastic_setting *setting;
    uint32_t index;
    int64_t budget;
    lhi_elastic_recompute_table sums;
    const struct lhi_elastic_recompute_row *all;
    size_t *cheapest; /* [i]: fastest among the first i + 1 subset sums */
    uint32_t *parts;
    lhi_elastic_recompute *again;
    size_t *chosen; /* per stage: index of its subset sum */
    best_plan *out;
    int64_t least_missing; /* bytes missing in the closest plan */
} event_search;

/* Simulates one elastic plan; *out_ns is its makespan. `again`: per stage, the
 * recomputation time and the bytes that remain stored. */
static lh_status simulate_plan(const lh_elastic_case *g,
                               const lh_elastic_plan *plan,
                               const lhi_elastic_recompute *again,
                               int64_t *out_ns, lh_error *err)
{
    lh_pipeline *p = NULL;
    lh_schedule *s = NULL;
    lh_evaluator *e = NULL;
    lh_status status = lhi_elastic_build_pipeline(g, plan, again, &p, err);
    if (status == LH_OK)
        status = lhi_elastic_schedule(g, plan, &s, err);
    if (status == LH_OK)
        status = lh_evaluator_make(p, NULL, &e, err);
    if (status == LH_OK)
        status = lh_evaluator_run(e, s, out_ns, err);
    lh_evaluator_free(e);
    lh_schedule_free(s);
    lh_pipeline_free(p);
    return status;
}

lh_status lh_elastic_event_time(const lh_elastic_case *given,
                                const lh_elastic_plan *plan,
                                int64_t recompute_ns, int64_t *out_ns,
                                lh_error *err)
{
    lhi_arena *mem = lhi_arena_make(0);
    lhi_elastic_recompute *again =
        mem ? LHI_NEW(mem, lhi_elastic_recompute, given->stages) : NULL;
    lh_status status = LH_OK;
    if (!again)
        status = lhi_fail_nomem(err);
    for (uint32_t i = 0; again && i < given->stages; i++)
        again[i].ns = recompute_ns;
    if (status == LH_OK)
        status = simulate_plan(given, plan, again, out_ns, err);
    lhi_arena_free(mem);
    return status;
}

/* Chooses the operations that stage `i` recomputes, with the least
 * recomputation time that makes the stage fit the budget. Returns false, and
 * records the missing bytes, if recomputing everything is not enough. */
static bool choose_operations(event_search *s, const lh_elastic_case *g,
                              const lh_elastic_plan *plan, uint32_t i)
{
    lhi_int128 unit = (lhi_int128)g->replicas * g->chunks;
    lhi_int128 room =
        (lhi_int128)s->budget * unit - lhi_elastic_compute_states(g, plan);
    lhi_int128 each =
        (lhi_int128)lh_elastic_resident_passes(g, plan, i + 1) * unit;
    room -= each * g->base_bytes;
    lhi_int128 least = each * s->all->sums[0].stored;
    if (least >= room) {
        int64_t missing = (int64_t)((least - room) / unit) + 1;
        if (s->least_missing == 0 || missing < s->least_missing)
            s->least_missing = missing;
        return false;
    }
    size_t lo = 0, hi = s->all->count; /* sums[lo] fits, sums[hi] does not */
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (each * s->all->sums[mid].stored < room)
            lo = mid;
        else
            hi = mid;
    }
    s->chosen[i] = s->cheapest[lo];
    const lhi_elastic_recompute_point *sum = &s->all->sums[s->chosen[i]];
    s->again[i] = (lhi_elastic_recompute){sum->recompute_ns, sum->stored};
    return true;
}

/* Computes a lower bound on the makespan, in ns: the first gather, the
 * last scatter, all passes of one stage, and one microbatch's path forward and
 * back.
 */
static int64_t bound_makespan(const lh_elastic_case *g,
                              const lh_elastic_plan *plan,
                              const lhi_elastic_recompute *again)
{
    int64_t least = again[0].ns;
    for (uint32_t i = 1; i < g->stages; i++)
        least = again[i].ns < least ? again[i].ns : least;
    int64_t J = (int64_t)g->chunks * g->microbatches + g->stages - 1;
    return J * (g->f_ns + g->b_ns + least) +
           lhi_elastic_compute_first_last_ns(g, plan->params_p) +
           lhi_elastic_compute_first_last_ns(g, plan->params_g) +
           2 * (int64_t)(g->stages - 1) * g->pp_ns;
}

/* Copies the plan, with each stage's recomputation, and its makespan time_ns as
 * the best plan so far. */
static lh_status store_best(event_search *s, const lh_elastic_case *g,
                            const lh_elastic_plan *plan, int64_t time_ns,
                            lh_error *err)
{
    best_plan *o = s->out;
    lhi_arena *mem = lhi_arena_make(0);
    uint32_t n = s->sums.n_ops, P = g->stages;
    bool *recomputed = mem ? LHI_NEW(mem, bool, (size_t)n *P) : NULL;
    int64_t *ns = mem ? LHI_NEW(mem, int64_t, P) : NULL;
    int64_t *stored = mem ? LHI_NEW(mem, int64_t, P) : NULL;
    lh_elastic_plan *copy = NULL;
    if (!recomputed || !ns || !stored ||
        lhi_elastic_copy_plan(plan, &copy, NULL) != LH_OK) {
        lhi_arena_free(mem);
        return lhi_fail_nomem(err);
    }
    for (uint32_t i = 0; i < P; i++) {
        lhi_elastic_recover_operations(&s->sums, s->all->sums[s->chosen[i]],
                                       recomputed + (size_t)i * n);
        ns[i] = s->again[i].ns;
        stored[i] = s->again[i].stored;
    }
    lhi_arena_free(o->mem);
    lh_elastic_plan_free(o->plan);
    o->mem = mem;
    o->plan = copy;
    uint32_t n_runs = o->best.n_runs;
    o->best = (lh_elastic_search_result){
        .setting = s->index,
        .sharding = g->sharding,
        .plan = copy,
        .time_ns = time_ns,
        .model_ns = lhi_elastic_iteration_ns(g, copy, ns[0]),
        .memory = lh_elastic_peak_memory(g, copy, stored[0]),
        .n_stages = P,
        .n_ops = n,
        .recomputed = recomputed,
        .recompute_ns = ns,
        .stored = stored,
        .n_runs = n_runs,
    };
    return LH_OK;
}

/* Simulates one plan and stores it if it is the fastest so far. Skips it if it
 * does not fit into memory, its lower bound is not below the best time, or
 * PipeMesh's equation 1 puts it far behind. */
static lh_status evaluate_plan(event_search *s, const lh_elastic_case *g,
                               const lh_elastic_plan *plan, lh_error *err)
{
    lh_elastic_search_result *best = &s->out->best;
    for (uint32_t i = 0; i < g->stages; i++)
        if (!choose_operations(s, g, plan, i))
            return LH_OK;
    if (s->out->plan && bound_makespan(g, plan, s->again) >= best->time_ns)
        return LH_OK;
    /* Equation 1 is seldom far above the simulated time; candidates that it
     * puts far behind the best are not simulated. */
    if (s->out->plan &&
        (double)lhi_elastic_iteration_ns(g, plan, s->again[0].ns) >
            1.15 * (double)best->time_ns)
        return LH_OK;
    int64_t time_ns;
    LHI_TRY(simulate_plan(g, plan, s->again, &time_ns, err));
    best->n_runs++;
    if (s->out->plan && time_ns >= best->time_ns)
        return LH_OK;
    return store_best(s, g, plan, time_ns, err);
}

/* Builds the table of the operation subsets that a layer may recompute, sorted
 * by bytes stored. s->cheapest[i] is the subset with the least recompute time
 * among the first i + 1. */
static lh_status build_subset_table(event_search *s, lh_error *err)
{
    const lh_elastic_case *g = &s->setting->given;
    LHI_TRY(lhi_elastic_check_case(g, err));
    LHI_TRY(lhi_elastic_build_recompute_table(
        g, s->setting->n_ops, s->setting->ops, true, s->mem, &s->sums, err));
    s->all = &s->sums.rows[s->sums.n_ops];
    s->cheapest = LHI_NEW(s->mem, size_t, s->all->count);
    s->parts = LHI_NEW(s->mem, uint32_t, 2 * (size_t)g->microbatches);
    s->again = LHI_NEW(s->mem, lhi_elastic_recompute, g->stages);
    s->chosen = LHI_NEW(s->mem, size_t, g->stages);
    if (!s->cheapest || !s->parts || !s->again || !s->chosen)
        return lhi_fail_nomem(err);
    for (size_t i = 1; i < s->all->count; i++) {
        size_t before = s->cheapest[i - 1];
        bool cheaper =
            s->all->sums[i].recompute_ns < s->all->sums[before].recompute_ns;
        s->cheapest[i] = cheaper ? i : before;
    }
    return LH_OK;
}

/* Evaluates the plans whose groups have up to `q` microbatches (queue length)
 * at every allowed sharding level. */
static lh_status evaluate_queue(event_search *s, uint32_t q, lh_error *err)
{
    lh_elastic_case g = s->setting->given;
    uint32_t n = lhi_elastic_count_groups(&g, q), open = s->setting->shardings;
    for (uint32_t k = LH_ELASTIC_MIXED; k <= LH_ELASTIC_ZERO3; k++) {
        lh_elastic_plan plan;
        if (open && !(open >> k & 1))
            continue;
        g.sharding = (lh_elastic_sharding)k;
        if (lhi_elastic_fill_plan(&g, q, s->parts, s->parts + n, &plan, NULL) ==
            LH_OK)
            LHI_TRY(evaluate_plan(s, &g, &plan, err));
    }
    return LH_OK;
}

/* Checks whether queue length `q` (microbatches per group) is to be simulated.
 * With more than 128 microbatches, only the shortest queue for each number of
 * groups is. */
static bool is_candidate_queue(const lh_elastic_case *g, uint32_t q)
{
    return g->microbatches <= 128 || q == g->stages ||
           lhi_elastic_count_groups(g, q - 1) != lhi_elastic_count_groups(g, q);
}

/* Checks whether the caller's callback asks to stop, and passes it whether a
 * plan has been found. */
static bool is_stopped(const event_search *s)
{
    const lh_elastic_setting *set = s->setting;
    return set->stopped && set->stopped(set->context, s->out->plan != NULL);
}

/* Searches one setting (chunk count with its times) of elastic plans: first the
 * published planner's choice, then all allowed queue lengths (microbatches per
 * group), longest first. */
static lh_status search_setting(event_search *s, lh_error *err)
{
    if (is_stopped(s))
        return LH_OK;
    LHI_TRY(build_subset_table(s, err));
    const lh_elastic_case *g = &s->setting->given;
    uint32_t first = s->setting->min_queue;
    uint32_t last =
        s->setting->max_queue ? s->setting->max_queue : g->microbatches;
    /* The tables are large, and a single queue does not need them. */
    if (first == last && first >= g->stages && first >= 1 &&
        first <= g->microbatches && is_candidate_queue(g, first))
        return evaluate_queue(s, first, err);
    lh_elastic_choice *published;
    lh_status status =
        lh_elastic_choose(g, s->setting->n_ops, s->setting->ops, s->budget,
                          LH_ELASTIC_LARGEST, &published, NULL);
    if (status == LH_ENOMEM)
        return lhi_fail_nomem(err);
    if (status == LH_OK) {
        uint32_t q = published->plan->enqueue[0];
        lh_elastic_choice_free(published);
        if (q >= first && q <= last)
            LHI_TRY(evaluate_queue(s, q, err));
    }
    for (uint32_t q = g->microbatches; q >= g->stages && q >= 1 && q >= first;
         q--)
        if (q <= last && is_candidate_queue(g, q)) {
            if (is_stopped(s))
                return LH_OK;
            LHI_TRY(evaluate_queue(s, q, err));
        }
    return LH_OK;
}

/* Fails with LH_EINFEASIBLE and the reason: too few microbatches, stopped
 * early, or the bytes by which the smallest plan exceeds memory. */
static lh_status fail_infeasible(const event_search *s, lh_error *err)
{
    const lh_elastic_case *g = &s->setting->given;
    if (g->microbatches < g->stages)
        return lhi_fail(err, LH_EINFEASIBLE,
                        "%" PRIu32 " microbatches are %" PRIu32
                        " fewer than the %" PRIu32 " stages; a group needs at "
                        "least as many",
                        g->microbatches, g->stages - g->microbatches,
                        g->stages);
    if (s->least_missing == 0 && is_stopped(s))
        return lhi_fail(err, LH_EINFEASIBLE, "stopped before a plan was found");
    if (s->least_missing == 0)
        return lhi_fail(err, LH_EINFEASIBLE,
                        "no valid queue divides %" PRIu32
                        " microbatches into groups no smaller than the %" PRIu32
                        " stages",
                        g->microbatches, g->stages);
    return lhi_fail(err, LH_EINFEASIBLE,
                    "no plan fits: the closest%s needs %" PRId64
                    " bytes more than allowed by the budget of %" PRId64,
                    s->setting->n_ops ? ", with everything recomputed," : "",
                    s->least_missing, s->budget);
}

lh_status lh_elastic_search_events(uint32_t n_settings,
                                   const lh_elastic_setting *settings,
                                   int64_t budget,
                                   lh_elastic_search_result **out,
                                   lh_error *err)
{
    lhi_arena *root = lhi_arena_make(0);
    best_plan *found = root ? LHI_NEW(root, best_plan, 1) : NULL;
    if (!found || n_settings == 0) {
        lhi_arena_free(root);
        return n_settings ? lhi_fail_nomem(err)
                          : lhi_fail(err, LH_EINVAL, "no setting is given");
    }
    event_search s = {.budget = budget, .out = found};
    lh_status status = LH_OK;
    for (uint32_t i = 0; i < n_settings && status == LH_OK; i++) {
        s.mem = lhi_arena_make(0);
        s.setting = &settings[i];
        s.index = i;
        status = s.mem ? search_setting(&s, err) : lhi_fail_nomem(err);
        lhi_arena_free(s.mem);
    }
    if (status == LH_OK && !found->plan)
        status = fail_infeasible(&s, err);
    if (status == LH_OK) {
        /* The best plan so far has its own arena; its owner takes it over. */
        best_plan *owner = LHI_NEW(found->mem, best_plan, 1);
        if (owner) {
            *owner = *found;
            lhi_arena_free(root);
            *out = &owner->best;
            return LH_OK;
        }
        status = lhi_fail_nomem(err);
    }
    lh_elastic_plan_free(found->plan);
    lhi_arena_free(found->mem);
    lhi_arena_free(root);
    return status;
}

void lh_elastic_search_result_free(lh_elastic_search_result *best)
{
    if (!best)
        return;
    best_plan *owned = (best_plan *)best;
    lh_elastic_plan_free(owned->plan);
    lhi_arena_free(owned->mem);
}
