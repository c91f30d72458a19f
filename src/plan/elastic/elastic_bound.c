/* SPDX-License-Identifier: Apache-2.0 */
/* A bound of elastic plans. Their chunks take what those of the layout with
 * ZeRO-1 take, and what is recomputed; both ends of an iteration send at least
 * as much. So a bound of the layout's own pipeline is one of theirs, once every
 * stage has the recomputation that its memory asks for in any case. */
#include "plan/elastic/elastic_bound.h"

#include "base/whole.h"
#include "pipe/pipeline_own.h"
#include "plan/elastic/elastic_made.h"
#include "plan/layout/shares.h"

#include <longhaul/bounds.h>
#include <longhaul/elastic.h>
#include <math.h>

enum { MOST_REGIONS = 256 }; /* of shares */

typedef struct bounder {
    const lh_job *job;
    const lhi_config *config;
    const lhi_elastic_freedom *freedom;
    lhi_arena *mem;
    lhi_built built;
    uint32_t P, M, layers;   /* of an even chunk, rounded up */
    lhi_elastic_kinds kinds; /* those that take least for a byte first */
    lhi_elastic_state state;
    lhi_chunk_sharded *sharded; /* of each chunk; NULL: not asked for yet */
} bounder;

static uint32_t layers_of(const bounder *b, uint32_t chunk)
{
    uint32_t first, n;
    lhi_config_layers(b->job->model->layers, b->config, chunk, &first, &n);
    return n;
}

static double price_of(const lh_cost_op *op)
{
    return op->bytes > 0 ? (double)op->ns / (double)op->bytes : INFINITY;
}

static void sort_kinds(lhi_elastic_kinds *k)
{
    for (uint32_t i = 1; i < k->n; i++)
        for (uint32_t at = i;
             at > 0 && price_of(&k->ops[at]) < price_of(&k->ops[at - 1]);
             at--) {
            lh_cost_op op = k->ops[at];
            k->ops[at] = k->ops[at - 1];
            k->ops[at - 1] = op;
        }
}

/* --- memory ------------------------------------------------------------------
 */

static bool may_shard(const bounder *b, lh_elastic_sharding sharding)
{
    uint32_t all = b->freedom->shardings;
    bool mixed = !all || (all >> LH_ELASTIC_MIXED & 1);
    return mixed || (all >> sharding & 1);
}

/* What sharding is looked at: gradients from g[0] to g[1] of them, parameters
 * from p[0] to p[1], and no more of these than of gradients. */
typedef struct region {
    double g[2], p[2];
    double ns; /* no plan in it takes less; INFINITY: none fits */
} region;

/* What the job leaves open: all shares, or some of the three corners. */
static uint32_t all_regions(const bounder *b, region *out)
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

/* The most that sharding takes from device `d`. It is linear in the shares, so
 * it is most at a corner of the region, of which what has more parameters than
 * gradients is cut off. */
