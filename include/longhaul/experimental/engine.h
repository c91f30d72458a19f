/* SPDX-License-Identifier: Apache-2.0 */
/* Runs schedules. A schedule is lowered to an execution plan: each rank's
 * passes in order, and separate streams for receives, sends and data-parallel
 * communication (CrossPipe section 6.3). The plan is proven deadlock-free
 * before the run starts. See docs/engine.md.
 *
 * Rank d runs device d of the pipeline. Times are nanoseconds.
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_ENGINE_H
#define LONGHAUL_EXPERIMENTAL_ENGINE_H

#include <longhaul/experimental/adapt.h>
#include <longhaul/experimental/delegate.h>
#include <longhaul/experimental/events.h>
#include <longhaul/experimental/job.h>
#include <longhaul/experimental/model.h>
#include <longhaul/experimental/monitor.h>
#include <longhaul/experimental/plan.h>
#include <longhaul/experimental/profile.h>
#include <longhaul/experimental/trace.h>
#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/simulate.h>
#include <longhaul/status.h>
#include <longhaul/train.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Reports to the ranks of the same run that this process has failed because of
 * `why` before its rank could join them, so that they end, too. The process is
 * identified by the variables of torchrun, Slurm or 'train --hosts'; without
 * them, does nothing. Takes up to 10 s, until the other ranks have the reason.
 */
LH_API void lh_train_report_failure(const char *why);
/* Returns the time in ns after which a rank that sends nothing counts as lost
 * with `options`: silence_ns, or its default. 0: ranks are threads, which are
 * not lost by silence, or options->size or transport is invalid. */
LH_API int64_t lh_train_silence_ns(const lh_train_options *options);

/* --- execution plans ------------------------------------------------------ */

typedef struct lh_exec lh_exec; /* immutable after creation */

/* A rank's streams. Streams run concurrently; each executes its instructions
 * in order. */
typedef enum lh_stream {
    LH_STREAM_COMPUTE,
    LH_STREAM_RECEIVE_PREV, /* outputs of F from the previous chunk */
    LH_STREAM_RECEIVE_NEXT, /* gradients from the next chunk */
    LH_STREAM_SEND_NEXT,    /* outputs of F to the next chunk */
    LH_STREAM_SEND_PREV,    /* gradients to the previous chunk */
    LH_STREAM_DATA,         /* data-parallel communication */
    LH_STREAM_OFFLOAD,      /* activations offloaded and reloaded */
    LH_N_STREAMS
} lh_stream;

LH_API const char *lh_stream_name(lh_stream stream); /* "receive-prev" */

/* One instruction in a rank's execution plan. */
typedef struct lh_instruction {
    lh_stream stream;
    /* The related pass, by stream. compute: the pass that runs; receive: its
     * consumer; send: its producer; data: the chunk, with F for an all-gather
     * and W for a reduce-scatter; offload: the pass whose activations are
     * offloaded (F) or reloaded (B). */
    lh_pass pass;
    uint32_t op; /* data: index for lh_pipeline_dp_op(); LH_NONE: the chunk's
                  * own operation, or not a communication */
    /* data, offload: the pass that waits for this and all earlier instructions
     * of the stream, as an index from 0 in the rank's order; LH_NONE: none. */
    uint32_t needed_by_pass;
    /* How many of the rank's passes must end before this instruction is
     * issued. */
    uint32_t passes_before;
    uint32_t peer; /* remote rank, or LH_NONE */
    uint32_t link; /* resource that the message uses; LH_NONE: no link */
    uint32_t slot; /* receive: buffer index; else LH_NONE */
    /* Position in the link's explicit order; UINT64_MAX: first in, first out.
     */
    uint64_t link_position;
    int64_t predicted_ns; /* issue time */
    /* Send, receive: index of the delegated-path queue between the two ranks;
     * LH_NONE: direct path. */
    uint32_t queue;
} lh_instruction;

