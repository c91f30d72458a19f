/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the cpu device: cpu.c (the device), cpu_tensors.c (weights),
 * cpu_memory.c, cpu_predict.c (how much it holds), cpu_forward.c (F),
 * cpu_again.c (what of it D makes again), cpu_backward.c (D), cpu_attention.c,
 * cpu_weights.c (W).
 *
 * Shapes: t rows of a microbatch (sequences * tokens of one), h hidden, q and
 * kv the widths of all query and key heads, f the MLP's width, v the
 * vocabulary. */
#ifndef LHI_CPU_H
#define LHI_CPU_H

#include "base/arena.h"
#include "dev/blas.h"
#include "dev/cpu_kernels.h"
#include "dev/data.h"
#include "dev/dev.h"

enum { LHI_LAYER_TENSORS = 9, LHI_LAYER_ITEMS = 4 };

/* Of one layer: values, or gradients. In the file's order, each right behind
 * the one before. */
typedef struct lhi_cpu_weights {
    float *norm1;   /* [h] */
    float *qkv;     /* [q + 2 kv][h] */
    float *out;     /* [h][q] */
    float *norm2;   /* [h] */
    float *gate_up; /* [2 f][h] */
    float *down;    /* [h][f] */
} lhi_cpu_weights;

/* What one layer keeps of one microbatch from F to W. D puts gradients in
 * the place of what they are gradients of, once nothing needs that any more. */
typedef struct lhi_cpu_kept {
    float *norm1;             /* [t][h] input of qkv */
    float *qkv;               /* [t][q + 2 kv], then its gradient */
    float *attended;          /* [t][q] input of out */
    float *mid;               /* [t][h] after attention, then its gradient */
    float *norm2;             /* [t][h] input of gate_up */
    float *gate_up;           /* [t][2 f], then its gradient */
    float *act;               /* [t][f] input of down */
    float *inv1, *inv2;       /* [t] of the norms */
    float *max, *inv;         /* [heads][t] of the softmax */
    float *d_norm1, *d_norm2; /* [h] gradients of the norms' weights */
    uint32_t items_left;      /* of W */
} lhi_cpu_kept;

/* One microbatch in one chunk. */
typedef struct lhi_cpu_slot {
    struct lhi_cpu_slot *next; /* in the chunk's list of free ones */
    float **x; /* layers + 1 of [t][h]: inputs, then gradients */
    lhi_cpu_kept *layers;
    int32_t *tokens;              /* [t]: chunk 0 */
    int32_t *targets;             /* [t]: last chunk */
    float *normed, *inv, *logits; /* [t][h], [t], [t][v]: last chunk */
    float *d_norm;                /* [h]: last chunk */
    uint32_t items_left;          /* of W */
    bool is_back;                 /* D has run */
} lhi_cpu_slot;

/* A weight gradient, the least that W can be cut into. */
typedef enum lhi_cpu_item_kind {
    LHI_ITEM_EMBEDDING,
    LHI_ITEM_QKV, /* and the norm before it */
    LHI_ITEM_OUT,
    LHI_ITEM_GATE_UP, /* and the norm before it */
    LHI_ITEM_DOWN,
    LHI_ITEM_HEAD, /* and the norm before it */
} lhi_cpu_item_kind;

typedef struct lhi_cpu_item {
    lhi_cpu_item_kind kind;
    uint32_t layer;      /* in the chunk */
    uint64_t from, cost; /* in multiplications per row, and all before it */
    uint32_t done;       /* microbatches 0..done-1 are in the gradient */
    bool *asked;         /* by microbatch: its W was due */
} lhi_cpu_item;

typedef struct lhi_cpu_chunk {
    uint32_t chunk, first_layer, n_layers;
    bool is_first, is_last;
    float *values, *gradients;
    size_t n_values;
    lhi_cpu_weights *weights, *d_weights; /* by layer */
    float *embedding, *d_embedding;       /* [v][h] */
    float *norm, *d_norm, *head, *d_head; /* [h], [v][h] */
    uint32_t n_tensors, n_items;
    lhi_tensor *tensors;
    lhi_cpu_item *items;
    uint64_t cost;
    lhi_cpu_slot **slots; /* by microbatch; NULL: not here */
    bool *was_here;       /* by microbatch: F has run in this step */
    uint32_t *again;      /* by layer: parts that D makes again */
    lhi_cpu_slot *free;
} lhi_cpu_chunk;

typedef struct lhi_cpu {
    lhi_device base; /* first */
    lhi_arena *mem;  /* scratch, and what is small */
    lhi_arena *parameters, *gradients, *activations;
    const lhi_kernels *k;
    lhi_sgemm sgemm;
    const lhi_data *data;
    uint32_t layers, h, heads, kv_heads, head_dim, q, kv, f, v;
    bool tied;
    uint32_t sequence, microbatch, t, n_microbatches;
    uint32_t replica, n_replicas;
    float epsilon;
    uint32_t n_chunks, n_mine;
    lhi_cpu_chunk *mine;
    uint64_t step;
    lhi_step_kind kind;
    float loss_scale; /* 1 / tokens of the global batch */
    double *losses;   /* by microbatch */
    bool *has_loss;
    float *cosines, *sines;         /* [sequence][head_dim / 2] */
    uint32_t block;                 /* query rows at once in attention */
    uint32_t logit_rows;            /* rows of logits at once */
    float *spare[LH_N_LAYER_PARTS]; /* see cpu_again.c */
    /* Scratch: */
    float *wide;              /* [t][max(f, h, q)] */
    float *scores, *d_scores; /* [block][sequence] */
    float *d_query;           /* [block][head_dim] */
    float *d_key, *d_value;   /* [sequence][head_dim] */
    float *delta;             /* [block] */
    int32_t *window;          /* [sequence + 1] */
} lhi_cpu;

