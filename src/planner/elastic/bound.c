/* SPDX-License-Identifier: Apache-2.0 */
/* Lower bound on elastic plans' iteration time. The chunks of an elastic plan
 * need the ZeRO-1 layout's pass times plus recomputation, and both iteration
 * ends send at least as much. A bound on the layout's own pipeline therefore
 * bounds its elastic plans too.
 *
 * A longer first group needs more memory and so more recomputation; a shorter
 * one waits for messages between its chunks. Both effects are combined for the
 * same group length. */
#include "planner/elastic/bound.h"

#include "base/integer_math.h"
#include "planner/elastic/pipeline.h"
#include "planner/layout/elastic_shares.h"
#include "schedule/pipeline/pipeline_internal.h"
#include "schedule/solver/bound/closed_forms.h"

#include <longhaul/experimental/bounds.h>
#include <longhaul/experimental/elastic.h>
#include <math.h>

enum {
    MAX_REGIONS = 256,            /* regions of sharding shares */
    MAX_WARMUP_FORWARDS = 1 << 13 /* most first-group forwards that are timed */
};

/* A chunk's position on its stage. Before the first backward, all inner chunks
 * have equally many passes in flight; the first and the last chunk differ. */
enum { FIRST, INNER, LAST, N_POSITIONS };

/* Memory use of one device before anything is sharded. */
typedef struct stage_memory {
    double static_bytes;       /* bytes, independent of passes in flight */
    double bytes[N_POSITIONS]; /* bytes per pass, all chunks at this position */
    double layers[N_POSITIONS]; /* layers in these chunks */
} stage_memory;

/* Least work and waiting time of one device for a sharding share region, in ns.
 */
typedef struct device_span {
    double saved;     /* bytes saved by sharding */
    double recompute; /* recomputation per microbatch */
    double work;      /* all passes, without recomputation */
    double idle;      /* before the first pass, and for gathers */
    double tail;      /* after the last pass */
    double link;      /* all transfers on its link, serialised */
} device_span;

/* State of the bound computation for one layout. */
typedef struct bound_state {
    const lh_job *job;
    const lhi_config *config;
    const lhi_elastic_options *freedom;
    lhi_arena *mem;
    lhi_built_layout built;
    uint32_t P, M;
    lhi_elastic_kinds kinds; /* cheapest recomputation per byte first */
    lhi_elastic_state state;
    lhi_chunk_sharded *sharded; /* per chunk */
    stage_memory *stages;
    double path;      /* ns, one microbatch forward and backward */
    double *waits;    /* ns, [first group][device], shortest group first; -1 in
                       * a group's first entry: not computed yet */
    uint32_t n_waits; /* first-group count */
    double *ends;     /* scratch for the end times of one group */
    device_span *spans; /* per device */
} bound_state;

/* Returns how many of the model's layers chunk `chunk` contains. */
static uint32_t count_layers(const bound_state *b, uint32_t chunk)
{
    uint32_t first, n;
    lhi_config_layers(b->job->model->layers, b->config, chunk, &first, &n);
    return n;
}

/* Returns an operation's recomputation time per activation byte that it saves.
 */
static double recompute_cost_per_byte(const lh_cost_op *op)
{
    return op->bytes > 0 ? (double)op->ns / (double)op->bytes : INFINITY;
}

/* Sorts the operations that a layer can recompute by recomputation time per
 * activation byte saved, lowest first. */
static void sort_kinds(lhi_elastic_kinds *k)
{
    for (uint32_t i = 1; i < k->n; i++)
        for (uint32_t at = i;
             at > 0 && recompute_cost_per_byte(&k->ops[at]) <
                           recompute_cost_per_byte(&k->ops[at - 1]);
             at--) {
            lh_cost_op op = k->ops[at];
            k->ops[at] = k->ops[at - 1];
            k->ops[at - 1] = op;
        }
}

/* --- memory --------------------------------------------------------------- */

/* Checks whether the search options allow this sharding level (ZeRO 1, 2, 3);
 * mixed sharding shares allow every level. */
