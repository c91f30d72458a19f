/* SPDX-License-Identifier: Apache-2.0 */
/* Lower bounds of elastic plans versus elastic plans, on small random jobs with
 * ample and scarce memory. No queue, sharding and recomputation on any chunks
 * beats the bound for these chunks, or that for the layout. If the bound finds
 * no feasible plan, none exists.
 *
 * The planner recomputes equally many layers in every chunk. Recomputing fewer
 * in some chunks is faster, and the bound must hold for that, too. */
#include "jobs.h"

#include "base/random.h"
#include "planner/elastic/bound.h"
#include "planner/elastic/pipeline.h"
#include "planner/elastic/shape_search.h"

#include <longhaul/experimental/elastic.h>
#include <longhaul/simulate.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { JOBS = 80 };

static uint32_t pick(lhi_random *r, uint32_t least, uint32_t most)
{
    return least + lhi_random_below(r, most - least + 1);
}

/* Counters for plans and bounds. */
typedef struct counts {
    uint32_t plans, none, tight, again, near, close, memory;
    uint32_t shared, both; /* shard and recompute; within 3 % of bound */
    uint32_t better;       /* bounds that sharding raises */
    uint32_t trimmed;      /* faster with less recomputation in some chunks */
    uint32_t brief;        /* first group without all microbatches */
    double worst;          /* least bound-to-time ratio of `brief` plans */
} counts;

static lh_job *random_job(lhi_random *r)
{
    static const char *const more[] = {
        "",
        "",
        ", experts: 4, experts_per_token: 2, expert_ffn: 512",
        ", experts: 4, experts_per_token: 2, expert_ffn: 512, moe_interval: 2",
        ", sliding_window: 512, full_interval: 3",
        (", linear_key_heads: 4, linear_value_heads: 8, "
         "linear_key_head_dim: 64, linear_value_head_dim: 64, "
         "linear_conv_kernel: 4, full_interval: 3, attention_gate: true"),
        ", tied_embeddings: true"};
    static const char *const training[] = {"",
                                           "",
                                           "",
                                           ", zero: 2",
                                           ", zero: 3",
                                           ", recompute: full",
                                           ", recompute: selective",
                                           ", precision: fp32"};
    char sites[512];
    bool alike = pick(r, 0, 1);
    double gib = pick(r, 0, 2) ? 0.15 + 0.02 * pick(r, 0, 60) : 40;
    uint32_t tflops = pick(r, 1, 5) * 60;
    /* By default a share of the memory is reserved. */
    snprintf(sites, sizeof sites,
             "  datacenters:\n"
             "   - {name: a, nodes: 2, gpu: {tflops: %u, memory_gib: %.2f, "
             "memory_gbps: 2000}}\n"
             "   - {name: b, nodes: 2, gpu: {tflops: %u, memory_gib: %.2f, "
             "memory_gbps: 2000}}\n"
             "  links: [{between: [a, b], latency_ms: %u, gbps: %u}]\n",
             tflops, gib, alike ? tflops : 100, alike ? gib : gib * 1.3,
             pick(r, 0, 20), pick(r, 1, 100));
    return job_with(
        JOB_SMALL,
        "  gpus_per_node: 2\n%s"
        "model: {layers: %u, hidden: %u, ffn: 1024, heads: 4, vocab: %u%s}\n"
        "training: {global_batch: %u, sequence: %u%s}\n",
        sites, pick(r, 3, 12), 128u << pick(r, 0, 3), pick(r, 1, 40) * 500,
        more[pick(r, 0, 5)], pick(r, 1, 4) * 8, 1024u << pick(r, 0, 2),
        training[pick(r, 0, 7)]);
}

static lhi_config random_config(lhi_random *r, const lh_job *job)
{
    lhi_config c = {
        .layout = {.tensor = pick(r, 1, 2),
                   .context = 1,
                   .expert = 1,
                   .micro_batch = 1,
                   .sharding = LH_SHARDING_FULL,
                   .outermost = pick(r, 0, 1) ? LH_OUTERMOST_PIPELINE
                                              : LH_OUTERMOST_DATA},
        .recompute = job->training.recompute_given ? job->training.recompute
                                                   : LH_RECOMPUTE_NONE};
    c.layout.data = c.layout.tensor == 1 && pick(r, 0, 1) ? 4 : 2;
    uint32_t most = job->n_gpus / (c.layout.tensor * c.layout.data);
    c.layout.pipeline = pick(r, 1, most < 3 ? most : 3);
    c.microbatches = job->training.global_batch / c.layout.data;
    return c;
}

