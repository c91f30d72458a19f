/* SPDX-License-Identifier: Apache-2.0 */
#include "report/diagnosis/rank_activity.h"

#include "base/sort.h"

#include <stdlib.h>

/* A rank computes slowly if it takes more than this ratio to the others'
 * median, as a slow worker's passes do. */
#define SLOW_RATIO 1.1

void lhi_activity_add(lhi_activity *to, const lhi_activity *from)
{
    to->n_steps += from->n_steps;
    to->source = to->source > from->source ? to->source : from->source;
    to->span_ns += from->span_ns;
    to->compute_ns += from->compute_ns;
    to->communication_ns += from->communication_ns;
    to->overlap_ns += from->overlap_ns;
    to->copy_ns += from->copy_ns;
    to->idle_ns += from->idle_ns;
}

/* Compares times in ns, for lhi_sort() and bsearch(). */
static int compare_times(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Returns the median among n > 1 sorted times without the one at index
 * `without`. */
static int64_t median_of_others(const int64_t *sorted, uint32_t n,
                                uint32_t without)
{
    uint32_t lower = (n - 2) / 2, upper = (n - 1) / 2;
    int64_t a = sorted[lower + (lower >= without)];
    int64_t b = sorted[upper + (upper >= without)];
    return a + (b - a) / 2;
}

/* Returns a rank's activity times divided by its number of marked steps; those
 * of its whole trace if no step is marked. */
static lh_rank_activity activity_per_step(const lhi_recorded_activity *one,
                                          const char *file)
{
    const lhi_activity *s = &one->sums;
    int64_t n = s->n_steps ? s->n_steps : 1;
    return (lh_rank_activity){.file = file,
                              .rank = one->rank,
                              .n_steps = s->n_steps,
                              .source = s->source,
                              .span_ns = s->span_ns / n,
                              .compute_ns = s->compute_ns / n,
                              .communication_ns = s->communication_ns / n,
                              .overlap_ns = s->overlap_ns / n,
                              .copy_ns = s->copy_ns / n,
                              .idle_ns = s->idle_ns / n};
}

/* Checks whether ranks' times per step can be compared: there are several
 * ranks, all with the same source, and all or none with marked steps. */
static bool are_comparable(const lh_rank_activity *ranks, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++)
        if (ranks[i].source != ranks[0].source ||
            (ranks[i].n_steps == 0) != (ranks[0].n_steps == 0))
            return false;
    return n > 1;
}

lh_status lhi_rank_activities_compare(const lhi_recorded_activity *list,
                                      uint32_t n, lhi_arena *arena,
                                      const lh_rank_activity **out,
                                      lh_error *err)
{
    lh_rank_activity *ranks = LHI_NEW(arena, lh_rank_activity, n + 1);
    int64_t *sorted = LHI_NEW(arena, int64_t, n + 1);
    if (!ranks || !sorted)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < n; i++) {
        const char *file = lhi_arena_strdup(arena, list[i].file);
        if (!file)
            return lhi_fail_nomem(err);
        ranks[i] = activity_per_step(&list[i], file);
        sorted[i] = ranks[i].compute_ns;
    }
    lhi_sort(sorted, n, sizeof *sorted, compare_times);
    bool compared = are_comparable(ranks, n);
    for (uint32_t i = 0; i < n && compared; i++) {
        const int64_t *own = bsearch(&ranks[i].compute_ns, sorted, n,
                                     sizeof *sorted, compare_times);
        int64_t others = median_of_others(sorted, n, (uint32_t)(own - sorted));
        if (others > 0)
            ranks[i].ratio = (double)ranks[i].compute_ns / (double)others;
        ranks[i].is_slow = ranks[i].ratio > SLOW_RATIO;
    }
    *out = ranks;
    return LH_OK;
}
