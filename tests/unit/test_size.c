/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes: the search agrees with planning every size of tiny jobs. */
#include "jobs.h"

#include "planner/size/size_internal.h"

#include <longhaul/experimental/cost.h>
#include <longhaul/experimental/size.h>

/* --- sizes ---------------------------------------------------------------- */

/* Two datacenters with other GPUs, prices and nodes. */
static lh_job *two_kinds(void)
{
    return job_with(JOB_SMALL,
                    "  datacenters:\n"
                    "   - {name: west, nodes: 4, usd_per_gpu_hour: 3}\n"
                    "   - {name: east, nodes: 4, gpu: a100-80g, "
                    "usd_per_gpu_hour: 1}\n"
                    "model: {layers: 4, hidden: 4096, ffn: 16384, heads: 8, "
                    "vocab: 1000}\n"
                    "training: {global_batch: 32, sequence: 1024}\n");
}

/* Plans the size, as the search does for the sizes that it reports. -1: no
 * layout fits. */
static double plan_seconds(const lh_job *job, const uint32_t *nodes)
{
    const lh_plan_options o = {.size = sizeof o,
                               .no_optimal = true,
                               .layout_effort = 900000, /* no alternatives */
                               .threads = 1};
    lh_job *sized = NULL;
    lh_plan *plan = NULL;
    lh_error err = {0};
    double seconds = -1;
    CHECK_OK(lh_size_job(job, nodes, &sized, &err), err);
    if (lh_plan_make(sized, &o, &plan, &err) == LH_OK)
        seconds = (double)lh_plan_iteration_ns(plan) / 1e9;
    lh_plan_free(plan);
    lh_job_free(sized);
    return seconds;
}

enum { MOST = 4 }; /* nodes of each datacenter */

/* Compares the search with all sizes for a deadline, `effort` sizes planned.
 * *n_knees counts the results with a knee. */
static void compare_with_all(const lh_job *job,
                             double seconds[MOST + 1][MOST + 1],
                             double deadline_s, uint32_t effort,
                             uint32_t *n_knees)
{
    const double iterations = 1000;
    lh_size_options o = {.size = sizeof o,
                         .tokens = iterations * 32 * 1024,
                         .deadline_s = deadline_s,
                         .effort = effort,
                         .threads = 1};
    lh_size_result *r = NULL;
    lh_error err = {0};
    uint32_t gpus = UINT32_MAX;
    double usd = INFINITY, product = INFINITY, usual = INFINITY;
    CHECK_OK(lh_size_find(job, &o, &r, &err), err);
    for (uint32_t a = 0; a <= MOST; a++)
        for (uint32_t b = 0; b <= MOST; b++) {
            const double time = seconds[a][b] * iterations;
            const double cost = (a * 3 + b * 1) * time / 3600;
            if (!(seconds[a][b] > 0) || time > deadline_s)
                continue;
            gpus = a + b < gpus ? a + b : gpus;
            usual = cost < usd ? cost * time : usual;
            usd = fmin(usd, cost);
            product = fmin(product, cost * time);
        }
    if (product > 0.9 * usual)
        CHECK_INT(r->knee.gpus, 0);
    if (r->knee.gpus) { /* of the planned sizes, with a plan of its own */
        const lh_size *x = &r->knee;
        const double own = seconds[x->nodes[0]][x->nodes[1]] * iterations;
        CHECK_NEAR(x->train_s / own, 1, 0.001);
        CHECK_NEAR(x->usd * 3600 / own / (x->nodes[0] * 3 + x->nodes[1]), 1,
                   0.001);
        CHECK(x->train_s <= deadline_s && x->train_s * x->usd < 0.9 * usual);
    }
    *n_knees += r->knee.gpus > 0;
    CHECK_INT(r->n_found > 0, gpus < UINT32_MAX);
    CHECK_INT(r->all_planned, effort >= 25);
    if (gpus < UINT32_MAX) {
        CHECK_INT(r->fewest.gpus, gpus);
        CHECK_NEAR(r->cheapest.usd / usd, 1, 0.001);
        CHECK(r->gpus_bound > 0 && r->gpus_bound <= gpus);
        CHECK(r->usd_bound > 0 && r->usd_bound <= usd * (1 + 1e-9));
    } else {
        CHECK_INT(r->gpus_bound, 0); /* proven by the largest size's bound */
    }
    lh_size_result_free(r);
}

