/* SPDX-License-Identifier: Apache-2.0 */
/* Proven lower bounds on the makespan of any schedule of a pipeline. Proofs:
 * docs/theory/bounds.md. */
#ifndef LONGHAUL_BOUNDS_H
#define LONGHAUL_BOUNDS_H

#include <longhaul/pipeline.h>
#include <longhaul/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum lh_bound_kind {
    LH_BOUND_PATH,         /* one microbatch there and back */
    LH_BOUND_DEVICE,       /* all work of one device */
    LH_BOUND_DEVICE_DRAIN, /* the same up to its last D, and the way out */
    LH_BOUND_ROUND_TRIPS,  /* memory: so many round trips one after the other */
    LH_BOUND_MEMORY,       /* memory: two round trips around full cycles */
    LH_BOUND_LINK,         /* all messages of one link */
} lh_bound_kind;

/* `times` times `ns` of what is called `name` (static storage). */
typedef struct lh_bound_term {
    const char *name;
    int64_t times, ns;
} lh_bound_term;

enum { LH_BOUND_TERMS = 5 };

typedef struct lh_bound {
    lh_bound_kind kind;
    int64_t ns;
    uint32_t device;   /* or LH_NONE */
    uint32_t resource; /* LH_BOUND_LINK: which link; else LH_NONE */
    char text[160]; /* what limits, e.g. "memory on device 0: two round trips
                       and 8 full cycles" */
    uint32_t n_terms;
    lh_bound_term terms[LH_BOUND_TERMS]; /* their sum is `ns` */
} lh_bound;

/* The largest of the closed-form bounds. Valid for schedules with W whole or
 * cut, with B or D and W, with any message order, and under every data path of
 * lh_sim_options. Time O(chunks + links). */
LH_API lh_status lh_lower_bound(const lh_pipeline *pipeline, lh_bound *out,
                                lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
