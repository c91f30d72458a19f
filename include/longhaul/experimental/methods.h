/* SPDX-License-Identifier: Apache-2.0 */
/* Scheduling methods by name: static and greedy generators
 * (docs/theory/schedules.md).
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_METHODS_H
#define LONGHAUL_EXPERIMENTAL_METHODS_H

#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/simulate.h>
#include <longhaul/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Options for lh_method_run(). Each applies to the methods named. */
typedef struct lh_method_options {
    size_t size;            /* sizeof(lh_method_options) */
    uint32_t sub_blocks;    /* greedy: parts per W; 0: 1 */
    uint32_t n_warmup;      /* slack: warm-up forwards per device, given ... */
    const uint32_t *warmup; /* ... or NULL: by Adaptra's algorithms */
    bool slack_initial;     /* slack: algorithm 1 (by memory) instead of 2 */
    uint32_t round_size;    /* flexible, dorapp: microbatches per round; 0: the
                             * device count */
    bool ignore_network;    /* interleaved-zbv: order for zero-cost messages */
    const lh_sim_options *sim; /* evaluates candidates in `auto` and look-ahead;
                                * NULL: defaults */
    /* elastic: microbatch group sizes for forward and backward. NULL:
     * the queue with the best closed-form time. Only `dequeue` NULL: the same
     * number of groups, equal sizes. */
    uint32_t n_enqueue, n_dequeue;
    const uint32_t *enqueue, *dequeue;
    /* look-ahead, auto: lower bound on the makespan, ns; a schedule that
     * reaches it is not improved further. 0: unknown. */
    int64_t bound_ns;
} lh_method_options;

/* Returns the number of scheduling methods, which are numbered in the order of
 * help texts and tables. */
LH_API uint32_t lh_n_methods(void);
LH_API const char *lh_method_name(uint32_t method); /* "zb-h1" */
/* Returns true for "auto", which selects the best result of the other methods
 * and is no separate method in comparisons. */
LH_API bool lh_method_is_auto(const char *name);

/* Builds a schedule with the named method. `options` may be NULL. *chosen (may
 * be NULL) receives the method that made it, different from `name` only for
 * "auto"; static storage. Errors: LH_EINVAL (no such method), LH_EUNSUPPORTED
 * (placement or backward mode), LH_EINFEASIBLE (memory limits). Release *out
 * with lh_schedule_free(). */
LH_API lh_status lh_method_run(const char *name, const lh_pipeline *pipeline,
                               const lh_method_options *options,
                               lh_schedule **out, const char **chosen,
                               lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
