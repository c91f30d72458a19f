/* SPDX-License-Identifier: Apache-2.0 */
/* Explains why a recorded job is slow and predicts the remedies' effect (Lin
 * et al., "Understanding Stragglers in Large Model Training Using What-if
 * Analysis", OSDI 2025, arXiv:2505.05713).
 *
 * Input: some steps' operations with start and duration. Each step is
 * replayed from these times along its dependencies, then with idealised times
 * (as if all were equal), then with mixtures of both. Measurements and
 * assumptions: docs/diagnose.md.
 *
 * Times are nanoseconds.
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_DIAGNOSE_H
#define LONGHAUL_EXPERIMENTAL_DIAGNOSE_H

#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Operation kinds. Send and receive in one direction form one kind. X(name,
 * text). */
#define LH_OPERATION_LIST(X)                                                   \
    X(FORWARD_COMPUTE, "forward-compute")                                      \
    X(BACKWARD_COMPUTE, "backward-compute")                                    \
    X(BACKWARD_INPUT, "backward-input")                                        \
    X(BACKWARD_WEIGHT, "backward-weight")                                      \
    X(FORWARD_PP_COMM, "forward-pp-comm")                                      \
    X(BACKWARD_PP_COMM, "backward-pp-comm")                                    \
    X(PARAMS_ALL_GATHER, "params-all-gather")                                  \
    X(GRADS_REDUCE_SCATTER, "grads-reduce-scatter")                            \
    X(SEPARATE_GRADS_ALL_REDUCE, "separate-grads-all-reduce")                  \
    X(LAYERNORM_GRADS_ALL_REDUCE, "layernorm-grads-all-reduce")                \
    X(EMBEDDING_GRADS_ALL_REDUCE, "embedding-grads-all-reduce")                \
    X(OPTIMIZER_CLIP, "optimizer-clip-main-grad")                              \
    X(OPTIMIZER, "optimizer")                                                  \
    X(GC, "gc")

/* Operation kinds, see LH_OPERATION_LIST. */
typedef enum lh_operation {
#define LH_OPERATION_ENUM(name, text) LH_OPERATION_##name,
    LH_OPERATION_LIST(LH_OPERATION_ENUM)
#undef LH_OPERATION_ENUM
        LH_N_OPERATIONS
} lh_operation;

/* Returns the operation's name, such as "forward-compute"; static storage. */
LH_API const char *lh_operation_name(lh_operation operation);

/* --- input ---------------------------------------------------------------- */

/* Recorded operations in a job's steps. Immutable; damaged records are skipped.
 */
typedef struct lh_recording lh_recording;

/* Rank map for PyTorch profiler traces: assigns ranks to stages and replicas,
 * and ranges to operations (docs/formats/ranks.md). Immutable. Release with
 * lh_rank_map_free(), texts with lh_text_free().
 *
 * LH_EINPUT: the text is not a valid map; `err` names file, line and key.
 * LH_EIO: the file cannot be read. */
typedef struct lh_rank_map lh_rank_map;

/* Maximum entry counts in a rank map: ranks, and range names. */
enum { LH_MAX_MAP_RANKS = 65536, LH_MAX_MAP_NAMES = 1024 };

/* Reads a rank map, which names each rank's stage, replica and trace file. */
LH_API lh_status lh_rank_map_read(const char *path, lh_rank_map **out,
                                  lh_error *err);
LH_API void lh_rank_map_free(lh_rank_map *map); /* frees; NULL is a no-op */

/* Reads one recording's files, plain or gzip-compressed, with a rank map (may
 * be NULL; not retained). Accepted kinds:
 *
 * - tables (docs/formats/recording.md); rows of a step may be spread over
 *   several tables
 * - longhaul traces, one per step, the first being step 0
 * - PyTorch profiler traces, one or several per rank
 * - Nsight Systems JSON exports, one or several ranks each
 * - logs with Megatron-LM's timers, which give the ranks' activity alone
 *
 * "-" has no special meaning. Damaged records are skipped and listed in
 * lh_diagnosis.defects. Release with lh_recording_free().
 *
 * PyTorch profiler traces without a complete step give a recording without
 * steps: lh_diagnose() then compares the ranks' activity.
 *
 * LH_EINPUT: a file has a different kind than the first or an unknown kind, has
 * no heading, contains no intact record, or a rank's position is unknown; or a
 * map was given and the files are not PyTorch profiler traces, or the map names
 * ranges that do not occur. LH_EUNSUPPORTED: a trace has data-parallel
 * communication in parts. */
