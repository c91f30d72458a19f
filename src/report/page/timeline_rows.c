/* SPDX-License-Identifier: Apache-2.0 */
#include "report/page/timeline_rows.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* A device's sort keys. */
typedef struct device_keys {
    uint32_t device, site, low; /* low: its lowest chunk; LH_NONE: none */
    uint32_t site_low;
} device_keys;

/* Compares devices for the display order, for qsort(): by their datacenter's
 * lowest chunk, then datacenter, then their own lowest chunk, then device
 * number. */
static int compare_devices(const void *x, const void *y)
{
    const device_keys *a = x, *b = y;
    const uint32_t keys[][2] = {{a->site_low, b->site_low},
                                {a->site, b->site},
                                {a->low, b->low},
                                {a->device, b->device}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i][0] != keys[i][1])
            return keys[i][0] < keys[i][1] ? -1 : 1;
    return 0;
}

/* Finds owners[chunk], the device with the lowest number that runs passes of
 * each of n_chunks chunks; LH_NONE: none does. Returns false if several devices
 * run some chunk. */
static bool find_owners(const lh_trace *t, uint32_t n_chunks, uint32_t *owners)
{
    bool alone = true;
    for (uint32_t c = 0; c < n_chunks; c++)
        owners[c] = LH_NONE;
    for (uint32_t i = 0; i < t->n_runs; i++) {
        const uint32_t d = t->runs[i].device;
        uint32_t *owner = &owners[t->runs[i].pass.chunk];
        alone = alone && (*owner == LH_NONE || *owner == d);
        if (d < *owner)
            *owner = d;
    }
    return alone;
}

/* Returns the chunk count in a trace: the highest chunk number plus 1. */
static uint32_t count_chunks(const lh_trace *t)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_runs; i++)
        if (t->runs[i].pass.chunk >= n)
            n = t->runs[i].pass.chunk + 1;
    return n;
}

/* Orders datacenters and their devices as a microbatch visits them. `replicas`:
 * several devices have the same chunk, so a datacenter's devices are ordered by
 * number. Returns false on allocation failure. */
static bool order_devices(const lh_trace *t, bool replicas, lhi_arena *mem,
                          lhi_timeline_rows *out)
{
    device_keys *all = LHI_NEW(mem, device_keys, t->n_devices);
    uint32_t *lows = LHI_NEW(mem, uint32_t, t->n_sites);
    uint32_t *sites = LHI_NEW(mem, uint32_t, t->n_devices);
    uint32_t *devices = LHI_NEW(mem, uint32_t, t->n_devices);
    if (!all || !lows || !sites || !devices)
        return false;
    for (uint32_t d = 0; d < t->n_devices; d++)
        all[d] = (device_keys){d, t->devices[d].site, LH_NONE, LH_NONE};
    for (uint32_t i = 0; i < t->n_runs; i++) {
        device_keys *p = &all[t->runs[i].device];
        if (t->runs[i].pass.chunk < p->low)
            p->low = t->runs[i].pass.chunk;
    }
    for (uint32_t s = 0; s < t->n_sites; s++)
        lows[s] = LH_NONE;
    for (uint32_t d = 0; d < t->n_devices; d++)
        if (all[d].low < lows[all[d].site])
            lows[all[d].site] = all[d].low;
    for (uint32_t d = 0; d < t->n_devices; d++) {
        all[d].site_low = lows[all[d].site];
        if (replicas)
            all[d].low = 0;
    }
    qsort(all, t->n_devices, sizeof *all, compare_devices);
    for (uint32_t i = 0; i < t->n_devices; i++) {
        devices[i] = all[i].device;
        if (i == 0 || all[i].site != all[i - 1].site)
            sites[out->n_sites++] = all[i].site;
    }
    out->sites = sites;
    out->devices = devices;
    return true;
}

/* Computes each chunk's position (0, 1, ...) among the chunks of its device
 * owners[chunk]; false on allocation failure. */
static bool number_chunks(const lh_trace *t, const uint32_t *owners,
                          uint32_t n_chunks, lhi_arena *mem,
                          lhi_timeline_rows *out)
{
    uint32_t *turns = LHI_NEW(mem, uint32_t, n_chunks);
    uint32_t *held = LHI_NEW(mem, uint32_t, t->n_devices);
    if (!turns || !held)
        return false;
    for (uint32_t c = 0; c < n_chunks; c++) {
        if (owners[c] == LH_NONE)
            continue;
        turns[c] = held[owners[c]]++;
        if (held[owners[c]] > out->most_chunks)
            out->most_chunks = held[owners[c]];
    }
    out->chunk_positions = turns;
    out->n_chunks = n_chunks;
    return true;
}

