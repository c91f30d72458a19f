/* SPDX-License-Identifier: Apache-2.0 */
/* Starts a run's ranks as threads or processes, and assembles the result.
 */
#define _GNU_SOURCE
#include "base/options.h"
#include "runtime/engine/decider.h"
#include "runtime/engine/elastic_sharding.h"
#include "runtime/engine/migration_decider.h"
#include "runtime/engine/migration_target.h"
#include "runtime/engine/rerouting.h"
#include "runtime/engine/restart.h"
#include "runtime/engine/shard_groups.h"
#include "runtime/transport/rails.h"
#include "schedule/pipeline/accessors.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    DEFAULT_SLIP_NS = 20000000,
    LEAST_SILENCE_NS = 100000000, /* a rank sends four times in that time */
    LEAST_RAILS_SILENCE_NS = 1600000000 /* as often over the slowest rail */
};

static const struct {
    const char *name;
    lhi_job_launch_kind place;
} transports[] = {
    {"inproc", LHI_RANKS_THREADS},
    {"local", LHI_RANKS_PROCESSES},
    {"ucx", LHI_RANKS_LAUNCHED},
    {"tcp", LHI_RANKS_LAUNCHED},
};
/* Transport count. */
enum { N_TRANSPORTS = sizeof transports / sizeof *transports };

/* Returns the index of the transport called `name` in the table of transports;
 * N_TRANSPORTS: unknown. */
static uint32_t find_transport(const char *name)
{
    uint32_t i = 0;
    while (i < N_TRANSPORTS && strcmp(transports[i].name, name) != 0)
        i++;
    return i;
}

/* Checks the run's options for contradictions and stores a copy with defaults
 * in *out. LH_EINVAL: options contradict each other; LH_EUNSUPPORTED: unknown
 * transport. */
static lh_status check_options(const lh_train_options *options,
                               lh_train_options *out, lh_error *err)
{
    LHI_TRY(LHI_OPTIONS_COPY(lh_train_options, out, options, err));
    if (!out->transport)
        out->transport = "inproc";
    if (find_transport(out->transport) == N_TRANSPORTS)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "there is no transport '%.40s'; the transports are "
                        "inproc, local, ucx and tcp",
                        out->transport);
    if (out->n_rails && strcmp(out->transport, "tcp") != 0)
        return lhi_fail(err, LH_EINVAL, "rails require transport tcp, not %s",
                        out->transport);
    if (out->silence_ns && (out->silence_ns < LEAST_SILENCE_NS ||
                            strcmp(out->transport, "inproc") == 0))
        return lhi_fail(err, LH_EINVAL,
                        "the silence of a rank is limited only between "
                        "processes, and to at least 0.1 s");
    if (out->silence_ns && out->n_rails &&
        out->silence_ns < LEAST_RAILS_SILENCE_NS)
        return lhi_fail(err, LH_EINVAL,
                        "over rails the silence of a rank is limited to at "
                        "least 1.6 s, since a rail may send every 0.4 s");
    if (out->reschedule && out->profiles)
        return lhi_fail(err, LH_EINVAL,
                        "a profile covers one schedule: profiles cannot be "
                        "combined with reschedule");
    if (out->adapt && (out->reschedule || out->profiles))
        return lhi_fail(err, LH_EINVAL,
                        "an adaptive run chooses its own schedules: adapt "
                        "cannot be combined with reschedule or profiles");
    if (out->steps == 0)
        out->steps = 1;
    if (out->message_bytes == 0)
        out->message_bytes = LH_TRAIN_MESSAGE_BYTES;
    if (out->tolerated_lateness_ns == 0)
        out->tolerated_lateness_ns = DEFAULT_SLIP_NS;
    return LH_OK;
}

int64_t lh_train_silence_ns(const lh_train_options *options)
{
    lh_train_options o;
    lh_error ignored;
    if (LHI_OPTIONS_COPY(lh_train_options, &o, options, &ignored) != LH_OK)
        return 0;
    const uint32_t i = find_transport(o.transport ? o.transport : "");
    if (i == N_TRANSPORTS || transports[i].place == LHI_RANKS_THREADS)
        return 0;
    return o.silence_ns                                ? o.silence_ns
           : o.n_rails                                 ? LHI_RAILS_TIMEOUT_NS
           : transports[i].place == LHI_RANKS_LAUNCHED ? LHI_SILENCE_TIMEOUT_NS
                                                       : LHI_LOCAL_SILENCE_NS;
}

