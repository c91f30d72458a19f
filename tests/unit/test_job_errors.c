/* SPDX-License-Identifier: Apache-2.0 */
/* Rejected job files, each with its error message. */
#include "test_job.h"

/* Checks that `text` is rejected with `says` in the message. */
static void bad_models_are_refused(void)
{
#define WITH(model) "longhaul: job/1\nmodel: " model "\n" TRAINING TWO LINK
    refuse(WITH("llama"), "j.yaml:2: model: unknown model 'llama'");
    refuse(WITH("[a]"), "must be a preset's name");
    refuse(WITH("x/config.json"), "names a file");
    refuse(WITH(""), "model: has no value");
    refuse(WITH("{layers: 2}"), "model: key 'hidden' is missing");
    refuse(WITH("{layers: 2, hiden: 8}"), "did you mean 'hidden'");
#define MAP(more)                                                              \
    WITH("{layers: 4, hidden: 8, heads: 2, vocab: 10, ffn: 16, " more "}")
    refuse(MAP("kv_heads: 3"), "2 heads are not divisible by 3");
    refuse(MAP("gated: yes"), "gated: must be true or false");
    refuse(MAP("norm: l2"), "norm: must be rms, layer or");
    refuse(MAP("experts: 2"), "2 experts require expert_ffn");
    refuse(MAP("experts: 2, expert_ffn: 4"),
           "2 experts require experts_per_token");
    refuse(MAP("experts: 2, expert_ffn: 4, experts_per_token: 1, "
               "dense_layers: 4"),
           "but no layer uses them");
    refuse(MAP("experts_per_token: 2"),
           "experts_per_token: has no effect without experts");
    refuse(MAP("router_bias: true"), "has no effect without experts");
    refuse(MAP("router: sigmoid"), "router: has no effect without experts");
    refuse(MAP("routed_scale: 2"), "routed_scale: has no effect without");
    refuse(MAP("moe_interval: 2"), "moe_interval: has no effect without exp");
    refuse(MAP("moe_interval: 2, moe_phase: 0"), "has no effect without exp");
    refuse(MAP("dense_list: [1]"), "dense_list: has no effect without experts");
    refuse(MAP("q_lora_rank: 4"), "q_lora_rank: has no effect without kv_lora");
    refuse(MAP("qk_nope_head_dim: 4"), "qk_nope_head_dim: has no effect with");
    refuse(MAP("qk_rope_head_dim: 4"), "qk_rope_head_dim: has no effect with");
    refuse(MAP("v_head_dim: 4"), "v_head_dim: has no effect without kv_lora");
#define MOE "experts: 8, expert_ffn: 4, experts_per_token: 4, "
    refuse(MAP(MOE "router: tanh"), "router: must be softmax or sigmoid");
    refuse(MAP(MOE "routed_scale: 0"), "out of range");
    refuse(MAP(MOE "expert_groups: 3, groups_per_token: 2"),
           "8 experts are not divisible into 3 equal groups");
    refuse(MAP(MOE "expert_groups: 4, groups_per_token: 1"),
           "1 of 4 expert groups per token have fewer than 4 experts");
    refuse(MAP(MOE "expert_groups: 2, groups_per_token: 3"),
           "3 of 2 expert groups");
    refuse(MAP(MOE "groups_per_token: 2"),
           "are not divisible into 0 equal groups");
#undef MOE
    refuse(MAP("full_interval: 2"),
           "full_interval: has no effect without sliding_window or "
           "linear_value_heads");
    refuse(MAP("linear_key_heads: 2"),
           "linear_key_heads: has no effect without linear_value_heads");
    refuse(MAP("linear_value_heads: 3, linear_key_heads: 2, "
               "linear_key_head_dim: 8, linear_value_head_dim: 8"),
           "linear_value_heads require linear_key_heads, of which they are a "
           "multiple");
    refuse(MAP("mamba_heads: 2"),
           "mamba_heads: has no effect without layers M in layer_pattern");
    refuse(MAP("expert_latent: 2"),
           "expert_latent: has no effect without experts");
    refuse(MAP("layer_pattern: \"M\""), "another number of letters");
    refuse(MAP("layer_pattern: \"**+-\""), "a letter other than M, G, *");
    refuse(MAP("layer_pattern: \"**--/*\""), "exactly if mtp_layers");
    refuse(MAP("layer_pattern: \"M*--\""), "layers M require mamba_heads");
    refuse(MAP("layer_pattern: \"G*--\""), "layers G require linear_value");
    refuse(MAP("layer_pattern: \"**--\", linear_value_heads: 2, "
               "linear_key_heads: 2, linear_key_head_dim: 8, "
               "linear_value_head_dim: 8"),
           "linear_value_heads has no effect without layers G");
    refuse(MAP("layer_pattern: \"E*--\""), "layers E require experts");
    refuse(MAP("layer_pattern: \"**--\", experts: 4, expert_ffn: 8, "
               "experts_per_token: 2"),
           "experts have no effect without layers E");
    refuse(MAP("layer_pattern: \"**--\", sliding_window: 8"),
           "cannot be combined with sliding windows");
    refuse(MAP("index_heads: 2"), "index_heads: has no effect without "
                                  "index_topk");
    refuse(MAP("index_topk: 64, index_heads: 2, index_head_dim: 8"),
           "sparse attention (index_topk) requires latent attention");
    refuse(MAP("chunked_attention: true"),
           "chunked_attention: has no effect without sliding_window");
    refuse(MAP("router_aux_loss_coef: 0"), "has no effect without experts");
    refuse(MAP("qk_norm_all_heads: true"), "has no effect without qk_norm");
    refuse(MAP("activation: relu"),
           "activation: must be silu, gelu, gelu_tanh");
    refuse(MAP("rope_scaling: {rope_type: linear}"),
           "rope_scaling: key 'factor' is missing");
    refuse(MAP("rope_scaling: {rope_type: linear, factor: 2, beta_fast: 1}"),
           "belong to rope_type yarn");
    refuse(MAP("rope_scaling: {rope_type: linear, factor: 2, "
               "original_max_position_embeddings: 2}"),
           "linear scaling has no original_max_position_embeddings");
    refuse(MAP("rope_scaling: {rope_type: yarn, factor: 2, "
               "original_max_position_embeddings: 2}"),
           "yarn requires beta_fast and beta_slow");
    refuse(MAP("moe_interval: 2, moe_phase: 2"), "moe_phase 2 must be below");
    refuse(MAP("dense_list: [1, 1]"), "ascending order");
    refuse(MAP("dense_list: [4]"), "dense_list[0]: 4 is out of range");
    refuse(MAP("kv_lora_rank: 4"), "qk_nope_head_dim");
    refuse(MAP("kv_lora_rank: 4, kv_heads: 1"), "remove kv_heads");
    refuse(MAP("parallel_block: 1"), "parallel_block: must be true or false");
    refuse(MAP("parallel_block: true, mtp_layers: 1"),
           "remove experts and mtp_layers");
    refuse(MAP("parallel_block: true, experts: 2, expert_ffn: 4, "
               "experts_per_token: 1"),
           "with a parallel_block have one dense MLP");
    refuse(MAP("name: ''"), "name: must not be empty");
    refuse(WITH("{layers: 4, hidden: 9, heads: 2, vocab: 10, ffn: 16}"),
           "set head_dim");
    refuse(WITH("{layers: 4, hidden: 8, heads: 2, vocab: 10}"),
           "without experts require ffn");
    refuse(WITH("{layers: 99999, hidden: 8, heads: 2, vocab: 10}"),
           "layers: 99999 is out of range");
    refuse(WITH("{layers: 2, hidden: 8, heads: 2, vocab: 10, ffn: 16, "
                "positions: 64, rope_theta: 500}"),
           "rope_theta: applies to rotary positions, but the model has 64");
#undef WITH
}

