/* SPDX-License-Identifier: Apache-2.0 */
#include "resilience/adapt/slow_hosts.h"

#include "resilience/placement/placement_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct lhi_slow_hosts {
    lhi_arena *mem;
    const lh_host_placement *placement;
    uint32_t n_hops;
    lhi_hop *hops;
    uint32_t *links;    /* per hop */
    double *nominal_ns; /* per hop */
    uint32_t *hosts;    /* per place */
    lhi_host_localiser *localiser;
    /* Found with earlier hosts at the places, and now. */
    lhi_host_slowdown_tables earlier, all;
    uint32_t version;
    lh_host_link_delay *delays; /* of lh_host_slowdowns */
    lh_host_slowdowns known;
};

/* --- construction --------------------------------------------------------- */

/* Returns the mean duration in ns of device d's all-gathers and reduce-scatters
 * in a ring without slowdowns, and their number in *n. */
static double compute_collective_time(const lh_host_placement *p, uint32_t d,
                                      uint32_t *n)
{
    double sum_ns = 0;
    *n = 0;
    for (uint32_t c = 0; c < p->pipeline->n_chunks; c++) {
        const lh_chunk *k = &p->pipeline->chunks[c];
        const int64_t both[] = {k->all_gather_ns, k->reduce_scatter_ns};
        for (uint32_t i = 0; k->device == d && i < 2; i++)
            if (both[i] > 0) {
                sum_ns += (double)(both[i] + k->dp_latency_ns);
                ++*n;
            }
    }
    return *n > 0 ? sum_ns / *n : 0;
}

/* Appends a hop (traffic from place `from` to place `to`) with its normal time
 * `ns`; `link`: the pipeline link that it follows, LH_NONE for data-parallel
 * traffic. */
static void add_hop(lhi_slow_hosts *s, uint32_t from, uint32_t to,
                    uint32_t link, double ns)
{
    s->hops[s->n_hops] = (lhi_hop){from, to, link == LH_NONE};
    s->nominal_ns[s->n_hops] = ns;
    s->links[s->n_hops++] = link;
}

/* Lists all hops (traffic between two places): data-parallel ones between all
 * replicas of a device, then one per pipeline link and replica. */
static void list_hops(lhi_slow_hosts *s)
{
    const lh_host_placement *p = s->placement;
    for (uint32_t d = 0; d < p->n_devices; d++) {
        uint32_t n;
        const double ns = compute_collective_time(p, d, &n);
        for (uint32_t a = 0; n > 0 && a < p->n_replicas; a++)
            for (uint32_t b = 0; b < p->n_replicas; b++)
                if (a != b)
                    add_hop(s, a * p->n_devices + d, b * p->n_devices + d,
                            LH_NONE, ns);
    }
    for (uint32_t r = 0; r < p->n_replicas; r++)
        for (uint32_t i = 0; i < p->pipeline->n_links; i++) {
            const lh_link *l = &p->pipeline->links[i];
            add_hop(s, r * p->n_devices + l->from, r * p->n_devices + l->to, i,
                    (double)(l->latency_ns + l->transfer_ns));
        }
}

/* Allocates tables of slowdowns per host and host pair, without slowdowns, in
 * `mem`. Returns false if memory is lacking. */
static bool make_tables(lhi_arena *mem, uint32_t n_hosts,
                        lhi_host_slowdown_tables *out)
{
    *out = (lhi_host_slowdown_tables){
        n_hosts, LHI_NEW(mem, lhi_additional_time, (size_t)n_hosts * n_hosts),
        LHI_NEW(mem, double, n_hosts)};
    for (uint32_t h = 0; out->pass_factors && h < n_hosts; h++)
        out->pass_factors[h] = 1;
    return out->links && out->pass_factors;
}

lh_status lhi_slow_hosts_make(const lh_host_placement *placement,
                              lhi_slow_hosts **out, lh_error *err)
{
    const uint32_t n = placement->n_hosts;
    const size_t most =
        (size_t)n * placement->n_replicas +
        (size_t)placement->n_replicas * placement->pipeline->n_links;
    lhi_arena *mem = lhi_arena_make(0);
    lhi_slow_hosts *s = mem ? LHI_NEW(mem, lhi_slow_hosts, 1) : NULL;
    if (s)
        *s = (lhi_slow_hosts){
            .mem = mem,
            .placement = placement,
            .hops = LHI_NEW(mem, lhi_hop, most),
            .links = LHI_NEW(mem, uint32_t, most),
            .nominal_ns = LHI_NEW(mem, double, most),
            .hosts = LHI_NEW(mem, uint32_t, n),
            .delays = LHI_NEW(mem, lh_host_link_delay, (size_t)n * n)};
    if (!s || !s->hops || !s->links || !s->nominal_ns || !s->hosts ||
        !s->delays || !make_tables(mem, n, &s->earlier) ||
        !make_tables(mem, n, &s->all)) {
        lhi_arena_free(mem);
        return lhi_fail_nomem(err);
    }
    for (uint32_t i = 0; i < n; i++)
        s->hosts[i] = i;
    list_hops(s);
    s->known = (lh_host_slowdowns){.size = sizeof s->known,
                                   .links = s->delays,
                                   .pass_factors = s->all.pass_factors};
    const lh_status status =
        lhi_host_localiser_make(placement->n_replicas, placement->n_devices,
                                s->n_hops, s->hops, &s->localiser, err);
    if (status != LH_OK)
        lhi_slow_hosts_free(s);
    else
        *out = s;
    return status;
}

