/* SPDX-License-Identifier: Apache-2.0 */
/* What a piece of a model costs on a GPU: time of the forward (F), input
 * gradient (D) and weight gradient (W) passes, memory, messages, collectives.
 * Pure functions of a job and a layout; docs/theory/cost-model.md derives every
 * formula, docs/validation.md compares them with measured runs.
 *
 * Sources, as the comments below cite them:
 *   [Kor]  Korthikanti et al., Reducing Activation Recomputation in Large
 *          Transformer Models, arXiv:2205.05198
 *   [Nar]  Narayanan et al., Efficient Large-Scale Language Model Training on
 *          GPU Clusters Using Megatron-LM, arXiv:2104.04473
 *   [Raj]  Rajbhandari et al., ZeRO, arXiv:1910.02054
 *   [Qi]   Qi et al., Zero Bubble Pipeline Parallelism, arXiv:2401.10241
 *   [Dao]  Dao, FlashAttention-2, arXiv:2307.08691
 *   [Tha]  Thakur, Rabenseifner, Gropp, Optimization of Collective
 *          Communication Operations in MPICH, IJHPCA 19(1), 2005
 *   [CP]   CrossPipe, arXiv:2507.00217, appendix E
 *   [SX]   ScaleAcross Explorer: Exploring Communication Optimization for
 *          Scale-Across AI Model Training, 2026
 *
 * GPUs are numbered tensor first, then context, and then data before pipeline
 * (pipeline outermost, also where the layout does not say) or pipeline before
 * data (data outermost). The tensor x context GPUs of one pipeline rank share
 * every microbatch: `micro_batch` counts the sequences that they process
 * together, and a GPU sees micro_batch * sequence / context tokens.
 *
 * Experts are spread inside the tensor x context x data ranks of a pipeline
 * stage (MoE Parallel Folding, arXiv:2504.14960): counted in the order above,
 * the first expert x expert_tensor have all the experts of a layer, so do the
 * next, and so on; tensor * context * data = expert * expert_tensor * copies.
 * Megatron-LM's tensor, context, expert, expert-tensor, pipeline and data
 * parallel sizes and its micro-batch size are these numbers. */
#ifndef LONGHAUL_COST_H
#define LONGHAUL_COST_H

#include <longhaul/job.h>
#include <longhaul/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where a number comes from. */
typedef enum lh_cost_source {
    LH_COST_MODEL,      /* the kernel model below */
    LH_COST_EFFICIENCY, /* FLOPs over the GPU's given `efficiency`, which
                           stands for all kernels; communication is added */
    LH_COST_PROFILE,    /* measured, perhaps between two measured shapes */
    LH_COST_MIXED,      /* part measured, part by one of the others */
    LH_COST_PART_EFFICIENCY, /* nothing measured: part by an efficiency, part by
                                the kernel model, as where GPUs differ */
} lh_cost_source;

LH_API const char *lh_cost_source_name(lh_cost_source source);

/* The constants of the kernel and network model. The defaults are fitted to
 * measured runs, see docs/validation.md. A kernel takes
 *   FLOPs / (matmul_efficiency * peak)
 *   + bytes moved / (memory_efficiency * memory bandwidth) + kernel_ns,
 * a roofline with a soft knee: small matrices reach less of the peak. */
typedef struct lh_cost_constants {
    double matmul_efficiency; /* of peak, by very large matrix products, on
                                 A100; presets of later GPUs reach less */
    double memory_efficiency; /* of the memory's bandwidth */
    double kernel_ns;         /* start and drain of one kernel */
    double layer_host_ns;     /* the host issues a layer's F, its D or its W in
                                 this time, however small they are */
    double node_efficiency;   /* of node_link's rate, by collectives */
    double fabric_efficiency; /* of fabric's rate */
    double wan_efficiency;    /* of a datacenter link's rate */
    double iteration_ns;      /* once per iteration: data, logging, clipping */
    /* Of the rate of others, experts' products, many small ones at once, where
     * the GPU has products in 8 bits: no run on older ones tells of it. */
    double experts_efficiency;
    double fused_experts_efficiency; /* with framework.experts: fused */
} lh_cost_constants;

