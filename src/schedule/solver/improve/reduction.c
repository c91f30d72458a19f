/* SPDX-License-Identifier: Apache-2.0 */
/* Reduction to fewer microbatches. Microbatches are interchangeable, so
 * removing the first k from a schedule leaves a schedule with n - k. From the
 * k-th first forward on, the schedule takes at least as long as the optimum for
 * n - k. Conversely, the steady state in a good schedule with fewer
 * microbatches can be repeated. So pipelines with n/4, 3n/8, .. microbatches
 * are solved first with little effort, each starting from the results for
 * smaller ones. */
#include "schedule/solver/improve/reduction.h"

#include "schedule/solver/improve/dispatch.h"
#include "schedule/solver/improve/justification.h"
#include "schedule/solver/improve/parallel_insertion.h"
#include "schedule/solver/state/batch.h"

#include "base/fail.h"
#include "schedule/pipeline/pipeline_internal.h"
#include "schedule/solver/bound/closed_forms.h"

#include <longhaul/experimental/bounds.h>
#include <string.h>

enum {
    N_SIZES = 8,
    TASK_BYTES = 300, /* per operation, approximate */
    FIRST_SIZE = 2,
    MIN_MICROBATCHES = 8,
    MAX_TICKS = 4000000, /* initial limit per problem, ticks */
    RANGE = 4            /* first microbatches tried per task */
};

/* --- tails ---------------------------------------------------------------- */

/* Checks that leaving out a microbatch never increases a device's memory: no
 * partial sum of a chunk's memory changes is negative. */
static bool never_adds_memory(const lh_pipeline *p)
{
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        const lh_chunk *k = &p->chunks[c];
        if (k->mem_f < 0 || k->mem_f + k->mem_d < 0 ||
            k->mem_f + k->mem_d + k->mem_w < 0)
            return false;
    }
    return true;
}

lh_status lhi_reduction_make(lhi_solver *r, lhi_reduction **out, lh_error *err)
{
    const lh_pipeline *p = r->p;
    uint32_t n = p->n_microbatches;
    *out = NULL;
    /* Devices with several chunks do not benefit: with few microbatches the
     * chunks interleave differently than with many. */
    if (!lhi_budget_is_engine_enabled(&r->budget, LHI_ENGINE_REDUCTION) ||
        r->reduction || !r->windows->has_full_lattices ||
        !lhi_shop_has_single_chunks(r->shop) || n < MIN_MICROBATCHES ||
        r->o.fifo || p->has_collectives ||
        r->o.objective != LH_SOLVE_OBJECTIVE_MAKESPAN || r->shop->restricted ||
        !never_adds_memory(p))
        return LH_OK;
    lhi_reduction *f = LHI_NEW(r->mem, lhi_reduction, 1);
    if (!f)
        return lhi_fail_nomem(err);
    f->n = n;
    f->ticks = 250 * (uint64_t)r->shop->n_ops;
    if (f->ticks > MAX_TICKS)
        f->ticks = MAX_TICKS;
    f->problems = LHI_NEW(r->mem, lhi_reduced_problem, n);
    if (!f->problems)
        return lhi_fail_nomem(err);
    lh_pipeline part = *p;
    for (uint32_t m = 1; m < n; m++) {
        lh_bound bound = {0};
        part.n_microbatches = m;
        LHI_TRY(lhi_compute_closed_form_bound(&part, &bound, err));
        f->problems[m].bound_ns = bound.ns;
        f->problems[m].best_ns = -1;
    }
    *out = f;
    return LH_OK;
}

void lhi_reduction_free(lhi_reduction *f)
{
    for (uint32_t m = 0; f && f->problems && m < f->n; m++)
        lh_schedule_free(f->problems[m].best);
}

void lhi_reduction_raise_tails(lhi_solver *r)
{
    lhi_shop *s = r->shop;
    const lhi_stream *t = &s->streams[s->f[0]];
    int64_t low = 0;
    for (uint32_t m = 1; m < s->n_microbatches; m++) {
        int64_t ns = r->reduction->problems[m].bound_ns;
        int64_t units = (ns + s->unit_ns - 1) / s->unit_ns * s->scale;
        uint32_t o = t->first + t->count - m;
        /* The second forward starts after the first. */
        low = low + s->time[o] > units ? low + s->time[o] : units;
        if (s->tail[o] < low - s->time[o])
            s->tail[o] = low - s->time[o];
    }
}

