/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the cpu device: cpu.c (the device), cpu_tensors.c (weights),
 * cpu_shards.h (those that are sharded), cpu_memory.c, cpu_predict.c (how much
 * it holds), cpu_forward.c (F), cpu_again.c (what of it D makes again),
 * cpu_backward.c (D), cpu_attention.c, cpu_latent.c, cpu_context.c (ranks that
 * share sequences), cpu_layer.c, cpu_experts.h (layers with experts),
 * cpu_dropout.c, cpu_weights.c (W), cpu_tensor.c (ranks that share layers),
 * cpu_offload.c (activations in storage), cpu_modules.h (modules that predict
 * further tokens).
 *
 * Shapes: t rows of a microbatch (sequences * tokens of one), h hidden, q, kv
 * and values the widths of all query, key and value heads, qkv their sum, o the
 * width of what attention makes, f the MLP's width, up what of it is made of
 * one row (2 f with a gate, else f), v the vocabulary. Products of layers are
 * as their family keeps them: [out][in], or [in][out].
 *
 * With tensor parallelism (Megatron-LM, arXiv:1909.08053) heads, q, kv, values,
 * qkv, o, f, up and v are those of this rank; of what lies between products it
 * has r of the t rows (sequence parallelism, arXiv:2205.05198, section 4.2.2),
 * which it sends to experts, unless these are cut, too. Without, or where it has
 * whole_rows, r is t. */
#ifndef LHI_CPU_H
#define LHI_CPU_H

#include "base/arena.h"
#include "dev/blas.h"
#include "dev/cpu_kernels.h"
#include "dev/data.h"
#include "dev/dev.h"
#include "dev/families.h"

enum { LHI_LAYER_ITEMS = 4 };

/* Of one layer: values, or gradients. In the file's order, each right behind
 * the one before. */
typedef struct lhi_cpu_weights {
    float *norm1;   /* [h], of layer norms biases behind it */
    float *qkv;     /* [qkv][h] */
    float *out;     /* [h][o] */
    float *norm2;   /* as norm1; NULL: attention and MLP share norm1 */
    float *gate_up; /* [up][h] */
    float *down;    /* [h][f] */
    float *qkv_bias, *out_bias, *gate_up_bias, *down_bias; /* NULL: none */
    /* Of queries and keys: [head_dim] each; of latents: [q_rank], [kv_rank]. */
    float *q_norm, *k_norm;
    /* In the place of qkv, with latents: [q_rank][h] (NULL: queries are not
     * compressed), [q][q_rank or h], [kv_rank + rope][h] and
     * [heads * (nope + value_dim)][kv_rank]. */
    float *q_down, *q_up, *kv_down, *kv_up;
    /* In the place of gate_up and down: [experts][h], and of each expert
     * gate_up [2 expert_f][h], then down [h][expert_f]. NULL: a dense layer. */
    float *router, *experts;
    float *router_bias; /* [experts]; its gradient counts choices. NULL */
    float *shared;      /* as of one expert, shared_f wide; NULL: there is none */
    float *shared_gate; /* [h]; NULL */
    /* Of a module that predicts further tokens (cpu_modules.c), around its
     * layer: [h] each, and [h][2 h]. */
    float *enorm, *hnorm, *module_norm, *join;
} lhi_cpu_weights;

/* Where dropout drops: in a layer, or of the embedding. */
typedef enum lhi_drop_site {
    LHI_DROP_EMBEDDING,
    LHI_DROP_SCORES,
    LHI_DROP_ATTENTION, /* of its output */
    LHI_DROP_MLP,       /* of its output */
} lhi_drop_site;

typedef struct lhi_drop {
    uint64_t sample; /* of the run: the microbatch's first */
    uint32_t layer;  /* of the model */
    lhi_drop_site site;
} lhi_drop;

/* What one layer keeps of one microbatch from F to W. D puts gradients in
 * the place of what they are gradients of, once nothing needs that any more. */