static void bad_training_is_refused(void)
{
#define WITH(training) HEAD "training: " training "\n" TWO LINK
    refuse(HEAD TWO LINK, "key 'training' is missing");
    refuse(WITH("3"), "training: must be a map");
    refuse(WITH("{sequence: 16}"), "'global_batch' is missing");
    refuse(WITH("{global_batch: 16}"), "'sequence' is missing");
    refuse(WITH("{global_batch: 0, sequence: 16}"), "global_batch: 0 is out");
    refuse(WITH("{global_batch: 1.5, sequence: 16}"), "whole number");
    refuse(WITH("{global_batch: .inf, sequence: 16}"), "not '.inf'");
    refuse(WITH("{global_batch: 8, sequence: 99999999999}"), "out of range");
    refuse(WITH("{global_batch: 8, sequence: 16, zero: 4}"), "from 0 to 3");
    refuse(WITH("{global_batch: 8, sequence: 16, dropout: 1}"),
           "dropout: must be true, false, or a share");
    refuse(WITH("{global_batch: 8, sequence: 16, balance_loss: 1}"),
           "balance_loss: llama3-8b has no experts");
    refuse(WITH("{global_batch: 8, sequence: 16, imbalance: 1.3}"),
           "imbalance: llama3-8b has no experts");
    refuse(WITH("{global_batch: 8, sequence: 16, expert_capacity: 1}"),
           "expert_capacity: llama3-8b has no experts");
    refuse(
        "longhaul: job/1\nmodel: mixtral-8x7b\n"
        "training: {global_batch: 8, sequence: 16, expert_capacity: 0.8}\n" TWO
            LINK,
        "expert_capacity: 0.8 is out of range; from 1 to");
    refuse("longhaul: job/1\nmodel: mixtral-8x7b\n"
           "training: {global_batch: 8, sequence: 16, balance_bias: 0.1}\n" TWO
               LINK,
           "this requires router: sigmoid");
    refuse("longhaul: job/1\nmodel: mixtral-8x7b\n"
           "training: {global_batch: 8, sequence: 16, balance_loss: -1}\n" TWO
               LINK,
           "out of range");
    refuse(WITH("{global_batch: 8, sequence: 16, precision: fp8}"),
           "precision: must be bf16, fp16 or fp32");
    refuse(WITH("{global_batch: 8, sequence: 16, optimizer: sgd}"),
           "must be adamw or adam");
    refuse(WITH("{global_batch: 8, sequence: 16, recompute: some}"),
           "must be none, selective or full");
    refuse(WITH("{global_batch: 8, sequence: 16, batch: 3}"), "unknown key");
    refuse(WITH("{global_batch: 8, sequence: 16, precision: fp32}"),
           "a100-80g has no preset tflops for fp32");
    refuse("longhaul: job/1\nmodel: gpt3-175b\n"
           "training: {global_batch: 8, sequence: 4096}\n" TWO LINK,
           "learned 2048 positions");
#undef WITH
}

