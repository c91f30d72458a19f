/* SPDX-License-Identifier: Apache-2.0 */
/* The fastest schedule of a pipeline, with a proof where there is time for one
 * (DESIGN §5.1; CrossPipe §4.1). In goes a pipeline, and how long to look; out
 * come a schedule, a bound that none is below, and what each engine of the
 * search did for them. How, and why it is right: docs/theory/optimal.md; which
 * part is where: src/solve/state/solver.h. */
#ifndef LONGHAUL_SOLVE_H
#define LONGHAUL_SOLVE_H

#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What is to be as early as possible. */
typedef enum lh_solve_objective {
    LH_SOLVE_OBJECTIVE_MAKESPAN,
    LH_SOLVE_OBJECTIVE_FIRST_DEVICE, /* end of the last pass on chunk 0's device
                                      */
} lh_solve_objective;

typedef enum lh_solve_status {
    LH_SOLVE_OPTIMAL,    /* the bound is met */
    LH_SOLVE_FEASIBLE,   /* stopped before: there is a gap */
    LH_SOLVE_INFEASIBLE, /* proven: there is no schedule */
    LH_SOLVE_UNKNOWN,    /* stopped before one was found */
} lh_solve_status;

/* Where a search stands. */
typedef struct lh_solve_progress {
    double seconds;
    uint64_t effort;
    int64_t best_ns;   /* -1: no schedule yet */
    int64_t bound_ns;  /* proven */
    const char *phase; /* "annealing", ...; static storage */
} lh_solve_progress;

typedef struct lh_solve_options {
    size_t size;         /* sizeof(lh_solve_options) */
    double time_limit_s; /* 0: none; held within 0.1 s */
    /* Units of work, about a million a second; 0: no limit. Limited by effort
     * alone, the result is the same on every machine and with any number of
     * threads. */
    uint64_t effort;
    double gap;          /* stop at makespan <= bound * (1 + gap) */
    uint32_t threads;    /* at most so many; 0: one */
    size_t memory;       /* bytes for tables, at most; 0: 1 GiB */
    uint32_t sub_blocks; /* W in so many parts; 0: whole */
    bool fifo; /* messages leave first in, first out, whatever it costs */
    lh_solve_objective objective;
    uint64_t seed;            /* of annealing and the like */
    const lh_schedule *start; /* a schedule to improve on; may be NULL */
    /* Called a few times a second, by the thread that called lh_solve(); true:
     * stop and return what there is. */
    bool (*progress)(void *context, const lh_solve_progress *now);
    void *context;
    /* Above 0: is there a schedule whose objective is at most this? Stops once
     * one is found, or it is proven that there is none. */
    int64_t target_ns;
    /* Engines to do without, by name and with commas between them: for finding
     * out what each is worth. NULL: none. What comes out is as valid. */
    const char *without;
} lh_solve_options;

/* What a search is made of. */
LH_API uint32_t lh_n_solve_engines(void);
/* NULL: there is no such engine. */
LH_API const char *lh_solve_engine_name(uint32_t i);  /* "beams" */
LH_API const char *lh_solve_engine_about(uint32_t i); /* one line */
enum { LH_MOST_SOLVE_ENGINES = 32 };

/* What an engine did. */
typedef struct lh_solve_engine {
    const char *name; /* static storage */
    bool on;
    uint64_t effort;   /* a part of the solution's */
    uint32_t calls;    /* how often it was begun */
    uint32_t improved; /* how often it made the best schedule so far, or raised
                          the bound */
    int64_t gained_ns; /* by how much both, together, narrowed the gap */
} lh_solve_engine;

typedef struct lh_solution {
    lh_solve_status status;
    lh_schedule *schedule; /* NULL: infeasible or unknown */
    int64_t makespan_ns;   /* of the objective; -1: no schedule */
    int64_t bound_ns;      /* no schedule is faster */
    uint64_t effort;
    double seconds;
    const char *found_by;  /* what made the schedule: a method's name,
                              "annealing", "search"; "" if none */
    const char *proven_by; /* "closed form", "lattice", "search", ... */
    char why[160];         /* what limits, or why there is no schedule */
    uint32_t n_engines;
    lh_solve_engine engines[LH_MOST_SOLVE_ENGINES];
} lh_solution;

/* Looks for the fastest schedule. `options` may be NULL: no limits. A solver
 * that was stopped early has not failed. Receives are taken as posted early,
 * whatever the pipeline says: later ones only delay, so bounds hold. Release
 * with lh_solution_fini(). LH_EINVAL: options out of range, or no engine has a
 * name of `without`. */
LH_API lh_status lh_solve(const lh_pipeline *pipeline,
                          const lh_solve_options *options, lh_solution *out,
                          lh_error *err);
LH_API void lh_solution_fini(lh_solution *solution); /* NULL is fine */

LH_API const char *lh_solve_status_name(lh_solve_status status);

#ifdef __cplusplus
}
#endif
#endif
