/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts, their pipelines, and the search over them. */
#include "jobs.h"
#include "plans.h"

#include "planner/layout/layout.h"
#include "schedule/pipeline/accessors.h"

#include <longhaul/check.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/plan.h>
#include <stdlib.h>

static void layers_are_even(void)
{
    for (uint32_t layers = 1; layers <= 130; layers++)
        for (uint32_t n = 1; n <= layers; n++) {
            uint32_t next = 0, least = layers, most = 0;
            for (uint32_t c = 0; c < n; c++) {
                uint32_t first, count;
                lhi_layer_range(layers, n, c, &first, &count);
                CHECK_INT(first, next);
                next += count;
                least = count < least ? count : least;
                most = count > most ? count : most;
            }
            CHECK_INT(next, layers);
            CHECK(most - least <= 1);
        }
    /* The ends, with embedding and head, get fewer layers first. */
    uint32_t first, count;
    lhi_layer_range(126, 16, 0, &first, &count);
    CHECK_INT(count, 7);
    lhi_layer_range(126, 16, 15, &first, &count);
    CHECK_INT(count, 7);
    lhi_layer_range(126, 16, 8, &first, &count);
    CHECK_INT(count, 8);
}

static lh_layout layout_of(uint32_t tp, uint32_t pp, uint32_t dp,
                           lh_outermost outermost)
{
    return (lh_layout){.tensor = tp,
                       .context = 1,
                       .expert = 1,
                       .pipeline = pp,
                       .data = dp,
                       .micro_batch = 1,
                       .chunks_per_device = 1,
                       .outermost = outermost};
}

static void ranks_are_placed(void)
{
    lh_job *job = job_two_sites("", 64, 80);
    lh_error err = {0};
    lhi_arena *mem = lhi_arena_make(0);
    lhi_layout_placement at;
    lh_layout l = layout_of(2, 4, 2, LH_OUTERMOST_PIPELINE);
    CHECK_OK(lhi_layout_place(job, &l, mem, &at, &err), err);
    CHECK_INT(at.ranks[1].datacenter, 0);
    CHECK_INT(at.ranks[1].first_gpu, 4);
    CHECK_INT(at.ranks[2].datacenter, 1);
    CHECK_INT(at.ranks[2].first_gpu, 0);
    CHECK_INT(at.stages[1].n_sites, 1);
    l = layout_of(2, 4, 2, LH_OUTERMOST_DATA);
    CHECK_OK(lhi_layout_place(job, &l, mem, &at, &err), err);
    CHECK_INT(at.ranks[3].datacenter, 0);
    CHECK_INT(at.ranks[3].first_gpu, 6);
    CHECK_INT(at.stages[1].n_sites, 2);
    CHECK_INT(at.stages[1].sites[1].replicas, 1);
    CHECK_INT(at.stages[1].sharing, 4);
    /* Three replicas over two datacenters; a replica larger than one
     * datacenter. */
    l = layout_of(1, 4, 3, LH_OUTERMOST_DATA);
    CHECK_INT(lhi_layout_place(job, &l, mem, &at, &err), LH_EUNSUPPORTED);
    CHECK_HAS(err.text, "data 3 is not divisible by 2 datacenters");
    l = layout_of(4, 4, 2, LH_OUTERMOST_DATA);
    CHECK_INT(lhi_layout_place(job, &l, mem, &at, &err), LH_EUNSUPPORTED);
    CHECK_HAS(err.text, "holds 0 whole replicas of 16 GPUs");
    l = layout_of(4, 5, 1, LH_OUTERMOST_PIPELINE);
    CHECK_INT(lhi_layout_place(job, &l, mem, &at, &err), LH_EUNSUPPORTED);
    CHECK_HAS(err.text, "hold 4 whole stages");
    lhi_arena_free(mem);
    lh_job_free(job);
}

/* Eight stages, four in each datacenter: the boundary uses the wide-area link,
 * the others the inner network. */