static bool may_shard(const bound_state *b, lh_elastic_sharding sharding)
{
    uint32_t all = b->freedom->shardings;
    bool mixed = !all || (all >> LH_ELASTIC_MIXED & 1);
    return mixed || (all >> sharding & 1);
}

/* Region of sharding shares: gradient shares in [g[0], g[1]] and parameter
 * shares in [p[0], p[1]], where the parameter share never exceeds the gradient
 * share. */
typedef struct region {
    double g[2], p[2];
    double ns; /* lower bound; INFINITY: nothing fits */
} region;

/* Lists the allowed regions: ranges of the sharded shares of gradients and
 * parameters. The options allow any share, or only ZeRO 1, 2 or 3, which are
 * single points. Returns the region count in `out`. */
static uint32_t list_regions(const bound_state *b, region *out)
{
    uint32_t n = 0;
    if (may_shard(b, LH_ELASTIC_MIXED)) {
        out[0] = (region){{0, 1}, {0, 1}, 0};
        return 1;
    }
    if (may_shard(b, LH_ELASTIC_ZERO1))
        out[n++] = (region){{0, 0}, {0, 0}, 0};
    if (may_shard(b, LH_ELASTIC_ZERO2))
        out[n++] = (region){{1, 1}, {0, 0}, 0};
    if (may_shard(b, LH_ELASTIC_ZERO3))
        out[n++] = (region){{1, 1}, {1, 1}, 0};
    return n;
}

/* Returns a region (ranges of sharding shares) that begins at the smallest
 * shares of gradients and parameters that the options allow, where
 * communication is least. */
static region find_least_traffic_region(const bound_state *b)
{
    region all[3], least;
    uint32_t n = list_regions(b, all);
    least = all[0];
    for (uint32_t i = 1; i < n; i++) {
        least.g[0] = fmin(least.g[0], all[i].g[0]);
        least.p[0] = fmin(least.p[0], all[i].p[0]);
    }
    return least;
}

/* Computes the largest number of bytes that sharding saves on device `d`
 * within region `r`. The saving is linear in the shares, so its maximum is
 * at a corner. The part of the region with more parameters than gradients
 * sharded is removed first. */
static double compute_max_saving(const bound_state *b, uint32_t d,
                                 const region *r)
{
    double g = 0, w = 0, most_g = 0, most_w = 0, saved = -INFINITY;
    for (uint32_t c = d; c < b->P * b->M; c += b->P) {
        g += (double)b->state.gradients[c] * (1 - b->state.kept_shares[c]);
        w += (double)b->state.weights[c] * (1 - b->state.kept_shares[c]);
        most_g = fmax(most_g, (double)b->state.gradients[c]);
        most_w = fmax(most_w, (double)b->state.weights[c]);
    }
    double of_g = g - 2 * most_g, of_w = w - 4 * most_w;
    const double most_p = fmin(r->p[1], r->g[1]);
    const double p[] = {r->p[0], most_p, fmax(r->p[0], fmin(most_p, r->g[0]))};
    for (int i = 0; i < 3; i++) {
        saved = fmax(saved, fmax(r->g[0], p[i]) * of_g + p[i] * of_w);
        saved = fmax(saved, r->g[1] * of_g + p[i] * of_w);
    }
    return saved;
}

/* --- first groups --------------------------------------------------------- */

/* Returns the next allowed length above `e` (in microbatches) of the first
 * group of microbatches; 0: none. find_next_group_length(b, 0) is the shortest.
 * Groups have at least P microbatches, so fewer than 2 P microbatches form one
 * group. With one chunk per device the order does not depend on the groups. */
static uint32_t find_next_group_length(const bound_state *b, uint32_t e)
{
    const lhi_elastic_options *f = b->freedom;
    uint32_t all = b->config->microbatches, least = b->P, most = all;
    if (b->M == 1)
        return e ? 0 : all;
    if (f->breadth_first)
        least = all;
    else if (f->depth_first)
        most = b->P;
    else if (f->queue)
        least = most = f->queue;
    e = e ? e + 1 : least;
    if (e < all && e + b->P > all)
        e = all;
    return e <= most ? e : 0;
}

