/* SPDX-License-Identifier: Apache-2.0 */
/* Plans a job: searches layouts and schedules, and reads and writes plan files.
 * See docs/formats/plan.md. */
#ifndef LONGHAUL_PLAN_H
#define LONGHAUL_PLAN_H

#include <longhaul/experimental/advice.h>
#include <longhaul/experimental/jitter.h>
#include <longhaul/job.h>
#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Status of a choice. */
typedef enum lh_choice_status {
    LH_CHOICE_OK,      /* simulated: iteration_ns is valid */
    LH_CHOICE_BOUNDED, /* not simulated: lower_bound_ns is already too slow */
    LH_CHOICE_MEMORY,  /* out of memory; iteration_ns is -1 */
    LH_CHOICE_FAILED,  /* method not applicable; iteration_ns is -1 */
} lh_choice_status;

/* Returns the status's name, such as "ok". */
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
    /* Statistics of whole iterations under plan->robust->jitter; NULL: not
     * sampled. */
    const lh_jitter_result *jitter;
} lh_choice;

/* Statistic that a plan minimises under jitter. */
typedef enum lh_plan_statistic {
    LH_PLAN_BY_MEAN, /* mean over the samples */
    LH_PLAN_BY_P95,  /* 95th percentile */
} lh_plan_statistic;

/* Returns the statistic's name, such as "mean". */
LH_API const char *lh_plan_statistic_name(lh_plan_statistic by);

/* Computes in *out the jitter to apply to a choice's pipeline. The straggler
 * probability in `given` is per GPU. A pipeline device represents all GPUs of a
 * pipeline rank over all replicas and is slow if any of them is. If replicas
 * span datacenters, the data-parallel link is shared. */
LH_API lh_status lh_plan_jitter(const lh_job *job, const lh_choice *choice,
                                const lh_jitter *given, lh_jitter *out,
                                lh_error *err);

/* Details of the choice under jitter. Layouts whose bounds prove that they
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

/* Returns the quantity's name; static storage. */
LH_API const char *lh_link_quantity_name(lh_link_quantity quantity);

#define LH_ALL_LINKS UINT32_MAX

/* A change of one link quantity, relative or absolute. */
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
    const char *text; /* text of the question */
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
    double min_factor, max_factor; /* range of factors examined */
    double tolerance;    /* factor_above / factor_below <= 1 + tolerance */
    lh_choice reference; /* quick search with the job's links */
    uint32_t n_ranges;
    const lh_plan_range *ranges;
    /* Up to the break-even value (or the end of the range), full searches found
     * no other layout that is better by more than this fraction. They ran at
     * the last factor and halfway to it. 0: quick searches only. */
    double margin;
} lh_plan_sensitivity;

/* Breakdown of the iteration time; the parts add up to it. Each part is the
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

/* Peak memory of a device in a pipeline rank; the parts add up to it. Profiled
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

/* Number of layouts that a bound excluded before their pipelines were built. */
typedef struct lh_plan_pruned {
    /* bound name, such as "ramp": docs/theory/plan-search.md */
    const char *bound;
    uint64_t n;
} lh_plan_pruned;
/* Quantities on the x axis of a curve. */
typedef enum lh_curve_over {
    LH_CURVE_OVERSUBSCRIPTION, /* all links between datacenters */
    LH_CURVE_EXPERTS,          /* number of experts in the model */
} lh_curve_over;

/* Returns the name of a curve's x axis, such as "experts". */
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
    /* Free memory of every GPU, as requested: percent of its memory, or GiB;
     * the other value is 0. */
    double percent, gib;
    const lh_choice *best; /* NULL: none found */
} lh_plan_margin;

/* Objective of a plan. */
typedef enum lh_plan_objective {
    LH_PLAN_FASTEST,  /* iteration time */
    LH_PLAN_CHEAPEST, /* cost per iteration, hence per token */
} lh_plan_objective;

/* Returns the objective's name, such as "time". */
LH_API const char *lh_plan_objective_name(lh_plan_objective goal);

