/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank computes with: one interface, several devices. A device runs the
 * passes of one rank, one at a time and in the order that it is told; messages
 * between passes are not its business. All calls are made by one thread at a
 * time.
 *
 * What goes in is a pass and its input; what comes out is its output, when it
 * ran, and in the end gradients. Where each idea is:
 *
 *   timed.c             a device that sleeps as long as the pipeline says
 *   cpu.c               a device that trains models in float32:
 *   families.c          ... of which kinds, and what their tensors are called
 *   cpu_tensors.c       ... its weights (where they lie, and how much it
 *                       holds: cpu_memory.c; of a schedule: cpu_predict.c)
 *   cpu_forward.c       ... F; cpu_attention.c: attention, both ways;
 *                       cpu_latent.c: what its queries and keys come of;
 *                       cpu_context.c: over ranks that share sequences;
 *                       cpu_layer.c: products, norms; cpu_dropout.c
 *   cpu_backward.c      ... D
 *   cpu_tensor.c        ... what ranks that share layers tell each other
 *   slices.c            ... and what of a tensor each of them has
 *   cpu_weights.c       ... W, in units that can be cut and put off
 *   cpu_kernels*.c      loops over floats, for three kinds of processor
 *   cpu_offload.c       activations that leave it for storage.h
 *   cpu_modules.c       modules that predict further tokens; cpu_ends.c: the
 *                       embedding and the head, theirs and the model's
 *   blas.c              matrix products: OpenBLAS, loaded at run time
 *   data.c              tokens of a microbatch, from a file of tokens or text
 *   tokenizer.c         text to tokens; split_words.c, unicode.h: its words */
#ifndef LHI_DEV_H
#define LHI_DEV_H

#include "dev/blas.h"
#include "dev/slices.h"
#include "dev/storage.h"
#include "net/group.h"
#include "pipe/offload.h"

#include <longhaul/engine.h>
#include <longhaul/model.h>
#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

typedef struct lhi_device lhi_device;

/* One trained tensor of a chunk. Names are Hugging Face's, of Llama as
 * "model.layers.3.self_attn.q_proj.weight". */
typedef struct lhi_tensor {
    const char *name;
    float *value, *gradient; /* n each; the gradient is summed over the
                                microbatches of a step, in their order */
    size_t n;               /* that are here */
    uint32_t rows, columns; /* of the whole; columns 0: a vector */
    lhi_slice slice;        /* what of it is here */
    bool decays;            /* weight decay applies (not to norms) */
    /* Not trained by its gradient, which says of each value whether it is to
     * shrink (above 0) or to grow, by one amount each step: a router's bias that
     * balances experts. */
    bool balances;
    bool is_expert; /* of an expert: other ranks may have others */
    /* Tied embeddings: chunk 0's embedding and the last chunk's head, or its
     * modules' embedding, are one tensor, of which each chunk has its own copy,
     * also where both are on one device or are one chunk. Their gradients have
     * to be added, the embedding's first. The chunk that has the other copy;
     * LH_NONE: none. */
    uint32_t tied_chunk;
    bool is_head; /* of a tied pair: the last chunk's copy */
    uint32_t index; /* in the model's order: embedding, layers, norm, head,
                       modules */
} lhi_tensor;

/* When a pass ran, CLOCK_MONOTONIC. `end_ns` is when it ended by the device's
 * own reckoning: on the timed device its deadline, which the messages that
 * leave then are dated by. */
typedef struct lhi_span {
    int64_t start_ns, end_ns;
} lhi_span;

/* What a step is for. */
typedef enum lhi_step_kind {
    LHI_STEP_TRAIN,
    LHI_STEP_VALIDATE, /* F passes alone, on the validation data; tensors and
                          gradients stay as they are */
} lhi_step_kind;

/* The first tensors of a chunk whose values, or gradients, the device keeps no
 * room for: how many, and so many floats, one tensor after the other. */
typedef struct lhi_sharded_tensors {
    uint32_t n_values, n_gradients;
    size_t values, gradients;
    size_t expert_values; /* of experts among these */
} lhi_sharded_tensors;

