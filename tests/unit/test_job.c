/* SPDX-License-Identifier: Apache-2.0 */
#define _POSIX_C_SOURCE 200809L
/* Job files: their meaning, round trips, and that files in documents and
 * examples are valid. */
#include "test_job.h"

#include "base/text.h"

#include <dirent.h>
#include <stdlib.h>

#define SOURCE_ROOT TEST_DATA "/../.."

static void a_job_means_what_it_says(void)
{
    lh_error err;
    lh_job *j = parse(
        HEAD
        "training: {global_batch: 8, sequence: 16, precision: fp16, "
        "optimizer: adam, zero: 0, recompute: full}\n"
        "cluster:\n"
        "  gpu: a100-80g\n"
        "  gpus_per_node: 4\n"
        "  node_link: {gbps: 800, latency_us: 2.5}\n"
        "  fabric: {gbps: 100, latency_us: 7}\n"
        "  datacenters:\n"
        "    - {name: a, nodes: 2}\n"
        "    - {name: b, nodes: 1, gpus_per_node: 8, fabric: {gbps: 50,"
        " latency_us: 0}, gpu: {name: x, tflops: 100, memory_gib: 1.5,"
        " memory_gbps: 7.5, efficiency: 0.25}}\n"
        "  links:\n"
        "    - {from: a, to: b, latency_ms: 20, gbps: 8, loss: 0.001,"
        " oversubscription: 4}\n"
        "    - {from: b, to: a, latency_ms: 0.5, gbps: 16, loss: 1e-6, "
        "load_balancing: "
        "ecmp,"
        " queue_pairs: 4, paths: 8, window_kib: 3, congestion_control: on,"
        " queue_kib: 256, recovery: go-back-n, fec: {data: 32, parity: 2}}\n"
        "layout: {tensor: 2, context: 1, pipeline: 4, data: 2, micro_batch: 4,"
        " chunks_per_device: 2, outermost: data, sharding: hybrid-leaders,"
        " schedule: 1f1b}\n",
        &err);
    CHECK_MSG(j, "%s", err.text);
    if (!j)
        return;
    CHECK(j->model == lh_model_preset("llama3-8b"));
    CHECK_INT(j->training.precision, LH_PRECISION_FP16);
    CHECK_INT(j->training.optimizer, LH_OPTIMIZER_ADAM);
    CHECK_INT(j->training.zero, 0);
    CHECK_INT(j->training.recompute, LH_RECOMPUTE_FULL);
    CHECK(j->training.zero_given && j->training.recompute_given);
    CHECK_INT(j->n_datacenters, 2);
    CHECK_INT(j->n_gpus, 16);
    CHECK_INT(j->n_nodes, 3);
    const lh_datacenter *a = &j->datacenters[0], *b = &j->datacenters[1];
    CHECK_STR(a->gpu.name, "a100-80g");
    CHECK_NEAR(a->gpu.flops_per_s, 312e12, 0);
    CHECK_NEAR(a->node_link.bytes_per_s, 100e9, 0);
    CHECK_INT(a->node_link.latency_ns, 2500);
    CHECK_INT(b->gpus, 8);
    CHECK_STR(b->gpu.name, "x");
    CHECK(b->gpu.preset == NULL);
    CHECK_INT(b->gpu.memory_bytes, (INT64_C(3) << 29));
    CHECK_NEAR(b->gpu.memory_bytes_per_s, 7.5e9, 0);
    CHECK_NEAR(b->gpu.efficiency, 0.25, 0);
    CHECK_NEAR(b->fabric.gbps, 50, 0);
    const lh_wan *ab = &j->wans[1], *ba = &j->wans[2];
    CHECK_INT(ab->latency_ns, 20000000);
    CHECK_NEAR(ab->bytes_per_s, 1e9, 0);
    CHECK_NEAR(ab->loss, 0.001, 0);
    CHECK_NEAR(ab->oversubscription, 4, 0);
    CHECK_INT(ba->latency_ns, 500000);
    CHECK_NEAR(ba->oversubscription, 1, 0);
    CHECK(lh_link_setting_is_default(&ab->setting));
    CHECK_INT(ba->setting.balancing, LH_BALANCING_ECMP);
    CHECK_INT(ba->setting.queue_pairs, 4);
    CHECK_INT(ba->setting.paths, 8);
    CHECK_NEAR(ba->setting.window_bytes, 3072, 0);
    CHECK_INT(ba->setting.congestion, LH_CONGESTION_ON);
    CHECK_NEAR(ba->setting.queue_bytes, 262144, 0);
    CHECK_INT(ba->setting.recovery, LH_RECOVERY_GO_BACK_N);
    CHECK(ba->setting.fec_data == 32 && ba->setting.fec_parity == 2);
    CHECK_INT(j->layout.outermost, LH_OUTERMOST_DATA);
    CHECK_INT(j->layout.sharding, LH_SHARDING_HYBRID_LEADERS);
    CHECK_STR(lh_sharding_name(j->layout.sharding), "hybrid-leaders");
    CHECK_STR(j->layout.schedule, "1f1b");
    CHECK_INT(j->layout.chunks_per_device, 2);
    CHECK_INT(j->layout.expert, 0);
    lh_job_free(j);
}

