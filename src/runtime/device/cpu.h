/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of the cpu device.
 *
 *     cpu.c                      construction, device interface
 *     cpu_parameters.c           weights; cpu_sharding.h: the sharded ones
 *     cpu_memory.c               sizes; cpu_memory_estimate.c: of a schedule
 *     cpu_forward.c              F
 *     cpu_backward.c             D
 *     cpu_weight_gradients.c     W
 *     cpu_recompute.c            activations that D recomputes
 *     cpu_attention.h            attention, ranks that share sequences, slices
 *     cpu_layer.c                a layer's products, norms, rotary positions
 *     cpu_product.h              matrix products in fp32 or bf16
 *     cpu_experts.h              mixture-of-experts layers
 *     cpu_dropout.c              dropout
 *     cpu_tensor_parallel.h      ranks that share layers
 *     cpu_offload.c              activations in storage
 *     cpu_mtp.h                  multi-token prediction modules
 *
 * Shapes: t is the row count per microbatch (sequences * tokens), h the hidden
 * size. q, kv and values are the total widths of the query, key and value
 * heads, qkv their sum, o the attention output's width. f is the MLP's width,
 * up its first product's width (2 f with a gate, else f), v the vocabulary
 * size. Layer weights are stored as in the model's family: [out][in], or
 * [in][out].
 *
 * With tensor parallelism (Megatron-LM, arXiv:1909.08053) heads, q, kv, values,
 * qkv, o, f, up and v are this rank's shares. Between products the rank has r
 * of the t rows (sequence parallelism, arXiv:2205.05198, section 4.2.2). It
 * sends these rows to experts, unless the experts are tensor-parallel too.
 * Without tensor parallelism, or with replicated rows, r is t. */
#ifndef LHI_RUNTIME_DEVICE_CPU_H
#define LHI_RUNTIME_DEVICE_CPU_H

#include "base/arena.h"
#include "runtime/device/blas.h"
#include "runtime/device/cpu_kernels.h"
#include "runtime/device/data.h"
#include "runtime/device/device.h"
#include "runtime/device/families.h"
#include "runtime/device/thread_team.h"

/* Maximum number of weight-gradient items (W) that a layer queues per
 * microbatch. */
enum { LHI_LAYER_ITEMS = 4 };

/* One layer's weights or their gradients, contiguous and in checkpoint order.
 */
typedef struct lhi_cpu_weights {
    float *norm1;   /* [h]; a layer norm's biases follow */
    float *qkv;     /* [qkv][h] */
    float *out;     /* [h][o] */
    float *norm2;   /* like norm1; NULL: attention and MLP share norm1 */
    float *gate_up; /* [up][h] */
    float *down;    /* [h][f] */
    float *qkv_bias, *out_bias, *gate_up_bias, *down_bias; /* NULL: none */
    /* Norms of queries and keys: [head_dim] each; with latent attention, norms
     * of the latents: [q_rank], [kv_rank]. */
    float *q_norm, *k_norm;
    /* Latent attention's replacement for qkv: [q_rank][h] (NULL: queries are
     * not compressed), [q][q_rank or h], [kv_rank + rope_dim][h] and [heads *
     * (nope + value_dim)][kv_rank]. */
    float *q_down, *q_up, *kv_down, *kv_up;
    /* Replacement for gate_up and down in a mixture-of-experts layer: router
     * [experts][h]; then for each expert gate_up [2 expert_f][h] and down
     * [h][expert_f]. NULL: a dense layer. */
    float *router, *experts;
    float *router_bias; /* [experts]; its gradient counts choices; or NULL */
    float *shared;      /* like one expert, shared_f wide; or NULL */
    float *shared_gate; /* [h]; or NULL */
    /* A multi-token prediction module's weights around its layer (cpu_mtp.c):
     * the norms have [h] each, the joining matrix [h][2 h]. */
    float *enorm, *hnorm, *module_norm, *join;
} lhi_cpu_weights;

/* Points where dropout applies: the embedding, or a location within a layer. */
typedef enum lhi_drop_site {
    LHI_DROP_EMBEDDING,
    LHI_DROP_SCORES,
    LHI_DROP_ATTENTION, /* the attention output */
    LHI_DROP_MLP,       /* the MLP output */
} lhi_drop_site;

/* Identifies one dropout application. */
typedef struct lhi_drop {
    uint64_t sample; /* run-wide number; the microbatch's first */
    uint32_t layer;  /* model-wide index */
    lhi_drop_site site;
} lhi_drop;

/* Activations that one layer saves for one microbatch from F to W. D overwrites
 * an activation with its gradient once the activation is no longer needed. */
