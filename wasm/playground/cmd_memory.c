/* SPDX-License-Identifier: Apache-2.0 */
/* Implements `memory JOB KEY=VALUE...` for the playground's memory explorer:
 * the memory by kind of every stage of one layout, by the planner's functions
 * and without a search. Layouts that exceed a GPU's memory are reported, too.
 */
#include "commands.h"
#include "inputs.h"

#include "planner/explain/rank_memory.h"
#include "planner/layout/layout.h"
#include "schedule/pipeline/pipeline_internal.h"

#include <longhaul/experimental/methods.h>
#include <longhaul/experimental/plan.h>
#include <longhaul/simulate.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Maximum number of operands. */
enum { MOST_KEYS = 16 };

/* One layout of a job, and what is made from it. */
typedef struct explored {
    lh_job *job;
    lh_recompute recompute;
    lh_pipeline *pipeline;
    lh_schedule *schedule;
    lh_timeline *timeline;
    const char *method;
    int64_t *limits;  /* usable memory of each device */
    int64_t after_ns; /* after the pipeline */
} explored;

/* Sets one key of the layout or the training from "tensor=8". */
static lh_status set_key(cli *c, explored *x, const char *word)
{
    lh_layout *l = &x->job->layout;
    const struct {
        const char *name;
        uint32_t *value;
    } keys[] = {{"tensor", &l->tensor},
                {"context", &l->context},
                {"expert", &l->expert},
                {"pipeline", &l->pipeline},
                {"data", &l->data},
                {"micro_batch", &l->micro_batch},
                {"chunks_per_device", &l->chunks_per_device},
                {"zero", &x->job->training.zero}};
    const char *value = strchr(word, '=');
    const size_t len = value ? (size_t)(value - word) : 0;
    if (len == 9 && strncmp(word, "recompute", len) == 0)
        for (int r = LH_RECOMPUTE_NONE; r <= LH_RECOMPUTE_FULL; r++)
            if (strcmp(lh_recompute_name((lh_recompute)r), value + 1) == 0) {
                x->recompute = (lh_recompute)r;
                return LH_OK;
            }
    for (size_t i = 0; i < CLI_COUNT_OF(keys); i++)
        if (strlen(keys[i].name) == len &&
            strncmp(word, keys[i].name, len) == 0) {
            *keys[i].value = (uint32_t)strtoul(value + 1, NULL, 10);
            return LH_OK;
        }
    return cli_usage(c, "'%.40s' is not KEY=VALUE of a layout", word);
}

/* Builds the layout's pipeline: pipelines cross the datacenters or, if they
 * cannot, replicas do. The job may fix this. */
static lh_status build_pipeline(cli *c, explored *x)
{
    lh_layout *l = &x->job->layout;
    const bool open = l->outermost == LH_OUTERMOST_ANY;
    lh_error second = {0};
    l->sites = NULL;
    l->group_micro_batches = NULL; /* the sliders have one micro_batch */
    if (open)
        l->outermost = LH_OUTERMOST_PIPELINE;
    lh_status status =
        lh_plan_pipeline(x->job, l, LH_PLACEMENT_OTHER, x->recompute,
                         &x->pipeline, &x->after_ns, &c->err);
    if (status == LH_OK || !open)
        return status;
    l->outermost = LH_OUTERMOST_DATA;
    if (lh_plan_pipeline(x->job, l, LH_PLACEMENT_OTHER, x->recompute,
                         &x->pipeline, &x->after_ns, &second) == LH_OK)
        return LH_OK;
    return status;
}

