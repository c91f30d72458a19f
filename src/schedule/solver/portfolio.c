/* SPDX-License-Identifier: Apache-2.0 */
/* The portfolio loop: rounds of independent tasks, namely searches for
 * schedules within a deadline and improvements of the incumbent. A round
 * depends only on the previous rounds' results, which are merged in task order
 * as far as they are useful. So results do not depend on the number of threads
 * (docs/theory/optimal.md, "Threads"). */
#include "schedule/solver/portfolio.h"

#include "schedule/solver/improve/annealing.h"
#include "schedule/solver/improve/justification.h"
#include "schedule/solver/improve/large_neighbourhood.h"
#include "schedule/solver/improve/parallel_beams.h"
#include "schedule/solver/improve/parallel_insertion.h"
#include "schedule/solver/improve/reduction.h"
#include "schedule/solver/improve/rule_tuning.h"
#include "schedule/solver/state/batch.h"

#include "base/fail.h"

enum {
    REDUCE_AFTER = 3000000,   /* ticks: most searches have ended by then */
    MAX_TASK_TICKS = 4000000, /* max. ticks per task, without the extra share */
    REFUTATION_TICKS =
        600000, /* ticks: most successful refutations take less */
    MAX_IDLE_ROUNDS = 1000,
    MAX_BEAM_WIDTH = 1536 /* of beams */
};

/* Searches by deadline. */
enum {
    SEARCH_NEAR_BOUND,     /* the bound, or above it by the last refutations */
    SEARCH_BETWEEN,        /* between bound and incumbent, varying */
    SEARCH_NEAR_INCUMBENT, /* slightly below the incumbent */
    N_SEARCHES
};

static const lhi_engine search_engines[N_SEARCHES] = {
    LHI_ENGINE_SEARCH, LHI_ENGINE_BETWEEN, LHI_ENGINE_SHORTENED};

/* Kinds of tasks. */
typedef enum task_kind {
    TASK_NOTHING,
    TASK_SEARCH,
    TASK_JUSTIFY,
    TASK_ANNEAL,
    TASK_TUNE,
    N_TASKS
} task_kind;

/* Searches use search_engines. */
static const lhi_engine task_engines[N_TASKS] = {
    [TASK_JUSTIFY] = LHI_ENGINE_JUSTIFICATION,
    [TASK_ANNEAL] = LHI_ENGINE_ANNEALING,
    [TASK_TUNE] = LHI_ENGINE_TUNING};

/* One task with its state. */
typedef struct task {
    task_kind kind;
    lhi_engine engine; /* engine that runs it */
    lhi_arena *mem;
    lhi_machine_orders *orders, *found;
    lhi_justifier *justifier;
    lhi_search *search;           /* kept between rounds */
    int64_t units;                /* its deadline */
    uint64_t spent;               /* ticks of this search */
    int64_t time, before, target; /* job-shop time */
    uint64_t seed;
    size_t room;
    lhi_answer answer;
} task;

/* Portfolio state. */
typedef struct portfolio {
    lhi_solver *r;
    task *tasks;
    lhi_batch batch; /* the tasks */
    uint32_t n, n_searches, number, n_idle;
    uint32_t n_vain;   /* rounds since an improvement */
    uint32_t width;    /* of the next beams */
    uint64_t beams_at; /* effort at which they run next */
    uint64_t allow;
    uint64_t round_end; /* effort at the last round's end */
    int64_t low, high;  /* units, at the round's start */
    bool gained, improved;
    bool refuted; /* deadlines near the bound were tried */
    lh_error *err;
    uint64_t reduction_at;  /* ticks at which the reduction runs next */
    int64_t bound_distance; /* first search's distance above the bound, units */
    uint64_t near_at;       /* ticks at which neighbourhood search starts */
    uint64_t near_end;      /* ticks at its last end */
    uint32_t n_near_vain;
    bool insert_vain; /* no improvement last time */
    uint64_t insert_end;
    lhi_lns_state near;
} portfolio;

/* --- tasks ---------------------------------------------------------------- */