static void pipelines_are_built(void)
{
    lh_job *job = job_two_sites("", 64, 80);
    lh_error err = {0};
    lh_pipeline *p = NULL;
    int64_t optimizer_ns = 0;
    lh_layout l = layout_of(1, 8, 2, LH_OUTERMOST_PIPELINE);
    CHECK_OK(lh_plan_pipeline(job, &l, LH_PLACEMENT_UD, LH_RECOMPUTE_NONE, &p,
                              &optimizer_ns, &err),
             err);
    CHECK_INT(lh_pipeline_n_microbatches(p), 32);
    CHECK_INT(lhi_pipeline_placement(p), LH_PLACEMENT_UD);
    CHECK_INT(lh_pipeline_n_links(p), 14);
    CHECK_INT(lh_pipeline_memory_limit(p, 3), INT64_C(80) << 30);
    CHECK_STR(lhi_pipeline_site_name(p, lh_pipeline_device_site(p, 4)), "east");
    CHECK(optimizer_ns > 0);
    for (uint32_t i = 0; i < 14; i++) {
        const lh_link *k = lh_pipeline_link(p, i);
        bool wan = (k->from == 3 && k->to == 4) || (k->from == 4 && k->to == 3);
        CHECK(wan == (k->latency_ns >= 20000000));
        if (wan)
            CHECK_STR(k->name, k->from == 3 ? "west>east" : "east>west");
    }
    lh_pipeline_free(p);
    l.chunks_per_device = 2;
    CHECK_INT(lh_plan_pipeline(job, &l, LH_PLACEMENT_BD, LH_RECOMPUTE_NONE, &p,
                               NULL, &err),
              LH_EUNSUPPORTED);
    CHECK_HAS(err.text, "require chunks_per_device: 1");
    l.chunks_per_device = 1;
    CHECK_OK(lh_plan_pipeline(job, &l, LH_PLACEMENT_BD, LH_RECOMPUTE_NONE, &p,
                              NULL, &err),
             err);
    CHECK_INT(lhi_pipeline_placement(p), LH_PLACEMENT_BD);
    CHECK_INT(lh_pipeline_n_links(p), 14); /* the same in both directions */
    /* Stages 0 and 7, in west and east, have the same chunks: their gradients
     * cross both directions of the wide-area link. */
    CHECK_STR(lh_pipeline_dp_link(p, 0), "west>east + east>west");
    CHECK_STR(lh_pipeline_dp_link(p, 7), "west>east + east>west");
    CHECK(lh_pipeline_chunk(p, 0)->reduce_scatter_ns > 0);
    CHECK(lh_pipeline_chunk(p, 0)->dp_latency_ns >= 20000000);
    lh_pipeline_free(p);
    l = layout_of(1, 5, 3, LH_OUTERMOST_PIPELINE);
    CHECK_INT(lh_plan_pipeline(job, &l, LH_PLACEMENT_UD, LH_RECOMPUTE_NONE, &p,
                               NULL, &err),
              LH_EUNSUPPORTED);
    CHECK_HAS(err.text, "is not divisible by data 3 x micro_batch 1");
    l = layout_of(65536, 8, 65536, LH_OUTERMOST_PIPELINE);
    l.context = 65536;
    l.micro_batch = 64;
    CHECK_INT(lh_plan_pipeline(job, &l, LH_PLACEMENT_UD, LH_RECOMPUTE_NONE, &p,
                               NULL, &err),
              LH_EUNSUPPORTED);
    lh_job_free(job);
}

/* Two datacenters with different GPUs. */
static lh_job *uneven_job(double tflops_b, double memory_b, const char *more)
{
    return job_with(
        JOB_TWO_SITES,
        "  gpus_per_node: 8\n"
        "  datacenters:\n"
        "   - {name: a, nodes: 1}\n"
        "   - {name: b, nodes: 1, gpu: {tflops: %g, memory_gib: %g, "
        "memory_reserve: 0, memory_gbps: 3000, efficiency: 0.5}}\n"
        "  links: [{between: [a, b], latency_ms: 1, gbps: 4000}]\n"
        "training: {global_batch: 16, sequence: 4096}\n"
        "%s",
        tflops_b, memory_b, more);
}

/* With data outermost each datacenter has a replica: the slowest sets the
 * times, the smallest the memory. */
