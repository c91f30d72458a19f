/* SPDX-License-Identifier: Apache-2.0 */
/* Heads from the operations that must precede an operation on its machine, and
 * tails as heads of the mirrored job shop. The precedence may lead through
 * other machines: the D of a microbatch on a device's second chunk precedes its
 * D on the first chunk. */
#include "schedule/solver/bound/heads.h"

#include "base/integer_math.h"
#include "schedule/solver/model/mirror.h"

#include <stdlib.h>
#include <string.h>

/* Work: insertions into a tree, and operations of a sweep, per tick. */
enum { INSERTIONS_PER_TICK = 16, OPERATIONS_PER_TICK = 64 };

/* An operation with its head when the machine's operations were sorted. */
typedef struct headed_operation {
    int64_t head;
    uint32_t op;
} headed_operation;

/* A set of operations of one machine. `time`: their total duration; `end`: the
 * end of the last one if they run in ascending order of their heads. */
typedef struct operation_set {
    int64_t time, end;
} operation_set;

/* State while heads of one job shop are raised. */
typedef struct head_raiser {
    const lhi_shop *s;
    int64_t *head;
    uint32_t *order; /* topological, of n_order operations; the others are on
                      * or behind a cycle */
    uint32_t n_order;
    /* [slot_at[op] + slot]: operations of that stream of its machine that must
     * precede it. */
    size_t *slot_at;
    uint32_t *before;
    uint32_t *count;          /* scratch: per operation */
    headed_operation *sorted; /* scratch: operations of one machine, and .. */
    uint32_t *rank;           /* .. their ranks by head */
    operation_set *tree;      /* scratch: binary tree over the ranks */
} head_raiser;

/* Allocates the state's arrays in `mem`. */
static lh_status allocate(head_raiser *h, lhi_arena *mem, lh_error *err)
{
    const lhi_shop *s = h->s;
    uint32_t most = 1, leaves = 1;
    size_t slots = 0;
    h->slot_at = LHI_NEW(mem, size_t, (size_t)s->n_ops + 1);
    if (!h->slot_at)
        return lhi_fail_nomem(err);
    for (uint32_t o = 0; o < s->n_ops; o++) {
        h->slot_at[o] = slots;
        slots += s->machines[s->streams[s->stream_of[o]].machine].n_streams;
    }
    for (uint32_t m = 0; m < s->n_machines; m++) {
        const uint32_t n = lhi_machine_count_operations(s, m);
        most = n > most ? n : most;
    }
    while (leaves < most)
        leaves *= 2;
    h->order = LHI_NEW(mem, uint32_t, s->n_ops);
    h->before = LHI_NEW(mem, uint32_t, slots);
    h->count = LHI_NEW(mem, uint32_t, s->n_ops);
    h->sorted = LHI_NEW(mem, headed_operation, most);
    h->rank = LHI_NEW(mem, uint32_t, most);
    h->tree = LHI_NEW(mem, operation_set, 2 * (size_t)leaves);
    const bool ok =
        h->order && h->before && h->count && h->sorted && h->rank && h->tree;
    return ok ? LH_OK : lhi_fail_nomem(err);
}

/* Sorts the operations topologically, along streams and arcs. */
static void sort_operations(head_raiser *h)
{
    const lhi_shop *s = h->s;
    uint32_t *pending = h->count;
    for (uint32_t o = 0; o < s->n_ops; o++) {
        pending[o] = s->pred_at[o + 1] - s->pred_at[o] +
                     (o > s->streams[s->stream_of[o]].first);
        if (pending[o] == 0)
            h->order[h->n_order++] = o;
    }
    for (uint32_t x = 0; x < h->n_order; x++) {
        const uint32_t o = h->order[x];
        const lhi_stream *t = &s->streams[s->stream_of[o]];
        if (o + 1 < t->first + t->count && --pending[o + 1] == 0)
            h->order[h->n_order++] = o + 1;
        for (uint32_t i = s->succ_at[o]; i < s->succ_at[o + 1]; i++)
            if (--pending[s->succ[i]] == 0)
                h->order[h->n_order++] = s->succ[i];
    }
}

/* Counts for every operation of the stream's machine the operations of stream
 * `stream` that must precede it, through any machines. */
