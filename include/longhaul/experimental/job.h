/* SPDX-License-Identifier: Apache-2.0 */
/* A job's contents, and its values' names.
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_JOB_H
#define LONGHAUL_EXPERIMENTAL_JOB_H

#include <longhaul/experimental/model.h>
#include <longhaul/experimental/network_model.h>
#include <longhaul/experimental/profile.h>
#include <longhaul/job.h>
#include <longhaul/pipeline.h>
#include <longhaul/status.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Most datacenters in a job. */
#define LH_MAX_DATACENTERS 64u
#define LH_MAX_GPUS (1u << 24) /* all datacenters together */

/* Number formats for parameters and activations. */
typedef enum lh_precision {
    LH_PRECISION_BF16,
    LH_PRECISION_FP16,
    LH_PRECISION_FP32,
} lh_precision;

/* Optimizers. */
typedef enum lh_optimizer {
    LH_OPTIMIZER_ADAMW,
    LH_OPTIMIZER_ADAM,
} lh_optimizer;

/* Recomputation modes. */
typedef enum lh_recompute {
    LH_RECOMPUTE_NONE,
    LH_RECOMPUTE_SELECTIVE,  /* activations that are cheap to recompute */
    LH_RECOMPUTE_FULL,       /* layers store only their input */
    LH_RECOMPUTE_MODULES,    /* modules listed in the job's training */
    LH_RECOMPUTE_OPERATIONS, /* plans only: operations in their `elastic` */
} lh_recompute;

/* Layer parts, named as in Megatron Core's --recompute-modules. */
typedef enum lh_module {
    LH_MODULE_CORE_ATTN,   /* attention between its projections */
    LH_MODULE_LAYERNORM,   /* the norms before attention and MLP */
    LH_MODULE_MOE_ACT,     /* routed experts' activation function */
    LH_MODULE_MLA_UP_PROJ, /* multi-head latent attention, with rotation */
    LH_MODULE_MLP,         /* layers without experts */
    LH_MODULE_MOE,         /* router, dispatch, experts, combine */
    LH_MODULE_SHARED_EXPERTS,
    LH_N_MODULES,
} lh_module;

/* Token dispatchers for experts on other GPUs. */
typedef enum lh_dispatcher {
    LH_DISPATCHER_ALL_TO_ALL, /* one copy per selected expert */
    LH_DISPATCHER_DEEPEP,     /* one copy per remote node that has some of them,
                               * and per GPU within that node */
    LH_DISPATCHER_HYBRIDEP,   /* the same, by other kernels */
    LH_DISPATCHER_ALL_GATHER, /* each token to all GPUs of the group */
} lh_dispatcher;

/* A job's training options. */
typedef struct lh_training {
    uint32_t global_batch;  /* sequences per iteration */
    uint32_t sequence;      /* tokens per sequence */
    lh_precision precision; /* parameters and activations in passes */
    lh_optimizer optimizer;
    uint32_t zero; /* ZeRO stage 0..3 */
    lh_recompute recompute;
    lh_ring rings; /* for collectives; default LH_RING_LOCKSTEP */
    /* False: not set in the file; the value above is the default (ZeRO 1, no
     * recomputation). */
    bool zero_given, recompute_given;
    /* Layers use dropout and store the masks. Default: models with layer norm
     * use it, as GPT-2 and GPT-3 did; Falcon models do not. */
    bool dropout_given, dropout;
    double dropout_rate;      /* dropout rate; 0: not set, 0.1 */
    lh_dispatcher dispatcher; /* default LH_DISPATCHER_ALL_TO_ALL */
    bool dispatcher_given;    /* set in the file */
    /* With LH_RECOMPUTE_MODULES: bit set, 1 << lh_module. */
    uint32_t recompute_modules;
    /* Expert load balancing: coefficient of the balancing loss, and bias update
     * per step of a sigmoid router (LH_ROUTER_SIGMOID). Defaults: 0.01; with a
     * sigmoid router 0.0001 and 0.001 (DeepSeek-V3, arXiv:2412.19437, section
     * 4.2). */
    bool balance_loss_given, balance_bias_given;
    double balance_loss, balance_bias;
    /* Expert capacity factor, relative to an even distribution of the choices;
     * >= 1; 0: unlimited. */
    double expert_capacity;
    /* Rows that the experts of the hottest rank process, relative to the mean
     * over the ranks that share a layer's experts; >= 1, default 1. */
    double imbalance;
    /* Activation offload to the host's storage between F and B: affects the
     * first ceil(share * layers) layers of each chunk, all activations except
     * the layers' inputs and recomputed ones. 0: none. Second value: storage
     * bandwidth per GPU and direction; 0: that of the GPU's host link. */
    double offload_share, offload_bytes_per_s;
} lh_training;