/* Runs all ranks here, or only this process's rank if mpirun or srun started
 * it; *first: rank 0's outcome. */
static lh_status run_ranks(lhi_job *job, const lhi_net_link *links,
                           lhi_rank_result *first, lh_error *err)
{
    uint32_t n = lhi_grid_count_ranks(&job->grid);
    uint32_t n_links = job->emulates ? (uint32_t)lhi_job_count_links(job) : 0;
    lhi_job_launch_kind place =
        transports[find_transport(job->o.transport)].place;
    if (place == LHI_RANKS_LAUNCHED)
        return lhi_job_run_launched(job, n_links, links, first, err);
    lhi_rank_result *results = calloc(n, sizeof *results);
    if (!results)
        return lhi_fail_nomem(err);
    const bool threads = place == LHI_RANKS_THREADS;
    const lhi_attempts attempts = {.are_threads = threads,
                                   .n = n,
                                   .n_links = n_links,
                                   .links = links,
                                   .rank_main = lhi_job_run_rank,
                                   .context = job};
    lh_status status = threads && !job->record
                           ? lhi_inproc_run(n, n_links, links, lhi_job_run_rank,
                                            job, results, err)
                           : lhi_job_run_attempts(job, &attempts, results, err);
    *first = results[0];
    for (uint32_t i = 1; i < n; i++)
        free(results[i].text);
    free(results);
    return status;
}

/* Checks the options of schedule adaptation during the run, before ranks are
 * started. */
static lh_status check_adapt(lhi_job *job, lh_error *err)
{
    lh_adapt *made = NULL;
    lh_adapt_options decides;
    job->proposal_options = job->exec->options;
    if (!job->o.adapt)
        return LH_OK;
    LHI_TRY(LHI_OPTIONS_COPY(lh_train_adapt, &job->adapt, job->o.adapt, err));
    job->o.adapt = &job->adapt;
    LHI_TRY(lhi_job_make_adapt(job, job->pipeline, &made, err));
    lh_adapt_free(made);
    LHI_TRY(LHI_OPTIONS_COPY(lh_adapt_options, &decides,
                             job->adapt.decision_options, err));
    if (decides.delegation)
        job->proposal_options.delegation = decides.delegation;
    return LH_OK;
}

/* Checks the job, runs its ranks and reads rank 0's result. */
static lh_status run_job(lhi_job *job, lh_train_result **out, lh_error *err)
{
    lhi_net_link *links = calloc(lhi_job_count_links(job) + 1, sizeof *links);
    lhi_rank_result first = {0};
    lh_status status =
        links ? lhi_job_check_events(job, err) : lhi_fail_nomem(err);
    if (status == LH_OK)
        status = lhi_job_check_restarts(job, err);
    if (status == LH_OK && job->o.max_restarts)
        status = lhi_run_record_make(&job->o, &job->record, err);
    if (status == LH_OK)
        status = check_adapt(job, err);
    if (status == LH_OK)
        status = lhi_job_set_assignment_limits(job, err);
    if (status == LH_OK)
        status = lhi_job_check_assignment_limits(job, err);
    if (status == LH_OK)
        status = lhi_job_check_migration(job, err);
    if (status == LH_OK)
        status =
            lhi_proposals_make(job->pipeline, &job->proposal_options,
                               &job->assignment_limits, &job->proposals, err);
    if (status == LH_OK && job->emulates)
        status = lhi_job_list_links(job, links, err);
    if (status == LH_OK)
        status = run_ranks(job, links, &first, err);
    if (status == LH_OK || (status == LH_ECANCELED && first.text))
        status = lhi_outcome_read(job, first.text, first.size, out, err);
    lhi_job_clear_rerouting(job);
    lhi_run_record_free(job->record);
    job->record = NULL;
    lhi_proposals_free(job->proposals);
    lh_layers_free((lh_layers *)(uintptr_t)job->assignment_limits.layers);
    free(first.text);
    free(links);
    return status;
}

/* Checks that the execution plan belongs to the pipeline, which has no
 * overlapped pairs. */
