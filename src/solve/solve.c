/* SPDX-License-Identifier: Apache-2.0 */
/* What leads to an optimum: the best generated schedule, bounds, annealing,
 * and searches for a schedule that is done by a deadline, between the two. */
#include "base/fail.h"
#include "pipe/pipeline.h"
#include "solve/search.h"
#include "solve/windows.h"
#include "solve/words.h"

#include <inttypes.h>
#include <longhaul/bounds.h>
#include <longhaul/methods.h>
#include <longhaul/simulate.h>
#include <stdio.h>
#include <string.h>

typedef struct run {
    const lh_pipeline *p;
    lh_solve_options o;
    lhi_budget budget;
    lhi_arena *mem;
    lhi_shop *shop;
    lhi_windows *windows;
    lhi_words *best, *scratch, *found; /* best: orders of the best schedule */
    bool has_words;
    lh_schedule *schedule;
    int64_t best_ns, bound_ns;
    int64_t low;      /* units: no schedule of the shop takes fewer */
    lhi_search *kept; /* at `kept_units`, to go on with */
    int64_t kept_units;
    const char *found_by, *proven_by;
    char why[160];
    bool infeasible;
} run;

static bool is_done(const run *r)
{
    if (r->infeasible || r->budget.stop)
        return true;
    if (r->o.target_ns > 0 && r->bound_ns > r->o.target_ns)
        return true;
    if (r->best_ns >= 0 && r->best_ns <= r->o.target_ns)
        return true;
    return r->best_ns >= 0 &&
           (double)(r->best_ns - r->bound_ns) <= r->o.gap * (double)r->bound_ns;
}

static void report(run *r, const char *phase)
{
    r->budget.now.best_ns = r->best_ns;
    r->budget.now.bound_ns = r->bound_ns;
    r->budget.now.phase = phase;
}

/* The objective of a schedule that fits, or -1. */
static lh_status judge(const run *r, const lh_schedule *schedule, bool fifo,
                       int64_t *out, lh_error *err)
{
    lh_timeline *timeline = NULL;
    lh_sim_options sim = {.size = sizeof sim, .fifo = fifo};
    LHI_TRY(lh_simulate(r->p, schedule, &sim, &timeline, err));
    *out = r->o.objective == LH_OBJECTIVE_MAKESPAN
               ? lh_timeline_makespan(timeline)
               : lh_timeline_first_device_end(timeline);
    if (!lh_timeline_fits(timeline, NULL))
        *out = -1;
    lh_timeline_free(timeline);
    return LH_OK;
}

/* Takes the schedule over if it is better, else frees it. */
static void keep(run *r, lh_schedule *schedule, int64_t ns, const char *by,
                 bool *kept)
{
    *kept = ns >= 0 && (r->best_ns < 0 || ns < r->best_ns);
    if (!*kept) {
        lh_schedule_free(schedule);
        return;
    }
    lh_schedule_free(r->schedule);
    r->schedule = schedule;
    r->best_ns = ns;
    r->found_by = by;
    r->budget.now.best_ns = ns;
}

/* --- schedules from elsewhere
 * ------------------------------------------------- */

/* Every W whole, or in as many parts as asked for. */
static bool has_parts(const run *r, const lh_schedule *schedule)
{
    uint32_t parts = r->p->joint ? 1 : r->o.sub_blocks;
    for (uint32_t d = 0; d < lh_schedule_n_devices(schedule); d++) {
        uint32_t n;
        const lh_pass *order = lh_schedule_order(schedule, d, &n);
        for (uint32_t i = 0; i < n; i++)
            if (order[i].n_parts != 1 && order[i].n_parts != parts)
                return false;
    }
    return true;
}