/* A plan. Immutable; owns its contents. Release with lh_plan_free(). */
typedef struct lh_plan {
    const char *name;        /* job name */
    const char *version;     /* longhaul version that wrote it */
    const char *input_hash;  /* hash of the job and its referenced files */
    const char *cost_source; /* source of pass times: lh_cost_source_name() */
    const lh_job *job;
    lh_choice best;
    const lh_pipeline *pipeline; /* best choice's pipeline; memory in bytes */
    const lh_schedule *schedule;
    /* All methods on the best layout's placements, fastest first. */
    uint32_t n_methods;
    const lh_choice *methods;
    /* Best choice of each other layout, fastest first. */
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
    /* Combinations of degrees and placements with elastic plans: total, and
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
    /* Answers to the options' questions, in the same order. */
    uint32_t n_answers;
    const lh_plan_whatif_answer *answers;
    const lh_plan_sensitivity *sensitivity; /* NULL: not requested */
    /* With job->target: the best choice of an unrestricted search with a tenth
     * of the effort, if better. NULL: none better, or no target. */
    const lh_choice *unrestricted;
    /* NULL: some of the plan's passes are measured, or the job has no profile
     * of passes. */
    const lh_plan_unmeasured *unmeasured;
    const lh_plan_margin *margin; /* NULL: not requested */
    /* Recommendations for every inter-datacenter link of the plan, by `from`,
     * then `to`; and the iteration time with all recommended settings and with
     * the current ones (the job's, else the simplest); -1: not simulated. */
    uint32_t n_network;
    const lh_link_advice *network;
    int64_t network_ns, network_now_ns;
    const lh_plan_breakdown *breakdown; /* NULL: absent from the file */
    uint32_t n_dimension_alternatives;
    const lh_plan_dimension_alternative *dimension_alternatives;
    uint32_t n_curves; /* 0: not requested */
    const lh_plan_curve *curves;
    uint32_t n_ranks; /* layout.pipeline entries; 0: absent from the file */
    const lh_plan_memory *rank_memory;
} lh_plan;

/* Search methods for the layer partition. */
typedef enum lh_partition_search {
    LH_PARTITION_HILL_CLIMBING, /* hill climbing from several starts by moving
                                 * one or two layers; exhaustive if there are
                                 * few partitions */
    LH_PARTITION_EXACT, /* every partition of every layout that could win, up to
                         * 200000 per layout */
    /* Monte Carlo sampling of whole configurations, as in ScaleAcross Explorer
     * (2026). Proves nothing. Requires LH_PLAN_FASTEST without jitter or Pareto
     * front, else LH_EINVAL */
    LH_PARTITION_MONTE_CARLO,
    LH_PARTITION_EVEN, /* even partition, no search */
} lh_partition_search;

/* Parameters of LH_PARTITION_MONTE_CARLO; 0: the paper's value, or 100 layouts.
 */
typedef struct lh_plan_sampling {
    uint32_t layouts;
    uint32_t partitions; /* per layout; 100 */
    uint32_t keep;       /* fastest ones kept; 1000 */
    uint32_t changes;    /* one-layer changes per kept partition; 100 */
    uint64_t seed;       /* 1 */
} lh_plan_sampling;

/* Progress of a layout search. */
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
typedef struct lh_memory_needs {
    /* Least memory_gib of every GPU, over all layouts, within 1 %; 0: more
     * memory does not help. */
    double gpu_gib;
    lh_fitting_layout gpu_layout;
    /* Fewest nodes and GPUs of all datacenters together, in the ratio of the
     * job's, up to 64 times as many, with one sequence per microbatch and full
     * recomputation if the job leaves them open; 0: none. */
    uint32_t nodes, gpus;
    lh_fitting_layout nodes_layout;
    /* The training key that reduces gpu_gib most, with its value, as
     * "training.zero: 3", and the least memory with it; the job's own memory if
     * that suffices. Empty: no key reduces it by 5 %. */
    char key[48];
    double key_gib;
    lh_fitting_layout key_layout;
} lh_memory_needs;

