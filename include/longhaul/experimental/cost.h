/* SPDX-License-Identifier: Apache-2.0 */
/* Cost model: estimates time per pass (F, dgrad D, wgrad W), memory, messages
 * and collectives for a part of a model on a GPU. All functions are pure
 * functions of a job and a layout. docs/theory/cost-model.md derives every
 * formula; docs/validation.md compares them with measured runs.
 *
 * Sources cited below:
 *
 *     [Kor]  Korthikanti et al., Reducing Activation Recomputation in Large
 *            Transformer Models, arXiv:2205.05198
 *     [Nar]  Narayanan et al., Efficient Large-Scale Language Model Training on
 *            GPU Clusters Using Megatron-LM, arXiv:2104.04473
 *     [Raj]  Rajbhandari et al., ZeRO, arXiv:1910.02054
 *     [Qi]   Qi et al., Zero Bubble Pipeline Parallelism, arXiv:2401.10241
 *     [Dao]  Dao, FlashAttention-2, arXiv:2307.08691
 *     [Tha]  Thakur, Rabenseifner, Gropp, Optimization of Collective
 *            Communication Operations in MPICH, IJHPCA 19(1), 2005
 *     [CP]   CrossPipe, arXiv:2507.00217, appendix E
 *     [SX]   ScaleAcross Explorer: Exploring Communication Optimization for
 *            Scale-Across AI Model Training, 2026
 *
 * GPU numbering: tensor varies fastest, then context. Next comes data before
 * pipeline (pipeline outermost, the default) or pipeline before data (data
 * outermost; see lh_layout_rank_order()). The tensor x context GPUs of one
 * pipeline rank share every microbatch: `micro_batch` counts the sequences that
 * they process together, and a GPU processes micro_batch * sequence / context
 * tokens.
 *
 * Experts are distributed over the tensor x context x data ranks of a pipeline
 * stage (MoE Parallel Folding, arXiv:2504.14960). In the order above, each
 * block with expert x expert_tensor ranks holds all experts of a layer: tensor
 * * context * data = expert * expert_tensor * copies. These numbers equal
 * Megatron-LM's tensor, context, expert, expert-tensor, pipeline and data
 * parallel sizes and its micro-batch size.
 *
 * Experimental: may change in any release, see longhaul.h. */
#ifndef LONGHAUL_EXPERIMENTAL_COST_H
#define LONGHAUL_EXPERIMENTAL_COST_H

#include <longhaul/experimental/job.h>
#include <longhaul/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where a cost comes from. */
typedef enum lh_cost_source {
    LH_COST_MODEL,      /* the kernel model below */
    LH_COST_EFFICIENCY, /* FLOPs over the GPU's given `efficiency`, which covers
                         * all kernels; communication is added */
    LH_COST_PROFILE,    /* measured, possibly interpolated between two shapes */
    LH_COST_MIXED,      /* partly measured, partly from another source */
    LH_COST_PART_EFFICIENCY, /* no measurement: partly an efficiency, partly the
                              * kernel model, e.g. for mixed GPUs */
} lh_cost_source;

/* Returns a cost source's name (profile, model, efficiency or mixed); static
 * storage. */
LH_API const char *lh_cost_source_name(lh_cost_source source);

/* Constants in the kernel and network model. The defaults are fitted to
 * measured runs, see docs/validation.md. The time for one kernel is
 *
 *     FLOPs / (matmul_efficiency * peak)
 *     + bytes moved / (memory_efficiency * memory bandwidth) + kernel_ns,
 *
 * a roofline with a soft knee: small matrices reach a lower fraction of the
 * peak. */
typedef struct lh_cost_constants {
    double matmul_efficiency; /* fraction of peak for very large matrix products
                               * on A100; presets for later GPUs reach less */
    double memory_efficiency; /* fraction of memory bandwidth */
    double kernel_ns;         /* launch and drain of one kernel */
    double layer_host_ns;     /* host time to launch a layer's F, D or W; a
                               * lower limit on its duration */
    /* fraction of node_link's rate, for collectives */
    double node_efficiency;
    double fabric_efficiency; /* fraction of fabric's rate */
    double wan_efficiency;    /* fraction of a datacenter link's rate */
    /* per iteration: data loading, logging, clipping */
    double iteration_ns;
    /* Relative rate of grouped expert products (many small ones at once) on
     * GPUs with 8-bit products. No measured run on older GPUs determines it. */
    double experts_efficiency;
    /* for jobs with framework.experts: fused */
    double fused_experts_efficiency;
    /* Fixed times unless framework.experts is fused. Routing and dispatching a
     * layer's tokens, per F and D: small kernels, and waits for token counts on
     * the host. */
    double dispatch_ns;
    /* Each expert on a GPU, per F, D and W: launches of its own kernels. */
    double expert_ns;
} lh_cost_constants;