/* Options for lh_exec_make(). */
typedef struct lh_exec_options {
    size_t size;          /* sizeof(lh_exec_options) */
    lh_receives receives; /* LH_RECEIVES_EARLY (0): as in the pipeline */
    bool fifo;            /* ignore the schedule's link orders */
    /* Maximum number of pre-posted receives per rank; 0: the number that the
     * prediction needs. With fewer, no message is lost, but transfers may start
     * later. */
    uint32_t receive_slots;
    bool override_receives; /* use `receives` even if it is LH_RECEIVES_EARLY */
    /* Head-of-line blocking: size, in messages, of the queue that a rank's
     * sends share with its passes. Passes stop while it is full; a message
     * occupies it until arrival. 0: sends never block. */
    uint32_t coupled_queue;
    /* Messages on the delegated path (longhaul/experimental/delegate.h): none,
     * all, or those on delegation->links. They wait for neither `coupled_queue`
     * nor `receives`. Each direction between two ranks has as many queues as
     * the prediction needs so that no copy waits for another. LH_EUNSUPPORTED:
     * more than LH_MAX_QUEUES are needed. */
    lh_data_path path;
    /* Delegated path's cost; NULL: copies take no time. Copied. The timed
     * device uses these times; on the cpu device copies are real and these
     * times only enter the prediction. */
    const lh_delegation *delegation;
    /* For pipelines with host memory: as in lh_sim_options. */
    int64_t host_copy_ns;
    /* Lists these copies in the offload stream, for the cpu device; the timed
     * device emulates them as parts of passes. */
    bool lists_host_copies;
} lh_exec_options;

/* Maximum number of delegated queues from one rank to another, per direction.
 */
enum { LH_MAX_QUEUES = 64 };

/* Builds a schedule's execution plan: each rank's instructions. `options` may
 * be NULL. Release with lh_exec_free().
 *
 * LH_EINFEASIBLE: the schedule does not match the pipeline. LH_EDEADLOCK:
 * ranks would wait for each other; `err` names them and the passes.
 * LH_EUNSUPPORTED: the pipeline has overlapped passes, or two directions with
 * data-parallel communication. */
LH_API lh_status lh_exec_make(const lh_pipeline *pipeline,
                              const lh_schedule *schedule,
                              const lh_exec_options *options, lh_exec **out,
                              lh_error *err);
LH_API void lh_exec_free(lh_exec *exec); /* frees; NULL is a no-op */

/* Returns the execution plan's rank count. */
LH_API uint32_t lh_exec_n_ranks(const lh_exec *exec);
/* Returns the makespan that the simulator predicts for the plan, in ns. */
LH_API int64_t lh_exec_predicted_ns(const lh_exec *exec);
/* Returns how many receive buffers the rank needs for pipeline
 * messages. */
LH_API uint32_t lh_exec_receive_slots(const lh_exec *exec, uint32_t rank);
/* Returns the predicted maximum number of the rank's sent messages that have
 * not arrived yet. */
LH_API uint32_t lh_exec_sends_in_flight(const lh_exec *exec, uint32_t rank);
/* Returns link number `link`'s name; borrowed from the plan. */
LH_API const char *lh_exec_link_name(const lh_exec *exec, uint32_t link);
/* Returns a rank's instructions in the order in which they are issued, and
 * their number *n_instructions; borrowed. */
LH_API const lh_instruction *lh_exec_instructions(const lh_exec *exec,
                                                  uint32_t rank,
                                                  uint32_t *n_instructions);

/* --- running -------------------------------------------------------------- */

/* A schedule that a run adopts at an iteration boundary. */
typedef struct lh_reschedule {
    size_t size;                 /* sizeof(lh_reschedule) */
    const lh_schedule *schedule; /* borrowed until the next call or the run's
                                  * end */
    const char *name, *why;      /* for display; NULL: "". Copied; long texts
                                  * are truncated */
    int64_t predicted_ns; /* iteration time, for display; 0: the simulator's,
                           * for the run's pipeline */
    /* Data path from then on, if override_path; else the initial path. Mixed:
     * `delegated` per lh_pipeline_link(), borrowed like `schedule`. Copy times
     * come from the run's first execution plan or, in adaptive runs, from
     * `decision_options`. */
    bool override_path;
    lh_data_path path;
    const bool *delegated;
    /* New assignment; NULL: unchanged. `layers`: layers per chunk, with the
     * same total. `hosts`: the rank at each placement, replica by replica.
     * Training state is migrated between the two iterations. Timed devices,
     * which have no state, wait for move_ns instead. Borrowed like `schedule`.
     */
    const uint32_t *layers, *hosts;
    int64_t move_ns; /* from the proposer */
    /* With `hosts`: per placement, the rank that relays the state migrated
     * there, as in lh_host_move; LH_NONE: sent directly. NULL: all sent
     * directly. Borrowed like `schedule`. */
    const uint32_t *relay_ranks;
} lh_reschedule;

