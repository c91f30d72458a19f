/* SPDX-License-Identifier: Apache-2.0 */
/* Running schedules. A schedule is lowered to an execution plan: for every
 * rank the passes in their order, and apart from them the receives, sends and
 * data-parallel communications, each in its own stream (CrossPipe §6.3). The
 * plan is proven free of deadlock before anything starts. See docs/engine.md.
 *
 * Rank d runs device d of the pipeline. Times are nanoseconds. */
#ifndef LONGHAUL_ENGINE_H
#define LONGHAUL_ENGINE_H

#include <longhaul/adapt.h>
#include <longhaul/delegate.h>
#include <longhaul/events.h>
#include <longhaul/job.h>
#include <longhaul/model.h>
#include <longhaul/monitor.h>
#include <longhaul/pipeline.h>
#include <longhaul/plan.h>
#include <longhaul/profile.h>
#include <longhaul/schedule.h>
#include <longhaul/simulate.h>
#include <longhaul/status.h>
#include <longhaul/trace.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- execution plans ------------------------------------------------------ */

typedef struct lh_exec lh_exec; /* immutable once made */

/* What a rank does at once: each stream in its own order. */
typedef enum lh_stream {
    LH_STREAM_COMPUTE,
    LH_STREAM_RECEIVE_PREV, /* outputs of F from the chunk before */
    LH_STREAM_RECEIVE_NEXT, /* gradients from the chunk behind */
    LH_STREAM_SEND_NEXT,    /* outputs of F to the chunk behind */
    LH_STREAM_SEND_PREV,    /* gradients to the chunk before */
    LH_STREAM_DATA,         /* data-parallel communication */
    LH_STREAM_OFFLOAD,      /* activations that leave, or come back */
    LH_N_STREAMS
} lh_stream;

LH_API const char *lh_stream_name(lh_stream stream); /* "receive-prev" */

typedef struct lh_instruction {
    lh_stream stream;
    /* compute: that runs; receive: that needs the message; send: that makes
     * it; data: its chunk, F an all-gather, W a reduce-scatter; offload: whose
     * activations, F: they leave, B: they come back. */
    lh_pass pass;
    uint32_t op; /* data: lh_pipeline_dp_op() that it is; LH_NONE: the chunk's
                    own, or no communication */
    /* data, offload: the pass that waits for it, and for all before it in the
     * stream, counted from 0 in the rank's order; LH_NONE: none. */
    uint32_t before;
    /* Issued once so many of the rank's passes have ended. */
    uint32_t after;
    uint32_t peer; /* the rank at the other end, LH_NONE */
    uint32_t link; /* resource that the message takes, LH_NONE: no link */
    uint32_t slot; /* receive: its buffer; else LH_NONE */
    /* The message's place in the link's explicit order; UINT64_MAX: first in,
     * first out. */
    uint64_t turn;
    int64_t predicted_ns; /* when it is issued */
    /* Send, receive: of the queues between the two ranks the one that moves
     * the message on the delegated path; LH_NONE: it takes the direct one. */
    uint32_t queue;
} lh_instruction;

typedef struct lh_exec_options {
    size_t size;          /* sizeof(lh_exec_options) */
    lh_receives receives; /* LH_RECEIVES_EARLY (0): as the pipeline has it */
    bool fifo;            /* ignore the schedule's link orders */
    /* Receives posted ahead of need per rank, at most; 0: as many as the
     * prediction needs. Messages are not lost where there are fewer, their
     * transfers may only start later. */
    uint32_t receive_slots;
    bool own_receives; /* `receives` counts, even where it is early */
    /* Head-of-line blocking: a rank's sends share a queue of so many messages
     * with its passes, which stop while it is full; a message is in it until it
     * has arrived. 0: sends never block. */
    uint32_t coupled_queue;
    /* Which messages take the delegated path (longhaul/delegate.h): none, all,
     * or those of delegation->links. They wait for neither `coupled_queue` nor
     * `receives`. Between two ranks there are as many queues, each way, as the
     * prediction needs for no copy to wait for another; LH_EUNSUPPORTED: that
     * is more than LH_MOST_QUEUES. */
    lh_data_path path;
    /* What that costs; NULL: copies take no time. Copied. The timed device
     * takes these times; on the cpu device copies are real and these the
     * prediction's. */
    const lh_delegation *delegation;
    /* Where the pipeline has host memory: as of lh_sim_options. */
    int64_t host_copy_ns;
} lh_exec_options;