/* Compares the fastest size for a budget with all sizes. */
static void compare_fastest(const lh_job *job,
                            double seconds[MOST + 1][MOST + 1],
                            double budget_usd, uint32_t effort)
{
    const double iterations = 1000;
    const lh_size_options o = {.size = sizeof o,
                               .tokens = iterations * 32 * 1024,
                               .budget_usd = budget_usd,
                               .effort = effort,
                               .threads = 1};
    lh_size_result *r = NULL;
    lh_error err = {0};
    double least = INFINITY;
    CHECK_OK(lh_size_find(job, &o, &r, &err), err);
    for (uint32_t a = 0; a <= MOST; a++)
        for (uint32_t b = 0; b <= MOST; b++) {
            const double time = seconds[a][b] * iterations;
            if (time > 0 && (a * 3 + b * 1) * time / 3600 <= budget_usd)
                least = fmin(least, time);
        }
    CHECK(isfinite(least) && r->n_found > 0);
    CHECK_NEAR(r->fastest.train_s / least, 1, 0.001);
    CHECK(r->fastest.usd <= budget_usd && r->cheapest.usd <= r->fastest.usd);
    CHECK(r->train_bound_s > 0 && r->train_bound_s <= least * (1 + 1e-9));
    lh_size_result_free(r);
}

/* If one datacenter is too slow for the deadline, the bound on the cost
 * includes traffic between both: a price per byte raises it, and it stays a
 * bound. */
static void traffic_raises_the_bound(void)
{
    const double prices[] = {0, 0.5};
    double bounds[2] = {0};
    for (int i = 0; i < 2; i++) {
        lh_job *job = job_two_sites("{}", 32, 40);
        const lh_size_options o = {.size = sizeof o,
                                   .tokens = 1000.0 * 32 * 4096,
                                   .deadline_s = 2000,
                                   .usd_per_gpu_hour = 2,
                                   .usd_per_gb = prices[i],
                                   .threads = 1};
        lh_size_result *r = NULL;
        lh_error err = {0};
        CHECK_OK(lh_size_find(job, &o, &r, &err), err);
        CHECK(r->n_found > 0);
        CHECK(r->usd_bound > 0 && r->usd_bound <= r->cheapest.usd * (1 + 1e-9));
        bounds[i] = r->usd_bound;
        lh_size_result_free(r);
        lh_job_free(job);
    }
    CHECK(bounds[1] > 1.5 * bounds[0]);
}

static void search_agrees_with_all_sizes(void)
{
    lh_job *job = two_kinds();
    double seconds[MOST + 1][MOST + 1] = {{-1}};
    double least = INFINITY, most = 0;
    uint32_t n_knees = 0;
    for (uint32_t a = 0; a <= MOST; a++)
        for (uint32_t b = 0; b <= MOST; b++) {
            const uint32_t nodes[LH_MAX_DATACENTERS] = {a, b};
            if (a + b == 0)
                continue;
            seconds[a][b] = plan_seconds(job, nodes);
            least = fmin(least, seconds[a][b]);
            most = fmax(most, seconds[a][b]);
        }
    CHECK_MSG(least > 0 && most > 2 * least, "%g to %g s", least, most);
    for (double share = 0; share <= 1; share += 0.45) {
        const double deadline = 1000 * (1.01 * least + share * (most - least));
        compare_with_all(job, seconds, deadline, 100, &n_knees);
        compare_with_all(job, seconds, deadline, 16, &n_knees);
    }
    CHECK(n_knees > 0);
    compare_with_all(job, seconds, 1000 * least * 0.3, 100, &n_knees);
    /* from 1.1 times the price of one node's run of `east` */
    for (double factor = 1.1; factor < 3; factor *= 1.6) {
        const double budget = factor * 1000 * seconds[0][1] / 3600;
        compare_fastest(job, seconds, budget, 100);
        compare_fastest(job, seconds, budget, 16);
    }
    lh_job_free(job);
}

/* Ranges far beyond the smallest size do not hide it, and no size with lost
 * nodes that is still in time has fewer GPUs than the result. */
