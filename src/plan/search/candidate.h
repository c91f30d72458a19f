/* SPDX-License-Identifier: Apache-2.0 */
/* The search over layouts and what it looks at: a layout, its bound, and what
 * schedules make of it. In: a job and what its plan is to be best in. Out: the
 * best layout with its schedule, those behind it, and what is proven.
 *
 *   plan_search.h  all of it; plan_search.c calls the parts one by one
 *   branch.c       branch and bound over layouts with even chunks
 *   each.h         parts of all that on several threads
 *   floor.h        bounds before a pipeline is built: floor.c has them,
 *                  floors.c what they are computed from; candidate.c: after
 *   evaluate.c     what methods make of a layout
 *   moves.c        layers moved between chunks; exact.c: every partition;
 *   dives.h        what each value of each dimension comes to, by what is
 *                  near (nearby.h) to the best with it
 *                  drawn.c: at random, in place of all that
 *   elastic_search.h  elastic plans, by bounds of their own
 *   goal.h         the time or the cost (money.h); front.h: neither alone
 *   refine.h       optimal schedules for those that may win
 *   robust.h       the choice under delays that vary
 *   search_limits.h  how much it may do; candidate_stop.c: who ends it
 *   unseen.h       bounds of what was not looked at, for each dimension
 *   results.c      what the search came to, and why the others lost */
#ifndef LHI_CANDIDATE_H
#define LHI_CANDIDATE_H

#include "plan/elastic/elastic_choices.h"
#include "plan/layout/choice.h"
#include "plan/layout/tried.h"
#include "plan/search/floor.h"
#include "plan/search/unseen.h"

#include <stdatomic.h>

/* On a pipeline of so few passes no method is slow. */
enum { LHI_FEW_PASSES = 1000 };

typedef struct lhi_candidate {
    lhi_config config;
    lhi_floor floor;     /* of every partition of its layers */
    int64_t bound_ns;    /* of its own; INT64_MAX: does not fit */
    int64_t missing;     /* bytes, where it does not fit */
    uint32_t missing_on; /* device */
    bool simulated;
    bool thorough;    /* under every method, not only the first glance's */
    bool slowly;      /* under slow ones, whatever the others come to */
    bool evened;      /* its work was made even, or could not be */
    bool dived;       /* by a dive: counted before, as left or ruled out */
    bool open;        /* left when the search ended, though it may be better */
    lh_choice choice; /* best method, once simulated */
    char bound_text[160];
} lhi_candidate;

/* What a search looks for. Smaller is better; numbers are compared with those
 * of the same objective alone. */
typedef struct lhi_objective {
    void *context;
    /* What no plan can be below that keeps to what `config` has decided so far
     * (0: not yet), whose iterations take floor->ns at least and whose fullest
     * GPU holds floor->memory_bytes at least. The search takes up what has the
     * least first. */
    int64_t (*bound)(void *context, lhi_level level, const lhi_config *config,
                     const lhi_floor *floor);
    /* Whether nothing with that bound is of any use any more. */
    bool (*hopeless)(void *context, int64_t bound, lhi_level level,
                     const lhi_config *config, const lhi_floor *floor);
    /* Looks at a candidate that was simulated and works. */
    lh_status (*offer)(void *context, const lhi_candidate *c, lh_error *err);
    /* What it comes to. */
    int64_t (*value)(void *context, const lhi_candidate *c);
    /* Takes note of what may be of use and was not, or not all, looked at;
     * may be NULL, as the next, which searches for elastic plans ask. */
    void (*left)(void *context, lhi_level level, const lhi_config *config,
                 const lhi_floor *floor);
    /* Iterations on such a layout that take as long are of no use; 0: all
     * may be. */
    int64_t (*useless_ns)(void *context, lhi_level level,
                          const lhi_config *config);
} lhi_objective;

typedef struct lhi_layout_search {
    const lh_job *job;
    lh_plan_options options;
    const lhi_objective *objective; /* NULL: the time of an iteration */
    lhi_arena *mem;                 /* the plan's */
    lhi_candidate *candidates;
    uint32_t n, room;
    struct lhi_front *front; /* NULL: the best alone is wanted */
    lhi_tried *tried;        /* what methods made of pipelines, or NULL */
    lhi_unseen *unseen; /* takes bounds of what is not simulated, or NULL */
    uint32_t sharing;   /* so many searches share its work; 0: one */
    int64_t best_ns;    /* the fastest iteration so far; INT64_MAX: none */
    int64_t best_value; /* the best by the objective: lhi_value_of() */
    bool complete;      /* nothing is left that could be of use */
    bool glance_only;   /* candidates are wanted, not the best of them */
    bool exact;         /* every partition that could win was tried */
    struct lhi_workers *workers; /* each.h; NULL: this thread alone */
    bool asked;                  /* the caller wants what there is */
    bool elsewhere;              /* on another thread than the caller's */
    atomic_bool *stop;  /* all threads are to end; NULL: this is the only one */
    double until_s;     /* of the process's time, for what comes after the
                           layouts; 0: no such limit */
    int64_t dropped_ns; /* the least bound of what the objective ruled out */
    /* Layouts: those that do not fit, that were simulated, and so on. */
    uint64_t n_memory, n_simulated, n_unsupported, n_dropped;
    uint64_t n_left; /* when the search stopped: neither ruled out nor tried */
    uint64_t pruned[LHI_N_FLOORS]; /* by a bound before they were built */
    int64_t proven_ns;      /* no layout, partition or schedule is faster */
    double proven_usd;      /* or costs less, where that counts; 0: not known */
    lh_error first_refusal; /* why the first layout did not work */
    lhi_config closest;     /* of those that do not fit */
    lhi_floor closest_floor; /* missing 0: none */
    bool closest_whole;      /* all of it is decided */
    /* Layouts that elastic plans can be on; of these those not looked at. */
    uint64_t n_elastic, n_elastic_left;
    lhi_elastic_choices elastic;
} lhi_layout_search;