/* An lh_reschedule's outcome. */
typedef struct lh_switch {
    uint64_t step; /* first iteration meant to use it */
    const char *to, *why;
    const char *refused;  /* NULL: adopted by all ranks; else the reason for
                           * rejection */
    int64_t predicted_ns; /* iteration time from the proposer, else from the
                           * simulator; 0: lowering failed */
    lh_data_path path;    /* path of its messages */
} lh_switch;

/* State migrated with a switch, to other ranks or chunks. */
typedef struct lh_migration {
    uint32_t n_chunks;           /* 0: chunks have their initial layers */
    uint32_t n_places;           /* 0: ranks have their initial placement */
    const uint32_t *layers;      /* layers per chunk, from then on */
    const uint32_t *hosts;       /* rank at each placement, from then on */
    const uint32_t *relay_ranks; /* per placement, the rank that relayed its
                                  * state; LH_NONE: none. NULL: no relays */
    uint64_t bytes;              /* bytes sent between ranks */
    int64_t ns;                  /* time taken between the two iterations */
    int64_t predicted_ns;        /* from the proposer; 0: not given */
} lh_migration;

/* Event detected or decision made by an adaptive run. */
typedef struct lh_adapt_event {
    uint64_t step; /* iteration after which it occurred */
    bool is_decision;
    lh_monitor_event event; /* valid unless is_decision */
    /* Decisions only, see lh_decision. */
    bool is_switch;
    const char *name;
    lh_data_path path;
    int64_t now_ns, predicted_ns, bound_ns;
    const char *text; /* explanation in one or two sentences */
} lh_adapt_event;

/* Options for adaptive runs, which monitor links and devices and switch to a
 * faster schedule when conditions change.
 *
 * All ranks record their passes' and messages' time. After an iteration
 * the records go to rank 0. There a thread updates a monitor
 * (longhaul/experimental/monitor.h) and decides (longhaul/experimental/adapt.h)
 * while the next iterations run. Ranks vote on proposals as for `reschedule`.
 * Iterations are skipped if recording them would cost more than 0.25 % of the
 * run time. */
typedef struct lh_train_adapt {
    size_t size; /* sizeof(lh_train_adapt) */
    /* NULL: defaults for lh_adapt_make(). `sim` is ignored: message timing
     * follows the run, which must start on the direct path. With a
     * `delegation`, messages may switch to the delegated path and back.
     * Borrowed until the run ends. */
    const lh_adapt_options *decision_options;
    /* Called on rank 0 between iterations; its argument is borrowed for the
     * call. May be NULL. */
    void (*on_event)(void *context, const lh_adapt_event *what);
    /* Allow migration if it beats any schedule change, as in
     * lh_adapt_emulate_options. Hosts may exchange placements if the event
     * timeline defines them. Layers may move to other chunks if the layer
     * counts are known; a layer takes layer_ns between hosts, by prediction. */
    bool moves_hosts, moves_layers;
    int64_t layer_ns;
} lh_train_adapt;

/* Memory kinds on a rank. */
typedef enum lh_memory_kind {
    LH_MEMORY_PARAMETERS,
    LH_MEMORY_GRADIENTS,   /* with their sums over replicas */
    LH_MEMORY_MOMENTS,     /* optimizer state */
    LH_MEMORY_ACTIVATIONS, /* microbatches between F and W */
    LH_MEMORY_BUFFERS,     /* messages and data-parallel communication */
    LH_MEMORY_SCRATCH,     /* workspace, including recomputed activations */
    LH_MEMORY_STORAGE,     /* offloaded activations in a file; in no total */
    LH_N_MEMORY_KINDS
} lh_memory_kind;
/* Returns a memory kind's name, such as "parameters"; NULL: no such kind. */
LH_API const char *lh_memory_kind_name(lh_memory_kind kind);

/* A training rank's peak memory. Excludes the program, the training data,
 * OpenBLAS buffers and messages in flight in the transport. */
typedef struct lh_train_memory {
    /* Bytes by kind: predicted before the run, for its initial schedule, and
     * actually allocated. */
    int64_t predicted[LH_N_MEMORY_KINDS], measured[LH_N_MEMORY_KINDS];
    int64_t predicted_bytes, measured_bytes; /* all kinds except storage */
    int64_t limit_bytes; /* the pipeline's limit; LH_NO_LIMIT: none */
} lh_train_memory;