/* Frees the record of slow hosts; ignores NULL. */
void lhi_slow_hosts_free(lhi_slow_hosts *s)
{
    if (!s)
        return;
    lhi_host_localiser_free(s->localiser);
    lhi_arena_free(s->mem);
}

const lhi_hop *lhi_slow_hosts_hops(const lhi_slow_hosts *s, uint32_t *n)
{
    *n = s->n_hops;
    return s->hops;
}

uint32_t lhi_slow_hosts_link(const lhi_slow_hosts *s, uint32_t hop)
{
    return s->links[hop];
}

/* --- known slowdowns ------------------------------------------------------ */

/* Converts extra_ns, by which a hop's messages or collectives are slow, into
 * extra time of the host link: transfer time per message if messages have a
 * transfer time, else latency. */
static lhi_additional_time convert_time(const lhi_slow_hosts *s, uint32_t hop,
                                        double extra_ns)
{
    const lh_host_placement *p = s->placement;
    const uint32_t link = s->links[hop];
    double messages = 1, latencies = 1;
    if (link == LH_NONE) {
        const uint32_t d = s->hops[hop].from % p->n_devices;
        uint32_t n;
        compute_collective_time(p, d, &n);
        messages = 0;
        for (uint32_t c = 0; c < p->pipeline->n_chunks; c++)
            if (p->pipeline->chunks[c].device == d)
                messages += p->gather_messages[c] + p->scatter_messages[c];
        messages /= n;
        latencies = p->n_replicas - 1;
    } else if (p->pipeline->links[link].transfer_ns == 0) {
        messages = 0;
    }
    if (messages > 0)
        return (lhi_additional_time){0, llround(extra_ns / messages)};
    return (lhi_additional_time){llround(extra_ns / latencies), 0};
}

/* Raises the known additional time of the link from host a to host b to `x`
 * where `x` is longer. */
static void raise_link(lhi_slow_hosts *s, uint32_t a, uint32_t b,
                       lhi_additional_time x)
{
    lhi_additional_time *to = &s->all.links[(size_t)a * s->all.n_hosts + b];
    if (x.latency_ns > to->latency_ns)
        to->latency_ns = x.latency_ns;
    if (x.transfer_ns > to->transfer_ns)
        to->transfer_ns = x.transfer_ns;
}

/* Adds a slow element to the known slowdowns s->all: a host's pass factor, a
 * link's extra time, or for an interface the extra time on all links of its
 * host. */
static void add_element(lhi_slow_hosts *s, const lhi_slow_element *e)
{
    const uint32_t host = s->hosts[e->a];
    if (e->kind == LHI_SLOW_HOST) {
        s->all.pass_factors[host] = fmax(s->all.pass_factors[host], e->factor);
        return;
    }
    const lhi_additional_time x = convert_time(s, e->hop, e->extra_ns);
    if (e->kind == LHI_SLOW_LINK)
        raise_link(s, host, s->hosts[e->b], x);
    for (uint32_t h = 0; e->kind == LHI_SLOW_INTERFACE && h < s->all.n_hosts;
         h++)
        if (h != host)
            raise_link(s, e->sends ? host : h, e->sends ? h : host, x);
}

/* Copies the slowdowns per host and host pair to another table of the same
 * size. */
static void copy_tables(const lhi_host_slowdown_tables *from,
                        lhi_host_slowdown_tables *to)
{
    memcpy(to->links, from->links,
           (size_t)from->n_hosts * from->n_hosts * sizeof *from->links);
    memcpy(to->pass_factors, from->pass_factors,
           from->n_hosts * sizeof *from->pass_factors);
}

/* Rebuilds the known slowdowns: those found under earlier host assignments and
 * those that the localiser reports now; increases s->version. */
static void update_known(lhi_slow_hosts *s)
{
    uint32_t n;
    const lhi_slow_element *all = lhi_host_localiser_slow(s->localiser, &n);
    copy_tables(&s->earlier, &s->all);
    for (uint32_t i = 0; i < n; i++)
        add_element(s, &all[i]);
    s->known.n_links = 0;
    for (uint32_t a = 0; a < s->all.n_hosts; a++)
        for (uint32_t b = 0; b < s->all.n_hosts; b++) {
            const lhi_additional_time x =
                lhi_host_slowdowns_link(&s->all, a, b);
            if (x.latency_ns > 0 || x.transfer_ns > 0)
                s->delays[s->known.n_links++] =
                    (lh_host_link_delay){a, b, x.latency_ns, x.transfer_ns};
        }
    s->version++;
}