static double most_saved(const bounder *b, uint32_t d, const region *r)
{
    double g = 0, w = 0, most_g = 0, most_w = 0, saved = -INFINITY;
    for (uint32_t c = d; c < b->P * b->M; c += b->P) {
        g += (double)b->state.gradients[c] * (1 - b->state.kept[c]);
        w += (double)b->state.weights[c] * (1 - b->state.kept[c]);
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

/* What a stage keeps of passes at once, at least. */
typedef struct kept {
    double bytes; /* with nothing recomputed */
    double less;  /* if one layer of an even chunk drops one byte, in all of the
                     stage's chunks in proportion */
    double slack; /* and beyond that, for each byte of a layer */
    double layers; /* of all chunks together, in even chunks */
} kept;

/* The fewest microbatches of the first group: none has fewer than P, so fewer
 * than 2 P are one group. */
static double first_group(const bounder *b)
{
    uint32_t all = b->config->microbatches;
    return all < 2 * b->P ? all : b->P;
}

/* How many forwards of chunk `c` its stage has run before its first backward
 * (elastic_order.c). What a short first group leaves is of the first chunk: the
 * second group begins there, and is long enough. */
static double passes_kept(const bounder *b, uint32_t c)
{
    double e = first_group(b), n = b->config->microbatches;
    double more = 2 * (b->P - 1 - (double)(c % b->P)) + 1;
    if (b->M == 1)
        return fmin(more, n);
    if (c < b->P)
        return fmin(fmax(e, more), n);
    return c + b->P < b->P * b->M ? e : fmin(e, more);
}

static kept kept_by(const bounder *b, uint32_t d)
{
    kept k = {0};
    for (uint32_t c = d; c < b->P * b->M; c += b->P) {
        double each = passes_kept(b, c);
        double share = (double)layers_of(b, c) / b->layers;
        k.bytes +=
            each * (double)lh_pipeline_chunk(b->built.pipeline, c)->mem_f;
        k.less += each * share;
        if (layers_of(b, c) != b->layers) /* its layers are rounded up */
            k.slack += each * (b->layers - 1) / b->layers;
        k.layers += share;
    }
    return k;
}

/* What device `d` has to do again for each microbatch, in ns, if it takes least
 * for what does not fit; INFINITY: all of it is not enough. */
static double least_again(const bounder *b, uint32_t d, double saved)
{
    const lh_pipeline *p = b->built.pipeline;
    int64_t limit = lh_pipeline_memory_limit(p, d);
    double held = 0, whole = 0, ns = 0;
    if (limit == LH_NO_LIMIT)
        return 0;
    for (uint32_t c = d; c < b->P * b->M; c += b->P)
        held += (double)lh_pipeline_chunk(p, c)->mem_static;
    for (uint32_t i = 0; i < b->kinds.n; i++)
        whole += (double)b->kinds.ops[i].bytes;
    kept k = kept_by(b, d);
    double missing = held - saved + k.bytes - (double)limit;
    /* Bytes are whole numbers, shares of them are not. */
    missing -= 1e-9 * (held + k.bytes) + 16;
    if (missing <= 0)
        return 0;
    /* While a layer is made again all of it is there. */
    missing = (missing + whole - k.slack * whole) / k.less;
    for (uint32_t i = 0; i < b->kinds.n && missing > 0; i++) {
        const lh_cost_op *op = &b->kinds.ops[i];
        double most = (double)b->layers * (double)op->bytes;
        double taken = fmin(missing, most);
        if (taken <= 0)
            continue;
        ns += taken * price_of(op) * k.layers;
        missing -= taken;
    }
    return missing > 0 ? INFINITY : ns;
}

/* --- time --------------------------------------------------------------------
 */

/* Whether everything is sharded so far in any case: the job says so. */
static bool must_shard(const bounder *b, lh_elastic_sharding least)
{
    uint32_t all = b->freedom->shardings, three = 1u << LH_ELASTIC_ZERO3;
    uint32_t two = least == LH_ELASTIC_ZERO2 ? 1u << LH_ELASTIC_ZERO2 : 0;
    return all != 0 && (all & ~(two | three)) == 0;
}

/* A device's data-parallel link carries one thing at a time. What is sharded
 * goes layer by layer, and parameters once more for every backward but that of
 * the last chunk, which follows its forward. */
static int64_t sent_by(const bounder *b, uint32_t d)
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

/* Before the first pass of a stage, and after its last. */
static void set_ends(const bounder *b, uint32_t c, lh_chunk *k)
{
    int64_t latency = k->dp_latency_ns;
    if (!must_shard(b, LH_ELASTIC_ZERO2))
        return;
    k->dp_latency_ns = 0;
    k->all_gather_ns += k->all_gather_ns > 0 ? latency : 0;
    k->reduce_scatter_ns += k->reduce_scatter_ns > 0 ? latency : 0;
    k->reduce_scatter_ns =
        lhi_most(k->reduce_scatter_ns, b->sharded[c].scatter_ns);
    if (must_shard(b, LH_ELASTIC_ZERO3))
        k->all_gather_ns = lhi_most(k->all_gather_ns, b->sharded[c].gather_ns);
}

/* `again`: of each device, in ns. Memory has had its say. */
static lh_status bound_with(const bounder *b, const double *again, int64_t *out,
                            lh_error *err)
{
    lh_pipeline_desc desc = {.size = sizeof desc};
    const lh_pipeline *p = b->built.pipeline;
    lh_pipeline *with;
    lh_bound bound;
    LHI_TRY(lh_pipeline_describe(p, &desc, err));
    lh_chunk *chunks = LHI_NEW(b->mem, lh_chunk, desc.n_chunks);
    if (!chunks)
        return lhi_fail_nomem(err);
    for (uint32_t c = 0; c < desc.n_chunks; c++) {
        lh_chunk *k = &chunks[c];
        double n = 0, own = layers_of(b, c);
        *k = desc.chunks[c];
        for (uint32_t i = c % b->P; i < desc.n_chunks; i += b->P)
            n += layers_of(b, i);
        k->d_ns += lhi_most(
            (int64_t)floor(again[c % b->P] * own / n * (1 - 1e-12)) - 1, 0);
        set_ends(b, c, k);
        k->mem_static = k->mem_f = k->mem_d = k->mem_w = 0;
    }
    desc.chunks = chunks;
    desc.joint = true;
    LHI_TRY(lh_pipeline_make(&desc, &with, err));
    lh_status status = lh_lower_bound(with, &bound, err);
    lh_pipeline_free(with);
    LHI_TRY(status);
    *out = bound.ns;
    for (uint32_t d = 0; d < b->P; d++)
        *out = lhi_most(*out, sent_by(b, d));
    return LH_OK;
}

/* --- shares and time together ------------------------------------------------
 */

/* What a communication takes if at least `share` of it goes layer by layer. */
static double whole_ns(int64_t at_once_ns, int64_t sharded_ns, double share)
{
    double once = (double)at_once_ns;
    return once + (fmax((double)sharded_ns, once) - once) * share;
}

/* Gather and scatter of a chunk. The link is taken for the latency only where
 * something is sharded; at both ends of an iteration it counts in any case. */
static double gather_of(const bounder *b, uint32_t c, const region *r, bool end)
{
    const lh_chunk *k = lh_pipeline_chunk(b->built.pipeline, c);
    int64_t ns = k->all_gather_ns;
    if (ns > 0 && (end || r->g[0] > 0))
        ns += k->dp_latency_ns;
    return whole_ns(ns, b->sharded[c].gather_ns, r->p[0]);
}

static double scatter_of(const bounder *b, uint32_t c, const region *r,
                         bool end)
{
    const lh_chunk *k = lh_pipeline_chunk(b->built.pipeline, c);
    int64_t ns = k->reduce_scatter_ns;
    if (ns > 0 && (end || r->g[0] > 0))
        ns += k->dp_latency_ns;
    return whole_ns(ns, b->sharded[c].scatter_ns, r->g[0]);
}

static double hop_of(const lhi_route *route)
{
    return (double)(route->transfer_ns + route->latency_ns);
}

/* Of a device: what its passes and its link take from its first pass to its
 * last, at least. */
typedef struct span {
    double passes; /* with the waiting for gathers */
    double link;   /* all that it sends, one after the other */
} span;

static span span_of(const bounder *b, uint32_t d, const region *r, double again)
{
    const lh_pipeline *p = b->built.pipeline;
    uint32_t all = b->P * b->M;
    double n = b->config->microbatches;
    span s = {n * again, 0};
    for (uint32_t c = d; c < all; c += b->P) {
        const lh_chunk *k = lh_pipeline_chunk(p, c);
        s.passes += n * (double)(k->f_ns + k->d_ns + k->w_ns);
        s.link += gather_of(b, c, r, false) + scatter_of(b, c, r, false);
        if (c + b->P >= all)
            continue;
        s.link += r->p[0] * (double)b->sharded[c].gather_ns;
        /* The next chunk's gather begins with this one's first forward. */
        s.passes +=
            fmax(0, gather_of(b, c + b->P, r, false) - n * (double)k->f_ns);
    }
    return s;
}

/* No plan with shares in `r` takes less. *again: room for each device. */
static double least_ns(const bounder *b, const region *r, double *again)
{
    const lh_pipeline *p = b->built.pipeline;
    double head = 0, tail = 0, most = 0;
    if (r->p[0] > r->g[1]) /* more parameters than gradients */
        return INFINITY;
    for (uint32_t d = 0; d < b->P; d++) {
        again[d] = least_again(b, d, most_saved(b, d, r));
        if (isinf(again[d]))
            return INFINITY;
    }
    for (uint32_t d = 0; d < b->P; d++) {
        span s = span_of(b, d, r, again[d]);
        if (d > 0) {
            const lh_chunk *k = lh_pipeline_chunk(p, d - 1);
            head += (double)k->f_ns + hop_of(&p->forward[d - 1]);
            tail += (double)(k->d_ns + k->w_ns) + hop_of(&p->backward[d]);
        }
        head = fmax(head, gather_of(b, d, r, true));
        tail = fmax(tail, scatter_of(b, d, r, true));
        most = fmax(most, fmax(head + s.passes + tail, s.link));
    }
    return most;
}

/* Cuts region `at` of `n` in two along its longer side. */
static uint32_t cut_region(const bounder *b, region *list, uint32_t n,
                           uint32_t at, double *again)
{
    region *one = &list[at], *other = &list[n];
    bool gradients = one->g[1] - one->g[0] >= one->p[1] - one->p[0];
    double *side = gradients ? one->g : one->p;
    double middle = (side[0] + side[1]) / 2;
    *other = *one;
    side[1] = middle;
    (gradients ? other->g : other->p)[0] = middle;
    other->ns = fmax(other->ns, least_ns(b, other, again));
    one->ns = fmax(one->ns, least_ns(b, one, again));
    return n + 1;
}

/* Less sharding takes more memory, hence more to make again, and more takes
 * longer to send: both count over small regions of shares at once. */
static lh_status bound_shares(const bounder *b, double *again, double enough_ns,
                              double *out_ns, lh_error *err)
{
    region *list = LHI_NEW(b->mem, region, MOST_REGIONS);
    if (!list)
        return lhi_fail_nomem(err);
    uint32_t n = all_regions(b, list), least = 0;
    for (uint32_t i = 0; i < n; i++)
        list[i].ns = least_ns(b, &list[i], again);
    for (;;) {
        least = 0;
        for (uint32_t i = 1; i < n; i++)
            least = list[i].ns < list[least].ns ? i : least;
        const region *r = &list[least];
        bool point = !(r->g[1] > r->g[0]) && !(r->p[1] > r->p[0]);
        if (n == MOST_REGIONS || point || r->ns >= enough_ns)
            break;
        n = cut_region(b, list, n, least, again);
    }
    *out_ns = list[least].ns;
    return LH_OK;
}

/* --- all of it ---------------------------------------------------------------
 */

static lh_status find_sharded(bounder *b, lh_error *err)
{
    b->sharded = LHI_NEW(b->mem, lhi_chunk_sharded, (size_t)b->P * b->M);
    if (!b->sharded)
        return lhi_fail_nomem(err);
    return lhi_layout_sharded(b->job, b->config, b->sharded, err);
}

/* What the job leaves open as one: less again than anywhere in it. */
static double loosest_again(const bounder *b, uint32_t d)
{
    region all[3];
    double least = INFINITY;
    for (uint32_t i = all_regions(b, all); i-- > 0;)
        least = fmin(least, least_again(b, d, most_saved(b, d, &all[i])));
    return least;
}

static lh_status find_floor(bounder *b, lhi_elastic_floor *out, lh_error *err)
{
    double ns, *again = LHI_NEW(b->mem, double, b->P);
    int64_t below = b->freedom->below_ns;
    if (!again)
        return lhi_fail_nomem(err);
    LHI_TRY(lhi_elastic_state_find(b->job, b->config, b->mem, &b->state, err));
    if (b->freedom->recompute)
        LHI_TRY(lhi_elastic_kinds_find(b->job, b->config, &b->kinds, err));
    if (must_shard(b, LH_ELASTIC_ZERO2))
        LHI_TRY(find_sharded(b, err));
    sort_kinds(&b->kinds);
    b->layers = (b->job->model->layers + b->P * b->M - 1) / (b->P * b->M);
    out->after_ns = b->built.optimizer_ns + b->built.overhead_ns;
    for (uint32_t d = 0; d < b->P; d++) {
        again[d] = loosest_again(b, d);
        if (isinf(again[d])) {
            out->makespan_ns = INT64_MAX;
            return LH_OK;
        }
    }
    LHI_TRY(bound_with(b, again, &out->makespan_ns, err));
    if (below > 0 && out->makespan_ns + out->after_ns >= below)
        return LH_OK;
    if (!b->sharded)
        LHI_TRY(find_sharded(b, err));
    LHI_TRY(bound_shares(b, again,
                         below > 0 ? (double)(below - out->after_ns) * 1.001
                                   : INFINITY,
                         &ns, err));
    if (isinf(ns))
        out->makespan_ns = INT64_MAX;
    else /* what is rounded is rounded up */
        out->makespan_ns =
            lhi_most(out->makespan_ns, (int64_t)(ns * (1 - 1e-9)) - 16);
    return LH_OK;
}

lh_status lhi_elastic_floor_of(const lh_job *job, const lhi_config *config,
                               const lhi_elastic_freedom *freedom,
                               lhi_elastic_floor *out, lh_error *err)
{
    bounder b = {.job = job,
                 .config = config,
                 .freedom = freedom,
                 .P = config->layout.pipeline,
                 .M = config->layout.chunks_per_device};
    *out = (lhi_elastic_floor){0};
    if (freedom->offload)
        return LH_OK;
    b.mem = lhi_arena_make(0);
    if (!b.mem)
        return lhi_fail_nomem(err);
    lh_status status = lhi_layout_build(job, config, &b.built, err);
    if (status == LH_OK)
        status = find_floor(&b, out, err);
    lh_pipeline_free(b.built.pipeline);
    lhi_arena_free(b.mem);
    return status;
}

uint64_t lhi_elastic_work_of_floor(const lhi_config *config)
{
    return 30 + 4 * (uint64_t)config->layout.pipeline *
                    config->layout.chunks_per_device;
}
