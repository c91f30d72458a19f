/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule/simulator/copy_clock.h"

#include "base/fail.h"

lh_status lhi_copy_clock_init(const lh_pipeline *p, const lh_schedule *schedule,
                              const size_t *offsets, lhi_arena *mem,
                              lhi_copy_clock *out, lh_error *err)
{
    lhi_copy_clock c = {.p = p, .offsets = offsets};
    size_t n_passes = offsets[p->n_devices];
    uint32_t n = 0;
    *out = (lhi_copy_clock){0};
    if (!p->offloads)
        return LH_OK;
    uint32_t *scratch = LHI_NEW(mem, uint32_t, lhi_count_offload_scratch(p));
    c.items = LHI_NEW(mem, lhi_offload_copy, n_passes);
    c.done = LHI_NEW(mem, lh_offload_copy, n_passes);
    c.ready_ns = LHI_NEW(mem, int64_t, n_passes);
    c.next = LHI_NEW(mem, uint32_t, p->n_devices);
    c.end = LHI_NEW(mem, uint32_t, p->n_devices);
    c.free_ns = LHI_NEW(mem, int64_t, p->n_devices);
    if (!scratch || !c.items || !c.done || !c.ready_ns || !c.next || !c.end ||
        !c.free_ns)
        return lhi_fail_nomem(err);
    for (uint32_t d = 0; d < p->n_devices; d++) {
        c.next[d] = n;
        n += lhi_list_offload_copies(p, schedule->orders[d], sizeof(lh_pass),
                                     schedule->counts[d], scratch, c.items + n);
        c.end[d] = n;
    }
    *out = c;
    return LH_OK;
}

void lhi_copy_clock_get_start(const lhi_copy_clock *c, uint32_t device,
                              uint32_t i, int64_t *start)
{
    if (!c->p)
        return;
    int64_t ready_ns = c->ready_ns[c->offsets[device] + i];
    *start = ready_ns > *start ? ready_ns : *start;
}

/* Queues one offload copy `what` (between device and host memory) on the
 * device's copy stream at time `now`, and delays the pass that waits for it. */
static void launch_copy(lhi_copy_clock *c, uint32_t device,
                        const lhi_offload_copy *what, int64_t now)
{
    int64_t *free_ns = &c->free_ns[device];
    int64_t *waits = &c->ready_ns[c->offsets[device] + what->before];
    int64_t depart_ns = now > *free_ns ? now : *free_ns;
    *free_ns = depart_ns + c->p->chunks[what->chunk].offload_ns;
    *waits = *free_ns > *waits ? *free_ns : *waits;
    c->done[c->n_done++] = (lh_offload_copy){.chunk = what->chunk,
                                             .microbatch = what->microbatch,
                                             .device = device,
                                             .is_reload = what->to_device,
                                             .launching_run = what->at,
                                             .waiting_run = what->before,
                                             .ready_ns = now,
                                             .depart_ns = depart_ns,
                                             .end_ns = *free_ns};
}

/* Launches the device's offload copies that belong to pass number i: with
 * is_back those to the device, at the pass's start; otherwise those to storage,
 * at its end. */
static void launch_copies(lhi_copy_clock *c, uint32_t device, uint32_t i,
                          bool is_back, int64_t now)
{
    if (!c->p)
        return;
    uint32_t *next = &c->next[device];
    while (*next < c->end[device] && c->items[*next].at == i &&
           c->items[*next].to_device == is_back)
        launch_copy(c, device, &c->items[(*next)++], now);
}

void lhi_copy_clock_on_start(lhi_copy_clock *c, uint32_t device, uint32_t i,
                             int64_t start)
{
    launch_copies(c, device, i, true, start);
}

void lhi_copy_clock_on_end(lhi_copy_clock *c, uint32_t device, uint32_t i,
                           int64_t now)
{
    launch_copies(c, device, i, false, now);
}

/* Determines which activations on device d are moved to host memory, and the
 * device's copies[] by position in its order. `rests`: scratch, a flag per
 * chunk and microbatch. */
static void find_device_copies(const lh_pipeline *p, const lh_schedule *s,
                               uint32_t d, int64_t host_copy_ns, bool *rests,
                               int64_t *copies)
{
    int64_t held = 0, limit = lh_pipeline_device_limit(p, d);
    for (uint32_t c = 0; c < p->n_chunks; c++)
        held += p->chunks[c].device == d ? p->chunks[c].mem_static : 0;
    for (uint32_t i = 0; i < s->counts[d]; i++) {
        const lh_pass *pass = &s->orders[d][i];
        const lh_chunk *c = &p->chunks[pass->chunk];
        bool *is =
            &rests[(size_t)pass->chunk * p->n_microbatches + pass->microbatch];
        if (pass->kind != LH_F && pass->kind != LH_W && *is) {
            copies[i] = host_copy_ns;
            held += c->mem_f;
            *is = false;
        }
        held += lhi_pass_memory_change(c, pass);
        if (pass->kind == LH_F && c->mem_f > 0 && held > limit) {
            copies[i] = host_copy_ns;
            held -= c->mem_f;
            *is = true;
        }
    }
}

lh_status lhi_find_host_copies(const lh_pipeline *p, const lh_schedule *s,
                               int64_t host_copy_ns, const size_t *offsets,
                               lhi_arena *mem, int64_t **out, lh_error *err)
{
    int64_t *copies = LHI_NEW(mem, int64_t, offsets[p->n_devices]);
    bool *rests = LHI_NEW(mem, bool, (size_t)p->n_chunks * p->n_microbatches);
    if (!copies || !rests)
        return lhi_fail_nomem(err);
    for (uint32_t d = 0; d < p->n_devices; d++)
        find_device_copies(p, s, d, host_copy_ns, rests, copies + offsets[d]);
    *out = copies;
    return LH_OK;
}