typedef struct lhi_cpu_kept {
    float *norm1;             /* [t][h] input of qkv */
    float *qkv;               /* [t][qkv], then its gradient */
    float *attended;          /* [t][o] input of out */
    float *mid;               /* [r][h] after attention, then its gradient */
    float *norm2;             /* [t][h] input of gate_up */
    /* [t][up], then its gradient; with experts [most_r * most][2 expert_f] of
     * theirs; where other ranks have some of them, then what has come from
     * these: [most_r * most][h] inputs and [most_r * most][h] gradients of
     * outputs. */
    float *gate_up;
    float *act; /* [t][f] input of down; likewise */
    float *shared_gate_up, *shared_act; /* [t][2 shared_f], [t][shared_f] */
    float *inv1, *inv2;       /* [r] of the norms, then their means */
    float *d_out, *d_down; /* [t][h] gradients of what out, and down, have
                              made: with tensor parallelism; with experts of
                              what the shared ones have made */
    float *max, *inv;         /* [heads][t] of the softmax */
    float *d_norm1, *d_norm2; /* gradients of the norms' weights */
    float *d_inner; /* [inner]: of q_norm, then of k_norm */
    /* With norms of queries and keys: both before them, in the room of qkv,
     * [t][q] and [t][kv], then their gradients; inv of each head. */
    float *plain_q, *plain_k, *inv_q, *inv_k;
    /* With latents: before their norms, then gradients; behind them. The turned
     * key lies behind each row of kv_latent, before it is turned. Of these
     * inv_q and inv_k are one of each row. */
    float *q_latent, *q_normed;   /* [t][q_rank] */
    float *kv_latent, *kv_normed; /* [t][kv_rank + rope], [t][kv_rank] */
    uint64_t sample;          /* of the run: the microbatch's first */
    uint32_t layer;           /* of the model */
    uint32_t items_left;      /* of W */
    bool moe;                 /* has experts */
    /* Which experts each row passes (cpu_router.c): */
    float *scores;   /* [routes_r][experts], then the gradient of the logits */
    float *shares;   /* [routed_r][chosen]: what an expert's result is times */
    int32_t *chosen; /* [routed_r][chosen]: experts */
    int32_t *place;  /* [routed_r][chosen]: row among those of all experts; -1:
                        the expert had no room for it */
    float *gate;     /* [t], the first r, or of experts that are cut all, of the
                        shared experts: what their result is times; */
    float *d_gate;   /* [t], the first r: the gradient of that one's logit */
    int32_t *source; /* [routed_r * chosen]: by such a row, which of these */
    int32_t *first;  /* [experts + 1]: an expert's first row */
    int32_t *from; /* [n_from * here + 1]: the first row here of each rank, and
                      there of each expert that this one has; alone it is `first`
                    */
    /* Where rows go by nodes (cpu_nodes.h), of sources whose relay this is: */
    int32_t *copy;      /* [sources * most_r][chosen]: place among copies; -1 */
    float *copy_shares; /* likewise */
    int32_t *copy_first; /* [near + 1]: the first copy for each on this node */
} lhi_cpu_kept;

/* One microbatch in one chunk. */
typedef struct lhi_cpu_slot {
    struct lhi_cpu_slot *next; /* in the chunk's list of free ones */
    /* layers + 1 of [r][h]: inputs, then gradients; then of each module its
     * layer's input and output: lhi_cpu_input(). */
    float **x;
    lhi_cpu_kept *layers;    /* with those of modules */
    struct lhi_cpu_module *modules; /* last chunk: cpu_modules.h */
    int32_t *tokens;              /* [t]: chunk 0 */
    /* Last chunk: [1 + modules][t], the tokens after each, those after these and
     * so on. */
    int32_t *targets;
    float *normed, *inv, *logits; /* [t][h], as inv1, [t][v]: last chunk */
    float *d_norm;                /* last chunk */
    float *d_embedded; /* [t][h]: chunk 0, with tensor parallelism */
    uint32_t items_left;          /* of W */
    bool is_back;                 /* D has run */
    lhi_storage_block *stored;    /* where what leaves is; NULL: here */
} lhi_cpu_slot;

/* A copy of the step, for when it is done. */
typedef struct lhi_cpu_move {
    lhi_cpu_slot *slot;
    uint32_t chunk; /* of `mine` */
    bool is_back;
} lhi_cpu_move;

/* A weight gradient, the least that W can be cut into. */
typedef enum lhi_cpu_item_kind {
    LHI_ITEM_EMBEDDING, /* and learned positions */
    LHI_ITEM_QKV, /* and the norm before it */
    LHI_ITEM_OUT,
    LHI_ITEM_GATE_UP, /* and the norm before it */
    LHI_ITEM_DOWN,
    LHI_ITEM_HEAD, /* and the norm before it; modules' use of it, and of the
                      embedding */
    LHI_ITEM_JOIN, /* of a module: what is around its layer */
} lhi_cpu_item_kind;

typedef struct lhi_cpu_item {
    lhi_cpu_item_kind kind;
    uint32_t layer;      /* in the chunk; n_layers + k: module k's */
    uint64_t from, cost; /* in multiplications per row, and all before it */
    uint32_t first;      /* microbatch of those in the gradient */
    uint32_t done;       /* microbatches first..done-1 are in it */
    bool *asked;         /* by microbatch: its W was due */
} lhi_cpu_item;

