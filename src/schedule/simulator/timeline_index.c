/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/simulator/timeline_index.h"

#include "schedule/simulator/timeline.h"

#include <stdlib.h>
#include <string.h>

/* Fills in f->awaited: for each pass, the data-parallel collective that arrives
 * last among those it waits for; LH_NONE: none. */
static lh_status find_awaited(lhi_timeline_index *f, lhi_arena *mem,
                              lh_error *err)
{
    const lh_pipeline *p = f->p;
    const lh_timeline *t = f->t;
    if (p->n_dp_ops == 0)
        return LH_OK;
    size_t points = 2 * (size_t)p->n_chunks * p->n_microbatches;
    f->awaited = LHI_NEW(mem, uint32_t, points);
    if (!f->awaited)
        return lhi_fail_nomem(err);
    memset(f->awaited, 0xff, points * sizeof *f->awaited);
    for (uint32_t i = 0; i < t->n_collectives; i++) {
        const lh_collective *c = &t->collectives[i];
        if (c->op == LH_NONE || p->dp_ops[c->op].needed_by.chunk == LH_NONE)
            continue;
        const lh_dp_pass *at = &p->dp_ops[c->op].needed_by;
        uint32_t *last = &f->awaited[lhi_pass_index(
            p, at->chunk, at->microbatch, at->backward)];
        if (*last == LH_NONE || c->arrive_ns > t->collectives[*last].arrive_ns)
            *last = i;
    }
    return LH_OK;
}

/* Fills in f->before_on_dp (the previous collective on each device's
 * data-parallel link, in array order), f->gathers (each chunk's all-gather) and
 * f->awaited. */
static lh_status find_collectives(lhi_timeline_index *f, lhi_arena *mem,
                                  lh_error *err)
{
    const lh_timeline *t = f->t;
    uint32_t *last = LHI_NEW(mem, uint32_t, t->n_devices);
    f->before_on_dp = LHI_NEW(mem, uint32_t, t->n_collectives);
    f->gathers = LHI_NEW(mem, uint32_t, f->p->n_chunks);
    if (!last || !f->before_on_dp || !f->gathers)
        return lhi_fail_nomem(err);
    for (uint32_t d = 0; d < t->n_devices; d++)
        last[d] = LH_NONE;
    for (uint32_t c = 0; c < f->p->n_chunks; c++)
        f->gathers[c] = LH_NONE;
    for (uint32_t i = 0; i < t->n_collectives; i++) {
        const lh_collective *c = &t->collectives[i];
        f->before_on_dp[i] = last[c->device];
        last[c->device] = i;
        if (!c->is_reduce_scatter && c->op == LH_NONE)
            f->gathers[c->chunk] = i;
    }
    return find_awaited(f, mem, err);
}

/* Fills in f->copied (the last offload copy that each pass waits for) and
 * f->before_on_copy (the previous copy on the same device's copy stream). */
static lh_status find_copies(lhi_timeline_index *f, lhi_arena *mem,
                             lh_error *err)
{
    const lh_timeline *t = f->t;
    size_t n_passes = t->offsets[t->n_devices];
    if (t->n_copies == 0)
        return LH_OK;
    f->copied = LHI_NEW(mem, uint32_t, n_passes);
    f->before_on_copy = LHI_NEW(mem, uint32_t, t->n_copies);
    uint32_t *last = LHI_NEW(mem, uint32_t, t->n_devices);
    if (!f->copied || !f->before_on_copy || !last)
        return lhi_fail_nomem(err);
    memset(f->copied, 0xff, n_passes * sizeof *f->copied);
    memset(last, 0xff, t->n_devices * sizeof *last);
    for (uint32_t i = 0; i < t->n_copies; i++) {
        const lh_offload_copy *c = &t->copies[i];
        f->copied[t->offsets[c->device] + c->waiting_run] = i;
        f->before_on_copy[i] = last[c->device];
        last[c->device] = i;
    }
    return LH_OK;
}

/* A message or piece on a link. */
typedef struct link_use {
    int64_t depart_ns, sent_ns;
    uint64_t queue; /* transfers in it follow each other */
    uint32_t index; /* as in before_on_link */
} link_use;

/* Returns the queue of messages, or of pieces (slices of collectives), on link
 * resource r: they have one queue, or with the priority `fair` one each. */
static uint64_t get_queue(const lh_pipeline *p, uint32_t r, bool is_piece)
{
    return 2 * (uint64_t)r + (is_piece && p->dp_priority == LH_DP_FAIR);
}

/* Compares uses of links (transfers of messages or collectives) by queue, then
 * by time, for qsort(). */