/* Returns about an operation's mean duration in job-shop time, at least 1. */
static int64_t compute_mean_time(const lhi_shop *s)
{
    int64_t mean = 0;
    for (uint32_t o = 0; o < s->n_ops; o++)
        mean += s->time[o] / s->n_ops + 1;
    return mean;
}

/* Improves the task's machine orders by the engine that its kind names:
 * justification, rule tuning or annealing. */
static lh_status improve(task *t, lhi_batch_task *k)
{
    const int64_t mean = compute_mean_time(t->orders->shop);
    t->time = t->before = lhi_machine_orders_evaluate(t->orders);
    if (t->time < 0)
        return LH_OK;
    if (t->kind == TASK_JUSTIFY) {
        lhi_justification_options how = {
            .seed = t->seed, .ticks = k->ticks, .target = t->target};
        return lhi_justifier_run(t->justifier, t->orders, &t->time, &how,
                                 &k->budget, &k->err);
    }
    if (t->kind == TASK_TUNE) {
        lhi_tuning_options how = {
            .seed = t->seed, .ticks = k->ticks, .target = t->target};
        return lhi_rule_tuning_run(t->orders, &t->time, &how, &k->budget,
                                   t->mem, &k->err);
    }
    lhi_annealing_options how = {.seed = t->seed,
                                 .ticks = k->ticks,
                                 .target = t->target,
                                 .hot = mean / 2 + 1,
                                 .cold = mean / 50 + 1};
    lhi_machine_orders_copy(t->found, t->orders);
    LHI_TRY(lhi_annealing_run(t->orders, t->found, &t->time, &how, &k->budget,
                              t->mem, &k->err));
    lhi_machine_orders_copy(t->orders, t->found);
    return LH_OK;
}

/* Checks whether the result of task `t` makes the round's other tasks
 * unnecessary. A search's result must close the gap between lower bound and
 * incumbent; an improved schedule must reach its target. */
static bool concludes(const portfolio *x, const task *t)
{
    if (x->r->shop->times_relaxed)
        return false;
    if (t->kind != TASK_SEARCH)
        return t->time >= 0 && t->time <= t->target && t->time < t->before;
    return t->answer == LHI_FOUND     ? t->units <= x->low
           : t->answer == LHI_REFUTED ? t->units + 1 >= x->high
                                      : false;
}

/* Runs task number i of a round: continues a search for a schedule within a
 * deadline, or improves the incumbent. `context`: the portfolio; k: the task's
 * budget. */
static lh_status run_task(void *context, uint32_t i, lhi_batch_task *k)
{
    portfolio *x = context;
    task *t = &x->tasks[i];
    lhi_budget_enter_engine(&k->budget, t->engine);
    if (t->kind == TASK_SEARCH)
        LHI_TRY(lhi_search_run(t->search, k->ticks, t->room, &k->budget,
                               t->found, &t->answer, &k->err));
    else if (t->kind != TASK_NOTHING)
        LHI_TRY(improve(t, k));
    k->ends_batch = concludes(x, t);
    return LH_OK;
}

/* --- merging results ------------------------------------------------------ */

/* Passes the answer of a task's search to the solver: a schedule, or a refuted
 * deadline. `used`: the search's work. Keeps the search for later rounds if it
 * can continue, otherwise frees it. */
static lh_status merge_search(portfolio *x, task *t, uint64_t used,
                              lh_error *err)
{
    lhi_solver *r = x->r;
    bool found = t->answer == LHI_FOUND;
    t->spent += used;
    if (found)
        LHI_TRY(lhi_solver_offer_orders(r, t->found, t->engine, err));
    if (t->answer == LHI_REFUTED)
        lhi_solver_raise_bound(r, t->units + 1, "search");
    if (t == &x->tasks[SEARCH_NEAR_BOUND] && t->answer != LHI_FOUND)
        x->bound_distance = t->answer == LHI_REFUTED ? 2 * x->bound_distance + 1
                                                     : x->bound_distance / 2;
    x->gained = x->gained || t->answer != LHI_GAVE_UP;
    /* A found schedule determines the next longest useful deadline. Other
     * deadlines end here: with relaxed FIFO, the real schedule may take longer
     * and would be found again. A search without memory learns nothing more. */
    const bool goes_on = t->answer == LHI_GAVE_UP ||
                         (found && t == &x->tasks[SEARCH_NEAR_INCUMBENT]);
    if (!goes_on || lhi_search_get_bytes(t->search) > t->room) {
        lhi_search_free(t->search);
        t->search = NULL;
    }
    return LH_OK;
}

