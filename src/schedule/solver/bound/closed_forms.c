/* SPDX-License-Identifier: Apache-2.0 */
/* Closed-form lower bounds; proofs are in docs/theory/bounds.md. */
#include "schedule/solver/bound/closed_forms.h"
#include "base/arena.h"
#include "base/fail.h"
#include "base/integer_math.h"
#include "schedule/pipeline/pipeline_internal.h"

#include <inttypes.h>
#include <longhaul/experimental/bounds.h>
#include <stdarg.h>
#include <stdio.h>

/* Per-chunk times without any waiting. `head_f`, `head_d`: earliest start of
 * its first F or D, including preceding all-gathers; `round`: from the end of
 * any F to its D's start; `tail_f`, `tail_d`: from the end of an F or D to the
 * end of all work that must follow. With a joint backward, D stands for B and W
 * is 0. */
typedef struct path_times {
    int64_t *head_f, *head_d, *round, *tail_f, *tail_d;
} path_times;

/* Durations of one chunk's passes, in ns. */
typedef struct times {
    int64_t f, d, w;
} times;

/* Returns a lower bound on the duration of a pass whose nominal duration is
 * `ns`. The pass can be shorter in an overlapped pair, or for a sequence's
 * first slice. */
static int64_t find_least(const lh_pipeline *p, int64_t ns)
{
    return p->overlap_f_b > 0 ? (int64_t)((double)ns * p->overlap_f_b)
                              : lhi_scale_to_slice(p, 0, ns);
}

/* Returns the least durations of a chunk's F, D and W in ns; if the pipeline's
 * backward is joint, D includes W, and W is 0. */
static times get_times(const lh_pipeline *p, uint32_t chunk)
{
    const lh_chunk *c = &p->chunks[chunk];
    times t = {find_least(p, c->f_ns), find_least(p, c->d_ns),
               find_least(p, c->w_ns)};
    return p->joint ? (times){t.f, t.d + t.w, 0} : t;
}

/* Returns lower bounds on the mean durations of a chunk's F, D and W over all
 * microbatches, in ns. With slices these are the nominal durations, less 1 ns
 * for rounding. If the backward is joint, D includes W, and W is 0. */
static times get_mean_times(const lh_pipeline *p, uint32_t chunk)
{
    const lh_chunk *c = &p->chunks[chunk];
    if (p->slice_attention == 0)
        return get_times(p, chunk); /* no rounding */
    times t = {lhi_max_int64(c->f_ns - 1, 0), lhi_max_int64(c->d_ns - 1, 0),
               lhi_max_int64(c->w_ns - 1, 0)};
    return p->joint ? (times){t.f, t.d + t.w, 0} : t;
}

/* Returns a route's transfer time plus latency, in ns. */
static int64_t compute_hop_time(const lhi_route *route)
{
    return route->transfer_ns + route->latency_ns;
}

/* Returns the time in ns for the reduce-scatter that follows a chunk's last W,
 * with its latency; 0 if the chunk has none. */
static int64_t get_scatter_time(const lh_chunk *c)
{
    return c->reduce_scatter_ns > 0 ? c->reduce_scatter_ns + c->dp_latency_ns
                                    : 0;
}

/* Returns a chunk's all-gather time plus latency, in ns; 0 if the chunk has no
 * all-gather. */
static int64_t get_gather_time(const lh_chunk *c)
{
    return c->all_gather_ns > 0 ? c->all_gather_ns + c->dp_latency_ns : 0;
}

/* Computes three times of every chunk in ns, as if no pass ever waited. They
 * are the head (earliest start of F and of D), the round trip from F to D, and
 * the tail (time after D). */