/* --- extension ------------------------------------------------------------ */

/* A schedule with m microbatches. Microbatches from..from + period - 1 are
 * repeated, each time `shift` later. */
typedef struct extension {
    const lhi_reduced_problem *problem;
    uint32_t m, from, period;
    int64_t shift;
} extension;

/* Returns the start of operation number x of a stream in extension `k`. The
 * extension turns a schedule with fewer microbatches into one with all by
 * repeating one period. */
static int64_t get_extended_start(const lhi_shop *s, const extension *k,
                                  uint32_t stream, uint32_t x)
{
    const lhi_stream *t = &s->streams[stream];
    uint32_t j = x / t->per, extra = s->n_microbatches - k->m, turns = 0;
    if (j >= k->from + extra)
        turns = extra / k->period;
    else if (j >= k->from)
        turns = (j - k->from) / k->period;
    /* Streams in the smaller job shop begin at the same fraction of its
     * operations. */
    uint32_t first = t->first / s->n_microbatches * k->m;
    return k->problem->start[first + x - turns * k->period * t->per] +
           turns * k->shift;
}

/* Sets due[op], by which operations are sorted on each machine, to operation
 * op's start in `k`, the schedule with all microbatches that repeats one period
 * of a schedule with fewer. */
static void fill_due_dates(const lhi_shop *s, const extension *k, int64_t *due)
{
    for (uint32_t i = 0; i < s->n_streams; i++)
        for (uint32_t x = 0; x < s->streams[i].count; x++)
            due[s->streams[i].first + x] = get_extended_start(s, k, i, x);
}

/* Orders all machines' operations by ascending due date due[op]; false:
 * memory or precedence rules forbid that order. */
static bool order_by_due_date(const lhi_machine_orders *w, const int64_t *due)
{
    const lhi_shop *s = w->shop;
    uint32_t at[64];
    for (uint32_t m = 0; m < s->n_machines; m++) {
        const lhi_machine *k = &s->machines[m];
        int64_t held = 0;
        if (k->n_streams > 64)
            return false;
        memset(at, 0, sizeof at);
        for (uint32_t i = 0; i < w->n[m]; i++) {
            uint32_t pick = NONE;
            for (uint32_t j = 0; j < k->n_streams; j++) {
                const lhi_stream *t = &s->streams[k->first_stream + j];
                uint32_t o = t->first + at[j];
                if (at[j] < t->count && (pick == NONE || due[o] < due[pick]))
                    pick = o;
            }
            w->order[m][i] = pick;
            at[s->streams[s->stream_of[pick]].slot]++;
            held += s->memory[pick];
            if (held > k->memory_limit)
                return false;
        }
    }
    return true;
}

/* One task: tries a range of first microbatches to repeat. */
typedef struct extension_task {
    extension at;
    uint32_t end; /* end of the range for `from` */
    lhi_arena *mem;
    lhi_machine_orders *orders, *best_orders;
    lhi_justifier *justifier; /* may be NULL */
    /* best: job-shop time of any; now: of best_orders */
    int64_t *due, best, now;
} extension_task;

/* State for extending schedules. */
typedef struct extension_batch {
    lhi_solver *r;
    lhi_batch batch;
    extension_task *triers;
    uint32_t n;
    int64_t best; /* best so far; -1: none */
    uint64_t end; /* ticks */
} extension_batch;

/* Improves by justification the machine orders that the task has just built,
 * and keeps the result if it is the task's best. */
static lh_status keep_best(const extension_batch *a, extension_task *k,
                           lhi_batch_task *piece)
{
    const lhi_solver *r = a->r;
    int64_t time = lhi_machine_orders_evaluate(k->orders);
    if (time < 0 || (k->best >= 0 && time > k->best + k->best / 32))
        return LH_OK;
    if (k->best < 0 || time < k->best)
        k->best = time;
    LHI_TRY(lhi_justifier_run_unperturbed(
        k->justifier, k->orders, &time, r->o.seed,
        lhi_shop_get_deadline(r->shop, r->low_units), &piece->budget,
        &piece->err));
    if (time < k->best)
        k->best = time;
    if (k->now < 0 || time < k->now) {
        lhi_machine_orders_copy(k->best_orders, k->orders);
        k->now = time;
    }
    return LH_OK;
}