static void wide_ranges_keep_the_answer(void)
{
    lh_job *job = two_kinds();
    const lh_size_range narrow[] = {{0, MOST}, {0, MOST}},
                        wide[] = {{0, 4096}, {0, 4096}};
    lh_size_options o = {.size = sizeof o,
                         .tokens = 1000.0 * 32 * 1024,
                         .effort = 30,
                         .threads = 1};
    lh_size_result *few = NULL, *many = NULL;
    lh_error err = {0};
    const uint32_t nodes[LH_MAX_DATACENTERS] = {2, 1};
    o.deadline_s = 1000 * plan_seconds(job, nodes);
    o.ranges = narrow;
    CHECK_OK(lh_size_find(job, &o, &few, &err), err);
    o.ranges = wide;
    CHECK_OK(lh_size_find(job, &o, &many, &err), err);
    CHECK(few->n_found > 0 && many->n_found > 0);
    CHECK_MSG(many->fewest.gpus <= few->fewest.gpus + 1, "%u and %u GPUs",
              many->fewest.gpus, few->fewest.gpus);
    for (uint32_t i = 0; i < many->fewest.n_losses; i++)
        CHECK(!many->fewest.losses[i].meets_deadline);
    lh_size_result_free(few);
    lh_size_result_free(many);
    lh_job_free(job);
}

/* The price of spot capacity, spares and the budget count. */
static void prices_and_spares_count(void)
{
    const lh_size_range ranges[] = {{2, 2}, {0, 1}};
    const lh_failures f = {.size = sizeof f, .spares = 1};
    lh_size_options o = {.size = sizeof o,
                         .tokens = 1e7,
                         .deadline_s = 1e9,
                         .ranges = ranges,
                         .failures = &f,
                         .threads = 1};
    lh_job *job = two_kinds();
    lh_size_result *r = NULL;
    lh_error err = {0};
    CHECK_OK(lh_size_find(job, &o, &r, &err), err);
    CHECK_INT(r->fewest.nodes[0], 2);
    CHECK_INT(r->fewest.nodes[1], 0);
    CHECK_INT(r->fewest.spare_gpus, 1);
    CHECK_NEAR(r->fewest.usd, 3 * 3 * r->fewest.train_s / 3600, 1e-9);
    CHECK_INT(r->fewest.n_losses, 1);
    CHECK(r->fewest.losses[0].train_s < 0); /* no node is left */
    const double usd = r->fewest.usd;
    lh_size_result_free(r);

    o.spot_price = 0.5;
    o.spot_mtbf_s = 1e12;
    CHECK_OK(lh_size_find(job, &o, &r, &err), err);
    CHECK(r->cheapest.spot);
    CHECK_NEAR(r->cheapest.usd / usd, 0.5, 1e-3);
    lh_size_result_free(r);

    o.budget_usd = usd / 3;
    CHECK_OK(lh_size_find(job, &o, &r, &err), err);
    CHECK_INT(r->n_found, 0);
    lh_size_result_free(r);
    lh_job_free(job);
}

/* A layout of two GPUs leaves the other nodes idle: they are neither counted
 * nor charged, except for those that the range requires. */
static void idle_nodes_are_not_charged(void)
{
    static const lh_size_range ranges[][2] = {{{0, 64}, {0, 0}},
                                              {{5, 64}, {0, 0}}};
    static const uint32_t expected[] = {2, 5};
    lh_job *job = job_with(
        JOB_SMALL,
        "  datacenters:\n"
        "   - {name: west, nodes: 4, usd_per_gpu_hour: 3}\n"
        "   - {name: east, nodes: 4, usd_per_gpu_hour: 1}\n"
        "model: {layers: 4, hidden: 4096, ffn: 16384, heads: 8, vocab: 1000}\n"
        "training: {global_batch: 2, sequence: 1024}\n"
        "layout: {tensor: 1, context: 1, pipeline: 1}\n");
    for (size_t i = 0; i < 2; i++) {
        const lh_size_options o = {.size = sizeof o,
                                   .tokens = 1e7,
                                   .deadline_s = 1e9,
                                   .ranges = ranges[i],
                                   .effort = 1,
                                   .threads = 1};
        lh_size_result *r = NULL;
        lh_error err = {0};
        CHECK_OK(lh_size_find(job, &o, &r, &err), err);
        const lh_size *x = &r->fewest;
        CHECK(r->n_found > 0);
        CHECK_MSG(x->gpus <= expected[i] && x->gpus >= ranges[i][0].least,
                  "%u GPUs", x->gpus);
        CHECK_NEAR(x->usd, 3 * x->gpus * x->train_s / 3600, 1e-9);
        lh_size_result_free(r);
    }
    lh_job_free(job);
}

