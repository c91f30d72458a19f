/* SPDX-License-Identifier: Apache-2.0 */
/* A plan's contents, and its questions and answers.
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_PLAN_H
#define LONGHAUL_EXPERIMENTAL_PLAN_H

#include <longhaul/experimental/advice.h>
#include <longhaul/experimental/jitter.h>
#include <longhaul/experimental/job.h>
#include <longhaul/experimental/pipeline.h>
#include <longhaul/plan.h>
#include <longhaul/schedule.h>
#include <longhaul/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A choice's status. */
typedef enum lh_choice_status {
    LH_CHOICE_OK,      /* simulated: iteration_ns is valid */
    LH_CHOICE_BOUNDED, /* not simulated: lower_bound_ns is already too slow */
    LH_CHOICE_MEMORY,  /* out of memory; iteration_ns is -1 */
    LH_CHOICE_FAILED,  /* method not applicable; iteration_ns is -1 */
} lh_choice_status;

/* Returns a plan candidate status's name, such as "ok". */
LH_API const char *lh_choice_status_name(lh_choice_status status);

/* A recomputed operation: fraction of layers on the first and on the last
 * device, and number of layers per chunk (its first ones). */
typedef struct lh_plan_recomputed {
    const char *operation;
    double first, last;
    uint32_t n_chunks;      /* 0: not recorded, older plan file */
    const uint32_t *layers; /* per chunk */
} lh_plan_recomputed;

/* Elastic settings of a choice whose schedule is "elastic". */
typedef struct lh_plan_elastic {
    uint32_t n_enqueue, n_dequeue;
    const uint32_t *enqueue, *dequeue;
    double gradients, parameters; /* fractions sharded: at ZeRO-2 or 3, and
                                   * thereof at ZeRO-3; the rest is ZeRO-1 */
    uint32_t scatter_buckets, forward_buckets, backward_buckets;
    uint32_t n_recomputed;
    const lh_plan_recomputed *recomputed;
} lh_plan_elastic;

/* Cost per iteration in the currency of the job's prices. */
typedef struct lh_plan_cost {
    uint32_t gpus;              /* billed: all GPUs of every node in use */
    double usd_per_hour;        /* for these GPUs */
    double inter_datacenter_gb; /* traffic between datacenters, 10^9 bytes */
    double gpus_usd, between_usd;
    double usd; /* GPUs and traffic */
    double usd_per_1e9_tokens;
} lh_plan_cost;

/* One layout with one schedule, and its predicted performance. */
typedef struct lh_choice {
    lh_choice_status status;
    lh_layout layout; /* complete; layout.schedule is the method */
    lh_placement placement;
    lh_recompute recompute;
    /* ZeRO stage; elastic plans: the minimum over all parameters */
    uint32_t zero;
    uint32_t microbatches;
    int64_t iteration_ns; /* pipeline, then optimizer, then overhead */
    int64_t makespan_ns;  /* pipeline only */
    int64_t optimizer_ns, overhead_ns;
    /* lower bound for every schedule with this layout */
    int64_t lower_bound_ns;
    double bubble_ratio;
    int64_t peak_memory_bytes;  /* device with the least free memory */
    int64_t memory_limit_bytes; /* the same device's limit */
    double tokens_per_s;
    double mfu;      /* model FLOPs / peak FLOPs of the GPUs in use */
    const char *why; /* reason for winning or losing; never NULL */
    const lh_plan_elastic *elastic; /* NULL: another schedule */
    const lh_plan_cost *cost;       /* NULL: no prices, or no time */
    /* Layers per chunk, pipeline * chunks_per_device entries; NULL: even, with
     * the remainder in the middle. See lh_plan_layers(). */
    const uint32_t *chunk_layers;
    /* Whole iterations' statistics under plan->robust->jitter; NULL: not
     * sampled. */
    const lh_jitter_result *jitter;
} lh_choice;

/* Returns the name of the statistic of jitter samples (mean or 95th percentile)
 * by which plans are compared. */
