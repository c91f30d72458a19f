/* SPDX-License-Identifier: Apache-2.0 */
/* Context parallelism: fifty steps compared with ranks that have whole
 * sequences, for every kind of attention. Same bits for the same context with
 * any pipeline, schedule, recomputation and transport; memory compared with its
 * prediction. */
#define _GNU_SOURCE
#include "jobs.h"
#include "plans.h"
#include "sanitized.h"
#include "test.h"
#include "virtual_time.h"

#include <longhaul/experimental/engine.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { STEPS = OF_CASES(50) };

static char text_path[64];

static const char *const models[] = {
    "ffn: 48, kv_heads: 1, tied_embeddings: true",
    "ffn: 40, norm: layer, gated: false, positions: 32, qkv_bias: true, "
    "output_bias: true, mlp_bias: true",
    "ffn: 48, kv_lora_rank: 12, q_lora_rank: 10, qk_nope_head_dim: 6, "
    "qk_rope_head_dim: 4, v_head_dim: 14",
    "ffn: 48, qk_norm: true",
    "ffn: 40, norm: layer, gated: false, kv_heads: 1, parallel_block: true",
    /* With expert_ffn 24 two experts nearly tie, and rounding decides. */
    "experts: 4, experts_per_token: 2, expert_ffn: 32",
};
enum { N_MODELS = sizeof models / sizeof *models };

/* Configuration of a run. */
typedef struct setup {
    uint32_t model, context, data, stages, micro_batch, zero;
    const char *schedule, *recompute, *transport;
    bool drops;
} setup;

static void write_text(void)
{
    snprintf(text_path, sizeof text_path, "/tmp/lh-context-XXXXXX");
    int fd = mkstemp(text_path);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    uint32_t state = 9;
    for (int i = 0; file && i < 4000; i++) {
        state = state * 1664525 + 1013904223;
        fputc("no more tea, said he. "[(state >> 20) % 22], file);
    }
    if (!file || fclose(file) != 0)
        abort();
}

static lh_job *job_of(const setup *s)
{
    return job_with(
        JOB_SMALL,
        "  gpu: {preset: h100-sxm, tflops: 60}\n"
        "  gpus_per_node: %u\n"
        "  datacenters: [{name: west, nodes: 1}]\n"
        "  links: []\n"
        "training: {global_batch: 8, sequence: 24, precision: fp32, zero: %u, "
        "recompute: %s, dropout: %s}\n"
        "model: {layers: 4, hidden: 32, heads: 2, vocab: 256, %s}\n"
        "layout: {tensor: 1, context: %u, expert: 1, data: %u, pipeline: %u, "
        "micro_batch: %u, chunks_per_device: %d, schedule: %s}\n",
        (unsigned)(s->context * s->data * s->stages), (unsigned)s->zero,
        s->recompute ? s->recompute : "none", s->drops ? "true" : "false",
        models[s->model], (unsigned)s->context, (unsigned)s->data,
        (unsigned)s->stages, (unsigned)s->micro_batch,
        strcmp(s->schedule, "interleaved-1f1b") == 0 ||
                strcmp(s->schedule, "zb-v") == 0
            ? 2
            : 1,
        s->schedule);
}

/* Trains; returns the losses. */
static void train(const setup *s, double losses[STEPS])
{
    lh_plan *plan = plan_of_job(job_of(s));
    lh_train_options run = {.size = sizeof run,
                            .steps = STEPS,
                            .transport =
                                s->transport ? s->transport : "inproc"};
    lh_train_model m = lh_train_model_defaults();
    m.data = text_path;
    m.rate = m.min_rate = 1e-3;
    lh_train_plan_options o = {
        .size = sizeof o, .device = LH_TRAIN_CPU, .run = &run, .model = &m};
    lh_train_result *r = NULL;
    lh_error err = {0};
    memset(losses, 0, STEPS * sizeof *losses);
    if (plan)
        CHECK_OK(lh_train_plan(plan, &o, &r, &err), err);
    for (uint32_t i = 0; r && i < r->n_iterations; i++)
        losses[i] = r->iterations[i].loss;
    uint32_t n = 0;
    const lh_train_memory *held = r ? lh_train_peak_memory(r, &n) : NULL;
    CHECK_INT(n, s->context * s->data * s->stages);
    for (uint32_t i = 0; i < n; i++)
        CHECK_MSG(fabs((double)held[i].measured_bytes /
                           (double)held[i].predicted_bytes -
                       1) < 0.03 ||
                      r->n_pool_growths > 0,
                  "rank %u: %g bytes predicted, %g held", (unsigned)i,
                  (double)held[i].predicted_bytes,
                  (double)held[i].measured_bytes);
    lh_train_result_free(r);
    lh_plan_free(plan);
}

