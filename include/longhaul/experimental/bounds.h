/* SPDX-License-Identifier: Apache-2.0 */
/* Proven lower bounds on the makespan of every schedule for a pipeline. Proofs:
 * docs/theory/bounds.md.
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_BOUNDS_H
#define LONGHAUL_EXPERIMENTAL_BOUNDS_H

#include <longhaul/pipeline.h>
#include <longhaul/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Closed forms of bounds. */
typedef enum lh_bound_kind {
    LH_BOUND_PATH,         /* round trip of one microbatch */
    LH_BOUND_DEVICE,       /* total work on one device */
    LH_BOUND_DEVICE_DRAIN, /* the same up to its last D, plus the drain */
    LH_BOUND_ROUND_TRIPS,  /* memory: sequential round trips */
    LH_BOUND_MEMORY,       /* memory: two round trips around full cycles */
    LH_BOUND_LINK,         /* all messages on one link */
} lh_bound_kind;

/* One summand: `times` x `ns`, labelled `name` (static storage). */
typedef struct lh_bound_term {
    const char *name;
    int64_t times, ns;
} lh_bound_term;

/* A lower bound's term count. */
enum { LH_BOUND_TERMS = 5 };

/* A lower bound in ns with the resource that causes it and its terms. */
typedef struct lh_bound {
    lh_bound_kind kind;
    int64_t ns;
    uint32_t device;   /* or LH_NONE */
    uint32_t resource; /* LH_BOUND_LINK: the link; else LH_NONE */
    char text[160];    /* description, e.g. "memory on device 0: two round trips
                        * and 8 full cycles" */
    uint32_t n_terms;
    lh_bound_term terms[LH_BOUND_TERMS]; /* sum equals `ns` */
} lh_bound;

#ifdef __cplusplus
}
#endif
#endif
