/* SPDX-License-Identifier: Apache-2.0 */
/* The cheapest plan, and the Pareto front of time, memory and cost, compared
 * with every layout under every method. */
#include "jobs.h"
#include "plans.h"

#include "planner/layout/equivalence.h"
#include "planner/layout/space.h"
#include "planner/search/candidate.h"
#include "planner/search/cost.h"
#include "planner/search/pareto_front.h"

#include <longhaul/check.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/plan.h>
#include <longhaul/simulate.h>
#include <math.h>
#include <stdlib.h>

/* Two datacenters with four GPUs each; traffic between them has a price. */
static lh_job *job_of(double east_hour, double gb, double memory,
                      const char *layout)
{
    return job_with(
        JOB_TWO_SITES,
        "  gpu: {tflops: 300, memory_gib: %g, memory_gbps: 2000, "
        "efficiency: 0.5}\n"
        "  gpus_per_node: 2\n"
        "  fabric: {gbps: 200, latency_us: 8}\n"
        "  usd_per_gpu_hour: 2\n"
        "  usd_per_gb: %g\n"
        "  datacenters:\n"
        "   - {name: west, nodes: 2}\n"
        "   - {name: east, nodes: 2, usd_per_gpu_hour: %g}\n"
        "  links: [{between: [west, east], latency_ms: 5, gbps: 100}]\n"
        "model: {layers: 8, hidden: 2048, ffn: 8192, heads: 16, "
        "vocab: 32000}\n"
        "training: {global_batch: 16, sequence: 2048}\n"
        "layout: %s\n",
        memory, gb, east_hour, layout);
}

/* --- every layout --------------------------------------------------------- */

/* All layouts with their results. */
typedef struct all {
    const lh_job *job;
    lhi_space space;
    lhi_level level;
    lhi_pareto_point *points;
    uint32_t n, room, n_layouts;
} all;

static void add_point(all *a, lhi_pareto_point p)
{
    if (a->n == a->room) {
        a->room = a->room ? 2 * a->room : 1024;
        a->points = realloc(a->points, a->room * sizeof *a->points);
    }
    a->points[a->n++] = p;
}

static void try_method(all *a, const lhi_config *config,
                       const lhi_built_layout *b, const char *method)
{
    lh_method_options how = {.size = sizeof how};
    lh_schedule *schedule = NULL;
    lh_timeline *t = NULL;
    lh_error err = {0};
    lhi_layout_price price;
    if (lh_method_run(method, b->pipeline, &how, &schedule, NULL, &err) !=
        LH_OK)
        return;
    CHECK_OK(lh_simulate(b->pipeline, schedule, NULL, &t, &err), err);
    if (lh_timeline_fits(t, NULL)) {
        lhi_pareto_point p = {
            lh_timeline_makespan(t) + b->optimizer_ns + b->overhead_ns, 0, 0};
        for (uint32_t d = 0; d < lh_pipeline_n_devices(b->pipeline); d++)
            if (lh_timeline_peak_memory(t, d) > p.memory_bytes)
                p.memory_bytes = lh_timeline_peak_memory(t, d);
        CHECK_OK(lhi_pricing_compute(a->job, config, &price, &err), err);
        p.usd = lhi_pricing_iteration_usd(&price, (double)p.iteration_ns);
        add_point(a, p);
    }
    lh_timeline_free(t);
    lh_schedule_free(schedule);
}

static lh_status visit(void *context, const lhi_config *config, lh_error *err)
{
    all *a = context;
    lhi_config mine = *config;
    lhi_built_layout b;
    lh_error why;
    if (a->level < LHI_LEVEL_COMPLETE) {
        a->level = (lhi_level)(a->level + 1);
        lh_status status = lhi_space_children(
            &a->space, (lhi_level)(a->level - 1), &mine, NULL, visit, a, err);
        a->level = (lhi_level)(a->level - 1);
        return status;
    }
    if (lhi_layout_build(a->job, &mine, &b, &why) != LH_OK)
        return LH_OK;
    a->n_layouts++;
    for (uint32_t m = 0; m < lh_n_methods(); m++) {
        const char *name = lh_method_name(m), *want = mine.layout.schedule;
        if (want ? strcmp(name, want) == 0
                 : strcmp(name, "auto") != 0 && strcmp(name, "look-ahead") != 0)
            try_method(a, &mine, &b, name);
    }
    lh_pipeline_free(b.pipeline);
    return LH_OK;
}