typedef struct lhi_cpu_chunk {
    uint32_t chunk, first_layer, n_layers;
    uint32_t n_modules; /* of the last chunk, behind its layers */
    bool is_first, is_last;
    float *values, *gradients; /* where the first of them are */
    size_t n_values;
    /* The first of them are where they were put last, if they are anywhere
     * (cpu_shards.c). */
    size_t n_sharded_values, n_sharded_gradients;
    uint32_t n_sharded_items; /* whose gradients these are, */
    uint32_t end_microbatch;  /* of those before this one */
    bool has_values, has_gradients;
    bool by_layer;            /* else all of these are in one place */
    uint32_t n_parts;         /* embedding, layers, head */
    lhi_device_part *parts;   /* where they are in the chunk, and now: */
    float **part_values, **part_gradients;
    lhi_cpu_weights *weights, *d_weights; /* by layer, then of modules */
    float *embedding, *d_embedding;       /* [v][h] */
    float *positions, *d_positions;       /* learned: [positions][h]; NULL */
    float *norm, *d_norm, *head, *d_head; /* as norm1, [v][h] */
    float *copy, *d_copy; /* of the embedding, for modules; NULL: the head is */
    uint32_t n_tensors, n_items;
    lhi_tensor *tensors;
    lhi_cpu_item *items;
    uint64_t cost;
    bool *moe; /* by layer, then of modules: it has experts */
    lhi_cpu_slot **slots; /* by microbatch; NULL: not here */
    bool *was_here;       /* by microbatch: F has run in this step */
    uint32_t *again;      /* likewise: parts that D makes again */
    uint32_t *away;       /* likewise: parts that leave; of modules none */
    lhi_cpu_slot *free;
    lhi_storage_block *free_blocks; /* of what leaves of one microbatch */
} lhi_cpu_chunk;

/* How the ranks that have different experts lie over nodes: these, members on
 * this one, and those whose rows this rank hands on here, itself too
 * (cpu_nodes.h). */
typedef struct lhi_cpu_spread {
    uint32_t nodes, near, sources;
} lhi_cpu_spread;

