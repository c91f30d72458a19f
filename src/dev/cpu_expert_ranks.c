/* SPDX-License-Identifier: Apache-2.0 */
/* Expert parallelism (GShard: arXiv:2006.16668, section 3.2): each rank has
 * some of the experts. A row is sent to the ranks of its experts, one copy per
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
#include "dev/cpu_nodes.h"

#include <inttypes.h>
#include <string.h>

lh_status lhi_cpu_check_expert_ranks(const lhi_cpu_options *o, lh_error *err)
{
    uint32_t n = o->n_expert ? o->n_expert : 1, experts = o->model->experts;
    uint32_t cuts = o->n_expert_tensor ? o->n_expert_tensor : 1;
    if (o->expert >= n || (n > 1 && (experts == 0 || experts % n != 0)))
        return lhi_fail(err, LH_EINVAL,
                        "%" PRIu32 " experts cannot be on %" PRIu32
                        " ranks alike, of which this is number %" PRIu32,
                        experts, n, o->expert);
    if (o->expert_tensor >= cuts)
        return lhi_fail(err, LH_EINVAL,
                        "rank %" PRIu32 " is none of %" PRIu32
                        " that have parts of the same experts",
                        o->expert_tensor, cuts);
    if (experts == 0 || o->model->expert_ffn % cuts == 0)
        return LH_OK;
    return lhi_fail(err, LH_EUNSUPPORTED,
                    "the cpu device cuts expert_ffn (%" PRIu32 ") among "
                    "expert_tensor %" PRIu32 " ranks alike, and it is no "
                    "multiple: choose another expert_tensor in the job's "
                    "layout",
                    o->model->expert_ffn, cuts);
}

bool lhi_cpu_make_expert_ranks(lhi_cpu *cpu, const lhi_cpu_options *o)
{
    lhi_arena *mem = cpu->mem;
    size_t n = lhi_cpu_most_partners(cpu);
    size_t all = (size_t)cpu->most * cpu->most_r;
    size_t counts = (1 + (size_t)cpu->n_slices) * cpu->experts;
    if (cpu->n_from == 1)
        return true;
    return (cpu->row_counts = LHI_NEW(mem, int32_t, counts)) &&
           (cpu->sizes = LHI_NEW(mem, size_t, LHI_PARTNER_SIZES * n)) &&
           (cpu->incoming = lhi_cpu_floats(mem, all, cpu->h + 1)) &&
           (cpu->incoming_shares = lhi_cpu_floats(mem, all, 1)) &&
           lhi_cpu_make_nodes(cpu, o);
}

/* --- groups ----------------------------------------------------------------
 */

/* Context of the callbacks that run between counts and rows. */
typedef struct telling {
    lhi_cpu *cpu;
    lhi_cpu_kept *kept;
} telling;

/* Runs an all-to-all unless an earlier collective has failed. */
static void exchange(lhi_cpu *cpu, lhi_group *group, const void *out,
                     const size_t *gives, void *in, const size_t *gets)
{
    if (cpu->met == LH_OK)
        cpu->met =
            lhi_group_all_to_all(group, out, gives, in, gets, &cpu->met_err);
}

/* Exchanges rows together with the counts that announce them; `known` runs
 * between the two. A single rank copies locally. */
static void exchange_told(lhi_cpu *cpu, lhi_group *group,
                          const lhi_group_bytes *told,
                          const lhi_group_bytes *rows, void (*known)(void *),
                          telling *t)
{
    if (cpu->met != LH_OK)
        return;
    if (group) {
        cpu->met = lhi_group_all_to_all_told(group, told, rows, known, t,
                                             &cpu->met_err);
        return;
    }
    memcpy(told->in, told->out, told->gives[0]);
    known(t);
    if (rows->gives[0] > 0)
        memcpy(rows->in, rows->out, rows->gives[0]);
}

/* Exchanges data among the expert-parallel ranks; a single rank copies locally.
 */
static void exchange_experts(lhi_cpu *cpu, const void *out, const size_t *gives,
                             void *in, const size_t *gets)
{
    if (cpu->n_expert > 1)
        exchange(cpu, cpu->expert_group, out, gives, in, gets);
    else if (gives[0] > 0)
        memcpy(in, out, gives[0]);
}

