/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/solver/bound/shaving.h"

#include "base/fail.h"

#include <string.h>

/* State for shaving. */
typedef struct shaver {
    lhi_windows *w;
    lhi_budget *budget;
    uint64_t end;         /* work limit, ticks */
    uint32_t *low, *high; /* shaved limits on least and most */
    int64_t *r, *e;       /* saved windows */
    bool changed;
} shaver;

/* Checks whether the solver's budget is used up, or the part of it that this
 * run of shaving (tightening by refutation) may use. */
static bool is_over(const shaver *a)
{
    return a->budget->stop || a->budget->used >= a->end;
}

/* Sets *limit, a limit on one count (operations of one stream that precede an
 * operation) of machine m, to `value`. Returns whether the deadline is then not
 * refuted. Restores time windows and limit before it returns. */
static bool is_open(shaver *a, uint32_t m, uint32_t *limit, uint32_t value)
{
    lhi_windows *w = a->w;
    const size_t size = w->shop->n_ops * sizeof *w->r;
    const uint32_t before = *limit;
    memcpy(a->r, w->r, size);
    memcpy(a->e, w->e, size);
    *limit = value;
    const bool open = lhi_windows_propagate(w, m, a->budget);
    *limit = before;
    memcpy(w->r, a->r, size);
    memcpy(w->e, a->e, size);
    return open;
}

/* Propagates tightened count limits of machine m to the windows (earliest
 * start, latest end) of all operations. Returns false if no schedule exists. */
static bool propagate(shaver *a, uint32_t m)
{
    a->changed = true;
    if (!lhi_windows_propagate(a->w, m, a->budget))
        return false;
    lhi_windows_compute_counts(a->w, m, a->budget);
    return true;
}

/* Tightens from both ends, by refutation, the range of count number `at`: how
 * many operations of one stream precede an operation of another on machine m.
 * Returns false if no schedule exists. */
static bool shave_count(shaver *a, uint32_t m, size_t at)
{
    const uint32_t *least = &a->w->least[at], *most = &a->w->most[at];
    while (*least < *most && !is_over(a) &&
           !is_open(a, m, &a->high[at], *least)) {
        a->low[at] = *least + 1;
        if (!propagate(a, m))
            return false;
    }
    while (*least < *most && !is_over(a) &&
           !is_open(a, m, &a->low[at], *most)) {
        a->high[at] = *most - 1;
        if (!propagate(a, m))
            return false;
    }
    return true;
}

/* Tightens all counts (operations of one stream that precede an operation of
 * another) on machine m by refuting values. They are symmetric, so one
 * direction suffices. Returns false if no schedule exists. */
static bool shave_machine(shaver *a, uint32_t m)
{
    const lhi_shop *s = a->w->shop;
    const lhi_machine *k = &s->machines[m];
    const uint32_t first = s->streams[k->first_stream].first;
    const uint32_t end = first + lhi_machine_count_operations(s, m);
    lhi_windows_compute_counts(a->w, m, a->budget);
    for (uint32_t o = first; o < end && !is_over(a); o++) {
        const uint32_t slot = s->streams[s->stream_of[o]].slot;
        for (uint32_t i = slot + 1; i < k->n_streams; i++)
            if (!shave_count(a, m, a->w->slot_at[o] + i))
                return false;
    }
    return true;
}

/* Shaves (narrows time windows by refuting their ends) all machines that have a
 * lattice (machine state graph), until nothing changes or the budget ends;
 * false: the deadline is refuted. */
static bool shave(shaver *a)
{
    const lhi_shop *s = a->w->shop;
    do {
        a->changed = false;
        for (uint32_t m = 0; m < s->n_machines; m++)
            if (s->machines[m].n_streams > 1 &&
                lhi_windows_get_lattice(a->w, m) && !shave_machine(a, m))
                return false;
    } while (a->changed && !is_over(a));
    return true;
}

lh_status lhi_shaving_run(lhi_windows *w, uint64_t ticks, lhi_budget *budget,
                          bool *open, lh_error *err)
{
    const size_t n = w->shop->n_ops, slots = w->slot_at[n];
    const lhi_mark mark = lhi_arena_mark(w->mem);
    shaver a = {.w = w,
                .budget = budget,
                .end = budget->used + ticks,
                .low = LHI_NEW(w->mem, uint32_t, slots),
                .high = LHI_NEW(w->mem, uint32_t, slots),
                .r = LHI_NEW(w->mem, int64_t, n),
                .e = LHI_NEW(w->mem, int64_t, n)};
    *open = true;
    if (!a.low || !a.high || !a.r || !a.e) {
        lhi_arena_rewind(w->mem, mark);
        return lhi_fail_nomem(err);
    }
    memset(a.high, 0xff, slots * sizeof *a.high);
    w->low = a.low;
    w->high = a.high;
    *open = shave(&a);
    w->low = w->high = NULL;
    lhi_arena_rewind(w->mem, mark);
    return LH_OK;
}