/* Computes a lower bound on stage `d`'s forwards before its first backward.
 * Does not count the first group's forwards on all chunks but the last
 * (pass_order.c). */
static uint32_t count_extra_forwards(const bound_state *b, uint32_t d)
{
    return 2 * (b->P - 1 - d) + 1;
}

/* --- recomputation -------------------------------------------------------- */

/* Returns the position of chunk `c` among its stage's chunks: FIRST, INNER or
 * LAST. */
static int find_chunk_position(const bound_state *b, uint32_t c)
{
    return c < b->P ? FIRST : c + b->P < b->P * b->M ? INNER : LAST;
}

/* Counts the forwards in flight of a chunk when its stage `d` starts its first
 * backward; `group`: length of the first group, `place`: the chunk's position
 * (FIRST, INNER, LAST). Forwards beyond a short first group belong to the first
 * chunk, where the second group begins. */
static double count_passes_in_flight(const bound_state *b, uint32_t d,
                                     uint32_t group, int place)
{
    double e = group, n = b->config->microbatches;
    double more = count_extra_forwards(b, d);
    if (b->M == 1)
        return fmin(more, n);
    if (place == FIRST)
        return fmin(fmax(e, more), n);
    return place == INNER ? e : fmin(e, more);
}

/* Computes every device's memory use before ZeRO shards any state, into
 * b->stages: static bytes, and bytes per pass in flight by chunk position. */
static lh_status compute_stage_memory(bound_state *b, lh_error *err)
{
    const lh_pipeline *p = b->built.pipeline;
    b->stages = LHI_NEW(b->mem, stage_memory, b->P);
    if (!b->stages)
        return lhi_fail_nomem(err);
    for (uint32_t c = 0; c < b->P * b->M; c++) {
        const lh_chunk *k = lh_pipeline_chunk(p, c);
        stage_memory *s = &b->stages[c % b->P];
        s->static_bytes += (double)k->mem_static;
        s->bytes[find_chunk_position(b, c)] += (double)k->mem_f;
        s->layers[find_chunk_position(b, c)] += count_layers(b, c);
    }
    return LH_OK;
}

/* Returns the chunk position (FIRST, INNER, LAST) whose next operation costs
 * the least recomputation per saved byte; `passes`: passes in flight, `next`:
 * operations already chosen, both per position. N_POSITIONS: no operation is
 * left. */
static int find_cheapest_position(const bound_state *b, const double *passes,
                                  const uint32_t *next)
{
    int best = N_POSITIONS;
    double least = INFINITY;
    for (int i = 0; i < N_POSITIONS; i++) {
        double price =
            next[i] < b->kinds.n && passes[i] > 0
                ? recompute_cost_per_byte(&b->kinds.ops[next[i]]) / passes[i]
                : INFINITY;
        if (price < least) {
            least = price;
            best = i;
        }
    }
    return best;
}

/* Computes device `d`'s least recomputation time per microbatch, in ns, for a
 * first group of `group` microbatches: chooses the operations with the least
 * time per byte until the device fits into memory. `saved`: bytes saved by
 * sharding. INFINITY: recomputing everything is not enough. */
