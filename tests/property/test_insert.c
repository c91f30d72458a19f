/* SPDX-License-Identifier: Apache-2.0 */
/* Insertion of microbatch after microbatch, from either end, on random
 * pipelines:
 * - Schedules are valid, respect the memory limits, take the stated time and
 *   are not below a proven bound.
 * - The same seed gives the same orders, with no more schedules than needed.
 * - Slots do not overlap, and start after their inputs arrive.
 * - The part retained from a known schedule, with as many or fewer
 *   microbatches, keeps its times.
 * - Job shops to which insertion does not apply are rejected.
 *
 *     test_insert [CASES [FIRST]] */
#include "cases.h"
#include "hold_orders.h"
#include "trains.h"

#include "schedule/pipeline/accessors.h"
#include "schedule/pipeline/pipeline_internal.h"
#include "schedule/solver/improve/insertion.h"
#include "schedule/solver/model/mirror.h"

#include <stdlib.h>

enum { MAX_CYCLE = 200 }; /* schedules per cycle, maximum */

static uint32_t n_cases = 2000, first_case;
static uint32_t n_made, n_refused, n_moved;

/* An inserter with its job shop and the best orders so far. */
typedef struct maker {
    const lh_pipeline *p;
    lhi_arena *mem;
    const lhi_shop *shop;
    bool mirrored;
    uint64_t seed;
    lhi_inserter *inserter;
    lhi_machine_orders *orders;
    int64_t time;
    uint64_t used; /* ticks */
} maker;

/* Starts a run. Returns false if insertion does not apply to the job shop. */
static bool begin(maker *k)
{
    lh_error err = {0};
    k->inserter = NULL;
    k->time = -1;
    k->used = 0;
    CHECK_OK(lhi_machine_orders_make(k->shop, k->mem, &k->orders, &err), err);
    CHECK_OK(lhi_inserter_make(k->shop, k->mirrored, k->seed, k->mem,
                               &k->inserter, &err),
             err);
    return k->inserter && !test_state.bad;
}

static void go_on(maker *k, const lhi_insertion_options *how, uint64_t effort)
{
    lh_solve_options o = {.effort = effort};
    lhi_budget budget = {0};
    lhi_budget_begin(&budget, &o);
    lhi_inserter_run(k->inserter, how, k->orders, &k->time, &budget);
    CHECK(k->time >= 0 && budget.used > 0);
    k->used += budget.used;
}

static bool make(maker *k, uint64_t ticks, int64_t target, uint64_t effort)
{
    const lhi_insertion_options how = {.ticks = ticks, .target = target};
    if (begin(k))
        go_on(k, &how, effort);
    return k->inserter && !test_state.bad;
}

static int64_t *starts_of(const lhi_machine_orders *orders, lhi_arena *mem)
{
    const lhi_shop *s = orders->shop;
    int64_t *start = LHI_NEW(mem, int64_t, s->n_ops);
    CHECK(start != NULL);
    for (uint32_t o = 0; start && o < s->n_ops; o++)
        start[o] = orders->end[o] - s->time[o];
    return start;
}

/* --- slots --------------------------------------------------------------- */

/* The job shop as the inserter uses it, with the orders of its last schedule.
 */
typedef struct view {
    const lhi_shop *s;
    lhi_machine_orders *orders;
    lhi_machine_orders *forward; /* same orders, not mirrored */
    const int64_t *end;
} view;

static bool make_view(const maker *k, view *v)
{
    lh_error err = {0};
    lhi_shop *mirror = NULL;
    *v = (view){.s = k->shop};
    if (k->mirrored) {
        CHECK_OK(lhi_mirror_make(k->shop, k->mem, &mirror, &err), err);
        v->s = mirror;
    }
    if (!test_state.bad)
        CHECK_OK(lhi_machine_orders_make(v->s, k->mem, &v->orders, &err), err);
    if (!test_state.bad)
        CHECK_OK(lhi_machine_orders_make(k->shop, k->mem, &v->forward, &err),
                 err);
    return !test_state.bad;
}

/* Sorts each machine's operations by their slots. */
static void order_by_slots(view *v)
{
    const lhi_shop *s = v->s;
    for (uint32_t m = 0; m < s->n_machines; m++) {
        uint32_t *order = v->orders->order[m];
        for (uint32_t i = 0; i < v->orders->n[m]; i++) {
            uint32_t o = s->streams[s->machines[m].first_stream].first + i;
            uint32_t x = i;
            for (; x > 0 && v->end[order[x - 1]] > v->end[o]; x--)
                order[x] = order[x - 1];
            order[x] = o;
        }
    }
}

