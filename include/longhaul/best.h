/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules by name, the searched ones too: the methods of
 * <longhaul/methods.h> and "optimal"; "auto" is the best of all of these. */
#ifndef LONGHAUL_BEST_H
#define LONGHAUL_BEST_H

#include <longhaul/methods.h>
#include <longhaul/solve.h>

#ifdef __cplusplus
extern "C" {
#endif

/* All names, in the order that help and tables show. */
LH_API uint32_t lh_n_best(void);
LH_API const char *lh_best_name(uint32_t i);  /* "optimal" */
LH_API const char *lh_best_about(uint32_t i); /* one line */
/* Whether that name is of the search for an optimal schedule, which is no
 * method: LH_OPTIMAL. */
#define LH_OPTIMAL "optimal"
LH_API bool lh_best_is_search(const char *name);
/* LH_EINVAL: there is no such name; `err` lists those there are. */
LH_API lh_status lh_best_find(const char *name, lh_error *err);

typedef struct lh_best_options {
    size_t size;                     /* sizeof(lh_best_options) */
    const lh_method_options *method; /* `sim`: what candidates are judged
                                        under; `bound_ns` is worked out. NULL:
                                        the defaults */
    /* Work for searching, in the units of lh_solve_options: the result is the
     * same everywhere. 0: 200000 for "auto", 1000000 for "optimal". */
    uint64_t effort;
    /* May stop a search, as lh_solve_options says; may be NULL. */
    bool (*progress)(void *context, const lh_solve_progress *now);
    void *context;
    /* Engines that a search is to do without, as lh_solve_options says. */
    const char *without;
} lh_best_options;

typedef struct lh_best {
    lh_schedule *schedule;
    const char *method; /* that made it; "optimal" where searching beat the
                           methods, or proved that none is faster than theirs
                           and "optimal" was asked for. Static storage */
    int64_t bound_ns;   /* no schedule with W whole, or in the parts asked for,
                           is faster, under any `sim` */
    char why[160];      /* what limits */
} lh_best;

/* Makes a schedule by that name. `options` may be NULL. "auto" tries every
 * method that suits, then searches; pipelines of more than 200000 passes are
 * not searched for "auto". Release with lh_best_fini().
 * Errors as of lh_method_run(). */
LH_API lh_status lh_best_schedule(const char *name, const lh_pipeline *pipeline,
                                  const lh_best_options *options, lh_best *out,
                                  lh_error *err);
LH_API void lh_best_fini(lh_best *best); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