/* All-gathers over the ranks that share this rank's experts, with the i-th
 * rank's byte count in the i-th exchange size. `mine` may point into `all`. */
static void gather_parts(lhi_cpu *cpu, const void *mine, void *all)
{
    if (cpu->met == LH_OK)
        cpu->met = lhi_group_all_gather(cpu->slice_group, mine, all, cpu->sizes,
                                        &cpu->met_err);
}

/* Counts the local rows that arrived through expert-tensor ranks before the
 * i-th. */
static size_t rows_before(const lhi_cpu *cpu, const lhi_cpu_kept *kept,
                          uint32_t i)
{
    return (size_t)kept->from[i * cpu->n_expert * cpu->here];
}

/* Counts the local rows that arrived through the i-th expert-tensor rank. */
static size_t rows_of(const lhi_cpu *cpu, const lhi_cpu_kept *kept, uint32_t i)
{
    return rows_before(cpu, kept, i + 1) - rows_before(cpu, kept, i);
}

/* Computes the bytes of rows of `width` floats sent to and received from each
 * expert-parallel rank. The return path swaps the two. */
static void count_bytes(const lhi_cpu *cpu, const lhi_cpu_kept *kept,
                        size_t width)
{
    uint32_t n = cpu->n_expert, here = cpu->here;
    const int32_t *first = kept->first;
    const int32_t *from = lhi_cpu_own_from(cpu, kept);
    for (uint32_t r = 0; r < n; r++) {
        int32_t goes = first[(r + 1) * here] - first[r * here];
        int32_t comes = from[(r + 1) * here] - from[r * here];
        cpu->sizes[r] = (size_t)goes * width * sizeof(float);
        cpu->sizes[n + r] = (size_t)comes * width * sizeof(float);
    }
}

/* Returns the address of the rows, of `width` floats, that this rank received
 * itself. */
static float *own_incoming(const lhi_cpu *cpu, const lhi_cpu_kept *kept,
                           size_t width)
{
    return cpu->incoming + rows_before(cpu, kept, cpu->slice) * width;
}

/* Gathers the received rows over the ranks that share these experts. */
static void gather_incoming(lhi_cpu *cpu, const lhi_cpu_kept *kept,
                            size_t width)
{
    if (cpu->n_slices == 1)
        return;
    for (uint32_t i = 0; i < cpu->n_slices; i++)
        cpu->sizes[i] = rows_of(cpu, kept, i) * width * sizeof(float);
    gather_parts(cpu, own_incoming(cpu, kept, width), cpu->incoming);
}

/* Sums the partial outputs of the rows that this rank received, over the ranks
 * that share these experts. The result replaces the partial outputs in the
 * receive buffer. */
static void add_parts(lhi_cpu *cpu, const lhi_cpu_kept *kept, size_t width)
{
    size_t n = rows_of(cpu, kept, cpu->slice) * width;
    size_t *gives = cpu->sizes, *gets = gives + cpu->n_slices;
    float *own = own_incoming(cpu, kept, width);
    if (cpu->n_slices == 1)
        return;
    for (uint32_t i = 0; i < cpu->n_slices; i++) {
        gives[i] = rows_of(cpu, kept, i) * width * sizeof *own;
        gets[i] = n * sizeof *own;
    }
    exchange(cpu, cpu->slice_group, cpu->incoming, gives, cpu->routed, gets);
    memcpy(own, cpu->routed, n * sizeof *own);
    for (uint32_t i = 1; i < cpu->n_slices; i++)
        cpu->k->add(own, cpu->routed + i * n, n);
}

/* Combines tokens: returns outputs to the source ranks. Results go to the
 * dispatch buffer in expert order, or as cpu_node_dispatch.h defines. */
static void come_back(lhi_cpu *cpu, const lhi_cpu_kept *kept, bool gradients)
{
    size_t width = (size_t)cpu->h + gradients;
    float *own = own_incoming(cpu, kept, width);
    add_parts(cpu, kept, width);
    if (cpu->nodes) {
        lhi_cpu_return_by_nodes(cpu, kept, own, gradients);
        return;
    }
    count_bytes(cpu, kept, width);
    exchange_experts(cpu, own, cpu->sizes + cpu->n_expert, cpu->routed,
                     cpu->sizes);
}

