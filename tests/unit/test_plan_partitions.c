/* SPDX-License-Identifier: Apache-2.0 */
/* Plans with uneven chunks: never slower than with even ones, complete, with
 * more layers on faster GPUs. */
#include "jobs.h"
#include "plans.h"

#include "planner/layout/choice.h"
#include "planner/layout/layer_partition.h"

#include <longhaul/check.h>
#include <longhaul/experimental/plan.h>
#include <stdlib.h>
#include <string.h>

/* 32 layers on 4 pipeline ranks; the second datacenter's GPUs reach `tflops`.
 */
static lh_job *job_on(double tflops, const char *more)
{
    return job_with(
        JOB_TWO_SITES,
        "  datacenters:\n"
        "   - {name: west, nodes: 2, gpu: {tflops: 600, memory_gib: 80, "
        "memory_gbps: 3000, efficiency: 0.5}}\n"
        "   - {name: east, nodes: 2, gpu: {tflops: %g, memory_gib: 80, "
        "memory_gbps: 3000, efficiency: 0.5}}\n"
        "  links: [{between: [west, east], latency_ms: 5, gbps: 400}]\n"
        "layout: {tensor: 4, pipeline: 4, data: 1, micro_batch: 1, "
        "outermost: pipeline%s}\n",
        tflops, more);
}

static lh_plan *plan_of(const lh_job *job, lh_partition_search how,
                        double ratio)
{
    lh_plan *plan = NULL;
    lh_error err = {0};
    lh_plan_options o = {.size = sizeof o,
                         .partition = how,
                         .max_chunk_ratio = ratio,
                         .sampling = {20, 20, 20, 20, 1},
                         .no_optimal = true};
    CHECK_OK(lh_plan_make(job, &o, &plan, &err), err);
    return plan;
}

static void check_layers(const lh_plan *plan, double ratio)
{
    uint32_t next = 0, least = UINT32_MAX, most = 0;
    uint32_t n = lh_pipeline_n_chunks(plan->pipeline);
    for (uint32_t c = 0; c < n; c++) {
        uint32_t first, count;
        lh_plan_layers(plan, c, &first, &count);
        CHECK_INT(first, next);
        next += count;
        least = count < least ? count : least;
        most = count > most ? count : most;
    }
    CHECK_INT(next, plan->job->model->layers);
    CHECK(most <= ratio * least);
    lh_verdict *verdict = NULL;
    lh_error err = {0};
    CHECK_OK(lh_check(plan->pipeline, plan->schedule, &verdict, &err), err);
    CHECK(lh_verdict_valid(verdict));
    CHECK_INT(lh_verdict_makespan(verdict), plan->best.makespan_ns);
    lh_verdict_free(verdict);
}

static void never_slower(void)
{
    static const char *const more[] = {"", ", chunks_per_device: 1",
                                       ", schedule: 1f1b"};
    for (int i = 0; i < 3; i++) {
        lh_job *job = job_on(600, more[i]);
        lh_plan *even = plan_of(job, LH_PARTITION_EVEN, 0);
        lh_plan *moved = plan_of(job, LH_PARTITION_HILL_CLIMBING, 0);
        lh_plan *drawn = plan_of(job, LH_PARTITION_MONTE_CARLO, 2);
        if (even && moved && drawn) {
            CHECK(!even->best.chunk_layers);
            CHECK(moved->best.iteration_ns <= even->best.iteration_ns);
            /* Monte Carlo sampling proves nothing, and is no better. */
            CHECK(drawn->best.iteration_ns >= moved->best.iteration_ns);
            CHECK(drawn->best.iteration_ns < 2 * moved->best.iteration_ns);
            CHECK(lh_plan_gap(drawn) < 0 && lh_plan_gap(moved) >= 0);
            check_layers(even, 3);
            check_layers(moved, 3);
            check_layers(drawn, 2);
        }
        lh_plan_free(even);
        lh_plan_free(moved);
        lh_plan_free(drawn);
        lh_job_free(job);
    }
}

