/* SPDX-License-Identifier: Apache-2.0 */
/* Results as JSON: what the program prints with --json, for whoever asks the
 * library. Every text is made whole or not at all; release it with
 * lh_text_free(); `len`, its bytes, may be NULL. Times are in seconds, memory
 * in the pipeline's unit. */
#ifndef LONGHAUL_RESULTS_H
#define LONGHAUL_RESULTS_H

#include <longhaul/analysis.h>
#include <longhaul/bounds.h>
#include <longhaul/check.h>
#include <longhaul/compare.h>
#include <longhaul/diagnose.h>
#include <longhaul/jitter.h>
#include <longhaul/optical.h>
#include <longhaul/plan.h>
#include <longhaul/solve.h>
#include <longhaul/tradeoff.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A simulated iteration with all that is told of it: `longhaul simulate`. */
typedef struct lh_simulated {
    size_t size;      /* sizeof(lh_simulated) */
    const char *name; /* of the schedule: its method, or its file */
    const lh_pipeline *pipeline;
    const lh_schedule *schedule;
    const lh_timeline *timeline; /* of these two, */
    const lh_analysis *analysis; /* and of all three */
    const lh_plan *plan; /* whose pipeline it is; NULL: of none. What follows
                            the pipeline is told too */
    const lh_jitter_result *jitter; /* of the pipeline; NULL: not drawn. With a
                                       plan, what follows is told with it */
    lh_solve_objective objective;
} lh_simulated;

/* What no makespan of the pipeline is below: the closed form, or, where the
 * schedule is the plan's own, what the search for the plan proved. */
LH_API lh_status lh_simulated_bound(const lh_simulated *simulated,
                                    lh_bound *out, lh_error *err);
/* LH_EINVAL: a pointer that has to be there is NULL. */
LH_API lh_status lh_simulated_format(const lh_simulated *simulated, char **text,
                                     size_t *len, lh_error *err);

/* A schedule that was made, and how: `longhaul schedule`. */
typedef struct lh_scheduled {
    size_t size;           /* sizeof(lh_scheduled) */
    const char *requested; /* a name of <longhaul/best.h> */
    const char *method;    /* that made it */
    const lh_pipeline *pipeline;
    const lh_timeline *timeline; /* NULL: proven that there is no schedule */
    lh_solve_objective objective;
    int64_t bound_ns;       /* of the objective */
    const char *limited_by; /* what limits, in words */
    double seconds;         /* that it took */
    int64_t fifo_ns;  /* what first in, first out would take; 0: no matter */
    int64_t parts_ns; /* before W passes were made whole; 0: they were */
    const char *certificate, *proof; /* its file and kind; NULL: none */
    uint32_t n_engines;
    const lh_solve_engine *engines;
    const lh_memory_point *memory; /* where the least memory was asked for */
} lh_scheduled;

/* LH_EINVAL: a pointer that has to be there is NULL. */
LH_API lh_status lh_scheduled_format(const lh_scheduled *scheduled, char **text,
                                     size_t *len, lh_error *err);

/* Orders of links stay only where they gain something under `options` (may be
 * NULL): *plain is the same schedule without them, or NULL where it is to stay;
 * *fifo_ns what first in, first out would take where that is more, else 0.
 * Errors as of lh_simulate(). Release *plain with lh_schedule_free(). */
LH_API lh_status lh_weigh_links(const lh_pipeline *pipeline,
                                const lh_schedule *schedule,
                                const lh_sim_options *options,
                                lh_schedule **plain, int64_t *fifo_ns,
                                lh_error *err);

/* What the judge found: `longhaul check`. `certificate` and `claims`: NULL
 * where no proof was gone through. */
LH_API lh_status lh_verdict_format(const lh_verdict *verdict,
                                   const lh_pipeline *pipeline,
                                   const lh_certificate *certificate,
                                   const lh_claims *claims, char **text,
                                   size_t *len, lh_error *err);

/* Every contender at every point, ranked at each: `longhaul compare`. */
LH_API lh_status lh_comparison_format(const lh_comparison *comparison,
                                      char **text, size_t *len, lh_error *err);

/* Every policy with its seeds: `longhaul optical`. */
LH_API lh_status lh_optical_format(const lh_scenario *scenario,
                                   const lh_optical *optical, char **text,
                                   size_t *len, lh_error *err);

/* Why a job is slow, and what would help: `longhaul diagnose`. */
LH_API lh_status lh_diagnosis_format(const lh_diagnosis *diagnosis, char **text,
                                     size_t *len, lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