/* Merges task `i`'s result into the solver: a refutation, or a better
 * schedule. *last: the other tasks' results are not needed. */
static lh_status merge(void *context, uint32_t i, const lhi_batch_task *k,
                       bool *last, lh_error *err)
{
    portfolio *x = context;
    task *t = &x->tasks[i];
    (void)last; /* set by the task itself */
    if (t->kind == TASK_SEARCH)
        return merge_search(x, t, k->budget.used, err);
    if (t->time < 0 || t->time >= t->before)
        return LH_OK;
    x->gained = true;
    x->improved = true;
    return lhi_solver_offer_orders(x->r, t->orders, t->engine, err);
}

/* --- planning a round ----------------------------------------------------- */

lh_status lhi_portfolio_count_searches(const lhi_solver *r, uint32_t most,
                                       uint32_t *out, lh_error *err)
{
    /* larger searches take too long to start */
    const size_t largest = (size_t)1 << 28;
    size_t size, fit;
    LHI_TRY(lhi_search_estimate_bytes(r->windows, false, &size, err));
    fit = size <= largest ? r->o.memory / 2 / size : 0;
    *out = fit < most ? (uint32_t)fit : most;
    return LH_OK;
}

/* Returns the incumbent's machine orders, evaluated, near which new searches
 * start; NULL: there are none. */
static const lhi_machine_orders *get_hint(lhi_solver *r)
{
    if (!r->has_orders)
        return NULL;
    lhi_machine_orders_copy(r->scratch, r->best);
    return lhi_machine_orders_evaluate(r->scratch) >= 0 ? r->scratch : NULL;
}

lh_status lhi_portfolio_start_search(lhi_solver *r, int64_t units,
                                     lhi_search **out, lhi_answer *answer,
                                     lh_error *err)
{
    int64_t deadline = lhi_shop_get_deadline(r->shop, units);
    *answer = LHI_GAVE_UP;
    *out = NULL;
    if (!lhi_windows_set(r->windows, deadline, &r->budget)) {
        *answer = LHI_REFUTED;
        return LH_OK;
    }
    if (r->budget.stop)
        return LH_OK;
    lhi_windows_compute_all_counts(r->windows, &r->budget);
    if (r->budget.stop)
        return LH_OK;
    LHI_TRY(
        lhi_search_make(r->shop, deadline, r->windows, get_hint(r), out, err));
    lhi_budget_spend(&r->budget, lhi_search_get_creation_ticks(*out));
    return LH_OK;
}

/* Returns a deadline between `first` (the first one to search for) and the
 * incumbent, in job-shop units. It is a sixth, a third or half the way, in turn
 * by round. */
static int64_t get_between_deadline(const portfolio *x, int64_t first)
{
    static const int64_t parts[] = {6, 3, 2};
    int64_t from = first + 1;
    return from + (x->high - 1 - from) / parts[x->number % 3];
}

/* Returns the bytes that searches may use: the memory that the lattices
 * (machine state graphs) do not use, at most half the total. */
static size_t get_search_memory(const lhi_solver *r)
{
    const size_t room = r->o.memory / 2, taken = r->windows->used;
    const size_t left = taken < r->o.memory ? r->o.memory - taken : 0;
    return room < left ? room : left;
}

/* Plans a search by task i: near the bound, between bound and incumbent, or
 * near the incumbent. Otherwise the task improves the incumbent. *refuted:
 * planning raised the bound. */
