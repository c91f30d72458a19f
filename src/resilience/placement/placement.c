/* SPDX-License-Identifier: Apache-2.0 */
/* Builds a pipeline for a placement of its hosts. */
#include "resilience/placement/placement_internal.h"

#include "base/options.h"
#include "resilience/placement/placement.h"
#include "schedule/pipeline/accessors.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- construction --------------------------------------------------------- */

/* Checks whether all links have the same latency and transfer time. */
static bool are_links_equal(const lh_pipeline *p)
{
    for (uint32_t i = 1; i < p->n_links; i++)
        if (p->links[i].latency_ns != p->links[0].latency_ns ||
            p->links[i].transfer_ns != p->links[0].transfer_ns)
            return false;
    return true;
}

/* Checks whether all devices have the same memory limit. */
static bool are_devices_equal(const lh_pipeline *p)
{
    for (uint32_t d = 1; d < p->n_devices; d++)
        if (lh_pipeline_memory_limit(p, d) != lh_pipeline_memory_limit(p, 0))
            return false;
    return true;
}

/* Fails if the pipeline cannot be modelled on hosts: with too many hosts,
 * data-parallel operations within the iteration, or links that share a
 * resource. */
static lh_status check_pipeline(const lh_pipeline *p, uint32_t n_replicas,
                                lh_error *err)
{
    if ((uint64_t)p->n_devices * n_replicas > LH_MAX_HOSTS)
        return lhi_fail(err, LH_EINVAL,
                        "host placement: %" PRIu32 " replicas of %" PRIu32
                        " devices exceed %u hosts",
                        n_replicas, p->n_devices, LH_MAX_HOSTS);
    if (p->n_dp_ops > 0)
        return lhi_fail(err, LH_EUNSUPPORTED,
                        "host placement: the pipeline has data-parallel "
                        "communication in the middle of the iteration");
    if (p->n_resources < p->n_links)
        return lhi_fail(
            err, LH_EUNSUPPORTED,
            "host placement: some links of the pipeline share a resource; each "
            "pair of hosts requires its own link, because the effect of a slow "
            "host on a shared link is unknown");
    return LH_OK;
}

/* Checks whether one of `n` links leads from device `a` to device `b`. */
static bool is_linked(const lh_link *links, uint32_t n, uint32_t a, uint32_t b)
{
    for (uint32_t i = 0; i < n; i++)
        if (links[i].from == a && links[i].to == b)
            return true;
    return false;
}

/* Copies the pipeline, and adds a link without delay wherever neighbouring
 * chunks on two devices have none, so that events can slow it. */
static lh_status add_links(const lh_pipeline *p, lh_pipeline **out,
                           lh_error *err)
{
    lh_pipeline_desc d = {.size = sizeof d};
    LHI_TRY(lh_pipeline_describe(p, &d, err));
    uint32_t n = p->n_links;
    lh_link *links = calloc(n + 2 * (size_t)p->n_chunks, sizeof *links);
    if (!links)
        return lhi_fail_nomem(err);
    if (n)
        memcpy(links, d.links, n * sizeof *links);
    for (uint32_t c = 0; c + 1 < p->n_chunks; c++) {
        uint32_t a = p->chunks[c].device, b = p->chunks[c + 1].device;
        if (a != b && !is_linked(links, n, a, b))
            links[n++] = (lh_link){.from = a, .to = b};
        if (a != b && !is_linked(links, n, b, a))
            links[n++] = (lh_link){.from = b, .to = a};
    }
    d.links = links;
    d.n_links = n;
    lh_status status = lhi_pipeline_rebuild(p, &d, out, err);
    free(links);
    return status;
}

/* Returns how many messages with the link's transfer time transfer_ns take `ns`
 * in total; -1 (unknown) if transfer_ns is 0 but `ns` is not. */
static double convert_to_messages(int64_t ns, int64_t transfer_ns)
{
    return transfer_ns > 0 ? (double)ns / (double)transfer_ns : ns > 0 ? -1 : 0;
}

/* Checks that the `n` message counts in `of` are all from 0 to 1e12; true for
 * NULL. */
static bool are_valid_counts(const double *of, uint32_t n)
{
    for (uint32_t i = 0; of && i < n; i++)
        if (!(of[i] >= 0) || of[i] > 1e12)
            return false;
    return true;
}

/* Checks and copies the sizes of data-parallel communication and of hosts'
 * training state, counted in messages. Derives missing ones from the pipeline's
 * times. */
