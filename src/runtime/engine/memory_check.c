/* SPDX-License-Identifier: Apache-2.0 */
/* Checks before the start whether a training run fits into memory; otherwise a
 * shortage may show after hours, in a step's middle. The count is a lower
 * bound, so passing the check is no guarantee. */
#include "base/available_memory.h"
#include "format/job/family.h"
#include "runtime/engine/elastic_sharding.h"
#include "runtime/engine/fsdp.h"
#include "runtime/engine/job.h"
#include "runtime/engine/memory_checkpoint.h"
#include "runtime/engine/shard_groups.h"
#include "runtime/engine/shard_plan.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A rank's required memory, in bytes. */
typedef struct rank_memory {
    double state;       /* weights, gradients, optimizer, exchange */
    double activations; /* including scratch and messages */
    double checkpoint;  /* in memory, if the run may restart */
} rank_memory;

/* Returns a tied embedding's parameters if it has two copies, on the ranks of
 * the first and the last chunk, and `stage` is one of them; otherwise 0. */
static double count_tied_embedding(const lhi_cpu_options *o,
                                   const lh_exec *exec, uint32_t stage)
{
    const lh_model *m = o->model;
    uint32_t first = exec->chunk_ranks[0];
    uint32_t last = exec->chunk_ranks[exec->n_chunks - 1];
    if (!lhi_needs_second_embedding(m) || first == last ||
        (stage != first && stage != last))
        return 0;
    return lhi_cpu_count_embedding_parameters(o);
}

/* Returns the bytes of a rank's message buffers as make_receives() in rank.c
 * and make_buffers() in delegated_path.c allocate them. `bytes`: size of a
 * message. */
static double count_message_bytes(const lhi_exec_rank *rank, double bytes)
{
    bool any = false;
    for (uint32_t p = 0; p < rank->n_passes; p++)
        any = any || rank->passes[p].input != LH_NONE ||
              rank->passes[p].output != LH_NONE;
    double most = any ? bytes : 0,
           room = (double)lhi_pool_buffer_bytes((size_t)most);
    double sum = rank->n_slots * most + rank->n_buffers * room;
    for (uint32_t i = 0; i < rank->n_lanes; i++) {
        const lhi_exec_lane *lane = &rank->lanes[i];
        double each = rank->n_in_flight / lane->n_queues + 2.0;
        sum += lane->receives ? 0 : lane->n_queues * each * room;
    }
    return sum + (rank->n_lanes > 0 ? rank->n_slots * most : 0);
}

/* Predicts a rank's cpu device memory under the rank's passes and offload
 * copies, bytes by kind. */
static lh_status predict_device(const lhi_exec_rank *rank,
                                const lhi_cpu_options *o,
                                double bytes[LH_N_MEMORY_KINDS], lh_error *err)
{
    lh_pass *passes = calloc(rank->n_passes + 1u, sizeof *passes);
    if (!passes)
        return lhi_fail_nomem(err);
    for (uint32_t p = 0; p < rank->n_passes; p++)
        passes[p] = rank->passes[p].pass;
    lh_status status = lhi_cpu_estimate_memory(
        o, passes, rank->n_passes, rank->copies, rank->n_copies, bytes, err);
    free(passes);
    return status;
}

/* Values that the ranks in one kind of group share, and the values exchanged at
 * a time: for the tensors in a bucket. */
typedef struct bucket_memory {
    uint32_t n_sharers, n_shards;
    double values, sharded, largest; /* per chunk, or per part of it */
} bucket_memory;

/* Sums over a device's chunks. */
typedef struct chunks_memory {
    bucket_memory buckets[LHI_N_TRAIN_BUCKETS];
    double part; /* largest over all buckets */
    uint32_t n_parts;
    lhi_sharded_tensors most;
} chunks_memory;

/* Adds the parameters of the stage's chunk `i` to the sums and maxima in
 * `need`, separately for experts and others. `sharded`: how many of its
 * parameters are sharded. */