static double compute_least_recomputation(const bound_state *b, uint32_t d,
                                          uint32_t group, double saved)
{
    int64_t limit = lh_pipeline_memory_limit(b->built.pipeline, d);
    const stage_memory *s = &b->stages[d];
    double kept = 0, whole = 0, ns = 0, passes[N_POSITIONS], left[N_POSITIONS];
    uint32_t next[N_POSITIONS] = {0};
    if (limit == LH_NO_LIMIT)
        return 0;
    for (int i = 0; i < N_POSITIONS; i++) {
        passes[i] = count_passes_in_flight(b, d, group, i);
        left[i] = passes[i] * s->bytes[i];
        kept += left[i];
    }
    double missing = s->static_bytes - saved + kept - (double)limit;
    /* Tolerance: bytes are integers, shares of them are not. */
    missing -= 1e-9 * (s->static_bytes + kept) + 16;
    if (missing <= 0)
        return 0;
    for (uint32_t i = 0; i < b->kinds.n; i++)
        whole += (double)b->kinds.ops[i].bytes;
    missing += whole; /* a layer under recomputation is resident in full */
    while (missing > 0) {
        int at = find_cheapest_position(b, passes, next);
        if (at == N_POSITIONS)
            return INFINITY;
        const lh_cost_op *op = &b->kinds.ops[next[at]++];
        double most = passes[at] * s->layers[at] * (double)op->bytes;
        double taken = fmin(missing, fmin(most, left[at]));
        ns += taken / passes[at] * recompute_cost_per_byte(op);
        left[at] -= taken;
        missing -= taken;
    }
    return ns;
}

/* --- time ----------------------------------------------------------------- */

/* Checks whether every sharding level that the options permit shards at least
 * as much as `least` (ZeRO 2 or 3). */
static bool must_shard(const bound_state *b, lh_elastic_sharding least)
{
    uint32_t all = b->freedom->shardings, three = 1u << LH_ELASTIC_ZERO3;
    uint32_t two = least == LH_ELASTIC_ZERO2 ? 1u << LH_ELASTIC_ZERO2 : 0;
    return all != 0 && (all & ~(two | three)) == 0;
}

/* Computes the least busy time of device `d`'s data-parallel link, in ns; the
 * link carries one transfer at a time. Sharded state is sent layer by layer,
 * and parameters once more for every backward except the last chunk's, which
 * follows its forward directly. */
static int64_t compute_link_time(const bound_state *b, uint32_t d)
{
    const lh_pipeline *p = b->built.pipeline;
    bool two = must_shard(b, LH_ELASTIC_ZERO2);
    bool three = must_shard(b, LH_ELASTIC_ZERO3);
    int64_t sum = 0;
    for (uint32_t c = d; c < b->P * b->M; c += b->P) {
        const lh_chunk *k = lh_pipeline_chunk(p, c);
        bool last = c + b->P >= b->P * b->M;
        sum +=
            three ? b->sharded[c].gather_ns * (last ? 1 : 2) : k->all_gather_ns;
        sum += two ? b->sharded[c].scatter_ns : k->reduce_scatter_ns;
    }
    return sum;
}

/* Sets the data-parallel times of chunk `k` (number c): gather before its first
 * pass and reduction after its last, at the least sharding that the options
 * permit. */
static void set_end_communication(const bound_state *b, uint32_t c, lh_chunk *k)
{
    int64_t latency = k->dp_latency_ns;
    if (!must_shard(b, LH_ELASTIC_ZERO2))
        return;
    k->dp_latency_ns = 0;
    k->all_gather_ns += k->all_gather_ns > 0 ? latency : 0;
    k->reduce_scatter_ns += k->reduce_scatter_ns > 0 ? latency : 0;
    k->reduce_scatter_ns =
        lhi_max_int64(k->reduce_scatter_ns, b->sharded[c].scatter_ns);
    if (must_shard(b, LH_ELASTIC_ZERO3))
        k->all_gather_ns =
            lhi_max_int64(k->all_gather_ns, b->sharded[c].gather_ns);
}

/* Computes the lower bound on the makespan without recomputation and memory
 * limits, in ns. */