static void bad_clusters_are_refused(void)
{
#define WITH(cluster) HEAD TRAINING "cluster:\n" cluster
#define NETS                                                                   \
    "  gpus_per_node: 4\n"                                                     \
    "  node_link: {gbps: 800, latency_us: 2.5}\n"                              \
    "  fabric: {gbps: 100, latency_us: 7}\n"
#define SITES "  datacenters: [{name: a, nodes: 2}, {name: b, nodes: 1}]\n"
#define GPU "  gpu: a100-80g\n"
    refuse(HEAD TRAINING, "key 'cluster' is missing");
    refuse(WITH(GPU NETS), "cluster: key 'datacenters' is missing");
    refuse(WITH(GPU NETS "  datacenters: []\n"), "0 datacenters");
    refuse(WITH(GPU NETS "  datacenters: {a: 1}\n"), "must be a list");
    refuse(WITH(NETS SITES), "key 'gpu' is required, here or in the cluster");
    refuse(WITH("  gpu: a16\n" NETS SITES), "unknown GPU 'a16'; known: v100");
    refuse(WITH("  gpu: [1]\n" NETS SITES), "a preset's name or a map");
    refuse(WITH("  gpu: v100-32g\n" NETS SITES), "or train in fp16");
    refuse(WITH("  gpu: {tflops: 1}\n" NETS SITES), "'memory_gib' is missing");
    refuse(WITH("  gpu: {tflops: -1}\n" NETS SITES), "tflops: -1 is out");
    refuse(WITH("  gpu: {tflops: nan}\n" NETS SITES), "not 'nan'");
    refuse(WITH("  gpu: {preset: h200, efficiency: 1.5}\n" NETS SITES),
           "efficiency: 1.5 is out of range");
    refuse(WITH("  gpu: {preset: h200, sustained_tflops: 990}\n" NETS SITES),
           "sustained_tflops: 990 is above tflops (989.5)");
    refuse(
        WITH("  gpu: {preset: a100-80g, sustained_fp8_tflops: 1}\n" NETS SITES),
        "above fp8_tflops (0)");
    refuse(WITH("  gpu: {preset: h200, name: x}\n" NETS SITES),
           "cannot be combined");
    refuse(WITH(GPU "  memory_reserve: 91%\n" NETS SITES),
           "memory_reserve: must be a share of the memory");
    refuse(WITH(GPU "  memory_reserve: 73\n" NETS SITES),
           "at most 90% of the GPU's 80 GiB");
    refuse(WITH(GPU "  memory_reserve: -1%\n" NETS SITES), "must be a share");
    refuse(WITH(GPU "  memory_reserve: '%'\n" NETS SITES), "must be a share");
    refuse(WITH(GPU "  memory_reserve: [1]\n" NETS SITES), "must be a share");
    refuse(WITH("  gpu: {preset: h200, memory_reserve: all}\n" NETS SITES),
           "must be a share");
    refuse(WITH(GPU "  node_link: {gbps: 1, latency_us: 1}\n" SITES),
           "'gpus_per_node' is required");
    refuse(WITH(GPU "  gpus_per_node: 4\n" SITES), "'node_link' is required");
    refuse(WITH(GPU "  gpus_per_node: 1\n" SITES), "'fabric' is required");
    refuse(WITH(GPU "  gpus_per_node: 9999\n" SITES), "from 1 to 1024");
    refuse(
        WITH(GPU
             "  gpus_per_node: 1\n  fabric: {gbps: 0, latency_us: 1}\n" SITES),
        "gbps: 0 is out of range");
    refuse(WITH(GPU "  gpus_per_node: 1\n  fabric: {gbps: 1}\n" SITES),
           "'latency_us' is missing");
    refuse(WITH(GPU "  gpus_per_node: 1\n"
                    "  fabric: {gbps: 1, latency_us: 1e12}\n" SITES),
           "at most an hour");
    refuse(WITH(GPU NETS "  datacenters: [{name: a, nodes: 2}, "
                         "{name: a, nodes: 1}]\n"),
           "datacenters[1].name: datacenter 'a' appears twice");
    refuse(WITH(GPU NETS "  datacenters: [{name: 'a,b', nodes: 2}]\n"),
           "datacenters[0].name: must not be empty, hold commas, quotes, '>'");
    refuse(WITH(GPU NETS "  datacenters: [{name: 'a>b', nodes: 2}]\n"),
           "must not be empty, hold commas");
    refuse(WITH(GPU NETS "  datacenters: [{name: \"a\\nb\", nodes: 2}]\n"),
           "or control characters");
    refuse(WITH(GPU NETS "  datacenters: [{name: \"a'b\", nodes: 2}]\n"),
           "quotes");
    refuse(WITH(GPU NETS "  datacenters: [{name: "
                         "a123456789b123456789c123456789d123456789e123456789"
                         "f123456789g, nodes: 2}]\n"),
           "exceeds 60 bytes");
    refuse(WITH(GPU NETS "  datacenters: [{nodes: 2}]\n"), "'name' is missing");
    refuse(WITH(GPU NETS "  datacenters: [{name: a}]\n"), "'nodes' is missing");
    refuse(WITH(GPU NETS "  datacenters: [{name: a, nodes: 0}]\n"), "0 is out");
    refuse(WITH(GPU NETS "  datacenters: [{name: a, nodes: 16777216}]\n"),
           "exceed the limit of 16777216 GPUs");
    refuse(WITH(GPU NETS "  datacenters: [{name: a, nodes: 4194304}, "
                         "{name: b, nodes: 1}]\n"),
           "more than 16777216 GPUs in all");
    refuse(WITH(GPU NETS "  usd_per_gpu_hour: 0\n"
                         "  datacenters: [{name: a, nodes: 2}]\n"),
           "cluster.usd_per_gpu_hour: 0 is out of range");
    refuse(WITH(GPU NETS "  datacenters: [{name: a, nodes: 2, "
                         "usd_per_gpu_hour: .inf}]\n"),
           "usd_per_gpu_hour: ");
    refuse(WITH(GPU NETS "  datacenters: [{name: a, nodes: 2, "
                         "usd_per_gpu_hour: 2}, {name: b, nodes: 1}]\n" LINK),
           "'a' has a usd_per_gpu_hour, but 'b' does not");
    refuse(WITH(GPU NETS "  datacenters: [{name: a, nodes: 2, rack: 1}]\n"),
           "datacenters[0].rack: unknown key");
}