/* Monte Carlo sampling considers the job's own method even if it is slow. */
static void slow_method_is_sampled(void)
{
    lh_job *job = job_on(600, ", schedule: look-ahead");
    lh_plan *plan = NULL;
    lh_error err = {0};
    lh_plan_options o = {.size = sizeof o,
                         .partition = LH_PARTITION_MONTE_CARLO,
                         .max_chunk_ratio = 2,
                         .sampling = {2, 2, 2, 2, 1},
                         .no_optimal = true};
    CHECK_OK(lh_plan_make(job, &o, &plan, &err), err);
    if (plan)
        CHECK_STR(plan->best.layout.schedule, "look-ahead");
    lh_plan_free(plan);
    lh_job_free(job);
}

/* Reported progress. */
typedef struct progress {
    uint32_t done, total;
    uint32_t n_steps; /* times that it began again */
} progress;

static bool note_progress(void *context, uint32_t done, uint32_t total,
                          int64_t best_ns)
{
    progress *p = context;
    (void)best_ns;
    p->n_steps += total != p->total || done < p->done;
    p->done = done;
    p->total = total;
    return false;
}

/* Monte Carlo sampling has three steps; each counts its own parts. */
static void samples_have_one_progress(void)
{
    lh_job *job = job_on(600, ", chunks_per_device: 1");
    lh_plan *plan = NULL;
    lh_error err = {0};
    progress p = {0};
    lh_plan_options o = {.size = sizeof o,
                         .partition = LH_PARTITION_MONTE_CARLO,
                         .sampling = {20, 20, 20, 20, 1},
                         .no_optimal = true,
                         .progress = note_progress,
                         .context = &p};
    CHECK_OK(lh_plan_make(job, &o, &plan, &err), err);
    CHECK_MSG(p.n_steps > 0 && p.n_steps <= 4, "%u steps", p.n_steps);
    lh_plan_free(plan);
    lh_job_free(job);
}

/* The last chunk has the vocabulary matrix, as much work as a few layers: 1F1B
 * with one chunk per rank is faster if it has fewer layers. Compared with all
 * partitions, none is faster. */
static void head_gets_less(void)
{
    lh_job *job = job_on(600, ", schedule: 1f1b, chunks_per_device: 1");
    lh_plan *even = plan_of(job, LH_PARTITION_EVEN, 0);
    lh_plan *climbed = plan_of(job, LH_PARTITION_HILL_CLIMBING, 0);
    lh_plan *exact = plan_of(job, LH_PARTITION_EXACT, 0);
    if (even && climbed && exact) {
        uint32_t first, count;
        lh_plan_layers(exact, 3, &first, &count);
        CHECK(count < 8);
        CHECK(exact->best.iteration_ns < even->best.iteration_ns);
        CHECK_INT(climbed->best.iteration_ns, exact->best.iteration_ns);
    }
    lh_plan_free(even);
    lh_plan_free(climbed);
    lh_plan_free(exact);
    lh_job_free(job);
}

/* Returns the time after moving layers from `given` on (NULL: even chunks),
 * scheduling at most this many partitions; *best, if not NULL, is the best
 * partition, allocated in `mem`. */
static int64_t moved_from(const lh_job *job, const lh_plan *even,
                          const uint32_t *given, uint32_t partitions,
                          bool climbed, lhi_arena *mem, const uint32_t **best)
{
    const lh_choice *b = &even->best;
    lh_plan_options o = {.size = sizeof o};
    lhi_config config = {.layout = b->layout,
                         .placement = b->placement,
                         .recompute = b->recompute,
                         .zero = b->zero,
                         .microbatches = b->microbatches,
                         .layers = given};
    uint64_t passes = (uint64_t)lh_pipeline_n_chunks(even->pipeline) *
                      b->microbatches * 3 * partitions;
    int64_t ns = b->iteration_ns;
    lh_error err = {0};
    CHECK_OK(lhi_layer_partition_search(job, &o, NULL, "greedy", false, climbed,
                                        NULL, &passes, mem, &config, &ns, &err),
             err);
    if (best)
        *best = config.layers;
    return ns;
}