/* Doubling from the smallest size that could meet the deadline finds it in a
 * range of 100,000 nodes, and the size below is planned for its bound. */
static void a_huge_range_keeps_the_answer(void)
{
    const lh_size_range ranges[] = {{0, 0}, {0, 100000}};
    lh_job *job = two_kinds();
    const uint32_t nodes[LH_MAX_DATACENTERS] = {0, 4};
    lh_size_options o = {.size = sizeof o,
                         .tokens = 1000.0 * 32 * 1024,
                         .deadline_s = 1001 * plan_seconds(job, nodes),
                         .ranges = ranges,
                         .threads = 1};
    lh_size_result *r = NULL;
    lh_error err = {0};
    CHECK_OK(lh_size_find(job, &o, &r, &err), err);
    CHECK_MSG(r->n_found && r->fewest.gpus <= 4, "%u GPUs", r->fewest.gpus);
    CHECK_INT(r->gpus_bound, r->fewest.gpus);
    CHECK_MSG(r->n_planned <= 16, "%u planned", r->n_planned);
    lh_size_result_free(r);
    lh_job_free(job);
}

/* Three GPUs fit the batch badly, but four are cheaper than two: the local
 * search doubles. */
static void the_cheapest_size_is_beyond_a_bad_one(void)
{
    lh_job *job = job_with(
        JOB_SMALL,
        "  gpu: {tflops: 989, memory_gib: 22, memory_gbps: 3350}\n"
        "  fabric: {gbps: 3200, latency_us: 8}\n"
        "  datacenters: [{name: west, nodes: 64, usd_per_gpu_hour: 3}]\n"
        "  links:\n"
        "model: {layers: 4, hidden: 4096, ffn: 16384, heads: 8, vocab: 1000}\n"
        "training: {global_batch: 32, sequence: 4096}\n"
        "layout: {tensor: 1, context: 1, pipeline: 1}\n");
    const lh_size_options o = {.size = sizeof o,
                               .tokens = 1e9,
                               .budget_usd = 1e5,
                               .effort = 12,
                               .threads = 1};
    lh_size_result *r = NULL;
    lh_error err = {0};
    CHECK_OK(lh_size_find(job, &o, &r, &err), err);
    CHECK_INT(r->fewest.gpus, 1);
    CHECK_INT(r->cheapest.gpus, 4);
    /* by the least time of all passes, not only by the GPUs' peak */
    CHECK_MSG(r->usd_bound <= r->cheapest.usd &&
                  r->usd_bound > 0.9 * r->cheapest.usd,
              "USD %g of %g", r->usd_bound, r->cheapest.usd);
    lh_size_result_free(r);
    lh_job_free(job);
}

/* Without a deadline the ranges still hold the size without nodes; it must not
 * count as the smallest one. */
static void a_budget_alone_has_bounds(void)
{
    const lh_size_range ranges[] = {{0, 1}, {0, 1}};
    lh_size_options o = {.size = sizeof o,
                         .tokens = 1e7,
                         .budget_usd = 1e9,
                         .ranges = ranges,
                         .threads = 1};
    lh_job *job = two_kinds();
    lh_size_result *r = NULL;
    lh_error err = {0};
    CHECK_OK(lh_size_find(job, &o, &r, &err), err);
    CHECK(r->n_found > 0);
    CHECK_INT(r->fewest.gpus, 1);
    CHECK_INT(r->gpus_bound, 1);
    CHECK(r->usd_bound > 0 && r->usd_bound <= r->cheapest.usd * (1 + 1e-9));
    lh_size_result_free(r);
    lh_job_free(job);
}

/* A full search, with another effort than the quick one, may miss a plan that
 * the quick one found. */