/* From one rank to another, one way. */
enum { LH_MOST_QUEUES = 64 };

/* Lowers a schedule. `options` may be NULL. LH_EINFEASIBLE: the schedule does
 * not suit the pipeline. LH_EDEADLOCK: ranks would wait for each other for
 * ever; `err` names them and the passes. Release with lh_exec_free(). */
LH_API lh_status lh_exec_make(const lh_pipeline *pipeline,
                              const lh_schedule *schedule,
                              const lh_exec_options *options, lh_exec **out,
                              lh_error *err);
LH_API void lh_exec_free(lh_exec *exec); /* NULL is fine */

LH_API uint32_t lh_exec_n_ranks(const lh_exec *exec);
/* The makespan that the simulator predicts, under the same options. */
LH_API int64_t lh_exec_predicted_ns(const lh_exec *exec);
/* Receive buffers of a rank. */
LH_API uint32_t lh_exec_receive_slots(const lh_exec *exec, uint32_t rank);
/* Messages of a rank that are under way at once, by the prediction. */
LH_API uint32_t lh_exec_sends_under_way(const lh_exec *exec, uint32_t rank);
LH_API const char *lh_exec_link_name(const lh_exec *exec, uint32_t link);
/* All instructions of a rank in the order of issue; of one stream, in its
 * order. Borrowed. */
LH_API const lh_instruction *lh_exec_instructions(const lh_exec *exec,
                                                  uint32_t rank,
                                                  uint32_t *n_instructions);

/* --- running ---------------------------------------------------------------
 */

typedef struct lh_iteration {
    uint64_t step;          /* from 0 */
    int64_t ns;             /* from its start to the end of the last pass or
                               data-parallel communication on any rank */
    double loss;            /* nats per token; NAN: nothing is trained */
    double validation_loss; /* NAN: not looked at after this step */
    /* Of multi-token prediction modules, their mean, unweighted and in no other
     * loss; NAN: there are none. */
    double mtp_loss;
    double norm, rate;      /* of the gradients, before clipping; of learning */
    uint64_t tokens;
    /* Timed passes that began so late that their deadlines could not follow
     * the ones before, and the latest beginning of all. */
    uint64_t slips;
    int64_t worst_late_ns;
} lh_iteration;

enum {
    LH_STOP_NO,
    LH_STOP_AFTER, /* when the iteration is done */
    LH_STOP_NOW
};

/* Of a message where neither a plan nor the caller says. */
enum { LH_TRAIN_MESSAGE_BYTES = 65536 };

/* A schedule that a run is to follow from an iteration on. */
typedef struct lh_reschedule {
    size_t size;                 /* sizeof(lh_reschedule) */
    const lh_schedule *schedule; /* borrowed until the next call, or the end of
                                    the run */
    const char *name, *why;      /* to be shown; NULL: "". Copied, the longer
                                    part of long ones left out */
    int64_t predicted_ns; /* of an iteration, to be shown; 0: the simulator's,
                             of the run's pipeline */
    /* How messages go then, where own_path says so; else as the run began.
     * Mixed: `delegated` says it per lh_pipeline_link(), borrowed like
     * `schedule`. What copies take is what the run's first execution plan says,
     * or, of a run that adapts, its `decides`. */
    bool own_path;
    lh_data_path path;
    const bool *delegated;
    /* Who has which part then; NULL: as the iteration before. Layers of each
     * chunk, as many as before together; the rank in each place, of all
     * replicas one after the other. What was trained is sent there between the
     * two iterations. Timed devices, which have nothing to send, take move_ns
     * for it. Borrowed like `schedule`. */
    const uint32_t *layers, *hosts;
    int64_t move_ns; /* by who proposes it */
    /* With `hosts`: of each place, the rank that passes on what goes there,
     * having received it, as lh_move has it; LH_NONE: it goes straight. NULL:
     * all does. Borrowed likewise. */
    const uint32_t *vias;
} lh_reschedule;

