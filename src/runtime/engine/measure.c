/* SPDX-License-Identifier: Apache-2.0 */
/* Measures pass durations on this machine. The model is cut into the embedding,
 * one layer of each kind, and the head, each a chunk. A few microbatches run
 * through them. */
#define _GNU_SOURCE
#include "runtime/engine/measure.h"

#include "base/options.h"
#include "base/realtime.h"
#include "base/sort.h"
#include "format/job/model_size.h"
#include "format/job/parse.h"
#include "runtime/device/data.h"
#include "runtime/device/device.h"

#include <errno.h>
#include <longhaul/experimental/engine.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Maximum number of measured parts; kinds of passes (F, D, W); microbatches per
 * run. */
enum { MOST_PARTS = 4, N_KINDS = 3, MICROBATCHES = 3 };

/* State of a measurement. */
typedef struct measurement {
    const lh_job *job;
    lh_model model; /* with one layer of each kind */
    uint32_t n_parts;
    lh_profile_kind parts[MOST_PARTS];
    uint32_t micro_batch, repeats;
    lhi_device *device;
    char *messages[2]; /* forward, backward */
    int64_t *times[MOST_PARTS][N_KINDS];
    uint32_t n_times;
    size_t activation_bytes[MOST_PARTS];
} measurement;

/* Writes a file with random tokens, enough for all the measurement's windows
 * (training sequences). */
static lh_status write_tokens(const measurement *m, char *path, lh_error *err)
{
    int fd = mkstemp(path);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "wb");
    if (!file)
        return lhi_fail(err, LH_EIO, "cannot write %s: %s", path,
                        strerror(errno));
    uint64_t n =
        ((uint64_t)m->job->training.sequence + 1 + m->model.mtp_layers) * 2 *
        m->micro_batch * MICROBATCHES;
    uint64_t state = 1;
    for (uint64_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        uint32_t token = (uint32_t)((state >> 33) % m->model.vocab);
        unsigned char bytes[4] = {
            (unsigned char)token, (unsigned char)(token >> 8),
            (unsigned char)(token >> 16), (unsigned char)(token >> 24)};
        fwrite(bytes, 1, 4, file);
    }
    if (fclose(file) != 0)
        return lhi_fail(err, LH_EIO, "cannot write %s: %s", path,
                        strerror(errno));
    return LH_OK;
}

/* Runs one pass of model part `part` (layer, embedding or head) on one
 * microbatch; `counts`: records its duration. */
static lh_status run_pass(measurement *m, uint32_t part, lh_pass_kind kind,
                          uint32_t microbatch, bool counts, lh_error *err)
{
    lh_pass pass = {part, microbatch, 0, 1, (uint8_t)kind, false};
    char *forward = m->messages[0], *backward = m->messages[1];
    const void *in = NULL;
    void *out = NULL;
    lhi_span span;
    if (kind == LH_F) {
        in = part > 0 ? forward : NULL;
        out = part + 1 < m->n_parts ? forward : NULL;
    } else if (kind == LH_D) {
        in = part + 1 < m->n_parts ? backward : NULL;
        out = part > 0 ? backward : NULL;
    }
    int64_t begin = lhi_now_ns();
    LHI_TRY(m->device->ops->run(m->device, &pass, in, out, begin, &span, err));
    if (counts)
        m->times[part][kind][m->n_times] = lhi_now_ns() - begin;
    return LH_OK;
}

/* Runs F, D and W of all parts (layer, embedding, head) on all microbatches;
 * `counts`: records the durations. The peak memory growth at a part's second
 * microbatch is its activation memory. */
