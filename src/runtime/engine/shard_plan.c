/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/shard_plan.h"

#include <inttypes.h>
#include <string.h>

enum { MAX_GRADIENT_BUFFERS = 2 }; /* one being filled, one being drained */

/* Buckets of an operation, launched in sequence. */
typedef struct buckets {
    uint32_t n, all; /* launched so far; total; n is 0 in between */
} buckets;

/* A microbatch group in one direction on one chunk. */
typedef struct block {
    uint32_t first, size, n_done;
    uint32_t room;      /* value buffer; LH_NONE: none yet */
    uint32_t gathered;  /* communications to wait for; 0: not launched */
    bool has_gather;    /* has a gather, now or later */
    buckets parts;      /* of the gather */
    uint32_t gradients; /* gradient buffer; LH_NONE */
} block;

/* State of the planner for one rank. */
typedef struct planner {
    const lh_pipeline *p;
    const lhi_exec_rank *rank;
    const lhi_sharded_tensors *sharded;
    lhi_shard_plan *out;
    uint32_t *group_of[2]; /* by microbatch; forward, backward */
    uint32_t n_groups[2];
    block *blocks[2];    /* by chunk and group */
    uint32_t *n_users;   /* per value buffer: blocks that need it */
    uint32_t *pending;   /* per chunk: gradient buffer to scatter */
    bool *is_pending;    /* per chunk: a group waits for its scatter */
    buckets *parts;      /* per chunk: buckets of its scatter */
    uint32_t *n_back;    /* per chunk: microbatches after backward */
    bool *begun, *ended; /* per chunk: gathered; finally scattered */
    bool *added;         /* per chunk: has sums of an earlier group */
    uint32_t emptied[MAX_GRADIENT_BUFFERS]; /* communications to wait for;
                                             * LH_NONE: full */
    uint32_t n_launched;
    lh_error *err;
} planner;

/* Fails with LH_EUNSUPPORTED: the shard plan (buffers of sharded parameters and
 * gradients) is impossible for chunk `chunk` at pass `pass` (n_passes: the
 * end); `what`: the reason. */
static lh_status fail_plan(const planner *l, uint32_t pass, uint32_t chunk,
                           const char *what)
{
    char text[LH_PASS_TEXT_SIZE] = "the end";
    if (pass < l->rank->n_passes)
        lh_pass_format(&l->rank->passes[pass].pass, text);
    return lhi_fail(l->err, LH_EUNSUPPORTED,
                    "chunk %" PRIu32
                    " at %s: %s; the cpu device runs the operations of elastic "
                    "plans in their order: plan again, or use the timed device",
                    chunk, text, what);
}

/* Returns the block that contains the chunk's microbatch, in the forward or
 * `backward` direction: the passes of one chunk that share one all-gather of
 * parameters, and one gradient buffer. */
static block *get_block(const planner *l, bool backward, uint32_t chunk,
                        uint32_t microbatch)
{
    uint32_t group = l->group_of[backward][microbatch];
    return &l->blocks[backward][chunk * l->n_groups[backward] + group];
}

/* Divides the microbatches into `n` groups of the given sizes and makes a block
 * (passes that share an all-gather and a gradient buffer) for each chunk and
 * group, forward or backward. */
static lh_status make_blocks(planner *l, bool backward, const uint32_t *sizes,
                             uint32_t n)
{
    lhi_arena *mem = l->out->mem;
    uint32_t chunks = l->p->n_chunks, at = 0;
    l->n_groups[backward] = n;
    l->group_of[backward] = LHI_NEW(mem, uint32_t, l->p->n_microbatches);
    l->blocks[backward] = LHI_NEW(mem, block, (size_t)chunks * n);
    if (!l->group_of[backward] || !l->blocks[backward])
        return lhi_fail_nomem(l->err);
    for (uint32_t j = 0; j < n; j++) {
        for (uint32_t c = 0; c < chunks; c++)
            l->blocks[backward][c * n + j] = (block){.first = at,
                                                     .size = sizes[j],
                                                     .room = LH_NONE,
                                                     .gradients = LH_NONE};
        for (uint32_t i = 0; i < sizes[j]; i++)
            l->group_of[backward][at++] = j;
    }
    return LH_OK;
}

/* Returns the kind of a data-parallel collective. */
static lh_dp_kind get_kind(const planner *l, const lhi_exec_data *d)
{
    if (d->op == LH_NONE)
        return d->is_scatter ? LH_DP_RSO : LH_DP_AGO;
    return l->p->dp_ops[d->op].kind;
}

