/* SPDX-License-Identifier: Apache-2.0 */
/* Estimates a slowdown's remaining duration. It uses past durations of the same
 * slowdown, else those of other slowdowns, else the present age (Lindy's rule).
 */
#include "adapt/adapt_own.h"

void lhi_lasting_end(lhi_lasting *thing, uint64_t step)
{
    thing->is_on = false;
    thing->past[thing->n_past++ % LHI_PAST] = step - thing->since;
}

/* Sums over past occurrences that lasted at least `age` iterations: their
 * number and their total duration beyond `age`. */
typedef struct residue {
    uint64_t n_alike, left;
} residue;

/* Adds a change's past occurrences. An end is reported with the second
 * iteration without it, so the latest iteration may already be the first after
 * the end; hence the + 1. */
static void add_past(const lhi_lasting *thing, uint64_t age, residue *r)
{
    uint64_t n = thing->n_past < LHI_PAST ? thing->n_past : LHI_PAST;
    for (uint64_t i = 0; i < n; i++)
        if (thing->past[i] + 1 >= age) {
            r->n_alike++;
            r->left += thing->past[i] > age ? thing->past[i] - age : 0;
        }
}

/* Estimates one change's remaining duration; `others` serve if it has no past
 * of its own. */
static uint64_t left_of(const lhi_lasting *thing, const lhi_lasting *others,
                        uint32_t n_others, uint64_t step)
{
    uint64_t age = step + 1 - thing->since;
    residue r = {0};
    add_past(thing, age, &r);
    for (uint32_t i = 0; thing->n_past == 0 && i < n_others; i++)
        add_past(&others[i], age, &r);
    return r.n_alike > 0 ? r.left / r.n_alike : age;
}

uint64_t lhi_lasting_left(const lhi_lasting *things, uint32_t n, uint64_t step)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < n; i++) {
        if (!things[i].is_on)
            continue;
        bool is_quiet = i + 1 == n;
        uint64_t left = left_of(&things[i], things, is_quiet ? 0 : n - 1, step);
        least = left < least ? left : least;
    }
    return least;
}