static double furthest(const double *a, const double *b)
{
    double most = 0;
    for (int i = 0; i < STEPS; i++)
        most = fmax(most, fabs(a[i] / b[i] - 1));
    return most;
}

/* Seeded configurations, each compared with one rank. */
static void results_are_those_of_whole_sequences(void)
{
    static const char *const schedules[] = {"1f1b", "zb-h1", "gpipe",
                                            "interleaved-1f1b", "zb-v"};
    static double whole[N_MODELS][2][STEPS];
    uint32_t state = 4, n = OF_CASES(12);
    for (uint32_t i = 0; i < n; i++) {
        state = state * 1664525 + 1013904223;
        uint32_t draw = state >> 8;
        setup s = {.model = i % N_MODELS,
                   .context = 2 + draw % 3, /* 2, 3, 4 */
                   .data = 1 + draw / 3 % 2,
                   .micro_batch = 1 + draw / 6 % 2,
                   .zero = draw / 480 % 4,
                   .schedule = schedules[draw / 12 % 5],
                   .recompute = draw / 60 % 2 ? "full" : "none",
                   .drops = draw / 120 % 2};
        s.stages = strcmp(s.schedule, "interleaved-1f1b") == 0 ||
                           strcmp(s.schedule, "zb-v") == 0
                       ? 2
                       : 1 + draw / 240 % 2;
        double *want = whole[s.model][s.drops], got[STEPS];
        if (want[0] == 0) {
            setup one = {.model = s.model,
                         1,
                         1,
                         1,
                         1,
                         1,
                         .schedule = "1f1b",
                         .drops = s.drops};
            train(&one, want);
            CHECK(want[0] > 5);
            CHECK(FEW_CASES || want[STEPS - 1] < want[0] - 0.5);
        }
        train(&s, got);
        double off = furthest(got, want);
        CHECK_MSG(off < 1e-6,
                  "model %u, context %u, data %u, zero %u, stages %u, %s: off "
                  "by %g",
                  (unsigned)s.model, (unsigned)s.context, (unsigned)s.data,
                  (unsigned)s.zero, (unsigned)s.stages, s.schedule, off);
        if (getenv("LONGHAUL_SHOW"))
            fprintf(stderr, "model %u context %u data %u %s: off by %g\n",
                    (unsigned)s.model, (unsigned)s.context, (unsigned)s.data,
                    s.schedule, off);
    }
}

static void same_bits(void)
{
    static const setup ways[] = {
        {.stages = 2, .schedule = "1f1b"},
        {.stages = 2, .schedule = "zb-h1", .recompute = "full", .zero = 1},
        {.stages = 2,
         .schedule = "interleaved-1f1b",
         .transport = "local",
         .zero = 1},
        {.stages = 1, .schedule = "gpipe", .recompute = "selective"},
    };
    for (uint32_t model = 0; model < 3; model += 2) {
        double want[STEPS], got[STEPS];
        setup first = {.model = model,
                       .context = 2,
                       .data = 1,
                       .stages = 1,
                       .micro_batch = 2,
                       .zero = 1,
                       .schedule = "1f1b"};
        train(&first, want);
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            setup s = ways[i];
            s.model = model, s.context = 2, s.data = 1, s.micro_batch = 2;
            train(&s, got);
            CHECK_MSG(memcmp(got, want, sizeof got) == 0,
                      "model %u, way %zu: other losses", (unsigned)model, i);
        }
    }
}

static void invalid_settings_are_rejected(void)
{
    lh_train_model m = lh_train_model_defaults();
    setup s = {.context = 2,
               .data = 1,
               .stages = 1,
               .micro_batch = 1,
               .schedule = "1f1b"};
    lh_job *job = job_of(&s);
    lh_plan *plan = NULL;
    lh_train_result *r = NULL;
    lh_error err = {0};
    m.data = text_path;
    CHECK_OK(lh_plan_make(job, NULL, &plan, &err), err);
    if (plan) {
        /* Planning rejects it, but the API allows it. */
        uint32_t first[] = {0, 4};
        lh_exec *x = NULL;
        CHECK_OK(lh_exec_make(plan->pipeline, plan->schedule, NULL, &x, &err),
                 err);
        m.model = job->model, m.first_layers = first, m.sequence = 10;
        m.context = 2, m.micro_batch = 1;
        CHECK_INT(lh_train_cpu(plan->pipeline, x, &m, NULL, &r, &err),
                  LH_EINVAL);
        CHECK_HAS(err.text, "not a multiple of twice context 2");
        lh_exec_free(x);
    }
    CHECK(!r);
    lh_plan_free(plan);
    lh_job_free(job);
}

int main(void)
{
    write_text();
    RUN_VIRTUAL(results_are_those_of_whole_sequences);
    RUN_VIRTUAL(same_bits);
    RUN_VIRTUAL(invalid_settings_are_rejected);
    unlink(text_path);
    return test_summary();
}