static int64_t start_of(const view *v, uint32_t o)
{
    return v->end[o] - v->s->time[o];
}

/* Returns the time when all inputs of an operation are available. */
static int64_t ready_of(const view *v, uint32_t o)
{
    const lhi_shop *s = v->s;
    int64_t ready = s->head[o];
    if (o > s->streams[s->stream_of[o]].first && v->end[o - 1] > ready)
        ready = v->end[o - 1];
    for (uint32_t i = s->pred_at[o]; i < s->pred_at[o + 1]; i++) {
        int64_t came = v->end[s->pred[i]] + s->pred_lag[i];
        ready = came > ready ? came : ready;
    }
    return ready;
}

/* Checks that slots on a machine do not overlap, follow its order and start
 * after their inputs. Evaluated without unnecessary waits, no operation ends
 * later than its slot. */
static void slots_fit(const view *v)
{
    const lhi_shop *s = v->s;
    int64_t last = 0;
    for (uint32_t m = 0; m < s->n_machines; m++)
        for (uint32_t k = 1; k < v->orders->n[m]; k++) {
            const uint32_t *o = &v->orders->order[m][k];
            CHECK_MSG(v->end[o[-1]] <= start_of(v, *o),
                      "%u is there until %" PRId64 ", %u from %" PRId64, o[-1],
                      v->end[o[-1]], *o, start_of(v, *o));
        }
    CHECK(lhi_machine_orders_evaluate(v->orders) >= 0);
    for (uint32_t o = 0; o < s->n_ops; o++) {
        CHECK_MSG(start_of(v, o) >= ready_of(v, o),
                  "%u begins at %" PRId64 ", before %" PRId64, o,
                  start_of(v, o), ready_of(v, o));
        CHECK(v->orders->end[o] <= v->end[o]);
        last = v->end[o] + s->tail[o] > last ? v->end[o] + s->tail[o] : last;
    }
    CHECK(lhi_machine_orders_evaluate(v->orders) <= last);
}

/* Checks that no operation would fit into an earlier gap. */
static void no_gap_is_left(const view *v)
{
    const lhi_shop *s = v->s;
    for (uint32_t m = 0; m < s->n_machines; m++)
        for (uint32_t k = 0; k < v->orders->n[m]; k++) {
            const uint32_t o = v->orders->order[m][k];
            const int64_t ready = ready_of(v, o);
            int64_t from = ready;
            for (uint32_t i = 0; i <= k; i++) {
                const uint32_t q = v->orders->order[m][i];
                CHECK_MSG(q == o || start_of(v, q) - from < s->time[o],
                          "%u would fit before %u", o, q);
                CHECK(q != o || start_of(v, o) == from);
                from = v->end[q] > from ? v->end[q] : from;
            }
        }
}

/* Checks the last schedule built; k->orders holds the best one. */
static void look(const maker *k, view *v)
{
    v->end = lhi_inserter_get_ends(k->inserter);
    order_by_slots(v);
    slots_fit(v);
    if (k->mirrored)
        lhi_mirror_convert_orders(v->forward, v->orders);
    else
        lhi_machine_orders_copy(v->forward, v->orders);
    int64_t time = lhi_machine_orders_evaluate(v->forward);
    CHECK(time >= k->time);
    hold_orders(k->p, v->forward, time);
}

/* Runs cycles that end after a few schedules. The first schedule inserts as
 * early as possible; later ones have waits. */
static void try_slots(maker *k, rng *r)
{
    const uint64_t one = k->shop->n_ops / 12 + 1;
    const lhi_insertion_options how = {.ticks = MAX_CYCLE * one};
    view v;
    if (!make_view(k, &v) || !begin(k))
        return;
    for (int i = 0; i < 12 && !test_state.bad; i++) {
        k->time = -1;
        go_on(k, &how, i == 0 ? 1 : 1 + rng_below(r, 30) * one);
        look(k, &v);
        if (i == 0) {
            no_gap_is_left(&v);
            CHECK(same_orders(k->orders, v.forward));
        }
    }
}

/* --- retained part ------------------------------------------------------- */

/* Checks that the operation ends at the same time in both job shops. If some
 * passes have zero duration, job shops with different microbatch counts
 * substitute different durations; times are then compared without the scale. */
