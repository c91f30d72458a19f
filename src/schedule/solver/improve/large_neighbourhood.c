/* SPDX-License-Identifier: Apache-2.0 */
/* Large-neighbourhood search (Shaw 1998): all orders stay fixed except for
 * passes in a time interval, on all devices or on some adjacent ones. Clause
 * learning then decides whether a shorter order exists. Every critical path
 * crosses every time interval; where some devices keep their orders, the
 * interval can be much longer. If nothing is shorter, the search accepts
 * another schedule that is slightly longer and continues from it. */
#include "schedule/solver/improve/large_neighbourhood.h"

#include "schedule/solver/state/batch.h"

#include "base/fail.h"
#include "schedule/pipeline/pipeline_internal.h"

#include <string.h>

enum {
    SUBPROBLEM_TICKS = 150000,   /* ticks per subproblem */
    MAX_FAILURES = 8,            /* failures before diversification */
    EXTRA_LENGTH_DIVISOR = 1000, /* max. extra length: best / 1000 */
    PERTURBED_POSITIONS = 5 /* then positions moved, in operations per device */
};

/* A subproblem: its neighbourhood and its result. */
typedef struct subproblem {
    uint32_t kind;
    int64_t from, to;           /* time interval */
    uint32_t device, n_devices; /* devices whose orders may change */
    lhi_windows windows;        /* with its own counts */
    lhi_machine_orders *found;
    lhi_answer answer;
} subproblem;

/* State for one call of the large-neighbourhood search. */
typedef struct lns_run {
    lhi_solver *r;
    lhi_lns_state *state;
    lhi_batch batch;
    subproblem *questions;
    uint32_t n;                   /* subproblems solved in parallel */
    size_t room;                  /* bytes per subproblem */
    int64_t units;                /* target makespan */
    bool elsewhere;               /* diversifying: any different schedule */
    int64_t span;                 /* makespan of r->scratch, job-shop time */
    const uint32_t *least, *most; /* borrowed from the windows */
    int64_t set_at;               /* deadline of the windows, units; -1: none */
    int64_t set_for;              /* deadline after shifting */
    uint64_t again_at;            /* recompute windows after this many ticks */
} lns_run;

/* Checks whether operation o overlaps the time interval of neighbourhood `k`,
 * so that its order may change. */
static bool is_free(const subproblem *k, const lhi_machine_orders *w,
                    uint32_t o)
{
    return w->end[o] > k->from && w->end[o] - w->shop->time[o] < k->to;
}

/* Checks whether machine `m`'s order may change in neighbourhood `k`: it
 * is one of its devices, or a link. */
static bool may_change(const subproblem *k, const lhi_machine *m)
{
    return m->kind != LHI_DEVICE ||
           (m->index >= k->device && m->index < k->device + k->n_devices);
}

/* Counts a stream's operations that end before the time interval of
 * neighbourhood `k` (*done), and those that begin before the interval's end
 * (*begun). */
static void count_around(const subproblem *k, const lhi_machine_orders *w,
                         const lhi_stream *t, uint32_t *done, uint32_t *begun)
{
    *done = *begun = 0;
    for (uint32_t o = t->first; o < t->first + t->count; o++) {
        *done += w->end[o] <= k->from;
        *begun += w->end[o] - w->shop->time[o] < k->to;
    }
}

/* Returns x limited to [low, high]. */
static uint32_t clamp(uint32_t x, uint32_t low, uint32_t high)
{
    return x < low ? low : x > high ? high : x;
}

/* Fixes the order of machine m's operations outside neighbourhood `k`. Sets
 * their least and most numbers of preceding operations, in the time windows, to
 * those in the current schedule. */
static void restrict_machine(const lns_run *all, subproblem *k, uint32_t m)
{
    const lhi_machine_orders *now = all->r->scratch;
    const lhi_shop *s = now->shop;
    const lhi_windows *w = &k->windows;
    const lhi_machine *at = &s->machines[m];
    const bool known = lhi_windows_get_lattice(w, m);
    const bool changes = may_change(k, at);
    uint32_t done[64], begun[64], count[64] = {0};
    for (uint32_t i = 0; i < at->n_streams; i++)
        count_around(k, now, &s->streams[at->first_stream + i], &done[i],
                     &begun[i]);
    for (uint32_t x = 0; x < now->n[m]; x++) {
        uint32_t o = now->order[m][x];
        const bool open = changes && is_free(k, now, o);
        for (uint32_t i = 0; i < at->n_streams; i++) {
            size_t c = w->slot_at[o] + i;
            uint32_t low = known ? all->least[c] : 0;
            uint32_t high =
                known ? all->most[c] : s->streams[at->first_stream + i].count;
            uint32_t a = open && done[i] < count[i] ? done[i] : count[i];
            uint32_t b = open && begun[i] > count[i] ? begun[i] : count[i];
            w->least[c] = low > high ? low : clamp(a, low, high);
            w->most[c] = low > high ? high : clamp(b, low, high);
        }
        count[s->streams[s->stream_of[o]].slot]++;
    }
}

