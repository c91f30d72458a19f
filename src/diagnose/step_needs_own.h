/* SPDX-License-Identifier: Apache-2.0 */
/* What the files that find the needs of a step share. */
#ifndef LHI_STEP_NEEDS_OWN_H
#define LHI_STEP_NEEDS_OWN_H

#include "diagnose/step_needs.h"

typedef struct lhi_needs_work {
    lhi_step_needs *out;
    const lhi_step_ops *ops;
    lhi_arena *arena;
    uint32_t *passes; /* rows of passes, a worker's in order; those of worker w
                         are the next to first_pass[w] */
    uint32_t *first_pass;               /* n_workers + 1 */
    uint32_t *stages;                   /* of each chunk */
    uint32_t *message_in, *message_out; /* of each pass: a row, or LH_NONE */
} lhi_needs_work;

/* Row `row` waits for `other`. */
void lhi_wait_for(lhi_needs_work *w, uint32_t row, uint32_t other);
/* Both, and what is with them, begin together. */
void lhi_begin_together(lhi_needs_work *w, uint32_t a, uint32_t b);

lh_status lhi_needs_messages(lhi_needs_work *w, lh_error *err);
lh_status lhi_needs_collectives(lhi_needs_work *w, lh_error *err);

#endif
