/* SPDX-License-Identifier: Apache-2.0 */
/* Fixing a dimension of the search gains nothing over leaving it open. Uses
 * random jobs and plans that an unlimited search would find: elastic plans, the
 * cheapest plan, and the plans on a Pareto front. In addition, the bounds that
 * a search reports must hold for all these plans, including plans in unexplored
 * parts. */
#include "jobs.h"

#include "base/random.h"

#include <longhaul/experimental/plan.h>
#include <stdlib.h>

enum { PINNED = 5, HARDLY = 2000 };

static uint32_t n_jobs = 1, first = 3, n_pins = 2;

static uint32_t pick(lhi_random *r, uint32_t least, uint32_t most)
{
    return least + lhi_random_below(r, most - least + 1);
}

/* Samples two sites with one or two kinds of GPUs, joined by a slow or long
 * link. */
static lh_job *random_job(uint64_t seed, const char *layout)
{
    static const char *const gpus[] = {"a100-80g", "h100-sxm"};
    lhi_random r = {.state = seed};
    uint32_t gpu = pick(&r, 0, 1);
    bool mixed = pick(&r, 0, 3) == 0;
    uint32_t reserve = pick(&r, 0, 2) * 20, ms = pick(&r, 1, 20);
    uint32_t gbps = pick(&r, 1, 8) * 25, layers = pick(&r, 4, 8) * 4;
    uint32_t hidden = 2048 * pick(&r, 1, 2), batch = 128 * pick(&r, 1, 2);
    return job_with(
        JOB_TWO_SITES,
        "  gpu: %s\n"
        "  memory_reserve: %u%%\n"
        "  gpus_per_node: 8\n"
        "  usd_per_gpu_hour: 2\n"
        "  usd_per_gb: %g\n"
        "  datacenters: [{name: west, nodes: 2}, {name: east, nodes: 2, "
        "gpu: %s, usd_per_gpu_hour: %u}]\n"
        "  links: [{between: [west, east], latency_ms: %u, gbps: %u}]\n"
        "model: {layers: %u, hidden: %u, ffn: 11008, heads: 32, vocab: 32000}\n"
        "training: {global_batch: %u, sequence: 4096%s}\n"
        "layout: {context: 1%s}\n",
        gpus[gpu], reserve, pick(&r, 0, 2) * 0.001, gpus[mixed ? 1 - gpu : gpu],
        pick(&r, 1, 3), ms, gbps, layers, hidden, batch,
        pick(&r, 0, 4) ? "" : ", zero: 1", layout);
}

static uint64_t enough = 1000000;

static lh_plan *plan_of(uint64_t seed, const char *layout,
                        lh_plan_objective goal, uint64_t effort)
{
    lh_job *job = random_job(seed, layout);
    lh_plan_options o = {.size = sizeof o,
                         .no_optimal = true,
                         .partition = LH_PARTITION_EVEN,
                         .objective = goal,
                         .layout_effort = effort};
    lh_plan *plan = NULL;
    lh_error err = {0};
    lh_status status = lh_plan_make(job, &o, &plan, &err);
    CHECK_MSG(status == LH_OK || status == LH_EINFEASIBLE, "%s", err.text);
    lh_job_free(job);
    return plan;
}

static lh_plan *front_of(uint64_t seed)
{
    lh_job *job = random_job(seed, "");
    lh_plan_options o = {.size = sizeof o,
                         .no_optimal = true,
                         .pareto_front = true,
                         .partition = LH_PARTITION_EVEN,
                         .layout_effort = enough};
    lh_plan *plan = NULL;
    lh_error err = {0};
    CHECK_OK(lh_plan_make(job, &o, &plan, &err), err);
    lh_job_free(job);
    return plan;
}

/* Fixed dimensions that may or may not contain the best plan. */
static const char *const pins[PINNED] = {
    ", schedule: elastic", ", schedule: elastic, pipeline: 2",
    ", schedule: elastic, tensor: 2", ", pipeline: 2",
    ", schedule: elastic, outermost: data, micro_batch: 1"};

/* A job's plans by full search, by minimal search, and with fixed dimensions.
 */
typedef struct all {
    lh_plan *whole[2], *glance[2], *pinned[2][PINNED]; /* per objective */
} all;

static double value_of(const lh_plan *plan, int goal)
{
    return goal == LH_PLAN_CHEAPEST ? plan->best.cost->usd
                                    : (double)plan->best.iteration_ns;
}