static lh_status check_plan(const lh_pipeline *pipeline, const lh_exec *exec,
                            lh_error *err)
{
    if (lh_pipeline_n_devices(pipeline) != exec->n_ranks ||
        lh_pipeline_n_chunks(pipeline) != exec->n_chunks ||
        pipeline->n_resources != exec->n_links)
        return lhi_fail(err, LH_EINVAL,
                        "the execution plan belongs to another pipeline");
    return lhi_pipeline_require_separate_passes(pipeline, "train", err);
}

lh_status lh_train_timed(const lh_pipeline *pipeline, const lh_exec *exec,
                         const lh_train_options *options, lh_train_result **out,
                         lh_error *err)
{
    lhi_job job = {.pipeline = pipeline, .exec = exec};
    job.grid = (lhi_grid){exec->n_ranks, 1, 1, 1, 1, 1, false, NULL};
    LHI_TRY(check_plan(pipeline, exec, err));
    LHI_TRY(check_options(options, &job.o, err));
    if (job.o.real_links && lh_pipeline_shares_links(pipeline, LH_NONE))
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "data_parallel: 'link' is the name of a link in "
                        "'links'; timed devices share a link only if it is "
                        "emulated: rename it");
    if (job.o.enforces_memory)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "timed devices use no memory: limits can be enforced "
                        "only when a model is trained");
    job.emulates = !job.o.real_links;
    job.shared_clock = job.emulates;
    return run_job(&job, out, err);
}

/* --- training --- */

lh_train_model lh_train_model_defaults(void)
{
    return (lh_train_model){.size = sizeof(lh_train_model),
                            .micro_batch = 1,
                            .replicas = 1,
                            .rate = NAN,
                            .min_rate = NAN,
                            .weight_decay = NAN,
                            .clip = NAN,
                            .warmup = UINT64_MAX,
                            .balance_loss = 0.01};
}

lh_train_optimizer lh_train_optimizer_defaults(void)
{
    return (lh_train_optimizer){.size = sizeof(lh_train_optimizer),
                                .beta1 = NAN,
                                .beta2 = NAN,
                                .epsilon = NAN,
                                .rate_decay = LH_N_RATE_DECAYS,
                                .decay_steps = UINT64_MAX};
}

/* Opens the training data with the model's options. */
static lh_status open_data(const lh_train_model *m, lhi_data **out,
                           lh_error *err)
{
    lhi_data_options with = {.path = m->data,
                             .tokenizer = m->tokenizer,
                             .vocab = m->model->vocab,
                             .sequence = m->sequence,
                             .look_ahead = m->model->mtp_layers,
                             .validation = m->validation,
                             .validation_path = m->validation_data,
                             .seed = m->seed};
    if (m->token_bytes == 2)
        with.kind = LHI_DATA_U16;
    else if (m->token_bytes == 4)
        with.kind = LHI_DATA_U32;
    else if (m->token_bytes == LH_TOKEN_BYTES_INDEXED)
        with.kind = LHI_DATA_INDEXED;
    else if (m->token_bytes != 0)
        return lhi_fail(err, LH_EINVAL,
                        "tokens of %" PRIu32
                        " bytes are not supported; use 2 or 4",
                        m->token_bytes);
    return lhi_data_open(&with, out, err);
}

/* Checks the training options: model, its partition into n_chunks chunks, data
 * and recomputed parts. */
static lh_status check_model(const lh_train_model *m, uint32_t n_chunks,
                             lh_error *err)
{
    if (!m->model || !m->first_layers || !m->data || m->micro_batch == 0 ||
        m->sequence == 0)
        return lhi_fail(err, LH_EINVAL,
                        "training needs a model, its layers' chunks, data, a "
                        "microbatch and a sequence");
    uint32_t n = n_chunks;
    bool rises =
        m->first_layers[0] == 0 && m->first_layers[n] == m->model->layers;
    for (uint32_t c = 0; c < n; c++)
        rises = rises && m->first_layers[c] <= m->first_layers[c + 1];
    if (!rises)
        return lhi_fail(err, LH_EINVAL,
                        "the chunks do not contain each of the model's %" PRIu32
                        " layers exactly once, in order",
                        m->model->layers);
    const uint32_t all = m->model->layers + m->model->mtp_layers;
    for (uint32_t i = 0; m->recompute && i < all; i++)
        if (m->recompute[i] & ~(uint32_t)LH_PART_ALL)
            return lhi_fail(err, LH_EINVAL,
                            "layer %" PRIu32 " recomputes parts that no layer "
                            "has",
                            i);
    if (m->overrides && !m->resume)
        return lhi_fail(err, LH_EINVAL,
                        "only a resumed run can override "
                        "options");
    if (m->fresh && !m->checkpoint)
        return lhi_fail(err, LH_EINVAL, "a fresh run needs a folder");
    uint32_t ignored;
    return lhi_recipe_parse_names(m->overrides, &ignored, err);
}

