/* SPDX-License-Identifier: Apache-2.0 */
/* A training job as its owner writes it down: model, training, cluster, and
 * what of the layout is already decided. Text form: docs/formats/job.md.
 *
 * A job is read whole and checked whole; what a file may leave out has been
 * filled in (each datacenter carries its own GPU and networks, each ordered
 * pair of datacenters its link). It never changes and owns all it points to. */
#ifndef LONGHAUL_JOB_H
#define LONGHAUL_JOB_H

#include <longhaul/model.h>
#include <longhaul/pipeline.h>
#include <longhaul/profile.h>
#include <longhaul/status.h>
#include <longhaul/transport.h>

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LH_MAX_DATACENTERS 64u
#define LH_MAX_GPUS (1u << 24) /* in all datacenters together */

typedef enum lh_precision {
    LH_PRECISION_BF16,
    LH_PRECISION_FP16,
    LH_PRECISION_FP32,
} lh_precision;

typedef enum lh_optimizer {
    LH_OPTIMIZER_ADAMW,
    LH_OPTIMIZER_ADAM,
} lh_optimizer;

typedef enum lh_recompute {
    LH_RECOMPUTE_NONE,
    LH_RECOMPUTE_SELECTIVE,  /* what is cheap to make again */
    LH_RECOMPUTE_FULL,       /* layers keep only their input */
    LH_RECOMPUTE_MODULES,    /* what the job's training names */
    LH_RECOMPUTE_OPERATIONS, /* of plans: what their `elastic` lists */
} lh_recompute;

/* Parts of a layer as Megatron Core's --recompute-modules names them. */
typedef enum lh_module {
    LH_MODULE_CORE_ATTN,   /* attention between its projections */
    LH_MODULE_LAYERNORM,   /* the norms before attention and MLP */
    LH_MODULE_MOE_ACT,     /* routed experts' activation function */
    LH_MODULE_MLA_UP_PROJ, /* of multi-head latent attention, and rotation */
    LH_MODULE_MLP,         /* of layers without experts */
    LH_MODULE_MOE,         /* router, dispatch, experts, combine */
    LH_MODULE_SHARED_EXPERTS,
    LH_N_MODULES,
} lh_module;

/* What carries tokens to the experts of other GPUs. */
typedef enum lh_dispatcher {
    LH_DISPATCHER_ALL_TO_ALL, /* a copy for each of a token's experts */
    LH_DISPATCHER_DEEPEP,     /* one for each other node that has some of them,
                                 and from there on within the node */
} lh_dispatcher;

typedef struct lh_training {
    uint32_t global_batch;  /* sequences per iteration */
    uint32_t sequence;      /* tokens per sequence */
    lh_precision precision; /* of parameters and activations in passes */
    lh_optimizer optimizer;
    uint32_t zero; /* ZeRO stage 0..3 */
    lh_recompute recompute;
    lh_ring rings; /* of collectives; LH_RING_LOCKSTEP where not given */
    /* False: the file did not say; the value above is the default (ZeRO 1,
     * no recomputation). */
    bool zero_given, recompute_given;
    /* Layers drop activations, and keep the masks. Not given: models with
     * layer norm do, as GPT-2 and GPT-3 did, but for Falcon's. */
    bool dropout_given, dropout;
    double dropout_share; /* of numbers that are dropped; 0: not said, a tenth */
    lh_dispatcher dispatcher; /* LH_DISPATCHER_ALL_TO_ALL where not given */
    /* With LH_RECOMPUTE_MODULES: 1 << lh_module of each, added up. */
    uint32_t recompute_modules;
    /* With experts, how training keeps them in use: what that part of the loss
     * is times; and how much the bias of a sigmoid router moves in a step
     * (LH_ROUTER_SIGMOID). Not given: 0.01, and with a sigmoid router 0.0001
     * and 0.001 (DeepSeek-V3, arXiv:2412.19437, section 4.2). */
    bool balance_loss_given, balance_bias_given;
    double balance_loss, balance_bias;
    /* An expert takes at most this many times the choices that each would have
     * if all had the same; 0: all that come. */
    double expert_capacity;
    /* Activations that go to the host's storage between F and B: those of the
     * first ceil(share * layers) layers of each chunk, all but the layers'
     * inputs and what is made again. 0: none. And that storage's bandwidth,
     * each way, of each GPU; 0: that of its link to the host. */
    double offload_share, offload_bytes_per_s;
} lh_training;