/* Returns the cost model's default constants; static storage. */
LH_API const lh_cost_constants *lh_cost_defaults(void);

/* Cost model options. The training framework's behaviour comes from the
 * job (job->framework); options extend or override it as described below. */
typedef struct lh_cost_options {
    size_t size;                        /* sizeof(lh_cost_options) */
    const lh_cost_constants *constants; /* NULL: the job's, else
                                         * lh_cost_defaults() */
    /* Attention writes the sequence x sequence scores to memory and computes
     * all of them, causal or not. False: as in the job; default flash attention
     * [Dao]. */
    bool unfused_attention;
    /* Tensor parallelism uses all-reduce and replicates norms and residuals on
     * every GPU [Kor section 4.2.1]. False: as in the job; default sequence
     * parallelism [Kor 4.2.2]. */
    bool no_sequence_parallel;
    /* Every GPU of a tensor-parallel group sends the full message to the next
     * pipeline rank. False: each sends its share [Nar section 4.1]. */
    bool unsplit_messages;
    /* Disables dropout. False: as in the job; by default models with layer norm
     * use it. */
    bool no_dropout;
    /* Estimates shapes that the profile lacks. False: such shapes are an error.
     */
    bool estimate_missing;
    bool ignore_profile;
    /* Bytes per gradient element in memory and on the wire. 0: as in the job;
     * default 4, because Megatron-LM accumulates and reduces bf16 gradients in
     * fp32. */
    uint32_t gradient_bytes, gradient_wire_bytes;
    /* Pipelining between ring steps. LH_RING_LOCKSTEP (0): as in the job;
     * default lockstep. */
    lh_ring rings;
    /* Number of GPUs in a pipeline rank that share a layer's experts; 0: expert
     * * expert_tensor. */
    uint32_t expert_divisor;
    /* Frees parameters after a chunk's forward and gathers them again for its
     * backward. The doubled traffic is modelled as one longer gather. ZeRO 3
     * gathers for every pass regardless. */
    bool regather_parameters;
} lh_cost_options;

/* Cost for one pass kind (F, D or W) over one microbatch, per GPU of the
 * group. */
typedef struct lh_pass_cost {
    int64_t total_ns;
    /* Breakdown, before the host-launch limit. With an efficiency, all time is
     * in matmul_ns. With a measurement the first three are 0, and so is the
     * fourth if the measurement included communication. */
    int64_t matmul_ns, memory_ns, kernel_ns;
    /* Tensor, context and expert communication, plus the extra pass time caused
     * by ZeRO 2 and 3 traffic. */
    int64_t communication_ns;
    double flops;    /* matrix products, per GPU */
    int64_t data_ns; /* share of communication_ns due to ZeRO 2 and 3 */
    /* Part of data_ns that blocks the whole layer range: the gather before the
     * first layer of F and the reduction after the last of W. 0 with hybrid
     * sharding, where both stay within a datacenter. */
    int64_t blocking_ns;
} lh_pass_cost;

/* Data-parallel replica count in one datacenter. */
typedef struct lh_cost_site {
    uint32_t datacenter, replicas;
} lh_cost_site;

/* A pipeline rank's replicas at equal distances in one datacenter. GPUs are
 * counted within the datacenter; each replica is on consecutive ones. */
typedef struct lh_cost_run {
    uint32_t datacenter;
    uint32_t first_gpu; /* of the first replica */
    uint32_t replicas;
    uint32_t stride; /* from the first GPU of a replica to that of the next */
} lh_cost_run;

/* Where a model's multi-token prediction (MTP) modules are. */
typedef enum lh_mtp_location {
    LH_MTP_WITH_HEAD, /* in the layer range with the head */
    LH_MTP_IN_RANGE,  /* in this layer range, which has no head */
    LH_MTP_ELSEWHERE, /* in another range; this head only computes their loss */
} lh_mtp_location;

/* A range of consecutive layers and its location. */
typedef struct lh_cost_layer_range {
    uint32_t first_layer, n_layers;
    bool embedding; /* includes the token embedding */
    /* includes final norm, vocabulary matrix and loss (see mtp) */
    bool head;
    uint32_t chunk, n_chunks; /* chunk index and number of chunks, for per-chunk
                               * profiles; n_chunks = 0: none */
    uint32_t datacenter;      /* determines the GPU and networks */
    /* Datacenter count, starting at `datacenter`, that evenly share the
     * data-parallel replicas; 0 and 1: a single one. */
    uint32_t data_datacenters;
    /* Replaces data_datacenters: replicas per datacenter, in the order of the
     * inter-datacenter ring. Replicas add up to the layout's `data`; each
     * datacenter occurs once. NULL: unused. */
    uint32_t n_sites;
    const lh_cost_site *sites;
    /* With `sites`: number of pipeline ranks whose rings share a link; 0: all.
     */
    uint32_t n_sharing_ranks;
    lh_mtp_location mtp; /* for models with MTP modules */
    /* The GPUs of these replicas, by datacenter and then by GPU: they determine
     * which groups straddle nodes. NULL: in each datacenter the replicas begin
     * at its first GPU and follow the GPU numbering above. */
    uint32_t n_runs;
    const lh_cost_run *runs;
} lh_cost_layer_range;

