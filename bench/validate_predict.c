/* SPDX-License-Identifier: Apache-2.0 */
/* Predicts a run: job to pipeline to iteration, with the function that planning
 * with a fixed layout uses. */
#include "validate.h"

#include <longhaul.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/plan.h>

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool print_error(const run *r, const lh_error *err)
{
    fprintf(stderr, "validate: %s: %s\n", r->name, err->text);
    return false;
}

void append(writer *w, const char *format, ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(w->text + w->used, JOB_TEXT - w->used, format, args);
    va_end(args);
    if (n > 0)
        w->used += (size_t)n;
    if (w->used >= JOB_TEXT)
        w->used = JOB_TEXT - 1;
}

bool take_job(run *r, const char *text)
{
    lh_error err;

    r->text = malloc(strlen(text) + 1);
    if (!r->text)
        return false;
    strcpy(r->text, text);
    return lh_job_parse(text, strlen(text), r->name, NULL, &r->job, &err) ==
               LH_OK ||
           print_error(r, &err);
}

void dataset_fini(dataset *set)
{
    for (uint32_t i = 0; i < set->n_runs; i++) {
        if (!set->runs[i].text)
            continue;
        lh_job_free(set->runs[i].job);
        free(set->runs[i].text);
    }
    free(set->runs);
    *set = (dataset){0};
}

static bool all_reduce(const run *r, const lh_job *job, double *seconds)
{
    lh_cost_group group = {.size = r->all_reduce_gpus,
                           .per_node = r->all_reduce_gpus,
                           .per_datacenter = r->all_reduce_gpus};
    lh_cost_path path;
    lh_error err;
    double transfer, latency;

    if (lh_cost_group_path(job, &group, NULL, &path, &err) != LH_OK)
        return print_error(r, &err);
    lh_cost_collective(LH_ALL_REDUCE, group.size, r->all_reduce_bytes, &path,
                       &transfer, &latency);
    *seconds = (transfer + latency) / 1e9;
    return true;
}

/* Returns the reserved memory. The measurement is the driver's total: contexts,
 * libraries and the allocator's cache, which a job reserves. */
static double reserved_bytes(const lh_job *job, const lh_pipeline *pipeline,
                             uint32_t device)
{
    uint32_t site = lh_pipeline_device_site(pipeline, device);
    const lh_gpu *gpu = &job->datacenters[site].gpu;

    return (double)(gpu->memory_bytes - lh_gpu_usable_bytes(gpu));
}

bool predict(const run *r, const lh_cost_constants *constants, double *seconds,
             double *bytes)
{
    lh_job job = *r->job;
    lh_pipeline *pipeline = NULL;
    lh_schedule *schedule = NULL;
    lh_timeline *timeline = NULL;
    lh_error err;
    int64_t after_ns;
    bool ok;

    job.constants = constants;
    if (r->all_reduce_gpus)
        return all_reduce(r, &job, seconds);
    ok = lh_plan_pipeline(&job, &job.layout, LH_PLACEMENT_UD,
                          job.training.recompute, &pipeline, &after_ns,
                          &err) == LH_OK &&
         lh_method_run(job.layout.schedule, pipeline, NULL, &schedule, NULL,
                       &err) == LH_OK &&
         lh_simulate(pipeline, schedule, NULL, &timeline, &err) == LH_OK;
    if (ok)
        *seconds = (double)(lh_timeline_makespan(timeline) + after_ns) / 1e9;
    else
        print_error(r, &err);
    if (ok && bytes) {
        *bytes = 0;
        for (uint32_t d = 0; d < lh_pipeline_n_devices(pipeline); d++)
            *bytes = fmax(*bytes, (double)lh_timeline_peak_memory(timeline, d) +
                                      reserved_bytes(&job, pipeline, d));
    }
    lh_timeline_free(timeline);
    lh_schedule_free(schedule);
    lh_pipeline_free(pipeline);
    return ok;
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
