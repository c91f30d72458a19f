/* SPDX-License-Identifier: Apache-2.0 */
/* Dependencies between a step's operations, and groups that start together. */
#ifndef LHI_REPORT_DIAGNOSIS_STEP_DEPENDENCIES_H
#define LHI_REPORT_DIAGNOSIS_STEP_DEPENDENCIES_H

#include "report/diagnosis/step_ops.h"

/* Maximum dependency count of a row. */
enum { LHI_MAX_DEPENDENCIES = 4 };

/* A step's row dependencies. */
typedef struct lhi_step_dependencies {
    const lhi_step_ops *ops;
    uint32_t n_chunks, n_microbatches;
    uint32_t (
        *dependencies)[LHI_MAX_DEPENDENCIES]; /* per row: rows that it waits
                                               * for; LH_NONE ends */
    uint32_t
        *next_in_group; /* next row in its group, circular; itself if alone */
    bool *is_stray;     /* has no peer: ignored */
    uint32_t n_strays;
    const char *reason; /* why the step is incomplete; NULL: complete */
} lhi_step_dependencies;

/* Finds the dependencies between a step's recorded operations; allocated in
 * the arena. out->reason is the reason if the step is incomplete. */
lh_status lhi_step_dependencies_find(const lhi_step_ops *ops, lhi_arena *arena,
                                     lhi_step_dependencies *out, lh_error *err);

/* Returns the chunk (number in the model) of a recorded pass; -1: unknown. */
int32_t lhi_step_pass_chunk(const lhi_step_ops *ops, const lhi_op_row *row);

#endif