/* Zeroed, on a cache line of its own; NULL: none left (cpu_memory.c). */
float *lhi_cpu_floats(lhi_arena *mem, size_t rows, size_t columns);

/* The numbers that follow from the model and the options alone
 * (cpu_memory.c). */
void lhi_cpu_shape(lhi_cpu *cpu, const lhi_cpu_options *options);
/* Values of a chunk with so many layers. */
double lhi_cpu_values(const lhi_cpu *cpu, uint32_t n_layers, bool is_first,
                      bool is_last);

/* Bytes of so many floats, made by lhi_cpu_floats(). */
double lhi_cpu_float_bytes(double n);
/* Of a chunk whose numbers and `again` are there: what one microbatch keeps
 * between F and W (make_slot()), and what there is whatever is kept but weights
 * and gradients (lhi_cpu_tensors()). */
double lhi_cpu_slot_bytes(const lhi_cpu *cpu, const lhi_cpu_chunk *chunk);
double lhi_cpu_chunk_bytes(const lhi_cpu *cpu, const lhi_cpu_chunk *chunk);
/* make_scratch() and make_angles() of cpu.c. */
double lhi_cpu_scratch_bytes(const lhi_cpu *cpu);
/* The items of W of a chunk whose numbers are there. */
lh_status lhi_cpu_items(const lhi_cpu *cpu, lhi_arena *mem,
                        lhi_cpu_chunk *chunk, lh_error *err);

/* Weights, gradients, names, W's items; values are drawn from the seed. */
lh_status lhi_cpu_tensors(lhi_cpu *cpu, const lhi_cpu_options *options,
                          lhi_cpu_chunk *chunk, lh_error *err);

/* y = x w', dx = dy w, dw (+)= dy' x; w is [out][in]. */
void lhi_cpu_forward_product(const lhi_cpu *cpu, const float *x, const float *w,
                             float *y, uint32_t rows, uint32_t in, uint32_t out,
                             bool adds);
void lhi_cpu_input_product(const lhi_cpu *cpu, const float *dy, const float *w,
                           float *dx, uint32_t rows, uint32_t in, uint32_t out);
void lhi_cpu_weight_product(const lhi_cpu *cpu, const float *dy, const float *x,
                            float *dw, uint32_t rows, uint32_t in, uint32_t out,
                            bool adds);

/* Turns queries and keys in their place, by their positions. */
void lhi_cpu_turn(const lhi_cpu *cpu, lhi_cpu_kept *kept);
/* Turned kept->qkv to kept->attended: fills max and inv. */
void lhi_cpu_attend(lhi_cpu *cpu, lhi_cpu_kept *kept);
/* The gradient of `attended` (d, [t][q]) to that of qkv, in its place. */
void lhi_cpu_attend_back(lhi_cpu *cpu, lhi_cpu_kept *kept, const float *d);

lh_status lhi_cpu_f(lhi_cpu *cpu, lhi_cpu_chunk *chunk, uint32_t microbatch,
                    const float *in, float *out, lh_error *err);
/* `joint`: W of each layer follows at once, but for the first one's, so that
 * what was made again is there for one layer at a time. */
lh_status lhi_cpu_d(lhi_cpu *cpu, lhi_cpu_chunk *chunk, uint32_t microbatch,
                    bool joint, const float *in, float *out, lh_error *err);
/* The weights of a layer take the microbatch, or will in its turn. */
void lhi_cpu_ask_layer(lhi_cpu *cpu, lhi_cpu_chunk *chunk, uint32_t layer,
                       uint32_t microbatch);

/* --- parts that are made again (cpu_again.c) -------------------------------
 */

/* Gives a layer room for its parts of `again`; false: no memory. The room is
 * one that lhi_cpu_detach() has left, or new. */
bool lhi_cpu_attach(lhi_cpu *cpu, lhi_cpu_kept *kept, uint32_t again);
/* The same with room of its own, for good. */
bool lhi_cpu_attach_kept(lhi_cpu *cpu, lhi_cpu_kept *kept, uint32_t parts);
/* Takes that back, where it is. */
void lhi_cpu_detach(lhi_cpu *cpu, lhi_cpu_kept *kept, uint32_t again);
/* Fills them, as F did, from x, the layer's input, and what was kept. */
void lhi_cpu_make_again(lhi_cpu *cpu, const lhi_cpu_weights *w,
                        lhi_cpu_kept *kept, const float *x, uint32_t again);
/* Floats of a part in one row of a microbatch (cpu_memory.c). */
size_t lhi_cpu_columns(const lhi_cpu *cpu, lh_layer_part part);
/* Whether an item of W belongs to this part of it. */
bool lhi_cpu_in_part(const lhi_cpu_chunk *chunk, const lhi_cpu_item *item,
                     const lh_pass *pass);
/* Whether it is one of a layer's. */
bool lhi_cpu_in_layer(const lhi_cpu_item *item);
lh_status lhi_cpu_w(lhi_cpu *cpu, lhi_cpu_chunk *chunk, const lh_pass *pass,
                    lh_error *err);

#endif
