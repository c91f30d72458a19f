/* SPDX-License-Identifier: Apache-2.0 */
/* Time-reversed job shops on random pipelines. The mirror image of a mirror
 * image is the original. Reversed orders take as long, and their memory use is
 * the same, seen from the other end. Orders with copies to host memory take as
 * long as in the simulator.
 *
 *     test_mirror [CASES [FIRST]] */
#include "cases.h"
#include "random_pipeline.h"
#include "test.h"

#include "schedule/solver/model/mirror.h"

#include <longhaul/experimental/pipeline.h>
#include <longhaul/experimental/simulate.h>

#include <stdlib.h>

static uint32_t n_cases = 3000, first_case;
/* Counts how often each outcome occurred. */
static uint32_t n_over, n_within, n_stuck, n_timed, n_heads, n_tails, n_lags;

static uint32_t machine_of(const lhi_shop *s, uint32_t o)
{
    return s->streams[s->stream_of[o]].machine;
}

/* --- job shops ---------------------------------------------------------- */

/* Checks that each stream's operations are reversed. */
static void operations_turn(const lhi_shop *s)
{
    for (uint32_t i = 0; i < s->n_streams; i++) {
        const lhi_stream *t = &s->streams[i];
        for (uint32_t x = 0; x < t->count; x++)
            CHECK_INT(lhi_mirror_get_operation(s, t->first + x),
                      t->first + (t->count - 1 - x));
    }
}

static bool has_arc(const lhi_shop *s, uint32_t from, uint32_t to, int64_t lag)
{
    bool ahead = false, back = false;
    for (uint32_t i = s->succ_at[from]; i < s->succ_at[from + 1]; i++)
        ahead = ahead || (s->succ[i] == to && s->succ_lag[i] == lag);
    for (uint32_t i = s->pred_at[to]; i < s->pred_at[to + 1]; i++)
        back = back || (s->pred[i] == from && s->pred_lag[i] == lag);
    return ahead && back;
}

static void is_turned(const lhi_shop *s, const lhi_shop *t)
{
    CHECK_INT(t->succ_at[t->n_ops], s->succ_at[s->n_ops]);
    CHECK_INT(t->pred_at[t->n_ops], s->pred_at[s->n_ops]);
    for (uint32_t o = 0; o < s->n_ops; o++) {
        uint32_t x = lhi_mirror_get_operation(s, o);
        CHECK_INT(t->time[x], s->time[o]);
        CHECK_INT(t->memory[x], -s->memory[o]);
        CHECK_INT(t->tail[x], s->head[o]);
        CHECK_INT(t->head[x], s->tail[o] < 0 ? 0 : s->tail[o]);
        n_heads += s->head[o] > 0;
        n_tails += s->tail[o] > 0;
        for (uint32_t i = s->succ_at[o]; i < s->succ_at[o + 1]; i++) {
            CHECK(has_arc(t, lhi_mirror_get_operation(s, s->succ[i]), x,
                          s->succ_lag[i]));
            n_lags += s->succ_lag[i] > 0;
        }
    }
    for (uint32_t m = 0; m < s->n_machines; m++)
        CHECK_INT(t->machines[m].n_rules, 0);
}

static bool same_machine(const lhi_machine *a, const lhi_machine *b)
{
    return a->kind == b->kind && a->index == b->index &&
           a->first_stream == b->first_stream && a->n_streams == b->n_streams &&
           a->leader == b->leader && a->memory_limit == b->memory_limit &&
           a->arcs_enforce_memory == b->arcs_enforce_memory;
}

static bool same_stream(const lhi_stream *a, const lhi_stream *b)
{
    return a->kind == b->kind && a->chunk == b->chunk &&
           a->machine == b->machine && a->slot == b->slot &&
           a->first == b->first && a->count == b->count && a->per == b->per;
}

/* Compares everything except rules, which mirror images lack, and tails that
 * are not required. */