static lh_status plan_search(portfolio *x, uint32_t i, bool *refuted)
{
    lhi_solver *r = x->r;
    task *t = &x->tasks[i];
    int64_t first = lhi_solver_get_first_deadline(r), units = first;
    bool keep = false;
    if (i == SEARCH_NEAR_BOUND) {
        int64_t most = (x->high - 1 - first) / 2;
        x->bound_distance = x->bound_distance < most ? x->bound_distance
                            : most > 0               ? most
                                                     : 0;
        units = first + x->bound_distance;
        keep = t->search && t->units == units;
    } else if (i == SEARCH_BETWEEN) {
        units = get_between_deadline(x, first);
        keep = t->search && t->units > first && t->units < x->high &&
               t->spent < 3 * x->allow;
    } else {
        units = x->high - 1;
        keep = t->search && t->units >= units;
        if (keep && t->units > units) {
            lhi_search_set_deadline(
                t->search, lhi_shop_get_deadline(r->shop, units), get_hint(r));
            t->units = units;
        }
    }
    /* Nothing to do either if another task has the same deadline. */
    if (units >= x->high ||
        (i != SEARCH_NEAR_INCUMBENT && units == x->high - 1 &&
         x->n_searches > SEARCH_NEAR_INCUMBENT &&
         lhi_budget_is_engine_enabled(&r->budget, LHI_ENGINE_SHORTENED))) {
        lhi_search_free(t->search);
        t->search = NULL;
        return LH_OK;
    }
    if (!keep) {
        lhi_answer answer;
        lhi_search_free(t->search);
        t->search = NULL;
        const lhi_engine before =
            lhi_budget_enter_engine(&r->budget, search_engines[i]);
        LHI_TRY(
            lhi_portfolio_start_search(r, units, &t->search, &answer, x->err));
        t->units = units;
        t->spent = 0;
        *refuted = answer == LHI_REFUTED;
        if (*refuted) {
            lhi_solver_raise_bound(r, units + 1,
                                   lhi_windows_get_engine_name(r));
            x->bound_distance = 2 * x->bound_distance + 1;
        }
        lhi_budget_restore_engine(&r->budget, before);
        if (!t->search)
            return LH_OK;
    }
    t->kind = TASK_SEARCH;
    t->engine = search_engines[i];
    t->room = get_search_memory(r) / x->n_searches;
    return LH_OK;
}

/* Checks whether insertion should get most of the effort. With thousands of
 * operations few searches end, and insertion improves fastest where it
 * applies. */
static bool prefers_insertion(const lhi_solver *r)
{
    return r->shop->n_ops > LHI_SOLVER_LARGE_OPERATIONS && r->n_workers > 0;
}

/* Returns additional ticks, beyond `given`, for the search with the longest
 * deadline that would improve the incumbent. They are the sum of all other work
 * since the last round, per thread without an effort limit. That search is the
 * hardest, but the only one that proves everything, and its clauses hold for
 * all shorter deadlines. */
static uint64_t compute_extra_ticks(const portfolio *x, uint64_t given)
{
    const lhi_budget *budget = &x->r->budget;
    uint64_t rest = budget->used - x->round_end;
    if (x->r->o.effort == 0) /* the other threads would wait for it */
        rest /= x->r->o.threads;
    return lhi_budget_get_remaining(budget, given + rest) - given;
}

/* Selects the engine by which task i improves the incumbent: justification,
 * rule tuning or annealing in turn; another enabled one if that is disabled. */
static task_kind select_improvement(const portfolio *x, uint32_t i)
{
    static const task_kind others[] = {TASK_JUSTIFY, TASK_TUNE, TASK_ANNEAL};
    const lhi_solver *r = x->r;
    const bool small = r->shop->n_ops <= LHI_SOLVER_LARGE_OPERATIONS;
    const bool justifies = x->tasks[i].justifier != NULL;
    const task_kind kind = i % 2 && x->number % 2                ? TASK_TUNE
                           : justifies && (i % 2 == 0 || !small) ? TASK_JUSTIFY
                                                                 : TASK_ANNEAL;
    if (lhi_budget_is_engine_enabled(&r->budget, task_engines[kind]))
        return kind;
    for (uint32_t k = 0; k < sizeof others / sizeof *others; k++)
        if (lhi_budget_is_engine_enabled(&r->budget, task_engines[others[k]]) &&
            (others[k] != TASK_JUSTIFY || justifies))
            return others[k];
    return TASK_NOTHING;
}