static void count_predecessors(head_raiser *h, uint32_t stream)
{
    const lhi_shop *s = h->s;
    const lhi_stream *of = &s->streams[stream];
    for (uint32_t x = 0; x < h->n_order; x++) {
        const uint32_t o = h->order[x];
        const lhi_stream *t = &s->streams[s->stream_of[o]];
        uint32_t n = o > t->first ? h->count[o - 1] : 0;
        for (uint32_t i = s->pred_at[o]; i < s->pred_at[o + 1]; i++) {
            const uint32_t most = h->count[s->pred[i]];
            n = most > n ? most : n;
        }
        if (t->machine == of->machine)
            h->before[h->slot_at[o] + of->slot] = n;
        /* Counts itself for its successors. */
        h->count[o] = t == of ? o - t->first + 1 : n;
    }
}

/* Raises heads along streams and arcs. */
static void sweep(head_raiser *h)
{
    const lhi_shop *s = h->s;
    for (uint32_t x = 0; x < h->n_order; x++) {
        const uint32_t o = h->order[x];
        int64_t head = h->head[o];
        if (o > s->streams[s->stream_of[o]].first)
            head = lhi_max_int64(head, h->head[o - 1] + s->time[o - 1]);
        for (uint32_t i = s->pred_at[o]; i < s->pred_at[o + 1]; i++) {
            const uint32_t before = s->pred[i];
            head = lhi_max_int64(head, h->head[before] + s->time[before] +
                                           s->pred_lag[i]);
        }
        h->head[o] = head;
    }
}

/* Compares operations by head, then by number, for qsort(). */
static int compare_heads(const void *x, const void *y)
{
    const headed_operation *a = x, *b = y;
    if (a->head != b->head)
        return a->head < b->head ? -1 : 1;
    return (a->op > b->op) - (a->op < b->op);
}

/* Adds an operation at leaf `leaf` (its rank by head) and updates the nodes
 * above. Node i has children 2i and 2i + 1. */
static void insert(operation_set *tree, uint32_t leaf, int64_t head,
                   int64_t time)
{
    tree[leaf] = (operation_set){time, head + time};
    for (uint32_t i = leaf / 2; i > 0; i /= 2) {
        const operation_set *left = &tree[2 * i], *right = left + 1;
        tree[i].time = left->time + right->time;
        tree[i].end = lhi_max_int64(left->end + right->time, right->end);
    }
}

/* Raises the heads of stream t's operations to the earliest end of the
 * operations that must precede them on their machine. A schedule of these by
 * ascending heads ends first. Returns whether a head has changed. */
static bool raise_stream(head_raiser *h, const lhi_stream *t, uint32_t leaves)
{
    const lhi_shop *s = h->s;
    const lhi_machine *k = &s->machines[t->machine];
    const uint32_t first_op = s->streams[k->first_stream].first;
    uint32_t at[64] = {0};
    bool changed = false;
    for (uint32_t i = 1; i < 2 * leaves; i++)
        h->tree[i] = (operation_set){0, -FAR};
    for (uint32_t o = t->first; o < t->first + t->count; o++) {
        const uint32_t *before = h->before + h->slot_at[o];
        for (uint32_t i = 0; i < k->n_streams; i++)
            for (; at[i] < before[i]; at[i]++) {
                const uint32_t b =
                    s->streams[k->first_stream + i].first + at[i];
                const uint32_t rank = h->rank[b - first_op];
                insert(h->tree, leaves + rank, h->sorted[rank].head,
                       s->time[b]);
            }
        if (h->tree[1].end > h->head[o]) {
            h->head[o] = h->tree[1].end;
            changed = true;
        }
    }
    return changed;
}

/* Raises the heads of machine m's operations. Returns whether one has
 * changed. */