/* What became of it. */
typedef struct lh_switch {
    uint64_t step; /* the first iteration that was to follow it */
    const char *to, *why;
    const char *refused;  /* NULL: all ranks follow it; else why none does */
    int64_t predicted_ns; /* of an iteration, by who proposed it, or else by the
                             simulator; 0: it could not be lowered */
    lh_data_path path;    /* of its messages */
} lh_switch;

/* What of a job moved with it, to other ranks or chunks. */
typedef struct lh_moved {
    uint32_t n_chunks; /* 0: chunks have the layers that they began with */
    uint32_t n_places; /* 0: ranks have the places that they began with */
    const uint32_t *layers; /* of each chunk, from then on */
    const uint32_t *hosts;  /* the rank in each place, likewise */
    const uint32_t *vias;   /* the rank that has passed on what went to each;
                               LH_NONE: none has. NULL: none has anything */
    uint64_t bytes;         /* that went from one rank to another */
    int64_t ns;             /* what it took between the two iterations */
    int64_t predicted_ns;   /* by who proposed it; 0: that was not said */
} lh_moved;

/* What a run that adapts has noticed or decided. */
typedef struct lh_notice {
    uint64_t step; /* the iteration that brought it */
    bool is_decision;
    lh_monitor_event event; /* unless it is one */
    /* Of a decision, as lh_decision has them. */
    bool is_switch;
    const char *name;
    lh_data_path path;
    int64_t now_ns, predicted_ns, bound_ns;
    const char *text; /* a sentence or two: what has changed, or why */
} lh_notice;

/* A run that watches its links and devices, and goes on by another schedule
 * where that is faster. All ranks keep what each of their passes and messages
 * took; after an iteration it goes to rank 0, where a thread of its own has a
 * monitor learn from it (longhaul/monitor.h) and decides (longhaul/adapt.h),
 * while the next iterations run. What it proposes is voted on like what
 * `reschedule` gives. Iterations are left out of that where taking them in
 * would cost more than 0.25 % of the time that the run takes. */
typedef struct lh_train_adapt {
    size_t size; /* sizeof(lh_train_adapt) */
    /* NULL: as for lh_adapt_make(). `sim` is not looked at: messages go as the
     * run's do, which has to begin on the direct path. With a `delegation` they
     * may be switched to the delegated one, and back. Borrowed until the run
     * has ended. */
    const lh_adapt_options *decides;
    /* On rank 0, between iterations; what it points to is borrowed for the
     * call. May be NULL. */
    void (*noticed)(void *context, const lh_notice *what);
    /* Parts of the job may move where that is better than any schedule, as
     * lh_adapt_play_options have it: hosts exchange their places, where the
     * course has some; layers go to other chunks, where it is known how many
     * each has. A layer takes layer_ns from one host to
     * another, by the prediction. */
    bool moves_hosts, moves_layers;
    int64_t layer_ns;
} lh_train_adapt;

/* What bytes that a rank holds are for. */
typedef enum lh_memory_kind {
    LH_MEMORY_PARAMETERS,
    LH_MEMORY_GRADIENTS,   /* and their sums over replicas */
    LH_MEMORY_MOMENTS,     /* of the optimizer */
    LH_MEMORY_ACTIVATIONS, /* of microbatches between F and W */
    LH_MEMORY_BUFFERS,     /* of messages and data-parallel communication */
    LH_MEMORY_SCRATCH,     /* to compute in, what is made again included */
    LH_MEMORY_STORAGE,     /* of activations, in a file: in no sum of kinds */
    LH_N_MEMORY_KINDS
} lh_memory_kind;
/* "parameters", ...; NULL: there is no such kind. */
LH_API const char *lh_memory_kind_name(lh_memory_kind kind);

