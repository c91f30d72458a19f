/* SPDX-License-Identifier: Apache-2.0 */
/* What more freedom and more of everything come to, on random jobs, dense and
 * with experts, on one to four sites with equal and other GPUs: to fix a
 * dimension never makes a plan faster, and neither do less memory, slower
 * links, or fewer GPUs; by more than 0.5 %, that is.
 *
 *     test_plan_choice [JOBS [SEED [large]]] */
#include "jobs.h"

#include "base/random.h"

#include <longhaul/plan.h>
#include <stdlib.h>

enum { JOBS = 24, SEED = 1, MOST_SITES = 4, FIXED = 4 };

static const double BEHIND = 1.005;

/* All that a job is made from. */
typedef struct setting {
    uint32_t n_sites, gpus_per_node, layers, hidden, vocab, batch, sequence;
    uint32_t nodes[MOST_SITES], tflops[MOST_SITES];
    double memory_gib, latency_ms, gbps;
    const char *model;
} setting;

static uint32_t pick(lhi_random *r, uint32_t least, uint32_t most)
{
    return least + lhi_random_below(r, most - least + 1);
}

static bool large; /* jobs */

static setting random_setting(lhi_random *r)
{
    static const char *const models[] = {
        "", "", ", kv_heads: 4, gated: true",
        ", experts: 8, experts_per_token: 2, expert_ffn: 2048",
        (", experts: 4, experts_per_token: 1, expert_ffn: 4096, "
         "shared_expert_ffn: 1024, dense_layers: 1")};
    setting s = {.n_sites = pick(r, 1, large ? MOST_SITES : 3),
                 .gpus_per_node = 1u << pick(r, 0, large ? 2 : 1),
                 .layers = pick(r, 4, large ? 10 : 6),
                 .hidden = 1024u << pick(r, 0, 2),
                 .vocab = pick(r, 1, 8) * 16000,
                 .batch = large ? 8u << pick(r, 0, 1) : 8,
                 .sequence = 1024u << pick(r, 0, 2),
                 .memory_gib = 3 + pick(r, 0, 30),
                 .latency_ms = pick(r, 0, 1) ? pick(r, 1, 40) : 0.1,
                 .gbps = 5 * pick(r, 1, 40),
                 .model = models[pick(r, 0, 4)]};
    bool equal = pick(r, 0, 1);
    for (uint32_t i = 0; i < s.n_sites; i++) {
        s.nodes[i] = pick(r, 1, large ? 2 : 1);
        s.tflops[i] = equal ? 500 : 200 * pick(r, 1, 4);
    }
    return s;
}

static lh_job *make_job(const setting *s, const char *training,
                        const char *layout)
{
    char sites[2000];
    size_t len = 0, room = sizeof sites;
    len += (size_t)snprintf(sites, room, "  datacenters:\n");
    for (uint32_t i = 0; i < s->n_sites; i++)
        len += (size_t)snprintf(sites + len, room - len,
                                "   - {name: s%u, nodes: %u, gpu: {tflops: %u, "
                                "memory_gib: %g, memory_gbps: 2000, "
                                "efficiency: 0.5}}\n",
                                i, s->nodes[i], s->tflops[i], s->memory_gib);
    len += (size_t)snprintf(sites + len, room - len, "  links:\n");
    for (uint32_t i = 0; i < s->n_sites; i++)
        for (uint32_t k = i + 1; k < s->n_sites; k++)
            len += (size_t)snprintf(
                sites + len, room - len,
                "   - {between: [s%u, s%u], latency_ms: %g, gbps: %g}\n", i, k,
                s->latency_ms * (1 + i), s->gbps);
    return job_with(JOB_SMALL,
                    "  gpus_per_node: %u\n%s"
                    "model: {layers: %u, hidden: %u, ffn: %u, heads: 8, vocab: "
                    "%u%s}\n"
                    "training: {global_batch: %u, sequence: %u%s}\n"
                    "layout: {%s}\n",
                    s->gpus_per_node, sites, s->layers, s->hidden,
                    4 * s->hidden, s->vocab, s->model, s->batch, s->sequence,
                    training, layout);
}

/* Jobs whose layout asks for more GPUs than there are are none. */
static bool fits(const setting *s, const char *layout)
{
    uint32_t gpus = 0;
    const char *number = strchr(layout, ':');
    for (uint32_t i = 0; i < s->n_sites; i++)
        gpus += s->nodes[i] * s->gpus_per_node;
    return !number || strtoul(number + 1, NULL, 10) <= gpus;
}

/* INT64_MAX: no layout works. */
static int64_t plan_ns(const setting *s, const char *training,
                       const char *layout)
{
    lh_job *job = make_job(s, training, layout);
    lh_plan *plan = NULL;
    lh_error err = {0};
    lh_plan_options o = {.size = sizeof o, .no_optimal = true};
    lh_status status = lh_plan_make(job, &o, &plan, &err);
    int64_t ns = status == LH_OK ? plan->best.iteration_ns : INT64_MAX;
    lh_plan_free(plan);
    lh_job_free(job);
    return ns;
}

static uint32_t n_plans, n_worse;
static double largest;