static lh_status copy_options(lh_host_placement *s,
                              const lh_host_placement_options *o, lh_error *err)
{
    const lh_pipeline *p = s->pipeline;
    s->gather_messages = LHI_NEW(s->mem, double, p->n_chunks);
    s->scatter_messages = LHI_NEW(s->mem, double, p->n_chunks);
    s->state_ns = LHI_NEW(s->mem, int64_t, p->n_devices);
    s->state_messages = LHI_NEW(s->mem, double, p->n_devices);
    if (!s->gather_messages || !s->scatter_messages || !s->state_ns ||
        !s->state_messages)
        return lhi_fail_nomem(err);
    if (!are_valid_counts(o->gather_messages, p->n_chunks) ||
        !are_valid_counts(o->scatter_messages, p->n_chunks) ||
        !are_valid_counts(o->state_messages, p->n_devices))
        return lhi_fail(err, LH_EINVAL,
                        "lh_host_placement_options: numbers of messages must "
                        "be at least 0");
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        const lh_chunk *k = &p->chunks[c];
        s->gather_messages[c] =
            o->gather_messages
                ? o->gather_messages[c]
                : convert_to_messages(k->all_gather_ns, s->transfer_ns);
        s->scatter_messages[c] =
            o->scatter_messages
                ? o->scatter_messages[c]
                : convert_to_messages(k->reduce_scatter_ns, s->transfer_ns);
    }
    for (uint32_t d = 0; d < p->n_devices; d++) {
        s->state_ns[d] = o->state_ns ? o->state_ns[d] : 0;
        if (s->state_ns[d] < 0 || s->state_ns[d] > INT64_MAX / 4096)
            return lhi_fail(
                err, LH_EINVAL,
                "lh_host_placement_options: state_ns of device %" PRIu32
                " is %" PRId64,
                d, s->state_ns[d]);
        s->state_messages[d] =
            o->state_messages
                ? o->state_messages[d]
                : convert_to_messages(s->state_ns[d], s->transfer_ns);
    }
    return LH_OK;
}

/* Checks and copies pipeline and options. Determines whether all hosts have
 * equal links and memory, so that any two may be exchanged. */
static lh_status set_up(lh_host_placement *s, const lh_pipeline *pipeline,
                        const lh_host_placement_options *o, lh_error *err)
{
    s->n_replicas = o->n_replicas ? o->n_replicas : 1;
    s->n_devices = pipeline->n_devices;
    LHI_TRY(check_pipeline(pipeline, s->n_replicas, err));
    s->n_hosts = s->n_replicas * s->n_devices;
    LHI_TRY(add_links(pipeline, &s->pipeline, err));
    bool links = are_links_equal(s->pipeline);
    s->hosts_are_equivalent = links && are_devices_equal(pipeline);
    if (links && s->pipeline->n_links > 0) {
        s->latency_ns = s->pipeline->links[0].latency_ns;
        s->transfer_ns = s->pipeline->links[0].transfer_ns;
    }
    return copy_options(s, o, err);
}

lh_status lh_host_placement_make(const lh_pipeline *pipeline,
                                 const lh_host_placement_options *options,
                                 lh_host_placement **out, lh_error *err)
{
    lh_host_placement_options o;
    LHI_TRY(lhi_pipeline_require_one_direction(pipeline,
                                               "the placement of hosts", err));
    LHI_TRY(LHI_OPTIONS_COPY(lh_host_placement_options, &o, options, err));
    lhi_arena *mem = lhi_arena_make(0);
    lh_host_placement *s = mem ? LHI_NEW(mem, lh_host_placement, 1) : NULL;
    if (!s) {
        lhi_arena_free(mem);
        return lhi_fail_nomem(err);
    }
    s->mem = mem;
    lh_status status = set_up(s, pipeline, &o, err);
    if (status != LH_OK)
        lh_host_placement_free(s);
    else
        *out = s;
    return status;
}