LH_API lh_status lh_recording_read_mapped(const char *const *paths,
                                          uint32_t n_paths,
                                          const lh_rank_map *map,
                                          lh_recording **out, lh_error *err);
/* Frees a recording; ignores NULL. */
LH_API void lh_recording_free(lh_recording *recording);

/* Returns the recording's step count. */
LH_API uint32_t lh_recording_n_steps(const lh_recording *recording);
/* Returns the recording's replica count. */
LH_API uint32_t lh_recording_n_replicas(const lh_recording *recording);

/* Builds a scheduling problem from one replica. Chunks have the mean pass
 * times; messages have mean times on links between the stages, modelled as
 * latency alone because a recording does not separate latency from transfer. A
 * chunk's F adds 1 unit of memory and its last pass frees 1, so that memory
 * counts resident microbatches. Release *out.
 *
 * LH_EINVAL: no such replica. LH_EUNSUPPORTED: some chunk does not process
 * every microbatch exactly once, as a pipeline must. */
LH_API lh_status lh_recording_linked_pipeline(const lh_recording *recording,
                                              uint32_t replica,
                                              lh_pipeline **out, lh_error *err);
/* Returns the measured time from the replica's first to its last pass, averaged
 * over steps. 0: no such replica. */
LH_API int64_t lh_recording_passes_ns(const lh_recording *recording,
                                      uint32_t replica);

/* --- output --------------------------------------------------------------- */

/* One step's measured, replayed and idealised duration. */
typedef struct lh_diagnosed_step {
    uint64_t step;
    int64_t measured_ns, t_ns, ideal_ns;
} lh_diagnosed_step;

/* Slow component kind. */
typedef enum lh_slow_kind {
    LH_SLOW_WORKER,       /* slower than the same stage on other replicas */
    LH_SLOW_STAGE,        /* slower than other stages */
    LH_SLOW_LINK,         /* messages from `stage` to `to_stage` in a replica */
    LH_SLOW_MICROBATCHES, /* microbatches of unequal duration, the same on all
                           * ranks: longest of each against their mean */
} lh_slow_kind;

/* A component that was slower than its peers, and when. */
typedef struct lh_slow_component {
    lh_slow_kind kind;
    uint32_t stage,
        to_stage;        /* `to_stage`: links only; LH_NONE: microbatches */
    uint32_t replica;    /* LH_NONE for stages and microbatches */
    double ratio;        /* its time / the others', over its slow steps */
    uint32_t n_steps;    /* slow step count */
    uint64_t first_step; /* first slow step */
    uint64_t last_step;  /* last slow step */
    bool is_ongoing;     /* still slow in the last recorded step */
    /* Predicted saving per step if this component had typical times, by replay,
     * averaged over steps. `hidden`: the saving is negligible while other
     * components are slow; cost_ns is then the saving once all others are
     * typical. Example: if replicas wait for two equally slow links, each hides
     * the other. */
    int64_t cost_ns;
    bool hidden;
} lh_slow_component;

/* A possible remedy with its predicted effect. */
typedef struct lh_remedy {
    const char *action;      /* one sentence */
    const char *assumptions; /* assumptions; "" if everything was measured */
    int64_t predicted_ns;
    double gain; /* fraction of t_ns, 0..1 */
} lh_remedy;

/* Where a rank's activity comes from. X(name, text). */
#define LH_ACTIVITY_LIST(X)                                                    \
    X(CPU, "cpu")                                                              \
    X(GPU, "gpu")                                                              \
    X(TIMERS, "timers")

/* Origins of activities: outermost CPU operators of a trace, its GPU kernels,
 * or Megatron-LM's timers; see LH_ACTIVITY_LIST. */