static void bad_links_are_refused(void)
{
#define LINKS(links) HEAD TRAINING TWO "  links: " links "\n"
    refuse(HEAD TRAINING TWO, "no link from 'a' to 'b'");
    refuse(LINKS("[]"), "no link from 'a' to 'b'");
    refuse(LINKS("3"), "links: must be a list");
    refuse(LINKS("[{from: a, to: b, latency_ms: 1, gbps: 1}]"),
           "no link from 'b' to 'a'");
    refuse(LINKS("[{latency_ms: 1, gbps: 1}]"), "key 'between' is required");
    refuse(LINKS("[{from: a, latency_ms: 1, gbps: 1}]"), "'to' is missing");
    refuse(LINKS("[{between: [a], latency_ms: 1, gbps: 1}]"), "name two");
    refuse(LINKS("[{between: [a, a], latency_ms: 1, gbps: 1}]"),
           "two different datacenters");
    refuse(LINKS("[{between: [a, c], latency_ms: 1, gbps: 1}]"),
           "links[0].between[1]: unknown datacenter 'c'");
    refuse(LINKS("[{between: [a, b], to: b, latency_ms: 1, gbps: 1}]"),
           "cannot be combined");
    refuse(LINKS("[{between: [a, b], latency_ms: 1, gbps: 1}, "
                 "{from: b, to: a, latency_ms: 1, gbps: 1}]"),
           "links[1]: duplicate link from 'b' to 'a'");
    refuse(LINKS("[{between: [a, b], gbps: 1}]"), "'latency_ms' is missing");
    refuse(LINKS("[{between: [a, b], latency_ms: -1, gbps: 1}]"), "-1 is out");
    refuse(LINKS("[{between: [a, b], latency_ms: 1}]"), "'gbps' is missing");
    refuse(LINKS("[{between: [a, b], latency_ms: 1, gbps: 0}]"), "0 is out");
    refuse(LINKS("[{between: [a, b], latency_ms: 1, gbps: 1, loss: 1}]"),
           "loss: 1 is out of range");
    refuse(LINKS("[{between: [a, b], latency_ms: 1, gbps: 1, "
                 "oversubscription: 0.5}]"),
           "oversubscription: 0.5 is out of range");
    refuse(LINKS("[{between: [a, b], latency_ms: 1, gbps: 1, "
                 "usd_per_gb: -0.1}]"),
           "links[0].usd_per_gb: -0.1 is out of range");
#define SET(keys) LINKS("[{between: [a, b], latency_ms: 1, gbps: 1, " keys "}]")
    refuse(SET("load_balancing: even"), "must be ecmp or spray");
    refuse(SET("nccl: {buffer_kib: 64}"), "key 'channels' is missing");
    refuse(SET("nccl: {channels: 65}"), "nccl.channels: 65 is out of range");
    refuse(SET("nccl: {channels: 2, tcp_window_kib: 64}"),
           "nccl.tcp_window_kib: requires sockets");
    refuse(SET("queue_pairs: 0"), "queue_pairs: 0 is out of range");
    refuse(SET("paths: 2"), "paths: requires load_balancing: ecmp");
    refuse(SET("queue_pairs: 2"),
           "links[0].queue_pairs: requires load_balancing, window_kib");
    refuse(SET("queue_pairs: 2, recovery: selective-repeat"),
           "set one of these, or remove it");
    refuse(SET("fec: {data: 8, parity: 1}"), "set its loss, or remove fec");
    refuse(SET("loss: 0, fec: {data: 8, parity: 1}"),
           "requires packet loss on this link");
    refuse(SET("queue_kib: 2"), "requires congestion_control: on");
    refuse(SET("window_kib: 0"), "window_kib: 0 is out of range");
    refuse(SET("congestion_control: 1"), "must be off or on");
    refuse(SET("recovery: none"), "must be go-back-n or selective-repeat");
    refuse(SET("fec: 1"), "fec: must be a map");
    refuse(SET("fec: {data: 1}"), "'parity' is missing");
    refuse(SET("fec: {data: 0, parity: 1}"), "fec.data: 0 is out of range");
    refuse(LINKS("[{between: [a, b], latency_ms: 1, gbps: 1, usd_per_gb: 1}]"),
           "usd_per_gb requires usd_per_gpu_hour");
#define ALONE(keys)                                                            \
    HEAD TRAINING "cluster: {gpu: a100-80g, gpus_per_node: 1, datacenters: "   \
                  "[{name: a, nodes: 1}], " keys "}\n"
    refuse(ALONE("usd_per_gb: -1"), "cluster.usd_per_gb: -1 is out of range");
    refuse(ALONE("usd_per_gb: 1"), "usd_per_gb requires usd_per_gpu_hour");
    refuse(LINKS("[{between: [a, b], latency: 1, gbps: 1}]"),
           "did you mean 'latency_ms'");
}