lh_status lhi_host_placement_with_times(const lh_host_placement *places,
                                        const lh_pipeline *measured,
                                        lh_host_placement **out, lh_error *err)
{
    lh_pipeline_desc d = {.size = sizeof d};
    LHI_TRY(lh_pipeline_describe(places->pipeline, &d, err));
    lhi_arena *mem = lhi_arena_make(0);
    lh_host_placement *s = mem ? LHI_NEW(mem, lh_host_placement, 1) : NULL;
    lh_chunk *chunks = mem ? LHI_NEW(mem, lh_chunk, d.n_chunks) : NULL;
    if (!s || !chunks) {
        lhi_arena_free(mem);
        return lhi_fail_nomem(err);
    }
    for (uint32_t c = 0; c < d.n_chunks; c++) {
        chunks[c] = d.chunks[c];
        chunks[c].f_ns = measured->chunks[c].f_ns;
        chunks[c].d_ns = measured->chunks[c].d_ns;
        chunks[c].w_ns = measured->chunks[c].w_ns;
    }
    d.chunks = chunks;
    *s = *places;
    s->mem = mem;
    s->pipeline = NULL;
    lh_status status =
        lhi_pipeline_rebuild(places->pipeline, &d, &s->pipeline, err);
    if (status != LH_OK)
        lh_host_placement_free(s);
    else
        *out = s;
    return status;
}

/* Frees a model of host placements; ignores NULL. */
void lh_host_placement_free(lh_host_placement *places)
{
    if (!places)
        return;
    lh_pipeline_free(places->pipeline);
    lhi_arena_free(places->mem);
}

uint32_t lhi_host_placement_n_hosts(const lh_host_placement *places)
{
    return places->n_hosts;
}

lh_link lhi_host_placement_nominal_link(const lh_host_placement *places,
                                        uint32_t from, uint32_t to)
{
    const lh_pipeline *p = places->pipeline;
    uint32_t a = from % places->n_devices, b = to % places->n_devices;
    lh_link usual = {.from = from,
                     .to = to,
                     .latency_ns = places->latency_ns,
                     .transfer_ns = places->transfer_ns};
    for (uint32_t i = 0; i < p->n_links; i++)
        if (p->links[i].from == a && p->links[i].to == b) {
            usual.latency_ns = p->links[i].latency_ns;
            usual.transfer_ns = p->links[i].transfer_ns;
        }
    return usual;
}

/* --- slowdowns ------------------------------------------------------------ */

/* Adds two times in ns; a sum above the limit for pipeline times becomes a
 * value that a later check rejects. */
static int64_t add_times(int64_t a, int64_t b)
{
    return a > INT64_MAX / 4 - b ? INT64_MAX / 4 : a + b;
}

/* Multiplies a time in ns by a factor, rounded; a result above the limit for
 * pipeline times becomes a value that a later check rejects. */
static int64_t multiply_time(int64_t ns, double factor)
{
    double product = round((double)ns * factor);
    return product < 0x1p61 ? (int64_t)product : INT64_MAX / 4;
}

/* Checks the link slowdowns in `now`, and adds their latencies and transfer
 * times to the table per pair of hosts in `s`. */
static lh_status fill_links(const lh_host_slowdowns *now,
                            lhi_host_slowdown_tables *s, lh_error *err)
{
    for (uint32_t i = 0; i < now->n_links; i++) {
        const lh_host_link_delay *l = &now->links[i];
        if (l->from >= s->n_hosts || l->to >= s->n_hosts || l->from == l->to)
            return lhi_fail(
                err, LH_EINVAL,
                "lh_host_slowdowns: no link leads from host %" PRIu32
                " to %" PRIu32 " of %" PRIu32,
                l->from, l->to, s->n_hosts);
        if (l->latency_ns < 0 || l->transfer_ns < 0 ||
            l->latency_ns > INT64_MAX / 4 || l->transfer_ns > INT64_MAX / 4)
            return lhi_fail(err, LH_EINVAL,
                            "lh_host_slowdowns: the times of link %" PRIu32
                            " are out of range",
                            i);
        lhi_additional_time *x =
            &s->links[(size_t)l->from * s->n_hosts + l->to];
        x->latency_ns = add_times(x->latency_ns, l->latency_ns);
        x->transfer_ns = add_times(x->transfer_ns, l->transfer_ns);
    }
    return LH_OK;
}

lh_status lhi_host_slowdowns_check(const lh_host_placement *places,
                                   const lh_host_slowdowns *given,
                                   lhi_arena *mem,
                                   lhi_host_slowdown_tables *out, lh_error *err)
{
    lh_host_slowdowns now;
    uint32_t n = places->n_hosts;
    LHI_TRY(LHI_OPTIONS_COPY(lh_host_slowdowns, &now, given, err));
    lhi_host_slowdown_tables s = {
        n, LHI_NEW(mem, lhi_additional_time, (size_t)n * n),
        LHI_NEW(mem, double, n)};
    if (!s.links || !s.pass_factors)
        return lhi_fail_nomem(err);
    for (uint32_t h = 0; h < n; h++) {
        s.pass_factors[h] = now.pass_factors ? now.pass_factors[h] : 1;
        if (!(s.pass_factors[h] >= 1) || s.pass_factors[h] > 1e9)
            return lhi_fail(err, LH_EINVAL,
                            "lh_host_slowdowns: the slowdown of host %" PRIu32
                            " is %g; it must be at least 1",
                            h, s.pass_factors[h]);
    }
    LHI_TRY(fill_links(&now, &s, err));
    *out = s;
    return LH_OK;
}