/* Kinds of groups of ranks that compute passes together. */
typedef enum lh_train_group_kind {
    LH_TRAIN_GROUP_TENSOR,
    LH_TRAIN_GROUP_CONTEXT,
    LH_TRAIN_GROUP_EXPERT,
    LH_TRAIN_GROUP_EXPERT_TENSOR,
    LH_N_TRAIN_GROUPS
} lh_train_group_kind;

/* Restart after a lost rank. */
typedef struct lh_train_restart {
    uint64_t step;       /* first step after it */
    uint64_t n_repeated; /* steps from there on that had ended before */
} lh_train_restart;

/* A run's result. Owns its contents; release with lh_train_result_free(). */
struct lh_train_result {
    uint32_t n_iterations;
    const lh_iteration *iterations;
    /* rank 0 was another process and has the data below */
    bool is_on_other_process;
    bool interrupted;      /* ended early because of `stop`, here or on another
                            * rank */
    const lh_trace *trace; /* last iteration; NULL: there was none */
    uint32_t
        n_pool_growths; /* message buffers allocated beyond the prediction */
    /* Iteration time: predicted by the simulator and measured; 0 if there was
     * none. After switches, of the last iteration's schedule. The prediction
     * excludes timeline events; lh_event_timeline_simulate() includes them. */
    int64_t predicted_ns, median_ns, min_ns, max_ns;
    double error; /* median_ns / predicted_ns - 1; 0: no prediction */
    uint64_t missed_deadlines; /* sum over all iterations */
    int64_t max_lateness_ns;   /* maximum over all iterations */
    /* Fraction of the peak FLOPs of the plan's GPUs; negative: unknown, or no
     * plan was run. */
    double utilisation;
    uint32_t n_ranks, n_replicas; /* ranks including all replicas; replicas */
    /* Group sizes within each replica; tensor: the greatest of all stages. */
    uint32_t tensor, context, expert;
    /* cpu: time per iteration that a rank spends on exchanges within passes, by
     * lh_train_group_kind: mean over ranks and iterations, with waiting,
     * without validation. planned_exchange_ns is the plan's estimate of their
     * sum; 0: none, or no plan. */
    int64_t exchange_ns[LH_N_TRAIN_GROUPS];
    int64_t planned_exchange_ns;
    /* cpu: time per iteration for activation copies to and from the device,
     * predicted and measured, and the time that passes waited for them: mean
     * over ranks and iterations. 0: none. */
    int64_t predicted_copy_ns, copy_ns, copy_wait_ns;
    /* cpu: number of processors, if fewer than ranks and taken into account in
     * predicted_ns: passes of all ranks then share them. 0: one per rank, or
     * unknown. */
    uint32_t n_processors;
    int64_t unshared_ns; /* prediction with one processor per rank */
    /* Adaptive runs: predicted_ns comes from times measured in the run: the
     * median over the iterations of the last schedule. */
    bool is_calibrated;
    /* Adaptive runs: processor time of all ranks for observations and the
     * monitor, without decisions and the transport. */
    int64_t monitor_ns;
    /* Measured profile: the plan's chunks as they ran, the work after the
     * pipeline, and the links unless they were emulated. Means over iterations
     * excluding the longest and the shortest. NULL: not requested, or no
     * iteration ran. */
    const lh_profile *profile;
    /* Restarts after lost ranks. Copies, exchanges and memory are then
     * measured since the last one. */
    uint32_t n_restarts;
    const lh_train_restart *restarts;
};

/* Runs the plan in real time on this machine with emulated durations: passes
 * take their given time, and messages theirs on links as described in the
 * pipeline. Release with lh_train_result_free().
 *
 * LH_EUNSUPPORTED: links that share a name differ. LH_EIO: a rank failed; `err`
 * names it and the reason. */
LH_API lh_status lh_train_timed(const lh_pipeline *pipeline,
                                const lh_exec *exec,
                                const lh_train_options *options,
                                lh_train_result **out, lh_error *err);
/* Emulated link shared by a group: each exchange takes the latency plus
 * ns_per_byte for each byte that one rank sends or receives. */
typedef struct lh_train_group_link {
    int64_t latency_ns;
    double ns_per_byte;
} lh_train_group_link;
/* Emulated links for the collectives of ranks that share state. */
typedef struct lh_train_collective_links {
    lh_train_group_link gathers, reductions;
} lh_train_collective_links;

