/* SPDX-License-Identifier: Apache-2.0 */
/* Elastic pipelines: chooses together the microbatch grouping (enqueue and
 * dequeue), partial sharding of parameters and gradients, and recomputation
 * (PipeMesh, Li et al., IEEE TPDS 2025). The closed forms hold for equal chunks
 * on equal stages; docs/theory/elastic.md derives them.
 *
 * Stages, and chunks within a stage, are numbered from 1 as in the paper.
 * Passes and pipeline chunks are numbered from 0, as elsewhere.
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_ELASTIC_H
#define LONGHAUL_EXPERIMENTAL_ELASTIC_H

#include <longhaul/experimental/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sharding beyond the optimizer state. */
typedef enum lh_elastic_sharding {
    LH_ELASTIC_MIXED, /* as much as can be hidden, by the paper's rules */
    LH_ELASTIC_ZERO1, /* none */
    LH_ELASTIC_ZERO2, /* all gradients */
    LH_ELASTIC_ZERO3, /* all gradients and parameters */
} lh_elastic_sharding;

/* Input to the planner. Times are per chunk and microbatch. */
typedef struct lh_elastic_case {
    uint32_t stages;       /* P */
    uint32_t replicas;     /* D */
    uint32_t chunks;       /* M, per stage */
    uint32_t microbatches; /* B, per pipeline */
    int64_t f_ns, b_ns;    /* forward and backward, without recomputation */
    int64_t dp_ns;         /* all-gather or reduce-scatter of a whole chunk */
    int64_t pp_ns;         /* receiving a pass's input */
    int64_t params;        /* psi: parameters per device */
    /* Follows the paper exactly: omits the conditions that a ZeRO-3 share must
     * save memory and that its forward gather must fit. */
    bool as_published;
    lh_elastic_sharding sharding;
    /* Bytes per parameter; all 0: 2, 2 and 12 as in the paper. */
    int64_t weight_bytes, gradient_bytes, optimizer_bytes;
    int64_t other_bytes; /* other memory per device */
    int64_t base_bytes;  /* per chunk pass, beyond its operations' bytes */
    /* As dp_ns, for chunks whose layers communicate one after another (ZeRO-2
     * and 3) and each pay latency; at least dp_ns. 0: dp_ns, as in the paper,
     * whose links have no latency. */
    int64_t sharded_ns;
    /* Expert parameters within `params`, whose states are divided over
     * expert_replicas ranks; 0: over all replicas. Parameter shares contain
     * experts in proportion. */
    int64_t expert_params;
    uint32_t expert_replicas;
} lh_elastic_case;

/* Grouping of microbatches and sharding, with derived values. */
typedef struct lh_elastic_plan {
    uint32_t n_enqueue, n_dequeue;     /* R, S */
    const uint32_t *enqueue, *dequeue; /* both add up to B */
    int64_t params_g;                  /* at ZeRO-2 or 3 (psi_g) */
    int64_t params_p;                  /* thereof at ZeRO-3 (psi_p) */
    uint32_t scatter_buckets; /* passes that hide a gradient scatter (B_Z2) */
    /* passes that hide a gather (B_Z3) */
    uint32_t forward_buckets, backward_buckets;
    /* Derived values. */
    /* x: forwards without which the last stage would wait for a forward that it
     * executes later itself */
    uint32_t extra_warmup;
    /* e_j Cf >= P (Cf + C_PP), the same for d and Cb, and C_PP is at most Cf
     * and Cb: only then does the closed-form time equal the event time */
    bool pp_hidden;
} lh_elastic_plan;

/* Exposed data-parallel communication, which computation does not hide.
 * Nanoseconds. */
typedef struct lh_elastic_terms {
    int64_t optimizer_ns; /* D_o */
    int64_t gradients_ns; /* D_g */
    int64_t forward_ns;   /* D_pf */
    int64_t backward_ns;  /* D_pb */
    int64_t sum_ns;
} lh_elastic_terms;

/* Memory of the first stage, which has the highest need. Bytes, each rounded
 * up. */
typedef struct lh_elastic_memory {
    int64_t optimizer, gradients, parameters, activations;
    int64_t sum; /* including other_bytes */
} lh_elastic_memory;

/* Builds the elastic plan for groups of `queue` microbatches, by the PipeMesh
 * paper's rules with the corrections in docs/theory/elastic.md. LH_EINFEASIBLE:
 * a group would be shorter than the pipeline depth. Release with
 * lh_elastic_plan_free(). */
LH_API lh_status lh_elastic_plan_queue(const lh_elastic_case *given,
                                       uint32_t queue, lh_elastic_plan **out,
                                       lh_error *err);
/* Frees an elastic plan; ignores NULL. */
LH_API void lh_elastic_plan_free(lh_elastic_plan *plan);

/* Returns the most chunk passes whose activations are resident at
 * a time on stage `stage` (1..P). */
LH_API int64_t lh_elastic_resident_passes(const lh_elastic_case *given,
                                          const lh_elastic_plan *plan,
                                          uint32_t stage);