static lh_status compute_unconstrained_bound(const bound_state *b, int64_t *out,
                                             lh_error *err)
{
    lh_pipeline_desc desc = {.size = sizeof desc};
    lh_pipeline *with;
    lh_bound bound;
    LHI_TRY(lh_pipeline_describe(b->built.pipeline, &desc, err));
    lh_chunk *chunks = LHI_NEW(b->mem, lh_chunk, desc.n_chunks);
    if (!chunks)
        return lhi_fail_nomem(err);
    for (uint32_t c = 0; c < desc.n_chunks; c++) {
        lh_chunk *k = &chunks[c];
        *k = desc.chunks[c];
        set_end_communication(b, c, k);
        k->mem_static = k->mem_f = k->mem_d = k->mem_w = 0;
    }
    desc.chunks = chunks;
    desc.joint = true;
    LHI_TRY(lh_pipeline_make(&desc, &with, err));
    lh_status status = lhi_compute_closed_form_bound(with, &bound, err);
    lh_pipeline_free(with);
    LHI_TRY(status);
    *out = bound.ns;
    for (uint32_t d = 0; d < b->P; d++)
        *out = lhi_max_int64(*out, compute_link_time(b, d));
    return LH_OK;
}

/* --- shares and time combined --------------------------------------------- */

/* Computes a communication's least duration in ns when at least `share` of it
 * is sent layer by layer. `at_once_ns`, `sharded_ns`: duration if none or all
 * of it is. */
static double estimate_partial_ns(int64_t at_once_ns, int64_t sharded_ns,
                                  double share)
{
    double once = (double)at_once_ns;
    return once + (fmax((double)sharded_ns, once) - once) * share;
}

/* Computes the time to gather chunk `c`'s parameters with sharding shares in
 * region `r`, in ns. The link latency counts only if something is sharded; with
 * `end` (the chunk's first or last collective in the iteration) it always
 * counts. */
static double compute_gather_ns(const bound_state *b, uint32_t c,
                                const region *r, bool end)
{
    const lh_chunk *k = lh_pipeline_chunk(b->built.pipeline, c);
    int64_t ns = k->all_gather_ns;
    if (ns > 0 && (end || r->g[0] > 0))
        ns += k->dp_latency_ns;
    return estimate_partial_ns(ns, b->sharded[c].gather_ns, r->p[0]);
}

/* Computes the time to reduce-scatter chunk `c`'s gradients with sharding
 * shares in region `r`, in ns. The link latency counts only if something is
 * sharded or with `end` (the chunk's first or last collective in the
 * iteration). */
static double compute_scatter_ns(const bound_state *b, uint32_t c,
                                 const region *r, bool end)
{
    const lh_chunk *k = lh_pipeline_chunk(b->built.pipeline, c);
    int64_t ns = k->reduce_scatter_ns;
    if (ns > 0 && (end || r->g[0] > 0))
        ns += k->dp_latency_ns;
    return estimate_partial_ns(ns, b->sharded[c].scatter_ns, r->g[0]);
}

/* Returns one message's least duration on a route: transfer plus latency, in
 * ns. */
static double compute_hop_ns(const lhi_route *route)
{
    return (double)(route->transfer_ns + route->latency_ns);
}

/* Computes the time in ns that one microbatch needs for all its forward and
 * backward passes and messages, without recomputation. */
static double compute_path_ns(const bound_state *b)
{
    const lh_pipeline *p = b->built.pipeline;
    double ns = 0;
    for (uint32_t c = 0; c < b->P * b->M; c++) {
        const lh_chunk *k = lh_pipeline_chunk(p, c);
        ns += (double)(k->f_ns + k->d_ns + k->w_ns);
        if (c > 0)
            ns += compute_hop_ns(&p->forward[c - 1]) +
                  compute_hop_ns(&p->backward[c]);
    }
    return ns;
}

/* Computes each device's idle time before its first backward, in ns, into
 * `waits`, for a first group of `group` microbatches. A device runs its
 * forwards in one order, each after the same forward on the previous chunk. A
 * chunk's first forward waits for its gather, which begins with the first
 * forward of the stage's previous chunk. Devices that run more forwards first
 * are idle for at least as long. */
