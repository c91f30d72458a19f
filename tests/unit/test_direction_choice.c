/* SPDX-License-Identifier: Apache-2.0 */
/* Two directions compared with two replicas on V placements, which plans have
 * in their place if the job allows it (docs/theory/two-directions.md, "Plans
 * with two directions"), and V placements under memory limits. */
#include "jobs.h"
#include "uniform.h"

#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/pipeline.h>
#include <longhaul/experimental/plan.h>
#include <longhaul/experimental/simulate.h>
#include <math.h>

/* Returns the makespan in ms of a method's schedule, and its peak memory. */
static double simulate(const char *method, const lh_pipeline *p, int64_t *peak)
{
    lh_schedule *s = NULL;
    lh_timeline *t = NULL;
    lh_error err = {0};
    double ms = 0;
    *peak = 0;
    CHECK_OK(lh_method_run(method, p, NULL, &s, NULL, &err), err);
    CHECK_OK(lh_simulate(p, s, NULL, &t, &err), err);
    for (uint32_t d = 0; t && d < lh_pipeline_n_devices(p); d++)
        if (lh_timeline_peak_memory(t, d) > *peak)
            *peak = lh_timeline_peak_memory(t, d);
    if (t)
        ms = (double)lh_timeline_makespan(t) / 1e6;
    lh_timeline_free(t);
    lh_schedule_free(s);
    return ms;
}

/* Formats the lines of a pipeline with n chunks: overlapped pairs, and with
 * `sums` a reduce-scatter after each chunk. */
static const char *format_more(char *text, size_t size, unsigned n, bool pairs,
                               bool sums)
{
    int at = snprintf(text, size, "%s%s", pairs ? "overlap: {F+B: 0.85}\n" : "",
                      sums ? "data_parallel: [" : "");
    for (unsigned c = 0; sums && c < n; c++)
        at += snprintf(text + at, size - (size_t)at,
                       "%s{chunk: %u, reduce_scatter: 150}", c ? ", " : "", c);
    if (sums)
        snprintf(text + at, size - (size_t)at, "]\n");
    return text;
}

/* P devices in two directions, and P / 2 devices on a V with as many
 * microbatches, the same chunks and the same parameters on each device: the V
 * is not slower and needs as much memory, so two replicas of the V replace the
 * two directions. Links: between every two devices and the next two. A device's
 * gradients are summed with those of the same chunks: of the other direction,
 * or of the other replica. */
static void half_the_devices_suffice(void)
{
    char more[2][1600];
    for (unsigned devices = 4; devices <= 16; devices *= 2)
        for (unsigned i = 0; i < 16; i++) {
            double latency = 50 * (i / 4);
            int64_t peaks[2];
            uniform u = {.placement = "bd",
                         .devices = devices,
                         .microbatches = 2 * devices,
                         .f = 100,
                         .d = 100,
                         .w = 100,
                         .datacenters = devices / 2,
                         .latency = latency,
                         .transfer = latency / 4,
                         .more = format_more(more[0], sizeof more[0],
                                             2 * devices, i & 1, i & 2)};
            lh_pipeline *bd = uniform_make(u);
            u.placement = "wave";
            u.devices /= 2;
            u.more =
                format_more(more[1], sizeof more[1], devices, i & 1, i & 2);
            u.f = u.d = u.w = 200; /* two chunks share a microbatch */
            u.datacenters /= 2;
            if (u.datacenters == 1)
                u.datacenters = 0;
            lh_pipeline *v = uniform_make(u);
            double two = simulate("dualpipe", bd, &peaks[0]);
            double one = simulate("dualpipev", v, &peaks[1]);
            CHECK_MSG(one <= two + 1e-9, "%u devices: %g ms on a V, %g ms",
                      devices, one, two);
            CHECK(latency > 0 || fabs(one - two) < 1e-9);
            CHECK_INT(peaks[0], peaks[1]);
            lh_pipeline_free(v);
            lh_pipeline_free(bd);
        }
}

/* Builds the pipeline of one layout of a model with as many layers as stages,
 * 32 sequences and 16 GPUs. */
