/* SPDX-License-Identifier: Apache-2.0 */
/* The local search's candidates, with a hash table by configuration. */
#include "planner/search/local_search_internal.h"

#include "planner/layout/equivalence.h"

#include <stdlib.h>
#include <string.h>

/* Returns the index of a configuration's entry in the candidate hash table, or
 * of the empty entry where it would be stored. */
static uint32_t find_slot(const lhi_local_search *d, const lhi_config *config)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (int i = 0; i < LHI_N_DIMENSIONS; i++)
        hash = (hash ^ lhi_dimension_value((lhi_dimension)i, config)) *
               UINT64_C(1099511628211);
    uint32_t at = (uint32_t)(hash >> 32) & (d->known_room - 1);
    while (d->known[at] &&
           !lhi_configs_are_equal(&d->s->candidates[d->known[at] - 1].config,
                                  config))
        at = (at + 1) & (d->known_room - 1);
    return at;
}

lh_status lhi_local_search_ensure_capacity(lhi_local_search *d, uint32_t more,
                                           lh_error *err)
{
    lhi_layout_search *s = d->s;
    uint32_t want = s->n + more;
    if (want <= s->room && 2 * want <= d->known_room && d->moved)
        return LH_OK;
    uint32_t room = 2 * want, slots = 1024;
    while (slots < 4 * want)
        slots *= 2;
    lhi_candidate *all = realloc(s->candidates, room * sizeof *all);
    if (!all)
        return lhi_fail_nomem(err);
    s->candidates = all;
    s->room = room;
    uint32_t has = d->moved ? s->n : 0;
    bool *moved = realloc(d->moved, room * sizeof *moved);
    if (!moved)
        return lhi_fail_nomem(err);
    d->moved = moved;
    memset(moved + has, 0, (room - has) * sizeof *moved);
    uint32_t *known = calloc(slots, sizeof *known);
    if (!known)
        return lhi_fail_nomem(err);
    free(d->known);
    d->known = known;
    d->known_room = slots;
    for (uint32_t i = 0; i < s->n; i++)
        known[find_slot(d, &s->candidates[i].config)] = i + 1;
    return LH_OK;
}

lh_status lhi_local_search_find_candidate(lhi_local_search *d,
                                          lhi_local_search_neighbour *n,
                                          int64_t limit_ns, bool *made,
                                          lh_error *err)
{
    lhi_layout_search *s = d->s;
    const lhi_local_search_found *f = &d->found[n->found];
    uint32_t *slot = &d->known[find_slot(d, &f->config)];
    *made = *slot == 0;
    if (*slot) {
        n->at = *slot - 1;
        return LH_OK;
    }
    lhi_candidate *c = &s->candidates[s->n];
    *c = (lhi_candidate){.config = f->config,
                         .lower_bound = f->floor,
                         .from_local_search = true};
    d->moved[s->n] = false;
    LHI_TRY(lhi_candidate_compute_bound(s, c, err));
    if (limit_ns < INT64_MAX && c->bound_ns >= limit_ns)
        LHI_TRY(lhi_candidate_rebalance(s, c, err));
    d->work += c->rebalanced ? lhi_estimate_rebalance_work(&c->config)
                             : lhi_estimate_pipeline_work(&c->config);
    n->at = s->n++;
    *slot = s->n;
    return LH_OK;
}