static void compute_path_times(const lh_pipeline *p, path_times *w)
{
    uint32_t n = p->n_chunks;
    for (uint32_t c = 0; c < n; c++) {
        int64_t came = lhi_is_first_chunk(p, c)
                           ? 0
                           : w->head_f[c - 1] + get_times(p, c - 1).f +
                                 compute_hop_time(&p->forward[c - 1]);
        w->head_f[c] = lhi_max_int64(came, get_gather_time(&p->chunks[c]));
    }
    for (uint32_t c = n; c-- > 0;) {
        if (lhi_is_last_chunk(p, c)) {
            w->head_d[c] = w->head_f[c] + get_times(p, c).f;
            continue;
        }
        times next = get_times(p, c + 1);
        int64_t back = next.d + compute_hop_time(&p->backward[c + 1]);
        w->head_d[c] = w->head_d[c + 1] + back;
        w->round[c] =
            compute_hop_time(&p->forward[c]) + next.f + w->round[c + 1] + back;
    }
    for (uint32_t c = 0; c < n; c++) {
        w->tail_d[c] = get_times(p, c).w + get_scatter_time(&p->chunks[c]);
        if (!lhi_is_first_chunk(p, c))
            w->tail_d[c] = lhi_max_int64(
                w->tail_d[c], compute_hop_time(&p->backward[c]) +
                                  get_times(p, c - 1).d + w->tail_d[c - 1]);
    }
    for (uint32_t c = n; c-- > 0;) {
        if (!lhi_is_last_chunk(p, c))
            w->tail_f[c] = compute_hop_time(&p->forward[c]) +
                           get_times(p, c + 1).f + w->tail_f[c + 1];
        else
            w->tail_f[c] = get_times(p, c).d + w->tail_d[c];
    }
}

/* A sum of terms; terms without a name are skipped. */
typedef struct bound_sum {
    lh_bound_term terms[LH_BOUND_TERMS];
} bound_sum;

static void raise_to(lh_bound *best, lh_bound_kind kind, bound_sum s,
                     uint32_t device, uint32_t resource, const char *format,
                     ...) LHI_PRINTF(6, 7);

/* Replaces *best by the lower bound `s` of kind `kind` if that is larger.
 * `device` and `resource` (LH_NONE: none) and `format` say where the bound
 * applies. */
static void raise_to(lh_bound *best, lh_bound_kind kind, bound_sum s,
                     uint32_t device, uint32_t resource, const char *format,
                     ...)
{
    lh_bound now = {.kind = kind, .device = device, .resource = resource};
    for (uint32_t i = 0; i < LH_BOUND_TERMS; i++) {
        if (!s.terms[i].name)
            continue;
        now.terms[now.n_terms++] = s.terms[i];
        now.ns += s.terms[i].times * s.terms[i].ns;
    }
    if (now.ns <= best->ns)
        return;
    *best = now;
    va_list args;
    va_start(args, format);
    vsnprintf(best->text, sizeof best->text, format, args);
    va_end(args);
}

/* Raises *best to the time of one microbatch's path, forward and backward
 * through all chunks without waiting. */
static void bound_path(const lh_pipeline *p, const path_times *w,
                       lh_bound *best)
{
    for (uint32_t c = 0; c < p->n_chunks; c++)
        raise_to(best, LH_BOUND_PATH,
                 (bound_sum){{{"before the first D", 1, w->head_d[c]},
                              {"D", 1, get_times(p, c).d},
                              {"after a D", 1, w->tail_d[c]}}},
                 LH_NONE, LH_NONE, "the way of one microbatch there and back");
}

/* Returns how many microbatches' activations on chunk c fit into its device,
 * rounded up because part of a W may free enough for one more. *whole: no
 * rounding was needed. 0: no limit, or not plain[d] (other passes than W
 * release memory). held[d]: static memory. */
static int64_t compute_capacity(const lh_pipeline *p, uint32_t c,
                                const bool *plain, const int64_t *held,
                                bool *whole)
{
    uint32_t d = p->chunks[c].device;
    int64_t each = p->chunks[c].mem_f;
    if (!plain[d] || each <= 0 || p->memory_limits[d] == LH_NO_LIMIT)
        return 0;
    int64_t room = p->memory_limits[d] - held[d];
    if (room < each)
        return 0; /* nothing fits: the pipeline is infeasible */
    *whole = room % each == 0;
    return room / each + !*whole;
}

/* Raises *best to the memory bounds of chunk c, on whose device `k` activations
 * fit; `whole`: k was not rounded up. If the chunk is alone on its device, two
 * more bounds apply. One adds the work before and after the F that waits for
 * memory, the other the work after the last D. */
