/* SPDX-License-Identifier: Apache-2.0 */
/* From a run to a pipeline to a makespan. */
#include "validate.h"

#include <longhaul/methods.h>
#include <longhaul/simulate.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

static bool say(const run *r, const lh_error *err)
{
    fprintf(stderr, "validate: %s: %s\n", r->name, err->text);
    return false;
}

static bool all_reduce(const run *r, const lh_cost_options *options,
                       double *seconds)
{
    lh_cost_group group = {.size = r->all_reduce_gpus,
                           .per_node = r->all_reduce_gpus,
                           .per_datacenter = r->all_reduce_gpus};
    lh_cost_path path;
    lh_error err;
    double transfer, latency;

    if (lh_cost_group_path(r->job, &group, options, &path, &err) != LH_OK)
        return say(r, &err);
    lh_cost_collective(LH_ALL_REDUCE, group.size, r->all_reduce_bytes, &path,
                       &transfer, &latency);
    *seconds = (transfer + latency) / 1e9;
    return true;
}

/* The slowest of a stage's replicas. */
static bool cost_stage(const run *r, const stage *s,
                       const lh_cost_options *options, lh_cost *out)
{
    for (uint32_t i = 0; i < s->n_jobs; i++) {
        lh_cost cost;
        lh_error err;

        if (lh_cost_chunk(s->jobs[i], &r->layout, &s->slice, options, &cost,
                          &err) != LH_OK)
            return say(r, &err);
        if (i == 0 || cost.f.total_ns + cost.d.total_ns + cost.w.total_ns >
                          out->f.total_ns + out->d.total_ns + out->w.total_ns)
            *out = cost;
    }
    return true;
}

static bool makespan(const run *r, const lh_pipeline_desc *desc,
                     lh_timeline **out)
{
    lh_pipeline *pipeline = NULL;
    lh_schedule *schedule = NULL;
    lh_error err;
    /* Megatron-LM and DeepSpeed post a receive when they need it. */
    lh_sim_options sim = {.size = sizeof sim, .receives = LH_RECEIVES_LATE};
    bool ok = false;

    if (lh_pipeline_make(desc, &pipeline, &err) == LH_OK &&
        lh_method_run("1f1b", pipeline, NULL, &schedule, NULL, &err) == LH_OK &&
        lh_simulate(pipeline, schedule, &sim, out, &err) == LH_OK)
        ok = true;
    else
        say(r, &err);
    lh_schedule_free(schedule);
    lh_pipeline_free(pipeline);
    return ok;
}

static bool make_links(const run *r, const lh_cost_options *options,
                       lh_link *links)
{
    uint32_t stride = r->layout.tensor * r->layout.data;

    for (uint32_t i = 0; i + 1 < r->n_stages; i++) {
        lh_cost_hop hop = {.from_gpu = i * stride, .to_gpu = (i + 1) * stride};
        lh_cost_message m;
        lh_error err;

        if (lh_cost_hop_message(r->job, &r->layout, &hop, options, &m, &err) !=
            LH_OK)
            return say(r, &err);
        links[2 * i] = (lh_link){.from = i,
                                 .to = i + 1,
                                 .latency_ns = m.latency_ns,
                                 .transfer_ns = m.transfer_ns};
        links[2 * i + 1] = links[2 * i];
        links[2 * i + 1].from = i + 1;
        links[2 * i + 1].to = i;
    }
    return true;
}

/* What was measured is all that the driver counts as used, with contexts,
 * libraries and what the allocator keeps: what a job sets aside. */
static double set_aside(const stage *s)
{
    const lh_gpu *gpu = &s->jobs[0]->datacenters->gpu;

    return (double)gpu->memory_bytes * LH_MEMORY_RESERVE_PERCENT / 100;
}

