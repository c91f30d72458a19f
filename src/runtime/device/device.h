/* SPDX-License-Identifier: Apache-2.0 */
/* The device interface: a device computes one rank's passes. It runs one pass
 * at a time, in the order given by the caller, and does not transfer messages
 * between passes. One thread at a time may call it.
 *
 * A device receives passes and their inputs; it returns outputs, execution
 * times and finally gradients. Files:
 *
 *     timed.c                 device that sleeps for the pipeline's pass times
 *     cpu.c                   device that trains models in float32:
 *     families.c              model families and their tensor names
 *     cpu_parameters.c        weights; cpu_memory.c: sizes;
 *                             cpu_memory_estimate.c: memory of a schedule
 *     cpu_forward.c           F
 *     cpu_attention.c         attention, forward and backward
 *     cpu_latent_attention.c  queries and keys from latents; per-head norms
 *     cpu_context_parallel.c  attention over ranks that share sequences
 *     cpu_slices.c            keys and values of sliced sequences
 *     cpu_layer.c             products, norms; cpu_dropout.c
 *     cpu_backward.c          D
 *     cpu_tensor_parallel.c   collectives among ranks that share layers
 *     tensor_slices.c         slices of tensors under tensor parallelism
 *     cpu_weight_gradients.c  W, in units that can be split and deferred
 *     cpu_kernels*.c          float loops for three instruction sets
 *     cpu_offload.c           activations offloaded to storage.h
 *     cpu_mtp.c               multi-token prediction modules
 *     cpu_embedding_head.c    embedding and head, for model and modules
 *     thread_team.c           threads of a rank, for large products
 *     blas.c                  matrix products: OpenBLAS, loaded at run time
 *     data.c                  a microbatch's tokens; token_file.c: from a file
 *     tokenizer.c             text to tokens; pretokenizer.c, unicode.h: words;
 *                             nfc.c: Unicode's normal form
 */
#ifndef LHI_RUNTIME_DEVICE_DEVICE_H
#define LHI_RUNTIME_DEVICE_DEVICE_H

#include "runtime/device/blas.h"
#include "runtime/device/storage.h"
#include "runtime/device/tensor_slices.h"
#include "runtime/transport/group.h"
#include "schedule/pipeline/offload.h"

#include <longhaul/experimental/engine.h>
#include <longhaul/experimental/model.h>
#include <longhaul/pipeline.h>
#include <longhaul/schedule.h>
#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

typedef struct lhi_device lhi_device;

/* One trained tensor of a chunk. Names are Hugging Face's, for example Llama's
 * "model.layers.3.self_attn.q_proj.weight". */
typedef struct lhi_tensor {
    const char *name;
    float *value, *gradient; /* n each; the gradient is summed over the step's
                              * microbatches in order */
    size_t n;                /* local values */
    uint32_t rows, columns;  /* full tensor; columns 0: a vector */
    lhi_slice slice;         /* local slice */
    bool decays;             /* weight decay applies (not to norms) */
    /* Router bias for load balancing, updated by a fixed amount per step and
     * not by gradient descent. The gradient's sign gives the direction: above
     * 0, the value decreases; below 0, it increases. */
    bool balances;
    bool is_expert; /* an expert's; other ranks may have other experts */
    /* Tied embeddings: chunk 0's embedding and the last chunk's head (or its
     * modules' embedding) are one tensor. Each chunk has its own copy, even if
     * both are on one device or are one chunk. The two copies' gradients have
     * to be added, the embedding's first. The value is the chunk with the other
     * copy; LH_NONE: not tied. */
    uint32_t tied_chunk;
    bool is_head;   /* tied: this is the last chunk's copy */
    uint32_t index; /* model order: embedding, layers, norm, head, modules */
} lhi_tensor;

/* A pass's execution time, CLOCK_MONOTONIC. end_ns is the end by the device's
 * own accounting. On the timed device it is the pass's deadline, which also
 * dates the messages sent then. */
typedef struct lhi_span {
    int64_t start_ns, end_ns;
} lhi_span;

/* A step's purpose. */
typedef enum lhi_step_kind {
    LHI_STEP_TRAIN,
    LHI_STEP_VALIDATE, /* F only, on validation data; tensors and gradients stay
                        * unchanged */
} lhi_step_kind;

/* The chunk's leading tensors whose values, or gradients, have no permanent
 * memory on the device: number of tensors, and total floats, contiguous. */
typedef struct lhi_sharded_tensors {
    uint32_t n_values, n_gradients;
    size_t values, gradients;
    size_t expert_values; /* values that belong to experts */
} lhi_sharded_tensors;