static void is_where(const view *v, uint32_t o, const lhi_machine_orders *known)
{
    const lhi_shop *s = v->s, *t = known->shop;
    const uint32_t i = s->stream_of[o];
    const uint32_t q = o - s->streams[i].first + t->streams[i].first;
    const bool alike = s->scale == t->scale;
    int64_t is = v->end[o] / (alike ? 1 : s->scale);
    int64_t was = known->end[q] / (alike ? 1 : t->scale);
    CHECK_MSG(is == was, "%u ends at %" PRId64 ", not %" PRId64, o, is, was);
}

/* Checks that all F, D and messages of the first microbatches, and each W that
 * one of them waits for, keep their times. */
static void stay(const view *v, const lhi_machine_orders *known,
                 uint32_t n_kept)
{
    const lhi_shop *s = v->s;
    for (uint32_t i = 0; i < s->n_streams; i++) {
        const lhi_stream *t = &s->streams[i];
        for (uint32_t x = 0; x < n_kept && t->kind != LHI_W; x++) {
            const uint32_t o = t->first + x;
            is_where(v, o, known);
            for (uint32_t a = s->pred_at[o]; a < s->pred_at[o + 1]; a++)
                is_where(v, s->pred[a], known);
        }
    }
}

/* Returns the orders and times of a schedule in the inserter's direction. */
static lhi_machine_orders *turned(const maker *k, lhi_machine_orders *known)
{
    lh_error err = {0};
    lhi_shop *mirror = NULL;
    lhi_machine_orders *orders = NULL;
    if (!k->mirrored)
        return known;
    CHECK_OK(lhi_mirror_make(known->shop, k->mem, &mirror, &err), err);
    CHECK_OK(lhi_machine_orders_make(mirror, k->mem, &orders, &err), err);
    lhi_mirror_convert_orders(orders, known);
    CHECK(lhi_machine_orders_evaluate(orders) >= 0);
    return orders;
}

/* Retains none, some and all of a schedule with as many or fewer microbatches.
 */
static void try_kept(maker *k, lhi_machine_orders *known, rng *r)
{
    const lhi_shop *s = k->shop;
    const uint32_t m = known->shop->n_microbatches;
    const int64_t time = lhi_machine_orders_evaluate(known);
    const lhi_machine_orders *from = turned(k, known);
    const int64_t *start = starts_of(known, k->mem);
    view v;
    if (test_state.bad || !make_view(k, &v) || !begin(k))
        return;
    for (int i = 0; i < 6 && !test_state.bad; i++) {
        const uint32_t n = i == 1 ? m : i == 4 ? 0 : rng_below(r, m + 1);
        const lhi_insertion_options how = {.start = i == 2 ? NULL : start,
                                           .n_microbatches = m,
                                           .n_kept = n,
                                           .ticks =
                                               1 + rng_below(r, 5 * s->n_ops)};
        k->time = -1;
        go_on(k, &how, s->n_ops / 8 + 2 + rng_below(r, 4 * s->n_ops));
        look(k, &v);
        if (how.start)
            stay(&v, from, n);
        if (how.start && n == s->n_microbatches)
            CHECK(k->time <= time);
        hold_orders(k->p, k->orders, k->time);
    }
}

/* Retains parts of a schedule that has the first microbatches only. */
static void try_fewer(maker *k, uint32_t parts, bool fifo, rng *r)
{
    lh_pipeline part = *k->p;
    lh_error err = {0};
    lhi_shop *shop = NULL;
    maker few = *k;
    part.n_microbatches = 1 + rng_below(r, k->shop->n_microbatches);
    CHECK_OK(lhi_shop_make(&part, parts, fifo, LH_SOLVE_OBJECTIVE_MAKESPAN,
                           k->mem, &shop, &err),
             err);
    few.p = &part;
    few.shop = shop;
    n_moved += shop && shop->scale != k->shop->scale;
    CHECK(make(&few, shop->n_ops * 2, 0, 0));
    if (!test_state.bad)
        try_kept(k, few.orders, r);
}

/* --- cases --------------------------------------------------------------- */

/* Checks from the pipeline whether insertion applies to the job shop. */
static bool should_fit(const lh_pipeline *p, const lhi_shop *s)
{
    bool fits = true, joint = lhi_pipeline_is_joint(p);
    uint32_t n = lh_pipeline_n_chunks(p);
    for (uint32_t c = 0; c < n; c++) {
        const lh_chunk *k = lh_pipeline_chunk(p, c);
        for (uint32_t i = 0; i < c; i++)
            fits = fits && lh_pipeline_chunk(p, i)->device != k->device;
        bool matters = lh_pipeline_memory_limit(p, k->device) != LH_NO_LIMIT;
        bool by_one = k->mem_f > 0 && (joint ? k->mem_d + k->mem_w <= 0
                                             : k->mem_d == 0 && k->mem_w <= 0);
        fits = fits && (!matters || by_one);
    }
    for (uint32_t m = 0; fits && m < s->n_machines; m++)
        fits = s->machines[m].leader == NONE;
    return fits;
}

