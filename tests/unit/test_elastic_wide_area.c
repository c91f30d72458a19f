/* SPDX-License-Identifier: Apache-2.0 */
/* Elastic sharding over distant datacenters costs as much as elsewhere: each
 * layer pays its latencies, in every group that uses it. */
#include "jobs.h"

#include "base/random.h"
#include "planner/elastic/layout_search.h"
#include "planner/layout/elastic_shares.h"
#include "planner/layout/link_override.h"
#include "schedule/pipeline/accessors.h"

#include <longhaul/experimental/cost.h>
#include <longhaul/experimental/elastic.h>
#include <longhaul/experimental/plan.h>
#include <longhaul/simulate.h>

/* Creates a job with `layers` in two datacenters with 4 GPUs each, data
 * parallel over both. */
static lh_job *far_job(unsigned layers, double latency_ms, double gbps,
                       unsigned batch)
{
    return job_with(
        JOB_SMALL,
        "  gpus_per_node: 4\n"
        "  links: [{between: [west, east], latency_ms: %g, gbps: %g}]\n"
        "model: {layers: %u, hidden: 2048, ffn: 8192, heads: 16, vocab: "
        "32000}\n"
        "training: {global_batch: %u, sequence: 2048, zero: 3}\n",
        latency_ms, gbps, layers, batch);
}

/* Data parallelism outermost: half the replicas in each datacenter. */
static lhi_config config_of(uint32_t pipeline, uint32_t batch)
{
    lhi_config c = {.layout = {.tensor = 1,
                               .context = 1,
                               .expert = 1,
                               .pipeline = pipeline,
                               .data = 8 / pipeline,
                               .micro_batch = 1,
                               .chunks_per_device = 1,
                               .outermost = LH_OUTERMOST_DATA}};
    c.microbatches = batch / c.layout.data;
    return c;
}

/* Computes gather and reduction of one layer, the embedding or the head alone.
 */
static void cost_alone(const lh_job *job, const lhi_config *config,
                       lh_cost_layer_range slice, double *gather,
                       double *reduce)
{
    lh_job plain = *job;
    lh_cost cost;
    lh_error err = {0};
    slice.data_datacenters = 2;
    plain.training.zero = 1;
    CHECK_OK(lh_cost_chunk(&plain, &config->layout, &slice, NULL, &cost, &err),
             err);
    *gather = (double)(cost.all_gather_ns + cost.data_latency_ns);
    *reduce = (double)(cost.reduce_scatter_ns + cost.data_latency_ns);
}

static lh_status make(const lh_job *job, const lhi_config *config,
                      lh_elastic_sharding sharding, uint32_t chunks,
                      lhi_arena *mem, lhi_elastic_result *r)
{
    lh_error err = {0};
    lhi_elastic_options freedom = {.shardings = 1u << sharding,
                                   .chunks = chunks};
    return lhi_elastic_search_layout(job, config, &freedom, mem, r, &err);
}

static void fini(lhi_elastic_result *r)
{
    lh_pipeline_free(r->built.pipeline);
    lh_schedule_free(r->schedule);
    *r = (lhi_elastic_result){0};
}

/* Lower bound with all parameters at ZeRO-3: a rank's link carries each layer's
 * gather in every forward group, and in every backward group except the last
 * chunk's first, which finds it gathered, and one reduction per group. */
static double least_sent(const lh_job *job, const lhi_elastic_result *r)
{
    const lh_plan_elastic *e = r->details;
    const lh_layout *l = &r->config.layout;
    uint32_t n = l->pipeline * l->chunks_per_device;
    double most = 0;
    for (uint32_t d = 0; d < l->pipeline; d++) {
        double sum = 0;
        for (uint32_t c = d; c < n; c += l->pipeline) {
            uint32_t first, layers;
            double gather, reduce, gathers, reductions;
            lhi_config_layers(job->model->layers, &r->config, c, &first,
                              &layers);
            lh_cost_layer_range layer = {.first_layer = first, .n_layers = 1};
            cost_alone(job, &r->config, layer, &gather, &reduce);
            gathers = layers * gather;
            reductions = layers * reduce;
            if (c == 0) {
                lh_cost_layer_range end = {.embedding = true};
                cost_alone(job, &r->config, end, &gather, &reduce);
                gathers += gather;
                reductions += reduce;
            }
            if (c + 1 == n) {
                lh_cost_layer_range end = {.head = true};
                cost_alone(job, &r->config, end, &gather, &reduce);
                gathers += gather;
                reductions += reduce;
            }
            bool kept = c / l->pipeline + 1 == l->chunks_per_device;
            sum += gathers * (e->n_enqueue + e->n_dequeue - kept) +
                   reductions * e->n_dequeue;
        }
        most = sum > most ? sum : most;
    }
    return most;
}