typedef struct lhi_cpu_saved_activations {
    float *norm1;            /* [t][h], input to qkv */
    float *qkv;              /* [t][qkv], then its gradient */
    float *attention_output; /* [t][o], input to out */
    float *residual;         /* [r][h], residual stream after attention, then
                              * its gradient */
    float *norm2;            /* [t][h], input to gate_up */
    /* [t][up], then its gradient. With experts: [max_rows * max_choices][2
     * expert_f] for the local experts. With expert parallelism the received
     * rows follow: [max_rows * max_choices][h] inputs and [max_rows *
     * max_choices][h] output gradients. */
    float *gate_up;
    float *act; /* [t][f], input to down; with experts like gate_up */
    float *shared_gate_up, *shared_act; /* [t][2 shared_f], [t][shared_f] */
    float *inv1, *inv2;                 /* [r]: inverse norms, then the means */
    /* [t][h], gathered output gradients of out and down, with tensor
     * parallelism; with experts the shared experts' */
    float *d_out, *d_down;
    float *max, *inv; /* [heads][t], softmax statistics */
    /* Sliced sequences, during a pass: the layer's keys and values of all
     * slices, and their gradients (cpu_slices.c). NULL: whole sequences */
    float *keys, *d_keys;
    float *d_norm1, *d_norm2; /* gradients of the norm weights */
    float *d_inner;           /* [inner]: q_norm's, then k_norm's */
    /* With query and key norms: the norms' inputs, [t][q] and [t][kv], then
     * their gradients, stored behind qkv; the inverse norm per head. */
    float *q_before_norm, *k_before_norm, *inv_q, *inv_k;
    /* With latent attention: the latents before their norms (later gradients),
     * and after. The shared rotary key follows each row in kv_latent, before
     * its rotation. inv_q and inv_k then have one value per row. */
    float *q_latent, *q_normed;   /* [t][q_rank] */
    float *kv_latent, *kv_normed; /* [t][kv_rank + rope_dim], [t][kv_rank] */
    uint64_t sample;              /* run-wide number; the microbatch's first */
    uint32_t layer;               /* model-wide index */
    uint32_t items_left;          /* W items not yet done */
    bool moe;                     /* has experts */
    /* Expert choices per row (cpu_router.c): */
    float *scores; /* [router_rows][experts], then the logits' gradient */
    float *routing_weights; /* [dispatched_rows][topk] */
    int32_t *topk_experts;  /* [dispatched_rows][topk], expert indices */
    int32_t *expert_rows;   /* [dispatched_rows][topk], row in expert order; -1:
                             * dropped, the expert is at capacity */
    float *shared_gate_values;   /* [t], first r used (all for tensor-parallel
                                  * experts): the   shared experts' output gate */
    float *d_shared_gate_values; /* [t], first r used: gradient of the gate's
                                    logit */
    int32_t *source_rows;    /* [dispatched_rows * topk]: source row per row in
                              * expert    order */
    int32_t *expert_offsets; /* [experts + 1]: each expert's first row */
    /* [n_source_ranks * n_local_experts + 1]: first received row per source
     * rank and local expert; without expert parallelism the same array as
     * expert_offsets */
    int32_t *recv_offsets;
    /* With node-aware dispatch (cpu_node_dispatch.h), for the sources that this
     * rank relays: */
    int32_t *copy_index; /* [sources * max_rows][topk]: index among the copies;
                          * -1: none */
    float *copy_routing_weights; /* [sources * max_rows][topk] */
    /* [node_ranks + 1]: first copy per rank on this node */
    int32_t *copy_offsets;
} lhi_cpu_saved_activations;

/* State that one chunk keeps for one microbatch. */
typedef struct lhi_cpu_microbatch_state {
    struct lhi_cpu_microbatch_state *next; /* next in the chunk's free list */
    /* layers + 1 arrays [r][h]: layer inputs, then gradients; then each
     * module's layer input and output. Index: lhi_cpu_input_index(). */
    float **x;
    lhi_cpu_saved_activations *layers;       /* modules' layers included */
    struct lhi_cpu_mtp_activations *modules; /* last chunk only: cpu_mtp.h */
    int32_t *tokens;                         /* [t]; chunk 0 only */
    /* Last chunk only: [1 + modules][t], for each position the next token, then
     * the second next, and so on. */
    int32_t *targets;
    float *normed, *inv, *logits; /* last chunk: [t][h], like inv1, [t][v] */
    float *d_norm;                /* last chunk only */
    float *d_embedded;            /* [t][h]; chunk 0, with tensor parallelism */
    uint32_t items_left;          /* W items not yet done */
    uint32_t first_position;      /* of the microbatch's slice; 0: no slices */
    bool d_done;                  /* D has run */
    lhi_storage_block
        *storage_block; /* offloaded activations; NULL: resident */
} lhi_cpu_microbatch_state;

/* The slices of one microbatch group's sequences in one chunk. The buffers
 * have, for each layer, sequence and key head, [key_rows][head_dim] keys and
 * [key_rows][value_dim] values. */
typedef struct lhi_cpu_sliced_sequences {
    float *keys;   /* NULL: not resident; from F of the first slice */
    float *d_keys; /* gradients; from D of the last slice */
    uint32_t n_forward, n_backward; /* slices whose F, D has run */
} lhi_cpu_sliced_sequences;

