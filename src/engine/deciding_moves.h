/* SPDX-License-Identifier: Apache-2.0 */
/* Decides in an adapting run whether to migrate parts of the job in place of
 * the adaptation's decision (adapt/moving.h). Tracks where the parts are and
 * the current schedule. */
#ifndef LHI_DECIDING_MOVES_H
#define LHI_DECIDING_MOVES_H

#include "adapt/moving.h"
#include "engine/steps.h"

typedef struct lhi_move_mind lhi_move_mind;

/* Checks whether an adapting run may migrate anything. */
bool lhi_job_moves(const lhi_job *job);
/* Checks that the run supports the requested migrations: LH_EINVAL,
 * LH_EUNSUPPORTED. */
lh_status lhi_job_check_moves(const lhi_job *job, lh_error *err);

/* Makes the migration decider of a run. */
lh_status lhi_move_mind_make(const lhi_job *job, lhi_move_mind **out,
                             lh_error *err);
void lhi_move_mind_free(lhi_move_mind *mind); /* NULL is fine */

/* Converts `first`, a pipeline with the initial layer counts, to the current
 * ones: *out, released by the caller; NULL: the counts are the initial ones. */
lh_status lhi_move_mind_share(const lhi_move_mind *mind,
                              const lh_pipeline *first, lh_pipeline **out,
                              lh_error *err);

/* Input after an iteration, with the adaptation's decision. */
typedef struct lhi_moves_seen {
    uint64_t step;
    const lh_monitor *monitor;
    uint32_t n_notices;
    const lh_pipeline *estimated; /* with the initial layer counts */
    const lh_decision *decision;
} lhi_moves_seen;

/* A migration to propose. */
typedef struct lhi_moved_decision {
    lh_reschedule given;
    int64_t now_ns; /* current duration of an iteration */
} lhi_moved_decision;

/* Searches for a migration. *moves: one was found and is in *out, borrowed
 * until its verdict is recorded. */
lh_status lhi_move_mind_find(lhi_move_mind *mind, const lhi_moves_seen *seen,
                             lhi_moved_decision *out, bool *moves,
                             lh_error *err);
/* Records the verdict. *layers: layers have moved. */
lh_status lhi_move_mind_answer(lhi_move_mind *mind, bool followed,
                               bool *layers, lh_error *err);
/* Records that the run switched to another schedule. */
lh_status lhi_move_mind_follow(lhi_move_mind *mind, const lh_reschedule *what,
                               lh_error *err);

#endif
