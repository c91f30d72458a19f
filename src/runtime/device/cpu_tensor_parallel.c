/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor parallelism (Megatron-LM, arXiv:1909.08053) with sequence parallelism
 * (arXiv:2205.05198, section 4.2.2). Forward, rows are all-gathered before a
 * column-parallel product and sums are reduce-scattered after a row-parallel
 * one; backward does the reverse: eight collectives on [t][h] per layer.
 * Gathered rows that W needs stay in their buffers, so W has no collectives.
 * Sums are in rank order.
 *
 * Without sequence parallelism (replicated rows) all ranks have the same rows
 * between products. Nothing is gathered there, sums are all-reduced, and norms
 * and routers have complete gradients. */
#include "runtime/device/cpu_tensor_parallel.h"
#include "base/fail.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Statistics on a row of logits, over one rank's part of the vocabulary. */
typedef struct logit_statistics {
    float max, sum; /* sum of exp(logit - max) */
    float right;    /* the target's logit, or 0 */
} logit_statistics;

/* Checks that `n`, a dimension of the model, is a multiple of the
 * tensor-parallel ranks; else LH_EUNSUPPORTED. */
static lh_status check_multiple(uint32_t n, const char *what, uint32_t ranks,
                                lh_error *err)
{
    if (n % ranks == 0)
        return LH_OK;
    return lhi_fail(err, LH_EUNSUPPORTED,
                    "the cpu device divides %s (%" PRIu32
                    ") evenly among tensor %" PRIu32
                    " ranks, but it is not a multiple: choose another tensor "
                    "in the job's layout",
                    what, n, ranks);
}

lh_status lhi_cpu_check_tensor_parallel(const lhi_cpu_options *o, lh_error *err)
{
    const lh_model *m = o->model;
    uint32_t n = o->n_tensor ? o->n_tensor : 1;
    if (o->tensor >= n)
        return lhi_fail(err, LH_EINVAL,
                        "tensor rank %" PRIu32 " of %" PRIu32 " does not exist",
                        o->tensor, n);
    if (n == 1)
        return LH_OK;
    LHI_TRY(check_multiple(m->heads, "heads", n, err));
    if (n % m->kv_heads != 0) /* else ranks share key and value heads */
        LHI_TRY(check_multiple(m->kv_heads, "kv_heads", n, err));
    LHI_TRY(check_multiple(m->ffn, "ffn", n, err));
    if (m->experts)
        LHI_TRY(
            check_multiple(m->shared_expert_ffn, "shared_expert_ffn", n, err));
    uint32_t contexts = o->n_contexts ? o->n_contexts : 1;
    if (m->vocab >= n && (uint64_t)o->microbatch * o->sequence / contexts >= n)
        return LH_OK;
    return lhi_fail(
        err, LH_EUNSUPPORTED,
        "a microbatch, or the vocabulary, has fewer tokens than tensor %" PRIu32
        " ranks",
        n);
}

bool lhi_cpu_make_tensor_parallel(lhi_cpu *cpu)
{
    uint32_t n = cpu->n_tensor_ranks;
    if (n == 1)
        return true;
    if (!(cpu->row_bytes = LHI_NEW(cpu->mem, size_t, n)) ||
        !(cpu->row_floats = LHI_NEW(cpu->mem, size_t, n)) ||
        !(cpu->statistic_bytes = LHI_NEW(cpu->mem, size_t, n)) ||
        !(cpu->summands = lhi_cpu_alloc_floats(cpu->mem, cpu->t, cpu->h)) ||
        !(cpu->logit_statistics =
              lhi_cpu_alloc_floats(cpu->mem, (size_t)n * cpu->t, 3)))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        size_t rows =
            lhi_slice_first(cpu->t, n, i + 1) - lhi_slice_first(cpu->t, n, i);
        cpu->row_floats[i] = rows * cpu->h;
        cpu->row_bytes[i] = cpu->row_floats[i] * sizeof(float);
        cpu->statistic_bytes[i] = cpu->t * sizeof(logit_statistics);
    }
    return true;
}