static void bound_memory(const lh_pipeline *p, const path_times *w, uint32_t c,
                         int64_t k, bool whole, bool alone, lh_bound *best)
{
    times t = get_times(p, c);
    int64_t n = p->n_microbatches;
    uint32_t d = p->chunks[c].device;
    int64_t trips = (n + k - 1) / k - 1;
    int64_t trip = t.f + w->round[c] + t.d + (whole ? t.w : 0);
    raise_to(best, LH_BOUND_ROUND_TRIPS,
             (bound_sum){{{"before the first D", 1, w->head_d[c]},
                          {"D", 1, t.d},
                          {"round trip", trips, trip},
                          {"after a D", 1, w->tail_d[c]}}},
             d, LH_NONE,
             "memory on device %" PRIu32 ": %" PRId64 " sequential round trips",
             d, trips + 1);
    if (!alone || n <= k)
        return;
    raise_to(best, LH_BOUND_MEMORY,
             (bound_sum){{{"before the first D", 1, w->head_d[c]},
                          {"full cycle", n - k, t.f + t.d + t.w},
                          {"round trip of the last microbatch", 1, w->round[c]},
                          {"D", 1, t.d},
                          {"after a D", 1, w->tail_d[c]}}},
             d, LH_NONE,
             "memory on device %" PRIu32 ": two round trips and %" PRId64
             " full cycles",
             d, n - k);
    raise_to(best, LH_BOUND_DEVICE_DRAIN,
             (bound_sum){{{"before the first F", 1, w->head_f[c]},
                          {"F and D of a microbatch", n, t.f + t.d},
                          {"W that memory asks for", n - k, t.w},
                          {"after the last D", 1, w->tail_d[c]}}},
             d, LH_NONE,
             "work of device %" PRIu32
             " up to its last input gradient (memory forces %" PRId64
             " weight gradients before it), and the path after it",
             d, n - k);
}

/* Totals per device for the device bounds. */
typedef struct device_sum {
    int64_t head, work, forth_and_back, tail, scatter;
    uint32_t n_chunks;
} device_sum;

/* Raises *best to the device bounds: all work of a device, and its work up to
 * the last D, each with the least time before and after it. */
static void bound_devices(const lh_pipeline *p, const device_sum *sums,
                          lh_bound *best)
{
    int64_t n = p->n_microbatches;
    for (uint32_t d = 0; d < p->n_devices; d++) {
        const device_sum *s = &sums[d];
        if (s->n_chunks == 0)
            continue;
        raise_to(best, LH_BOUND_DEVICE,
                 (bound_sum){{{"before the first F", 1, s->head},
                              {"a microbatch's work", n, s->work},
                              {"reduce-scatter", 1, s->scatter}}},
                 d, LH_NONE, "all the work of device %" PRIu32, d);
        raise_to(best, LH_BOUND_DEVICE_DRAIN,
                 (bound_sum){{{"before the first F", 1, s->head},
                              {"F and D of a microbatch", n, s->forth_and_back},
                              {"after the last D", 1, s->tail}}},
                 d, LH_NONE,
                 "work of device %" PRIu32
                 " up to its last input gradient, and the path after it",
                 d);
    }
}

/* Adds chunk c's pass times to its device's sums. Updates the device's
 * smallest head (time before its passes), tail (time after them) and
 * reduce-scatter. */
static void add_to_sum(const lh_pipeline *p, const path_times *w, uint32_t c,
                       device_sum *s)
{
    times t = get_mean_times(p, c);
    int64_t scatter = get_scatter_time(&p->chunks[c]);
    s->head = s->n_chunks ? lhi_min_int64(s->head, w->head_f[c]) : w->head_f[c];
    s->tail = s->n_chunks ? lhi_min_int64(s->tail, w->tail_d[c]) : w->tail_d[c];
    s->scatter = s->n_chunks ? lhi_min_int64(s->scatter, scatter) : scatter;
    s->work += t.f + t.d + t.w;
    s->forth_and_back += t.f + t.d;
    s->n_chunks++;
}

/* Totals per link for the link bounds. */
typedef struct link_sum {
    int64_t head, tail, busy;
    bool used;
} link_sum;

