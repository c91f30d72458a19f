/* SPDX-License-Identifier: Apache-2.0 */
/* Elastic plans of jobs, and their alternatives. */
#include "jobs.h"
#include "plans.h"

#include "planner/elastic/layout_search.h"
#include "planner/search/elastic_search.h"
#include "schedule/pipeline/accessors.h"

#include <longhaul/check.h>
#include <longhaul/experimental/plan.h>
#include <stdlib.h>

/* Checks that the plan is rejected with the value of the first `key` after
 * `from` replaced. */
static void refused_with(const char *text, const char *from, const char *key,
                         const char *value, const char *why)
{
    lh_error err = {0};
    lh_plan *plan = NULL;
    const char *at = strstr(text, from);
    at = at ? strstr(at, key) : NULL;
    CHECK_MSG(at != NULL, "there is no %s", key);
    if (!at)
        return;
    at += strlen(key);
    char *edited = malloc(strlen(text) + strlen(value) + 1);
    if (!edited)
        exit(1);
    size_t before = (size_t)(at - text);
    memcpy(edited, text, before);
    strcpy(edited + before, value);
    strcat(edited + before, at + strcspn(at, ",\n"));
    CHECK_INT(lh_plan_parse(edited, strlen(edited), "p.json", &plan, &err),
              LH_EINPUT);
    CHECK_HAS(err.text, why);
    lh_plan_free(plan);
    free(edited);
}

/* The choice and `elastic` both state ZeRO and recomputation. */
static void says_what_it_is(const lh_plan *plan)
{
    const lh_plan_elastic *e = plan->best.elastic;
    char *text = NULL;
    lh_error err = {0};
    CHECK(e->n_recomputed > 0);
    CHECK_OK(lh_plan_format(plan, &text, NULL, &err), err);
    if (!text)
        return;
    refused_with(text, "{", "\"zero\": ", plan->best.zero == 2 ? "3" : "2",
                 "is the smallest ZeRO stage of any state");
    refused_with(text, "{", "\"recompute\": ", "\"none\"",
                 "lists operations; it must be 'operations'");
    refused_with(text, "\"recomputed\"", "\"layers\": [", "99,", " chunks");
    refused_with(text, "\"recomputed\"", "\"first\": ", "0.001",
                 "but 'first' requires 1");
    lh_text_free(text);
}

/* Groups, shards and recomputed operations of a plan: it runs, fits and
 * round-trips, and is no faster without them. */
static void elastic_plans(void)
{
    lh_job *job = job_two_sites("{schedule: elastic, context: 1}", 32, 14);
    lh_plan *plan = NULL;
    lh_plan_options even = {.size = sizeof even,
                            .layout_effort = LITTLE_WORK,
                            .partition = LH_PARTITION_EVEN};
    lh_error err = {0};
    CHECK_OK(lh_plan_make(job, &even, &plan, &err), err);
    CHECK(plan && plan->best.elastic);
    if (plan && plan->best.elastic) {
        const lh_plan_elastic *e = plan->best.elastic;
        uint32_t n = 0;
        for (uint32_t i = 0; i < e->n_enqueue; i++)
            n += e->enqueue[i];
        CHECK_INT(n, plan->best.microbatches);
        CHECK(e->parameters <= e->gradients && e->gradients <= 1);
        CHECK_INT(plan->best.zero, e->parameters >= 1  ? 3
                                   : e->gradients >= 1 ? 2
                                                       : 1);
        CHECK_INT(plan->best.recompute, e->n_recomputed
                                            ? LH_RECOMPUTE_OPERATIONS
                                            : LH_RECOMPUTE_NONE);
        for (uint32_t i = 0; i < e->n_recomputed; i++) {
            uint32_t sum = 0, first, layers;
            CHECK_INT(e->recomputed[i].n_chunks,
                      lh_pipeline_n_chunks(plan->pipeline));
            for (uint32_t c = 0; c < e->recomputed[i].n_chunks; c++) {
                lh_plan_layers(plan, c, &first, &layers);
                CHECK(e->recomputed[i].layers[c] <= layers);
                sum += e->recomputed[i].layers[c];
            }
            CHECK(sum > 0);
        }
        CHECK(plan->best.peak_memory_bytes <= plan->best.memory_limit_bytes);
        CHECK(plan->best.layout.chunks_per_device == 1 ||
              lhi_pipeline_n_dp_ops(plan->pipeline) > 0);
        says_what_it_is(plan);
        lh_verdict *verdict = NULL;
        CHECK_OK(lh_check(plan->pipeline, plan->schedule, &verdict, &err), err);
        CHECK(lh_verdict_valid(verdict));
        CHECK_INT(lh_verdict_makespan(verdict), plan->best.makespan_ns);
        lh_verdict_free(verdict);
        for (uint32_t i = 0; i < plan->n_methods; i++)
            CHECK(plan->methods[i].status != LH_CHOICE_OK ||
                  plan->methods[i].iteration_ns >= plan->best.iteration_ns);
        plan_reads_back(plan);
    }
    lh_plan_free(plan);
    lh_job_free(job);
}