/* Groups of ranks that compute a pass together; NULL: no such parallelism. */
typedef struct lhi_device_groups {
    lhi_group *tensor, *context, *expert, *expert_tensor;
    lhi_group *intra_node_expert; /* members of `expert` on this node */
} lhi_device_groups;

/* A part of a chunk, the unit of per-layer sharding (FSDP): the embedding, a
 * layer, or the head with its norm, in forward order. */
typedef struct lhi_device_part {
    uint32_t first_tensor, n_tensors;
    size_t first_value, n_values; /* values: offset in the chunk, count */
} lhi_device_part;

/* Callbacks into the owner of parameters that are sharded layer by layer. run()
 * calls them in an order that depends only on its passes, and fails if they
 * fail. */
typedef struct lhi_device_part_hooks {
    void *context;
    /* Requests a part's values, and announces `then` as the next part (LH_NONE:
     * none). *room receives a buffer that is valid until the next call. */
    lh_status (*values)(void *context, uint32_t chunk, uint32_t part,
                        uint32_t then, float **room, lh_error *err);
    /* gradients() returns a buffer for one microbatch's gradients of a part.
     * scatter() reports that they are complete and hands the buffer back to the
     * caller. `nth` counts the part's microbatches in this step. */
    lh_status (*gradients)(void *context, uint32_t chunk, uint32_t part,
                           float **room, lh_error *err);
    void (*scatter)(void *context, uint32_t chunk, uint32_t part, uint32_t nth);
    /* Reports a pass's end. */
    lh_status (*ended)(void *context, const lh_pass *pass, lh_error *err);
} lhi_device_part_hooks;

/* Operations of a device. */
typedef struct lhi_device_ops {
    const char *name; /* "timed", "cpu" */
    void (*close)(lhi_device *device);
    /* Returns the bytes that F of `chunk` sends to the next chunk (backward:
     * that D or B sends to the previous one); 0 at the model's ends. */
    size_t (*message_bytes)(const lhi_device *device, uint32_t chunk,
                            bool backward);
    /* Starts a step: zeroes the gradients (unless it validates) and drops all
     * activations. The data depend only on `step`, counted from 0 for each
     * kind, so a resumed run continues at the step after the last completed
     * one. Tensor values may be changed between steps, and until their chunk's
     * first F. */
    lh_status (*begin)(lhi_device *device, uint64_t step, lhi_step_kind kind,
                       lh_error *err);
    /* Runs one pass. `in`: the input message (NULL: none needed); `out`: buffer
     * for the output message (NULL: none). `ready_ns`: the time at which all
     * inputs were available by the senders' clocks, and not before the device's
     * last pass ended; the call comes at or after it. After a chunk's last W
     * (or B) in a step its gradients are complete. W passes may come in any
     * order. */
    lh_status (*run)(lhi_device *device, const lh_pass *pass, const void *in,
                     void *out, int64_t ready_ns, lhi_span *span,
                     lh_error *err);
    /* After all passes of a step, returns the sum of the last chunk's losses
     * over microbatches, in nats per token times tokens. *has is false if the
     * device has no loss. */
    lh_status (*loss)(lhi_device *device, double *sum, uint64_t *tokens,
                      bool *has, lh_error *err);
    /* Then, in training steps, returns the same sum for the mean loss of the
     * multi-token prediction modules; 0: no modules. NULL on a device without
     * losses. */
    double (*modules_loss)(const lhi_device *device);
    /* Returns a chunk's tensors; 0 on a device that trains nothing. Borrowed.
     */
    uint32_t (*n_tensors)(const lhi_device *device, uint32_t chunk);
    lhi_tensor *(*tensor)(lhi_device *device, uint32_t chunk, uint32_t i);
    /* Returns the peak memory so far in bytes, tensors included; 0: unknown. */
    size_t (*peak_bytes)(const lhi_device *device);
    /* Adds the peak memory by kind to bytes[]. */
    void (*add_memory)(const lhi_device *device,
                       int64_t bytes[LH_N_MEMORY_KINDS]);
    /* Sharded tensors; NULL on a device that trains nothing. Until finalise()
     * all values are resident and may be changed; afterwards the sharded ones
     * have no memory here. Before a pass the caller provides buffers for values
     * and gradients and keeps them until it withdraws them with NULL. The
     * buffer's values are current; its gradients cover n_microbatches from
     * `first_microbatch` on. */
    lhi_sharded_tensors (*sharded_tensors)(const lhi_device *device,
                                           uint32_t chunk);
    void (*finalise)(lhi_device *device);
    void (*set_sharded_values)(lhi_device *device, uint32_t chunk, float *room);
    void (*set_sharded_gradients)(lhi_device *device, uint32_t chunk,
                                  float *room, uint32_t first_microbatch,
                                  uint32_t n_microbatches);
    /* Sets the groups, borrowed, before the first step. Passes call their
     * collectives. All members call them in the same order, which depends only
     * on their pass order. NULL on a device that computes alone. */
    void (*join)(lhi_device *device, const lhi_device_groups *groups);
    /* With per-layer sharding these callbacks provide the buffers, rather than
     * the two functions above, from finalise() on. A chunk's parts; borrowed.
     */
    uint32_t (*n_parts)(const lhi_device *device, uint32_t chunk);
    const lhi_device_part *(*part)(const lhi_device *device, uint32_t chunk,
                                   uint32_t i);
    void (*set_part_hooks)(lhi_device *device,
                           const lhi_device_part_hooks *hooks);
    /* Sets a part's values between steps: they are in the given buffer. */
    void (*set_part_values)(lhi_device *device, uint32_t chunk, uint32_t i,
                            float *room);
    /* Starts a copy of a microbatch's offloaded activations to storage after F,
     * or back before D or B. Copies run in the order in which they are started.
     * A copy takes at least `least_ns`. NULL on a device without activations.
     */
    lh_status (*copy)(lhi_device *device, const lhi_offload_copy *what,
                      int64_t least_ns, lh_error *err);
    /* Waits until `until_ns` for the step's first `n` copies; returns whether
     * they are done. copied() returns the times of copy `i`, which must be
     * done. */
    bool (*wait_copies)(lhi_device *device, uint32_t n, int64_t until_ns);
    lhi_storage_times (*copy_times)(lhi_device *device, uint32_t i);
} lhi_device_ops;

