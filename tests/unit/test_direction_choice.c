/* SPDX-License-Identifier: Apache-2.0 */
/* Two directions compared with two replicas on V placements, which plans have
 * in their place (docs/theory/two-directions.md, "Why plans have one
 * direction"). */
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

int main(void)
{
    RUN(half_the_devices_suffice);
    RUN(fixed_degrees_favour_two_directions);
    return test_summary();
}
