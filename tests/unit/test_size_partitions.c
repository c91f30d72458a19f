/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes whose best plans have uneven partitions of layers. */
#include "jobs.h"

#include "planner/size/size_internal.h"

/* Plans the job with a search over its layer partitions; returns the iteration
 * time in seconds. */
static double plan_seconds(const lh_job *job, lh_partition_search partition)
{
    const lh_plan_options o = {.size = sizeof o,
                               .no_optimal = true,
                               .partition = partition,
                               .layout_effort = 900000,
                               .threads = 1};
    lh_plan *plan = NULL;
    lh_error err = {0};
    CHECK_OK(lh_plan_make(job, &o, &plan, &err), err);
    const double seconds = plan ? (double)lh_plan_iteration_ns(plan) / 1e9 : 0;
    lh_plan_free(plan);
    return seconds;
}

/* Three stages of 7 layers and an output layer as large as five of them: the
 * even partition is far from the best one. Sizes have the best one's time, and
 * their bounds do not exceed it. */
static void partitions_need_not_be_even(void)
{
    lh_job *job = job_with(
        JOB_SMALL,
        "  datacenters: [{name: west, nodes: 3, usd_per_gpu_hour: 3}]\n"
        "  links:\n"
        "model: {layers: 7, hidden: 2048, ffn: 8192, heads: 8, vocab: 128000}\n"
        "training: {global_batch: 24, sequence: 1024}\n"
        "layout: {tensor: 1, context: 1, pipeline: 3, data: 1, micro_batch: 1, "
        "chunks_per_device: 1}\n");
    const uint32_t nodes[LH_MAX_DATACENTERS] = {3};
    const lhi_planned_size *size = NULL;
    lh_error err = {0};
    const double best_s = plan_seconds(job, LH_PARTITION_EXACT);
    const double even_s = plan_seconds(job, LH_PARTITION_EVEN);
    CHECK_MSG(even_s > 1.1 * best_s, "%g s and %g s", even_s, best_s);
    for (int depth = LHI_SIZE_QUICK; depth <= LHI_SIZE_DEEP; depth++) {
        lhi_size_search s = {
            .job = job, .options.threads = 1, .mem = lhi_arena_make(0)};
        CHECK_OK(lhi_size_plan(&s, nodes, (lhi_size_depth)depth, &size, &err),
                 err);
        CHECK_MSG(size && (double)size->bound_ns / 1e9 <= best_s,
                  "depth %d: bound %g s of %g s", depth,
                  (double)size->bound_ns / 1e9, best_s);
        lhi_arena_free(s.mem);
    }
    lh_size_options o = {.size = sizeof o,
                         .tokens = 1000.0 * 24 * 1024,
                         .deadline_s = 1000 * (best_s + 1e-9),
                         .threads = 1};
    lh_size_result *r = NULL;
    CHECK_OK(lh_size_find(job, &o, &r, &err), err);
    CHECK(r->n_found > 0);
    CHECK(r->gpus_bound > 0 && r->gpus_bound <= 3);
    CHECK(r->usd_bound > 0 && r->usd_bound <= 1000 * 9 * best_s / 3600);
    lh_size_result_free(r);
    /* so has the fastest size, if it misses the deadline */
    o.deadline_s = 1;
    CHECK_OK(lh_size_find(job, &o, &r, &err), err);
    CHECK_INT(r->n_found, 0);
    CHECK_MSG(r->fastest.train_s <= 1000 * best_s * 1.001, "%g s, not %g s",
              r->fastest.train_s, 1000 * best_s);
    lh_size_result_free(r);
    lh_job_free(job);
}

int main(void)
{
    RUN(partitions_need_not_be_even);
    return test_summary();
}
