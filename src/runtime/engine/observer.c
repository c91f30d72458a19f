/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/observer.h"

#include "base/sort.h"
#include "runtime/engine/all_reduce.h"
#include "runtime/engine/measure.h"
#include "runtime/engine/shard_groups.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_STEPS = 64, /* the last ones */
    F_MESSAGES = LH_B + 1,
    B_MESSAGES,
    COLUMNS, /* per chunk and step */
    REPEATS = 5
};

/* State of a profile observer. */
struct lhi_observer {
    const lhi_job *job;
    uint32_t rank, stage;
    double *sums;
};

/* Returns the entry count of o->sums for one step: COLUMNS (times of passes and
 * messages in ns) per chunk. MAX_STEPS steps come first, then PER_CHUNK numbers
 * per chunk. */
static size_t count_columns(const lhi_job *job)
{
    return (size_t)COLUMNS * job->exec->n_chunks;
}

enum { STATE, ACTIVATIONS, ALPHA, BETA, PER_CHUNK };

/* Returns the index in o->sums of the number `what` (state bytes, activation
 * bytes, alpha, beta) of a chunk. */
static size_t get_chunk_index(const lhi_job *job, int what, uint32_t chunk)
{
    return MAX_STEPS * count_columns(job) + (size_t)what * job->exec->n_chunks +
           chunk;
}

size_t lhi_observer_count_sums(const lhi_job *job)
{
    return get_chunk_index(job, PER_CHUNK, 0);
}

lh_status lhi_observer_make(const lhi_job *job, uint32_t rank,
                            lhi_observer **out, lh_error *err)
{
    lhi_observer *o = calloc(1, sizeof *o);
    double *sums = calloc(lhi_observer_count_sums(job), sizeof *sums);
    if (!o || !sums) {
        free(o);
        free(sums);
        return lhi_fail_nomem(err);
    }
    *o = (lhi_observer){job, rank,
                        lhi_grid_find_coords(&job->grid, rank).device, sums};
    *out = o;
    return LH_OK;
}

void lhi_observer_free(lhi_observer *o)
{
    if (o)
        free(o->sums);
    free(o);
}

const double *lhi_observer_sums(const lhi_observer *o)
{
    return o->sums;
}

/* --- steps --- */

/* Returns the arrival time in ns of a chunk's all-gather in the recorded step;
 * 0: none. */
static int64_t find_gather_time(const lhi_rank_program *s, uint32_t chunk)
{
    for (uint32_t i = 0; i < s->n_collectives; i++)
        if (s->collectives[i].chunk == chunk &&
            !s->collectives[i].is_reduce_scatter)
            return s->collectives[i].arrive_ns;
    return 0;
}