/* Options of lh_plan_make(). 0 or NULL: the default. */
typedef struct lh_plan_options {
    size_t size;         /* sizeof(lh_plan_options) */
    uint32_t top;        /* alternatives to keep; 0: 10 */
    uint32_t sub_blocks; /* `greedy`: parts per W; 0: 1, supported by other
                          * programs */
    /* Called periodically during the search; returning true stops it, and the
     * best plan so far is returned. May be NULL. */
    bool (*progress)(void *context, uint32_t done, uint32_t total,
                     int64_t best_ns);
    void *context;
    /* Effort for optimal schedules of the best layouts, in units of
     * lh_solve_options; 0: 400000, about half a second. The layout search gets
     * 75 times as much, at least 1,000,000, unless layout_effort is set. */
    uint64_t effort;
    bool no_optimal; /* skip that search: methods only */
    /* fast mode for many plans of similar jobs: even chunks, neither look-ahead
     * nor optimal schedules, elastic plans only if nothing else fits */
    bool quick;
    lh_partition_search partition;
    lh_plan_sampling sampling;
    double max_chunk_ratio;  /* maximum ratio of chunk sizes, in layers; 0: 3 */
    const lh_jitter *jitter; /* optimise under jitter; NULL: none */
    lh_plan_statistic statistic; /* statistic, with jitter */
    lh_plan_objective
        objective;     /* cost requires prices in the job or options */
    bool pareto_front; /* also compute the Pareto front */
    /* Override the job's prices; 0: the job's. */
    double usd_per_gpu_hour, usd_per_gb;
    uint32_t n_questions;
    const lh_plan_whatif_question *questions;
    bool sensitivity; /* find link values at which the layout changes */
    double range;     /* examine factors from 1 / range to range; 0: 16 */
    double tolerance; /* relative precision of the factors; 0: 0.01 */
    bool curves;      /* also compute plan->curves */
    /* Effort for the layout search, in units of about one microsecond. The
     * search ends earlier once nothing can be more than 0.5 % faster. 0: 75 *
     * effort, at least 1,000,000. */
    uint64_t layout_effort;
    /* Limit in seconds of processor time (process total over threads), which
     * replaces the effort limits: three fifths for layouts, a fifth for layer
     * partitions, the rest for elastic plans and optimal schedules.
     *
     * Jitter uses the same amount again, sensitivity twice that; each question
     * a tenth, plus a tenth to examine choices found by others; each point of a
     * curve a twelfth; a Pareto front four thirds. The plan then depends on the
     * machine and records this. 0: no limit. */
    double seconds;
    /* As `progress`, for the layout search; may be NULL. */
    bool (*layout_progress)(void *context, const lh_plan_progress *now);
    /* Maximum number of threads; 0: the number of processors available to the
     * process. Without `seconds` the plan does not depend on it. `progress` and
     * `layout_progress` are called only from the thread that called
     * lh_plan_make(). */
    uint32_t threads;
    /* The Pareto front contains choices up to this many times slower than its
     * fastest one, or than the plan; 0: 4. */
    double pareto_max_slowdown;
    lh_target target; /* overrides the job's; LH_TARGET_ANY: the job's */
    /* Returns the plan of PipeMesh's own planner (its rule for chunks) on the
     * degrees with the fastest elastic plans; the fastest plan is added for
     * comparison. LH_EINFEASIBLE: none exists. Cannot be combined with jitter,
     * Pareto front, questions, sensitivity, curves, another objective, quick or
     * LH_PARTITION_MONTE_CARLO. */
    bool elastic_as_published;
    /* Filled if no layout fits in memory (LH_EINFEASIBLE), else with zeros; may
     * be NULL. `err` has the same content as text. */
    lh_memory_needs *memory_needs;
    /* Also find the best plan that leaves this much memory of every GPU free,
     * beyond its reserve: percent of its memory, or GiB. 0: none. */
    double margin_percent, margin_gib;
} lh_plan_options;

/* Searches the best plan over everything that the job leaves open. `options`
 * may be NULL. Deterministic, unless `seconds` is set. Release with
 * lh_plan_free(). LH_EINFEASIBLE: no layout works; `err` names the violated
 * constraint and the amount. */
LH_API lh_status lh_plan_make(const lh_job *job, const lh_plan_options *options,
                              lh_plan **out, lh_error *err);
/* Frees a plan and its contents; NULL is a no-op. */
LH_API void lh_plan_free(lh_plan *plan);
/* Return the target's display name and the version against which its rules were
 * checked: "Megatron-LM", "core 0.16". Static storage. */
LH_API const char *lh_target_display_name(lh_target target);
/* Returns the version against which the target's rules were checked; static
 * storage. */
LH_API const char *lh_target_version(lh_target target);
/* Returns the number of GPUs that the plan uses; the job's others are idle. */
LH_API uint32_t lh_plan_gpus(const lh_plan *plan);
/* Returns the relative gap between the plan's iteration time and
 * search_bound_ns, as a fraction of the bound: 0.05 if nothing is more than 5 %
 * faster. -1: unknown. */
LH_API double lh_plan_gap(const lh_plan *plan);
/* Returns the relative gap between the plan's cost and search_bound_usd, as a
 * fraction of the plan's cost: 0.05 if nothing is more than 5 % cheaper. -1:
 * unknown. */
LH_API double lh_plan_cost_gap(const lh_plan *plan);
/* Returns the range of model layers in one chunk of the plan's pipeline. */
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

/* Parses a plan file's text; `name` appears in error messages. LH_EINPUT:
 * invalid text. Release with lh_plan_free(). */
LH_API lh_status lh_plan_parse(const char *text, size_t len, const char *name,
                               lh_plan **out, lh_error *err);
/* Reads and parses a plan file. LH_EIO: it cannot be read. */
LH_API lh_status lh_plan_read(const char *path, lh_plan **out, lh_error *err);
/* Formats the plan as JSON. Parsing it gives the same plan, which formats to
 * the same text. Release *text with lh_text_free(). */
LH_API lh_status lh_plan_format(const lh_plan *plan, char **text, size_t *len,
                                lh_error *err);

/* Finds the plan's link whose ends limit a sender most, by the ratio of the two
 * rates: the windows of the job's `nccl` or `window_kib`, or NCCL's defaults
 * where the job has no end settings. Returns false if no end limits by 1 % or
 * more. *out borrows from the plan. */
LH_API bool lh_plan_find_ends_limit(const lh_plan *plan, lh_ends_limit *out);

#ifdef __cplusplus
}
#endif
#endif
