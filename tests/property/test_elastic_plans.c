/* SPDX-License-Identifier: Apache-2.0 */
/* Elastic plans among all others, on random jobs: asking for one, on any
 * degrees, gives no faster plan than leaving all open, nor one below what the
 * free search has proven; and what that says of elastic plans that it has not
 * looked at is true of them. */
#include "jobs.h"

#include "base/random.h"

#include <longhaul/plan.h>
#include <stdlib.h>

enum { JOBS = 5 };

static uint32_t pick(lhi_random *r, uint32_t least, uint32_t most)
{
    return least + lhi_random_below(r, most - least + 1);
}

/* Two sites, of one kind of GPU or two, that a thin or a far link joins. */
static lh_job *random_job(uint64_t seed, const char *layout)
{
    static const char *const gpus[] = {"a100-80g", "h100-sxm"};
    lhi_random r = {.state = seed};
    uint32_t nodes = 2, gpu = pick(&r, 0, 1);
    bool mixed = pick(&r, 0, 3) == 0;
    return job_with(
        JOB_TWO_SITES,
        "  gpu: %s\n"
        "  memory_reserve: %u%%\n"
        "  gpus_per_node: 8\n"
        "  datacenters: [{name: west, nodes: %u}, {name: east, nodes: %u, "
        "gpu: %s}]\n"
        "  links: [{between: [west, east], latency_ms: %u, gbps: %u}]\n"
        "model: {layers: %u, hidden: %u, ffn: 11008, heads: 32, vocab: 32000}\n"
        "training: {global_batch: %u, sequence: 4096%s}\n"
        "layout: {context: 1%s}\n",
        gpus[gpu], pick(&r, 0, 2) * 20, nodes, nodes,
        gpus[mixed ? 1 - gpu : gpu], pick(&r, 1, 20), pick(&r, 1, 8) * 25,
        pick(&r, 4, 8) * 4, 2048u * pick(&r, 1, 2), pick(&r, 1, 2) * 128,
        pick(&r, 0, 4) ? "" : ", zero: 1", layout);
}

static lh_plan *plan_of(uint64_t seed, const char *layout, uint64_t effort)
{
    lh_job *job = random_job(seed, layout);
    lh_plan_options o = {.size = sizeof o,
                         .no_optimal = true,
                         .partition = LH_PARTITION_EVEN,
                         .layout_effort = effort};
    lh_plan *plan = NULL;
    lh_error err = {0};
    lh_status status = lh_plan_make(job, &o, &plan, &err);
    CHECK_MSG(status == LH_OK || status == LH_EINFEASIBLE, "%s", err.text);
    lh_job_free(job);
    return plan;
}

static int64_t least(const lh_plan *const *plans, uint32_t n)
{
    int64_t ns = INT64_MAX;
    for (uint32_t i = 0; i < n; i++)
        if (plans[i] && plans[i]->best.iteration_ns < ns)
            ns = plans[i]->best.iteration_ns;
    return ns;
}

/* *won: whether an elastic plan is the best of all. */
static void try_job(uint64_t seed, uint32_t *won, uint32_t *left)
{
    enum { PINNED = 5 };
    static const char *const pins[PINNED] = {
        ", schedule: elastic", ", schedule: elastic, pipeline: 2",
        ", schedule: elastic, tensor: 2", ", schedule: elastic, pipeline: 4",
        ", schedule: elastic, outermost: data, micro_batch: 1"};
    lh_plan *whole = plan_of(seed, "", 1000000);
    lh_plan *glance = plan_of(seed, "", 2000), *pinned[PINNED];
    for (uint32_t i = 0; i < PINNED; i++)
        pinned[i] = plan_of(seed, pins[i], 1000000);
    int64_t fastest = least((const lh_plan *const *)pinned, PINNED);
    if (whole && glance) {
        CHECK_MSG((double)whole->best.iteration_ns <= 1.005 * (double)fastest,
                  "seed %d: %.4f s, but %.4f s where elastic plans are asked "
                  "for",
                  (int)seed, (double)whole->best.iteration_ns / 1e9,
                  (double)fastest / 1e9);
        CHECK_MSG(whole->search_bound_ns <= fastest &&
                      glance->search_bound_ns <= fastest,
                  "seed %d: %.4f s, proven were %.4f and %.4f s", (int)seed,
                  (double)fastest / 1e9, (double)whole->search_bound_ns / 1e9,
                  (double)glance->search_bound_ns / 1e9);
        *won += whole->best.elastic != NULL;
        *left += glance->n_elastic_left > 0;
    }
    lh_plan_free(whole);
    lh_plan_free(glance);
    for (uint32_t i = 0; i < PINNED; i++)
        lh_plan_free(pinned[i]);
}

static void asking_for_elastic_plans_gains_nothing(void)
{
    uint32_t won = 0, left = 0;
    for (uint64_t i = 0; i < JOBS; i++)
        try_job(i, &won, &left);
    CHECK_MSG(won > 0 && won < JOBS && left > 0,
              "%u plans are elastic, and %u searches left some", won, left);
}

int main(void)
{
    RUN(asking_for_elastic_plans_gains_nothing);
    return test_summary();
}
