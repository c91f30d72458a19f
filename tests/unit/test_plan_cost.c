/* SPDX-License-Identifier: Apache-2.0 */
/* Plan costs, compared with sums by hand. */
#include "jobs.h"
#include "plans.h"

#include "planner/elastic/layout_search.h"
#include "planner/layout/choice.h"
#include "planner/search/cost.h"
#include "planner/search/objective.h"

#include <longhaul/experimental/elastic.h>
#include <longhaul/experimental/plan.h>
#include <stdlib.h>

/* Two datacenters with four-GPU nodes; a four-layer model needs few. */
static lh_job *job_of(const char *prices, const char *links, const char *layout)
{
    return job_with(JOB_TWO_SITES,
                    "  gpu: {tflops: 100, memory_gib: 80, memory_gbps: 2000}\n"
                    "%s"
                    "  datacenters:\n"
                    "   - {name: west, nodes: 2%s}\n"
                    "   - {name: east, nodes: 3, gpus_per_node: 2%s}\n"
                    "  links:\n"
                    "   - {from: west, to: east, latency_ms: 2, gbps: 100%s}\n"
                    "   - {from: east, to: west, latency_ms: 2, gbps: 100}\n"
                    "model: {layers: 4, hidden: 1024, ffn: 4096, heads: 8, "
                    "vocab: 1000}\n"
                    "training: {global_batch: 12, sequence: 1000, zero: 1, "
                    "recompute: none}\n"
                    "layout: %s\n",
                    prices ? prices : "",
                    prices ? "" : ", usd_per_gpu_hour: 3.6",
                    prices ? "" : ", usd_per_gpu_hour: 7.2", links, layout);
}

static lh_plan *make(const lh_job *job, const lh_plan_options *options)
{
    lh_plan *plan = NULL;
    lh_error err = {0};
    CHECK_OK(lh_plan_make(job, options, &plan, &err), err);
    return plan;
}

/* Eight single-GPU stages in west take two nodes, two more in east take one. */
static void stages_cross(void)
{
    lh_plan_options o = {.size = sizeof o, .quick = true};
    lh_job *job = job_of(NULL, ", usd_per_gb: 4",
                         "{tensor: 4, pipeline: 3, data: 1, micro_batch: 2, "
                         "chunks_per_device: 1, outermost: pipeline}");
    lh_plan *plan = make(job, &o);
    const lh_plan_cost *c = plan ? plan->best.cost : NULL;
    CHECK(c != NULL);
    if (c) {
        double s = (double)plan->best.iteration_ns / 1e9;
        /* Two stages in west, one across both east nodes that it needs. */
        CHECK_INT(c->gpus, 12);
        CHECK_NEAR(c->usd_per_hour, 8 * 3.6 + 4 * 7.2, 1e-9);
        /* Six microbatches with 2 x 1000 x 1024 numbers of 2 bytes, forward and
         * back; west to east has a price. */
        CHECK_NEAR(c->inter_datacenter_gb, 2 * 6 * 2 * 1000 * 1024 * 2 / 1e9,
                   1e-12);
        CHECK_NEAR(c->between_usd, 4 * c->inter_datacenter_gb / 2, 1e-12);
        CHECK_NEAR(c->gpus_usd, c->usd_per_hour * s / 3600, 1e-12);
        CHECK_NEAR(c->usd, c->gpus_usd + c->between_usd, 1e-12);
        CHECK_NEAR(c->usd_per_1e9_tokens, c->usd / 12000 * 1e9, 1e-6);
        for (uint32_t i = 0; i < plan->n_methods; i++)
            CHECK((plan->methods[i].cost != NULL) ==
                  (plan->methods[i].status == LH_CHOICE_OK));
    }
    lh_plan_free(plan);
    lh_job_free(job);
}