static void add_chunk(chunks_memory *need, const lhi_cpu_options *o, uint32_t i,
                      const lhi_sharded_tensors *sharded)
{
    bucket_memory *most = &need->buckets[LHI_BUCKET_DEFAULT];
    bucket_memory *experts = &need->buckets[LHI_BUCKET_EXPERTS];
    const bool apart = experts->n_sharers > 0;
    const double all = lhi_cpu_count_parameters(o, i);
    const double theirs = apart ? lhi_cpu_count_expert_parameters(o, i) : 0;
    const double of = apart ? (double)sharded->expert_values : 0;
    const lhi_cpu_part_sizes parts = lhi_cpu_compute_part_sizes(o, i);
    most->values += all - theirs;
    experts->values += theirs;
    most->sharded += (double)sharded->values - of;
    experts->sharded += of;
    most->largest = fmax(most->largest, !o->shards_by_layer ? all - theirs
                                        : apart ? parts.largest_without_experts
                                                : parts.largest);
    experts->largest = fmax(experts->largest, !o->shards_by_layer ? theirs
                                              : apart ? parts.experts
                                                      : 0);
    need->part = fmax(need->part, parts.largest);
    need->n_parts = parts.n > need->n_parts ? parts.n : need->n_parts;
    if (sharded->values > need->most.values)
        need->most.values = sharded->values;
    if (sharded->gradients > need->most.gradients)
        need->most.gradients = sharded->gradients;
}

/* Returns, for experts and for other parameters of a stage, the number of ranks
 * that add their gradients (n_sharers) and of shards of the optimizer state
 * (n_shards). */
static chunks_memory find_sharing(const lhi_job *job, uint32_t stage)
{
    chunks_memory need = {0};
    bucket_memory *most = &need.buckets[LHI_BUCKET_DEFAULT];
    bucket_memory *experts = &need.buckets[LHI_BUCKET_EXPERTS];
    most->n_sharers = lhi_grid_group_size(&job->grid, LHI_GRID_DATA, stage);
    most->n_shards =
        lhi_shard_groups_find(job->model, most->n_sharers, stage, 0).n_shards;
    if (!lhi_has_disjoint_expert_groups(job->model, &job->grid))
        return need;
    experts->n_sharers =
        lhi_grid_group_size(&job->grid, LHI_GRID_EXPERT_DATA, stage);
    experts->n_shards =
        lhi_expert_shard_groups_find(job->model, &job->grid, stage).n_shards;
    return need;
}

/* Returns the bytes of the two arrays that collectives use: the largest bucket
 * (experts or other parameters), and one shard of it. */
static double count_exchange_bytes(const chunks_memory *need)
{
    double all = 0, one = 0;
    for (uint32_t i = 0; i < LHI_N_TRAIN_BUCKETS; i++) {
        const bucket_memory *bucket = &need->buckets[i];
        all = fmax(all, bucket->largest);
        if (bucket->n_shards)
            one = fmax(one, bucket->largest / bucket->n_shards);
    }
    return sizeof(float) * (all + one);
}

/* Predicts the training memory of stage `stage` apart from the device, by kind:
 * trainer's state, and buffers for sharded parameters and gradients. */
static lh_status predict_training(const lhi_job *job, const lh_exec *exec,
                                  uint32_t stage, const lhi_cpu_options *o,
                                  double bytes[LH_N_MEMORY_KINDS],
                                  lh_error *err)
{
    const bool by_layer = job->model->per_layer_sharding;
    chunks_memory need = find_sharing(job, stage);
    bool staged = need.buckets[LHI_BUCKET_DEFAULT].n_sharers > 1 &&
                  lhi_has_pass_collectives(job->pipeline, job->model);
    lhi_sharded_tensors *all = calloc(exec->n_chunks, sizeof *all);
    lhi_shard_plan plan = {0};
    uint32_t n_tensors = 0;
    lh_status status = all ? LH_OK : lhi_fail_nomem(err);
    for (uint32_t i = 0; status == LH_OK && i < o->n_mine; i++) {
        lhi_sharded_tensors *one = &all[o->mine[i]];
        n_tensors += lhi_cpu_count_tensors(o, i);
        if ((status = lhi_cpu_compute_sharded_tensors(o, i, one, err)) == LH_OK)
            add_chunk(&need, o, i, one);
    }
    if (status == LH_OK && staged && !by_layer)
        status =
            lhi_shard_plan_make(job->pipeline, exec, stage, all, &plan, err);
    free(all);
    if (status != LH_OK)
        return status;
    for (uint32_t i = 0; i < LHI_N_TRAIN_BUCKETS; i++) {
        const bucket_memory *bucket = &need.buckets[i];
        if (bucket->n_sharers)
            lhi_train_predict_memory(
                bucket->values,
                i == LHI_BUCKET_DEFAULT ? count_tied_embedding(o, exec, stage)
                                        : 0,
                bucket->sharded, bucket->n_sharers, bucket->n_shards, staged,
                job->model->delayed_update, bytes);
    }
    bytes[LH_MEMORY_SCRATCH] +=
        lhi_train_bookkeeping_bytes(o->n_mine, n_tensors);
    if (staged)
        bytes[LH_MEMORY_BUFFERS] += count_exchange_bytes(&need);
    if (staged && by_layer)
        bytes[LH_MEMORY_BUFFERS] += lhi_fsdp_predict_bytes(
            need.part, need.n_parts, need.most.values > 0);
    else if (staged)
        bytes[LH_MEMORY_BUFFERS] +=
            sizeof(float) *
            ((double)plan.n_values * (double)need.most.values +
             (double)plan.n_gradients * (double)need.most.gradients);
    lhi_shard_plan_fini(&plan);
    return LH_OK;
}