/* Random layers, latencies from none to 80 ms, rates, depths and chunks. */
static void all_sharded_pays_every_layer(void)
{
    lhi_random x = {11};
    uint32_t done = 0;
    for (int i = 0; i < 24; i++) {
        uint32_t P = 1u << lhi_random_below(&x, 3);
        uint32_t chunks = 1 + lhi_random_below(&x, 3);
        uint32_t layers = P * chunks * (1 + lhi_random_below(&x, 3));
        double ms = i % 3 ? lhi_random_below(&x, 80000) / 1000.0 : 0;
        double gbps = i % 2 ? 10 : 3200;
        uint32_t batch = 8 * (1 + lhi_random_below(&x, 4));
        lh_job *job = far_job(layers, ms, gbps, batch);
        lhi_config config = config_of(P, batch);
        lhi_arena *mem = lhi_arena_make(0);
        lhi_elastic_result r = {0};
        lh_status status =
            make(job, &config, LH_ELASTIC_ZERO3, chunks, mem, &r);
        CHECK(status == LH_OK || status == LH_EINFEASIBLE);
        if (status == LH_OK) {
            double least = least_sent(job, &r);
            /* Each part is rounded up. */
            CHECK_MSG((double)r.makespan_ns >= least - 1000,
                      "case %d: %.6f s, the link alone %.6f s", i,
                      (double)r.makespan_ns / 1e9, least / 1e9);
            CHECK_NEAR(r.details->parameters, 1, 0);
            done++;
        }
        fini(&r);
        lhi_arena_free(mem);
        lh_job_free(job);
    }
    CHECK_MSG(done >= 20, "%" PRIu32 " plans", done);
}

/* A chunk with one layer communicates as in one piece, except at the ends; one
 * with several layers pays each one's latency. */
static void chunks_of_layers(void)
{
    lh_job *job = far_job(6, 40, 100, 8);
    lhi_config config = config_of(1, 8);
    lhi_chunk_sharded times[6];
    lh_error err = {0};
    double gather, reduce, end[2];
    lh_cost_layer_range head = {.head = true}, one = {.n_layers = 1};
    job->training.zero = 1;
    config.layout.chunks_per_device = 6;
    CHECK_OK(lhi_layout_compute_sharded_times(job, &config, times, &err), err);
    cost_alone(job, &config, one, &gather, &reduce);
    CHECK_NEAR((double)times[1].gather_ns, gather, 2);
    CHECK_NEAR((double)times[1].scatter_ns, reduce, 2);
    cost_alone(job, &config, head, &end[0], &end[1]);
    CHECK_NEAR((double)times[5].gather_ns, gather + end[0], 3);
    config.layout.chunks_per_device = 2;
    CHECK_OK(lhi_layout_compute_sharded_times(job, &config, times, &err), err);
    CHECK_NEAR((double)times[1].gather_ns, 3 * gather + end[0], 5);
    CHECK_NEAR((double)times[1].scatter_ns, 3 * reduce + end[1], 5);
    CHECK(times[1].gather_ns > 4 * INT64_C(40000000));
    lh_job_free(job);
}

/* Without sharding a gather pays the latency once, as in other schedules'
 * plans. */
static void nothing_sharded_as_elsewhere(void)
{
    lh_job *job = far_job(8, 40, 100, 32);
    lhi_config config = config_of(2, 32);
    lhi_arena *mem = lhi_arena_make(0);
    lhi_elastic_result r = {0};
    lh_error err = {0};
    CHECK_INT(make(job, &config, LH_ELASTIC_ZERO1, 2, mem, &r), LH_OK);
    lhi_config plain = r.config;
    lhi_built_layout built;
    plain.zero_given = true;
    plain.zero = 1;
    CHECK_OK(lhi_layout_build(job, &plain, &built, &err), err);
    for (uint32_t c = 0; c < 2; c++) {
        const lh_chunk *a = lh_pipeline_chunk(r.built.pipeline, c);
        const lh_chunk *b = lh_pipeline_chunk(built.pipeline, c);
        CHECK_INT(a->all_gather_ns, b->all_gather_ns);
        CHECK_INT(a->reduce_scatter_ns, b->reduce_scatter_ns);
        CHECK_INT(a->dp_latency_ns, b->dp_latency_ns);
    }
    for (uint32_t i = 0; i < lhi_pipeline_n_dp_ops(r.built.pipeline); i++) {
        const lh_dp_op *op = lh_pipeline_dp_op(r.built.pipeline, i);
        const lh_chunk *b = lh_pipeline_chunk(built.pipeline, op->chunk);
        CHECK_INT(op->transfer_ns, op->is_reduce_scatter ? b->reduce_scatter_ns
                                                         : b->all_gather_ns);
    }
    lh_pipeline_free(built.pipeline);
    fini(&r);
    lhi_arena_free(mem);
    lh_job_free(job);
}

