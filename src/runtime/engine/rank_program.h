/* SPDX-License-Identifier: Apache-2.0 */
/* Rank program: a rank's instructions in one execution plan, with all storage
 * that depends on them and the last step's records. */
#ifndef LHI_RUNTIME_ENGINE_RANK_PROGRAM_H
#define LHI_RUNTIME_ENGINE_RANK_PROGRAM_H

#include "runtime/engine/proposed_plan.h"
#include "runtime/engine/rank.h"

/* A rank program. */
typedef struct lhi_rank_program {
    const lh_exec *exec;               /* borrowed */
    const lhi_proposed_plan *proposed; /* owner of `exec`, released with the
                                        * program; NULL: initial plan */
    lhi_rank *rank;
    lhi_pass_record *records; /* last completed step, per pass */
    lhi_collective_record *collectives;
    uint32_t n_collectives;
    bool has_records;
} lhi_rank_program;

/* Makes a rank's program for one execution plan: the state that runs its
 * passes, and storage for a step's records. */
lh_status lhi_rank_program_make(const lhi_rank_options *options,
                                lhi_rank_program **out, lh_error *err);
/* Frees a rank program and its rank as lhi_rank_free() does; NULL is
 * allowed. */
void lhi_rank_program_free(lhi_rank_program *shift);

/* Stores the records of the step that started at t0_ns, relative to it:
 * passes, data-parallel collectives (n_executed), then activation copies. */
void lhi_rank_program_store_records(lhi_rank_program *shift, int64_t t0_ns,
                                    const lhi_collective_record *executed,
                                    uint32_t n_executed);

#endif
