/* SPDX-License-Identifier: Apache-2.0 */
/* Making schedules by name: the static and greedy generators (DESIGN §5). */
#ifndef LONGHAUL_METHODS_H
#define LONGHAUL_METHODS_H

#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/simulate.h>
#include <longhaul/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lh_method_options {
    size_t size;            /* sizeof(lh_method_options) */
    uint32_t sub_blocks;    /* greedy: parts that a W is cut into; 0: 1 */
    uint32_t n_warmup;      /* slack: warm-up forwards per device, given ... */
    const uint32_t *warmup; /* ... or NULL, then by Adaptra's algorithms */
    bool slack_initial;     /* slack: algorithm 1 (by memory) in place of 2 */
    uint32_t group; /* flexible, dorapp: microbatches of a round; 0: as many as
                       devices */
    bool ignore_network; /* interleaved-zbv: an order for messages that take no
                            time */
    const lh_sim_options *sim; /* what `auto` and look-ahead judge candidates
                                  under; NULL: the defaults */
    /* elastic: microbatches that go forward, and backward, together. NULL: the
     * queue that the closed form says is fastest; `dequeue` alone NULL: as many
     * groups, all of one size. */
    uint32_t n_enqueue, n_dequeue;
    const uint32_t *enqueue, *dequeue;
    /* look-ahead, auto: a makespan that no schedule falls below, in ns; one
     * that reaches it is not improved any more. 0: none is known. */
    int64_t bound_ns;
} lh_method_options;

/* The methods there are, in the order that help and tables show. */
LH_API uint32_t lh_n_methods(void);
LH_API const char *lh_method_name(uint32_t method);  /* "zb-h1" */
LH_API const char *lh_method_about(uint32_t method); /* one line */
/* Whether that name is of the one that takes the best of the others ("auto"),
 * and so says nothing beside them. */
LH_API bool lh_method_is_choice(const char *name);

/* The number of the method of that name into *out (may be NULL).
 * LH_EINVAL: there is none; `err` lists those there are. */
LH_API lh_status lh_method_find(const char *name, uint32_t *out, lh_error *err);

/* Makes a schedule by the method of that name. `options` may be NULL.
 * *chosen (may be NULL) is set to the name of the method that made it, which
 * differs from `name` for "auto" only; static storage.
 * LH_EINVAL: no such method, `err` lists those there are.
 * LH_EUNSUPPORTED: the method does not fit this placement or backward.
 * LH_EINFEASIBLE: no order by this method keeps the memory limits. */
LH_API lh_status lh_method_run(const char *name, const lh_pipeline *pipeline,
                               const lh_method_options *options,
                               lh_schedule **out, const char **chosen,
                               lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