/* What a rank that trains holds at most at a time. Not in it: the program, the
 * data, OpenBLAS's buffers, what a transport has under way. */
typedef struct lh_train_memory {
    /* By kind: predicted before the run began, of the schedule that it began
     * with; and allocated. */
    int64_t predicted[LH_N_MEMORY_KINDS], measured[LH_N_MEMORY_KINDS];
    int64_t predicted_bytes, measured_bytes; /* all kinds but storage */
    int64_t limit_bytes; /* the pipeline's; LH_NO_LIMIT: none */
} lh_train_memory;

typedef struct lh_train_options {
    size_t size; /* sizeof(lh_train_options) */
    /* NULL: "inproc", ranks as threads; "local": as processes of this machine;
     * "ucx", "tcp": this process is one rank of those that mpirun or srun
     * started. */
    const char *transport;
    uint64_t steps;         /* 0: 1 */
    uint64_t message_bytes; /* of a timed rank's messages; 0:
                               LH_TRAIN_MESSAGE_BYTES */
    /* A timed pass that begins at most so late still ends by its deadline;
     * 0: 20 ms. */
    int64_t slip_ns;
    bool real_links; /* timed: messages take the network as it is, which is not
                        made slower */
    bool realtime; /* ranks run under SCHED_FIFO; fails without the right to */
    /* After each iteration, on rank 0. */
    void (*progress)(void *context, const lh_iteration *iteration);
    /* LH_STOP_...; asked often, on rank 0, and where ranks are processes of
     * this machine in the calling one too: what asks for more counts. On other
     * ranks that mpirun or srun started, once per iteration, for a remark that
     * rank 0 is the one to ask. May be called by several threads. Ranks that
     * have not ended 3 s after the calling process was told LH_STOP_NOW are
     * killed. */
    int (*stop)(void *context);
    /* A run that mpirun or srun started has failed: called before this rank
     * leaves it, which takes a moment. `why` is NULL on all ranks but the one
     * that is to tell people. May be NULL. */
    void (*failed)(void *context, const char *why);
    void *context;
    /* What there is to say that does not end the run, as of a damaged
     * checkpoint that was passed over, or that it stops: a sentence, on rank 0
     * but for what `stop` says of others. May be NULL. */
    void (*remark)(void *context, const char *text);
    /* "ucx": may listen beyond this host, where UCX takes messages from anyone
     * who reaches it (docs/engine-transports.md). */
    bool insecure;
    /* cpu, of a plan: the result has a profile of what was run. Adds to the end
     * of the run messages of several sizes between the stages. */
    bool profiles;
    /* Asked on rank 0 which schedule the iterations from `step` on are to
     * follow: as the iteration before it begins, and once before the first one
     * of the run. NULL: as before. Else all ranks get it while the iteration
     * before runs, lower it under the options of the run's first execution plan
     * and prove it; at the boundary all go on with it, or, where one of them
     * cannot, none does. What it returns is looked at before it is called
     * again. Not together with `profiles`. May be NULL; then a run
     * keeps to its schedule. On other ranks it is not looked at. */
    const lh_reschedule *(*reschedule)(void *context, uint64_t step);
    /* On rank 0, at the boundary; strings are borrowed for the call. May be
     * NULL. */
    void (*switched)(void *context, const lh_switch *what);
    /* Links and devices become slow while the run goes on; NULL: they do not.
     * What is run is the pipeline that the course has in state 0. Messages
     * under way keep what they left with. LH_EUNSUPPORTED: slow links where
     * none are emulated, slow devices where passes are computed. Borrowed until
     * the run has ended. */
    const lh_course *course;
    /* NULL: a run does not adapt by itself. Not together with `reschedule`, nor
     * with `profiles`. Borrowed until the run has ended. */
    const lh_train_adapt *adapt;
    /* cpu: no rank may hold more than the pipeline's memory limits. A run that
     * is predicted to is refused with LH_ENOMEM before it starts, other
     * schedules are when they are proposed; one that comes to all the same ends
     * with LH_ENOMEM after that iteration, and a checkpoint if there are any.
     * LH_EINVAL: the pipeline has no limits, or not in bytes. */
    bool enforces_memory;
    /* "tcp": messages between two ranks take several ways, each from one of
     * these to that of the same number there, and go on over the others where
     * one fails: of this rank, each an interface's name, an address, or a
     * network that the host has an address in ("10.1.0.0/24"). As many at each
     * rank; 0: one way, by which the ranks find each other. Borrowed until the
     * run has ended. */
    uint32_t n_rails;
    const char *const *rails;
    /* On rank 0, before `switched` is told of the schedule that it came with;
     * borrowed for the call. May be NULL. */
    void (*moved)(void *context, const lh_moved *what);
    /* timed: layers of each chunk of the pipeline, so that they may move; cpu:
     * they are the model's. NULL: they stay. Borrowed until the run has
     * ended. */
    const uint32_t *layers;
    /* What `reschedule` will move: LH_EUNSUPPORTED, before the run starts,
     * where it has to stay. Without them such a switch is refused when it is
     * proposed. */
    bool moves_layers, moves_places;
} lh_train_options;

