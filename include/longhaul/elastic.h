/* SPDX-License-Identifier: Apache-2.0 */
/* Elastic pipelines: microbatches enqueued and dequeued in groups, parameters
 * and gradients sharded in part, operations recomputed, chosen together
 * (PipeMesh, Li et al., IEEE TPDS 2025). The closed forms here hold for equal
 * chunks on equal stages; docs/theory/elastic.md derives them.
 *
 * Stages, and the chunks of a stage, count from 1 as in the paper; everything
 * that names passes or chunks of a pipeline counts from 0 as elsewhere. */
#ifndef LONGHAUL_ELASTIC_H
#define LONGHAUL_ELASTIC_H

#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What is sharded beside the optimiser. */
typedef enum lh_elastic_sharding {
    LH_ELASTIC_MIXED, /* as much as hides, by the paper's rules */
    LH_ELASTIC_ZERO1, /* nothing */
    LH_ELASTIC_ZERO2, /* all gradients */
    LH_ELASTIC_ZERO3, /* all gradients and parameters */
} lh_elastic_sharding;

/* What is to be planned. Times are of one chunk and one microbatch. */
typedef struct lh_elastic_case {
    uint32_t stages;       /* P */
    uint32_t replicas;     /* D */
    uint32_t chunks;       /* M, of a stage */
    uint32_t microbatches; /* B, of one pipeline */
    int64_t f_ns, b_ns;    /* forward and backward, nothing recomputed */
    int64_t dp_ns;         /* all-gather, or reduce-scatter, of a whole chunk */
    int64_t pp_ns;         /* receiving the input of a pass */
    int64_t params;        /* psi: parameters on a device */
    /* Without the conditions that a ZeRO-3 share must save memory and that
     * its forward gather must have room, as the paper plans. */
    bool as_published;
    lh_elastic_sharding sharding;
    /* Bytes per parameter; all 0: 2, 2 and 12 as in the paper. */
    int64_t weight_bytes, gradient_bytes, optimizer_bytes;
    int64_t other_bytes; /* that a device holds beside these */
    int64_t kept_bytes;  /* of a chunk pass, that no operation's are */
    /* As dp_ns, where the layers of the chunk communicate one after the other,
     * as those at ZeRO-2 and 3 do, and each pays its latencies: no less than
     * dp_ns. 0: dp_ns, as in the paper, whose links have no latency. */
    int64_t sharded_ns;
    /* Of `params` those of experts, where so many ranks have the same ones as
     * divide their states; 0: as many as replicas. Shares of parameters have as
     * many of experts as of all else. */
    int64_t expert_params;
    uint32_t expert_replicas;
} lh_elastic_case;

/* How microbatches are grouped and what is sharded, with what follows. */
typedef struct lh_elastic_plan {
    uint32_t n_enqueue, n_dequeue;     /* R, S */
    const uint32_t *enqueue, *dequeue; /* both add up to B */
    int64_t params_g;                  /* ZeRO-2 or 3 (psi_g) */
    int64_t params_p;                  /* of these ZeRO-3 (psi_p) */
    uint32_t scatter_buckets; /* passes that hide a gradient scatter (B_Z2) */
    uint32_t forward_buckets, backward_buckets; /* ... a gather (B_Z3) */
    /* Derived. */
    uint32_t extra_warmup; /* x: forwards without which the last stage would
                              wait for one that it runs later itself */
    bool pp_hidden;        /* e_j Cf >= P (Cf + C_PP), the same for d and Cb,
                              C_PP neither above Cf nor above Cb: only then the
                              time below is that of the events */
} lh_elastic_plan;

/* Data-parallel communication that computation does not hide. */
typedef struct lh_elastic_terms {
    int64_t optimizer_ns; /* D_o */
    int64_t gradients_ns; /* D_g */
    int64_t forward_ns;   /* D_pf */
    int64_t backward_ns;  /* D_pb */
    int64_t sum_ns;
} lh_elastic_terms;

/* Of the first stage, which needs most; each rounded up to a byte. */
typedef struct lh_elastic_memory {
    int64_t optimizer, gradients, parameters, activations;
    int64_t sum; /* with other_bytes */
} lh_elastic_memory;

/* The plan for a queue of `queue` microbatches, by the paper's rules with the
 * corrections of docs/theory/elastic.md. LH_EINFEASIBLE: a group would be
 * shorter than the pipeline is deep. Release with lh_elastic_plan_free(). */
LH_API lh_status lh_elastic_plan_queue(const lh_elastic_case *given,
                                       uint32_t queue, lh_elastic_plan **out,
                                       lh_error *err);
/* The plan with these sequences, shares and buckets; what is derived in
 * `wanted` is not looked at. LH_EINPUT: they do not add up, are too short,
 * share more than there is; `err` says by how much. */
LH_API lh_status lh_elastic_plan_make(const lh_elastic_case *given,
                                      const lh_elastic_plan *wanted,
                                      lh_elastic_plan **out, lh_error *err);
LH_API void lh_elastic_plan_free(lh_elastic_plan *plan); /* NULL is fine */

/* Chunk passes whose activations stage 1..P holds at most. */
LH_API int64_t lh_elastic_passes(const lh_elastic_case *given,
                                 const lh_elastic_plan *plan, uint32_t stage);
/* The same of depth-first order: interleaved 1F1B, with one chunk 1F1B. */
LH_API int64_t lh_elastic_depth_first_passes(const lh_elastic_case *given);
/* `backward_ns`: of a chunk pass with what is recomputed; 0: given->b_ns. */
LH_API lh_elastic_terms lh_elastic_exposed(const lh_elastic_case *given,
                                           const lh_elastic_plan *plan,
                                           int64_t backward_ns);