LH_API const lh_cost_constants *lh_cost_defaults(void);

/* How the program that trains behaves is the job's to say (job->framework);
 * options that are given add to that or take its place, as written below. */
typedef struct lh_cost_options {
    size_t size;                        /* sizeof(lh_cost_options) */
    const lh_cost_constants *constants; /* NULL: the job's, or, without,
                                           lh_cost_defaults() */
    /* Attention writes the sequence x sequence scores to memory and computes
     * all of them, causal or not. False: as the job has it, flash attention
     * [Dao] unless it says otherwise. */
    bool unfused_attention;
    /* Tensor parallelism all-reduces and keeps norms and residuals whole on
     * every GPU [Kor section 4.2.1]. False: as the job has it, sequence
     * parallelism [Kor 4.2.2] unless it says otherwise. */
    bool no_sequence_parallel;
    /* Every GPU of a tensor-parallel group sends the whole message to the next
     * pipeline rank; else its share [Nar section 4.1]. */
    bool whole_messages;
    /* No dropout. False: as the job has it, which is with models that have
     * layer norm unless it says otherwise. */
    bool no_dropout;
    /* A shape that the profile lacks is estimated; else it is refused. */
    bool estimate_missing;
    bool ignore_profile;
    /* Bytes per gradient element in memory, and on the wire; 0: as the job has
     * it, 4 unless it says otherwise, as Megatron-LM accumulates and reduces
     * bf16 training in fp32. */
    uint32_t gradient_bytes, gradient_wire_bytes;
    /* How the steps of rings follow one another; LH_RING_LOCKSTEP (0) leaves
     * it to the job, which says lockstep unless it says otherwise. */
    lh_ring rings;
    /* Over how many GPUs of a pipeline rank the experts of a layer are
     * divided; 0: expert * expert_tensor. */
    uint32_t expert_divisor;
    /* Parameters are dropped after a chunk's forward and gathered again for its
     * backward: twice the bytes, which this counts as one longer gather. ZeRO 3
     * gathers for every pass anyway. */
    bool gather_again;
} lh_cost_options;

/* One kind of pass over one microbatch, on each GPU of the group. */
typedef struct lh_pass_cost {
    int64_t total_ns;
    /* What it consists of, before the host's bound. Where the time comes from
     * an efficiency it is all in matmul_ns, where it was measured the first
     * three are 0, and if the measurement had communication in it, so is the
     * fourth. */
    int64_t matmul_ns, memory_ns, kernel_ns;
    /* Tensor, context, expert parallel; and how much longer the pass is for
     * what ZeRO 2 and 3 send in it. */
    int64_t communication_ns;
    double flops;    /* of matrix products, per GPU */
    int64_t data_ns; /* of communication_ns, what ZeRO 2 and 3 send */
    /* Of data_ns, what the whole slice waits for: the gather before the first
     * layer of F, the reduction after the last of W. 0 with hybrid sharding,
     * where both stay inside a datacenter. */
    int64_t end_ns;
} lh_pass_cost;

/* Data-parallel replicas in one datacenter. */
typedef struct lh_cost_site {
    uint32_t datacenter, replicas;
} lh_cost_site;

/* Where a model's multi-token prediction modules are. */
typedef enum lh_mtp_place {
    LH_MTP_WITH_HEAD, /* in the slice with the head */
    LH_MTP_HERE,      /* in this slice, which has no head */
    LH_MTP_ELSEWHERE, /* not with this head, which judges their words only */
} lh_mtp_place;

/* Consecutive layers, and where they run. */
typedef struct lh_cost_slice {
    uint32_t first_layer, n_layers;
    bool embedding; /* holds the token embedding */
    bool head;      /* holds final norm, vocabulary matrix, loss (see mtp) */
    uint32_t chunk, of;  /* which of how many chunks, for profiles by chunk;
                            of = 0: do not look for such */
    uint32_t datacenter; /* whose GPU and networks it uses */
    /* Over how many datacenters, from `datacenter` on, its data-parallel
     * replicas are spread evenly; 0 and 1: all are in one. */
    uint32_t data_datacenters;
    /* In place of data_datacenters: where the replicas of these layers are,
     * in the order of the ring between the datacenters. Replicas add up to the
     * layout's `data`, no datacenter is there twice. NULL: none. */
    uint32_t n_sites;
    const lh_cost_site *sites;
    /* With `sites`: pipeline ranks whose rings share a link; 0: all. */
    uint32_t sharing;
    lh_mtp_place mtp; /* of models that have such modules */
} lh_cost_slice;