/* Builds machine orders for extension `k` of a schedule with fewer
 * microbatches, directly by due date and by dispatching. Keeps the task's best
 * orders. */
static lh_status try_extension(const extension_batch *a, extension_task *k,
                               lhi_batch_task *piece)
{
    const lhi_shop *s = a->r->shop;
    bool ok;
    fill_due_dates(s, &k->at, k->due);
    lhi_budget_spend(&piece->budget, s->n_ops / 4 + 1);
    if (order_by_due_date(k->orders, k->due))
        LHI_TRY(keep_best(a, k, piece));
    LHI_TRY(
        lhi_dispatch_by_due_date(k->orders, k->due, &ok, k->mem, &piece->err));
    return ok ? keep_best(a, k, piece) : LH_OK;
}

/* Computes out[0..2], three candidates for the time by which each repetition of
 * the period is shifted. They are a low value, the median and a high value of
 * how far the streams advance over one period. */
static void compute_shifts(const lhi_shop *s, const extension *k, int64_t *out)
{
    int64_t all[256];
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_streams && n < 256; i++) {
        uint32_t per = s->streams[i].per;
        const int64_t *start =
            k->problem->start + s->streams[i].first / s->n_microbatches * k->m;
        if (k->from + k->period >= k->m)
            break;
        int64_t d = start[(k->from + k->period) * per] - start[k->from * per];
        uint32_t j = n++;
        for (; j > 0 && all[j - 1] > d; j--)
            all[j] = all[j - 1];
        all[j] = d;
    }
    for (int i = 0; i < 3; i++)
        out[i] = n ? all[i == 0 ? n / 8 : i == 1 ? n / 2 : n - 1 - n / 8] : 0;
}

/* Extends a schedule with fewer microbatches to all by repeating a period.
 * Tries each first microbatch of the period in the range of task `i`, and three
 * time shifts per repetition (low, median, high). Task of a parallel batch. */
static lh_status run_task(void *context, uint32_t i, lhi_batch_task *piece)
{
    const extension_batch *a = context;
    extension_task *k = &a->triers[i];
    for (; k->at.from < k->end; k->at.from++) {
        int64_t shifts[3];
        compute_shifts(a->r->shop, &k->at, shifts);
        for (int x = 0; x < 3; x++) {
            if (piece->budget.stop)
                return LH_OK;
            k->at.shift = shifts[x];
            if (x == 0 || shifts[x] != shifts[x - 1])
                LHI_TRY(try_extension(a, k, piece));
        }
    }
    return LH_OK;
}

/* Keeps the best makespan of extension task `i` and offers its schedule to the
 * solver if it improves the incumbent. Merge function for a batch, called in
 * task order; leaves *last unchanged. */
static lh_status merge_task(void *context, uint32_t i,
                            const lhi_batch_task *piece, bool *last,
                            lh_error *err)
{
    extension_batch *a = context;
    const extension_task *k = &a->triers[i];
    (void)piece;
    (void)last;
    if (k->best >= 0 && (a->best < 0 || k->best < a->best))
        a->best = k->best;
    if (k->now < 0 ||
        lhi_solver_convert_to_units(a->r, a->r->best_ns) * a->r->shop->scale <=
            k->now)
        return LH_OK;
    return lhi_solver_offer_orders(a->r, k->best_orders, LHI_ENGINE_STRETCHING,
                                   err);
}

/* Extends the reduced schedule by repeating one period of microbatches, from
 * each possible first microbatch on; several ranges of first microbatches run
 * in parallel. */