static void compute_idle_times(const bound_state *b, uint32_t group,
                               double *waits)
{
    const lh_pipeline *p = b->built.pipeline;
    const region least = find_least_traffic_region(b);
    double *ends = b->ends; /* previous chunk's end times */
    double *free_at = waits, *work = ends + group, *begun = work + b->P;
    for (uint32_t d = 0; d < b->P; d++)
        free_at[d] = work[d] = 0;
    for (uint32_t column = 0; column < b->M; column++)
        for (uint32_t m = 0; m < group; m++) {
            double at = column > 0 ? ends[m] : 0;
            for (uint32_t d = 0; d < b->P; d++) {
                uint32_t c = column * b->P + d;
                double f_ns = (double)lh_pipeline_chunk(p, c)->f_ns;
                if (column + 1 == b->M && m >= count_extra_forwards(b, d))
                    break; /* no later chunk has them either */
                at = fmax(at, free_at[d]);
                if (m == 0) {
                    at = fmax(at,
                              (column > 0 ? begun[d] : 0) +
                                  compute_gather_ns(b, c, &least, column == 0));
                    begun[d] = at;
                }
                at = free_at[d] = at + f_ns;
                work[d] += f_ns;
                at += c + 1 < b->P * b->M ? compute_hop_ns(&p->forward[c]) : 0;
            }
            ends[m] = at;
        }
    for (uint32_t d = 0; d < b->P; d++)
        waits[d] = free_at[d] - work[d];
}

/* Returns each device's idle time before its first backward, in ns, if the
 * first group has `group` microbatches. `at`: row for this group size in the
 * table of idle times; the first use computes the row. NULL: no such row. */
static const double *get_idle_times(const bound_state *b, uint32_t at,
                                    uint32_t group)
{
    if (at >= b->n_waits)
        return NULL;
    double *waits = b->waits + (size_t)at * b->P;
    if (waits[0] < 0)
        compute_idle_times(b, group, waits);
    return waits;
}

/* Allocates the idle-time table per first-group length and device. */
static lh_status allocate_idle_times(bound_state *b, lh_error *err)
{
    uint64_t forwards = 0;
    uint32_t most = 0;
    for (uint32_t e = find_next_group_length(b, 0); e;
         e = find_next_group_length(b, e)) {
        forwards += (uint64_t)e * b->P * b->M;
        if (forwards > MAX_WARMUP_FORWARDS)
            break;
        b->n_waits++;
        most = e;
    }
    b->waits = LHI_NEW(b->mem, double, (size_t)b->n_waits * b->P + 1);
    b->ends = LHI_NEW(b->mem, double, most + 2 * (size_t)b->P);
    b->spans = LHI_NEW(b->mem, device_span, b->P);
    if (!b->waits || !b->ends || !b->spans)
        return lhi_fail_nomem(err);
    for (uint32_t i = 0; i < b->n_waits; i++)
        b->waits[(size_t)i * b->P] = -1;
    return LH_OK;
}

/* Computes device `d`'s least work, link and idle times in ns for sharding
 * shares in region `r`, into *s; without the parts that depend on the first
 * group's length. */
static void compute_span(const bound_state *b, uint32_t d, const region *r,
                         device_span *s)
{
    const lh_pipeline *p = b->built.pipeline;
    uint32_t all = b->P * b->M;
    double n = b->config->microbatches;
    *s = (device_span){.saved = compute_max_saving(b, d, r)};
    for (uint32_t c = d; c < all; c += b->P) {
        const lh_chunk *k = lh_pipeline_chunk(p, c);
        s->work += n * (double)(k->f_ns + k->d_ns + k->w_ns);
        s->link += compute_gather_ns(b, c, r, false) +
                   compute_scatter_ns(b, c, r, false);
        if (c + b->P >= all)
            continue;
        s->link += r->p[0] * (double)b->sharded[c].gather_ns;
        /* The next chunk's gather begins with this chunk's first forward. */
        s->idle += fmax(0, compute_gather_ns(b, c + b->P, r, false) -
                               n * (double)k->f_ns);
    }
}

/* Computes, for sharding shares in region `r`, lower bounds on each device's
 * work, idle time before its first and time after its last pass, in ns, into
 * b->spans. */