/* Predicts a rank's memory under `exec`, by kind. */
static lh_status predict_rank(const lhi_job *job, const lh_exec *exec,
                              uint32_t rank, double bytes[LH_N_MEMORY_KINDS],
                              lh_error *err)
{
    lhi_cpu_options o;
    uint32_t stage = lhi_grid_find_coords(&job->grid, rank).device;
    LHI_TRY(lhi_job_fill_cpu_options(job, rank, &o, err));
    lh_status status = predict_device(&exec->ranks[stage], &o, bytes, err);
    const double message = (double)lhi_cpu_message_bytes(&o);
    if (status == LH_OK)
        status = predict_training(job, exec, stage, &o, bytes, err);
    bytes[LH_MEMORY_BUFFERS] +=
        count_message_bytes(&exec->ranks[stage], message);
    free((uint32_t *)(uintptr_t)o.mine);
    return status;
}

/* Predicts the bytes of one rank's activations, training state and in-memory
 * checkpoint, without the storage for offloaded activations. */
static lh_status predict_rank_memory(const lhi_job *job, const lh_exec *exec,
                                     uint32_t rank, rank_memory *out,
                                     lh_error *err)
{
    double bytes[LH_N_MEMORY_KINDS] = {0};
    LHI_TRY(predict_rank(job, exec, rank, bytes, err));
    out->activations = bytes[LH_MEMORY_ACTIVATIONS] + bytes[LH_MEMORY_SCRATCH];
    out->state = -out->activations - bytes[LH_MEMORY_STORAGE];
    for (uint32_t i = 0; i < LH_N_MEMORY_KINDS; i++)
        out->state += bytes[i];
    if (job->o.max_restarts)
        out->checkpoint = lhi_memory_checkpoint_predict_bytes(
            bytes[LH_MEMORY_MOMENTS], job->model->delayed_update ? 3 : 2);
    return LH_OK;
}

/* Returns the default thread stack size in bytes. */
static double get_stack_bytes(void)
{
    pthread_attr_t attributes;
    size_t size = 0;
    if (pthread_attr_init(&attributes) == 0) {
        pthread_attr_getstacksize(&attributes, &size);
        pthread_attr_destroy(&attributes);
    }
    return (double)size;
}

/* "12.5 GiB". Required memory rounds up and available memory rounds down, so
 * that the two never print as equal. */
typedef char size_text[32];
/* Formats bytes in MiB, GiB or TiB with one decimal, rounded up (`up`) or
 * down; returns `text`. */
static const char *format_bytes(double bytes, bool up, char *text)
{
    static const char *const units[] = {"MiB", "GiB", "TiB"};
    double value = bytes / (1 << 20);
    uint32_t unit = 0;
    for (; value >= 1024 && unit < 2; unit++)
        value /= 1024;
    double tenths = 10 * value;
    uint64_t whole = tenths < 1e15 ? (uint64_t)tenths : UINT64_C(1000000000000);
    whole += up && (double)whole < tenths;
    snprintf(text, sizeof(size_text), "%llu.%u %s",
             (unsigned long long)(whole / 10), (unsigned)(whole % 10),
             units[unit]);
    return text;
}

/* Fails with LH_ENOMEM: the required memory `need` exceeds the available
 * memory `room` at `where`; `blas`: bytes of OpenBLAS buffers; `also`: a
 * further remedy for the message. */
