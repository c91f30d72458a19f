/* SPDX-License-Identifier: Apache-2.0 */
/* From a job to a plan: the search over layouts and schedules, and the plan
 * file. See docs/formats/plan.md. */
#ifndef LONGHAUL_PLAN_H
#define LONGHAUL_PLAN_H

#include <longhaul/advice.h>
#include <longhaul/jitter.h>
#include <longhaul/job.h>
#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum lh_choice_status {
    LH_CHOICE_OK,      /* simulated: iteration_ns is its time */
    LH_CHOICE_BOUNDED, /* not simulated: lower_bound_ns alone is too slow */
    LH_CHOICE_MEMORY,  /* does not fit; iteration_ns is -1 */
    LH_CHOICE_FAILED,  /* the method does not apply; iteration_ns is -1 */
} lh_choice_status;

LH_API const char *lh_choice_status_name(lh_choice_status status); /* "ok" */

/* An operation that the backward makes again: in which share of the layers, on
 * the first device and on the last, and in how many layers of each chunk, its
 * first ones. */
typedef struct lh_plan_recomputed {
    const char *operation;
    double first, last;
    uint32_t n_chunks;      /* 0: an older plan, which does not say */
    const uint32_t *layers; /* of each chunk */
} lh_plan_recomputed;

/* Of a choice whose schedule is "elastic". */
typedef struct lh_plan_elastic {
    uint32_t n_enqueue, n_dequeue;
    const uint32_t *enqueue, *dequeue;
    double gradients, parameters; /* shares that are sharded: ZeRO-2 or 3, and
                                     of these ZeRO-3; the rest is ZeRO-1 */
    uint32_t scatter_buckets, forward_buckets, backward_buckets;
    uint32_t n_recomputed;
    const lh_plan_recomputed *recomputed;
} lh_plan_elastic;

/* What an iteration costs where the job has prices, in their currency. */
typedef struct lh_plan_cost {
    uint32_t gpus;       /* paid for: all of every node that is used */
    double usd_per_hour; /* of these */
    double between_gb;   /* sent between datacenters, 10^9 bytes */
    double gpus_usd, between_usd;
    double usd; /* both together */
    double usd_per_1e9_tokens;
} lh_plan_cost;

/* One layout with one schedule, and what it comes to. */
typedef struct lh_choice {
    lh_choice_status status;
    lh_layout layout; /* every degree given; layout.schedule the method */
    lh_placement placement;
    lh_recompute recompute;
    uint32_t zero; /* ZeRO stage; of elastic plans the least that any parameter
                      has */
    uint32_t microbatches;
    int64_t iteration_ns; /* pipeline, then optimizer, then overhead */
    int64_t makespan_ns;  /* of the pipeline */
    int64_t optimizer_ns, overhead_ns;
    int64_t lower_bound_ns; /* no schedule of this layout has a shorter
                               iteration */
    double bubble_ratio;
    int64_t peak_memory_bytes;  /* of the device with the least room left */
    int64_t memory_limit_bytes; /* of that device */
    double tokens_per_s;
    double mfu;      /* model FLOPs over peak FLOPs of the GPUs in use */
    const char *why; /* why it won, or lost; never NULL */
    const lh_plan_elastic *elastic; /* NULL: another schedule */
    const lh_plan_cost *cost;       /* NULL: no prices, or no time */
    /* Of each chunk, pipeline * chunks_per_device of them; NULL: as even as it
     * goes, what is left over in the middle. See lh_plan_layers(). */
    const uint32_t *chunk_layers;
    /* Of whole iterations under plan->robust->jitter; NULL: not drawn. */
    const lh_jitter_result *jitter;
} lh_choice;

/* What a plan is chosen by where delays vary. */
typedef enum lh_plan_by {
    LH_PLAN_BY_MEAN, /* of the iterations drawn */
    LH_PLAN_BY_P95,  /* what 95 % of them keep */
} lh_plan_by;

LH_API const char *lh_plan_by_name(lh_plan_by by); /* "mean" */

/* *out: what is drawn for a choice's pipeline: `given` with a straggler rate
 * that is of a GPU, where a device stands for all GPUs of a pipeline rank,
 * those of other replicas too, and is slow if one of them is; and with one
 * data-parallel link where the replicas are spread over datacenters. */
LH_API lh_status lh_plan_jitter(const lh_job *job, const lh_choice *choice,
                                const lh_jitter *given, lh_jitter *out,
                                lh_error *err);