static bool raise_machine(head_raiser *h, uint32_t m)
{
    const lhi_shop *s = h->s;
    const lhi_machine *k = &s->machines[m];
    const uint32_t n = lhi_machine_count_operations(s, m);
    const uint32_t first_op = s->streams[k->first_stream].first;
    uint32_t leaves = 1;
    bool changed = false;
    while (leaves < n)
        leaves *= 2;
    for (uint32_t i = 0; i < n; i++)
        h->sorted[i] = (headed_operation){h->head[first_op + i], first_op + i};
    qsort(h->sorted, n, sizeof *h->sorted, compare_heads);
    for (uint32_t i = 0; i < n; i++)
        h->rank[h->sorted[i].op - first_op] = i;
    for (uint32_t i = 0; i < k->n_streams; i++)
        changed = raise_stream(h, &s->streams[k->first_stream + i], leaves) ||
                  changed;
    return changed;
}

/* Checks whether other operations of machine m may delay an operation longer
 * than precedence arcs do. */
static bool has_predecessor_sets(const lhi_shop *s, uint32_t m)
{
    const lhi_machine *k = &s->machines[m];
    return k->kind == LHI_DEVICE && k->n_streams > 1 && k->n_streams <= 64;
}

/* Spends ticks; true: the caller has to stop, at `end` of the budget at the
 * latest. */
static bool spend(lhi_budget *budget, uint64_t ticks, uint64_t end)
{
    return lhi_budget_spend(budget, ticks) || budget->used >= end;
}

/* Raises the heads in `head` until none changes, or until `end` of the budget.
 * Memory for scratch is in `mem`. */
static lh_status raise_heads(const lhi_shop *s, int64_t *head, uint64_t end,
                             lhi_budget *budget, lhi_arena *mem, lh_error *err)
{
    head_raiser h = {.s = s, .head = head};
    const uint64_t per_sweep = s->n_ops / OPERATIONS_PER_TICK + 1;
    LHI_TRY(allocate(&h, mem, err));
    sort_operations(&h);
    sweep(&h);
    if (h.n_order < s->n_ops)
        return LH_OK;
    for (uint32_t i = 0; i < s->n_streams; i++)
        if (has_predecessor_sets(s, s->streams[i].machine)) {
            count_predecessors(&h, i);
            if (spend(budget, per_sweep, end))
                return LH_OK;
        }
    for (bool changed = true; changed; sweep(&h)) {
        changed = false;
        for (uint32_t m = 0; m < s->n_machines; m++) {
            if (!has_predecessor_sets(s, m))
                continue;
            changed = raise_machine(&h, m) || changed;
            const uint64_t n = lhi_machine_count_operations(s, m);
            const uint64_t ticks =
                n * s->machines[m].n_streams / INSERTIONS_PER_TICK + 1;
            if (spend(budget, ticks, end))
                return LH_OK;
        }
    }
    return LH_OK;
}

/* Computes the tails, which are heads of the mirrored job shop; stops at `end`
 * of the budget. */
static lh_status compute_tails(const lhi_shop *s, int64_t *tail, uint64_t end,
                               lhi_budget *budget, lhi_arena *mem,
                               lh_error *err)
{
    lhi_shop *mirror;
    LHI_TRY(lhi_mirror_make(s, mem, &mirror, err));
    /* Operations outside the objective have negative tails. */
    for (uint32_t o = 0; o < s->n_ops; o++)
        mirror->head[lhi_mirror_get_operation(s, o)] = s->tail[o];
    LHI_TRY(raise_heads(mirror, mirror->head, end, budget, mem, err));
    for (uint32_t o = 0; o < s->n_ops; o++)
        tail[o] = mirror->head[lhi_mirror_get_operation(s, o)];
    return LH_OK;
}

lh_status lhi_heads_make(const lhi_shop *shop, uint64_t ticks,
                         lhi_budget *budget, lhi_arena *mem, lhi_heads *out,
                         lh_error *err)
{
    const uint64_t begin = budget->used;
    out->head = LHI_NEW(mem, int64_t, shop->n_ops);
    out->tail = LHI_NEW(mem, int64_t, shop->n_ops);
    if (!out->head || !out->tail)
        return lhi_fail_nomem(err);
    memcpy(out->head, shop->head, shop->n_ops * sizeof *out->head);
    const lhi_mark mark = lhi_arena_mark(mem);
    lh_status status =
        raise_heads(shop, out->head, begin + ticks / 2, budget, mem, err);
    if (status == LH_OK)
        status =
            compute_tails(shop, out->tail, begin + ticks, budget, mem, err);
    lhi_arena_rewind(mem, mark);
    return status;
}
