/* SPDX-License-Identifier: Apache-2.0 */
/* What each operation of a step waits for, and what is done together. */
#ifndef LHI_STEP_NEEDS_H
#define LHI_STEP_NEEDS_H

#include "diagnose/step_ops.h"

enum { LHI_MOST_NEEDS = 4 };

typedef struct lhi_step_needs {
    const lhi_step_ops *ops;
    uint32_t n_chunks, n_microbatches;
    uint32_t (*needs)[LHI_MOST_NEEDS]; /* of each row: rows; LH_NONE: no more */
    uint32_t *next; /* of its group, in a ring: itself where it is alone */
    bool *is_stray; /* has no peer: left out */
    uint32_t n_strays;
    const char *why; /* the step is incomplete; NULL: it is not */
} lhi_step_needs;

/* In the arena. out->why says what is missing, if anything. */
lh_status lhi_step_needs_find(const lhi_step_ops *ops, lhi_arena *arena,
                              lhi_step_needs *out, lh_error *err);

/* The chunk of a pass; -1: it cannot be told. */
int32_t lhi_pass_chunk(const lhi_step_ops *ops, const lhi_op_row *row);

#endif