/* Base of every device; its first member. */
struct lhi_device {
    const lhi_device_ops *ops;
};

/* Creates a timed device (src/runtime/device/timed.c): a pass takes its
 * duration in the pipeline. Deadlines are chained from `ready_ns`, so that late
 * wake-ups do not accumulate. A pass that starts more than `slip_ns` after
 * ready_ns is timed from its actual start. Messages have `message_bytes` bytes.
 */
lh_status lhi_device_timed(const lh_pipeline *pipeline, uint32_t device,
                           size_t message_bytes, int64_t slip_ns,
                           lhi_device **out, lh_error *err);

/* The cpu device (src/runtime/device/cpu.c): real training in fp32 or bf16. */
typedef struct lhi_data lhi_data; /* src/runtime/device/data.h */

/* Options for lhi_device_cpu(). */
typedef struct lhi_cpu_options {
    const lh_model *model;           /* borrowed */
    double norm_epsilon, rope_theta; /* 0: defaults, 1e-5 and 10000 */
    /* Chunk c has layers first_layers[c] to first_layers[c + 1] - 1 (possibly
     * none). Chunk 0 also has the embedding, the last one the final norm and
     * head. In a bidirectional pipeline the second half of the chunks are
     * copies of the first half, in order, with their own microbatches:
     * microbatch m of the copies has the samples of m + n_microbatches. */
    uint32_t n_chunks;
    bool bidirectional;
    const uint32_t *first_layers; /* copies excluded, and the end; copied */
    uint32_t n_mine;
    const uint32_t *mine; /* this device's chunks; copied */
    /* Recomputation by model layer: parts that F does not keep and D
     * recomputes, bits 1 << lh_layer_part; copied. NULL: none. */
    const uint32_t *recompute;
    /* Offload by model layer: activations that F keeps and D does not recompute
     * go to storage, an unnamed file in the folder; copied. NULL: none. */
    const bool *offload;
    const char *offload_to;
    /* Sharded share of each chunk, 0 to 1, rounded to whole weight products.
     * The share of parameters is at most that of gradients. */
    double sharded_gradients, sharded_parameters;
    bool shards_by_layer; /* per-layer sharding; each share is 1, or parameters
                             0 */
    uint32_t microbatch;  /* sequences */
    uint32_t sequence;    /* tokens per sequence */
    uint32_t n_microbatches;
    /* Microbatches that run on chunk mine[i], in ascending order: n_own[i]
     * entries from own + i * n_microbatches on; copied. NULL: all. Others are
     * on other devices. Requires whole tensors and sequences here. */
    const uint32_t *n_own, *own;
    /* Slices of each sequence: microbatch q * n_slices + s is slice s of the
     * q-th sequences. 0, 1: microbatches have whole sequences. */
    uint32_t n_slices;
    uint32_t replica, n_replicas; /* data parallelism */
    /* With unequal microbatches: sequences per step over all replicas, and over
     * the earlier ones. 0: as many in each replica. */
    uint64_t step_sequences, first_sequence;
    /* Context parallelism: this rank's index and the number of ranks that share
     * each sequence; 0, 0: none. Requires join(). */
    uint32_t context, n_contexts;
    /* Tensor parallelism: ranks that share layers, vocabulary and, between
     * products, rows; 0, 0: none. Requires join(). */
    uint32_t n_tensor, tensor;
    bool replicates_rows; /* no sequence parallelism: every rank has all rows
                           * between products */
    /* Expert parallelism: ranks with different experts, equal numbers each; 0,
     * 0: none. Requires join(). */
    uint32_t n_expert, expert;
    /* Node by expert-parallel rank, for node-aware dispatch: a row is sent once
     * to each node that has some of its experts and is forwarded there. NULL:
     * one copy per expert. Copied. */
    const uint32_t *expert_nodes;
    /* Expert tensor parallelism: consecutive ranks that have parts of the same
     * experts; 0, 0: whole experts. If these are the tensor-parallel ranks and
     * there is no expert parallelism, experts are cut like layers. Otherwise
     * join() must provide the group. */
    uint32_t n_expert_tensor, expert_tensor;
    /* for initial weights, by tensor; for dropout */
    uint64_t seed;
    double dropout; /* dropout probability for scores, attention and MLP outputs
                     * and the embedding, 0 <= p < 1 */
    double
        balance_weight; /* weight of the expert load-balancing loss; 0: none */
    double expert_capacity; /* capacity factor: an expert's maximum per sequence
                             * relative to an equal share; 0: unlimited */
    bool bf16; /* products in bf16 with fp32 master weights (cpu_product.h);
                * false: fp32 */
    const lhi_data *data; /* borrowed, thread-safe; NULL if neither chunk 0 nor
                           * the last one is here */
    lhi_sgemm sgemm;  /* from lhi_blas_load() with as many callers as devices'
                       * threads run concurrently; NULL: loaded here */
    uint32_t threads; /* threads of the device's matrix products; 0: 1 */
} lhi_cpu_options;

