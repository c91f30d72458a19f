/* SPDX-License-Identifier: Apache-2.0 */
/* A small model on cpu devices, its data, and one training step in a single
 * thread. */
#ifndef SMALL_LLAMA_H
#define SMALL_LLAMA_H

#include "base/fail.h"
#include "runtime/device/data.h"
#include "runtime/device/device.h"
#include "test.h"

#include <stdlib.h>
#include <unistd.h>

/* Returns the small model's description. */
static inline lh_model small_model(void)
{
    return (lh_model){.name = "small",
                      .layers = 5,
                      .hidden = 24,
                      .ffn = 40,
                      .vocab = 256,
                      .heads = 4,
                      .kv_heads = 2,
                      .head_dim = 10,
                      .gated = true,
                      .norm = LH_NORM_RMS,
                      .moe_interval = 1};
}

/* Model, data and devices of a run. */
typedef struct small {
    lh_model model;
    char path[64];
    lhi_data *data;
    uint32_t n_chunks, n_devices, n_microbatches, microbatch, sequence;
    uint32_t replica, n_replicas;
    double dropout, balance, capacity;
    uint64_t sample; /* sample under comparison */
    uint32_t firsts[17];
    const uint32_t *again;   /* see lhi_cpu_options */
    lhi_device *devices[16]; /* chunk c is on device c mod n_devices */
} small;

/* Returns default sizes: one chunk, device and replica. */
static inline small small_sizes(void)
{
    return (small){.model = small_model(),
                   .n_chunks = 1,
                   .n_devices = 1,
                   .n_microbatches = 3,
                   .microbatch = 2,
                   .sequence = 21,
                   .n_replicas = 1};
}

/* Writes a text file to train on; returns its path. */
static inline void small_text(char *path, size_t size)
{
    snprintf(path, size, "/tmp/lh-small-XXXXXX");
    int fd = mkstemp(path);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!file)
        abort();
    for (int i = 0; i < 400; i++)
        fprintf(file, "%d bottles of beer, take %d down. ", i, i * i % 7);
    fclose(file);
}

/* Opens the data and devices; exits with "skipped" (77) where there is no
 * OpenBLAS. */
static inline bool small_open(small *s)
{
    lh_error err;
    small_text(s->path, sizeof s->path);
    CHECK_OK(lhi_data_open(&(lhi_data_options){.path = s->path,
                                               .kind = LHI_DATA_BYTES,
                                               .vocab = s->model.vocab,
                                               .sequence = s->sequence,
                                               .validation = 0.1,
                                               .seed = 7},
                           &s->data, &err),
             err);
    for (uint32_t c = 0; c <= s->n_chunks; c++)
        s->firsts[c] = s->model.layers * c / s->n_chunks;
    for (uint32_t d = 0; d < s->n_devices; d++) {
        uint32_t mine[16], n = 0;
        for (uint32_t c = d; c < s->n_chunks; c += s->n_devices)
            mine[n++] = c;
        lh_status status = lhi_device_cpu(
            &(lhi_cpu_options){.model = &s->model,
                               .n_chunks = s->n_chunks,
                               .first_layers = s->firsts,
                               .recompute = s->again,
                               .n_mine = n,
                               .mine = mine,
                               .microbatch = s->microbatch,
                               .sequence = s->sequence,
                               .n_microbatches = s->n_microbatches,
                               .replica = s->replica,
                               .n_replicas = s->n_replicas,
                               .seed = 3,
                               .dropout = s->dropout,
                               .balance_weight = s->balance,
                               .expert_capacity = s->capacity,
                               .data = s->data},
            &s->devices[d], &err);
        if (status == LH_EUNSUPPORTED) {
            fprintf(stderr, "SKIPPED: %s\n", err.text);
            exit(77);
        }
        CHECK_OK(status, err);
    }
    return true;
}

/* Closes devices and data and removes the text. */
static inline void small_close(small *s)
{
    for (uint32_t d = 0; d < s->n_devices; d++)
        s->devices[d]->ops->close(s->devices[d]);
    lhi_data_close(s->data);
    unlink(s->path);
}