static void is_same(const lhi_shop *s, const lhi_shop *u)
{
    CHECK(u->p == s->p && u->n_microbatches == s->n_microbatches &&
          u->parts == s->parts && u->n_streams == s->n_streams &&
          u->n_machines == s->n_machines && u->n_ops == s->n_ops);
    CHECK(u->unit_ns == s->unit_ns && u->scale == s->scale &&
          u->horizon == s->horizon && u->times_relaxed == s->times_relaxed &&
          u->parts_relaxed == s->parts_relaxed &&
          u->restricted == s->restricted);
    for (uint32_t i = 0; i < s->n_streams; i++)
        CHECK(same_stream(&u->streams[i], &s->streams[i]));
    for (uint32_t m = 0; m < s->n_machines; m++)
        CHECK(same_machine(&u->machines[m], &s->machines[m]));
    const size_t chunks = lh_pipeline_n_chunks(s->p) * sizeof *s->f;
    CHECK(memcmp(u->f, s->f, chunks) == 0 && memcmp(u->d, s->d, chunks) == 0 &&
          memcmp(u->w, s->w, chunks) == 0 &&
          memcmp(u->message_f, s->message_f, chunks) == 0 &&
          memcmp(u->message_d, s->message_d, chunks) == 0);
    for (uint32_t o = 0; o < s->n_ops; o++) {
        CHECK_INT(u->stream_of[o], s->stream_of[o]);
        CHECK_INT(u->time[o], s->time[o]);
        CHECK_INT(u->memory[o], s->memory[o]);
        CHECK_INT(u->head[o], s->head[o]);
        CHECK_INT(u->tail[o], s->tail[o] < 0 ? 0 : s->tail[o]);
    }
    const size_t at = (s->n_ops + (size_t)1) * sizeof *s->succ_at,
                 n_arcs = s->succ_at[s->n_ops];
    CHECK(memcmp(u->succ_at, s->succ_at, at) == 0 &&
          memcmp(u->pred_at, s->pred_at, at) == 0);
    CHECK(memcmp(u->succ, s->succ, n_arcs * sizeof *s->succ) == 0 &&
          memcmp(u->pred, s->pred, n_arcs * sizeof *s->pred) == 0);
    CHECK(memcmp(u->succ_lag, s->succ_lag, n_arcs * sizeof *s->succ_lag) == 0 &&
          memcmp(u->pred_lag, s->pred_lag, n_arcs * sizeof *s->pred_lag) == 0);
}

/* --- orders ------------------------------------------------------------- */

/* Builds random orders from operations that are ready, or, if `blind`, from all
 * operations. */
static void walk(rng *r, lhi_machine_orders *w, bool blind, lhi_arena *mem)
{
    const lhi_shop *s = w->shop;
    uint32_t *next = LHI_NEW(mem, uint32_t, s->n_streams);
    uint32_t *filled = LHI_NEW(mem, uint32_t, s->n_machines);
    bool *done = LHI_NEW(mem, bool, s->n_ops);
    CHECK(next && filled && done);
    for (uint32_t left = test_state.bad ? 0 : s->n_ops; left > 0;) {
        uint32_t i = rng_below(r, s->n_streams);
        if (next[i] == s->streams[i].count)
            continue;
        uint32_t o = s->streams[i].first + next[i], m = s->streams[i].machine;
        bool ready = true;
        for (uint32_t k = s->pred_at[o]; k < s->pred_at[o + 1]; k++)
            ready = ready && done[s->pred[k]];
        if (!ready && !blind)
            continue;
        w->order[m][filled[m]++] = o;
        next[i]++;
        done[o] = true;
        left--;
    }
}

/* Returns the peak memory after an operation, or before the first. */
static int64_t peak(const lhi_machine_orders *w, uint32_t m)
{
    int64_t held = 0, most = 0;
    for (uint32_t k = 0; k < w->n[m]; k++) {
        held += w->shop->memory[w->order[m][k]];
        most = held > most ? held : most;
    }
    return most;
}

/* Checks that memory after k operations is the same as in the mirror image
 * before the corresponding remaining operations. */
static void holds_as_much(const lhi_machine_orders *w,
                          const lhi_machine_orders *back, uint32_t m)
{
    const lhi_shop *s = w->shop, *t = back->shop;
    const uint32_t n = w->n[m];
    int64_t held = 0, there = 0;
    for (uint32_t k = 0; k < n; k++)
        there += t->memory[back->order[m][k]];
    for (uint32_t k = 0; k < n; k++) {
        CHECK_INT(there, held);
        held += s->memory[w->order[m][k]];
        there -= t->memory[back->order[m][n - 1 - k]];
    }
    CHECK(there == 0 && held == 0);
    bool within = peak(w, m) <= s->machines[m].memory_limit;
    CHECK(within == (peak(back, m) <= t->machines[m].memory_limit));
    if (s->machines[m].memory_limit != LH_NO_LIMIT)
        (*(within ? &n_within : &n_over))++;
}