LH_API const char *lh_plan_statistic_name(lh_plan_statistic by);

/* Computes in *out the jitter to apply to a plan candidate's pipeline. The
 * straggler probability in `given` is per GPU. A pipeline device represents all
 * GPUs of a pipeline rank over all replicas and is slow if any of them is. If
 * replicas span datacenters, the data-parallel link is shared. */
LH_API lh_status lh_plan_jitter(const lh_job *job, const lh_choice *choice,
                                const lh_jitter *given, lh_jitter *out,
                                lh_error *err);

/* The choice's details under jitter. Layouts whose bounds prove that they
 * cannot win on the samples are skipped. */
typedef struct lh_plan_robust {
    lh_jitter jitter; /* as given; see lh_plan_jitter() */
    lh_plan_statistic statistic;
    uint32_t n_layouts;   /* layouts sampled */
    uint32_t n_schedules; /* schedules sampled completely; the others were
                           * rejected early */
    /* layouts that might win but were skipped: too many */
    uint32_t n_unevaluated;
    bool complete; /* true if no layout that might win was skipped, for even
                    * chunks */
} lh_plan_robust;

/* --- link what-if analysis ------------------------------------------------ */

/* Link quantities for what-if analysis. */
typedef enum lh_link_quantity {
    LH_LINK_LATENCY,   /* ms, one way */
    LH_LINK_BANDWIDTH, /* Gb/s, all traffic in one direction */
    LH_LINK_LOSS,
    LH_LINK_OVERSUBSCRIPTION,
} lh_link_quantity;

/* Returns a link quantity's name (latency, bandwidth, loss, oversubscription);
 * static storage. */
LH_API const char *lh_link_quantity_name(lh_link_quantity quantity);

/* In place of a link's index: the change applies to all links. */
#define LH_ALL_LINKS UINT32_MAX

/* A change in one link quantity, relative or absolute. */
typedef struct lh_link_change {
    /* Datacenters, this direction only; LH_ALL_LINKS for both: every link. */
    uint32_t from, to;
    lh_link_quantity quantity;
    bool relative; /* `value` is a factor on the job's value */
    double value;
} lh_link_change;

/* A what-if question: the plan with other link values. */
typedef struct lh_plan_whatif_question {
    const char *text; /* as typed by the user: "latency=40" */
    uint32_t n_changes;
    const lh_link_change *changes; /* applied in order */
} lh_plan_whatif_question;

/* Answer to a what-if question. */
typedef struct lh_plan_whatif_answer {
    const char *text; /* question's text */
    lh_choice kept;   /* the plan's layout and schedule with these links */
    lh_choice best;   /* best plan with these links; `kept` if none is better */
} lh_plan_whatif_answer;

/* A break-even value: the best layout changes between two factors. */
typedef struct lh_plan_break_even {
    double factor_below, factor_above; /* factors on the job's values */
    lh_choice below, above; /* best choices at both; their layouts differ */
} lh_plan_break_even;

/* Break-even values for one quantity of one link. */
typedef struct lh_plan_range {
    /* Datacenters, both directions; LH_ALL_LINKS for both: every link. */
    uint32_t from, to;
    lh_link_quantity quantity;
    uint32_t n_break_evens; /* at most one on each side of the job's value */
    const lh_plan_break_even *break_evens; /* by increasing factor */
} lh_plan_range;

/* Sensitivity of the layout to errors in the job's link values. */
typedef struct lh_plan_sensitivity {
    double min_factor, max_factor; /* factor range examined */
    double tolerance;    /* factor_above / factor_below <= 1 + tolerance */
    lh_choice reference; /* quick search with the job's links */
    uint32_t n_ranges;
    const lh_plan_range *ranges;
    /* Up to the break-even value (or the end of the range), full searches found
     * no other layout that is better by more than this fraction. They ran at
     * the last factor and halfway to it. 0: quick searches only. */
    double margin;
} lh_plan_sensitivity;

