/* SPDX-License-Identifier: Apache-2.0 */
/* Placement symmetries: interchangeable datacenters with equivalent links, and
 * reversed pipelines when links are the same in both directions. */
#include "planner/layout/site_search_internal.h"

#include "base/exact_equality.h"
#include "planner/layout/equivalence.h"

#include <string.h>

/* Checks whether two datacenters are equivalent inside, have equal GPU prices
 * and the same number of required GPUs; their size and links may differ. */
static bool have_same_kind(const lh_job *job, uint32_t a, uint32_t b)
{
    return lhi_datacenters_are_equivalent(job, a, b) &&
           (!job->min_gpus || job->min_gpus[a] == job->min_gpus[b]) &&
           lhi_equals_exactly(job->datacenters[a].usd_per_gpu_hour,
                              job->datacenters[b].usd_per_gpu_hour);
}

/* ---- symmetries of a job ---- */

/* Checks whether a renaming of datacenters may map number placed - 1 to
 * to[placed - 1]: equal capacity, kind and links to those mapped before. */
static bool may_rename(const lhi_placement_case *c, const uint32_t *to,
                       uint32_t placed)
{
    uint32_t last = placed - 1;
    if (c->capacity[last] != c->capacity[to[last]] ||
        !have_same_kind(c->job, last, to[last]))
        return false;
    for (uint32_t i = 0; i < last; i++)
        if (!lhi_wan_links_are_equal(c->job, i, last, to[i], to[last]) ||
            !lhi_wan_links_are_equal(c->job, last, i, to[last], to[i]))
            return false;
    return true;
}

/* Checks whether two datacenters are interchangeable: equal capacity and GPUs,
 * and equal links to all others. */
static bool may_swap(const lhi_placement_case *c, uint32_t a, uint32_t b)
{
    const lh_job *job = c->job;
    if (c->capacity[a] != c->capacity[b] || !have_same_kind(job, a, b) ||
        !lhi_wan_links_are_equal(job, a, b, b, a))
        return false;
    for (uint32_t i = 0; i < job->n_datacenters; i++)
        if (i != a && i != b &&
            (!lhi_wan_links_are_equal(job, i, a, i, b) ||
             !lhi_wan_links_are_equal(job, a, i, b, i)))
            return false;
    return true;
}

/* Extends a renaming of datacenters recursively from `placed` ones on, and
 * appends each complete one that changes nothing to `list`. */
static void extend_renaming(const lhi_placement_case *c, uint32_t *to,
                            uint32_t placed, uint32_t *list, uint32_t *n)
{
    uint32_t all = c->job->n_datacenters;
    if (placed == all) {
        memcpy(list + (size_t)(*n)++ * all, to, all * sizeof *to);
        return;
    }
    for (uint32_t next = 0; next < all; next++) {
        bool used = false;
        for (uint32_t i = 0; i < placed; i++)
            used = used || to[i] == next;
        to[placed] = next;
        if (!used && may_rename(c, to, placed + 1))
            extend_renaming(c, to, placed + 1, list, n);
    }
}

lh_status lhi_placement_find_symmetries(lhi_placement_case *c, lhi_arena *mem,
                                        lh_error *err)
{
    uint32_t n = c->job->n_datacenters;
    size_t most = 1;
    c->interchangeable = LHI_NEW(mem, bool, (size_t)n *n);
    if (!c->interchangeable)
        return lhi_fail_nomem(err);
    for (uint32_t a = 0; a < n; a++)
        for (uint32_t b = a + 1; b < n; b++)
            c->interchangeable[(size_t)a * n + b] =
                c->interchangeable[(size_t)b * n + a] = may_swap(c, a, b);
    if (n > LHI_MOST_EXHAUSTIVE)
        return LH_OK; /* swaps only */
    for (uint32_t i = 2; i <= n; i++)
        most *= i;
    uint32_t *list = LHI_NEW(mem, uint32_t, most * n);
    uint32_t *to = LHI_NEW(mem, uint32_t, n);
    if (!list || !to)
        return lhi_fail_nomem(err);
    extend_renaming(c, to, 0, list, &c->n_symmetries);
    c->symmetries = list;
    return LH_OK;
}

/* ---- drafts ---- */

/* Appends replica group `g` of draft placement `from` to draft `to`. */
static void copy_group(const lhi_placement_draft *from, uint32_t g,
                       lhi_placement_draft *to)
{
    uint32_t n = from->from[g + 1] - from->from[g], at = to->n_parts;
    memcpy(to->site + at, from->site + from->from[g], n * sizeof *to->site);
    memcpy(to->stages + at, from->stages + from->from[g],
           n * sizeof *to->stages);
    to->replicas[to->n_groups] = from->replicas[g];
    to->from[to->n_groups++] = at;
    to->n_parts = at + n;
    to->from[to->n_groups] = to->n_parts;
}

void lhi_placement_sort_groups(lhi_placement_draft *d)
{
    uint32_t order[LHI_MOST_PARTS];
    lhi_placement_draft sorted;
    sorted.n_groups = sorted.n_parts = 0;
    sorted.from[0] = 0;
    sorted.ns = d->ns;
    for (uint32_t g = 0; g < d->n_groups; g++) {
        uint32_t at = g;
        for (; at > 0 && d->site[d->from[order[at - 1]]] > d->site[d->from[g]];
             at--)
            order[at] = order[at - 1];
        order[at] = g;
    }
    for (uint32_t g = 0; g < d->n_groups; g++)
        copy_group(d, order[g], &sorted);
    *d = sorted;
}