static void plans_with_less_traffic_are_kept(void)
{
    lh_job *job = two_kinds();
    const uint32_t nodes[LH_MAX_DATACENTERS] = {1, 1};
    const lhi_planned_size *size = NULL;
    lh_error err = {0};
    lhi_size_search s = {
        .job = job, .options.threads = 1, .mem = lhi_arena_make(0)};
    CHECK_OK(lhi_size_plan(&s, nodes, LHI_SIZE_QUICK, &size, &err), err);
    if (size && size->n_plans) {
        lhi_planned_size *quick = (lhi_planned_size *)size;
        const int64_t slow_ns = 2 * quick->plans[0].iteration_ns;
        quick->n_plans = 2;
        quick->plans[1] = quick->plans[0];
        quick->plans[0].iteration_ns = slow_ns; /* faster ones are found */
        quick->plans[1].iteration_ns = slow_ns;
        quick->plans[1].between_usd = -1; /* less than any plan */
        CHECK_OK(lhi_size_plan(&s, nodes, LHI_SIZE_FULL, &size, &err), err);
        const lhi_sized_plan *last = &size->plans[size->n_plans - 1];
        CHECK(size->n_plans > 1 && size->plans[0].iteration_ns < slow_ns);
        CHECK(last->iteration_ns == slow_ns && last->between_usd < 0);
        for (uint32_t i = 0; i + 1 < size->n_plans; i++)
            CHECK(size->plans[i].between_usd >= 0);
    }
    lhi_arena_free(s.mem);
    lh_job_free(job);
}

/* Returns a job of a mixture of experts on two datacenters. */
static lh_job *mixture(const char *layout)
{
    return job_with(JOB_SMALL,
                    "  gpus_per_node: 8\n"
                    "  datacenters: [{name: west, nodes: 7}, "
                    "{name: east, nodes: 7}]\n"
                    "  links: [{between: [west, east], latency_ms: 11.15, "
                    "gbps: 3200}]\n"
                    "model: qwen3-235b-a22b\n"
                    "training: {global_batch: 16, sequence: 4096, zero: 1}\n"
                    "layout: %s\n",
                    layout);
}

/* The layouts of a mixture of experts are many: a quick search over all of them
 * ends with an iteration of more than ten times the best. A quick search with
 * the degrees of a smaller size does not: more nodes are no slower. */
static void quick_plans_use_known_degrees(void)
{
    lh_job *fixed = mixture("{tensor: 4, context: 1, expert: 8, pipeline: 8, "
                            "micro_batch: 1, schedule: greedy}");
    lh_job *open = mixture("{context: 1}");
    const uint32_t few[LH_MAX_DATACENTERS] = {4, 4};
    const uint32_t many[LH_MAX_DATACENTERS] = {7, 7};
    const lhi_planned_size *small = NULL, *large = NULL;
    lh_error err = {0};
    lhi_size_search s = {.job = fixed,
                         .options = {.threads = 1, .deadline_s = 1e9},
                         .iterations = 1,
                         .failures.size = sizeof s.failures,
                         .flops = lh_cost_iteration_flops(fixed),
                         .mem = lhi_arena_make(0)};
    CHECK_OK(lhi_size_plan(&s, few, LHI_SIZE_QUICK, &small, &err), err);
    CHECK(small && small->n_plans);
    s.job = open;
    CHECK_OK(lhi_size_plan(&s, many, LHI_SIZE_QUICK, &large, &err), err);
    CHECK(large && large->n_plans);
    if (small && small->n_plans && large && large->n_plans)
        CHECK_MSG(large->plans[0].iteration_ns <= small->plans[0].iteration_ns,
                  "%g and %g s", (double)large->plans[0].iteration_ns / 1e9,
                  (double)small->plans[0].iteration_ns / 1e9);
    lhi_arena_free(s.mem);
    lh_job_free(fixed);
    lh_job_free(open);
}

/* Returns the cost of a plan's iteration if all nodes are charged: USD 40 an
 * hour, and the traffic. */
static double charge_all(const lh_choice *c)
{
    return 40 * (double)c->iteration_ns / 3600e9 + c->cost->between_usd;
}

/* Finds the least cost of an iteration of at most `slack` times the shortest,
 * in the Pareto front of time and cost over all layouts. *max_ns: that time;
 * *fastest_usd: the cost of the shortest iteration. */