typedef struct lhi_cpu {
    lhi_device base; /* first */
    lhi_arena *mem;  /* scratch, and what is small */
    lhi_arena *parameters, *gradients, *activations;
    lhi_arena *whole; /* all values, until the device is settled, or NULL */
    const lhi_kernels *k;
    lhi_sgemm sgemm;
    const lhi_data *data;
    const lhi_part_hooks *hooks; /* of what is sharded layer by layer */
    const lh_model *model; /* while the device is made */
    lhi_family family;
    uint32_t layers, h, heads, kv_heads, head_dim, q, kv, v;
    uint32_t f, up; /* of dense layers; 0: there are none */
    uint32_t value_dim, values, qkv, o; /* value_dim: of a head */
    uint32_t rope;            /* of head_dim: its last, which are turned */
    uint32_t q_rank, kv_rank; /* of latents; kv_rank 0: there are none */
    uint32_t inner;           /* weights of norms within attention */
    bool head_norms;          /* of queries and keys */
    bool qkv_bias;
    uint32_t kv_sharers;      /* ranks that have the same key and value heads */
    bool parallel; /* attention and MLP beside each other, on one norm */
    uint32_t positions;    /* learned; 0: rotary */
    uint32_t norm_vectors; /* of weights: 2 with biases */
    uint32_t experts;      /* 0: none */
    uint32_t chosen;       /* experts that a row passes */
    uint32_t expert_f, shared_f;
    bool sigmoid, raw_shares; /* of the router: see lh_model */
    float routed_scale;
    uint32_t expert_groups, chosen_groups; /* 0: none */
    uint32_t capacity; /* choices of a sequence that an expert takes; 0: all */
    int32_t *all_chosen; /* with it [n_contexts][t][chosen]; NULL: all are here */
    size_t *choice_bytes; /* of each rank: scratch of that */
    /* Ranks that have different experts, and which of them this is; how many
     * each has; choices that come here at most, in times of most_r. */
    uint32_t n_expert, expert, here, most;
    /* Experts are cut as dense MLPs are, over the ranks that share layers, and
     * take all rows there; rows whose choices they take, r or, of cut ones, t,
     * and which of these is the first of the r that are here. */
    bool cuts_experts;
    uint32_t routed_r, first_routed;
    /* Rows whose experts this rank's router chooses, of t: those that it has
     * between products. Where these are all, experts that are not cut take its
     * share of them, and what they say of it all ranks gather (DeepSpeed-TED:
     * arXiv:2303.06318, section 5). */
    uint32_t routes_r, first_routes;
    /* Otherwise: ranks that have parts of the same experts, each with rows of
     * its own, and which of them this is; and of how many ranks rows come here:
     * of all that have parts or others of the experts. */
    uint32_t n_slices, slice, n_from;
    lhi_group *expert_group, *slice_group;
    lhi_cpu_spread spread; /* 0: a row goes to each of its experts */
    struct lhi_cpu_nodes *nodes;        /* NULL: likewise */
    lhi_group *near_group;              /* of those on this node; NULL: alone */
    int32_t *row_counts;                /* [1 + n_slices][experts] */
    size_t *sizes;                      /* [LHI_PARTNER_SIZES][most_partners] */
    float *incoming, *incoming_shares;  /* [most_r * most][h + 1], [...] */
    bool gates_shared;
    float balance; /* share of the loss that balances experts */
    bool embeds_twice, gated;
    uint32_t modules; /* that predict further tokens */
    bool in_first;      /* weights of layers are [in][out] */
    uint32_t threshold; /* of dropout, of 2^24; 0: none */
    float drop_scale;
    uint64_t seed;
    /* `sequence`: tokens of one that are here, of whole_sequence. */
    uint32_t sequence, whole_sequence, microbatch, t, n_microbatches;
    /* Which of how many ranks share sequences; tokens of one of its two pieces
     * of each, or all where it is alone. */
    uint32_t context, n_contexts, piece;
    lhi_group *contexts; /* NULL: it is alone */
    lh_status met;       /* how the collectives of the pass went so far */
    lh_error met_err;
    float *ring[4];             /* [t][kv + values]: keys and values, then their
                                   gradients, each with room for the next */
    float *d_queries;           /* [t][q] */
    float *partial;             /* [block][value_dim] */
    float *partial_max, *partial_inv; /* [block] */
    /* Ranks that share layers, which of them this is, the first of its rows,
     * heads and tokens of the vocabulary, its rows, and what each of them sends
     * to experts at most. */
    uint32_t n_tensor, tensor, first_row, r, most_r, first_head, first_token;
    bool whole_rows; /* r is t, on each of them */
    uint32_t first_sent, n_sent; /* of r, what a message has */
    lhi_group *group;               /* NULL: it is alone */
    size_t *row_bytes, *row_floats; /* by rank: of [t][h], that it has */
    size_t *top_bytes;              /* by rank: of what it says of logits */
    float *summands;                /* [t][h]: this rank's of a sum */
    float *tops;                    /* [ranks][t][3] */
    float *partial_sums;            /* see lhi_cpu_add_partial() */
    uint32_t replica, n_replicas;
    float epsilon;
    uint32_t n_chunks, n_mine;
    lhi_cpu_chunk *mine;
    uint64_t step;
    lhi_step_kind kind;
    float loss_scale; /* 1 / tokens of the global batch */
    double *losses;   /* by microbatch */
    double *module_losses; /* likewise: the mean of the modules'; NULL */
    bool *has_loss;
    float *cosines, *sines;         /* [sequence][rope / 2] */
    uint32_t block;                 /* query rows at once in attention */
    uint32_t logit_rows;            /* rows of logits at once */
    float *spare[2][LH_N_LAYER_PARTS]; /* see cpu_again.c; of layers without
                                          experts, and with */
    float *spare_away[2][LH_N_LAYER_PARTS]; /* likewise: cpu_offload.c */
    lhi_storage *storage;                   /* NULL: nothing leaves */
    lhi_cpu_move *copies; /* of the step, one per microbatch and way */
    uint32_t n_copies, n_copied;
    lhi_storage_piece *pieces; /* of a chunk's layers */
    /* Scratch: */
    float *wide;              /* [t][lhi_cpu_widest()] */
    float *beside;            /* [t][lhi_cpu_beside()] */
    float *scores, *d_scores; /* [block][sequence] */
    float *d_query;           /* [block][head_dim] */
    float *d_key, *d_value;   /* [sequence][head_dim] */
    float *delta;             /* [block] */
    int32_t *window;          /* [whole_sequence + 1 + modules] */
    float *carried;           /* [r][h]: a gradient from a module to what is
                                 before it; with modules */
    float *dropped;           /* [t][h], with dropout */
    float *routed;   /* [lhi_cpu_routed()], with experts */
    float *d_shares; /* [most_r * most], with experts */
    float *d_experts;         /* [1 + microbatch][experts] */
} lhi_cpu;

/* Zeroed, on a cache line of its own; NULL: none left (cpu_memory.c). */
float *lhi_cpu_floats(lhi_arena *mem, size_t rows, size_t columns);

/* The numbers that follow from the model and the options alone
 * (cpu_memory.c). */
void lhi_cpu_shape(lhi_cpu *cpu, const lhi_cpu_options *options);
/* The tensors that are here of layers of the model, and of a chunk whose numbers
 * are there. */
uint32_t lhi_cpu_n_layer_tensors(const lhi_cpu *cpu, uint32_t first,
                                 uint32_t n_layers);
uint32_t lhi_cpu_n_tensors(const lhi_cpu *cpu, const lhi_cpu_chunk *chunk);
/* The numbers of chunk mine[i]; modules whose layer has experts. */
lhi_cpu_chunk lhi_cpu_chunk_of(const lhi_cpu_options *options, uint32_t i);
uint32_t lhi_cpu_moe_modules(const lhi_cpu *cpu);
/* Values of a chunk whose numbers are there. */
double lhi_cpu_values(const lhi_cpu *cpu, const lhi_cpu_chunk *chunk);
/* What is here of a tensor, where an expert's is here at all. */
lhi_slice lhi_cpu_slice(const lhi_cpu *cpu, const lhi_model_tensor *of);
/* Those of tensors `first` to `first + n - 1` that are here. */
double lhi_cpu_count_values(const lhi_cpu *cpu, uint32_t first, uint32_t n);