/* Finds a table row whose reason contains these words. */
static const lh_choice *row_of(const lh_plan *plan, const char *words)
{
    for (uint32_t i = 0; plan && i < plan->n_methods; i++)
        if (strstr(plan->methods[i].why, words))
            return &plan->methods[i];
    return NULL;
}

/* Alternatives of an elastic plan, each with its time: depth-first,
 * breadth-first, the same with host memory, zero-bubble. Not if an optimal
 * schedule of another layout wins. */
static void beside_elastic_plans(void)
{
    lh_job *job =
        job_two_sites("{tensor: 2, pipeline: 4, data: 2, micro_batch: 1, "
                      "outermost: data}",
                      32, 20);
    lh_plan *plan = NULL;
    lh_plan_options some = {
        .size = sizeof some, .layout_effort = LITTLE_WORK, .no_optimal = true};
    lh_error err = {0};
    CHECK_OK(lh_plan_make(job, &some, &plan, &err), err);
    const lh_choice *depth = row_of(plan, "depth-first");
    const lh_choice *breadth = row_of(plan, "one group");
    const lh_choice *host = row_of(plan, "offloading");
    const lh_choice *bubble = row_of(plan, "zero-bubble");
    for (uint32_t i = 0; plan && i < plan->n_methods; i++)
        CHECK(plan->methods[i].recompute != LH_RECOMPUTE_MODULES);
    CHECK(depth && depth->elastic && depth->elastic->enqueue[0] == 4);
    CHECK(breadth && (breadth->elastic ? breadth->elastic->n_enqueue == 1
                                       : breadth->status == LH_CHOICE_MEMORY));
    if (breadth && !breadth->elastic) /* gives the excess */
        CHECK_HAS(breadth->why, "bytes more than allowed by the budget");
    CHECK(host && host->elastic && host->elastic->n_enqueue == 1 &&
          host->elastic->n_recomputed == 0);
    if (host) {
        CHECK_HAS(host->why, "GiB of host memory per GPU");
        CHECK_HAS(host->why, "s of copies each way");
        CHECK(host->peak_memory_bytes <= host->memory_limit_bytes);
    }
    CHECK(bubble && !bubble->elastic);
    for (uint32_t i = 0; plan && i < plan->n_methods; i++)
        CHECK(!plan->methods[i].elastic || plan->methods[i].why[0]);
    if (plan && plan->best.elastic) {
        bool kept = false; /* the plan without elastic ones */
        for (uint32_t i = 0; i < plan->n_alternatives; i++)
            kept = kept || !plan->alternatives[i].elastic;
        CHECK(kept);
    }
    if (plan)
        plan_reads_back(plan);
    lh_plan_free(plan);
    lh_job_free(job);
}

/* If slow data parallelism is limited by bandwidth, its parts without overlap
 * at both ends of an iteration justify fewer layers in the first chunk. */