/* --- reduced recomputation ----------------------------------------------- */

/* State while recomputation in a plan is reduced. */
typedef struct trimmer {
    const lhi_elastic_result *found;
    lh_pipeline *p; /* original; less recomputation changes mem_f */
    lhi_elastic_kinds kinds;
    uint32_t *layers[LH_COST_MAX_OPS]; /* per chunk */
    int64_t mem_f[64];                 /* per chunk, with `layers` */
} trimmer;

/* Checks whether device `d` fits its memory limit in the plan's order. */
static bool fits(const trimmer *t, uint32_t d)
{
    lh_pipeline_desc desc = {.size = sizeof desc};
    uint32_t n = 0;
    const lh_pass *order = lh_schedule_order(t->found->schedule, d, &n);
    int64_t held = 0, most = 0;
    CHECK(lh_pipeline_describe(t->p, &desc, NULL) == LH_OK);
    for (uint32_t c = d; c < desc.n_chunks; c += desc.n_devices)
        held += desc.chunks[c].mem_static;
    for (uint32_t i = 0; i < n; i++) {
        held += order[i].kind == LH_F ? t->mem_f[order[i].chunk]
                                      : -t->mem_f[order[i].chunk];
        most = held > most ? held : most;
    }
    return most <= lh_pipeline_memory_limit(t->p, d);
}

/* Reduces the number of layers in chunk `c` that recompute operation `k` to the
 * least that fits. */
static void trim_chunk(trimmer *t, uint32_t k, uint32_t c, uint32_t P)
{
    while (t->layers[k][c] > 0) {
        t->mem_f[c] += t->kinds.ops[k].bytes;
        if (!fits(t, c % P)) {
            t->mem_f[c] -= t->kinds.ops[k].bytes;
            return;
        }
        t->layers[k][c]--;
    }
}

static double price_of(const lh_cost_op *op)
{
    return (double)op->ns / (double)(op->bytes + 1);
}

/* Sorts the operations by recomputation time per byte, highest first. */
static void sort_kinds(const lhi_elastic_kinds *kinds, uint32_t *order)
{
    for (uint32_t k = 0; k < kinds->n; k++) {
        uint32_t at = k;
        for (; at > 0 &&
               price_of(&kinds->ops[k]) > price_of(&kinds->ops[order[at - 1]]);
             at--)
            order[at] = order[at - 1];
        order[at] = k;
    }
}

/* Simulates the plan with the reduced recomputation. Returns the makespan, or
 * INT64_MAX if it does not fit. */
static int64_t time_trimmed(const trimmer *t, const lh_job *plain,
                            uint32_t n_chunks)
{
    lh_plan_recomputed rows[LH_COST_MAX_OPS];
    lh_plan_elastic less = *t->found->details;
    lhi_config config = t->found->config;
    lhi_built_layout built;
    lh_timeline *line = NULL;
    lh_error err = {0};
    int64_t ns = INT64_MAX;
    less.recomputed = rows;
    less.n_recomputed = 0;
    for (uint32_t k = 0; k < t->kinds.n; k++)
        for (uint32_t i = 0; i < t->kinds.n_names[k]; i++)
            rows[less.n_recomputed++] =
                (lh_plan_recomputed){.operation = t->kinds.names[k][i],
                                     .n_chunks = n_chunks,
                                     .layers = t->layers[k]};
    config.elastic = &less;
    CHECK_OK(lhi_elastic_rebuild(plain, &config, &built, &err), err);
    CHECK_OK(lh_simulate(built.pipeline, t->found->schedule, NULL, &line, &err),
             err);
    if (line && lh_timeline_fits(line, NULL))
        ns = lh_timeline_makespan(line);
    lh_timeline_free(line);
    lh_pipeline_free(built.pipeline);
    return ns;
}