/* --- rows with counts known only to the sender ----------------------------
 * Each rank sends its row counts per expert, directly followed by the rows. */

/* Computes the bytes to receive from each expert-parallel rank. */
static void size_rows(void *context)
{
    const lhi_cpu *cpu = ((const telling *)context)->cpu;
    const int32_t *counts = lhi_cpu_counts_of(cpu, cpu->slice);
    size_t *gets = cpu->sizes + 2 * cpu->n_expert;
    for (uint32_t i = 0; i < cpu->n_expert; i++) {
        size_t rows = 0;
        for (uint32_t e = 0; e < cpu->here; e++)
            rows += (size_t)*counts++;
        gets[i] = rows * cpu->h * sizeof(float);
    }
}

/* Sends the rows in the dispatch buffer to the ranks of their experts. */
static void spread_told(lhi_cpu *cpu, lhi_cpu_kept *kept, float *in)
{
    telling t = {cpu, kept};
    uint32_t n = cpu->n_expert;
    int32_t *out = cpu->row_counts;
    size_t *told = cpu->sizes, *gives = told + n, *gets = gives + n;
    for (uint32_t e = 0; e < cpu->experts; e++)
        out[e] = kept->first[e + 1] - kept->first[e];
    for (uint32_t i = 0; i < n; i++) {
        told[i] = cpu->here * sizeof *out;
        gives[i] = (size_t)(kept->first[(i + 1) * cpu->here] -
                            kept->first[i * cpu->here]) *
                   cpu->h * sizeof *in;
    }
    const lhi_group_bytes counts = {out, told, false,
                                    lhi_cpu_counts_of(cpu, cpu->slice), told};
    const lhi_group_bytes rows = {cpu->routed, gives, false, in, gets};
    exchange_told(cpu, cpu->expert_group, &counts, &rows, size_rows, &t);
}

/* Computes the offsets of all received rows from the counts. */
static void find_rows(void *context)
{
    const lhi_cpu *cpu = ((const telling *)context)->cpu;
    lhi_cpu_kept *kept = ((const telling *)context)->kept;
    const int32_t *counts = lhi_cpu_counts_of(cpu, 0);
    size_t *gets = cpu->sizes + cpu->n_slices;
    for (uint32_t i = 0; i < cpu->n_from * cpu->here; i++)
        kept->from[i + 1] = kept->from[i] + counts[i];
    for (uint32_t i = 0; i < cpu->n_slices; i++)
        gets[i] = rows_of(cpu, kept, i) * cpu->h * sizeof(float);
}

/* All-gathers the received rows over the ranks that share these experts. */
static void gather_told(lhi_cpu *cpu, lhi_cpu_kept *kept, float *in)
{
    telling t = {cpu, kept};
    size_t *told = cpu->sizes, *gets = told + cpu->n_slices;
    size_t mine = 0;
    const int32_t *own = lhi_cpu_counts_of(cpu, cpu->slice);
    for (uint32_t e = 0; e < cpu->experts; e++)
        mine += (size_t)own[e];
    mine *= cpu->h * sizeof *in;
    for (uint32_t i = 0; i < cpu->n_slices; i++)
        told[i] = cpu->experts * sizeof *own;
    memcpy(cpu->row_counts, own, told[0]);
    const lhi_group_bytes counts = {cpu->row_counts, told, true,
                                    lhi_cpu_counts_of(cpu, 0), told};
    const lhi_group_bytes rows = {cpu->incoming, &mine, true, in, gets};
    exchange_told(cpu, cpu->slice_group, &counts, &rows, find_rows, &t);
}

/* Sends the rows of x to their experts; received rows are in `in` and their
 * offsets in recv_offsets. */
static void send_told(lhi_cpu *cpu, lhi_cpu_kept *kept, const float *x,
                      float *in)
{
    bool cut = cpu->n_slices > 1;
    float *own = cut ? cpu->incoming : in;
    if (cpu->nodes)
        lhi_cpu_send_by_nodes(cpu, kept, x, false, own,
                              cut ? in : cpu->incoming);
    else
        spread_told(cpu, kept, own);
    if (cpu->met == LH_OK && cut)
        gather_told(cpu, kept, in);
    else if (cpu->met == LH_OK)
        find_rows(&(telling){cpu, kept});
    if (cpu->met != LH_OK)
        memset(kept->from, 0,
               (cpu->n_from * cpu->here + 1) * sizeof *kept->from);
}

