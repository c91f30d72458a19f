/* SPDX-License-Identifier: Apache-2.0 */
/* Random jobs on two small sites: `size` with a deadline or a budget finds the
 * same size as plans of every node count. With the default effort it plans all
 * sizes of few nodes, and searches those of more. */
#include "cases.h"
#include "jobs.h"

#include "base/random.h"

#include <longhaul/experimental/plan.h>
#include <longhaul/experimental/size.h>

enum { MOST = 2, MANY = 6, ITERATIONS = 1000 };

static uint32_t n_jobs = 3;
static uint32_t first_seed = 120;
static uint32_t n_with_both, n_too_late;

#define PICK(r, list) (list)[lhi_random_below(r, sizeof(list) / sizeof *(list))]

/* Draws a job: sizes of the model, GPUs, prices and the link, for at most
 * `most` nodes in each site. The output layer may be as large as several
 * others, which then need an uneven partition. */
static lh_job *draw_job(lhi_random *r, int most)
{
    static const uint32_t layers[] = {2, 3, 4, 7}, hidden[] = {2048, 4096};
    static const uint32_t vocabularies[] = {1000, 128000};
    static const uint32_t batches[] = {4, 6, 8, 12}, node[] = {1, 2};
    static const char *const gpus[] = {"h100-sxm", "a100-80g", "h200"};
    static const double prices[] = {1, 1.5, 2, 3, 4};
    static const double latencies[] = {0.1, 1, 10, 40};
    static const double rates[] = {10, 100, 400, 1600};
    static const double per_gb[] = {0, 0.001, 0.01, 0.1};
    const uint32_t width = PICK(r, hidden), of_node = PICK(r, node);
    const uint32_t n_layers = PICK(r, layers), batch = PICK(r, batches);
    const char *const west = PICK(r, gpus), *const east = PICK(r, gpus);
    const double west_usd = PICK(r, prices), east_usd = PICK(r, prices);
    const double latency_ms = PICK(r, latencies), gbps = PICK(r, rates);
    const double gb_usd = PICK(r, per_gb);
    const uint32_t vocabulary = PICK(r, vocabularies);
    return job_with(
        JOB_SMALL,
        "  gpus_per_node: %u\n"
        "  datacenters:\n"
        "   - {name: west, nodes: %d, gpu: %s, usd_per_gpu_hour: %g}\n"
        "   - {name: east, nodes: %d, gpu: %s, usd_per_gpu_hour: %g}\n"
        "  links: [{between: [west, east], latency_ms: %g, gbps: %g, "
        "usd_per_gb: %g}]\n"
        "model: {layers: %u, hidden: %u, ffn: %u, heads: 8, vocab: %u}\n"
        "training: {global_batch: %u, sequence: 1024, zero: 1, recompute: "
        "none}\n"
        "layout: {tensor: 1, context: 1}\n",
        of_node, most, west, west_usd, most, east, east_usd, latency_ms, gbps,
        gb_usd, n_layers, width, 4 * width, vocabulary, batch);
}

/* Plans a node count for the least time or, with a limit on the iteration, for
 * the least cost; NULL: no layout fits. */
static lh_plan *plan_nodes(const lh_job *job, const uint32_t *nodes,
                           int64_t max_ns)
{
    const lh_plan_options o = {.size = sizeof o,
                               .no_optimal = true,
                               .objective =
                                   max_ns ? LH_PLAN_CHEAPEST : LH_PLAN_FASTEST,
                               .max_iteration_ns = max_ns,
                               .layout_effort = 900000, /* no alternatives */
                               .threads = 1};
    lh_job *sized = NULL;
    lh_plan *plan = NULL;
    lh_error err = {0};
    CHECK_OK(lh_size_job(job, nodes, &sized, &err), err);
    const lh_status status = lh_plan_make(sized, &o, &plan, &err);
    CHECK_MSG(status == LH_OK || status == LH_EINFEASIBLE, "%s", err.text);
    lh_job_free(sized);
    return status == LH_OK ? plan : NULL;
}