/* A run stops as soon as it reaches its target, after the same number of
 * schedules each time. `a`: the result of one cycle with `ticks`. */
static void ends_early(const maker *a, uint64_t ticks)
{
    maker b = *a;
    CHECK(make(&b, ticks, INT64_MAX, 0) && b.used * 5 <= ticks);
    if (test_state.bad)
        return;
    const uint64_t one = b.used;
    CHECK_INT(a->used, (ticks + one - 1) / one * one);
    CHECK(make(&b, ticks, a->time, 0));
    CHECK_INT(b.time, a->time);
    CHECK(b.used <= a->used && b.used % one == 0);
    const uint64_t enough = b.used;
    CHECK(enough == one ||
          (make(&b, ticks, 0, enough - one) && b.time > a->time));
    CHECK(make(&b, ticks, 0, 2 * one));
    CHECK_INT(b.used, 2 * one);
    CHECK(make(&b, 1, 0, 0));
    CHECK_INT(b.used, one);
}

/* A cycle ends after CYCLE schedules, however many ticks remain. */
static void cycles_end(const maker *a)
{
    maker b = *a;
    const uint64_t one = a->shop->n_ops / 12 + 1;
    CHECK(make(&b, MAX_CYCLE * one + 1, 0, 0));
    CHECK_INT(b.used, MAX_CYCLE * one);
}

/* The same seed gives the same results in every cycle, and a cycle never
 * returns worse orders than its input. */
static void makes_the_same(const maker *a, uint64_t ticks)
{
    maker both[2] = {*a, *a};
    for (int i = 0; i < 2; i++) {
        maker *b = &both[i];
        lhi_insertion_options how = {.ticks = ticks};
        CHECK(make(b, ticks, 0, 0));
        CHECK(b->used == a->used && b->time == a->time &&
              same_orders(b->orders, a->orders));
        CHECK_INT(lhi_machine_orders_evaluate(b->orders), a->time);
        how.start = starts_of(b->orders, b->mem);
        how.n_microbatches = a->shop->n_microbatches;
        how.n_kept = how.n_microbatches / 2;
        go_on(b, &how, 0);
        how.start = NULL;
        go_on(b, &how, 0);
        CHECK(b->time <= a->time);
    }
    CHECK_INT(both[0].used, both[1].used);
    CHECK_INT(both[0].time, both[1].time);
    CHECK(same_orders(both[0].orders, both[1].orders));
}

static void try_case(uint64_t seed)
{
    static const random_shape shape = {
        .max_devices = 6, .max_microbatches = 14, .max_chunks = 2};
    rng r = {seed};
    lh_pipeline *p = random_pipeline(&r, &shape);
    lh_error err = {0};
    lhi_shop *shop = NULL;
    const uint32_t parts = 1 + rng_below(&r, 3);
    const bool fifo = rng_chance(&r, 20);
    maker a = {
        .p = p, .mem = lhi_arena_make(0), .mirrored = rng_chance(&r, 50)};
    CHECK(a.mem != NULL);
    lh_status status = lhi_shop_make(
        p, parts, fifo, LH_SOLVE_OBJECTIVE_MAKESPAN, a.mem, &shop, &err);
    a.shop = shop;
    if (status == LH_OK) {
        bool fits = should_fit(p, shop);
        CHECK_MSG(begin(&a) == fits, "%s", fits ? "refused" : "not refused");
        n_refused += !fits;
    }
    if (a.inserter && !test_state.bad && is_possible(shop)) {
        const lhi_insertion_options how = {.ticks = shop->n_ops * 5};
        n_made++;
        go_on(&a, &how, 0);
        hold_orders(p, a.orders, a.time);
        ends_early(&a, how.ticks);
        if (seed % 4 == 1)
            makes_the_same(&a, how.ticks);
        maker b = a;
        if (seed % 8 == 0)
            try_slots(&b, &r);
        if (seed % 8 == 2)
            try_kept(&b, a.orders, &r);
        if (seed % 8 == 4)
            try_fewer(&b, parts, fifo, &r);
        if (seed % 8 == 6)
            cycles_end(&b);
    }
    if (test_state.bad) {
        fprintf(stderr, "case %" PRIu64 "\n", seed);
        print_case(p, NULL);
    }
    lhi_arena_free(a.mem);
    lh_pipeline_free(p);
}