/* Derives numbers from the given ones; the rest stays open. */
static void sites_are_read(void)
{
    lh_error err;
    lh_job *j = parse(JOB "layout:\n"
                          "  sites:\n"
                          "   - replicas: 1\n"
                          "     pipeline:\n"
                          "      - {datacenter: b, stages: 1}\n"
                          "      - {datacenter: a, stages: 2}\n"
                          "   - {replicas: 1, pipeline: [a, b]}\n",
                      &err);
    CHECK(!j); /* a and b are in both groups */
    j = parse(JOB "layout:\n"
                  "  sites:\n"
                  "   - replicas: 1\n"
                  "     pipeline:\n"
                  "      - {datacenter: b, stages: 1}\n"
                  "      - {datacenter: a, stages: 2}\n"
                  "   - replicas: 3\n"
                  "     pipeline: [{datacenter: a, stages: 3}]\n",
              &err);
    CHECK_MSG(j, "%s", err.text);
    if (!j)
        return;
    CHECK_INT(j->layout.pipeline, 3);
    CHECK_INT(j->layout.data, 4);
    CHECK_INT(j->layout.outermost, LH_OUTERMOST_MIXED);
    CHECK_INT(j->layout.sites->n_groups, 2);
    CHECK_INT(j->layout.sites->groups[1].replicas, 3);
    CHECK_INT(j->layout.sites->groups[0].parts[1].datacenter, 0);
    CHECK_INT(j->layout.sites->groups[0].parts[1].stages, 2);
    lh_job_free(j);
    j = parse(JOB "layout: {sites: [{pipeline: [b, a]}]}\n", &err);
    CHECK_MSG(j, "%s", err.text);
    if (!j)
        return;
    CHECK_INT(j->layout.pipeline, 0);
    CHECK_INT(j->layout.outermost, LH_OUTERMOST_PIPELINE);
    CHECK_INT(j->layout.sites->groups[0].parts[0].datacenter, 1);
    CHECK_INT(j->layout.sites->groups[0].parts[0].stages, 0);
    lh_job_free(j);
}

static void what_is_left_out_is_filled_in(void)
{
    lh_error err;
    lh_job *j = parse(JOB, &err);
    CHECK_MSG(j, "%s", err.text);
    if (!j)
        return;
    CHECK_INT(j->training.precision, LH_PRECISION_BF16);
    CHECK_INT(j->training.optimizer, LH_OPTIMIZER_ADAMW);
    CHECK_INT(j->training.zero, 1);
    CHECK(!j->training.zero_given && !j->training.recompute_given);
    CHECK_INT(j->wans[1].latency_ns, j->wans[2].latency_ns);
    CHECK_INT(j->layout.tensor, 0);
    CHECK_INT(j->layout.outermost, LH_OUTERMOST_ANY);
    CHECK_INT(j->layout.sharding, LH_SHARDING_ANY);
    CHECK(j->layout.schedule == NULL && j->profile == NULL);
    lh_job_free(j);
}