static lh_status enter(run *r, lh_schedule *schedule, const char *by,
                       lh_error *err)
{
    int64_t ns = -1;
    bool kept = false;
    lh_status status = LH_OK;
    if (has_parts(r, schedule))
        status = judge(r, schedule, r->o.fifo, &ns, err);
    if (status == LH_EINFEASIBLE || status == LH_EDEADLOCK)
        status = LH_OK;
    keep(r, schedule, ns, by, &kept);
    if (status != LH_OK || !kept || !r->shop)
        return status;
    bool fits = false;
    status =
        lhi_shop_orders(r->shop, r->schedule, r->scratch->order, &fits, err);
    if (status == LH_OK && fits) {
        lhi_words_copy(r->best, r->scratch);
        r->has_words = true;
    }
    return status;
}

static lh_status generate(run *r, lh_error *err)
{
    for (uint32_t i = 0; i < lh_method_count(); i++) {
        const char *name = lh_method_name(i);
        lh_schedule *schedule = NULL;
        lh_method_options o = {.size = sizeof o, .sub_blocks = r->o.sub_blocks};
        lh_error why = {0};
        if (strcmp(name, "auto") == 0)
            continue;
        lh_status status = lh_method_run(name, r->p, &o, &schedule, NULL, &why);
        if (status == LH_ENOMEM) {
            if (err)
                *err = why;
            return status;
        }
        if (status == LH_OK)
            LHI_TRY(enter(r, schedule, name, err));
        lhi_spend(&r->budget, r->shop ? r->shop->n_ops / 4 + 1 : 1000);
        if (r->budget.late && r->best_ns >= 0)
            break;
    }
    return LH_OK;
}

static lh_status copy_start(run *r, lh_error *err)
{
    const lh_schedule *s = r->o.start;
    uint32_t n = lh_schedule_n_devices(s),
             n_links = lh_schedule_n_link_orders(s);
    lhi_mark mark = lhi_arena_mark(r->mem);
    const lh_pass **orders = LHI_NEW(r->mem, const lh_pass *, n);
    uint32_t *counts = LHI_NEW(r->mem, uint32_t, n);
    lh_schedule *copy = NULL;
    int64_t ns;
    if (!orders || !counts)
        return lhi_fail_nomem(err);
    for (uint32_t d = 0; d < n; d++)
        orders[d] = lh_schedule_order(s, d, &counts[d]);
    lh_status status = lh_schedule_make(
        n, orders, counts, r->o.fifo ? 0 : n_links,
        n_links ? lh_schedule_link_order(s, 0) : NULL, &copy, err);
    lhi_arena_rewind(r->mem, mark);
    if (status != LH_OK)
        return status;
    status = judge(r, copy, r->o.fifo, &ns, err);
    if (status == LH_OK && ns < 0)
        status = lhi_fail(err, LH_EINFEASIBLE,
                          "the schedule to start from exceeds a memory limit");
    if (status != LH_OK) {
        lhi_wrap(err, "start");
        lh_schedule_free(copy);
        return status;
    }
    return enter(r, copy, "start", err);
}

/* --- schedules of the shop
 * ------------------------------------------------------ */

/* Orders of all machines as a schedule; message orders stay only where first
 * in, first out is worse. */
static lh_status offer(run *r, lhi_words *words, const char *by, lh_error *err)
{
    lh_schedule *plain = NULL, *ordered = NULL;
    int64_t plain_ns = -1, ordered_ns = -1;
    bool kept = false;
    const uint32_t *const *orders = (const uint32_t *const *)words->order;
    LHI_TRY(lhi_shop_schedule(r->shop, orders, false, &plain, err));
    lh_status status = judge(r, plain, true, &plain_ns, err);
    if (status == LH_EDEADLOCK)
        status = LH_OK;
    if (status != LH_OK) {
        lh_schedule_free(plain);
        return status;
    }
    keep(r, plain, plain_ns, by, &kept);
    bool any = kept;
    if (!r->o.fifo) {
        LHI_TRY(lhi_shop_schedule(r->shop, orders, true, &ordered, err));
        status = judge(r, ordered, false, &ordered_ns, err);
        if (status != LH_OK) {
            lh_schedule_free(ordered);
            return status;
        }
        keep(r, ordered, ordered_ns, by, &kept);
        any = any || kept;
    }
    if (any) {
        lhi_words_copy(r->best, words);
        r->has_words = true;
    }
    return LH_OK;
}