static lh_status extend_by_period(extension_batch *a, const extension *problem,
                                  lh_error *err)
{
    for (uint32_t from = 0, end = problem->m - problem->period; from < end;) {
        uint32_t n = 0;
        lhi_solver *r = a->r;
        if (lhi_solver_is_done(r) || r->budget.used >= a->end)
            break;
        uint64_t ticks =
            lhi_budget_get_remaining(&r->budget, a->end - r->budget.used) /
                a->n +
            1;
        for (; n < a->n && from < end; n++, from += RANGE) {
            extension_task *k = &a->triers[n];
            k->at = *problem;
            k->at.from = from;
            k->end = from + RANGE < end ? from + RANGE : end;
            k->best = a->best;
            k->now = -1;
            a->batch.pieces[n].ticks = ticks;
        }
        a->batch.n = n;
        LHI_TRY(lhi_batch_run(&a->batch, r->o.threads, err));
    }
    return LH_OK;
}

/* Extends the schedule with m microbatches to all by repeating each possible
 * period (number of consecutive microbatches). */
static lh_status extend_problem(extension_batch *a, uint32_t m, lh_error *err)
{
    uint32_t extra = a->r->shop->n_microbatches - m;
    extension k = {.problem = &a->r->reduction->problems[m], .m = m};
    for (k.period = 1; k.period < m && k.period <= extra; k.period++)
        if (extra % k.period == 0)
            LHI_TRY(extend_by_period(a, &k, err));
    return LH_OK;
}

/* Allocates the extension tasks, each with its own arena and due dates. */
static lh_status make_tasks(extension_batch *a, lhi_arena *mem, lh_error *err)
{
    const lhi_shop *s = a->r->shop;
    lhi_batch_task *pieces = LHI_NEW(mem, lhi_batch_task, a->n);
    a->triers = LHI_NEW(mem, extension_task, a->n);
    if (!a->triers || !pieces)
        return lhi_fail_nomem(err);
    a->batch = (lhi_batch){.r = a->r,
                           .context = a,
                           .pieces = pieces,
                           .work = run_task,
                           .take = merge_task};
    for (uint32_t i = 0; i < a->n; i++) {
        extension_task *k = &a->triers[i];
        k->mem = lhi_arena_make(0);
        if (!k->mem)
            return lhi_fail_nomem(err);
        k->due = LHI_NEW(k->mem, int64_t, s->n_ops);
        if (!k->due)
            return lhi_fail_nomem(err);
        LHI_TRY(lhi_machine_orders_make(s, k->mem, &k->orders, err));
        LHI_TRY(lhi_machine_orders_make(s, k->mem, &k->best_orders, err));
        LHI_TRY(lhi_justifier_make(s, k->mem, &k->justifier, err));
    }
    return LH_OK;
}

/* Returns the number of extension tasks: two per thread, since their durations
 * differ, but so few that they use at most an eighth of the memory. */
static uint32_t count_tasks(const lhi_solver *r)
{
    const size_t each = (size_t)r->shop->n_ops * TASK_BYTES;
    const size_t fit = r->o.memory / 8 / each, want = 2 * (size_t)r->n_parallel;
    return fit == 0 ? 1 : (uint32_t)(fit < want ? fit : want);
}

lh_status lhi_reduction_extend_schedules(lhi_solver *r, uint64_t ticks,
                                         lh_error *err)
{
    uint32_t done = 0;
    lhi_mark mark = lhi_arena_mark(r->mem);
    extension_batch a = {
        .r = r, .n = count_tasks(r), .best = -1, .end = r->budget.used + ticks};
    if (!lhi_budget_is_engine_enabled(&r->budget, LHI_ENGINE_STRETCHING))
        return LH_OK;
    const lhi_engine before =
        lhi_budget_enter_engine(&r->budget, LHI_ENGINE_STRETCHING);
    lhi_solver_report(r, "stretching");
    lh_status status = make_tasks(&a, r->mem, err);
    for (uint32_t m = r->shop->n_microbatches; m-- > 2 && done < 3;) {
        if (!r->reduction->problems[m].start || status != LH_OK ||
            lhi_solver_is_done(r))
            continue;
        status = extend_problem(&a, m, err);
        done++;
    }
    lhi_budget_restore_engine(&r->budget, before);
    for (uint32_t i = 0; a.triers && i < a.n; i++)
        lhi_arena_free(a.triers[i].mem);
    lhi_arena_rewind(r->mem, mark);
    return status;
}