/* Learning rate decay shapes after the warm-up. */
typedef enum lh_rate_decay {
    LH_RATE_DECAY_COSINE, /* half a cosine down to the final rate */
    LH_RATE_DECAY_LINEAR,
    LH_RATE_DECAY_CONSTANT, /* none */
    LH_N_RATE_DECAYS
} lh_rate_decay;

/* Further options of AdamW and its learning rate. */
typedef struct lh_train_optimizer {
    size_t size; /* sizeof(lh_train_optimizer) */
    double beta1, beta2,
        epsilon; /* NAN: 0.9, 0.95, 1e-8, or the checkpoint's */
    /* lh_rate_decay; LH_N_RATE_DECAYS: cosine, or the checkpoint's */
    uint32_t rate_decay;
    /* Steps of the decay, at the run's end; the rate is constant before
     * (warm-up, stable, decay). 0: all after the warm-up; UINT64_MAX: 0, or the
     * checkpoint's. */
    uint64_t decay_steps;
} lh_train_optimizer;

/* Returns the optimizer's default options. */
LH_API lh_train_optimizer lh_train_optimizer_defaults(void);

/* Tokens as in Megatron-LM's indexed datasets: PREFIX.bin, with their size in
 * PREFIX.idx. */
#define LH_TOKEN_BYTES_INDEXED 1u

/* Model and training options for the cpu device: float32, of a kind listed in
 * docs/training.md. Strings are borrowed for the call. */