/* One layer range's cost: passes, memory and data-parallel communication, per
 * GPU. */
typedef struct lh_cost {
    lh_pass_cost f, d, w; /* a joint backward takes d + w */
    lh_cost_source time_source, memory_source;

    /* Parameters per GPU: all, and those in experts. */
    int64_t params, expert_params;

    /* Bytes per GPU and microbatch. `activation_bytes` are resident from F to
     * D. `weight_input_bytes` are resident from D to W: inputs and output
     * gradients of the matrix products [Qi, table 1]. Hence mem_f = activation,
     * mem_d = weight_input - activation, mem_w = -weight_input. */
    int64_t activation_bytes, weight_input_bytes;
    /* Static memory, bytes per GPU [Raj section 3.1]: */
    int64_t weight_bytes, gradient_bytes, optimizer_bytes;
    int64_t workspace_bytes; /* largest temporary need of one pass */
    /* ZeRO 2 and 3, beyond the shards. Gradients of the two largest units among
     * layers, embedding and head: one is reduced while the next is computed.
     * ZeRO 3 adds their parameters, in use and prefetched. */
    int64_t buffer_bytes;
    int64_t static_bytes; /* the five above, summed */
    /* A microbatch's activations offloaded to storage between F and B, not
     * included in the first two byte counts, and the transfer time in each
     * direction. buffer_bytes includes three times offload_bytes. */
    int64_t offload_bytes, offload_ns;

    /* Data parallelism, per GPU: bytes gathered before the first F and reduced
     * after the last W.
     *
     * ZeRO 0 all-reduces at the end, counted under reduce. ZeRO 2 and 3
     * communicate in every pass; the part that passes cannot hide is in f, d
     * and w. With hybrid sharding, gathers and reductions stay within a
     * datacenter, and the sum between datacenters counts once, under reduce [SX
     * section 4.1]. */
    int64_t gather_bytes, reduce_bytes;
    int64_t all_gather_ns, reduce_scatter_ns; /* link occupancy */
    int64_t data_latency_ns; /* of either one, summed over its steps */
    /* With hybrid sharding: excess of the reduction's latency (between
     * datacenters) over the gather's (within one). Paid once, after all other
     * work. */
    int64_t reduce_extra_latency_ns;

    int64_t optimizer_ns; /* optimizer step, after everything else */
} lh_cost;

/* Computes a layer range's cost under a complete layout (tensor, context,
 * expert, pipeline, data and micro_batch all > 0). `options` may be NULL.
 *
 * LH_EINVAL: the layout or range is incomplete or contradicts the job.
 * LH_EUNSUPPORTED: the model is not divisible that way, or the profile lacks
 * the shape and estimate_missing is false; `err` gives the reason. */
LH_API lh_status lh_cost_chunk(const lh_job *job, const lh_layout *layout,
                               const lh_cost_layer_range *slice,
                               const lh_cost_options *options, lh_cost *out,
                               lh_error *err);

/* ---- Operations ---- */

#define LH_COST_MAX_OPS 24

/* One layer operation, per GPU of the group and microbatch. */
typedef struct lh_cost_op {
    const char *name;  /* "query"; static storage */
    double flops;      /* matrix products, forward */
    int64_t bytes;     /* output stored for the backward */
    int64_t ns;        /* recompute time */
    bool recomputable; /* its output can be freed and recomputed */
} lh_cost_op;

/* Layer families as counted by PipeMesh (Li et al., IEEE TPDS 2025, tables I
 * and II): full attention over all token pairs, every output stored, 16 bits.
 */
typedef enum lh_family {
    LH_FAMILY_GPT3,
    LH_FAMILY_LLAMA2, /* ffn 8h/3; key/value heads: 1/8 of the heads */
    LH_FAMILY_FALCON, /* same heads; parallel attention and MLP */
    LH_N_FAMILIES
} lh_family;

/* One layer operation in the published formulas. */
typedef struct lh_published_op {
    const char *name;
    double flops; /* forward, summed over tensor-parallel GPUs */
    double bytes; /* stored on each GPU */
} lh_published_op;

/* Lists a layer's operations and stored bytes by the published formulas, for
 * sequence length s, micro-batch b, hidden size h and tensor-parallel degree
 * `tensor`. `ops` must hold LH_COST_MAX_OPS entries. Returns the number
 * written. */