static int64_t units_of(const run *r, int64_t ns)
{
    return ns / r->shop->unit_ns;
}

static void raise_bound(run *r, int64_t units, const char *by)
{
    if (units > r->low)
        r->low = units;
    if (r->shop->restricted || units * r->shop->unit_ns <= r->bound_ns)
        return;
    r->bound_ns = units * r->shop->unit_ns;
    r->budget.now.bound_ns = r->bound_ns;
    r->proven_by = by;
}

/* --- the bound of the windows
 * ------------------------------------------------------ */

/* The least deadline that the windows do not refute: farther and farther up
 * from what is known, then by halves. */
static lh_status bound_by_windows(run *r, lh_error *err)
{
    const char *by = r->windows->complete ? "lattice" : "windows";
    int64_t high = r->best_ns >= 0 ? units_of(r, r->best_ns)
                                   : r->shop->horizon / r->shop->scale + 1;
    int64_t step = 0, last = lhi_shop_deadline(r->shop, high - 1);
    if (r->low >= high)
        return LH_OK;
    bool any = lhi_windows_set(r->windows, last, &r->budget);
    if (!any)
        raise_bound(r, high, by);
    if (!any || r->budget.stop)
        return LH_OK;
    if (!lhi_windows_narrow(r->windows, last, true))
        return lhi_fail_nomem(err);
    while (r->low < high && !r->budget.stop) {
        int64_t t = r->low + step < high ? r->low + step : high - 1;
        bool open = lhi_windows_set(r->windows, lhi_shop_deadline(r->shop, t),
                                    &r->budget);
        if (r->budget.stop)
            return LH_OK;
        if (!open) {
            raise_bound(r, t + 1, by);
            step = step ? 3 * step : (high - r->low) / 64 + 1;
            continue;
        }
        high = t;
        step = (high - r->low) / 2;
        if (!lhi_windows_narrow(r->windows, lhi_shop_deadline(r->shop, t),
                                false))
            return lhi_fail_nomem(err);
    }
    return LH_OK;
}

/* --- searching
 * ---------------------------------------------------------------------- */

static lh_status anneal(run *r, uint64_t ticks, uint64_t seed, lh_error *err)
{
    if (!r->has_words || is_done(r))
        return LH_OK;
    report(r, "annealing");
    int64_t mean = 0;
    for (uint32_t o = 0; o < r->shop->n_ops; o++)
        mean += r->shop->time[o] / r->shop->n_ops + 1;
    lhi_anneal how = {.seed = r->o.seed + seed,
                      .ticks = ticks,
                      .target = lhi_shop_deadline(r->shop, r->low),
                      .hot = mean / 2 + 1,
                      .cold = mean / 50 + 1};
    lhi_words_copy(r->scratch, r->best);
    lhi_words_copy(r->found, r->best);
    int64_t time = lhi_words_time(r->scratch), before = time;
    if (time < 0)
        return LH_OK;
    LHI_TRY(lhi_words_anneal(r->scratch, r->found, &time, &how, &r->budget,
                             r->mem, err));
    return time < before ? offer(r, r->found, "annealing", err) : LH_OK;
}

/* Schedules made by dispatching what is due first, for deadlines from the bound
 * up. */