/* Orders numbers, ascending. */
static int compare_numbers(uint32_t a, uint32_t b)
{
    return a < b ? -1 : a > b;
}

int lhi_placement_compare_drafts(const lhi_placement_draft *a,
                                 const lhi_placement_draft *b)
{
    int sign = compare_numbers(a->n_groups, b->n_groups);
    for (uint32_t g = 0; !sign && g < a->n_groups; g++) {
        sign = compare_numbers(a->from[g + 1], b->from[g + 1]);
        if (!sign)
            sign = compare_numbers(a->replicas[g], b->replicas[g]);
        for (uint32_t i = a->from[g]; !sign && i < a->from[g + 1]; i++) {
            sign = compare_numbers(a->site[i], b->site[i]);
            if (!sign)
                sign = compare_numbers(a->stages[i], b->stages[i]);
        }
    }
    return sign;
}

bool lhi_placement_is_symmetric_copy(const lhi_placement_case *c,
                                     const lhi_placement_draft *d)
{
    uint32_t n = c->job->n_datacenters;
    for (uint32_t a = 0; a < n; a++)
        for (uint32_t b = a + 1; b < n; b++) {
            lhi_placement_draft swapped;
            if (!c->interchangeable[(size_t)a * n + b])
                continue;
            swapped = *d;
            for (uint32_t i = 0; i < d->n_parts; i++)
                swapped.site[i] = d->site[i] == a   ? b
                                  : d->site[i] == b ? a
                                                    : d->site[i];
            lhi_placement_sort_groups(&swapped);
            if (lhi_placement_compare_drafts(&swapped, d) < 0)
                return true;
        }
    return false;
}

/* Checks whether the placement with reversed pipelines takes the same time,
 * except for embedding and head. */
static bool is_reversible(const lhi_placement_case *c,
                          const lhi_placement_draft *d)
{
    for (uint32_t i = 0; i < d->n_parts; i++)
        for (uint32_t j = 0; j < i; j++)
            if (!have_same_kind(c->job, d->site[i], d->site[j]) ||
                (d->site[i] != d->site[j] &&
                 !lhi_wan_links_are_equal(c->job, d->site[i], d->site[j],
                                          d->site[j], d->site[i])))
                return false;
    return true;
}

/* Reverses the order of parts in all pipelines of a draft placement. */
static void reverse_pipelines(lhi_placement_draft *d)
{
    for (uint32_t g = 0; g < d->n_groups; g++)
        for (uint32_t i = d->from[g], j = d->from[g + 1]; i + 1 < j; i++) {
            uint32_t site = d->site[i], stages = d->stages[i];
            j--;
            d->site[i] = d->site[j];
            d->stages[i] = d->stages[j];
            d->site[j] = site;
            d->stages[j] = stages;
        }
}

/* Sorts the groups of draft placement `d`; copies it to `least` if it sorts
 * before it. */
static void keep_smaller(lhi_placement_draft *d, lhi_placement_draft *least)
{
    lhi_placement_sort_groups(d);
    if (lhi_placement_compare_drafts(d, least) < 0)
        *least = *d;
}

/* Renames the datacenters of a draft placement so that the lowest number of
 * each interchangeable set appears first. */
static void rename_in_order(const lhi_placement_case *c, lhi_placement_draft *d)
{
    uint32_t n = c->job->n_datacenters, name[LH_MAX_DATACENTERS];
    bool used[LH_MAX_DATACENTERS] = {false};
    for (uint32_t i = 0; i < n; i++)
        name[i] = n;
    for (uint32_t i = 0; i < d->n_parts; i++) {
        uint32_t site = d->site[i];
        for (uint32_t s = 0; name[site] == n && s < n; s++)
            if (!used[s] &&
                (s == site || c->interchangeable[(size_t)s * n + site])) {
                name[site] = s;
                used[s] = true;
            }
        d->site[i] = name[site];
    }
    lhi_placement_sort_groups(d);
}

/* Computes the draft placement that sorts first among those that rename the
 * datacenters of `d`. */
static void rename_canonically(const lhi_placement_case *c,
                               const lhi_placement_draft *d,
                               lhi_placement_draft *out)
{
    uint32_t n = c->job->n_datacenters;
    *out = *d;
    lhi_placement_sort_groups(out);
    if (n > LHI_MOST_EXHAUSTIVE)
        rename_in_order(c, out);
    for (uint32_t k = 0; k < c->n_symmetries; k++) {
        lhi_placement_draft other = *d;
        for (uint32_t i = 0; i < d->n_parts; i++)
            other.site[i] = c->symmetries[(size_t)k * n + d->site[i]];
        keep_smaller(&other, out);
    }
}

void lhi_placement_make_canonical(const lhi_placement_case *c,
                                  const lhi_placement_draft *d,
                                  lhi_placement_draft *out)
{
    lhi_placement_draft reversed = *d, other;
    rename_canonically(c, d, out);
    if (!is_reversible(c, d))
        return;
    reverse_pipelines(&reversed);
    rename_canonically(c, &reversed, &other);
    keep_smaller(&other, out);
}

bool lhi_placement_reverse(const lhi_placement_case *c,
                           const lhi_placement_draft *d,
                           lhi_placement_draft *reversed)
{
    lhi_placement_draft own, other;
    if (!is_reversible(c, d))
        return false;
    *reversed = *d;
    reverse_pipelines(reversed);
    lhi_placement_sort_groups(reversed);
    rename_canonically(c, d, &own);
    rename_canonically(c, reversed, &other);
    return lhi_placement_compare_drafts(&own, &other) != 0;
}