/* Compares links for the display order, for qsort(): those between datacenters,
 * then other busy ones, then quiet ones (busy for less than 5 % of the
 * makespan); each by number. */
static int compare_links(const void *x, const void *y)
{
    const lhi_link_row *a = x, *b = y;
    const int ranks[] = {a->is_between_sites ? 0
                         : a->is_quiet       ? 2
                                             : 1,
                         b->is_between_sites ? 0
                         : b->is_quiet       ? 2
                                             : 1};
    if (ranks[0] != ranks[1])
        return ranks[0] - ranks[1];
    return a->link < b->link ? -1 : a->link > b->link;
}

/* Selects the links with messages that take time and orders their rows; false
 * on allocation failure. */
static bool order_links(const lh_trace *t, lhi_arena *mem,
                        lhi_timeline_rows *out)
{
    const size_t room = (size_t)t->n_links + 1; /* the last: no link */
    lhi_link_row *rows = LHI_NEW(mem, lhi_link_row, room);
    double *spent = LHI_NEW(mem, double, room);
    bool *far = LHI_NEW(mem, bool, room);
    if (!rows || !spent || !far)
        return false;
    for (uint32_t i = 0; i < t->n_messages; i++) {
        const lh_trace_message *m = &t->messages[i];
        const uint32_t link = m->link == LH_NONE ? t->n_links : m->link;
        const int64_t ns = m->arrive_ns - m->ready_ns;
        if (ns <= 0)
            continue;
        spent[link] += (double)ns;
        far[link] |= t->devices[m->from].site != t->devices[m->to].site;
    }
    for (uint32_t i = 0; i < room; i++) {
        const bool quiet = !far[i] && spent[i] * 20 < (double)t->makespan_ns;
        if (!(spent[i] > 0))
            continue;
        rows[out->n_links++] =
            (lhi_link_row){i == t->n_links ? LH_NONE : i, far[i], quiet};
        out->n_quiet += quiet;
    }
    qsort(rows, out->n_links, sizeof *rows, compare_links);
    out->links = rows;
    return true;
}

bool lhi_timeline_rows_make(const lh_trace *trace, lhi_arena *mem,
                            lhi_timeline_rows *out)
{
    lhi_timeline_rows made = {0};
    const uint32_t n_chunks = count_chunks(trace);
    uint32_t *owners = LHI_NEW(mem, uint32_t, n_chunks);
    if (!owners)
        return false;
    const bool replicas = !find_owners(trace, n_chunks, owners);
    if (!order_devices(trace, replicas, mem, &made) ||
        !number_chunks(trace, owners, n_chunks, mem, &made) ||
        !order_links(trace, mem, &made))
        return false;
    *out = made;
    return true;
}

/* Returns the first run on `device` or on a later one. */
static uint32_t find_first_run(const lh_trace *t, uint64_t device)
{
    uint32_t lo = 0, hi = t->n_runs;
    while (lo < hi) {
        const uint32_t middle = lo + (hi - lo) / 2;
        if (t->runs[middle].device < device)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo;
}

const lh_trace_run *lhi_trace_device_runs(const lh_trace *trace,
                                          uint32_t device, uint32_t *n)
{
    const uint32_t first = find_first_run(trace, device);
    *n = find_first_run(trace, (uint64_t)device + 1) - first;
    return *n ? trace->runs + first : NULL;
}

char *lhi_device_label(uint32_t device, char *text)
{
    snprintf(text, LHI_ROW_LABEL, "device %" PRIu32, device);
    return text;
}

char *lhi_quiet_label(uint32_t n, char *text)
{
    snprintf(text, LHI_ROW_LABEL, "%" PRIu32 " quiet link%s", n,
             n == 1 ? "" : "s");
    return text;
}

const char *lhi_link_label(const lh_trace *trace, uint32_t link)
{
    return link == LH_NONE ? "no link" : trace->link_names[link];
}

const char *lhi_site_label(const lh_trace *trace, uint32_t site)
{
    return trace->site_names[site][0] ? trace->site_names[site] : "(no name)";
}

bool lhi_timeline_has_site_rows(const lh_trace *trace)
{
    return trace->n_sites > 1 || trace->site_names[0][0];
}