typedef struct lh_cost {
    lh_pass_cost f, d, w; /* a joint backward takes d + w */
    lh_cost_source time_source, memory_source;

    /* Parameters on each GPU: all, and of these in experts. */
    int64_t params, expert_params;

    /* Bytes per GPU and microbatch. From F to D `activation_bytes` are held,
     * from D to W `weight_input_bytes` (inputs and output gradients of the
     * matrix products, [Qi] table 1): mem_f = activation, mem_d = weight_input
     * - activation, mem_w = -weight_input. */
    int64_t activation_bytes, weight_input_bytes;
    /* Held throughout, per GPU [Raj section 3.1]: */
    int64_t weight_bytes, gradient_bytes, optimizer_bytes;
    int64_t workspace_bytes; /* the most that one pass needs in passing */
    /* ZeRO 2 and 3, beyond shares: gradients of the two largest of layers,
     * embedding and head, of which one is reduced while the next is made; ZeRO
     * 3 also their parameters, in use and gathered ahead. */
    int64_t buffer_bytes;
    int64_t static_bytes; /* the five above */
    /* Of a microbatch's activations what goes to storage between F and B, which
     * is in neither of the first two; buffer_bytes has room for three times
     * that. How long it takes, each way. */
    int64_t offload_bytes, offload_ns;

    /* Data parallelism, per GPU: what is gathered before the first F and
     * reduced after the last W. ZeRO 0 all-reduces at the end, which counts
     * under reduce. ZeRO 2 and 3 communicate in every pass: their share is in
     * f, d and w, where the passes do not hide it. With hybrid sharding
     * gathers and reductions stay inside a datacenter, and the sum between
     * datacenters counts under reduce, once [SX section 4.1]. */
    int64_t gather_bytes, reduce_bytes;
    int64_t all_gather_ns, reduce_scatter_ns; /* occupancy */
    int64_t data_latency_ns; /* of either, all steps together */
    /* With hybrid sharding, by how much the reduction's latency, between
     * datacenters, exceeds the gather's, inside: due once, after everything. */
    int64_t data_late_ns;

    int64_t optimizer_ns; /* the optimizer's step, after everything else */
} lh_cost;

/* The cost of a slice under a layout that gives every degree (tensor, context,
 * expert, pipeline, data, micro_batch all > 0). `options` may be NULL.
 * LH_EINVAL: layout or slice is incomplete or contradicts the job.
 * LH_EUNSUPPORTED: the model does not divide like that, or the profile has no
 * such shape (and options do not allow to estimate it); `err` says which. */
LH_API lh_status lh_cost_chunk(const lh_job *job, const lh_layout *layout,
                               const lh_cost_slice *slice,
                               const lh_cost_options *options, lh_cost *out,
                               lh_error *err);

/* ---- Operations ---- */

#define LH_COST_MAX_OPS 24

/* One operation of a layer, on each GPU of the group, per microbatch. */
typedef struct lh_cost_op {
    const char *name;  /* "query"; static storage */
    double flops;      /* of its matrix products, forward */
    int64_t bytes;     /* of its output that stays for the backward */
    int64_t ns;        /* doing it once more */
    bool recomputable; /* its output can be dropped and made again */
} lh_cost_op;

/* The operations of `layer`, which is any of slice's, without regard to the
 * job's recomputation: together they store what lh_cost_chunk() counts for a
 * layer that recomputes nothing. *n_ops of LH_COST_MAX_OPS at most. */
LH_API lh_status lh_cost_layer_ops(const lh_job *job, const lh_layout *layout,
                                   const lh_cost_slice *slice, uint32_t layer,
                                   const lh_cost_options *options,
                                   lh_cost_op *ops, uint32_t *n_ops,
                                   lh_error *err);

