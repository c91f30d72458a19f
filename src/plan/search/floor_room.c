/* SPDX-License-Identifier: Apache-2.0 */
/* Memory bound: feasibility over every partition: docs/theory/plan-search.md.
 */
#include "plan/search/floor_own.h"

#include <math.h>

int64_t lhi_floor_layers_that_fit(const lhi_floor_case *c, int kind,
                                  uint32_t stage, int64_t more)
{
    const lhi_floor_site *s = lhi_floor_site_of(c, stage);
    int64_t room = s->room, hold = lhi_floor_hold_of(s, kind),
            n = lhi_floor_n_layers_of(c, kind);
    if (hold <= 0 || room == INT64_MAX)
        return n;
    room -= kind == LHI_ANY_KIND ? 0 : s->held[kind].passing;
    room += more;
    if (c->chunks_per_device) { /* otherwise the head's stage is unknown */
        int64_t first = stage == 0 ? s->embedding_hold : 0;
        int64_t last = stage == lhi_floor_head_stage(c) ? s->head_hold : 0;
        /* In one chunk the two may share a matrix. */
        room -= c->stages * c->chunks_per_device == 1 ? lhi_most(first, last)
                                                      : first + last;
    }
    return lhi_least(lhi_floor_quotient(room, hold), n);
}

double lhi_floor_all_room(const lhi_floor_case *c, double *passing_in_all)
{
    double room = 0, less = 0;
    uint32_t own = c->least_layers * c->chunks_per_device;
    for (uint32_t k = 0; k < c->stages; k++) {
        if (lhi_floor_site_of(c, k)->room == INT64_MAX)
            return INFINITY;
        room += (double)lhi_floor_site_of(c, k)->room;
    }
    for (uint32_t i = 0; i < c->n_kinds; i++) {
        int64_t passing = INT64_MAX;
        uint32_t without = (c->layers - c->n_of_part[i]) / (own ? own : 1);
        if (c->least_layers == 0)
            without += c->n_without;
        for (uint32_t k = 0; k < (c->at ? c->stages : 1); k++)
            passing =
                lhi_least(passing, lhi_floor_site_of(c, k)->held[i].passing);
        if (without < c->stages)
            less = fmax(less, (double)passing * (c->stages - without));
    }
    *passing_in_all = less;
    return room - less;
}

/* Checks whether the whole model with one microbatch fits in the total memory.
 */
static bool does_sum_fit(const lhi_floor_case *c, int64_t more)
{
    double sum = 0, passing;
    double room = lhi_floor_all_room(c, &passing) + (double)more * c->stages;
    for (uint32_t i = 0; i < c->n_kinds + 2; i++) {
        int64_t least = INT64_MAX;
        for (uint32_t k = 0; k < (c->at ? c->stages : 1); k++)
            least = lhi_least(
                least, lhi_floor_hold_of(lhi_floor_site_of(c, k), (int)i));
        sum += (double)least * c->n_of_part[i];
        /* In one chunk the two may share a matrix. */
        if (i == c->n_kinds && c->stages == 1 && c->chunks_per_device <= 1)
            sum -= (double)least;
    }
    return sum <= room || !(sum > 0);
}

/* Checks whether a kind's layers fit on all stages together, and, for any kind,
 * enough on each stage for its chunks. */
static bool does_kind_fit(const lhi_floor_case *c, int kind, int64_t more)
{
    int64_t sum = 0,
            fewest = kind == LHI_ANY_KIND ? c->least_layers : INT64_MIN;
    if (kind == LHI_ANY_KIND)
        fewest *= c->chunks_per_device ? c->chunks_per_device : 1;
    for (uint32_t k = 0; k < (c->at ? c->stages : 1); k++) {
        int64_t here = lhi_floor_layers_that_fit(c, kind, k, more);
        if (here < fewest)
            return false;
        sum += lhi_most(here, 0);
    }
    return (c->at ? sum : lhi_floor_product(c->stages, sum)) >=
           lhi_floor_n_layers_of(c, kind);
}

bool lhi_floor_does_fit(const lhi_floor_case *c, int64_t more)
{
    for (int kind = LHI_ANY_KIND; kind < lhi_floor_n_counts(c); kind++)
        if (!does_kind_fit(c, kind, more))
            return false;
    return does_sum_fit(c, more);
}

int64_t lhi_floor_memory(const lhi_floor_case *c, uint32_t *site)
{
    int64_t low = 0, high = 1 << 20;
    *site = c->at ? c->at[0] : 0;
    if (lhi_floor_does_fit(c, 0))
        return 0;
    while (!lhi_floor_does_fit(c, high) && high < INT64_C(1) << 55) {
        low = high;
        high *= 2;
    }
    while (high - low > 1 << 20) {
        int64_t middle = low + (high - low) / 2;
        if (!lhi_floor_does_fit(c, middle))
            low = middle;
        else
            high = middle;
    }
    for (uint32_t k = 1; c->at && k < c->stages; k++)
        if (lhi_floor_site_of(c, k)->room < c->sites[*site].room)
            *site = c->at[k];
    return lhi_most(low, 1);
}