static lh_pipeline *plan_eight_layers(uint32_t pipeline, uint32_t data,
                                      lh_placement placement)
{
    static const char base[] =
        "longhaul: job/1\n"
        "model: {layers: 8, hidden: 2048, ffn: 8192, heads: 16, vocab: 1024}\n"
        "training: {global_batch: 32, sequence: 2048, zero: 1}\n"
        "cluster:\n"
        "  gpu: h100-sxm\n"
        "  gpus_per_node: 8\n"
        "  node_link: {gbps: 3600, latency_us: 3}\n"
        "  fabric: {gbps: 400, latency_us: 8}\n"
        "  datacenters: [{name: west, nodes: 2}]\n";
    const lh_layout layout = {.tensor = 1,
                              .context = 1,
                              .expert = 1,
                              .pipeline = pipeline,
                              .data = data,
                              .micro_batch = 1,
                              .chunks_per_device = 8 / pipeline,
                              .outermost = LH_OUTERMOST_PIPELINE};
    lh_job *job = job_with(base, "%s", "");
    lh_pipeline *p = NULL;
    lh_error err = {0};
    CHECK_OK(lh_plan_pipeline(job, &layout, placement, LH_RECOMPUTE_NONE, &p,
                              NULL, &err),
             err);
    lh_job_free(job);
    return p;
}

/* Adds the second direction to a pipeline, with half of its microbatches in
 * each; `replicas` has the gradient sums of two copies. */
static lh_pipeline *add_direction(const lh_pipeline *one,
                                  const lh_pipeline *replicas)
{
    lh_pipeline_desc desc = {.size = sizeof desc};
    lh_chunk chunks[16];
    lh_pipeline *p = NULL;
    lh_error err = {0};
    CHECK_OK(lh_pipeline_describe(one, &desc, &err), err);
    for (uint32_t c = 0; c < 8; c++) {
        const lh_chunk *sum = lh_pipeline_chunk(replicas, c);
        chunks[c] = chunks[8 + c] = desc.chunks[c];
        chunks[8 + c].device = 7 - c;
        chunks[c].all_gather_ns = chunks[8 + c].all_gather_ns =
            sum->all_gather_ns;
        chunks[c].reduce_scatter_ns = chunks[8 + c].reduce_scatter_ns =
            sum->reduce_scatter_ns;
    }
    desc.chunks = chunks;
    desc.n_chunks = 16;
    desc.n_microbatches /= 2;
    desc.bidirectional = true;
    CHECK_OK(lh_pipeline_make(&desc, &p, &err), err);
    return p;
}

/* With 8 layers on 8 devices, two directions are faster than one, in which no
 * device can have two chunks. Two replicas of a V on 4 devices are not slower
 * than the two directions. Both sum gradients. */
static void fixed_degrees_favour_two_directions(void)
{
    lh_pipeline *one = plan_eight_layers(8, 1, LH_PLACEMENT_UD);
    lh_pipeline *replicas = plan_eight_layers(8, 2, LH_PLACEMENT_UD);
    lh_pipeline *v = plan_eight_layers(4, 2, LH_PLACEMENT_WAVE);
    lh_pipeline *two = add_direction(one, replicas);
    int64_t peak;
    CHECK(lh_pipeline_chunk(replicas, 0)->reduce_scatter_ns > 0);
    double ud =
        fmin(simulate("auto", one, &peak), simulate("look-ahead", one, &peak));
    double chimera = simulate("chimera", two, &peak);
    double dualpipe = simulate("dualpipe", two, &peak);
    double greedy = simulate("greedy", two, &peak);
    double dualpipev = simulate("dualpipev", v, &peak);
    double best_v =
        fmin(simulate("greedy", v, &peak), simulate("look-ahead", v, &peak));
    printf("ms: one direction %.3f; two: chimera %.3f, dualpipe %.3f, greedy "
           "%.3f; two replicas: dualpipev %.3f, look-ahead %.3f\n",
           ud, chimera, dualpipe, greedy, dualpipev, best_v);
    CHECK(dualpipe < ud && greedy < ud);
    CHECK(dualpipev <= dualpipe);
    CHECK(best_v <= 1.001 * greedy); /* greedy's orders are not symmetric */
    lh_pipeline_free(two);
    lh_pipeline_free(v);
    lh_pipeline_free(replicas);
    lh_pipeline_free(one);
}