typedef struct lh_train_model {
    size_t size; /* sizeof(lh_train_model) */
    const lh_model *model;
    /* Chunk c of the pipeline has layers first_layers[c] to first_layers[c + 1]
     * - 1. The first chunk also has the embedding; the last one has the head
     * and the multi-token prediction modules. In a bidirectional pipeline only
     * the first half of the chunks counts; the others are their copies. */
    const uint32_t *first_layers;
    /* Recomputed parts per layer, then per multi-token prediction module
     * (lh_model.mtp_layers): bits 1 << lh_layer_part. The forward frees these
     * parts and the backward recomputes them. Results are bit-identical. NULL:
     * none. */
    const uint32_t *recompute;
    uint32_t micro_batch, sequence; /* sequences; tokens per sequence */
    uint32_t replicas;              /* data-parallel replicas; 0: 1 */
    uint64_t seed;

    /* Files with text or tokens, separated by ';': their tokens one after
     * another or, with WEIGHT=FILE, a mixture (docs/training.md). */
    const char *data;
    /* 0: text; 2, 4: little-endian tokens; LH_TOKEN_BYTES_INDEXED. */
    uint32_t token_bytes;
    const char *tokenizer;   /* tokenizer.json for text; NULL: bytes */
    double validation;       /* fraction of the data, 0 <= f < 1 */
    uint32_t validate_every; /* steps; 0: never */

    /* Peak and final learning rate; NAN: defaults, or the checkpoint's. The
     * final one is at most the peak: otherwise LH_EINPUT. */
    double rate, min_rate;
    double weight_decay, clip;
    uint64_t warmup; /* steps; UINT64_MAX: the default, or the checkpoint's */

    /* Checkpoint folder; NULL: none. A folder serves one run at a time: LH_EIO
     * names the other. Stale temporary files from killed runs are removed. */
    const char *checkpoint;
    uint32_t checkpoint_every, keep; /* interval in steps, 0: only at the end;
                                      * checkpoints kept, 0: all */
    /* Checkpoint to resume from, or a folder, whose newest intact checkpoint is
     * used; NULL: none. Model, data, seed and global batch must be equal; all
     * degrees may differ. */
    const char *resume;
    /* initial weights (safetensors); NULL: random by seed */
    const char *weights;
    bool emulate_links; /* emulate the pipeline's links; false: none */
    /* Dropout rate, 0 <= rate < 1, for attention scores, the outputs of
     * attention and MLP, and the embedding. The dropout masks depend on the
     * seed alone. For a plan the job decides, regardless of this value:
     * LH_TRAIN_DROPOUT if its layers use dropout without a number. */
    double dropout;
    /* Partial sharding, for pipelines whose passes launch data-parallel
     * operations and several replicas. Fractions of each chunk's parameters:
     * gradients scattered group by group and freed (ZeRO-2 and 3), and
     * parameters gathered before use and freed (ZeRO-3), the latter at most the
     * former. They are rounded to whole weight matrices, taken from the chunk's
     * start. */
    double sharded_gradients, sharded_parameters;
    /* FSDP: no operations are launched; passes gather and scatter layer by
     * layer. Gradients are then fully sharded, parameters fully or not at all.
     */
    bool per_layer_sharding;
    /* Hybrid sharding: site per stage and replica, stages * replicas entries.
     * Replicas of a site share the optimizer state and other shards. Gradients
     * are then summed with the other sites, which have equally many replicas:
     * by each replica with its peers or, with `reduce_by_leaders`, by one
     * replica per site. NULL: all replicas share. */
    const uint32_t *sites;
    bool reduce_by_leaders;
    /* Mixture of experts: coefficient of the load-balancing loss
     * (docs/training.md). 0: none. For a plan, the job decides this value,
     * balance_bias and expert_capacity. */
    double balance_loss;
    /* Parallel sizes per replica as in Megatron-LM: ranks that share layers
     * (tensor), sequences (context), experts (expert) and an expert's matrices
     * (expert_tensor). A pipeline device has replicas * context * tensor ranks,
     * grouped by tensor, then context. The same ranks are grouped by
     * expert_tensor, then expert. 0: 1. expert_tensor 0: 1 if expert > 1, else
     * tensor, see lh_layout_expert_tensor(). */
    uint32_t tensor, context, expert, expert_tensor;
    /* Emulated links of these groups with emulate_links, by
     * lh_train_group_kind; all zero: real time. */
    lh_train_group_link groups[LH_N_TRAIN_GROUPS];
    /* Bias update per step for a sigmoid router (LH_ROUTER_SIGMOID), for load
     * balancing. */
    double balance_bias;
    /* Capacity factor: choices per sequence that an expert accepts, relative to
     * an even distribution; the excess is dropped. 0: unlimited. */
    double expert_capacity;
    /* ZeRO 0: each rank keeps the optimizer state for all its parameters;
     * `sites` is ignored. */
    bool unsharded_optimizer;
    /* Per layer: offloads the activations that F stores and that are not
     * recomputed to a file, and reloads them before B. lh_chunk.offload_ns of
     * the layer's chunk gives the duration. Results are bit-identical. NULL:
     * none. */
    const bool *offload;
    /* Folder for that file, which is unnamed. */
    const char *offload_folder;
    /* One-step delayed update: a step applies the previous step's gradients, as
     * if they were communicated while the next step computes. Communication and
     * speed of the emulation are unchanged. */
    bool delayed_update;
    /* With per_layer_sharding and emulate_links: emulated links for a
     * layer's collectives, the embedding or the head and, if several ranks
     * share experts, of a layer's experts. Collectives with times in the
     * pipeline (lh_chunk.all_gather_ns, reduce_scatter_ns) use those times. */
    lh_train_collective_links layer_links, expert_links;
    /* Time that the pipeline's passes wait for these collectives, for one
     * microbatch on all chunks; it uses no processor. */
    int64_t collective_wait_ns;
    /* Node per stage and rank in the stage, stages * replicas * context *
     * tensor entries, in copy order. Node-aware dispatch: with expert > 1, a
     * token is sent once to each node that has some of its experts and is
     * forwarded there. Traffic between nodes uses
     * groups[LH_TRAIN_GROUP_EXPERT]; traffic within a node uses
     * intra_node_experts, concurrently. Requires expert_tensor 1. NULL: one
     * copy per expert. */
    const uint32_t *nodes;
    lh_train_group_link intra_node_experts;
    /* tensor > 1: ranks that share layers all hold every row between products,
     * and all receive the sums. Otherwise each holds its own rows (sequence
     * parallelism). Experts must then be split as layers are. */
    bool no_sequence_parallel;
    /* Matrix products in bf16 with fp32 master weights, gradients and optimizer
     * state, rounded as by PyTorch's autocast; false: fp32. */
    bool bf16;
    /* With `resume`: names of the options, separated by commas, that the run
     * does not inherit from the checkpoint: steps, rate, min-rate, warmup,
     * weight-decay, clip, beta1, beta2, epsilon, rate-decay, decay-steps,
     * dropout, balance_loss, balance_bias, expert_capacity,
     * bf16. NULL: none; then an explicit value that differs is an error. */
    const char *overrides;
    /* With `checkpoint`: the folder may have checkpoints of another run. They
     * are removed before the first one is written. Otherwise such a folder is
     * LH_EINPUT. */
    bool fresh;
    /* Each replica's sequences per microbatch, `replicas` entries, the largest
     * of which is micro_batch; NULL: micro_batch for all. */
    const uint32_t *micro_batches;
    const lh_train_optimizer *optimizer; /* NULL: defaults */
    /* Files in the format of `data` for validation, in place of `validation`;
     * NULL: none. */
    const char *validation_data;
    /* Each rank's threads for its matrix products; results do not depend on
     * it. 0: 1. */
    uint32_t threads;
    /* Tensor degree of each pipeline device, in place of `tensor`; a dense
     * model may have different ones (docs/theory/unequal.md). NULL: `tensor` on
     * all. */
    const uint32_t *stage_tensors;
    /* Predicted time after the pipeline, once per iteration: the optimizer and
     * overhead. */
    int64_t end_ns;
    /* The pipeline's pass times include the sharing of processors between
     * ranks, as passes measured in a run do. */
    bool includes_sharing;
} lh_train_model;