/* Returns the plan's time if each chunk recomputes only the minimum. Drops the
 * most expensive operation first, in all chunks from the last, which retain the
 * fewest microbatches, to the first. */
static int64_t least_trimmed(const lh_job *plain, const lhi_elastic_result *r,
                             lhi_arena *mem)
{
    const lhi_config *config = &r->config;
    uint32_t P = config->layout.pipeline, order[LH_COST_MAX_OPS];
    uint32_t n = P * config->layout.chunks_per_device;
    trimmer t = {.found = r, .p = r->built.pipeline};
    lhi_built_layout whole;
    lh_pipeline_desc desc = {.size = sizeof desc};
    lh_error err = {0};
    if (r->details->n_recomputed == 0)
        return r->makespan_ns;
    CHECK_OK(lhi_elastic_kinds_find(plain, config, &t.kinds, &err), err);
    CHECK_OK(lhi_layout_build(plain, config, &whole, &err), err);
    CHECK_OK(lh_pipeline_describe(whole.pipeline, &desc, &err), err);
    CHECK(n <= 64);
    for (uint32_t c = 0; c < n; c++)
        t.mem_f[c] = desc.chunks[c].mem_f;
    lh_pipeline_free(whole.pipeline);
    sort_kinds(&t.kinds, order);
    for (uint32_t k = 0; k < t.kinds.n; k++) {
        t.layers[k] = LHI_NEW(mem, uint32_t, n);
        for (uint32_t c = 0; c < n; c++) {
            uint32_t first;
            lhi_config_layers(plain->model->layers, config, c, &first,
                              &t.layers[k][c]);
            t.mem_f[c] -= t.layers[k][c] * t.kinds.ops[k].bytes;
        }
    }
    for (uint32_t i = 0; i < t.kinds.n; i++)
        for (uint32_t c = n; c-- > 0;)
            trim_chunk(&t, order[i], c, P);
    int64_t ns = time_trimmed(&t, plain, n);
    return ns < r->makespan_ns ? ns : r->makespan_ns;
}

/* --- bounds and plans ---------------------------------------------------- */

/* Tries every elastic plan for these chunks: all sharding modes, queues and
 * recomputation settings. */
static void try_shape(const lh_job *job, const lhi_config *config,
                      int64_t least_ns, counts *n)
{
    lhi_elastic_options all = {.recompute = !job->training.recompute_given};
    lhi_elastic_lower_bound floor = {0};
    lhi_arena *mem = lhi_arena_make(0);
    lh_error err = {0};
    lh_job plain = *job;
    plain.training.zero = 1;
    plain.training.recompute = config->recompute;
    lhi_elastic_options any = all;
    lhi_elastic_lower_bound first;
    lh_status status =
        lhi_elastic_compute_bound(&plain, config, &all, &floor, &err);
    any.below_ns = 1; /* stop at the first bound */
    if (status == LH_OK && lhi_elastic_compute_bound(&plain, config, &any,
                                                     &first, &err) == LH_OK) {
        CHECK(first.makespan_ns <= floor.makespan_ns);
        n->better +=
            (double)floor.makespan_ns > 1.005 * (double)first.makespan_ns;
    }
    for (uint32_t k = LH_ELASTIC_MIXED; k <= LH_ELASTIC_ZERO3; k++)
        for (int again = 0; again <= all.recompute; again++)
            for (uint32_t q = config->layout.pipeline;
                 status == LH_OK && q <= config->microbatches; q++) {
                lhi_elastic_options f = {
                    .shardings = 1u << k, .recompute = again, .queue = q};
                lhi_elastic_result r = {0};
                lhi_elastic_lower_bound own;
                CHECK_OK(
                    lhi_elastic_compute_bound(&plain, config, &f, &own, &err),
                    err);
                CHECK(own.makespan_ns >= floor.makespan_ns);
                if (lhi_elastic_search_shape(&plain, config, &f, mem, &r,
                                             NULL) != LH_OK)
                    continue;
                int64_t ns = least_trimmed(&plain, &r, mem);
                double ratio = (double)own.makespan_ns / (double)ns;
                CHECK_MSG(own.makespan_ns <= ns,
                          "queue %u, sharding %u: %.0f ns, bound %.0f", q, k,
                          (double)ns, (double)own.makespan_ns);
                CHECK(least_ns <=
                      ns + r.built.optimizer_ns + r.built.overhead_ns);
                n->trimmed += ns < r.makespan_ns;
                n->plans++;
                n->again += r.details->n_recomputed > 0;
                if (q < config->microbatches)
                    n->worst = n->brief++ ? fmin(n->worst, ratio) : ratio;
                n->tight += ratio > 0.97;
                n->near += r.details->n_recomputed > 0 && ratio > 0.97;
                n->close += r.details->n_recomputed > 0 && ratio > 0.99;
                bool shared =
                    r.details->n_recomputed > 0 && r.details->gradients > 0;
                n->shared += shared;
                n->both += shared && ratio > 0.97;
                lh_pipeline_free(r.built.pipeline);
                lh_schedule_free(r.schedule);
            }
    n->memory += status == LH_OK && floor.makespan_ns == INT64_MAX;
    lhi_arena_free(mem);
}