/* Sets the grid's tensor degrees to those of the stages, if they differ. */
static void set_stage_tensors(lhi_grid *g, const uint32_t *tensors)
{
    bool differ = false;
    g->tensor = tensors[0];
    for (uint32_t d = 1; d < g->n_devices; d++) {
        differ = differ || tensors[d] != tensors[0];
        g->tensor = tensors[d] > g->tensor ? tensors[d] : g->tensor;
    }
    g->tensors = differ ? tensors : NULL;
}

/* Checks that the run has no options that require the same number of ranks on
 * all stages. */
static lh_status check_stage_tensors(const lhi_job *job, lh_error *err)
{
    const lh_sim_options how = lhi_exec_sim_options(job->exec);
    const char *with = how.receives != LH_RECEIVES_EARLY ? "late receives"
                       : how.coupled_queue > 0           ? "blocking sends"
                       : job->exec->options.path != LH_DATA_PATH_DIRECT
                           ? "messages through host memory"
                       : job->o.adapt    ? "adaptation during the run"
                       : job->o.profiles ? "a profile of the run"
                                         : NULL;
    if (!job->grid.tensors || !with)
        return LH_OK;
    return lhi_fail(err, LH_EUNSUPPORTED,
                    "the cpu device does not train stages with different "
                    "tensor degrees with %s: train without it, or plan with "
                    "one layout.tensor for all stages",
                    with);
}

/* Sets the process grid from the model's parallel degrees and checks it. */
static lh_status set_grid(lhi_job *job, lh_error *err)
{
    const lh_train_model *m = job->model;
    lhi_grid *g = &job->grid;
    *g = (lhi_grid){.n_devices = job->exec->n_ranks,
                    .replicas = m->replicas ? m->replicas : 1,
                    .context = m->context ? m->context : 1,
                    .tensor = m->tensor ? m->tensor : 1,
                    .expert = m->expert ? m->expert : 1,
                    .expert_tensor = m->expert_tensor};
    if (m->stage_tensors)
        set_stage_tensors(g, m->stage_tensors);
    if (!g->expert_tensor)
        g->expert_tensor = m->model->experts && g->expert == 1 ? g->tensor : 1;
    g->mirrored = lhi_pipeline_is_bidirectional(job->pipeline);
    return lhi_grid_check(g, err);
}

/* Checks that the cpu device supports a pipeline with two directions: devices d
 * and n - 1 - d form a group of two replicas of the same two chunks. */
static lh_status check_directions(const lhi_job *job, lh_error *err)
{
    const lh_train_model *m = job->model;
    const lhi_grid *g = &job->grid;
    const char *with = g->tensor * g->context > 1 ? "tensor or context above 1"
                       : m->model->experts        ? "experts"
                       : m->sharded_gradients > 0 ? "ZeRO 2 or 3"
                       : m->sites                 ? "replicas grouped by site"
                       : job->o.profiles          ? "a profile of the run"
                       : lh_pipeline_has_host(job->pipeline)
                           ? "activations in host memory"
                           : NULL;
    if (!g->mirrored)
        return LH_OK;
    if (lhi_pipeline_placement(job->pipeline) != LH_PLACEMENT_BD)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "the cpu device trains two directions (bidirectional) "
                        "only with placement bd: chunk c on device c of P, its "
                        "copy on device P - 1 - c");
    if (g->n_devices % 2 != 0)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "the cpu device trains two directions (placement bd) "
                        "only on an even number of devices, not on %" PRIu32,
                        g->n_devices);
    if (with)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "the cpu device does not train two directions "
                        "(placement bd) with %s",
                        with);
    return LH_OK;
}

/* Checks that the pipeline has offload times exactly if the model offloads
 * activations, unless they are copied to host memory where needed. */