static void smaller_first_chunks(void)
{
    lh_job *job = job_with(
        JOB_70B,
        "  links: [{between: [west, east], latency_ms: 1, gbps: 800}]\n"
        "layout: {tensor: 8, pipeline: 4, data: 8, micro_batch: 1,\n"
        "         chunks_per_device: 4, outermost: data,\n"
        "         schedule: elastic}\n");
    lh_plan *plan = NULL;
    lh_plan_options own = {.size = sizeof own,
                           .layout_effort =
                               LITTLE_WORK, /* elastic plans' own chunks */
                           .partition = LH_PARTITION_EVEN};
    lh_error err = {0};
    CHECK_OK(lh_plan_make(job, &own, &plan, &err), err);
    const lh_choice *even = row_of(plan, "equal layers");
    CHECK(plan && plan->best.elastic && plan->best.chunk_layers);
    CHECK(even && even->iteration_ns > plan->best.iteration_ns);
    if (plan && plan->best.chunk_layers) {
        uint32_t sum = 0;
        for (uint32_t c = 0; c < 16; c++) {
            uint32_t n = plan->best.chunk_layers[c];
            CHECK(c < 4 ? n < 5 : n >= 5);
            sum += n;
        }
        CHECK_INT(sum, 80);
        lh_verdict *verdict = NULL;
        CHECK_OK(lh_check(plan->pipeline, plan->schedule, &verdict, &err), err);
        CHECK(lh_verdict_valid(verdict));
        CHECK_INT(lh_verdict_makespan(verdict), plan->best.makespan_ns);
        lh_verdict_free(verdict);
        plan_reads_back(plan);
    }
    lh_plan_free(plan);
    lh_job_free(job);
}

/* They shard over all replicas, so they are excluded where the job says
 * otherwise. */
static void not_with_hybrid_sharding(void)
{
    static const char *const kinds[] = {"full", "hybrid"};
    for (int i = 0; i < 2; i++) {
        char layout[160];
        snprintf(layout, sizeof layout,
                 "{tensor: 2, pipeline: 4, data: 2, micro_batch: 1, "
                 "chunks_per_device: 2, outermost: data, sharding: %s}",
                 kinds[i]);
        lh_job *job = job_two_sites(layout, 32, 24);
        lh_plan *plan = NULL;
        lh_plan_options o = {.size = sizeof o,
                             .layout_effort = LITTLE_WORK,
                             .no_optimal = true,
                             .partition = LH_PARTITION_EVEN};
        lh_error err = {0};
        bool any = false;
        CHECK_OK(lh_plan_make(job, &o, &plan, &err), err);
        for (uint32_t k = 0; plan && k < plan->n_methods; k++)
            any = any || plan->methods[k].elastic;
        for (uint32_t k = 0; plan && k < plan->n_alternatives; k++)
            any = any || plan->alternatives[k].elastic;
        CHECK_INT(plan && (plan->best.elastic || any), i == 0);
        lh_plan_free(plan);
        lh_job_free(job);
    }
}

/* Sharding saves at most the measured state, which may be less than the model's
 * estimate. */
static void less_state_than_counted(void)
{
#define ENTRY(kind, us, bytes)                                                 \
    "    - {kind: " kind ", tensor: 2, sequence: 4096, F_us: " us              \
    ", D_us: " us ", W_us: " us ", static_bytes: " bytes "}\n"
    lh_job *job = job_with(
        JOB_A100S,
        "  gpu: {preset: a100-80g, memory_gib: 16}\n"
        "training: {global_batch: 32, sequence: 4096}\n"
        "layout: {tensor: 2, context: 1, pipeline: 2, data: 4, "
        "micro_batch: 1, outermost: data, schedule: elastic}\n"
        "profile:\n"
        "  longhaul: profile/1\n"
        "  entries:\n" ENTRY("layer", "8000", "1000000")
            ENTRY("embedding", "80", "1000") ENTRY("head", "800", "1000"));
#undef ENTRY
    lh_plan_options even = {.size = sizeof even,
                            .layout_effort = LITTLE_WORK,
                            .partition = LH_PARTITION_EVEN};
    lh_plan *plan = NULL;
    lh_error err = {0};
    bool sharded = false;
    CHECK_OK(lh_plan_make(job, &even, &plan, &err), err);
    for (uint32_t i = 0; plan && i < plan->n_methods; i++) {
        const lh_choice *row = &plan->methods[i];
        sharded |= row->elastic && row->elastic->gradients > 0;
        CHECK(row->status != LH_CHOICE_OK || row->peak_memory_bytes >= 0);
    }
    CHECK(sharded);
    if (plan)
        plan_reads_back(plan);
    lh_plan_free(plan);
    lh_job_free(job);
}