/* Raises the solver's lower bound above the refuted deadline `units` (makespan
 * in job-shop units). Ignores deadlines at or above the best makespan, because
 * states of longer schedules may have been pruned. */
static void raise_bound(lhi_solver *r, int64_t units)
{
    if (units < lhi_solver_get_deadline_limit(r))
        lhi_solver_raise_bound(r, units + 1, lhi_windows_get_engine_name(r));
}

/* Shifts the time windows to the deadline `units`. A schedule that ends earlier
 * by some amount can be delayed by as much, so all windows' ends move by that
 * amount. A longer deadline, up to the original one, shifts them back. False: a
 * window is empty. */
static bool shift_windows(lns_run *k, int64_t units)
{
    lhi_solver *r = k->r;
    const lhi_shop *s = r->shop;
    const int64_t by =
        lhi_shop_get_deadline(s, k->set_for) - lhi_shop_get_deadline(s, units);
    k->set_for = units;
    for (uint32_t o = 0; o < s->n_ops; o++) {
        r->windows->e[o] -= by;
        if (r->windows->r[o] + s->time[o] > r->windows->e[o]) {
            raise_bound(r, units);
            return false;
        }
    }
    return true;
}

/* Returns the longest makespan, in job-shop units, that diversification
 * accepts: slightly more than the best schedule's. */
static int64_t get_diversification_target(const lhi_solver *r)
{
    const int64_t best = lhi_solver_get_deadline_limit(r);
    return best + best / EXTRA_LENGTH_DIVISOR;
}

/* Computes the time windows for the longest deadline that the search may
 * target, which with full lattices (machine state graphs) is slightly above the
 * best makespan. Then shifts them to `units`. Large lattices take much longer
 * than a subproblem, so later calls mostly only shift. False: the deadline is
 * refuted. */
static bool set_windows(lns_run *k, int64_t units)
{
    lhi_solver *r = k->r;
    const lhi_shop *s = r->shop;
    const uint64_t before = r->budget.used;
    if (k->set_at >= units && before < k->again_at)
        return shift_windows(k, units);
    const int64_t top =
        r->windows->has_full_lattices ? get_diversification_target(r) : units;
    if (!lhi_windows_set(r->windows, lhi_shop_get_deadline(s, top),
                         &r->budget)) {
        raise_bound(r, top);
        return false;
    }
    if (r->budget.stop)
        return false;
    lhi_windows_compute_all_counts(r->windows, &r->budget);
    if (r->budget.stop)
        return false;
    k->set_at = k->set_for = top;
    k->again_at = r->budget.used + 8 * (r->budget.used - before);
    return shift_windows(k, units);
}

/* Searches one neighbourhood for a schedule within the requested makespan. Task
 * number i of a parallel batch: `context` is the lns_run. */
static lh_status solve_subproblem(void *context, uint32_t i,
                                  lhi_batch_task *piece)
{
    lns_run *all = context;
    const lhi_solver *r = all->r;
    const lhi_shop *s = r->shop;
    subproblem *k = &all->questions[i];
    lhi_search *search = NULL;
    for (uint32_t m = 0; m < s->n_machines; m++)
        if (s->machines[m].n_streams > 0)
            restrict_machine(all, k, m);
    lh_status status =
        lhi_search_make(s, lhi_shop_get_deadline(s, all->units), &k->windows,
                        all->elsewhere ? all->state->perturbed : r->scratch,
                        &search, &piece->err);
    if (status == LH_OK)
        status =
            lhi_search_run(search, SUBPROBLEM_TICKS, all->room, &piece->budget,
                           k->found, &k->answer, &piece->err);
    lhi_budget_spend(&piece->budget,
                     s->n_ops * 4 +
                         (search ? lhi_search_get_creation_ticks(search) : 0));
    lhi_search_free(search);
    piece->ends_batch = k->answer == LHI_FOUND;
    return status;
}

/* Adapts the neighbourhoods' interval length and the makespan step to the
 * outcome of subproblem `k` (`spent`: its work). Unfinished searches shorten
 * the intervals, quick refutations lengthen them; successes double the step. */
static void adapt_parameters(lhi_lns_state *state, const subproblem *k,
                             uint64_t spent)
{
    int64_t *share = &state->share[k->kind];
    if (k->answer == LHI_GAVE_UP)
        *share -= *share / 16;
    else if (k->answer == LHI_REFUTED && spent < SUBPROBLEM_TICKS / 4)
        *share += *share / 16 + 1;
    *share = *share > 1024 ? 1024 : *share;
    *share = *share < 16 ? 16 : *share;
    state->n_failed = k->answer == LHI_FOUND ? 0 : state->n_failed + 1;
    if (k->answer == LHI_FOUND)
        state->step *= 2;
    else if (state->n_failed % 3 == 0 && state->step > 1)
        state->step /= 2;
}