/* Records one storage copy in the current step, for its completion. */
typedef struct lhi_cpu_offload_copy {
    lhi_cpu_microbatch_state *slot;
    uint32_t chunk; /* index into the device's chunks */
    bool is_back;
} lhi_cpu_offload_copy;

/* Weight gradients, the units into which W can be split. */
typedef enum lhi_cpu_item_kind {
    LHI_ITEM_EMBEDDING, /* with learned positions */
    LHI_ITEM_QKV,       /* with the norm before it */
    LHI_ITEM_OUT,
    LHI_ITEM_GATE_UP, /* with the norm before it */
    LHI_ITEM_DOWN,
    LHI_ITEM_HEAD, /* with the norm before it, and the modules' use of head and
                    * embedding */
    LHI_ITEM_MTP_JOIN, /* a module's weights around its layer */
} lhi_cpu_item_kind;

/* One weight gradient and its progress through the microbatches. */
typedef struct lhi_cpu_item {
    lhi_cpu_item_kind kind;
    uint32_t layer;             /* chunk-local; n_layers + k: module k's */
    uint64_t cost_before, cost; /* multiplications per row; those before it */
    uint32_t first;             /* first microbatch in the gradient */
    uint32_t done;              /* the gradient has first..done-1 */
    bool *requested;            /* per microbatch: its W pass has come */
} lhi_cpu_item;

/* One chunk on this device: weights, gradients, W items and microbatch state.
 */
typedef struct lhi_cpu_chunk {
    uint32_t chunk, first_layer, n_layers;
    uint32_t direction; /* 1: a copy in the other direction */
    uint32_t n_modules; /* last chunk: modules after its layers */
    bool is_first, is_last;
    float *values, *gradients; /* start of the chunk's arrays */
    size_t n_values;
    /* The leading values and gradients are sharded. They are in the buffer
     * given last, if any (cpu_sharding.c). */
    size_t n_sharded_values, n_sharded_gradients;
    uint32_t n_sharded_items; /* items with sharded gradients; */
    uint32_t end_microbatch;  /* the buffer holds microbatches below it */
    bool has_values, has_gradients;
    bool shards_by_layer;   /* false: one buffer for all sharded values */
    uint32_t n_parts;       /* embedding, layers, head */
    lhi_device_part *parts; /* offsets in the chunk; current addresses: */
    float **part_values, **part_gradients;
    lhi_cpu_weights *weights, *d_weights; /* layers, then modules */
    float *embedding, *d_embedding;       /* [v][h] */
    float *positions, *d_positions;       /* learned: [positions][h]; or NULL */
    float *norm, *d_norm, *head, *d_head; /* like norm1, [v][h] */
    float *embedding_copy,
        *d_embedding_copy; /* modules' embedding; NULL: the head's matrix */
    uint32_t n_tensors, n_items;
    lhi_tensor *tensors;
    lhi_cpu_item *items;
    uint64_t cost;
    bool *moe;                        /* has experts; layers, then modules */
    lhi_cpu_microbatch_state **slots; /* per microbatch; NULL: not resident */
    bool *forward_done;   /* per microbatch: F has run in this step */
    uint32_t n_own, *own; /* microbatches that run here; NULL: all */
    uint32_t *recompute;  /* per layer: bit set of parts recomputed by D */
    uint32_t *offload;    /* per layer: offloaded parts; 0 for modules */
    lhi_cpu_microbatch_state *free;
    /* one block holds one microbatch's offload */
    lhi_storage_block *free_blocks;
    /* With slices: by microbatch / n_slices, and free buffers of keys, each of
     * which begins with the address of the next. */
    lhi_cpu_sliced_sequences *sliced;
    float *free_keys;
} lhi_cpu_chunk;

/* Distribution of the expert-parallel ranks over nodes: the node count, of
 * ranks on this node, and of source ranks whose rows this rank relays, itself
 * included (cpu_node_dispatch.h). */
typedef struct lhi_cpu_node_topology {
    uint32_t nodes, node_ranks, sources;
} lhi_cpu_node_topology;