static void orders_turn(rng *r, const lhi_shop *s, const lhi_shop *t,
                        bool makespan, lhi_arena *mem)
{
    lhi_machine_orders *w = NULL, *back = NULL, *again = NULL;
    lh_error err = {0};
    CHECK_OK(lhi_machine_orders_make(s, mem, &w, &err), err);
    CHECK_OK(lhi_machine_orders_make(t, mem, &back, &err), err);
    CHECK_OK(lhi_machine_orders_make(s, mem, &again, &err), err);
    if (test_state.bad)
        return;
    walk(r, w, rng_chance(r, 25), mem);
    lhi_mirror_convert_orders(back, w);
    lhi_mirror_convert_orders(again, back);
    for (uint32_t m = 0; m < s->n_machines; m++) {
        for (uint32_t k = 0; k < w->n[m]; k++) {
            CHECK_INT(again->order[m][k], w->order[m][k]);
            CHECK_INT(machine_of(t, back->order[m][k]), m);
        }
        holds_as_much(w, back, m);
    }
    int64_t time = lhi_machine_orders_evaluate(w),
            there = lhi_machine_orders_evaluate(back);
    CHECK_INT(there < 0, time < 0);
    CHECK_MSG(there >= time, "faster in the mirror");
    if (makespan)
        CHECK_INT(there, time);
    (*(time < 0 ? &n_stuck : &n_timed))++;
}

/* --- cases -------------------------------------------------------------- */

static void try_case(uint64_t seed)
{
    static const random_shape shape = {.max_devices = 5, .max_microbatches = 9};
    rng r = {seed};
    lh_pipeline *p = random_pipeline(&r, &shape);
    lh_error err = {0};
    lhi_arena *mem = lhi_arena_make(0);
    lhi_shop *s = NULL, *t = NULL, *u = NULL;
    const uint32_t parts = 1 + rng_below(&r, 3);
    const bool makespan = rng_chance(&r, 75), fifo = rng_chance(&r, 30);
    const lh_solve_objective objective = makespan
                                             ? LH_SOLVE_OBJECTIVE_MAKESPAN
                                             : LH_SOLVE_OBJECTIVE_FIRST_DEVICE;
    CHECK(mem != NULL);
    lh_status status =
        (rng_chance(&r, 25) ? lhi_shop_make_relaxed : lhi_shop_make)(
            p, parts, fifo, objective, mem, &s, &err);
    if (status == LH_OK) {
        const uint32_t n_rules = s->machines[0].n_rules;
        CHECK_OK(lhi_mirror_make(s, mem, &t, &err), err);
        CHECK_OK(lhi_mirror_make(t, mem, &u, &err), err);
        CHECK_INT(s->machines[0].n_rules, n_rules);
        operations_turn(s);
        is_turned(s, t);
        is_same(s, u);
        if (!s->parts_relaxed)
            orders_turn(&r, s, t, makespan, mem);
    }
    if (test_state.bad) {
        fprintf(stderr, "case %" PRIu64 "\n", seed);
        print_case(p, NULL);
    }
    lhi_arena_free(mem);
    lh_pipeline_free(p);
}

static void random_shops(void)
{
    for (uint32_t i = 0; i < n_cases && !test_state.bad; i++)
        try_case(first_case + i);
    CHECK_MSG(n_over * 20 >= n_cases && n_within * 20 >= n_cases &&
                  n_stuck * 20 >= n_cases && n_timed * 20 >= n_cases &&
                  n_heads * 20 >= n_cases && n_tails * 20 >= n_cases &&
                  n_lags * 20 >= n_cases,
              "%u over a limit, %u within, %u stuck, %u not, %u heads, "
              "%u tails, %u lags",
              n_over, n_within, n_stuck, n_timed, n_heads, n_tails, n_lags);
}

/* --- copies to host memory ---------------------------------------------- */

static uint32_t n_copied;

/* Compares the time of random orders of a job shop with copies with that of
 * their schedule in the simulator. */