bool predict(const run *r, const lh_cost_constants *constants, double *seconds,
             double *bytes)
{
    lh_cost_options options = r->options;
    lh_chunk chunks[MAX_STAGES];
    lh_link links[2 * MAX_STAGES];
    lh_timeline *timeline = NULL;
    lh_cost_hop ends = {0};
    lh_error err;
    int64_t step = 0, tied = 0;

    options.size = sizeof options;
    options.constants = constants;
    if (r->all_reduce_gpus)
        return all_reduce(r, &options, seconds);
    for (uint32_t i = 0; i < r->n_stages; i++) {
        lh_cost c = {0};

        if (!cost_stage(r, &r->stages[i], &options, &c))
            return false;
        chunks[i] = (lh_chunk){
            .device = i,
            .f_ns = c.f.total_ns,
            .d_ns = c.d.total_ns,
            .w_ns = c.w.total_ns,
            .mem_f = c.activation_bytes,
            .mem_d = c.weight_input_bytes - c.activation_bytes,
            .mem_w = -c.weight_input_bytes,
            .mem_static = c.static_bytes,
            .all_gather_ns = c.all_gather_ns,
            .reduce_scatter_ns = c.reduce_scatter_ns,
            .dp_latency_ns = c.data_latency_ns,
        };
        if (c.optimizer_ns > step)
            step = c.optimizer_ns;
    }
    if (!make_links(r, &options, links))
        return false;
    lh_pipeline_desc desc = {.size = sizeof desc,
                             .n_devices = r->n_stages,
                             .n_microbatches = r->n_microbatches,
                             .joint = true,
                             .n_chunks = r->n_stages,
                             .chunks = chunks,
                             .n_links = 2 * (r->n_stages - 1),
                             .links = links};
    if (!makespan(r, &desc, &timeline))
        return false;
    ends.to_gpu = (r->n_stages - 1) * r->layout.tensor * r->layout.data;
    if (lh_cost_tied_embedding(r->job, &r->layout, &ends, &options, &tied,
                               &err) != LH_OK) {
        lh_timeline_free(timeline);
        return say(r, &err);
    }
    *seconds = ((double)lh_timeline_makespan(timeline) + (double)step +
                (double)tied + constants->iteration_ns) /
               1e9;
    if (bytes) {
        *bytes = 0;
        for (uint32_t i = 0; i < r->n_stages; i++)
            *bytes = fmax(*bytes, (double)lh_timeline_peak_memory(timeline, i) +
                                      set_aside(&r->stages[i]));
    }
    lh_timeline_free(timeline);
    return true;
}

errors add_errors(const errors *a, const errors *b)
{
    errors sum = a->worst > b->worst ? *a : *b;

    sum.n = a->n + b->n;
    sum.n_bytes = a->n_bytes + b->n_bytes;
    sum.mean = sum.n ? (a->n * a->mean + b->n * b->mean) / sum.n : 0;
    sum.mean_bytes =
        sum.n_bytes
            ? (a->n_bytes * a->mean_bytes + b->n_bytes * b->mean_bytes) /
                  sum.n_bytes
            : 0;
    return sum;
}

bool measure_errors(const dataset *set, int which,
                    const lh_cost_constants *constants, errors *out)
{
    double sum = 0, bytes_sum = 0;

    *out = (errors){0};
    for (uint32_t i = 0; i < set->n_runs; i++) {
        const run *r = &set->runs[i];
        double seconds, bytes = 0, error;

        if (r->excluded || !(which & (r->held_out ? HELD_OUT : FITTED)))
            continue;
        if (!predict(r, constants, &seconds, &bytes))
            return false;
        error = fabs(seconds / r->measured_s - 1);
        sum += error;
        if (r->measured_bytes > 0) {
            bytes_sum += fabs(bytes / r->measured_bytes - 1);
            out->n_bytes++;
        }
        out->n++;
        if (error > out->worst) {
            out->worst = error;
            snprintf(out->worst_name, sizeof out->worst_name, "%s", r->name);
        }
    }
    out->mean = out->n ? sum / out->n : 0;
    out->mean_bytes = out->n_bytes ? bytes_sum / out->n_bytes : 0;
    return true;
}