/* --- views ---------------------------------------------------------------- */

size_t lhi_placement_view_bytes(const lh_host_placement *s)
{
    return (s->pipeline->n_links + (size_t)s->n_devices) *
               sizeof(lhi_additional_time) +
           s->n_devices * sizeof(double);
}

bool lhi_placement_view_make(const lh_host_placement *s, lhi_arena *mem,
                             lhi_placement_view *out)
{
    char *room = LHI_NEW(mem, char, lhi_placement_view_bytes(s));
    if (!room)
        return false;
    out->links = (lhi_additional_time *)(void *)room;
    out->rings = out->links + s->pipeline->n_links;
    out->pass_factors = (double *)(void *)(out->rings + s->n_devices);
    return true;
}

/* Raises the latency and the transfer time in *most to those of `x` where `x`
 * has longer ones. */
static void raise_to(lhi_additional_time *most, lhi_additional_time x)
{
    if (x.latency_ns > most->latency_ns)
        most->latency_ns = x.latency_ns;
    if (x.transfer_ns > most->transfer_ns)
        most->transfer_ns = x.transfer_ns;
}

void lhi_placement_view_fill(const lh_host_placement *s,
                             const lhi_host_slowdown_tables *slow,
                             const uint32_t *hosts, lhi_placement_view *view)
{
    const lh_pipeline *p = s->pipeline;
    memset(view->links, 0, lhi_placement_view_bytes(s));
    for (uint32_t r = 0; r < s->n_replicas; r++) {
        const uint32_t *own = hosts + (size_t)r * s->n_devices;
        const uint32_t *next =
            hosts + (size_t)((r + 1) % s->n_replicas) * s->n_devices;
        for (uint32_t i = 0; i < p->n_links; i++)
            raise_to(&view->links[i],
                     lhi_host_slowdowns_link(slow, own[p->links[i].from],
                                             own[p->links[i].to]));
        for (uint32_t d = 0; d < s->n_devices; d++) {
            if (s->n_replicas > 1)
                raise_to(&view->rings[d],
                         lhi_host_slowdowns_link(slow, own[d], next[d]));
            if (slow->pass_factors[own[d]] > view->pass_factors[d])
                view->pass_factors[d] = slow->pass_factors[own[d]];
        }
    }
}

/* Adds the additional time `ring`, per link of the data-parallel ring, to chunk
 * c's all-gather and reduce-scatter times in *k: n_replicas - 1 steps, each as
 * long as the slowest link. */
static lh_status slow_data(const lh_host_placement *s, uint32_t c,
                           lhi_additional_time ring, lh_chunk *k, lh_error *err)
{
    bool is_there = k->all_gather_ns > 0 || k->reduce_scatter_ns > 0 ||
                    s->gather_messages[c] > 0 || s->scatter_messages[c] > 0;
    if (!is_there || s->n_replicas < 2)
        return LH_OK;
    if (ring.transfer_ns > 0 &&
        (s->gather_messages[c] < 0 || s->scatter_messages[c] < 0))
        return lhi_fail(
            err, LH_EUNSUPPORTED,
            "host placement: the data-parallel communication of chunk %" PRIu32
            " has an unknown size in messages, because without slowdowns the "
            "transfer times of the messages are 0 or differ; set equal ones",
            c);
    if (ring.transfer_ns > 0) {
        k->all_gather_ns =
            add_times(k->all_gather_ns,
                      multiply_time(ring.transfer_ns, s->gather_messages[c]));
        k->reduce_scatter_ns =
            add_times(k->reduce_scatter_ns,
                      multiply_time(ring.transfer_ns, s->scatter_messages[c]));
    }
    k->dp_latency_ns = add_times(
        k->dp_latency_ns, multiply_time(ring.latency_ns, s->n_replicas - 1));
    return LH_OK;
}

/* Applies a view's slowdowns (per link, ring and device) to the pass times and
 * data-parallel communication of all chunks. */