/* Ranks that compute a pass together; NULL: the device is alone in it. */
typedef struct lhi_device_groups {
    lhi_group *tensor, *context, *expert, *expert_tensor;
    lhi_group *near_expert; /* of `expert`, those on one node */
} lhi_device_groups;

/* Of a chunk, what is sharded at a time where that goes layer by layer: the
 * embedding, a layer, or the head with its norm, as the forward comes by
 * them. */
typedef struct lhi_device_part {
    uint32_t first_tensor, n_tensors;
    size_t at, n; /* values: the first of the chunk's, and how many */
} lhi_device_part;

/* Whoever has what is sharded layer by layer. run() calls these, in an order
 * that follows from its passes alone; it fails as they do. */
typedef struct lhi_part_hooks {
    void *context;
    /* A pass needs the part, and `then` after it (LH_NONE: no other one): room
     * with its values, which are good until the next call. */
    lh_status (*values)(void *context, uint32_t chunk, uint32_t part,
                        uint32_t then, float **room, lh_error *err);
    /* Room that the gradients of one microbatch go to, and that they are there;
     * *room is the caller's again with that. Microbatches come in order. */
    lh_status (*gradients)(void *context, uint32_t chunk, uint32_t part,
                           float **room, lh_error *err);
    void (*scatter)(void *context, uint32_t chunk, uint32_t part,
                    uint32_t microbatch);
    /* The pass is through. */
    lh_status (*ended)(void *context, const lh_pass *pass, lh_error *err);
} lhi_part_hooks;

typedef struct lhi_device_ops {
    const char *name; /* "timed", "cpu" */
    void (*close)(lhi_device *device);
    /* Bytes of what F of `chunk` hands to the next chunk (backward: of what
     * D or B hands to the previous one); 0 at the model's ends. */
    size_t (*message_bytes)(const lhi_device *device, uint32_t chunk,
                            bool backward);
    /* A step begins: gradients are zero (unless it validates), activations
     * gone. The data follow from `step` alone (of its kind, from 0), so that a
     * resumed run begins with the step at which the other one stopped. Tensor
     * values may be changed between steps, and until the first F of their
     * chunk. */
    lh_status (*begin)(lhi_device *device, uint64_t step, lhi_step_kind kind,
                       lh_error *err);
    /* Runs one pass. `in`: the message it needs (NULL where none is);
     * `out`: room for the message it makes (NULL where none is).
     * `ready_ns`: when all that it needs was there, by the senders' reckoning
     * (not before the device's last pass ended); the call is made at or
     * after it. After the chunk's last W (or B) of the step the gradients of
     * its tensors are complete; W passes may come in any order. */
    lh_status (*run)(lhi_device *device, const lh_pass *pass, const void *in,
                     void *out, int64_t ready_ns, lhi_span *span,
                     lh_error *err);
    /* After all passes of a step: the sum of the losses of the microbatches
     * that the last chunk has seen, in nats per token times tokens; *has is
     * false where the device has no loss. */
    lh_status (*loss)(lhi_device *device, double *sum, uint64_t *tokens,
                      bool *has, lh_error *err);
    /* Then, of a step that trains: the sum likewise of the mean of what modules
     * that predict further tokens lose; 0: there are none. NULL on a device that
     * has no loss. */
    double (*modules_loss)(const lhi_device *device);
    /* Tensors of a chunk; 0 on a device that trains nothing. Borrowed. */
    uint32_t (*n_tensors)(const lhi_device *device, uint32_t chunk);
    lhi_tensor *(*tensor)(lhi_device *device, uint32_t chunk, uint32_t i);
    /* The most bytes held at once so far, tensors included; 0: not known. */
    size_t (*peak_bytes)(const lhi_device *device);
    /* These by kind, added to bytes[]. */
    void (*held)(const lhi_device *device, int64_t bytes[LH_N_MEMORY_KINDS]);
    /* Sharded tensors; NULL on a device that trains nothing. Until settle() all
     * values are there (and may be changed); then those that are sharded are
     * nowhere. Before a pass they, and its gradients, are given room, which the
     * caller keeps until they are elsewhere: values are as the caller has them,
     * gradients are of n_microbatches from `first_microbatch` on. NULL: they are
     * gone. */
    lhi_sharded_tensors (*sharded)(const lhi_device *device, uint32_t chunk);
    void (*settle)(lhi_device *device);
    void (*place_values)(lhi_device *device, uint32_t chunk, float *room);
    void (*place_gradients)(lhi_device *device, uint32_t chunk, float *room,
                            uint32_t first_microbatch, uint32_t n_microbatches);
    /* Before the first step: the groups that it computes in, borrowed. Passes
     * call their collectives, all members the same ones in the same order,
     * which follows from the order of their passes. NULL: on a device that
     * computes alone. */
    void (*join)(lhi_device *device, const lhi_device_groups *groups);
    /* Where sharding goes layer by layer these give room, in the place of both,
     * from settle() on. Parts of a chunk; borrowed. */
    uint32_t (*n_parts)(const lhi_device *device, uint32_t chunk);
    const lhi_device_part *(*part)(const lhi_device *device, uint32_t chunk,
                                   uint32_t i);
    void (*hook_parts)(lhi_device *device, const lhi_part_hooks *hooks);
    /* Between steps: the part's values are in that room. */
    void (*show_part)(lhi_device *device, uint32_t chunk, uint32_t i,
                      float *room);
    /* What a chunk's F has left of a microbatch, of those of its layers that
     * the device was told, goes to storage, or comes back before D or B: begins
     * it, behind what was begun before in the step. It lasts `least_ns` at
     * least. NULL: a device that keeps nothing. */
    lh_status (*copy)(lhi_device *device, const lhi_offload *what,
                      int64_t least_ns, lh_error *err);
    /* Waits for the first `n` copies of the step, not beyond `until_ns`:
     * whether they are done; and when copy `i`, of these, was. */
    bool (*await_copies)(lhi_device *device, uint32_t n, int64_t until_ns);
    lhi_copied (*copied)(lhi_device *device, uint32_t i);
} lhi_device_ops;