/* Ranks that compute passes together. */
typedef enum lh_train_group_kind {
    LH_TRAIN_GROUP_TENSOR,
    LH_TRAIN_GROUP_CONTEXT,
    LH_TRAIN_GROUP_EXPERT,
    LH_TRAIN_GROUP_EXPERT_TENSOR,
    LH_N_TRAIN_GROUPS
} lh_train_group_kind;

typedef struct lh_train_result {
    uint32_t n_iterations;
    const lh_iteration *iterations;
    bool elsewhere;        /* another process was rank 0 and has all below */
    bool interrupted;      /* fewer steps than asked for, by `stop` */
    const lh_trace *trace; /* of the last iteration; NULL: there was none */
    uint32_t n_grown; /* message buffers beyond those that were predicted */
    /* Of one iteration: what the simulator predicts, and what was measured; 0
     * where there was none. Where schedules were switched, of the one that the
     * last iteration followed. The prediction is without the events of a
     * course: with them it is lh_course_play()'s. */
    int64_t predicted_ns, median_ns, least_ns, most_ns;
    double error;   /* median_ns / predicted_ns - 1; 0: nothing was predicted */
    uint64_t slips; /* of all iterations together */
    int64_t worst_late_ns; /* of all */
    /* Share of the peak FLOPs of the GPUs that a plan counts on; negative: not
     * known, or no plan was run. */
    double utilisation;
    uint32_t n_ranks,
        n_replicas; /* that ran, those of all replicas; of these */
    uint32_t tensor, context, expert; /* of each of them */
    /* cpu: what an iteration's exchanges within passes took a rank, by
     * lh_train_group_kind: the mean of ranks and iterations, with waits for the
     * others, without validation. Of a plan also what it expects of all of them
     * together; 0: of none, or of what is no plan. */
    int64_t exchange_ns[LH_N_TRAIN_GROUPS];
    int64_t planned_exchange_ns;
    /* What copies of activations from and to the device took of an iteration,
     * predicted by the pipeline and measured, and how long passes waited for
     * them: the mean of ranks and iterations. cpu; 0: there were none. */
    int64_t predicted_copy_ns, copy_ns, copy_wait_ns;
    /* cpu: processors that the ranks share, where they are fewer than these and
     * predicted_ns counts on that: passes of all ranks share them. 0: each has
     * its own, or it is not known. */
    uint32_t n_processors;
    int64_t unshared_ns; /* predicted, if each rank had its own */
    /* The plan's chunks as they ran, what followed the pipeline, and the links,
     * unless they were emulated: means over iterations that took neither
     * longest nor shortest. NULL: not asked for, or there was no iteration. */
    const lh_profile *profile;
} lh_train_result;

