/* SPDX-License-Identifier: Apache-2.0 */
/* Steps played again, with some operations at other times than their own. */
#ifndef LHI_PLAY_AGAIN_H
#define LHI_PLAY_AGAIN_H

#include "diagnose/recording.h"

/* Workers between which messages go. */
typedef struct lhi_ends {
    uint32_t from, to;
} lhi_ends;

/* Which operations have their own times, and what the others have. Tables have
 * a row for each worker, with a cell for each kind of operation. */
typedef struct lhi_scenario {
    uint8_t *own;            /* n_workers * LHI_N_OPS: 1 or 0 */
    const int64_t *usual_ns; /* LHI_N_OPS: of each kind; or ... */
    int64_t *instead_ns;     /* ... n_workers * LHI_N_OPS; NULL: usual_ns */
    /* With instead_ns: of cells that are not 0 so many times their own. */
    double *times;
    /* Of messages only those of these links have what stands in
     * instead_ns; NULL: all. */
    const lhi_ends *links;
    uint32_t n_links;
} lhi_scenario;

static inline uint8_t *lhi_own(const lhi_scenario *s, uint32_t worker,
                               lhi_op_type op)
{
    return &s->own[(size_t)worker * LHI_N_OPS + op];
}

/* In the arena: all operations have their own times, or none has. */
lh_status lhi_scenario_make(const lh_recording *recording, bool own,
                            const int64_t *usual_ns, lhi_arena *arena,
                            lhi_scenario *out, lh_error *err);
/* Sets whether the operations of the workers of a stage and a replica, both
 * LH_NONE for all, and of a kind, LH_N_OPERATIONS for all, have their own. */
void lhi_scenario_set(const lh_recording *recording, lhi_scenario *scenario,
                      uint32_t stage, uint32_t replica, lh_operation operation,
                      bool own);

/* When the last operation of a step ends; `ends`, which has room for one more
 * than there are, has of operation i at i + 1 when it ends. */
int64_t lhi_play(const lhi_recorded_step *step, const lhi_scenario *scenario,
                 int64_t *ends);
/* What operation i, of a group, takes there. */
int64_t lhi_played_ns(const lhi_recorded_step *step,
                      const lhi_scenario *scenario, uint32_t group, uint32_t i);
/* Plays every step under every scenario: ends_ns[scenario * n_steps + step] is
 * when the last operation ends. The same for any number of threads. */
lh_status lhi_replay(const lh_recording *recording,
                     const lhi_scenario *scenarios, uint32_t n_scenarios,
                     uint32_t threads, int64_t *ends_ns, lh_error *err);
/* The mean over the steps. */
double lhi_replay_mean(const lh_recording *recording, const int64_t *ends_ns);

/* Of each kind of operation what it usually takes, over all workers and steps:
 * the mean of what ranks compute, the median of communications. */
void lhi_usual_times(const lh_recording *recording,
                     int64_t usual_ns[LHI_N_OPS]);

#endif