/* Bytes of so many floats, made by lhi_cpu_floats(). */
double lhi_cpu_float_bytes(double n);
/* Of a chunk whose numbers and `again` are there: what one microbatch keeps
 * between F and W (make_slot()), and what there is whatever is kept but weights
 * and gradients (lhi_cpu_tensors()). */
double lhi_cpu_slot_bytes(const lhi_cpu *cpu, const lhi_cpu_chunk *chunk);
double lhi_cpu_chunk_bytes(const lhi_cpu *cpu, const lhi_cpu_chunk *chunk);
/* Floats of what passes make of a row on the way, at most; and while that is in
 * use, of another thing: 0: there is none. */
size_t lhi_cpu_widest(const lhi_cpu *cpu);
size_t lhi_cpu_beside(const lhi_cpu *cpu);
/* make_scratch() and make_angles() of cpu.c. */
double lhi_cpu_scratch_bytes(const lhi_cpu *cpu);
/* Of a layer's experts that are here. */
double lhi_cpu_expert_values(const lhi_cpu *cpu);
/* Gradients of a chunk that each rank of those that share layers has a part of:
 * lhi_cpu_add_partial(). What their group comes to hold for the chunk. */
size_t lhi_cpu_count_partial(const lhi_cpu *cpu, const lhi_cpu_chunk *chunk);
double lhi_cpu_group_bytes(const lhi_cpu *cpu, const lhi_cpu_chunk *chunk);
/* The items of W of a chunk whose numbers are there. */
lh_status lhi_cpu_items(const lhi_cpu *cpu, lhi_arena *mem,
                        lhi_cpu_chunk *chunk, lh_error *err);
/* Layers of a chunk, with those of its modules. */
static inline uint32_t lhi_cpu_all_layers(const lhi_cpu_chunk *chunk)
{
    return chunk->n_layers + chunk->n_modules;
}
/* Where the slot has what goes into one of them; what comes of it is next. */
static inline uint32_t lhi_cpu_input(const lhi_cpu_chunk *chunk, uint32_t layer)
{
    uint32_t n = chunk->n_layers;
    return layer < n ? layer : n + 1 + 2 * (layer - n);
}
/* All of these. */
static inline uint32_t lhi_cpu_n_inputs(const lhi_cpu_chunk *chunk)
{
    return chunk->n_layers + 1 + 2 * chunk->n_modules;
}
/* Items of W, at most. */
static inline size_t lhi_cpu_most_items(const lhi_cpu_chunk *chunk)
{
    return (size_t)chunk->n_layers * LHI_LAYER_ITEMS + 2 +
           (size_t)chunk->n_modules * (LHI_LAYER_ITEMS + 1);
}
/* What layers of a chunk are like: `again`, `away`, `moe`. */
lh_status lhi_cpu_layers(const lhi_cpu *cpu, lhi_arena *mem,
                         const lhi_cpu_options *options, lhi_cpu_chunk *chunk,
                         lh_error *err);
/* Bytes of what leaves of a chunk's microbatch; 0: nothing. */
double lhi_cpu_away_bytes(const lhi_cpu *cpu, const lhi_cpu_chunk *chunk);

/* Weights, gradients, names, W's items; values are drawn from the seed. */
lh_status lhi_cpu_tensors(lhi_cpu *cpu, const lhi_cpu_options *options,
                          lhi_cpu_chunk *chunk, lh_error *err);

/* --- activations in storage (cpu_offload.c) ---------------------------------
 */

/* Storage, where some layer's activations leave, and room for what they do. */
lh_status lhi_cpu_make_storage(lhi_cpu *cpu, const lhi_cpu_options *options,
                               lh_error *err);
/* That room, beside the chunks, the largest of `layers` layers. */
double lhi_cpu_copies_bytes(const lhi_cpu *cpu, uint32_t n_mine,
                            uint32_t layers);
/* As the device's calls. */
lh_status lhi_cpu_copy(lhi_cpu *cpu, lhi_cpu_chunk *chunk,
                       const lhi_offload *what, int64_t least_ns,
                       lh_error *err);
bool lhi_cpu_await_copies(lhi_cpu *cpu, uint32_t n, int64_t until_ns);
/* A step begins: those of the last one are done. */
void lhi_cpu_begin_copies(lhi_cpu *cpu);
/* The slot is given up: room and storage of what leaves are free. */
void lhi_cpu_drop_away(lhi_cpu *cpu, lhi_cpu_chunk *chunk, lhi_cpu_slot *slot);