/* The plan's operations on other links. More latency never makes it faster, and
 * makes it slower where layers span the datacenters. */
static void more_latency_is_slower(void)
{
    static const double ms[] = {0.05, 1, 10, 40, 80};
    for (uint32_t k = LH_ELASTIC_MIXED; k <= LH_ELASTIC_ZERO3; k++) {
        int64_t before = 0;
        lhi_arena *mem = lhi_arena_make(0);
        lh_job *near = far_job(8, ms[0], 100, 32);
        lhi_config config = config_of(2, 32);
        lhi_elastic_result r = {0};
        CHECK_INT(make(near, &config, (lh_elastic_sharding)k, 2, mem, &r),
                  LH_OK);
        lh_choice choice = {.layout = r.config.layout,
                            .placement = r.config.placement,
                            .recompute = r.config.recompute,
                            .microbatches = r.config.microbatches,
                            .chunk_layers = r.config.layers,
                            .elastic = r.details,
                            .zero = 3,
                            .optimizer_ns = r.built.optimizer_ns,
                            .overhead_ns = r.built.overhead_ns};
        for (size_t i = 0; i < sizeof ms / sizeof *ms; i++) {
            lh_job *job = far_job(8, ms[i], 100, 32);
            lh_pipeline *p = NULL;
            lh_timeline *t = NULL;
            lh_error err = {0};
            int64_t after_ns;
            CHECK_OK(lhi_pipeline_override_links(near, job, &choice,
                                                 r.built.pipeline, mem, &p,
                                                 &after_ns, &err),
                     err);
            CHECK_STR(lh_pipeline_dp_link(p, 0),
                      lh_pipeline_dp_link(r.built.pipeline, 0));
            CHECK_HAS(lh_pipeline_dp_link(p, 0), ">");
            CHECK_OK(lh_simulate(p, r.schedule, NULL, &t, &err), err);
            int64_t ns = lh_timeline_makespan(t);
            if (i == 0) /* the plan's own links */
                CHECK_INT(ns, r.makespan_ns);
            CHECK_MSG(ns > before, "sharding %u: %.3f s at %g ms, %.3f before",
                      k, (double)ns / 1e9, ms[i], (double)before / 1e9);
            before = ns;
            lh_timeline_free(t);
            lh_pipeline_free(p);
            lh_job_free(job);
        }
        fini(&r);
        lh_job_free(near);
        lhi_arena_free(mem);
    }
}

/* In one table, elastic rows with ZeRO 2 or 3 either all communicate once per
 * group, or none does. */
static void one_table(void)
{
    static const char *const schedules[] = {"", ", schedule: elastic"};
    for (int zero = 2; zero <= 3; zero++)
        for (int asked = 0; asked < 2; asked++) {
            lh_job *job = job_with(
                JOB_SMALL,
                "  gpus_per_node: 4\n"
                "training: {global_batch: 32, sequence: 1024, zero: %d}\n"
                "layout: {tensor: 1, pipeline: 2, data: 4, sharding: full%s}\n",
                zero, schedules[asked]);
            lh_plan *plan = NULL;
            lh_plan_options o = {.size = sizeof o, .no_optimal = true};
            lh_error err = {0};
            uint32_t n = 0;
            CHECK_OK(lh_plan_make(job, &o, &plan, &err), err);
            for (uint32_t i = 0; plan && i < plan->n_methods; i++) {
                const lh_choice *c = &plan->methods[i];
                n += c->elastic != NULL;
                CHECK(c->elastic || c->status != LH_CHOICE_OK ||
                      strcmp(c->layout.schedule, "elastic") != 0);
            }
            for (uint32_t i = 0; plan && i < plan->n_alternatives; i++) {
                const lh_choice *c = &plan->alternatives[i];
                CHECK(c->elastic || !c->layout.schedule ||
                      strcmp(c->layout.schedule, "elastic") != 0);
            }
            CHECK(n > 0);
            lh_plan_free(plan);
            lh_job_free(job);
        }
}

int main(void)
{
    RUN(chunks_of_layers);
    RUN(nothing_sharded_as_elsewhere);
    RUN(all_sharded_pays_every_layer);
    RUN(more_latency_is_slower);
    RUN(one_table);
    return test_summary();
}