static void prices_are_inherited(void)
{
    lh_error err;
    lh_job *j =
        parse(HEAD TRAINING
              "cluster:\n"
              "  gpu: a100-80g\n"
              "  gpus_per_node: 1\n"
              "  fabric: {gbps: 100, latency_us: 7}\n"
              "  usd_per_gpu_hour: 2.5\n"
              "  usd_per_gb: 0.02\n"
              "  datacenters:\n"
              "    - {name: a, nodes: 2}\n"
              "    - {name: b, nodes: 1, usd_per_gpu_hour: 1.75}\n"
              "  links:\n"
              "    - {from: a, to: b, latency_ms: 1, gbps: 8, usd_per_gb: 0}\n"
              "    - {from: b, to: a, latency_ms: 1, gbps: 8}\n",
              &err);
    CHECK_MSG(j, "%s", err.text);
    if (!j)
        return;
    CHECK_NEAR(j->datacenters[0].usd_per_gpu_hour, 2.5, 0);
    CHECK_NEAR(j->datacenters[1].usd_per_gpu_hour, 1.75, 0);
    CHECK_NEAR(j->wans[1].usd_per_gb, 0, 0);
    CHECK_NEAR(j->wans[2].usd_per_gb, 0.02, 0);
    lh_job_free(j);
    j = parse(JOB, &err);
    CHECK(j && j->datacenters[0].usd_per_gpu_hour <= 0 &&
          j->wans[1].usd_per_gb <= 0);
    lh_job_free(j);
}

static void job_round_trip(lh_job *job, const char *what);

#define RESERVES(text, own)                                                    \
    HEAD TRAINING "cluster:\n"                                                 \
                  "  gpu: " text "\n"                                          \
                  "  gpus_per_node: 1\n"                                       \
                  "  fabric: {gbps: 100, latency_us: 7}\n" own

/* Usable memory: the GPU's own reserve, the datacenter's, the cluster's, 6 %.
 */
static void reserves_are_inherited(void)
{
    static const struct {
        const char *text;
        int64_t usable;
    } jobs[] = {
        {RESERVES("a100-80g", "  datacenters: [{name: a, nodes: 1}]\n"),
         INT64_C(80745385164)}, /* 80 x 0.94 x 2^30, rounded down */
        {RESERVES("a100-80g", "  memory_reserve: 4\n"
                              "  datacenters: [{name: a, nodes: 1}]\n"),
         INT64_C(76) << 30},
        {RESERVES("a100-80g", "  memory_reserve: 25%\n"
                              "  datacenters: [{name: a, nodes: 1}]\n"),
         INT64_C(60) << 30},
        {RESERVES("a100-80g",
                  "  memory_reserve: 4\n"
                  "  datacenters: [{name: a, nodes: 1, memory_reserve: 0}]\n"),
         INT64_C(80) << 30},
        {RESERVES("{preset: a100-80g, memory_reserve: \"50%\"}",
                  "  memory_reserve: 4\n"
                  "  datacenters: [{name: a, nodes: 1, memory_reserve: 0}]\n"),
         INT64_C(40) << 30},
        {RESERVES("{preset: a100-80g, memory_reserve: 0.5}",
                  "  datacenters: [{name: a, nodes: 1}]\n"),
         (INT64_C(159) << 30) / 2},
    };
    for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++) {
        lh_error err;
        lh_job *j = parse(jobs[i].text, &err);
        CHECK_MSG(j, "%s", err.text);
        if (!j)
            continue;
        CHECK_INT(lh_gpu_usable_bytes(&j->datacenters[0].gpu), jobs[i].usable);
        CHECK_INT(j->datacenters[0].gpu.memory_bytes, INT64_C(80) << 30);
        job_round_trip(j, jobs[i].text);
        lh_job_free(j);
    }
}

