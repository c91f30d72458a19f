/* SPDX-License-Identifier: Apache-2.0 */
/* Plans chosen under varying delays. */
#include "jobs.h"
#include "plans.h"

#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/plan.h>
#include <longhaul/simulate.h>

#include <stdlib.h>

static lh_job *job_of(const char *layout)
{
    return job_with(JOB_A100S, "layout: {tensor: 2%s}\n", layout);
}

static lh_plan *make(const lh_job *job, const lh_jitter *jitter,
                     lh_plan_statistic by, uint32_t top)
{
    lh_plan *plan = NULL;
    lh_error err = {0};
    lh_plan_options o = {.size = sizeof o,
                         .effort = 20000,
                         .layout_effort = LITTLE_WORK,
                         .top = top,
                         .jitter = jitter,
                         .statistic = by};
    CHECK_OK(lh_plan_make(job, &o, &plan, &err), err);
    return plan;
}

static const lh_jitter rough = {.size = sizeof rough,
                                .latency = 1,
                                .transfer = 0.3,
                                .degraded_probability = 0.1,
                                .degraded_factor = 8,
                                .samples = 40,
                                .seed = 3};

static void check_text(const lh_plan *p)
{
    lh_plan *again = plan_again(p, NULL);
    if (again) {
        CHECK(again->robust &&
              again->robust->statistic == p->robust->statistic);
        CHECK(again->robust && again->robust->jitter.latency == 1 &&
              again->robust->jitter.seed == 3);
        CHECK(again->best.jitter &&
              again->best.jitter->p95_ns == p->best.jitter->p95_ns);
    }
    lh_plan_free(again);
}

/* Checks that its numbers equal a simulation of its schedule. */
static void check_numbers(const lh_job *job, const lh_plan *p)
{
    lh_jitter j;
    lh_jitter_result r = {0};
    lh_error err = {0};
    CHECK_OK(lh_plan_jitter(job, &p->best, &rough, &j, &err), err);
    int64_t after = p->best.optimizer_ns + p->best.overhead_ns;
    CHECK_OK(lh_jitter_run(p->pipeline, p->schedule, NULL, &j, &r, &err), err);
    CHECK_INT(p->best.jitter->p95_ns, r.p95_ns + after);
    CHECK_INT(p->best.jitter->max_ns, r.max_ns + after);
    CHECK_NEAR(p->best.jitter->mean_ns, r.mean_ns + (double)after, 1);
}

/* Checks that no layout found by the search is better, with any method. */
static void check_others(const lh_job *job, const lh_plan *nominal,
                         const lh_plan *p, const lh_jitter *given)
{
    uint32_t looked_at = 0;
    for (uint32_t i = 0; i < nominal->n_alternatives; i++) {
        const lh_choice *c = &nominal->alternatives[i];
        lh_jitter j;
        lh_pipeline *q = NULL;
        int64_t after;
        lh_error err = {0};
        CHECK_OK(lh_plan_jitter(job, c, given, &j, &err), err);
        if (c->chunk_layers || c->elastic)
            continue;
        CHECK_OK(lh_plan_pipeline(job, &c->layout, c->placement, c->recompute,
                                  &q, &after, &err),
                 err);
        for (uint32_t m = 0; q && m < lh_n_methods(); m++) {
            lh_schedule *s = NULL;
            lh_timeline *t = NULL;
            lh_jitter_result r;
            if (strcmp(lh_method_name(m), "auto") == 0 ||
                strcmp(lh_method_name(m), "look-ahead") == 0 ||
                lh_method_run(lh_method_name(m), q, NULL, &s, NULL, NULL) !=
                    LH_OK)
                continue;
            CHECK_OK(lh_simulate(q, s, NULL, &t, &err), err);
            if (t && lh_timeline_fits(t, NULL)) {
                looked_at++;
                CHECK_OK(lh_jitter_run(q, s, NULL, &j, &r, &err), err);
                CHECK_MSG(r.p95_ns + after >= p->best.jitter->p95_ns,
                          "%s on alternative %" PRIu32 ": %" PRId64
                          " < %" PRId64,
                          lh_method_name(m), i, r.p95_ns + after,
                          p->best.jitter->p95_ns);
            }
            lh_timeline_free(t);
            lh_schedule_free(s);
        }
        lh_pipeline_free(q);
    }
    CHECK_MSG(looked_at > 30, "only %" PRIu32 " looked at", looked_at);
}

static void choice_differs(void)
{
    lh_job *job = job_of(", micro_batch: 1, chunks_per_device: 1");
    lh_plan *nominal = make(job, NULL, 0, 1000);
    lh_plan *p = make(job, &rough, LH_PLAN_BY_P95, 0);
    lh_plan *mean = make(job, &rough, LH_PLAN_BY_MEAN, 0);
    CHECK(!nominal->robust && !nominal->best.jitter);
    CHECK(p->robust && p->robust->n_unevaluated == 0 && p->robust->complete);
    CHECK(p->best.iteration_ns > nominal->best.iteration_ns);
    CHECK_HAS(p->best.why, "the lowest 95th percentile under jitter");
    CHECK(mean->best.jitter->mean_ns <= p->best.jitter->mean_ns);
    CHECK(mean->best.jitter->p95_ns >= p->best.jitter->p95_ns);
    CHECK_STR(p->methods[0].layout.schedule, p->best.layout.schedule);
    CHECK(p->methods[0].jitter == p->best.jitter);
    CHECK_INT(p->n_alternatives, 10);
    CHECK_INT(p->n_layouts, p->n_memory + p->n_bounded + p->n_simulated);
    for (uint32_t i = 0; i < p->n_alternatives; i++)
        CHECK(!p->alternatives[i].jitter ||
              p->alternatives[i].jitter->p95_ns >= p->best.jitter->p95_ns);
    check_numbers(job, p);
    check_numbers(job, mean);
    check_others(job, nominal, p, &rough);
    check_text(p);
    lh_plan_free(nominal);
    lh_plan_free(p);
    lh_plan_free(mean);
    lh_job_free(job);
}