/* Predicts a cpu device's memory when each step has the given passes of its
 * chunks and offload copies, in order. Adds bytes by kind to bytes[]. Uses
 * doubles, since sizes may exceed 64 bits. Neither reads `data` nor checks the
 * passes. */
lh_status lhi_cpu_estimate_memory(const lhi_cpu_options *options,
                                  const lh_pass *passes, uint32_t n_passes,
                                  const lhi_offload_copy *copies,
                                  uint32_t n_copies,
                                  double bytes[LH_N_MEMORY_KINDS],
                                  lh_error *err);
/* Returns the bytes of activations that chunk mine[i] offloads to storage per
 * microbatch. */
double lhi_cpu_estimate_offload_bytes(const lhi_cpu_options *options,
                                      uint32_t i);
/* Counts the sharded parameters and gradients of chunk mine[i], in floats;
 * does not count their tensors (n_values and n_gradients are 0). */
lh_status lhi_cpu_compute_sharded_tensors(const lhi_cpu_options *options,
                                          uint32_t i, lhi_sharded_tensors *out,
                                          lh_error *err);
/* Part sizes of a chunk under per-layer sharding: number of parts, and values
 * in the largest part, in the largest without its experts, and in one part's
 * experts. */
typedef struct lhi_cpu_part_sizes {
    uint32_t n;
    double largest, largest_without_experts, experts;
} lhi_cpu_part_sizes;
/* Computes the sizes of chunk mine[i]'s parts, the units of per-layer
 * sharding. */
lhi_cpu_part_sizes lhi_cpu_compute_part_sizes(const lhi_cpu_options *options,
                                              uint32_t i);
/* Counts this rank's parameter tensors of chunk mine[i]. */
uint32_t lhi_cpu_count_tensors(const lhi_cpu_options *options, uint32_t i);
/* Counts this rank's expert parameters of chunk mine[i]. */
double lhi_cpu_count_expert_parameters(const lhi_cpu_options *options,
                                       uint32_t i);
/* Counts this rank's parameters of chunk mine[i]. */
double lhi_cpu_count_parameters(const lhi_cpu_options *options, uint32_t i);
/* Counts this rank's parameters in the embedding; the head has as many. */
double lhi_cpu_count_embedding_parameters(const lhi_cpu_options *options);
/* Returns a pipeline message's bytes (activations or gradients) between two
 * chunks. */
size_t lhi_cpu_message_bytes(const lhi_cpu_options *options);

/* Creates a cpu device. LH_EUNSUPPORTED: the model family is not supported, or
 * OpenBLAS is not installed; `err` has the cause and the remedy. Open a
 * process's first device before starting threads, because it loads OpenBLAS. */
lh_status lhi_device_cpu(const lhi_cpu_options *options, lhi_device **out,
                         lh_error *err);

#endif