/* Checks whether there are several tensor-parallel ranks and no collective of
 * the pass has failed. */
static bool can_run_collective(const lhi_cpu *cpu)
{
    return cpu->tensor_group && cpu->collective_status == LH_OK;
}

float *lhi_cpu_own_rows(const lhi_cpu *cpu, float *all)
{
    return all + (size_t)cpu->first_row * cpu->h;
}

void lhi_cpu_gather_rows(lhi_cpu *cpu, const float *own, float *all)
{
    if (can_run_collective(cpu) && !cpu->replicates_rows)
        cpu->collective_status = lhi_group_all_gather(
            cpu->tensor_group, own, all, cpu->row_bytes, &cpu->collective_err);
}

void lhi_cpu_reduce_scatter_rows(lhi_cpu *cpu, const float *all, float *own)
{
    const size_t n = (size_t)cpu->t * cpu->h;
    if (cpu->replicates_rows && own != all)
        memcpy(own, all, n * sizeof *own);
    if (cpu->replicates_rows)
        lhi_cpu_all_reduce_values(cpu, own, n);
    else if (can_run_collective(cpu))
        cpu->collective_status = lhi_group_reduce_scatter(
            cpu->tensor_group, all, own, cpu->row_floats, &cpu->collective_err);
}

/* All-gathers x [t][h] from one share of rows per tensor-parallel rank if all
 * ranks keep all rows; does nothing otherwise. */
static void gather_row_shares(lhi_cpu *cpu, float *x)
{
    if (can_run_collective(cpu) && cpu->replicates_rows)
        cpu->collective_status = lhi_group_all_gather(
            cpu->tensor_group, x + (size_t)cpu->first_sent * cpu->h, x,
            cpu->row_bytes, &cpu->collective_err);
}

void lhi_cpu_gather_expert_outputs(lhi_cpu *cpu, float *x)
{
    if (!cpu->shards_experts)
        gather_row_shares(cpu, x);
}

void lhi_cpu_gather_choices(lhi_cpu *cpu, void *all)
{
    const size_t each = cpu->topk * sizeof(int32_t);
    if (!can_run_collective(cpu) || !lhi_cpu_distributes_routing(cpu))
        return;
    for (uint32_t i = 0; i < cpu->n_tensor_ranks; i++)
        cpu->choice_bytes[i] = cpu->row_floats[i] / cpu->h * each;
    cpu->collective_status = lhi_group_all_gather(
        cpu->tensor_group, (const char *)all + cpu->first_router_row * each,
        all, cpu->choice_bytes, &cpu->collective_err);
}

void lhi_cpu_all_reduce_values(lhi_cpu *cpu, float *values, size_t n)
{
    if (can_run_collective(cpu) && n > 0)
        cpu->collective_status = lhi_group_all_reduce(cpu->tensor_group, values,
                                                      n, &cpu->collective_err);
}

void lhi_cpu_write_message(const lhi_cpu *cpu, const float *x, float *message)
{
    memcpy(message, x + (size_t)cpu->first_sent * cpu->h,
           (size_t)cpu->n_sent * cpu->h * sizeof *x);
}

void lhi_cpu_read_message(lhi_cpu *cpu, const float *message, float *x)
{
    float *mine = x + (size_t)cpu->first_sent * cpu->h;
    memcpy(mine, message, (size_t)cpu->n_sent * cpu->h * sizeof *x);
    gather_row_shares(cpu, x);
}

/* Returns a row's loss, merged from the logit statistics (maximum, exponential
 * sum, target's logit) of all tensor-parallel ranks in `tops`. *by: factor that
 * turns this rank's exponentials into gradients times `scale`. */
