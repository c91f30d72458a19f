/* SPDX-License-Identifier: Apache-2.0 */
#include "planner/layout/choice.h"

#include "schedule/pipeline/schedule_internal.h"

#include <inttypes.h>
#include <longhaul/experimental/methods.h>
#include <longhaul/simulate.h>
#include <stdio.h>
#include <string.h>

lhi_schedule_request lhi_schedule_requested(const lh_job *job)
{
    const char *want = job->layout.schedule;
    if (!want)
        return LHI_REQUEST_ANY;
    if (strcmp(want, LH_OPTIMAL) == 0)
        return LHI_REQUEST_OPTIMAL;
    return lh_method_is_auto(want) ? LHI_REQUEST_ANY : LHI_REQUEST_METHOD;
}

bool lhi_schedule_requires_two_directions(const lh_job *job)
{
    return lhi_schedule_requested(job) == LHI_REQUEST_METHOD &&
           lhi_method_find(job->layout.schedule)->chunks == LHI_CHUNK_LAYOUT_BD;
}

bool lhi_schedule_allows_placement(const lh_job *job, lh_placement placement)
{
    if (job->layout.slices)
        return placement == LH_PLACEMENT_UD;
    if (lhi_schedule_requested(job) != LHI_REQUEST_METHOD)
        return true;
    switch (lhi_method_find(job->layout.schedule)->chunks) {
    case LHI_CHUNK_LAYOUT_UD:
    case LHI_CHUNK_LAYOUT_SLICED:
        return placement == LH_PLACEMENT_UD;
    case LHI_CHUNK_LAYOUT_LOOP:
        return placement == LH_PLACEMENT_LOOP;
    case LHI_CHUNK_LAYOUT_UD_LOOP:
        return placement == LH_PLACEMENT_UD || placement == LH_PLACEMENT_LOOP;
    case LHI_CHUNK_LAYOUT_WAVE:
        return placement == LH_PLACEMENT_WAVE;
    case LHI_CHUNK_LAYOUT_WAVES:
        return placement == LH_PLACEMENT_UD || placement == LH_PLACEMENT_WAVE;
    case LHI_CHUNK_LAYOUT_BD:
        return placement == LH_PLACEMENT_BD;
    case LHI_CHUNK_LAYOUT_ONE_DIRECTION:
        return placement != LH_PLACEMENT_BD;
    default:
        return true;
    }
}

/* Returns a text with the chunks per device that a schedule's chunk layout
 * allows: UD one, Wave two, Loop two or more. */
static const char *name_chunk_counts(lhi_chunk_layout chunks)
{
    return chunks == LHI_CHUNK_LAYOUT_UD || chunks == LHI_CHUNK_LAYOUT_BD
               ? "one chunk"
           : chunks == LHI_CHUNK_LAYOUT_LOOP ? "two or more chunks"
           : chunks == LHI_CHUNK_LAYOUT_WAVE ? "two chunks"
                                             : "one or two chunks";
}

/* Fails with LH_EINPUT at the job's `layout.schedule`; `why`: the reason why
 * the value is invalid. */
static lh_status refuse_schedule(const lh_job *job, const char *why,
                                 lh_error *err)
{
    char line[24] = "";
    if (job->schedule_line)
        snprintf(line, sizeof line, ":%" PRIu32, job->schedule_line);
    return lhi_fail(err, LH_EINPUT, "%s%s: layout.schedule: %s", job->name,
                    line, why);
}

lh_status lhi_schedule_check(const lh_job *job, lh_error *err)
{
    const lh_layout *l = &job->layout;
    uint32_t n = l->chunks_per_device;
    if (l->slices && lhi_schedule_requested(job) == LHI_REQUEST_OPTIMAL)
        return refuse_schedule(
            job, "'optimal' does not support layout.slices; use seq1f1b", err);
    if (lhi_schedule_requested(job) != LHI_REQUEST_METHOD)
        return LH_OK;
    lh_error unknown = {0};
    if (lhi_method_find_number(l->schedule, NULL, &unknown) != LH_OK)
        return refuse_schedule(job, unknown.text, err);
    char why[200];
    bool sliced =
        lhi_method_find(l->schedule)->chunks == LHI_CHUNK_LAYOUT_SLICED;
    if (sliced != (l->slices > 0)) {
        snprintf(why, sizeof why,
                 sliced ? "'%s' requires sequences in slices; set layout.slices"
                        : "'%s' does not support layout.slices; use seq1f1b",
                 l->schedule);
        return refuse_schedule(job, why, err);
    }
    if (job->training.offload_share > 0 &&
        lhi_method_find(l->schedule)->split) {
        snprintf(
            why, sizeof why,
            "'%s' requires separate D and W passes, but offloading joins "
            "them into B; remove training.offload, or use another schedule",
            l->schedule);
        return refuse_schedule(job, why, err);
    }
    if (n == 0 || l->pipeline == 1 ||
        (n == 1 && (lhi_schedule_allows_placement(job, LH_PLACEMENT_UD) ||
                    lhi_schedule_allows_placement(job, LH_PLACEMENT_BD))) ||
        (n == 2 && lhi_schedule_allows_placement(job, LH_PLACEMENT_WAVE)) ||
        (n >= 2 && lhi_schedule_allows_placement(job, LH_PLACEMENT_LOOP)))
        return LH_OK;
    snprintf(why, sizeof why,
             "'%s' requires %s per device, but chunks_per_device is %" PRIu32
             "; remove one of them",
             l->schedule,
             name_chunk_counts(lhi_method_find(l->schedule)->chunks), n);
    return refuse_schedule(job, why, err);
}