static double find_cheapest(const lh_job *job, double slack, int64_t *max_ns,
                            double *fastest_usd)
{
    const lh_plan_options o = {.size = sizeof o,
                               .quick = true,
                               .pareto_front = true,
                               .pareto_max_slowdown = 1000,
                               .partition = LH_PARTITION_EVEN,
                               .threads = 1};
    lh_plan *plan = NULL;
    lh_error err = {0};
    double usd = INFINITY;
    CHECK_OK(lh_plan_make(job, &o, &plan, &err), err);
    *fastest_usd = charge_all(&plan->best);
    *max_ns = (int64_t)((double)plan->best.iteration_ns * slack);
    for (uint32_t i = 0; i < plan->n_pareto; i++)
        if (plan->pareto_front[i].iteration_ns <= *max_ns)
            usd = fmin(usd, charge_all(&plan->pareto_front[i]));
    lh_plan_free(plan);
    return usd;
}

/* The cheapest size has the cheapest plan that meets the deadline, although the
 * fastest plan costs many times as much: at most 1 % above that of the Pareto
 * front. After a loss of nodes it has such a plan, too. */
static void the_cheapest_meets_the_deadline(void)
{
    lh_job *job = job_with(
        JOB_SMALL, "  datacenters:\n"
                   "   - {name: west, nodes: 8, usd_per_gpu_hour: 3}\n"
                   "   - {name: east, nodes: 8, usd_per_gpu_hour: 2}\n"
                   "  links: [{between: [west, east], latency_ms: 1, gbps: 80, "
                   "usd_per_gb: 0.5}]\n"
                   "model: {layers: 16, hidden: 4096, ffn: 16384, heads: 8, "
                   "vocab: 1000}\n"
                   "training: {global_batch: 32, sequence: 1024, zero: 1, "
                   "recompute: none}\n"
                   "layout: {tensor: 1, context: 1}\n");
    const lh_size_range all[] = {{8, 8}, {8, 8}};
    int64_t max_ns;
    double fastest;
    const double usd = find_cheapest(job, 1.75, &max_ns, &fastest);
    const lh_size_options o = {.size = sizeof o,
                               .tokens = 1000.0 * 32 * 1024,
                               .deadline_s = 1000 * (double)max_ns / 1e9,
                               .ranges = all,
                               .threads = 1};
    lh_size_result *r = NULL;
    lh_error err = {0};
    CHECK_OK(lh_size_find(job, &o, &r, &err), err);
    CHECK(r->n_found > 0 && r->cheapest.train_s <= o.deadline_s);
    CHECK_MSG(r->cheapest.usd <= 1.01 * 1000 * usd && fastest > 2 * usd,
              "USD %g of %g; fastest %g", r->cheapest.usd, 1000 * usd,
              1000 * fastest);
    /* so has the cluster that remains after a loss of nodes */
    CHECK_INT(r->cheapest.n_losses, 2);
    for (uint32_t i = 0; i < r->cheapest.n_losses; i++) {
        const lh_size_loss *loss = &r->cheapest.losses[i];
        CHECK(loss->meets_deadline && loss->train_s <= o.deadline_s);
        CHECK_MSG(loss->usd > 0 && loss->usd < 1.5 * r->cheapest.usd,
                  "USD %g, all nodes %g", loss->usd, r->cheapest.usd);
    }
    lh_size_result_free(r);
    lh_job_free(job);
}

/* Returns a job that splits its batch of four sequences between replicas on up
 * to eight nodes in each of two datacenters: three GPUs are as fast as two. */
static lh_job *four_sequences(void)
{
    return job_with(
        JOB_SMALL,
        "  fabric: {gbps: 3200, latency_us: 8}\n"
        "  datacenters: [{name: west, nodes: 8}, {name: east, nodes: 8}]\n"
        "model: {layers: 4, hidden: 4096, ffn: 16384, heads: 8, vocab: 1000}\n"
        "training: {global_batch: 4, sequence: 8192}\n"
        "layout: {tensor: 1, context: 1, pipeline: 1, micro_batch: 1}\n");
}

/* Four nodes without spares: while one is missing, training has the speed of a
 * plan for the other three; further missing nodes reduce it in proportion. With
 * a spare, nodes are missing half as often or less. */