/* Balancing the devices' work is tried before any shape. */
static void work_is_made_even(void)
{
    lh_job *job = job_on(600, ", schedule: greedy, chunks_per_device: 3");
    lh_plan *even = plan_of(job, LH_PARTITION_EVEN, 0);
    if (even) {
        lhi_arena *mem = lhi_arena_make(0);
        int64_t ns = moved_from(job, even, NULL, 3, false, mem, NULL);
        CHECK((double)ns < 0.95 * (double)even->best.iteration_ns);
        lhi_arena_free(mem);
    }
    lh_plan_free(even);
    lh_job_free(job);
}

/* At a local optimum all moves were tried: the remaining budget goes to other
 * starts first. */
static void summits_are_climbed_from_last(void)
{
    for (int tflops = 250; tflops <= 500; tflops += 250) {
        lh_job *job =
            job_on(tflops, ", schedule: greedy, chunks_per_device: 4");
        lh_plan *even = plan_of(job, LH_PARTITION_EVEN, 0);
        lhi_arena *mem = lhi_arena_make(0);
        const uint32_t *summit = NULL, *moved = NULL;
        if (even) {
            int64_t ns = moved_from(job, even, NULL, 60, false, mem, &summit);
            CHECK(ns < even->best.iteration_ns);
            moved_from(job, even, summit, 80, false, mem, &moved);
            CHECK(moved == summit);
            CHECK(moved_from(job, even, summit, 80, true, mem, NULL) < ns);
        }
        lhi_arena_free(mem);
        lh_plan_free(even);
        lh_job_free(job);
    }
}

/* All the slow datacenter's ranks have the maximum work: a single move does not
 * lower it, but is still a step towards balance. */
static void work_is_made_even_where_several_have_the_most(void)
{
    lh_job *job = job_with(
        JOB_TWO_SITES,
        "  datacenters:\n"
        "   - {name: west, nodes: 2}\n"
        "   - {name: east, nodes: 2, gpu: {tflops: 160, memory_gib: 80, "
        "memory_gbps: 1000, efficiency: 0.5}}\n"
        "layout: {tensor: 2, pipeline: 8, data: 1, micro_batch: 1, "
        "chunks_per_device: 1, schedule: 1f1b, "
        "sites: [{pipeline: [east, west]}]}\n");
    lh_plan *even = plan_of(job, LH_PARTITION_EVEN, 0);
    lh_plan_options o = {.size = sizeof o};
    lhi_arena *mem = lhi_arena_make(0);
    lh_error err = {0};
    if (even) {
        lhi_config config = lhi_config_from_choice(&even->best);
        CHECK_OK(lhi_layer_partition_rebalance(job, &o, mem, &config, &err),
                 err);
        const uint32_t *layers = config.layers;
        uint32_t sum = 0, slow = 0;
        for (uint32_t c = 0; layers && c < 8; c++) {
            sum += layers[c];
            slow += c < 4 ? layers[c] : 0;
        }
        CHECK_INT(sum, 32);
        CHECK_MSG(slow <= 12, "%u of 32 layers are on the slow site", slow);
        CHECK_OK(lhi_layer_partition_rebalance(job, &o, mem, &config, &err),
                 err);
        CHECK(config.layers == layers); /* nothing remains to be moved */
    }
    lhi_arena_free(mem);
    lh_plan_free(even);
    lh_job_free(job);
}

/* Returns the largest excess over the GPUs' memory, in bytes, with one
 * microbatch in each chunk. */
static int64_t find_excess(const lh_job *job, const lhi_config *config)
{
    lhi_built_layout built;
    lh_error err = {0};
    int64_t least[4] = {0}, most = INT64_MIN;
    CHECK_OK(lhi_layout_build(job, config, &built, &err), err);
    for (uint32_t c = 0; c < lh_pipeline_n_chunks(built.pipeline); c++) {
        const lh_chunk *k = lh_pipeline_chunk(built.pipeline, c);
        least[k->device] += k->mem_static + k->mem_f;
    }
    for (uint32_t d = 0; d < 4; d++) {
        const int64_t over =
            least[d] - lh_pipeline_memory_limit(built.pipeline, d);
        most = over > most ? over : most;
    }
    lh_pipeline_free(built.pipeline);
    return most;
}

/* Adds this many bytes to each GPU's memory. */
static void add_memory(const lh_job *job, int64_t bytes)
{
    for (uint32_t i = 0; i < job->n_datacenters; i++)
        ((lh_datacenter *)job->datacenters)[i].gpu.memory_bytes += bytes;
}

