/* SPDX-License-Identifier: Apache-2.0 */
/* Learnt clauses and root literals of the search, compared with a planted
 * schedule that meets the deadline: nothing may exclude it. */
#include "schedule/solver/search/search_internal.h"
#include "solve_check.h"

#include "schedule/solver/bound/shaving.h"

static uint32_t n_clauses, n_root, n_fixed, n_reduced;

/* Checks whether the planted schedule has the literal's order. */
static bool planted(const lhi_search *s, const lhi_machine_orders *w, lit l)
{
    return w->end[lhi_search_get_first(s, l)] <
           w->end[lhi_search_get_second(s, l)];
}

/* Continues the search, which deletes learnt clauses at its next restart and
 * not only beyond thousands of them. */
static lhi_answer continue_search(lhi_search *s, uint64_t ticks,
                                  lhi_budget *budget, lhi_machine_orders *out)
{
    enum { FEW = 10 };
    lhi_answer answer = LHI_GAVE_UP;
    lh_error err = {0};
    s->reduce_at = FEW;
    CHECK_OK(
        lhi_search_run(s, ticks, (size_t)1 << 28, budget, out, &answer, &err),
        err);
    n_reduced += s->reduce_at != FEW;
    return answer;
}

static void check_clauses(const lhi_search *s, const lhi_machine_orders *w)
{
    uint32_t n = 0;
    for (uint32_t at = 0; at < s->n_clauses; at += s->clauses[at] + 2, n++) {
        CHECK(s->clauses[at] >= 2);
        bool holds = false;
        for (uint32_t i = 0; i < s->clauses[at]; i++)
            holds = holds || planted(s, w, s->clauses[at + 2 + i]);
        CHECK_MSG(holds, "a clause excludes the planted schedule");
    }
    CHECK_INT(n, s->n_learnt);
    n_clauses += n;
    uint32_t end = s->n_levels ? s->levels[0].trail : s->n_trail;
    for (uint32_t i = 0; i < end; i++) {
        CHECK_MSG(planted(s, w, s->trail[i]),
                  "the root excludes the planted schedule");
        n_root++;
    }
}

/* Counts a stream's operations before this one in the planted schedule. */
static uint32_t planted_before(const lhi_machine_orders *w, const lhi_stream *t,
                               uint32_t o)
{
    uint32_t n = 0;
    for (uint32_t q = t->first; q < t->first + t->count; q++)
        n += q != o && w->end[q] <= w->end[o] - w->shop->time[o];
    return n;
}

/* Checks that pairs without a variable are in the planted order, and that their
 * literals agree. */
static void check_root(const lhi_search *s, const lhi_machine_orders *w)
{
    const lhi_shop *shop = s->s;
    for (uint32_t o = 0; o < shop->n_ops; o++) {
        const lhi_stream *own = lhi_search_get_stream(s, o);
        const lhi_machine *m = &shop->machines[own->machine];
        for (uint32_t i = 0; i < m->n_streams && m->leader == NONE; i++) {
            const lhi_stream *t = &shop->streams[m->first_stream + i];
            const size_t at = s->slot_at[o] + i;
            if (i == own->slot)
                continue;
            const uint32_t n = planted_before(w, t, o);
            CHECK_MSG(n >= s->before[at] && n <= s->after[at],
                      "%u operations come before %u, not %u to %u", n, o,
                      s->before[at], s->after[at]);
            for (uint32_t x = 0; x < t->count; x++) {
                const lit l = lhi_search_get_literal(s, t->first + x, o);
                const lit fixed = x < s->before[at]   ? HOLDS
                                  : x >= s->after[at] ? HOLDS_NOT
                                                      : l;
                n_fixed += l <= HOLDS_NOT;
                CHECK(l == fixed &&
                      lhi_search_get_literal(s, o, t->first + x) == (l ^ 1));
                CHECK(l <= HOLDS_NOT ||
                      (lhi_search_get_first(s, l) == t->first + x &&
                       lhi_search_get_second(s, l) == o));
            }
        }
    }
}

static lhi_budget no_limit(void)
{
    static const lh_solve_options none = {.size = sizeof none};
    lhi_budget budget;
    lhi_budget_begin(&budget, &none);
    return budget;
}