/* y = x w', dx = dy w, dw (+)= dy' x; w is [out][in]. */
void lhi_cpu_forward_product(const lhi_cpu *cpu, const float *x, const float *w,
                             float *y, uint32_t rows, uint32_t in, uint32_t out,
                             bool adds);
void lhi_cpu_input_product(const lhi_cpu *cpu, const float *dy, const float *w,
                           float *dx, uint32_t rows, uint32_t in, uint32_t out);
void lhi_cpu_weight_product(const lhi_cpu *cpu, const float *dy, const float *x,
                            float *dw, uint32_t rows, uint32_t in, uint32_t out,
                            bool adds);

/* The same with a layer's weights, as its family keeps them; `bias` and `d_bias`
 * may be NULL. */
void lhi_cpu_linear(const lhi_cpu *cpu, const float *x, const float *w,
                    const float *bias, float *y, uint32_t in, uint32_t out,
                    bool adds);
void lhi_cpu_linear_input(const lhi_cpu *cpu, const float *dy, const float *w,
                          float *dx, uint32_t in, uint32_t out);
void lhi_cpu_linear_weights(const lhi_cpu *cpu, const float *dy, const float *x,
                            float *dw, float *d_bias, uint32_t in, uint32_t out,
                            bool adds);

/* The model's norm, and back, over the rows that are here: see lhi_kernels. */
void lhi_cpu_norm(const lhi_cpu *cpu, const float *x, const float *weight,
                  float *out, float *inv);
void lhi_cpu_norm_back(const lhi_cpu *cpu, const float *d_out,
                       const float *weight, const float *inv, const float *add,
                       float *x, float *d_weight);

/* --- ranks that share layers (cpu_tensor.c) ----------------------------------
 * Alone they do nothing, and what they would gather or add up is complete. What
 * goes wrong is in cpu->met, and then nothing more is done.
 */

/* Whether each of them has rows of its own. */
static inline bool lhi_cpu_shares_rows(const lhi_cpu *cpu)
{
    return cpu->n_tensor > 1 && !cpu->whole_rows;
}
/* Rows [r][h] of a message, and from one: of whole rows each rank sends its part
 * (arXiv:2104.04473, section 4.1). */
void lhi_cpu_put_message(const lhi_cpu *cpu, const float *x, float *message);
void lhi_cpu_take_message(lhi_cpu *cpu, const float *message, float *x);
/* What must hold of a model and a microbatch that are shared. */
lh_status lhi_cpu_check_shares(const lhi_cpu_options *options, lh_error *err);
/* Room for it; false: no memory. */
bool lhi_cpu_make_shares(lhi_cpu *cpu);
/* This rank's place among the rows of [t][h]. */
float *lhi_cpu_own_rows(const lhi_cpu *cpu, float *all);
/* All rows of [t][h], of which each rank has its own, come together. */
void lhi_cpu_gather_rows(lhi_cpu *cpu, const float *own, float *all);
/* Each rank gets its own rows of the sum of all ranks'; `own` may be their
 * place in `all`. */
void lhi_cpu_add_rows(lhi_cpu *cpu, const float *all, float *own);
/* The loss, as cross_entropy of lhi_kernels, of logits of which this rank has
 * those of its own tokens. */
double lhi_cpu_shared_loss(lhi_cpu *cpu, float *logits, const int32_t *targets,
                           float scale);
/* Of choices [t][chosen], or what they are times, each rank's own rows are there:
 * all come together. */
void lhi_cpu_gather_choices(lhi_cpu *cpu, void *all);
/* n values become the sums over these ranks. */
void lhi_cpu_add_values(lhi_cpu *cpu, float *values, size_t n);
/* A chunk's gradients are complete but for those that each rank has of its own
 * rows, of norms and routers, or of some of the queries that see a key head:
 * adds up those of n items from `first` on. Room for them (false: no memory),
 * once the chunks are there. */
void lhi_cpu_add_partial(lhi_cpu *cpu, const lhi_cpu_chunk *chunk,
                         uint32_t first, uint32_t n);
bool lhi_cpu_make_partial(lhi_cpu *cpu);
/* Whether each of them has routes of some rows alone; and the place of these in x
 * [r][h]. */
static inline bool lhi_cpu_parts_routes(const lhi_cpu *cpu)
{
    return cpu->n_tensor > 1 && !(cpu->whole_rows && cpu->cuts_experts);
}
static inline float *lhi_cpu_routes_of(const lhi_cpu *cpu, const float *x)
{
    size_t first = (size_t)cpu->first_routes - cpu->first_row;
    return (float *)(uintptr_t)x + first * cpu->h;
}
/* Where each has all rows x [r][h], but of what experts say its share alone: all
 * shares come together. */