static lh_status fail_memory(const char *where, rank_memory need, double blas,
                             lhi_available_memory room, const char *also,
                             lh_error *err)
{
    size_text all, state, activations, buffers, there;
    return lhi_fail(
        err, LH_ENOMEM,
        "training needs %s of memory %s (weights, gradients and optimizer %s, "
        "activations %s, OpenBLAS and stacks %s), but only %s are available, "
        "by %s: provide more, or plan with smaller microbatches, a shorter "
        "sequence or more machines%s",
        format_bytes(need.state + need.activations + blas, true, all), where,
        format_bytes(need.state, false, state),
        format_bytes(need.activations, false, activations),
        format_bytes(blas, false, buffers),
        format_bytes((double)room.bytes, false, there), room.limit, also);
}

/* Fails with LH_ENOMEM if the predicted memory exceeds a limit: `here`, that of
 * this process's n_here ranks (threads), or `machine`, that of all ranks on
 * this machine. */
static lh_status check_available(rank_memory here, double n_here,
                                 rank_memory machine, lh_error *err)
{
    /* In this process and each that it starts. */
    double maps = n_here * (LHI_BLAS_BUFFER_BYTES + get_stack_bytes());
    lhi_available_memory to_map = lhi_find_mappable_memory(),
                         to_fill = lhi_find_physical_memory("");
    if (here.state + here.activations + maps > (double)to_map.bytes)
        return fail_memory("in a process", here, maps, to_map,
                           n_here > 1
                               ? ", or run ranks as processes (--transport "
                                 "local)"
                               : "",
                           err);
    if (machine.state + machine.activations > (double)to_fill.bytes)
        return fail_memory("on this machine", machine, 0, to_fill, "", err);
    return LH_OK;
}

/* --- pipeline's limits --- */

/* Converts bytes to an integer, rounded up and limited to INT64_MAX / 2. */
static int64_t round_up_bytes(double bytes)
{
    return bytes < 0x1p62 ? (int64_t)ceil(bytes) : INT64_MAX / 2;
}

/* Sums memory over all kinds except storage; limited to INT64_MAX. */
static int64_t sum_kinds(const int64_t bytes[LH_N_MEMORY_KINDS])
{
    int64_t sum = 0;
    for (uint32_t i = 0; i < LH_N_MEMORY_KINDS; i++)
        if (i != LH_MEMORY_STORAGE)
            sum = sum > INT64_MAX - bytes[i] ? INT64_MAX : sum + bytes[i];
    return sum;
}

lh_status lhi_job_predict_memory(const lhi_job *job, const lh_exec *exec,
                                 uint32_t rank, lh_train_memory *out,
                                 lh_error *err)
{
    double bytes[LH_N_MEMORY_KINDS] = {0};
    const char *unit = lh_pipeline_memory_unit(job->pipeline);
    bool in_bytes = unit && strcmp(unit, "bytes") == 0;
    LHI_TRY(predict_rank(job, exec, rank, bytes, err));
    *out = (lh_train_memory){.limit_bytes = LH_NO_LIMIT};
    if (in_bytes)
        out->limit_bytes = lh_pipeline_device_limit(
            job->pipeline, lhi_grid_find_coords(&job->grid, rank).device);
    for (uint32_t i = 0; i < LH_N_MEMORY_KINDS; i++)
        out->predicted[i] = round_up_bytes(bytes[i]);
    out->predicted_bytes = sum_kinds(out->predicted);
    return LH_OK;
}

static const char *const kinds[LH_N_MEMORY_KINDS] = {
    [LH_MEMORY_PARAMETERS] = "parameters",
    [LH_MEMORY_GRADIENTS] = "gradients",
    [LH_MEMORY_MOMENTS] = "moments",
    [LH_MEMORY_ACTIVATIONS] = "activations",
    [LH_MEMORY_BUFFERS] = "buffers",
    [LH_MEMORY_SCRATCH] = "scratch",
    [LH_MEMORY_STORAGE] = "storage",
};

const char *lh_memory_kind_name(lh_memory_kind kind)
{
    return kind < LH_N_MEMORY_KINDS ? kinds[kind] : NULL;
}

/* Formats memory by kind, for example "parameters 0.9 MiB, gradients 0.9 MiB";
 * returns `text`. */
static const char *format_kinds(const int64_t bytes[LH_N_MEMORY_KINDS],
                                char *text, size_t room)
{
    size_text one;
    size_t at = 0;
    for (uint32_t i = 0; i < LH_MEMORY_STORAGE && at < room; i++)
        at += (size_t)snprintf(text + at, room - at, "%s%s %s", i ? ", " : "",
                               kinds[i],
                               format_bytes((double)bytes[i], false, one));
    return text;
}

