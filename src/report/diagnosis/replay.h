/* SPDX-License-Identifier: Apache-2.0 */
/* Replays recorded steps with some operation times replaced. */
#ifndef LHI_REPORT_DIAGNOSIS_REPLAY_H
#define LHI_REPORT_DIAGNOSIS_REPLAY_H

#include "report/diagnosis/recording.h"

/* A link: messages between two workers. */
typedef struct lhi_worker_link {
    uint32_t from, to;
} lhi_worker_link;

/* Selects the operations that keep their recorded times, and the others' times.
 * Tables have a row per worker with a cell per operation kind. */
typedef struct lhi_scenario {
    uint8_t *is_recorded; /* n_workers * LHI_N_OPS: 1 keeps recorded times */
    const int64_t *typical_ns; /* LHI_N_OPS: per kind; used unless
                                * replacement_ns is set */
    /* n_workers * LHI_N_OPS; NULL: typical_ns applies */
    int64_t *replacement_ns;
    /* With replacement_ns: a cell other than 0 multiplies the recorded time. */
    double *factors;
    /* Restricts replacement_ns to messages on these links; NULL: all messages.
     */
    const lhi_worker_link *links;
    uint32_t n_links;
} lhi_scenario;

/* Returns the scenario's flag for a worker and an operation kind. */
static inline uint8_t *lhi_scenario_flag(const lhi_scenario *s, uint32_t worker,
                                         lhi_op_type op)
{
    return &s->is_recorded[(size_t)worker * LHI_N_OPS + op];
}

/* Builds a replay scenario in the arena, which says how long each operation
 * takes: its recorded time if `own`, else its kind's typical time
 * usual_ns[kind]. */
lh_status lhi_scenario_make(const lh_recording *recording, bool own,
                            const int64_t *usual_ns, lhi_arena *arena,
                            lhi_scenario *out, lh_error *err);
/* Sets in a replay scenario whether operations take their recorded times
 * (`own`) or typical times, for one stage and replica (LH_NONE: all) and
 * operation kind (LH_N_OPERATIONS: all). */
void lhi_scenario_set(const lh_recording *recording, lhi_scenario *scenario,
                      uint32_t stage, uint32_t replica, lh_operation operation,
                      bool own);

/* Replays a step in scenario `s` (which operations keep their recorded times)
 * and returns its last operation's end in ns. ends[i + 1] receives operation
 * i's end; the array has one entry more than there are operations. */
int64_t lhi_replay_step(const lhi_recorded_step *step,
                        const lhi_scenario *scenario, int64_t *ends);
/* Returns the duration in ns of operation `i`, in `group`, in a replay scenario
 * (which operations keep their recorded times). */
int64_t lhi_replay_duration(const lhi_recorded_step *step,
                            const lhi_scenario *scenario, uint32_t group,
                            uint32_t i);
/* Replays every step in every scenario (which operations keep their recorded
 * times): ends_ns[scenario * n_steps + step] is the last operation's end. The
 * result does not depend on `threads`. */
lh_status lhi_replay_steps(const lh_recording *recording,
                           const lhi_scenario *scenarios, uint32_t n_scenarios,
                           uint32_t threads, int64_t *ends_ns, lh_error *err);
/* Returns the mean of the ends ends_ns over the recording's steps. */
double lhi_replay_mean(const lh_recording *recording, const int64_t *ends_ns);

/* Computes usual_ns[kind], the typical duration of each operation kind over all
 * workers and steps: the mean for computation, the median for communication. */
void lhi_typical_times(const lh_recording *recording,
                       int64_t usual_ns[LHI_N_OPS]);

#endif
