/* SPDX-License-Identifier: Apache-2.0 */
/* A device that emulates passes by sleeping. It sleeps until an absolute
 * deadline. The next deadline counts from this deadline and not from the
 * wake-up, so lateness does not accumulate. */
#include "runtime/device/timed.h"
#include "base/fail.h"
#include "base/realtime.h"
#include "schedule/pipeline/pipeline_internal.h"

#include <stdlib.h>

/* The timed device. */
typedef struct timed {
    lhi_device device;
    uint32_t n_chunks;
    lh_chunk *chunks;
    lh_pipeline shape; /* its chunks, directions and slices */
    size_t message_bytes;
    int64_t slip_ns;
    lhi_timed_slips slips;
} timed;

/* Frees the timed device (lhi_device_ops.close). */
static void timed_close(lhi_device *device)
{
    timed *t = (timed *)device;
    free(t->chunks);
    free(t);
}

/* Returns the chunk's output message size, equal at all boundaries between
 * chunks (lhi_device_ops.message_bytes). */
static size_t timed_message_bytes(const lhi_device *device, uint32_t chunk,
                                  bool backward)
{
    const timed *t = (const timed *)device;
    bool is_end = backward ? lhi_is_first_chunk(&t->shape, chunk)
                           : lhi_is_last_chunk(&t->shape, chunk);
    return is_end ? 0 : t->message_bytes;
}

/* Does nothing: a timed device has no state per step (lhi_device_ops.begin). */
static lh_status timed_begin(lhi_device *device, uint64_t step,
                             lhi_step_kind kind, lh_error *err)
{
    (void)device;
    (void)step;
    (void)kind;
    (void)err;
    return LH_OK;
}

/* Emulates a pass: sleeps until its deadline and sets `span`. The deadline
 * counts from `ready_ns`, or from now if the pass is more than slip_ns late. */
static lh_status timed_run(lhi_device *device, const lh_pass *pass,
                           const void *in, void *out, int64_t ready_ns,
                           lhi_span *span, lh_error *err)
{
    timed *t = (timed *)device;
    (void)in;
    (void)out;
    if (pass->chunk >= t->n_chunks || pass->n_parts == 0)
        return lhi_fail(err, LH_EINVAL, "the pass does not exist");
    int64_t now = lhi_now_ns(), late = now - ready_ns;
    span->start_ns = ready_ns;
    if (late > t->slips.worst_ns)
        t->slips.worst_ns = late;
    if (late > t->slip_ns) {
        t->slips.n++;
        t->slips.lost_ns += late;
        span->start_ns = now;
    }
    span->end_ns = span->start_ns + lhi_pass_duration(&t->shape, pass);
    if (span->end_ns > now)
        lhi_sleep_until(span->end_ns);
    return LH_OK;
}

/* Reports no loss, since a timed device trains no model: *has is false
 * (lhi_device_ops.loss). */
static lh_status timed_loss(lhi_device *device, double *sum, uint64_t *tokens,
                            bool *has, lh_error *err)
{
    (void)device;
    (void)err;
    *sum = 0;
    *tokens = 0;
    *has = false;
    return LH_OK;
}

/* Returns 0: a timed device has no tensors (lhi_device_ops.n_tensors). */
static uint32_t timed_n_tensors(const lhi_device *device, uint32_t chunk)
{
    (void)device;
    (void)chunk;
    return 0;
}

/* Returns NULL: a timed device has no tensors (lhi_device_ops.tensor). */
static lhi_tensor *timed_tensor(lhi_device *device, uint32_t chunk, uint32_t i)
{
    (void)device;
    (void)chunk;
    (void)i;
    return NULL;
}

/* Adds nothing: a timed device uses no memory (lhi_device_ops.add_memory). */
static void timed_add_memory(const lhi_device *device,
                             int64_t bytes[LH_N_MEMORY_KINDS])
{
    (void)device;
    (void)bytes;
}

/* Returns 0, unknown: a timed device uses no memory
 * (lhi_device_ops.peak_bytes). */
static size_t timed_peak_bytes(const lhi_device *device)
{
    (void)device;
    return 0;
}

static const lhi_device_ops timed_ops = {
    .name = "timed",
    .close = timed_close,
    .message_bytes = timed_message_bytes,
    .begin = timed_begin,
    .run = timed_run,
    .loss = timed_loss,
    .n_tensors = timed_n_tensors,
    .tensor = timed_tensor,
    .peak_bytes = timed_peak_bytes,
    .add_memory = timed_add_memory,
};

lhi_timed_slips lhi_timed_read_slips(lhi_device *device)
{
    timed *t = (timed *)device;
    lhi_timed_slips slips = t->slips;
    t->slips = (lhi_timed_slips){0};
    return slips;
}

void lhi_timed_set_pipeline(lhi_device *device, const lh_pipeline *pipeline)
{
    timed *t = (timed *)device;
    for (uint32_t c = 0; c < t->n_chunks; c++)
        t->chunks[c] = *lh_pipeline_chunk(pipeline, c);
    t->shape = (lh_pipeline){.chunks = t->chunks,
                             .n_chunks = t->n_chunks,
                             .n_copies = pipeline->n_copies,
                             .n_slices = pipeline->n_slices,
                             .slice_attention = pipeline->slice_attention};
}

const lh_chunk *lhi_timed_find_chunk(const lhi_device *device, uint32_t chunk)
{
    return &((const timed *)device)->chunks[chunk];
}

lh_status lhi_device_timed(const lh_pipeline *pipeline, uint32_t device,
                           size_t message_bytes, int64_t slip_ns,
                           lhi_device **out, lh_error *err)
{
    if (device >= lh_pipeline_n_devices(pipeline) || message_bytes == 0 ||
        slip_ns < 0)
        return lhi_fail(err, LH_EINVAL,
                        "a timed device must be one of the pipeline's devices, "
                        "with a message size above 0 and a slip of at least 0");
    timed *t = calloc(1, sizeof *t);
    uint32_t n = lh_pipeline_n_chunks(pipeline);
    lh_chunk *chunks = calloc(n, sizeof *chunks);
    if (!t || !chunks) {
        free(t);
        free(chunks);
        return lhi_fail_nomem(err);
    }
    *t = (timed){.device = {&timed_ops},
                 .n_chunks = n,
                 .chunks = chunks,
                 .message_bytes = message_bytes,
                 .slip_ns = slip_ns};
    lhi_timed_set_pipeline(&t->device, pipeline);
    *out = &t->device;
    return LH_OK;
}