/* Iteration time breakdown; the parts add up to it. Each part is the
 * further reduction if its cause were removed too, in this order: memory
 * limits, data parallelism, messages, offloading (docs/theory/plan-reasons.md).
 */
typedef struct lh_plan_breakdown {
    int64_t compute_ns;     /* passes, averaged over devices */
    int64_t intra_layer_ns; /* communication within passes: tensor, context,
                             * expert */
    int64_t imbalance_ns;   /* busiest device minus mean */
    int64_t bubble_ns;      /* remaining idle time, due to the pass order */
    int64_t messages_ns;    /* exposed communication between pipeline ranks */
    /* exposed data-parallel communication, also in passes */
    int64_t data_ns;
    int64_t offload_ns; /* exposed offloading and reloading of activations */
    int64_t memory_stall_ns; /* memory limits that prevent a faster order */
    int64_t optimizer_ns, overhead_ns;
} lh_plan_breakdown;

/* A device's peak memory in a pipeline rank; the parts add up to it. Profiled
 * state that was measured as one number is split by the cost model. */
typedef struct lh_plan_memory {
    uint32_t rank;
    int64_t parameters_bytes;
    int64_t gradients_bytes;
    int64_t optimizer_bytes;
    int64_t activations_bytes; /* stored by passes for later ones */
    int64_t buffers_bytes;     /* communication: gathered and reduced data */
    int64_t temporary_bytes;   /* largest temporary need of one pass */
} lh_plan_memory;

/* Best alternative per dimension: the best plan with another value of "tensor",
 * "context", "expert", "pipeline", "data", "sites", "zero", "sharding",
 * "micro_batch", "chunks_per_device", "placement", "recompute" or "schedule".
 * All other dimensions may change too. With LH_CHOICE_BOUNDED, its iteration
 * takes at least lower_bound_ns. */
typedef struct lh_plan_dimension_alternative {
    const char *dimension;
    lh_choice choice;
    /* Lower bound on the iteration time of every plan with another value,
     * evaluated or not; -1: unknown, for instance for the cheapest plan. */
    int64_t bound_ns;
    bool is_quick_evaluation; /* quick evaluation only, without a local search
                               * for better plans with that value */
} lh_plan_dimension_alternative;

/* How many layouts a bound excluded before their pipelines were built. */
typedef struct lh_plan_pruned {
    /* bound name, such as "warm-up": docs/theory/plan-search.md */
    const char *bound;
    uint64_t n;
} lh_plan_pruned;
/* Quantities on a curve's x axis. */
typedef enum lh_curve_over {
    LH_CURVE_OVERSUBSCRIPTION, /* all links between datacenters */
    LH_CURVE_EXPERTS,          /* expert count in the model */
} lh_curve_over;

/* Returns a curve's x axis name, such as "experts". */
LH_API const char *lh_curve_over_name(lh_curve_over over);

/* Best iteration time with pipelines across datacenters ("PP-out") and with
 * replicas across them ("DP-out"). Both use the plan's tensor, context and
 * expert degrees, even chunks and methods only. */
typedef struct lh_plan_curve {
    lh_curve_over over;
    uint32_t n_points;
    const double *xs; /* increasing */
    uint32_t n_series;
    const char *const *series;
    const int64_t
        *iteration_ns;       /* [series * n_points + point]; -1: none fits */
    uint32_t n_crossings;    /* between the first two series, interpolated */
    const double *crossings; /* increasing */
} lh_plan_curve;

/* Present if the job's profile measured none of the plan's passes. */
typedef struct lh_plan_unmeasured {
    uint32_t n_entries; /* profile entries that match the job's model, GPUs and
                         * sequence; 0: the profile has no effect */
    /* Best layout from a short search over layouts with measured passes (some
     * or all); NULL: none found. */
    const lh_choice *fastest;
} lh_plan_unmeasured;

/* The best plan that leaves more memory free than the job's reserve. */
typedef struct lh_plan_margin {
    /* Every GPU's free memory, as requested: percent of its memory, or GiB;
     * the other value is 0. */
    double percent, gib;
    const lh_choice *best; /* NULL: none found */
} lh_plan_margin;

