/* SPDX-License-Identifier: Apache-2.0 */
/* Expert parallelism (GShard: arXiv:2006.16668, section 3.2): each rank has
 * some of the experts. A row is sent to its experts' ranks, one copy per
 * expert, and the outputs are sent back; gradients take the reverse path.
 *
 * Expert tensor parallelism: several ranks may each hold a part of the same
 * experts, as Megatron-LM splits them (arXiv:2504.14960, section 3.2). Each
 * rank exchanges its own rows with the ranks that hold the same parts of other
 * experts. Received rows are then gathered over the ranks that share these
 * experts. Partial outputs are summed in part order on the rank that received
 * the row, and then sent back.
 *
 * Received rows are ordered by rank, then by expert. Each such block is one
 * product with its expert, in the shape that it would have on the sending rank.
 * With whole experts, outputs and input gradients therefore equal, bit by bit,
 * those of ranks that have all experts. Weight gradients are sums over ranks in
 * rank order, where local experts would sum over microbatches. */
#include "base/fail.h"
#include "runtime/device/cpu_node_dispatch.h"

#include <inttypes.h>
#include <string.h>

lh_status lhi_cpu_check_expert_parallel(const lhi_cpu_options *o, lh_error *err)
{
    uint32_t n = o->n_expert ? o->n_expert : 1, experts = o->model->experts;
    uint32_t cuts = o->n_expert_tensor ? o->n_expert_tensor : 1;
    if (o->expert >= n || (n > 1 && (experts == 0 || experts % n != 0)))
        return lhi_fail(err, LH_EINVAL,
                        "%" PRIu32
                        " experts cannot be divided evenly among %" PRIu32
                        " ranks, or rank %" PRIu32 " does not exist",
                        experts, n, o->expert);
    if (o->expert_tensor >= cuts)
        return lhi_fail(err, LH_EINVAL,
                        "rank %" PRIu32 " of %" PRIu32
                        " with slices of the same experts does not exist",
                        o->expert_tensor, cuts);
    if (experts == 0 || o->model->expert_ffn % cuts == 0)
        return LH_OK;
    return lhi_fail(err, LH_EUNSUPPORTED,
                    "the cpu device divides expert_ffn (%" PRIu32
                    ") evenly among expert_tensor %" PRIu32
                    " ranks, but it is not a multiple: choose another "
                    "expert_tensor in the job's layout",
                    o->model->expert_ffn, cuts);
}

bool lhi_cpu_make_expert_parallel(lhi_cpu *cpu, const lhi_cpu_options *o)
{
    lhi_arena *mem = cpu->mem;
    size_t n = lhi_cpu_max_partners(cpu);
    size_t all = (size_t)cpu->max_choices * cpu->max_rows;
    size_t counts = (1 + (size_t)cpu->n_expert_tensor_ranks) * cpu->experts;
    if (cpu->n_source_ranks == 1)
        return true;
    return (cpu->row_counts = LHI_NEW(mem, int32_t, counts)) &&
           (cpu->exchange_sizes =
                LHI_NEW(mem, size_t, LHI_CPU_EXCHANGE_SIZES * n)) &&
           (cpu->received = lhi_cpu_alloc_floats(mem, all, cpu->h + 1)) &&
           (cpu->recv_routing_weights = lhi_cpu_alloc_floats(mem, all, 1)) &&
           lhi_cpu_make_node_dispatch(cpu, o);
}

/* ---- groups ---- */

/* Context of the callbacks that run between counts and rows. */
typedef struct exchange_context {
    lhi_cpu *cpu;
    lhi_cpu_saved_activations *kept;
} exchange_context;

/* Runs an all-to-all of the group unless an earlier collective of the pass has
 * failed: sends gives[i] bytes to rank i and receives gets[i] from it. Stores
 * the status in cpu->collective_status. */
static void exchange(lhi_cpu *cpu, lhi_group *group, const void *out,
                     const size_t *gives, void *in, const size_t *gets)
{
    if (cpu->collective_status == LH_OK)
        cpu->collective_status = lhi_group_all_to_all(
            group, out, gives, in, gets, &cpu->collective_err);
}