/* The first member of every device. */
struct lhi_device {
    const lhi_device_ops *ops;
};

/* timed (src/dev/timed.c): a pass takes its time in the pipeline. Deadlines
 * are chained from `ready_ns`, so that being woken late does not add up; a pass
 * that could only start more than `slip_ns` after ready_ns counts from then. A
 * message has `message_bytes` bytes. */
lh_status lhi_device_timed(const lh_pipeline *pipeline, uint32_t device,
                           size_t message_bytes, int64_t slip_ns,
                           lhi_device **out, lh_error *err);

/* cpu (src/dev/cpu.c): real training in float32. */
typedef struct lhi_data lhi_data; /* src/dev/data.h */

typedef struct lhi_cpu_options {
    const lh_model *model;           /* borrowed */
    double norm_epsilon, rope_theta; /* 0: 1e-5 and 10000 */
    /* Chunk c has layers first_layers[c] to first_layers[c + 1] - 1 (may be
     * none); chunk 0 the embedding too, the last one final norm and head. */
    uint32_t n_chunks;
    const uint32_t *first_layers; /* n_chunks + 1; copied */
    uint32_t n_mine;
    const uint32_t *mine; /* the chunks of this device; copied */
    /* By layer of the model: parts that F does not keep and D makes again, bits
     * 1 << lh_layer_part; copied. NULL: none. */
    const uint32_t *again;
    /* By layer of the model: what of it F keeps and no `again` makes goes to
     * storage, a file without a name in the folder; copied. NULL: nothing. */
    const bool *offload;
    const char *offload_to;
    /* Of each chunk, 0 to 1; as many of its weights' products as come nearest.
     * Parameters are at most gradients. */
    double sharded_gradients, sharded_parameters;
    bool by_layer; /* these are 1, or parameters 0, and it goes layer by layer */
    uint32_t microbatch; /* sequences */
    uint32_t sequence;   /* tokens of one */
    uint32_t n_microbatches;
    uint32_t replica, n_replicas; /* of data parallelism */
    /* Which of how many ranks this is that share each sequence; 0, 0: it is
     * alone. They have a group (join()). */
    uint32_t context, n_contexts;
    /* Of ranks that share layers, vocabulary and, between products, rows; 0, 0:
     * it has them alone. Otherwise it has to join() their group. */
    uint32_t n_tensor, tensor;
    bool whole_rows; /* these have all rows between products, each the same */
    /* Of ranks that have different experts, as many each; likewise. */
    uint32_t n_expert, expert;
    /* By such a rank, the node that it is on: a row goes once to each node that
     * has some of its experts, and is handed on there. NULL: a copy goes to each
     * expert. Copied. */
    const uint32_t *expert_nodes;
    /* Of ranks that have parts of the same experts, one after the other; 0, 0:
     * experts are whole. Where these are the ones that share layers, and no
     * other ranks have other experts, experts are cut as layers are; otherwise
     * it has to join() their group. */
    uint32_t n_expert_tensor, expert_tensor;
    uint64_t seed;                /* of the first weights, by tensor; of dropout */
    double dropout; /* share of scores, of what attention and MLP add and of the
                       embedding that training drops, 0 <= share < 1 */
    double balance; /* with experts: what the part of the loss that balances
                       them is times; 0: there is none */
    double expert_capacity; /* what an expert takes of a sequence, in times of
                               what each would if all had the same; 0: all */
    const lhi_data *data; /* borrowed; may be shared by devices of all threads;
                             NULL where neither chunk 0 nor the last is here */
    lhi_sgemm sgemm; /* from lhi_blas_load(), for as many callers as there are
                        devices that run at a time; NULL: it is loaded here,
                        for one */
} lhi_cpu_options;