/* Framework presets. */
typedef enum lh_framework_preset {
    LH_FRAMEWORK_NONE, /* default of jobs without the section */
    LH_FRAMEWORK_MEGATRON,
    LH_FRAMEWORK_TORCHTITAN,
    LH_FRAMEWORK_DEEPSPEED,
} lh_framework_preset;

/* Gradient precision, in memory or for reduction. */
typedef enum lh_gradient {
    LH_GRADIENT_FP32,
    LH_GRADIENT_BF16,
    LH_GRADIENT_FP16,
} lh_gradient;

/* Where 8-bit floating point is used (FP8). */
typedef enum lh_fp8 {
    LH_FP8_NONE,
    LH_FP8_MATMUL,   /* layers' matrix products, forward and backward */
    LH_FP8_DISPATCH, /* also tokens sent to experts */
    LH_FP8_HEAD,     /* layers' matrix products and the head's */
} lh_fp8;

/* Attention kernels. */
typedef enum lh_attention {
    LH_ATTENTION_FUSED,   /* flash attention; a causal mask halves the scores */
    LH_ATTENTION_UNFUSED, /* writes the sequence x sequence scores to memory
                           * and computes all of them, causal or not */
    LH_ATTENTION_FLASH_2, /* fused, with the rates of FlashAttention-2 */
    LH_ATTENTION_CUDNN,   /* fused, with the rates of cuDNN's kernels */
    LH_ATTENTION_CUDNN_FP8, /* the same, with kernels for 8-bit values */
} lh_attention;

/* Kernels of the element-wise operations of layers. */
typedef enum lh_kernels {
    LH_KERNELS_FUSED,
    LH_KERNELS_EAGER, /* one kernel for each operation of the model's code */
} lh_kernels;

/* Cross entropy over the vocabulary. */
typedef enum lh_loss {
    LH_LOSS_FUSED,
    LH_LOSS_EAGER,   /* one kernel for each operation, in fp32 */
    LH_LOSS_CHUNKED, /* the same for an eighth of the tokens at a time, which
                      * includes the head's product */
} lh_loss;

/* The training framework's behaviour: a job's `framework` section with the
 * preset's values filled in. A job without the section has all zeros. */
typedef struct lh_framework {
    bool given;        /* the job has the section */
    bool preset_given; /* else derived from the job's `target` */
    lh_framework_preset preset;
    lh_attention attention;
    lh_kernels kernels;
    lh_loss loss;
    /* Tensor parallelism uses all-reduce and replicates norms and residuals on
     * every GPU; else sequence parallelism. */
    bool no_sequence_parallel;
    lh_gradient gradients, reduce; /* in memory; during reduction */
    /* Set in the file; overlap_expert_given: one of the two overlaps of
     * experts' all-to-alls is. */
    bool attention_given, kernels_given, gradients_given, reduce_given;
    bool overlap_tensor_given, overlap_expert_given;
    /* Receives for messages between pipeline ranks. Default: the preset's,
     * which may depend on the layout. */
    bool receives_given;
    lh_receives receives;
    /* Fraction of tensor parallelism's communication hidden behind compute,
     * 0..1. */
    double overlap_tensor;
    /* Fraction of layers' all-to-alls, 0..1, that run beside computation: that
     * of another microbatch's pass in the opposite direction (combined 1F1B),
     * or that of the shared experts. */
    double overlap_expert, overlap_shared_experts;
    /* Duration of an overlapped F and B, relative to their sum; 0: no F and B
     * overlap. */
    double overlap_f_b;
    lh_fp8 fp8;
    /* Expert products, their activation function and the 8-bit conversion form
     * one kernel; else one kernel each. */
    bool fused_experts;
} lh_framework;

