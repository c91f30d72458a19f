/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/solver/model/earliest_machine.h"

lh_status lhi_earliest_machine_make(lhi_earliest_machine *f,
                                    uint32_t n_machines, lhi_arena *mem,
                                    lh_error *err)
{
    *f = (lhi_earliest_machine){.n = n_machines, .n_leaves = 1};
    while (f->n_leaves < n_machines)
        f->n_leaves *= 2;
    f->end = LHI_NEW(mem, int64_t, f->n_leaves);
    f->winner = LHI_NEW(mem, uint32_t, 2 * (size_t)f->n_leaves);
    f->stale = LHI_NEW(mem, bool, n_machines);
    f->list = LHI_NEW(mem, uint32_t, n_machines);
    if (!f->end || !f->winner || !f->stale || !f->list)
        return lhi_fail_nomem(err);
    return LH_OK;
}

/* Returns the child of tree node i whose machine ends earlier; the left one if
 * equal. */
static uint32_t get_winner(const lhi_earliest_machine *f, uint32_t i)
{
    uint32_t a = f->winner[2 * i], b = f->winner[2 * i + 1];
    return f->end[b] < f->end[a] ? b : a;
}

void lhi_earliest_machine_reset(lhi_earliest_machine *f)
{
    f->n_stale = 0;
    for (uint32_t m = 0; m < f->n_leaves; m++) {
        f->end[m] = FAR;
        f->winner[f->n_leaves + m] = m;
    }
    for (uint32_t i = f->n_leaves; i-- > 1;)
        f->winner[i] = get_winner(f, i);
    for (uint32_t m = 0; m < f->n; m++) {
        f->stale[m] = true;
        f->list[f->n_stale++] = m;
    }
}

void lhi_earliest_machine_mark_stale(lhi_earliest_machine *f, uint32_t machine)
{
    if (f->stale[machine])
        return;
    f->stale[machine] = true;
    f->list[f->n_stale++] = machine;
}

uint32_t lhi_earliest_machine_take_stale(lhi_earliest_machine *f)
{
    if (f->n_stale == 0)
        return NONE;
    uint32_t m = f->list[--f->n_stale];
    f->stale[m] = false;
    return m;
}

void lhi_earliest_machine_set_end(lhi_earliest_machine *f, uint32_t machine,
                                  int64_t end)
{
    if (f->end[machine] == end)
        return;
    f->end[machine] = end;
    for (uint32_t i = (f->n_leaves + machine) / 2; i > 0; i /= 2) {
        uint32_t winner = get_winner(f, i);
        if (winner == f->winner[i] && winner != machine)
            return; /* ancestors are unchanged */
        f->winner[i] = winner;
    }
}

uint32_t lhi_earliest_machine_get(const lhi_earliest_machine *f)
{
    uint32_t m = f->winner[1];
    return f->end[m] < FAR ? m : NONE;
}
