/* SPDX-License-Identifier: Apache-2.0 */
/* Measures the share of matrix products in training time. Runs complete steps
 * on one CPU device, and in between the same products alone, with the same
 * shapes and addresses. Prints JSON lines for bench/train.py.
 *
 *     speed-train DATA LAYERS HIDDEN FFN VOCAB HEADS KV_HEADS HEAD_DIM SEQUENCE
 *                 MICROBATCH MICROBATCHES TIED [bf16]
 *
 * Commands on standard input, one per line: "step" (one step), "products",
 * "save FOLDER" (stores the current weights as a checkpoint in that folder). */
#define _POSIX_C_SOURCE 200809L
#include "runtime/device/cpu.h"
#include "runtime/training/train.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Arguments of a recorded matrix product. */
typedef struct call {
    int ta, tb, m, n, k, lda, ldb, ldc;
    const float *a, *b;
    float *c, beta;
} call;

static struct {
    lhi_sgemm real;
    call *calls;
    size_t n, room;
    bool on;
} record;

static void recording(int order, int ta, int tb, int m, int n, int k,
                      float alpha, const float *a, int lda, const float *b,
                      int ldb, float beta, float *c, int ldc)
{
    if (record.on) {
        if (record.n == record.room) {
            record.room = record.room ? 2 * record.room : 1024;
            record.calls =
                realloc(record.calls, record.room * sizeof *record.calls);
            if (!record.calls)
                abort();
        }
        record.calls[record.n++] =
            (call){ta, tb, m, n, k, lda, ldb, ldc, a, b, c, beta};
    }
    record.real(order, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void must(lh_status status, const lh_error *err)
{
    if (status == LH_OK)
        return;
    fprintf(stderr, "speed-train: %s\n", err->text);
    exit(status == LH_EUNSUPPORTED ? 77 : 1);
}

/* The device and trainer under measurement. */
typedef struct bench {
    lhi_cpu *cpu;
    lhi_train *train;
    double *tally, *sums;
    uint32_t n_microbatches;
} bench;

static void pass(bench *b, uint32_t microbatch, uint8_t kind)
{
    lh_error err;
    lh_pass p = {.microbatch = microbatch, .kind = kind, .n_parts = 1};
    lhi_device *d = &b->cpu->base;
    must(d->ops->run(d, &p, NULL, NULL, 0, NULL, &err), &err);
}

static lhi_train_report step(bench *b)
{
    lh_error err;
    lhi_train_report report;
    lhi_device *d = &b->cpu->base;
    must(d->ops->begin(d, lhi_train_step(b->train), LHI_STEP_TRAIN, &err),
         &err);
    for (uint32_t m = 0; m < b->n_microbatches; m++) {
        pass(b, m, LH_F);
        pass(b, m, LH_B);
    }
    must(lhi_train_tally(b->train, b->tally, &err), &err);
    must(lhi_train_update(b->train, b->tally, &report, &err), &err);
    return report;
}

static void products(void)
{
    for (size_t i = 0; i < record.n; i++) {
        const call *c = &record.calls[i];
        record.real(LHI_BLAS_ROWS, c->ta, c->tb, c->m, c->n, c->k, 1, c->a,
                    c->lda, c->b, c->ldb, c->beta, c->c, c->ldc);
    }
}

static void save(bench *b, const char *folder)
{
    lh_error err;
    lhi_checkpoint_options o = {.folder = folder};
    must(lhi_train_save_begin(b->train, &o, &err), &err);
    must(lhi_train_save_part(b->train, &o, b->sums, &err), &err);
    must(lhi_train_save_end(b->train, &o, b->sums, &err), &err);
}

static void answer(bench *b, char *line)
{
    double wall = seconds(CLOCK_MONOTONIC);
    double cpu = seconds(CLOCK_PROCESS_CPUTIME_ID), work = 0;
    lhi_train_report report = {0};
    if (strncmp(line, "save ", 5) == 0)
        save(b, line + 5);
    else if (strcmp(line, "step") == 0)
        report = step(b);
    else
        products();
    wall = seconds(CLOCK_MONOTONIC) - wall;
    cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
    for (size_t i = 0; i < record.n; i++)
        work += 2.0 * record.calls[i].m * record.calls[i].n * record.calls[i].k;
    printf("{\"wall_s\": %.6f, \"cpu_s\": %.6f, \"gflop\": %.6f, "
           "\"loss\": %.9g, \"norm\": %.9g}\n",
           wall, cpu, work / 1e9, report.loss, report.norm);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    lh_error err;
    lhi_data *data;
    lhi_device *device;
    uint32_t n[11], mine = 0, firsts[2] = {0};
    bench b = {0};
    char line[512];
    bool bf16 = argc == 14 && strcmp(argv[13], "bf16") == 0;
    /* other options of AdamW; warm-up, constant rate, linear decay */
    bool wsd = argc == 14 && strcmp(argv[13], "wsd") == 0;
    if (argc != 13 && !bf16 && !wsd)
        return 2;
    for (int i = 0; i < 11; i++)
        n[i] = (uint32_t)strtoul(argv[i + 2], NULL, 10);
    lh_model model = {.name = "bench",
                      .layers = n[0],
                      .hidden = n[1],
                      .ffn = n[2],
                      .vocab = n[3],
                      .heads = n[4],
                      .kv_heads = n[5],
                      .head_dim = n[6],
                      .gated = true,
                      .tied_embeddings = n[10] != 0,
                      .norm = LH_NORM_RMS,
                      .moe_interval = 1};
    firsts[1] = model.layers;
    must(lhi_data_open(&(lhi_data_options){.path = argv[1],
                                           .vocab = model.vocab,
                                           .sequence = n[7],
                                           .seed = 1},
                       &data, &err),
         &err);
    must(lhi_device_cpu(&(lhi_cpu_options){.model = &model,
                                           .n_chunks = 1,
                                           .first_layers = firsts,
                                           .n_mine = 1,
                                           .mine = &mine,
                                           .sequence = n[7],
                                           .microbatch = n[8],
                                           .n_microbatches = n[9],
                                           .n_replicas = 1,
                                           .bf16 = bf16,
                                           .seed = 1,
                                           .data = data},
                        &device, &err),
         &err);
    b.cpu = (lhi_cpu *)device;
    b.n_microbatches = n[9];
    record.real = b.cpu->sgemm;
    b.cpu->sgemm = recording;
    lhi_train_options o = lhi_train_defaults(1000);
    o.model = &model, o.n_chunks = 1, o.n_mine = 1, o.mine = &mine;
    o.n_replicas = 1, o.warmup = 10, o.rate = 1e-3, o.min_rate = 1e-4;
    if (wsd) {
        o.steps = 20, o.warmup = 5, o.decay_steps = 10;
        o.rate_decay = LH_RATE_DECAY_LINEAR;
        o.beta1 = 0.8, o.beta2 = 0.99, o.epsilon = 1e-4, o.weight_decay = 0.3;
    }
    must(lhi_train_make(device, &o, &b.train, &err), &err);
    b.tally = calloc(lhi_train_tally_size(b.train), sizeof *b.tally);
    b.sums = calloc(lhi_train_count_checksums(b.train), sizeof *b.sums);
    if (!b.tally || !b.sums)
        return 1;
    record.on = true;
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        answer(&b, line);
        if (strcmp(line, "step") == 0)
            record.on = false;
    }
    lhi_train_free(b.train);
    device->ops->close(device);
    lhi_data_close(data);
    free(b.tally);
    free(b.sums);
    free(record.calls);
    return 0;
}
