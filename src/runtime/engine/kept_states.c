/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/engine/kept_states.h"

#include "base/fail.h"

#include <longhaul/pipeline.h>

enum { N_STATES = sizeof((lh_kept_states *)0)->steps / sizeof(uint64_t) };

uint64_t lhi_kept_states_find_step(const lh_kept_states *ranks, uint32_t n)
{
    uint64_t least = 0;
    for (uint32_t r = 0; r < n; r++) {
        uint64_t newest = 0;
        for (uint32_t i = 0; i < N_STATES; i++)
            if (ranks[r].kept && ranks[r].steps[i] > newest)
                newest = ranks[r].steps[i];
        if (newest > 0 && (least == 0 || newest < least))
            least = newest;
    }
    return least;
}

/* Checks whether rank `d` has the state of part `needed` after `step` steps. */
static bool has_state(const lh_kept_states *d, uint64_t needed, uint64_t step)
{
    for (uint32_t i = 0; i < N_STATES; i++)
        if (d->kept && d->kept == needed && d->steps[i] == step + 1)
            return true;
    return false;
}

uint32_t lhi_kept_states_find_donor(const lh_kept_states *ranks, uint32_t n,
                                    uint64_t step, uint32_t r)
{
    if (has_state(&ranks[r], ranks[r].needed, step))
        return r;
    for (uint32_t d = 0; d < n; d++)
        if (has_state(&ranks[d], ranks[r].needed, step))
            return d;
    return LH_NONE;
}

lh_status lh_restart_choose(uint32_t n, const lh_kept_states *ranks,
                            uint64_t *step, uint32_t *donors, lh_error *err)
{
    if (n == 0)
        return lhi_fail(err, LH_EINVAL, "no ranks");
    const uint64_t number = lhi_kept_states_find_step(ranks, n);
    bool has_all = number > 0;
    for (uint32_t r = 0; r < n && has_all; r++)
        has_all =
            lhi_kept_states_find_donor(ranks, n, number - 1, r) != LH_NONE;
    *step = has_all ? number - 1 : 0;
    for (uint32_t r = 0; r < n; r++)
        donors[r] =
            has_all ? lhi_kept_states_find_donor(ranks, n, *step, r) : LH_NONE;
    return LH_OK;
}
