/* SPDX-License-Identifier: Apache-2.0 */
/* The engines in lh_solve(). Each engine is one row. The row provides its
 * switch (lh_solve_options.without), its statistics (lh_solution.engines), the
 * program's help and completion, and bench/bench_ablation.c. */
#ifndef LHI_SCHEDULE_SOLVER_MODEL_ENGINES_H
#define LHI_SCHEDULE_SOLVER_MODEL_ENGINES_H

#include <longhaul/experimental/solve.h>

/* X(identifier, name, label for its results, one-line help) */
#define LHI_ENGINE_LIST(X)                                                     \
    X(METHODS, "methods", "", "initial schedules by all other methods")        \
    X(RELAXATION, "relaxation", "", "bounds for W passes with unequal parts")  \
    X(LATTICE, "lattice", "", "state lattice of each machine")                 \
    X(LIVE, "live", "",                                                        \
      "lattice of one deadline, if the complete one is too large")             \
    X(WINDOWS, "windows", "", "bounds by time windows under trial deadlines")  \
    X(SHAVING, "shaving", "",                                                  \
      "orders refuted by windows under the opposite order")                    \
    X(DISPATCHING, "dispatching", "dispatching",                               \
      "list scheduling by due date")                                           \
    X(JUSTIFICATION, "justification", "justification",                         \
      "forward-backward rescheduling from both ends")                          \
    X(TUNING, "tuning", "tuning", "dispatching rules with tuned weights")      \
    X(INSERTION, "insertion", "insertion",                                     \
      "insertion of microbatches into gaps, one by one")                       \
    X(MIRROR, "mirror", "insertion",                                           \
      "insertion in reverse, from the last "                                   \
      "microbatch")                                                            \
    X(DESTROY_REPAIR, "destroy-repair", "insertion",                           \
      "destroy and repair of the best by insertion")                           \
    X(BEAMS, "beams", "beam search", "beam search over partial schedules")     \
    X(SEARCH, "search", "search",                                              \
      "clause learning at or just above the bound")                            \
    X(BETWEEN, "between", "search",                                            \
      "clause learning between the bound and the "                             \
      "best")                                                                  \
    X(SHORTENED, "shortened", "search",                                        \
      "incremental clause learning just below the best")                       \
    X(REFUTATION, "refutation", "search",                                      \
      "short clause learning at the bound of large pipelines")                 \
    X(ANNEALING, "annealing", "annealing",                                     \
      "simulated annealing of orders on a critical path")                      \
    X(NEAR, "neighbourhoods", "large neighbourhoods",                          \
      "large-neighbourhood search over time intervals")                        \
    X(ELSEWHERE, "elsewhere", "large neighbourhoods",                          \
      "large-neighbourhood search from near-best schedules")                   \
    X(REDUCTION, "reduction", "",                                              \
      "bounds from pipelines with fewer microbatches")                         \
    X(STRETCHING, "stretching", "stretching",                                  \
      "schedules from fewer microbatches, middle repeated")

/* The solver's engines. */
typedef enum lhi_engine {
    LHI_ENGINE_NONE, /* work shared by all engines */
#define LHI_ENGINE_ID(id, name, label, about) LHI_ENGINE_##id,
    LHI_ENGINE_LIST(LHI_ENGINE_ID)
#undef LHI_ENGINE_ID
        LHI_N_ENGINES
} lhi_engine;

/* Returns an engine's label, such as "beam search"; static storage. */
const char *lhi_engine_get_label(lhi_engine engine);

/* Parses a list of engines to disable. *off: bit 1 << lhi_engine for each name
 * in `without` (comma-separated; NULL: none). */
lh_status lhi_engine_parse_disabled(const char *without, uint64_t *off,
                                    lh_error *err);

#endif