static void replicas_differ(void)
{
    lh_layout l = layout_of(2, 4, 2, LH_OUTERMOST_DATA);
    static const double tflops[] = {500, 250, 1000};
    int64_t f[3];
    for (int i = 0; i < 3; i++) {
        lh_job *job = uneven_job(tflops[i], i == 2 ? 8 : 80, "");
        lh_pipeline *p = NULL;
        lh_error err = {0};
        CHECK_OK(lh_plan_pipeline(job, &l, LH_PLACEMENT_UD, LH_RECOMPUTE_NONE,
                                  &p, NULL, &err),
                 err);
        f[i] = lh_pipeline_chunk(p, 1)->f_ns;
        CHECK_INT(lh_pipeline_memory_limit(p, 0),
                  i == 2 ? INT64_C(8) << 30
                         : lh_gpu_usable_bytes(&job->datacenters[0].gpu));
        lh_pipeline_free(p);
        lh_job_free(job);
    }
    CHECK(f[1] > f[0] + f[0] / 2); /* the slower datacenter */
    CHECK_INT(f[2], f[0]);         /* a faster one does not help */
}

/* A profile's memory takes precedence. */
static void profiles_win(void)
{
    static const double gib[] = {1, 30, 70};
    for (int i = 0; i < 3; i++) {
        char more[1024];
        snprintf(more, sizeof more,
                 "profile:\n"
                 "  longhaul: profile/1\n"
                 "  entries:\n"
                 "   - {kind: layer, tensor: 8, micro_batch: 1, sequence: "
                 "4096, F_us: 1000, D_us: 1200, W_us: 800, "
                 "activation_bytes: 1000000, static_bytes: %.0f}\n"
                 "   - {kind: embedding, tensor: 8, micro_batch: 1, sequence: "
                 "4096, F_us: 10, D_us: 0, W_us: 10, activation_bytes: 1000, "
                 "static_bytes: 0}\n"
                 "   - {kind: head, tensor: 8, micro_batch: 1, sequence: "
                 "4096, F_us: 10, D_us: 10, W_us: 10, activation_bytes: 1000, "
                 "static_bytes: 0}\n",
                 gib[i] * (1 << 30) / 16);
        lh_job *job = uneven_job(500, 80, more);
        lh_layout l = layout_of(8, 2, 1, LH_OUTERMOST_PIPELINE);
        lh_pipeline *p = NULL;
        lh_error err = {0};
        if (!job)
            return;
        CHECK_OK(lh_plan_pipeline(job, &l, LH_PLACEMENT_UD, LH_RECOMPUTE_NONE,
                                  &p, NULL, &err),
                 err);
        double held = (double)lh_pipeline_chunk(p, 0)->mem_static / (1 << 30);
        CHECK(held >= gib[i] && held < gib[i] + 5);
        lh_pipeline_free(p);
        lh_job_free(job);
    }
}

/* A matrix shared by embedding and head is summed across the boundary; with a
 * wave placement both are on one device. */
static void tied_embeddings_are_added_up(void)
{
    static const char *const models[] = {"false", "true"};
    int64_t after[2][2];
    for (int tied = 0; tied < 2; tied++) {
        lh_error err = {0};
        lh_job *job = job_with(
            JOB_SMALL,
            "  links: [{between: [west, east], latency_ms: 10, gbps: 10}]\n"
            "model: {name: m, layers: 8, hidden: 1024, "
            "ffn: 4096, heads: 8, vocab: 50304, "
            "tied_embeddings: %s}\n",
            models[tied]);
        for (int wave = 0; wave < 2; wave++) {
            lh_layout l = layout_of(1, 2, 1, LH_OUTERMOST_PIPELINE);
            lh_pipeline *p = NULL;
            l.chunks_per_device = wave ? 2 : 1;
            CHECK_OK(lh_plan_pipeline(
                         job, &l, wave ? LH_PLACEMENT_WAVE : LH_PLACEMENT_UD,
                         LH_RECOMPUTE_NONE, &p, &after[tied][wave], &err),
                     err);
            lh_pipeline_free(p);
        }
        lh_job_free(job);
    }
    /* 50304 x 1024 fp32 gradients over 10 Gbit/s each way, and latencies. */
    CHECK(after[1][0] - after[0][0] > 160000000);
    CHECK_INT(after[1][1], after[0][1]);
}

/* Values fixed by a 16-GPU job (0: not fixed). */
typedef struct fixed {
    const char *text;
    uint32_t tensor, context, micro_batch, pipeline, chunks;
    const char *method;
} fixed;

