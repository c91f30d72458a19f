/* SPDX-License-Identifier: Apache-2.0 */
/* Placements when memory runs out: each allocation fails in turn, and each time
 * the call returns LH_ENOMEM without leaks. */
#include "jobs.h"

#include "planner/layout/site_search.h"
#include "planner/layout/traffic.h"

#include "fail_alloc.h"

#include <longhaul/experimental/plan.h>

static const char seven[] =
    "  datacenters: [{name: a, nodes: 1}, {name: b, nodes: 1}, "
    "{name: c, nodes: 1}, {name: d, nodes: 1}, {name: e, nodes: 1}, "
    "{name: f, nodes: 1}, {name: g, nodes: 1}]\n"
    "  links:\n";

static lh_layout layout_of(uint32_t pipeline, uint32_t data)
{
    return (lh_layout){.tensor = 4,
                       .context = 1,
                       .expert = 1,
                       .pipeline = pipeline,
                       .data = data,
                       .micro_batch = 1,
                       .chunks_per_device = 1,
                       .outermost = LH_OUTERMOST_DATA};
}

static void find(const lh_job *job, lh_layout layout)
{
    FAIL_EACH_ALLOC({
        lhi_arena *mem = lhi_arena_make(0);
        const lh_sites *list = NULL;
        uint32_t n = 0;
        status = mem ? lhi_placement_search(job, &layout, mem, &list, &n, NULL)
                     : LH_ENOMEM;
        CHECK((status == LH_OK) == (n > 0));
        lhi_arena_free(mem);
    });
}

static void few_and_many(void)
{
    char cluster[4000];
    int used = snprintf(cluster, sizeof cluster, "%s", seven);
    for (char a = 'a'; a <= 'g'; a++)
        for (char b = 'a'; b < a; b++)
            used += snprintf(cluster + used, sizeof cluster - (size_t)used,
                             "   - {between: [%c, %c], latency_ms: %d, "
                             "gbps: 100}\n",
                             a, b, a * 7 % 13 + b);
    lh_job *job = job_at(16, JOB_PAIRS, NULL);
    find(job, layout_of(4, 2));
    find(job, layout_of(2, 4));
    lh_job_free(job);
    job = job_at(14, cluster, NULL);
    find(job, layout_of(7, 1));
    lh_job_free(job);
}

/* Default placement, and a ring over four datacenters. */
static void pipelines_and_traffic(void)
{
    lh_job *job = job_at(16, JOB_PAIRS, NULL);
    lhi_config config = {.layout = layout_of(2, 4), .microbatches = 4};
    FAIL_EACH_ALLOC({
        lh_pipeline *p = NULL;
        status = lh_plan_pipeline(job, &config.layout, LH_PLACEMENT_UD,
                                  LH_RECOMPUTE_NONE, &p, NULL, NULL);
        CHECK((status == LH_OK) == (p != NULL));
        lh_pipeline_free(p);
    });
    FAIL_EACH_ALLOC({
        lhi_arena *mem = lhi_arena_make(0);
        const lhi_traffic *list = NULL;
        uint32_t n = 0;
        status = mem ? lhi_traffic_of(job, &config, mem, &list, &n, NULL)
                     : LH_ENOMEM;
        CHECK((status == LH_OK) == (n > 0));
        lhi_arena_free(mem);
    });
    lh_job_free(job);
}

int main(void)
{
    RUN(few_and_many);
    RUN(pipelines_and_traffic);
    return test_summary();
}
