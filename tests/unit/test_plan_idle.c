/* SPDX-License-Identifier: Apache-2.0 */
/* Idle GPUs: their price, against brute force over the layouts of small jobs,
 * and their place in the plan's file. */
#include "jobs.h"
#include "plans.h"

#include "planner/idle.h"
#include "planner/search/plan_search.h"

#include <longhaul/experimental/plan.h>
#include <string.h>

/* A small model on datacenters `sites`; `rest`: more lines. */
static lh_job *job_of(unsigned batch, const char *sites, const char *rest)
{
    return job_with(JOB_TWO_SITES,
                    "%s"
                    "model: {layers: 8, hidden: 4096, ffn: 11008, heads: 32, "
                    "vocab: 32000}\n"
                    "training: {global_batch: %u, sequence: 2048, zero: 1, "
                    "recompute: none}\n%s",
                    sites, batch, rest);
}

static lh_plan *make(const lh_job *job)
{
    const lh_plan_options o = {
        .size = sizeof o, .no_optimal = true, .layout_effort = LITTLE_WORK};
    lh_plan *plan = NULL;
    lh_error err = {0};
    CHECK_OK(lh_plan_make(job, &o, &plan, &err), err);
    return plan;
}

/* Returns the GPUs of datacenter `dc` that choice `c` uses. */
static uint32_t count_used(const lh_choice *c, uint32_t dc)
{
    const lh_sites *s = c->layout.sites;
    uint32_t used = 0;
    for (uint32_t g = 0; g < s->n_groups; g++)
        for (uint32_t i = 0; i < s->groups[g].n_parts; i++)
            if (s->groups[g].parts[i].datacenter == dc)
                used += s->groups[g].parts[i].stages * s->groups[g].replicas *
                        c->layout.tensor * c->layout.context;
    return used;
}

/* A distant site behind a slow link is idle; the best plan with its GPUs is
 * slower, and the bound is no more than its time. */
static void slow_links_have_a_price(void)
{
    lh_job *job = job_of(
        16,
        "  datacenters:\n   - {name: near, nodes: 2}\n"
        "   - {name: far, nodes: 1}\n"
        "  links:\n   - {between: [near, far], latency_ms: 300, gbps: 1}\n",
        "");
    lh_plan *plan = make(job);
    CHECK(plan->n_idle == 1);
    const lh_plan_idle *it = plan->idle;
    CHECK(it->datacenter == 1 && it->gpus == job->datacenters[1].gpus);
    CHECK(count_used(&plan->best, 1) == 0);
    CHECK(it->best && it->best->status == LH_CHOICE_OK);
    if (it->best) {
        CHECK(count_used(it->best, 1) > 0);
        CHECK(it->best->iteration_ns > plan->best.iteration_ns);
        CHECK(it->bound_ns <= it->best->iteration_ns);
        CHECK(strncmp(it->why, "+", 1) == 0);
        CHECK(strcmp(it->why, it->best->why) == 0);
        /* far alone: 1 node in place of 2 */
        char fewer[64];
        const uint64_t all = lh_layout_gpus(&plan->best.layout);
        const uint64_t there = lh_layout_gpus(&it->best->layout);
        CHECK(there < all);
        snprintf(fewer, sizeof fewer, ", with %d GPUs fewer in total",
                 (int)(all - there));
        CHECK(strstr(it->why, fewer) != NULL);
    }
    lh_plan_free(plan_again(plan, NULL));
    lh_plan_free(plan);
    lh_job_free(job);
}

/* Of five distant sites, the four with most idle GPUs are searched, which gives
 * each a bound. */