static lh_status run_step(measurement *m, uint64_t step, bool counts,
                          lh_error *err)
{
    LHI_TRY(m->device->ops->begin(m->device, step, LHI_STEP_TRAIN, err));
    uint32_t first = m->n_times;
    size_t before = m->device->ops->peak_bytes(m->device);
    for (uint32_t part = 0; part < m->n_parts; part++)
        for (uint32_t i = 0; i < MICROBATCHES; i++) {
            m->n_times = first + i;
            LHI_TRY(run_pass(m, part, LH_F, i, counts, err));
            size_t now = m->device->ops->peak_bytes(m->device);
            if (step == 0 && i > 0 && now - before > m->activation_bytes[part])
                m->activation_bytes[part] = now - before;
            before = now;
        }
    for (uint32_t k = 0; k < 2; k++)
        for (uint32_t part = m->n_parts; part-- > 0;)
            for (uint32_t i = 0; i < MICROBATCHES; i++) {
                m->n_times = first + i;
                LHI_TRY(run_pass(m, part, k ? LH_W : LH_D, i, counts, err));
            }
    m->n_times = counts ? first + MICROBATCHES : first;
    return LH_OK;
}

/* Allocates the message buffers and the tables of durations per part and
 * pass. */
static lh_status allocate(measurement *m, lh_error *err)
{
    size_t bytes = m->device->ops->message_bytes(m->device, 0, false);
    size_t n = (size_t)m->repeats + MICROBATCHES;
    for (int k = 0; k < 2; k++)
        if (!(m->messages[k] = calloc(1, bytes + 1)))
            return lhi_fail_nomem(err);
    for (uint32_t part = 0; part < m->n_parts; part++)
        for (int kind = 0; kind < N_KINDS; kind++)
            if (!(m->times[part][kind] =
                      calloc(n, sizeof *m->times[part][kind])))
                return lhi_fail_nomem(err);
    return LH_OK;
}

/* Runs a warm-up step, then steps until `repeats` durations of each pass are
 * recorded. */
static lh_status run_passes(measurement *m, const lhi_data *data, lh_error *err)
{
    static const uint32_t mine[MOST_PARTS] = {0, 1, 2, 3};
    const uint32_t first_layers[MOST_PARTS + 1] = {0, 0, 1, m->model.layers,
                                                   m->model.layers};
    const lh_job *job = m->job;
    lhi_cpu_options o = {.model = &m->model,
                         .n_chunks = m->n_parts,
                         .first_layers = first_layers,
                         .n_mine = m->n_parts,
                         .mine = mine,
                         .microbatch = m->micro_batch,
                         .sequence = m->job->training.sequence,
                         .n_microbatches = MICROBATCHES,
                         .n_replicas = 1,
                         .dropout = lhi_job_dropout(job),
                         .balance_weight = lhi_job_balance_loss(job),
                         .expert_capacity = job->training.expert_capacity,
                         .data = data};
    LHI_TRY(lhi_device_cpu(&o, &m->device, err));
    LHI_TRY(allocate(m, err));
    LHI_TRY(run_step(m, 0, false, err)); /* warm-up */
    for (uint64_t step = 1; m->n_times < m->repeats; step++)
        LHI_TRY(run_step(m, step, true, err));
    return LH_OK;
}

/* Measures all passes on random tokens in a temporary file. */
static lh_status measure_passes(measurement *m, lh_error *err)
{
    const char *folder = getenv("TMPDIR");
    char path[512];
    lhi_data *data;
    snprintf(path, sizeof path, "%.400s/longhaul-profile-XXXXXX",
             folder && *folder ? folder : "/tmp");
    lh_status status = write_tokens(m, path, err);
    lhi_data_options with = {.path = path,
                             .kind = LHI_DATA_U32,
                             .vocab = m->model.vocab,
                             .sequence = m->job->training.sequence,
                             .look_ahead = m->model.mtp_layers};
    if (status == LH_OK)
        status = lhi_data_open(&with, &data, err);
    unlink(path);
    if (status != LH_OK)
        return status;
    status = run_passes(m, data, err);
    lhi_data_close(data);
    return status;
}

/* Returns the bytes of a part's parameters, gradients and AdamW's two moments,
 * 4 bytes each. */
static int64_t count_static_bytes(const measurement *m, uint32_t part)
{
    int64_t n = 0;
    const lhi_device_ops *ops = m->device->ops;
    for (uint32_t i = 0; i < ops->n_tensors(m->device, part); i++)
        n += (int64_t)ops->tensor(m->device, part, i)->n;
    return 16 * n;
}