static lh_status dispatch(run *r, lh_error *err)
{
    report(r, "dispatching");
    for (int64_t slack = 0; slack <= 16 && !is_done(r);
         slack = slack ? 2 * slack : 1) {
        int64_t units = r->low + r->low * slack / 256;
        bool ok = false;
        if (r->best_ns >= 0 && units >= units_of(r, r->best_ns))
            break;
        bool open = lhi_windows_set(
            r->windows, lhi_shop_deadline(r->shop, units), &r->budget);
        if (!open && units >= r->low)
            raise_bound(r, units + 1,
                        r->windows->complete ? "lattice" : "windows");
        if (!open)
            continue;
        LHI_TRY(lhi_words_dispatch(r->found, r->windows->e, &ok, r->mem, err));
        lhi_spend(&r->budget, r->shop->n_ops / 4 + 1);
        if (ok && lhi_words_time(r->found) >= 0)
            LHI_TRY(offer(r, r->found, "dispatching", err));
    }
    return LH_OK;
}

/* A search has a Boolean for every pair of passes; for thousands of microbatches
 * that is more than there is room for, and annealing is left. */
static bool is_searchable(const run *r)
{
    return lhi_search_size(r->shop) <= r->o.memory / 2;
}

/* Looks for a schedule of at most so many units. */
static lh_status probe(run *r, int64_t units, uint64_t ticks,
                       lhi_answer *answer, lh_error *err)
{
    int64_t deadline = lhi_shop_deadline(r->shop, units);
    lhi_words *hint = NULL;
    *answer = LHI_GAVE_UP;
    if (r->kept && r->kept_units == units)
        return lhi_search_run(r->kept, ticks, r->o.memory / 2, &r->budget,
                              r->found, answer, err);
    if (!lhi_windows_set(r->windows, deadline, &r->budget)) {
        *answer = LHI_REFUTED;
        return LH_OK;
    }
    if (r->budget.stop || !is_searchable(r))
        return LH_OK;
    lhi_windows_counts(r->windows);
    if (r->has_words) {
        lhi_words_copy(r->scratch, r->best);
        if (lhi_words_time(r->scratch) >= 0)
            hint = r->scratch;
    }
    lhi_search *search = NULL;
    LHI_TRY(lhi_search_make(r->shop, deadline, r->windows, hint, &search, err));
    lh_status status = lhi_search_run(search, ticks, r->o.memory / 2,
                                      &r->budget, r->found, answer, err);
    if (status != LH_OK || units != r->low || *answer != LHI_GAVE_UP) {
        lhi_search_free(search);
        return status;
    }
    lhi_search_free(r->kept);
    r->kept = search;
    r->kept_units = units;
    return LH_OK;
}

/* What is asked for, or the bound, which is so often the optimum. */
static int64_t first_deadline(const run *r)
{
    int64_t target = r->o.target_ns > 0 ? units_of(r, r->o.target_ns) : -1;
    return target > r->low ? target : r->low;
}

/* Longer than this is of no use. */
static int64_t first_enough(const run *r)
{
    int64_t best = units_of(r, r->best_ns);
    int64_t target =
        r->o.target_ns > 0 ? units_of(r, r->o.target_ns) + 1 : best;
    return target < best ? target : best;
}

/* Deadlines between the bound and the best: first the bound itself, which is
 * so often the optimum, then near the bound, with more and more time. */
static lh_status close_gap(run *r, lh_error *err)
{
    int64_t gave_up = -1, next = first_deadline(r);
    uint64_t allow = 200000 + (uint64_t)r->shop->n_ops * 100, seed = 2;
    uint32_t failures = 0;
    while (!is_done(r)) {
        int64_t high = first_enough(r);
        lhi_answer answer;
        if (r->low >= high)
            break;
        report(r, "searching");
        LHI_TRY(probe(r, next, allow, &answer, err));
        if (answer == LHI_FOUND) {
            LHI_TRY(offer(r, r->found, "search", err));
            if (units_of(r, r->best_ns) > next)
                answer = LHI_GAVE_UP; /* a relaxed shop */
        }
        if (answer == LHI_REFUTED)
            raise_bound(r, next + 1, "search");
        if (answer == LHI_GAVE_UP)
            gave_up = next;
        high = first_enough(r);
        failures = answer == LHI_GAVE_UP ? failures + 1 : 0;
        int64_t from = gave_up + 1 > r->low ? gave_up + 1 : r->low;
        next = from + (high - 1 - from) / 6;
        if ((from < high && failures < 3) || r->low >= high)
            continue;
        LHI_TRY(anneal(r, allow, seed++, err));
        allow *= 2;
        gave_up = -1;
        failures = 0;
        next = first_deadline(r);
    }
    return LH_OK;
}