/* Checks whether a collective carries the entire chunk once per iteration, not
 * a bucket (part) of it. */
static bool is_whole_chunk(const planner *l, const lhi_exec_data *d)
{
    lh_dp_kind kind = get_kind(l, d);
    return kind == LH_DP_AGO || kind == LH_DP_RSO;
}

/* Checks that the buckets (parts) of a data-parallel operation come in order 0,
 * 1, ... on the data stream; collective `k`, at pass `i`, is the next. `parts`:
 * buckets so far; *last: all have come. */
static lh_status check_bucket(const planner *l, uint32_t i, uint32_t k,
                              buckets *parts, bool *last)
{
    const lhi_exec_data *d = &l->rank->data[k];
    uint32_t bucket = 0, all = 1;
    if (d->op != LH_NONE) {
        bucket = l->p->dp_ops[d->op].bucket;
        all = l->p->dp_ops[d->op].n_buckets;
    }
    if (all > 1 && is_whole_chunk(l, d))
        return fail_plan(
            l, i, d->chunk,
            "an operation that runs once per iteration has buckets");
    if (bucket != parts->n || (bucket > 0 && all != parts->all))
        return fail_plan(
            l, i, d->chunk,
            d->is_scatter
                ? "a bucket of its gradients is missing or duplicate"
                : "a bucket of its parameters is missing or duplicate");
    *last = bucket + 1 == all;
    *parts = (buckets){*last ? 0 : bucket + 1, all};
    return LH_OK;
}

/* Finds the block (passes that share an all-gather) whose pass waits for the
 * buckets of all-gather `k`; *last: index of its last bucket's all-gather.
 * NULL: no pass waits for it. */
static block *find_target(const planner *l, uint32_t k, uint32_t *last)
{
    const lhi_exec_data *d = &l->rank->data[k];
    for (; k < l->rank->n_data; k++) {
        const lhi_exec_data *next = &l->rank->data[k];
        if (next->chunk != d->chunk || next->before == LH_NONE ||
            get_kind(l, next) != get_kind(l, d))
            continue;
        *last = k;
        const lh_pass *pass = &l->rank->passes[next->before].pass;
        return get_block(l, pass->kind != LH_F, pass->chunk, pass->microbatch);
    }
    return NULL;
}

/* Returns a parameter buffer that no microbatch block uses; adds one if all are
 * in use. */
static uint32_t take_buffer(planner *l)
{
    uint32_t i = 0;
    while (i < l->out->n_values && l->n_users[i] > 0)
        i++;
    if (i == l->out->n_values)
        l->out->n_values++;
    return i;
}

/* Counts a chunk's backward blocks without their own all-gather, which reuse
 * the parameters gathered for the first forward block. */
static uint32_t count_value_reusers(const planner *l, uint32_t chunk)
{
    uint32_t n = 0, groups = l->n_groups[true];
    for (uint32_t j = 0; j < groups; j++)
        n += !l->blocks[true][chunk * groups + j].has_gather;
    return n;
}

/* Plans all-gather `k`, launched at pass `i`: the microbatch block that uses it
 * and its buffer. */
static lh_status plan_gather(planner *l, uint32_t i, uint32_t k)
{
    const lhi_exec_data *d = &l->rank->data[k];
    uint32_t last;
    bool is_all;
    block *b = find_target(l, k, &last);
    if (!b)
        return fail_plan(l, i, d->chunk, "no pass waits for a gather");
    LHI_TRY(check_bucket(l, i, k, &b->parts, &is_all));
    if (is_whole_chunk(l, d))
        l->begun[d->chunk] = true;
    if (l->sharded[d->chunk].values == 0)
        return LH_OK;
    if (b->room == LH_NONE) {
        bool first = b == get_block(l, false, d->chunk, 0);
        b->room = take_buffer(l);
        l->n_users[b->room] =
            1 + (first ? count_value_reusers(l, d->chunk) : 0);
    }
    l->out->ops[k].buffer = b->room;
    if (is_all)
        b->gathered = k + 1;
    return LH_OK;
}

/* Plans reduce-scatter `k`, launched at pass `i`: the gradient buffer that it
 * reads and, with its last bucket, frees for later passes. LH_EUNSUPPORTED: it
 * comes too early or too late. */