/* How a plan was chosen for delays that vary. Layouts whose bounds show that
 * they cannot be better on the samples are left out. */
typedef struct lh_plan_robust {
    lh_jitter jitter; /* as given; see lh_plan_jitter() */
    lh_plan_by by;
    uint32_t n_layouts;   /* drawn for */
    uint32_t n_schedules; /* drawn for to the end: the others had lost before */
    uint32_t n_untried;   /* layouts that might be better; too many */
    bool complete; /* no layout was left out that might be better, with chunks
                      as even as they go */
} lh_plan_robust;

/* --- other values of the links between datacenters ----------------------- */

typedef enum lh_link_quantity {
    LH_LINK_LATENCY,   /* ms, one way */
    LH_LINK_BANDWIDTH, /* Gb/s, all traffic in one direction */
    LH_LINK_LOSS,
    LH_LINK_OVERSUBSCRIPTION,
} lh_link_quantity;

LH_API const char *lh_link_quantity_name(lh_link_quantity quantity);

#define LH_ALL_LINKS UINT32_MAX

typedef struct lh_link_change {
    /* Datacenters, in this direction; LH_ALL_LINKS for both: every link. */
    uint32_t from, to;
    lh_link_quantity quantity;
    bool relative; /* `value` is a factor of what the job says */
    double value;
} lh_link_change;

/* What if the links were these? */
typedef struct lh_plan_question {
    const char *text; /* as people put it: "latency=40" */
    uint32_t n_changes;
    const lh_link_change *changes; /* one after the other */
} lh_plan_question;

/* The plan where the links are others. */
typedef struct lh_plan_answer {
    const char *text; /* the question's */
    lh_choice kept;   /* the plan's layout and schedule there */
    lh_choice best;   /* the best plan there; `kept` where none is better */
} lh_plan_answer;

/* Where another layout becomes the best one. */
typedef struct lh_plan_flip {
    double factor_below, factor_above; /* of the job's values */
    lh_choice below, above; /* the best at either; their layouts differ */
} lh_plan_flip;

/* One quantity of one link. */
typedef struct lh_plan_range {
    /* Datacenters, both directions; LH_ALL_LINKS for both: every link. */
    uint32_t from, to;
    lh_link_quantity quantity;
    uint32_t n_flips; /* at most one on either side of the job's values */
    const lh_plan_flip *flips; /* by rising factor */
} lh_plan_range;

/* How far the links may be from what the job says. */
typedef struct lh_plan_sensitivity {
    double least, most; /* factors that were looked at */
    double tolerance;   /* factor_above / factor_below is at most 1 + this */
    lh_choice here;     /* of the quick search, where the links are the job's */
    uint32_t n_ranges;
    const lh_plan_range *ranges;
    /* Up to a flip, or to the end where there is none, full searches found
     * nothing with another layout that is better by more than this share: at
     * the last factor and halfway to it. 0: quick searches alone. */
    double margin;
} lh_plan_sensitivity;

/* What an iteration consists of: the parts add up to it. Each is what it would
 * take less if its cause were gone too, beginning at the end: memory limits,
 * then data parallelism, messages, and activations that leave
 * (docs/theory/plan-reasons.md). */
typedef struct lh_plan_account {
    int64_t compute_ns;   /* passes, the mean of all devices */
    int64_t inside_ns;    /* what these send within: tensor, context, expert */
    int64_t imbalance_ns; /* of the busiest device, above the mean */
    int64_t bubble_ns;    /* that the order leaves with all else gone */
    int64_t messages_ns;  /* exposed: between pipeline ranks */
    int64_t data_ns;      /* exposed: data parallelism, in passes too */
    int64_t offload_ns;   /* exposed: activations that leave and come back */
    int64_t memory_ns;    /* for want of memory for a faster order */
    int64_t optimizer_ns, overhead_ns;
} lh_plan_account;

/* What a device of a pipeline rank holds when it holds most; the parts add up
 * to its peak memory. State that a profile measured in one piece is divided as
 * the cost model has it. */
typedef struct lh_plan_memory {
    uint32_t rank;
    int64_t parameters_bytes;
    int64_t gradients_bytes;
    int64_t optimizer_bytes;
    int64_t activations_bytes; /* what passes leave for later ones */
    int64_t buffers_bytes;     /* of communication: what is gathered, reduced */
    int64_t temporary_bytes;   /* the most that one pass needs in passing */
} lh_plan_memory;