static void try_copies(uint64_t seed)
{
    static const random_shape shape = {
        .links = LINKS_NONE, .no_zero_times = true, .no_data_parallel = true};
    rng r = {seed};
    lh_pipeline *own = random_pipeline(&r, &shape), *p = NULL;
    lh_error err = {0};
    lh_sim_options sim = {.size = sizeof sim,
                          .host_copy_ns = 1 + rng_below(&r, 5000)};
    lhi_arena *mem = lhi_arena_make(0);
    lhi_shop *s = NULL, *t = NULL;
    lhi_machine_orders *w = NULL;
    lh_schedule *schedule = NULL;
    lh_timeline *timeline = NULL;
    CHECK(mem != NULL);
    if (lh_pipeline_with_host(own, LH_NO_LIMIT, &p, &err) == LH_OK &&
        lhi_shop_make(p, 1 + rng_below(&r, 3), false,
                      LH_SOLVE_OBJECTIVE_MAKESPAN, mem, &s, &err) == LH_OK) {
        lhi_shop_add_host_copies(s, sim.host_copy_ns);
        CHECK_OK(lhi_machine_orders_make(s, mem, &w, &err), err);
        CHECK_OK(lhi_mirror_make(s, mem, &t, &err), err);
        CHECK_INT(t->host_copy, 0);
        walk(&r, w, false, mem);
        CHECK_OK(lhi_shop_build_schedule(s, (const uint32_t *const *)w->order,
                                         false, &schedule, &err),
                 err);
        CHECK_OK(lh_simulate(p, schedule, &sim, &timeline, &err), err);
        const int64_t time = lhi_machine_orders_evaluate(w);
        /* Parts of a W may take no time; they add less than 1 ns. */
        CHECK_INT(time / s->scale * s->unit_ns +
                      time % s->scale * s->unit_ns / s->scale,
                  lh_timeline_makespan(timeline));
        for (uint32_t o = 0; o < s->n_ops; o++)
            n_copied += w->copy[o] > 0;
        if (test_state.bad) {
            fprintf(stderr, "case %" PRIu64 "\n", seed);
            print_case(p, schedule);
        }
    }
    lh_timeline_free(timeline);
    lh_schedule_free(schedule);
    lhi_arena_free(mem);
    lh_pipeline_free(p);
    lh_pipeline_free(own);
}

static void copies_take_time(void)
{
    for (uint32_t i = 0; i < n_cases / 3 && !test_state.bad; i++)
        try_copies(first_case + i);
    CHECK_MSG(n_copied >= n_cases / 3, "%u copies", n_copied);
}

/* --- hand-made case ----------------------------------------------------- */

/* A device gathers for 5 and scatters for 7, with latency 1. So it has 6 before
 * the first F and 8 after the last W, and vice versa in the mirror image. */
static void heads_are_tails(void)
{
    static const lh_chunk chunk = {.f_ns = 2,
                                   .d_ns = 3,
                                   .w_ns = 4,
                                   .mem_f = 5,
                                   .mem_d = -1,
                                   .mem_w = -4,
                                   .all_gather_ns = 5,
                                   .reduce_scatter_ns = 7,
                                   .dp_latency_ns = 1};
    /* F, D, W for each microbatch */
    static const int64_t head[] = {0, 0, 0, 0, 8, 0},
                         tail[] = {0, 6, 0, 0, 0, 0};
    static const int64_t memory[] = {-5, -5, 1, 1, 4, 4};
    /* The second F follows the first D, which frees 1 of 5, or the first W. */
    static const uint32_t early[] = {0, 2, 1, 3, 4, 5};
    static const uint32_t late[] = {0, 2, 4, 1, 3, 5};
    lh_pipeline_desc desc = {.size = sizeof desc,
                             .n_devices = 1,
                             .n_microbatches = 2,
                             .n_chunks = 1,
                             .chunks = &chunk};
    lh_pipeline *p = NULL;
    lhi_shop *s = NULL, *t = NULL;
    lhi_machine_orders *w = NULL, *back = NULL;
    lhi_arena *mem = lhi_arena_make(0);
    lh_error err = {0};
    CHECK_OK(lh_pipeline_make(&desc, &p, &err), err);
    CHECK_OK(
        lhi_shop_make(p, 1, false, LH_SOLVE_OBJECTIVE_MAKESPAN, mem, &s, &err),
        err);
    CHECK_OK(lhi_mirror_make(s, mem, &t, &err), err);
    CHECK_OK(lhi_machine_orders_make(s, mem, &w, &err), err);
    CHECK_OK(lhi_machine_orders_make(t, mem, &back, &err), err);
    CHECK_INT(t->n_ops, 6);
    for (uint32_t o = 0; o < 6; o++) {
        CHECK_INT(t->head[o], head[o]);
        CHECK_INT(t->tail[o], tail[o]);
        CHECK_INT(t->memory[o], memory[o]);
    }
    memcpy(w->order[0], early, sizeof early);
    lhi_mirror_convert_orders(back, w);
    CHECK_INT(peak(back, 0), 9);
    CHECK_INT(lhi_machine_orders_evaluate(back), 6 + 2 * (2 + 3 + 4) + 8);
    memcpy(w->order[0], late, sizeof late);
    lhi_mirror_convert_orders(back, w);
    CHECK_INT(peak(back, 0), 5);
    CHECK_INT(lhi_machine_orders_evaluate(w), 6 + 2 * (2 + 3 + 4) + 8);
    lhi_arena_free(mem);
    lh_pipeline_free(p);
}

int main(int argc, char **argv)
{
    cases_from(argc, argv, &n_cases, &first_case);
    RUN(random_shops);
    RUN(copies_take_time);
    RUN(heads_are_tails);
    return test_summary();
}
