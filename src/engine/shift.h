/* SPDX-License-Identifier: Apache-2.0 */
/* Rank program: a rank's instructions in one execution plan, with all storage
 * that depends on them and the records of the last step. */
#ifndef LHI_SHIFT_H
#define LHI_SHIFT_H

#include "engine/proposed.h"
#include "engine/rank.h"

/* A rank program. */
typedef struct lhi_shift {
    const lh_exec *exec;          /* borrowed */
    const lhi_proposed *proposed; /* owner of `exec`, released with the program;
                                   * NULL: initial plan */
    lhi_rank *rank;
    lhi_record *records; /* last completed step, per pass */
    lhi_played *played;
    uint32_t n_played;
    bool has_records;
} lhi_shift;

/* Makes a rank program. */
lh_status lhi_shift_make(const lhi_rank_options *options, lhi_shift **out,
                         lh_error *err);
/* Frees it as lhi_rank_free() does; NULL is fine. */
void lhi_shift_free(lhi_shift *shift);

/* Stores the records of the step that started at t0_ns, relative to it: passes,
 * data-parallel collectives, then activation copies. */
void lhi_shift_keep(lhi_shift *shift, int64_t t0_ns, const lhi_played *played,
                    uint32_t n_played);

#endif
