/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/solver/search/search_internal.h"

#include "schedule/pipeline/pipeline_internal.h"

#include <stdlib.h>
#include <string.h>

/* Assigns a Boolean variable to every pair of operations on a machine whose
 * order is open. */
static lh_status number_pairs(lhi_search *s, lh_error *err)
{
    const lhi_shop *shop = s->s;
    const uint64_t n =
        lhi_search_count_open_pairs(shop, s->slot_at, s->before, s->after) + 1;
    if (n > UINT32_MAX / 4)
        return lhi_fail(err, LH_EUNSUPPORTED, "too many pairs of passes");
    s->n_vars = 1;
    s->var_a = LHI_NEW(s->mem, uint32_t, n);
    s->var_b = LHI_NEW(s->mem, uint32_t, n);
    if (!s->var_a || !s->var_b)
        return lhi_fail_nomem(err);
    for (uint32_t o = 0; o < shop->n_ops; o++) {
        const lhi_stream *t = lhi_search_get_stream(s, o);
        const lhi_machine *m = &shop->machines[t->machine];
        for (uint32_t i = t->slot + 1; i < m->n_streams && m->leader == NONE;
             i++) {
            const size_t at = s->slot_at[o] + i;
            s->pairs[at] = (open_pairs){s->before[at], s->after[at], s->n_vars};
            for (uint32_t x = s->before[at]; x < s->after[at]; x++) {
                s->var_a[s->n_vars] = o;
                s->var_b[s->n_vars++] =
                    shop->streams[m->first_stream + i].first + x;
            }
        }
    }
    return LH_OK;
}

/* Stores, for each operation on a machine that follows another machine's order,
 * the pass whose place in that order determines the operation's own. */
static void find_producers(lhi_search *s)
{
    const lhi_shop *shop = s->s;
    memset(s->producer, 0xff, shop->n_ops * sizeof *s->producer);
    for (uint32_t i = 0; i < shop->n_streams; i++) {
        const lhi_stream *t = &shop->streams[i];
        const lhi_stream *f = &shop->streams[shop->f[t->chunk]];
        const lhi_stream *d = &shop->streams[shop->d[t->chunk]];
        const lhi_stream *w =
            shop->p->joint ? d : &shop->streams[shop->w[t->chunk]];
        if (shop->machines[t->machine].leader == NONE)
            continue;
        for (uint32_t x = 0; x < t->count; x++)
            s->producer[t->first + x] =
                t->kind == LHI_GATHER      ? f->first
                : t->kind == LHI_SCATTER   ? w->first + w->count - 1
                : t->kind == LHI_MESSAGE_F ? f->first + x
                                           : d->first + x;
    }
}

/* Allocates the values and the history (steps for undoing) of all heads
 * (earliest starts) or all tails (times that must follow). */
static lh_status make_history(lhi_search *s, history *h, lh_error *err)
{
    size_t n = s->s->n_ops;
    h->now = LHI_NEW(s->mem, int64_t, n);
    h->root = LHI_NEW(s->mem, int64_t, n);
    h->last = LHI_NEW(s->mem, uint32_t, n);
    h->queue = LHI_NEW(s->mem, uint32_t, n);
    h->queued = LHI_NEW(s->mem, bool, n);
    if (!h->now || !h->root || !h->last || !h->queue || !h->queued)
        return lhi_fail_nomem(err);
    memset(h->last, 0xff, n * sizeof *h->last);
    return LH_OK;
}

/* Allocates the search's arrays per operation, and the histories of heads
 * (earliest starts) and tails (times that must follow). */
static lh_status allocate_ops(lhi_search *s, const lhi_windows *w,
                              lh_error *err)
{
    const lhi_shop *shop = s->s;
    const size_t n = shop->n_ops, slots = w->slot_at[n];
    s->slot_at = w->slot_at;
    s->pairs = LHI_NEW(s->mem, open_pairs, slots);
    s->before = LHI_NEW(s->mem, uint32_t, slots);
    s->after = LHI_NEW(s->mem, uint32_t, slots);
    s->producer = LHI_NEW(s->mem, uint32_t, n);
    s->memory_sum = LHI_NEW(s->mem, int64_t, n + shop->n_streams);
    s->machine_dirty = LHI_NEW(s->mem, bool, shop->n_machines);
    s->memory_queue = LHI_NEW(s->mem, uint32_t, n);
    s->memory_queued = LHI_NEW(s->mem, bool, n);
    if (!s->pairs || !s->before || !s->after || !s->producer ||
        !s->memory_sum || !s->machine_dirty || !s->memory_queue ||
        !s->memory_queued)
        return lhi_fail_nomem(err);
    LHI_TRY(make_history(s, &s->head, err));
    return make_history(s, &s->tail, err);
}

/* Allocates the search's arrays per Boolean variable (a pair of operations
 * whose order is open). */