/* Plans all tasks of a round. *refuted: planning raised the bound, so the
 * round must be planned again. */
static lh_status plan_tasks(portfolio *x, bool *refuted)
{
    lhi_solver *r = x->r;
    const uint64_t ticks =
        lhi_budget_get_remaining(&r->budget, x->allow * x->n) / x->n;
    const uint64_t more = compute_extra_ticks(x, x->n * ticks);
    *refuted = false;
    for (uint32_t i = 0; i < x->n; i++) {
        task *t = &x->tasks[i];
        t->kind = select_improvement(x, i);
        t->engine = task_engines[t->kind];
        t->answer = LHI_GAVE_UP;
        t->time = t->before = -1;
        t->target = lhi_shop_get_deadline(r->shop, r->low_units);
        t->seed =
            r->o.seed + (uint64_t)x->number * LHI_SOLVER_MAX_TASKS + i + 1;
        if (i < x->n_searches &&
            lhi_budget_is_engine_enabled(&r->budget, search_engines[i]))
            LHI_TRY(plan_search(x, i, refuted));
        if (*refuted || r->budget.stop)
            return LH_OK;
        if (t->kind != TASK_SEARCH && !r->has_orders) {
            t->kind = TASK_NOTHING;
            t->engine = LHI_ENGINE_NONE;
        } else if (t->kind != TASK_SEARCH)
            lhi_machine_orders_copy(t->orders, r->best);
        x->batch.pieces[i].ticks =
            t->kind == TASK_SEARCH
                ? ticks + (i == SEARCH_NEAR_INCUMBENT ? more : 0)
                : ticks / (x->n_vain < 8 && !prefers_insertion(r)
                               ? x->n_vain + 1
                               : 8);
    }
    return LH_OK;
}

/* Runs the planned tasks in parallel and updates the deadlines between which
 * later rounds search. */
static lh_status run_round(portfolio *x)
{
    lhi_solver *r = x->r;
    uint64_t before = r->budget.used;
    x->gained = x->improved = false;
    lhi_solver_report(r, x->n_searches > 0 ? "searching" : "improving");
    LHI_TRY(lhi_batch_run(&x->batch, r->o.threads, x->err));
    x->number++;
    x->round_end = r->budget.used;
    x->n_vain = x->improved ? 0 : x->n_vain + 1;
    x->n_idle = x->gained || r->budget.used > before + 1000 ? 0 : x->n_idle + 1;
    if (!x->gained && x->allow < MAX_TASK_TICKS)
        x->allow *= 2;
    return LH_OK;
}

/* Searches for a schedule within `units` (makespan in job-shop units) for
 * REFUTATION_TICKS of work. *answer: found, refuted (raises the bound) or given
 * up. */
static lh_status try_refuting(portfolio *x, int64_t units, lhi_answer *answer)
{
    lhi_solver *r = x->r;
    lhi_search *search;
    LHI_TRY(lhi_portfolio_start_search(r, units, &search, answer, x->err));
    const char *by = search ? "search" : lhi_windows_get_engine_name(r);
    lh_status status = LH_OK;
    if (search)
        status = lhi_search_run(search, REFUTATION_TICKS, get_search_memory(r),
                                &r->budget, r->found, answer, x->err);
    lhi_search_free(search);
    if (status == LH_OK && *answer == LHI_REFUTED)
        lhi_solver_raise_bound(r, units + 1, by);
    if (status == LH_OK && *answer == LHI_FOUND)
        status =
            lhi_solver_offer_orders(r, r->found, LHI_ENGINE_REFUTATION, x->err);
    return status;
}

/* Refutes deadlines from the lower bound up by galloping: doubles the step
 * until a refutation fails, then halves it. Each refutation raises the bound.
 * */
static lh_status refute_once(portfolio *x)
{
    lhi_solver *r = x->r;
    int64_t step = 4;
    bool failed = false;
    while (step > 0 && !lhi_solver_is_done(r)) {
        const int64_t units = lhi_solver_get_first_deadline(r) + step - 1;
        lhi_answer answer = LHI_GAVE_UP;
        if (units < lhi_solver_get_deadline_limit(r))
            LHI_TRY(try_refuting(x, units, &answer));
        failed = failed || answer != LHI_REFUTED;
        step = failed ? step / 2 : 2 * step;
    }
    return LH_OK;
}