/* The 8-layer model on one node of 16 GPUs. */
#define JOB_EIGHT_LAYERS                                                       \
    "longhaul: job/1\n"                                                        \
    "model: {layers: 8, hidden: 2048, ffn: 8192, heads: 16, vocab: 1024}\n"    \
    "training: {global_batch: 32, sequence: 2048, zero: 1, recompute: none}\n" \
    "cluster:\n"                                                               \
    "  gpu: h100-sxm\n"                                                        \
    "  gpus_per_node: 16\n"                                                    \
    "  node_link: {gbps: 3600, latency_us: 3}\n"                               \
    "  fabric: {gbps: 400, latency_us: 8}\n"                                   \
    "  datacenters: [{name: west, nodes: 1}]\n"

/* Builds the pipeline of a layout of JOB_EIGHT_LAYERS with the given degrees.
 */
static lh_pipeline *build_layout(const lh_job *job, uint32_t pipeline,
                                 uint32_t data, lh_placement placement,
                                 uint32_t chunks, int64_t *after_ns)
{
    const lh_layout layout = {.tensor = 1,
                              .context = 1,
                              .expert = 1,
                              .pipeline = pipeline,
                              .data = data,
                              .micro_batch = 1,
                              .chunks_per_device = chunks,
                              .outermost = LH_OUTERMOST_PIPELINE};
    lh_pipeline *p = NULL;
    lh_error err = {0};
    CHECK_OK(lh_plan_pipeline(job, &layout, placement, LH_RECOMPUTE_NONE, &p,
                              after_ns, &err),
             err);
    return p;
}

/* On one node, where all groups have equal paths, a plan's two directions cost
 * as much as two replicas on as many stages: passes and gradient sums of each
 * chunk are equal, and each device has the state of two chunks. */
static void two_directions_cost_as_much_as_two_replicas(void)
{
    lh_job *job = job_with(JOB_EIGHT_LAYERS, "%s", "");
    int64_t after[2];
    lh_pipeline *two = build_layout(job, 8, 1, LH_PLACEMENT_BD, 1, &after[0]);
    lh_pipeline *one = build_layout(job, 8, 2, LH_PLACEMENT_UD, 1, &after[1]);
    CHECK_INT(lh_pipeline_n_chunks(two), 16);
    CHECK_INT(lh_pipeline_n_microbatches(two), 16); /* of each direction */
    CHECK_INT(lh_pipeline_n_microbatches(one), 16); /* of each replica */
    for (uint32_t c = 0; c < 16; c++) {
        const lh_chunk *x = lh_pipeline_chunk(two, c);
        const lh_chunk *y = lh_pipeline_chunk(one, c % 8);
        CHECK_INT(x->device, c < 8 ? c : 15 - c);
        CHECK_INT(x->f_ns, y->f_ns);
        CHECK_INT(x->d_ns, y->d_ns);
        CHECK_INT(x->w_ns, y->w_ns);
        CHECK_INT(x->mem_f, y->mem_f);
        CHECK_INT(x->reduce_scatter_ns, y->reduce_scatter_ns);
        CHECK(x->reduce_scatter_ns > 0);
    }
    for (uint32_t d = 0; d < 8; d++) {
        int64_t pair = 0, workspace = 0;
        const lh_chunk *a = lh_pipeline_chunk(two, d);
        const lh_chunk *b = lh_pipeline_chunk(two, 15 - d);
        for (int i = 0; i < 2; i++)
            pair += lh_pipeline_chunk(one, i ? 7 - d : d)->mem_static;
        /* the device's transient memory counts once */
        workspace = pair - (a->mem_static + b->mem_static);
        CHECK(workspace >= 0 && workspace < pair / 10);
    }
    CHECK(after[0] > after[1]); /* the optimizer updates two chunks */
    lh_pipeline_free(one);
    lh_pipeline_free(two);
    lh_job_free(job);
}

/* Returns the iteration time of a pipeline by a method, in ns. */
static int64_t compute_iteration(const lh_pipeline *p, const char *method,
                                 int64_t after_ns)
{
    int64_t peak;
    return (int64_t)llround(simulate(method, p, &peak) * 1e6) + after_ns;
}

/* Plans the job with fixed degrees and a method for two directions; checks that
 * the plan takes as long as the method on the layout built by hand, and that
 * its bound does not exceed that time. */