static lhi_shop *make_shop(const lh_pipeline *p, lhi_arena *mem)
{
    lh_error err = {0};
    lhi_shop *shop = NULL;
    CHECK_OK(lhi_shop_make(p, 1, false, LH_SOLVE_OBJECTIVE_MAKESPAN, mem, &shop,
                           &err),
             err);
    return shop;
}

/* Windows with lattices of all states, of live ones, or without lattices. */
typedef enum lattices { ALL, LIVE, NO_LATTICES } lattices;

static lhi_windows *make_windows(const lhi_shop *shop, lattices which,
                                 lhi_budget *budget, lhi_arena *mem)
{
    const size_t room = (size_t)1 << 28;
    lh_error err = {0};
    lhi_windows *w = NULL;
    uint32_t impossible;
    CHECK_OK(lhi_windows_make(shop, which == ALL ? room : 0, budget, mem, &w,
                              &impossible, &err),
             err);
    if (w && which == LIVE)
        w->room = room;
    return w;
}

/* Checks that shaving keeps the planted schedule within its windows. */
static void check_shaving(lhi_windows *windows, const lhi_machine_orders *w,
                          lhi_budget *budget)
{
    lh_error err = {0};
    bool open = false;
    CHECK_OK(lhi_shaving_run(windows, 30000, budget, &open, &err), err);
    CHECK_MSG(open, "shaving excludes the planted schedule");
    for (uint32_t o = 0; o < w->shop->n_ops; o++)
        CHECK_MSG(windows->r[o] <= w->end[o] - w->shop->time[o] &&
                      w->end[o] <= windows->e[o],
                  "shaving leaves operation %u no time for what is planted", o);
}

/* Returns a schedule's bit sets, and its end. */
static lhi_machine_orders *words_of(const lhi_shop *shop,
                                    const lh_schedule *schedule, lhi_arena *mem,
                                    int64_t *end)
{
    lh_error err = {0};
    lhi_machine_orders *w = NULL;
    bool fits = false;
    CHECK_OK(lhi_machine_orders_make(shop, mem, &w, &err), err);
    CHECK_OK(lhi_shop_read_orders(shop, schedule, w->order, &fits, &err), err);
    CHECK(fits);
    *end = lhi_machine_orders_evaluate(w);
    return w;
}

static void plant(const lh_pipeline *p, const lh_schedule *schedule,
                  int64_t more, lhi_arena *mem)
{
    lh_error err = {0};
    lhi_budget budget = no_limit();
    lhi_shop *shop = make_shop(p, mem);
    int64_t deadline;
    lhi_machine_orders *w = words_of(shop, schedule, mem, &deadline),
                       *found = NULL;
    lhi_search *s = NULL;
    lhi_answer answer = LHI_GAVE_UP;
    CHECK_OK(lhi_machine_orders_make(shop, mem, &found, &err), err);
    deadline += more;
    /* Fewer states leave more to learn. */
    lhi_windows *windows =
        make_windows(shop, (lattices)(more % 3), &budget, mem);
    CHECK(lhi_windows_set(windows, deadline, &budget));
    check_shaving(windows, w, &budget);
    lhi_windows_compute_all_counts(windows, &budget);
    CHECK_OK(lhi_search_make(shop, deadline, windows, NULL, &s, &err), err);
    check_root(s, w);
    for (uint32_t i = 0; i < 12 && answer == LHI_GAVE_UP; i++) {
        answer = continue_search(s, 20000, &budget, found);
        CHECK(answer != LHI_REFUTED);
        check_clauses(s, w);
    }
    if (answer == LHI_FOUND)
        CHECK(lhi_machine_orders_evaluate(found) <= deadline);
    lhi_search_free(s);
    lhi_windows_free(windows);
}

static uint32_t n_kept, n_ended;

/* Continues a search with shorter and shorter deadlines and all learnt clauses:
 * these exclude the planted schedule only once it is too long. */
