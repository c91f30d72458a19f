/* SPDX-License-Identifier: Apache-2.0 */
/* Expert parallelism (GShard: arXiv:2006.16668, section 3.2): each rank has
 * some experts. A row goes to the ranks of its experts, once for each of these,
 * and what they make of it comes back; so do gradients, the other way round.
 *
 * Where several ranks have parts of the same experts, as Megatron-LM cuts these
 * (arXiv:2504.14960, section 3.2), each of them exchanges its own rows so with
 * the ranks that have the same parts of other experts. What comes to it then
 * goes to the others of its parts, too; what their parts make of a row is added
 * up, in the order of the parts, where it has come to, before it goes back.
 *
 * What comes in lies rank by rank, and within that expert by expert. Each such
 * part passes its expert as it would where it came from, in a product of the
 * same shape: so results, and gradients of what goes in, are bit by bit those
 * of ranks that have all experts, where these are whole. Gradients of weights
 * are sums over ranks in their order, where those would add up sums over
 * microbatches. */
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

typedef struct telling {
    lhi_cpu *cpu;
    lhi_cpu_kept *kept;
} telling;

static void exchange(lhi_cpu *cpu, lhi_group *group, const void *out,
                     const size_t *gives, void *in, const size_t *gets)
{
    if (cpu->met == LH_OK)
        cpu->met =
            lhi_group_all_to_all(group, out, gives, in, gets, &cpu->met_err);
}

/* The same of rows, behind what says how many there are. Alone it is copied. */
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

/* Among ranks that have other experts, if there are any. */
static void exchange_experts(lhi_cpu *cpu, const void *out, const size_t *gives,
                             void *in, const size_t *gets)
{
    if (cpu->n_expert > 1)
        exchange(cpu, cpu->expert_group, out, gives, in, gets);
    else if (gives[0] > 0)
        memcpy(in, out, gives[0]);
}

/* What this rank has for the others of its parts, cpu->sizes[i] bytes of the
 * i-th; `mine` may be its place in `all`. */
static void gather_parts(lhi_cpu *cpu, const void *mine, void *all)
{
    if (cpu->met == LH_OK)
        cpu->met = lhi_group_all_gather(cpu->slice_group, mine, all, cpu->sizes,
                                        &cpu->met_err);
}

/* Rows here that came with part i, or in with those before it. */
static size_t rows_before(const lhi_cpu *cpu, const lhi_cpu_kept *kept,
                          uint32_t i)
{
    return (size_t)kept->from[i * cpu->n_expert * cpu->here];
}

static size_t rows_of(const lhi_cpu *cpu, const lhi_cpu_kept *kept, uint32_t i)
{
    return rows_before(cpu, kept, i + 1) - rows_before(cpu, kept, i);
}

/* Bytes of rows of `width` floats that go to each rank that has other experts,
 * and come from it; the other way round on the way back. */
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

/* Where rows of `width` floats that come to this rank's parts are among all. */
static float *own_incoming(const lhi_cpu *cpu, const lhi_cpu_kept *kept,
                           size_t width)
{
    return cpu->incoming + rows_before(cpu, kept, cpu->slice) * width;
}

/* These go to the others that have parts of the experts, too. */
static void gather_incoming(lhi_cpu *cpu, const lhi_cpu_kept *kept,
                            size_t width)
{
    if (cpu->n_slices == 1)
        return;
    for (uint32_t i = 0; i < cpu->n_slices; i++)
        cpu->sizes[i] = rows_of(cpu, kept, i) * width * sizeof(float);
    gather_parts(cpu, own_incoming(cpu, kept, width), cpu->incoming);
}

/* Of what parts have made in cpu->incoming, of all rows here, the sums of those
 * that came to this rank: there, in their place. */
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

/* Rows come back from cpu->incoming: to cpu->routed, in the order of all
 * experts, or as cpu_nodes.h has it. */
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

/* --- rows of which nobody knows how many there are ----------------------------
 * Each rank says how many rows it has for each expert, and these go right
 * behind.
 */

/* Bytes of rows from each rank that has other experts. */
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

/* Rows of all experts, in cpu->routed, go to the ranks that have these. */
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

/* What has come to each of the ranks that have parts of the same experts goes
 * to the others, from cpu->incoming. */
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

/* Rows of x, to `in`; fills kept->from, too. */
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

/* To their experts, each with its share behind it. */
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
