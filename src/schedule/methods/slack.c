/* SPDX-License-Identifier: Apache-2.0 */
/* Method "slack": Adaptra's schedules. Warm-up forwards per device come from
 * its algorithm 1 or 2 or from the options; orders come from its algorithms 3
 * and 4, with exact event times where the paper steps a clock. */
#include "schedule/methods/slack.h"

#include "base/integer_math.h"
#include "schedule/methods/dispatcher.h"

#include <inttypes.h>

/* Computes warm-up forwards x per device by Adaptra's algorithm 1. It starts
 * with the count that fits on the first device and decreases to 1, in steps
 * that differ by at most one, larger steps first. */
static void compute_warmups_by_memory(const lh_pipeline *p, uint32_t *x)
{
    const lh_chunk *first = &p->chunks[0];
    int64_t limit = lh_pipeline_memory_limit(p, 0), most = INT64_MAX;
    if (limit != LH_NO_LIMIT && first->mem_f > 0)
        most = (limit - first->mem_static) / first->mem_f;
    if (most > p->n_microbatches)
        most = p->n_microbatches;
    x[0] = most < 1 || p->n_devices == 1 ? 1 : (uint32_t)most;
    for (uint32_t i = 1, steps = p->n_devices - 1; i <= steps; i++)
        x[i] = x[i - 1] - (x[0] - 1) / steps - (i <= (x[0] - 1) % steps);
}

/* Computes warm-up forwards x per device by Adaptra's algorithm 2. It is the
 * minimum slackness (difference between neighbours) that absorbs each link's
 * round-trip delay, at least `least` (2 in the paper). The paper's upper clip N
 * - 2S is negative for short batches; here it is at least 2. */
static void compute_warmups_by_delay(const lh_pipeline *p, int64_t least,
                                     uint32_t *x)
{
    int64_t n = p->n_microbatches, highest = n - 2 * (int64_t)p->n_devices;
    if (highest < 2)
        highest = 2;
    x[p->n_devices - 1] = 1;
    for (uint32_t i = p->n_devices - 1; i-- > 0;) {
        int64_t round = lhi_turnaround_ns(p, i) + lhi_round_trip_ns(p, i);
        int64_t turn = lhi_turnaround_ns(p, i + 1), slack = highest;
        if (turn > 0)
            slack = round / turn + (round % turn != 0);
        slack = lhi_min_int64(lhi_max_int64(slack, least), highest);
        x[i] = x[i + 1] + slack < n ? x[i + 1] + (uint32_t)slack : (uint32_t)n;
    }
}

/* Returns how many forwards fit into a device's memory without any W between
 * them; 0 or less: none fits. */
static int64_t compute_max_forwards(const lh_pipeline *p, uint32_t device)
{
    const lh_chunk *c = &p->chunks[device];
    int64_t limit = lh_pipeline_memory_limit(p, device);
    int64_t over = c->mem_d > 0 ? c->mem_d : 0;
    if (limit == LH_NO_LIMIT || c->mem_f <= 0)
        return INT64_MAX;
    return (limit - c->mem_static - over) / c->mem_f;
}

/* Clips the warm-up forwards x to each device's memory, and to the previous
 * device's count (the paper's lemma in section 4.1: otherwise the later device
 * waits forever). Returns whether any count was reduced. */
static bool clip_warmups(const lh_pipeline *p, uint32_t *x)
{
    bool cut = false;
    for (uint32_t i = 0; i < p->n_devices; i++) {
        int64_t most = lhi_min_int64(x[i], compute_max_forwards(p, i));
        if (i > 0)
            most = lhi_min_int64(most, x[i - 1]);
        cut = cut || most < x[i];
        x[i] = most < 1 ? 1 : (uint32_t)most;
    }
    return cut;
}

/* Computes warm-up forwards x by Adaptra's algorithm 2, with the slackness at
 * all boundaries reduced in proportion to fit memory. The first device's
 * capacity beyond one forward is assigned one by one, each to the boundary
 * with the smallest fraction of its delay's demand. */
void lhi_slack_compute_reduced_warmups(const lh_pipeline *p, uint32_t least,
                                       uint32_t *x)
{
    uint32_t last = p->n_devices - 1;
    compute_warmups_by_delay(p, least, x);
    int64_t left = lhi_min_int64(compute_max_forwards(p, 0), x[0]) - 1;
    for (uint32_t i = 0; i < last; i++) /* from here on: demand per boundary */
        x[i] -= x[i + 1];
    uint32_t *given = x + p->n_devices;
    for (uint32_t i = 0; i < last; i++)
        given[i] = 0;
    for (; left > 0; left--) {
        uint32_t poorest = last;
        for (uint32_t i = 0; i < last; i++)
            if (given[i] < x[i] &&
                (poorest == last || (uint64_t)given[i] * x[poorest] <
                                        (uint64_t)given[poorest] * x[i]))
                poorest = i;
        if (poorest == last)
            break;
        given[poorest]++;
    }
    x[last] = 1;
    for (uint32_t i = last; i-- > 0;)
        x[i] = x[i + 1] + given[i];
    clip_warmups(p, x);
}