static void compute_spans(const bound_state *b, const region *r)
{
    const lh_pipeline *p = b->built.pipeline;
    double head = 0, tail = 0;
    for (uint32_t d = 0; d < b->P; d++) {
        compute_span(b, d, r, &b->spans[d]);
        if (d > 0) {
            const lh_chunk *k = lh_pipeline_chunk(p, d - 1);
            head += (double)k->f_ns + compute_hop_ns(&p->forward[d - 1]);
            tail +=
                (double)(k->d_ns + k->w_ns) + compute_hop_ns(&p->backward[d]);
        }
        head = fmax(head, compute_gather_ns(b, d, r, true));
        tail = fmax(tail, compute_scatter_ns(b, d, r, true));
        b->spans[d].idle += head;
        b->spans[d].tail = tail;
    }
}

/* Stores each device's least recomputation time, in ns per microbatch, for a
 * first group of `group` microbatches. Returns false if a device does not fit
 * into memory even if it recomputes everything. */
static bool compute_recomputation(const bound_state *b, uint32_t group)
{
    for (uint32_t d = 0; d < b->P; d++) {
        b->spans[d].recompute =
            compute_least_recomputation(b, d, group, b->spans[d].saved);
        if (isinf(b->spans[d].recompute))
            return false;
    }
    return true;
}

/* Computes a lower bound on the makespan from the device spans, in ns. `waits`:
 * idle time per device for one first-group length; NULL: any length. */
static double compute_makespan_bound(const bound_state *b, const region *r,
                                     const double *waits)
{
    double most = 0, n = b->config->microbatches;
    double path = b->path + compute_gather_ns(b, 0, r, true) +
                  compute_scatter_ns(b, 0, r, true);
    for (uint32_t d = 0; d < b->P; d++) {
        const device_span *s = &b->spans[d];
        double idle = fmax(s->idle, waits ? waits[d] : 0);
        most = fmax(most, idle + s->work + n * s->recompute + s->tail);
        most = fmax(most, s->link);
        path += s->recompute;
    }
    return fmax(most, path);
}

/* Computes a lower bound on the makespan over all plans with sharding shares in
 * region `r`, in ns. Recomputation grows with the first group, so once a group
 * length causes no waiting, longer groups cannot be faster. */
static double compute_region_bound(const bound_state *b, const region *r)
{
    double least = INFINITY;
    uint32_t at = 0;
    if (r->p[0] > r->g[1]) /* more parameters than gradients */
        return INFINITY;
    compute_spans(b, r);
    for (uint32_t e = find_next_group_length(b, 0); e;
         e = find_next_group_length(b, e), at++) {
        if (!compute_recomputation(b, e))
            break;
        double any = compute_makespan_bound(b, r, NULL);
        if (any >= least)
            break;
        const double *waits = get_idle_times(b, at, e);
        if (!waits)
            return any;
        least = fmin(least, compute_makespan_bound(b, r, waits));
    }
    return least;
}

/* Splits region `at` (range of sharding shares) in the middle of its longer
 * side and bounds both halves; the second becomes list[n]. Returns n + 1. */
static uint32_t split_region(const bound_state *b, region *list, uint32_t n,
                             uint32_t at)
{
    region *one = &list[at], *other = &list[n];
    bool gradients = one->g[1] - one->g[0] >= one->p[1] - one->p[0];
    double *side = gradients ? one->g : one->p;
    double middle = (side[0] + side[1]) / 2;
    *other = *one;
    side[1] = middle;
    (gradients ? other->g : other->p)[0] = middle;
    other->ns = fmax(other->ns, compute_region_bound(b, other));
    one->ns = fmax(one->ns, compute_region_bound(b, one));
    return n + 1;
}

/* Computes a lower bound on the makespan over all sharding shares into *out_ns
 * by splitting regions of shares, until it reaches enough_ns. Less sharding
 * needs more recomputation, more takes longer to send; small regions count both
 * effects. */