/* `better` has more than `worse`: `what`. */
static void compare(uint64_t seed, int64_t better, int64_t worse,
                    const char *what)
{
    if (worse == INT64_MAX)
        return;
    n_plans++;
    double behind = (double)better / (double)worse - 1;
    if (behind > largest)
        largest = behind;
    n_worse += better > worse;
    CHECK_MSG((double)better <= BEHIND * (double)worse,
              "seed %" PRIu64 ": %s: %.6f s, but %.6f s with less (%+.2f %%)",
              seed, what, (double)better / 1e9, (double)worse / 1e9,
              100 * behind);
}

static void fix_dimensions(lhi_random *r, uint64_t seed, const setting *s,
                           int64_t free_ns)
{
    static const char *const fixed[][2] = {{"", "tensor: 1"},
                                           {"", "tensor: 2"},
                                           {"", "pipeline: 1"},
                                           {"", "pipeline: 2"},
                                           {"", "pipeline: 3"},
                                           {"", "pipeline: 4"},
                                           {"", "data: 1"},
                                           {"", "data: 2"},
                                           {"", "data: 4"},
                                           {"", "micro_batch: 1"},
                                           {"", "micro_batch: 2"},
                                           {"", "micro_batch: 4"},
                                           {"", "context: 1"},
                                           {"", "chunks_per_device: 1"},
                                           {"", "chunks_per_device: 2"},
                                           {"", "chunks_per_device: 3"},
                                           {"", "chunks_per_device: 4"},
                                           {"", "outermost: pipeline"},
                                           {"", "outermost: data"},
                                           {"", "schedule: 1f1b"},
                                           {"", "schedule: zb-v"},
                                           {"", "schedule: greedy"},
                                           {"", "schedule: slack"},
                                           {"", "schedule: interleaved-1f1b"},
                                           {", zero: 1", ""},
                                           {", zero: 2", ""},
                                           {", zero: 3", ""},
                                           {", recompute: none", ""},
                                           {", recompute: full", ""},
                                           {", recompute: selective", ""}};
    for (int i = 0; i < FIXED; i++) {
        const char *const *f =
            fixed[pick(r, 0, sizeof fixed / sizeof *fixed - 1)];
        char what[60];
        if (!fits(s, f[1]))
            continue;
        snprintf(what, sizeof what, "all open, not %s%s", *f[0] ? f[0] + 2 : "",
                 f[1]);
        compare(seed, free_ns, plan_ns(s, f[0], f[1]), what);
    }
}

static void add_more(lhi_random *r, uint64_t seed, const setting *s,
                     int64_t free_ns)
{
    setting more = *s;
    double factor = 1 + 0.1 * pick(r, 1, 20);
    switch (pick(r, 0, 3)) {
    case 0:
        more.memory_gib *= factor;
        compare(seed, plan_ns(&more, "", ""), free_ns, "more memory");
        break;
    case 1:
        more.gbps *= factor;
        compare(seed, plan_ns(&more, "", ""), free_ns, "more bandwidth");
        break;
    case 2:
        more.latency_ms /= factor;
        compare(seed, plan_ns(&more, "", ""), free_ns, "less latency");
        break;
    default:
        more.nodes[pick(r, 0, s->n_sites - 1)]++;
        compare(seed, plan_ns(&more, "", ""), free_ns, "more GPUs");
    }
}

static uint32_t n_jobs = JOBS;
static uint64_t first_seed = SEED;

/* Where layers were moved in layouts that were all alike before. */
static void what_is_best_once_moved(void)
{
    setting s = {.n_sites = 4,
                 .gpus_per_node = 1,
                 .layers = 12,
                 .hidden = 1024,
                 .vocab = 112000,
                 .batch = 16,
                 .sequence = 4096,
                 .nodes = {1, 2, 2, 2},
                 .tflops = {500, 500, 500, 500},
                 .memory_gib = 15,
                 .latency_ms = 0.1,
                 .gbps = 145,
                 .model = ", kv_heads: 4, gated: true"};
    int64_t free_ns = plan_ns(&s, "", "");
    compare(13, free_ns, plan_ns(&s, ", zero: 1", ""), "all open, not zero: 1");
    s.gbps = 232;
    compare(13, plan_ns(&s, "", ""), free_ns, "more bandwidth");
}

static void more_is_never_worse(void)
{
    for (uint64_t i = 0; i < n_jobs; i++) {
        lhi_random r = {first_seed + i};
        setting s = random_setting(&r);
        int64_t free_ns = plan_ns(&s, "", "");
        if (free_ns == INT64_MAX)
            continue;
        fix_dimensions(&r, first_seed + i, &s, free_ns);
        add_more(&r, first_seed + i, &s, free_ns);
    }
    printf("%u plans compared, %u slower, by %.2f %% at most\n", n_plans,
           n_worse, 100 * largest);
    CHECK(n_plans > n_jobs);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        n_jobs = (uint32_t)strtoul(argv[1], NULL, 10);
    if (argc > 2)
        first_seed = strtoull(argv[2], NULL, 10);
    large = argc > 3 && strcmp(argv[3], "large") == 0;
    if (large)
        RUN(what_is_best_once_moved);
    RUN(more_is_never_worse);
    return test_summary();
}