/* Makes a schedule without memory limits: the job's method, or 1F1B. */
static lh_status make_schedule(cli *c, explored *x)
{
    const lh_layout *l = &x->job->layout;
    const uint32_t n = lh_pipeline_n_devices(x->pipeline);
    x->limits = calloc(n, sizeof *x->limits);
    if (!x->limits)
        return cli_no_memory(c);
    for (uint32_t d = 0; d < n; d++) {
        x->limits[d] = lh_pipeline_memory_limit(x->pipeline, d);
        x->pipeline->memory_limits[d] = LH_NO_LIMIT;
    }
    x->method = l->chunks_per_device > 1 ? "interleaved-1f1b" : "1f1b";
    lh_status status = lh_method_run(x->method, x->pipeline, NULL, &x->schedule,
                                     NULL, &c->err);
    if (status == LH_EUNSUPPORTED) {
        x->method = "flexible";
        status = lh_method_run(x->method, x->pipeline, NULL, &x->schedule, NULL,
                               &c->err);
    }
    return status == LH_OK ? lh_simulate(x->pipeline, x->schedule, NULL,
                                         &x->timeline, &c->err)
                           : status;
}

/* Computes each stage's memory, and prints it as JSON. */
static lh_status print_stages(cli *c, explored *x)
{
    const lh_layout *l = &x->job->layout;
    const lhi_config config = {.layout = *l,
                               .placement = LH_PLACEMENT_OTHER,
                               .recompute = x->recompute,
                               .microbatches = x->job->training.global_batch /
                                               (l->data * l->micro_batch),
                               .layers = lhi_layers_requested(x->job, l)};
    lh_plan_memory *parts = calloc(l->pipeline, sizeof *parts);
    json_t *stages = json_array();
    lh_status status = parts && stages
                           ? lhi_layout_memory(x->job, &config, parts, &c->err)
                           : cli_no_memory(c);
    for (uint32_t d = 0; status == LH_OK && d < l->pipeline; d++) {
        int64_t throughout = 0, most = 0;
        lhi_rank_compute_peak_memory(x->pipeline, x->schedule, d, &throughout,
                                     &most);
        json_array_append_new(
            stages,
            json_pack("{s:I, s:[[s,I],[s,I],[s,I],[s,I],[s,I],[s,I]]}", "limit",
                      (json_int_t)x->limits[d], "parts", "parameters",
                      (json_int_t)parts[d].parameters_bytes, "gradients",
                      (json_int_t)parts[d].gradients_bytes, "optimizer",
                      (json_int_t)parts[d].optimizer_bytes, "activations",
                      (json_int_t)(most - throughout), "buffers",
                      (json_int_t)parts[d].buffers_bytes, "temporary",
                      (json_int_t)parts[d].temporary_bytes));
    }
    free(parts);
    if (status != LH_OK) {
        json_decref(stages);
        return status;
    }
    return cli_put_json(
        c,
        json_pack("{s:s, s:I, s:I, s:o}", "method", x->method, "gpus",
                  (json_int_t)l->tensor * l->context * l->pipeline * l->data,
                  "iteration_ns",
                  (json_int_t)(lh_timeline_makespan(x->timeline) + x->after_ns),
                  "stages", stages));
}

static lh_status run_memory(cli *c)
{
    explored x = {0};
    CLI_TRY(lh_job_read(c->operands[0], &x.job, &c->err));
    x.recompute = x.job->training.recompute;
    lh_status status = LH_OK;
    for (uint32_t i = 1; i < c->n_operands && status == LH_OK; i++)
        status = set_key(c, &x, c->operands[i]);
    if (status == LH_OK)
        status = build_pipeline(c, &x);
    if (status == LH_OK)
        status = make_schedule(c, &x);
    if (status == LH_OK)
        status = print_stages(c, &x);
    free(x.limits);
    lh_timeline_free(x.timeline);
    lh_schedule_free(x.schedule);
    lh_pipeline_free(x.pipeline);
    lh_job_free(x.job);
    return status;
}

const cli_command cmd_memory = {.name = "memory",
                                .operands = "JOB KEY=VALUE...",
                                .least_operands = 1,
                                .most_operands = MOST_KEYS,
                                .about = "Print the memory of one layout",
                                .description = "",
                                .run = run_memory};