static void gpu_presets(void)
{
    size_t n = 0;
    for (const char *const *name = lh_gpu_presets(); *name; name++, n++) {
        const lh_gpu *g = lh_gpu_preset(*name);
        CHECK(g && strcmp(g->name, *name) == 0 && g->tflops > 0);
        CHECK_NEAR(g->memory_gib * 0x1p30, (double)g->memory_bytes, 0);
        CHECK_NEAR(g->memory_gbps * 1e9, g->memory_bytes_per_s, 0);
    }
    CHECK_INT(n, 17);
    CHECK(lh_gpu_preset("a10") == lh_gpu_preset("a10-24g") &&
          lh_gpu_preset("a10") != lh_gpu_preset("a100"));
    CHECK(lh_gpu_preset("h100") == lh_gpu_preset("h100-sxm"));
    CHECK(lh_gpu_preset("a100") == lh_gpu_preset("a100-80g"));
    CHECK(lh_gpu_preset("h900") == NULL);
    /* NVIDIA's and AMD's datasheets */
    CHECK_NEAR(lh_gpu_preset("h20")->tflops, 148, 0);
    CHECK_NEAR(lh_gpu_preset("l40s")->memory_gbps, 864, 0);
    CHECK_NEAR(lh_gpu_preset("mi300x")->memory_gib, 192, 0);
    CHECK_NEAR(lh_gpu_preset("mi355x")->fp8_tflops, 5033.2, 0);
}

static void job_round_trip(lh_job *job, const char *what)
{
    char *text = NULL, *again = NULL;
    size_t len = 0;
    lh_job *back = NULL;
    lh_error err = {0};
    CHECK_OK(lh_job_format(job, &text, &len, &err), err);
    CHECK(text && strlen(text) == len);
    CHECK_MSG(lh_job_parse(text, len, "again", NULL, &back, &err) == LH_OK,
              "%s: %s", what, err.text);
    if (back) {
        CHECK_OK(lh_job_format(back, &again, NULL, &err), err);
        CHECK_STR(again, text);
        CHECK_INT(back->n_gpus, job->n_gpus);
        CHECK_INT(back->training.dispatcher_given,
                  job->training.dispatcher_given);
        CHECK_INT(lh_model_params(back->model), lh_model_params(job->model));
    }
    lh_job_free(back);
    lh_text_free(again);
    lh_text_free(text);
}