static void try_job(lhi_random *r, counts *n)
{
    lh_job *job = random_job(r);
    lhi_config like = random_config(r, job);
    lhi_arena *mem = lhi_arena_make(0);
    lhi_elastic_options all = {.recompute = !job->training.recompute_given,
                               .uneven = true};
    int64_t least_ns = 0;
    lhi_elastic_result best = {0};
    uint64_t work = 0;
    lh_error err = {0};
    uint32_t P = like.layout.pipeline;
    if (job->training.zero_given)
        all.shardings = 1u << (job->training.zero == 2 ? LH_ELASTIC_ZERO2
                                                       : LH_ELASTIC_ZERO3);
    CHECK_OK(lhi_elastic_compute_layout_bound(job, &like, &all, mem, &least_ns,
                                              &work, &err),
             err);
    if (lhi_elastic_search_layout(job, &like, &all, mem, &best, NULL) ==
        LH_OK) {
        int64_t ns =
            best.makespan_ns + best.built.optimizer_ns + best.built.overhead_ns;
        CHECK_MSG(least_ns <= ns, "%.0f ns, bound %.0f", (double)ns,
                  (double)least_ns);
        /* A plan required to be faster than the bound must not exist. */
        lhi_elastic_result none = {0};
        all.below_ns = least_ns;
        CHECK_INT(lhi_elastic_search_layout(job, &like, &all, mem, &none, NULL),
                  LH_EINFEASIBLE);
        lh_pipeline_free(best.built.pipeline);
        lh_schedule_free(best.schedule);
    } else {
        n->none++;
    }
    all = (lhi_elastic_options){.recompute = !job->training.recompute_given,
                                .uneven = true};
    CHECK_OK(lhi_elastic_compute_layout_bound(job, &like, &all, mem, &least_ns,
                                              &work, &err),
             err);
    for (uint32_t M = 1; M <= 3 && P * M <= job->model->layers; M++) {
        uint32_t layers[64];
        lhi_config config = like;
        config.layout.chunks_per_device = M;
        config.placement = M == 1 ? LH_PLACEMENT_UD : LH_PLACEMENT_LOOP;
        if (M > 2 && job->model->layers % (P * M))
            continue;
        try_shape(job, &config, least_ns, n);
        if (M < 2 || job->model->layers % (P * M) ||
            job->model->layers / (P * M) < 2)
            continue;
        /* fewer layers in each stage's first chunk */
        for (uint32_t c = 0; c < P * M; c++)
            layers[c] =
                job->model->layers / (P * M) + (c >= P * (M - 1)) - (c < P);
        config.layers = layers;
        try_shape(job, &config, least_ns, n);
    }
    lhi_arena_free(mem);
    lh_job_free(job);
}