static void the_goodput_has_planned_speeds(void)
{
    const lh_size_range ranges[] = {{4, 4}, {0, 0}};
    lh_failures f = {.size = sizeof f, .gpu_mtbf_s = 1e5, .repair_s = 2.5e3};
    const lh_size_options o = {.size = sizeof o,
                               .tokens = 1000.0 * 4 * 8192,
                               .deadline_s = 1e9,
                               .ranges = ranges,
                               .failures = &f,
                               .threads = 1};
    lh_job *job = four_sequences();
    const uint32_t four[LH_MAX_DATACENTERS] = {4}, three[] = {3, 0};
    const double all_s = plan_seconds(job, four);
    const double rest_s = plan_seconds(job, three);
    const double mean = 4 * f.repair_s / f.gpu_mtbf_s, none = exp(-mean);
    CHECK_MSG(rest_s > 1.5 * all_s, "%g and %g s", all_s, rest_s);
    /* E[(4 - m) / 3] over m > 0, for m Poisson distributed */
    const double speed = none + all_s / rest_s * (4 * (1 - none) - mean) / 3;
    double train_s[2];
    for (f.spares = 0; f.spares < 2; f.spares++) {
        lh_size_result *r = NULL;
        lh_error err = {0};
        CHECK_OK(lh_size_find(job, &o, &r, &err), err);
        const lh_goodput *g = &r->fewest.goodput;
        train_s[f.spares] = r->fewest.train_s;
        CHECK_NEAR(r->fewest.node_loss_s, rest_s, 1e-9);
        if (!f.spares) {
            CHECK_NEAR(g->speed, speed, 1e-6);
            CHECK_NEAR(g->missing, mean, 1e-9);
            CHECK_NEAR(r->fewest.train_s, 1000 * all_s / g->progress / speed,
                       1e-3 * r->fewest.train_s);
        } else {
            CHECK(1 - g->speed < (1 - speed) / 2);
        }
        lh_size_result_free(r);
    }
    CHECK(train_s[1] < train_s[0]);
    lh_job_free(job);
}

/* The smallest size in time at a speed in proportion to the nodes misses the
 * deadline at its planned speed: a larger one is the result. */
static void planned_speeds_keep_the_deadline(void)
{
    const lh_size_range ranges[] = {{0, 8}, {0, 0}};
    const lh_failures f = {
        .size = sizeof f, .gpu_mtbf_s = 1e5, .repair_s = 2.5e3};
    const uint32_t four[LH_MAX_DATACENTERS] = {4};
    lh_job *job = four_sequences();
    lh_goodput g;
    lh_error err = {0};
    CHECK_OK(lh_goodput_compute(job, four, &f, &g, &err), err);
    const double proportional_s = 1000 * plan_seconds(job, four) / g.fraction;
    for (int k = 0; k < 2; k++) {
        const lh_size_options o = {.size = sizeof o,
                                   .tokens = 1000.0 * 4 * 8192,
                                   .deadline_s =
                                       proportional_s * (k ? 2 : 1.001),
                                   .ranges = ranges,
                                   .failures = &f,
                                   .threads = 1};
        lh_size_result *r = NULL;
        CHECK_OK(lh_size_find(job, &o, &r, &err), err);
        /* with four sequences no size is faster than that of four nodes */
        CHECK_INT(r->n_found > 0, k);
        CHECK(k || r->fastest.train_s > o.deadline_s);
        lh_size_result_free(r);
    }
    lh_job_free(job);
}

/* Stops a search before a number of plans, *context. */
static bool stop_at(void *context, uint32_t planned, uint32_t effort)
{
    (void)effort;
    return planned >= *(const uint32_t *)context;
}

/* A stopped search returns the best of the planned sizes, without bounds; if
 * none is planned, nothing. */