/* A GPU type. Values as in the file, each followed by its value in base units.
 */
typedef struct lh_gpu {
    const char *name;   /* preset's name or the file's; never NULL */
    const char *preset; /* preset it is based on, or NULL */
    double tflops;      /* dense peak, 10^12 FLOP/s, in the job's precision */
    double flops_per_s;
    double memory_gib; /* 2^30 bytes */
    int64_t memory_bytes;
    /* Memory reserved from plans: driver, context, library buffers,
     * fragmentation. Percent of memory_gib, or GiB; the other value is 0. */
    double reserve_percent, reserve_gib;
    double memory_gbps; /* memory bandwidth, 10^9 BYTES per second */
    double memory_bytes_per_s;
    /* fraction of tflops reached by whole passes, all kernels without
     * communication (longhaul/experimental/cost.h); 0: the cost model's own */
    double efficiency;
    /* Dense 8-bit peak, 10^12 FLOP/s; 0: unsupported or unknown. */
    double fp8_tflops;
    /* Rates that large products sustain, 10^12 FLOP/s, in the job's precision
     * and in 8 bits; 0: derived from the peaks. */
    double sustained_tflops, sustained_fp8_tflops;
} lh_gpu;

/* A network, per GPU and direction. gbps 0: no such network, and nothing that
 * needs it. */
typedef struct lh_network {
    double gbps;             /* 10^9 BITS per second */
    double bytes_per_s;      /* with all GPUs sending: after oversubscription */
    int64_t latency_ns;      /* one way */
    double oversubscription; /* >= 1; 0: not given */
} lh_network;

/* A datacenter, or one of its zones if it lists any. Zones of a datacenter are
 * consecutive, and the links between them are wans like others. */
typedef struct lh_datacenter {
    const char *name;
    uint32_t nodes, gpus_per_node;
    uint32_t gpus; /* nodes * gpus_per_node */
    lh_gpu gpu;
    lh_network node_link;    /* within a node; exists if gpus_per_node > 1 */
    lh_network fabric;       /* between nodes; exists if the job has > 1 node */
    double usd_per_gpu_hour; /* 0: no price given */
    const char *zone_of;     /* a zone's datacenter; the zone's name is
                              * zone_of/...; NULL: none */
    /* zones: network to the datacenter's other zones */
    lh_network zone_link;
} lh_datacenter;

struct lh_cost_constants;

/* Link from one datacenter to another, for all traffic in this direction. Zones
 * share their datacenters' link. Between two zones of a datacenter, the
 * capacity is the sum over their GPUs. */
typedef struct lh_wan {
    double gbps;             /* 10^9 BITS per second, total */
    double bytes_per_s;      /* gbps / 8, before oversubscription and loss */
    int64_t latency_ns;      /* one way */
    double loss;             /* packet loss rate, 0 <= loss < 1 */
    double oversubscription; /* >= 1: competing demand on the capacity */
    lh_link_setting setting; /* endpoint settings; all 0: not given */
    double usd_per_gb;       /* per 10^9 bytes sent; 0: free */
} lh_wan;

/* Parallel dimension that spans the datacenters. */
typedef enum lh_outermost {
    LH_OUTERMOST_ANY, /* not given */
    LH_OUTERMOST_PIPELINE,
    LH_OUTERMOST_DATA,
    LH_OUTERMOST_MIXED, /* pipelines cross some boundaries, replicas others */
} lh_outermost;