static void odd_jobs_survive_a_round_trip(void)
{
    static const char *const jobs[] = {
        JOB,
        JOB "layout: {tensor: 2, outermost: data, schedule: zb-h1}\n",
        JOB "layout: {sites: [{pipeline: [b, {datacenter: a, stages: 2}]}]}\n",
        JOB "layout: {sites: [{replicas: 3, pipeline: [{datacenter: a, "
            "stages: 1}]}, {pipeline: [b]}]}\n",
        JOB "layout: {sharding: full}\n",
        HEAD "training: {global_batch: 8, sequence: 16, rings: pipelined}\n" TWO
            LINK,
        "longhaul: job/1\nmodel: mixtral-8x7b\n"
        "training: {global_batch: 8, sequence: 16, dispatcher: deepep}\n" TWO
            LINK,
        "longhaul: job/1\nmodel: mixtral-8x7b\n"
        "training: {global_batch: 8, sequence: 16, dispatcher: alltoall}\n" TWO
            LINK,
        "longhaul: job/1\nmodel: mixtral-8x7b\n" TRAINING TWO LINK
        "layout: {tensor: 8, expert: 4, expert_tensor: 2}\n",
        HEAD TRAINING TWO
        "  links: [{between: [a, b], latency_ms: 1, gbps: 1, load_balancing: "
        "spray, window_kib: 1.1, congestion_control: off, recovery: "
        "selective-repeat}]\n",
        HEAD TRAINING TWO
        "  links: [{between: [a, b], latency_ms: 1, gbps: 1, load_balancing: "
        "ecmp, paths: 3, congestion_control: on, queue_kib: 1234.5678, "
        "loss: 0.01, fec: {data: 7, parity: 65536}}]\n",
        HEAD TRAINING TWO
        "  links: [{between: [a, b], latency_ms: 1, gbps: 1, nccl: {channels: "
        "4, buffer_kib: 16384, sockets: 8, tcp_window_kib: 1.5}}]\n",
        JOB "layout: {sharding: hybrid}\n",
        /* numbers that binary fractions cannot hold */
        HEAD TRAINING
        "cluster:\n"
        "  gpus_per_node: 1\n"
        "  gpu: {preset: v100-32g, tflops: 0.1, efficiency: 0.7}\n"
        "  fabric: {gbps: 123456789.123456789, latency_us: 0.001}\n"
        "  datacenters: [{name: a, nodes: 1}, {name: 'b | \xc3\xa9', nodes: "
        "3}]\n"
        "  links: [{between: [a, 'b | \xc3\xa9'], latency_ms: 3599999.999999, "
        "gbps: 1.00000000000000022, loss: 1e-7}]\n",
        "longhaul: job/1\nmodel: {layers: 4, hidden: 8, heads: 2, vocab: 10, "
        "gated: false, tied_embeddings: true, qkv_bias: true, norm: layer, "
        "positions: 64, experts: 4, experts_per_token: 2, expert_ffn: 3, "
        "shared_expert_ffn: 2, shared_expert_gate: true, moe_interval: 1, "
        "name: odd, kv_lora_rank: 3, q_lora_rank: 2, qk_nope_head_dim: 3, "
        "qk_rope_head_dim: 2, v_head_dim: 4, mtp_layers: 2}\n" TRAINING TWO
            LINK,
        "longhaul: job/1\nmodel: {layers: 8, hidden: 8, heads: 2, vocab: 10, "
        "ffn: 7, qk_norm: true, sliding_window: 5, window_first_layer: 2, "
        "experts: 4, experts_per_token: 2, expert_ffn: 3, dense_layers: 1, "
        "moe_interval: 2, moe_phase: 1, dense_list: [3, 5]}\n" TRAINING TWO
            LINK,
        "longhaul: job/1\nmodel: {layers: 4, hidden: 8, heads: 2, kv_heads: 1, "
        "ffn: 7, vocab: 10, gated: false, norm: layer, parallel_block: "
        "true}\n" TRAINING TWO LINK,
        "longhaul: job/1\nmodel: {layers: 8, hidden: 8, heads: 2, vocab: 10, "
        "experts: 8, experts_per_token: 2, expert_ffn: 3, router: sigmoid, "
        "raw_shares: true, routed_scale: 2.827, expert_groups: 4, "
        "groups_per_token: 2}\ntraining: {global_batch: 8, sequence: 16, "
        "dropout: 0.15, balance_loss: 0, balance_bias: 0.002, "
        "expert_capacity: 1.25, imbalance: 1.3}\n" TWO LINK,
        "longhaul: job/1\nmodel: {layers: 8, hidden: 8, heads: 2, vocab: 10, "
        "ffn: 7, activation: quick_gelu, glu_linear_offset: 1, swiglu_limit: "
        "7.5, partial_rotary_factor: 0.5, initializer_range: 0.006, "
        "norm_placement: both, norm_zero_centered: true, qk_norm: true, "
        "qk_norm_all_heads: true, no_rope_interval: 4, sliding_window: 5, "
        "chunked_attention: true, norm: layer_unbiased, experts: 4, "
        "experts_per_token: 2, expert_ffn: 3, router_aux_loss_coef: 0, "
        "rope_scaling: {rope_type: yarn, factor: 2.5, "
        "original_max_position_embeddings: 99, beta_fast: 30, beta_slow: 2, "
        "mscale: 0.7, mscale_all_dim: 0.5, attention_factor: 1.25, "
        "fractional_range: true}}\n" TRAINING TWO LINK,
        "longhaul: job/1\nmodel: {layers: 8, hidden: 8, heads: 2, vocab: 10, "
        "ffn: 7, qk_l2_norm: true, norm_placement: post, gated: false, "
        "activation: relu2, rope_scaling: {rope_type: llama3, factor: 8, "
        "original_max_position_embeddings: 8192, low_freq_factor: 1, "
        "high_freq_factor: 4}}\n" TRAINING TWO LINK,
        /* a map equal to a preset is still a map */
        "longhaul: job/1\nmodel: {name: llama3-8b, layers: 32, hidden: 4096, "
        "ffn: 14336, heads: 32, kv_heads: 8, vocab: 128256}\n" TRAINING TWO
            LINK,
        HEAD TRAINING
        "cluster:\n  gpus_per_node: 1\n"
        "  gpu: {tflops: 989.5, fp8_tflops: 1979, sustained_tflops: 610.5, "
        "sustained_fp8_tflops: 1979, memory_gib: 80, memory_gbps: 2400}\n"
        "  datacenters: [{name: a, nodes: 1}]\n",
        /* fp32 on a preset with its own rate */
        HEAD "training: {global_batch: 1, sequence: 1, precision: fp32}\n"
             "cluster:\n  gpus_per_node: 1\n"
             "  gpu: {preset: a100-40g, tflops: 312}\n"
             "  datacenters: [{name: a, nodes: 1}]\n",
        JOB "profile:\n"
            "  longhaul: profile/1\n"
            "  source: here\n"
            "  entries: [{kind: head, sequence: 7, F_us: 0.001, D_us: 0.1, "
            "W_us: 3599999999.999}]\n"
            "  links: [{path: wan, from: a, to: b, alpha_us: 1, "
            "beta_ns_per_byte: 0.1}]\n",
    };
    for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++) {
        lh_error err;
        lh_job *j = parse(jobs[i], &err);
        CHECK_MSG(j, "job %zu: %s", i, err.text);
        if (j)
            job_round_trip(j, jobs[i]);
        lh_job_free(j);
    }
}