/* The cpu device. */
typedef struct lhi_cpu {
    lhi_device base; /* must be first */
    lhi_arena *mem;  /* scratch and small data */
    lhi_arena *parameters, *gradients, *activations;
    lhi_arena *full_values; /* all initial values; NULL once finalised */
    const lhi_kernels *k;
    lhi_sgemm sgemm;
    uint32_t n_threads;
    lhi_thread_team *threads; /* NULL: one thread */
    bool bf16;
    float *bf16_blocks; /* cpu_product.c */
    const lhi_data *data;
    const lhi_device_part_hooks
        *hooks;            /* callbacks for per-layer sharding (FSDP) */
    const lh_model *model; /* during construction only */
    lhi_family family;
    uint32_t layers, h, heads, kv_heads, head_dim, q, kv, v;
    uint32_t f, up; /* dense layers' MLP; 0: no dense layers */
    uint32_t value_dim, values, qkv, o; /* value_dim: per head */
    uint32_t rope_dim;        /* rotary dimensions, the last of head_dim */
    uint32_t q_rank, kv_rank; /* latent ranks; kv_rank 0: no latents */
    uint32_t inner;           /* norm weights within attention */
    bool head_norms;          /* query and key norms per head */
    bool qkv_bias;
    uint32_t kv_sharers;   /* ranks with the same key and value heads */
    bool parallel;         /* attention and MLP in parallel on one norm */
    uint32_t positions;    /* learned positions; 0: rotary */
    uint32_t norm_vectors; /* weight vectors per norm: 2 with biases */
    uint32_t experts;      /* 0: none */
    uint32_t topk;         /* experts per row (top-k) */
    uint32_t expert_f, shared_f;
    bool sigmoid, raw_routing_weights; /* router settings: see lh_model */
    float routed_scale;
    uint32_t expert_groups, topk_groups; /* 0: none */
    uint32_t capacity;         /* max choices per expert and sequence; 0: all */
    int32_t *all_topk_experts; /* [n_context_ranks][t][topk], with a capacity;
                                * NULL: choices are complete locally */
    size_t *choice_bytes;      /* per rank; scratch for gathering choices */
    /* Expert parallelism: number of ranks, this rank's index, experts per rank,
     * and an upper bound on received choices in multiples of max_rows. */
    uint32_t n_expert_ranks, expert_rank, n_local_experts, max_choices;
    /* shards_experts: experts are cut over the tensor-parallel ranks like dense
     * MLPs and process all rows there. dispatched_rows: rows sent to experts, r
     * or, for sharded experts, t. first_dispatched_row: the index of the first
     * local row among them. */
    bool shards_experts;
    uint32_t dispatched_rows, first_dispatched_row;
    /* Rows routed by this rank's router, out of t: those resident between
     * products. If rows are replicated, unsharded experts process only this
     * rank's share, and the ranks gather the results (DeepSpeed-TED:
     * arXiv:2303.06318, section 5). */
    uint32_t router_rows, first_router_row;
    /* Expert tensor parallelism with separate rows per rank: number of ranks
     * that share an expert, this rank's index, and the number of ranks that
     * send rows here (expert-parallel times expert-tensor-parallel). */
    uint32_t n_expert_tensor_ranks, expert_tensor_rank, n_source_ranks;
    lhi_group *expert_group, *expert_tensor_group;
    lhi_cpu_node_topology
        node_topology; /* all 0: rows go directly to each expert */
    /* NULL: rows go directly to each expert */
    struct lhi_cpu_node_dispatch *node_dispatch;
    lhi_group *intra_node_group; /* expert-parallel ranks on this node;
                                  * NULL: alone */
    /* [1 + n_expert_tensor_ranks][experts] */
    int32_t *row_counts;
    /* [LHI_CPU_EXCHANGE_SIZES][lhi_cpu_max_partners()], bytes */
    size_t *exchange_sizes;
    float *received, *recv_routing_weights; /* [max_rows * max_choices][h + 1],
                                             * [...] */
    bool gates_shared;
    float balance_weight; /* weight of the load-balancing loss */
    bool embeds_twice, gated;
    uint32_t modules;        /* multi-token prediction modules */
    bool weights_in_first;   /* layer weights are [in][out] */
    uint32_t drop_threshold; /* dropout probability times 2^24; 0: none */
    float drop_scale;
    uint64_t seed;
    /* sequence: a microbatch's tokens per sequence that are local, out of
     * whole_sequence. */
    uint32_t sequence, whole_sequence, microbatch, t, n_microbatches;
    /* Slices per sequence (1: whole sequences), keys per sequence in all of
     * them, and the position of the current pass's slice. */
    uint32_t n_slices, key_rows, first_position;
    /* sequences per step over all replicas, and over the earlier ones */
    uint64_t step_sequences, first_sequence;
    /* Context parallelism: this rank's index, the rank count, and the
     * tokens per local piece (half the rank's share of a sequence; all of it
     * when alone). */
    uint32_t context_rank, n_context_ranks, piece;
    lhi_group *context_group;    /* NULL: no context parallelism */
    lh_status collective_status; /* first error of the pass's collectives */
    lh_error collective_err;
    float *ring[4];   /* [t][kv + values]: keys and values, then their
                       * gradients; each with a receive buffer */
    float *d_queries; /* [t][q] */
    float *partial;   /* [block][value_dim] */
    float *partial_max, *partial_inv; /* [block] */
    /* Tensor parallelism: number of ranks, this rank's index, its first row,
     * its row count, the maximum rows that any of them sends to experts, its
     * first head and its first vocabulary token. */
    uint32_t n_tensor_ranks, tensor_rank, first_row, r, max_rows, first_head,
        first_token;
    bool replicates_rows; /* every rank has all t rows: r is t */
    /* rows among r that a pipeline message carries */
    uint32_t first_sent, n_sent;
    lhi_group *tensor_group;        /* NULL: no tensor parallelism */
    size_t *row_bytes, *row_floats; /* per rank: size of its rows of [t][h] */
    /* per rank: bytes of its logit statistics */
    size_t *statistic_bytes;
    float *summands;         /* [t][h]: this rank's summand */
    float *logit_statistics; /* [ranks][t][3] */
    float *partial_sums;     /* see lhi_cpu_reduce_partial_gradients() */
    uint32_t replica, n_replicas;
    float epsilon;
    uint32_t n_chunks, n_local_chunks;
    uint32_t n_directions;
    /* In losses and among the samples: index of the first microbatch of the
     * current pass's direction. */
    uint32_t first_microbatch;
    lhi_cpu_chunk *local_chunks;
    uint64_t step;
    lhi_step_kind kind;
    float loss_scale;      /* 1 / tokens of the global batch */
    double *losses;        /* per microbatch of each direction */
    double *module_losses; /* the same: mean over modules; or NULL */
    bool *has_loss;
    float *all_cosines, *all_sines; /* [key_rows][rope_dim / 2] */
    float *cosines, *sines;         /* ... from the current slice on */
    uint32_t block;                 /* query rows per attention block */
    uint32_t logit_rows;            /* rows per logits block */
    /* free lists for recomputed parts (cpu_recompute.c); [1]: of layers with
     * experts */
    float *recompute_free[2][LH_N_LAYER_PARTS];
    /* free lists for offloaded parts (cpu_offload.c) */
    float *offload_free[2][LH_N_LAYER_PARTS];
    lhi_storage *storage; /* NULL: no offload */
    lhi_cpu_offload_copy
        *copies; /* current step's; 2 per chunk and microbatch */
    uint32_t n_copies, n_copied;
    lhi_storage_piece *pieces; /* scratch: one chunk's pieces */
    /* Scratch: */
    float *scratch;           /* [t][lhi_cpu_scratch_width()] */
    float *second_scratch;    /* [t][lhi_cpu_second_scratch_width()] */
    float *scores, *d_scores; /* [block][key_rows] */
    float *d_query;           /* [block][head_dim] */
    float *d_key, *d_value;   /* [sequence][head_dim] */
    float *delta;             /* [block] */
    int32_t *token_window;    /* [whole_sequence + 1 + modules] */
    float *carried;           /* [r][h]: a module's gradient for the state
                               * before it; with modules */
    float *dropped;           /* [t][h]; with dropout */
    float *dispatch_buffer;   /* [lhi_cpu_dispatch_floats()]; with experts */
    float *d_routing_weights; /* [max_rows * max_choices]; with experts */
    float *d_experts;         /* [1 + microbatch][experts] */
} lhi_cpu;

