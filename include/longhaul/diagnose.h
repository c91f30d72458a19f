/* SPDX-License-Identifier: Apache-2.0 */
/* Why a running job is slow, from what was recorded of it, and what would help
 * (Lin et al., "Understanding Stragglers in Large Model Training Using What-if
 * Analysis", OSDI 2025, arXiv:2505.05713).
 *
 * In: the operations of some steps, when each began and how long it took. A
 * step is played again from their times by what depends on what; then with the
 * times that they would have if all were alike, and with some of both. What is
 * known, and what is assumed: docs/diagnose.md.
 *
 * Times are nanoseconds. */
#ifndef LONGHAUL_DIAGNOSE_H
#define LONGHAUL_DIAGNOSE_H

#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Kinds of operations that are told apart; sends and receives of a direction
 * are one. X(name, text). */
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

typedef enum lh_operation {
#define LH_OPERATION_ENUM(name, text) LH_OPERATION_##name,
    LH_OPERATION_LIST(LH_OPERATION_ENUM)
#undef LH_OPERATION_ENUM
        LH_N_OPERATIONS
} lh_operation;

LH_API const char *lh_operation_name(lh_operation operation);

/* --- in ------------------------------------------------------------------- */

/* The operations of steps of a job: immutable, and what is damaged left out. */
typedef struct lh_recording lh_recording;

/* What traces of PyTorch's profiler do not say themselves: which rank is which
 * stage and replica, which range is which operation; docs/formats/ranks.md.
 * Immutable. Release with lh_rank_map_free(), texts with lh_text_free().
 * LH_EINPUT: the text is no such map; `err` names file, line and key. LH_EIO:
 * the file cannot be read. */
typedef struct lh_rank_map lh_rank_map;

enum { LH_MAX_MAP_RANKS = 65536, LH_MAX_MAP_NAMES = 1024 };

LH_API lh_status lh_rank_map_read(const char *path, lh_rank_map **out,
                                  lh_error *err);
LH_API lh_status lh_rank_map_parse(const char *text, size_t len,
                                   const char *name, lh_rank_map **out,
                                   lh_error *err);
LH_API lh_status lh_rank_map_format(const lh_rank_map *map, char **text,
                                    size_t *len, lh_error *err);
LH_API void lh_rank_map_free(lh_rank_map *map); /* NULL is fine */

/* Reads files of one recording, as they are or compressed by gzip: tables
 * (docs/formats/recording.md); traces of longhaul, each of which is a step, the
 * first of them step 0; or traces of PyTorch's profiler, one or several of a
 * rank. "-" is not special. Rows of a step may lie in several tables. What is
 * damaged is left out and remarked upon (lh_diagnosis has the remarks). Release
 * with lh_recording_free().
 * LH_EINPUT: a file is of another kind than the first or of none of these, has
 * no heading, or nothing whole is left; where a rank belongs is not known.
 * LH_EUNSUPPORTED: a trace has data-parallel communication in parts. */
LH_API lh_status lh_recording_read(const char *const *paths, uint32_t n_paths,
                                   lh_recording **out, lh_error *err);
/* The same of one text, or what gzip made of it. */
LH_API lh_status lh_recording_parse(const char *text, size_t len,
                                    const char *name, lh_recording **out,
                                    lh_error *err);
/* Both with a map, which may go afterwards; NULL: none. LH_EINPUT: there is a
 * map, and the files are no traces of PyTorch's profiler, or it has names that
 * no range has. */
LH_API lh_status lh_recording_read_mapped(const char *const *paths,
                                          uint32_t n_paths,
                                          const lh_rank_map *map,
                                          lh_recording **out, lh_error *err);
LH_API lh_status lh_recording_parse_mapped(const char *text, size_t len,
                                           const char *name,
                                           const lh_rank_map *map,
                                           lh_recording **out, lh_error *err);
LH_API void lh_recording_free(lh_recording *recording); /* NULL is fine */

LH_API uint32_t lh_recording_n_steps(const lh_recording *recording);
LH_API uint32_t lh_recording_n_stages(const lh_recording *recording);
LH_API uint32_t lh_recording_n_replicas(const lh_recording *recording);

/* One replica as a scheduling problem, and the order in which it ran, NULL if
 * not wanted: chunks with the mean times of its passes, messages that take no
 * time. A chunk's F adds 1 to the memory and what ends it takes 1 away, so that
 * memory counts activations of microbatches. Release both.
 * LH_EINVAL: there is no such replica. LH_EUNSUPPORTED: not every chunk does
 * every microbatch once, as a pipeline's do. */
LH_API lh_status lh_recording_pipeline(const lh_recording *recording,
                                       uint32_t replica, lh_pipeline **pipeline,
                                       lh_schedule **schedule, lh_error *err);