static double merge_row_loss(const lhi_cpu *cpu, const logit_statistics *tops,
                             size_t row, float scale, float *by)
{
    float high = -INFINITY, right = 0;
    double all = 0;
    for (uint32_t i = 0; i < cpu->n_tensor_ranks; i++) {
        const logit_statistics *one = &tops[(size_t)i * cpu->t + row];
        high = one->max > high ? one->max : high;
    }
    for (uint32_t i = 0; i < cpu->n_tensor_ranks; i++) {
        const logit_statistics *one = &tops[(size_t)i * cpu->t + row];
        all += (double)one->sum * exp((double)one->max - (double)high);
        right += one->right;
    }
    float mine = tops[(size_t)cpu->tensor_rank * cpu->t + row].max;
    *by = (float)((double)scale * exp((double)mine - (double)high) / all);
    return log(all) + (double)high - (double)right;
}

/* Returns the target token's column in this rank's part of the vocabulary; v
 * or more: it belongs to another rank. */
static uint32_t find_local_target(const lhi_cpu *cpu, int32_t target)
{
    return (uint32_t)target - cpu->first_token;
}

double lhi_cpu_vocab_parallel_loss(lhi_cpu *cpu, float *logits,
                                   const int32_t *targets, float scale)
{
    size_t v = cpu->v, t = cpu->t;
    logit_statistics *tops = (logit_statistics *)(void *)cpu->logit_statistics,
                     *mine = tops + cpu->tensor_rank * t;
    double loss = 0;
    for (size_t row = 0; row < t; row++) {
        float inv, *at = logits + row * v;
        uint32_t target = find_local_target(cpu, targets[row]);
        mine[row].right = target < v ? at[target] : 0;
        cpu->k->softmax(at, v, 1, v, v, 1, &mine[row].max, &inv);
        mine[row].sum = 1 / inv;
    }
    if (can_run_collective(cpu))
        cpu->collective_status =
            lhi_group_all_gather(cpu->tensor_group, mine, tops,
                                 cpu->statistic_bytes, &cpu->collective_err);
    for (size_t row = 0; row < t; row++) {
        float by, *at = logits + row * v;
        loss += merge_row_loss(cpu, tops, row, scale, &by);
        if (!(scale > 0))
            continue;
        uint32_t target = find_local_target(cpu, targets[row]);
        cpu->k->scale_rows(at, v, 1, v, &by);
        if (target < v)
            at[target] -= scale;
    }
    return loss;
}

/* Number of kinds of partial gradients per layer or module: those from a rank's
 * own rows or queries. */
enum { N_PARTIAL = 15 };

/* A gradient that is cut into slices, each shared by several ranks as partial
 * sums. */
typedef struct partial_gradient {
    float *gradient; /* local slice; NULL: none */
    size_t n;
    uint32_t mine, slices;
    lhi_cpu_item_kind item; /* W item that produces it */
} partial_gradient;

/* Describes the i-th gradient that tensor-parallel ranks hold as partial sums:
 * address, size and weight-gradient item. Norms of heads and latents have the
 * sum over the rank's own heads. Keys and values follow the queries. */
static partial_gradient describe_partial(const lhi_cpu *cpu,
                                         const lhi_cpu_weights *d, uint32_t i)
{
    const size_t h = cpu->h, norm = cpu->norm_vectors * h;
    const size_t kv = (size_t)cpu->kv + cpu->values, q = cpu->q;
    const uint32_t slices = cpu->n_tensor_ranks / cpu->kv_sharers;
    const uint32_t mine = cpu->tensor_rank / cpu->kv_sharers;
    const bool shares = cpu->kv_sharers > 1;
    const bool rows = lhi_cpu_has_sequence_parallel(cpu);
    const bool routes = lhi_cpu_distributes_routing(cpu);
    const lhi_cpu_item_kind first = LHI_ITEM_QKV, second = LHI_ITEM_GATE_UP;
    const partial_gradient all[N_PARTIAL] = {
        {rows ? d->norm1 : NULL, norm, 0, 1, first},
        {rows ? d->norm2 : NULL, norm, 0, 1, second},
        {d->q_norm, cpu->kv_rank ? cpu->q_rank : cpu->head_dim, 0, 1, first},
        {d->k_norm, cpu->kv_rank ? cpu->kv_rank : cpu->head_dim, 0, 1, first},
        {d->q_down, cpu->q_rank * h, 0, 1, first},
        {d->kv_down, ((size_t)cpu->kv_rank + cpu->rope_dim) * h, 0, 1, first},
        {routes ? d->router : NULL, cpu->experts * h, 0, 1, second},
        {routes ? d->router_bias : NULL, cpu->experts, 0, 1, second},
        {rows ? d->shared_gate : NULL, h, 0, 1, second},
        {shares ? d->qkv + q * h : NULL, kv * h, mine, slices, first},
        {shares && d->qkv_bias ? d->qkv_bias + q : NULL, kv, mine, slices,
         first},
        {rows ? d->enorm : NULL, norm, 0, 1, LHI_ITEM_MTP_JOIN},
        {rows ? d->hnorm : NULL, norm, 0, 1, LHI_ITEM_MTP_JOIN},
        {rows ? d->module_norm : NULL, norm, 0, 1, LHI_ITEM_MTP_JOIN},
        {rows ? d->join : NULL, 2 * h * h, 0, 1, LHI_ITEM_MTP_JOIN}};
    return all[i];
}