lh_status lhi_sharding_check(const lh_job *job, lh_error *err)
{
    const lh_sharding sharding = job->layout.sharding;
    if (sharding <= LH_SHARDING_FULL || job->n_datacenters > 1)
        return LH_OK;
    return lhi_fail(err, LH_EINPUT,
                    "%s: layout.sharding: '%s' shards within each datacenter, "
                    "but the job has only one; remove it",
                    job->name, lh_sharding_name(sharding));
}

uint32_t lhi_elastic_zero(const lh_plan_elastic *elastic)
{
    return elastic->parameters >= 1 ? 3 : elastic->gradients >= 1 ? 2 : 1;
}

lhi_config lhi_config_from_choice(const lh_choice *choice)
{
    bool again = choice->recompute == LH_RECOMPUTE_OPERATIONS;
    return (lhi_config){.layout = choice->layout,
                        .placement = choice->placement,
                        .recompute =
                            again ? LH_RECOMPUTE_NONE : choice->recompute,
                        .microbatches = choice->microbatches,
                        .layers = choice->chunk_layers,
                        .zero_given = !choice->elastic,
                        .zero = choice->zero,
                        .elastic = choice->elastic};
}

void lhi_choice_clear(lh_choice *choice)
{
    choice->iteration_ns = choice->makespan_ns = -1;
    choice->tokens_per_s = choice->mfu = choice->bubble_ratio = 0;
    choice->peak_memory_bytes = choice->memory_limit_bytes = 0;
}

/* Returns a device's peak memory when its passes run in schedule order, in the
 * pipeline's unit. */
static int64_t compute_peak_memory(const lh_pipeline *p,
                                   const lh_schedule *schedule, uint32_t device)
{
    uint32_t n;
    const lh_pass *order = lh_schedule_order(schedule, device, &n);
    int64_t now = 0, peak;
    for (uint32_t c = 0; c < p->n_chunks; c++)
        now += p->chunks[c].device == device ? p->chunks[c].mem_static : 0;
    peak = now;
    for (uint32_t i = 0; i < n; i++) {
        now += lhi_pass_memory_change(&p->chunks[order[i].chunk], &order[i]);
        peak = now > peak ? now : peak;
    }
    return peak;
}

void lhi_choice_memory(lh_choice *choice, const lh_pipeline *pipeline,
                       const lh_schedule *schedule)
{
    lhi_choice_memory_within(choice, pipeline, schedule, pipeline);
}

void lhi_choice_memory_within(lh_choice *choice, const lh_pipeline *pipeline,
                              const lh_schedule *schedule,
                              const lh_pipeline *limits)
{
    int64_t least_room = INT64_MAX;
    for (uint32_t d = 0; d < lh_pipeline_n_devices(pipeline); d++) {
        int64_t limit = lh_pipeline_memory_limit(limits, d);
        int64_t peak = compute_peak_memory(pipeline, schedule, d);
        if (limit - peak < least_room) {
            least_room = limit - peak;
            choice->peak_memory_bytes = peak;
            choice->memory_limit_bytes = limit;
        }
    }
}

double lhi_choice_bubble_ratio(const lh_pipeline *pipeline,
                               const lh_schedule *schedule, int64_t makespan_ns)
{
    const lh_pipeline *p = pipeline;
    double all = (double)makespan_ns * p->n_devices;
    int64_t busy_ns = 0;
    for (uint32_t c = 0; c < p->n_chunks; c++)
        busy_ns += p->n_microbatches *
                   (p->chunks[c].f_ns + p->chunks[c].d_ns + p->chunks[c].w_ns);
    for (uint32_t d = 0; d < p->n_devices; d++)
        busy_ns -= lhi_schedule_measure_overlap(schedule, p, d);
    return makespan_ns ? (all - (double)busy_ns) / all : 0;
}

bool lhi_layout_is_infeasible(lh_status status)
{
    return status == LH_EUNSUPPORTED || status == LH_EINPUT ||
           status == LH_EINVAL;
}