/* Branch and bound over all layouts that the job leaves open. Fills
 * candidates, counts and proven_ns. */
lh_status lhi_layout_search_branch(lhi_layout_search *s, lh_error *err);

/* Whether `status` says that a layout, or `n` of them, cannot be had: they are
 * counted, and the first reason is kept. Else it is the caller's, and so is
 * `why`. */
bool lhi_layout_search_refused(lhi_layout_search *s, lh_status status,
                               const lh_error *why, uint64_t n);

/* Reports progress, on the caller's own thread, of `total` layouts; true: the
 * caller wants what there is. */
bool lhi_layout_search_asked(lhi_layout_search *s, uint32_t total);
/* The same, and what is left is then done as for a quick plan; or the time is
 * over. Never before something works: what the search has, or what `works` says
 * of. */
bool lhi_layout_search_stopped(lhi_layout_search *s, uint32_t total,
                               bool works);

/* Every partition of every candidate that could still win. LH_EINVAL: too many
 * of one layout. */
lh_status lhi_layout_search_exact(lhi_layout_search *s, lh_error *err);
/* Whether these are few enough to try them all unasked: counted in passes. */
lh_status lhi_layout_search_is_small(const lhi_layout_search *s, bool *out,
                                     lh_error *err);

/* Layers moved between the chunks of those that could still win, as far as its
 * budget goes. */
lh_status lhi_layout_search_move(lhi_layout_search *s, lh_error *err);

/* The same of one of them, with so many passes as *passes says, which is left
 * with what remains. */
lh_status lhi_layout_search_move_one(lhi_layout_search *s, uint32_t candidate,
                                     uint64_t *passes, lh_error *err);

/* In place of all that: draws at random. Proves nothing. */
lh_status lhi_layout_search_draw(lhi_layout_search *s, lh_error *err);

/* A bound that no schedule of the layout beats, or that it does not fit or
 * work at all. */
lh_status lhi_candidate_bound(lhi_layout_search *s, lhi_candidate *c,
                              lh_error *err);

/* Work made even on its devices (uneven.h), if it then has a lower bound. */
lh_status lhi_candidate_even_out(lhi_layout_search *s, lhi_candidate *c,
                                 lh_error *err);

/* That bound, of what was built of the layout. */
lh_status lhi_candidate_bound_built(lhi_candidate *c, const lhi_built *built,
                                    lh_error *err);

/* It was simulated, and at least one schedule works. */
bool lhi_candidate_works(const lhi_candidate *c);

/* What is known of a layout before any method has run. */
lh_choice lhi_candidate_choice(const lhi_candidate *c, const char *method);
/* Tokens per second and utilisation of a time. */
lh_status lhi_choice_rates(const lh_job *job, lhi_arena *mem, lh_choice *choice,
                           lh_error *err);

/* The methods that a plan considers: all that stand for themselves. */
bool lhi_method_considered(const lh_job *job, const lh_plan_options *options,
                           uint32_t pipeline, const lhi_method *method);
/* What the method that choice->layout names makes of the layout: status, times,
 * memory, rates, and in `mem` why it does not work. *schedule is NULL then;
 * `tried` and `schedule` are as in lhi_tried_find(). */
lh_status lhi_method_try(const lh_job *job, const lh_plan_options *options,
                         const lhi_built *built, lhi_tried *tried,
                         lhi_arena *mem, lh_choice *choice,
                         lh_schedule **schedule, lh_error *err);

/* Tries every method; the best is left in c->choice, its schedule in *best
 * (NULL: none works; `best` may be NULL). `all`, if not NULL, takes every
 * method's result. */
lh_status lhi_candidate_methods(lhi_layout_search *s, lhi_candidate *c,
                                const lhi_built *built, lh_schedule **best,
                                lh_choice *all, uint32_t *n_all, lh_error *err);
/* The same from the layout on, and counted. */
lh_status lhi_candidate_glance(lhi_layout_search *s, lhi_candidate *c,
                               lh_error *err); /* under one method */
lh_status lhi_candidate_simulate(lhi_layout_search *s, lhi_candidate *c,
                                 lh_error *err);

/* The fastest simulated; NULL: none works. */
lhi_candidate *lhi_layout_search_best(const lhi_layout_search *s);

/* What the search comes to, or why nothing works: LH_EINFEASIBLE. */
lh_status lhi_layout_search_finish(lhi_layout_search *s, lh_plan *plan,
                                   lh_error *err);

#endif