/* The best plan with another value of one dimension: "tensor", "context",
 * "expert", "pipeline", "data", "sites", "zero", "sharding", "micro_batch",
 * "chunks_per_device", "placement", "recompute" or "schedule". All others may
 * differ, too. LH_CHOICE_BOUNDED: it takes lower_bound_ns at least. */
typedef struct lh_plan_runner {
    const char *dimension;
    lh_choice choice;
    /* No plan with another value has a shorter iteration, whether it was looked
     * at or not; -1: not known, as of the cheapest. */
    int64_t least_ns;
    bool first_sight; /* better ones with that value were not looked for as
                         long as that helped */
} lh_plan_runner;

/* Layouts that a bound ruled out before their pipelines were built. */
typedef struct lh_plan_pruned {
    const char *bound; /* "ramp": docs/theory/plan-search.md */
    uint64_t n;
} lh_plan_pruned;
typedef enum lh_curve_over {
    LH_CURVE_OVERSUBSCRIPTION, /* of all links between datacenters */
    LH_CURVE_EXPERTS,          /* of the model */
} lh_curve_over;

LH_API const char *lh_curve_over_name(lh_curve_over over); /* "experts" */

/* The best iteration with pipelines over the datacenters ("PP-out") and with
 * replicas over them ("DP-out"), each with the plan's tensor, context and
 * expert degrees, chunks as even as they go, and methods alone. */
typedef struct lh_plan_curve {
    lh_curve_over over;
    uint32_t n_points;
    const double *xs; /* rising */
    uint32_t n_series;
    const char *const *series;
    const int64_t
        *iteration_ns;       /* [series * n_points + point]; -1: none fits */
    uint32_t n_crossings;    /* of the first two, by interpolation */
    const double *crossings; /* rising */
} lh_plan_curve;

/* A job's profile measured none of the plan's passes. */
typedef struct lh_plan_unmeasured {
    uint32_t n_entries; /* of the profile, that are of the job's model, GPUs and
                           sequence; 0: it changes nothing */
    /* The best layout that a short search found with passes which the profile
     * measured, all or some; NULL: it found none. */
    const lh_choice *fastest;
} lh_plan_unmeasured;

/* What a plan is to be best in. */
typedef enum lh_plan_goal {
    LH_PLAN_FASTEST,  /* of an iteration */
    LH_PLAN_CHEAPEST, /* of an iteration, and so of a token */
} lh_plan_goal;

LH_API const char *lh_plan_goal_name(lh_plan_goal goal); /* "time" */

/* Immutable; owns everything it points to. */
typedef struct lh_plan {
    const char *name;       /* of the job */
    const char *version;    /* of longhaul that made it */
    const char *input_hash; /* of the job with all that it names */
    const char
        *cost_source; /* where pass times come from: lh_cost_source_name() */
    const lh_job *job;
    lh_choice best;
    const lh_pipeline *pipeline; /* of the best; memory in bytes */
    const lh_schedule *schedule;
    /* Every method on the best layout's placements, fastest first. */
    uint32_t n_methods;
    const lh_choice *methods;
    /* The best of each other layout, fastest first. */
    uint32_t n_alternatives;
    const lh_choice *alternatives;
    /* How the search went: layouts looked at; of these those that did not
     * fit, that a bound ruled out, that were simulated. And not looked at:
     * what the model or the cluster does not divide into, and more than 4096
     * microbatches where the job leaves micro_batch open. */
    uint32_t n_layouts, n_memory, n_bounded, n_simulated;
    uint32_t n_unsupported, n_dropped;
    uint32_t n_left; /* of n_layouts: neither ruled out nor simulated when the
                        search stopped; their bounds count in what follows */
    /* Degrees and places whose elastic plans were each bounded, searched or
     * left; of these those left, as n_left. */
    uint32_t n_elastic, n_elastic_left;
    /* No layout that the job leaves open, with any partition of the layers and
     * any schedule, has a shorter iteration (proven); 0: not known. */
    int64_t search_bound_ns;
    /* Where the cheapest was wanted: none of these costs less for an
     * iteration; 0: not known. */
    double search_bound_usd;
    /* What the job gives that a search which has to find it does not look at,
     * so that a plan without may be slower: "context 4 (1024 tokens a GPU)".
     * NULL: nothing. */
    const char *beyond;
    uint32_t n_pruned;
    const lh_plan_pruned *pruned;
    const lh_plan_robust *robust; /* NULL: delays are as the job says */
    lh_plan_goal goal;
    /* Where it was asked for: of everything that was tried, what nothing else
     * is as good as in iteration time, memory of the fullest GPU and cost (if
     * there are prices) at once; the fastest first. */
    uint32_t n_front;
    const lh_choice *front;
    bool front_whole; /* bounds show that all the rest is covered; of a quick
                         plan without elastic ones */
    uint32_t n_front_slow; /* left out: those that take too long to be of use */
    /* Answers to the options' questions, in their order. */
    uint32_t n_answers;
    const lh_plan_answer *answers;
    const lh_plan_sensitivity *sensitivity; /* NULL: not asked for */
    /* Where job->target restricts the search: the best that a search with a
     * tenth of the work found for the same job without that, if it is better.
     * NULL: nothing is, or there is no target. */
    const lh_choice *without_target;
    /* NULL: some of the plan's passes are measured, or the job has no profile
     * of passes. */
    const lh_plan_unmeasured *unmeasured;
    /* Every link between datacenters that the plan uses, by `from`, then `to`;
     * and the iteration with all of them as advised, and as they are now where
     * the job says it, else as simple as they come; -1: not simulated. */
    uint32_t n_network;
    const lh_link_advice *network;
    int64_t network_ns, network_now_ns;
    const lh_plan_account *account; /* NULL: a file without */
    uint32_t n_runners;
    const lh_plan_runner *runners;
    uint32_t n_curves; /* where they were asked for */
    const lh_plan_curve *curves;
    uint32_t n_ranks; /* layout.pipeline of them; 0: a file without */
    const lh_plan_memory *rank_memory;
} lh_plan;