/* Order of passes in a step. */
typedef enum small_order {
    SMALL_JOINT,    /* F..., then B of each microbatch */
    SMALL_SPLIT,    /* D of all, then W */
    SMALL_BACKWARD, /* W in reverse order of microbatches */
    SMALL_PARTS,    /* W in parts, in scrambled order */
} small_order;

/* Runs one pass on the chunk's device. */
static inline void small_pass(small *s, lh_pass pass, const float *in,
                              float *out)
{
    lh_error err;
    lhi_device *d = s->devices[pass.chunk % s->n_devices];
    lhi_span span;
    if (!pass.n_parts)
        pass.n_parts = 1;
    CHECK_OK(d->ops->run(d, &pass, in, out, 0, &span, &err), err);
}

/* Runs a chunk's W passes in the given order. */
static inline void small_weights(small *s, small_order order, uint32_t c)
{
    uint32_t n = s->n_microbatches, parts = 5;
    if (order == SMALL_PARTS) {
        for (uint32_t i = 0; i < n * parts; i++) {
            /* a permutation: n * 5 is not a multiple of 7 */
            uint32_t j = i * 7 % (n * parts);
            small_pass(s,
                       (lh_pass){.chunk = c,
                                 .microbatch = j / parts,
                                 .kind = LH_W,
                                 .part = (uint16_t)(j % parts),
                                 .n_parts = (uint16_t)parts},
                       NULL, NULL);
        }
        return;
    }
    for (uint32_t m = 0; m < n && order != SMALL_JOINT; m++)
        small_pass(
            s,
            (lh_pass){.chunk = c,
                      .microbatch = order == SMALL_BACKWARD ? n - 1 - m : m,
                      .kind = LH_W},
            NULL, NULL);
}

/* Runs all passes of a step; returns the summed loss. */
static inline double small_step(small *s, uint64_t step, lhi_step_kind kind,
                                small_order order)
{
    lh_error err;
    size_t n = (size_t)s->microbatch * s->sequence * s->model.hidden;
    float *message[2] = {calloc(n, sizeof(float)), calloc(n, sizeof(float))};
    for (uint32_t d = 0; d < s->n_devices; d++)
        CHECK_OK(s->devices[d]->ops->begin(s->devices[d], step, kind, &err),
                 err);
    for (uint32_t m = 0; m < s->n_microbatches; m++)
        for (uint32_t c = 0; c < s->n_chunks; c++)
            small_pass(s, (lh_pass){.chunk = c, .microbatch = m, .kind = LH_F},
                       message[c % 2], message[(c + 1) % 2]);
    for (uint32_t m = 0; kind == LHI_STEP_TRAIN && m < s->n_microbatches; m++)
        for (uint32_t c = s->n_chunks; c-- > 0;)
            small_pass(s,
                       (lh_pass){.chunk = c,
                                 .microbatch = m,
                                 .kind = order == SMALL_JOINT ? LH_B : LH_D},
                       message[c % 2], message[(c + 1) % 2]);
    for (uint32_t c = 0; kind == LHI_STEP_TRAIN && c < s->n_chunks; c++)
        small_weights(s, order, c);
    free(message[0]);
    free(message[1]);
    double loss;
    uint64_t tokens;
    bool has;
    lhi_device *last = s->devices[(s->n_chunks - 1) % s->n_devices];
    CHECK_OK(last->ops->loss(last, &loss, &tokens, &has, &err), err);
    CHECK(has);
    CHECK_INT(tokens,
              (uint64_t)s->n_microbatches * s->microbatch * s->sequence);
    return loss;
}

/* Returns tensor `index` of the model; NULL: none. The copy of a tied head is
 * the last. */
static inline lhi_tensor *small_tensor(small *s, uint32_t index)
{
    for (uint32_t c = 0; c < s->n_chunks; c++) {
        lhi_device *d = s->devices[c % s->n_devices];
        for (uint32_t i = 0; i < d->ops->n_tensors(d, c); i++)
            if (d->ops->tensor(d, c, i)->index == index)
                return d->ops->tensor(d, c, i);
    }
    return NULL;
}

#endif
