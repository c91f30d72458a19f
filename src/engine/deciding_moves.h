/* SPDX-License-Identifier: Apache-2.0 */
/* Of a run that adapts: whether parts of the job are to move, rather than that
 * it goes on as was decided (adapt/moving.h); where they are, and what runs. */
#ifndef LHI_DECIDING_MOVES_H
#define LHI_DECIDING_MOVES_H

#include "adapt/moving.h"
#include "engine/steps.h"

typedef struct lhi_move_mind lhi_move_mind;

/* Whether a run that adapts may move anything. */
bool lhi_job_moves(const lhi_job *job);
/* LH_EINVAL, LH_EUNSUPPORTED: it has not what that takes. */
lh_status lhi_job_check_moves(const lhi_job *job, lh_error *err);

lh_status lhi_move_mind_make(const lhi_job *job, lhi_move_mind **out,
                             lh_error *err);
void lhi_move_mind_free(lhi_move_mind *mind); /* NULL is fine */

/* `first`, which has the first numbers of layers, with those of now: *out, to
 * be released; NULL: it has them. */
lh_status lhi_move_mind_share(const lhi_move_mind *mind,
                              const lh_pipeline *first, lh_pipeline **out,
                              lh_error *err);

/* After an iteration, with what was decided. */
typedef struct lhi_moves_seen {
    uint64_t step;
    const lh_monitor *monitor;
    uint32_t n_notices;
    const lh_pipeline *estimated; /* with the first numbers of layers */
    const lh_decision *decision;
} lhi_moves_seen;

typedef struct lhi_moved_decision {
    lh_reschedule given;
    int64_t now_ns; /* an iteration as it is */
} lhi_moved_decision;

/* *moves: parts do, as in *out, which is borrowed until it is answered. */
lh_status lhi_move_mind_find(lhi_move_mind *mind, const lhi_moves_seen *seen,
                             lhi_moved_decision *out, bool *moves,
                             lh_error *err);
/* *layers: some have moved. */
lh_status lhi_move_mind_answer(lhi_move_mind *mind, bool followed,
                               bool *layers, lh_error *err);
/* The run goes on with another schedule. */
lh_status lhi_move_mind_follow(lhi_move_mind *mind, const lh_reschedule *what,
                               lh_error *err);

#endif
