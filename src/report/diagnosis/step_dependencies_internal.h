/* SPDX-License-Identifier: Apache-2.0 */
/* Shared declarations for finding a step's dependencies. */
#ifndef LHI_REPORT_DIAGNOSIS_STEP_DEPENDENCIES_INTERNAL_H
#define LHI_REPORT_DIAGNOSIS_STEP_DEPENDENCIES_INTERNAL_H

#include "report/diagnosis/step_dependencies.h"

/* Dependency search state. */
typedef struct lhi_dependency_search {
    lhi_step_dependencies *out;
    const lhi_step_ops *ops;
    lhi_arena *arena;
    /* pass rows in order; worker w's begin at first_pass[w] */
    uint32_t *passes;
    uint32_t *first_pass;               /* n_workers + 1 */
    uint32_t *stages;                   /* per chunk */
    uint32_t *message_in, *message_out; /* per pass: a row, or LH_NONE */
} lhi_dependency_search;

/* Makes operation `row` wait for operation `other` in the replay. */
void lhi_dependency_add(lhi_dependency_search *w, uint32_t row, uint32_t other);
/* Merges the operation groups a and b, so that all their operations start
 * together in the replay. */
void lhi_dependency_group(lhi_dependency_search *w, uint32_t a, uint32_t b);

/* Makes passes and messages of a step wait for each other in the replay: a send
 * for its pass, a pass for the message with its input from another stage. Sets
 * w->out->reason if the recording is incomplete. */
lh_status lhi_dependencies_add_messages(lhi_dependency_search *w,
                                        lh_error *err);
/* Makes the step's operations wait for each other in the replay as collectives
 * require: members of one collective start together, gathers precede passes,
 * reductions and the optimizer follow them. Sets w->out->reason if the
 * recording is incomplete. */
lh_status lhi_dependencies_add_collectives(lhi_dependency_search *w,
                                           lh_error *err);

#endif