LH_API uint32_t lh_cost_published_ops(lh_family family, double s, double b,
                                      double h, double tensor,
                                      lh_published_op *ops);
/* Returns a layer's parameter count by the family's published formula: 12h^2
 * for GPT-3, otherwise 41h^2/4, with hidden size `h`. */
LH_API double lh_cost_published_params(lh_family family, double h);

/* ---- Communication ---- */

/* A network path between GPUs. A message with n bytes occupies it for n /
 * bytes_per_s and arrives latency_ns later. */
typedef struct lh_cost_path {
    double bytes_per_s;
    double latency_ns;
    lh_profile_path kind;
    bool measured; /* from the profile */
    /* For a group: sum of the latencies of all ring hops except the shortest,
     * which is the wait of one piece that travels the ring among others. */
    double ring_latency_ns;
} lh_cost_path;

/* Participants in one collective: `size` GPUs, at least `per_node` on each
 * node, `per_datacenter` in each datacenter, starting at `datacenter`.
 * `concurrent` is the number of similar collectives that run at once and share
 * the inter-datacenter link, which carries all traffic. */
typedef struct lh_cost_group {
    uint32_t size, per_node, per_datacenter;
    uint32_t datacenter;
    uint32_t concurrent;
    /* More than one: the sites used; `per_datacenter` is then the smallest
     * site's count. */
    uint32_t n_sites;
    const lh_cost_site *sites;
    /* Nodes with members in a datacenter; 0: as few as `per_node` permits. */
    uint32_t nodes;
} lh_cost_group;

/* Finds the slowest path that a group crosses. Between nodes, a group with at
 * least k members per node drives k network interfaces at once, and is no
 * faster than the node's own links. Between datacenters, the group's
 * `concurrent` rings share the link's rate after loss and oversubscription. */
LH_API lh_status lh_cost_group_path(const lh_job *job,
                                    const lh_cost_group *group,
                                    const lh_cost_options *options,
                                    lh_cost_path *out, lh_error *err);

/* Layout dimensions; each defines groups of GPUs within a datacenter. */
typedef enum lh_cost_dimension {
    LH_COST_TENSOR,
    LH_COST_CONTEXT,
    LH_COST_EXPERT,        /* exchange tokens */
    LH_COST_DATA,          /* hold the same experts */
    LH_COST_DATA_SHARED,   /* hold the same non-expert parameters: data x
                            * context */
    LH_COST_EXPERT_TENSOR, /* share each expert */
} lh_cost_dimension;

/* Collective kinds. Formulas: n GPUs, step latency a, buffer size S,
 * bandwidth b. */
typedef enum lh_collective_kind {
    LH_ALL_GATHER,     /* (n-1) a + (n-1)/n S/b   [Tha section 4.1] */
    LH_REDUCE_SCATTER, /* the same                [Tha section 4.2] */
    LH_ALL_REDUCE,     /* both in sequence [Tha section 4.4] */
    LH_ALL_TO_ALL,     /* in parallel: a + (n-1)/n S/b */
} lh_collective_kind;

/* Computes ring collectives on n GPUs. S = `bytes` is the full buffer size per
 * GPU, before a reduction or after a gather; for an all-to-all, the bytes that
 * each GPU sends and keeps. *transfer_ns is the bandwidth term and *latency_ns
 * the sum of step latencies; an all-to-all has one step. n = 1 costs nothing.
 */
LH_API void lh_cost_collective(lh_collective_kind kind, uint32_t n,
                               double bytes, const lh_cost_path *path,
                               double *transfer_ns, double *latency_ns);

/* A pipeline message: from the pipeline rank whose first GPU is `from_gpu` in
 * datacenter `from` to the one at `to_gpu` in `to`. GPUs are counted within the
 * datacenter. */
typedef struct lh_cost_hop {
    uint32_t from, to;
    uint32_t from_gpu, to_gpu;
    uint32_t replicas; /* concurrent senders on the same link between
                        * datacenters; 0: all of the layout's `data` */
    /* Replicas that send so from equally distant GPUs; 0: one. Inside a
     * datacenter the slowest of their GPU pairs counts. */
    uint32_t peers;
    uint32_t stride; /* GPUs from one such replica to the next */
} lh_cost_hop;

/* One pipeline message's cost. */
typedef struct lh_cost_message {
    int64_t bytes;       /* all GPUs of one pipeline rank together */
    int64_t transfer_ns; /* link occupancy per message */
    int64_t latency_ns;
    lh_profile_path kind;
    bool measured;
} lh_cost_message;

/* ---- Counting ---- */

/* Returns forward and backward FLOPs for an iteration without recomputation:
 * the numerator of model FLOPs utilisation (MFU). */
LH_API double lh_cost_iteration_flops(const lh_job *job);

#ifdef __cplusplus
}
#endif
#endif