static void find_all(const lh_job *job, all *out)
{
    lh_error err = {0};
    lhi_config none = {0};
    *out = (all){.job = job, .level = LHI_LEVEL_NONE};
    lhi_arena *mem = lhi_arena_make(0);
    CHECK_OK(lhi_space_init(job, mem, &out->space, &err), err);
    CHECK_OK(visit(out, &none, &err), err);
    lhi_space_fini(&out->space);
    lhi_arena_free(mem);
}

static bool on_front(const all *a, const lhi_pareto_point *p)
{
    for (uint32_t i = 0; i < a->n; i++)
        if (lhi_pareto_point_covers(&a->points[i], p) &&
            !lhi_pareto_point_covers(p, &a->points[i]))
            return false;
    return true;
}

static bool same_number(double a, double b)
{
    return fabs(a - b) <= 1e-12 * fabs(b);
}

static bool same_point(const lhi_pareto_point *a, const lhi_pareto_point *b)
{
    return a->iteration_ns == b->iteration_ns &&
           a->memory_bytes == b->memory_bytes && same_number(a->usd, b->usd);
}

/* --- plans ---------------------------------------------------------------- */

static lh_plan *make(const lh_job *job, lh_plan_objective objective, bool front)
{
    lh_plan_options o = {.size = sizeof o,
                         .quick = true,
                         .objective = objective,
                         .pareto_front = front};
    lh_plan *plan = NULL;
    lh_error err = {0};
    CHECK_OK(lh_plan_make(job, &o, &plan, &err), err);
    return plan;
}

static void check_front(const lh_plan *plan, const all *a)
{
    CHECK(plan->pareto_complete);
    CHECK(plan->n_pareto > 0);
    for (uint32_t i = 0; i < plan->n_pareto; i++) {
        lhi_pareto_point p = lhi_pareto_point_of(&plan->pareto_front[i]);
        bool there = false;
        for (uint32_t k = 0; k < a->n && !there; k++)
            there = same_point(&p, &a->points[k]);
        CHECK_MSG(there, "%.6f s is no layout's", (double)p.iteration_ns / 1e9);
        CHECK_MSG(on_front(a, &p), "%.6f s, %.3f GiB, %g USD is beaten",
                  (double)p.iteration_ns / 1e9,
                  (double)p.memory_bytes / (1 << 30), p.usd);
        for (uint32_t k = 0; k < i; k++) {
            lhi_pareto_point other =
                lhi_pareto_point_of(&plan->pareto_front[k]);
            CHECK(!lhi_pareto_point_covers(&other, &p));
            CHECK(!lhi_pareto_point_covers(&p, &other));
        }
    }
    for (uint32_t k = 0; k < a->n; k++) {
        bool there = false;
        if (!on_front(a, &a->points[k]))
            continue;
        for (uint32_t i = 0; i < plan->n_pareto && !there; i++) {
            lhi_pareto_point p = lhi_pareto_point_of(&plan->pareto_front[i]);
            there = same_point(&p, &a->points[k]);
        }
        CHECK_MSG(there, "%.6f s, %.3f GiB, %g USD is missing",
                  (double)a->points[k].iteration_ns / 1e9,
                  (double)a->points[k].memory_bytes / (1 << 30),
                  a->points[k].usd);
    }
}

/* Each objective's result equals the exhaustive one. */
static void compare(const lh_job *job, uint32_t *n_front, uint32_t *idle)
{
    all a;
    find_all(job, &a);
    int64_t fastest = INT64_MAX;
    double cheapest = INFINITY;
    for (uint32_t i = 0; i < a.n; i++) {
        if (a.points[i].iteration_ns < fastest)
            fastest = a.points[i].iteration_ns;
        cheapest = fmin(cheapest, a.points[i].usd);
    }
    lh_plan *time = make(job, LH_PLAN_FASTEST, false);
    lh_plan *cost = make(job, LH_PLAN_CHEAPEST, false);
    lh_plan *both = make(job, LH_PLAN_FASTEST, true);
    lh_plan *front = make(job, LH_PLAN_CHEAPEST, true);
    if (time && cost && both && front) {
        CHECK_INT(time->best.iteration_ns, fastest);
        CHECK_INT(both->best.iteration_ns, fastest);
        CHECK_NEAR(cost->best.cost->usd, cheapest, 1e-12 * cheapest);
        CHECK_NEAR(front->best.cost->usd, cheapest, 1e-12 * cheapest);
        CHECK(time->n_pareto == 0 && cost->n_pareto == 0);
        CHECK_INT(cost->objective, LH_PLAN_CHEAPEST);
        for (uint32_t i = 1; i < cost->n_alternatives; i++)
            if (cost->alternatives[i].status == LH_CHOICE_OK)
                CHECK(cost->alternatives[i].cost->usd >=
                      cost->alternatives[i - 1].cost->usd);
        check_front(both, &a);
        check_front(front, &a);
        *n_front = both->n_pareto;
        *idle += cost->best.cost->gpus < job->n_gpus;
        CHECK_MSG(cost->n_simulated < a.n_layouts, "nothing was ruled out");
    }
    lh_plan_free(time);
    lh_plan_free(cost);
    lh_plan_free(both);
    lh_plan_free(front);
    free(a.points);
}