/* Returns the best iteration time of one configuration; INT64_MAX: none. */
static int64_t best_of(const lh_job *job, const lhi_config *config,
                       const char *method, uint64_t *n_layouts)
{
    lhi_built_layout built;
    lh_error err;
    lh_schedule *s;
    lh_timeline *t;
    int64_t ns = INT64_MAX;
    if (lhi_layout_build(job, config, &built, &err) != LH_OK)
        return ns;
    ++*n_layouts;
    if (lh_method_run(method, built.pipeline, NULL, &s, NULL, &err) == LH_OK) {
        CHECK_OK(lh_simulate(built.pipeline, s, NULL, &t, &err), err);
        if (lh_timeline_fits(t, NULL))
            ns = lh_timeline_makespan(t) + built.optimizer_ns +
                 built.overhead_ns;
        lh_timeline_free(t);
        lh_schedule_free(s);
    }
    lh_pipeline_free(built.pipeline);
    return ns;
}

/* Tries all chunk counts, recomputations, ZeRO stages and placements for these
 * degrees. */
static int64_t best_of_degrees(const lh_job *job, lhi_config config,
                               const fixed *f, uint64_t *n_layouts)
{
    int64_t best = INT64_MAX;
    static const struct {
        uint32_t chunks;
        lh_placement placement;
    } kinds[] = {{1, LH_PLACEMENT_UD},   {2, LH_PLACEMENT_LOOP},
                 {2, LH_PLACEMENT_WAVE}, {3, LH_PLACEMENT_LOOP},
                 {4, LH_PLACEMENT_LOOP}, {6, LH_PLACEMENT_LOOP},
                 {8, LH_PLACEMENT_LOOP}};
    for (int k = 0; k < 7; k++)
        for (int rc = 0; rc < 3; rc++)
            for (uint32_t zero = 1; zero <= 3; zero++)
                for (int out = LH_OUTERMOST_PIPELINE; out <= LH_OUTERMOST_DATA;
                     out++) {
                    if ((kinds[k].chunks > 1 && config.layout.pipeline == 1) ||
                        (f->chunks && kinds[k].chunks != f->chunks))
                        continue;
                    config.layout.chunks_per_device = kinds[k].chunks;
                    config.placement = kinds[k].placement;
                    config.recompute = (lh_recompute)rc;
                    config.zero_given = true;
                    config.zero = zero;
                    config.layout.outermost = (lh_outermost)out;
                    int64_t ns = best_of(job, &config, f->method, n_layouts);
                    best = ns < best ? ns : best;
                }
    return best;
}

/* Returns the best iteration time over every layout, without bounds. */
static int64_t exhaustive(const lh_job *job, const fixed *f,
                          uint64_t *n_layouts)
{
    int64_t best = INT64_MAX;
    uint32_t batch = job->training.global_batch;
    for (uint32_t tp = 1; tp <= 4; tp *= 2)
        for (uint32_t cp = 1; cp <= 2; cp *= 2)
            for (uint32_t pp = 1; pp * tp * cp <= 16; pp++)
                for (uint32_t dp = 1; pp * dp * tp * cp <= 16; dp++) {
                    uint32_t mb = f->micro_batch;
                    if ((f->tensor && f->tensor != tp) ||
                        (f->context && f->context != cp) ||
                        (f->pipeline && f->pipeline != pp) ||
                        batch % (dp * mb) != 0)
                        continue;
                    lhi_config config = {
                        .layout = layout_of(tp, pp, dp, LH_OUTERMOST_PIPELINE),
                        .microbatches = batch / dp / mb};
                    config.layout.context = cp;
                    config.layout.micro_batch = mb;
                    config.layout.sharding = LH_SHARDING_FULL;
                    int64_t ns = best_of_degrees(job, config, f, n_layouts);
                    best = ns < best ? ns : best;
                }
    return best;
}