/* Allocates a matrix of `rows` x `columns` floats, zeroed and aligned to a
 * cache line; NULL: out of memory. */
float *lhi_cpu_alloc_floats(lhi_arena *mem, size_t rows, size_t columns);

/* Sets the device's dimensions that follow from the model and the options
 * alone, such as rows and widths. */
void lhi_cpu_compute_shape(lhi_cpu *cpu, const lhi_cpu_options *options);
/* Counts this rank's parameter tensors in n_layers model layers from `first`
 * on. */
uint32_t lhi_cpu_count_layer_tensors(const lhi_cpu *cpu, uint32_t first,
                                     uint32_t n_layers);
/* Counts this rank's parameter tensors of a chunk; needs the chunk's layer
 * range. */
uint32_t lhi_cpu_count_chunk_tensors(const lhi_cpu *cpu,
                                     const lhi_cpu_chunk *chunk);
/* Counts the chunks that hold the model once: without the copies in the other
 * direction. */
static inline uint32_t lhi_cpu_count_model_chunks(const lhi_cpu_options *o)
{
    return o->bidirectional ? o->n_chunks / 2 : o->n_chunks;
}
/* Returns the description of the device's i-th chunk with only its model-wide
 * index, layer range, and ends of the model set. */
lhi_cpu_chunk lhi_cpu_init_chunk(const lhi_cpu_options *options, uint32_t i);
/* Counts the multi-token prediction modules whose layer has experts. */
uint32_t lhi_cpu_count_moe_modules(const lhi_cpu *cpu);
/* Counts a chunk's parameters on this rank; needs the chunk's layer range. */
double lhi_cpu_count_chunk_values(const lhi_cpu *cpu,
                                  const lhi_cpu_chunk *chunk);
/* Returns the slice of a model tensor that this rank has under tensor
 * parallelism. `of` must not belong to an expert of another rank. */
lhi_slice lhi_cpu_tensor_slice(const lhi_cpu *cpu, const lhi_model_tensor *of);
/* Counts this rank's parameters in the model's tensors `first` to `first + n -
 * 1`. */
double lhi_cpu_count_values(const lhi_cpu *cpu, uint32_t first, uint32_t n);

/* Returns the bytes that lhi_cpu_alloc_floats() allocates for n floats. */
double lhi_cpu_float_bytes(double n);
/* Returns the bytes that one microbatch occupies in a chunk between F and W
 * (make_slot()). Needs the chunk's dimensions and recompute flags. */
double lhi_cpu_microbatch_bytes(const lhi_cpu *cpu, const lhi_cpu_chunk *chunk);
/* Returns the bytes that lhi_cpu_build_tensors() allocates for a chunk apart
 * from weights and gradients. */