static void shorten(const lh_pipeline *p, const lh_solution *best,
                    lhi_arena *mem)
{
    static const int64_t more[] = {300, 120, 40, 5, 0};
    enum { N = sizeof more / sizeof *more };
    lh_error err = {0};
    lhi_budget budget = no_limit();
    lhi_shop *shop = make_shop(p, mem);
    int64_t planted_end;
    lhi_machine_orders *w = words_of(shop, best->schedule, mem, &planted_end);
    lhi_machine_orders *found = NULL;
    lhi_search *s = NULL;
    lhi_answer answer = LHI_GAVE_UP;
    CHECK_OK(lhi_machine_orders_make(shop, mem, &found, &err), err);
    lhi_windows *windows = make_windows(shop, ALL, &budget, mem);
    CHECK(lhi_windows_set(windows, planted_end + more[0], &budget));
    lhi_windows_compute_all_counts(windows, &budget);
    CHECK_OK(
        lhi_search_make(shop, planted_end + more[0], windows, NULL, &s, &err),
        err);
    for (int i = 0; i < N; i++) {
        if (i > 0)
            lhi_search_set_deadline(s, planted_end + more[i], i % 2 ? NULL : w);
        answer = continue_search(s, 10000, &budget, found);
        CHECK(answer != LHI_REFUTED);
        if (answer == LHI_FOUND)
            CHECK(lhi_machine_orders_evaluate(found) <= planted_end + more[i]);
        check_clauses(s, w);
        n_kept += i > 0 && i < N - 1 && s->n_clauses > 0;
    }
    const int64_t less = planted_end - 1;
    lhi_search_set_deadline(s, less, w);
    for (uint32_t i = 0; i < 20 && answer != LHI_REFUTED; i++) {
        answer = continue_search(s, 20000, &budget, found);
        if (answer == LHI_FOUND) {
            CHECK(best->status != LH_SOLVE_OPTIMAL);
            CHECK(lhi_machine_orders_evaluate(found) <= less);
            break;
        }
    }
    n_ended += answer == LHI_REFUTED;
    lhi_search_free(s);
    /* A deadline impossible for any order is refuted immediately. */
    CHECK_OK(lhi_search_make(shop, planted_end + more[0], windows, w, &s, &err),
             err);
    lhi_search_set_deadline(s, planted_end / 4, w);
    CHECK_OK(lhi_search_run(s, 20000, (size_t)1 << 28, &budget, found, &answer,
                            &err),
             err);
    CHECK_INT(answer, LHI_REFUTED);
    CHECK_INT(lhi_search_count_conflicts(s), 0);
    lhi_search_free(s);
    lhi_windows_free(windows);
}

static void plant_row(const solve_row *row)
{
    lh_pipeline *p = solve_row_make(row);
    lh_solve_options o = {.size = sizeof o, .effort = 1500000};
    lh_solution best = {0};
    lh_error err = {0};
    lhi_arena *mem = lhi_arena_make(0);
    CHECK_OK(lh_solve(p, &o, &best, &err), err);
    CHECK_MSG(best.schedule, "there is no schedule to plant");
    if (best.schedule) {
        for (int64_t more = 0; more < 40; more += 13)
            plant(p, best.schedule, more, mem);
        shorten(p, &best, mem);
    }
    lhi_arena_free(mem);
    lh_solution_fini(&best);
    lh_pipeline_free(p);
}