static lh_status plan_scatter(planner *l, uint32_t i, uint32_t k)
{
    const lhi_exec_data *d = &l->rank->data[k];
    uint32_t c = d->chunk;
    lhi_shard_op *op = &l->out->ops[k];
    bool is_all;
    if (!l->is_pending[c])
        return fail_plan(l, i, c,
                         "gradients are scattered before they are computed");
    LHI_TRY(check_bucket(l, i, k, &l->parts[c], &is_all));
    op->buffer = l->pending[c];
    op->accumulates = l->added[c];
    if (is_whole_chunk(l, d)) {
        if (l->n_back[c] < l->p->n_microbatches)
            return fail_plan(l, i, c,
                             "the last scatter precedes the last backward");
        l->ended[c] = true;
    } else if (l->n_back[c] == l->p->n_microbatches) {
        return fail_plan(l, i, c,
                         "its last group's gradients are scattered in "
                         "parts");
    }
    if (!is_all)
        return LH_OK;
    l->added[c] = true;
    l->is_pending[c] = false;
    if (op->buffer != LH_NONE)
        l->emptied[op->buffer] = k + 1;
    return LH_OK;
}

/* Plans the buffers of all collectives that are launched up to pass `i`. */
static lh_status plan_launches(planner *l, uint32_t i)
{
    const lhi_exec_rank *rank = l->rank;
    for (; l->n_launched < rank->n_data && rank->data[l->n_launched].after <= i;
         l->n_launched++) {
        uint32_t k = l->n_launched;
        LHI_TRY(rank->data[k].is_scatter ? plan_scatter(l, i, k)
                                         : plan_gather(l, i, k));
    }
    return LH_OK;
}

/* Checks, at a block's first pass, that its parameters are all-gathered; a
 * backward block may reuse the first forward block's buffer. */
static lh_status begin_values(planner *l, uint32_t i, block *b)
{
    const lh_pass *pass = &l->rank->passes[i].pass;
    if (pass->kind == LH_F && !l->begun[pass->chunk])
        return fail_plan(l, i, pass->chunk,
                         "the updated parameters are not gathered");
    if (l->sharded[pass->chunk].values == 0)
        return LH_OK;
    if (b->room == LH_NONE && pass->kind != LH_F) {
        const block *first = get_block(l, false, pass->chunk, 0);
        b->room = first->room;
        b->gathered = first->gathered;
    }
    return b->room != LH_NONE && b->gathered > 0
               ? LH_OK
               : fail_plan(l, i, pass->chunk,
                           "its parameters are not gathered");
}

/* Chooses the gradient buffer at a block's first backward pass (a block shares
 * one): a new one or, at the limit, the one that a reduce-scatter empties
 * earliest, for which the pass then waits. */
static lh_status begin_gradients(planner *l, uint32_t i, block *b)
{
    const lh_pass *pass = &l->rank->passes[i].pass;
    lhi_shard_plan *out = l->out;
    uint32_t best = LH_NONE;
    if (l->sharded[pass->chunk].gradients == 0)
        return LH_OK;
    for (uint32_t r = 0; r < out->n_gradients; r++)
        if (l->emptied[r] != LH_NONE &&
            (best == LH_NONE || l->emptied[r] < l->emptied[best]))
            best = r;
    if (out->n_gradients < MAX_GRADIENT_BUFFERS) {
        best = out->n_gradients++;
        l->emptied[best] = 0;
    }
    if (best == LH_NONE)
        return fail_plan(l, i, pass->chunk,
                         "the gradients of two groups are not scattered yet");
    if (out->passes[i].n_required < l->emptied[best])
        out->passes[i].n_required = l->emptied[best];
    l->emptied[best] = LH_NONE;
    b->gradients = best;
    return LH_OK;
}

/* Plans pass `i`: its buffers, its microbatches, and the number of collectives
 * that it waits for. */
static lh_status plan_pass(planner *l, uint32_t i)
{
    const lhi_exec_pass *pass = &l->rank->passes[i];
    uint32_t c = pass->pass.chunk;
    bool backward = pass->pass.kind == LH_B;
    lhi_shard_pass *out = &l->out->passes[i];
    block *b = get_block(l, backward, c, pass->pass.microbatch);
    if (pass->pass.kind != LH_F && !backward)
        return fail_plan(l, i, c, "the backward is split into two passes");
    out->n_required = pass->n_required_data;
    if (b->n_done == 0) {
        LHI_TRY(begin_values(l, i, b));
        if (backward)
            LHI_TRY(begin_gradients(l, i, b));
    }
    if (out->n_required < b->gathered)
        out->n_required = b->gathered;
    out->values = b->room;
    out->gradients = b->gradients;
    out->first_microbatch = b->first;
    out->n_microbatches = b->size;
    l->n_back[c] += backward;
    if (++b->n_done < b->size)
        return LH_OK;
    if (b->room != LH_NONE)
        l->n_users[b->room]--;
    if (backward) {
        if (l->is_pending[c] && l->pending[c] != LH_NONE)
            return fail_plan(l, i, c,
                             "the gradients of the previous group are not "
                             "scattered");
        l->pending[c] = b->gradients;
        l->is_pending[c] = true;
    }
    return LH_OK;
}