static void bad_layouts_are_refused(void)
{
#define LAYOUT(layout) JOB "layout: {" layout "}\n"
    refuse(LAYOUT("tensor: 0"), "layout.tensor: 0 is out of range");
    refuse(LAYOUT("tensr: 1"), "did you mean 'tensor'");
    refuse(LAYOUT("tensor: 3"), "32 heads of llama3-8b are not divisible by 3");
    refuse(LAYOUT("tensor: 4, data: 4"), "exceeds the cluster's 12 GPUs");
    refuse(LAYOUT("tensor: 1048576, data: 1048576, pipeline: 1048576, "
                  "context: 1048576"),
           "exceeds the cluster's 12 GPUs");
    refuse(LAYOUT("pipeline: 12, chunks_per_device: 3"), "36 chunks");
    refuse(LAYOUT("data: 3"), "global batch of 8 is not divisible");
    refuse(LAYOUT("micro_batch: 16"), "is not divisible by data x");
    refuse(LAYOUT("expert: 2"), "has no experts");
    refuse(LAYOUT("outermost: tensor"), "must be pipeline, data or mixed");
    refuse(LAYOUT("rank_order: mixed"), "must be pipeline or data");
    refuse(LAYOUT("packing: loose"), "must be dense or aligned");
    refuse(LAYOUT("sharding: any"), "must be full, hybrid or hybrid-leaders");
#define SITES_OF(groups) LAYOUT("sites: " groups)
#define A_B "pipeline: [{datacenter: a, stages: 4}, {datacenter: b, stages: 2}]"
    refuse(SITES_OF("3"), "layout.sites: must be a list");
    refuse(SITES_OF("[]"), "layout.sites: must have at least one group");
    refuse(SITES_OF("[{replicas: 1}]"), "sites[0]: key 'pipeline' is missing");
    refuse(SITES_OF("[{pipeline: [], replica: 1}]"), "did you mean 'replicas'");
    refuse(SITES_OF("[{pipeline: a}]"), "sites[0].pipeline: must be a list");
    refuse(SITES_OF("[{pipeline: []}]"), "must name at least one datacenter");
    refuse(SITES_OF("[{pipeline: [a, c]}]"),
           "j.yaml:13: layout.sites[0].pipeline[1]: unknown datacenter 'c'");
    refuse(SITES_OF("[{pipeline: [a, b, a]}]"), "datacenter 'a' appears twice");
    refuse(SITES_OF("[{pipeline: [{datacenter: a, stages: 0}]}]"),
           "pipeline[0].stages: 0 is out of range");
    refuse(SITES_OF("[{pipeline: [{stages: 1}]}]"), "'datacenter' is missing");
    refuse(LAYOUT("pipeline: 4, sites: [{" A_B "}]"),
           "sites[0].pipeline: 6 stages in all, but pipeline is 4");
    refuse(LAYOUT("pipeline: 4, sites: [{pipeline: [{datacenter: a, stages: "
                  "4}, b]}]"),
           "5 stages at least, but pipeline is 4");
    refuse(SITES_OF("[{" A_B "}, {pipeline: [{datacenter: b, stages: 4}]}]"),
           "sites[1].pipeline: 4 stages in all, but pipeline is 6");
    refuse(LAYOUT("data: 2, sites: [{replicas: 1, pipeline: [a]}]"),
           "1 replicas in all, but data is 2");
    refuse(LAYOUT("data: 1, sites: [{pipeline: [a]}, {pipeline: [b]}]"),
           "2 replicas at least, but data is 1");
    refuse(SITES_OF("[{pipeline: [a]}, {pipeline: [a, b]}]"),
           "datacenter 'a' is in two groups; this requires 'replicas'");
    refuse(LAYOUT("outermost: data, sites: [{pipeline: [a, b]}]"),
           "outermost is data, but there is 1 group, with pipelines across "
           "datacenters");
    refuse(LAYOUT("outermost: mixed, sites: [{pipeline: [a]}, {pipeline: "
                  "[b]}]"),
           "outermost is mixed, but there are 2 groups, each within one");
    refuse(LAYOUT("schedule: [1f1b]"), "layout.schedule: must be a string");
    refuse(JOB "layout: 8\n", "layout: must be a map");
    refuse(LAYOUT("expert_tensor: 2"), "has no experts");
#define EXPERTS(text)                                                          \
    "longhaul: job/1\nmodel: mixtral-8x7b\n" TRAINING TWO LINK                 \
    "layout: {" text "}\n"
    refuse(EXPERTS("expert: 8, pipeline: 2"),
           "8, above the 6 GPUs of a pipeline stage");
    refuse(EXPERTS("expert: 3"),
           "8 experts of mixtral-8x7b are not divisible by 3");
    refuse(EXPERTS("expert: 4, expert_tensor: 3"),
           "expert width of mixtral-8x7b, 14336, is not");
    refuse(EXPERTS("expert: 8, tensor: 2, context: 1, data: 2"),
           "expert x expert_tensor (8) does not divide the tensor x context x "
           "data (4) GPUs");
    refuse(EXPERTS("expert: 2, expert_tensor: 4, tensor: 2, context: 1, "
                   "data: 2"),
           "expert x expert_tensor (8) does not divide");
    refuse(
        HEAD
        "training: {global_batch: 8, sequence: 16, dispatcher: all}\n" TWO LINK,
        "must be alltoall, deepep, hybridep or allgather");
    refuse(HEAD
           "training: {global_batch: 8, sequence: 16, dispatcher: deepep}\n" TWO
               LINK,
           "has no experts");
}

static void bad_files_are_refused(void)
{
    refuse("model: llama3-8b\n", "key 'longhaul' is missing");
    refuse("longhaul: job/2\n", "must be job/1, not 'job/2'");
    refuse("longhaul: [1]\n", "must be job/1");
    refuse(JOB "profil: x\n", "did you mean 'profile'");
    refuse(JOB "profile: x.yaml\n", "names a file");
    refuse(JOB "model: gpt3-175b\n", "key 'model' appears twice");
    refuse("", "j.yaml");
    refuse("- 1\n", "j.yaml:1:");
    refuse(JOB "layout: &x {tensor: 2}\n", "anchors");
}

int main(void)
{
    RUN(bad_models_are_refused);
    RUN(bad_training_is_refused);
    RUN(bad_clusters_are_refused);
    RUN(bad_links_are_refused);
    RUN(bad_layouts_are_refused);
    RUN(bad_files_are_refused);
    return test_summary();
}
