/* SPDX-License-Identifier: Apache-2.0 */
/* Checks memory: the running sum over the passes' net changes in device order.
 * The peak is the largest prefix sum plus static memory. */
#include "schedule/verifier/verifier.h"

#include <longhaul/experimental/pipeline.h>

#include <inttypes.h>

/* Adds two amounts of memory; the result is limited to the type's range, which
 * schedules with duplicate passes may exceed. */
static int64_t add_clamped(int64_t a, int64_t b)
{
    if (b > 0 && a > INT64_MAX - b)
        return INT64_MAX;
    if (b < 0 && a < INT64_MIN - b)
        return INT64_MIN;
    return a + b;
}

/* Returns by how much a pass changes its device's memory in total; negative: it
 * releases memory. */
static int64_t get_memory_change(const lhi_verifier *judge, const lh_pass *pass)
{
    if (pass->chunk >= judge->n_chunks)
        return 0;
    const lh_chunk *chunk = lh_pipeline_chunk(judge->pipeline, pass->chunk);
    switch (pass->kind) {
    case LH_F:
        return chunk->mem_f;
    case LH_D:
        return chunk->mem_d;
    case LH_B:
        return chunk->mem_d + chunk->mem_w;
    default:
        return lhi_verify_compute_share(chunk->mem_w, pass);
    }
}

/* Computes a device's peak memory and adds a violation if it exceeds the
 * limit. */
static void check_device(lhi_verifier *judge, uint32_t device)
{
    int64_t *peak = &judge->verdict->peaks[device];
    int64_t limit = lh_pipeline_memory_limit(judge->pipeline, device);
    int64_t fixed = *peak, now = fixed;
    uint32_t begin = 0, end = 0, worst = LH_NONE;
    if (device < judge->n_rows) {
        begin = judge->first[device];
        end = judge->first[device + 1];
    }
    for (uint32_t node = begin; node < end; node++) {
        now = add_clamped(now, get_memory_change(judge, &judge->passes[node]));
        if (now > *peak) {
            *peak = now;
            worst = node;
        }
    }
    if (*peak <= limit)
        return;
    const char *unit = lh_pipeline_memory_unit(judge->pipeline);
    const char *space = unit[0] ? " " : "";
    if (worst == LH_NONE) {
        lhi_verify_add_violation(judge,
                                 "device %" PRIu32 " holds %" PRId64
                                 "%s%s before any pass, limit %" PRId64,
                                 device, fixed, space, unit, limit);
        return;
    }
    char text[LH_PASS_TEXT_SIZE];
    lhi_verify_add_violation(
        judge,
        "device %" PRIu32 " holds %" PRId64 "%s%s in cell %" PRIu32
        ", %s, of %" PRId64 " allowed",
        device, *peak, space, unit, lhi_verify_get_cell(judge, worst),
        lh_pass_format(&judge->passes[worst], text), limit);
}

void lhi_verify_check_memory(lhi_verifier *judge)
{
    int64_t *peaks = judge->verdict->peaks;
    for (uint32_t c = 0; c < judge->n_chunks; c++) {
        const lh_chunk *chunk = lh_pipeline_chunk(judge->pipeline, c);
        peaks[chunk->device] += chunk->mem_static;
    }
    for (uint32_t d = 0; d < judge->n_devices; d++)
        check_device(judge, d);
}