/* Single-GPU replicas: every node in use is paid in full. */
static void nodes_are_whole(void)
{
    lh_plan_options o = {.size = sizeof o, .quick = true};
    lh_job *job = job_of(NULL, "",
                         "{tensor: 1, pipeline: 1, data: 6, micro_batch: 2, "
                         "chunks_per_device: 1, sites: [{replicas: 3, "
                         "pipeline: [west]}, {replicas: 3, pipeline: "
                         "[east]}]}");
    lh_plan *plan = make(job, &o);
    if (plan && plan->best.cost) {
        const lh_plan_cost *c = plan->best.cost;
        /* Three in each datacenter: one node with four, two with two. */
        CHECK_INT(c->gpus, 8);
        CHECK_NEAR(c->usd_per_hour, 4 * 3.6 + 4 * 7.2, 1e-9);
        CHECK(c->inter_datacenter_gb > 0);
        CHECK_NEAR(c->between_usd, 0, 0);
    } else {
        CHECK_MSG(false, "no cost");
    }
    lh_plan_free(plan);
    lh_job_free(job);
}

/* Two replicas exchange gradients and parameters over the link: half the 2-byte
 * parameters, and half the gradients, each way. */
static void replicas_cross(void)
{
    lh_plan_options o = {.size = sizeof o, .quick = true};
    lh_job *job = job_of("  usd_per_gpu_hour: 2\n  usd_per_gb: 1\n", "",
                         "{tensor: 1, pipeline: 1, data: 2, micro_batch: 2, "
                         "chunks_per_device: 1, sites: [{replicas: 1, "
                         "pipeline: [west]}, {replicas: 1, pipeline: "
                         "[east]}]}");
    lh_plan *plan = make(job, &o);
    if (plan && plan->best.cost) {
        const lh_plan_cost *c = plan->best.cost;
        double params = (double)lh_model_params(job->model);
        double gradient = 4; /* summed in 32 bits */
        /* Half of each crosses the link in either direction. */
        CHECK_NEAR(c->inter_datacenter_gb, params * (2 + gradient) / 1e9,
                   1e-3 * c->inter_datacenter_gb);
        CHECK_NEAR(c->between_usd, c->inter_datacenter_gb, 1e-12);
    } else {
        CHECK_MSG(false, "no cost");
    }
    lh_plan_free(plan);
    lh_job_free(job);
}

static void prices_are_replaced(void)
{
    lh_plan_options o = {.size = sizeof o,
                         .quick = true,
                         .usd_per_gpu_hour = 3,
                         .usd_per_gb = 0.5};
    const char *layout = "{tensor: 4, pipeline: 3, data: 1, micro_batch: 2, "
                         "chunks_per_device: 1, outermost: pipeline}";
    lh_job *job = job_of("", "", layout);
    lh_plan *plan = make(job, &o);
    lh_error err = {0};
    if (plan && plan->best.cost) {
        CHECK_NEAR(plan->best.cost->usd_per_hour, 36, 1e-9);
        CHECK_NEAR(plan->best.cost->between_usd,
                   plan->best.cost->inter_datacenter_gb / 2, 1e-12);
        CHECK_NEAR(plan->job->datacenters[1].usd_per_gpu_hour, 3, 0);
        CHECK_NEAR(plan->job->wans[1].usd_per_gb, 0.5, 0);
    } else {
        CHECK_MSG(false, "no cost");
    }
    CHECK(job->datacenters[0].usd_per_gpu_hour <= 0);
    lh_plan_free(plan);
    plan = NULL;
    o.usd_per_gpu_hour = 0;
    CHECK_INT(lh_plan_make(job, &o, &plan, &err), LH_EINVAL);
    CHECK_HAS(err.text, "a price per byte requires a price per GPU hour");
    o.usd_per_gpu_hour = -1;
    CHECK_INT(lh_plan_make(job, &o, &plan, &err), LH_EINVAL);
    CHECK_HAS(err.text, "a price of -1 per GPU hour");
    o.usd_per_gpu_hour = o.usd_per_gb = 0;
    plan = make(job, &o);
    CHECK(plan && !plan->best.cost);
    lh_plan_free(plan);
    lh_job_free(job);
}