double lhi_cpu_chunk_bytes(const lhi_cpu *cpu, const lhi_cpu_chunk *chunk);
/* Returns the floats per row in the main scratch buffer: the widest
 * intermediate result. */
size_t lhi_cpu_scratch_width(const lhi_cpu *cpu);
/* Returns the floats per row in the second scratch buffer, which is used
 * together with the first; 0: not needed. */
size_t lhi_cpu_second_scratch_width(const lhi_cpu *cpu);
/* Returns the bytes allocated by make_scratch() and build_rotary_tables() in
 * cpu.c. */
double lhi_cpu_scratch_bytes(const lhi_cpu *cpu);
/* Counts the parameters of those experts of one layer that this rank has. */
double lhi_cpu_count_expert_values(const lhi_cpu *cpu);
/* Counts a chunk's gradient values that tensor-parallel ranks hold as partial
 * sums; see lhi_cpu_reduce_partial_gradients(). */
size_t lhi_cpu_count_partial_gradients(const lhi_cpu *cpu,
                                       const lhi_cpu_chunk *chunk);
/* Returns the bytes that the tensor-parallel group allocates for the chunk's
 * collectives. */
double lhi_cpu_group_bytes(const lhi_cpu *cpu, const lhi_cpu_chunk *chunk);
/* Builds a chunk's list of weight-gradient items, the groups of weights whose
 * gradients are computed together; needs the chunk's layer range. */
lh_status lhi_cpu_build_items(const lhi_cpu *cpu, lhi_arena *mem,
                              lhi_cpu_chunk *chunk, lh_error *err);
/* Counts a chunk's layers, its modules' layers included. */
static inline uint32_t lhi_cpu_count_layers(const lhi_cpu_chunk *chunk)
{
    return chunk->n_layers + chunk->n_modules;
}
/* Returns the index in the slot's `x` of a layer's input; the layer's output is
 * at the next index. */
static inline uint32_t lhi_cpu_input_index(const lhi_cpu_chunk *chunk,
                                           uint32_t layer)
{
    uint32_t n = chunk->n_layers;
    return layer < n ? layer : n + 1 + 2 * (layer - n);
}
/* Counts the entries of a slot's `x`. */
static inline uint32_t lhi_cpu_count_inputs(const lhi_cpu_chunk *chunk)
{
    return chunk->n_layers + 1 + 2 * chunk->n_modules;
}
/* Returns an upper bound on a chunk's W items. */
static inline size_t lhi_cpu_max_items(const lhi_cpu_chunk *chunk)
{
    return (size_t)chunk->n_layers * LHI_LAYER_ITEMS + 2 +
           (size_t)chunk->n_modules * (LHI_LAYER_ITEMS + 1);
}
/* Fills the chunk's per-layer flags: recomputed parts, offloaded parts, and
 * whether it has experts. */
lh_status lhi_cpu_build_layer_flags(const lhi_cpu *cpu, lhi_arena *mem,
                                    const lhi_cpu_options *options,
                                    lhi_cpu_chunk *chunk, lh_error *err);
/* Returns the bytes of offloaded activations per microbatch in a chunk; 0:
 * none. */
double lhi_cpu_compute_offload_bytes(const lhi_cpu *cpu,
                                     const lhi_cpu_chunk *chunk);

/* Builds a chunk's weights, gradients, tensor names and weight-gradient items.
 * Initial parameters are drawn from the seed. */
lh_status lhi_cpu_build_tensors(lhi_cpu *cpu, const lhi_cpu_options *options,
                                lhi_cpu_chunk *chunk, lh_error *err);

/* ---- activations in storage (cpu_offload.c) ---- */

/* Opens the offload storage and allocates the copy records, if any
 * layer's activations are offloaded. */
lh_status lhi_cpu_make_storage(lhi_cpu *cpu, const lhi_cpu_options *options,
                               lh_error *err);
/* Returns the copy records' bytes, for n_chunks chunks with at most `layers`
 * layers. */
double lhi_cpu_copy_record_bytes(const lhi_cpu *cpu, uint32_t n_mine,
                                 uint32_t layers);
/* Starts copying a microbatch's offloaded activations to or from storage, as
 * `what` says; the copy takes at least least_ns, for emulation. */
lh_status lhi_cpu_start_copy(lhi_cpu *cpu, lhi_cpu_chunk *chunk,
                             const lhi_offload_copy *what, int64_t least_ns,
                             lh_error *err);
/* Waits for the step's first `n` offload copies, until `until_ns` at most;
 * returns whether they are done. */
bool lhi_cpu_wait_copies(lhi_cpu *cpu, uint32_t n, int64_t until_ns);
/* Waits for the previous step's offload copies and clears their records, at
 * a step's start. */
void lhi_cpu_reset_copies(lhi_cpu *cpu);
/* Returns a microbatch's offload buffers and its storage block to the free
 * lists. */
void lhi_cpu_release_offload(lhi_cpu *cpu, lhi_cpu_chunk *chunk,
                             lhi_cpu_microbatch_state *slot);