static void nothing_excludes_a_planted_schedule(void)
{
    static const solve_row rows[] = {
        {"ud", 4, 16, 2, 48, 2, .25, 2, 0},
        {"ud", 6, 32, 3, 86, 2, .25, .25, 0},
        {"ud", 8, 32, 8, 86, 2, .25, 2, 0},
        {"wave", 4, 8, 5, 48, 2, .25, 2, 0},
        {"wave", 4, 12, 8, 48, 4, 1, .25, 0},
        {"loop", 4, 8, 8, 48, 2, .25, .25, 0},
        {"loop", 3, 9, 5, 48, 3, 1, 2, 0},
        {"wave", 6, 12, 8, 48, 2, .25, .25, 0},
        {"loop", 6, 12, 10, 48, 2, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        plant_row(&rows[i]);
    /* Clauses and literals that could exclude it existed. */
    CHECK_MSG(n_clauses > 0 && n_root > 0 && n_fixed > 0,
              "%u clauses, %u literals at the root, %u pairs before it",
              n_clauses, n_root, n_fixed);
    CHECK_MSG(n_kept > 0 && n_ended > 0 && n_reduced > 0,
              "%u searches went on with clauses, %u refuted what is too short, "
              "%u deleted clauses",
              n_kept, n_ended, n_reduced);
}

/* --- live states ---------------------------------------------------------- */

static uint32_t n_refuted;

/* Checks that both lattice kinds give the same windows, at falling deadlines
 * (later ones reuse earlier results) and at a longer one again. Deadlines not
 * below `makespan`, 8/9 of the longest, are feasible. */
static void compare_windows(const lh_pipeline *p, int64_t makespan)
{
    lhi_budget budget = no_limit();
    lhi_arena *mem = lhi_arena_make(0);
    lhi_shop *shop = make_shop(p, mem);
    lhi_windows *all = make_windows(shop, ALL, &budget, mem);
    lhi_windows *live = make_windows(shop, LIVE, &budget, mem);
    int64_t units = makespan / shop->unit_ns * 9 / 8;
    for (int64_t i = 0; i < 12; i++) {
        const int64_t within = i == 9 ? units : units - i * units / 64;
        const int64_t t = lhi_shop_get_deadline(shop, within);
        bool open = lhi_windows_set(all, t, &budget);
        CHECK(lhi_windows_set(live, t, &budget) == open);
        CHECK(open || within < makespan / shop->unit_ns);
        n_refuted += !open;
        for (uint32_t o = 0; open && o < shop->n_ops; o++) {
            CHECK_INT(live->r[o], all->r[o]);
            CHECK_INT(live->e[o], all->e[o]);
        }
        if (open && i % 2)
            CHECK(lhi_windows_prune(live, t, false, &budget));
    }
    lhi_windows_free(all);
    lhi_windows_free(live);
    lhi_arena_free(mem);
}

static void live_states_are_all_that_matter(void)
{
    static const solve_row rows[] = {
        {"ud", 6, 12, 4, 48, 2, .25, 2, 0},
        {"wave", 4, 6, 5, 48, 2, .25, 2, 0},
        {"wave", 4, 8, 8, 48, 4, 1, .25, 0},
        {"loop", 3, 7, 5, 48, 3, 1, 2, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lh_pipeline *p = solve_row_make(&rows[i]);
        lh_solve_options o = {.size = sizeof o, .effort = 200000};
        lh_solution s = {0};
        lh_error err = {0};
        CHECK_OK(lh_solve(p, &o, &s, &err), err);
        CHECK_MSG(s.schedule, "there is no schedule");
        compare_windows(p, s.makespan_ns);
        lh_solution_fini(&s);
        lh_pipeline_free(p);
    }
    /* Both also refute the same deadlines. */
    CHECK(n_refuted > 0);
}

/* --- shaving -------------------------------------------------------------- */

static uint32_t n_shaved, n_cut;

/* Stopped by effort at any point, it refutes nothing feasible. */
static void stop_shaving(lhi_windows *w, int64_t t)
{
    for (uint64_t most = 500; most < 1000000; most += most / 6) {
        const lh_solve_options few = {.size = sizeof few, .effort = most};
        lh_error err = {0};
        lhi_budget budget;
        bool open = false;
        lhi_budget_begin(&budget, &few);
        CHECK(lhi_windows_set(w, t, &budget));
        CHECK_OK(lhi_shaving_run(w, UINT64_MAX / 2, &budget, &open, &err), err);
        CHECK_MSG(open, "refuted after %llu", (unsigned long long)most);
        if (!budget.stop)
            return;
        n_cut++;
    }
}

/* It refutes deadlines that lattices do not, but no optimum; reset windows keep
 * nothing from it. */
static void shave_row(const solve_row *row)
{
    static const lh_solve_options none = {.size = sizeof none};
    lh_pipeline *p = solve_row_make(row);
    lh_solution s = {0};
    lh_error err = {0};
    lhi_arena *mem = lhi_arena_make(0);
    lhi_shop *shop = make_shop(p, mem);
    lhi_budget budget = no_limit();
    CHECK_OK(lh_solve(p, &none, &s, &err), err);
    CHECK_INT(s.status, LH_SOLVE_OPTIMAL);
    lhi_windows *w = make_windows(shop, ALL, &budget, mem);
    const int64_t best = s.makespan_ns / shop->unit_ns;
    for (int64_t less = 0; less < 40; less++) {
        const int64_t t = lhi_shop_get_deadline(shop, best - less);
        bool open = lhi_windows_set(w, t, &budget);
        if (!open)
            break;
        CHECK_OK(lhi_shaving_run(w, UINT64_MAX / 2, &budget, &open, &err), err);
        CHECK(open || less > 0);
        n_shaved += !open;
        CHECK(lhi_windows_set(w, t, &budget));
    }
    stop_shaving(w, lhi_shop_get_deadline(shop, best));
    lhi_windows_free(w);
    lhi_arena_free(mem);
    lh_solution_fini(&s);
    lh_pipeline_free(p);
}

static void shaving_refutes_no_optimum(void)
{
    static const solve_row rows[] = {
        {"ud", 4, 16, 2, 48, 2, .25, 2, 0},
        {"ud", 6, 12, 3, 86, 2, .25, .25, 0},
        {"ud", 6, 24, 3, 86, 2, 2, .25, 0},
        {"wave", 4, 6, 5, 48, 2, .25, 2, 0},
        {"loop", 3, 7, 5, 48, 3, 1, 2, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        shave_row(&rows[i]);
    CHECK_MSG(n_shaved > 0 && n_cut > 0,
              "%u deadlines refuted by shaving alone, %u stopped", n_shaved,
              n_cut);
}

/* --- stopped early -------------------------------------------------------- */

static uint32_t n_stopped;

/* Computes windows for a deadline with a time limit; an interrupted computation
 * has no effect, and repeating it gives the same result. */
static void stop_windows(lhi_windows *w, const lhi_windows *never, int64_t t,
                         double seconds)
{
    const lh_solve_options some = {.size = sizeof some,
                                   .time_limit_s = seconds};
    lhi_budget late, budget = no_limit();
    lhi_budget_begin(&late, &some);
    const bool open = lhi_windows_set(w, t, &late);
    n_stopped += late.timed_out;
    CHECK(open || !late.timed_out);
    CHECK(!open || lhi_windows_prune(w, t, false, &late));
    lhi_windows_compute_all_counts(w, &late);
    CHECK(lhi_windows_set(w, t, &budget));
    CHECK(w->complete);
    for (uint32_t o = 0; o < w->shop->n_ops; o++) {
        CHECK_INT(w->r[o], never->r[o]);
        CHECK_INT(w->e[o], never->e[o]);
    }
}

static void stopped_windows_are_as_good_as_new(void)
{
    static const solve_row row = {"wave", 4, 16, 13, 48, 2, .25, 2, 0};
    const lh_solve_options few = {.size = sizeof few, .effort = 20000};
    lh_pipeline *p = solve_row_make(&row);
    lh_solution s = {0};
    lh_error err = {0};
    lhi_arena *mem = lhi_arena_make(0);
    lhi_shop *shop = make_shop(p, mem);
    lhi_budget budget = no_limit();
    CHECK_OK(lh_solve(p, &few, &s, &err), err);
    const int64_t t =
        lhi_shop_get_deadline(shop, s.makespan_ns / shop->unit_ns);
    lhi_windows *never = make_windows(shop, ALL, &budget, mem);
    lhi_windows *all = make_windows(shop, ALL, &budget, mem);
    /* More states than are processed between two time checks. */
    CHECK(lhi_windows_get_lattice(never, 0)->n_states > 1u << 15);
    CHECK(lhi_windows_set(never, t, &budget));
    for (double seconds = 1e-6; seconds < 1; seconds *= 2) {
        stop_windows(all, never, t, seconds);
        /* Also stopped during their construction. */
        lhi_windows *live = make_windows(shop, LIVE, &budget, mem);
        lhi_windows_set_max_states(live, 1u << 20);
        stop_windows(live, never, t, seconds);
        lhi_windows_free(live);
    }
    /* It takes longer than the smallest limit on any machine. */
    CHECK(n_stopped > 0);
    lhi_windows_free(never);
    lhi_windows_free(all);
    lhi_arena_free(mem);
    lh_solution_fini(&s);
    lh_pipeline_free(p);
}

int main(void)
{
    RUN(stopped_windows_are_as_good_as_new);
    RUN(shaving_refutes_no_optimum);
    RUN(live_states_are_all_that_matter);
    RUN(nothing_excludes_a_planted_schedule);
    return test_summary();
}