static void fronts_are_true(void)
{
    static const struct {
        double east_hour, gb, memory;
        const char *layout;
    } jobs[] = {
        {2, 0, 40, "{tensor: 2, micro_batch: 1}"},
        {2, 0.05, 40, "{tensor: 2, micro_batch: 1}"},
        {6, 0.01, 24, "{tensor: 1, micro_batch: 2}"},
        {1, 0.01, 16, "{micro_batch: 2, chunks_per_device: 1}"},
        {3, 0, 40, "{data: 1, micro_batch: 1, chunks_per_device: 2}"},
    };
    uint32_t most = 0, idle = 0;
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        lh_job *job = job_of(jobs[i].east_hour, jobs[i].gb, jobs[i].memory,
                             jobs[i].layout);
        uint32_t n = 0;
        compare(job, &n, &idle);
        most = n > most ? n : most;
        lh_job_free(job);
    }
    CHECK_MSG(most > 3, "fronts of at most %u show little", most);
    CHECK_MSG(idle > 0, "no cheapest plan leaves GPUs idle");
}

/* Spaces too large for a full search: the fastest plan is not cheaper. */
static void the_cheapest_is_no_dearer(void)
{
    static const char *const names[] = {"llama3-8b-gcp-regions",
                                        "mixtral-8x7b-two-sites"};
    for (size_t i = 0; i < 2; i++) {
        char path[200];
        lh_job *job = NULL;
        lh_error err = {0};
        double usd[2] = {0};
        snprintf(path, sizeof path, TEST_DATA "/../../examples/%s.yaml",
                 names[i]);
        CHECK_OK(lh_job_read(path, &job, &err), err);
        for (int goal = LH_PLAN_FASTEST; goal <= LH_PLAN_CHEAPEST; goal++) {
            lh_plan_options o = {.size = sizeof o,
                                 .quick = true,
                                 .objective = (lh_plan_objective)goal,
                                 .usd_per_gpu_hour = 2.5,
                                 .usd_per_gb = 0.02};
            lh_plan *plan = NULL;
            CHECK_OK(lh_plan_make(job, &o, &plan, &err), err);
            if (plan && plan->best.cost)
                usd[goal] = plan->best.cost->usd;
            lh_plan_free(plan);
        }
        CHECK_MSG(usd[1] > 0 && usd[1] <= usd[0], "%s: USD %g, and %g",
                  names[i], usd[0], usd[1]);
        lh_job_free(job);
    }
}

/* --- the front alone ------------------------------------------------------ */

static lh_choice choice_of(int64_t ns, int64_t bytes, const lh_plan_cost *cost)
{
    return (lh_choice){.status = LH_CHOICE_OK,
                       .iteration_ns = ns,
                       .peak_memory_bytes = bytes,
                       .cost = cost};
}

static void fronts_keep_what_is_best_in_something(void)
{
    static const lh_plan_cost usd[] = {{.usd = 1}, {.usd = 2}, {.usd = 3}};
    static const struct {
        int64_t ns, bytes;
        int cost;
        uint32_t n; /* resulting size of the front */
    } rows[] = {{10, 10, 1, 1}, {10, 10, 1, 1}, {11, 10, 1, 1}, {9, 11, 1, 2},
                {20, 20, 0, 3}, {9, 11, 2, 3},  {9, 10, 1, 2},  {1, 1, 0, 1}};
    lhi_pareto_front f = {.mem = lhi_arena_make(0)};
    lh_error err = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lh_choice c = choice_of(rows[i].ns, rows[i].bytes, &usd[rows[i].cost]);
        CHECK_OK(lhi_pareto_front_add(&f, &c, &err), err);
        CHECK_INT(f.n, rows[i].n);
    }
    lh_choice bad = choice_of(0, 0, NULL);
    bad.status = LH_CHOICE_MEMORY;
    CHECK_OK(lhi_pareto_front_add(&f, &bad, &err), err);
    CHECK_INT(f.n, 1);
    lhi_arena_free(f.mem);
}