static void no_elastic_plan_is_below_its_bound(void)
{
    counts n = {0};
    for (uint32_t i = 0; i < JOBS && !test_state.bad; i++) {
        lhi_random r = {.state = i};
        try_job(&r, &n);
    }
    CHECK_MSG(n.plans > 1000 && n.none > 3 && n.tight > n.plans / 4 &&
                  n.again > 50 && n.close > 10 && n.memory > 5 &&
                  n.trimmed > 10,
              "%u plans of which %u are within 3 %% of their bound and %u "
              "recompute something, %u of these within 1 %%, %u that some "
              "chunks have less to make again, %u layouts without, %u where "
              "the bound says so",
              n.plans, n.tight, n.again, n.close, n.trimmed, n.none, n.memory);
}

/* Fewer than two microbatches per stage form a single group, so a stage retains
 * all of them on every chunk except its last. As memory shrinks, the
 * recomputation must be close to the bound's. */
static void one_group_makes_again_what_it_must(void)
{
    counts n = {0};
    for (uint32_t i = 0; i < 30 && !test_state.bad; i++) {
        char gib[32];
        snprintf(gib, sizeof gib, "%.3f", 0.7 + 0.05 * i);
        lh_job *job = job_with(
            JOB_SMALL,
            "  gpus_per_node: 2\n"
            "  datacenters:\n"
            "   - {name: a, nodes: 4, gpu: {tflops: 100, memory_gib: %s, "
            "memory_gbps: 2000}}\n"
            "  links: []\n"
            "model: {layers: 32, hidden: 512, ffn: 1024, heads: 4, vocab: "
            "1000}\n"
            "training: {global_batch: %u, sequence: 4096}\n",
            gib, i % 2 ? 14u : 12u);
        lhi_config config = {.layout = {.tensor = 1,
                                        .context = 1,
                                        .expert = 1,
                                        .micro_batch = 1,
                                        .sharding = LH_SHARDING_FULL,
                                        .data = 2,
                                        .pipeline = 4,
                                        .chunks_per_device = 4},
                             .placement = LH_PLACEMENT_LOOP,
                             .recompute = LH_RECOMPUTE_NONE};
        config.microbatches = job->training.global_batch / 2;
        try_shape(job, &config, 0, &n);
        lh_job_free(job);
    }
    CHECK_MSG(n.again > 60 && 2 * n.near > n.again,
              "%u plans recompute something, %u within 3 %% of their bound",
              n.again, n.near);
}

/* On slow links, sharding costs as much as recomputation. */
static void sharding_and_memory_count_together(void)
{
    counts n = {0};
    for (uint32_t i = 0; i < 40 && !test_state.bad; i++) {
        lh_job *job = job_with(
            JOB_SMALL,
            "  gpus_per_node: 2\n"
            "  fabric: {gbps: %u, latency_us: %u}\n"
            "  datacenters:\n"
            "   - {name: a, nodes: 4, gpu: {tflops: 100, memory_gib: %.3f, "
            "memory_gbps: 2000}}\n"
            "  links: []\n"
            "model: {layers: 24, hidden: 4096, ffn: 16384, heads: 32, vocab: "
            "1000}\n"
            "training: {global_batch: 12, sequence: 2048}\n",
            20 + 20 * (i % 4), i % 3 * 1000, 14 + 0.7 * i);
        lhi_config config = {.layout = {.tensor = 1,
                                        .context = 1,
                                        .expert = 1,
                                        .micro_batch = 1,
                                        .sharding = LH_SHARDING_FULL,
                                        .data = 4,
                                        .pipeline = 2,
                                        .chunks_per_device = i % 2 ? 6 : 4},
                             .placement = LH_PLACEMENT_LOOP,
                             .recompute = LH_RECOMPUTE_NONE};
        config.microbatches = job->training.global_batch / 4;
        try_shape(job, &config, 0, &n);
        lh_job_free(job);
    }
    CHECK_MSG(
        n.shared > 30 && 2 * n.both > n.shared && n.better > 3,
        "%u plans of which %u shard and recompute something, %u of these "
        "within 3 %% of their bound; %u bounds are higher by what is shared",
        n.plans, n.shared, n.both, n.better);
}

/* Between datacenters, a first group with only as many microbatches as stages
 * waits for each chunk's messages; a larger group waits for fewer. With ample
 * memory, the bound must be close to the plans' times. */