/* Returns the longer of two durations. */
static int64_t get_later_time(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Stores, as a chunk's activation bytes, the largest growth of the device's
 * peak memory in its second and later F. */
static void record_activations(lhi_observer *o, const lhi_rank_program *s)
{
    const lhi_exec_rank *program = s->rank->program;
    for (uint32_t i = 1; i < program->n_passes; i++) {
        const lh_pass *pass = &program->passes[i].pass;
        size_t before = s->rank->records[i - 1].peak_bytes;
        size_t after = s->rank->records[i].peak_bytes;
        double *kept =
            &o->sums[get_chunk_index(o->job, ACTIVATIONS, pass->chunk)];
        if (pass->kind == LH_F && !program->passes[i].is_first &&
            (double)after - (double)before > *kept)
            *kept = (double)after - (double)before;
    }
}

/* Adds the durations of the passes and messages of step number `iteration` to
 * the observer's sums. waited_ns[i], pass i's wait for collectives inside it,
 * and the wait before it do not count, since profiles have only computation. */
void lhi_observer_add_step(lhi_observer *o, uint64_t iteration,
                           const lhi_rank_program *s, const int64_t *waited_ns)
{
    const lhi_rank_hooks *hooks = s->rank->o.hooks;
    bool staged = hooks && hooks->pass;
    const lhi_exec_rank *program = s->rank->program;
    size_t size = count_columns(o->job);
    double *row = o->sums + iteration % MAX_STEPS * size;
    memset(row, 0, size * sizeof *row);
    for (uint32_t i = 0; i < program->n_passes; i++) {
        const lhi_exec_pass *pass = &program->passes[i];
        const lhi_pass_record *r = &s->records[i];
        double *chunk = row + (size_t)COLUMNS * pass->pass.chunk;
        int64_t from = i ? s->records[i - 1].issued_ns : 0;
        bool waits = pass->input != LH_NONE && !pass->local_input;
        if (waits) {
            from = get_later_time(from, r->arrived_ns);
            chunk[pass->pass.kind == LH_F ? F_MESSAGES : B_MESSAGES] +=
                (double)(r->arrived_ns - r->entered_ns);
        }
        if (pass->is_first)
            from = get_later_time(from, find_gather_time(s, pass->pass.chunk));
        if ((i == 0 && !waits) || staged)
            from = get_later_time(from, r->start_ns);
        int64_t takes = r->end_ns - from - (waited_ns ? waited_ns[i] : 0);
        if (takes > 0)
            chunk[pass->pass.kind] += (double)takes;
    }
    if (iteration == 0 && o->rank == o->stage)
        record_activations(o, s);
}

/* --- end of the run --- */

/* Counts a chunk's parameters on this rank; *experts: those of experts if
 * other ranks share them than share the remaining parameters, else 0. */
static double count_parameters(const lhi_observer *o, lhi_device *device,
                               uint32_t chunk, double *experts)
{
    const lhi_device_ops *ops = device->ops;
    bool apart = lhi_has_disjoint_expert_groups(o->job->model, &o->job->grid);
    double values = 0;
    *experts = 0;
    for (uint32_t i = 0; i < ops->n_tensors(device, chunk); i++) {
        const lhi_tensor *t = ops->tensor(device, chunk, i);
        values += (double)t->n;
        *experts += apart && t->is_expert ? (double)t->n : 0;
    }
    return values;
}

/* Stores the bytes of parameters, gradients and optimizer state of the stage's
 * chunks, without the memory that sharding saves. First replica only. */
static void record_state(lhi_observer *o, lhi_device *device)
{
    const lhi_device_ops *ops = device->ops;
    const lh_exec *x = o->job->exec;
    const lh_train_model *m = o->job->model;
    uint32_t n = lhi_grid_group_size(&o->job->grid, LHI_GRID_DATA, o->stage);
    uint32_t n_shards = lhi_shard_groups_find(m, n, o->stage, 0).n_shards;
    uint32_t same =
        lhi_grid_group_size(&o->job->grid, LHI_GRID_EXPERT_DATA, o->stage);
    uint32_t n_expert_shards =
        lhi_expert_shard_groups_find(m, &o->job->grid, o->stage).n_shards;
    bool by_layer = n > 1 && m->per_layer_sharding;
    for (uint32_t c = 0; o->rank == o->stage && c < x->n_chunks; c++) {
        double bytes[LH_N_MEMORY_KINDS] = {0}, experts, *to;
        if (x->chunk_ranks[c] != o->stage)
            continue;
        double values = count_parameters(o, device, c, &experts);
        /* Elastic plans subtract the memory sharded beyond the optimizer
         * themselves. */
        lhi_sharded_tensors sharded = {0};
        if (by_layer)
            sharded = ops->sharded_tensors(device, c);
        double of = experts > 0 ? (double)sharded.expert_values : 0;
        lhi_train_predict_memory(values - experts, 0,
                                 (double)sharded.values - of, n, n_shards,
                                 by_layer, m->delayed_update, bytes);
        lhi_train_predict_memory(experts, 0, of, same, n_expert_shards,
                                 by_layer, m->delayed_update, bytes);
        to = &o->sums[get_chunk_index(o->job, STATE, c)];
        *to = sizeof(float) *
              (2 * values - (double)sharded.values - (double)sharded.gradients);
        for (uint32_t i = 0; i < LH_N_MEMORY_KINDS; i++)
            *to += bytes[i];
    }
}

/* Checks whether the boundary after chunk `chunk` joins the same two stages, in
 * either direction, as an earlier boundary; *first: that boundary. */
static bool is_repeated_boundary(const lh_exec *x, uint32_t chunk,
                                 uint32_t *first)
{
    uint32_t a = x->chunk_ranks[chunk], b = x->chunk_ranks[chunk + 1];
    for (uint32_t c = 0; c < chunk; c++) {
        uint32_t from = x->chunk_ranks[c], to = x->chunk_ranks[c + 1];
        *first = c;
        if ((from == a && to == b) || (from == b && to == a))
            return true;
    }
    return false;
}

/* Measures the link between each pair of neighbouring stages, one pair after
 * the other, without other traffic. Collective; `turn`: number for unique
 * message tags. */
static lh_status measure_stages(lhi_observer *o, lhi_net *net, uint64_t turn,
                                lh_error *err)
{
    const lh_exec *x = o->job->exec;
    const lhi_net_group all = {lhi_net_n_ranks(net), o->rank, NULL,
                               LHI_NET_NO_LINK,      NULL,    NULL};
    for (uint32_t c = 0; c + 1 < x->n_chunks; c++) {
        uint32_t a = x->chunk_ranks[c], b = x->chunk_ranks[c + 1], first;
        if (a == b || is_repeated_boundary(x, c, &first))
            continue;
        if (o->rank == a || o->rank == b) {
            double alpha, beta;
            LHI_TRY(lhi_measure_ping(net, a, b, lhi_tag(LHI_TAG_PING, turn, 0),
                                     REPEATS, &alpha, &beta, err));
            if (o->rank == a) {
                o->sums[get_chunk_index(o->job, ALPHA, c)] = alpha;
                o->sums[get_chunk_index(o->job, BETA, c)] = beta;
            }
        }
        LHI_TRY(lhi_net_barrier(
            net, &all, lhi_tag(LHI_TAG_BARRIER, turn, LHI_NET_TAGS * (c + 1)),
            NULL, err));
    }
    return LH_OK;
}

lh_status lhi_observer_finish(lhi_observer *o, lhi_net *net, lhi_device *device,
                              uint64_t turn, lh_error *err)
{
    record_state(o, device);
    if (!o->job->emulates)
        LHI_TRY(measure_stages(o, net, turn, err));
    return lhi_all_reduce_sum(net, turn, o->sums,
                              lhi_observer_count_sums(o->job), NULL, err);
}

/* --- means --- */

/* A recorded step and its duration. */
typedef struct recorded_step {
    int64_t ns;
    uint64_t iteration;
} recorded_step;

/* Compares two recorded steps by duration, for qsort(). */
static int compare_durations(const void *a, const void *b)
{
    const recorded_step *x = a, *y = b;
    return x->ns < y->ns ? -1 : x->ns > y->ns;
}

/* Selects the recorded steps whose duration lies between the quartiles,
 * without the first step, a warm-up, if there are others. Returns their
 * number. */
static uint32_t select_steps(const lh_iteration *iterations, uint64_t n,
                             recorded_step steps[MAX_STEPS])
{
    uint32_t n_steps = 0;
    uint64_t from = n > MAX_STEPS ? n - MAX_STEPS : n > 1;
    for (uint64_t i = from; i < n; i++)
        steps[n_steps++] = (recorded_step){iterations[i].ns, i};
    lhi_sort(steps, n_steps, sizeof *steps, compare_durations);
    uint32_t skipped = n_steps / 4;
    memmove(steps, steps + skipped, (n_steps - 2 * skipped) * sizeof *steps);
    return n_steps - 2 * skipped;
}

/* Counts the passes of each kind per chunk and step into `counts`; partial
 * passes count as fractions. */
static void count_passes(const lh_exec *x, double *counts)
{
    for (uint32_t r = 0; r < x->n_ranks; r++)
        for (uint32_t i = 0; i < x->ranks[r].n_passes; i++) {
            const lhi_exec_pass *pass = &x->ranks[r].passes[i];
            double *chunk = counts + (size_t)COLUMNS * pass->pass.chunk;
            chunk[pass->pass.kind] += 1.0 / pass->pass.n_parts;
            if (pass->input != LH_NONE && !pass->local_input)
                chunk[pass->pass.kind == LH_F ? F_MESSAGES : B_MESSAGES]++;
        }
}

/* Adds the mean durations per pass and message over the selected steps to *to;
 * `counts`: passes per step. */
static void add_steps(const lhi_job *job, const double *sums,
                      const recorded_step *steps, const double *counts,
                      lhi_observed_means *to)
{
    uint32_t n_chunks = job->exec->n_chunks;
    for (uint32_t i = 0; i < to->n_steps; i++) {
        const double *row =
            sums + steps[i].iteration % MAX_STEPS * count_columns(job);
        for (uint32_t c = 0; c < n_chunks; c++)
            for (uint32_t k = 0; k < COLUMNS; k++) {
                double n = counts[(size_t)COLUMNS * c + k] *
                           lhi_grid_count_copies(&job->grid) * to->n_steps;
                double *sum = k < F_MESSAGES
                                  ? &to->pass_ns[c * F_MESSAGES + k]
                                  : &to->message_ns[2 * c + (k - F_MESSAGES)];
                if (n > 0)
                    *sum += row[(size_t)COLUMNS * c + k] / n;
            }
        to->iteration_ns += (double)steps[i].ns / to->n_steps;
    }
}

/* Copies each chunk's state bytes, activation bytes and link parameters to
 * *to; boundaries that join the same two stages have the same link
 * parameters. */
static void add_chunk_values(const lhi_job *job, const double *sums,
                             lhi_observed_means *to)
{
    const lh_exec *x = job->exec;
    for (uint32_t c = 0; c < x->n_chunks; c++) {
        uint32_t like = c, first;
        if (c + 1 < x->n_chunks && is_repeated_boundary(x, c, &first))
            like = first;
        to->state_bytes[c] = sums[get_chunk_index(job, STATE, c)];
        to->activation_bytes[c] = sums[get_chunk_index(job, ACTIVATIONS, c)];
        to->alpha_ns[c] = sums[get_chunk_index(job, ALPHA, like)];
        to->beta_ns[c] = sums[get_chunk_index(job, BETA, like)];
    }
}

/* Allocates the mean times and memory of n_chunks chunks, as one block of
 * memory; NULL: out of memory. */
static lhi_observed_means *allocate_means(uint32_t n_chunks)
{
    size_t n = n_chunks;
    size_t each = F_MESSAGES + 2 + PER_CHUNK;
    lhi_observed_means *o = calloc(1, sizeof *o + each * n * sizeof(double));
    if (!o)
        return NULL;
    o->pass_ns = (double *)(o + 1);
    o->message_ns = o->pass_ns + F_MESSAGES * n;
    o->state_bytes = o->message_ns + 2 * n;
    o->activation_bytes = o->state_bytes + n;
    o->alpha_ns = o->activation_bytes + n;
    o->beta_ns = o->alpha_ns + n;
    return o;
}

lh_status lhi_observed_means_make(const lhi_job *job,
                                  const lh_iteration *iterations, uint64_t n,
                                  const double *sums, lhi_observed_means **out,
                                  lh_error *err)
{
    recorded_step steps[MAX_STEPS];
    uint32_t n_chunks = job->exec->n_chunks;
    lhi_observed_means *o = allocate_means(n_chunks);
    double *counts = calloc((size_t)COLUMNS * n_chunks, sizeof *counts);
    if (!o || !counts) {
        free(o);
        free(counts);
        return lhi_fail_nomem(err);
    }
    o->n_steps = select_steps(iterations, n, steps);
    o->has_messages = job->shared_clock && !job->emulates;
    count_passes(job->exec, counts);
    add_steps(job, sums, steps, counts, o);
    add_chunk_values(job, sums, o);
    free(counts);
    *out = o;
    return LH_OK;
}

void lhi_observed_means_free(lhi_observed_means *o)
{
    free(o);
}
