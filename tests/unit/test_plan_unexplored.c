/* SPDX-License-Identifier: Apache-2.0 */
/* Every statement of a plan accounts for the unexplored part of the search. */
#include "jobs.h"
#include "plans.h"

#include "planner/layout/choice.h"
#include "planner/search/plan_search.h"

#include <longhaul/experimental/plan.h>
#include <math.h>
#include <stdlib.h>

/* Lines in place of the job's: sites and training. */
#define USUAL "training: {global_batch: 48, sequence: 4096}\n"
#define UNEQUAL                                                                \
    "  datacenters: [{name: west, nodes: 1}, {name: east, nodes: 2}]\n"        \
    "training: {global_batch: 48, sequence: 4096, zero: 1}\n"
static const char *changed = USUAL;

static lh_job *job_of(const char *layout)
{
    return job_with(JOB_A100S, "%slayout: {%s}\n", changed, layout);
}

/* Stops a search after a number of simulations. */
typedef struct watcher {
    uint32_t simulated; /* before stopping the search; 0: never */
} watcher;

static bool watch(void *context, uint32_t done, uint32_t total, int64_t best_ns)
{
    const watcher *w = context;
    (void)total;
    return w->simulated && best_ns > 0 && done >= w->simulated;
}

static lh_plan *make_for(lh_plan_objective goal, const char *layout,
                         uint32_t simulated)
{
    lh_plan *plan = NULL;
    lh_error err = {0};
    lh_job *job = job_of(layout);
    watcher w = {simulated};
    lh_plan_options o = {.size = sizeof o,
                         .no_optimal = true,
                         .objective = goal,
                         .usd_per_gpu_hour = 2,
                         .partition = LH_PARTITION_EVEN,
                         .progress = watch,
                         .context = &w};
    CHECK_OK(lh_plan_make(job, &o, &plan, &err), err);
    lh_job_free(job);
    return plan;
}

static lh_plan *make(const char *layout, uint32_t simulated)
{
    return make_for(LH_PLAN_FASTEST, layout, simulated);
}

static void check_counts(const lh_plan *p)
{
    CHECK_INT(p->n_layouts,
              p->n_memory + p->n_bounded + p->n_simulated + p->n_unexplored);
    uint64_t ruled_out = 0;
    for (uint32_t i = 0; i < p->n_pruned; i++)
        ruled_out += p->pruned[i].n;
    CHECK_INT(p->n_bounded, ruled_out);
    for (uint32_t i = 0; i < p->n_alternatives; i++)
        CHECK_MSG(p->alternatives[i].status != LH_CHOICE_MEMORY ||
                      p->alternatives[i].layout.schedule,
                  "alternative %u does not say what does not fit", i);
}

/* The reason says "fastest of" exactly if all layouts were closed and nothing
 * faster is proven possible. */
static void fastest_only_if_closed(void)
{
    lh_plan *whole = make("", 0);
    CHECK_INT(whole->n_unexplored, 0);
    CHECK_INT(whole->n_elastic_unexplored, 0);
    CHECK(whole->n_elastic > 0);
    CHECK(whole->search_bound_ns < whole->best.iteration_ns);
    CHECK_HAS(whole->best.why, "best found, all of ");
    CHECK_HAS(whole->best.why, " % faster is possible");
    CHECK(!strstr(whole->best.why, "fastest"));
    check_counts(whole);
    lh_plan *only = make("pipeline: 1, data: 1, tensor: 4, context: 1, "
                         "micro_batch: 4",
                         0);
    CHECK((double)only->best.iteration_ns <
          1.0005 * (double)only->search_bound_ns);
    CHECK_HAS(only->best.why, "the fastest of ");
    lh_plan_free(only);
    for (uint32_t n = 1; n < 9; n += 7) {
        char left[100];
        lh_plan *part = make("", n);
        CHECK(part->n_unexplored > 0);
        check_counts(part);
        CHECK(!strstr(part->best.why, "fastest"));
        CHECK(part->n_elastic_unexplored > 0);
        snprintf(left, sizeof left,
                 "best found; %u layouts and elastic plans on %u not explored",
                 part->n_unexplored, part->n_elastic_unexplored);
        CHECK_HAS(part->best.why, left);
        CHECK_HAS(part->best.why, " % faster is possible");
        CHECK(part->search_bound_ns <= whole->best.iteration_ns);
        CHECK(whole->best.iteration_ns <= part->best.iteration_ns);
        lh_plan_free(part);
    }
    lh_plan_free(whole);
}