/* Elastic plans send more in proportion to their communication time: parameters
 * gathered repeatedly cross the link each time. */
static void elastic_plans_cost(void)
{
    lh_job *job = job_of("  usd_per_gpu_hour: 2\n  usd_per_gb: 1\n", "",
                         "{tensor: 1, context: 1, expert: 1, pipeline: 2, "
                         "data: 2, micro_batch: 1, "
                         "chunks_per_device: 2, outermost: data}");
    lhi_config config = {.layout = job->layout,
                         .placement = LH_PLACEMENT_LOOP,
                         .microbatches = 6};
    lhi_arena *mem = lhi_arena_make(0);
    double gb[3] = {0};
    for (uint32_t zero = 1; zero <= 3; zero += 2) {
        lhi_elastic_options freedom = {.shardings =
                                           zero == 1 ? 1u << LH_ELASTIC_ZERO1
                                                     : 1u << LH_ELASTIC_ZERO3,
                                       .depth_first = true,
                                       .chunks = 2};
        lhi_elastic_result r = {0};
        lhi_layout_price price = {0};
        lh_error err = {0};
        CHECK_OK(
            lhi_elastic_search_layout(job, &config, &freedom, mem, &r, &err),
            err);
        r.config.zero_given = true;
        r.config.zero = 1;
        r.config.elastic = r.details;
        CHECK_OK(lhi_pricing_compute(job, &r.config, &price, &err), err);
        gb[zero - 1] = price.between_gb;
        lh_pipeline_free(r.built.pipeline);
        lh_schedule_free(r.schedule);
    }
    lhi_layout_price plain = {0};
    lh_error err = {0};
    CHECK_OK(lhi_pricing_compute(job, &config, &plain, &err), err);
    CHECK_NEAR(gb[0], plain.between_gb, 0.01 * plain.between_gb);
    CHECK_MSG(gb[2] > 2 * gb[0], "%g GB with ZeRO-3, %g with ZeRO-1", gb[2],
              gb[0]);
    lhi_arena_free(mem);
    lh_job_free(job);
}

static void costs_round_trip(void)
{
    lh_plan_options o = {.size = sizeof o, .quick = true};
    lh_job *job =
        job_of(NULL, ", usd_per_gb: 4", "{tensor: 4, pipeline: 3, data: 1}");
    char *text = NULL;
    lh_plan *plan = make(job, &o), *again = plan_again(plan, &text);
    CHECK(again && again->best.cost && again->best.cost->gpus == 12);
    char *at = strstr(text, "\"gpus_usd\": ");
    CHECK(at != NULL);
    if (at) {
        memcpy(at, "\"gpus_usd\": 7", 13);
        plan_refused(text,
                     "cost.usd: is not the sum of gpus_usd and between_usd");
    }
    lh_text_free(text);
    lh_plan_free(plan);
    lh_plan_free(again);
    lh_job_free(job);
}

/* The lower bounds on the cost of a placed layout, with and without its ZeRO
 * stage, are at most the cost of every plan on the Pareto front; they include
 * traffic between datacenters. */