/* Plays the plan in real time on this machine: passes take their time, messages
 * theirs, on links as the pipeline has them. LH_EUNSUPPORTED: links that share
 * a name are not alike. LH_EIO: a rank has failed; `err` says which and why.
 * Release with lh_train_result_free(). */
LH_API lh_status lh_train_timed(const lh_pipeline *pipeline,
                                const lh_exec *exec,
                                const lh_train_options *options,
                                lh_train_result **out, lh_error *err);
/* The link that they share: each of their exchanges takes the latency, and so
 * long for each byte that one of them sends or receives. */
typedef struct lh_train_group {
    int64_t latency_ns;
    double ns_per_byte;
} lh_train_group;
/* The same of ranks that share state: for each of their collectives. */
typedef struct lh_train_sharing {
    lh_train_group gathers, reductions;
} lh_train_sharing;

/* What is trained on the cpu device: a model in float32, of a kind that
 * docs/training.md lists. Texts are borrowed while the call lasts. */
typedef struct lh_train_model {
    size_t size; /* sizeof(lh_train_model) */
    const lh_model *model;
    /* Chunk c of the pipeline has layers first_layers[c] to
     * first_layers[c + 1] - 1; the first one the embedding too, the last one
     * the head and modules that predict further tokens. */
    const uint32_t *first_layers;
    /* By layer, then by multi-token prediction module (lh_model's mtp_layers):
     * what the backward makes again and the forward does not keep, bits
     * 1 << lh_layer_part. Not a bit of any result depends on it. NULL:
     * nothing. */
    const uint32_t *again;
    uint32_t micro_batch, sequence; /* sequences; tokens of one */
    uint32_t replicas;              /* of data parallelism; 0: 1 */
    uint64_t seed;

    const char *data;        /* a file of text, or of tokens */
    uint32_t token_bytes;    /* 0: text; 2, 4: little-endian tokens */
    const char *tokenizer;   /* tokenizer.json for a text; NULL: bytes */
    double validation;       /* share of the data, 0 <= share < 1 */
    uint32_t validate_every; /* steps; 0: never */

    double rate, min_rate; /* the highest, and at the end; NAN: defaults */
    double weight_decay, clip;
    uint64_t warmup; /* steps; UINT64_MAX: the default */

    /* Folder for checkpoints; NULL: none. One run at a time has it: LH_EIO says
     * which. What killed runs have left there is removed. */
    const char *checkpoint;
    uint32_t checkpoint_every, keep; /* steps, 0: at the end alone; 0: all */
    /* A checkpoint, or the folder of several, of which the newest that is whole
     * is taken; NULL. */
    const char *resume;
    const char *weights; /* safetensors to begin with; NULL: by the seed */
    bool emulate_links;  /* as the pipeline has them; else none is */
    /* Share of attention's scores, of what attention and MLPs add, and of the
     * embedding that training drops, 0 <= share < 1. What is dropped follows
     * from the seed alone. Of a plan it is what the job says, where its layers
     * drop without a number LH_TRAIN_DROPOUT, whatever is said here. */
    double dropout;
    /* Of each chunk's parameters, where passes of the pipeline launch
     * data-parallel operations and there are several replicas: the share whose
     * gradients are scattered group by group and freed (ZeRO-2 and 3), and the
     * share that is gathered before use and freed (ZeRO-3), at most the other.
     * As many of the weights' products, the first ones of the chunk, as come
     * nearest to it. */
    double sharded_gradients, sharded_parameters;
    /* No operations are launched: passes gather and scatter layer by layer.
     * Gradients are then sharded whole, parameters whole or not. */
    bool by_layer;
    /* By stage and replica, stages * replicas: which site it is at. Replicas of
     * a site share the optimizer, and what else is sharded; gradients are then
     * summed with the other sites', which have as many: by each replica with
     * those that have its share, or by one of a site for all (leaders). NULL:
     * all share. */
    const uint32_t *sites;
    bool leaders;
    /* With experts: what the part of the loss that keeps them in use is times
     * (docs/training.md). 0: there is none. Of a plan it is what the job says,
     * as are balance_bias and expert_capacity. */
    double balance;
    /* Of each replica, how many ranks divide layers, sequences, experts and an
     * expert's matrices among them, as Megatron-LM counts these: the ranks of a
     * device of the pipeline are replicas * context * tensor, in groups of
     * tensor, then context; the same ranks are in groups of expert_tensor, then
     * expert. 0: 1; expert_tensor 0: 1 where expert is above 1, else tensor, as
     * lh_layout_expert_tensor() has it. */
    uint32_t tensor, context, expert, expert_tensor;
    /* What their messages take with emulate_links, by lh_train_group_kind; all
     * zero: what they do take. */
    lh_train_group groups[LH_N_TRAIN_GROUPS];
    /* By how much a step moves the bias of a sigmoid router (LH_ROUTER_SIGMOID)
     * to keep experts in use. */
    double balance_bias;
    /* What an expert takes of a sequence's choices, in times of what each would
     * have if all had the same; the rest is dropped. 0: all. */
    double expert_capacity;
    /* ZeRO 0: each rank has the optimizer of all that it has; `sites` is not
     * looked at. */
    bool whole_optimizer;
    /* By layer: what F leaves of it and `again` does not make goes to a file,
     * and is back before B (lh_chunk.offload_ns of its chunk says how long that
     * takes). Not a bit of any result depends on it. NULL: nothing. */
    const bool *offload;
    /* The folder for that file, which has no name there. */
    const char *offload_to;
    /* A step updates weights with the gradients of the step before, as where
     * these are sent while the next one computes (one-step delayed update).
     * Nothing is sent otherwise for it, nor is any step faster. */
    bool delayed_update;
    /* by_layer: what collectives of a layer, the embedding or the head take
     * with emulate_links, and, where several ranks have experts together, those
     * of a layer's experts beside it. Those that the pipeline has times for
     * (lh_chunk.all_gather_ns, reduce_scatter_ns) take these. */
    lh_train_sharing parts, expert_parts;
    /* How long the pipeline's passes wait for these, those of one microbatch on
     * all chunks: what they take no processor for. */
    int64_t part_waits_ns;
    /* By stage and rank of it, stages * replicas * context * tensor, in the order
     * of copies: which node it is on. With expert above 1 a token goes once to
     * each node that has some of its experts, and is handed on there: between
     * nodes by groups[LH_TRAIN_GROUP_EXPERT], within one by near_experts, whose
     * bytes are under way at the same time. expert_tensor has to be 1. NULL: a
     * copy goes to each expert. */
    const uint32_t *nodes;
    lh_train_group near_experts;
    /* tensor above 1: ranks that share layers have all rows between products,
     * each the same, and sums come to all of them. Else each has its own rows
     * there. Experts then have to be cut as layers are. */
    bool no_sequence_parallel;
} lh_train_model;