/* Computes y = x w' (w transposed) for `rows` rows and the weight w [out][in];
 * `adds`: adds to y rather than overwriting it. */
void lhi_cpu_forward_product(const lhi_cpu *cpu, const float *x, const float *w,
                             float *y, uint32_t rows, uint32_t in, uint32_t out,
                             bool adds);
/* Computes the input gradient dx = dy w for `rows` rows and the weight w
 * [out][in]. */
void lhi_cpu_input_product(const lhi_cpu *cpu, const float *dy, const float *w,
                           float *dx, uint32_t rows, uint32_t in, uint32_t out);
/* Computes the weight gradient dw = dy' x over `rows` rows (dy transposed);
 * `adds`: adds to dw rather than overwriting it. */
void lhi_cpu_weight_product(const lhi_cpu *cpu, const float *dy, const float *x,
                            float *dw, uint32_t rows, uint32_t in, uint32_t out,
                            bool adds);

/* Computes y = x w + bias for a layer's weight in the family's layout,
 * [in][out] or [out][in]; `bias` may be NULL, `adds`: adds to y. */
void lhi_cpu_linear(const lhi_cpu *cpu, const float *x, const float *w,
                    const float *bias, float *y, uint32_t in, uint32_t out,
                    bool adds);
/* Computes a layer's input gradient, dx = dy w. */
void lhi_cpu_linear_dgrad(const lhi_cpu *cpu, const float *dy, const float *w,
                          float *dx, uint32_t in, uint32_t out);
/* Computes a layer's weight gradient dw and bias gradient d_bias (may be NULL)
 * from output gradient dy and input x; `adds`: adds to them. */
void lhi_cpu_linear_wgrad(const lhi_cpu *cpu, const float *dy, const float *x,
                          float *dw, float *d_bias, uint32_t in, uint32_t out,
                          bool adds);

/* Computes the model's norm of this rank's rows x into `out`, with `weight`;
 * inv receives the rows' inverse deviations. Formula in lhi_kernels. */
void lhi_cpu_norm(const lhi_cpu *cpu, const float *x, const float *weight,
                  float *out, float *inv);
/* Computes the gradients of the norm over this rank's rows from d_out, its
 * output's gradient: replaces x by the input's gradient plus `add`, and stores
 * the weight's in d_weight. Formulas in lhi_kernels. */
void lhi_cpu_norm_backward(const lhi_cpu *cpu, const float *d_out,
                           const float *weight, const float *inv,
                           const float *add, float *x, float *d_weight);

/* ---- dropout (cpu_dropout.c) ---- */

/* Checks whether the current step applies dropout: training steps with a rate
 * above 0. */
bool lhi_cpu_has_dropout(const lhi_cpu *cpu);
/* Returns the number, counted over the whole run, of a microbatch's first
 * sequence, which identifies it for dropout. */
uint64_t lhi_cpu_first_sample(const lhi_cpu *cpu, uint32_t microbatch);
/* Returns the dropout key (sample, layer, site) of the embedding for a
 * microbatch, which selects its random numbers. */
lhi_drop lhi_cpu_embedding_dropout(const lhi_cpu *cpu, uint32_t microbatch);
/* Applies dropout to x: `rows` rows from position `row` of the microbatch's
 * sequence `sequence`, `width` columns from `column`. `at` (sample, layer,
 * site) and `head` (attention scores; else 0) select the random numbers. Does
 * nothing without dropout. */
void lhi_cpu_apply_dropout(const lhi_cpu *cpu, lhi_drop at, uint32_t sequence,
                           uint32_t head, uint32_t row, uint32_t column,
                           float *x, size_t stride, uint32_t rows,
                           uint32_t width);
/* Applies the dropout `at` (sample, layer, site) to this rank's rows x
 * [r][h]. */
void lhi_cpu_apply_dropout_rows(const lhi_cpu *cpu, lhi_drop at, float *x);
/* Returns the gradient before the dropout `at` (sample, layer, site) of this
 * rank's rows [r][h], given the gradient d after it: in a scratch buffer, valid
 * until the next call, or d itself without dropout. */
const float *lhi_cpu_dropout_backward(const lhi_cpu *cpu, lhi_drop at,
                                      const float *d);
/* Copies the last result of lhi_cpu_dropout_backward() to d; does nothing
 * without dropout. */
void lhi_cpu_copy_dropout_gradient(const lhi_cpu *cpu, float *d);

/* Returns the microbatch whose gradients are summed as the `nth` of a step:
 * sequences in order, the slices of each from last to first, which is the
 * order of their D. */
static inline uint32_t lhi_cpu_nth_summed(const lhi_cpu *cpu, uint32_t nth)
{
    uint32_t slice = nth % cpu->n_slices;
    return nth - slice + (cpu->n_slices - 1 - slice);
}

/* Runs F for one microbatch, from the received activations `in` (not used by
 * the first chunk) to the activations `out` that are sent. */
