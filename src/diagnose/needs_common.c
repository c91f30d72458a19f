/* SPDX-License-Identifier: Apache-2.0 */
#include "diagnose/step_needs_own.h"

void lhi_wait_for(lhi_needs_work *w, uint32_t row, uint32_t other)
{
    uint32_t *needs = w->out->needs[row];
    for (uint32_t i = 0; i < LHI_MOST_NEEDS; i++) {
        if (needs[i] == other)
            return;
        if (needs[i] == LH_NONE) {
            needs[i] = other;
            return;
        }
    }
    w->out->why = "an operation needs more than any does";
}

void lhi_begin_together(lhi_needs_work *w, uint32_t a, uint32_t b)
{
    uint32_t *next = w->out->next, behind = next[a];
    next[a] = next[b];
    next[b] = behind;
}

int32_t lhi_pass_chunk(const lhi_step_ops *ops, const lhi_op_row *row)
{
    if (row->chunk >= 0)
        return row->chunk;
    if (row->here < 0)
        return -1;
    return row->here * (int32_t)ops->n_stages + row->stage;
}