/* Layers as PipeMesh (Li et al., IEEE TPDS 2025, tables I and II) counts them:
 * attention over all pairs of tokens, every output stored, 16 bits. */
typedef enum lh_family {
    LH_FAMILY_GPT3,
    LH_FAMILY_LLAMA2, /* ffn 8h/3, keys and values of an eighth of the heads */
    LH_FAMILY_FALCON, /* the same heads; attention and MLP side by side */
    LH_N_FAMILIES
} lh_family;

typedef struct lh_published_op {
    const char *name;
    double flops; /* forward, of all tensor-parallel GPUs together */
    double bytes; /* stored on each */
} lh_published_op;

/* For sequence s, micro-batch b, hidden size h; into `ops`, room for
 * LH_COST_MAX_OPS; returns how many. */
LH_API uint32_t lh_cost_published_ops(lh_family family, double s, double b,
                                      double h, double tensor,
                                      lh_published_op *ops);
/* Of a layer: 12h^2, or 41h^2/4. */
LH_API double lh_cost_published_params(lh_family family, double h);

/* ---- Communication ---- */

/* A path between GPUs. A message of n bytes occupies it for n / bytes_per_s
 * and arrives latency_ns later. */
typedef struct lh_cost_path {
    double bytes_per_s;
    double latency_ns;
    lh_profile_path kind;
    bool measured; /* from the profile */
    /* Of a group: the latencies of all hops of its ring but the shortest; what
     * a piece waits for that goes round among others. */
    double around_ns;
} lh_cost_path;

/* GPUs that take part in one collective: `size` of them, `per_node` on each
 * node, `per_datacenter` in each datacenter from `datacenter` on. Collectives
 * like it that run at once: `concurrent` (they share a link between
 * datacenters, which is one for all traffic). */
typedef struct lh_cost_group {
    uint32_t size, per_node, per_datacenter;
    uint32_t datacenter;
    uint32_t concurrent;
    /* More than one: over these, and `per_datacenter` is what the smallest
     * has. */
    uint32_t n_sites;
    const lh_cost_site *sites;
} lh_cost_group;

/* The slowest path a group crosses. Between nodes a group with k members on
 * each node drives k network interfaces at once. Between datacenters the link's
 * rate after loss and oversubscription is divided by `concurrent`. */
LH_API lh_status lh_cost_group_path(const lh_job *job,
                                    const lh_cost_group *group,
                                    const lh_cost_options *options,
                                    lh_cost_path *out, lh_error *err);

/* The group of GPUs along one dimension of a layout, in a datacenter. */
typedef enum lh_cost_dimension {
    LH_COST_TENSOR,
    LH_COST_CONTEXT,
    LH_COST_EXPERT,        /* that send each other tokens */
    LH_COST_DATA,          /* that hold the same experts */
    LH_COST_DATA_SHARED,   /* that hold the same rest: data x context */
    LH_COST_EXPERT_TENSOR, /* that share each of their experts */
} lh_cost_dimension;

/* Where groups differ, as those of experts may between datacenters, one that
 * lies over most of these. LH_EUNSUPPORTED: it lies over some of the slice's
 * datacenters and not over others. */
LH_API lh_status lh_cost_group_of(const lh_job *job, const lh_layout *layout,
                                  lh_cost_dimension dimension,
                                  const lh_cost_slice *slice,
                                  lh_cost_group *out, lh_error *err);

typedef enum lh_collective_kind {
    LH_ALL_GATHER,     /* (n-1) a + (n-1)/n S/b   [Tha section 4.1] */
    LH_REDUCE_SCATTER, /* the same                [Tha section 4.2] */
    LH_ALL_REDUCE,     /* one after the other     [Tha section 4.4] */
    LH_ALL_TO_ALL,     /* all at once: a + (n-1)/n S/b */
} lh_collective_kind;

/* Ring algorithms on n GPUs for S = `bytes`, the size of the whole buffer that
 * each GPU holds before a reduction or after a gather (all-to-all: what each
 * sends and keeps). *transfer_ns is the bandwidth term, *latency_ns the sum of
 * the steps' latencies, of which an all-to-all has one. n = 1 costs nothing. */