/* Pipeline stages' position on a datacenter's nodes. */
typedef enum lh_packing {
    LH_PACKING_ANY,   /* not given; in a complete layout: dense */
    LH_PACKING_DENSE, /* each stage or replica follows the previous one */
    /* None straddles a node that is not larger, which leaves GPUs idle. */
    LH_PACKING_ALIGNED,
} lh_packing;

/* Sharding of weights, gradients and optimizer state across the replicas of
 * several datacenters, for the state that training.zero shards
 * (longhaul/experimental/cost.h). */
typedef enum lh_sharding {
    LH_SHARDING_ANY,    /* not given */
    LH_SHARDING_FULL,   /* over all replicas */
    LH_SHARDING_HYBRID, /* within a datacenter; between datacenters
                         * every GPU reduces its shard with its peers */
    /* within a datacenter; between datacenters one GPU per datacenter reduces
     * the whole gradient */
    LH_SHARDING_HYBRID_LEADERS,
} lh_sharding;

/* Consecutive pipeline stages in one datacenter. */
typedef struct lh_site_stages {
    uint32_t datacenter, stages;
} lh_site_stages;

/* Replicas whose stages are in the same datacenters. */
typedef struct lh_site_group {
    uint32_t replicas;
    uint32_t n_parts;
    const lh_site_stages *parts; /* in pipeline order, each datacenter once */
} lh_site_group;

/* All replicas' and stages' datacenters. The groups' replicas add up to the
 * layout's `data`, and each group's stages to its `pipeline`. In a job's own
 * layout, 0 marks numbers to be searched. */
typedef struct lh_sites {
    uint32_t n_groups;
    const lh_site_group *groups;
} lh_sites;

/* A parallel layout. 0, LH_OUTERMOST_ANY, LH_SHARDING_ANY and NULL: not given,
 * to be searched. It uses tensor x context x pipeline x data GPUs; `expert`
 * adds none, because experts are spread over a pipeline stage's GPUs. */
typedef struct lh_layout {
    uint32_t tensor, context, expert, pipeline, data;
    uint32_t micro_batch; /* sequences per replica and microbatch */
    uint32_t chunks_per_device;
    lh_outermost outermost;
    lh_sharding sharding;
    const char *schedule; /* a method's name, see lh_method_name() */
    /* NULL in a complete layout: determined by `outermost`, datacenters in job
     * order (docs/theory/placement.md) */
    const lh_sites *sites;
    /* GPUs that share each expert, within the `expert` x expert_tensor GPUs
     * that share a layer's experts; 0: see lh_layout_expert_tensor(). */
    uint32_t expert_tensor;
    /* Layers per chunk, in model order. NULL: not given; also in an lh_choice,
     * which has its own chunk_layers. */
    uint32_t n_chunk_layers;
    const uint32_t *chunk_layers;
    /* Chunk with the model's multi-token prediction modules, after all of its
     * layers; 0: the last one, with the head. */
    uint32_t mtp_chunk;
    /* In a job: the slices in which every sequence passes the pipeline; 0: it
     * passes as a whole; 1: lh_plan_make() chooses (auto). */
    uint32_t slices;
    /* The outermost parallelism in the order of a datacenter's ranks, pipeline
     * or data; LH_OUTERMOST_ANY: see lh_layout_rank_order(). */
    lh_outermost rank_order;
    lh_packing packing;
    /* Unequal microbatches: sequences per replica and microbatch of each group
     * of `sites`; micro_batch is the largest. NULL: micro_batch for all. */
    const uint32_t *group_micro_batches;
    /* The tensor degree in each of the job's datacenters, for one pipeline over
     * datacenters with different degrees; `tensor` is the least of those in
     * `sites`. NULL: `tensor` in all. */
    const uint32_t *site_tensors;
    /* In a job whose `tensor` is 0: lh_plan_make() also tries different tensor
     * degrees per datacenter (tensor: per-datacenter). */
    bool tensor_per_site;
} lh_layout;

/* Returns the layout's expert_tensor or its default: 1 if expert > 1, else
 * tensor, because experts are then split like all other layers. */