/* Counts the search's polls for a stop. */
typedef struct asked {
    uint32_t n, most; /* true from call number `most` on */
} asked;

static bool ask(void *context, uint32_t done, uint32_t total, int64_t best_ns)
{
    asked *a = context;
    (void)done, (void)total, (void)best_ns;
    return a->n++ >= a->most;
}

static lh_plan *plan_asking(const lh_job *job, asked *a)
{
    lh_plan *plan = NULL;
    lh_error err = {0};
    lh_plan_options o = {.size = sizeof o,
                         .layout_effort = LITTLE_WORK,
                         .partition = LH_PARTITION_EVEN,
                         .progress = ask,
                         .context = a};
    CHECK_OK(lh_plan_make(job, &o, &plan, &err), err);
    return plan;
}

/* More chunks and microbatches than the search's default range. */
static void as_many_as_are_asked_for(void)
{
    static const struct {
        uint32_t layers, batch, chunks;
    } rows[] = {{48, 24, 24}, {8, 1200, 2}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lh_job *job =
            job_with(JOB_SMALL,
                     "  gpus_per_node: 2\n"
                     "training: {global_batch: %u, sequence: 256, "
                     "zero: 3, recompute: none}\n"
                     "model: {layers: %u, hidden: 1024, ffn: 4096, "
                     "heads: 8, vocab: 1000}\n"
                     "layout: {tensor: 1, context: 1, pipeline: 2, "
                     "data: 2, micro_batch: 1, chunks_per_device: "
                     "%u, schedule: elastic}\n",
                     (unsigned)rows[i].batch, (unsigned)rows[i].layers,
                     (unsigned)rows[i].chunks);
        lh_plan_options even = {.size = sizeof even,
                                .layout_effort = LITTLE_WORK,
                                .partition = LH_PARTITION_EVEN};
        lh_plan *plan = NULL;
        lh_error err = {0};
        CHECK_OK(lh_plan_make(job, &even, &plan, &err), err);
        if (plan) {
            CHECK(plan->best.elastic != NULL);
            CHECK_INT(plan->best.layout.chunks_per_device, rows[i].chunks);
            CHECK_INT(plan->best.microbatches, rows[i].batch / 2);
        }
        lh_plan_free(plan);
        lh_job_free(job);
    }
}

/* A search for elastic plans stops on request, with the results so far. */
static void stopped_in_between(void)
{
    lh_job *job = job_two_sites("{schedule: elastic, context: 1}", 128, 24);
    asked all = {.most = UINT32_MAX};
    lh_plan *whole = plan_asking(job, &all);
    /* During the first rows of elastic plans. */
    asked soon = {.most = all.n / 2};
    lh_plan *first = plan_asking(job, &soon);
    CHECK_MSG(soon.n > soon.most && soon.n < soon.most + all.n / 8,
              "asked %u times of %u, and told to stop at %u", soon.n, all.n,
              soon.most);
    if (whole && first) {
        CHECK(first->best.iteration_ns >= whole->best.iteration_ns);
        plan_reads_back(first);
    }
    lh_plan_free(whole);
    lh_plan_free(first);
    lh_job_free(job);
}

/* Counts polls for a stop, before and after the first solution. */
typedef struct heard {
    bool always;
    uint32_t n, after; /* calls; calls since the first solution */
} heard;

static bool hear(void *context, bool works)
{
    heard *h = context;
    h->n++;
    h->after += works;
    return h->always || works;
}

/* Stops at the first solution, or even before. */
static void stopped_as_soon_as_it_works(void)
{
    lh_job *job = job_two_sites("{schedule: elastic, context: 1}", 32, 60);
    lhi_config like = {.layout = {.tensor = 1,
                                  .context = 1,
                                  .expert = 1,
                                  .pipeline = 4,
                                  .data = 4,
                                  .micro_batch = 1,
                                  .chunks_per_device = 1,
                                  .outermost = LH_OUTERMOST_PIPELINE},
                       .microbatches = 8};
    lhi_arena *mem = lhi_arena_make(0);
    for (int always = 0; always < 2; always++) {
        heard h = {.always = always};
        lhi_elastic_options freedom = {
            .recompute = true, .stopped = hear, .context = &h};
        lhi_elastic_result r = {0};
        lh_error err = {0};
        lh_status status =
            lhi_elastic_search_layout(job, &like, &freedom, mem, &r, &err);
        CHECK_INT(status, always ? LH_EINFEASIBLE : LH_OK);
        CHECK((r.schedule != NULL) == !always);
        CHECK(h.n > 0 && h.n < 1000 && (h.after > 0) == !always);
        if (always)
            CHECK_HAS(err.text, "stopped before a plan was found");
        lh_pipeline_free(r.built.pipeline);
        lh_schedule_free(r.schedule);
    }
    lhi_arena_free(mem);
    lh_job_free(job);
}