static lh_status slow_chunks(const lh_host_placement *s,
                             const lhi_placement_view *view, lh_chunk *chunks,
                             lh_error *err)
{
    for (uint32_t c = 0; c < s->pipeline->n_chunks; c++) {
        lh_chunk *k = &chunks[c];
        double slower = view->pass_factors[k->device];
        k->f_ns = multiply_time(k->f_ns, slower);
        k->d_ns = multiply_time(k->d_ns, slower);
        k->w_ns = multiply_time(k->w_ns, slower);
        LHI_TRY(slow_data(s, c, view->rings[k->device], k, err));
    }
    return LH_OK;
}

lh_status lhi_placement_view_pipeline(const lh_host_placement *s,
                                      const lhi_placement_view *view,
                                      lh_pipeline **out, lh_error *err)
{
    lh_pipeline_desc d = {.size = sizeof d};
    LHI_TRY(lh_pipeline_describe(s->pipeline, &d, err));
    lh_link *links = calloc(d.n_links + (size_t)1, sizeof *links);
    lh_chunk *chunks = calloc(d.n_chunks, sizeof *chunks);
    lh_status status = links && chunks ? LH_OK : lhi_fail_nomem(err);
    if (status == LH_OK) {
        memcpy(chunks, d.chunks, d.n_chunks * sizeof *chunks);
        for (uint32_t i = 0; i < d.n_links; i++) {
            links[i] = d.links[i];
            links[i].latency_ns =
                add_times(links[i].latency_ns, view->links[i].latency_ns);
            links[i].transfer_ns =
                add_times(links[i].transfer_ns, view->links[i].transfer_ns);
        }
        status = slow_chunks(s, view, chunks, err);
    }
    if (status == LH_OK) {
        d.links = links;
        d.chunks = chunks;
        status = lhi_pipeline_rebuild(s->pipeline, &d, out, err);
    }
    free(links);
    free(chunks);
    return status;
}

/* --- hosts ---------------------------------------------------------------- */

/* Fails if `hosts` (host per place) is no permutation, or if a host differs in
 * links or memory from the host whose place it takes. `mem`: scratch memory. */
static lh_status check_hosts(const lh_host_placement *s, const uint32_t *hosts,
                             lhi_arena *mem, lh_error *err)
{
    bool *seen = LHI_NEW(mem, bool, s->n_hosts);
    if (!seen)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < s->n_hosts; i++) {
        if (hosts[i] >= s->n_hosts || seen[hosts[i]])
            return lhi_fail(err, LH_EINVAL,
                            "host placement: host %" PRIu32
                            " does not exist, or has two places",
                            hosts[i]);
        seen[hosts[i]] = true;
        if (!lhi_host_placement_can_host(s, hosts[i], i))
            return lhi_fail(err, LH_EUNSUPPORTED,
                            "host placement: host %" PRIu32
                            " cannot take a place of device %" PRIu32
                            ", whose links or memory differ from its own",
                            hosts[i], i % s->n_devices);
    }
    return LH_OK;
}

lh_status lhi_host_placement_copy_hosts(const lh_host_placement *s,
                                        const uint32_t *given, lhi_arena *mem,
                                        uint32_t **out, lh_error *err)
{
    uint32_t *hosts = LHI_NEW(mem, uint32_t, s->n_hosts);
    if (!hosts)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < s->n_hosts; i++)
        hosts[i] = given ? given[i] : i;
    LHI_TRY(check_hosts(s, hosts, mem, err));
    *out = hosts;
    return LH_OK;
}

lh_status lh_host_placement_pipeline(const lh_host_placement *places,
                                     const lh_host_slowdowns *now,
                                     const uint32_t *hosts, lh_pipeline **out,
                                     lh_error *err)
{
    lhi_host_slowdown_tables slow;
    lhi_placement_view view;
    uint32_t *own;
    lhi_arena *mem = lhi_arena_make(0);
    if (!mem)
        return lhi_fail_nomem(err);
    lh_status status = lhi_host_slowdowns_check(places, now, mem, &slow, err);
    if (status == LH_OK)
        status = lhi_host_placement_copy_hosts(places, hosts, mem, &own, err);
    if (status == LH_OK && !lhi_placement_view_make(places, mem, &view))
        status = lhi_fail_nomem(err);
    if (status == LH_OK) {
        lhi_placement_view_fill(places, &slow, own, &view);
        status = lhi_placement_view_pipeline(places, &view, out, err);
    }
    lhi_arena_free(mem);
    return status;
}