static lh_status allocate_vars(lhi_search *s, lh_error *err)
{
    size_t n = s->n_vars;
    s->value = LHI_NEW(s->mem, int8_t, 2 * n);
    s->level_of = LHI_NEW(s->mem, uint32_t, n);
    s->reason = LHI_NEW(s->mem, why, n);
    s->trail = LHI_NEW(s->mem, lit, n);
    s->watch = LHI_NEW(s->mem, watches, 2 * n);
    s->activity = LHI_NEW(s->mem, double, n);
    s->heap = LHI_NEW(s->mem, uint32_t, n);
    s->heap_at = LHI_NEW(s->mem, uint32_t, n);
    s->phase = LHI_NEW(s->mem, uint8_t, n);
    s->seen = LHI_NEW(s->mem, bool, n);
    s->learnt = LHI_NEW(s->mem, lit, n + 1);
    s->stamp = LHI_NEW(s->mem, uint32_t, n + 1);
    if (!s->value || !s->level_of || !s->reason || !s->trail || !s->watch ||
        !s->activity || !s->heap || !s->heap_at || !s->phase || !s->seen ||
        !s->learnt || !s->stamp)
        return lhi_fail_nomem(err);
    memset(s->heap_at, 0xff, n * sizeof *s->heap_at);
    s->value[HOLDS] = 1;
    s->value[HOLDS_NOT] = -1;
    return LH_OK;
}

/* Initialises memory sums, heads (earliest starts) and tails (times that must
 * follow) from the windows, and queues all operations for propagation. */
static void initialise_operations(lhi_search *s, const lhi_windows *w)
{
    const lhi_shop *shop = s->s;
    for (uint32_t i = 0; i < shop->n_streams; i++) {
        const lhi_stream *t = &shop->streams[i];
        for (uint32_t x = 0; x < t->count; x++)
            s->memory_sum[t->first + i + x + 1] =
                s->memory_sum[t->first + i + x] + shop->memory[t->first + x];
    }
    for (uint32_t o = 0; o < shop->n_ops; o++) {
        s->head.now[o] = s->head.root[o] = w->r[o];
        s->tail.now[o] = s->tail.root[o] = s->deadline - w->e[o];
        lhi_search_queue_operation(&s->head, shop->n_ops, o);
        lhi_search_queue_operation(&s->tail, shop->n_ops, o);
        lhi_search_queue_memory(s, o);
    }
}

/* Initialises each variable's preferred value from `hint`, or if that is NULL
 * from heads (earliest starts) and tails (times that must follow). Initialises
 * its activity such that pairs with little slack are decided first. */
static void initialise_variables(lhi_search *s, const lhi_machine_orders *hint)
{
    const lhi_shop *shop = s->s;
    for (uint32_t v = 1; v < s->n_vars; v++) {
        uint32_t a = s->var_a[v], b = s->var_b[v];
        int64_t first =
            s->head.now[a] + shop->time[a] + shop->time[b] + s->tail.now[b];
        int64_t second =
            s->head.now[b] + shop->time[b] + shop->time[a] + s->tail.now[a];
        int64_t spare = s->deadline - (first < second ? first : second);
        if (hint)
            s->phase[v] = hint->end[a] > hint->end[b];
        else
            s->phase[v] = first > second;
        s->activity[v] = 1e-3 / (1 + (double)(spare > 0 ? spare : 0));
        s->heap[v - 1] = v;
    }
    s->n_heap = s->n_vars - 1;
    s->gain = 1;
}

/* Builds the heap of open variables by activity; ties are in variable order,
 * so runs are reproducible. */
static void build_heap(lhi_search *s)
{
    for (uint32_t i = s->n_heap; i-- > 0;)
        lhi_search_sift_down(s, i);
    for (uint32_t i = 0; i < s->n_heap; i++)
        s->heap_at[s->heap[i]] = i;
}

lh_status lhi_search_make(const lhi_shop *shop, int64_t deadline,
                          const lhi_windows *windows,
                          const lhi_machine_orders *hint, lhi_search **out,
                          lh_error *err)
{
    if (!lhi_search_is_applicable(shop))
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "a device or link is shared by more than %d kinds of "
                        "passes or messages",
                        MOST_SLOTS);
    lhi_arena *mem = lhi_arena_make(0);
    lhi_search *s = mem ? LHI_NEW(mem, lhi_search, 1) : NULL;
    if (!s) {
        lhi_arena_free(mem);
        return lhi_fail_nomem(err);
    }
    *s = (lhi_search){.s = shop, .deadline = deadline, .mem = mem};
    s->restart_at = 100;
    s->reduce_at = 4000;
    lh_status status = allocate_ops(s, windows, err);
    /* The memory queue serves as scratch for a list. */
    if (status == LH_OK &&
        !lhi_search_compute_root_orders(windows, true, s->memory_queue,
                                        s->before, s->after)) {
        s->refuted = true;
        *out = s;
        return LH_OK;
    }
    if (status == LH_OK)
        status = number_pairs(s, err);
    if (status == LH_OK)
        status = allocate_vars(s, err);
    if (status != LH_OK) {
        lhi_search_free(s);
        return status;
    }
    s->bytes = lhi_arena_used(mem);
    find_producers(s);
    initialise_operations(s, windows);
    initialise_variables(s, hint);
    build_heap(s);
    *out = s;
    return LH_OK;
}

void lhi_search_free(lhi_search *search)
{
    if (!search)
        return;
    for (uint32_t l = 0; search->watch && l < 2 * search->n_vars; l++)
        free(search->watch[l].at);
    free(search->head.steps);
    free(search->tail.steps);
    free(search->levels);
    free(search->undos);
    free(search->sets);
    free(search->conflict);
    free(search->clauses);
    lhi_arena_free(search->mem);
}