/* Validates and copies the warm-up forwards per device from the options into
 * x. */
static lh_status read_warmups(const lh_pipeline *p,
                              const lh_method_options *options, uint32_t *x,
                              lh_error *err)
{
    if (options->n_warmup != p->n_devices)
        return lhi_fail(err, LH_EINVAL,
                        "%" PRIu32 " warm-up counts are given for %" PRIu32
                        " devices",
                        options->n_warmup, p->n_devices);
    for (uint32_t i = 0; i < p->n_devices; i++) {
        x[i] = options->warmup[i];
        if (x[i] < 1)
            return lhi_fail(err, LH_EINVAL,
                            "the warm-up of device %" PRIu32
                            " is 0; it must be at least 1",
                            i);
        if (i > 0 && x[i] > options->warmup[i - 1])
            return lhi_fail(err, LH_EINVAL,
                            "the warm-up of device %" PRIu32
                            " is greater than that of device %" PRIu32
                            "; the pipeline could never fill it",
                            i, i - 1);
        if (x[i] > p->n_microbatches)
            x[i] = p->n_microbatches;
        const lh_chunk *c = &p->chunks[i];
        if (x[i] > compute_max_forwards(p, i))
            return lhi_fail_memory_limit(p, i,
                                         c->mem_static +
                                             lhi_max_int64(c->mem_d, 0) +
                                             c->mem_f * (int64_t)x[i],
                                         err);
    }
    return LH_OK;
}

lh_status lhi_slack_compute_warmups(const lh_pipeline *pipeline,
                                    const lh_method_options *options,
                                    uint32_t *x, bool *cut, lh_error *err)
{
    if (options->warmup) {
        LHI_TRY(read_warmups(pipeline, options, x, err));
        *cut = false;
        return LH_OK;
    }
    if (options->slack_initial)
        compute_warmups_by_memory(pipeline, x);
    else
        compute_warmups_by_delay(pipeline, 2, x);
    *cut = clip_warmups(pipeline, x);
    return LH_OK;
}

/* Dispatch policy for the method "slack" (Adaptra's algorithm 3): warm-up, then
 * B before F before W among ready passes. As printed, x is only the minimum
 * number of forwards in flight; with a memory limit it is also the maximum. */
static lhi_dispatcher_choice choose(const lhi_dispatcher *p, uint32_t device,
                                    const void *policy)
{
    const uint32_t *x = policy;
    const lhi_dispatcher_device *d = &p->devices[device];
    const lhi_dispatcher_chunk *c = &p->chunks[device];
    int64_t f_ns = LHI_NEVER, d_ns = LHI_NEVER;
    bool held = d->limit != LH_NO_LIMIT && c->next_f - c->next_d >= x[device];
    if (!held && lhi_dispatcher_fits(p, d, device, LH_F))
        f_ns = lhi_dispatcher_get_start(p, d, device, LH_F);
    lhi_dispatcher_choice choice = {
        .start_ns = f_ns, .kind = LH_F, .chunk = device};
    if (c->next_f < x[device])
        return choice;
    if (lhi_dispatcher_fits(p, d, device, LH_D))
        d_ns = lhi_dispatcher_get_start(p, d, device, LH_D);
    if (d_ns <= f_ns) {
        choice.start_ns = d_ns;
        choice.kind = LH_D;
    }
    if (d->w_pending && d->free_ns < choice.start_ns) {
        choice.start_ns = d->free_ns;
        choice.kind = LH_W;
    }
    return choice;
}

/* Method "slack": Adaptra's orders, whose warm-up forwards absorb link
 * delays. */
lh_status lhi_slack(const lh_pipeline *pipeline,
                    const lh_method_options *options, lhi_orders *out,
                    lh_error *err)
{
    lhi_arena *mem = lhi_arena_make(0);
    uint32_t *x = mem ? LHI_NEW(mem, uint32_t, pipeline->n_devices) : NULL;
    bool cut;
    lh_status status =
        x ? lhi_slack_compute_warmups(pipeline, options, x, &cut, err)
          : lhi_fail_nomem(err);
    if (status == LH_OK)
        status = lhi_dispatcher_run(pipeline, 1, 0, choose, x, out, err);
    lhi_arena_free(mem);
    return status;
}