static void finds_the_best_of(const fixed *f, double memory_gib)
{
    lh_job *job = job_two_sites(f->text, 32, memory_gib);
    lh_plan *plan = NULL;
    lh_error err = {0};
    uint64_t n_layouts = 0;
    lh_plan_options even = {.size = sizeof even,
                            .no_optimal = true,
                            .partition = LH_PARTITION_EVEN};
    CHECK_OK(lh_plan_make(job, &even, &plan, &err), err);
    if (!plan) {
        lh_job_free(job);
        return;
    }
    int64_t by_hand = exhaustive(job, f, &n_layouts);
    if (plan->best.elastic) /* has more options */
        CHECK(plan->best.iteration_ns < by_hand);
    else
        CHECK_INT(plan->best.iteration_ns, by_hand);
    plan_reads_back(plan);
    CHECK(n_layouts > 10);
    CHECK(plan->best.lower_bound_ns <= plan->best.iteration_ns);
    CHECK(plan->search_bound_ns <= plan->best.iteration_ns);
    CHECK(lh_plan_gap(plan) >= 0 && lh_plan_gap(plan) < 0.5);
    CHECK_INT(lh_plan_iteration_ns(plan), plan->best.iteration_ns);
    CHECK(lh_plan_best_pipeline(plan) == plan->pipeline);
    CHECK(lh_plan_best_schedule(plan) == plan->schedule);
    CHECK(plan->best.peak_memory_bytes <= plan->best.memory_limit_bytes);
    lh_verdict *verdict = NULL;
    CHECK_OK(lh_check(plan->pipeline, plan->schedule, &verdict, &err), err);
    CHECK(lh_verdict_valid(verdict));
    CHECK_INT(lh_verdict_makespan(verdict), plan->best.makespan_ns);
    lh_verdict_free(verdict);
    for (uint32_t k = 0; k < plan->n_alternatives; k++) {
        const lh_choice *o = &plan->alternatives[k];
        if (o->status == LH_CHOICE_OK)
            CHECK(o->iteration_ns >= plan->best.iteration_ns);
        if (o->status == LH_CHOICE_BOUNDED)
            CHECK(o->lower_bound_ns >= plan->best.iteration_ns);
        CHECK(o->why[0] != '\0');
    }
    lh_plan_free(plan);
    lh_job_free(job);
}

static void finds_the_best_of_all(void)
{
    static const fixed all[] = {
        {"{micro_batch: 4, schedule: 1f1b}", 0, 0, 4, 0, 0, "1f1b"},
        {"{micro_batch: 4, schedule: greedy, tensor: 2}", 2, 0, 4, 0, 0,
         "greedy"},
        {"{micro_batch: 2, tensor: 4, context: 1, pipeline: 4, "
         "chunks_per_device: 2}",
         4, 1, 2, 4, 2, "auto"}};
    static const double memories[] = {80, 16, 24};
    for (size_t i = 0; i < 3; i++)
        finds_the_best_of(&all[i], memories[i]);
}

static void given_layouts_are_kept(void)
{
    lh_job *job =
        job_two_sites("{tensor: 2, pipeline: 4, data: 2, micro_batch: 2, "
                      "chunks_per_device: 1, outermost: pipeline, "
                      "sharding: full, schedule: 1f1b}",
                      32, 80);
    lh_plan *plan = NULL, *again = NULL;
    lh_error err = {0};
    char *text = NULL;
    size_t len = 0;
    CHECK_OK(lh_plan_make(job, NULL, &plan, &err), err);
    if (plan) {
        const lh_layout *l = &plan->best.layout;
        CHECK_INT(l->tensor, 2);
        CHECK_INT(l->pipeline, 4);
        CHECK_INT(l->data, 2);
        CHECK_INT(l->micro_batch, 2);
        CHECK_STR(l->schedule, "1f1b");
        CHECK_INT(plan->best.microbatches, 8);
        CHECK_INT(l->sharding, LH_SHARDING_FULL);
        CHECK_OK(lh_plan_format(plan, &text, &len, &err), err);
        CHECK_OK(lh_plan_parse(text, len, "plan.json", &again, &err), err);
    }
    CHECK(again && again->best.layout.sharding == LH_SHARDING_FULL);
    lh_text_free(text);
    lh_plan_free(again);
    lh_plan_free(plan);
    lh_job_free(job);
}

static void round_trips(void)
{
    lh_job *job = job_two_sites("", 32, 80);
    lh_plan *plan = NULL;
    lh_error err = {0};
    char *text = NULL;
    lh_plan_options even = {.size = sizeof even,
                            .partition = LH_PARTITION_EVEN};
    CHECK_OK(lh_plan_make(job, &even, &plan, &err), err);
    lh_plan_free(plan_again(plan, &text));
    /* Contradictions, a truncated file, an invalid schedule. */
    char *degree = strstr(text, "\"pipeline\": ");
    char digit = degree[12];
    degree[12] = digit == '3' ? '4' : '3';
    plan_refused(text, "pipeline is");
    degree[12] = digit;
    char *row = strstr(text, "0F0");
    memcpy(row, "0Q0", 3);
    plan_refused(text, "0Q0");
    text[strlen(text) / 2] = '\0';
    plan_refused(text, "");
    lh_text_free(text);
    lh_plan_free(plan);
    lh_job_free(job);
}

