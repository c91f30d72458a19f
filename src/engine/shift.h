/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank runs of one execution plan: its instructions with all that is
 * sized by them, and what it has recorded of the last step. */
#ifndef LHI_SHIFT_H
#define LHI_SHIFT_H

#include "engine/proposed.h"
#include "engine/rank.h"

typedef struct lhi_shift {
    const lh_exec *exec;          /* borrowed */
    const lhi_proposed *proposed; /* that has `exec`, and is released with the
                                     shift; NULL: the run began with it */
    lhi_rank *rank;
    lhi_record *records; /* of the last step that was completed, per pass */
    lhi_played *played;
    uint32_t n_played;
    bool has_records;
} lhi_shift;

lh_status lhi_shift_make(const lhi_rank_options *options, lhi_shift **out,
                         lh_error *err);
/* As lhi_rank_free(); NULL is fine. */
void lhi_shift_free(lhi_shift *shift);

/* Keeps what the step that began at t0_ns has recorded, as times from then,
 * with its data-parallel communications, and its copies of activations behind
 * them. */
void lhi_shift_keep(lhi_shift *shift, int64_t t0_ns, const lhi_played *played,
                    uint32_t n_played);

#endif