static lh_status check_offload(const lhi_job *job, lh_error *err)
{
    const lh_train_model *m = job->model;
    const bool hosts = lh_pipeline_has_host(job->pipeline);
    bool any = false;
    if (hosts && (lh_pipeline_offloads(job->pipeline) ||
                  !job->exec->options.lists_host_copies ||
                  job->exec->options.host_copy_ns <= 0))
        return lhi_fail(err, LH_EINVAL,
                        "activations in host memory need the planned time of a "
                        "copy (host_copy_ns, --host-copy), and a plan without "
                        "offload");
    for (uint32_t c = 0; c < job->exec->n_chunks; c++) {
        const uint32_t tensor =
            lhi_grid_get_tensor(&job->grid, job->exec->chunk_ranks[c]);
        const lhi_cpu_options o = {.model = m->model,
                                   .first_layers = m->first_layers,
                                   .n_chunks = job->exec->n_chunks,
                                   .bidirectional = job->grid.mirrored,
                                   .n_mine = 1,
                                   .mine = &c,
                                   .recompute = m->recompute,
                                   .offload = m->offload,
                                   .microbatch = m->micro_batch,
                                   .sequence = m->sequence,
                                   .n_microbatches = 1,
                                   .n_tensor = tensor,
                                   .replicates_rows = m->no_sequence_parallel,
                                   .n_contexts = job->grid.context,
                                   .n_expert = job->grid.expert,
                                   .n_expert_tensor = job->grid.expert_tensor};
        bool leaves = lhi_cpu_estimate_offload_bytes(&o, 0) > 0;
        any = any || leaves;
        if (hosts && !leaves)
            return lhi_fail(err, LH_EUNSUPPORTED,
                            "chunk %" PRIu32 " has no activations that the cpu "
                            "device could copy to host memory: plan without "
                            "full recomputation, and with layers in each chunk",
                            c);
        if (!hosts && leaves != (job->pipeline->chunks[c].offload_ns > 0))
            return lhi_fail(
                err, LH_EINVAL,
                "offload: chunk %" PRIu32 "'s activations %s, but %s of its "
                "layers are offloaded",
                c, leaves ? "have no offload time" : "have an offload time",
                leaves ? "some" : "none");
    }
    if (any && !m->offload_folder)
        return lhi_fail(
            err, LH_EINVAL,
            "offload: activations are offloaded, but no folder is given");
    return LH_OK;
}

/* Checks the sharded shares of parameters and gradients, and that the cpu
 * device supports the pipeline's gathers. lhi_shard_plan_make() checks
 * operations launched by passes. */
static lh_status check_collectives(const lhi_job *job, lh_error *err)
{
    const lh_pipeline *p = job->pipeline;
    const lh_train_model *m = job->model;
    if (!(m->sharded_parameters >= 0) || !(m->sharded_gradients <= 1) ||
        !(m->sharded_parameters <= m->sharded_gradients))
        return lhi_fail(err, LH_EINVAL,
                        "sharded shares must be 0 to 1, that of parameters at "
                        "most that of gradients");
    bool all = !(m->sharded_gradients < 1) &&
               (!(m->sharded_parameters < 1) || !(m->sharded_parameters > 0));
    if (m->per_layer_sharding && (p->n_dp_ops > 0 || !all))
        return lhi_fail(
            err, LH_EINVAL,
            "per-layer sharding covers all gradients and all or no parameters, "
            "and passes launch no data-parallel operations");
    if (lhi_grid_group_size(&job->grid, LHI_GRID_DATA, 0) == 1)
        return LH_OK;
    LHI_TRY(lhi_shard_groups_check(m, &job->grid, err));
    if (p->has_deferred_gathers)
        return lhi_fail(
            err, LH_EUNSUPPORTED,
            "the pipeline gathers %" PRIu32
            " chunks first; the cpu device gathers all chunks of a device at "
            "the start: plan without 'prefetch', or use the timed device",
            p->first_gathers);
    return LH_OK;
}

/* Makes the devices for ranks that are threads, so that errors are reported
 * before the threads start. */
static lh_status make_devices(lhi_job *job, lh_error *err)
{
    uint32_t n = lhi_grid_count_ranks(&job->grid), made = 0;
    lh_status status = LH_OK;
    job->devices = calloc(n, sizeof *job->devices);
    if (!job->devices)
        return lhi_fail_nomem(err);
    while (made < n && (status = lhi_job_make_device(
                            job, made, &job->devices[made], err)) == LH_OK)
        made++;
    return status;
}