static void written_numbers_are_the_ones_read(void)
{
    lh_error err;
    char *text = NULL;
    lh_job *j =
        parse(HEAD TRAINING "cluster:\n  gpus_per_node: 1\n  gpu: b200\n"
                            "  fabric: {gbps: 16.83, latency_us: 0.1}\n"
                            "  datacenters: [{name: a, nodes: 2}]\n",
              &err);
    CHECK_MSG(j, "%s", err.text);
    if (!j)
        return;
    CHECK_OK(lh_job_format(j, &text, NULL, &err), err);
    CHECK_HAS(text, "\"gbps\": 16.83,");
    CHECK_HAS(text, "\"latency_us\": 0.1\n");
    CHECK_HAS(text, "\"gpu\": \"b200\"");
    CHECK_HAS(text, "\"model\": \"llama3-8b\"");
    CHECK(!strstr(text, "zero"));
    lh_text_free(text);
    lh_job_free(j);
}

static void models_and_profiles_are_found_beside_the_job(void)
{
    static const char job[] =
        "longhaul: job/1\n"
        "model: data/configs/Qwen3-30B-A3B/config.json\n" TRAINING TWO LINK;
    static const char broken[] = HEAD TRAINING TWO LINK "profile: no.yaml\n";
    static const char wrong[] = HEAD TRAINING TWO LINK
        "profile: data/configs/Qwen3-30B-A3B/config.json\n";
    lh_error err = {0};
    lh_job *j = NULL;
    CHECK_OK(lh_job_parse(job, sizeof job - 1, "j.yaml", SOURCE_ROOT "/tests",
                          &j, &err),
             err);
    if (j) {
        CHECK_STR(j->model->name, "Qwen3-30B-A3B");
        CHECK_INT(lh_model_params(j->model), 30532122624);
        job_round_trip(j, "with a config.json");
    }
    lh_job_free(j);
    CHECK(lh_job_parse(broken, sizeof broken - 1, "j.yaml",
                       SOURCE_ROOT "/tests", &j, &err) == LH_EIO);
    CHECK_HAS(err.text, "j.yaml:13: profile: ");
    CHECK_HAS(err.text, "/tests/no.yaml: No such file");
    CHECK(lh_job_parse(wrong, sizeof wrong - 1, "j.yaml", SOURCE_ROOT "/tests",
                       &j, &err) == LH_EINPUT);
    CHECK_HAS(err.text, "config.json:1: key 'longhaul' is missing; write");
    CHECK(lh_job_read(SOURCE_ROOT "/tests", &j, &err) == LH_EIO);
    CHECK(lh_job_read(SOURCE_ROOT "/none.yaml", &j, NULL) == LH_EIO);
}

