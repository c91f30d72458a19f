/* SPDX-License-Identifier: Apache-2.0 */
/* The exact search over layouts, partitions and methods versus complete
 * enumeration. */
#include "jobs.h"

#include "planner/layout/partition_search.h"
#include "planner/layout/space.h"

#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/plan.h>
#include <longhaul/simulate.h>
#include <stdlib.h>

enum { MOST_LAYERS = 12 };

static int64_t best_of_methods(const lh_pipeline *p)
{
    int64_t best = INT64_MAX;
    for (uint32_t m = 0; m < lh_n_methods(); m++) {
        const char *name = lh_method_name(m);
        lh_schedule *s;
        lh_timeline *t;
        lh_error err = {0};
        if (lh_method_is_auto(name)) /* only selects among the others */
            continue;
        if (lh_method_run(name, p, NULL, &s, NULL, &err) != LH_OK)
            continue;
        CHECK_OK(lh_simulate(p, s, NULL, &t, &err), err);
        if (lh_timeline_fits(t, NULL) && lh_timeline_makespan(t) < best)
            best = lh_timeline_makespan(t);
        lh_timeline_free(t);
        lh_schedule_free(s);
    }
    return best;
}

/* State of the enumeration. */
typedef struct everything {
    const lh_job *job;
    const lhi_space *space;
    lhi_level level;
    lhi_config config;
    int64_t best_ns;
    uint64_t n_layouts, n_partitions;
} everything;

static lh_status time_partition(void *context, const uint32_t *layers,
                                int64_t useless_ns, int64_t *ns, lh_error *err)
{
    (void)useless_ns;
    everything *e = context;
    lhi_config config = e->config;
    lhi_built_layout built;
    config.layers = layers;
    *ns = INT64_MAX;
    if (lhi_layout_build(e->job, &config, &built, err) != LH_OK)
        return LH_OK;
    int64_t makespan = best_of_methods(built.pipeline);
    if (makespan < INT64_MAX)
        *ns = makespan + built.optimizer_ns + built.overhead_ns;
    lh_pipeline_free(built.pipeline);
    e->n_partitions++;
    if (*ns < e->best_ns)
        e->best_ns = *ns;
    return LH_OK;
}

static lh_status visit(void *context, const lhi_config *config, lh_error *err)
{
    everything *e = context, below = *e;
    below.level = (lhi_level)(e->level + 1);
    below.config = *config;
    lh_status status;
    if (below.level < LHI_LEVEL_COMPLETE) {
        status = lhi_space_children(e->space, below.level, config, NULL, visit,
                                    &below, err);
    } else {
        uint32_t best[MOST_LAYERS];
        int64_t best_ns = INT64_MAX;
        lhi_partition p = {.n_layers = e->job->model->layers,
                           .n_chunks = config->layout.pipeline *
                                       config->layout.chunks_per_device,
                           .max_ratio = 3,
                           .time = time_partition,
                           .context = &below};
        below.n_layouts++;
        status = lhi_partition_exact(&p, best, &best_ns, err);
    }
    e->best_ns = below.best_ns;
    e->n_layouts = below.n_layouts;
    e->n_partitions = below.n_partitions;
    return status;
}

static lh_job *job_of(uint32_t layers, double memory_gib, double tflops,
                      const char *layout)
{
    return job_with(
        JOB_SMALL,
        "  gpus_per_node: 2\n"
        "  node_link: {gbps: 1000, latency_us: 3}\n"
        "  fabric: {gbps: 100, latency_us: 8}\n"
        "  datacenters:\n"
        "   - {name: a, nodes: 1, gpu: {tflops: 200, memory_gib: %g, "
        "memory_reserve: 0, memory_gbps: 1500}}\n"
        "   - {name: b, nodes: 1, gpu: {tflops: %g, memory_gib: %g, "
        "memory_reserve: 0, memory_gbps: 1500}}\n"
        "  links: [{between: [a, b], latency_ms: 3, gbps: 20}]\n"
        "model: {layers: %u, hidden: 1024, ffn: 4096, heads: 8, "
        "vocab: 32000}\n"
        "training: {global_batch: 6, sequence: 2048, zero: 1}\n"
        "layout: %s\n",
        memory_gib, tflops, memory_gib, layers, layout);
}

static lh_plan *plan_by(const lh_job *job, lh_partition_search how)
{
    lh_plan *plan = NULL;
    lh_error err = {0};
    lh_plan_options o = {
        .size = sizeof o, .partition = how, .no_optimal = true};
    CHECK_OK(lh_plan_make(job, &o, &plan, &err), err);
    return plan;
}

static void compare(uint32_t layers, double memory_gib, double tflops,
                    const char *layout)
{
    lh_job *job = job_of(layers, memory_gib, tflops, layout);
    lhi_arena *mem = lhi_arena_make(0);
    lhi_space space;
    lh_error err = {0};
    if (!job)
        return;
    CHECK_OK(lhi_space_init(job, mem, &space, &err), err);
    everything all = {.job = job, .space = &space, .best_ns = INT64_MAX};
    CHECK_OK(lhi_space_children(&space, LHI_LEVEL_NONE, &all.config, NULL,
                                visit, &all, &err),
             err);
    lh_plan *exact = plan_by(job, LH_PARTITION_EXACT);
    lh_plan *climb = plan_by(job, LH_PARTITION_HILL_CLIMBING);
    if (exact && climb) {
        CHECK(all.n_layouts > 20 && all.n_partitions > 2 * all.n_layouts);
        if (exact->best.elastic) /* elastic plans have a larger search space */
            CHECK(exact->best.iteration_ns <= all.best_ns);
        else
            CHECK_INT(exact->best.iteration_ns, all.best_ns);
        CHECK(exact->search_bound_ns <= all.best_ns);
        CHECK(climb->search_bound_ns <= all.best_ns);
        CHECK(climb->best.iteration_ns >= exact->best.iteration_ns);
        /* The exact search uses each partition's own bound. */
        CHECK(exact->search_bound_ns >= climb->search_bound_ns);
    }
    lh_plan_free(exact);
    lh_plan_free(climb);
    lhi_space_fini(&space);
    lhi_arena_free(mem);
    lh_job_free(job);
}

static void exact_is_the_best_of_all(void)
{
    compare(5, 40, 200, "{micro_batch: 1, context: 1}");
    compare(6, 40, 100, "{micro_batch: 1, context: 1, tensor: 1}");
    compare(6, 3.2, 200, "{micro_batch: 1, context: 1, tensor: 1}");
}

int main(void)
{
    RUN(exact_is_the_best_of_all);
    return test_summary();
}