/* Layers are moved off a rank that lacks memory, without any schedule. A
 * partition that these moves cannot make fit stays. */
static void layers_are_moved_until_they_fit(void)
{
    lh_job *job = job_on(600, ", schedule: 1f1b, chunks_per_device: 1");
    lh_plan *even = plan_of(job, LH_PARTITION_EVEN, 0);
    lhi_arena *mem = lhi_arena_make(0);
    for (int tight = 0; even && tight < 2; tight++) {
        lh_plan_options o = {.size = sizeof o};
        lhi_config config = lhi_config_from_choice(&even->best);
        lh_error err = {0};
        if (tight)
            add_memory(job, -job->datacenters[0].gpu.memory_bytes / 2);
        for (int64_t over; (over = find_excess(job, &config)) <= 0;)
            add_memory(job, over - 1);
        CHECK_OK(lhi_layer_partition_fit_memory(job, &o, mem, &config, &err),
                 err);
        CHECK((config.layers == NULL) == (tight == 1));
        CHECK((find_excess(job, &config) <= 0) == (tight == 0));
    }
    lhi_arena_free(mem);
    lh_plan_free(even);
    lh_job_free(job);
}

/* A datacenter with GPUs half as fast gets about half as many layers. */
static void slow_site_gets_less(void)
{
    lh_job *job = job_on(300, ", schedule: 1f1b, chunks_per_device: 1, "
                              "sites: [{pipeline: [west, east]}]");
    lh_plan *even = plan_of(job, LH_PARTITION_EVEN, 0);
    lh_plan *moved = plan_of(job, LH_PARTITION_HILL_CLIMBING, 0);
    if (even && moved) {
        uint32_t layers[4], first;
        for (uint32_t c = 0; c < 4; c++)
            lh_plan_layers(moved, c, &first, &layers[c]);
        CHECK_INT(layers[0] + layers[1] + layers[2] + layers[3], 32);
        CHECK_MSG(layers[0] + layers[1] >= 20, "%u %u %u %u layers", layers[0],
                  layers[1], layers[2], layers[3]);
        CHECK(moved->best.iteration_ns <
              even->best.iteration_ns - even->best.iteration_ns / 5);
        check_layers(moved, 3);
    }
    lh_plan_free(even);
    lh_plan_free(moved);
    lh_job_free(job);
}

/* Even chunks fit only with full recomputation; with fewer layers at the first
 * stages, which store most microbatches, less suffices. Single-layer moves from
 * even chunks do not reach that. */
static void other_starts(void)
{
    lh_job *job = job_with(
        JOB_70B, "  gpu: {preset: h100-sxm, memory_reserve: 0}\n"
                 "layout: {tensor: 8, pipeline: 8, data: 4, micro_batch: 4,\n"
                 "         chunks_per_device: 2, outermost: pipeline,\n"
                 "         schedule: interleaved-1f1b}\n");
    lh_plan *even = plan_of(job, LH_PARTITION_EVEN, 0);
    lh_plan *moved = plan_of(job, LH_PARTITION_HILL_CLIMBING, 0);
    if (even && moved) {
        CHECK_INT(even->best.recompute, LH_RECOMPUTE_FULL);
        CHECK_INT(moved->best.recompute, LH_RECOMPUTE_SELECTIVE);
        CHECK(moved->best.iteration_ns < even->best.iteration_ns * 4 / 5);
        check_layers(moved, 3);
    }
    lh_plan_free(even);
    lh_plan_free(moved);
    lh_job_free(job);
}

/* If a slow method leads by far, layers are moved under it, too: in rings with
 * three chunks on each of four ranks. */