/* Closes devices that no rank has taken. */
static void close_devices(lhi_job *job)
{
    uint32_t n = lhi_grid_count_ranks(&job->grid);
    for (uint32_t i = 0; job->devices && i < n; i++)
        if (job->devices[i])
            job->devices[i]->ops->close(job->devices[i]);
    free(job->devices);
}

/* Predicts all ranks' memory; the caller releases *out with free(). */
static lh_status predict_memory(const lhi_job *job, lh_train_memory **out,
                                lh_error *err)
{
    uint32_t n = lhi_grid_count_ranks(&job->grid);
    lh_train_memory *made = calloc(n, sizeof *made);
    lh_status status = made ? LH_OK : lhi_fail_nomem(err);
    for (uint32_t r = 0; status == LH_OK && r < n; r++)
        status = lhi_job_predict_memory(job, job->exec, r, &made[r], err);
    if (status != LH_OK) {
        free(made);
        return status;
    }
    *out = made;
    return LH_OK;
}

/* Runs a training job whose ranks are threads or processes here. Opens data and
 * BLAS before the ranks start, because they share them. */
static lh_status train_in_process(lhi_job *job, lhi_job_launch_kind place,
                                  lh_train_result **out, lh_error *err)
{
    lhi_data *data;
    LHI_TRY(open_data(job->model, &data, err));
    job->data = data;
    bool threads = place == LHI_RANKS_THREADS;
    uint32_t here = threads ? lhi_grid_count_ranks(&job->grid) : 1;
    lh_status status =
        lhi_data_compute_fingerprint(data, &job->data_fingerprint, err);
    if (status == LH_OK)
        status =
            lhi_data_hash_validation(data, &job->validation_fingerprint, err);
    if (status == LH_OK)
        status = lhi_blas_load(
            here * (job->model->threads > 1 ? job->model->threads : 1),
            &job->sgemm, err);
    if (status == LH_OK && threads)
        status = make_devices(job, err);
    if (status == LH_OK)
        status = run_job(job, out, err);
    close_devices(job);
    lhi_data_close(data);
    return status;
}

lh_status lh_train_cpu(const lh_pipeline *pipeline, const lh_exec *exec,
                       const lh_train_model *model,
                       const lh_train_options *options, lh_train_result **out,
                       lh_error *err)
{
    lh_train_model m;
    LHI_TRY(check_plan(pipeline, exec, err));
    LHI_TRY(LHI_OPTIONS_COPY(lh_train_model, &m, model, err));
    lh_train_optimizer optimizer;
    if (m.optimizer) {
        LHI_TRY(
            LHI_OPTIONS_COPY(lh_train_optimizer, &optimizer, m.optimizer, err));
        m.optimizer = &optimizer;
    }
    LHI_TRY(check_model(&m, lhi_pipeline_count_model_chunks(pipeline), err));
    lhi_job job = {.pipeline = pipeline,
                   .exec = exec,
                   .emulates = m.emulate_links,
                   .model = &m};
    LHI_TRY(check_options(options, &job.o, err));
    if (job.emulates && lh_pipeline_shares_links(pipeline, LH_NONE))
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "data-parallel communication and messages share a link "
                        "of the plan, which emulated links cannot do: train "
                        "without --emulate-links, --inject and --events");
    uint32_t transport = find_transport(job.o.transport);
    lhi_job_launch_kind place = transports[transport].place;
    job.shared_clock = place != LHI_RANKS_LAUNCHED;
    LHI_TRY(set_grid(&job, err));
    LHI_TRY(check_directions(&job, err));
    LHI_TRY(check_stage_tensors(&job, err));
    LHI_TRY(check_collectives(&job, err));
    LHI_TRY(check_offload(&job, err));
    LHI_TRY(lhi_job_check_limits(&job, exec, err));
    LHI_TRY(lhi_job_check_memory(&job, place, err));
    lh_train_memory *memory;
    LHI_TRY(predict_memory(&job, &memory, err));
    job.memory = memory;
    lh_status status = train_in_process(&job, place, out, err);
    free(memory);
    return status;
}