static void a_stopped_search_keeps_the_best(void)
{
    lh_job *job = two_kinds();
    for (uint32_t most = 0; most < 8; most += 3) {
        uint32_t limit = most;
        const lh_size_options o = {.size = sizeof o,
                                   .tokens = 1000.0 * 32 * 1024,
                                   .deadline_s = 1e9,
                                   .budget_usd = most == 3 ? 1e-6 : 0,
                                   .effort = 100,
                                   .threads = 1,
                                   .progress = stop_at,
                                   .context = &limit};
        lh_size_result *r = NULL;
        lh_error err = {0};
        const lh_status status = lh_size_find(job, &o, &r, &err);
        CHECK_INT(status, most ? LH_OK : LH_ECANCELED);
        if (!r)
            continue;
        CHECK_INT(r->n_planned, most);
        CHECK(r->interrupted && !r->all_planned && r->fastest.gpus > 0);
        CHECK_INT(r->n_found > 0, most == 6);
        CHECK(r->fewest.gpus <= r->cheapest.gpus &&
              r->cheapest.usd <= r->fewest.usd);
        CHECK_INT(r->gpus_bound, 0);
        lh_size_result_free(r);
    }
    lh_job_free(job);
}

/* A profile's links of datacenters without nodes are left out. */
static void profiles_name_datacenters_in_use(void)
{
    lh_job *job = job_with(
        JOB_SMALL, "profile:\n  longhaul: profile/1\n"
                   "  links:\n"
                   "   - {path: fabric, site: west, alpha_us: 9, "
                   "beta_ns_per_byte: 0.1}\n"
                   "   - {path: fabric, alpha_us: 8, beta_ns_per_byte: 0.1}\n"
                   "   - {path: fabric, site: east, alpha_us: 7, "
                   "beta_ns_per_byte: 0.1}\n"
                   "   - {path: wan, from: west, to: east, alpha_us: 6, "
                   "beta_ns_per_byte: 0.1}\n");
    for (uint32_t i = 0; job && i < 3; i++) {
        const uint32_t nodes[] = {i != 1, i != 0}, n_links[] = {2, 2, 4};
        lh_job *sized = NULL;
        lh_error err = {0};
        CHECK_OK(lh_size_job(job, nodes, &sized, &err), err);
        if (sized) {
            CHECK_INT(sized->profile->n_links, n_links[i]);
            CHECK_INT(sized->profile->links[i == 1 ? 1 : 0].alpha_ns,
                      i == 1 ? 7000 : 9000);
        }
        lh_job_free(sized);
    }
    lh_job_free(job);
}

static void search_rejects_what_it_cannot_do(void)
{
    lh_size_options o = {.size = sizeof o, .tokens = 1e6, .deadline_s = 1};
    lh_size_result *r = NULL;
    lh_error err = {0};
    lh_job *job =
        job_with(JOB_SMALL, "layout: {sites: [{pipeline: [east]}]}\n");
    CHECK_INT(lh_size_find(job, &o, &r, &err), LH_EINPUT);
    CHECK(strstr(err.text, "layout.sites") != NULL);
    lh_job_free(job);
    job = job_with(JOB_SMALL, "layout: {tensor: 1}\n");
    o.budget_usd = 5;
    CHECK_INT(lh_size_find(job, &o, &r, &err), LH_EINPUT);
    CHECK(strstr(err.text, "usd_per_gpu_hour") != NULL);
    o.budget_usd = 0;
    o.tokens = 0;
    CHECK_INT(lh_size_find(job, &o, &r, &err), LH_EINVAL);
    o.tokens = 1e6;
    o.spot_price = 0.5;
    CHECK_INT(lh_size_find(job, &o, &r, &err), LH_EINVAL);
    lh_job_free(job);
}

int main(void)
{
    RUN(traffic_raises_the_bound);
    RUN(search_agrees_with_all_sizes);
    RUN(wide_ranges_keep_the_answer);
    RUN(prices_and_spares_count);
    RUN(idle_nodes_are_not_charged);
    RUN(a_huge_range_keeps_the_answer);
    RUN(the_cheapest_size_is_beyond_a_bad_one);
    RUN(a_budget_alone_has_bounds);
    RUN(plans_with_less_traffic_are_kept);
    RUN(quick_plans_use_known_degrees);
    RUN(the_cheapest_meets_the_deadline);
    RUN(the_goodput_has_planned_speeds);
    RUN(planned_speeds_keep_the_deadline);
    RUN(a_stopped_search_keeps_the_best);
    RUN(profiles_name_datacenters_in_use);
    RUN(search_rejects_what_it_cannot_do);
    return test_summary();
}