/* Refutes deadlines near the lower bound where full searches are too large to
 * finish. */
static lh_status refute(portfolio *x)
{
    lhi_solver *r = x->r;
    int64_t low = r->low_units - 1;
    if (!lhi_budget_is_engine_enabled(&r->budget, LHI_ENGINE_REFUTATION))
        return LH_OK;
    const lhi_engine before =
        lhi_budget_enter_engine(&r->budget, LHI_ENGINE_REFUTATION);
    lhi_solver_report(r, "searching");
    while (r->low_units > low && !lhi_solver_is_done(r)) {
        low = r->low_units;
        LHI_TRY(refute_once(x));
    }
    lhi_budget_restore_engine(&r->budget, before);
    return LH_OK;
}

/* Allocates a round's tasks, each with its own arena. */
static lh_status make_tasks(portfolio *x, lh_error *err)
{
    lhi_solver *r = x->r;
    x->tasks = LHI_NEW(r->mem, task, x->n);
    lhi_batch_task *pieces = LHI_NEW(r->mem, lhi_batch_task, x->n);
    if (!x->tasks || !pieces)
        return lhi_fail_nomem(err);
    x->batch = (lhi_batch){.r = r,
                           .context = x,
                           .n = x->n,
                           .pieces = pieces,
                           .work = run_task,
                           .take = merge};
    for (uint32_t i = 0; i < x->n; i++) {
        task *t = &x->tasks[i];
        t->mem = lhi_arena_make(0);
        if (!t->mem)
            return lhi_fail_nomem(err);
        LHI_TRY(lhi_machine_orders_make(r->shop, t->mem, &t->orders, err));
        LHI_TRY(lhi_machine_orders_make(r->shop, t->mem, &t->found, err));
        LHI_TRY(lhi_justifier_make(r->shop, t->mem, &t->justifier, err));
    }
    return LH_OK;
}

/* Runs beam searches, with a larger width each time. After a failure they wait
 * until eight times their effort has been used elsewhere, so that they do not
 * delay a search's proof. */
static lh_status run_beams(portfolio *x)
{
    lhi_solver *r = x->r;
    uint64_t before = r->budget.used;
    int64_t best_ns = r->best_ns;
    if (x->width > MAX_BEAM_WIDTH || before < x->beams_at)
        return LH_OK;
    LHI_TRY(lhi_parallel_beams_run(r, x->width, x->err));
    x->width += x->width / 2;
    if (r->best_ns == best_ns)
        x->beams_at = r->budget.used + 8 * (r->budget.used - before);
    return LH_OK;
}

/* Runs insertion for twice the work of the round's other tasks. Where searches
 * finish, for a quarter of it, and less after rounds without improvement. */
static lh_status run_insertion(portfolio *x)
{
    lhi_solver *r = x->r;
    uint64_t ticks = r->budget.used - x->insert_end;
    if (prefers_insertion(r))
        ticks *= 2;
    else
        ticks /= 4 * (x->n_vain < 8 ? x->n_vain + 1 : 8);
    const int64_t before = r->best_ns;
    LHI_TRY(lhi_parallel_insertion_run(r, ticks, x->err));
    x->insert_vain = r->best_ns == before;
    x->insert_end = r->budget.used;
    return LH_OK;
}

/* Runs large-neighbourhood search for as much work as the round's other tasks,
 * and less after failures: searches also need time for a proof. */
