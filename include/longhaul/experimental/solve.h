/* SPDX-License-Identifier: Apache-2.0 */
/* Searches a pipeline's fastest schedule and proves optimality if effort
 * permits (CrossPipe section 4.1). Input: a pipeline and a
 * limit. Output: a schedule, a lower bound, and statistics per search engine.
 * Algorithms and proofs: docs/theory/optimal.md. Source overview:
 * src/schedule/solver/state/solver.h.
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_SOLVE_H
#define LONGHAUL_EXPERIMENTAL_SOLVE_H

#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Objective to minimise. */
typedef enum lh_solve_objective {
    LH_SOLVE_OBJECTIVE_MAKESPAN,
    LH_SOLVE_OBJECTIVE_FIRST_DEVICE, /* end of the last pass on chunk 0's device
                                      */
} lh_solve_objective;

/* A search's outcome. */
typedef enum lh_solve_status {
    LH_SOLVE_OPTIMAL,    /* objective equals the bound */
    LH_SOLVE_FEASIBLE,   /* stopped early: a gap remains */
    LH_SOLVE_INFEASIBLE, /* proven: no schedule exists */
    LH_SOLVE_UNKNOWN,    /* stopped before a schedule was found */
} lh_solve_status;

/* A search's progress. */
typedef struct lh_solve_progress {
    double seconds;
    uint64_t effort;
    int64_t best_ns;   /* -1: no schedule yet */
    int64_t bound_ns;  /* proven lower bound */
    const char *phase; /* "annealing", ...; static storage */
} lh_solve_progress;

/* Options for lh_solve(). 0 or NULL: the default. */
typedef struct lh_solve_options {
    size_t size;         /* sizeof(lh_solve_options) */
    double time_limit_s; /* 0: none; met within 0.1 s */
    /* Effort limit, about a million units per second; 0: no limit. If limited
     * by effort alone, the result is the same on every machine and for any
     * thread count. */
    uint64_t effort;
    double gap;          /* stop at makespan <= bound * (1 + gap) */
    uint32_t threads;    /* maximum number; 0: one */
    size_t memory;       /* maximum bytes for tables; 0: 1 GiB */
    uint32_t sub_blocks; /* parts per W; 0: not split */
    bool fifo;           /* restrict messages to first in, first out */
    lh_solve_objective objective;
    uint64_t seed; /* for randomised engines such as annealing */
    const lh_schedule
        *initial_schedule; /* initial schedule to improve; may be NULL */
    /* Called a few times per second from the thread that called lh_solve().
     * Returning true stops the search, which then returns its best result. */
    bool (*progress)(void *context, const lh_solve_progress *now);
    void *context;
    /* If > 0: decision problem. The search stops once a schedule with an
     * objective of at most target_ns is found, or proven not to exist. */
    int64_t target_ns;
    /* Comma-separated names of engines to disable, to measure their
     * contribution. NULL: none. Results remain valid. */
    const char *disabled_engines;
    /* With host memory (lh_pipeline_with_host()): time of one copy of a
     * forward's activations to or from host memory, as in lh_sim_options.
     * Bounds hold for any time, also 0. */
    int64_t host_copy_ns;
} lh_solve_options;

/* Returns the number of search engines, the algorithms that the solver
 * combines. */
LH_API uint32_t lh_n_solve_engines(void);
/* Returns search engine number `i`'s name, such as "beams"; NULL: no such
 * engine. Static storage. */
LH_API const char *lh_solve_engine_name(uint32_t i);
/* Returns search engine number `i`'s one-line description; NULL: no such
 * engine. Static storage. */
LH_API const char *lh_solve_engine_about(uint32_t i);
/* Returns the number of the engine with the name in name[0..len-1], or with a
 * name of an earlier version: loose (relaxation), fewer (reduction), regrowth
 * (destroy-repair). lh_n_solve_engines(): there is none. */
LH_API uint32_t lh_solve_engine_find(const char *name, size_t len);
/* Capacity for the engines' statistics. */
enum { LH_MAX_SOLVE_ENGINES = 32 };

/* One engine's statistics. */
typedef struct lh_solve_engine {
    const char *name; /* static storage */
    bool on;
    uint64_t effort;   /* included in the solution's effort */
    uint32_t calls;    /* invocation count */
    uint32_t improved; /* how often it found a new best schedule or raised the
                        * bound */
    int64_t gained_ns; /* total gap reduction by both */
} lh_solve_engine;

/* Result from lh_solve(). Release with lh_solution_fini(). */
typedef struct lh_solution {
    lh_solve_status status;
    lh_schedule *schedule; /* NULL: infeasible or unknown */
    int64_t makespan_ns;   /* of the objective; -1: no schedule */
    int64_t bound_ns;      /* lower bound */
    uint64_t effort;
    double seconds;
    const char *found_by;  /* where the schedule comes from: a method's name,
                            * "annealing", "search"; "" if none */
    const char *proven_by; /* "closed form", "lattice", "search", ... */
    char why[160];         /* bottleneck, or reason for infeasibility */
    uint32_t n_engines;
    lh_solve_engine engines[LH_MAX_SOLVE_ENGINES];
} lh_solution;

/* Searches the fastest schedule. `options` may be NULL: no limits. Stopping
 * early is not an error. Receives are assumed pre-posted in any mode of the
 * pipeline: later receives only delay, so bounds remain valid. Release with
 * lh_solution_fini(). LH_EINVAL: options out of range, or an unknown engine in
 * `disabled_engines`. */
LH_API lh_status lh_solve(const lh_pipeline *pipeline,
                          const lh_solve_options *options, lh_solution *out,
                          lh_error *err);
/* Frees the schedule and other contents of a solution; ignores NULL. */
LH_API void lh_solution_fini(lh_solution *solution);

/* Returns a solve status name, such as "optimal"; static storage. */
LH_API const char *lh_solve_status_name(lh_solve_status status);

#ifdef __cplusplus
}
#endif
#endif