static void refuses(lh_job *job, const char *why)
{
    lh_plan *plan = NULL;
    lh_error err = {0};
    CHECK_INT(lh_plan_make(job, NULL, &plan, &err), LH_EINFEASIBLE);
    CHECK_HAS(err.text, why);
    lh_plan_free(plan);
    lh_job_free(job);
}

/* All stages together have memory for the layers, but the last has none for the
 * head. */
static void no_room_for_the_head(void)
{
    static const char *const recompute[] = {"none", "selective", "full"};
    for (int i = 0; i < 3; i++) {
        lh_job *job = job_with(
            JOB_SMALL,
            "  gpu: {tflops: 312, memory_gib: 4.12, memory_reserve: 0, "
            "memory_gbps: 2039}\n"
            "  gpus_per_node: 2\n"
            "  datacenters: [{name: a, nodes: 2}]\n"
            "  links:\n"
            "model: {layers: 5, hidden: 2048, ffn: 8192, heads: 16, "
            "vocab: 32000}\n"
            "training: {global_batch: 8, sequence: 2048, zero: 1, "
            "recompute: %s}\n"
            "layout: {tensor: 1, pipeline: 4, data: 1, micro_batch: 8, "
            "chunks_per_device: 1}\n",
            recompute[i]);
        if (job)
            refuses(job, "no layout fits in memory");
    }
}

static void refusals_say_by_how_much(void)
{
    refuses(job_two_sites("", 32, 4),
            "no layout fits in memory; use GPUs with at least ");
    refuses(job_two_sites("{context: 5}", 30, 80),
            "no layout evenly divides 16 GPUs");
    refuses(job_two_sites("{context: 5, data: 2}", 30, 80),
            "; without layout.context: 5 a layout exists (tensor ");
    refuses(job_two_sites("{chunks_per_device: 33}", 30, 80),
            "every layout has more chunks than layers: llama3-8b has 32");
    refuses(job_two_sites("{tensor: 4, pipeline: 4, data: 1, "
                          "micro_batch: 2, schedule: gpipe, "
                          "chunks_per_device: 1}",
                          30000, 80),
            "no schedule works with the layouts that fit");
    refuses(job_two_sites("{tensor: 4, pipeline: 4, data: 1}", 8192 * 8, 80),
            "set layout.micro_batch");
    /* Layouts exist, but their durations overflow. */
    lh_job *slow = job_with(
        JOB_TWO_SITES, "  gpu: {tflops: 1e-6, memory_gib: 80, "
                       "memory_gbps: 3000}\n"
                       "  datacenters: [{name: west, nodes: 2}]\n"
                       "  links:\n"
                       "model: llama3-405b\n"
                       "training: {global_batch: 32, sequence: 1048576}\n");
    if (slow)
        refuses(slow, "no layout works, e.g.: a pass is out of range");
    lh_job *job = job_two_sites("{schedule: zb-x}", 32, 80);
    lh_plan *plan = NULL;
    lh_error err = {0};
    CHECK_INT(lh_plan_make(job, NULL, &plan, &err), LH_EINPUT);
    CHECK_HAS(err.text, "layout.schedule: unknown method "
                        "'zb-x'; known: gpipe, 1f1b,");
    lh_job_free(job);
}

/* A job's own cost constants apply to its plan, and to everything derived from
 * it later. */
static void constants_are_the_jobs(void)
{
    lh_job *job = job_with(JOB_A100S, "layout: {tensor: 4, pipeline: 4, "
                                      "data: 1, micro_batch: 1, "
                                      "schedule: 1f1b}\n");
    lh_cost_constants constants = *lh_cost_defaults();
    lh_plan *usual = NULL, *slow = NULL;
    lh_error err = {0};

    CHECK_OK(lh_plan_make(job, NULL, &usual, &err), err);
    constants.matmul_efficiency /= 2;
    job->constants = &constants;
    CHECK_OK(lh_plan_make(job, NULL, &slow, &err), err);
    job->constants = NULL;
    CHECK((double)slow->best.iteration_ns >
          1.5 * (double)usual->best.iteration_ns);
    CHECK(slow->job->constants && slow->job->constants != &constants);
    CHECK(slow->job->constants->matmul_efficiency ==
          constants.matmul_efficiency);
    lh_plan_free(usual);
    lh_plan_free(slow);
    lh_job_free(job);
}