typedef enum lh_framework_preset {
    LH_FRAMEWORK_NONE, /* what jobs without the section have */
    LH_FRAMEWORK_MEGATRON,
    LH_FRAMEWORK_TORCHTITAN,
    LH_FRAMEWORK_DEEPSPEED,
} lh_framework_preset;

/* Of gradients: as they lie in memory, as they are summed. */
typedef enum lh_gradient {
    LH_GRADIENT_FP32,
    LH_GRADIENT_BF16,
    LH_GRADIENT_FP16,
} lh_gradient;

typedef enum lh_fp8 {
    LH_FP8_NONE,
    LH_FP8_MATMUL,   /* the products of layers, forward and backward */
    LH_FP8_DISPATCH, /* these, and tokens on their way to experts */
} lh_fp8;

/* How the program that trains behaves: `framework` of a job, what its preset
 * says filled in. All zero is what a job without the section has. */
typedef struct lh_framework {
    bool given;        /* the job has the section */
    bool preset_given; /* else it is that of the job's `target` */
    lh_framework_preset preset;
    /* Attention writes the sequence x sequence scores to memory and computes
     * all of them, causal or not; else flash attention. */
    bool unfused_attention;
    /* Tensor parallelism all-reduces, and every GPU keeps norms and residuals
     * whole; else sequence parallelism. */
    bool no_sequence_parallel;
    lh_gradient gradients, reduce; /* in memory; as they are summed */
    bool gradients_given, reduce_given;
    /* Of messages between pipeline ranks. Not given: as the preset has it,
     * which may depend on the layout: lh_framework_receives(). */
    bool receives_given;
    lh_receives receives;
    /* Which share of the communication of tensor parallelism and of the
     * all-to-alls of experts goes on behind compute, 0..1. */
    double overlap_tensor, overlap_expert;
    lh_fp8 fp8;
    /* Experts' products, their activation function and what makes it 8 bits
     * are one kernel; else a kernel each. */
    bool fused_experts;
} lh_framework;

/* A file's numbers, each followed by what it means in base units. */
typedef struct lh_gpu {
    const char *name;   /* preset's name, or as the file calls it; never NULL */
    const char *preset; /* name of the preset it comes from, or NULL */
    double tflops; /* peak, dense, 10^12 per second, in the job's precision */
    double flops_per_s;
    double memory_gib; /* 2^30 bytes */
    int64_t memory_bytes;
    /* What no plan may use of it: driver, context, buffers of libraries,
     * fragmentation. Percent of memory_gib, or GiB; the other one is 0. */
    double reserve_percent, reserve_gib;
    double memory_gbps; /* memory bandwidth, 10^9 BYTES per second */
    double memory_bytes_per_s;
    double efficiency; /* share of tflops that whole passes reach, all their
                          kernels but no communication (longhaul/cost.h);
                          0: the cost model's own */
    /* Peak of products in 8 bits, dense, 10^12 per second; 0: it has none, or
     * it is not known. */
    double fp8_tflops;
} lh_gpu;

/* Per GPU and direction. gbps 0: there is no such network, and nothing that
 * would use it. */
typedef struct lh_network {
    double gbps;             /* 10^9 BITS per second */
    double bytes_per_s;      /* while all GPUs send: after oversubscription */
    int64_t latency_ns;      /* one way */
    double oversubscription; /* >= 1; 0: nothing is given */
} lh_network;

/* Or, where a datacenter lists zones, one of these: zones of a datacenter
 * follow each other, and the links between them are wans like others. */
typedef struct lh_datacenter {
    const char *name;
    uint32_t nodes, gpus_per_node;
    uint32_t gpus; /* nodes * gpus_per_node */
    lh_gpu gpu;
    lh_network node_link;    /* inside a node; there if gpus_per_node > 1 */
    lh_network fabric;       /* between nodes; there if the job has > 1 node */
    double usd_per_gpu_hour; /* 0: no price is given */
    const char *zone_of;     /* the datacenter of a zone, whose name is then
                                zone_of/...; NULL: none */
    lh_network zone_link;    /* of a zone, to others of its datacenter */
} lh_datacenter;