lh_status lhi_cpu_run_forward(lhi_cpu *cpu, lhi_cpu_chunk *chunk,
                              uint32_t microbatch, const float *in, float *out,
                              lh_error *err);
/* Runs D (input gradients) for one microbatch, from the received gradient `in`
 * to the gradient `out` that is sent. If `joint`, each layer's W follows its D
 * directly, except for the first layer, so that recomputed activations exist
 * for one layer at a time. */
lh_status lhi_cpu_run_dgrad(lhi_cpu *cpu, lhi_cpu_chunk *chunk,
                            uint32_t microbatch, bool joint, const float *in,
                            float *out, lh_error *err);
/* Requests a layer's weight gradients for the microbatch. They are computed
 * now, or later so that microbatches are added in order. */
lh_status lhi_cpu_request_layer_gradients(lhi_cpu *cpu, lhi_cpu_chunk *chunk,
                                          uint32_t layer, uint32_t microbatch,
                                          lh_error *err);

/* ---- recompute (cpu_recompute.c) ---- */

/* Gives the layer buffers for the activation parts in the bit set `again`,
 * which are recomputed; false: out of memory. */
bool lhi_cpu_attach_recompute_buffers(lhi_cpu *cpu,
                                      lhi_cpu_saved_activations *kept,
                                      uint32_t again);
/* Gives the layer buffers for the activation parts in the bit set `away`,
 * which are offloaded, from a free list separate from recompute buffers;
 * false: out of memory. */
bool lhi_cpu_attach_offload_buffers(lhi_cpu *cpu,
                                    lhi_cpu_saved_activations *kept,
                                    uint32_t away);
/* Returns the buffers of the offloaded activation parts in the bit set `away`
 * to the free list for offload. */
void lhi_cpu_detach_offload_buffers(lhi_cpu *cpu,
                                    lhi_cpu_saved_activations *kept,
                                    uint32_t away);
/* Returns an activation part's buffer; NULL: it has none at present. */
float *lhi_cpu_part_buffer(lhi_cpu_saved_activations *kept, lh_layer_part part);
/* Allocates permanent buffers for the activation parts in the bit set `parts`,
 * which are neither recomputed nor offloaded; false: out of memory. */
bool lhi_cpu_attach_permanent_buffers(lhi_cpu *cpu,
                                      lhi_cpu_saved_activations *kept,
                                      uint32_t parts);
/* Returns the buffers of the recomputed activation parts in the bit set
 * `again` to the free list. */
void lhi_cpu_detach_recompute_buffers(lhi_cpu *cpu,
                                      lhi_cpu_saved_activations *kept,
                                      uint32_t again);
/* Computes out = residual + dropout(x w' + bias), the end of attention and MLP.
 */
void lhi_cpu_residual(lhi_cpu *cpu, const lhi_cpu_saved_activations *kept,
                      lhi_drop_site site, const float *residual, const float *x,
                      const float *w, const float *bias, uint32_t in,
                      float *out);
/* Checks whether one reduction covers the sum of attention and MLP outputs.
 * Requires that both run in parallel and without dropout; no intermediate
 * residual exists then. */
static inline bool lhi_cpu_fuses_block_reduction(const lhi_cpu *cpu)
{
    return cpu->parallel && cpu->tensor_group && !lhi_cpu_has_dropout(cpu);
}
/* Recomputes the activation parts in the bit set `again` exactly as F did,
 * from the layer's input x and its saved activations. */
void lhi_cpu_recompute_parts(lhi_cpu *cpu, const lhi_cpu_weights *w,
                             lhi_cpu_saved_activations *kept, const float *x,
                             uint32_t again);
/* Returns the floats per microbatch in a part of a layer's activations, such as
 * qkv; `moe`: in a layer with experts. 0: the model has no such part. */
double lhi_cpu_part_floats(const lhi_cpu *cpu, lh_layer_part part, bool moe);
/* Returns the total width of all MLPs that process one row: the dense one or,
 * with `moe`, those of the chosen and shared experts. */
size_t lhi_cpu_mlp_width(const lhi_cpu *cpu, bool moe);
/* Returns the bytes per microbatch of a part of a layer's activations, such as
 * qkv; `moe`: in a layer with experts. */
double lhi_cpu_part_bytes(const lhi_cpu *cpu, lh_layer_part part, bool moe);
/* Checks whether an item belongs to this part of a split W pass. */
bool lhi_cpu_is_item_in_pass(const lhi_cpu_chunk *chunk,
                             const lhi_cpu_item *item, const lh_pass *pass);
/* Checks whether an item belongs to a layer, a module's layer included. */
static inline bool lhi_cpu_is_layer_item(const lhi_cpu_item *item)
{
    return item->kind != LHI_ITEM_EMBEDDING && item->kind != LHI_ITEM_HEAD &&
           item->kind != LHI_ITEM_MTP_JOIN;
}
/* Runs a W pass, or one part of a split one. */
lh_status lhi_cpu_run_wgrad(lhi_cpu *cpu, lhi_cpu_chunk *chunk,
                            const lh_pass *pass, lh_error *err);

#endif