/* How layers are moved between the chunks of layouts. */
typedef enum lh_partition_search {
    LH_PARTITION_CLIMB, /* from several starts, while moving one or two layers
                           helps; all of them where they are few */
    LH_PARTITION_EXACT, /* every partition of every layout that could win, where
                           they are at most 200000 of each */
    LH_PARTITION_MONTE_CARLO, /* whole configurations are drawn, as ScaleAcross
                                 Explorer (2026) does; proves nothing, and is
                                 for LH_PLAN_FASTEST without jitter or front
                                 alone: else LH_EINVAL */
    LH_PARTITION_EVEN,        /* not at all */
} lh_partition_search;

/* How LH_PARTITION_MONTE_CARLO draws; 0: what the paper has, or 100 layouts. */
typedef struct lh_plan_sampling {
    uint32_t layouts;
    uint32_t partitions; /* of each layout; 100 */
    uint32_t keep;       /* the fastest; 1000 */
    uint32_t changes;    /* of each that is kept, by one layer; 100 */
    uint64_t seed;       /* 1 */
} lh_plan_sampling;

/* Where a search over layouts stands. */
typedef struct lh_plan_progress {
    int64_t best_ns;   /* the fastest iteration so far; -1: none */
    int64_t bound_ns;  /* no plan of those that it looks for is faster; 0: not
                          known */
    uint64_t n_closed; /* layouts: ruled out, too large or built */
    uint64_t n_open;   /* others that are known so far */
} lh_plan_progress;