/* Adapts the neighbourhood sizes to the outcome of subproblem `i`, makes its
 * schedule the current one and offers it to the solver. Merge function for a
 * batch, called in task order; leaves *last unchanged. */
static lh_status merge_subproblem(void *context, uint32_t i,
                                  const lhi_batch_task *piece, bool *last,
                                  lh_error *err)
{
    lns_run *all = context;
    subproblem *k = &all->questions[i];
    (void)last; /* set by the task itself */
    if (!all->elsewhere)
        adapt_parameters(all->state, k, piece->budget.used);
    if (k->answer != LHI_FOUND)
        return LH_OK;
    lhi_machine_orders_copy(all->state->now, k->found);
    return lhi_solver_offer_orders(all->r, k->found, all->r->budget.engine,
                                   err);
}

/* Returns `share` / 1024 of a time, without overflow. */
static int64_t scale_time(int64_t time, int64_t share)
{
    return time / 1024 * share + time % 1024 * share / 1024;
}

/* Chooses the neighbourhood of subproblem `k`: a range of devices and a time
 * interval. Successive intervals follow each other through the schedule. */
static void select_neighbourhood(lns_run *all, subproblem *k)
{
    lhi_solver *r = all->r;
    lhi_lns_state *state = all->state;
    const uint32_t n = r->p->n_devices, number = state->n_subproblems++;
    k->kind = number % LHI_LNS_KINDS;
    k->n_devices = n - n * k->kind / 4;
    k->device = number / LHI_LNS_KINDS % (n - k->n_devices + 1);
    const int64_t share = state->share[k->kind];
    state->at = (state->at + share / 2) % 1024;
    k->from =
        scale_time(all->span, state->at) - scale_time(all->span, share) / 2;
    k->to = k->from + scale_time(all->span, share);
    k->answer = LHI_GAVE_UP;
    uint32_t *least = k->windows.least, *most = k->windows.most;
    k->windows = *r->windows;
    k->windows.least = least;
    k->windows.most = most;
    k->windows.restricted_counts = true;
}

/* Solves one batch of subproblems in parallel, each with the neighbourhood that
 * select_neighbourhood() chooses next. */
static lh_status solve_batch(lns_run *all, lh_error *err)
{
    lhi_solver *r = all->r;
    for (uint32_t i = 0; i < all->n; i++) {
        select_neighbourhood(all, &all->questions[i]);
        all->batch.pieces[i].ticks =
            lhi_budget_get_remaining(&r->budget,
                                     (uint64_t)all->n * 4 * SUBPROBLEM_TICKS) /
            all->n;
    }
    return lhi_batch_run(&all->batch, r->o.threads, err);
}

/* Selects the schedule that the next subproblems change: the last one found by
 * this search, or the incumbent if another engine has improved it. Evaluates
 * it; all->span is its makespan. */
static lh_status select_current(lns_run *all, lh_error *err)
{
    lhi_solver *r = all->r;
    lhi_lns_state *state = all->state;
    if (!state->now) {
        LHI_TRY(lhi_machine_orders_make(r->shop, r->mem, &state->now, err));
        LHI_TRY(
            lhi_machine_orders_make(r->shop, r->mem, &state->perturbed, err));
        state->best_ns = INT64_MAX;
    }
    if (r->best_ns < state->best_ns) {
        state->best_ns = r->best_ns;
        lhi_machine_orders_copy(state->now, r->best);
    }
    lhi_machine_orders_copy(r->scratch, state->now);
    all->span = lhi_machine_orders_evaluate(r->scratch);
    return LH_OK;
}

/* Sets the target all->units to the current makespan less the step size, in
 * job-shop units; false: no makespan between bound and incumbent remains. */
static bool target_improvement(lns_run *all)
{
    const lhi_solver *r = all->r;
    lhi_lns_state *state = all->state;
    const int64_t most = lhi_solver_get_deadline_limit(r) - 1;
    int64_t now = all->span / r->shop->scale - 1;
    now = now < most ? most : now;
    if (now < r->low_units)
        return false;
    if (state->step > (now - r->low_units) / 2 + 1)
        state->step = (now - r->low_units) / 2 + 1;
    all->elsewhere = false;
    all->units = now - (state->step - 1);
    return true;
}

/* Sets the target for leaving a local optimum: a makespan slightly longer than
 * the best. The search then starts near the current schedule with randomly
 * perturbed operation times. */