static void check_plan(unsigned layers, unsigned pipeline, unsigned data,
                       unsigned batch, const char *method, const char *more)
{
    lh_job *job = job_with(
        JOB_EIGHT_LAYERS,
        "model: {layers: %u, hidden: 2048, ffn: 8192, heads: 16, vocab: 1024}\n"
        "training: {global_batch: %u, sequence: 2048, zero: 1, "
        "recompute: none}\n"
        "layout: {tensor: 1, context: 1, pipeline: %u, data: %u, "
        "micro_batch: 1, schedule: %s}\n%s",
        layers, batch, pipeline, data, method, more);
    const lh_plan_options options = {.size = sizeof options,
                                     .partition = LH_PARTITION_EVEN};
    lh_plan *plan = NULL;
    lh_error err = {0};
    CHECK_OK(lh_plan_make(job, &options, &plan, &err), err);
    if (plan) {
        int64_t after;
        lh_pipeline *p = build_layout(plan->job, pipeline, data,
                                      LH_PLACEMENT_BD, 1, &after);
        const int64_t ns = compute_iteration(p, method, after);
        CHECK_INT(plan->best.placement, LH_PLACEMENT_BD);
        CHECK_STR(plan->best.layout.schedule, method);
        CHECK_INT(plan->best.iteration_ns, ns);
        CHECK(plan->search_bound_ns > 0 && plan->search_bound_ns <= ns);
        lh_pipeline_free(p);
    }
    lh_plan_free(plan);
    lh_job_free(job);
}

/* Plans of jobs with fixed degrees, compared with the layouts built by hand. */
static void plans_cost_as_much_as_layouts_by_hand(void)
{
    static const char overlap[] = "framework: {overlap: {F+B: 0.85}}\n";
    check_plan(8, 8, 1, 32, "dualpipe", "");
    check_plan(8, 8, 2, 64, "dualpipe", "");
    check_plan(4, 4, 2, 32, "dualpipe", overlap);
    check_plan(9, 4, 1, 16, "chimera", "");
    check_plan(10, 2, 2, 16, "chimera", overlap);
}

/* An odd number of stages or of microbatches has no two directions. */
static void odd_numbers_are_rejected(void)
{
    static const char *const layouts[] = {"pipeline: 3, micro_batch: 1",
                                          "pipeline: 4, micro_batch: 32"};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        lh_job *job = job_with(JOB_EIGHT_LAYERS,
                               "layout: {tensor: 1, context: 1, data: 1, %s, "
                               "schedule: dualpipe}\n",
                               layouts[i]);
        lh_plan *plan = NULL;
        lh_error err = {0};
        CHECK_INT(lh_plan_make(job, NULL, &plan, &err), LH_EINFEASIBLE);
        lh_plan_free(plan);
        lh_job_free(job);
    }
}

/* Plans have two directions if and only if the schedule requires them, also
 * where the fixed degrees leave no V placement as an equal layout. */