/* A training program option that the plan's job leaves at another
 * value, and the plan's layout and schedule with that option alone changed. */
typedef struct lh_flag_advice {
    const char *key;  /* of the job: "training.dispatcher: deepep" */
    const char *flag; /* of the program: "--moe-token-dispatcher-type ..." */
    int64_t iteration_ns;
    double gain; /* saved fraction of the plan's iteration; below 0: slower */
    int64_t peak_memory_bytes; /* of the fullest GPU */
    bool advised;          /* one of the changes that together are fastest */
    bool fixed;            /* the job sets the option; never advised */
    const char *certainty; /* "modelled": by the cost model */
} lh_flag_advice;

/* A layout that is faster than the plan's with other options of the training
 * program, each of which the job leaves open. */
typedef struct lh_flag_plan {
    int64_t before_ns; /* the layout's iteration without the changes */
    /* The layout does not fit into memory without some of the changes, and
     * before_ns is the time with more memory. These changes come first; the
     * gains of the other changes are computed with these changes applied. */
    bool exceeds_memory;
    /* The advised changes, by iteration time of the layout with one alone;
     * gain: saved fraction of before_ns. */
    uint32_t n_flags;
    const lh_flag_advice *flags;
    const lh_choice *best; /* the layout with all of the changes */
} lh_flag_plan;

/* Errors of predicted iteration times in published runs of one kind, which
 * fitted no constant (docs/validation.md). */
typedef struct lh_validated_runs {
    const char *kind;                       /* "dense models under Megatron" */
    uint32_t n;                             /* runs */
    double mean_percent, worst_percent;     /* |predicted / measured - 1| */
    const char *gpu_types;                  /* "h100-sxm, h200" */
    uint32_t gpus_least, gpus_most;         /* GPUs of a run */
    uint32_t sequence_least, sequence_most; /* tokens per sequence */
    /* Properties of a plan outside the range of these runs: "a100-80g, 2
     * datacenters". NULL: none. */
    const char *outside;
} lh_validated_runs;

/* Returns the published runs of the job's kind: its program, with or without
 * experts, in FP8 or not; without `outside`. NULL: there are none, or the job
 * replaces the model's times by a profile or an efficiency. Static storage. */
LH_API const lh_validated_runs *lh_find_validated_runs(const lh_job *job);
/* Returns why lh_find_validated_runs() returns NULL for the job: "unknown:
 * ..."; NULL: it returns runs. Static storage. */
LH_API const char *lh_explain_no_validated_runs(const lh_job *job);

/* Other layouts of a plan whose iteration times exceed the plan's by at most
 * the mean error of its accuracy. */
typedef struct lh_plan_ties {
    uint32_t n;
    /* the layout among them that is closest to published practice */
    const lh_choice *practice;
} lh_plan_ties;

/* Checks whether choice `a` of a job is closer to published practice than `b`:
 * it alone keeps tensor-parallel and expert-parallel groups inside nodes and
 * short sequences whole; or else it alone does without full recomputation; or
 * else it has the smaller tensor x context x pipeline; or else fewer stages; or
 * else fewer chunks (docs/validation.md#ties). Of a choice, only the complete
 * layout and the recomputation are read. */
LH_API bool lh_choice_is_closer_to_practice(const lh_job *job,
                                            const lh_choice *a,
                                            const lh_choice *b);

/* GPUs of a datacenter that a plan leaves idle, and the best plan that uses
 * more of the datacenter's GPUs. */
typedef struct lh_plan_idle {
    uint32_t datacenter;
    uint32_t gpus;         /* idle there */
    const lh_choice *best; /* best one found; NULL: none */
    /* lower bound on the iteration time of all such plans; -1: unknown */
    int64_t bound_ns;
    const char *why; /* the reason: "+3.1 %, best found" */
} lh_plan_idle;