/* No generator found a schedule: is there one at all? */
static lh_status find_any(run *r, lh_error *err)
{
    int64_t units = r->shop->horizon / r->shop->scale + 1;
    lhi_answer answer;
    report(r, "searching for any schedule");
    for (uint64_t allow = 1000000; !r->budget.stop && is_searchable(r);
         allow *= 4) {
        LHI_TRY(probe(r, units, allow, &answer, err));
        if (answer == LHI_FOUND)
            return offer(r, r->found, "search", err);
        if (answer == LHI_REFUTED && !r->shop->restricted) {
            r->infeasible = true;
            snprintf(r->why, sizeof r->why,
                     "no orders keep every memory limit without devices "
                     "waiting for each other for ever");
        }
        if (answer == LHI_REFUTED)
            return LH_OK;
    }
    return LH_OK;
}

/* --- all of it
 * -------------------------------------------------------------------------- */

static lh_status make_shop(run *r, lh_error *err)
{
    lh_error why = {0};
    lhi_shop *shop = NULL;
    lh_status status = lhi_shop_make(r->p, r->o.sub_blocks, r->o.fifo,
                                     r->o.objective, r->mem, &shop, &why);
    if (status == LH_EUNSUPPORTED)
        return LH_OK; /* the generators and the closed forms are left */
    if (status != LH_OK) {
        if (err)
            *err = why;
        return status;
    }
    LHI_TRY(lhi_words_make(shop, r->mem, &r->best, err));
    LHI_TRY(lhi_words_make(shop, r->mem, &r->scratch, err));
    LHI_TRY(lhi_words_make(shop, r->mem, &r->found, err));
    r->shop = shop;
    return LH_OK;
}

static bool static_memory_fits(run *r)
{
    for (uint32_t d = 0; d < r->p->n_devices; d++) {
        int64_t held = 0;
        for (uint32_t c = 0; c < r->p->n_chunks; c++)
            if (r->p->chunks[c].device == d)
                held += r->p->chunks[c].mem_static;
        if (held <= r->p->memory_limits[d])
            continue;
        r->infeasible = true;
        snprintf(r->why, sizeof r->why,
                 "device %" PRIu32 " holds more than its memory limit before "
                 "any pass",
                 d);
        return false;
    }
    return true;
}

static lh_status search_shop(run *r, lh_error *err)
{
    uint32_t impossible;
    report(r, "bounds");
    LHI_TRY(lhi_windows_make(r->shop, r->o.memory / 2, &r->budget, r->mem,
                             &r->windows, &impossible, err));
    if (impossible != NONE) {
        r->infeasible = true;
        snprintf(r->why, sizeof r->why,
                 "no order of the passes of device %" PRIu32
                 " keeps its memory limit",
                 impossible);
        return LH_OK;
    }
    if (r->best_ns < 0)
        LHI_TRY(find_any(r, err));
    if (r->best_ns < 0 || is_done(r))
        return LH_OK;
    r->low = r->o.objective == LH_OBJECTIVE_MAKESPAN
                 ? (r->bound_ns + r->shop->unit_ns - 1) / r->shop->unit_ns
                 : 0;
    LHI_TRY(bound_by_windows(r, err));
    LHI_TRY(dispatch(r, err));
    LHI_TRY(anneal(r, 300000, 1, err));
    return close_gap(r, err);
}