/* GPT-2's. */
#define LH_TRAIN_DROPOUT 0.1

/* Fills in what need not be said. */
LH_API lh_train_model lh_train_model_defaults(void);

/* Trains for options->steps steps altogether, those of a resumed run included.
 * There are replicas * context * tensor copies of the pipeline, of which copy c
 * is tensor rank c % tensor: rank r has device r % devices of copy
 * r / devices. */
LH_API lh_status lh_train_cpu(const lh_pipeline *pipeline, const lh_exec *exec,
                              const lh_train_model *model,
                              const lh_train_options *options,
                              lh_train_result **out, lh_error *err);

/* --- training a plan -------------------------------------------------------
 */

typedef enum lh_train_device {
    LH_TRAIN_TIMED, /* passes take the time that the pipeline gives them */
    LH_TRAIN_CPU    /* this machine's processors train the plan's model */
} lh_train_device;

typedef struct lh_train_plan_options {
    size_t size; /* sizeof(lh_train_plan_options) */
    lh_train_device device;
    /* What is run in the place of the plan's own, NULL: nothing; a pipeline has
     * to have the plan's chunks. */
    const lh_pipeline *pipeline;
    const lh_schedule *schedule;
    const lh_exec_options *exec; /* NULL: as for lh_exec_make() */
    /* NULL: as for lh_train_timed(). message_bytes 0: as the plan has it. */
    const lh_train_options *run;
    /* cpu: the data and the way of training; model, first_layers, micro_batch,
     * sequence and replicas are the plan's. timed: not looked at. */
    const lh_train_model *model;
} lh_train_plan_options;