/* Exchanges the row counts `counts` among the group's ranks; calls known(t),
 * which computes the byte sizes in `rows` from them; then exchanges the rows.
 * Without a group (one rank) copies locally. */
static void exchange_with_counts(lhi_cpu *cpu, lhi_group *group,
                                 const lhi_group_bytes *counts,
                                 const lhi_group_bytes *rows,
                                 void (*known)(void *), exchange_context *t)
{
    if (cpu->collective_status != LH_OK)
        return;
    if (group) {
        cpu->collective_status = lhi_group_all_to_all_with_counts(
            group, counts, rows, known, t, &cpu->collective_err);
        return;
    }
    memcpy(counts->in, counts->out, counts->send_bytes[0]);
    known(t);
    if (rows->send_bytes[0] > 0)
        memcpy(rows->in, rows->out, rows->send_bytes[0]);
}

/* Exchanges data with the expert-parallel ranks: sends gives[i] bytes of `out`
 * to rank i and receives gets[i] bytes from it into `in`. A single rank copies
 * locally. */
static void exchange_experts(lhi_cpu *cpu, const void *out, const size_t *gives,
                             void *in, const size_t *gets)
{
    if (cpu->n_expert_ranks > 1)
        exchange(cpu, cpu->expert_group, out, gives, in, gets);
    else if (gives[0] > 0)
        memcpy(in, out, gives[0]);
}

/* All-gathers `mine` into `all` over the expert-tensor-parallel ranks, which
 * share this rank's experts; rank i provides exchange_sizes[i] bytes. `mine`
 * may point into `all`. */
static void gather_expert_tensor(lhi_cpu *cpu, const void *mine, void *all)
{
    if (cpu->collective_status == LH_OK)
        cpu->collective_status =
            lhi_group_all_gather(cpu->expert_tensor_group, mine, all,
                                 cpu->exchange_sizes, &cpu->collective_err);
}

/* Returns the index, among the rows for local experts, of the first row that
 * came through the i-th of the expert-tensor-parallel ranks (which share these
 * experts). */
static size_t count_rows_before(const lhi_cpu *cpu,
                                const lhi_cpu_saved_activations *kept,
                                uint32_t i)
{
    return (size_t)
        kept->recv_offsets[i * cpu->n_expert_ranks * cpu->n_local_experts];
}

/* Counts the rows for local experts that arrived through the i-th
 * expert-tensor-parallel rank. */
static size_t count_rows_from(const lhi_cpu *cpu,
                              const lhi_cpu_saved_activations *kept, uint32_t i)
{
    return count_rows_before(cpu, kept, i + 1) -
           count_rows_before(cpu, kept, i);
}

/* Computes the byte counts sent to and received from each expert-parallel rank,
 * in cpu->exchange_sizes, for rows with `width` floats. The way back uses them
 * with sent and received exchanged. */
static void count_bytes(const lhi_cpu *cpu,
                        const lhi_cpu_saved_activations *kept, size_t width)
{
    uint32_t n = cpu->n_expert_ranks, here = cpu->n_local_experts;
    const int32_t *first = kept->expert_offsets;
    const int32_t *from = lhi_cpu_own_recv_offsets(cpu, kept);
    for (uint32_t r = 0; r < n; r++) {
        int32_t goes = first[(r + 1) * here] - first[r * here];
        int32_t comes = from[(r + 1) * here] - from[r * here];
        cpu->exchange_sizes[r] = (size_t)goes * width * sizeof(float);
        cpu->exchange_sizes[n + r] = (size_t)comes * width * sizeof(float);
    }
}

/* Returns the address, in the receive buffer, of the rows with `width` floats
 * that this rank received itself. The other rows arrived through ranks that
 * share its experts. */
static float *get_own_rows(const lhi_cpu *cpu,
                           const lhi_cpu_saved_activations *kept, size_t width)
{
    return cpu->received +
           count_rows_before(cpu, kept, cpu->expert_tensor_rank) * width;
}

/* All-gathers, over the ranks that share this rank's experts, the rows with
 * `width` floats that each of them received. */