/* The bytes that such a device comes to hold when each step has these passes of
 * its chunks in this order, and these copies, added by kind to bytes[]. In
 * doubles, since what does not fit may well not fit into 64 bits. `data` is not
 * looked at, nor is whether the passes make sense. */
lh_status lhi_cpu_predict(const lhi_cpu_options *options, const lh_pass *passes,
                          uint32_t n_passes, const lhi_offload *copies,
                          uint32_t n_copies, double bytes[LH_N_MEMORY_KINDS],
                          lh_error *err);
/* What leaves of chunk mine[i] with each microbatch. */
double lhi_cpu_offloaded(const lhi_cpu_options *options, uint32_t i);
/* What of chunk mine[i] is sharded; the numbers of tensors are left out. */
lh_status lhi_cpu_sharded(const lhi_cpu_options *options, uint32_t i,
                          lhi_sharded_tensors *out, lh_error *err);
/* Of the parts of chunk mine[i], where that goes layer by layer: how many there
 * are, and values of the largest, of the largest without experts, and of the
 * experts of one. */
typedef struct lhi_cpu_part_sizes {
    uint32_t n;
    double all, most, experts;
} lhi_cpu_part_sizes;
lhi_cpu_part_sizes lhi_cpu_parts_of(const lhi_cpu_options *options, uint32_t i);
/* Tensors of chunk mine[i] that are here. */
uint32_t lhi_cpu_tensors_of(const lhi_cpu_options *options, uint32_t i);
/* Those of experts among them. */
double lhi_cpu_expert_parameters(const lhi_cpu_options *options, uint32_t i);
/* The parameters of chunk mine[i] that are here, each of them a float; and
 * those of the embedding, or the head. */
double lhi_cpu_parameters(const lhi_cpu_options *options, uint32_t i);
double lhi_cpu_embedding(const lhi_cpu_options *options);
/* Of a message between two chunks. */
size_t lhi_cpu_message_bytes(const lhi_cpu_options *options);

/* LH_EUNSUPPORTED: the model is of no kind that is trained here, or OpenBLAS
 * is not installed; `err` says which and what to do. Open the first device of a
 * process before it starts threads: OpenBLAS is loaded then. */
lh_status lhi_device_cpu(const lhi_cpu_options *options, lhi_device **out,
                         lh_error *err);

#endif