static void first_groups_wait_for_messages(void)
{
    counts n = {0};
    for (uint32_t i = 0; i < 12 && !test_state.bad; i++) {
        lh_job *job = job_with(
            JOB_SMALL,
            "  gpus_per_node: 2\n"
            "  datacenters:\n"
            "   - {name: a, nodes: 2, gpu: {tflops: 100, memory_gib: 80, "
            "memory_gbps: 2000}}\n"
            "   - {name: b, nodes: 2, gpu: {tflops: 100, memory_gib: 80, "
            "memory_gbps: 2000}}\n"
            "  links: [{between: [a, b], latency_ms: %u, gbps: 1000}]\n"
            "model: {layers: %u, hidden: 2048, ffn: 8192, heads: 16, vocab: "
            "1000}\n"
            "training: {global_batch: %u, sequence: 2048, zero: 1}\n",
            2 + 2 * (i % 4), i % 3 ? 16 : 12, i % 2 ? 20 : 16);
        lhi_config config = {.layout = {.tensor = 1,
                                        .context = 1,
                                        .expert = 1,
                                        .micro_batch = 1,
                                        .sharding = LH_SHARDING_FULL,
                                        .outermost = LH_OUTERMOST_PIPELINE,
                                        .data = 2,
                                        .pipeline = 4,
                                        .chunks_per_device = i % 3 ? 4 : 3},
                             .placement = LH_PLACEMENT_LOOP,
                             .recompute = LH_RECOMPUTE_NONE};
        config.microbatches = job->training.global_batch / 2;
        try_shape(job, &config, 0, &n);
        lh_job_free(job);
    }
    CHECK_MSG(n.brief > 60 && n.worst > 0.9,
              "%u plans with short first groups, the bound of one is %.3f of "
              "what it takes",
              n.brief, n.worst);
}

/* Without recomputation, only the memory that sharding saves decides whether a
 * plan fits. With barely enough memory the bound must allow a plan; with 1 %
 * less it must rule out all plans. */
static lh_job *full_job(double gib, uint32_t data)
{
    return job_with(
        JOB_SMALL,
        "  gpus_per_node: 2\n"
        "  datacenters:\n"
        "   - {name: a, nodes: %u, gpu: {tflops: 100, memory_gib: %.6f, "
        "memory_gbps: 2000}}\n"
        "  links: []\n"
        "model: {layers: 32, hidden: 4096, ffn: 16384, heads: 32, vocab: "
        "1000}\n"
        "training: {global_batch: %u, sequence: 256}\n",
        data, gib, 4 * data);
}

/* Checks whether the bound allows a plan; *fits: whether the planner finds one.
 */
static bool may_fit(double gib, uint32_t data, uint32_t M,
                    lh_elastic_sharding sharding, bool *fits)
{
    lh_job *job = full_job(gib, data);
    lhi_config config = {.layout = {.tensor = 1,
                                    .context = 1,
                                    .expert = 1,
                                    .micro_batch = 1,
                                    .sharding = LH_SHARDING_FULL,
                                    .data = data,
                                    .pipeline = 2,
                                    .chunks_per_device = M},
                         .placement = LH_PLACEMENT_LOOP,
                         .recompute = LH_RECOMPUTE_NONE,
                         .microbatches = 4};
    lhi_elastic_options f = {.shardings = 1u << sharding, .queue = 2};
    lhi_elastic_lower_bound floor;
    lhi_elastic_result r = {0};
    lhi_arena *mem = lhi_arena_make(0);
    lh_error err = {0};
    lh_job plain = *job;
    plain.training.zero = 1;
    plain.training.recompute = LH_RECOMPUTE_NONE;
    *fits =
        lhi_elastic_search_shape(&plain, &config, &f, mem, &r, NULL) == LH_OK;
    CHECK_OK(lhi_elastic_compute_bound(&plain, &config, &f, &floor, &err), err);
    CHECK_MSG(!*fits || floor.makespan_ns <= r.makespan_ns,
              "sharding %u with %.6f GiB: %.0f ns, bound %.0f", sharding, gib,
              (double)r.makespan_ns, (double)floor.makespan_ns);
    if (*fits) {
        lh_pipeline_free(r.built.pipeline);
        lh_schedule_free(r.schedule);
    }
    lhi_arena_free(mem);
    lh_job_free(job);
    return floor.makespan_ns < INT64_MAX;
}

