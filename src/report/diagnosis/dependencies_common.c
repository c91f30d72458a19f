/* SPDX-License-Identifier: Apache-2.0 */
#include "report/diagnosis/step_dependencies_internal.h"

void lhi_dependency_add(lhi_dependency_search *w, uint32_t row, uint32_t other)
{
    uint32_t *needs = w->out->dependencies[row];
    for (uint32_t i = 0; i < LHI_MAX_DEPENDENCIES; i++) {
        if (needs[i] == other)
            return;
        if (needs[i] == LH_NONE) {
            needs[i] = other;
            return;
        }
    }
    w->out->reason = "an operation has too many dependencies";
}

void lhi_dependency_group(lhi_dependency_search *w, uint32_t a, uint32_t b)
{
    uint32_t *next = w->out->next_in_group, behind = next[a];
    next[a] = next[b];
    next[b] = behind;
}

int32_t lhi_step_pass_chunk(const lhi_step_ops *ops, const lhi_op_row *row)
{
    if (row->chunk >= 0)
        return row->chunk;
    if (row->stage_chunk < 0)
        return -1;
    return row->stage_chunk * (int32_t)ops->n_stages + row->stage;
}