/* Equation 1 of the paper; `recompute_ns` of a chunk pass slows every pass
 * but, as there, widens no window. */
LH_API int64_t lh_elastic_time(const lh_elastic_case *given,
                               const lh_elastic_plan *plan,
                               int64_t recompute_ns);
/* `stored`: bytes that one chunk pass keeps for its backward, beside
 * kept_bytes. */
LH_API lh_elastic_memory lh_elastic_memory_of(const lh_elastic_case *given,
                                              const lh_elastic_plan *plan,
                                              int64_t stored);

/* An operation of a chunk: what it stores, what doing it again takes. */
typedef struct lh_elastic_op {
    int64_t bytes, ns;
} lh_elastic_op;

typedef enum lh_elastic_search {
    LH_ELASTIC_LARGEST, /* as the paper: the largest queue that fits */
    LH_ELASTIC_ANY,     /* any queue that fits */
} lh_elastic_search;

typedef struct lh_elastic_choice {
    const lh_elastic_plan *plan;
    uint32_t n_ops;
    const bool *recomputed; /* per operation */
    int64_t stored;         /* bytes of a chunk pass */
    int64_t recompute_ns;   /* of a chunk pass */
    int64_t lost_ns;        /* recomputation and exposed communication */
    int64_t time_ns;        /* equation 1 */
    lh_elastic_memory memory;
} lh_elastic_choice;

/* Queue, sharding and recomputed operations together: least time of those
 * whose memory is below `budget`, at equal times the one that stores less.
 * LH_EINFEASIBLE: none is; `err` says by how much. LH_EUNSUPPORTED: the
 * operations' sizes have too many different sums. Release with
 * lh_elastic_choice_free(). */
LH_API lh_status lh_elastic_choose(const lh_elastic_case *given, uint32_t n_ops,
                                   const lh_elastic_op *ops, int64_t budget,
                                   lh_elastic_search search,
                                   lh_elastic_choice **out, lh_error *err);
LH_API void lh_elastic_choice_free(lh_elastic_choice *choice); /* NULL: fine */

/* --- by the events -------------------------------------------------------- */

/* A number of chunks, with what their operations then store and take. */
typedef struct lh_elastic_setting {
    lh_elastic_case given; /* its `sharding` is not looked at */
    uint32_t n_ops;
    const lh_elastic_op *ops;
    uint32_t shardings; /* bits 1 << lh_elastic_sharding; 0: all */
    uint32_t least_queue, most_queue; /* 0: any that the stages allow */
    /* Asked now and then with whether anything was found yet; true: that will
     * do. NULL: never. */
    bool (*stopped)(void *context, bool works);
    void *context;
} lh_elastic_setting;

typedef struct lh_elastic_best {
    uint32_t setting; /* index */
    lh_elastic_sharding sharding;
    const lh_elastic_plan *plan;
    int64_t time_ns;          /* of the event run */
    int64_t model_ns;         /* equation 1, with what stage 1 recomputes */
    lh_elastic_memory memory; /* of stage 1 */
    uint32_t n_stages, n_ops;
    const bool *recomputed;      /* [stage * n_ops + operation] */
    const int64_t *recompute_ns; /* per stage, of a chunk pass */
    const int64_t *stored;       /* the same */
    uint32_t n_runs;             /* event runs made */
} lh_elastic_best;

/* Chunks, queue, sharding and recomputation together, by event runs: never
 * slower than what lh_elastic_choose() gives for any of the settings that
 * leave sharding and queue open. Stages that hold fewer passes recompute less.
 * Of more than 128 microbatches only queues that give another number of groups
 * are tried, and the one that lh_elastic_choose() gives. Errors as there;
 * LH_EINFEASIBLE too where it was stopped before anything was found. */
LH_API lh_status lh_elastic_search_events(uint32_t n_settings,
                                          const lh_elastic_setting *settings,
                                          int64_t budget, lh_elastic_best **out,
                                          lh_error *err);
LH_API void lh_elastic_best_free(lh_elastic_best *best); /* NULL is fine */
/* The event time of a plan in which every stage recomputes as long. */
LH_API lh_status lh_elastic_event_time(const lh_elastic_case *given,
                                       const lh_elastic_plan *plan,
                                       int64_t recompute_ns, int64_t *out_ns,
                                       lh_error *err);

/* The data-parallel communications of the plan's passes, for the chunks of a
 * pipeline in which chunk c of stage i is (c - 1) P + i - 1. What belongs to
 * each stage's first chunk at the beginning and end of the iteration is not
 * among them: see lh_chunk. Release *ops with lh_elastic_ops_free(). */
LH_API lh_status lh_elastic_operations(const lh_elastic_case *given,
                                       const lh_elastic_plan *plan,
                                       lh_dp_op **ops, uint32_t *n_ops,
                                       lh_error *err);
LH_API void lh_elastic_ops_free(lh_dp_op *ops); /* NULL is fine */

/* The passes of stage 1..P in order, 2 M B of them, into `passes`. */
LH_API void lh_elastic_order(const lh_elastic_case *given,
                             const lh_elastic_plan *plan, uint32_t stage,
                             lh_pass *passes);

/* The plan as a pipeline and a schedule, for the event time: joint backwards,
 * links of latency C_PP without occupancy, memory in bytes with the states on
 * each stage's first chunk. `recompute_ns` and `stored` are of a chunk pass.
 * Release each with its own function. */
LH_API lh_status lh_elastic_pipeline(const lh_elastic_case *given,
                                     const lh_elastic_plan *plan,
                                     int64_t recompute_ns, int64_t stored,
                                     lh_pipeline **out, lh_error *err);
LH_API lh_status lh_elastic_schedule(const lh_elastic_case *given,
                                     const lh_elastic_plan *plan,
                                     lh_schedule **out, lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