struct lh_plan {
    const char *name;        /* job name */
    const char *version;     /* longhaul version that wrote it */
    const char *input_hash;  /* hash of the job and its referenced files */
    const char *cost_source; /* pass times' source: lh_cost_source_name() */
    /* errors of modelled times in published runs of this kind; NULL: none */
    const lh_validated_runs *accuracy;
    const lh_plan_ties *ties; /* NULL: none is closer to practice */
    const lh_job *job;
    lh_choice best;
    const lh_pipeline *pipeline; /* best choice's pipeline; memory in bytes */
    const lh_schedule *schedule;
    /* All methods on the best layout's placements, fastest first. */
    uint32_t n_methods;
    const lh_choice *methods;
    /* Each other layout's best choice, fastest first. */
    uint32_t n_alternatives;
    const lh_choice *alternatives;
    /* Search statistics, in layouts. Examined: n_layouts; thereof out of
     * memory, excluded by a bound, and simulated. Not examined: n_unsupported
     * (model or cluster not divisible) and n_dropped (more than 4096
     * microbatches while the job leaves micro_batch open). */
    uint32_t n_layouts, n_memory, n_bounded, n_simulated;
    uint32_t n_unsupported, n_dropped;
    uint32_t
        n_unexplored; /* unexplored layouts: neither excluded nor simulated when
                       * the search stopped; covered by the bounds below */
    /* Degree and placement combinations with elastic plans: total, and
     * unexplored as in n_unexplored. */
    uint32_t n_elastic, n_elastic_unexplored;
    /* Proven lower bound on the iteration time over all layouts that the job
     * leaves open, with any layer partition and any schedule; 0: unknown. */
    int64_t search_bound_ns;
    /* Objective LH_PLAN_CHEAPEST: the same bound on the cost per iteration; 0:
     * unknown. */
    double search_bound_usd;
    /* Values fixed by the job that are outside the search space of an
     * unrestricted search, which may therefore find only slower plans: "context
     * 4 (1024 tokens a GPU)". NULL: none. */
    const char *outside_search_space;
    uint32_t n_pruned;
    const lh_plan_pruned *pruned;
    const lh_plan_robust *robust; /* NULL: no jitter */
    lh_plan_objective objective;
    /* If requested: Pareto front of all evaluated choices for iteration time,
     * memory of the fullest GPU and, with prices, cost; fastest first. */
    uint32_t n_pareto;
    const lh_choice *pareto_front;
    bool pareto_complete; /* bounds prove that the front is complete; for quick
                           * plans, without elastic ones */
    uint32_t n_pareto_slow; /* omitted because too slow to be useful */
    /* With prices, entries of the front: the knee, with the least product of
     * time and cost, beyond which 1 % less cost takes more than 1 % more time;
     * and the cheapest within 1 % of the fastest. 0: the fastest itself, or no
     * prices. */
    uint32_t pareto_knee, pareto_near;
    /* Answers to the options' questions, in the same order. */
    uint32_t n_answers;
    const lh_plan_whatif_answer *answers;
    const lh_plan_sensitivity *sensitivity; /* NULL: not requested */
    /* With job->target: the best choice of an unrestricted search with a tenth
     * of the effort, if better. NULL: none better, or no target. */
    const lh_choice *unrestricted;
    /* NULL: some of the plan's passes are measured, or the job has no pass
     * profile. */
    const lh_plan_unmeasured *unmeasured;
    const lh_plan_margin *margin; /* NULL: not requested */
    uint32_t n_idle; /* datacenters with idle GPUs, in the job's order */
    const lh_plan_idle *idle;
    /* Recommendations for every inter-datacenter link of the plan, by `from`,
     * then `to`; and the iteration time with all recommended settings and with
     * the current ones (the job's, else the simplest); -1: not simulated. */
    uint32_t n_network;
    const lh_link_advice *network;
    int64_t network_ns, network_now_ns;
    /* With job->target: possible changes of single options, by iteration time;
     * none for elastic plans. And the iteration time with all advised ones; -1:
     * none is advised. */
    uint32_t n_flags;
    const lh_flag_advice *flags;
    int64_t flags_ns;
    /* A layout that is fastest with changed options; NULL: the plan's is. */
    const lh_flag_plan *flag_plan;
    const lh_plan_breakdown *breakdown; /* NULL: absent from the file */
    uint32_t n_dimension_alternatives;
    const lh_plan_dimension_alternative *dimension_alternatives;
    uint32_t n_curves; /* 0: not requested */
    const lh_plan_curve *curves;
    uint32_t n_ranks; /* layout.pipeline entries; 0: absent from the file */
    const lh_plan_memory *rank_memory;
};