static void only_the_schedule_requires_two_directions(void)
{
    static const struct {
        const char *layout, *method; /* NULL: one direction */
    } rows[] = {{"{}", NULL},
                {"{pipeline: 8, data: 1}", NULL},
                {"{schedule: dualpipe}", "dualpipe"},
                {"{schedule: chimera}", "chimera"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lh_job *job =
            job_with(JOB_EIGHT_LAYERS, "layout: %s\n", rows[i].layout);
        const lh_plan_options quick = {.size = sizeof quick, .quick = true};
        lh_plan *plan = NULL;
        lh_error err = {0};
        CHECK_OK(lh_plan_make(job, &quick, &plan, &err), err);
        if (plan) {
            const bool two = plan->best.placement == LH_PLACEMENT_BD;
            CHECK(two == (rows[i].method != NULL));
            if (rows[i].method)
                CHECK_STR(plan->best.layout.schedule, rows[i].method);
        }
        lh_plan_free(plan);
        lh_job_free(job);
    }
}

/* Alternatives with two directions, of which some are simulated only for the
 * comparison of dimensions, are listed fastest first. */
static void alternatives_are_listed_fastest_first(void)
{
    lh_job *job = job_with(
        "longhaul: job/1\n"
        "model: {layers: 8, hidden: 2048, ffn: 8192, heads: 16, vocab: 1024}\n"
        "training: {global_batch: 32, sequence: 2048}\n"
        "cluster: {gpu: h100-sxm, gpus_per_node: 16, node_link: {gbps: 3600, "
        "latency_us: 3}, datacenters: [{name: west, nodes: 1}]}\n",
        "layout: {schedule: dualpipe}\n");
    lh_plan *plan = NULL;
    lh_error err = {0};
    CHECK_OK(lh_plan_make(job, NULL, &plan, &err), err);
    uint32_t n = 0;
    int64_t last_ns = 0;
    for (uint32_t i = 0; plan && i < plan->n_alternatives; i++) {
        const lh_choice *c = &plan->alternatives[i];
        if (c->status != LH_CHOICE_OK)
            continue;
        CHECK(c->iteration_ns >= last_ns);
        last_ns = c->iteration_ns;
        n++;
    }
    CHECK(n > 1);
    lh_plan_free(plan);
    lh_job_free(job);
}

/* A plan with two directions is written, read and checked as any other. */
static void plan_files_hold_two_directions(void)
{
    lh_job *job = job_with(JOB_EIGHT_LAYERS,
                           "layout: {tensor: 1, context: 1, pipeline: 8, "
                           "data: 1, micro_batch: 1, schedule: dualpipe}\n");
    lh_plan *plan = NULL, *again = NULL;
    char *text = NULL;
    size_t len;
    lh_error err = {0};
    CHECK_OK(lh_plan_make(job, NULL, &plan, &err), err);
    CHECK_OK(lh_plan_format(plan, &text, &len, &err), err);
    CHECK_OK(lh_plan_parse(text, len, "plan.json", &again, &err), err);
    if (again) {
        uint32_t first, n;
        CHECK_INT(again->best.placement, LH_PLACEMENT_BD);
        lh_plan_layers(again, 15, &first, &n); /* the copy of chunk 7 */
        CHECK_INT(first, 7);
        CHECK_INT(n, 1);
    }
    lh_text_free(text);
    lh_plan_free(again);
    lh_plan_free(plan);
    lh_job_free(job);
}

/* On a V placement, v-half fits in memory for half of the activations of zb-v.
 * With that much memory, no other method's schedule is as fast. */
static void planner_chooses_v_half_where_memory_is_short(void)
{
    lh_job *job =
        job_with(JOB_EIGHT_LAYERS,
                 "  gpus_per_node: 8\n"
                 "  gpu: {tflops: 500, memory_gib: 6, memory_reserve: 0, "
                 "memory_gbps: 3000, efficiency: 0.5}\n"
                 "model: {layers: 16, hidden: 2048, ffn: 8192, heads: 16, "
                 "vocab: 1024}\n"
                 "training: {global_batch: 32, sequence: 4096, zero: 1, "
                 "recompute: none}\n"
                 "layout: {tensor: 1, context: 1, pipeline: 8, data: 1, "
                 "micro_batch: 1, chunks_per_device: 2}\n");
    const lh_plan_options methods = {.size = sizeof methods,
                                     .no_optimal = true};
    lh_plan *plan = NULL;
    lh_error err = {0};
    uint32_t n_slower = 0;
    CHECK_OK(lh_plan_make(job, &methods, &plan, &err), err);
    if (plan) {
        CHECK_STR(plan->best.layout.schedule, "v-half");
        for (uint32_t m = 0; m < lh_n_methods(); m++) {
            lh_schedule *s = NULL;
            lh_timeline *t = NULL;
            if (lh_method_run(lh_method_name(m), plan->pipeline, NULL, &s, NULL,
                              NULL) == LH_OK &&
                lh_simulate(plan->pipeline, s, NULL, &t, NULL) == LH_OK) {
                CHECK(lh_timeline_makespan(t) >= plan->best.makespan_ns);
                n_slower += lh_timeline_makespan(t) > plan->best.makespan_ns;
            }
            lh_timeline_free(t);
            lh_schedule_free(s);
        }
        CHECK(n_slower > 2);
    }
    lh_plan_free(plan);
    lh_job_free(job);
}

int main(void)
{
    RUN(half_the_devices_suffice);
    RUN(fixed_degrees_favour_two_directions);
    RUN(two_directions_cost_as_much_as_two_replicas);
    RUN(plans_cost_as_much_as_layouts_by_hand);
    RUN(odd_numbers_are_rejected);
    RUN(only_the_schedule_requires_two_directions);
    RUN(alternatives_are_listed_fastest_first);
    RUN(plan_files_hold_two_directions);
    RUN(planner_chooses_v_half_where_memory_is_short);
    return test_summary();
}
