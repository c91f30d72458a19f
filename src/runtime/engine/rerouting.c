/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/rerouting.h"

#include "base/fail.h"
#include "base/format_units.h"
#include "resilience/event_timeline/timeline.h"
#include "runtime/engine/all_reduce.h"
#include "runtime/engine/elastic_sharding.h"
#include "runtime/engine/restart.h"
#include "schedule/pipeline/accessors.h"
#include "schedule/pipeline/reroute.h"

#include <longhaul/experimental/methods.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Tag round below those of restarting ranks: see docs/formats/wire.md. */
enum { REPLACED_TURN = (1 << 23) - 6 };

/* Checks whether the event timeline has other events than those of processes.
 */
static bool has_other_events(const lhi_job *job)
{
    const lh_event_timeline *timeline = job->o.event_timeline;
    for (uint32_t i = 0; timeline && i < timeline->n_effects; i++)
        if (!timeline->effects[i].event->process)
            return true;
    return false;
}

/* Returns the option or layout with which a run is not rerouted; NULL: none. */
static const char *find_obstacle(const lhi_job *job)
{
    const lh_train_model *m = job->model;
    const lhi_grid *g = &job->grid;
    const lh_sim_options how = lhi_exec_sim_options(job->exec);
    const struct {
        bool applies;
        const char *name;
    } obstacles[] = {
        {job->o.reschedule, "changes of the schedule at given iterations"},
        /* They keep more throughput where rerouting leaves little. */
        {job->o.adapt && (job->adapt.moves_layers || job->adapt.moves_hosts),
         "moves of layers or hosts"},
        {has_other_events(job), "events other than those of processes"},
        {how.receives != LH_RECEIVES_EARLY || how.coupled_queue > 0 ||
             job->exec->options.path != LH_DATA_PATH_DIRECT,
         "late receives, blocking sends or delegated messages"},
        {lh_pipeline_has_host(job->pipeline), "activations in host memory"},
        {m && g->tensor * g->context * g->expert * g->expert_tensor > 1,
         "tensor, context or expert parallelism"},
        {m && (m->micro_batches || g->mirrored),
         "unequal replicas or two directions"},
        {m && lhi_has_pass_collectives(job->pipeline, m),
         "parameters or gradients sharded inside the iteration"},
        {m && job->o.enforces_memory, "enforced memory limits"},
    };
    for (unsigned i = 0; i < sizeof obstacles / sizeof *obstacles; i++)
        if (obstacles[i].applies)
            return obstacles[i].name;
    return NULL;
}

uint32_t lhi_job_find_sharing_host(const lhi_job *job, uint32_t rank)
{
    const lh_pipeline *p = job->pipeline;
    lhi_grid_coords at = lhi_grid_find_coords(&job->grid, rank);
    const uint32_t device = at.device;
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        if (p->chunks[c].device != device)
            continue;
        const bool is_last = lhi_is_last_chunk(p, c);
        if (is_last && lhi_is_first_chunk(p, c))
            continue;
        at.device = p->chunks[is_last ? c - 1 : c + 1].device;
        at.tensor %= lhi_grid_get_tensor(&job->grid, at.device);
        if (at.device != device)
            return lhi_grid_find_rank(&job->grid, &at);
    }
    return LH_NONE;
}

void lhi_job_clear_rerouting(lhi_job *job)
{
    lh_exec_free(job->rerouting.exec);
    lh_pipeline_free(job->rerouting.pipeline);
    job->rerouting = (lhi_rerouting){0};
}

/* Builds the pipeline, schedule and execution plan without the lost rank. */
static lh_status make_rerouting(const lhi_job *job, const lhi_lost_device *lost,
                                lhi_rerouting *out, lh_error *err)
{
    const lh_exec_options options = {.size = sizeof options};
    lh_schedule *schedule = NULL;
    LHI_TRY(lhi_pipeline_reroute(job->pipeline, job->grid.replicas, lost,
                                 &out->pipeline, err));
    LHI_TRY(lh_method_run("auto", out->pipeline, NULL, &schedule, NULL, err));
    const lh_status status =
        lh_exec_make(out->pipeline, schedule, &options, &out->exec, err);
    lh_schedule_free(schedule);
    return status;
}

/* Simulates the run's schedule without data-parallel communication into
 * *out_ns. */