/* A layout search's progress. */
typedef struct lh_plan_progress {
    int64_t best_ns;   /* fastest iteration so far; -1: none */
    int64_t bound_ns;  /* lower bound for the plans searched; 0: unknown */
    uint64_t n_closed; /* layouts excluded, too large, or built */
    uint64_t n_open;   /* other known layouts */
} lh_plan_progress;

/* A layout at which a changed job fits in memory. */
typedef struct lh_fitting_layout {
    uint32_t tensor, context, expert, pipeline, data, micro_batch;
    uint32_t zero;
    lh_recompute recompute;
} lh_fitting_layout;

/* Changes to a job that does not fit in memory, each of which makes it fit. */
struct lh_memory_needs {
    /* Least memory_gib of every GPU, over all layouts, to four digits; 0: more
     * memory does not help. */
    double gpu_gib;
    lh_fitting_layout gpu_layout;
    /* Fewest nodes and GPUs of all datacenters together, in the ratio of the
     * job's, up to 64 times as many, with one sequence per microbatch and full
     * recomputation if the job leaves them open; 0: none. */
    uint32_t nodes, gpus;
    lh_fitting_layout nodes_layout;
    /* The job's key that reduces gpu_gib most, with its value, as
     * "training.zero: 3", and the least memory with it; the job's own memory if
     * that suffices. Empty: no key reduces it by 5 %. */
    char key[64];
    double key_gib;
    lh_fitting_layout key_layout;
};

/* Returns the target framework's name (the program that trains by the
 * plan) for messages, such as "Megatron-LM"; static storage. */
LH_API const char *lh_target_display_name(lh_target target);
/* Returns the target framework's version against which its rules were
 * checked; static storage. */
LH_API const char *lh_target_version(lh_target target);
/* Returns the relative gap between the plan's cost and its lower bound
 * search_bound_usd, as a fraction of the plan's cost: 0.05 if no plan can be
 * more than 5 % cheaper. -1: unknown. */
LH_API double lh_plan_cost_gap(const lh_plan *plan);
/* Returns the model layer range in one chunk of the plan's pipeline: *first
 * and *n_layers. */
LH_API void lh_plan_layers(const lh_plan *plan, uint32_t chunk, uint32_t *first,
                           uint32_t *n_layers);

/* Builds the pipeline for one complete layout (every degree, micro_batch,
 * chunks_per_device and outermost given), for example to compare schedules.
 * `placement`: placement of chunks on devices; LH_PLACEMENT_OTHER: UD for one
 * chunk per device, else Loop. *optimizer_ns (may be NULL): time after the
 * pipeline in every iteration. Release *out with lh_pipeline_free().
 * LH_EUNSUPPORTED, LH_EINFEASIBLE: the layout does not work; `err` gives the
 * reason. */
LH_API lh_status lh_plan_pipeline(const lh_job *job, const lh_layout *layout,
                                  lh_placement placement,
                                  lh_recompute recompute, lh_pipeline **out,
                                  int64_t *optimizer_ns, lh_error *err);

/* Finds the plan's link whose ends (NCCL buffers, TCP windows) reduce a
 * sender's rate most. Uses the job's `nccl` or `window_kib`, or NCCL's defaults
 * without them. Returns false if no end reduces it by 1 % or more. *out borrows
 * from the plan. */
LH_API bool lh_plan_find_ends_limit(const lh_plan *plan, lh_ends_limit *out);

#ifdef __cplusplus
}
#endif
#endif