struct lh_cost_constants;

/* From one datacenter to another: for all traffic in this direction. Zones of
 * the one reach those of the other over the same link, and between two zones
 * there is what their GPUs have together. */
typedef struct lh_wan {
    double gbps;             /* 10^9 BITS per second, total */
    double bytes_per_s;      /* gbps / 8, before oversubscription and loss */
    int64_t latency_ns;      /* one way */
    double loss;             /* share of packets lost, 0 <= loss < 1 */
    double oversubscription; /* >= 1: others' demand on the same capacity */
    lh_link_setting setting; /* of its ends; all 0 where nothing is given */
    double usd_per_gb;       /* of what is sent, per 10^9 bytes; 0: free */
} lh_wan;

typedef enum lh_outermost {
    LH_OUTERMOST_ANY, /* not given */
    LH_OUTERMOST_PIPELINE,
    LH_OUTERMOST_DATA,
    LH_OUTERMOST_MIXED, /* pipelines cross some boundaries, replicas others */
} lh_outermost;

/* How the data-parallel replicas of several datacenters share weights,
 * gradients and optimizer state where training.zero divides these
 * (longhaul/cost.h). */
typedef enum lh_sharding {
    LH_SHARDING_ANY,            /* not given */
    LH_SHARDING_FULL,           /* over all replicas */
    LH_SHARDING_HYBRID,         /* over those of a datacenter; between these
                                   every GPU sums its share with its peers */
    LH_SHARDING_HYBRID_LEADERS, /* the same, but one GPU of each datacenter
                                   sums the whole gradient */
} lh_sharding;

/* Consecutive stages of a pipeline in one datacenter. */
typedef struct lh_site_stages {
    uint32_t datacenter, stages;
} lh_site_stages;

/* Replicas whose stages lie in the same datacenters. */
typedef struct lh_site_group {
    uint32_t replicas;
    uint32_t n_parts;
    const lh_site_stages *parts; /* in pipeline order, no datacenter twice */
} lh_site_group;

/* Which datacenters every replica and every stage lies in. The groups' replicas
 * add up to the layout's `data`, the stages of each to its `pipeline`; in a
 * job's own layout numbers may be 0: to be searched. */
typedef struct lh_sites {
    uint32_t n_groups;
    const lh_site_group *groups;
} lh_sites;

/* 0, LH_OUTERMOST_ANY, LH_SHARDING_ANY and NULL: not given, to be searched.
 * tensor x context x pipeline x data GPUs take part; `expert` multiplies
 * nothing, for experts are spread over the GPUs of a pipeline stage. */
typedef struct lh_layout {
    uint32_t tensor, context, expert, pipeline, data;
    uint32_t micro_batch; /* sequences that a replica takes at a time */
    uint32_t chunks_per_device;
    lh_outermost outermost;
    lh_sharding sharding;
    const char *schedule;  /* a method's name (lh_methods) */
    const lh_sites *sites; /* NULL in a complete layout: what `outermost` says,
                              datacenters in the order in which the job has
                              them (docs/theory/placement.md) */
    /* GPUs that share each expert, of the `expert` x expert_tensor that share
     * a layer's experts; 0: lh_layout_expert_tensor() says. */
    uint32_t expert_tensor;
    /* How many layers each chunk has, in the order of the model; NULL: not
     * given, and in a choice, whose chunk_layers say it. */
    uint32_t n_chunk_layers;
    const uint32_t *chunk_layers;
    /* Which chunk has the model's multi-token prediction modules, behind all
     * of its layers; 0: the last one, with the head. */
    uint32_t mtp_chunk;
} lh_layout;

/* What is to run the plan; only what it can run is searched then. */
typedef enum lh_target {
    LH_TARGET_ANY, /* not given: all that longhaul knows */
    LH_TARGET_LONGHAUL,
    LH_TARGET_MEGATRON,
    LH_TARGET_TORCHTITAN,
    LH_TARGET_PYTORCH,
} lh_target;

/* The layout's own expert_tensor, or what holds where it has none: 1 where
 * expert is above 1, else tensor, as experts are then cut like all else. */