static lh_status simulate_passes(const lhi_job *job, int64_t *out_ns,
                                 lh_error *err)
{
    const lh_pipeline *p = job->pipeline;
    const lh_sim_options how = lhi_exec_sim_options(job->exec);
    lh_pipeline_desc desc = {.size = sizeof desc};
    lh_pipeline *passes = NULL;
    lh_timeline *timeline = NULL;
    lh_chunk *chunks = malloc(p->n_chunks * sizeof *chunks);
    lh_status status =
        chunks ? lh_pipeline_describe(p, &desc, err) : lhi_fail_nomem(err);
    for (uint32_t c = 0; status == LH_OK && c < p->n_chunks; c++) {
        chunks[c] = p->chunks[c];
        chunks[c].all_gather_ns = chunks[c].reduce_scatter_ns = 0;
        chunks[c].dp_latency_ns = 0;
    }
    desc.chunks = chunks;
    desc.n_initial_gathers = 0;
    desc.dp_links = NULL;
    if (status == LH_OK)
        status = lh_pipeline_make(&desc, &passes, err);
    if (status == LH_OK)
        status = lh_simulate(passes, job->exec->schedule, &how, &timeline, err);
    if (status == LH_OK)
        *out_ns = lh_timeline_makespan(timeline);
    lh_timeline_free(timeline);
    lh_pipeline_free(passes);
    free(chunks);
    return status;
}

/* Writes a predicted iteration time and, if it differs in the digits shown,
 * that of before the rerouting to `text`; returns its length. */
static size_t format_change(int64_t after_ns, int64_t before_ns, size_t room,
                            char *text)
{
    char a[LHI_FORMAT_DURATION_SIZE], b[LHI_FORMAT_DURATION_SIZE];
    lhi_format_duration(after_ns, a);
    lhi_format_duration(before_ns, b);
    const bool differs = strcmp(a, b) != 0;
    const int len =
        snprintf(text, room, "%s%s%s", a,
                 differs ? " in place of " : ", as before", differs ? b : "");
    return (size_t)len < room ? (size_t)len : room - 1;
}

/* Writes the predicted iteration times before and after the rerouting to
 * `text`. The rerouted pipeline has no data-parallel communication: a training
 * run has that of before, an emulated run none. */
static lh_status format_prediction(const lhi_job *job, size_t room, char *text,
                                   lh_error *err)
{
    const int64_t before_ns = lh_exec_predicted_ns(job->exec);
    const uint32_t n = lhi_job_shared_processors(job);
    int64_t passes_ns = before_ns;
    if (job->model)
        LHI_TRY(simulate_passes(job, &passes_ns, err));
    const int64_t after_ns =
        lh_exec_predicted_ns(job->rerouting.exec) + before_ns - passes_ns;
    size_t len =
        format_change(lhi_job_predict_iteration(job, after_ns),
                      lhi_job_predict_iteration(job, before_ns), room, text);
    if (n == 0 || job->model->includes_sharing)
        return LH_OK;
    len += (size_t)snprintf(
        text + len, room - len,
        ", where %" PRIu32 " ranks share %" PRIu32 " processor%s; ",
        lhi_grid_count_ranks(&job->grid), n, n > 1 ? "s" : "");
    len +=
        format_change(after_ns + job->model->end_ns,
                      before_ns + job->model->end_ns, room - len, text + len);
    snprintf(text + len, room - len, " if each had its own");
    return LH_OK;
}

/* Checks whether this process prints the run's remarks. */
static bool prints_remarks(const lhi_job *job)
{
    return job->o.warning && !job->follows && !job->replaces;
}

/* Prints a remark on the process that reports for the run. */
static void print_remark(const lhi_job *job, const char *text)
{
    if (prints_remarks(job))
        job->o.warning(job->o.context, text);
}

/* Prints that other ranks run the microbatches of a lost rank, with the
 * prediction; without it if it fails, as the run can continue. */
static void print_rerouting(const lhi_job *job, uint32_t rank)
{
    char times[240], text[400];
    lh_error why;
    if (!prints_remarks(job))
        return;
    const bool predicts =
        format_prediction(job, sizeof times, times, &why) == LH_OK;
    snprintf(text, sizeof text,
             "rank %" PRIu32 " is lost, and other ranks run its microbatches: "
             "%s%.230s%s",
             rank,
             predicts ? "an iteration is predicted to take "
                      : "the iteration time cannot be predicted: ",
             predicts ? times : why.text,
             job->o.adapt
                 ? "; the schedule does not change before the rank is back"
                 : "");
    print_remark(job, text);
}

