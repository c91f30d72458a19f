/* SPDX-License-Identifier: Apache-2.0 */
/* Expert parallelism (GShard: arXiv:2006.16668, section 3.2): each rank has some
 * experts. A row goes to the ranks of its experts, once for each of these, and
 * what they make of it comes back; so do gradients, the other way round.
 *
 * What comes in lies rank by rank, and within that expert by expert. Each such
 * part passes its expert as it would where it came from, in a product of the
 * same shape: so results, and gradients of what goes in, are bit by bit those
 * of ranks that have all experts. Gradients of weights are sums over ranks in
 * their order, where those would add up sums over microbatches. */
#include "base/fail.h"
#include "dev/cpu.h"

#include <inttypes.h>
#include <string.h>

lh_status lhi_cpu_check_expert_ranks(const lhi_cpu_options *o, lh_error *err)
{
    uint32_t n = o->n_expert ? o->n_expert : 1, experts = o->model->experts;
    if (o->n_expert_tensor > 1 && (n > 1 || o->n_expert_tensor != o->n_tensor))
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "the cpu device cuts experts over the ranks that share "
                        "layers, all of them, where each has all experts "
                        "(expert_tensor %" PRIu32 ", tensor %" PRIu32
                        ", expert %" PRIu32 "): set expert_tensor to 1 in the "
                        "job's layout",
                        o->n_expert_tensor, o->n_tensor, n);
    if (n == 1)
        return LH_OK;
    if (o->expert >= n || experts == 0 || experts % n != 0)
        return lhi_fail(err, LH_EINVAL,
                        "%" PRIu32 " experts cannot be on %" PRIu32
                        " ranks alike, of which this is number %" PRIu32,
                        experts, n, o->expert);
    return LH_OK;
}

bool lhi_cpu_make_expert_ranks(lhi_cpu *cpu)
{
    lhi_arena *mem = cpu->mem;
    size_t n = cpu->n_expert, all = (size_t)cpu->most * cpu->most_r;
    if (n == 1)
        return true;
    return (cpu->row_counts = LHI_NEW(mem, int32_t, 2 * n *cpu->here)) &&
           (cpu->sizes = LHI_NEW(mem, size_t, 2 * n)) &&
           (cpu->incoming = lhi_cpu_floats(mem, all, cpu->h + 1)) &&
           (cpu->incoming_shares = lhi_cpu_floats(mem, all, 1));
}

static void exchange(lhi_cpu *cpu, const void *out, const size_t *gives,
                     void *in, const size_t *gets)
{
    if (cpu->met == LH_OK)
        cpu->met = lhi_group_all_to_all(cpu->expert_group, out, gives, in, gets,
                                        &cpu->met_err);
}

/* How many rows each expert here gets from each rank. */
void lhi_cpu_count_rows(lhi_cpu *cpu, lhi_cpu_kept *kept)
{
    uint32_t n = cpu->n_expert, here = cpu->here;
    if (n == 1)
        return;
    int32_t *out = cpu->row_counts, *in = out + (size_t)n * here;
    for (uint32_t e = 0; e < cpu->experts; e++)
        out[e] = kept->first[e + 1] - kept->first[e];
    for (uint32_t r = 0; r < n; r++)
        cpu->sizes[r] = here * sizeof *out;
    exchange(cpu, out, cpu->sizes, in, cpu->sizes);
    for (uint32_t i = 0; i < n * here; i++)
        kept->from[i + 1] = kept->from[i] + (cpu->met == LH_OK ? in[i] : 0);
}

/* Bytes of rows of `width` floats that go to each rank, and come from it; the
 * other way round on the way back. */
static void count_bytes(const lhi_cpu *cpu, const lhi_cpu_kept *kept,
                        size_t width)
{
    uint32_t n = cpu->n_expert, here = cpu->here;
    for (uint32_t r = 0; r < n; r++) {
        int32_t goes = kept->first[(r + 1) * here] - kept->first[r * here];
        int32_t comes = kept->from[(r + 1) * here] - kept->from[r * here];
        cpu->sizes[r] = (size_t)goes * width * sizeof(float);
        cpu->sizes[n + r] = (size_t)comes * width * sizeof(float);
    }
}

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
    gather(cpu, kept, x, cpu->h);
    if (cpu->n_expert == 1)
        return cpu->routed;
    float *in = lhi_cpu_incoming_rows(cpu, kept);
    count_bytes(cpu, kept, cpu->h);
    exchange(cpu, cpu->routed, cpu->sizes, in, cpu->sizes + cpu->n_expert);
    return in;
}

const float *lhi_cpu_rows_again(const lhi_cpu *cpu, const lhi_cpu_kept *kept,
                                const float *x)
{
    if (cpu->n_expert > 1)
        return lhi_cpu_incoming_rows(cpu, kept);
    gather(cpu, kept, x, cpu->h);
    return cpu->routed;
}

void lhi_cpu_return_rows(lhi_cpu *cpu, const lhi_cpu_kept *kept)
{
    if (cpu->n_expert == 1)
        return;
    count_bytes(cpu, kept, cpu->h);
    exchange(cpu, cpu->incoming, cpu->sizes + cpu->n_expert, cpu->routed,
             cpu->sizes);
}

float *lhi_cpu_send_gradients(lhi_cpu *cpu, lhi_cpu_kept *kept,
                              const float *d)
{
    size_t h = cpu->h, width = h + 1;
    if (cpu->n_expert == 1) {
        gather(cpu, kept, d, h);
        return cpu->routed;
    }
    gather(cpu, kept, d, width);
    for (size_t i = 0; i < (size_t)cpu->routed_r * cpu->chosen; i++)
        if (kept->place[i] >= 0)
            cpu->routed[(size_t)kept->place[i] * width + h] = kept->shares[i];
    count_bytes(cpu, kept, width);
    exchange(cpu, cpu->routed, cpu->sizes, cpu->incoming,
             cpu->sizes + cpu->n_expert);
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
    if (cpu->n_expert == 1)
        return;
    for (size_t i = 0; i < lhi_cpu_rows_here(cpu, kept); i++) {
        memcpy(cpu->incoming + i * width, cpu->routed + i * h,
               h * sizeof *cpu->routed);
        cpu->incoming[i * width + h] = worth[i];
    }
    count_bytes(cpu, kept, width);
    exchange(cpu, cpu->incoming, cpu->sizes + cpu->n_expert, cpu->routed,
             cpu->sizes);
    for (size_t i = 0; i < all; i++) {
        float share = cpu->routed[i * width + h];
        memmove(cpu->routed + i * h, cpu->routed + i * width,
                h * sizeof *cpu->routed);
        cpu->d_shares[i] = share;
    }
}