/* --- rows --------------------------------------------------------------------
 */

/* Copies rows to the dispatch buffer in expert order. */
static void gather(const lhi_cpu *cpu, const lhi_cpu_kept *kept, const float *x,
                   size_t stride)
{
    size_t h = cpu->h, all = (size_t)kept->first[cpu->experts];
    for (size_t i = 0; i < all; i++)
        memcpy(cpu->routed + i * stride, x + (size_t)kept->source[i] * h,
               h * sizeof *x);
}

const float *lhi_cpu_send_rows(lhi_cpu *cpu, lhi_cpu_kept *kept, const float *x)
{
    if (!cpu->nodes)
        gather(cpu, kept, x, cpu->h);
    if (cpu->n_from == 1)
        return cpu->routed;
    float *in = lhi_cpu_incoming_rows(cpu, kept);
    send_told(cpu, kept, x, in);
    return in;
}

const float *lhi_cpu_rows_again(const lhi_cpu *cpu, const lhi_cpu_kept *kept,
                                const float *x)
{
    if (cpu->n_from > 1)
        return lhi_cpu_incoming_rows(cpu, kept);
    gather(cpu, kept, x, cpu->h);
    return cpu->routed;
}

void lhi_cpu_return_rows(lhi_cpu *cpu, const lhi_cpu_kept *kept)
{
    if (cpu->n_from > 1)
        come_back(cpu, kept, false);
}

/* Sends gradient rows to their experts, each followed by its routing weight. */
static void send_with_shares(lhi_cpu *cpu, lhi_cpu_kept *kept, const float *d)
{
    size_t h = cpu->h, width = h + 1;
    float *own = own_incoming(cpu, kept, width);
    if (cpu->nodes) {
        lhi_cpu_send_by_nodes(cpu, kept, d, true, own, cpu->routed);
        return;
    }
    gather(cpu, kept, d, width);
    for (size_t i = 0; i < (size_t)cpu->routed_r * cpu->chosen; i++)
        if (kept->place[i] >= 0)
            cpu->routed[(size_t)kept->place[i] * width + h] = kept->shares[i];
    count_bytes(cpu, kept, width);
    exchange_experts(cpu, cpu->routed, cpu->sizes, own,
                     cpu->sizes + cpu->n_expert);
}

float *lhi_cpu_send_gradients(lhi_cpu *cpu, lhi_cpu_kept *kept, const float *d)
{
    size_t h = cpu->h, width = h + 1;
    if (cpu->n_from == 1) {
        gather(cpu, kept, d, h);
        return cpu->routed;
    }
    send_with_shares(cpu, kept, d);
    gather_incoming(cpu, kept, width);
    float *in = lhi_cpu_incoming_gradients(cpu, kept);
    for (size_t i = 0; i < lhi_cpu_rows_here(cpu, kept); i++) {
        memcpy(in + i * h, cpu->incoming + i * width, h * sizeof *in);
        cpu->incoming_shares[i] = cpu->incoming[i * width + h];
    }
    return in;
}

void lhi_cpu_return_gradients(lhi_cpu *cpu, const lhi_cpu_kept *kept,
                              const float *worth)
{
    size_t h = cpu->h, width = h + 1, all = (size_t)kept->first[cpu->experts];
    if (cpu->n_from == 1)
        return;
    for (size_t i = 0; i < lhi_cpu_rows_here(cpu, kept); i++) {
        memcpy(cpu->incoming + i * width, cpu->routed + i * h,
               h * sizeof *cpu->routed);
        cpu->incoming[i * width + h] = worth[i];
    }
    come_back(cpu, kept, true);
    for (size_t i = 0; !cpu->nodes && i < all; i++) {
        float share = cpu->routed[i * width + h];
        memmove(cpu->routed + i * h, cpu->routed + i * width,
                h * sizeof *cpu->routed);
        cpu->d_shares[i] = share;
    }
}