static double bound_of(const lh_plan *plan, int goal)
{
    return goal == LH_PLAN_CHEAPEST ? plan->search_bound_usd
                                    : (double)plan->search_bound_ns;
}

static void check_goal(uint64_t seed, const all *a, int goal)
{
    const lh_plan *whole = a->whole[goal], *glance = a->glance[goal];
    for (uint32_t i = 0; i < n_pins; i++) {
        const lh_plan *pinned = a->pinned[goal][i];
        if (!whole || !glance || !pinned)
            continue;
        double here = value_of(pinned, goal);
        CHECK_MSG(value_of(whole, goal) <= 1.005 * here,
                  "seed %d: %g, but %g with%s", (int)seed,
                  value_of(whole, goal), here, pins[i]);
        CHECK_MSG(bound_of(whole, goal) <= here * (1 + 1e-9) &&
                      bound_of(glance, goal) <= here * (1 + 1e-9),
                  "seed %d: %g with%s, proven were %g and %g", (int)seed, here,
                  pins[i], bound_of(whole, goal), bound_of(glance, goal));
        CHECK(bound_of(glance, goal) > 0);
    }
}

static void no_plan_beats(uint64_t seed, const lh_plan *front,
                          const lh_plan *plan)
{
    for (uint32_t i = 0; plan && i < front->n_pareto; i++) {
        const lh_choice *x = &front->pareto_front[i], *y = &plan->best;
        CHECK_MSG((double)x->iteration_ns <= 1.005 * (double)y->iteration_ns ||
                      x->cost->usd <= 1.005 * y->cost->usd ||
                      x->peak_memory_bytes < y->peak_memory_bytes,
                  "seed %d: %g s for USD %g, but %g s for USD %g are possible",
                  (int)seed, (double)x->iteration_ns / 1e9, x->cost->usd,
                  (double)y->iteration_ns / 1e9, y->cost->usd);
    }
}

/* Checks that no other plan dominates a plan on the front, and that these plans
 * take at most four times the best one's time. The same search finds the front
 * and the plan. */
static void check_front(uint64_t seed, const all *a)
{
    lh_plan *front = front_of(seed);
    if (!front)
        return;
    CHECK(front->n_pareto > 1);
    for (uint32_t i = 0; i < front->n_pareto; i++)
        CHECK(front->pareto_front[i].iteration_ns <=
              4 * front->best.iteration_ns);
    for (int goal = 0; goal < 2; goal++) {
        no_plan_beats(seed, front, a->whole[goal]);
        for (uint32_t i = 0; i < n_pins; i++)
            no_plan_beats(seed, front, a->pinned[goal][i]);
    }
    lh_plan_free(front);
}

static void asking_gains_nothing(void)
{
    uint32_t won[2] = {0}, left = 0;
    for (uint64_t seed = first; seed < first + n_jobs; seed++) {
        all a;
        for (int goal = LH_PLAN_FASTEST; goal <= LH_PLAN_CHEAPEST; goal++) {
            lh_plan_objective g = (lh_plan_objective)goal;
            a.whole[goal] = plan_of(seed, "", g, enough);
            a.glance[goal] = plan_of(seed, "", g, HARDLY);
            for (uint32_t i = 0; i < n_pins; i++)
                a.pinned[goal][i] = plan_of(seed, pins[i], g, enough);
            check_goal(seed, &a, goal);
            won[goal] += a.whole[goal] && a.whole[goal]->best.elastic;
            left += a.glance[goal] && a.glance[goal]->n_elastic_unexplored > 0;
        }
        check_front(seed, &a);
        for (int goal = 0; goal < 2; goal++) {
            lh_plan_free(a.whole[goal]);
            lh_plan_free(a.glance[goal]);
            for (uint32_t i = 0; i < n_pins; i++)
                lh_plan_free(a.pinned[goal][i]);
        }
    }
    CHECK_MSG(won[0] > 0 && won[1] > 0 && left > 0,
              "%u and %u plans are elastic, and %u searches left some", won[0],
              won[1], left);
}

/* Arguments: [JOBS [FIRST [WORK]]] */
int main(int argc, char **argv)
{
    if (argc > 1)
        n_jobs = (uint32_t)strtoul(argv[1], NULL, 10);
    if (n_jobs > 1)
        n_pins = PINNED;
    if (argc > 2)
        first = (uint32_t)strtoul(argv[2], NULL, 10);
    if (argc > 3)
        enough = strtoull(argv[3], NULL, 10);
    RUN(asking_gains_nothing);
    return test_summary();
}