void lhi_cpu_gather_routed(lhi_cpu *cpu, float *x);
/* Whether a layer's MLP takes all rows; else routed experts take this rank's
 * alone. */
static inline bool lhi_cpu_gathers_mlp(const lhi_cpu *cpu, bool moe)
{
    return !moe || cpu->shared_f > 0 || cpu->cuts_experts;
}

/* --- dropout (cpu_dropout.c) ------------------------------------------------
 */

bool lhi_cpu_drops(const lhi_cpu *cpu); /* in this step */
/* The number of a microbatch's first sequence in the run. */
uint64_t lhi_cpu_sample(const lhi_cpu *cpu, uint32_t microbatch);
lhi_drop lhi_cpu_embedding_drop(const lhi_cpu *cpu, uint32_t microbatch);
/* Drops of x, rows from position `row` on of sequence `sequence` of the
 * microbatch, columns from `column` on; `head` of the scores, else 0. Without
 * dropout nothing. */
void lhi_cpu_drop(const lhi_cpu *cpu, lhi_drop at, uint32_t sequence,
                  uint32_t head, uint32_t row, uint32_t column, float *x,
                  size_t stride, uint32_t rows, uint32_t width);
/* The same of [r][h]. */
void lhi_cpu_drop_all(const lhi_cpu *cpu, lhi_drop at, float *x);
/* The gradient of [r][h] before it was dropped, from d, the one after: in room
 * that is good until the next call; without dropout d itself. */
const float *lhi_cpu_drop_back(const lhi_cpu *cpu, lhi_drop at, const float *d);
/* What that has made last goes to the place of d. */
void lhi_cpu_keep_dropped(const lhi_cpu *cpu, float *d);

/* --- attention (cpu_attention.c, cpu_latent.c) -----------------------------
 */

/* Queries and keys of kept->qkv, each head through its norm, in their place;
 * and from gradients of what comes of that to those of what went in. */
void lhi_cpu_norm_heads(const lhi_cpu *cpu, const lhi_cpu_weights *w,
                        lhi_cpu_kept *kept);
void lhi_cpu_norm_heads_back(const lhi_cpu *cpu, const lhi_cpu_weights *w,
                             lhi_cpu_kept *kept);
/* From norm1 the latents, from these kept->qkv, turned. */
void lhi_cpu_latents(const lhi_cpu *cpu, const lhi_cpu_weights *w,
                     lhi_cpu_kept *kept);
void lhi_cpu_from_latents(const lhi_cpu *cpu, const lhi_cpu_weights *w,
                          lhi_cpu_kept *kept);
/* From the gradient of kept->qkv, which comes to lie as the products made it,
 * to that of norm1, in cpu->wide. */
void lhi_cpu_latents_back(const lhi_cpu *cpu, const lhi_cpu_weights *w,
                          lhi_cpu_kept *kept);
/* What W adds of these products. */
void lhi_cpu_latent_weights(const lhi_cpu *cpu, const lhi_cpu_kept *kept,
                            const lhi_cpu_weights *d_w, bool adds);

/* --- ranks that share sequences (cpu_context.c) -----------------------------
 */

/* What must hold of sequences that are shared. */
lh_status lhi_cpu_check_contexts(const lhi_cpu_options *options, lh_error *err);
/* Room for it; false: no memory. */
bool lhi_cpu_make_contexts(lhi_cpu *cpu);
/* The pieces of a sequence that are here, whose rows follow each other; which
 * of all its pieces half `half` of a rank is; and the position of the first
 * token of such a half of this rank. */
static inline uint32_t lhi_cpu_n_pieces(const lhi_cpu *cpu)
{
    return cpu->n_contexts > 1 ? 2 : 1;
}
static inline uint32_t lhi_cpu_piece_of(const lhi_cpu *cpu, uint32_t rank,
                                        uint32_t half)
{
    return half ? 2 * cpu->n_contexts - 1 - rank : rank;
}
static inline uint32_t lhi_cpu_piece_first(const lhi_cpu *cpu, uint32_t half)
{
    return lhi_cpu_piece_of(cpu, cpu->context, half) * cpu->piece;
}
/* Keys and values of a row lie together in qkv, and so in a ring's rooms. */
static inline size_t lhi_cpu_ring_width(const lhi_cpu *cpu)
{
    return (size_t)cpu->kv + cpu->values;
}
/* Each rank's `bytes`, which lie at their place in `all`, come together. */
void lhi_cpu_gather_contexts(lhi_cpu *cpu, const void *mine, void *all,
                             size_t bytes);
/* n values become the sums over all ranks that share them. */
void lhi_cpu_add_contexts(lhi_cpu *cpu, float *values, size_t n);
/* As lhi_cpu_attend() and lhi_cpu_attend_back(), with the keys and values of all
 * ranks. What goes wrong is in cpu->met. */