static lh_status solve(run *r, lh_error *err)
{
    lh_bound bound = {0};
    r->best_ns = -1;
    if (!static_memory_fits(r))
        return LH_OK;
    LHI_TRY(lh_lower_bound(r->p, &bound, err));
    if (r->o.objective == LH_OBJECTIVE_MAKESPAN) {
        r->bound_ns = bound.ns;
        r->proven_by = "closed form";
        memcpy(r->why, bound.text, sizeof bound.text);
    }
    LHI_TRY(make_shop(r, err));
    if (r->o.start)
        LHI_TRY(copy_start(r, err));
    LHI_TRY(generate(r, err));
    if (is_done(r) || !r->shop)
        return LH_OK;
    return search_shop(r, err);
}

static lh_status take_options(const lh_solve_options *given,
                              lh_solve_options *out, lh_error *err)
{
    *out = (lh_solve_options){0};
    if (given) {
        if (given->size > sizeof *out)
            return lhi_fail(err, LH_EINVAL,
                            "lh_solve_options.size is %zu, not %zu",
                            given->size, sizeof *out);
        memcpy(out, given, given->size);
    }
    if (!(out->time_limit_s >= 0) || !(out->gap >= 0))
        return lhi_fail(err, LH_EINVAL,
                        "the time limit and the gap must not be negative");
    if (out->sub_blocks > LH_MAX_PARTS)
        return lhi_fail(err, LH_EINVAL, "a W is cut into %u parts at most",
                        LH_MAX_PARTS);
    if (out->sub_blocks == 0)
        out->sub_blocks = 1;
    if (out->memory == 0)
        out->memory = (size_t)1 << 30;
    return LH_OK;
}

static void conclude(run *r, lh_solution *out)
{
    *out = (lh_solution){.schedule = r->schedule,
                         .makespan_ns = r->best_ns,
                         .bound_ns = r->bound_ns,
                         .effort = r->budget.used,
                         .seconds = lhi_seconds() - r->budget.begin_s,
                         .found_by = r->found_by ? r->found_by : "",
                         .proven_by = r->proven_by ? r->proven_by : ""};
    if (r->infeasible)
        out->status = LH_SOLVE_INFEASIBLE;
    else if (r->best_ns < 0)
        out->status = LH_SOLVE_UNKNOWN;
    else
        out->status =
            r->best_ns <= r->bound_ns ? LH_SOLVE_OPTIMAL : LH_SOLVE_FEASIBLE;
    if (strcmp(out->proven_by, "closed form") == 0 || r->infeasible)
        memcpy(out->why, r->why, sizeof out->why);
    else
        snprintf(out->why, sizeof out->why, "%s",
                 strcmp(out->proven_by, "search") == 0
                     ? "every shorter schedule was refuted by search"
                     : "every shorter schedule leaves some pass no time");
}

lh_status lh_solve(const lh_pipeline *pipeline, const lh_solve_options *options,
                   lh_solution *out, lh_error *err)
{
    run r = {.p = pipeline};
    LHI_TRY(take_options(options, &r.o, err));
    lhi_budget_begin(&r.budget, &r.o);
    r.mem = lhi_arena_make(0);
    if (!r.mem)
        return lhi_fail_nomem(err);
    lh_status status = solve(&r, err);
    lhi_search_free(r.kept);
    lhi_windows_free(r.windows);
    lhi_arena_free(r.mem);
    if (status != LH_OK) {
        lh_schedule_free(r.schedule);
        return status;
    }
    conclude(&r, out);
    return LH_OK;
}

void lh_solution_fini(lh_solution *solution)
{
    if (!solution)
        return;
    lh_schedule_free(solution->schedule);
    solution->schedule = NULL;
}

const char *lh_solve_status_text(lh_solve_status status)
{
    static const char *const texts[] = {"optimal", "feasible", "infeasible",
                                        "unknown"};
    return texts[status];
}