/* Parses one ```yaml block of a document. */
static void try_block(const char *text, size_t len, const char *where)
{
    lh_error err = {0};
    lh_job *job = NULL;
    lh_profile *profile = NULL;
    if (strncmp(text, "longhaul: job/1", 15) == 0) {
        CHECK_MSG(lh_job_parse(text, len, where, NULL, &job, &err) == LH_OK,
                  "%s", err.text);
        if (job)
            job_round_trip(job, where);
        lh_job_free(job);
    } else if (strncmp(text, "longhaul: profile/1", 19) == 0) {
        CHECK_MSG(lh_profile_parse(text, len, where, &profile, &err) == LH_OK,
                  "%s", err.text);
        if (profile)
            profile_round_trip(profile, where);
        lh_profile_free(profile);
    } else {
        CHECK_MSG(false, "%s: a block of another kind", where);
    }
}

static void try_document(const char *path, int n_blocks)
{
    static const char fence[] = "```yaml\n";
    char *text = NULL;
    lh_error err = {0};
    int n = 0;
    CHECK_OK(lhi_file_read(path, 1 << 20, &text, NULL, &err), err);
    if (!text)
        return;
    for (char *at = strstr(text, fence); at; at = strstr(at, fence), n++) {
        at += sizeof fence - 1;
        char *end = strstr(at, "```");
        if (!end)
            break;
        try_block(at, (size_t)(end - at), path);
        at = end;
    }
    CHECK_INT(n, n_blocks);
    lh_text_free(text);
}

static void documents_show_what_is_accepted(void)
{
    try_document(SOURCE_ROOT "/docs/formats/job.md", 6);
    try_document(SOURCE_ROOT "/docs/formats/profile.md", 2);
}

static bool begins_as_job(const char *path)
{
    char *text = NULL;
    bool is_job = lhi_file_read(path, 1 << 20, &text, NULL, NULL) == LH_OK &&
                  strstr(text, "\nlonghaul: job/1\n");
    lh_text_free(text);
    return is_job;
}

static void examples_are_read(void)
{
    static const char folder[] = SOURCE_ROOT "/examples";
    DIR *dir = opendir(folder);
    int n = 0;
    CHECK(dir != NULL);
    for (struct dirent *d; dir && (d = readdir(dir));) {
        char path[1024];
        const char *dot = strrchr(d->d_name, '.');
        lh_job *job = NULL;
        lh_error err = {0};
        snprintf(path, sizeof path, "%s/%s", folder, d->d_name);
        if (!dot || strcmp(dot, ".yaml") != 0 || !begins_as_job(path))
            continue;
        CHECK_OK(lh_job_read(path, &job, &err), err);
        if (job)
            job_round_trip(job, path);
        lh_job_free(job);
        n++;
    }
    if (dir)
        closedir(dir);
    CHECK_MSG(n >= 5, "only %d example jobs", n);
}

int main(void)
{
    RUN(a_job_means_what_it_says);
    RUN(sites_are_read);
    RUN(what_is_left_out_is_filled_in);
    RUN(prices_are_inherited);
    RUN(reserves_are_inherited);
    RUN(gpu_presets);
    RUN(odd_jobs_survive_a_round_trip);
    RUN(written_numbers_are_the_ones_read);
    RUN(models_and_profiles_are_found_beside_the_job);
    RUN(documents_show_what_is_accepted);
    RUN(examples_are_read);
    return test_summary();
}