bool lhi_cpu_make_partial_gradients(lhi_cpu *cpu)
{
    size_t most = 0;
    for (uint32_t i = 0; i < cpu->n_local_chunks; i++) {
        size_t n = lhi_cpu_count_partial_gradients(cpu, &cpu->local_chunks[i]);
        most = n > most ? n : most;
    }
    return cpu->n_tensor_ranks == 1 ||
           (cpu->partial_sums = lhi_cpu_alloc_floats(cpu->mem, most, 1)) !=
               NULL;
}

/* Copies a gradient that tensor-parallel ranks hold as partial sums to the
 * reduction buffer `sums`, with zeros in other ranks' slices; with `back`
 * copies the sum from there. Returns the floats used in `sums`. */
static size_t copy_partial(const partial_gradient *p, float *sums, bool back)
{
    float *at = sums + p->mine * p->n;
    if (!p->gradient)
        return 0;
    if (!back)
        memset(sums, 0, p->slices * p->n * sizeof *sums);
    memcpy(back ? p->gradient : at, back ? at : p->gradient, p->n * sizeof *at);
    return p->slices * p->n;
}

/* Copies the partial-sum gradients of `n` weight-gradient items from `first`
 * on to cpu->partial_sums, or with `back` from it. Returns the float count. */
static size_t copy_partial_gradients(const lhi_cpu *cpu,
                                     const lhi_cpu_chunk *chunk, uint32_t first,
                                     uint32_t n, bool back)
{
    size_t at = 0;
    const partial_gradient last = {
        lhi_cpu_has_sequence_parallel(cpu) ? chunk->d_norm : NULL,
        (size_t)cpu->norm_vectors * cpu->h, 0, 1, LHI_ITEM_HEAD};
    for (uint32_t k = first; k < first + n; k++) {
        const lhi_cpu_item *item = &chunk->items[k];
        if (item->kind == LHI_ITEM_HEAD)
            at += copy_partial(&last, cpu->partial_sums + at, back);
        bool in_layer =
            lhi_cpu_is_layer_item(item) || item->kind == LHI_ITEM_MTP_JOIN;
        for (uint32_t i = 0; in_layer && i < N_PARTIAL; i++) {
            partial_gradient one =
                describe_partial(cpu, &chunk->d_weights[item->layer], i);
            if (one.item == item->kind)
                at += copy_partial(&one, cpu->partial_sums + at, back);
        }
    }
    return at;
}

void lhi_cpu_reduce_partial_gradients(lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                                      uint32_t first, uint32_t n)
{
    if (!can_run_collective(cpu))
        return;
    size_t values = copy_partial_gradients(cpu, chunk, first, n, false);
    assert(values <= lhi_cpu_count_partial_gradients(cpu, chunk));
    lhi_cpu_all_reduce_values(cpu, cpu->partial_sums, values);
    copy_partial_gradients(cpu, chunk, first, n, true);
}