/* Degraded in 3 % of the iterations, invisible to the 95th percentile: no
 * reason to give up a schedule. */
static void rare_is_forgiven(void)
{
    lh_job *job = job_of(", micro_batch: 1, chunks_per_device: 1");
    lh_jitter rare = {.size = sizeof rare,
                      .latency = 4,
                      .transfer = 2,
                      .degraded_probability = 0.01,
                      .degraded_factor = 100,
                      .samples = 100,
                      .seed = 1};
    lh_plan *nominal = make(job, NULL, 0, 1000);
    lh_plan *p = make(job, &rare, LH_PLAN_BY_P95, 1);
    CHECK(p->best.iteration_ns > nominal->best.iteration_ns);
    CHECK(p->best.jitter->max_ns > 2 * p->best.jitter->p95_ns);
    check_others(job, nominal, p, &rare);
    lh_plan_free(nominal);
    lh_plan_free(p);
    lh_job_free(job);
}

static void same_again(void)
{
    lh_job *job = job_of(", data: 1, context: 1, micro_batch: 1");
    char *text[2] = {NULL, NULL};
    lh_error err = {0};
    for (int i = 0; i < 2; i++) {
        lh_plan *p = make(job, &rough, LH_PLAN_BY_MEAN, 3);
        CHECK_OK(lh_plan_format(p, &text[i], NULL, &err), err);
        lh_plan_free(p);
    }
    CHECK_STR(text[0], text[1]);
    lh_text_free(text[0]);
    lh_text_free(text[1]);
    lh_job_free(job);
}

/* Without variation: the same plan, and every iteration takes its time. */
static void nothing_varies(void)
{
    lh_job *job = job_of(", data: 2, context: 1, micro_batch: 1");
    lh_jitter none = {.size = sizeof none, .samples = 3};
    lh_plan *nominal = make(job, NULL, 0, 0);
    lh_plan *p = make(job, &none, LH_PLAN_BY_P95, 0);
    CHECK_INT(p->best.iteration_ns, nominal->best.iteration_ns);
    CHECK_INT(p->best.jitter->min_ns, p->best.iteration_ns);
    CHECK_INT(p->best.jitter->max_ns, p->best.iteration_ns);
    CHECK_HAS(p->best.why, "the fastest without jitter and by the 95th");
    lh_plan_free(nominal);
    lh_plan_free(p);
    lh_job_free(job);
}

static void what_is_drawn(void)
{
    lh_job *job = job_of("");
    lh_jitter given = {.size = sizeof given, .straggler_probability = 0.001};
    lh_choice c = {.layout = {.tensor = 2,
                              .context = 1,
                              .expert = 1,
                              .pipeline = 2,
                              .data = 4,
                              .outermost = LH_OUTERMOST_PIPELINE}};
    lh_jitter j;
    lh_error err = {0};
    CHECK_OK(lh_plan_jitter(job, &c, &given, &j, &err), err);
    CHECK_NEAR(j.straggler_probability, 1 - pow(0.999, 8), 1e-15);
    CHECK(!j.shared_data_link);
    c.layout.outermost = LH_OUTERMOST_DATA;
    CHECK_OK(lh_plan_jitter(job, &c, &given, &j, &err), err);
    CHECK(j.shared_data_link);
    given.straggler_probability = 1;
    CHECK_OK(lh_plan_jitter(job, &c, &given, &j, &err), err);
    CHECK(j.straggler_probability == 1);
    lh_job_free(job);
}

static bool note_search(void *context, uint32_t done, uint32_t total,
                        int64_t best_ns)
{
    (void)done, (void)total, (void)best_ns;
    *(bool *)context = true;
    return false;
}

static void refusals(void)
{
    bool searched = false;
    lh_job *job = job_of(", data: 1, pipeline: 8, micro_batch: 1");
    lh_jitter bad = {.size = sizeof bad, .latency = -1};
    lh_plan_options o = {.size = sizeof o,
                         .jitter = &bad,
                         .progress = note_search,
                         .context = &searched};
    lh_plan *p = NULL;
    lh_error err = {0};
    CHECK_INT(lh_plan_make(job, &o, &p, &err), LH_EINVAL);
    CHECK_HAS(err.text, "latency is -1");
    CHECK_MSG(!searched, "refused after the search");
    lh_job_free(job);
}

int main(void)
{
    RUN(choice_differs);
    RUN(rare_is_forgiven);
    RUN(same_again);
    RUN(nothing_varies);
    RUN(what_is_drawn);
    RUN(refusals);
    return test_summary();
}