/* --- errors, files -------------------------------------------------------- */

static void costs_need_prices(void)
{
    lh_plan_options o = {.size = sizeof o, .objective = LH_PLAN_CHEAPEST};
    lh_jitter jitter = {.size = sizeof jitter, .latency = 0.5};
    lh_job *job = job_with(JOB_SMALL, "%s", "");
    lh_plan *plan = NULL;
    lh_error err = {0};
    CHECK_INT(lh_plan_make(job, &o, &plan, &err), LH_EINVAL);
    CHECK_HAS(err.text, "set usd_per_gpu_hour (and usd_per_gb) in the job's");
    o.usd_per_gpu_hour = 2;
    o.jitter = &jitter;
    CHECK_INT(lh_plan_make(job, &o, &plan, &err), LH_EINVAL);
    CHECK_HAS(err.text, "cost and times under jitter cannot be combined");
    lh_job_free(job);
}

static void fronts_round_trip(void)
{
    lh_job *job = job_of(2, 0.05, 40, "{tensor: 2, micro_batch: 1}");
    lh_plan *plan = make(job, LH_PLAN_CHEAPEST, true);
    lh_plan *again = plan_again(plan, NULL);
    char *text = NULL;
    lh_error err = {0};
    if (again) {
        CHECK_INT(again->objective, LH_PLAN_CHEAPEST);
        CHECK_INT(again->n_pareto, plan->n_pareto);
        CHECK(again->pareto_complete);
    }
    lh_plan_free(again);
    /* The second entry equals the first. */
    lh_choice *front = (lh_choice *)plan->pareto_front;
    CHECK(plan->n_pareto > 1);
    front[1] = front[0];
    CHECK_OK(lh_plan_format(plan, &text, NULL, &err), err);
    plan_refused(text, "front: entry 0 is at least as good as entry 1");
    lh_text_free(text);
    lh_plan_free(plan);
    lh_job_free(job);
}

/* A partition's layers may be overwritten by the next evaluation. */
static void fronts_own_their_layers(void)
{
    lhi_pareto_front front = {.mem = lhi_arena_make(0)};
    uint32_t layers[] = {5, 3};
    lh_choice choice = {.status = LH_CHOICE_OK,
                        .layout = {.pipeline = 2, .chunks_per_device = 1},
                        .iteration_ns = 10,
                        .chunk_layers = layers};
    lh_error err = {0};
    CHECK_OK(lhi_pareto_front_add(&front, &choice, &err), err);
    layers[0] = layers[1] = 9;
    CHECK_INT(front.n, 1);
    CHECK(front.n == 1 && front.all[0].chunk_layers[0] == 5 &&
          front.all[0].chunk_layers[1] == 3);
    lhi_arena_free(front.mem);
}

/* Counts from the search's progress. */
typedef struct watched {
    uint64_t closed[8]; /* layouts at the end of each search */
    int n;
} watched;

static bool watch_searches(void *context, const lh_plan_progress *now)
{
    watched *w = context;
    if (w->n == 0 || now->n_closed < w->closed[w->n - 1])
        w->n += w->n < 8;
    w->closed[w->n - 1] = now->n_closed;
    return false;
}

/* The last search, for the front alone, has a third of the budget, so it closes
 * fewer layouts than the search for the objective. The search for the cheapest
 * plan between them begins with the fastest plan, and does not search it again.
 */
static void the_front_shares_work(void)
{
    watched w = {0};
    lh_plan *plan = NULL;
    lh_error err = {0};
    lh_job *job = job_of(2, 0.01, 40, "{}");
    lh_plan_options o = {.size = sizeof o,
                         .pareto_front = true,
                         .no_optimal = true,
                         .partition = LH_PARTITION_EVEN,
                         .layout_effort = 60000,
                         .layout_progress = watch_searches,
                         .context = &w};
    CHECK_OK(lh_plan_make(job, &o, &plan, &err), err);
    CHECK_INT(w.n, 3);
    CHECK_MSG(w.n == 3 && w.closed[2] < w.closed[0],
              "%d layouts of the first search and %d of the last",
              (int)w.closed[0], (int)w.closed[2]);
    lh_plan_free(plan);
    lh_job_free(job);
}