void lhi_cpu_attend_ring(lhi_cpu *cpu, lhi_cpu_kept *kept);
void lhi_cpu_attend_ring_back(lhi_cpu *cpu, lhi_cpu_kept *kept, const float *d);

/* [rows][head_dim], from row `row` of a sequence on, to their place among qkv,
 * turned back; with latents that is left to lhi_cpu_latents_back(). */
void lhi_cpu_turn_back(const lhi_cpu *cpu, const float *from, size_t from_stride,
                       float *to, uint32_t row, uint32_t rows);
/* Turns queries and keys in their place, by their positions. */
void lhi_cpu_turn(const lhi_cpu *cpu, lhi_cpu_kept *kept);
/* Turned kept->qkv to kept->attended: fills max and inv. */
void lhi_cpu_attend(lhi_cpu *cpu, lhi_cpu_kept *kept);
/* The gradient of `attended` (d, [t][o]) to that of qkv, in its place; with
 * latents still turned. */
void lhi_cpu_attend_back(lhi_cpu *cpu, lhi_cpu_kept *kept, const float *d);

lh_status lhi_cpu_f(lhi_cpu *cpu, lhi_cpu_chunk *chunk, uint32_t microbatch,
                    const float *in, float *out, lh_error *err);
/* `joint`: W of each layer follows at once, but for the first one's, so that
 * what was made again is there for one layer at a time. */
lh_status lhi_cpu_d(lhi_cpu *cpu, lhi_cpu_chunk *chunk, uint32_t microbatch,
                    bool joint, const float *in, float *out, lh_error *err);
/* The weights of a layer take the microbatch, or will in its turn. */
lh_status lhi_cpu_ask_layer(lhi_cpu *cpu, lhi_cpu_chunk *chunk, uint32_t layer,
                            uint32_t microbatch, lh_error *err);

/* --- parts that are made again (cpu_again.c) -------------------------------
 */

/* Gives a layer room for its parts of `again`; false: no memory. The room is
 * one that lhi_cpu_detach() has left, or new. */
bool lhi_cpu_attach(lhi_cpu *cpu, lhi_cpu_kept *kept, uint32_t again);
/* The same for its parts of `away`, which is room of another list. */
bool lhi_cpu_attach_away(lhi_cpu *cpu, lhi_cpu_kept *kept, uint32_t away);
void lhi_cpu_detach_away(lhi_cpu *cpu, lhi_cpu_kept *kept, uint32_t away);
/* Where a part is; NULL: it has no room now. */
float *lhi_cpu_place(lhi_cpu_kept *kept, lh_layer_part part);
/* The same with room of its own, for good. */
bool lhi_cpu_attach_kept(lhi_cpu *cpu, lhi_cpu_kept *kept, uint32_t parts);
/* Takes that back, where it is. */
void lhi_cpu_detach(lhi_cpu *cpu, lhi_cpu_kept *kept, uint32_t again);
/* out = residual + x w' + bias, of which dropout may drop all but the residual:
 * the end of attention and of the MLP. */
void lhi_cpu_residual(lhi_cpu *cpu, const lhi_cpu_kept *kept,
                      lhi_drop_site site, const float *residual, const float *x,
                      const float *w, const float *bias, uint32_t in,
                      float *out);
/* Whether ranks add up what attention and MLP make at once, where these are
 * beside each other and nothing of it is dropped; then there is no mid. */
static inline bool lhi_cpu_adds_both(const lhi_cpu *cpu)
{
    return cpu->parallel && cpu->group && !lhi_cpu_drops(cpu);
}
/* Fills them, as F did, from x, the layer's input, and what was kept. */
void lhi_cpu_make_again(lhi_cpu *cpu, const lhi_cpu_weights *w,
                        lhi_cpu_kept *kept, const float *x, uint32_t again);
/* Floats of a part (cpu_memory.c); 0: the model has no such part. Its bytes. */
double lhi_cpu_part_floats(const lhi_cpu *cpu, lh_layer_part part, bool moe);
/* The width of all MLPs that a row passes. */
size_t lhi_cpu_mlp_width(const lhi_cpu *cpu, bool moe);
double lhi_cpu_part_bytes(const lhi_cpu *cpu, lh_layer_part part, bool moe);
/* Whether an item of W belongs to this part of it. */
bool lhi_cpu_in_part(const lhi_cpu_chunk *chunk, const lhi_cpu_item *item,
                     const lh_pass *pass);
/* Whether it is one of a layer's, a module's too. */
static inline bool lhi_cpu_in_layer(const lhi_cpu_item *item)
{
    return item->kind != LHI_ITEM_EMBEDDING && item->kind != LHI_ITEM_HEAD &&
           item->kind != LHI_ITEM_JOIN;
}
lh_status lhi_cpu_w(lhi_cpu *cpu, lhi_cpu_chunk *chunk, const lh_pass *pass,
                    lh_error *err);

#endif