/* Divides the microbatches of a lost rank; `host`: as in lhi_lost_device. */
static lh_status reroute(lhi_job *job, uint32_t rank, uint32_t host,
                         lh_error *err)
{
    char text[400];
    lh_error why = {0};
    const char *obstacle = find_obstacle(job);
    const lhi_lost_device lost = {rank, host, job->model != NULL};
    lh_status status = LH_OK;
    if (!obstacle) {
        status = make_rerouting(job, &lost, &job->rerouting, &why);
        if (status == LH_ENOMEM) {
            if (err)
                *err = why;
            return status;
        }
    }
    if (!obstacle && status == LH_OK) {
        print_rerouting(job, rank);
        return LH_OK;
    }
    lhi_job_clear_rerouting(job);
    snprintf(text, sizeof text,
             "rank %" PRIu32 " is lost, and its replacement runs all of its "
             "microbatches: %s%.250s",
             rank,
             obstacle ? "other ranks cannot share them in a run with " : "",
             obstacle ? obstacle : why.text);
    print_remark(job, text);
    return LH_OK;
}

/* States that the microbatches of several lost ranks are not divided. */
static void report_several(const lhi_job *job, uint32_t n)
{
    char text[120];
    snprintf(text, sizeof text,
             "%" PRIu32 " ranks are lost: their replacements run all of their "
             "microbatches",
             n);
    if (n > 1)
        print_remark(job, text);
}

lh_status lhi_job_reroute_lost(lhi_job *job, lh_error *err)
{
    const lhi_run_record *r = job->record;
    lhi_job_clear_rerouting(job);
    report_several(job, r->n_lost_ranks);
    if (r->n_lost_ranks != 1)
        return LH_OK;
    return reroute(job, r->lost_rank,
                   lhi_job_find_sharing_host(job, r->lost_rank), err);
}

/* Lets rank 0 listen for the processes of the replaced ranks, unless the run
 * cannot restart again with them; is_replaced: per rank. */
static lh_status await_returns(lhi_job *job, const bool *is_replaced,
                               lh_error *err)
{
    char text[400];
    lh_error why = {0};
    if (!job->tcp || job->n_restarts >= job->o.max_restarts)
        return LH_OK;
    const lh_status status =
        lhi_tcp_returns_open(job->tcp, is_replaced, &job->returns, &why);
    if (status == LH_ENOMEM && err)
        *err = why;
    if (status == LH_OK || status == LH_ENOMEM)
        return status;
    snprintf(text, sizeof text,
             "a host that is back is not used before the next restart: %.300s",
             why.text);
    print_remark(job, text);
    return LH_OK;
}

/* Divides the microbatches of the only rank that another host runs, and lets
 * rank 0 wait for all such ranks to come back; hosts: per rank 1 plus the rank
 * whose host runs it, 0: its own. */
static lh_status handle_replaced(lhi_job *job, uint32_t me, uint32_t n,
                                 const double *hosts, bool *is_replaced,
                                 lh_error *err)
{
    uint32_t n_replaced = 0, rank = 0;
    for (uint32_t r = 0; r < n; r++) {
        is_replaced[r] = hosts[r] > 0;
        n_replaced += is_replaced[r];
        rank = is_replaced[r] ? r : rank;
    }
    lhi_job_clear_rerouting(job);
    report_several(job, n_replaced);
    if (n_replaced > 0 && me == 0)
        LHI_TRY(await_returns(job, is_replaced, err));
    return n_replaced == 1 ? reroute(job, rank, (uint32_t)hosts[rank] - 1, err)
                           : LH_OK;
}

lh_status lhi_job_reroute_replaced(lhi_job *job, lhi_net *net, lh_error *err)
{
    const uint32_t me = lhi_net_rank(net), n = lhi_net_n_ranks(net);
    if (!job->record || !job->launched)
        return LH_OK;
    double *hosts = calloc(n, sizeof *hosts);
    bool *is_replaced = calloc(n, sizeof *is_replaced);
    lh_status status = hosts && is_replaced ? LH_OK : lhi_fail_nomem(err);
    if (status == LH_OK && job->replaces)
        hosts[me] = 1 + job->replacing_host;
    if (status == LH_OK)
        status = lhi_all_reduce_sum(net, REPLACED_TURN, hosts, n, NULL, err);
    if (status == LH_OK)
        status = handle_replaced(job, me, n, hosts, is_replaced, err);
    free(hosts);
    free(is_replaced);
    return status;
}