/* Finds the least time of an iteration over all node counts, in ns. */
static int64_t find_fastest(const lh_job *job)
{
    int64_t least = INT64_MAX;
    for (uint32_t k = 1; k < (MOST + 1) * (MOST + 1); k++) {
        const uint32_t nodes[LH_MAX_DATACENTERS] = {k / (MOST + 1),
                                                    k % (MOST + 1)};
        lh_plan *plan = plan_nodes(job, nodes, 0);
        if (plan && plan->best.iteration_ns < least)
            least = plan->best.iteration_ns;
        lh_plan_free(plan);
    }
    return least;
}

/* Finds the least cost of an iteration of at most max_ns over all node counts
 * and the fewest GPUs that allow one. *both: the cheapest plan is in both
 * sites. */
static double find_cheapest(const lh_job *job, int64_t max_ns, uint32_t *gpus,
                            bool *both)
{
    double usd = INFINITY;
    *gpus = UINT32_MAX;
    for (uint32_t k = 1; k < (MOST + 1) * (MOST + 1); k++) {
        const uint32_t nodes[LH_MAX_DATACENTERS] = {k / (MOST + 1),
                                                    k % (MOST + 1)};
        lh_plan *plan = plan_nodes(job, nodes, max_ns);
        if (plan && plan->best.iteration_ns <= max_ns) {
            if (plan->best.cost->usd < usd) {
                usd = plan->best.cost->usd;
                *both = plan->best.cost->inter_datacenter_gb > 0;
            }
            if (plan->best.cost->gpus < *gpus)
                *gpus = plan->best.cost->gpus;
        }
        lh_plan_free(plan);
    }
    return usd;
}

/* Compares the search with all node counts, if the deadline is `slack` times
 * the shortest training. */
static void compare(uint64_t seed, const lh_job *job, int64_t least,
                    double slack)
{
    const int64_t max_ns = (int64_t)((double)least * slack);
    uint32_t gpus;
    bool both = false;
    const double usd = find_cheapest(job, max_ns, &gpus, &both);
    const lh_size_options o = {
        .size = sizeof o,
        .tokens = (double)ITERATIONS * job->training.global_batch *
                  (double)job->training.sequence,
        .deadline_s = ITERATIONS * ((double)max_ns + 0.5) / 1e9,
        .threads = 1};
    lh_size_result *r = NULL;
    lh_error err = {0};
    CHECK_OK(lh_size_find(job, &o, &r, &err), err);
    CHECK_MSG((r->n_found > 0) == isfinite(usd), "seed %u, %g: %u found, %g",
              (unsigned)seed, slack, r->n_found, usd);
    if (r->n_found && isfinite(usd)) {
        CHECK_MSG(fabs(r->cheapest.usd / usd / ITERATIONS - 1) < 1e-3,
                  "seed %u, %g: USD %g, not %g", (unsigned)seed, slack,
                  r->cheapest.usd, usd * ITERATIONS);
        CHECK_MSG(r->fewest.gpus == gpus, "seed %u, %g: %u GPUs, not %u",
                  (unsigned)seed, slack, r->fewest.gpus, gpus);
        CHECK(r->cheapest.train_s <= o.deadline_s);
        CHECK(r->usd_bound <= ITERATIONS * usd * (1 + 1e-9));
        CHECK(r->gpus_bound <= gpus);
    }
    if (!r->n_found)
        CHECK_MSG(r->fastest.train_s > o.deadline_s,
                  "seed %u, %g: none found, but one takes %g s", (unsigned)seed,
                  slack, r->fastest.train_s);
    n_with_both += both;
    n_too_late += usd < INFINITY ? 0 : 1;
    lh_size_result_free(r);
}

