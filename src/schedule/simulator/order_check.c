/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that a schedule's orders are complete before simulation. */
#include "schedule/pipeline/accessors.h"
#include "schedule/simulator/timeline.h"

#include <inttypes.h>

/* Checks that a pass is on its device, is not in `seen` yet and follows its
 * prerequisites, and adds it to `seen`. Returns NULL if so, otherwise an error
 * text. */
static const char *check_pass(const lh_pipeline *p, uint32_t device,
                              const lh_pass *pass, lhi_observed_passes *seen)
{
    if (pass->chunk >= p->n_chunks)
        return "the pipeline has no such chunk";
    if (pass->microbatch >= p->n_microbatches)
        return "the pipeline has no such microbatch";
    if (p->chunks[pass->chunk].device != device)
        return "its chunk is on another device";
    size_t i = (size_t)pass->chunk * p->n_microbatches + pass->microbatch;
    uint8_t state = seen->state[i];
    switch (pass->kind) {
    case LH_F:
        if (state & LHI_OBSERVED_F)
            return "appears twice";
        seen->state[i] = state | LHI_OBSERVED_F;
        return NULL;
    case LH_B:
    case LH_D:
        if (!(state & LHI_OBSERVED_F))
            return "its forward pass does not come before it";
        if (state & LHI_OBSERVED_D)
            return "a backward pass of its microbatch comes before it";
        if (pass->kind == LH_B) {
            seen->state[i] = state | LHI_OBSERVED_D | LHI_OBSERVED_W;
            return NULL;
        }
        if (p->joint)
            return "the pipeline's backward is joint: use B in place of I "
                   "and W";
        seen->state[i] = state | LHI_OBSERVED_D;
        return NULL;
    default:
        if (!(state & LHI_OBSERVED_D))
            return "its input-gradient pass does not come before it";
        if (state & LHI_OBSERVED_W)
            return "its weight gradient is complete before it";
        if (pass->part != (seen->parts[i] & 0xffff))
            return "the parts of a W must be in order, each exactly once";
        if (pass->part && pass->n_parts != seen->parts[i] >> 16)
            return "earlier parts divide its W into another number of parts";
        seen->parts[i] = (uint32_t)pass->n_parts << 16 | (pass->part + 1u);
        if (pass->part + 1 == pass->n_parts)
            seen->state[i] = state | LHI_OBSERVED_W;
        return NULL;
    }
}

/* Checks that no pass of an overlapped pair depends on the other: the passes
 * have different microbatches, or run in different directions. Returns NULL if
 * so, otherwise an error text. */
static const char *check_pair(const lh_pipeline *p, const lh_pass *f)
{
    const lh_pass *b = f + 1;
    uint32_t half = lhi_count_direction_chunks(p);
    if (f->kind != LH_F || !lhi_is_overlapped(p, f) ||
        f->microbatch != b->microbatch || f->chunk / half != b->chunk / half)
        return NULL;
    return "overlaps with a backward pass that depends on it";
}

/* Checks the order of a sequence's slices, after check_pass() of this pass:
 * an F needs the keys and values of the slices before it; a backward adds to
 * their gradients, which the slices after it complete. Returns NULL if it is
 * right, otherwise an error text. */
static const char *check_slice(const lh_pipeline *p, const lh_pass *pass,
                               const lhi_observed_passes *seen)
{
    uint32_t slice = pass->microbatch % p->n_slices;
    size_t i = (size_t)pass->chunk * p->n_microbatches + pass->microbatch;
    if (pass->kind == LH_F && slice > 0 &&
        !(seen->state[i - 1] & LHI_OBSERVED_F))
        return "the forward pass of the sequence's previous slice does not "
               "come before it";
    if ((pass->kind == LH_D || pass->kind == LH_B) && slice + 1 < p->n_slices &&
        !(seen->state[i + 1] & LHI_OBSERVED_D))
        return "the backward pass of the sequence's next slice does not come "
               "before it";
    return NULL;
}

/* Fails with LH_EINFEASIBLE: the message names the first pass of the pipeline
 * that the schedule lacks. */
static lh_status report_missing(const lh_pipeline *p,
                                const lhi_observed_passes *seen, lh_error *err)
{
    size_t n = (size_t)p->n_chunks * p->n_microbatches;
    for (size_t i = 0; i < n; i++) {
        uint8_t state = seen->state[i];
        if (state == (LHI_OBSERVED_F | LHI_OBSERVED_D | LHI_OBSERVED_W))
            continue;
        uint32_t c = (uint32_t)(i / p->n_microbatches);
        uint32_t m = (uint32_t)(i % p->n_microbatches);
        char what = !(state & LHI_OBSERVED_F)   ? 'F'
                    : !(state & LHI_OBSERVED_D) ? 'I'
                                                : 'W';
        return lhi_fail(err, LH_EINFEASIBLE,
                        "pass %" PRIu32 "%c%" PRIu32 " of device %" PRIu32
                        " is missing",
                        c, what, m, p->chunks[c].device);
    }
    return LH_OK;
}

/* Fails because pass `i` of a device breaks a rule (`wrong`). The message is
 * "S.csv:2: cell 3 (0F1): ..."; rows and cells count from 1. */
static lh_status report_cell(const lh_schedule *schedule, uint32_t device,
                             uint32_t i, const char *wrong, lh_error *err)
{
    char text[LH_PASS_TEXT_SIZE];
    lh_pass_format(&schedule->orders[device][i], text);
    uint32_t cell = lhi_schedule_cell(schedule, device, i);
    if (schedule->name)
        return lhi_fail(err, LH_EINFEASIBLE,
                        "%s:%" PRIu32 ": cell %" PRIu32 " (%s): %s",
                        schedule->name, device + 1, cell, text, wrong);
    return lhi_fail(err, LH_EINFEASIBLE,
                    "row %" PRIu32 ", cell %" PRIu32 " (%s): %s", device + 1,
                    cell, text, wrong);
}

/* Prefixes the error message with the schedule's file name, if it has one, and
 * returns `status`. */
static lh_status wrap_with_name(const lh_schedule *schedule, lh_status status,
                                lh_error *err)
{
    if (status == LH_EINFEASIBLE && schedule->name)
        lhi_fail_add_context(err, "%s", schedule->name);
    return status;
}

lh_status lhi_orders_check(const lh_pipeline *pipeline,
                           const lh_schedule *schedule,
                           lhi_observed_passes *seen, lh_error *err)
{
    if (schedule->n_devices != pipeline->n_devices)
        return wrap_with_name(
            schedule,
            lhi_fail(err, LH_EINFEASIBLE,
                     "the schedule has %" PRIu32
                     " row%s for the pipeline's %" PRIu32 " device%s",
                     schedule->n_devices, schedule->n_devices == 1 ? "" : "s",
                     pipeline->n_devices, pipeline->n_devices == 1 ? "" : "s"),
            err);
    for (uint32_t d = 0; d < schedule->n_devices; d++) {
        const lh_pass *order = schedule->orders[d];
        for (uint32_t i = 0; i < schedule->counts[d]; i++) {
            const char *wrong = check_pass(pipeline, d, &order[i], seen);
            if (!wrong)
                wrong = check_pair(pipeline, &order[i]);
            if (!wrong)
                wrong = check_slice(pipeline, &order[i], seen);
            if (wrong)
                return report_cell(schedule, d, i, wrong, err);
        }
    }
    return wrap_with_name(schedule, report_missing(pipeline, seen, err), err);
}