static void what_sharding_saves_is_what_it_is(void)
{
    for (uint32_t i = 0; i < 12 && !test_state.bad; i++) {
        uint32_t data = 2u << i % 3, M = i < 6 ? 8 : 16;
        lh_elastic_sharding sharding =
            i / 3 % 2 ? LH_ELASTIC_ZERO3 : LH_ELASTIC_ZERO2;
        double none = 1, enough = 200;
        bool fits;
        CHECK(!may_fit(none, data, M, sharding, &fits) && !fits);
        CHECK(may_fit(enough, data, M, sharding, &fits) && fits);
        while (enough - none > 1e-4 * enough) {
            double middle = (none + enough) / 2;
            may_fit(middle, data, M, sharding, &fits);
            *(fits ? &enough : &none) = middle;
        }
        CHECK_MSG(!may_fit(0.99 * enough, data, M, sharding, &fits),
                  "%u replicas, %u chunks, sharding %u: plans fit %.3f GiB, "
                  "and %.3f by the bound",
                  data, M, sharding, enough, 0.99 * enough);
    }
}

/* Returns device 0's static memory if one layer in chunk `c` recomputes an
 * operation. A chunk number of 4 or more means no recomputation. */
static int64_t static_bytes(const lh_job *job, lhi_config config, uint32_t c)
{
    uint32_t all = config.microbatches, layers[4] = {0};
    lhi_elastic_kinds kinds;
    lh_plan_recomputed rows[LH_COST_MAX_OPS];
    lh_plan_elastic plan = {.n_enqueue = 1,
                            .n_dequeue = 1,
                            .enqueue = &all,
                            .dequeue = &all,
                            .recomputed = rows};
    lhi_built_layout built;
    lh_pipeline_desc desc = {.size = sizeof desc};
    lh_error err = {0};
    if (c < 4)
        layers[c] = 1;
    CHECK_OK(lhi_elastic_kinds_find(job, &config, &kinds, &err), err);
    for (uint32_t i = 0; i < kinds.n_names[0]; i++)
        rows[plan.n_recomputed++] = (lh_plan_recomputed){
            .operation = kinds.names[0][i], .n_chunks = 4, .layers = layers};
    config.elastic = &plan;
    CHECK_OK(lhi_elastic_rebuild(job, &config, &built, &err), err);
    CHECK_OK(lh_pipeline_describe(built.pipeline, &desc, &err), err);
    int64_t bytes = desc.chunks[0].mem_static + desc.chunks[2].mem_static;
    lh_pipeline_free(built.pipeline);
    return bytes;
}

/* During recomputation a complete layer's activations are in memory, whichever
 * chunk the layer is in. */
static void a_layer_is_whole_in_any_chunk(void)
{
    lh_job *job = job_with(
        JOB_SMALL, "training: {global_batch: 8, sequence: 1024, zero: 1}\n");
    lhi_config config = {.layout = {.tensor = 1,
                                    .context = 1,
                                    .expert = 1,
                                    .micro_batch = 1,
                                    .sharding = LH_SHARDING_FULL,
                                    .data = 1,
                                    .pipeline = 2,
                                    .chunks_per_device = 2},
                         .placement = LH_PLACEMENT_LOOP,
                         .recompute = LH_RECOMPUTE_NONE,
                         .microbatches = 8};
    int64_t none = static_bytes(job, config, 4);
    CHECK(static_bytes(job, config, 0) > none);
    CHECK_INT(static_bytes(job, config, 2), static_bytes(job, config, 0));
    CHECK_INT(static_bytes(job, config, 1), none);
    lh_job_free(job);
}

int main(void)
{
    RUN(a_layer_is_whole_in_any_chunk);
    RUN(what_sharding_saves_is_what_it_is);
    RUN(first_groups_wait_for_messages);
    RUN(sharding_and_memory_count_together);
    RUN(one_group_makes_again_what_it_must);
    RUN(no_elastic_plan_is_below_its_bound);
    return test_summary();
}