/* Adds a route's messages to their link's busy time, and lowers the link's
 * smallest head (earliest start) and tail (time that must follow). */
static void add_message(link_sum *sums, const lhi_route *route, int64_t head,
                        int64_t tail)
{
    if (!route->message || route->resource == LH_NONE)
        return;
    link_sum *s = &sums[route->resource];
    s->head = s->used ? lhi_min_int64(s->head, head) : head;
    s->tail = s->used ? lhi_min_int64(s->tail, tail) : tail;
    s->busy += route->transfer_ns;
    s->used = true;
}

/* Raises *best to the link bounds: the least time before a link's first
 * message, the transfers of all its messages, and the least time after the
 * last. */
static void bound_links(const lh_pipeline *p, const path_times *w,
                        link_sum *sums, lh_bound *best)
{
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        if (!lhi_is_last_chunk(p, c))
            add_message(sums, &p->forward[c], w->head_f[c] + get_times(p, c).f,
                        p->forward[c].latency_ns + get_times(p, c + 1).f +
                            w->tail_f[c + 1]);
        if (!lhi_is_first_chunk(p, c))
            add_message(sums, &p->backward[c], w->head_d[c] + get_times(p, c).d,
                        p->backward[c].latency_ns + get_times(p, c - 1).d +
                            w->tail_d[c - 1]);
    }
    for (uint32_t r = 0; r < p->n_resources; r++)
        if (sums[r].used)
            raise_to(best, LH_BOUND_LINK,
                     (bound_sum){{{"before the first message", 1, sums[r].head},
                                  {"a microbatch's messages", p->n_microbatches,
                                   sums[r].busy},
                                  {"after the last message", 1, sums[r].tail}}},
                     LH_NONE, r, "all messages of link %.60s",
                     p->resource_names[r]);
}

/* Computes all closed-form lower bounds and returns the largest. */
static lh_status compute_largest_bound(const lh_pipeline *p, lhi_arena *mem,
                                       lh_bound *best, lh_error *err)
{
    path_times w = {
        LHI_NEW(mem, int64_t, p->n_chunks), LHI_NEW(mem, int64_t, p->n_chunks),
        LHI_NEW(mem, int64_t, p->n_chunks), LHI_NEW(mem, int64_t, p->n_chunks),
        LHI_NEW(mem, int64_t, p->n_chunks)};
    device_sum *devices = LHI_NEW(mem, device_sum, p->n_devices);
    link_sum *links = LHI_NEW(mem, link_sum, p->n_resources);
    bool *plain = LHI_NEW(mem, bool, p->n_devices);
    int64_t *held = LHI_NEW(mem, int64_t, p->n_devices);
    if (!w.head_f || !w.head_d || !w.round || !w.tail_f || !w.tail_d ||
        !devices || !links || !plain || !held)
        return lhi_fail_nomem(err);
    compute_path_times(p, &w);
    for (uint32_t d = 0; d < p->n_devices; d++)
        plain[d] = true;
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        const lh_chunk *k = &p->chunks[c];
        add_to_sum(p, &w, c, &devices[k->device]);
        held[k->device] += k->mem_static;
        plain[k->device] = plain[k->device] && k->mem_f >= 0 && k->mem_d == 0 &&
                           k->mem_w == -k->mem_f;
    }
    bound_path(p, &w, best);
    bound_devices(p, devices, best);
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        bool whole = true;
        int64_t k = compute_capacity(p, c, plain, held, &whole);
        if (k > 0)
            bound_memory(p, &w, c, k, whole,
                         devices[p->chunks[c].device].n_chunks == 1, best);
    }
    bound_links(p, &w, links, best);
    return LH_OK;
}

lh_status lhi_compute_closed_form_bound(const lh_pipeline *pipeline,
                                        lh_bound *out, lh_error *err)
{
    lhi_arena *mem = lhi_arena_make(0);
    if (!mem)
        return lhi_fail_nomem(err);
    lh_bound best = {.ns = -1, .device = LH_NONE, .resource = LH_NONE};
    lh_status status = compute_largest_bound(pipeline, mem, &best, err);
    lhi_arena_free(mem);
    if (status == LH_OK)
        *out = best;
    return status;
}