LH_API uint32_t lh_layout_expert_tensor(const lh_layout *layout);

/* Returns the number of GPUs that a complete layout uses. */
LH_API uint64_t lh_layout_gpus(const lh_layout *layout);

/* Returns the layout's tensor degree in a datacenter of its job. */
LH_API uint32_t lh_layout_site_tensor(const lh_layout *layout,
                                      uint32_t datacenter);

/* Returns the layout's rank_order or its default: data if replicas are
 * outermost, otherwise pipeline. */
LH_API lh_outermost lh_layout_rank_order(const lh_layout *layout);

/* Returns the number of consecutive ranks in a pipeline stage that hold each
 * expert of a layer once: expert x expert_tensor. It divides the stage's tensor
 * x context x data ranks (MoE Parallel Folding, arXiv:2504.14960). */
LH_API uint64_t lh_layout_expert_block(const lh_layout *layout);

struct lh_job {
    const char *name; /* used in error messages */
    const lh_model *model;
    lh_training training;
    lh_framework framework;
    uint32_t n_datacenters;
    const lh_datacenter *datacenters;
    /* Indexed [from * n_datacenters + to]; all zero if from == to. */
    const lh_wan *wans;
    uint32_t n_gpus, n_nodes; /* all datacenters together */
    lh_layout layout;
    lh_target target;          /* layout.framework, else by framework.preset */
    bool target_implied;       /* by framework.preset */
    const lh_profile *profile; /* NULL: none */
    /* Cost-model constants; NULL (always after parsing): lh_cost_defaults().
     * Fitting tools set it in a copy of the job. */
    const struct lh_cost_constants *constants;
    /* The referenced files' paths, as opened. */
    uint32_t n_files;
    const char *const *files;
    uint32_t schedule_line; /* line of layout.schedule in the text; 0: absent */
    /* Least GPUs that a plan uses in each datacenter, n_datacenters entries;
     * NULL (always after parsing): no requirement. Searches for the cost of
     * idle GPUs set it in a copy of the job. */
    const uint32_t *min_gpus;
};

/* Returns a GPU preset (16-bit peak) with static lifetime; NULL: no such
 * preset. `name` may be an alias (docs/formats/job.md), such as "h100". */
LH_API const lh_gpu *lh_gpu_preset(const char *name);
/* Returns the GPU preset names, NULL-terminated; static storage. */
LH_API const char *const *lh_gpu_presets(void);
/* Default memory reserve in percent, applied to a job's GPUs but not to
 * presets. lh_gpu_usable_bytes() subtracts the reserve. */
#define LH_MEMORY_RESERVE_PERCENT 6
/* Returns the GPU memory bytes that plans may use: memory minus reserve. */
LH_API int64_t lh_gpu_usable_bytes(const lh_gpu *gpu);

/* Returns a precision's name as spelled in the job format; static storage. */
LH_API const char *lh_precision_name(lh_precision precision);
/* Returns a recomputation policy's name as in the job format, or "modules" or
 * "operations"; static storage. */
LH_API const char *lh_recompute_name(lh_recompute recompute);
/* Returns the name of a module that can be recomputed, as in
 * --recompute-modules; static storage. */
LH_API const char *lh_module_name(lh_module module);
/* Returns a rank order's name as in the job format, or "any"; static storage.
 */
LH_API const char *lh_outermost_name(lh_outermost outermost);
/* Returns a sharding scope's name as in the job format, or "any"; static
 * storage. */
LH_API const char *lh_sharding_name(lh_sharding sharding);

/* Returns the name of a packing (how pipeline stages are placed on a
 * datacenter's nodes): "dense" or "aligned"; "any" if none is given. */
LH_API const char *lh_packing_name(lh_packing packing);
/* Finds the target with that name, excluding "any". LH_EINVAL: no such target.
 */
LH_API lh_status lh_target_find(const char *name, lh_target *target,
                                lh_error *err);

#ifdef __cplusplus
}
#endif
#endif
