/* SPDX-License-Identifier: Apache-2.0 */
/* Pipelines whose data-parallel communication shares links with messages: no
 * order of the passes is faster than the solver's bounds, and the solver's
 * schedules take what the verifier says. All orders of tiny pipelines are
 * simulated.
 *
 *     test_shared_link_bounds [CASES [FIRST]] */
#include "cases.h"
#include "random_pipeline.h"
#include "schedule/pipeline/accessors.h"
#include "schedule/solver/bound/closed_forms.h"
#include "schedule/solver/bound/windows.h"
#include "schedule/solver/search/search.h"
#include "test.h"

#include <longhaul/check.h>
#include <longhaul/experimental/bounds.h>
#include <longhaul/experimental/pipeline.h>
#include <longhaul/experimental/schedule.h>
#include <longhaul/experimental/simulate.h>
#include <longhaul/experimental/solve.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static uint32_t n_cases = OF_CASES(4000), first_case;

enum { MOST_DEVICES = 3, MOST_PASSES = 12, MOST_ORDERS = 400 };

/* All orders of one device. */
typedef struct orders {
    uint32_t n, n_passes, n_streams;
    lh_pass streams[MOST_PASSES]; /* microbatch 0 of each kind and chunk */
    bool too_many;
    lh_pass all[MOST_ORDERS][MOST_PASSES];
} orders;

/* Extends `row`, with at[stream] passes of every stream, in all ways. A stream
 * has its passes in the order of the microbatches, and runs no pass before the
 * same microbatch in the preceding stream of its chunk. */
static void extend(orders *o, uint32_t n, const lh_pass *row, uint32_t done,
                   const uint32_t *at)
{
    if (done == o->n_passes) {
        o->too_many = o->too_many || o->n == MOST_ORDERS;
        if (!o->too_many)
            memcpy(o->all[o->n++], row, done * sizeof *row);
        return;
    }
    for (uint32_t k = 0; k < o->n_streams && !o->too_many; k++) {
        const lh_pass *stream = &o->streams[k];
        lh_pass longer[MOST_PASSES];
        uint32_t now[MOST_PASSES];
        if (at[k] == n || (stream->kind != LH_F && at[k] == at[k - 1]))
            continue;
        memcpy(now, at, sizeof now);
        memcpy(longer, row, sizeof longer);
        longer[done] = *stream;
        longer[done].microbatch = now[k]++;
        extend(o, n, longer, done + 1, now);
    }
}

/* Lists all orders of device `d`. */
static void list_orders(const lh_pipeline *p, uint32_t d, orders *o)
{
    static const uint8_t split[] = {LH_F, LH_D, LH_W}, joint[] = {LH_F, LH_B};
    bool is_joint = lhi_pipeline_is_joint(p);
    const lh_pass row[MOST_PASSES] = {{0}};
    const uint32_t none[MOST_PASSES] = {0};
    uint32_t n = lh_pipeline_n_microbatches(p);
    for (uint32_t c = 0; c < lh_pipeline_n_chunks(p); c++)
        for (uint32_t k = 0; k < (is_joint ? 2u : 3u); k++) {
            if (lh_pipeline_chunk(p, c)->device != d)
                continue;
            o->too_many = o->too_many || (o->n_streams + 1) * n > MOST_PASSES;
            if (o->too_many)
                return;
            o->streams[o->n_streams++] =
                (lh_pass){.chunk = c,
                          .n_parts = 1,
                          .kind = is_joint ? joint[k] : split[k]};
        }
    o->n_passes = o->n_streams * n;
    extend(o, n, row, 0, none);
}

/* Returns the makespan of the fastest combination of orders; INT64_MAX: all of
 * them deadlock or need too much memory. */
static int64_t find_fastest(const lh_pipeline *p, const orders *all)
{
    uint32_t n = lh_pipeline_n_devices(p), pick[MOST_DEVICES] = {0}, d = 0;
    int64_t best = INT64_MAX;
    while (d < n) {
        const lh_pass *rows[MOST_DEVICES];
        uint32_t counts[MOST_DEVICES];
        lh_schedule *s = NULL;
        lh_timeline *t = NULL;
        lh_error err = {0};
        for (d = 0; d < n; d++) {
            rows[d] = all[d].all[pick[d]];
            counts[d] = all[d].n_passes;
        }
        CHECK_OK(lh_schedule_make(n, rows, counts, 0, NULL, &s, &err), err);
        if (lh_simulate(p, s, NULL, &t, &err) == LH_OK &&
            lh_timeline_fits(t, NULL) && lh_timeline_makespan(t) < best)
            best = lh_timeline_makespan(t);
        lh_timeline_free(t);
        lh_schedule_free(s);
        for (d = 0; d < n && ++pick[d] == all[d].n; d++)
            pick[d] = 0;
    }
    return best;
}

/* Counts of cases by result. */
typedef struct tally {
    uint32_t compared, proven, open, above, chunks;
} tally;

static tally seen;

/* Checks that the job shop has a schedule that takes `best`: neither windows
 * nor the search may refute it. */