/* Checks that all chunks' gradients are reduce-scattered at the end. */
static lh_status check_end(const planner *l)
{
    for (uint32_t i = 0; i < l->rank->n_passes; i++) {
        uint32_t c = l->rank->passes[i].pass.chunk;
        if (!l->ended[c])
            return fail_plan(l, l->rank->n_passes, c,
                             "its gradients are not "
                             "scattered");
    }
    return LH_OK;
}

/* Plans all passes and collectives of the rank in order. */
static lh_status plan_all(planner *l)
{
    for (uint32_t k = 0; k < l->rank->n_data; k++) {
        const lhi_exec_data *d = &l->rank->data[k];
        uint32_t last;
        block *b = d->is_scatter ? NULL : find_target(l, k, &last);
        if (d->op != LH_NONE && l->p->dp_ops[d->op].kind == LH_DP_ANY)
            return fail_plan(l, d->after, d->chunk, "an operation has no kind");
        if (b)
            b->has_gather = true;
    }
    for (uint32_t i = 0; i < l->rank->n_passes; i++) {
        LHI_TRY(plan_launches(l, i));
        LHI_TRY(plan_pass(l, i));
    }
    LHI_TRY(plan_launches(l, l->rank->n_passes));
    return check_end(l);
}

/* Allocates the planner's tables, and plans the buffers of all passes and
 * collectives of the rank. */
static lh_status plan_rank(planner *l)
{
    const lh_pipeline *p = l->p;
    lhi_shard_plan *out = l->out;
    uint32_t n = p->n_chunks;
    out->ops = LHI_NEW(out->mem, lhi_shard_op, l->rank->n_data);
    out->passes = LHI_NEW(out->mem, lhi_shard_pass, l->rank->n_passes);
    l->n_users = LHI_NEW(out->mem, uint32_t, (size_t)l->rank->n_data + 1);
    l->pending = LHI_NEW(out->mem, uint32_t, n);
    l->is_pending = LHI_NEW(out->mem, bool, n);
    l->parts = LHI_NEW(out->mem, buckets, n);
    l->n_back = LHI_NEW(out->mem, uint32_t, n);
    l->begun = LHI_NEW(out->mem, bool, n);
    l->ended = LHI_NEW(out->mem, bool, n);
    l->added = LHI_NEW(out->mem, bool, n);
    if (!out->ops || !out->passes || !l->n_users || !l->pending ||
        !l->is_pending || !l->parts || !l->n_back || !l->begun || !l->ended ||
        !l->added)
        return lhi_fail_nomem(l->err);
    for (uint32_t k = 0; k < l->rank->n_data; k++)
        out->ops[k].buffer = LH_NONE;
    if (p->n_enqueue == 0 || p->n_dequeue == 0)
        return lhi_fail(
            l->err, LH_EUNSUPPORTED,
            "the pipeline launches data-parallel operations but has no groups "
            "of microbatches: it needs data_parallel.groups");
    LHI_TRY(make_blocks(l, false, p->enqueue, p->n_enqueue));
    LHI_TRY(make_blocks(l, true, p->dequeue, p->n_dequeue));
    return plan_all(l);
}

lh_status lhi_shard_plan_make(const lh_pipeline *pipeline, const lh_exec *exec,
                              uint32_t stage,
                              const lhi_sharded_tensors *sharded,
                              lhi_shard_plan *out, lh_error *err)
{
    lhi_shard_plan made = {.mem = lhi_arena_make(0)};
    planner l = {.p = pipeline,
                 .rank = &exec->ranks[stage],
                 .sharded = sharded,
                 .out = &made,
                 .err = err};
    lh_status status = made.mem ? plan_rank(&l) : lhi_fail_nomem(err);
    if (status != LH_OK) {
        lhi_arena_free(made.mem);
        return status;
    }
    *out = made;
    return LH_OK;
}

void lhi_shard_plan_fini(lhi_shard_plan *plan)
{
    lhi_arena_free(plan->mem);
    *plan = (lhi_shard_plan){0};
}