static void random_pipelines(void)
{
    for (uint32_t i = 0; i < n_cases && !test_state.bad; i++)
        try_case(first_case + i);
    CHECK_MSG(n_made * 10 >= n_cases && n_refused * 10 >= n_cases,
              "only %u pipelines were for insertion, %u not", n_made,
              n_refused);
    CHECK_MSG(n_moved * 100 >= n_cases, "only %u changed the scale", n_moved);
}

/* --- hand-made cases ----------------------------------------------------- */

static void judge_fit(const lh_pipeline_desc *desc, bool fifo, bool fits)
{
    lh_error err = {0};
    lh_pipeline *p = NULL;
    lhi_shop *shop = NULL;
    maker k = {.mem = lhi_arena_make(0)};
    CHECK_OK(lh_pipeline_make(desc, &p, &err), err);
    CHECK_OK(lhi_shop_make(p, 1, fifo, LH_SOLVE_OBJECTIVE_MAKESPAN, k.mem,
                           &shop, &err),
             err);
    k.shop = shop;
    for (int mirrored = 0; mirrored < 2 && !test_state.bad; mirrored++) {
        k.mirrored = mirrored;
        CHECK_INT(begin(&k), fits);
    }
    lhi_arena_free(k.mem);
    lh_pipeline_free(p);
}

/* Insertion requires one chunk per device and no link whose order follows a
 * device's. */
static void others_are_refused(void)
{
    lh_chunk chunks[4] = {{.device = 0}, {.device = 1}, {.device = 2}};
    static const lh_link links[] = {{1, 2, 1, 1, "up"}, {1, 0, 1, 1, "up"}};
    lh_pipeline_desc desc = {.size = sizeof desc,
                             .n_devices = 3,
                             .n_microbatches = 4,
                             .n_chunks = 3,
                             .chunks = chunks,
                             .n_links = 2,
                             .links = links};
    for (int c = 0; c < 4; c++)
        chunks[c].f_ns = chunks[c].d_ns = chunks[c].w_ns = 1 + c;
    judge_fit(&desc, false, true);
    judge_fit(&desc, true, false);
    desc.n_links = 0;
    judge_fit(&desc, true, true);
    for (int joint = 0; joint < 2; joint++) {
        desc.joint = joint;
        for (uint32_t device = 0; device < 3; device++) {
            chunks[3].device = device;
            desc.n_chunks = 4;
            judge_fit(&desc, false, false);
            desc.n_chunks = 3;
            judge_fit(&desc, false, true);
        }
    }
}

/* A few cycles from either end reach the target, most of them early. */
static void trains_meet(void)
{
    lh_error err = {0};
    lh_pipeline *p = trains_make(64);
    lhi_shop *shop = NULL;
    uint32_t n_soon = 0;
    maker a = {.p = p, .mem = lhi_arena_make(0)};
    CHECK_OK(lhi_shop_make(p, 1, false, LH_SOLVE_OBJECTIVE_MAKESPAN, a.mem,
                           &shop, &err),
             err);
    a.shop = shop;
    const lhi_insertion_options how = {
        .ticks = 100000,
        .target = TRAINS_GOOD_MS * INT64_C(1000000) / shop->unit_ns};
    for (uint32_t i = 0; i < 6; i++) {
        a.mirrored = i % 2;
        a.seed = i / 2;
        CHECK(begin(&a));
        while (a.used <= 2000000 && (a.time < 0 || a.time > how.target))
            go_on(&a, &how, 0);
        hold_orders(p, a.orders, a.time);
        const int64_t ms = a.time * shop->unit_ns / 1000000;
        CHECK_MSG(ms >= TRAINS_LEAST_MS && a.time <= how.target,
                  "%" PRId64 " ms", ms);
        n_soon += a.used <= 500000;
    }
    CHECK_MSG(n_soon >= 5, "only %u of 6 took few cycles", n_soon);
    lhi_arena_free(a.mem);
    lh_pipeline_free(p);
}

int main(int argc, char **argv)
{
    cases_from(argc, argv, &n_cases, &first_case);
    RUN(random_pipelines);
    RUN(others_are_refused);
    RUN(trains_meet);
    return test_summary();
}
