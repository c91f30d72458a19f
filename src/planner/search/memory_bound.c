/* SPDX-License-Identifier: Apache-2.0 */
/* Memory bound: feasibility over every partition: docs/theory/plan-search.md.
 */
#include "planner/search/lower_bound_internal.h"

#include <math.h>

int64_t lhi_bound_count_layers_that_fit(const lhi_bound_case *c, int kind,
                                        uint32_t stage, int64_t more)
{
    const lhi_bound_site *s = lhi_bound_site_of_stage(c, stage);
    int64_t room = s->capacity, hold = lhi_bound_layer_memory(s, kind),
            n = lhi_bound_count_layers(c, kind);
    if (hold <= 0 || room == INT64_MAX)
        return n;
    room -= kind == LHI_ANY_KIND ? 0 : s->part_memory[kind].transient;
    room += more;
    if (c->chunks_per_device) { /* otherwise the head's stage is unknown */
        int64_t first = stage == 0 ? s->embedding_memory : 0;
        int64_t last = stage == lhi_bound_head_stage(c) ? s->head_memory : 0;
        /* In one chunk the two may share a matrix. */
        room -= c->stages * c->chunks_per_device == 1
                    ? lhi_max_int64(first, last)
                    : first + last;
    }
    return lhi_min_int64(lhi_bound_divide_down(room, hold), n);
}

double lhi_bound_compute_total_memory(const lhi_bound_case *c,
                                      double *passing_in_all)
{
    double room = 0, less = 0;
    uint32_t own = c->least_layers * c->chunks_per_device;
    for (uint32_t k = 0; k < c->stages; k++) {
        if (lhi_bound_site_of_stage(c, k)->capacity == INT64_MAX)
            return INFINITY;
        room += (double)lhi_bound_site_of_stage(c, k)->capacity;
    }
    for (uint32_t i = 0; i < c->n_kinds; i++) {
        int64_t passing = INT64_MAX;
        uint32_t without = (c->layers - c->n_of_part[i]) / (own ? own : 1);
        if (c->least_layers == 0)
            without += c->n_empty_chunks;
        for (uint32_t k = 0; k < (c->site_of_stage ? c->stages : 1); k++)
            passing = lhi_min_int64(
                passing,
                lhi_bound_site_of_stage(c, k)->part_memory[i].transient);
        if (without < c->stages)
            less = fmax(less, (double)passing * (c->stages - without));
    }
    *passing_in_all = less;
    return room - less;
}

/* Checks whether the whole model with one microbatch fits in the memory of all
 * devices, each with `more` additional bytes. */
static bool does_sum_fit(const lhi_bound_case *c, int64_t more)
{
    double sum = 0, passing;
    double room =
        lhi_bound_compute_total_memory(c, &passing) + (double)more * c->stages;
    for (uint32_t i = 0; i < c->n_kinds + 2; i++) {
        int64_t least = INT64_MAX;
        for (uint32_t k = 0; k < (c->site_of_stage ? c->stages : 1); k++)
            least = lhi_min_int64(
                least,
                lhi_bound_layer_memory(lhi_bound_site_of_stage(c, k), (int)i));
        sum += (double)least * c->n_of_part[i];
        /* In one chunk the two may share a matrix. */
        if (i == c->n_kinds && c->stages == 1 && c->chunks_per_device <= 1)
            sum -= (double)least;
    }
    return sum <= room || !(sum > 0);
}

/* Checks whether all same-kind layers fit on the stages together, each with
 * `more` additional bytes. For LHI_ANY_KIND, each stage must also fit the
 * fewest layers of its chunks. */
static bool does_kind_fit(const lhi_bound_case *c, int kind, int64_t more)
{
    int64_t sum = 0,
            fewest = kind == LHI_ANY_KIND ? c->least_layers : INT64_MIN;
    if (kind == LHI_ANY_KIND)
        fewest *= c->chunks_per_device ? c->chunks_per_device : 1;
    for (uint32_t k = 0; k < (c->site_of_stage ? c->stages : 1); k++) {
        int64_t here = lhi_bound_count_layers_that_fit(c, kind, k, more);
        if (here < fewest)
            return false;
        sum += lhi_max_int64(here, 0);
    }
    return (c->site_of_stage ? sum : lhi_bound_multiply(c->stages, sum)) >=
           lhi_bound_count_layers(c, kind);
}

bool lhi_bound_does_fit(const lhi_bound_case *c, int64_t more)
{
    for (int kind = LHI_ANY_KIND; kind < lhi_bound_count_kinds(c); kind++)
        if (!does_kind_fit(c, kind, more))
            return false;
    return does_sum_fit(c, more);
}

int64_t lhi_bound_compute_missing_memory(const lhi_bound_case *c,
                                         uint32_t *site)
{
    int64_t low = 0, high = 1 << 20;
    *site = c->site_of_stage ? c->site_of_stage[0] : 0;
    if (lhi_bound_does_fit(c, 0))
        return 0;
    while (!lhi_bound_does_fit(c, high) && high < INT64_C(1) << 55) {
        low = high;
        high *= 2;
    }
    while (high - low > 1 << 20) {
        int64_t middle = low + (high - low) / 2;
        if (!lhi_bound_does_fit(c, middle))
            low = middle;
        else
            high = middle;
    }
    for (uint32_t k = 1; c->site_of_stage && k < c->stages; k++)
        if (lhi_bound_site_of_stage(c, k)->capacity < c->sites[*site].capacity)
            *site = c->site_of_stage[k];
    return lhi_max_int64(low, 1);
}