lh_status lhi_job_check_limits(const lhi_job *job, const lh_exec *exec,
                               lh_error *err)
{
    char parts[256];
    size_text all, limit;
    lh_train_memory one;
    for (uint32_t r = 0; job->o.enforces_memory && r < exec->n_ranks; r++) {
        LHI_TRY(lhi_job_predict_memory(job, exec, r, &one, err));
        if (one.limit_bytes == LH_NO_LIMIT)
            return lhi_fail(err, LH_EINVAL,
                            "memory limits cannot be enforced: the pipeline "
                            "has none in bytes");
        if (one.predicted_bytes > one.limit_bytes)
            return lhi_fail(
                err, LH_ENOMEM,
                "rank %" PRIu32 " would use %s (%s), but its limit is %s: plan "
                "with recompute: full, smaller microbatches or "
                "more devices, or do not enforce the limit",
                r, format_bytes((double)one.predicted_bytes, true, all),
                format_kinds(one.predicted, parts, sizeof parts),
                format_bytes((double)one.limit_bytes, false, limit));
    }
    return LH_OK;
}

lh_status lhi_job_fail_over_limit(uint32_t rank, int64_t bytes,
                                  int64_t limit_bytes, uint64_t step,
                                  lh_error *err)
{
    size_text all, limit;
    return lhi_fail(err, LH_ENOMEM,
                    "rank %" PRIu32 " uses %s after step %" PRIu64
                    ", but its limit is %s: the run stops",
                    rank, format_bytes((double)bytes, true, all), step + 1,
                    format_bytes((double)limit_bytes, false, limit));
}

lh_status lhi_job_check_memory(const lhi_job *job, lhi_job_launch_kind place,
                               lh_error *err)
{
    uint32_t n = lhi_grid_count_ranks(&job->grid);
    rank_memory sum = {0}, most = {0}, least = {0}, one = {0};
    for (uint32_t r = 0; r < n; r++) {
        one.checkpoint = 0;
        LHI_TRY(predict_rank_memory(job, job->exec, r, &one, err));
        one.state += one.checkpoint;
        double total = one.state + one.activations;
        sum.state += one.state;
        sum.activations += one.activations;
        if (total > most.state + most.activations)
            most = one;
        if (r == 0 || total < least.state + least.activations)
            least = one;
    }
    const double threads = job->model->threads > 1 ? job->model->threads : 1;
    switch (place) {
    case LHI_RANKS_THREADS:
        return check_available(sum, n * threads, sum, err);
    case LHI_RANKS_PROCESSES:
        return check_available(most, threads, sum, err);
    default: /* the rank is not known before the launch */
        return check_available(least, threads, least, err);
    }
}

/* Predicts activations and training state of `rank` or, with `all`, the sum
 * over all ranks. */
static lh_status sum_rank_memory(const lhi_job *job, const lh_exec *exec,
                                 uint32_t rank, bool all, rank_memory *sum,
                                 lh_error *err)
{
    uint32_t n = all ? lhi_grid_count_ranks(&job->grid) : 1;
    *sum = (rank_memory){0};
    for (uint32_t r = 0; r < n; r++) {
        rank_memory one = {0};
        LHI_TRY(predict_rank_memory(job, exec, all ? r : rank, &one, err));
        sum->activations += one.activations;
        sum->state += one.state;
    }
    return LH_OK;
}

lh_status lhi_job_activation_bytes(const lhi_job *job, const lh_exec *exec,
                                   uint32_t rank, bool all, double *bytes,
                                   lh_error *err)
{
    rank_memory sum;
    LHI_TRY(sum_rank_memory(job, exec, rank, all, &sum, err));
    *bytes = sum.activations;
    return LH_OK;
}

lh_status lhi_job_state_bytes(const lhi_job *job, const lh_exec *exec,
                              uint32_t rank, bool all, double *bytes,
                              lh_error *err)
{
    rank_memory sum;
    LHI_TRY(sum_rank_memory(job, exec, rank, all, &sum, err));
    *bytes = sum.state;
    return LH_OK;
}

lh_status lhi_job_check_extra_memory(double bytes, const char *what,
                                     lh_error *err)
{
    size_text more, there;
    lhi_available_memory room = lhi_find_physical_memory("");
    if (bytes <= (double)room.bytes)
        return LH_OK;
    return lhi_fail(err, LH_ENOMEM,
                    "it needs %s more for %s, but only %s are available, by %s",
                    format_bytes(bytes, true, more), what,
                    format_bytes((double)room.bytes, false, there), room.limit);
}