/* GPT-2's dropout rate. */
#define LH_TRAIN_DROPOUT 0.1

/* Returns the default options for training a model on cpu devices. */
LH_API lh_train_model lh_train_model_defaults(void);

/* Trains until options->steps steps are done, including those before a resume.
 * There are replicas * context * tensor copies of the pipeline; copy c has
 * tensor rank c % tensor, and rank r runs device r % devices of copy r /
 * devices. With different stage_tensors, a copy lacks the devices whose degree
 * is not above its tensor rank. Release *out with lh_train_result_free(). */
LH_API lh_status lh_train_cpu(const lh_pipeline *pipeline, const lh_exec *exec,
                              const lh_train_model *model,
                              const lh_train_options *options,
                              lh_train_result **out, lh_error *err);

/* --- training a plan ------------------------------------------------------ */

/* Returns the bytes of a message between stages that one GPU sends: its share
 * under tensor and context parallelism. */
LH_API uint64_t lh_train_message_bytes(const lh_plan *plan);

/* --- measuring ------------------------------------------------------------ */

/* Options for lh_profile_measure(). */
typedef struct lh_measure_options {
    size_t size;      /* sizeof(lh_measure_options) */
    uint32_t repeats; /* repetitions per pass; 0: 9. The median is used. */
    bool links;       /* measure links between two local processes */
} lh_measure_options;

/* Measures the job's model on the cpu device: time and memory of F, D and W
 * for a layer, the embedding and the head, plus alpha and beta of a link.
 * Release with lh_profile_free(). LH_EUNSUPPORTED: the cpu device does not
 * support the model. With `links`, the caller must have no other threads. */
LH_API lh_status lh_profile_measure(const lh_job *job,
                                    const lh_measure_options *options,
                                    lh_profile **out, lh_error *err);

/* Returns all schedules proposed during the run, also rejected ones, and their
 * number *n_switches; borrowed from the result. */
LH_API const lh_switch *lh_train_switches(const lh_train_result *result,
                                          uint32_t *n_switches);

/* Returns the migration that belongs to switch i; NULL: none. Borrowed from the
 * result. */
LH_API const lh_migration *lh_train_migration(const lh_train_result *result,
                                              uint32_t i);

/* Returns an adaptive run's events and decisions. Borrowed from the
 * result. */
LH_API const lh_adapt_event *
lh_train_adapt_events(const lh_train_result *result, uint32_t *n_notices);
/* Returns the last iteration's schedule; NULL: the initial one. Borrowed from
 * the result. */
LH_API const lh_schedule *lh_train_schedule(const lh_train_result *result);
/* Returns the last iteration's data path. `delegated` may be NULL. Mixed path:
 * *delegated is an array per lh_pipeline_link(), true for the delegated path,
 * borrowed from the result; else *delegated is NULL. */
LH_API lh_data_path lh_train_path(const lh_train_result *result,
                                  const bool **delegated);

/* Returns peak memory per rank, over all replicas; cpu only. NULL with *n_ranks
 * 0: unknown (timed device, or no iteration ran). Borrowed from the result. */
LH_API const lh_train_memory *
lh_train_peak_memory(const lh_train_result *result, uint32_t *n_ranks);

#ifdef __cplusplus
}
#endif
#endif