static void check_refutations(const lh_pipeline *p, int64_t best)
{
    lh_solve_options o = {.size = sizeof o, .effort = 100000};
    lhi_arena *mem = lhi_arena_make(0);
    lhi_budget budget = {0};
    lhi_shop *shop = NULL;
    lhi_windows *w = NULL;
    lhi_machine_orders *words = NULL;
    lhi_search *search = NULL;
    lhi_answer answer = LHI_GAVE_UP;
    lh_error err = {0};
    uint32_t impossible;
    lhi_budget_begin(&budget, &o);
    CHECK_OK(lhi_shop_make(p, 1, false, LH_SOLVE_OBJECTIVE_MAKESPAN, mem, &shop,
                           &err),
             err);
    int64_t deadline = lhi_shop_get_deadline(shop, best / shop->unit_ns);
    CHECK_OK(
        lhi_windows_make(shop, 1 << 26, &budget, mem, &w, &impossible, &err),
        err);
    CHECK_INT(impossible, NONE);
    bool open = lhi_windows_set(w, deadline, &budget);
    CHECK_MSG(open, "%" PRId64 " ns is refuted by windows", best);
    if (open) {
        lhi_windows_compute_all_counts(w, &budget);
        CHECK_OK(lhi_machine_orders_make(shop, mem, &words, &err), err);
        CHECK_OK(lhi_search_make(shop, deadline, w, NULL, &search, &err), err);
        CHECK_OK(lhi_search_run(search, 100000, 1 << 26, &budget, words,
                                &answer, &err),
                 err);
        CHECK_MSG(answer != LHI_REFUTED, "%" PRId64 " ns is refuted", best);
    }
    lhi_search_free(search);
    lhi_windows_free(w);
    lhi_arena_free(mem);
}

static void check_solution(const lh_pipeline *p, int64_t best)
{
    lh_solve_options o = {.size = sizeof o, .effort = 20000};
    lh_solution s = {0};
    lh_verdict *v = NULL;
    lh_bound bound;
    lh_error err = {0};
    CHECK_OK(lhi_compute_closed_form_bound(p, &bound, &err), err);
    CHECK(bound.ns <= best);
    CHECK_OK(lh_solve(p, &o, &s, &err), err);
    CHECK(s.bound_ns <= best);
    CHECK(s.status == LH_SOLVE_OPTIMAL || s.status == LH_SOLVE_FEASIBLE);
    if (s.status == LH_SOLVE_OPTIMAL)
        CHECK(s.makespan_ns <= best);
    CHECK_OK(lh_check(p, s.schedule, &v, &err), err);
    CHECK(lh_verdict_valid(v));
    CHECK_INT(lh_verdict_makespan(v), s.makespan_ns);
    check_refutations(p, best);
    seen.compared++;
    seen.proven += s.status == LH_SOLVE_OPTIMAL;
    seen.open += s.status == LH_SOLVE_FEASIBLE;
    seen.above += s.bound_ns > bound.ns;
    lh_verdict_free(v);
    lh_solution_fini(&s);
}

static void compare(const lh_pipeline *p)
{
    uint32_t total = 1;
    orders *all = calloc(MOST_DEVICES, sizeof *all);
    for (uint32_t d = 0; all && d < lh_pipeline_n_devices(p); d++) {
        list_orders(p, d, &all[d]);
        total = all[d].too_many || total > 2000 ? UINT32_MAX / 1000
                                                : total * all[d].n;
    }
    int64_t best = all && total <= 2000 ? find_fastest(p, all) : INT64_MAX;
    if (best < INT64_MAX)
        check_solution(p, best);
    seen.chunks +=
        best < INT64_MAX && lh_pipeline_n_chunks(p) > lh_pipeline_n_devices(p);
    free(all);
}

static void no_order_is_faster(void)
{
    static const random_shape shape = {.max_devices = MOST_DEVICES,
                                       .max_microbatches = 3,
                                       .max_chunks = 2,
                                       .regular = true};
    for (uint32_t i = first_case; i < first_case + n_cases; i++) {
        rng r = {i};
        lh_pipeline *plain = random_pipeline(&r, &shape);
        lh_pipeline *p = sharing_pipeline(&r, plain);
        bool before = test_state.bad;
        test_state.bad = false;
        if (lh_pipeline_shares_links(p, LH_NONE))
            compare(p);
        if (test_state.bad) {
            fprintf(stderr, "case %" PRIu32 "\n", i);
            if (!before)
                print_case(p, NULL);
        }
        test_state.bad |= before;
        lh_pipeline_free(plain);
        lh_pipeline_free(p);
    }
    printf("%" PRIu32 " compared: %" PRIu32 " proven, %" PRIu32
           " open, %" PRIu32 " bounds above the closed form, %" PRIu32
           " with several chunks per device\n",
           seen.compared, seen.proven, seen.open, seen.above, seen.chunks);
    CHECK(seen.compared * 20 > n_cases && seen.proven * 2 > seen.compared &&
          seen.above > 0 && seen.chunks > 0);
}

int main(int argc, char **argv)
{
    cases_from(argc, argv, &n_cases, &first_case);
    RUN(no_order_is_faster);
    return test_summary();
}