static void layers_are_moved_under_a_slow_method(void)
{
    lh_job *job = job_with(
        JOB_70B, "  links: [{between: [west, east], latency_ms: 20, "
                 "gbps: 3200}]\n"
                 "training: {global_batch: 512, sequence: 8192, zero: 1, "
                 "recompute: selective}\n"
                 "layout: {tensor: 2, context: 4, pipeline: 4, data: 8, "
                 "micro_batch: 2, chunks_per_device: 3,\n"
                 "         outermost: data, sharding: full}\n");
    lh_plan *moved = plan_of(job, LH_PARTITION_HILL_CLIMBING, 0);
    if (moved) {
        CHECK_STR(moved->best.layout.schedule, "look-ahead");
        CHECK_MSG(lh_plan_gap(moved) < 0.05, "%.1f %% more than the bound",
                  100 * lh_plan_gap(moved));
        check_layers(moved, 3);
    }
    lh_plan_free(moved);
    lh_job_free(job);
}

/* 4 GPUs in two datacenters, 16 h^2 parameters per layer. */
static lh_job *small_job(uint32_t layers, uint32_t hidden, uint32_t batch,
                         double memory_gib, uint32_t latency, uint32_t gbps)
{
    return job_with(
        JOB_SMALL,
        "  gpu: {tflops: 312, memory_gib: %.2f, memory_reserve: 0, "
        "memory_gbps: 2039}\n"
        "  gpus_per_node: 2\n"
        "  node_link: {gbps: 2400, latency_us: 3}\n"
        "  fabric: {gbps: 100, latency_us: 5}\n"
        "  links: [{between: [west, east], latency_ms: %u, gbps: %u}]\n"
        "model: {layers: %u, hidden: %u, ffn: %u, heads: 16, "
        "vocab: 32000}\n"
        "training: {global_batch: %u, sequence: 2048, zero: 1}\n",
        memory_gib, latency, gbps, layers, hidden, 4 * hidden, batch);
}

/* By default, tries every partition of every layout: where even chunks are
 * slower, or do not fit, uneven ones may win. */
static void small_jobs_are_exact(void)
{
    lh_job *jobs[] = {
        small_job(6, 5120, 8, 27.38, 30, 38),
        small_job(6, 5120, 12, 30.19, 17, 38),
        small_job(6, 5120, 4, 28.31, 3, 22),
        small_job(5, 3072, 12, 7.22, 50, 55),
    };
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        lh_plan *usual = plan_of(jobs[i], LH_PARTITION_HILL_CLIMBING, 0);
        lh_plan *exact = plan_of(jobs[i], LH_PARTITION_EXACT, 0);
        if (usual && exact) {
            CHECK_INT(usual->best.iteration_ns, exact->best.iteration_ns);
            CHECK_INT(usual->search_bound_ns, exact->search_bound_ns);
            CHECK_INT(usual->n_layouts, exact->n_layouts);
            check_layers(usual, 3);
        }
        lh_plan_free(usual);
        lh_plan_free(exact);
        lh_job_free(jobs[i]);
    }
}

/* In the file, and contradictions there. */
static void in_the_file(void)
{
    lh_job *job = job_on(300, ", schedule: 1f1b, chunks_per_device: 1, "
                              "sites: [{pipeline: [west, east]}]");
    lh_plan *plan = plan_of(job, LH_PARTITION_HILL_CLIMBING, 0);
    char *text = NULL;
    lh_plan_free(plan_again(plan, &text));
    char *list = strstr(text, "\"chunk_layers\": [");
    CHECK(list);
    if (list) {
        char *number = list + strcspn(list, "0123456789");
        char digit = *number;
        *number = digit == '9' ? '8' : '9';
        plan_refused(text, "layers for a model of 32");
        *number = '0';
        if (number[1] < '0' || number[1] > '9')
            plan_refused(text, "chunk_layers");
        *number = digit;
        char *comma = strchr(number, ',');
        *comma = ' ';
        plan_refused(text, "");
    }
    lh_text_free(text);
    lh_plan_free(plan);
    lh_job_free(job);
}

int main(void)
{
    RUN(never_slower);
    RUN(slow_method_is_sampled);
    RUN(samples_have_one_progress);
    RUN(head_gets_less);
    RUN(work_is_made_even);
    RUN(summits_are_climbed_from_last);
    RUN(work_is_made_even_where_several_have_the_most);
    RUN(layers_are_moved_until_they_fit);
    RUN(slow_site_gets_less);
    RUN(other_starts);
    RUN(layers_are_moved_under_a_slow_method);
    RUN(small_jobs_are_exact);
    RUN(in_the_file);
    return test_summary();
}