static lh_status run_large_neighbourhood(portfolio *x)
{
    lhi_solver *r = x->r;
    if (!lhi_budget_is_engine_enabled(&r->budget, LHI_ENGINE_NEAR) ||
        x->n_searches == 0 || !r->has_orders ||
        (prefers_insertion(r) && !x->insert_vain) ||
        r->budget.used < x->near_at)
        return LH_OK;
    size_t taken = r->windows->used, room = r->o.memory / 8;
    for (uint32_t i = 0; i < x->n_searches; i++)
        if (x->tasks[i].search)
            taken += lhi_search_get_bytes(x->tasks[i].search);
    if (taken + room < r->o.memory)
        room = r->o.memory - taken;
    const uint64_t ticks = r->budget.used - x->near_end;
    const uint32_t vain = x->n_near_vain < 3 ? x->n_near_vain : 3;
    const int64_t before = r->best_ns;
    LHI_TRY(lhi_lns_run(r, &x->near, ticks / (1 + vain), room, x->err));
    x->n_near_vain = r->best_ns < before ? 0 : x->n_near_vain + 1;
    x->near_end = r->budget.used;
    return LH_OK;
}

/* Runs the portfolio's main loop: each round solves reduced problems, refutes
 * deadlines, runs searches, and improves the incumbent. */
static lh_status run_rounds(portfolio *x)
{
    lhi_solver *r = x->r;
    LHI_TRY(lhi_reduction_make(r, &r->reduction, x->err));
    x->near_at = r->windows->complete ? REDUCE_AFTER : 0;
    x->near_end = r->windows->complete ? REDUCE_AFTER / 2 : r->budget.used;
    x->near = (lhi_lns_state){
        .share = {128, 256, 256}, .step = 1, .random = {r->o.seed}};
    x->insert_end = x->round_end = r->budget.used;
    x->reduction_at =
        r->shop->n_ops > LHI_SOLVER_LARGE_OPERATIONS ? 0 : REDUCE_AFTER;
    while (!lhi_solver_is_done(r) && x->n_idle < MAX_IDLE_ROUNDS) {
        bool refuted;
        if (r->reduction && !r->is_reduced &&
            r->budget.used >= x->reduction_at) {
            LHI_TRY(lhi_reduction_solve(r, x->err));
            x->reduction_at = 2 * r->budget.used;
        }
        if (!x->refuted && x->n_searches > 0 &&
            r->shop->n_ops > LHI_SOLVER_LARGE_OPERATIONS)
            LHI_TRY(refute(x));
        x->refuted = true;
        x->low = r->low_units;
        x->high = lhi_solver_get_deadline_limit(r);
        if (lhi_solver_is_done(r) || x->low >= x->high)
            break;
        LHI_TRY(plan_tasks(x, &refuted));
        if (refuted || r->budget.stop)
            continue;
        LHI_TRY(run_round(x));
        if (lhi_solver_is_done(r))
            continue;
        if (!r->windows->complete) {
            lhi_windows_set_max_states(r->windows,
                                       3 * r->windows->max_deadline_states);
            lhi_solver_report(r, "bounds");
            LHI_TRY(lhi_solver_bound_by_windows(r, x->err));
        }
        LHI_TRY(run_large_neighbourhood(x));
        LHI_TRY(run_insertion(x));
        LHI_TRY(run_beams(x));
    }
    return LH_OK;
}

lh_status lhi_portfolio_run(lhi_solver *r, lh_error *err)
{
    portfolio x = {.r = r, .width = 48, .err = err};
    /* With very many passes or machine states, no search with a deadline this
     * long finishes. */
    const bool all = r->shop->n_ops <= LHI_SOLVER_LARGE_OPERATIONS &&
                     !r->shop->times_relaxed && r->windows->has_full_lattices;
    const uint32_t n = all ? N_SEARCHES : SEARCH_NEAR_INCUMBENT;
    if (lhi_solver_is_done(r))
        return LH_OK;
    /* More tasks on few threads would only delay searches. With an effort
     * limit, every number of threads must do the same work. */
    x.n = r->n_parallel > n + 2 ? r->n_parallel : n + 2;
    x.allow = 100000 + (uint64_t)r->shop->n_ops * 100;
    LHI_TRY(lhi_portfolio_count_searches(r, n, &x.n_searches, err));
    lh_status status = make_tasks(&x, err);
    if (status == LH_OK)
        status = run_rounds(&x);
    for (uint32_t i = 0; x.tasks && i < x.n; i++) {
        lhi_search_free(x.tasks[i].search);
        lhi_arena_free(x.tasks[i].mem);
    }
    return status;
}