/* --- solving reduced problems --------------------------------------------- */

/* Moves the lower bound and the schedule that solver `part` has found for a
 * reduced problem (fewer microbatches) to `g`, if they improve it. */
static lh_status store_result(lhi_solver *r, lhi_solver *part,
                              lhi_reduced_problem *g, lh_error *err)
{
    if (part->bound_ns > g->bound_ns)
        g->bound_ns = part->bound_ns;
    if (!part->schedule || (g->best_ns >= 0 && part->best_ns >= g->best_ns))
        return LH_OK;
    lh_schedule_free(g->best);
    g->best = part->schedule;
    g->best_ns = part->best_ns;
    part->schedule = NULL;
    if (!part->has_orders || lhi_machine_orders_evaluate(part->best) < 0)
        return LH_OK;
    const lhi_shop *s = part->shop;
    if (!g->start)
        g->start = LHI_NEW(r->mem, int64_t, s->n_ops);
    if (!g->start)
        return lhi_fail_nomem(err);
    for (uint32_t o = 0; o < s->n_ops; o++)
        g->start[o] = part->best->end[o] - s->time[o];
    return LH_OK;
}

/* Solves the reduced problem: the pipeline with m microbatches, within the
 * remaining budget. */
static lh_status solve_problem(lhi_solver *r, uint32_t m, lh_error *err)
{
    lhi_reduced_problem *g = &r->reduction->problems[m];
    lh_pipeline p = *r->p;
    lhi_solver part = {.p = &p,
                       .o = r->o,
                       .reduction = r->reduction,
                       .is_reduced = true,
                       .solve = r->solve,
                       .n_parallel = r->n_parallel};
    p.n_microbatches = m;
    part.o.effort = lhi_budget_get_remaining(&r->budget, r->reduction->ticks);
    part.o.initial_schedule = g->best;
    part.o.target_ns = 0;
    part.o.gap = 0;
    part.o.memory = r->o.memory / 8;
    part.budget = lhi_budget_make_part(&r->budget, part.o.effort, NULL);
    part.budget.may_report = r->budget.may_report;
    part.mem = lhi_arena_make(0);
    if (!part.mem)
        return lhi_fail_nomem(err);
    lh_status status = r->solve(&part, err);
    if (status == LH_OK && !part.infeasible)
        status = store_result(r, &part, g, err);
    lhi_parallel_insertion_free_workers(&part);
    lhi_windows_free(part.windows);
    lhi_arena_free(part.mem);
    lh_schedule_free(part.schedule);
    r->budget.last_call_s = part.budget.last_call_s;
    r->budget.stop = r->budget.stop || part.budget.timed_out;
    r->budget.timed_out = r->budget.timed_out || part.budget.timed_out;
    lhi_budget_spend(&r->budget, part.budget.used);
    return status;
}

/* Solves the reduced problems in increasing size, then raises the bound and
 * extends their schedules. */
static lh_status solve_problems(lhi_solver *r, lh_error *err)
{
    lhi_reduction *f = r->reduction;
    const uint64_t before = r->budget.used;
    lhi_solver_report(r, "fewer microbatches");
    for (uint32_t i = FIRST_SIZE; i < N_SIZES && !lhi_solver_is_done(r); i++) {
        uint32_t m = f->n * i / N_SIZES;
        lhi_reduced_problem *g = &f->problems[m];
        if (g->best_ns >= 0 && g->best_ns <= g->bound_ns)
            continue;
        LHI_TRY(solve_problem(r, m, err));
    }
    f->ticks *= 2;
    if (lhi_solver_is_done(r))
        return LH_OK;
    lhi_reduction_raise_tails(r);
    LHI_TRY(lhi_solver_bound_by_windows(r, err));
    return lhi_reduction_extend_schedules(
        r, (r->budget.used - before) / (r->n_workers > 0 ? 4 : 1), err);
}

lh_status lhi_reduction_solve(lhi_solver *r, lh_error *err)
{
    const lhi_engine before =
        lhi_budget_enter_engine(&r->budget, LHI_ENGINE_REDUCTION);
    lh_status status = solve_problems(r, err);
    lhi_budget_restore_engine(&r->budget, before);
    return status;
}