LH_API uint32_t lh_layout_expert_tensor(const lh_layout *layout);

/* Consecutive ranks of a pipeline stage that hold each expert of a layer once:
 * expert x expert_tensor. They divide the tensor x context x data ranks of the
 * stage (MoE Parallel Folding, arXiv:2504.14960). */
LH_API uint64_t lh_layout_expert_block(const lh_layout *layout);

typedef struct lh_job {
    const char *name; /* as messages call the file */
    const lh_model *model;
    lh_training training;
    lh_framework framework;
    uint32_t n_datacenters;
    const lh_datacenter *datacenters;
    /* wans[from * n_datacenters + to]; from == to is all zero. */
    const lh_wan *wans;
    uint32_t n_gpus, n_nodes; /* in all datacenters together */
    lh_layout layout;
    lh_target target;          /* layout.framework */
    const lh_profile *profile; /* NULL: none */
    /* Of the cost model; NULL, as in what is read: lh_cost_defaults(). For
     * those who fit them to measured runs: a copy of a job with its own. */
    const struct lh_cost_constants *constants;
    /* Paths, as they were opened, of the files that it names. */
    uint32_t n_files;
    const char *const *files;
    uint32_t schedule_line; /* of layout.schedule in the text; 0: not there */
} lh_job;

/* When a layout with so many chunks per device has its receives posted. */
LH_API lh_receives lh_framework_receives(const lh_framework *framework,
                                         uint32_t chunks_per_device);

/* Reads a job; files that it names lie relative to `folder` (NULL: a job that
 * names files is refused). `name` is what messages call the text. Release with
 * lh_job_free(). LH_EINPUT: `err` says file, line, key and what is wrong. */
LH_API lh_status lh_job_parse(const char *text, size_t len, const char *name,
                              const char *folder, lh_job **out, lh_error *err);
/* Files that the job names lie relative to its own folder. */
LH_API lh_status lh_job_read(const char *path, lh_job **out, lh_error *err);
LH_API void lh_job_free(lh_job *job); /* NULL is fine */

/* The canonical text (JSON): every datacenter and link written out, the model
 * (unless a preset) and the profile included, so that it stands alone. It
 * reads back to the same job and the same text. Release *text with
 * lh_text_free(); `len` may be NULL. */
LH_API lh_status lh_job_format(const lh_job *job, char **text, size_t *len,
                               lh_error *err);

/* The GPU that a preset names (16-bit peak), which lives for ever; NULL: no
 * such preset. `name` may be an alias (docs/formats/job.md), as "h100". */
LH_API const lh_gpu *lh_gpu_preset(const char *name);
/* The presets' names, NULL-terminated. */
LH_API const char *const *lh_gpu_presets(void);
/* What plans may use of its memory: all but the reserve, which a job's GPUs
 * have (LH_MEMORY_RESERVE_PERCENT unless it says otherwise) and presets have
 * not. */
#define LH_MEMORY_RESERVE_PERCENT 6
LH_API int64_t lh_gpu_usable_bytes(const lh_gpu *gpu);

/* As the job format spells them. */
LH_API const char *lh_precision_name(lh_precision precision);
LH_API const char *lh_optimizer_name(lh_optimizer optimizer);
LH_API const char *
lh_recompute_name(lh_recompute recompute); /* "modules", "operations" too */
LH_API const char *lh_module_name(lh_module module);
LH_API const char *lh_outermost_name(lh_outermost outermost); /* "any" too */
LH_API const char *lh_sharding_name(lh_sharding sharding);    /* "any" too */
LH_API const char *lh_target_name(lh_target target);          /* "any" too */
/* *target: what is called `name` ("any" is not). LH_EINVAL: nothing is. */
LH_API lh_status lh_target_find(const char *name, lh_target *target,
                                lh_error *err);
LH_API const char *lh_framework_preset_name(lh_framework_preset preset);
LH_API const char *lh_gradient_name(lh_gradient gradient);
LH_API const char *lh_fp8_name(lh_fp8 fp8);
LH_API uint32_t lh_precision_bytes(lh_precision precision);
LH_API uint32_t lh_gradient_bytes(lh_gradient gradient);

#ifdef __cplusplus
}
#endif
#endif