static void gather_incoming(lhi_cpu *cpu, const lhi_cpu_saved_activations *kept,
                            size_t width)
{
    if (cpu->n_expert_tensor_ranks == 1)
        return;
    for (uint32_t i = 0; i < cpu->n_expert_tensor_ranks; i++)
        cpu->exchange_sizes[i] =
            count_rows_from(cpu, kept, i) * width * sizeof(float);
    gather_expert_tensor(cpu, get_own_rows(cpu, kept, width), cpu->received);
}

/* Sums the partial expert outputs of `width` floats per row over the ranks that
 * share these experts, by a reduce-scatter. The sums of the rows that this rank
 * received replace its partial outputs in the receive buffer. */
static void reduce_partial_outputs(lhi_cpu *cpu,
                                   const lhi_cpu_saved_activations *kept,
                                   size_t width)
{
    size_t n = count_rows_from(cpu, kept, cpu->expert_tensor_rank) * width;
    size_t *gives = cpu->exchange_sizes,
           *gets = gives + cpu->n_expert_tensor_ranks;
    float *own = get_own_rows(cpu, kept, width);
    if (cpu->n_expert_tensor_ranks == 1)
        return;
    for (uint32_t i = 0; i < cpu->n_expert_tensor_ranks; i++) {
        gives[i] = count_rows_from(cpu, kept, i) * width * sizeof *own;
        gets[i] = n * sizeof *own;
    }
    exchange(cpu, cpu->expert_tensor_group, cpu->received, gives,
             cpu->dispatch_buffer, gets);
    memcpy(own, cpu->dispatch_buffer, n * sizeof *own);
    for (uint32_t i = 1; i < cpu->n_expert_tensor_ranks; i++)
        cpu->k->add(own, cpu->dispatch_buffer + i * n, n);
}

/* Returns expert outputs, or with `gradients` input gradients, to the ranks of
 * their tokens. They arrive in the dispatch buffer in expert order, or with
 * node-aware dispatch as lhi_cpu_return_rows_via_relays() defines. */
static void combine_tokens(lhi_cpu *cpu, const lhi_cpu_saved_activations *kept,
                           bool gradients)
{
    size_t width = (size_t)cpu->h + gradients;
    float *own = get_own_rows(cpu, kept, width);
    reduce_partial_outputs(cpu, kept, width);
    if (cpu->node_dispatch) {
        lhi_cpu_return_rows_via_relays(cpu, kept, own, gradients);
        return;
    }
    count_bytes(cpu, kept, width);
    exchange_experts(cpu, own, cpu->exchange_sizes + cpu->n_expert_ranks,
                     cpu->dispatch_buffer, cpu->exchange_sizes);
}

/* --- rows with counts known only to the sender ----------------------------
 * Each rank sends its row counts per expert, directly followed by the rows. */

/* Computes the bytes to receive from each expert-parallel rank from the
 * received row counts; `context`: an exchange_context. */
static void compute_recv_bytes(void *context)
{
    const lhi_cpu *cpu = ((const exchange_context *)context)->cpu;
    const int32_t *counts = lhi_cpu_row_counts(cpu, cpu->expert_tensor_rank);
    size_t *gets = cpu->exchange_sizes + 2 * cpu->n_expert_ranks;
    for (uint32_t i = 0; i < cpu->n_expert_ranks; i++) {
        size_t rows = 0;
        for (uint32_t e = 0; e < cpu->n_local_experts; e++)
            rows += (size_t)*counts++;
        gets[i] = rows * cpu->h * sizeof(float);
    }
}

/* Sends the rows in the dispatch buffer to the ranks of their experts. */
static void dispatch_rows(lhi_cpu *cpu, lhi_cpu_saved_activations *kept,
                          float *in)
{
    exchange_context t = {cpu, kept};
    uint32_t n = cpu->n_expert_ranks;
    int32_t *out = cpu->row_counts;
    size_t *count_bytes = cpu->exchange_sizes, *gives = count_bytes + n,
           *gets = gives + n;
    for (uint32_t e = 0; e < cpu->experts; e++)
        out[e] = kept->expert_offsets[e + 1] - kept->expert_offsets[e];
    for (uint32_t i = 0; i < n; i++) {
        count_bytes[i] = cpu->n_local_experts * sizeof *out;
        gives[i] =
            (size_t)(kept->expert_offsets[(i + 1) * cpu->n_local_experts] -
                     kept->expert_offsets[i * cpu->n_local_experts]) *
            cpu->h * sizeof *in;
    }
    const lhi_group_bytes counts = {
        out, count_bytes, false,
        lhi_cpu_row_counts(cpu, cpu->expert_tensor_rank), count_bytes};
    const lhi_group_bytes rows = {cpu->dispatch_buffer, gives, false, in, gets};
    exchange_with_counts(cpu, cpu->expert_group, &counts, &rows,
                         compute_recv_bytes, &t);
}