static const lh_plan_dimension_alternative *find(const lh_plan *p,
                                                 const char *dimension)
{
    for (uint32_t i = 0; i < p->n_dimension_alternatives; i++)
        if (strcmp(p->dimension_alternatives[i].dimension, dimension) == 0)
            return &p->dimension_alternatives[i];
    return NULL;
}

/* Alternatives per dimension account for unexplored layouts: with the dimension
 * fixed to any other value, no plan is below the stated bound. */
static void check_runners(uint32_t simulated)
{
    static const uint32_t values[] = {1, 2, 4, 8, 16};
    static const char *const names[] = {"tensor", "pipeline", "data",
                                        "chunks_per_device"};
    lh_plan *part = make("", simulated);
    const lh_layout *l = &part->best.layout;
    const uint32_t own[] = {l->tensor, l->pipeline, l->data,
                            l->chunks_per_device};
    for (size_t i = 0; part && i < 4; i++) {
        const lh_plan_dimension_alternative *r = find(part, names[i]);
        for (size_t k = 0; r && k < 5; k++) {
            char layout[60];
            lh_error err = {0};
            lh_plan *p = NULL;
            if (values[k] == own[i])
                continue;
            snprintf(layout, sizeof layout, "%s: %u", names[i], values[k]);
            lh_job *job = job_of(layout);
            lh_plan_options o = {.size = sizeof o, .quick = true};
            lh_status status = lh_plan_make(job, &o, &p, &err);
            lh_job_free(job);
            if (status != LH_OK)
                continue;
            double percent = 100 * ((double)p->best.iteration_ns /
                                        (double)part->best.iteration_ns -
                                    1);
            double said =
                100 *
                ((double)r->bound_ns / (double)part->best.iteration_ns - 1);
            const char *text = strstr(r->choice.why, "none is below ");
            CHECK(r->bound_ns >= 0 &&
                  (!text || fabs(strtod(text + strlen("none is below "), NULL) -
                                 said) < 0.051));
            CHECK_MSG(said < percent + 1e-6, "%s: %s, but %u is %+.2f %%",
                      names[i], r->choice.why, values[k], percent);
            lh_plan_free(p);
        }
    }
    lh_plan_free(part);
}

static void no_plan_is_below_what_is_said(void)
{
    for (uint32_t simulated = 1; simulated < 9; simulated += 7)
        check_runners(simulated);
    check_runners(0);
}

/* An alternative is not called slower or more expensive unless a bound proves
 * it. */
static uint32_t check_alternatives(const lh_plan *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->n_alternatives; i++) {
        const lh_choice *c = &p->alternatives[i];
        if (c->status != LH_CHOICE_BOUNDED)
            continue;
        bool cost = p->objective == LH_PLAN_CHEAPEST;
        double hours = (double)c->lower_bound_ns / 3.6e12;
        const lh_layout *l = &c->layout;
        double gpus = (double)l->tensor * l->context * l->pipeline * l->data;
        bool may_win = cost ? 2 * ceil(gpus / 4) * 4 * hours <
                                  p->best.cost->usd * (1 - 1e-9)
                            : c->lower_bound_ns < p->best.iteration_ns;
        bool said = strstr(c->why, "not simulated when the search ended");
        CHECK_MSG(said == may_win, "%s, of %g to %g hours", c->why, hours,
                  (double)p->best.iteration_ns / 3.6e12);
        n += may_win && (!cost || c->lower_bound_ns >= p->best.iteration_ns);
    }
    return n;
}