/* The same with messages that take what they took on the mean, on links between
 * its stages: latency alone, as one that was recorded does not say how much of
 * it was transfer. */
LH_API lh_status lh_recording_linked_pipeline(const lh_recording *recording,
                                              uint32_t replica,
                                              lh_pipeline **out, lh_error *err);
/* From the first to the last pass of that replica, as measured: the mean over
 * all steps. 0: there is no such replica. */
LH_API int64_t lh_recording_passes_ns(const lh_recording *recording,
                                      uint32_t replica);

/* --- out ------------------------------------------------------------------ */

typedef struct lh_diagnosed_step {
    uint64_t step;
    int64_t measured_ns, t_ns, ideal_ns;
} lh_diagnosed_step;

/* Something that was slower than others of its kind. */
typedef enum lh_slow_what {
    LH_SLOW_WORKER, /* its passes, against those of the stage's others */
    LH_SLOW_STAGE,  /* its passes, against those of the other stages */
    LH_SLOW_LINK,   /* messages from stage `stage` to stage `to` of a replica */
    LH_SLOW_MICROBATCHES, /* they take differently long, on all ranks alike: the
                             longest of each against their mean */
} lh_slow_what;

typedef struct lh_slow_thing {
    lh_slow_what what;
    uint32_t stage, to; /* `to`: of links; LH_NONE: of microbatches */
    uint32_t replica;   /* LH_NONE: of stages and microbatches */
    double ratio;       /* of its times to the others', over its slow steps */
    uint32_t n_steps;   /* in which it was slow */
    uint64_t from;      /* the first of these */
    uint64_t until;     /* the last */
    bool to_the_end;    /* it was so in the last step that was recorded */
    /* How much sooner a step would end, played again, with usual times in
     * place of its own; the mean over all steps. `hidden`: next to nothing, as
     * long as others are slow, and this much once all of these are as usual:
     * of two links that replicas wait for alike, each hides the other. */
    int64_t cost_ns;
    bool hidden;
} lh_slow_thing;

/* What may be done, and what it is predicted to come to. */
typedef struct lh_help {
    const char *what;    /* one sentence */
    const char *assumes; /* what is assumed; "" where all was measured */
    int64_t predicted_ns;
    double gain; /* of t_ns, 0..1 */
} lh_help;

/* A kind of damage, and how much of it there was. */
typedef struct lh_remark {
    const char *kind; /* "doubled-rows" */
    uint64_t n;
    const char *text; /* one sentence */
} lh_remark;

/* Plain arrays, immutable; all is the diagnosis's own. Times of steps are
 * means over the steps. */
typedef struct lh_diagnosis {
    uint32_t n_steps, n_stages, n_replicas, n_chunks, n_microbatches;
    const uint32_t *replicas;       /* their numbers in the recording */
    const lh_diagnosed_step *steps; /* by number */
    double measured_ns;    /* from the step's start to the end of all of it */
    double t_ns;           /* played again with its own times */
    double ideal_ns;       /* and with usual ones everywhere */
    double slowdown;       /* t_ns / ideal_ns */
    double slowdown_error; /* standard error over the steps; 0: one step */
    /* What the slowdown would be if only that had its own times. */
    const double *by_stage, *by_replica;
    const double *by_worker; /* stage * n_replicas + replica: the lesser of its
                                replica's and its stage's */
    /* Of kinds that were not recorded: 0. */
    double by_operation[LH_N_OPERATIONS];
    /* How much of t_ns - ideal_ns goes away when the slowest workers, 3 % of
     * all, have usual times, and when the last stage has. 0 where there is
     * nothing to go away. */
    double worker_share, last_stage_share;
    uint32_t n_slow_workers; /* those 3 %, rounded up, slowest first */
    const uint32_t *slow_workers;
    uint32_t n_slow_things; /* dearest first */
    const lh_slow_thing *slow_things;
    /* How much sooner a step would end with all of them as usual, where some
     * are hidden; else 0. */
    int64_t together_ns;
    uint32_t n_helps; /* best first */
    const lh_help *helps;
    uint32_t n_remarks;
    const lh_remark *remarks;
} lh_diagnosis;

typedef struct lh_diagnose_options {
    size_t size;      /* sizeof(lh_diagnose_options) */
    uint32_t threads; /* 0: one per processor. The result is the same. */
} lh_diagnose_options;

/* `options` may be NULL. The recording may go afterwards. Release with
 * lh_diagnosis_free(). */
LH_API lh_status lh_diagnose(const lh_recording *recording,
                             const lh_diagnose_options *options,
                             lh_diagnosis **out, lh_error *err);
LH_API void lh_diagnosis_free(lh_diagnosis *diagnosis); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