/* Computes the offsets of all received rows by source rank and local expert
 * from the row counts; `context`: an exchange_context. */
static void compute_recv_offsets(void *context)
{
    const lhi_cpu *cpu = ((const exchange_context *)context)->cpu;
    lhi_cpu_saved_activations *kept = ((const exchange_context *)context)->kept;
    const int32_t *counts = lhi_cpu_row_counts(cpu, 0);
    size_t *gets = cpu->exchange_sizes + cpu->n_expert_tensor_ranks;
    for (uint32_t i = 0; i < cpu->n_source_ranks * cpu->n_local_experts; i++)
        kept->recv_offsets[i + 1] = kept->recv_offsets[i] + counts[i];
    for (uint32_t i = 0; i < cpu->n_expert_tensor_ranks; i++)
        gets[i] = count_rows_from(cpu, kept, i) * cpu->h * sizeof(float);
}

/* All-gathers row counts and then rows over the ranks that share this rank's
 * experts. The rows of all these ranks arrive in `in`. */
static void gather_received_rows(lhi_cpu *cpu, lhi_cpu_saved_activations *kept,
                                 float *in)
{
    exchange_context t = {cpu, kept};
    size_t *count_bytes = cpu->exchange_sizes,
           *gets = count_bytes + cpu->n_expert_tensor_ranks;
    size_t mine = 0;
    const int32_t *own = lhi_cpu_row_counts(cpu, cpu->expert_tensor_rank);
    for (uint32_t e = 0; e < cpu->experts; e++)
        mine += (size_t)own[e];
    mine *= cpu->h * sizeof *in;
    for (uint32_t i = 0; i < cpu->n_expert_tensor_ranks; i++)
        count_bytes[i] = cpu->experts * sizeof *own;
    memcpy(cpu->row_counts, own, count_bytes[0]);
    const lhi_group_bytes counts = {cpu->row_counts, count_bytes, true,
                                    lhi_cpu_row_counts(cpu, 0), count_bytes};
    const lhi_group_bytes rows = {cpu->received, &mine, true, in, gets};
    exchange_with_counts(cpu, cpu->expert_tensor_group, &counts, &rows,
                         compute_recv_offsets, &t);
}

/* Sends the rows of x to the ranks of their experts, counts first. The rows
 * received here are then in `in`, and their offsets in kept->recv_offsets. */
static void send_rows_with_counts(lhi_cpu *cpu, lhi_cpu_saved_activations *kept,
                                  const float *x, float *in)
{
    bool cut = cpu->n_expert_tensor_ranks > 1;
    float *own = cut ? cpu->received : in;
    if (cpu->node_dispatch)
        lhi_cpu_send_rows_via_relays(cpu, kept, x, false, own,
                                     cut ? in : cpu->received);
    else
        dispatch_rows(cpu, kept, own);
    if (cpu->collective_status == LH_OK && cut)
        gather_received_rows(cpu, kept, in);
    else if (cpu->collective_status == LH_OK)
        compute_recv_offsets(&(exchange_context){cpu, kept});
    if (cpu->collective_status != LH_OK)
        memset(kept->recv_offsets, 0,
               (cpu->n_source_ranks * cpu->n_local_experts + 1) *
                   sizeof *kept->recv_offsets);
}

/* ---- rows ---- */

/* Copies the rows of x to the dispatch buffer in the order of their chosen
 * experts; rows in the buffer are `stride` floats apart. */