static lh_status bound_shares(const bound_state *b, double enough_ns,
                              double *out_ns, lh_error *err)
{
    region *list = LHI_NEW(b->mem, region, MAX_REGIONS);
    if (!list)
        return lhi_fail_nomem(err);
    uint32_t n = list_regions(b, list), least = 0;
    for (uint32_t i = 0; i < n; i++)
        list[i].ns = compute_region_bound(b, &list[i]);
    for (;;) {
        least = 0;
        for (uint32_t i = 1; i < n; i++)
            least = list[i].ns < list[least].ns ? i : least;
        const region *r = &list[least];
        bool point = !(r->g[1] > r->g[0]) && !(r->p[1] > r->p[0]);
        if (n == MAX_REGIONS || point || r->ns >= enough_ns)
            break;
        n = split_region(b, list, n, least);
    }
    *out_ns = list[least].ns;
    return LH_OK;
}

/* --- complete bound ------------------------------------------------------- */

/* Computes each chunk's times to gather and reduce its state when it is sharded
 * over the replicas, into b->sharded. */
static lh_status find_sharded(bound_state *b, lh_error *err)
{
    b->sharded = LHI_NEW(b->mem, lhi_chunk_sharded, (size_t)b->P * b->M);
    if (!b->sharded)
        return lhi_fail_nomem(err);
    return lhi_layout_compute_sharded_times(b->job, b->config, b->sharded, err);
}

/* Computes the lower bound on the makespan over all elastic plans (INT64_MAX:
 * none fits into memory) and the optimizer and overhead time after the
 * pipeline, in ns. Stops early once their sum exceeds freedom->below_ns. */
static lh_status compute_bound(bound_state *b, lhi_elastic_lower_bound *out,
                               lh_error *err)
{
    double ns, enough_ns = INFINITY;
    int64_t below = b->freedom->below_ns;
    LHI_TRY(lhi_elastic_state_find(b->job, b->config, b->mem, &b->state, err));
    if (b->freedom->recompute)
        LHI_TRY(lhi_elastic_kinds_find(b->job, b->config, &b->kinds, err));
    LHI_TRY(find_sharded(b, err));
    sort_kinds(&b->kinds);
    LHI_TRY(compute_stage_memory(b, err));
    LHI_TRY(allocate_idle_times(b, err));
    b->path = compute_path_ns(b);
    out->after_ns = b->built.optimizer_ns + b->built.overhead_ns;
    LHI_TRY(compute_unconstrained_bound(b, &out->makespan_ns, err));
    if (below > 0)
        enough_ns = (double)(below - out->after_ns) * 1.001;
    LHI_TRY(bound_shares(b, enough_ns, &ns, err));
    if (isinf(ns))
        out->makespan_ns = INT64_MAX;
    else /* rounded up */
        out->makespan_ns =
            lhi_max_int64(out->makespan_ns, (int64_t)(ns * (1 - 1e-9)) - 16);
    return LH_OK;
}

lh_status lhi_elastic_compute_bound(const lh_job *job, const lhi_config *config,
                                    const lhi_elastic_options *freedom,
                                    lhi_elastic_lower_bound *out, lh_error *err)
{
    bound_state b = {.job = job,
                     .config = config,
                     .freedom = freedom,
                     .P = config->layout.pipeline,
                     .M = config->layout.chunks_per_device};
    *out = (lhi_elastic_lower_bound){0};
    if (freedom->offload)
        return LH_OK;
    b.mem = lhi_arena_make(0);
    if (!b.mem)
        return lhi_fail_nomem(err);
    lh_status status = lhi_layout_build(job, config, &b.built, err);
    if (status == LH_OK)
        status = compute_bound(&b, out, err);
    lh_pipeline_free(b.built.pipeline);
    lhi_arena_free(b.mem);
    return status;
}

uint64_t lhi_elastic_estimate_bound_work(const lhi_config *config)
{
    return 30 + 4 * (uint64_t)config->layout.pipeline *
                    config->layout.chunks_per_device;
}