void lhi_slow_hosts_add(lhi_slow_hosts *s, const double *pass_ns,
                        const double *hop_ns)
{
    if (lhi_host_localiser_add(s->localiser, pass_ns, hop_ns))
        update_known(s);
}

void lhi_slow_hosts_exchange(lhi_slow_hosts *s, const uint32_t *hosts)
{
    lhi_host_localiser_reset(s->localiser);
    copy_tables(&s->all, &s->earlier);
    for (uint32_t i = 0; i < s->placement->n_hosts; i++)
        s->hosts[i] = hosts ? hosts[i] : i;
}

const lh_host_slowdowns *lhi_slow_hosts_known(const lhi_slow_hosts *s,
                                              uint32_t *version)
{
    *version = s->version;
    return &s->known;
}

/* Formats a slow element (host, interface or link, with its factor) into `text`
 * (`room` bytes); returns its length. */
static size_t format_element(const lhi_slow_hosts *s, const lhi_slow_element *e,
                             char *text, size_t room)
{
    int n;
    if (e->kind == LHI_SLOW_LINK)
        n = snprintf(text, room, "the link from host %" PRIu32 " to %" PRIu32,
                     s->hosts[e->a], s->hosts[e->b]);
    else if (e->kind == LHI_SLOW_INTERFACE)
        n = snprintf(text, room, "the %s interface of host %" PRIu32,
                     e->sends ? "outgoing" : "incoming", s->hosts[e->a]);
    else
        n = snprintf(text, room, "host %" PRIu32, s->hosts[e->a]);
    if (n > 0 && (size_t)n < room && e->factor > 1)
        n += snprintf(text + n, room - (size_t)n, " (%.1f times as long)",
                      e->factor);
    return n > 0 && (size_t)n < room ? (size_t)n : room - 1;
}

void lhi_slow_hosts_describe(const lhi_slow_hosts *s, char *text, size_t room)
{
    enum { SHOWN = 4 };
    uint32_t n;
    const lhi_slow_element *all = lhi_host_localiser_slow(s->localiser, &n);
    size_t used = 0;
    text[0] = 0;
    for (uint32_t i = 0; i < n && i < SHOWN && used + 2 < room; i++) {
        if (i > 0)
            used += (size_t)snprintf(text + used, room - used, ", ");
        used += format_element(s, &all[i], text + used, room - used);
    }
    if (n > SHOWN && used < room)
        snprintf(text + used, room - used, " and %" PRIu32 " more", n - SHOWN);
}

/* --- emulation ------------------------------------------------------------ */

/* Returns the mean time in ns by which device d's collectives become longer if
 * one link of their ring has the additional time x. */
static double slow_collectives(const lh_host_placement *p, uint32_t d,
                               lhi_additional_time x)
{
    uint32_t n;
    double messages = 0;
    compute_collective_time(p, d, &n);
    for (uint32_t c = 0; c < p->pipeline->n_chunks; c++)
        if (p->pipeline->chunks[c].device == d)
            messages += fmax(p->gather_messages[c], 0) +
                        fmax(p->scatter_messages[c], 0);
    return messages / n * (double)x.transfer_ns +
           (p->n_replicas - 1) * (double)x.latency_ns;
}

lh_status lhi_slow_hosts_emulate(const lhi_slow_hosts *s,
                                 const lh_host_slowdowns *actual,
                                 double *pass_ns, double *hop_ns, lh_error *err)
{
    const lh_host_placement *p = s->placement;
    lhi_host_slowdown_tables slow;
    lhi_arena *mem = lhi_arena_make(0);
    if (!mem)
        return lhi_fail_nomem(err);
    const lh_status status =
        lhi_host_slowdowns_check(p, actual, mem, &slow, err);
    for (uint32_t i = 0; status == LH_OK && i < p->n_hosts; i++) {
        pass_ns[i] = 0;
        for (uint32_t c = 0; c < p->pipeline->n_chunks; c++) {
            const lh_chunk *k = &p->pipeline->chunks[c];
            if (k->device == i % p->n_devices)
                pass_ns[i] += (double)(k->f_ns + k->d_ns + k->w_ns) *
                              slow.pass_factors[s->hosts[i]];
        }
    }
    for (uint32_t i = 0; status == LH_OK && i < s->n_hops; i++) {
        const lhi_hop *hop = &s->hops[i];
        const lhi_additional_time x = lhi_host_slowdowns_link(
            &slow, s->hosts[hop->from], s->hosts[hop->to]);
        const bool next = hop->to == (hop->from + p->n_devices) % p->n_hosts;
        if (!hop->is_collective)
            hop_ns[i] =
                s->nominal_ns[i] + (double)(x.latency_ns + x.transfer_ns);
        else
            hop_ns[i] =
                next ? s->nominal_ns[i] +
                           slow_collectives(p, hop->from % p->n_devices, x)
                     : NAN;
    }
    lhi_arena_free(mem);
    return status;
}