static void gather(const lhi_cpu *cpu, const lhi_cpu_saved_activations *kept,
                   const float *x, size_t stride)
{
    size_t h = cpu->h, all = (size_t)kept->expert_offsets[cpu->experts];
    for (size_t i = 0; i < all; i++)
        memcpy(cpu->dispatch_buffer + i * stride,
               x + (size_t)kept->source_rows[i] * h, h * sizeof *x);
}

const float *lhi_cpu_send_rows(lhi_cpu *cpu, lhi_cpu_saved_activations *kept,
                               const float *x)
{
    if (!cpu->node_dispatch)
        gather(cpu, kept, x, cpu->h);
    if (cpu->n_source_ranks == 1)
        return cpu->dispatch_buffer;
    float *in = lhi_cpu_received_rows(cpu, kept);
    send_rows_with_counts(cpu, kept, x, in);
    return in;
}

const float *lhi_cpu_resent_rows(const lhi_cpu *cpu,
                                 const lhi_cpu_saved_activations *kept,
                                 const float *x)
{
    if (cpu->n_source_ranks > 1)
        return lhi_cpu_received_rows(cpu, kept);
    gather(cpu, kept, x, cpu->h);
    return cpu->dispatch_buffer;
}

void lhi_cpu_return_rows(lhi_cpu *cpu, const lhi_cpu_saved_activations *kept)
{
    if (cpu->n_source_ranks > 1)
        combine_tokens(cpu, kept, false);
}

/* Sends the output gradients d to the ranks of their experts, each row
 * followed by its routing weight. */
static void send_weighted_gradients(lhi_cpu *cpu,
                                    lhi_cpu_saved_activations *kept,
                                    const float *d)
{
    size_t h = cpu->h, width = h + 1;
    float *own = get_own_rows(cpu, kept, width);
    if (cpu->node_dispatch) {
        lhi_cpu_send_rows_via_relays(cpu, kept, d, true, own,
                                     cpu->dispatch_buffer);
        return;
    }
    gather(cpu, kept, d, width);
    for (size_t i = 0; i < (size_t)cpu->dispatched_rows * cpu->topk; i++)
        if (kept->expert_rows[i] >= 0)
            cpu->dispatch_buffer[(size_t)kept->expert_rows[i] * width + h] =
                kept->routing_weights[i];
    count_bytes(cpu, kept, width);
    exchange_experts(cpu, cpu->dispatch_buffer, cpu->exchange_sizes, own,
                     cpu->exchange_sizes + cpu->n_expert_ranks);
}

float *lhi_cpu_send_gradients(lhi_cpu *cpu, lhi_cpu_saved_activations *kept,
                              const float *d)
{
    size_t h = cpu->h, width = h + 1;
    if (cpu->n_source_ranks == 1) {
        gather(cpu, kept, d, h);
        return cpu->dispatch_buffer;
    }
    send_weighted_gradients(cpu, kept, d);
    gather_incoming(cpu, kept, width);
    float *in = lhi_cpu_received_gradients(cpu, kept);
    for (size_t i = 0; i < lhi_cpu_count_local_rows(cpu, kept); i++) {
        memcpy(in + i * h, cpu->received + i * width, h * sizeof *in);
        cpu->recv_routing_weights[i] = cpu->received[i * width + h];
    }
    return in;
}

void lhi_cpu_return_gradients(lhi_cpu *cpu,
                              const lhi_cpu_saved_activations *kept,
                              const float *worth)
{
    size_t h = cpu->h, width = h + 1,
           all = (size_t)kept->expert_offsets[cpu->experts];
    if (cpu->n_source_ranks == 1)
        return;
    for (size_t i = 0; i < lhi_cpu_count_local_rows(cpu, kept); i++) {
        memcpy(cpu->received + i * width, cpu->dispatch_buffer + i * h,
               h * sizeof *cpu->dispatch_buffer);
        cpu->received[i * width + h] = worth[i];
    }
    combine_tokens(cpu, kept, true);
    for (size_t i = 0; !cpu->node_dispatch && i < all; i++) {
        float share = cpu->dispatch_buffer[i * width + h];
        memmove(cpu->dispatch_buffer + i * h, cpu->dispatch_buffer + i * width,
                h * sizeof *cpu->dispatch_buffer);
        cpu->d_routing_weights[i] = share;
    }
}