static void four_sites_are_searched(void)
{
    lh_job *job = job_of(8,
                         "  datacenters:\n   - {name: near, nodes: 4}\n"
                         "   - {name: a, nodes: 2}\n"
                         "   - {name: b, nodes: 2}\n"
                         "   - {name: c, nodes: 1}\n"
                         "   - {name: d, nodes: 3}\n"
                         "   - {name: e, nodes: 2}\n"
                         "  links:\n"
                         "   - {between: [near, a], latency_ms: 300, gbps: 1}\n"
                         "   - {between: [near, b], latency_ms: 300, gbps: 1}\n"
                         "   - {between: [near, c], latency_ms: 300, gbps: 1}\n"
                         "   - {between: [near, d], latency_ms: 300, gbps: 1}\n"
                         "   - {between: [near, e], latency_ms: 300, gbps: 1}\n"
                         "   - {between: [a, b], latency_ms: 300, gbps: 1}\n"
                         "   - {between: [a, c], latency_ms: 300, gbps: 1}\n"
                         "   - {between: [a, d], latency_ms: 300, gbps: 1}\n"
                         "   - {between: [a, e], latency_ms: 300, gbps: 1}\n"
                         "   - {between: [b, c], latency_ms: 300, gbps: 1}\n"
                         "   - {between: [b, d], latency_ms: 300, gbps: 1}\n"
                         "   - {between: [b, e], latency_ms: 300, gbps: 1}\n"
                         "   - {between: [c, d], latency_ms: 300, gbps: 1}\n"
                         "   - {between: [c, e], latency_ms: 300, gbps: 1}\n"
                         "   - {between: [d, e], latency_ms: 300, gbps: 1}\n",
                         "layout: {tensor: 4, pipeline: 1, micro_batch: 1}\n");
    lh_plan *plan = make(job);
    uint32_t n = 0;
    CHECK_INT(plan->n_idle, 5);
    for (uint32_t i = 0; i < plan->n_idle; i++) {
        const bool is_smallest = plan->idle[i].datacenter == 3;
        CHECK_MSG((plan->idle[i].bound_ns >= 0) != is_smallest,
                  "datacenter %u: %s", plan->idle[i].datacenter,
                  plan->idle[i].why);
        n += plan->idle[i].bound_ns >= 0;
    }
    CHECK_INT(n, 4);
    lh_plan_free(plan);
    lh_job_free(job);
}

/* The best of equal sites is used; the other one costs nothing. */
static void equal_sites_cost_nothing(void)
{
    lh_job *job = job_of(
        16,
        "  datacenters:\n   - {name: one, nodes: 1}\n"
        "   - {name: two, nodes: 1}\n"
        "  links:\n   - {between: [one, two], latency_ms: 300, gbps: 1}\n",
        "");
    lh_plan *plan = make(job);
    CHECK(plan->n_idle == 1);
    CHECK(plan->idle[0].best != NULL);
    if (plan->idle[0].best)
        CHECK(plan->idle[0].best->iteration_ns <=
              plan->best.iteration_ns + plan->best.iteration_ns / 50);
    lh_plan_free(plan);
    lh_job_free(job);
}

/* GPUs that no degrees use, and a site whose GPUs hold no stage, do not fit. */
static void impossible_uses_do_not_fit(void)
{
    static const char *const sites[] = {
        "  datacenters:\n   - {name: one, nodes: 1, gpus_per_node: 7}\n"
        "  links: []\n",
        "  datacenters:\n   - {name: large, nodes: 1}\n"
        "   - {name: small, nodes: 1, gpu: {tflops: 312, memory_gib: 0.5, "
        "memory_gbps: 1500, memory_reserve: 0}}\n"
        "  links:\n   - {between: [large, small], latency_ms: 1, gbps: 100}\n"};
    static const char *const rest[] = {"layout: {tensor: 1, context: 1, "
                                       "pipeline: 1}\n",
                                       ""};
    for (int i = 0; i < 2; i++) {
        lh_job *job = job_of(8, sites[i], rest[i]);
        lh_plan *plan = make(job);
        CHECK(plan->n_idle == 1);
        if (plan->n_idle) {
            CHECK(!plan->idle[0].best && plan->idle[0].bound_ns == -1);
            CHECK(strncmp(plan->idle[0].why, "does not fit", 12) == 0);
            CHECK((strstr(plan->idle[0].why, "memory") != NULL) == (i == 1));
        }
        lh_plan_free(plan_again(plan, NULL));
        lh_plan_free(plan);
        lh_job_free(job);
    }
}