/* Returns the most chunk passes with resident activations for
 * depth-first order: interleaved 1F1B, or 1F1B with one chunk. */
LH_API int64_t
lh_elastic_depth_first_resident_passes(const lh_elastic_case *given);
/* Computes, per kind of communication, the time in ns that passes do not hide.
 * `backward_ns`: duration of a chunk's backward pass including recomputation;
 * 0: given->b_ns. */
LH_API lh_elastic_terms lh_elastic_exposed_communication(
    const lh_elastic_case *given, const lh_elastic_plan *plan,
    int64_t backward_ns);
/* Computes the first stage's memory. `stored`: bytes that one chunk pass stores
 * for its backward, in addition to base_bytes. */
LH_API lh_elastic_memory lh_elastic_peak_memory(const lh_elastic_case *given,
                                                const lh_elastic_plan *plan,
                                                int64_t stored);

/* A chunk operation: stored bytes and recompute time. */
typedef struct lh_elastic_op {
    int64_t bytes, ns;
} lh_elastic_op;

/* Queues to search. */
typedef enum lh_elastic_search {
    LH_ELASTIC_LARGEST, /* as in the paper: the largest feasible queue */
    LH_ELASTIC_ANY,     /* any feasible queue */
} lh_elastic_search;

/* A plan with its recomputation, time and memory. */
typedef struct lh_elastic_choice {
    const lh_elastic_plan *plan;
    uint32_t n_ops;
    const bool *recomputed; /* per operation */
    int64_t stored;         /* bytes per chunk pass */
    int64_t recompute_ns;   /* per chunk pass */
    int64_t overhead_ns;    /* recomputation plus exposed communication */
    int64_t time_ns;        /* equation 1 */
    lh_elastic_memory memory;
} lh_elastic_choice;

/* Chooses queue size, sharding and recomputed operations together. Minimises
 * the time subject to memory below `budget`; ties go to the choice that stores
 * less.
 *
 * LH_EINFEASIBLE: nothing fits; `err` gives the shortfall. LH_EUNSUPPORTED:
 * the operations' sizes have too many distinct sums. Release with
 * lh_elastic_choice_free(). */
LH_API lh_status lh_elastic_choose(const lh_elastic_case *given, uint32_t n_ops,
                                   const lh_elastic_op *ops, int64_t budget,
                                   lh_elastic_search search,
                                   lh_elastic_choice **out, lh_error *err);
/* Frees an elastic choice; ignores NULL. */
LH_API void lh_elastic_choice_free(lh_elastic_choice *choice);

/* --- event simulation ----------------------------------------------------- */

/* A chunk count with the memory and time of the operations under it. */
typedef struct lh_elastic_setting {
    lh_elastic_case given; /* its `sharding` is ignored */
    uint32_t n_ops;
    const lh_elastic_op *ops;
    uint32_t shardings;            /* bits 1 << lh_elastic_sharding; 0: all */
    uint32_t min_queue, max_queue; /* 0: any that the stages permit */
    /* Called periodically; `works` is true once a solution exists. Returning
     * true ends the search. NULL: never. */
    bool (*stopped)(void *context, bool works);
    void *context;
} lh_elastic_setting;

/* Result from lh_elastic_search_events(). */
typedef struct lh_elastic_search_result {
    uint32_t setting; /* index */
    lh_elastic_sharding sharding;
    const lh_elastic_plan *plan;
    int64_t time_ns;          /* from the event simulation */
    int64_t model_ns;         /* equation 1 with stage 1's recomputation */
    lh_elastic_memory memory; /* stage 1 */
    uint32_t n_stages, n_ops;
    const bool *recomputed;      /* [stage * n_ops + operation] */
    const int64_t *recompute_ns; /* per stage, per chunk pass */
    const int64_t *stored;       /* per stage, per chunk pass */
    uint32_t n_runs;             /* event simulations run */
} lh_elastic_search_result;

/* Searches chunk count, queue length, sharding and recomputation of an elastic
 * plan together by event simulation, within `budget` bytes per device. The
 * result is never slower than lh_elastic_choose() for any setting that leaves
 * sharding and queue open. Stages with fewer resident passes recompute less.
 *
 * Above 128 microbatches, only queues that change the group count are
 * evaluated, plus the queue chosen by lh_elastic_choose(). Errors as in
 * lh_elastic_choose(); also LH_EINFEASIBLE if the search was stopped before a
 * solution was found. */
LH_API lh_status lh_elastic_search_events(uint32_t n_settings,
                                          const lh_elastic_setting *settings,
                                          int64_t budget,
                                          lh_elastic_search_result **out,
                                          lh_error *err);
/* Frees an elastic-plan search's result; NULL is allowed. */
LH_API void lh_elastic_search_result_free(lh_elastic_search_result *best);
/* Computes an elastic plan's makespan by event simulation into *out_ns, with
 * recomputation of recompute_ns per pass on every stage. */
LH_API lh_status lh_elastic_event_time(const lh_elastic_case *given,
                                       const lh_elastic_plan *plan,
                                       int64_t recompute_ns, int64_t *out_ns,
                                       lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