static void size_finds_the_cheapest_of_all_counts(void)
{
    static const double slacks[] = {0.6, 1, 1.2, 1.7, 3};
    for (uint64_t k = 0; k < n_jobs; k++) {
        const uint64_t seed = first_seed + k;
        lhi_random r = {seed};
        lh_job *job = draw_job(&r, MOST);
        const int64_t least = find_fastest(job);
        CHECK(least < INT64_MAX);
        for (int i = 0; i < 2; i++)
            compare(seed, job, least, PICK(&r, slacks));
        lh_job_free(job);
    }
}

/* Fastest plan of one node count. */
typedef struct counted_plan {
    double train_s, usd;
} counted_plan;

/* Plans every node count of up to MANY nodes in each site into plans[], and
 * returns their number. */
static uint32_t plan_counts(const lh_job *job, counted_plan *plans)
{
    uint32_t n = 0;
    for (uint32_t k = 1; k < (MANY + 1) * (MANY + 1); k++) {
        const uint32_t nodes[LH_MAX_DATACENTERS] = {k / (MANY + 1),
                                                    k % (MANY + 1)};
        lh_plan *plan = plan_nodes(job, nodes, 0);
        if (plan)
            plans[n++] = (counted_plan){
                ITERATIONS * (double)plan->best.iteration_ns / 1e9,
                ITERATIONS * plan->best.cost->usd};
        lh_plan_free(plan);
    }
    return n;
}

/* Compares the search with all node counts, if the budget is `share` of the way
 * from the least cost to that of the fastest plan. */
static void compare_budget(uint64_t seed, const lh_job *job,
                           const counted_plan *plans, uint32_t n, double share)
{
    double least_usd = INFINITY, most_usd = 0, train_s = INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        least_usd = fmin(least_usd, plans[i].usd);
        most_usd = plans[i].train_s < train_s ? plans[i].usd : most_usd;
        train_s = fmin(train_s, plans[i].train_s);
    }
    const lh_size_options o = {
        .size = sizeof o,
        .tokens = (double)ITERATIONS * job->training.global_batch *
                  (double)job->training.sequence,
        .budget_usd = (least_usd + share * (most_usd - least_usd)) * (1 + 1e-6),
        .threads = 1};
    lh_size_result *r = NULL;
    lh_error err = {0};
    train_s = INFINITY;
    for (uint32_t i = 0; i < n; i++)
        if (plans[i].usd <= o.budget_usd)
            train_s = fmin(train_s, plans[i].train_s);
    CHECK_OK(lh_size_find(job, &o, &r, &err), err);
    CHECK(r->n_found > 0);
    CHECK(r->fastest.usd <= o.budget_usd);
    CHECK_MSG(r->fastest.train_s <= train_s * (1 + 1e-3),
              "seed %u, %g: %g s, not %g", (unsigned)seed, share,
              r->fastest.train_s, train_s);
    CHECK(r->train_bound_s <= train_s * (1 + 1e-9));
    CHECK(r->usd_bound <= least_usd * (1 + 1e-9));
    lh_size_result_free(r);
}

static void size_finds_the_fastest_within_a_budget(void)
{
    static const double shares[] = {0, 0.1, 0.3, 0.6, 1};
    for (uint64_t k = 0; k < n_jobs; k++) {
        counted_plan plans[(MANY + 1) * (MANY + 1)];
        const uint64_t seed = first_seed + k;
        lhi_random r = {seed};
        lh_job *job = draw_job(&r, MANY);
        const uint32_t n = plan_counts(job, plans);
        CHECK(n > 0);
        for (int i = 0; i < 2; i++)
            compare_budget(seed, job, plans, n, PICK(&r, shares));
        lh_job_free(job);
    }
}

int main(int argc, char **argv)
{
    cases_from(argc, argv, &n_jobs, &first_seed);
    RUN(size_finds_the_cheapest_of_all_counts);
    RUN(size_finds_the_fastest_within_a_budget);
    if (argc == 1) /* the default jobs have both */
        CHECK(n_with_both > 0 && n_too_late > 0);
    printf("%u cheapest in both sites, %u too late\n", n_with_both, n_too_late);
    return test_summary();
}