static bool differs(const char *dimension, const lh_choice *a,
                    const lh_choice *b)
{
    lhi_config x = lhi_config_from_choice(a), y = lhi_config_from_choice(b);
    for (int d = 0; d < LHI_N_DIMENSIONS; d++)
        if (strcmp(lhi_dimension_name((lhi_dimension)d), dimension) == 0)
            return d == LHI_DIMENSION_SCHEDULE
                       ? strcmp(a->layout.schedule, b->layout.schedule) != 0
                       : lhi_dimension_value((lhi_dimension)d, &x) !=
                             lhi_dimension_value((lhi_dimension)d, &y);
    return false;
}

/* The best alternative per dimension is no worse than any front entry with
 * another value in that dimension. */
static void check_runners(const lh_plan *plan, lh_plan_objective goal)
{
    for (uint32_t i = 0; i < plan->n_dimension_alternatives; i++)
        for (uint32_t k = 0; k < plan->n_pareto; k++) {
            const lh_choice *x = &plan->dimension_alternatives[i].choice,
                            *y = &plan->pareto_front[k];
            bool better = x->status != LH_CHOICE_OK ||
                          (goal == LH_PLAN_FASTEST
                               ? y->iteration_ns < x->iteration_ns
                               : y->cost->usd < x->cost->usd * (1 - 1e-9));
            CHECK_MSG(!better ||
                          !differs(plan->dimension_alternatives[i].dimension, y,
                                   &plan->best),
                      "another %s: %.6f s, but row %u has %.6f s",
                      plan->dimension_alternatives[i].dimension,
                      (double)x->iteration_ns / 1e9, k,
                      (double)y->iteration_ns / 1e9);
        }
}

/* Checks that plan candidate `c`, which the plan contains beside its front,
 * dominates no entry of the front. */
static void check_dominates_none(const lh_plan *plan, const char *where,
                                 const lh_choice *c)
{
    if (!c || c->status != LH_CHOICE_OK)
        return;
    const lhi_pareto_point p = lhi_pareto_point_of(c);
    for (uint32_t i = 0; i < plan->n_pareto; i++) {
        const lhi_pareto_point row =
            lhi_pareto_point_of(&plan->pareto_front[i]);
        CHECK_MSG(!lhi_pareto_point_covers(&p, &row) || same_point(&p, &row),
                  "%s: %.6f s, %.2f GiB dominates row %u: %.6f s, %.2f GiB",
                  where, (double)p.iteration_ns / 1e9,
                  (double)p.memory_bytes / 0x1p30, i,
                  (double)row.iteration_ns / 1e9,
                  (double)row.memory_bytes / 0x1p30);
    }
}

/* Checks that no plan candidate in the plan dominates an entry of its front. */
static void check_no_entry_is_dominated(const lh_plan *plan)
{
    check_dominates_none(plan, "plan", &plan->best);
    for (uint32_t i = 0; i < plan->n_methods; i++)
        check_dominates_none(plan, "method", &plan->methods[i]);
    for (uint32_t i = 0; i < plan->n_alternatives; i++)
        check_dominates_none(plan, "alternative", &plan->alternatives[i]);
    for (uint32_t i = 0; i < plan->n_dimension_alternatives; i++)
        check_dominates_none(plan, plan->dimension_alternatives[i].dimension,
                             &plan->dimension_alternatives[i].choice);
    for (uint32_t i = 0; i < plan->n_idle; i++)
        check_dominates_none(plan, "idle GPUs", plan->idle[i].best);
    if (plan->margin)
        check_dominates_none(plan, "margin", plan->margin->best);
}

/* A short search for the fastest may miss a plan found by those for the front;
 * that one becomes the plan, with its schedule and its time. */