/* Lowers the plan's schedule and runs it. `options` may be NULL: one iteration
 * on the timed device. Errors as of lh_exec_make(), lh_train_timed() and
 * lh_train_cpu(); LH_EUNSUPPORTED also: the cpu device does not run layers that
 * the plan divides among GPUs. Release with lh_train_result_free(). */
LH_API lh_status lh_train_plan(const lh_plan *plan,
                               const lh_train_plan_options *options,
                               lh_train_result **out, lh_error *err);
/* Bytes of a message between the plan's stages: a GPU's share. */
LH_API uint64_t lh_train_message_bytes(const lh_plan *plan);

/* --- measuring -------------------------------------------------------------
 */

typedef struct lh_measure_options {
    size_t size;      /* sizeof(lh_measure_options) */
    uint32_t repeats; /* of every pass; 0: 9. The median counts. */
    bool links;       /* also between two processes of this machine */
} lh_measure_options;

/* What the job's model takes on the cpu device: F, D and W of a layer, the
 * embedding and the head, what they keep, and a link's alpha and beta. Release
 * with lh_profile_free(). LH_EUNSUPPORTED: the cpu device does not run such a
 * model. The caller must have no other threads if `links`. */
LH_API lh_status lh_profile_measure(const lh_job *job,
                                    const lh_measure_options *options,
                                    lh_profile **out, lh_error *err);

/* All schedules that `reschedule` gave, also those that were refused. Borrowed
 * from the result. */
LH_API const lh_switch *lh_train_switches(const lh_train_result *result,
                                          uint32_t *n_switches);

/* What moved with the i-th of them; NULL: nothing did. Borrowed from the
 * result. */
LH_API const lh_moved *lh_train_moved(const lh_train_result *result,
                                      uint32_t i);

/* All that a run that adapts has noticed and decided. Borrowed from the
 * result. */
LH_API const lh_notice *lh_train_notices(const lh_train_result *result,
                                         uint32_t *n_notices);
/* What the last iteration followed; NULL: what the run began with. Borrowed
 * from the result. */
LH_API const lh_schedule *lh_train_schedule(const lh_train_result *result);
/* How messages went in the last iteration. `delegated` may be NULL; mixed:
 * *delegated is, per lh_pipeline_link(), whether by the delegated path,
 * borrowed from the result; else it is NULL. */
LH_API lh_data_path lh_train_path(const lh_train_result *result,
                                  const bool **delegated);

/* cpu: per rank, of all replicas; NULL, *n_ranks 0: not known, on the timed
 * device, or of a run without an iteration. Borrowed from the result. */
LH_API const lh_train_memory *
lh_train_memory_held(const lh_train_result *result, uint32_t *n_ranks);

LH_API void lh_train_result_free(lh_train_result *result); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