/* Plans within a margin, with this work for layouts. `percent` or `gib` is 0.
 */
static lh_plan *plan_with_margin(lh_job *job, uint64_t layout_effort,
                                 double percent, double gib)
{
    const lh_plan_options o = {.size = sizeof o,
                               .no_optimal = true,
                               .effort = 1,
                               .layout_effort = layout_effort,
                               .margin_percent = percent,
                               .margin_gib = gib};
    lh_plan *plan = NULL;
    lh_error err = {0};
    CHECK_OK(lh_plan_make(job, &o, &plan, &err), err);
    return plan;
}

/* Returns a GPU's free memory under a choice in GiB. */
static double free_gib(const lh_choice *c)
{
    return (double)(c->memory_limit_bytes - c->peak_memory_bytes) / 0x1p30;
}

/* Checks a plan with the margin `gib`: its row leaves the memory free, is no
 * faster than the plan, is the plan itself if that has the memory free, and is
 * in the file. */
static void check_margin(const lh_plan *plan, double gib)
{
    const lh_choice *best = plan->margin->best;
    CHECK(best != NULL);
    if (!best)
        return;
    CHECK(free_gib(best) * 0x1p30 >= gib * 0x1p30 - 1);
    CHECK(best->memory_limit_bytes <= plan->best.memory_limit_bytes + 2);
    CHECK(best->iteration_ns >= plan->best.iteration_ns);
    CHECK(free_gib(&plan->best) < gib ||
          best->iteration_ns == plan->best.iteration_ns);
    char *text = NULL, *again = NULL;
    lh_plan *read = NULL;
    lh_error err = {0};
    CHECK_OK(lh_plan_format(plan, &text, NULL, &err), err);
    CHECK_OK(lh_plan_parse(text, strlen(text), "plan", &read, &err), err);
    CHECK_OK(lh_plan_format(read, &again, NULL, &err), err);
    CHECK(strcmp(text, again) == 0 && read->margin && read->margin->best);
    lh_text_free(text);
    lh_text_free(again);
    lh_plan_free(read);
}

static void margins_are_free(void)
{
    enum { LAYOUT_EFFORT = 50000 };
    lh_job *job = job_two_sites("", 32, 40);
    lh_plan *none = plan_with_margin(job, LAYOUT_EFFORT, 0, 0);
    CHECK(!none->margin);
    const double own = free_gib(&none->best);
    const double asked[] = {own / 2, own + 1, own + 4};
    for (int i = 0; i < 3; i++) {
        lh_plan *plan = plan_with_margin(job, LAYOUT_EFFORT,
                                         i == 1 ? 100 * asked[i] / 40 : 0,
                                         i == 1 ? 0 : asked[i]);
        check_margin(plan, asked[i]);
        lh_plan_free(plan);
    }
    lh_plan *impossible = plan_with_margin(job, LAYOUT_EFFORT, 93, 0);
    CHECK(impossible->margin && !impossible->margin->best);
    lh_plan_free(impossible);
    lh_plan_free(none);
    lh_job_free(job);
}

/* With little effort the search of this job with a margin finds a layer
 * partition that is faster than the plan without one. */
static void faster_plans_with_a_margin_are_adopted(void)
{
    lh_job *job = job_two_sites("{tensor: 2, context: 1, pipeline: 4, data: 2, "
                                "micro_batch: 1}",
                                8, 30);
    lh_plan *none = plan_with_margin(job, 0, 0, 0);
    const double gib = free_gib(&none->best) + 1;
    lh_plan *plan = plan_with_margin(job, 0, 0, gib);
    CHECK(plan->best.iteration_ns < none->best.iteration_ns);
    check_margin(plan, gib);
    lh_plan_free(plan);
    lh_plan_free(none);
    lh_job_free(job);
}

int main(void)
{
    RUN(margins_are_free);
    RUN(faster_plans_with_a_margin_are_adopted);
    RUN(layers_are_even);
    RUN(constants_are_the_jobs);
    RUN(ranks_are_placed);
    RUN(pipelines_are_built);
    RUN(replicas_differ);
    RUN(profiles_win);
    RUN(tied_embeddings_are_added_up);
    RUN(finds_the_best_of_all);
    RUN(given_layouts_are_kept);
    RUN(round_trips);
    RUN(no_room_for_the_head);
    RUN(refusals_say_by_how_much);
    return test_summary();
}