static void alternatives_say_if_nobody_looked(void)
{
    changed = UNEQUAL;
    for (int goal = LH_PLAN_FASTEST; goal <= LH_PLAN_CHEAPEST; goal++) {
        uint32_t n = 0;
        for (uint32_t simulated = 2; simulated < 9; simulated += 3) {
            lh_plan *part = make_for((lh_plan_objective)goal, "", simulated);
            check_counts(part);
            n += check_alternatives(part);
            lh_plan_free(part);
        }
        CHECK_MSG(n > 0 || goal == LH_PLAN_FASTEST, "no cheaper one was left");
    }
    changed = USUAL;
}

static void nonsense_is_refused(void)
{
    lh_job *job = job_of("");
    const double no_seconds[] = {-1, NAN, INFINITY};
    for (int i = 0; i < 3; i++) {
        lh_plan *plan = NULL;
        lh_error err = {0};
        lh_plan_options o = {.size = sizeof o, .seconds = no_seconds[i]};
        CHECK_INT(lh_plan_make(job, &o, &plan, &err), LH_EINVAL);
        CHECK_HAS(err.text, "lh_plan_options.seconds is ");
        lh_plan_free(plan);
    }
    lh_job_free(job);
}

/* Values allowed in a job but never tried by a search are reported. */
static void what_lies_beyond_the_space_is_said(void)
{
    static const struct {
        const char *lines, *says; /* NULL: nothing */
    } cases[] = {
        {"layout: {tensor: 4, context: 2, micro_batch: 8}\n", NULL},
        {"layout: {tensor: 8}\n", NULL}, /* two nodes with 4 */
        {"  gpus_per_node: 8\nlayout: {tensor: 16}\n", "tensor 16"},
        {"layout: {context: 4}\n", "context 4 (1024 tokens a GPU)"},
        {"layout: {micro_batch: 16, data: 1, chunks_per_device: 5}\n",
         "micro_batch 16, chunks_per_device 5"},
        {"training: {global_batch: 32, sequence: 4096, zero: 0}\n", "zero 0"},
        {"training: {global_batch: 32, sequence: 4096, "
         "recompute: [core_attn]}\n",
         "recompute by modules"},
        {"layout: {pipeline: 2, chunks_per_device: 1, layers: [32, 0]}\n",
         "chunks without layers"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        lh_plan *plan = NULL;
        lh_error err = {0};
        lh_job *job = job_with(JOB_A100S, "%s", cases[i].lines);
        lh_plan_options o = {.size = sizeof o,
                             .no_optimal = true,
                             .layout_effort = 20000,
                             .partition = LH_PARTITION_EVEN};
        CHECK_OK(lh_plan_make(job, &o, &plan, &err), err);
        if (plan && cases[i].says)
            CHECK_STR(plan->outside_search_space, cases[i].says);
        else if (plan)
            CHECK(!plan->outside_search_space);
        if (plan)
            plan_reads_back(plan);
        lh_plan_free(plan);
        lh_job_free(job);
    }
}

/* One GPU per node and one sequence at a time: tensor ranks share a layer over
 * the fabric, or wait for each other in a pipeline. */
static void small_nodes_hold_tensor_ranks_together(void)
{
    lh_plan *plans[2] = {NULL, NULL};
    lh_error err = {0};
    for (int i = 0; i < 2; i++) {
        lh_job *job = job_with(JOB_A100S,
                               "  gpus_per_node: 1\n"
                               "  fabric: {gbps: 800, latency_us: 3}\n"
                               "training: {global_batch: 1, sequence: 2048}\n"
                               "layout: {%s}\n",
                               i ? "tensor: 2" : "");
        lh_plan_options o = {.size = sizeof o, .no_optimal = true};
        CHECK_OK(lh_plan_make(job, &o, &plans[i], &err), err);
        lh_job_free(job);
    }
    CHECK(plans[0]->best.layout.tensor > 1 && !plans[1]->outside_search_space);
    CHECK(plans[0]->best.iteration_ns <= plans[1]->best.iteration_ns);
    for (int i = 0; i < 2; i++)
        lh_plan_free(plans[i]);
}

/* Returns the best evaluated choice with another value in the dimension; only
 * that one is reported. */
static int64_t best_other(const lhi_unexplored *u, lhi_dimension d,
                          const lhi_config *own)
{
    int64_t best = INT64_MAX;
    for (uint32_t i = 0; i < u->heads.n; i++) {
        const lhi_best_with_value *h = &u->heads.all[i];
        if (h->dimension == d && h->value != lhi_dimension_value(d, own) &&
            h->choice.iteration_ns < best)
            best = h->choice.iteration_ns;
    }
    return best;
}

/* Local search skips layouts that a bound excludes as the plan and as the best
 * alternative, and only those. */
static void dives_are_for_what_bounds_leave(void)
{
    lh_error err = {0};
    lh_plan p = {0};
    uint32_t closed = 0, left = 0;
    lh_job *job = job_of("micro_batch: 1, context: 1");
    lhi_unexplored u = {.job = job};
    lhi_arena *mem = lhi_arena_make(0);
    lh_plan_options o = {
        .size = sizeof o, .no_optimal = true, .partition = LH_PARTITION_EVEN};
    CHECK_OK(lhi_plan_search(job, &o, mem, &u, 0, NULL, &p, &err), err);
    const lhi_config own = lhi_config_from_choice(&p.best);
    for (uint32_t i = 0; i < u.heads.n; i++) {
        const lhi_best_with_value *h = &u.heads.all[i];
        if (h->dimension >= LHI_DIMENSION_SCHEDULE)
            continue;
        int64_t other = best_other(&u, h->dimension, &own);
        int64_t most =
            other > p.best.iteration_ns ? other : p.best.iteration_ns;
        bool is_closed =
            lhi_unexplored_bound_with_value(&u, h->dimension, h->value) >= most;
        closed += is_closed;
        left += !is_closed && h->is_local_optimum;
        CHECK_MSG(!is_closed || !h->is_local_optimum, "%s %.0f was dived for",
                  lhi_dimension_name(h->dimension), (double)h->value);
    }
    CHECK_MSG(closed > 3 && left > 3, "%u closed, %u left", closed, left);
    lh_pipeline_free((lh_pipeline *)p.pipeline);
    lh_schedule_free((lh_schedule *)p.schedule);
    lhi_unexplored_fini(&u);
    lhi_arena_free(mem);
    lh_job_free(job);
}

/* A ZeRO stage without effect on the plan is reported as equal: a job that
 * fixes it has the same plan. */
static void stages_without_effect_are_equal(void)
{
    lh_plan_options o = {.size = sizeof o, .effort = 1};
    lh_plan *open = NULL, *fixed = NULL;
    lh_job *job = NULL;
    lh_error err = {0};
    CHECK_OK(lh_job_read(TEST_DATA "/planner/zero-without-replicas.json", &job,
                         &err),
             err);
    CHECK_OK(lh_plan_make(job, &o, &open, &err), err);
    job->training.zero_given = true;
    job->training.zero = 2;
    CHECK_OK(lh_plan_make(job, &o, &fixed, &err), err);
    CHECK_INT(open->best.layout.data, 1);
    const lh_plan_dimension_alternative *r = find(open, "zero");
    CHECK_INT(r->choice.zero, 2);
    CHECK_INT(r->choice.iteration_ns, fixed->best.iteration_ns);
    CHECK(r->bound_ns <= fixed->best.iteration_ns);
    CHECK_HAS(r->choice.why, "+0.0 %, no effect on this layout");
    lh_plan_free(open);
    lh_plan_free(fixed);
    lh_job_free(job);
}

/* Merges a plan of `ns` with the bound bound_ns with a repeated search's, and
 * checks the result. */
static void merge(int64_t ns, int64_t bound_ns, int64_t repeat_ns,
                  int64_t repeat_bound_ns, int64_t expected_bound_ns,
                  const char *expected)
{
    const lh_plan_options o = {.size = sizeof o, .seconds = 1};
    lhi_unexplored u = {.job = NULL}, v = {.job = NULL};
    lhi_arena *mem = lhi_arena_make(0);
    lh_error err = {0};
    lh_plan plans[] = {
        {.search_bound_ns = bound_ns, .best.iteration_ns = ns},
        {.search_bound_ns = repeat_bound_ns, .best.iteration_ns = repeat_ns}};
    char why[2][LHI_OPTIMALITY_TEXT + 8];
    for (int i = 0; i < 2; i++) {
        char standing[LHI_OPTIMALITY_TEXT];
        plans[i].n_layouts = plans[i].n_unexplored = 7;
        lhi_format_plan_optimality(&plans[i], &o, standing, sizeof standing);
        snprintf(why[i], sizeof why[i], "%s; end", standing);
        plans[i].best.why = why[i];
    }
    CHECK_OK(lhi_plan_merge_repeat(&o, mem, &plans[1], &v, &plans[0], &u, &err),
             err);
    CHECK_INT(plans[0].best.iteration_ns, repeat_ns < ns ? repeat_ns : ns);
    CHECK_INT(plans[0].search_bound_ns, expected_bound_ns);
    CHECK_HAS(plans[0].best.why, expected);
    CHECK_HAS(plans[0].best.why, "; end");
    lhi_arena_free(mem);
}

/* Repeated searches of a job each prove a lower bound on every plan, so the
 * greatest holds for the best plan, wherever it was found. */
static void repeats_keep_the_greatest_bound(void)
{
    merge(1000, 800, 1000, 900, 900, "at most 11.1 % faster");
    merge(1000, 800, 1100, 900, 900, "at most 11.1 % faster");
    merge(1000, 900, 990, 800, 900, "at most 10.0 % faster");
    merge(1000, 800, 1100, 1050, 1000, "7 layouts not explored; end");
}

/* A layout that was not simulated has a possible gain in per cent only if its
 * lower bound is near the plan: 1000 / 900 - 1 = 11.1 %. */
static void loose_bounds_give_no_number(void)
{
    const lh_plan_options o = {.size = sizeof o};
    const char *why = "not simulated when the search ended; ...: all work";
    lh_choice list[2] = {{.status = LH_CHOICE_BOUNDED, .why = why},
                         {.status = LH_CHOICE_BOUNDED, .why = why}};
    lh_plan plan = {.best = {.status = LH_CHOICE_OK, .iteration_ns = 1000}};
    lhi_arena *mem = lhi_arena_make(0);
    lh_error err = {0};
    list[0].lower_bound_ns = 900;
    list[1].lower_bound_ns = 364; /* 174.7 % */
    CHECK_OK(lhi_plan_renew_reasons(&o, mem, &plan, list, 2, &err), err);
    CHECK_HAS(list[0].why, "; at most 11.1 % faster by its lower bound: all");
    CHECK_HAS(list[1].why, "; its lower bound does not rule it out: all work");
    CHECK(!strstr(list[1].why, " %"));
    lhi_arena_free(mem);
}

int main(void)
{
    RUN(repeats_keep_the_greatest_bound);
    RUN(stages_without_effect_are_equal);
    RUN(alternatives_say_if_nobody_looked);
    RUN(nonsense_is_refused);
    RUN(fastest_only_if_closed);
    RUN(no_plan_is_below_what_is_said);
    RUN(what_lies_beyond_the_space_is_said);
    RUN(small_nodes_hold_tensor_ranks_together);
    RUN(dives_are_for_what_bounds_leave);
    RUN(loose_bounds_give_no_number);
    return test_summary();
}