/* Fills in a profile entry with the median durations and the memory of a part
 * (layer, embedding or head). */
static void fill_entry(const measurement *m, uint32_t part,
                       lh_profile_entry *out)
{
    *out = (lh_profile_entry){
        .kind = m->parts[part],
        .gpu = m->job->datacenters[0].gpu.name,
        .tensor = 1,
        .context = 1,
        .expert = 1,
        .micro_batch = m->micro_batch,
        .sequence = m->job->training.sequence,
        .f_ns = lhi_median_ns(m->times[part][LH_F], m->n_times),
        .d_ns = lhi_median_ns(m->times[part][LH_D], m->n_times),
        .w_ns = lhi_median_ns(m->times[part][LH_W], m->n_times),
        .activation_bytes = m->activation_bytes[part]
                                ? (int64_t)m->activation_bytes[part]
                                : LH_NOT_MEASURED,
        .static_bytes = count_static_bytes(m, part),
    };
}

lh_status lhi_profile_copy(const lh_profile *profile, lh_profile **out,
                           lh_error *err)
{
    char *text;
    size_t len;
    LHI_TRY(lh_profile_format(profile, &text, &len, err));
    lh_status status = lh_profile_parse(text, len, "measured", out, err);
    lh_text_free(text);
    return status;
}

/* Makes the profile from the measured passes; with `links` it also measures a
 * link between two processes on this machine. */
static lh_status make_profile(measurement *m, bool links, lh_profile **out,
                              lh_error *err)
{
    lh_profile_entry entries[MOST_PARTS];
    lh_profile_link link = {.path = LH_PATH_NODE};
    double alpha = 0;
    for (uint32_t part = 0; part < m->n_parts; part++)
        fill_entry(m, part, &entries[part]);
    if (links)
        LHI_TRY(
            lhi_measure_link(m->repeats, &alpha, &link.beta_ns_per_byte, err));
    link.alpha_ns = llround(alpha);
    lh_profile made = {.name = "measured",
                       .model = m->job->model->name,
                       .source = "longhaul profile, cpu device, float32",
                       .n_entries = m->n_parts,
                       .n_links = links,
                       .entries = entries,
                       .links = &link};
    return lhi_profile_copy(&made, out, err);
}

/* Lists the model part kinds to be measured (embedding, dense layer, expert
 * layer, head) and builds a small model with one of each. */
static void choose_parts(measurement *m)
{
    lh_model *model = &m->model;
    uint32_t n = model->layers, moe = lhi_model_moe_layers(model, 0, n);
    bool dense = moe < n;
    m->parts[m->n_parts++] = LH_PROFILE_EMBEDDING;
    if (dense)
        m->parts[m->n_parts++] = LH_PROFILE_LAYER;
    if (moe > 0)
        m->parts[m->n_parts++] = LH_PROFILE_MOE_LAYER;
    m->parts[m->n_parts++] = LH_PROFILE_HEAD;
    model->layers = m->n_parts - 2;
    model->n_dense_list = 0;
    model->moe_interval = 1;
    model->moe_phase = 0;
    model->dense_layers = dense && moe > 0;
}

lh_status lh_profile_measure(const lh_job *job,
                             const lh_measure_options *options,
                             lh_profile **out, lh_error *err)
{
    lh_measure_options o;
    LHI_TRY(LHI_OPTIONS_COPY(lh_measure_options, &o, options, err));
    measurement m = {.job = job, .model = *job->model};
    choose_parts(&m);
    m.micro_batch = job->layout.micro_batch ? job->layout.micro_batch : 1;
    m.repeats = o.repeats ? o.repeats : 9;
    lh_status status = measure_passes(&m, err);
    if (status == LH_OK)
        status = make_profile(&m, o.links, out, err);
    for (uint32_t part = 0; part < m.n_parts; part++)
        for (int kind = 0; kind < N_KINDS; kind++)
            free(m.times[part][kind]);
    free(m.messages[0]);
    free(m.messages[1]);
    if (m.device)
        m.device->ops->close(m.device);
    return status;
}