static void cost_bounds_of_placed_layouts_hold(void)
{
    lh_job *job = job_with(
        JOB_SMALL, "  datacenters:\n"
                   "   - {name: west, nodes: 4, usd_per_gpu_hour: 3}\n"
                   "   - {name: east, nodes: 4, usd_per_gpu_hour: 2}\n"
                   "  links: [{between: [west, east], latency_ms: 1, gbps: 80, "
                   "usd_per_gb: 0.5}]\n"
                   "training: {global_batch: 16, sequence: 1024}\n"
                   "layout: {tensor: 1, context: 1}\n");
    const lh_plan_options o = {.size = sizeof o,
                               .quick = true,
                               .pareto_front = true,
                               .pareto_max_slowdown = 1000,
                               .objective = LH_PLAN_CHEAPEST,
                               .threads = 1};
    lhi_cost_objective goal;
    lh_plan *plan = NULL;
    lh_error err = {0};
    uint32_t n_traffic = 0;
    CHECK_OK(lh_plan_make(job, &o, &plan, &err), err);
    CHECK_OK(lhi_cost_objective_init(plan->job, &o, NULL, &goal, &err), err);
    for (uint32_t i = 0; i < plan->n_pareto; i++) {
        const lh_choice *c = &plan->pareto_front[i];
        const lhi_config config = lhi_config_from_choice(c);
        const lhi_lower_bound floor = {.ns = c->iteration_ns};
        const double gpus = c->cost->usd - c->cost->between_usd;
        for (lhi_level level = LHI_LEVEL_PLACED; level <= LHI_LEVEL_COMPLETE;
             level++) {
            const double usd =
                lhi_cost_objective_bound(&goal, level, &config, &floor);
            CHECK_MSG(usd <= c->cost->usd, "%u: %g above %g", level, usd,
                      c->cost->usd);
            n_traffic += level == LHI_LEVEL_PLACED && usd > 1.01 * gpus;
        }
    }
    CHECK(n_traffic > 0);
    lh_plan_free(plan);
    lh_job_free(job);
}

/* The limit on the iteration separates the fastest plan from the cheapest:
 * without a limit, or with one that excludes no plan, the plan is the cheapest;
 * with one that no plan meets, it is the fastest. Other uses are rejected. */
static void the_longest_iteration_is_checked(void)
{
    lh_plan_options o = {.size = sizeof o, .quick = true, .threads = 1};
    lh_job *job = job_of(NULL, ", usd_per_gb: 4", "{tensor: 2}");
    lh_plan *fastest = make(job, &o), *plan = NULL;
    lh_error err = {0};
    o.max_iteration_ns = 1;
    CHECK_INT(lh_plan_make(job, &o, &plan, &err), LH_EINVAL);
    CHECK_HAS(err.text, "max_iteration_ns is 1; expected 0, or more with");
    o.objective = LH_PLAN_CHEAPEST;
    o.max_iteration_ns = -1;
    CHECK_INT(lh_plan_make(job, &o, &plan, &err), LH_EINVAL);
    CHECK_HAS(err.text, "max_iteration_ns is -1; expected 0, or more with");
    o.max_iteration_ns = 0;
    lh_plan *cheapest = make(job, &o);
    if (fastest && cheapest) {
        const int64_t least = fastest->best.iteration_ns;
        const double usd = cheapest->best.cost->usd;
        CHECK(cheapest->best.iteration_ns > least);
        CHECK(usd < fastest->best.cost->usd);
        const int64_t limits[] = {1, INT64_MAX};
        for (int i = 0; i < 2; i++) {
            o.max_iteration_ns = limits[i];
            plan = make(job, &o);
            CHECK(plan && (i ? plan->best.cost->usd <= usd
                             : plan->best.iteration_ns <= least));
            lh_plan_free(plan);
        }
        /* just below the cheapest plan's time */
        o.max_iteration_ns = cheapest->best.iteration_ns - 1;
        plan = make(job, &o);
        CHECK(plan && plan->best.iteration_ns <= o.max_iteration_ns &&
              plan->best.cost->usd <= fastest->best.cost->usd);
        lh_plan_free(plan);
    }
    lh_plan_free(fastest);
    lh_plan_free(cheapest);
    lh_job_free(job);
}

int main(void)
{
    RUN(stages_cross);
    RUN(nodes_are_whole);
    RUN(replicas_cross);
    RUN(prices_are_replaced);
    RUN(elastic_plans_cost);
    RUN(costs_round_trip);
    RUN(cost_bounds_of_placed_layouts_hold);
    RUN(the_longest_iteration_is_checked);
    return test_summary();
}