static int compare_uses(const void *a, const void *b)
{
    const link_use *x = a, *y = b;
    if (x->queue != y->queue)
        return x->queue < y->queue ? -1 : 1;
    if (x->depart_ns != y->depart_ns)
        return x->depart_ns < y->depart_ns ? -1 : 1;
    if (x->sent_ns != y->sent_ns)
        return x->sent_ns < y->sent_ns ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

/* Returns the end in ns of the transfer with number `index`, which counts all
 * messages, then all pieces (slices of collectives). */
static int64_t get_sent_ns(const lh_timeline *t, uint32_t index)
{
    return index < t->n_messages ? t->messages[index].sent_ns
                                 : t->pieces[index - t->n_messages].sent_ns;
}

/* Returns the maximum number of link uses: every message has at most one, every
 * piece (collective slice) one for each link that it occupies. */
static size_t count_uses(const lhi_timeline_index *f)
{
    const lh_timeline *t = f->t;
    size_t n = t->n_messages;
    for (uint32_t i = 0; i < t->n_pieces; i++) {
        uint32_t d = t->collectives[t->pieces[i].collective].device;
        n += f->p->shared_at[d + 1] - f->p->shared_at[d];
    }
    return n;
}

/* Lists all transfers of messages and pieces (slices of collectives) on links
 * in uses[]; returns their number. */
static size_t list_uses(const lhi_timeline_index *f, link_use *uses)
{
    const lh_timeline *t = f->t;
    size_t n = 0;
    for (uint32_t i = 0; i < t->n_messages; i++)
        if (t->messages[i].resource != LH_NONE)
            uses[n++] =
                (link_use){t->messages[i].depart_ns, t->messages[i].sent_ns,
                           get_queue(f->p, t->messages[i].resource, false), i};
    for (uint32_t i = 0; i < t->n_pieces; i++) {
        const lhi_dp_piece *piece = &t->pieces[i];
        uint32_t d = t->collectives[piece->collective].device;
        for (uint32_t k = f->p->shared_at[d]; k < f->p->shared_at[d + 1]; k++)
            uses[n++] = (link_use){piece->depart_ns, piece->sent_ns,
                                   get_queue(f->p, f->p->shared[k], true),
                                   t->n_messages + i};
    }
    return n;
}

/* Fills in f->before_on_link, the previous transfer in the same queue of a
 * link, and the pieces of every collective, for a timeline with pieces (slices
 * of collectives on shared links). */
static lh_status find_pieces(lhi_timeline_index *f, lhi_arena *mem,
                             lh_error *err)
{
    const lh_timeline *t = f->t;
    link_use *uses = LHI_NEW(mem, link_use, count_uses(f));
    f->last_pieces = LHI_NEW(mem, uint32_t, t->n_collectives);
    f->piece_before = LHI_NEW(mem, uint32_t, t->n_pieces);
    if (!uses || !f->last_pieces || !f->piece_before)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < t->n_messages + t->n_pieces; i++)
        f->before_on_link[i] = LH_NONE;
    for (uint32_t i = 0; i < t->n_collectives; i++)
        f->last_pieces[i] = LH_NONE;
    for (uint32_t i = 0; i < t->n_pieces; i++) {
        uint32_t *last = &f->last_pieces[t->pieces[i].collective];
        f->piece_before[i] = *last;
        *last = i;
    }
    size_t n = list_uses(f, uses);
    if (n)
        qsort(uses, n, sizeof *uses, compare_uses);
    for (size_t i = 1; i < n; i++) {
        uint32_t *before = &f->before_on_link[uses[i].index];
        if (uses[i].queue == uses[i - 1].queue &&
            (*before == LH_NONE ||
             get_sent_ns(t, *before) < uses[i - 1].sent_ns))
            *before = uses[i - 1].index;
    }
    return LH_OK;
}

/* Fills in f->before_on_link, the previous message on the same link, for a
 * timeline without collectives on shared links. */
static lh_status find_messages(lhi_timeline_index *f, lhi_arena *mem,
                               lh_error *err)
{
    uint32_t *last = LHI_NEW(mem, uint32_t, f->t->n_resources);
    if (!last)
        return lhi_fail_nomem(err);
    for (uint32_t r = 0; r < f->t->n_resources; r++)
        last[r] = LH_NONE;
    /* Messages on one link leave it in array order. */
    for (uint32_t i = 0; i < f->t->n_messages; i++) {
        uint32_t r = f->t->messages[i].resource;
        f->before_on_link[i] = r == LH_NONE ? LH_NONE : last[r];
        if (r != LH_NONE)
            last[r] = i;
    }
    return LH_OK;
}

lh_status lhi_timeline_index_build(lhi_timeline_index *f, lhi_arena *mem,
                                   lh_error *err)
{
    size_t n = (size_t)f->p->n_chunks * f->p->n_microbatches;
    f->forward_run = LHI_NEW(mem, uint32_t, n);
    f->backward_run = LHI_NEW(mem, uint32_t, n);
    f->before_on_link =
        LHI_NEW(mem, uint32_t, (size_t)f->t->n_messages + f->t->n_pieces);
    if (!f->forward_run || !f->backward_run || !f->before_on_link)
        return lhi_fail_nomem(err);
    LHI_TRY(f->t->n_pieces ? find_pieces(f, mem, err)
                           : find_messages(f, mem, err));
    LHI_TRY(find_collectives(f, mem, err));
    LHI_TRY(find_copies(f, mem, err));
    for (uint32_t d = 0; d < f->t->n_devices; d++)
        for (uint32_t i = 0; i < lhi_timeline_count_runs(f->t, d); i++) {
            const lh_pass *pass = &lhi_timeline_get_run(f->t, d, i)->pass;
            if (pass->kind == LH_F)
                f->forward_run[lhi_timeline_get_pass_index(f, pass)] = i;
            else if (pass->kind != LH_W)
                f->backward_run[lhi_timeline_get_pass_index(f, pass)] = i;
        }
    return LH_OK;
}

void lhi_timeline_sum_passes(const lh_pipeline *pipeline, lh_timeline *timeline)
{
    const lh_pipeline *p = pipeline;
    lh_timeline *t = timeline;
    int64_t *memory = t->peak_memory;
    for (uint32_t c = 0; c < p->n_chunks; c++)
        memory[p->chunks[c].device] += p->chunks[c].mem_static;
    for (uint32_t d = 0; d < p->n_devices; d++) {
        int64_t now = memory[d];
        for (size_t i = t->offsets[d]; i < t->offsets[d + 1]; i++) {
            const lh_timeline_run *run = &t->runs[i];
            t->busy_ns += run->end_ns - run->start_ns;
            now +=
                lhi_pass_memory_change(&p->chunks[run->pass.chunk], &run->pass);
            if (now > memory[d])
                memory[d] = now;
        }
    }
}
