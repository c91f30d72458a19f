/* SPDX-License-Identifier: Apache-2.0 */
/* Estimates a slowdown's remaining duration. It uses past durations of the same
 * slowdown, else those of other slowdowns, else the present age (Lindy's rule).
 */
#include "resilience/adapt/adapt_internal.h"

void lhi_persistent_change_end(lhi_persistent_change *change, uint64_t step)
{
    change->is_active = false;
    change->past_steps[change->n_ended++ % LHI_MAX_PAST_DURATIONS] =
        step - change->since_step;
}

/* Sums over past occurrences that lasted at least `age` iterations: their
 * number and their total duration beyond `age`. */
typedef struct remaining_sum {
    uint64_t n_alike, left;
} remaining_sum;

/* Adds to `r` the remaining durations of past slowdowns: of those that lasted
 * at least `age` iterations, the iterations after that age. The + 1 is because
 * an end is reported one iteration late. */
static void add_past_durations(const lhi_persistent_change *change,
                               uint64_t age, remaining_sum *r)
{
    uint64_t n = change->n_ended < LHI_MAX_PAST_DURATIONS
                     ? change->n_ended
                     : LHI_MAX_PAST_DURATIONS;
    for (uint64_t i = 0; i < n; i++)
        if (change->past_steps[i] + 1 >= age) {
            r->n_alike++;
            r->left +=
                change->past_steps[i] > age ? change->past_steps[i] - age : 0;
        }
}

/* Returns the expected number of iterations that the slowdown `change` still
 * lasts after `step`, from its own past durations or, without any, from those
 * of the n_others slowdowns `others`. */
static uint64_t estimate_remaining(const lhi_persistent_change *change,
                                   const lhi_persistent_change *others,
                                   uint32_t n_others, uint64_t step)
{
    uint64_t age = step + 1 - change->since_step;
    remaining_sum r = {0};
    add_past_durations(change, age, &r);
    for (uint32_t i = 0; change->n_ended == 0 && i < n_others; i++)
        add_past_durations(&others[i], age, &r);
    return r.n_alike > 0 ? r.left / r.n_alike : age;
}

uint64_t
lhi_persistent_change_estimate_remaining(const lhi_persistent_change *changes,
                                         uint32_t n, uint64_t step)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0; i < n; i++) {
        if (!changes[i].is_active)
            continue;
        bool is_quiet = i + 1 == n;
        uint64_t left = estimate_remaining(&changes[i], changes,
                                           is_quiet ? 0 : n - 1, step);
        least = left < least ? left : least;
    }
    return least;
}