/* Searches elastic plans beside a given layout. */
static int64_t prove(const lh_job *job, uint64_t work, uint64_t *left)
{
    lh_error err = {0};
    lhi_elastic_result found = {0};
    lhi_candidate c = {
        .config = {.layout = {.tensor = 2,
                              .context = 2,
                              .expert = 1,
                              .pipeline = 2,
                              .data = 2,
                              .micro_batch = 1,
                              .chunks_per_device = 2,
                              .outermost = LH_OUTERMOST_PIPELINE},
                   .placement = LH_PLACEMENT_WAVE,
                   .recompute = LH_RECOMPUTE_SELECTIVE,
                   .zero = 1,
                   .microbatches = 32}};
    lhi_layout_search s = {
        .job = job,
        .options = {.size = sizeof s.options, .layout_effort = work},
        .mem = lhi_arena_make(0),
        .candidates = &c,
        .n = 1,
        .proven_ns = INT64_MAX,
        .best_ns = INT64_MAX};
    CHECK_OK(lhi_candidate_compute_bound(&s, &c, &err), err);
    CHECK_OK(lhi_candidate_evaluate_quickly(&s, &c, &err), err);
    CHECK_MSG(lhi_candidate_is_feasible(&c), "%s", c.choice.why);
    CHECK_OK(lhi_elastic_search(&s, true, &found, &err), err);
    *left = s.n_elastic_left;
    lh_pipeline_free(found.built.pipeline);
    lh_schedule_free(found.schedule);
    lhi_arena_free(s.mem);
    return s.proven_ns;
}

/* Bounds are cheap compared with searches, and proofs do not wait for them: a
 * small budget proves as much as a large one. */
static void what_is_proven_does_not_wait(void)
{
    uint64_t few, most;
    lh_job *job = job_with(JOB_TWO_SITES,
                           "training: {global_batch: 64, sequence: 8192}\n");
    CHECK_INT(prove(job, 960000, &most), prove(job, 2400000, &few));
    CHECK_MSG(few > 0 && most > 4 * few,
              "%.0f layouts are left with little work, and %.0f with more",
              (double)most, (double)few);
    lh_job_free(job);
}

/* Layouts whose passes store more than elastic plans support are skipped. */
static void passes_may_store_more_than_a_tebibyte(void)
{
    const lh_plan_options little = {
        .size = sizeof little, .no_optimal = true, .layout_effort = 10000};
    lh_job *job =
        job_with(JOB_SMALL, "  gpu: {tflops: 1000, memory_gib: 4096, "
                            "memory_gbps: 3000}\n"
                            "  datacenters: [{name: west, nodes: 2}]\n"
                            "  links:\n"
                            "model: llama3-70b\n"
                            "training: {global_batch: 16, sequence: 131072}\n"
                            "layout: {tensor: 1, context: 1, micro_batch: 8, "
                            "schedule: elastic}\n");
    lh_plan *plan = NULL;
    lh_error err = {0};
    CHECK_OK(lh_plan_make(job, &little, &plan, &err), err);
    CHECK(plan && plan->best.elastic);
    lh_plan_free(plan);
    lh_job_free(job);
}

int main(void)
{
    RUN(elastic_plans);
    RUN(beside_elastic_plans);
    RUN(not_with_hybrid_sharding);
    RUN(smaller_first_chunks);
    RUN(less_state_than_counted);
    RUN(as_many_as_are_asked_for);
    RUN(stopped_in_between);
    RUN(stopped_as_soon_as_it_works);
    RUN(what_is_proven_does_not_wait);
    RUN(passes_may_store_more_than_a_tebibyte);
    return test_summary();
}