typedef struct lh_plan_options {
    size_t size;         /* sizeof(lh_plan_options) */
    uint32_t top;        /* alternatives to keep; 0: 10 */
    uint32_t sub_blocks; /* of `greedy`; 0: 1, which other programs can run */
    /* Called now and then while searching; returns true to stop early, and
     * then the best so far is the plan. May be NULL. */
    bool (*progress)(void *context, uint32_t done, uint32_t total,
                     int64_t best_ns);
    void *context;
    /* Work for finding optimal schedules of the best layouts, in the units of
     * lh_solve_options; 0: 400000, about half a second. The search over layouts
     * has 75 times as much, 1,000,000 at least, unless layout_effort says
     * otherwise. */
    uint64_t effort;
    bool no_optimal; /* no such search: methods alone */
    bool quick; /* for many plans of like jobs: even chunks, neither look-ahead
                   nor optimal schedules, and elastic plans only where nothing
                   else fits */
    lh_partition_search partition;
    lh_plan_sampling sampling;
    double max_chunk_ratio; /* largest chunk / smallest, in layers; 0: 3 */
    const lh_jitter
        *jitter;       /* choose for delays that vary; NULL: they do not */
    lh_plan_by by;     /* with jitter */
    lh_plan_goal goal; /* cost: the job has prices, or the options */
    bool front;        /* all that is best in some respect, too */
    /* In place of the job's prices; 0: these. */
    double usd_per_gpu_hour, usd_per_gb;
    uint32_t n_questions;
    const lh_plan_question *questions;
    bool sensitivity; /* find where other link values change the layout */
    double range;     /* factors up to this, and down to 1 / this; 0: 16 */
    double tolerance; /* of the factors found; 0: 0.01 */
    bool curves;      /* fill in plan->curves, too */
    /* Work for the search over layouts, in units of about a microsecond; it
     * ends before where nothing is more than 0.5 % faster. 0: 75 * effort, or
     * 1,000,000 where that is less. */
    uint64_t layout_effort;
    /* Seconds of processor time of the process, all threads together, for the
     * search, in place of that work: three fifths for layouts, a fifth for
     * their layers, the rest for elastic plans and optimal schedules. Jitter
     * and sensitivity have as many each again, twice for the latter; each
     * question a tenth, and as much to look at what others found, each point
     * of a curve a twelfth, a front four thirds.
     * The plan then depends on the machine, and says so. 0: not looked at. */
    double seconds;
    /* As `progress`, by the search over layouts; may be NULL. */
    bool (*watch)(void *context, const lh_plan_progress *now);
    /* At most so many; 0: as many as processors that the process may run on.
     * Without `seconds` the plan is the same for any number. `progress` and
     * `watch` are called by the thread that called lh_plan_make() alone. */
    uint32_t threads;
    /* The front has what takes up to so many times as long as the fastest
     * there, or as the plan; 0: 4. */
    double front_times;
    lh_target target; /* in place of the job's; LH_TARGET_ANY: that */
    /* The plan is the one that PipeMesh's own planner makes, by its rule for
     * chunks, on the degrees on which elastic plans are fastest; the fastest
     * stands beside it. LH_EINFEASIBLE: there is none. With no jitter, front,
     * questions, sensitivity, curves or other objective, nor with quick or
     * LH_PARTITION_MONTE_CARLO. */
    bool elastic_published;
} lh_plan_options;

/* Searches what the job leaves open. `options` may be NULL. Deterministic.
 * LH_EINFEASIBLE: no layout works; `err` says which constraint is in the way
 * and by how much. Release with lh_plan_free(). */
LH_API lh_status lh_plan_make(const lh_job *job, const lh_plan_options *options,
                              lh_plan **out, lh_error *err);
LH_API void lh_plan_free(lh_plan *plan); /* NULL is fine */
/* What job->target is called in text, and what its rules were checked against:
 * "Megatron-LM", "core 0.16". Static. */
LH_API const char *lh_target_shown(lh_target target);
LH_API const char *lh_target_version(lh_target target);
/* GPUs that the plan uses; others of the job idle. */
LH_API uint32_t lh_plan_gpus(const lh_plan *plan);
/* How much longer the plan's iteration is than search_bound_ns, as a share of
 * that: 0.05 if nothing is more than 5 % faster. -1: not known. */
LH_API double lh_plan_gap(const lh_plan *plan);
/* How much cheaper search_bound_usd is than the plan, as a share of the plan's
 * cost: 0.05 if nothing is more than 5 % cheaper. -1: not known. */
LH_API double lh_plan_cheaper(const lh_plan *plan);
/* The model's layers that one chunk of the plan's pipeline holds. */
LH_API void lh_plan_layers(const lh_plan *plan, uint32_t chunk, uint32_t *first,
                           uint32_t *n_layers);

/* The pipeline of one complete layout (every degree, micro_batch,
 * chunks_per_device and outermost given), e.g. to compare its schedules.
 * `placement`: how chunks lie on devices; LH_PLACEMENT_OTHER: UD for one chunk
 * per device, else Loop. *optimizer_ns (may be NULL): what follows the pipeline
 * in every iteration. LH_EUNSUPPORTED, LH_EINFEASIBLE: `err` says why the
 * layout does not work. */
LH_API lh_status lh_plan_pipeline(const lh_job *job, const lh_layout *layout,
                                  lh_placement placement,
                                  lh_recompute recompute, lh_pipeline **out,
                                  int64_t *optimizer_ns, lh_error *err);

LH_API lh_status lh_plan_parse(const char *text, size_t len, const char *name,
                               lh_plan **out, lh_error *err);
LH_API lh_status lh_plan_read(const char *path, lh_plan **out, lh_error *err);
/* JSON; reads back to the same plan and the same text. */
LH_API lh_status lh_plan_format(const lh_plan *plan, char **text, size_t *len,
                                lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