typedef enum lh_activity_source {
#define LH_ACTIVITY_ENUM(name, text) LH_ACTIVITY_##name,
    LH_ACTIVITY_LIST(LH_ACTIVITY_ENUM)
#undef LH_ACTIVITY_ENUM
} lh_activity_source;

/* A rank's activity per marked step (ProfilerStep#) or iteration; without marks
 * its times are of the whole trace. */
typedef struct lh_rank_activity {
    const char *file; /* its first trace */
    uint32_t rank;    /* LH_NONE: unknown */
    uint32_t n_steps; /* marked; 0: none */
    lh_activity_source source;
    int64_t span_ns; /* from the first to the last activity or mark */
    int64_t compute_ns, communication_ns, copy_ns;
    int64_t overlap_ns; /* computation and communication at once */
    int64_t idle_ns;    /* none of the three */
    double ratio;       /* compute_ns / median of the others; 0: no others, or
                         * their marks or sources differ */
    bool is_slow;       /* ratio above 1.1 */
} lh_rank_activity;

/* A kind of recording defect and its frequency. */
typedef struct lh_recording_defect {
    const char *kind; /* "doubled-rows" */
    uint64_t n;
    const char *text; /* one sentence */
} lh_recording_defect;

/* Result from lh_diagnose(): plain arrays, immutable, owned by the diagnosis.
 * Step times are means over the steps. Without steps (n_steps = 0) only
 * `unreplayed`, `ranks` and `defects` are set. */
typedef struct lh_diagnosis {
    uint32_t n_steps, n_stages, n_replicas, n_chunks, n_microbatches;
    const uint32_t *replicas;       /* replica numbers in the recording */
    const lh_diagnosed_step *steps; /* sorted by step number */
    double measured_ns;             /* from step start to all operations' end */
    double t_ns;                    /* replayed with recorded times */
    double ideal_ns;                /* replayed with typical times everywhere */
    double slowdown;                /* t_ns / ideal_ns */
    double slowdown_error; /* standard error over the steps; 0: one step */
    /* Slowdown if only this stage, replica or worker kept its recorded times.
     */
    const double *by_stage, *by_replica;
    const double *by_worker; /* index stage * n_replicas + replica; the smaller
                              * of its replica's and its stage's value */
    /* 0 for kinds that were not recorded. */
    double by_operation[LH_N_OPERATIONS];
    /* Fraction of t_ns - ideal_ns removed by giving typical times to the
     * slowest 3 % of workers, and to the last stage. 0 if there is no
     * difference. */
    double worker_share, last_stage_share;
    uint32_t n_slow_workers; /* that 3 %, rounded up, slowest first */
    const uint32_t *slow_workers;
    uint32_t n_slow_components; /* highest cost first */
    const lh_slow_component *slow_components;
    /* Predicted saving per step if all of them had typical times, when some are
     * hidden; else 0. */
    int64_t combined_saving_ns;
    uint32_t n_remedies; /* best first */
    const lh_remedy *remedies;
    uint32_t n_defects;
    const lh_recording_defect *defects;
    const char *unreplayed; /* why there are no steps; NULL: there are */
    uint32_t n_ranks;       /* PyTorch profiler traces and timers; else 0 */
    const lh_rank_activity *ranks; /* by rank */
} lh_diagnosis;

/* Options for lh_diagnose(). */
typedef struct lh_diagnose_options {
    size_t size;      /* sizeof(lh_diagnose_options) */
    uint32_t threads; /* 0: one per processor; does not affect the result */
} lh_diagnose_options;

/* Diagnoses a recording: which operations and workers slow the job down, and
 * remedies. `options` may be NULL. The recording may be freed afterwards.
 * Release with lh_diagnosis_free(). */
LH_API lh_status lh_diagnose(const lh_recording *recording,
                             const lh_diagnose_options *options,
                             lh_diagnosis **out, lh_error *err);
/* Frees a diagnosis; ignores NULL. */
LH_API void lh_diagnosis_free(lh_diagnosis *diagnosis);

#ifdef __cplusplus
}
#endif
#endif