static void check_is_on_its_front(const lh_job *job, uint64_t effort,
                                  lh_plan_objective goal)
{
    lh_plan_options o = {.size = sizeof o,
                         .pareto_front = true,
                         .effort = effort,
                         .objective = goal};
    lh_plan *plan = NULL;
    lh_error err = {0};
    lh_verdict *verdict = NULL;
    CHECK_OK(lh_plan_make(job, &o, &plan, &err), err);
    const lh_choice *best = &plan->best;
    for (uint32_t i = 0; i < plan->n_pareto; i++) {
        const lh_choice *row = &plan->pareto_front[i];
        bool better = goal == LH_PLAN_FASTEST
                          ? row->iteration_ns < best->iteration_ns
                          : row->cost->usd < best->cost->usd;
        CHECK_MSG(!better, "effort %d: row %u of the front has %.6f s",
                  (int)effort, i, (double)row->iteration_ns / 1e9);
    }
    CHECK(plan->search_bound_ns <= best->iteration_ns);
    check_runners(plan, goal);
    check_no_entry_is_dominated(plan);
    for (uint32_t i = 0; i < plan->n_alternatives; i++)
        CHECK(plan->alternatives[i].status != LH_CHOICE_OK ||
              !lhi_choices_share_pipeline(&plan->alternatives[i], best));
    CHECK_OK(lh_check(plan->pipeline, plan->schedule, &verdict, &err), err);
    CHECK(lh_verdict_valid(verdict));
    CHECK_INT(lh_verdict_makespan(verdict), best->makespan_ns);
    lh_verdict_free(verdict);
    lh_plan_free(plan_again(plan, NULL));
    lh_plan_free(plan);
}

static void no_row_of_the_front_beats_the_plan(void)
{
    static const struct {
        int layers, hidden, batch, memory_gib, gpus, west, east, ms, gbps;
    } cases[] = {{8, 1024, 8, 10, 4, 4, 2, 20, 50},
                 {7, 2048, 8, 4, 4, 2, 3, 20, 10}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lh_job *job = job_with(
            JOB_SMALL,
            "  gpu: {tflops: 312, memory_gib: %d, memory_gbps: 2039}\n"
            "  gpus_per_node: %d\n"
            "  node_link: {gbps: 2400, latency_us: 3}\n"
            "  fabric: {gbps: 100, latency_us: 5}\n"
            "  usd_per_gpu_hour: 2\n"
            "  usd_per_gb: 0.01\n"
            "  datacenters: [{name: west, nodes: %d}, {name: east, "
            "nodes: %d}]\n"
            "  links: [{between: [west, east], latency_ms: %d, gbps: %d}]\n"
            "model: {layers: %d, hidden: %d, ffn: %d, heads: 16, "
            "vocab: 32000}\n"
            "training: {global_batch: %d, sequence: 2048}\n",
            cases[i].memory_gib, cases[i].gpus, cases[i].west, cases[i].east,
            cases[i].ms, cases[i].gbps, cases[i].layers, cases[i].hidden,
            4 * cases[i].hidden, cases[i].batch);
        check_is_on_its_front(job, 50, LH_PLAN_FASTEST);
        if (i == 0)
            check_is_on_its_front(job, 50, LH_PLAN_CHEAPEST);
        lh_job_free(job);
    }
}

/* The knee has the least product of time and cost; the near entry is the
 * cheapest within 1 %. */
static void the_knee_has_the_least_product(void)
{
    static const struct {
        int64_t ns;
        double usd;
    } points[] = {{1000, 100}, {1008, 67}, {1100, 90}, {1175, 34}, {3000, 30}};
    lh_plan_cost costs[5];
    lh_choice front[5];
    lh_plan plan = {.n_pareto = 5, .pareto_front = front};
    uint32_t knee, near;
    for (int i = 0; i < 5; i++) {
        costs[i] = (lh_plan_cost){.usd = points[i].usd};
        front[i] = (lh_choice){.iteration_ns = points[i].ns, .cost = &costs[i]};
    }
    lhi_pareto_front_find_knee(&plan, &knee, &near);
    CHECK_INT(knee, 3);
    CHECK_INT(near, 1);
    costs[3].usd = 95; /* nothing is worth its time but the near entry */
    lhi_pareto_front_find_knee(&plan, &knee, &near);
    CHECK_INT(knee, 1);
    for (int i = 0; i < 5; i++)
        front[i].cost = NULL;
    lhi_pareto_front_find_knee(&plan, &knee, &near);
    CHECK_INT(knee, 0);
    CHECK_INT(near, 0);
}

int main(void)
{
    RUN(the_knee_has_the_least_product);
    RUN(the_front_shares_work);
    RUN(fronts_keep_what_is_best_in_something);
    RUN(costs_need_prices);
    RUN(fronts_are_true);
    RUN(the_cheapest_is_no_dearer);
    RUN(fronts_round_trip);
    RUN(fronts_own_their_layers);
    RUN(no_row_of_the_front_beats_the_plan);
    return test_summary();
}