static void target_diversification(lns_run *all)
{
    const lhi_solver *r = all->r;
    const lhi_shop *s = r->shop;
    lhi_lns_state *state = all->state;
    const int64_t most =
        all->span / (PERTURBED_POSITIONS * (int64_t)r->p->n_devices);
    const int64_t each = all->span / s->n_ops;
    const int64_t off =
        (each < most ? each : most) * r->p->n_devices * PERTURBED_POSITIONS;
    all->elsewhere = true;
    all->units = get_diversification_target(r);
    lhi_machine_orders_copy(state->perturbed, r->scratch);
    for (uint32_t o = 0; o < s->n_ops; o++)
        state->perturbed->end[o] = r->scratch->end[o] - off +
                                   (int64_t)(lhi_random_next(&state->random) %
                                             (2 * (uint64_t)off + 1));
    state->n_failed = 0;
}

/* Runs the large-neighbourhood search's main loop for `ticks` of work. */
static lh_status search_neighbourhoods(lns_run *all, uint64_t ticks,
                                       lh_error *err)
{
    lhi_solver *r = all->r;
    lhi_lns_state *state = all->state;
    const uint64_t end = r->budget.used + ticks;
    state->n_failed = 0;
    for (uint32_t k = 0;
         (r->budget.used < end || k < MAX_FAILURES) && !lhi_solver_is_done(r);
         k++) {
        LHI_TRY(select_current(all, err));
        lhi_budget_restore_engine(&r->budget, LHI_ENGINE_NEAR);
        /* Deadline lattices would have to be rebuilt, for a longer deadline. */
        if (state->n_failed >= MAX_FAILURES &&
            (!r->windows->has_full_lattices ||
             !lhi_budget_is_engine_enabled(&r->budget, LHI_ENGINE_ELSEWHERE)))
            break;
        if (state->n_failed >= MAX_FAILURES) {
            lhi_budget_enter_engine(&r->budget, LHI_ENGINE_ELSEWHERE);
            target_diversification(all);
        } else if (!target_improvement(all))
            break;
        if (all->span < 0 || !set_windows(all, all->units))
            break;
        LHI_TRY(solve_batch(all, err));
    }
    return LH_OK;
}

/* Computes how many subproblems run in parallel in `room` bytes, by the memory
 * that one search needs initially. */
static lh_status count_subproblems(lns_run *all, size_t room, lh_error *err)
{
    const lhi_solver *r = all->r;
    size_t size, fit;
    LHI_TRY(lhi_search_estimate_bytes(r->windows, false, &size, err));
    fit = room / 3 * 2 / size;
    all->n = r->n_parallel < fit ? r->n_parallel : fit > 0 ? (uint32_t)fit : 1;
    all->room = room / all->n;
    return LH_OK;
}

/* Allocates one subproblem per parallel task, each with its own time
 * windows. */
static lh_status make_subproblems(lns_run *all, lhi_arena *mem, lh_error *err)
{
    const lhi_shop *s = all->r->shop;
    const size_t n = all->r->windows->slot_at[s->n_ops];
    lhi_batch_task *pieces = LHI_NEW(mem, lhi_batch_task, all->n);
    all->questions = LHI_NEW(mem, subproblem, all->n);
    if (!pieces || !all->questions)
        return lhi_fail_nomem(err);
    all->batch = (lhi_batch){.r = all->r,
                             .context = all,
                             .n = all->n,
                             .pieces = pieces,
                             .work = solve_subproblem,
                             .take = merge_subproblem};
    for (uint32_t i = 0; i < all->n; i++) {
        subproblem *k = &all->questions[i];
        k->windows.least = LHI_NEW(mem, uint32_t, n);
        k->windows.most = LHI_NEW(mem, uint32_t, n);
        if (!k->windows.least || !k->windows.most)
            return lhi_fail_nomem(err);
        LHI_TRY(lhi_machine_orders_make(s, mem, &k->found, err));
    }
    return LH_OK;
}

lh_status lhi_lns_run(lhi_solver *r, lhi_lns_state *state, uint64_t ticks,
                      size_t room, lh_error *err)
{
    lhi_arena *mem = lhi_arena_make(0);
    lns_run all = {.r = r,
                   .state = state,
                   .least = r->windows->least,
                   .most = r->windows->most,
                   .set_at = -1};
    if (!mem)
        return lhi_fail_nomem(err);
    const lhi_engine before =
        lhi_budget_enter_engine(&r->budget, LHI_ENGINE_NEAR);
    lhi_solver_report(r, "neighbourhoods");
    lh_status status = count_subproblems(&all, room, err);
    if (status == LH_OK)
        status = make_subproblems(&all, mem, err);
    if (status == LH_OK)
        status = search_neighbourhoods(&all, ticks, err);
    lhi_budget_restore_engine(&r->budget, before);
    lhi_arena_free(mem);
    return status;
}