LH_API void lh_cost_collective(lh_collective_kind kind, uint32_t n,
                               double bytes, const lh_cost_path *path,
                               double *transfer_ns, double *latency_ns);

/* The same where pieces of the buffer may go round at the same time: the steps'
 * latencies are then the path's around_ns, n - 1 hops with the latency of each
 * [SX section 3.2, where every step waits for the long hop]. */
LH_API void lh_cost_collective_ring(lh_ring ring, lh_collective_kind kind,
                                    uint32_t n, double bytes,
                                    const lh_cost_path *path,
                                    double *transfer_ns, double *latency_ns);

/* Each GPU of a group sends 1/size of `bytes` to every other: to those on its
 * node over node_link; to those on other nodes of the datacenter over its own
 * interface; to those elsewhere over its share of the link between
 * datacenters. What goes over the interface comes one after the other, and the
 * node's links work meanwhile. All messages are on their way at once, as in a
 * group of NCCL's calls: the longest latency counts, once. (A job may say that
 * tokens go to experts otherwise: training.dispatcher.) */
LH_API lh_status lh_cost_all_to_all(const lh_job *job,
                                    const lh_cost_group *group, double bytes,
                                    const lh_cost_options *options,
                                    double *transfer_ns, double *latency_ns,
                                    lh_error *err);

/* From the pipeline rank whose first GPU is `from_gpu` of datacenter `from` to
 * that at `to_gpu` of `to` (GPUs counted within the datacenter). */
typedef struct lh_cost_hop {
    uint32_t from, to;
    uint32_t from_gpu, to_gpu;
    uint32_t replicas; /* that send at once over the same link between
                          datacenters; 0: all of the layout's `data` */
} lh_cost_hop;

typedef struct lh_cost_message {
    int64_t bytes;       /* of all GPUs of one pipeline rank together */
    int64_t transfer_ns; /* how long one message occupies the link */
    int64_t latency_ns;
    lh_profile_path kind;
    bool measured;
} lh_cost_message;

/* An activation, or its gradient, of one microbatch: micro_batch * sequence *
 * hidden elements, each GPU sending its share [Nar section 4.1]. Between
 * datacenters the replicas send at the same time over one link. */
LH_API lh_status lh_cost_hop_message(const lh_job *job, const lh_layout *layout,
                                     const lh_cost_hop *hop,
                                     const lh_cost_options *options,
                                     lh_cost_message *out, lh_error *err);

/* Bytes of such a message, all GPUs of the pipeline rank together. */
LH_API int64_t lh_cost_message_bytes(const lh_job *job,
                                     const lh_layout *layout);

/* Where embedding and head share a matrix but lie on different pipeline ranks,
 * both add up its gradient after the last W: an all-reduce between the two,
 * as Megatron-LM has it. `hop` is from the first rank to the last. *ns is 0
 * where nothing is tied or pipeline is 1. */
LH_API lh_status lh_cost_tied_embedding(const lh_job *job,
                                        const lh_layout *layout,
                                        const lh_cost_hop *hop,
                                        const lh_cost_options *options,
                                        int64_t *ns, lh_error *err);

/* ---- Counting ---- */

/* FLOPs of one layer's forward pass for one sequence, all GPUs together:
 * 2 per parameter and token that takes part in a matrix product, and the two
 * products of causal attention, 4 * (visible tokens) * heads * head_dim per
 * token [Nar appendix, with causal masking]. A backward pass takes twice as
 * many; its D and W take `linear` each, D all of attention's. */
LH_API void lh_cost_layer_flops(const lh_model *model, uint32_t layer,
                                uint32_t sequence, double *linear,
                                double *attention);
/* The same of the vocabulary matrix. */
LH_API double lh_cost_head_flops(const lh_model *model, uint32_t sequence);
/* Forward and backward of a whole iteration without recomputation: the
 * numerator of model FLOPs utilisation. */
LH_API double lh_cost_iteration_flops(const lh_job *job);

#ifdef __cplusplus
}
#endif
#endif