/* Every GPU in use: nothing to explain. */
/* Too few GPUs for another replica have no search. */
static void remainders_name_the_replica(void)
{
    lh_job *job = job_of(
        16,
        "  datacenters:\n   - {name: near, nodes: 3}\n"
        "   - {name: far, nodes: 2}\n"
        "  links:\n   - {between: [near, far], latency_ms: 1, gbps: 100}\n",
        "layout: {tensor: 4, pipeline: 2, data: 2, outermost: data}\n");
    lh_plan *plan = make(job);
    CHECK(plan->n_idle == 1);
    if (plan->n_idle == 1)
        CHECK_HAS(plan->idle[0].why, "fewer than the 8 GPUs of another");
    lh_plan_free(plan);
    lh_job_free(job);
}

static void busy_gpus_need_no_reason(void)
{
    lh_job *job = job_of(16,
                         "  datacenters:\n   - {name: one, nodes: 1}\n"
                         "  links: []\n",
                         "");
    lh_plan *plan = make(job);
    CHECK(lh_plan_gpus(plan) == job->n_gpus && plan->n_idle == 0);
    lh_plan_free(plan);
    lh_job_free(job);
}

/* A job with required GPUs: every plan of the restricted space uses them, and
 * none of the layouts of the whole space that do is faster than its bound. */
static void requirements_restrict_the_space(void)
{
    lh_job *job =
        job_of(8,
               "  datacenters:\n   - {name: a, nodes: 1, gpus_per_node: 2}\n"
               "   - {name: b, nodes: 1, gpus_per_node: 2}\n"
               "   - {name: c, nodes: 1, gpus_per_node: 2}\n"
               "  links:\n   - {between: [a, b], latency_ms: 1, gbps: 100}\n"
               "   - {between: [a, c], latency_ms: 5, gbps: 10}\n"
               "   - {between: [b, c], latency_ms: 5, gbps: 10}\n",
               "");
    for (uint32_t dc = 0; dc < 3; dc++) {
        uint32_t least[3] = {0};
        lh_job some = *job;
        least[dc] = 1;
        some.min_gpus = least;
        lhi_arena *mem = lhi_arena_make(0);
        lh_plan all = {0}, restricted = {0};
        lh_error err = {0};
        const lh_plan_options o = {.size = sizeof o,
                                   .no_optimal = true,
                                   .top = UINT32_MAX,
                                   .partition = LH_PARTITION_EXACT};
        CHECK_OK(
            lhi_plan_search_and_refine(job, &o, mem, NULL, 0, NULL, &all, &err),
            err);
        CHECK_OK(lhi_plan_search_and_refine(&some, &o, mem, NULL, 0, NULL,
                                            &restricted, &err),
                 err);
        CHECK(count_used(&restricted.best, dc) > 0);
        for (uint32_t i = 0; i < restricted.n_alternatives; i++)
            CHECK(count_used(&restricted.alternatives[i], dc) > 0);
        int64_t best =
            count_used(&all.best, dc) ? all.best.iteration_ns : INT64_MAX;
        for (uint32_t i = 0; i < all.n_alternatives; i++) {
            const lh_choice *c = &all.alternatives[i];
            if (c->status == LH_CHOICE_OK && count_used(c, dc) > 0 &&
                c->iteration_ns < best)
                best = c->iteration_ns;
        }
        CHECK(restricted.best.iteration_ns <= best);
        CHECK(restricted.search_bound_ns <= best);
        lh_pipeline_free((lh_pipeline *)all.pipeline);
        lh_schedule_free((lh_schedule *)all.schedule);
        lh_pipeline_free((lh_pipeline *)restricted.pipeline);
        lh_schedule_free((lh_schedule *)restricted.schedule);
        lhi_arena_free(mem);
    }
    lh_job_free(job);
}

int main(void)
{
    RUN(slow_links_have_a_price);
    RUN(four_sites_are_searched);
    RUN(equal_sites_cost_nothing);
    RUN(impossible_uses_do_not_fit);
    RUN(remainders_name_the_replica);
    RUN(busy_gpus_need_no_reason);
    RUN(requirements_restrict_the_space);
    return test_summary();
}
